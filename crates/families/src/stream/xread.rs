//! XREAD: new entries of several streams.

use super::id;
use super::read::between;
use super::reply::{Head, Showing, ShownEntries, name, some};
use super::value::Stream;
use crate::lookup::find_value;
use crate::multi_input::{self, Hold, Input, pause_now_and_then};
use crate::option_names;
use crate::waiting::milliseconds;
use darter_command::{
    Answer, Args, Call, Condition, Cx, Flow, Look, Looking, Patience, Refusal, Since, Taking, Wait,
    Want, When,
};
use darter_keyspace::{Found, Key, WrongType};
use darter_resp::{self as resp, Output, Reply};
use darter_structs::stream::{End, Entries, StreamId};
use std::ops::Range;

/// The most entries from a stream for a call that was blocked, without a COUNT.
pub(super) const WAITED_COUNT: usize = 1_000;

/// The request.
struct XReadRequest {
    /// Indexes of the keys. The IDs follow, one for each key.
    keys: Range<usize>,
    /// The most entries of each stream.
    count: usize,
    patience: Patience,
}

impl XReadRequest {
    fn parse(mut args: Args<'_>) -> Result<Self, Refusal> {
        let (mut count, mut patience) = (0, Patience::None);
        let mut said = option_names::Count::default();
        while !(args.left() > 1 && args.option("STREAMS")) {
            said.add()?;
            if args.left() > 1 && args.option("COUNT") {
                count = usize::try_from(args.int()?).unwrap_or(0);
            } else if args.left() > 1 && args.option("BLOCK") {
                patience = milliseconds(&mut args)?;
            } else {
                return Err(refusal_of(args));
            }
        }
        if !args.left().is_multiple_of(2) {
            return Err(Refusal::line(
                "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be \
                 specified.",
            ));
        }
        let first = args.position();
        let count = if count == 0 { usize::MAX } else { count };
        Ok(Self { keys: first..first + args.left() / 2, count, patience })
    }

    /// The ranks of the entries after the ID in the argument at `at`.
    fn ranks(
        &self,
        args: resp::Args<'_>,
        at: usize,
        stream: Option<(&Entries, StreamId)>,
    ) -> Result<Range<usize>, Refusal> {
        let after = seen(args.head(at), stream)?;
        Ok(stream.map_or(0..0, |(entries, _)| self.behind(entries, after)))
    }

    /// The ranks of the entries after an ID.
    fn behind(&self, entries: &Entries, after: StreamId) -> Range<usize> {
        let Some(next) = after.next() else { return 0..0 };
        let ranks = between(entries, next, StreamId::MAX);
        ranks.start..ranks.end.min(ranks.start.saturating_add(self.count))
    }
}

/// Parses the last seen ID of a stream.
fn seen(word: &[u8], stream: Option<(&Entries, StreamId)>) -> Result<StreamId, Refusal> {
    match (word, stream) {
        (b"$", Some((_, last))) => Ok(last),
        // As in Redis since 7.4: `+` means all but the last entry are seen.
        (b"+", Some((entries, _))) => {
            Ok(entries.last().and_then(StreamId::previous).unwrap_or(StreamId::MIN))
        }
        (b"$" | b"+", None) => Ok(StreamId::MIN),
        (b">", _) => Err(Refusal::line(
            "ERR The > ID can be specified only when calling XREADGROUP using the GROUP \
             <group> <consumer> option.",
        )),
        _ => id::parse(word, 0),
    }
}

/// The refusal of a word that is not an option.
fn refusal_of(mut args: Args<'_>) -> Refusal {
    if args.left() > 2 && args.option("GROUP") {
        return Refusal::line(
            "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
        );
    }
    if args.option("NOACK") {
        return Refusal::line(
            "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
        );
    }
    Refusal::Syntax
}

/// `XREAD [COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]`: the entries of
/// each stream after the ID given for it. `$` is the last ID, so no entry is after it; `+` (7.4)
/// asks for the last entry. With BLOCK, waits for an entry if there is none ([`wait`]).
///
/// Reply: array of pairs of a key and an array of entries, in RESP3 a map, for the streams that
/// have any; a null array if none has. Streamed from cuts of all streams when long. Refusals:
/// `Syntax`, `NotAnInteger`, an invalid timeout, keys without an ID, invalid IDs, `WrongType`.
/// Cost: O(log n + entries shown) for each stream. Source: <https://redis.io/commands/xread>
/// (5.0.0).
pub(super) fn here(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    let asked = XReadRequest::parse(args)?;
    let (len, mut found) = (asked.keys.len(), Vec::new());
    for at in asked.keys.clone() {
        let key = Key::new(args.all().get(at));
        let stream = find_value::<Stream>(cx.db, cx.stats, &key)?;
        let stream = stream.as_ref().map(|stream| (stream.entries(), stream.state().last));
        let ranks = asked.ranks(args.all(), at + len, stream)?;
        if !ranks.is_empty() {
            found.push((key, ranks));
        }
    }
    begin(&mut cx.reply, found.len());
    let mut showing = Showing::default();
    for (key, ranks) in found {
        let Some(stream) = cx.db.read_value::<Stream>(&key)? else { continue };
        let entries = stream.entries();
        if !showing.is_over() {
            let (head, entries) = (Head::Key(key.bytes.to_vec()), entries.reader());
            showing.push(ShownEntries { head, entries, ranks, from: End::Front });
            continue;
        }
        name(&mut cx.reply, key.bytes, ranks.len());
        if let Some(rest) = some(&mut cx.reply, entries, ranks, End::Front) {
            showing.push(ShownEntries::begun(entries, rest, End::Front));
        }
    }
    Ok(if showing.is_over() { Flow::Done } else { Flow::Stream(Box::new(showing)) })
}

/// Parses what XREAD waits for: entries after the given IDs, or after the last entry at the start
/// of the wait for `$`. A key that changes its type or vanishes is still waited for.
pub(super) fn wait(args: Args<'_>) -> Result<Wait, Refusal> {
    let mut asked = XReadRequest::parse(args)?;
    let (keys, patience) = (asked.keys.clone(), asked.patience);
    asked.count = if asked.count == usize::MAX { WAITED_COUNT } else { asked.count };
    Ok(Wait { keys, patience, want: Box::new(asked) })
}

/// An ID as the state of a key in the engine, and back.
fn since_of(id: StreamId) -> Since {
    Since(u128::from(id.ms) << 64 | u128::from(id.seq))
}

fn id_of(since: Since) -> StreamId {
    StreamId::new((since.0 >> 64) as u64, since.0 as u64)
}

impl Want for XReadRequest {
    fn look(&self, call: &Looking<'_>) -> Look {
        let stream = match (call.db.value::<Stream>(&call.key), call.when) {
            (Ok(stream), _) => stream,
            (Err(_), When::Called) => return Look::Refused(Refusal::WrongType),
            (Err(_), When::Waiting(_)) => return Look::Nothing,
        };
        let stream = stream.as_ref().map(|stream| (stream.entries(), stream.state().last));
        let ranks = match (call.when, stream) {
            (When::Called, _) => self.ranks(call.args, call.at + self.keys.len(), stream),
            (When::Waiting(since), Some((entries, _))) => Ok(self.behind(entries, id_of(since))),
            (When::Waiting(_), None) => Ok(0..0),
        };
        match ranks {
            Ok(ranks) if ranks.is_empty() => Look::Nothing,
            Ok(_) => Look::There,
            Err(refusal) => Look::Refused(refusal),
        }
    }

    /// `None`: each call waits for entries after its own ID.
    fn condition(&self) -> Option<Condition> {
        None
    }

    fn since(&self, call: &Looking<'_>) -> Since {
        let stream = call.db.value::<Stream>(&call.key).ok().flatten();
        let stream = stream.as_ref().map(|stream| (stream.entries(), stream.state().last));
        let seen = seen(call.args.head(call.at + self.keys.len()), stream);
        since_of(seen.expect("what is refused does not wait"))
    }

    fn take(&self, call: &mut Taking<'_>, at: usize) -> Result<Flow, Refusal> {
        let When::Waiting(since) = call.when else {
            unreachable!("XREAD itself runs where it can")
        };
        let key = Key::hashed(call.args.get(at), call.args.hash(at));
        let stream = call.db.read_value::<Stream>(&key)?.expect("entries were there");
        let ranks = self.behind(stream.entries(), id_of(since));
        begin(&mut call.reply, 1);
        name(&mut call.reply, key.bytes, ranks.len());
        Ok(match some(&mut call.reply, stream.entries(), ranks, End::Front) {
            None => Flow::Done,
            Some(rest) => {
                let mut showing = Showing::default();
                showing.push(ShownEntries::begun(stream.entries(), rest, End::Front));
                Flow::Stream(Box::new(showing))
            }
        })
    }
}

/// Writes the header of a reply with this number of streams.
pub(super) fn begin(reply: &mut Reply<'_>, streams: usize) {
    match streams {
        0 => reply.null_array(),
        _ if reply.is_resp3() => reply.map(streams),
        _ => reply.array(streams),
    }
}

/// A cut of a stream, and its last ID.
struct Cut(Entries, StreamId);

impl Input for Cut {
    fn cut(found: &Found<'_>, _: Hold) -> Result<Self, WrongType> {
        let stream = found.value::<Stream>()?;
        Ok(Self(stream.entries().reader(), stream.state().last))
    }
}

/// XREAD for streams on several cores, or for very many.
pub(super) async fn anywhere(call: Call) -> Result<Answer, Refusal> {
    let args = call.args();
    let asked = XReadRequest::parse(args)?;
    let len = asked.keys.len();
    // An invalid ID is refused before its stream is read.
    let mut keys = asked.keys.clone();
    for (done, at) in asked.keys.clone().enumerate() {
        pause_now_and_then(&call, done).await;
        if asked.ranks(args.all(), at + len, None).is_err() {
            keys.end = at + 1;
            break;
        }
    }
    let cuts = multi_input::anywhere::<Cut>(&call, keys.clone()).await?;
    let (mut showing, mut streams) = (Showing::default(), 0);
    for (done, (at, cut)) in keys.zip(cuts).enumerate() {
        pause_now_and_then(&call, done).await;
        let stream = cut.as_ref().map(|Cut(entries, last)| (entries, *last));
        let ranks = asked.ranks(args.all(), at + len, stream)?;
        if let Some(Cut(entries, _)) = cut.filter(|_| !ranks.is_empty()) {
            let head = Head::Key(call.arg(at).to_vec());
            showing.push(ShownEntries { head, entries, ranks, from: End::Front });
            streams += 1;
        }
    }
    let mut out = Output::default();
    begin(&mut Reply::new(&mut out, call.resp3), streams);
    Ok(match streams {
        0 => Answer::Done(out),
        _ => Answer::Stream(out, Box::new(showing)),
    })
}

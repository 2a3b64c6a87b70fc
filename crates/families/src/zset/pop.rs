//! Taking out the members at an end: ZPOPMIN, ZPOPMAX, ZMPOP.
//!
//! Removing a range takes no time to speak of, however long it is. If the removed entries are too
//! many for a slice, they are shown from a cut.

use super::reply::{Entries, Form, at_once};
use super::value::ZSet;
use crate::keys_by_core::{KeysByCore, Layout, PORTION_KEYS, Portion};
use darter_base::number;
use darter_command::{Answer, Args, Call, Cx, Flow, Refusal};
use darter_keyspace::{Db, Event, Key, WrongType};
use darter_resp::{self as resp, Output, Reply};
use darter_structs::sorted::End;
use darter_tx::{Access, Home};
use std::sync::Arc;

/// Entries that are shown while they are removed.
const AT_ONCE: usize = 64;

/// `ZPOPMIN key [count]`: removes the member with the lowest score; with a count, that many.
///
/// Reply: array of the member and its score, empty when there is none; with a count, all of them,
/// as ZRANGE shows them. Refusals: `Syntax`, `OutOfRangePositive`, `WrongType`, in this order. Cost: O(log(members) + count).
/// Source: <https://redis.io/commands/zpopmin> (5.0.0).
pub(super) fn zpopmin(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    pop(cx, args, End::Front)
}

/// `ZPOPMAX key [count]`: removes the member with the highest score; with a count, that many.
///
/// Otherwise as ZPOPMIN. Source: <https://redis.io/commands/zpopmax> (5.0.0).
pub(super) fn zpopmax(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    pop(cx, args, End::Back)
}

fn pop(cx: &mut Cx<'_>, mut args: Args<'_>, end: End) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let (count, form) = match args.next() {
        None => (1, Form::Flat),
        Some(count) => {
            args.end()?;
            let count = number::parse_i64(count).and_then(|count| usize::try_from(count).ok());
            (count.ok_or(Refusal::OutOfRangePositive)?, Form::WithScore)
        }
    };
    let popped = take(cx.db, &key, (count, end), (&mut cx.reply, form, |_| ()))?;
    Ok(popped.unwrap_or_else(|| {
        cx.reply.array(0);
        Flow::Done
    }))
}

/// Removes at most `count` members at an end of the sorted set at `key`, and replies with them,
/// after `head`. `None` when there is no such key.
pub(super) fn take(
    db: &mut Db,
    key: &Key<'_>,
    (count, end): (usize, End),
    (reply, form, head): (&mut Reply<'_>, Form, impl FnOnce(&mut Reply<'_>)),
) -> Result<Option<Flow>, WrongType> {
    db.edit::<ZSet, _>(key, false, |edit| {
        let set = edit.zset().entries();
        let ranks = match end {
            End::Front => 0..count.min(set.len()),
            End::Back => set.len().saturating_sub(count)..set.len(),
        };
        head(reply);
        form.header(reply, ranks.len());
        let rest = if ranks.len() > AT_ONCE {
            Flow::Stream(Box::new(Entries::new(set.reader(), ranks.clone(), (end, form))))
        } else {
            at_once(reply, set, ranks.clone(), (end, form)).into_flow()
        };
        edit.tell_as(event(end));
        edit.remove_range(ranks);
        rest
    })
}

/// The event of the command.
fn event(end: End) -> &'static Event {
    const ZPOPMIN: &Event = &Event::new("zpopmin", b'z');
    const ZPOPMAX: &Event = &Event::new("zpopmax", b'z');
    match end {
        End::Front => ZPOPMIN,
        End::Back => ZPOPMAX,
    }
}

/// The request of ZMPOP.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// How many keys follow their number.
    pub(super) keys: usize,
    pub(super) end: End,
    count: usize,
}

impl Wish {
    /// Reads the arguments; `args` stays at the first key.
    pub(super) fn parse(args: &mut Args<'_>) -> Result<Self, Refusal> {
        let positive = |word: &[u8], text: &'static str| {
            let number = number::parse_i64(word).and_then(|number| usize::try_from(number).ok());
            number.filter(|number| *number > 0).ok_or(Refusal::line(text))
        };
        let keys = positive(args.word()?, "ERR numkeys should be greater than 0")?;
        let mut rest = *args;
        if keys >= rest.left() {
            return Err(Refusal::Syntax);
        }
        rest.seek(args.position() + keys);
        let end = if rest.option("MIN") {
            End::Front
        } else if rest.option("MAX") {
            End::Back
        } else {
            return Err(Refusal::Syntax);
        };
        let mut count = None;
        while rest.left() > 0 {
            if count.is_some() || rest.left() < 2 || !rest.option("COUNT") {
                return Err(Refusal::Syntax);
            }
            count = Some(positive(rest.word()?, "ERR count should be greater than 0")?);
        }
        Ok(Self { keys, end, count: count.unwrap_or(1) })
    }

    /// Pops from `key`, and replies. `None` when there is no such key.
    pub(super) fn take(
        self,
        db: &mut Db,
        key: &Key<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<Option<Flow>, WrongType> {
        let head = |reply: &mut Reply<'_>| {
            reply.array(2);
            reply.bulk(key.bytes);
        };
        take(db, key, (self.count, self.end), (reply, Form::Pairs, head))
    }
}

/// `ZMPOP numkeys key [key ...] MIN | MAX [COUNT count]`: removes members at an end of the first of
/// the sorted sets that exists.
///
/// Reply: array of the key and an array of pairs; a null array when none exists. Refusals: numbers
/// that are not positive, `Syntax`, `WrongType` of the first key that exists. Cost: O(keys +
/// log(members) + count). Source: <https://redis.io/commands/zmpop> (7.0.0).
pub(super) fn zmpop_here(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let wish = Wish::parse(&mut args)?;
    for _ in 0..wish.keys {
        let key = args.key()?;
        if let Some(flow) = wish.take(cx.db, &key, &mut cx.reply)? {
            return Ok(flow);
        }
    }
    cx.reply.null_array();
    Ok(Flow::Done)
}

/// ZMPOP of keys on several cores, or of very many: all are locked, so the first one stays the
/// first until it is changed.
pub(super) async fn zmpop_anywhere(call: Call) -> Result<Answer, Refusal> {
    let mut args = call.args();
    let wish = Wish::parse(&mut args)?;
    let layout = Layout { first: args.position(), step: 1, count: wish.keys };
    let spread = KeysByCore::of(&call, layout).await;
    let locked = spread.lock(&call, Access::Exclusive).await;
    let (db, no_touch) = (call.db, call.no_touch);
    let find = move |home: &mut Home, keys: &Portion, first: &mut Option<usize>| {
        let db = home.shard.db(db);
        let found = keys.keys(db).iter().position(|key| db.exists(key));
        *first = found.and_then(|index| keys.positions().nth(index));
        first.is_none()
    };
    let found = spread.work(&call, |_| PORTION_KEYS, find).await;
    let Some(first) = found.into_iter().flatten().min() else {
        return Ok(call.answer(|reply| reply.null_array()));
    };
    let (request, resp3) = (Arc::clone(&call.request), call.resp3);
    let take = move |home: &mut Home| {
        let (mut out, key) = (Output::default(), Key::new(resp::Args::owned(&request).get(first)));
        let db = home.shard.db_for(db, no_touch);
        let flow = wish.take(db, &key, &mut Reply::new(&mut out, resp3))?;
        Ok::<_, WrongType>((out, flow))
    };
    let (out, flow) = call.tx.on(call.owner(first), take).await?;
    drop(locked);
    Ok(match flow {
        Some(Flow::Stream(rest)) => Answer::Stream(out, rest),
        Some(Flow::Done | Flow::Job(_)) => Answer::Done(out),
        None => call.answer(|reply| reply.null_array()),
    })
}

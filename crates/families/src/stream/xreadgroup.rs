//! XREADGROUP: reads new entries for a consumer of a group, or the consumer's history.

use super::id;
use super::progress::read_with;
use super::read::between;
use super::rows::{Before, IdRows, Rows, ShowingRows, Shown, Taken};
use super::value::{Stream, StreamEdit};
use super::xgroup::quoting_two;
use super::xread::{WAITED_COUNT, begin};
use crate::keys_by_core::{KeysByCore, Layout};
use crate::lookup::find_value;
use crate::option_names;
use crate::pending_values::flow;
use crate::waiting::milliseconds;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{
    Answer, Args, Call, Condition, Cx, Flow, Job, Look, Looking, Patience, Refusal, Step, Taking,
    Wait, Want, When,
};
use darter_keyspace::{Draft, Key};
use darter_resp::{self as resp, Output, Reply, Request};
use darter_structs::groups::{Group, Pending};
use darter_structs::stream::{Entries, StreamId};
use darter_tx::{Access, Home};
use std::ops::Range;
use std::sync::Arc;

/// New entries that are delivered in one step.
const DELIVERED_AT_ONCE: usize = 32;
/// Entries that are delivered again in one step: each is looked up in three trees.
const REPEATED_AT_ONCE: usize = 8;

/// The request.
#[derive(Clone, Debug)]
struct XReadGroupRequest {
    group: Vec<u8>,
    consumer: Vec<u8>,
    /// Indexes of the keys. The IDs follow, one for each key.
    keys: Range<usize>,
    /// The most entries of each stream.
    count: usize,
    /// NOACK: new entries do not become pending.
    no_ack: bool,
    /// Entries pending and idle for at least this time are claimed before new ones are read.
    claim_ms: Option<u64>,
    patience: Patience,
    /// The call was blocked before. As in Redis, serving it then counts as part of the change that
    /// woke it, not as a change of its own.
    has_waited: bool,
}

impl XReadGroupRequest {
    fn parse(mut args: Args<'_>) -> Result<Self, Refusal> {
        let (mut count, mut no_ack, mut names, mut claim_ms) = (0, false, None, None);
        let mut patience = Patience::None;
        let mut said = option_names::Count::default();
        while !(args.left() > 1 && args.option("STREAMS")) {
            said.add()?;
            if args.left() > 1 && args.option("COUNT") {
                count = usize::try_from(args.int()?).unwrap_or(0);
            } else if args.left() > 1 && args.option("BLOCK") {
                patience = milliseconds(&mut args)?;
            } else if args.left() > 1 && args.option("CLAIM") {
                claim_ms = Some(min_idle_ms(&mut args)?);
            } else if args.left() > 2 && args.option("GROUP") {
                names = Some((id::name(&mut args)?.to_vec(), id::name(&mut args)?.to_vec()));
            } else if args.option("NOACK") {
                no_ack = true;
            } else {
                return Err(Refusal::Syntax);
            }
        }
        if !args.left().is_multiple_of(2) {
            return Err(Refusal::line(
                "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be \
                 specified.",
            ));
        }
        let Some((group, consumer)) = names else {
            return Err(Refusal::line("ERR Missing GROUP option for XREADGROUP"));
        };
        let first = args.position();
        let count = if count == 0 { usize::MAX } else { count };
        let keys = first..first + args.left() / 2;
        let has_waited = false;
        Ok(Self { group, consumer, keys, count, no_ack, claim_ms, patience, has_waited })
    }

    /// The entries of a stream to read now, for the ID in the argument at `at`.
    fn reading(
        &self,
        args: resp::Args<'_>,
        at: usize,
        stream: Option<&Stream>,
        now: u64,
    ) -> Result<Option<Reading>, Refusal> {
        let found = stream.and_then(|stream| Some((stream, stream.groups().get(&self.group)?)));
        let Some((stream, group)) = found else {
            return Err(self.no_group(args.head(at - self.keys.len())));
        };
        let after = match args.head(at) {
            b"$" => {
                return Err(Refusal::line(
                    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the \
                     history of this consumer by specifying a proper ID, or use the > ID to get new \
                     messages. The $ ID would just return an empty result set.",
                ));
            }
            b">" => StreamId::MAX,
            id => id::parse(id, 0)?,
        };
        if after == StreamId::MAX {
            let idle = 0..self.idle_in(group, now).min(self.count);
            let new = self.new_in(stream, group, self.count - idle.len());
            return Ok(match (idle.is_empty(), new.is_empty()) {
                (true, true) => None,
                (true, false) => Some(Reading::New(new)),
                (false, _) => Some(Reading::Idle(idle, new)),
            });
        }
        let consumer = group.consumer(&self.consumer);
        let ranks = consumer.map_or(0..0, |consumer| {
            let start = after.next().map_or(consumer.pending_len(), |next| consumer.rank_of(next));
            start..consumer.pending_len().min(start.saturating_add(self.count))
        });
        Ok(Some(Reading::History(ranks)))
    }

    /// The number of pending entries that can be claimed now.
    fn idle_in(&self, group: &Group, now: u64) -> usize {
        match self.claim_ms {
            None => 0,
            Some(0) => group.pending_len(), // As in XCLAIM, without regard to the clock.
            // An entry without a consumer counts as delivered at time 0.
            Some(idle_ms) => group.delivered_until(now.saturating_sub(idle_ms)),
        }
    }

    /// The ranks of at most `most` entries that the group has not read.
    fn new_in(&self, stream: &Stream, group: &Group, most: usize) -> Range<usize> {
        let Some(next) = group.last().next() else { return 0..0 };
        let ranks = between(stream.entries(), next, StreamId::MAX);
        ranks.start..ranks.end.min(ranks.start.saturating_add(most))
    }

    fn no_group(&self, key: &[u8]) -> Refusal {
        quoting_two(
            ["NOGROUP No such key '", "' or consumer group '", "' in XREADGROUP with GROUP option"],
            [key, &self.group],
        )
    }

    /// The current read of the stream whose ID is at `at`; `None` if there is nothing to read.
    fn delivery(
        self: &Arc<Self>,
        args: resp::Args<'_>,
        at: usize,
        stream: &Stream,
        now: u64,
    ) -> Result<Option<Delivery>, Refusal> {
        let reading = self.reading(args, at + self.keys.len(), Some(stream), now)?;
        Ok(reading.map(|reading| Delivery::new(self, reading)))
    }
}

/// Parses the minimum idle time of entries to claim.
fn min_idle_ms(args: &mut Args<'_>) -> Result<u64, Refusal> {
    let Ok(ms) = args.int() else {
        return Err(Refusal::line("ERR min-idle-time is not an integer or out of range"));
    };
    let negative = || Refusal::line("ERR min-idle-time must be a positive integer");
    u64::try_from(ms).map_err(|_| negative())
}

/// The part of a stream that is read.
#[derive(Clone, Debug)]
enum Reading {
    /// Pending entries to claim, by their ranks in delivery order; then new ones.
    Idle(Range<usize>, Range<usize>),
    /// The number of entries to claim, which have been collected; then the ranks of new ones.
    Gathered(usize, Range<usize>),
    /// New entries, by rank.
    New(Range<usize>),
    /// The pending entries of the consumer, by their ranks there.
    History(Range<usize>),
}

impl Reading {
    fn len(&self) -> usize {
        match self {
            Self::Idle(idle, new) => idle.len() + new.len(),
            Self::Gathered(idle, new) => idle + new.len(),
            Self::New(ranks) | Self::History(ranks) => ranks.len(),
        }
    }

    /// The cost, counted in new entries.
    fn cost(&self) -> usize {
        const REPEATED: usize = DELIVERED_AT_ONCE / REPEATED_AT_ONCE;
        match self {
            Self::Idle(idle, new) => idle.len() * REPEATED + new.len(),
            Self::Gathered(idle, new) => idle * REPEATED + new.len(),
            Self::New(ranks) => ranks.len(),
            Self::History(ranks) => ranks.len() * REPEATED,
        }
    }
}

/// The reading of one stream, in steps.
struct Delivery {
    asked: Arc<XReadGroupRequest>,
    reading: Reading,
    /// The entries to claim. All are collected before any is claimed, because claiming an entry
    /// moves it to the end.
    idle: IdRows,
    claims: Taken<StreamId>,
    rows: Rows,
    /// The consumer's number, once it is there.
    consumer: Option<u64>,
    is_over: bool,
}

impl Delivery {
    fn new(asked: &Arc<XReadGroupRequest>, reading: Reading) -> Self {
        Self {
            asked: Arc::clone(asked),
            reading,
            idle: IdRows::default(),
            claims: Taken::default(),
            rows: Rows::default(),
            consumer: None,
            is_over: false,
        }
    }

    /// Reads some entries. Returns true while more are left.
    fn step(&mut self, edit: &mut StreamEdit<'_>, now: u64) -> bool {
        let (group, name) = (&self.asked.group, &self.asked.consumer);
        let number = match self.consumer {
            Some(number) => number,
            None => {
                let number = edit.consumer(group, name, now);
                edit.see(group, number, now, self.reading.len() > 0);
                if !self.asked.has_waited {
                    edit.count(1); // Counted for each stream, as in Redis.
                }
                *self.consumer.insert(number)
            }
        };
        let more = match self.reading.clone() {
            Reading::Idle(ranks, new) => {
                self.gather(edit, ranks, new);
                true
            }
            Reading::Gathered(count, new) => {
                let some = count.min(REPEATED_AT_ONCE);
                self.claim(edit, some, (number, now));
                let more = some < count || !new.is_empty();
                self.reading = match some < count {
                    true => Reading::Gathered(count - some, new),
                    false => Reading::New(new),
                };
                more
            }
            Reading::New(ranks) => {
                let end = ranks.end.min(ranks.start + DELIVERED_AT_ONCE);
                self.deliver(edit, ranks.start..end, (number, now));
                self.reading = Reading::New(end..ranks.end);
                end < ranks.end
            }
            Reading::History(ranks) => {
                let end = ranks.end.min(ranks.start + REPEATED_AT_ONCE);
                self.repeat(edit, ranks.start..end, (number, now));
                self.reading = Reading::History(end..ranks.end);
                end < ranks.end
            }
        };
        self.is_over = !more;
        more
    }

    /// Delivers the entries at these ranks.
    fn deliver(
        &mut self,
        edit: &mut StreamEdit<'_>,
        ranks: Range<usize>,
        (number, now): (u64, u64),
    ) {
        let group = &self.asked.group;
        let ids: Vec<_> =
            edit.stream().entries().range(ranks.clone()).map(|entry| entry.id()).collect();
        let Some(position) = edit.group(group).map(|group| (group.last(), group.read())) else {
            return;
        };
        let (mut last, mut read) = position;
        for id in ids {
            if id > last {
                (last, read) = (id, read_with(edit.stream(), read, id));
            }
            if !self.asked.no_ack {
                let consumer = Some(number);
                edit.deliver(group, &Pending { id, delivered_ms: now, times: 1, consumer });
            }
        }
        if (last, read) != position {
            edit.advance_group(group, last, read);
        }
        match self.asked.claim_ms {
            None => self.rows.add(ranks),
            Some(_) => ranks.for_each(|rank| self.rows.add_with(Ok(rank), Before::default())),
        }
    }

    /// Collects a portion of the idle entries.
    fn gather(&mut self, edit: &StreamEdit<'_>, ranks: Range<usize>, new: Range<usize>) {
        let end = ranks.end.min(ranks.start + DELIVERED_AT_ONCE);
        let group = edit.group(&self.asked.group);
        let ids = group.into_iter().flat_map(|group| group.by_age(ranks.start..end));
        ids.for_each(|id| self.idle.add(id));
        self.reading = match end < ranks.end {
            true => Reading::Idle(end..ranks.end, new),
            false => {
                let idle = std::mem::take(&mut self.idle);
                let count = idle.len();
                self.claims = idle.into();
                Reading::Gathered(count, new)
            }
        };
    }

    /// Claims a portion of the collected entries.
    fn claim(&mut self, edit: &mut StreamEdit<'_>, some: usize, (number, now): (u64, u64)) {
        let group = &self.asked.group;
        for _ in 0..some {
            let Some(id) = self.claims.next() else { return };
            let Some(pending) = edit.group(group).and_then(|group| group.get(id)) else { continue };
            let entries = edit.stream().entries();
            let entry = if entries.contains(id) { Ok(entries.rank_of(id)) } else { Err(id) };
            let idle_ms = match pending.consumer {
                Some(_) => now.saturating_sub(pending.delivered_ms).cast_signed(),
                None => -1,
            };
            self.rows.add_with(entry, Before { idle_ms, times: pending.times });
            let (times, consumer) = (pending.times.wrapping_add(1), Some(number));
            edit.deliver(group, &Pending { id, delivered_ms: now, times, consumer });
        }
    }

    /// Delivers the pending entries at these ranks again.
    fn repeat(
        &mut self,
        edit: &mut StreamEdit<'_>,
        ranks: Range<usize>,
        (number, now): (u64, u64),
    ) {
        let group = &self.asked.group;
        let of = |group: &Group| {
            let consumer = group.numbered(number)?;
            let ids: Vec<_> = consumer.pending(ranks).collect();
            Some(ids.into_iter().filter_map(|id| group.get(id)).collect::<Vec<_>>())
        };
        for pending in edit.group(group).and_then(of).unwrap_or_default() {
            let entries = edit.stream().entries();
            if !entries.contains(pending.id) {
                self.rows.add_gone(pending.id);
                continue;
            }
            let rank = entries.rank_of(pending.id);
            self.rows.add(rank..rank + 1);
            let times = pending.times.wrapping_add(1);
            edit.deliver(group, &Pending { delivered_ms: now, times, ..pending });
        }
    }

    /// Returns the entries that were read.
    fn shown(self, key: &[u8], entries: &Entries) -> Shown {
        Shown::Key(key.to_vec(), self.rows, entries.reader())
    }
}

/// `XREADGROUP GROUP group consumer [COUNT count] [BLOCK milliseconds] [CLAIM min-idle-time]
/// [NOACK] STREAMS key [key ...] id [id ...]`: `>` reads the entries that the group has not read
/// yet; they are then pending for the consumer until acknowledged. An ID reads the consumer's
/// pending entries after it. With CLAIM (8.4), `>` first claims pending entries of any consumer
/// that have been idle for at least that time, in delivery order. With BLOCK, waits for new or
/// claimable entries if there is nothing to read ([`wait`]).
///
/// Reply: as XREAD's, for the streams that have new entries, or whose history is read; for a
/// deleted pending entry, its ID and a null array. With CLAIM, each entry is followed by its
/// previous idle time and delivery count. Refusals: `Syntax`, `NotAnInteger`, an invalid timeout,
/// keys without an ID, a missing key or group, invalid IDs, `WrongType`; then nothing changes.
/// Cost: O(log n) for each entry, in portions if there are many. Source:
/// <https://redis.io/commands/xreadgroup> (5.0.0).
pub(super) fn here(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    let asked = Arc::new(XReadGroupRequest::parse(args)?);
    let mut entries = 0;
    for at in asked.keys.clone() {
        let key = Key::new(args.all().get(at));
        let stream = find_value::<Stream>(cx.db, cx.stats, &key)?;
        let ids = at + asked.keys.len();
        let reading = asked.reading(args.all(), ids, stream.as_deref(), cx.now)?;
        entries += reading.map_or(0, |reading| reading.cost());
    }
    if entries > ENTRIES_AT_ONCE {
        let keys = asked.keys.clone();
        return Ok(Flow::Job(Box::new(BulkEdit::new(asked, args.all(), keys))));
    }
    let (now, mut showing, mut streams) = (cx.now, ShowingRows::default(), 0);
    for at in asked.keys.clone() {
        let key = Key::new(args.all().get(at));
        let shown = cx.db.edit::<Stream, _>(&key, false, |edit| {
            // A key that is named twice may have nothing left to read.
            let Some(mut delivery) = asked.delivery(args.all(), at, edit.stream(), now)? else {
                return Ok(None);
            };
            while delivery.step(edit, now) {}
            Ok::<_, Refusal>(Some(delivery.shown(key.bytes, edit.stream().entries())))
        })?;
        if let Some(shown) = shown.transpose()?.flatten() {
            showing.push(shown);
            streams += 1;
        }
    }
    begin(&mut cx.reply, streams);
    Ok(flow(&mut cx.reply, showing))
}

/// Parses what XREADGROUP waits for: entries that are new to the group in one of its streams, or
/// claimable ones. Removing a stream or the group also wakes the call.
pub(super) fn wait(args: Args<'_>) -> Result<Wait, Refusal> {
    let mut asked = XReadGroupRequest::parse(args)?;
    let (keys, patience) = (asked.keys.clone(), asked.patience);
    asked.count = if asked.count == usize::MAX { WAITED_COUNT } else { asked.count };
    asked.has_waited = true;
    Ok(Wait { keys, patience, want: Box::new(News(Arc::new(asked))) })
}

/// Waits for entries that a group has not read.
struct News(Arc<XReadGroupRequest>);

impl Want for News {
    fn look(&self, call: &Looking<'_>) -> Look {
        let stream = match (call.db.value::<Stream>(&call.key), call.when) {
            (Ok(Some(stream)), _) => Some(stream),
            (Ok(None), When::Called) => None,
            (Err(_), When::Called) => return Look::Refused(Refusal::WrongType),
            (Ok(None) | Err(_), When::Waiting(_)) => {
                return Look::Refused(Refusal::line("UNBLOCKED the stream key no longer exists"));
            }
        };
        let ids = call.at + self.0.keys.len();
        let reading = self.0.reading(call.args, ids, stream.as_deref(), call.db.now());
        match (reading, call.when) {
            (Ok(Some(reading)), _) if reading.cost() > ENTRIES_AT_ONCE => Look::Much,
            (Ok(Some(_)), _) => Look::There,
            (Ok(None), _) => Look::Nothing,
            (Err(refusal), When::Called) => Look::Refused(refusal),
            (Err(_), When::Waiting(_)) => Look::Refused(Refusal::line(
                "NOGROUP the consumer group this client was blocked on no longer exists",
            )),
        }
    }

    fn condition(&self) -> Option<Condition> {
        let claims = self.0.claim_ms.map_or(0, |ms| ms.saturating_add(1));
        Some(Condition("group", claims, self.0.group.clone().into()))
    }

    /// The stream may expire, or pending entries may become claimable.
    fn due_ms(&self, call: &Looking<'_>) -> Option<u64> {
        let deadline = call.db.get(&call.key)?.deadline();
        let claimable = self.0.claim_ms.and_then(|idle_ms| {
            let stream = call.db.value::<Stream>(&call.key).ok()??;
            let first = stream.groups().get(&self.0.group)?.first_delivered()?;
            first.checked_add(idle_ms)
        });
        deadline.into_iter().chain(claimable).min()
    }

    fn take(&self, call: &mut Taking<'_>, at: usize) -> Result<Flow, Refusal> {
        let key = Key::hashed(call.args.get(at), call.args.hash(at));
        let (args, now, reply) = (call.args, call.db.now(), &mut call.reply);
        let taken = call.db.edit::<Stream, _>(&key, false, |edit| {
            let delivery = self.0.delivery(args, at, edit.stream(), now)?;
            let mut delivery = delivery.expect("entries were there");
            if delivery.reading.cost() > ENTRIES_AT_ONCE {
                let aside = BulkEdit::new(Arc::clone(&self.0), args, at..at + 1);
                return Ok(Flow::Job(Box::new(aside)));
            }
            while delivery.step(edit, now) {}
            let mut showing = ShowingRows::default();
            showing.push(delivery.shown(key.bytes, edit.stream().entries()));
            begin(reply, 1);
            Ok(flow(reply, showing))
        })?;
        taken.expect("the stream is there")
    }
}

/// A read of many entries, which changes copies of the streams.
struct BulkEdit {
    asked: Arc<XReadGroupRequest>,
    request: Arc<Request>,
    /// Indexes of the keys to read.
    keys: Range<usize>,
    /// A copy of each key's stream, with the key's index.
    drafts: Vec<(usize, Draft<Stream>)>,
    /// Finished reads, and the one in progress: with the index of the key and of its copy.
    done: Vec<(usize, usize, Delivery)>,
}

impl BulkEdit {
    fn new(asked: Arc<XReadGroupRequest>, args: resp::Args<'_>, keys: Range<usize>) -> Self {
        let request = args.to_request();
        Self { asked, request, keys, drafts: Vec::new(), done: Vec::new() }
    }

    /// Starts the next stream. Returns false after the last.
    fn begin(&mut self, cx: &mut Cx<'_>) -> Result<bool, Refusal> {
        let Some(at) = self.keys.next() else { return Ok(false) };
        let all = resp::Args::owned(&self.request);
        let key = all.get(at);
        // A key that is named twice has one copy.
        let known = self.drafts.iter().position(|(other, _)| all.get(*other) == key);
        let draft = match known {
            Some(draft) => draft,
            None => {
                self.drafts.push((at, cx.db.draft::<Stream>(&Key::new(key))?));
                self.drafts.len() - 1
            }
        };
        let stream = self.drafts[draft].1.value();
        if let Some(delivery) = self.asked.delivery(all, at, stream, cx.now)? {
            self.done.push((at, draft, delivery));
        }
        Ok(true)
    }
}

impl Job for BulkEdit {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        loop {
            let more = match self.done.last_mut() {
                Some((_, draft, delivery)) if !delivery.is_over => {
                    delivery.step(&mut self.drafts[*draft].1.edit(cx.now), cx.now);
                    true
                }
                _ => self.begin(cx)?,
            };
            if !more {
                break;
            }
            if cx.preempt.must_yield() {
                return Ok(Step::More);
            }
        }
        let all = resp::Args::owned(&self.request);
        let mut showing = ShowingRows::default();
        begin(&mut cx.reply, self.done.len());
        for (at, draft, delivery) in self.done.drain(..) {
            let entries = self.drafts[draft].1.value().entries();
            showing.push(delivery.shown(all.get(at), entries));
        }
        for (at, draft) in self.drafts.drain(..) {
            cx.db.install_draft(&Key::new(all.get(at)), draft);
        }
        Ok(Step::Done(flow(&mut cx.reply, showing)))
    }
}

/// XREADGROUP for streams on several cores, or for very many: all are locked, and changed in
/// portions.
pub(super) async fn anywhere(call: Call) -> Result<Answer, Refusal> {
    let asked = Arc::new(XReadGroupRequest::parse(call.args())?);
    let layout = Layout { first: asked.keys.start, step: 1, count: asked.keys.len() };
    let spread = KeysByCore::of(&call, layout).await;
    let locked = spread.lock(&call, Access::Exclusive).await;
    for at in asked.keys.clone() {
        portion(&call, &asked, at, None).await?;
    }
    let (mut showing, mut streams) = (ShowingRows::default(), 0);
    for at in asked.keys.clone() {
        let mut doing = Doing::New;
        let shown = loop {
            match portion(&call, &asked, at, Some(doing)).await? {
                Doing::New | Doing::Nothing => break None,
                Doing::Done(shown) => break Some(shown),
                more => doing = more,
            }
            call.tx.pause().await;
        };
        if let Some(shown) = shown {
            showing.push(shown);
            streams += 1;
        }
    }
    drop(locked);
    let mut out = Output::default();
    begin(&mut Reply::new(&mut out, call.resp3), streams);
    Ok(match streams {
        0 => Answer::Done(out),
        _ => Answer::Stream(out, Box::new(showing)),
    })
}

/// The progress of reading a stream on one core.
enum Doing {
    New,
    Nothing,
    More(Delivery),
    Done(Shown),
}

/// Does a portion of a read on the core of its key, the argument at `at`; or only checks whether
/// the read is possible.
async fn portion(
    call: &Call,
    asked: &Arc<XReadGroupRequest>,
    at: usize,
    doing: Option<Doing>,
) -> Result<Doing, Refusal> {
    let (request, asked) = (Arc::clone(&call.request), Arc::clone(asked));
    let (db, no_touch) = (call.db, call.no_touch);
    let work = move |home: &mut Home| {
        let args = resp::Args::owned(&request);
        let (db, key) = (home.shard.db_for(db, no_touch), Key::new(args.get(at)));
        let now = db.now();
        let Some(doing) = doing else {
            let stream = db.find(&key).map(|found| found.value::<Stream>()).transpose()?;
            return asked
                .reading(args, at + asked.keys.len(), stream.as_deref(), now)
                .map(|_| Doing::New);
        };
        let done = db.edit::<Stream, _>(&key, false, |edit| {
            let delivery = match doing {
                Doing::More(delivery) => Some(delivery),
                _ => asked.delivery(args, at, edit.stream(), now)?,
            };
            let Some(mut delivery) = delivery else { return Ok(Doing::Nothing) };
            Ok(match delivery.step(edit, now) {
                true => Doing::More(delivery),
                false => Doing::Done(delivery.shown(key.bytes, edit.stream().entries())),
            })
        })?;
        done.unwrap_or(Ok(Doing::Nothing))
    };
    call.tx.on(call.owner(at), work).await
}

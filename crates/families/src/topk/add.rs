//! TOPK.ADD, TOPK.INCRBY.
//!
//! A few items are counted at once. Many items, deep sketches and large increments are counted in
//! portions, row by row.

use super::long::LongItem;
use super::value::{Expelled, INCRBY, TopK, TopKEdit};
use super::{MISSING, refuse};
use crate::bulk_edit::is_long;
use crate::pending_values::flow;
use crate::sketches::hashed::Hashing;
use crate::text::BYTES_AT_ONCE;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_base::{Prng, hash, number};
use darter_command::{Args, Cx, Flow, Job, Refusal, Step, Stream};
use darter_keyspace::{Draft, Fresh, Key};
use darter_resp::{self as resp, Reply, Request};
use darter_structs::blob::Blob;
use std::sync::Arc;

/// Rows counted in one step, of all items together, and the sum of their increments.
const ROWS_AT_ONCE: u64 = 512;
const TIMES_AT_ONCE: u64 = 2_048;
/// The number of pages copied at once.
const COPIES_AT_ONCE: usize = 16;
/// The largest count of a bucket between two checks of the slice: each one may cause a decay.
const TIMES: u32 = 256;
/// The largest increment.
const TIMES_MAX: u32 = 100_000;

/// The spaces are those of RedisBloom.
const NO_TIMES: &str = "TopK: increment must be an integer greater or equal to 0                            and smaller or equal to 100,000";

/// `TOPK.ADD key item [item ...]`: each item came once more.
///
/// Reply: array, for each item the one that has left the list for it, or null. Refusals: an absent
/// key, `WrongType`. Cost: O(items * depth), in slices if they are many.
/// Source: <https://redis.io/commands/topk.add> (RedisBloom 2.0.0).
pub(super) fn add(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    count(cx, args, 1)
}

/// `TOPK.INCRBY key item increment [item increment ...]`: each item came more often by its increment,
/// which is 100 000 at most.
///
/// Reply: as that of TOPK.ADD, with an error in place of an increment that is none; the others are
/// counted. Refusals: an odd number of arguments, and those of TOPK.ADD. Cost: O(items * depth *
/// increment), in slices.
/// Source: <https://redis.io/commands/topk.incrby> (RedisBloom 2.0.0).
pub(super) fn incrby(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    if args.left().is_multiple_of(2) {
        return Err(Refusal::Arity("topk.incrby".into()));
    }
    count(cx, args, 2)
}

/// Counts all items; `step` is 2 if increments follow them.
fn count(cx: &mut Cx<'_>, mut args: Args<'_>, step: usize) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let found = cx.db.read_value::<TopK>(&key)?.ok_or_else(|| refuse(MISSING))?;
    if is_much(&found, args, step) {
        let (request, next) = (args.all().to_request(), args.position());
        return Ok(Flow::Job(Box::new(Adding {
            request,
            next,
            step,
            hashing: Hashing::default(),
            begun: None,
            expelled: None,
            draft: None,
            replies: Blob::default(),
        })));
    }
    let Cx { db, reply, prng, .. } = cx;
    db.edit::<TopK, _>(&key, false, |edit| {
        begin(edit, step);
        reply.array(args.left() / step);
        while let Some(item) = args.next() {
            match times(args.all(), args.position() - 1, step) {
                Some(times) => match edit.add(item, times, prng) {
                    Some(expelled) => reply.bulk(expelled.bytes()),
                    None => reply.null(),
                },
                None => reply.error(NO_TIMES.as_bytes()),
            }
            args.seek(args.position() + step - 1);
        }
    })?;
    Ok(Flow::Done)
}

fn begin(edit: &mut TopKEdit<'_>, step: usize) {
    if step == 2 {
        edit.tell_as(INCRBY);
    }
}

/// The increment of the item in this argument.
fn times(all: resp::Args<'_>, at: usize, step: usize) -> Option<u32> {
    if step == 1 {
        return Some(1);
    }
    let times = number::parse_i64(all.head(at + 1))?;
    u32::try_from(times).ok().filter(|times| *times <= TIMES_MAX)
}

/// Whether counting the items takes more than a slice.
fn is_much(sketch: &TopK, args: Args<'_>, step: usize) -> bool {
    let depth = u64::from(sketch.shape().depth);
    let rows = depth.saturating_mul((args.left() / step) as u64);
    if rows > ROWS_AT_ONCE || is_long(args, 2 * ENTRIES_AT_ONCE, BYTES_AT_ONCE) {
        return true;
    }
    if sketch.may_expel(args.left() / step, BYTES_AT_ONCE) {
        return true;
    }
    let (mut all, mut copies) = (0, 0);
    for at in (args.position()..args.all().len()).step_by(step) {
        all += depth * u64::from(times(args.all(), at, step).unwrap_or(0));
        if rows > COPIES_AT_ONCE as u64 {
            copies += sketch.copies(hash::digest(args.all().get(at)));
        }
    }
    all > TIMES_AT_ONCE || copies > COPIES_AT_ONCE
}

/// An item that is being counted.
struct Begun {
    hash: u64,
    times: u32,
    row: u32,
    /// The rest of `times` in this row.
    left: u32,
    /// The highest count so far.
    most: u32,
}

/// A request of very many items.
struct Adding {
    request: Arc<Request>,
    /// The index of the next item, and the step to the one after it.
    next: usize,
    step: usize,
    hashing: Hashing,
    begun: Option<Begun>,
    /// A long item that was evicted, while it is copied into the reply.
    expelled: Option<LongItem>,
    draft: Option<Draft<TopK>>,
    /// The replies, encoded.
    replies: Blob,
}

impl Adding {
    /// Encodes the reply of an item, and moves to the next one.
    fn reply(&mut self, resp3: bool, write: impl FnOnce(&mut Reply<'_>)) {
        let mut out = resp::Output::default();
        write(&mut Reply::new(&mut out, resp3));
        self.replies.append(&out.flatten());
        self.go_on();
    }

    /// Ends the item.
    fn go_on(&mut self) {
        (self.begun, self.next) = (None, self.next + self.step);
    }

    /// Copies a piece of an evicted item into the reply. Returns false if there is none.
    fn copy(&mut self) -> bool {
        let Some(item) = &mut self.expelled else { return false };
        self.replies.append(item.piece());
        if item.is_done() {
            self.replies.append(b"\r\n");
            self.expelled = None;
            self.go_on();
        }
        true
    }

    /// Hashes a piece of the next item.
    fn hash(&mut self, resp3: bool) {
        let all = resp::Args::owned(&self.request);
        let Some(times) = times(all, self.next, self.step) else {
            return self.reply(resp3, |reply| reply.error(NO_TIMES.as_bytes()));
        };
        let value = Args::new(all, self.next).value().unwrap_or(Fresh::Bytes(b""));
        let begun = |hash| Begun { hash, times, row: 0, left: times, most: 0 };
        self.begun = self.hashing.step(value).map(begun);
    }

    /// Counts some of the item in its row.
    fn count(&mut self, edit: &mut TopKEdit<'_>, prng: &mut Prng, resp3: bool) {
        if self.copy() {
            return;
        }
        let Some(begun) = &mut self.begun else { return self.hash(resp3) };
        let now = begun.left.min(TIMES);
        let count = edit.count(begun.hash, begun.row, now, prng);
        begun.left -= now;
        if begun.left > 0 {
            return;
        }
        begun.most = begun.most.max(count);
        (begun.row, begun.left) = (begun.row + 1, begun.times);
        if begun.row < edit.sketch().shape().depth {
            return;
        }
        let most = begun.most;
        let request = Arc::clone(&self.request);
        let expelled = edit.list(resp::Args::owned(&request).get(self.next), most);
        match expelled {
            Some(Expelled::Long(item)) => {
                self.replies.append(format!("${}\r\n", item.bytes().len()).as_bytes());
                self.expelled = Some(item);
            }
            Some(Expelled::Short(item)) => self.reply(resp3, |reply| reply.bulk(&item)),
            None => self.reply(resp3, |reply| reply.null()),
        }
    }
}

impl Job for Adding {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let request = Arc::clone(&self.request);
        let key = Key::new(resp::Args::owned(&request).get(crate::unshare::KEY));
        let mut draft = match self.draft.take() {
            Some(draft) => draft,
            None => cx.db.draft::<TopK>(&key)?,
        };
        if draft.is_new() {
            return Err(refuse(MISSING));
        }
        while self.next < request.len() {
            let mut edit = draft.edit(cx.now);
            begin(&mut edit, self.step);
            self.count(&mut edit, cx.prng, cx.reply.is_resp3());
            if cx.preempt.must_yield() {
                self.draft = Some(draft);
                return Ok(Step::More);
            }
        }
        cx.db.install_draft(&key, draft);
        cx.reply.array((request.len() - 2) / self.step);
        let sending = Sending { replies: std::mem::take(&mut self.replies), next: 0 };
        Ok(Step::Done(flow(&mut cx.reply, sending)))
    }
}

/// The replies, sent piece by piece.
struct Sending {
    replies: Blob,
    next: usize,
}

impl Stream for Sending {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let (chunk, within) = self.replies.piece(self.next);
        reply.out.tail().extend_from_slice(&chunk[within]);
        self.next += 1;
        self.next < self.replies.pieces()
    }

    fn pinned_bytes(&self) -> usize {
        self.replies.memory_bytes()
    }
}

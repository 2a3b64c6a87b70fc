//! CMS.INCRBY, CMS.QUERY.
//!
//! A few items are counted at once. Many items, or deep sketches, are counted row by row in
//! portions: each row of an item is a cache miss, and a page shared with a cut must be copied.

use super::value::Cms;
use super::{MISSING, refuse};
use crate::bulk_edit::is_long;
use crate::lookup::find_value;
use crate::pending_values::flow;
use crate::sketches::hashed::{Items, Join};
use crate::text::BYTES_AT_ONCE;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_base::number;
use darter_command::{Args, Cx, Flow, Job, Refusal, Step, Stream};
use darter_keyspace::{Draft, Fresh, Key};
use darter_resp::{self as resp, Reply};
use darter_structs::blob::Blob;
use std::sync::Arc;

/// Rows that are counted in one step, over all items.
const ROWS_AT_ONCE: u64 = 1_024;
/// Pages that are copied in one step.
const COPIES_AT_ONCE: usize = 16;
/// Rows between two checks of the slice: each may copy a page.
const ROWS: u64 = 4;
/// Rows that are read in one portion of a reply.
const ROWS_READ: u64 = 128;
/// Increments that are checked in one portion.
const CHECKED: usize = 512;
/// Counts in one portion of a reply.
const COUNTS: usize = 1_024;

/// An item's count is the minimum of its counters.
const LEAST: (u32, Join) = (u32::MAX, u32::min);

const OVERFLOW: &[u8] = b"CMS: INCRBY overflow";

/// `CMS.INCRBY key item increment [item increment ...]`: adds to the counts of items. A counter stops
/// at 4 294 967 295.
///
/// Reply: array of the new counts; an error in place of a counter at its maximum. Refusals: an odd
/// number of arguments, an absent key, `WrongType`, increments that are negative or no integers;
/// then nothing changes. Cost: O(items * depth), in slices if they are many.
/// Source: <https://redis.io/commands/cms.incrby> (RedisBloom 2.0.0).
pub(super) fn incrby(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    if !args.left().is_multiple_of(2) {
        return Err(Refusal::Arity("cms.incrby".into()));
    }
    let found = cx.db.read_value::<Cms>(&key)?.ok_or_else(|| refuse(MISSING))?;
    let rows = found.shape().depth.saturating_mul(args.left() as u64 / 2);
    let is_long = rows > ROWS_AT_ONCE || is_long(args, 4 * ENTRIES_AT_ONCE, BYTES_AT_ONCE);
    if is_long || (rows > COPIES_AT_ONCE as u64 && copies(&found, args) > COPIES_AT_ONCE) {
        let (items, counts) = (Items::new(args, 2, LEAST), Blob::default());
        let checked = args.position() + 1;
        return Ok(Flow::Job(Box::new(Adding { items, checked, draft: None, counts })));
    }
    for at in (args.position() + 1..args.all().len()).step_by(2) {
        increment(args.all(), at)?;
    }
    let reply = &mut cx.reply;
    cx.db.edit::<Cms, _>(&key, false, |edit| {
        reply.array(args.left() / 2);
        while let Some(item) = args.next() {
            let by = increment(args.all(), args.position()).unwrap_or_default();
            args.next();
            let hash = darter_base::hash::digest(item);
            show(reply, edit.add(Fresh::Bytes(item), hash, by));
        }
    })?;
    Ok(Flow::Done)
}

/// The number of pages that counting all items would copy.
fn copies(sketch: &Cms, args: Args<'_>) -> usize {
    let items = (args.position()..args.all().len()).step_by(2);
    items.map(|at| sketch.copies(darter_base::hash::digest(args.all().get(at)))).sum()
}

/// The increment given by the argument at this index.
fn increment(all: resp::Args<'_>, at: usize) -> Result<i64, Refusal> {
    let by = number::parse_i64(all.head(at)).ok_or_else(|| refuse("CMS: Cannot parse number"))?;
    if by < 0 {
        return Err(refuse("CMS: Number cannot be negative"));
    }
    Ok(by)
}

fn show(reply: &mut Reply<'_>, count: u32) {
    if count == u32::MAX { reply.error(OVERFLOW) } else { reply.int(i64::from(count)) }
}

/// A CMS.INCRBY of very many increments.
struct Adding {
    items: Items,
    /// The index of the next increment to check.
    checked: usize,
    draft: Option<Draft<Cms>>,
    /// The counts, four bytes each.
    counts: Blob,
}

impl Adding {
    /// Checks a portion of the increments. Returns true when all are valid.
    fn check(&mut self) -> Result<bool, Refusal> {
        let all = resp::Args::owned(self.items.request());
        for _ in 0..CHECKED {
            if self.checked >= all.len() {
                return Ok(true);
            }
            increment(all, self.checked)?;
            self.checked += 2;
        }
        Ok(false)
    }

    /// Counts some rows. Returns true when all items are counted.
    fn add(&mut self, draft: &mut Draft<Cms>, now: u64) -> bool {
        let (depth, request) = (draft.value().shape().depth, Arc::clone(self.items.request()));
        let (_, least) = self.items.step(depth, ROWS, |hash, rows, at| {
            let by = increment(resp::Args::owned(&request), at + 1).unwrap_or_default();
            let (mut edit, is_last) = (draft.edit(now), rows.end == depth);
            let least = edit.add_in(hash, by, rows);
            if is_last {
                let item = Args::new(resp::Args::owned(&request), at).value();
                edit.end_add(item.unwrap_or(Fresh::Bytes(b"")), hash, by);
            }
            least
        });
        if let Some(least) = least {
            self.counts.append(&least.to_le_bytes());
        }
        self.items.is_done()
    }
}

impl Job for Adding {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let request = Arc::clone(self.items.request());
        let key = Key::new(resp::Args::owned(&request).get(crate::unshare::KEY));
        let mut draft = match self.draft.take() {
            Some(draft) => draft,
            None => cx.db.draft::<Cms>(&key)?,
        };
        if draft.is_new() {
            return Err(refuse(MISSING));
        }
        let is_done = self.check()?
            && loop {
                if self.add(&mut draft, cx.now) {
                    break true;
                }
                if cx.preempt.must_yield() {
                    break false;
                }
            };
        if !is_done {
            self.draft = Some(draft);
            return Ok(Step::More);
        }
        cx.db.install_draft(&key, draft);
        cx.reply.array(self.counts.len() / 4);
        let sending = Sending { counts: std::mem::take(&mut self.counts), next: 0 };
        Ok(Step::Done(flow(&mut cx.reply, sending)))
    }
}

/// A reply of counts. Its header is already written.
struct Sending {
    counts: Blob,
    next: usize,
}

impl Stream for Sending {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let end = (self.counts.len() / 4).min(self.next + COUNTS);
        for at in self.next..end {
            let bytes = self.counts.slices(4 * at..4 * at + 4).next();
            let count = bytes.and_then(<[u8]>::first_chunk).expect("a count lies within a chunk");
            show(reply, u32::from_le_bytes(*count));
        }
        self.next = end;
        end < self.counts.len() / 4
    }

    fn pinned_bytes(&self) -> usize {
        self.counts.memory_bytes()
    }
}

/// `CMS.QUERY key item [item ...]`: the estimated counts of items.
///
/// Reply: array of integers, streamed from a cut if they are many. Refusals: an absent key,
/// `WrongType`. Cost: O(items * depth).
/// Source: <https://redis.io/commands/cms.query> (RedisBloom 2.0.0).
pub(super) fn query(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let found = find_value::<Cms>(cx.db, cx.stats, &key)?;
    let found = found.ok_or_else(|| refuse(MISSING))?;
    cx.reply.array(args.left());
    let depth = found.shape().depth;
    let rows = depth.saturating_mul(args.left() as u64);
    if rows > ROWS_READ || is_long(args, ENTRIES_AT_ONCE, BYTES_AT_ONCE) {
        let looking = Looking { sketch: found.reader(), items: Items::new(args, 1, LEAST) };
        return Ok(flow(&mut cx.reply, looking));
    }
    while let Some(item) = args.next() {
        let least = found.least(darter_base::hash::digest(item), 0..depth);
        cx.reply.int(i64::from(least));
    }
    Ok(Flow::Done)
}

/// A lookup of many items, from a cut.
struct Looking {
    sketch: Cms,
    items: Items,
}

impl Stream for Looking {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let (sketch, depth) = (&self.sketch, self.sketch.shape().depth);
        let mut left = ROWS_READ;
        while left > 0 && !self.items.is_done() {
            let count = |hash, rows, _| sketch.least(hash, rows);
            let (cost, least) = self.items.step(depth, left, count);
            left = left.saturating_sub(cost);
            if let Some(least) = least {
                reply.int(i64::from(least));
            }
        }
        !self.items.is_done()
    }

    fn pinned_bytes(&self) -> usize {
        self.sketch.cells().pinned_bytes()
    }
}

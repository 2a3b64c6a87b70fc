//! TOPK.QUERY, TOPK.COUNT, TOPK.LIST.

use super::long::LongItem;
use super::value::TopK;
use super::{MISSING, refuse};
use crate::lookup::find_value;
use crate::pending_values::flow;
use crate::sketches::hashed::{Items, Join};
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_resp::{self as resp, Reply};
use darter_structs::sorted::{End, SortedReader};
use darter_structs::table::Scratch;

/// Rows read in a portion of a reply.
const ROWS_READ: u64 = 128;
/// The cost of looking an item up in the list, in rows.
const LISTED: u64 = 4;
/// Items of the list in a portion of a reply, and about how many bytes.
const PORTION_ENTRIES: usize = 256;
const PORTION_BYTES: usize = 32 * 1024;

/// The highest count of its buckets is the item's.
const MOST: (u32, Join) = (0, u32::max);

/// `TOPK.QUERY key item [item ...]`: whether items are in the list.
///
/// Reply: array of booleans, streamed from a cut. Refusals: an absent key, `WrongType`.
/// Cost: O(items). Source: <https://redis.io/commands/topk.query> (RedisBloom 2.0.0).
pub(super) fn query(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    look(cx, args, true)
}

/// `TOPK.COUNT key item [item ...]`: how often items came, by the list, or else by their buckets.
///
/// Reply: array of integers, streamed from a cut. Refusals: an absent key, `WrongType`.
/// Cost: O(items * depth). Source: <https://redis.io/commands/topk.count> (RedisBloom 2.0.0).
pub(super) fn count(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    look(cx, args, false)
}

fn look(cx: &mut Cx<'_>, mut args: Args<'_>, asks_list: bool) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let found = find_value::<TopK>(cx.db, cx.stats, &key)?;
    let sketch = found.ok_or_else(|| refuse(MISSING))?.reader();
    let (next, items) = (args.position(), Items::new(args, 1, MOST));
    cx.reply.array(args.left());
    Ok(flow(&mut cx.reply, Looking { sketch, items, next, asks_list }))
}

/// Items being looked up.
struct Looking {
    sketch: TopK,
    items: Items,
    /// The next item.
    next: usize,
    asks_list: bool,
}

impl Looking {
    /// Continues the search. Returns its cost in rows.
    fn step(&mut self, reply: &mut Reply<'_>, most: u64) -> u64 {
        let Self { sketch, items, next, asks_list } = self;
        if *asks_list {
            let item = resp::Args::owned(items.request()).get(*next);
            reply.boolean(sketch.listed(item).is_some());
            *next += 1;
            return LISTED;
        }
        let count = |hash, rows: std::ops::Range<u64>, _| {
            rows.map(|row| sketch.count_in(hash, row as u32)).max().unwrap_or(0)
        };
        let (cost, most) = items.step(sketch.shape().depth.into(), most, count);
        if let Some(most) = most {
            let listed = sketch.listed(resp::Args::owned(items.request()).get(*next));
            reply.int(listed.unwrap_or(most).into());
            *next += 1;
        }
        cost + LISTED
    }
}

impl Stream for Looking {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let (len, mut left) = (self.items.request().len(), ROWS_READ);
        while left > 0 && self.next < len {
            let cost = self.step(reply, left);
            left = left.saturating_sub(cost);
        }
        self.next < len
    }

    fn pinned_bytes(&self) -> usize {
        self.sketch.pinned_bytes()
    }
}

/// `TOPK.LIST key [WITHCOUNT]`: the items of the list, the most frequent first. As in RedisBloom,
/// any prefix of WITHCOUNT is accepted.
///
/// Reply: array of the items, with counts each followed by its own; streamed from a cut. Refusals:
/// another word, an absent key, `WrongType`. Cost: O(k).
/// Source: <https://redis.io/commands/topk.list> (RedisBloom 2.0.0).
pub(super) fn list(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    const WORD: &[u8] = b"WITHCOUNT";
    if args.left() > 2 {
        return Err(Refusal::Arity("topk.list".into()));
    }
    let key = args.key()?;
    let with_counts = match args.peek_word() {
        None => false,
        Some(word) if WORD.get(..word.len()).is_some_and(|all| all.eq_ignore_ascii_case(word)) => {
            true
        }
        Some(_) => return Err(refuse("WITHCOUNT keyword expected")),
    };
    let found = find_value::<TopK>(cx.db, cx.stats, &key)?;
    let found = found.ok_or_else(|| refuse(MISSING))?;
    let cut = found.list().reader();
    let len = cut.len();
    cx.reply.array(if with_counts { 2 * len } else { len });
    let reader = SortedReader::new(cut, 0..len, End::Back);
    Ok(flow(&mut cx.reply, Listing { reader, with_counts, long: None }))
}

/// The list being sent. The header is already written.
struct Listing {
    reader: SortedReader,
    with_counts: bool,
    /// A long item whose length was written, and its count.
    long: Option<(LongItem, i64)>,
}

impl Listing {
    /// Writes the next item, or a piece of a long one. Returns its bytes.
    fn write(&mut self, reply: &mut Reply<'_>) -> usize {
        let Self { reader, with_counts, long, .. } = self;
        let count = |reply: &mut Reply<'_>, count| {
            if *with_counts {
                reply.int(count);
            }
        };
        if let Some((item, times)) = long {
            let piece = item.piece();
            reply.out.tail().extend_from_slice(piece);
            let bytes = piece.len();
            if item.is_done() {
                reply.crlf();
                count(reply, *times);
                *long = None;
            }
            return bytes;
        }
        let mut bytes = 0;
        reader.next_slice(1, &mut |entry| {
            *long = LongItem::of(&entry).map(|item| (item, entry.score() as i64));
            if long.is_some() {
                return reply.bulk_header(entry.member().len());
            }
            reply.bulk(entry.member().bytes(&mut Scratch::new()));
            count(reply, entry.score() as i64);
            bytes = entry.member().len();
        });
        bytes
    }

    fn is_done(&self) -> bool {
        self.long.is_none() && self.reader.left() == 0
    }
}

impl Stream for Listing {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let (mut entries, mut bytes) = (0, 0);
        while entries < PORTION_ENTRIES && bytes < PORTION_BYTES && !self.is_done() {
            (entries, bytes) = (entries + 1, bytes + self.write(reply));
        }
        !self.is_done()
    }

    fn pinned_bytes(&self) -> usize {
        self.reader.pinned_bytes()
    }
}

//! ZSCAN: a sorted set, a few members a call, with cursors that survive its growth.

use super::reply::member;
use super::value::ZSet;
use crate::cursor;
use crate::lookup::find_value;
use crate::scan::Options;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_base::{number, score};
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_keyspace::Value;
use darter_resp::Reply;
use darter_structs::sorted::{Entry, Sorted};

/// The encoding of sorted sets that are returned whole.
const WHOLE: &str = "listpack";
/// Entries that one portion of a long call asks for.
const PORTION: usize = 64;
/// Integral scores below this are written as integers in a listpack.
const INTEGER_END: f64 = (1_i64 << 62) as f64;

/// `ZSCAN key cursor [MATCH pattern] [COUNT count] [NOSCORES]`: some members with their scores, and
/// the cursor to continue with.
///
/// Reply: array of the cursor and a flat array; scores are texts in RESP3 too. A sorted set that
/// Redis keeps packed is returned whole. With a large count the reply is made in slices, from a
/// cut. Refusals: an invalid cursor, `WrongType`, `NotAnInteger`, `Syntax`, in this order; no option
/// is looked at when the key is absent. Cost: O(count).
/// Source: <https://redis.io/commands/zscan> (2.8.0), <https://valkey.io/commands/zscan> (NOSCORES).
pub(super) fn zscan(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let cursor = cursor::parse(args.bytes()?)?;
    let Some(set) = find_value::<ZSet>(cx.db, cx.stats, &key)? else {
        header(&mut cx.reply, 0, 0);
        return Ok(Flow::Done);
    };
    let mut shown = if set.encoding() == WHOLE { Shown::Packed } else { Shown::Score };
    let is_whole = shown == Shown::Packed;
    let mut options = Options::parse(args, |args| {
        let alone = args.option("NOSCORES");
        shown = if alone { Shown::Member } else { shown };
        alone
    })?;
    options.count = if is_whole { usize::MAX } else { options.count };
    let first = if is_whole { 0 } else { cursor };
    let small = options.count <= ENTRIES_AT_ONCE || set.len() <= ENTRIES_AT_ONCE;
    let set = set.entries().reader();
    let walk = Walk { set, options, first, next: first, entries: 0 };
    let mut scan = Scan { walk, shown, matches: 0, counted: false };
    if small {
        while scan.pump(&mut cx.reply) {}
        return Ok(Flow::Done);
    }
    Ok(Flow::Stream(Box::new(scan)))
}

/// The start of a reply.
fn header(reply: &mut Reply<'_>, cursor: u64, elements: usize) {
    reply.array(2);
    reply.bulk(cursor.to_string().as_bytes());
    reply.array(elements);
}

/// What is shown of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Member,
    /// The member, and its score as other commands show it.
    Score,
    /// The member, and its score as it is in a listpack: integers are whole.
    Packed,
}

impl Shown {
    /// Elements for each entry.
    fn width(self) -> usize {
        if self == Self::Member { 1 } else { 2 }
    }

    fn encode(self, reply: &mut Reply<'_>, entry: &Entry<'_>) {
        member(reply, entry);
        let score = entry.score();
        let is_integer = score.trunc() == score && score.abs() < INTEGER_END;
        match self {
            Self::Member => {}
            Self::Packed if is_integer => {
                let mut text = [0; number::I64_TEXT_MAX];
                reply.bulk(number::i64_text(&mut text, score as i64));
            }
            Self::Score | Self::Packed => reply.bulk(score::Text::new(score).as_bytes()),
        }
    }
}

/// A walk through the part of a cut that one call returns; made twice, as `scan::Walk` is.
struct Walk {
    set: Sorted,
    options: Options,
    /// Where the part begins.
    first: u64,
    next: u64,
    entries: usize,
}

impl Walk {
    /// Visits the next entries. True while the part continues.
    fn portion(&mut self, take: &mut dyn FnMut(Entry<'_>)) -> bool {
        let Self { set, options, next, entries, .. } = self;
        let most = PORTION.min(options.count.saturating_sub(*entries)).max(1);
        *next = set.scan(*next, most, &mut |entry| {
            *entries += 1;
            if options.wants(&entry.member()) {
                take(entry);
            }
        });
        *next != 0 && *entries < options.count
    }
}

/// A call: counts, then sends.
struct Scan {
    walk: Walk,
    shown: Shown,
    matches: usize,
    counted: bool,
}

impl Stream for Scan {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let Self { walk, shown, matches, counted } = self;
        if *counted {
            return walk.portion(&mut |entry| shown.encode(reply, &entry));
        }
        if walk.portion(&mut |_| *matches += 1) {
            return true;
        }
        header(reply, walk.next, *matches * shown.width());
        *counted = true;
        (walk.next, walk.entries) = (walk.first, 0);
        *matches > 0
    }

    fn pinned_bytes(&self) -> usize {
        if self.walk.set.is_pinned() { self.walk.set.memory_bytes() } else { 0 }
    }
}

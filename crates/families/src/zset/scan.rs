//! ZSCAN: a sorted set, a few members a call, with cursors that survive its growth.

use super::reply::member;
use super::value::ZSet;
use crate::cursor;
use crate::lookup::find_value;
use crate::pending_values::PendingValues;
use crate::scan::Options;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_base::{number, score};
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_keyspace::Value;
use darter_resp::Reply;
use darter_structs::sorted::{self, Sorted, SortedEntry};

/// The encoding of sorted sets that are returned whole.
const WHOLE: &str = "listpack";
/// Entries that are looked for together: of equal scores, all their entries are looked at each time.
const TOGETHER: usize = 1_024;
/// Integral scores below this are written as integers in a listpack.
const INTEGER_END: f64 = (1_i64 << 62) as f64;

/// `ZSCAN key cursor [MATCH pattern] [COUNT count] [NOSCORES]`: some members with their scores, and
/// the cursor to continue with.
///
/// Reply: array of the cursor and a flat array; scores are texts in RESP3 too. A sorted set that
/// Redis keeps packed is returned whole. A longer reply is made in slices, from a cut. Refusals: an
/// invalid cursor, `WrongType`, `NotAnInteger`, `Syntax`, in this order; no option is looked at
/// when the key is absent. Cost: O(count), and a look at each entry that has the score of one that
/// is returned. Source: <https://redis.io/commands/zscan> (2.8.0),
/// <https://valkey.io/commands/zscan> (NOSCORES).
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
    let set = set.entries();
    let mut scan = Scan::new(ScanWalk::new(options, first), shown);
    let all_at_once = set.len() <= ENTRIES_AT_ONCE;
    while scan.pump(set, &mut cx.reply) {
        // Counted in one portion, it is sent in one, unless its members are long.
        if !all_at_once && !scan.counted || !scan.unsent.is_empty() {
            return Ok(Flow::Stream(Box::new(Scanning { scan, set: set.reader() })));
        }
    }
    Ok(Flow::Done)
}

/// The start of a reply.
fn header(reply: &mut Reply<'_>, cursor: u64, elements: usize) {
    reply.array(2);
    reply.bulk(cursor.to_string().as_bytes());
    reply.array(elements);
}

/// The parts of an entry that are shown.
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

    fn encode(self, reply: &mut Reply<'_>, unsent: &mut PendingValues, entry: &SortedEntry<'_>) {
        member(reply, unsent, entry);
        let score = entry.score();
        let is_integer = score.trunc() == score && score.abs() < INTEGER_END;
        unsent.encoded(reply, |reply| match self {
            Self::Member => {}
            Self::Packed if is_integer => {
                let mut text = [0; number::I64_TEXT_MAX];
                reply.bulk(number::i64_text(&mut text, score as i64));
            }
            Self::Score | Self::Packed => reply.bulk(score::Text::new(score).as_bytes()),
        });
    }
}

/// A walk through the part of a set that one call returns; made twice, as `scan::ScanWalk` is.
struct ScanWalk {
    options: Options,
    /// The start of the part.
    first: u64,
    /// The scan of the current entries.
    scan: sorted::Scan,
    entries: usize,
}

impl ScanWalk {
    fn new(options: Options, first: u64) -> Self {
        let scan = sorted::Scan::new(first, options.count.min(TOGETHER));
        Self { options, first, scan, entries: 0 }
    }

    /// Visits the next entries. True while the part continues.
    fn portion(&mut self, set: &Sorted, take: &mut dyn FnMut(SortedEntry<'_>)) -> bool {
        let Self { options, scan, entries, .. } = self;
        let more = scan.step(set, &mut |entry| {
            *entries += 1;
            if options.wants(&entry.member()) {
                take(entry);
            }
        });
        let (next, left) = (scan.cursor(), options.count.saturating_sub(*entries));
        if !more && next != 0 && left > 0 {
            *scan = sorted::Scan::new(next, left.min(TOGETHER));
            return true;
        }
        more
    }

    /// Goes back to where the part begins.
    fn restart(&mut self) {
        self.scan = sorted::Scan::new(self.first, self.options.count.min(TOGETHER));
        self.entries = 0;
    }
}

/// A call: counts, then sends.
struct Scan {
    walk: ScanWalk,
    shown: Shown,
    matches: usize,
    counted: bool,
    /// Whether all has been visited for the second time.
    sent: bool,
    unsent: PendingValues,
}

impl Scan {
    fn new(walk: ScanWalk, shown: Shown) -> Self {
        let unsent = PendingValues::default();
        Self { walk, shown, matches: 0, counted: false, sent: false, unsent }
    }

    /// Does a portion. True while there is more to do.
    fn pump(&mut self, set: &Sorted, reply: &mut Reply<'_>) -> bool {
        let Self { walk, shown, matches, counted, sent, unsent } = self;
        if !unsent.is_empty() {
            return unsent.pump(reply) || !*sent;
        }
        if *counted {
            *sent = !walk.portion(set, &mut |entry| shown.encode(reply, unsent, &entry));
            return !*sent || !unsent.is_empty();
        }
        if walk.portion(set, &mut |_| *matches += 1) {
            return true;
        }
        header(reply, walk.scan.cursor(), *matches * shown.width());
        *counted = true;
        walk.restart();
        *matches > 0
    }
}

/// A long call.
struct Scanning {
    scan: Scan,
    set: Sorted,
}

impl Stream for Scanning {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        self.scan.pump(&self.set, reply)
    }

    fn pinned_bytes(&self) -> usize {
        if self.set.is_pinned() { self.set.memory_bytes() } else { 0 }
    }
}

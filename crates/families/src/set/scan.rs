//! SSCAN: a set, a few members a call, with cursors that survive its growth.

use super::reply::bulk;
use super::walk::is_alive;
use crate::cursor;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_base::{glob, number};
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_resp::Reply;
use darter_structs::table::{Entry, Never, Scratch, Table};

/// Members a call, if the client does not say.
const COUNT_DEFAULT: usize = 10;
/// Places of the table that are looked at for each member wanted: an almost empty table does not
/// hold a call up.
const PLACES_PER_MEMBER: usize = 10;
/// Places in one portion of a long call: at most about 30 us.
const PORTION: usize = 24;
/// Cursors of the table are shorter than ours by the bits it leaves to its caller.
const CURSOR_MASK: u64 = (1 << 48) - 1;
/// The encoding of sets that are returned whole.
const WHOLE: &str = "intset";

/// `SSCAN key cursor [MATCH pattern] [COUNT count]`: some members, and the cursor to go on with.
///
/// Reply: array of the cursor and an array of members. A set of few integers is returned whole.
/// With a large count the reply is made in slices, from a cut. Refusals: an invalid cursor,
/// `WrongType`, `NotAnInteger`, `Syntax`, in this order; no option is looked at when the key is
/// absent. Cost: O(count). Source: <https://redis.io/commands/sscan> (2.8.0).
pub(super) fn sscan(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let cursor = cursor::parse(args.bytes()?).ok_or(Refusal::line("ERR invalid cursor"))?;
    let Some(found) = cx.find(&key) else {
        header(&mut cx.reply, 0, 0);
        return Ok(Flow::Done);
    };
    let set = found.set()?;
    let options = Options::parse(args)?;
    let (cursor, count) = match set.encoding() {
        WHOLE => (0, usize::MAX),
        _ => (cursor & CURSOR_MASK, options.count),
    };
    let small = count <= ENTRIES_AT_ONCE || set.encoding() == WHOLE;
    let cut = set.members().clone();
    let mut scan = Scan {
        filter: Filter { pattern: options.pattern, now: cx.now },
        cut,
        first: cursor,
        next: cursor,
        progress: Progress::new(count),
        matches: 0,
        counted: false,
    };
    if small {
        while scan.pump(&mut cx.reply) {}
        return Ok(Flow::Done);
    }
    Ok(Flow::Stream(Box::new(scan)))
}

/// The start of a reply.
fn header(reply: &mut Reply<'_>, cursor: u64, members: usize) {
    reply.array(2);
    reply.bulk(cursor.to_string().as_bytes());
    reply.array(members);
}

/// What the client asked for.
struct Options {
    pattern: Option<Vec<u8>>,
    count: usize,
}

impl Options {
    fn parse(mut args: Args<'_>) -> Result<Self, Refusal> {
        let mut options = Self { pattern: None, count: COUNT_DEFAULT };
        while args.left() > 0 {
            if args.left() > 1 && args.option("COUNT") {
                let count = number::parse_i64(args.bytes()?).ok_or(Refusal::NotAnInteger)?;
                let count = usize::try_from(count).ok().filter(|count| *count > 0);
                options.count = count.ok_or(Refusal::Syntax)?;
            } else if args.left() > 1 && args.option("MATCH") {
                options.pattern = Some(args.bytes()?.to_vec()).filter(|pattern| pattern != b"*");
            } else {
                return Err(Refusal::Syntax);
            }
        }
        Ok(options)
    }
}

/// Which members are returned.
struct Filter {
    pattern: Option<Vec<u8>>,
    now: u64,
}

impl Filter {
    fn takes(&self, entry: &Entry<'_, Never>) -> bool {
        is_alive(entry.deadline(), self.now)
            && self.pattern.as_ref().is_none_or(|pattern| {
                glob::matches(pattern, entry.key().bytes(&mut Scratch::new()))
            })
    }
}

/// How far a call goes: until so many members were seen, matching or not.
struct Progress {
    members: usize,
    places: usize,
    count: usize,
}

impl Progress {
    fn new(count: usize) -> Self {
        Self { members: 0, places: 0, count }
    }

    fn is_over(&self) -> bool {
        self.members >= self.count || self.places >= self.count.saturating_mul(PLACES_PER_MEMBER)
    }
}

/// A call: goes through its part of the table twice, first to count and to find the cursor, which
/// stand at the beginning of the reply, then to send. Nothing is gathered, however large the count.
struct Scan {
    filter: Filter,
    cut: Table<Never>,
    /// Where the part begins.
    first: u64,
    next: u64,
    progress: Progress,
    matches: usize,
    counted: bool,
}

impl Scan {
    /// Looks at the next place of the table. True while the call goes on.
    fn place(&mut self, take: &mut dyn FnMut(&Entry<'_, Never>)) -> bool {
        let (filter, progress) = (&self.filter, &mut self.progress);
        self.next = self.cut.scan(self.next, &mut |entry| {
            progress.members += 1;
            if filter.takes(&entry) {
                take(&entry);
            }
        });
        self.progress.places += 1;
        self.next != 0 && !self.progress.is_over()
    }
}

impl Stream for Scan {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        for _ in 0..PORTION {
            if self.counted {
                let more = self.place(&mut |entry| {
                    bulk(reply, entry);
                });
                if !more {
                    return false;
                }
                continue;
            }
            let mut matches = 0;
            let more = self.place(&mut |_| matches += 1);
            self.matches += matches;
            if !more {
                header(reply, self.next, self.matches);
                self.counted = true;
                self.next = self.first;
                self.progress = Progress::new(self.progress.count);
                return self.matches > 0;
            }
        }
        true
    }
}

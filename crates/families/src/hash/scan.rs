//! HSCAN: a hash, a few fields a call, with cursors that survive its growth.

use super::field::find;
use super::outbox::{Outbox, flow};
use super::whole::{Fields, Part, is_alive};
use crate::cursor;
use darter_base::{glob, number};
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_resp::Reply;
use darter_structs::blob::Blob;
use darter_structs::table::{Entry, Scratch};
use std::sync::Arc;

/// Fields a call, if the client does not say.
const COUNT_DEFAULT: usize = 10;
/// Places of the table that are looked at for each field wanted: an almost empty table does not
/// hold a call up.
const PLACES_PER_FIELD: usize = 10;
/// Places in one portion of a long call: at most about 30 us.
const PORTION: usize = 24;
/// Cursors of the table are shorter than ours by the bits it leaves to its caller.
const CURSOR_MASK: u64 = (1 << 48) - 1;
/// The encoding of hashes that are returned whole.
const WHOLE: &str = "listpack";

/// `HSCAN key cursor [MATCH pattern] [COUNT count] [NOVALUES]`: some fields with their values, and
/// the cursor to go on with.
///
/// Reply: array of the cursor and a flat array. A hash that Redis keeps packed is returned whole.
/// With a large count the reply is made in slices, from a cut. Refusals: an invalid cursor,
/// `WrongType`, `NotAnInteger`, `Syntax`, in this order; no option is looked at when the key is
/// absent. Cost: O(count). Source: <https://redis.io/commands/hscan> (2.8.0; NOVALUES 7.4.0).
pub(super) fn hscan(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let cursor = cursor::parse(args.bytes()?).ok_or(Refusal::line("ERR invalid cursor"))?;
    let Some(hash) = find(cx.db, cx.stats, &key)? else {
        header(&mut cx.reply, 0, Part::Flat, 0);
        return Ok(Flow::Done);
    };
    let options = Options::parse(args)?;
    let (cursor, count) = match hash.encoding() {
        WHOLE => (0, usize::MAX),
        _ => (cursor & CURSOR_MASK, options.count),
    };
    let scan = Scan {
        part: options.part,
        filter: Filter { pattern: options.pattern, now: cx.now },
        cut: hash.fields().clone(),
        first: cursor,
        next: cursor,
        progress: Progress::new(count),
        matches: 0,
        phase: Phase::Counting,
        outbox: Outbox::default(),
    };
    Ok(flow(&mut cx.reply, scan))
}

/// The start of a reply.
fn header(reply: &mut Reply<'_>, cursor: u64, part: Part, fields: usize) {
    reply.array(2);
    reply.bulk(cursor.to_string().as_bytes());
    part.header(reply, fields);
}

/// What the client asked for.
struct Options {
    pattern: Option<Vec<u8>>,
    count: usize,
    part: Part,
}

impl Options {
    fn parse(mut args: Args<'_>) -> Result<Self, Refusal> {
        let mut options = Self { pattern: None, count: COUNT_DEFAULT, part: Part::Flat };
        while args.left() > 0 {
            if args.left() > 1 && args.option("COUNT") {
                let count = number::parse_i64(args.bytes()?).ok_or(Refusal::NotAnInteger)?;
                let count = usize::try_from(count).ok().filter(|count| *count > 0);
                options.count = count.ok_or(Refusal::Syntax)?;
            } else if args.left() > 1 && args.option("MATCH") {
                options.pattern = Some(args.bytes()?.to_vec()).filter(|pattern| pattern != b"*");
            } else if args.option("NOVALUES") {
                options.part = Part::Field;
            } else {
                return Err(Refusal::Syntax);
            }
        }
        Ok(options)
    }
}

/// Which fields are returned.
struct Filter {
    pattern: Option<Vec<u8>>,
    now: u64,
}

impl Filter {
    fn takes(&self, entry: &Entry<'_, Arc<Blob>>) -> bool {
        is_alive(entry.deadline(), self.now)
            && self.pattern.as_ref().is_none_or(|pattern| {
                glob::matches(pattern, entry.key().bytes(&mut Scratch::new()))
            })
    }
}

/// How far a call goes: until so many fields were seen, matching or not.
struct Progress {
    fields: usize,
    places: usize,
    count: usize,
}

impl Progress {
    fn new(count: usize) -> Self {
        Self { fields: 0, places: 0, count }
    }

    fn is_over(&self) -> bool {
        self.fields >= self.count || self.places >= self.count.saturating_mul(PLACES_PER_FIELD)
    }
}

/// Where a call stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Counting,
    Sending,
    Sent,
}

/// A call: goes through its part of the table twice, first to count and to find the cursor, which
/// stand at the beginning of the reply, then to send. Nothing is gathered, however large the count.
struct Scan {
    part: Part,
    filter: Filter,
    cut: Fields,
    /// Where the part begins.
    first: u64,
    next: u64,
    progress: Progress,
    matches: usize,
    phase: Phase,
    outbox: Outbox,
}

impl Scan {
    /// Looks at the next place of the table. True while the call goes on.
    fn place(&mut self, take: &mut dyn FnMut(&Entry<'_, Arc<Blob>>)) -> bool {
        let (filter, progress) = (&self.filter, &mut self.progress);
        self.next = self.cut.scan(self.next, &mut |entry| {
            progress.fields += 1;
            if filter.takes(&entry) {
                take(&entry);
            }
        });
        self.progress.places += 1;
        self.next != 0 && !self.progress.is_over()
    }

    fn count(&mut self, reply: &mut Reply<'_>) {
        let mut matches = 0;
        let more = self.place(&mut |_| matches += 1);
        self.matches += matches;
        if !more {
            header(reply, self.next, self.part, self.matches);
            self.phase = if self.matches > 0 { Phase::Sending } else { Phase::Sent };
            self.next = self.first;
            self.progress = Progress::new(self.progress.count);
        }
    }

    fn send(&mut self, reply: &mut Reply<'_>) {
        let (part, mut outbox) = (self.part, std::mem::take(&mut self.outbox));
        let more = self.place(&mut |entry| {
            part.encode(reply, &mut outbox, entry);
        });
        self.outbox = outbox;
        if !more {
            self.phase = Phase::Sent;
        }
    }
}

impl Stream for Scan {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        if !self.outbox.is_empty() {
            return self.outbox.pump(reply) || self.phase != Phase::Sent;
        }
        for _ in 0..PORTION {
            match self.phase {
                Phase::Counting => self.count(reply),
                Phase::Sending if self.outbox.is_empty() => self.send(reply),
                Phase::Sending | Phase::Sent => break,
            }
        }
        self.phase != Phase::Sent || !self.outbox.is_empty()
    }
}

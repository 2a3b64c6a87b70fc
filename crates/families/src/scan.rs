//! The options shared by SCAN, HSCAN and SSCAN; and, for HSCAN and SSCAN, the walk through a part
//! of one table and the reply.
//!
//! Not here: the encoding of an entry, and the text of the cursor (`cursor`).

use crate::live_entries::is_alive;
use crate::pending_values::PendingValues;
use darter_base::{glob, number};
use darter_command::{Args, Refusal, Stream};
use darter_resp::Reply;
use darter_structs::table::{CURSOR_BITS, Entry, OutOfLine, Scratch, Table, Text};

/// The default COUNT.
const COUNT_DEFAULT: usize = 10;
/// Places of the table visited for each wanted entry at most, so that an almost empty table does
/// not prolong a call.
const PLACES_PER_ENTRY: usize = 10;
/// Places in one portion of a long call.
const PORTION: usize = 24;
/// The table's cursors have fewer bits than ours: some bits are left to the caller.
const CURSOR_MASK: u64 = (1 << CURSOR_BITS) - 1;

/// The client's options.
pub(crate) struct Options {
    pattern: Option<Vec<u8>>,
    /// The target number of visited entries.
    pub(crate) count: usize,
}

impl Options {
    /// Parses the options. `own` is called for each other word, and returns true if it accepts it.
    pub(crate) fn parse(
        mut args: Args<'_>,
        mut own: impl FnMut(&mut Args<'_>) -> bool,
    ) -> Result<Self, Refusal> {
        let mut options = Self { pattern: None, count: COUNT_DEFAULT };
        while args.left() > 0 {
            if args.left() > 1 && args.option("COUNT") {
                let count = number::parse_i64(args.bytes()?).ok_or(Refusal::NotAnInteger)?;
                let count = usize::try_from(count).ok().filter(|count| *count > 0);
                options.count = count.ok_or(Refusal::Syntax)?;
            } else if args.left() > 1 && args.option("MATCH") {
                options.pattern = Some(args.bytes()?.to_vec()).filter(|pattern| pattern != b"*");
            } else if !own(&mut args) {
                return Err(Refusal::Syntax);
            }
        }
        Ok(options)
    }

    /// True if an entry with this key matches.
    pub(crate) fn wants(&self, key: &Text<'_>) -> bool {
        let matches = |pattern: &Vec<u8>| glob::matches(pattern, key.bytes(&mut Scratch::new()));
        self.pattern.as_ref().is_none_or(matches)
    }
}

/// A walk through the part of a cut that one call returns: `count` entries, matching or not. The
/// walk is made twice: first to get the reply's count and cursor, which come first, then to send
/// the entries. Nothing is collected, whatever the count.
pub(crate) struct ScanWalk<X: OutOfLine> {
    cut: Table<X>,
    options: Options,
    now: u64,
    /// The cursor at which the part starts.
    first: u64,
    next: u64,
    entries: usize,
    places: usize,
}

impl<X: OutOfLine> ScanWalk<X> {
    /// The part of `cut` that starts at a client's `cursor`.
    pub(crate) fn new(cut: Table<X>, options: Options, cursor: u64, now: u64) -> Self {
        let first = cursor & CURSOR_MASK;
        Self { cut, options, now, first, next: first, entries: 0, places: 0 }
    }

    /// Visits the next place of the table, and calls `take` with its live matches. Returns true
    /// while the part continues.
    pub(crate) fn place(&mut self, take: &mut dyn FnMut(&Entry<'_, X>)) -> bool {
        let Self { cut, options, now, next, entries, .. } = self;
        *next = cut.scan(*next, &mut |entry| {
            *entries += 1;
            if is_alive(entry.deadline(), *now) && options.wants(&entry.key()) {
                take(&entry);
            }
        });
        self.places += 1;
        let count = self.options.count;
        let is_enough =
            self.entries >= count || self.places >= count.saturating_mul(PLACES_PER_ENTRY);
        self.next != 0 && !is_enough
    }

    /// The cursor after the visited entries.
    pub(crate) fn cursor(&self) -> u64 {
        self.next
    }

    /// Restarts at the beginning of the part.
    pub(crate) fn restart(&mut self) {
        (self.next, self.entries, self.places) = (self.first, 0, 0);
    }
}

/// The encoding of a reply with entries of a table.
pub(crate) trait Show<X: OutOfLine>: Copy + Send + 'static {
    /// The header for `entries` entries.
    fn header(self, reply: &mut Reply<'_>, entries: usize);

    /// Encodes one entry.
    fn encode(self, reply: &mut Reply<'_>, unsent: &mut PendingValues, entry: &Entry<'_, X>);
}

/// A call in progress: first counts, then sends.
pub(crate) struct Scan<X: OutOfLine, S: Show<X>> {
    walk: ScanWalk<X>,
    show: S,
    matches: usize,
    phase: Phase,
    unsent: PendingValues,
}

/// The phase of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Counting,
    Sending,
    Sent,
}

/// Replies with no entries and cursor 0.
pub(crate) fn nothing(reply: &mut Reply<'_>) {
    header(reply, 0);
    reply.array(0);
}

/// The start of a reply.
fn header(reply: &mut Reply<'_>, cursor: u64) {
    reply.array(2);
    reply.bulk(cursor.to_string().as_bytes());
}

impl<X: OutOfLine, S: Show<X>> Scan<X, S> {
    /// A call over `walk`.
    pub(crate) fn new(walk: ScanWalk<X>, show: S) -> Self {
        Self { walk, show, matches: 0, phase: Phase::Counting, unsent: PendingValues::default() }
    }

    fn count(&mut self, reply: &mut Reply<'_>) {
        let mut matches = 0;
        let more = self.walk.place(&mut |_| matches += 1);
        self.matches += matches;
        if !more {
            header(reply, self.walk.cursor());
            self.show.header(reply, self.matches);
            self.phase = if self.matches > 0 { Phase::Sending } else { Phase::Sent };
            self.walk.restart();
        }
    }

    fn send(&mut self, reply: &mut Reply<'_>) {
        let Self { walk, show, unsent, .. } = self;
        if !walk.place(&mut |entry| show.encode(reply, unsent, entry)) {
            self.phase = Phase::Sent;
        }
    }
}

impl<X: OutOfLine, S: Show<X>> Stream for Scan<X, S> {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        if !self.unsent.is_empty() {
            return self.unsent.pump(reply) || self.phase != Phase::Sent;
        }
        for _ in 0..PORTION {
            match self.phase {
                Phase::Counting => self.count(reply),
                Phase::Sending if self.unsent.is_empty() => self.send(reply),
                Phase::Sending | Phase::Sent => break,
            }
        }
        self.phase != Phase::Sent || !self.unsent.is_empty()
    }
}

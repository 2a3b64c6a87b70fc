//! The unread records of a log, and the cursors of its readers.
//!
//! ```text
//! numbers:   … 41 │ 42  43  44  45  46 │ 47 …
//!     dropped ────┘    ▲       ▲       └── the next record
//!              cursor of one   cursor of another
//! ```
//! A record is dropped when all readers have passed it; without readers none is kept. A reader
//! either *pins* its unread records, or it may *lapse*: if it is more than [`RECORDS_MAX`] records
//! or [`BYTES_MAX`] bytes behind, the oldest are dropped, and its next read reports that. The
//! backlog of a pinning reader is bounded by its owner, which makes writers wait.
//!
//! Invariants (`check_invariants`):
//! - I1: numbers are consecutive; the last number equals the number of records ever made.
//! - I2: no pinning reader is behind the oldest record.
//! - I3: while a reader may lapse, and none pins the oldest record, the bounds hold after a push.

use crate::effect::Record;
use std::collections::VecDeque;

/// The most records that a reader may lag behind without lapsing.
pub const RECORDS_MAX: usize = 64 * 1024;
/// The most bytes of records that a reader may lag behind without lapsing.
pub const BYTES_MAX: usize = 32 * 1024 * 1024;

/// The most readers at a time.
const READERS_MAX: usize = 64;

/// A handle of a reader: see [`Shard::join`](crate::Shard::join).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader(usize);

/// The records that a reader needs, besides the events of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Effects; without them, the reader gets names and events.
    pub effects: bool,
    /// Misses: keys that were looked up and are absent.
    pub misses: bool,
    /// The reader may lapse: it can start again from other data, and never delays a writer.
    pub may_lapse: bool,
}

impl Wants {
    /// Names and events.
    pub const EVENTS: Self = Self { effects: false, misses: false, may_lapse: false };
    /// Changes with their effects.
    pub const CHANGES: Self = Self { effects: true, ..Self::EVENTS };
    /// All records.
    pub const ALL: Self = Self { misses: true, ..Self::CHANGES };

    fn or(self, other: Self) -> Self {
        Self {
            effects: self.effects || other.effects,
            misses: self.misses || other.misses,
            may_lapse: self.may_lapse || other.may_lapse,
        }
    }
}

/// The result of a read.
#[derive(Debug)]
pub enum Read<'a> {
    /// The next record.
    Next(&'a Record),
    /// The reader has lapsed: this many records were dropped unread. It continues after them.
    Lapsed(u64),
    /// There are no more records yet.
    End,
}

/// The position of a reader.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    /// The number of the record that it reads next.
    next: u64,
    wants: Wants,
}

/// The unread records and the cursors; see the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    records: VecDeque<Record>,
    /// Bytes of the records except the last, which may still grow; 0 while no reader may lapse.
    bytes: usize,
    /// Number of the last record.
    count: u64,
    /// The cursors by [`Reader`]; the places of readers that have left are free.
    cursors: Vec<Option<Cursor>>,
    /// The union of all readers' wants.
    wants: Wants,
}

impl Ring {
    /// Adds a reader of all records from now on.
    pub(crate) fn join(&mut self, wants: Wants) -> Reader {
        let cursor = Some(Cursor { next: self.count + 1, wants });
        let free = self.cursors.iter().position(Option::is_none);
        let at = free.unwrap_or(self.cursors.len());
        assert!(at < READERS_MAX, "too many readers: {at}");
        match self.cursors.get_mut(at) {
            Some(place) => *place = cursor,
            None => self.cursors.push(cursor),
        }
        self.readers_changed();
        Reader(at)
    }

    /// Changes the records that a reader needs.
    pub(crate) fn set_wants(&mut self, reader: Reader, wants: Wants) {
        self.cursor(reader).wants = wants;
        self.readers_changed();
    }

    /// Removes a reader. Records that only it had to read are dropped.
    pub(crate) fn leave(&mut self, reader: Reader) {
        let cursor = self.cursors[reader.0].take();
        assert!(cursor.is_some(), "{reader:?} has left before");
        self.readers_changed();
    }

    fn readers_changed(&mut self) {
        let before = self.wants;
        self.wants = self.each().map(|cursor| cursor.wants).fold(Wants::default(), Wants::or);
        if self.wants.may_lapse != before.may_lapse {
            let closed = self.records.len().saturating_sub(1);
            let sum = || self.records.iter().take(closed).map(Record::bytes).sum();
            self.bytes = if self.wants.may_lapse { sum() } else { 0 };
        }
        self.trim(u64::MAX);
    }

    fn cursor(&mut self, reader: Reader) -> &mut Cursor {
        self.cursors[reader.0].as_mut().expect("it reads until it leaves")
    }

    fn each(&self) -> impl Iterator<Item = &Cursor> {
        self.cursors.iter().flatten()
    }

    /// True if there is a reader.
    pub(crate) fn is_read(&self) -> bool {
        self.cursors.iter().any(Option::is_some)
    }

    /// The records that some reader needs.
    pub(crate) fn wants(&self) -> Wants {
        self.wants
    }

    /// The number of the last record, and of all records ever made.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The number of the oldest record.
    fn first(&self) -> u64 {
        self.count + 1 - self.records.len() as u64
    }

    /// Appends a record, under the next number.
    pub(crate) fn push(&mut self, mut record: Record) {
        debug_assert!(self.is_read(), "no reader wants {record:?}");
        debug_assert_eq!(record.number, 0, "it is numbered already");
        self.count += 1;
        record.number = self.count;
        if self.wants.may_lapse {
            self.bytes += self.records.back().map_or(0, Record::bytes);
        }
        self.records.push_back(record);
        if self.wants.may_lapse {
            self.keep_bounds();
        }
    }

    /// Drops the oldest records while a reader that may lapse is too far behind.
    fn keep_bounds(&mut self) {
        while !self.fits() && !self.is_pinned() {
            self.drop_first();
        }
    }

    fn fits(&self) -> bool {
        self.records.len() <= RECORDS_MAX && self.bytes <= BYTES_MAX
    }

    /// True if the oldest record is unread by a reader that may not lapse.
    fn is_pinned(&self) -> bool {
        let first = self.first();
        self.each().any(|cursor| !cursor.wants.may_lapse && cursor.next <= first)
    }

    fn drop_first(&mut self) {
        let Some(record) = self.records.pop_front() else { return };
        if self.wants.may_lapse && !self.records.is_empty() {
            let bytes = record.bytes(); // The last record is not counted yet.
            assert!(bytes <= self.bytes, "{bytes} of {}", self.bytes);
            self.bytes -= bytes;
        }
    }

    /// Reads the next record. The one read before may be dropped.
    pub(crate) fn read(&mut self, reader: Reader) -> Read<'_> {
        let (first, count) = (self.first(), self.count);
        let cursor = self.cursor(reader);
        let next = cursor.next;
        assert!(next <= count + 1, "{reader:?} is at {next} of {count}");
        if next < first {
            cursor.next = first;
            return Read::Lapsed(first - next);
        }
        cursor.next = count.min(next) + 1;
        self.trim(next);
        let at = usize::try_from(next - self.first()).expect("a place in memory");
        self.records.get(at).map_or(Read::End, Read::Next)
    }

    /// Drops the records before number `limit` that all readers have passed.
    fn trim(&mut self, limit: u64) {
        let passed = self.each().map(|cursor| cursor.next).min().unwrap_or(self.count + 1);
        debug_assert!(passed <= self.count + 1, "{passed} of {} were read", self.count);
        while self.first() < passed.min(limit) {
            self.drop_first();
        }
    }

    /// True if the reader has not read everything.
    pub(crate) fn has_unread(&self, reader: Reader) -> bool {
        self.cursors[reader.0].is_some_and(|cursor| cursor.next <= self.count)
    }

    /// Takes all unread records for the only reader.
    pub(crate) fn take(&mut self) -> Vec<Record> {
        assert!(self.each().count() <= 1, "others are to read them");
        let (first, count) = (self.first(), self.count);
        let next = self.each().map(|cursor| cursor.next).next().unwrap_or(count + 1);
        self.cursors.iter_mut().flatten().for_each(|cursor| cursor.next = count + 1);
        self.bytes = 0;
        let read = usize::try_from(next.saturating_sub(first)).expect("a place in memory");
        self.records.drain(..).skip(read).collect()
    }

    /// The last record, which may still grow.
    pub(crate) fn last_mut(&mut self) -> Option<&mut Record> {
        self.records.back_mut()
    }

    /// The last `count` records, as far as they are still in memory.
    pub(crate) fn last(&self, count: usize) -> impl Iterator<Item = &Record> {
        self.records.range(self.records.len().saturating_sub(count)..)
    }

    /// The records after `number`, as far as they are still in memory.
    pub(crate) fn since_mut(&mut self, number: u64) -> impl Iterator<Item = &mut Record> {
        self.records.iter_mut().rev().take_while(move |record| record.number > number)
    }

    /// True if no reader of effects has read a record after `number`.
    pub(crate) fn is_unread_since(&self, number: u64) -> bool {
        let mut cursors = self.each().filter(|cursor| cursor.wants.effects);
        cursors.all(|cursor| cursor.next <= number + 1)
    }

    /// Asserts the invariants. Cost: O(records): for tests.
    pub(crate) fn check_invariants(&self) {
        let first = self.first();
        let numbers = self.records.iter().map(|record| record.number);
        assert!(numbers.eq(first..=self.count), "I1: {first} to {}", self.count);
        for cursor in self.each() {
            let pins = !cursor.wants.may_lapse;
            assert!(!pins || cursor.next >= first, "I2: {} before {first}", cursor.next);
            assert!(cursor.next <= self.count + 1, "I1: {} of {}", cursor.next, self.count);
        }
        if self.wants.may_lapse {
            let bytes: usize = self.records.iter().rev().skip(1).map(Record::bytes).sum();
            assert_eq!(bytes, self.bytes, "bytes of the closed records");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Name;
    use crate::effect::{Act, Effect};
    use crate::event::Events;
    use crate::text::StrPieces;
    use darter_base::Prng;

    fn record(bytes: usize) -> Record {
        let value = StrPieces::Bytes(vec![0; bytes]);
        let effect = Effect::Text { value, deadline: None, bits: 0 };
        let act = Act::Key(Name::from(&b"k"[..]), effect);
        let events = Events::default();
        let (number, stamp, begins, database, author) = (0, 0, true, 0, 0);
        Record { number, stamp, begins, database, part: None, author, act, events }
    }

    /// A reader in the model: the number it expects next, and whether it may lapse.
    struct Model {
        reader: Reader,
        next: u64,
        may_lapse: bool,
    }

    impl Model {
        /// Reads at most `most` records: each once, in order.
        fn read(&mut self, ring: &mut Ring, most: u64, oldest: u64) {
            for _ in 0..most {
                match ring.read(self.reader) {
                    Read::Next(record) => {
                        assert_eq!(record.number, self.next, "out of order");
                        self.next += 1;
                    }
                    Read::Lapsed(count) => {
                        assert!(self.may_lapse, "{count} records that it pins were dropped");
                        assert_eq!(self.next + count, oldest, "it goes on with the oldest");
                        self.next = oldest;
                    }
                    Read::End => {
                        assert_eq!(self.next, ring.count() + 1, "it stops too early");
                        return;
                    }
                }
            }
        }
    }

    // Readers that join late, lag, lapse and leave; each must see the numbers that the model
    // expects.
    #[test]
    fn each_reader_sees_each_record_once_in_order() {
        let (mut lapses, mut drops) = (0, 0);
        for seed in 0..300 {
            let mut prng = Prng::from_seed(seed);
            let (mut ring, mut readers, mut made) = (Ring::default(), Vec::<Model>::new(), 0);
            let big = prng.chance(50);
            for _ in 0..300 {
                let any = prng.below(readers.len().max(1) as u64) as usize;
                match prng.below(20) {
                    0 if readers.len() < 4 => {
                        let may_lapse = prng.chance(50);
                        let reader = ring.join(Wants { may_lapse, ..Wants::CHANGES });
                        readers.push(Model { reader, next: made + 1, may_lapse });
                    }
                    1 if !readers.is_empty() => ring.leave(readers.swap_remove(any).reader),
                    2..=6 if !readers.is_empty() => {
                        let (oldest, most) = (ring.first(), prng.below(30));
                        lapses += u64::from(readers[any].next < oldest);
                        readers[any].read(&mut ring, most, oldest);
                    }
                    _ if ring.is_read() => {
                        for _ in 0..prng.below(9) {
                            let bytes = if big { BYTES_MAX / 40 } else { 100 };
                            ring.push(record(prng.below(bytes as u64) as usize));
                            made += 1;
                            let fits = !ring.wants.may_lapse || ring.is_pinned() || ring.fits();
                            assert!(fits, "I3: {} records", ring.records.len());
                        }
                    }
                    _ => {}
                }
                ring.check_invariants();
                assert_eq!(ring.count(), made, "numbers never restart: {seed}");
                let behind = readers.iter().map(|reader| reader.next).min().unwrap_or(made + 1);
                assert!(
                    ring.records.len() as u64 <= made + 2 - behind,
                    "{seed}: too many are kept"
                );
                drops += u64::from(ring.first() > 1);
            }
        }
        assert!(lapses > 20 && drops > 1_000, "{lapses} lapses, {drops} drops");
    }

    #[test]
    fn a_slow_reader_is_dropped_at_the_limits_unless_it_pins_records() {
        let mut ring = Ring::default();
        let slow = ring.join(Wants { may_lapse: true, ..Wants::CHANGES });
        (0..RECORDS_MAX + 10).for_each(|_| ring.push(record(0)));
        assert_eq!(ring.records.len(), RECORDS_MAX);
        assert!(matches!(ring.read(slow), Read::Lapsed(10)));
        assert!(matches!(ring.read(slow), Read::Next(record) if record.number == 11));
        let pins = ring.join(Wants::CHANGES);
        (0..100).for_each(|_| ring.push(record(BYTES_MAX / 10)));
        assert_eq!(ring.records.len(), 100, "pinned");
        assert!(matches!(ring.read(slow), Read::Lapsed(_)));
        while !matches!(ring.read(pins), Read::End) {}
        ring.push(record(0));
        assert!(ring.records.len() < 11, "{} are kept", ring.records.len());
        ring.check_invariants();
    }
}

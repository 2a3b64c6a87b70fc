//! A group, and its consumers.

use super::item::{self, Aged, Code, Owned, Pending, Pendings};
use super::ordered::Ordered;
use super::shelf::{Shelf, Shelved};
use darter_base::StreamId;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A consumer group. Cloning it is a cut.
///
/// Pending entries have *ranks*, from 0, in the order of their IDs; so have those of a consumer.
#[derive(Clone)]
pub struct Group {
    name: Arc<[u8]>,
    last: StreamId,
    read: Option<u64>,
    pending: Ordered<Pendings>,
    /// The pending entries in the order of their deliveries.
    ages: Ordered<Aged>,
    /// Pending entries without a consumer.
    unowned: usize,
    /// Consumers with pending entries.
    busy: usize,
    /// The consumers by number.
    consumers: Shelf<Consumer>,
    /// The consumers by name.
    names: Shelf<Label>,
    /// The number of the consumer that was created last.
    number: u64,
}

/// A consumer of a group. Cloning it is a cut.
#[derive(Clone)]
pub struct Consumer {
    name: Arc<[u8]>,
    number: u64,
    seen_ms: u64,
    active_ms: Option<u64>,
    pending: Ordered<Owned>,
}

/// The number of the consumer with a name.
#[derive(Clone, Debug)]
struct Label {
    name: Arc<[u8]>,
    number: u64,
}

impl fmt::Debug for Group {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a group with {} pending entries", self.pending_len())
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a consumer with {} pending entries", self.pending_len())
    }
}

/// Bytes of a name: two counts precede it.
fn name_bytes(name: &[u8]) -> usize {
    2 * size_of::<usize>() + name.len()
}

impl Shelved for Group {
    fn content_bytes(&self) -> usize {
        let shelves = self.consumers.memory_bytes() + self.names.memory_bytes();
        let pending = self.pending.memory_bytes() + self.ages.memory_bytes();
        name_bytes(&self.name) + pending + shelves
    }
}

impl Shelved for Consumer {
    /// The name is counted here, and the label shares it.
    fn content_bytes(&self) -> usize {
        name_bytes(&self.name) + self.pending.memory_bytes()
    }
}

impl Shelved for Label {
    fn content_bytes(&self) -> usize {
        0
    }
}

impl Consumer {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The number in pending entries: unique in its group, never used again.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// When it last tried to read or to claim, in milliseconds since 1970.
    #[must_use]
    pub fn seen_ms(&self) -> u64 {
        self.seen_ms
    }

    /// The time at which it last got an entry. `None`: never.
    #[must_use]
    pub fn active_ms(&self) -> Option<u64> {
        self.active_ms
    }

    /// Entries that are pending with it.
    #[must_use]
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// How many of them have smaller IDs. Cost: O(log n).
    #[must_use]
    pub fn rank_of(&self, id: StreamId) -> usize {
        self.pending.rank_of(id)
    }

    /// The IDs of those with these ranks, as far as there are some.
    pub fn pending(&self, ranks: Range<usize>) -> impl Iterator<Item = StreamId> + '_ {
        self.pending.range(ranks).map(item::id)
    }
}

impl Group {
    pub(super) fn new(name: &[u8], last: StreamId, read: Option<u64>) -> Self {
        Self {
            name: name.into(),
            last,
            read,
            pending: Ordered::default(),
            ages: Ordered::default(),
            unowned: 0,
            busy: 0,
            consumers: Shelf::default(),
            names: Shelf::default(),
            number: 0,
        }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The ID up to which entries were delivered.
    #[must_use]
    pub fn last(&self) -> StreamId {
        self.last
    }

    /// How many entries of the stream were delivered, if that is known.
    #[must_use]
    pub fn read(&self) -> Option<u64> {
        self.read
    }

    /// Sets both.
    pub fn set_position(&mut self, last: StreamId, read: Option<u64>) {
        (self.last, self.read) = (last, read);
    }

    /// Pending entries.
    #[must_use]
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// Pending entries that have no consumer.
    #[must_use]
    pub fn unowned(&self) -> usize {
        self.unowned
    }

    /// How many pending entries have smaller IDs. Cost: O(log n).
    #[must_use]
    pub fn rank_of(&self, id: StreamId) -> usize {
        self.pending.rank_of(id)
    }

    /// The pending entry with this ID. Cost: O(log n).
    #[must_use]
    pub fn get(&self, id: StreamId) -> Option<Pending> {
        self.pending.get(id).map(item::pending)
    }

    /// The pending entries with these ranks, as far as there are some.
    pub fn pending(&self, ranks: Range<usize>) -> impl Iterator<Item = Pending> + '_ {
        self.pending.range(ranks).map(item::pending)
    }

    /// How many pending entries were delivered up to then. Cost: O(log n).
    #[must_use]
    pub fn delivered_until(&self, ms: u64) -> usize {
        match ms.checked_add(1) {
            Some(after) => self.ages.rank_of((after, StreamId::MIN)),
            None => self.ages.len(),
        }
    }

    /// The IDs of the pending entries with these ranks in the order of their deliveries, as far as
    /// there are some.
    pub fn by_age(&self, ranks: Range<usize>) -> impl Iterator<Item = StreamId> + '_ {
        self.ages.range(ranks).map(|bytes| item::age(bytes).1)
    }

    /// When the one was delivered that waits for longest. Cost: O(log n).
    #[must_use]
    pub fn first_delivered(&self) -> Option<u64> {
        self.ages.range(0..1).map(|bytes| item::age(bytes).0).next()
    }

    /// How many consumers there are.
    #[must_use]
    pub fn consumers_len(&self) -> usize {
        self.consumers.len()
    }

    /// How many of them have pending entries. Cost: O(1).
    #[must_use]
    pub fn busy_len(&self) -> usize {
        self.busy
    }

    /// The consumers with these indexes in the order of their names, as far as there are some.
    pub fn consumers(&self, indexes: Range<usize>) -> impl Iterator<Item = &Consumer> {
        let end = indexes.end.min(self.names.len());
        (indexes.start..end).filter_map(|index| self.numbered(self.names.get(index).number))
    }

    /// The consumer of this name. Cost: O(log n).
    #[must_use]
    pub fn consumer(&self, name: &[u8]) -> Option<&Consumer> {
        let index = self.label(name).ok()?;
        self.numbered(self.names.get(index).number)
    }

    /// The consumer with this number. Cost: O(log n).
    #[must_use]
    pub fn numbered(&self, number: u64) -> Option<&Consumer> {
        self.shelved(number).map(|index| self.consumers.get(index))
    }

    /// The number of the consumer that was created last, which may be gone.
    #[must_use]
    pub fn newest_consumer(&self) -> Option<u64> {
        (self.number > 0).then_some(self.number)
    }

    /// The place of a name among the labels.
    fn label(&self, name: &[u8]) -> Result<usize, usize> {
        self.names.find(|label| (*label.name).cmp(name))
    }

    /// The place of a number among the consumers.
    fn shelved(&self, number: u64) -> Option<usize> {
        self.consumers.find(|consumer| consumer.number.cmp(&number)).ok()
    }

    /// Creates a consumer, which has never got anything. Returns its number; `None`, without a change,
    /// if there is one of this name.
    pub fn create_consumer(&mut self, name: &[u8], seen_ms: u64) -> Option<u64> {
        let Err(index) = self.label(name) else { return None };
        self.number += 1;
        let (name, number): (Arc<[u8]>, _) = (name.into(), self.number);
        self.names.insert(index, Label { name: Arc::clone(&name), number });
        let pending = Ordered::default();
        let consumer = Consumer { name, number, seen_ms, active_ms: None, pending };
        self.consumers.insert(self.consumers.len(), consumer);
        assert_eq!(self.names.len(), self.consumers.len(), "a label a consumer");
        Some(number)
    }

    /// Sets the times at which a consumer was seen and last got an entry.
    pub fn set_times(&mut self, number: u64, seen_ms: u64, active_ms: Option<u64>) {
        let Some(index) = self.shelved(number) else { return };
        self.consumers.edit(index, |consumer| {
            (consumer.seen_ms, consumer.active_ms) = (seen_ms, active_ms);
        });
    }

    /// Removes a consumer that has no pending entries. See [`Group::release`].
    ///
    /// # Panics
    /// When it has some.
    pub fn remove_consumer(&mut self, number: u64) {
        let Some(index) = self.shelved(number) else { return };
        let consumer = self.consumers.get(index);
        assert_eq!(consumer.pending_len(), 0, "its pending entries are released first");
        let name = Arc::clone(&consumer.name);
        self.consumers.remove(index);
        let label = self.label(&name).expect("a consumer has a label");
        assert_eq!(self.names.get(label).number, number, "G1: a label has its consumer's number");
        self.names.remove(label);
        assert_eq!(self.names.len(), self.consumers.len(), "a label a consumer");
    }

    /// Removes pending entries of a consumer, the first ones, at most `most`. Returns how many.
    pub fn release(&mut self, number: u64, most: usize) -> usize {
        let Some(consumer) = self.numbered(number) else { return 0 };
        let ids: Vec<_> = consumer.pending(0..most).collect();
        ids.iter().for_each(|id| _ = self.remove(*id));
        ids.len()
    }

    /// Adds a pending entry, or replaces the one with its ID. Returns its previous state.
    ///
    /// # Panics
    /// When it names a consumer that does not exist.
    pub fn put(&mut self, new: &Pending) -> Option<Pending> {
        let old = self.get(new.id);
        self.pending.put(new.id, &Code::of(new));
        if old.is_none_or(|old| old.delivered_ms != new.delivered_ms) {
            if let Some(old) = old {
                self.ages.remove((old.delivered_ms, old.id));
            }
            let age = (new.delivered_ms, new.id);
            self.ages.put(age, &Code::of_age(age));
        }
        let before = old.and_then(|old| old.consumer);
        if old.is_none() || before != new.consumer {
            if old.is_some() {
                self.disown(new.id, before);
            }
            self.own(new.id, new.consumer);
        }
        old
    }

    /// Removes the pending entry with this ID. Returns it. Cost: O(log n).
    pub fn remove(&mut self, id: StreamId) -> Option<Pending> {
        let old = self.get(id)?;
        self.pending.remove(id);
        let was_there = self.ages.remove((old.delivered_ms, id));
        assert!(was_there, "G5: {id} has an age");
        self.disown(id, old.consumer);
        Some(old)
    }

    fn own(&mut self, id: StreamId, consumer: Option<u64>) {
        let Some(number) = consumer else {
            self.unowned += 1;
            return;
        };
        let index = self.shelved(number).expect("a pending entry names a consumer that exists");
        let len = self.consumers.edit(index, |consumer| {
            let was_there = consumer.pending.put(id, &Code::of_id(id));
            assert!(!was_there, "G2: {id} twice");
            consumer.pending_len()
        });
        self.busy += usize::from(len == 1);
    }

    fn disown(&mut self, id: StreamId, consumer: Option<u64>) {
        let Some(number) = consumer else {
            assert!(self.unowned > 0, "G3: {id} is nobody's");
            self.unowned -= 1;
            return;
        };
        let index = self.shelved(number).expect("G2: a pending entry names a consumer that exists");
        let len = self.consumers.edit(index, |consumer| {
            let was_there = consumer.pending.remove(id);
            assert!(was_there, "G2: {id} is its consumer's");
            consumer.pending_len()
        });
        self.busy -= usize::from(len == 0);
    }

    /// Panics when an invariant does not hold.
    pub(super) fn check(&self) {
        self.pending.check();
        self.ages.check();
        let is_pending = |(delivered_ms, id): item::Age| {
            self.get(id).is_some_and(|pending| pending.delivered_ms == delivered_ms)
        };
        assert!(self.ages.range(0..self.ages.len()).map(item::age).all(is_pending), "G5");
        assert_eq!(self.ages.len(), self.pending_len(), "G5");
        self.consumers.check();
        self.names.check();
        assert_eq!(self.names.len(), self.consumers.len());
        let (mut owned, mut busy) = (0, 0);
        let mut before: Option<&[u8]> = None;
        for consumer in self.consumers(0..self.names.len()) {
            assert!(before.is_none_or(|before| before < consumer.name()), "G1");
            before = Some(consumer.name());
            consumer.pending.check();
            busy += usize::from(consumer.pending_len() > 0);
            for id in consumer.pending(0..consumer.pending_len()) {
                let pending = self.get(id).expect("G2: it is pending");
                assert_eq!(pending.consumer, Some(consumer.number), "G2");
                owned += 1;
            }
        }
        assert_eq!(owned + self.unowned, self.pending_len(), "G2, G3");
        assert_eq!(busy, self.busy, "G4");
    }
}

//! The latest messages of producers: IDs of entries, by digests of the producers' names for them.
//!
//! ```text
//! Producers -> by digest of the name -> Producer --+-- tree of | digest of a message, entry's ID | ...
//!                                                  +-- tree of | entry's ID, digest | ...   the oldest first
//! ```
//! Items are those of pending entries (`item`): four numbers in as few bytes as they need, and the time at
//! which the message came, if the entry's ID is of another. A digest is written as an ID, whose order means
//! nothing.
//!
//! Invariants (`check` asserts them):
//! - P1: producers are in the order of their digests, which differ; each has messages.
//! - P2: both trees of a producer hold the same.

use super::item::{self, Code, Pending, Pendings};
use super::ordered::Ordered;
use super::shelf::{Shelf, Shelved};
use darter_base::StreamId;
use std::fmt;

/// Messages that are forgotten by their age in one step.
const FORGOTTEN_AT_ONCE: usize = 8;

/// See the module. Cloning it is a cut.
#[derive(Clone, Default)]
pub struct Producers {
    all: Shelf<Producer>,
    /// The next producer for [`Producers::tend`].
    next: usize,
}

/// The messages of one producer.
#[derive(Clone)]
struct Producer {
    digest: u128,
    by_message: Ordered<Pendings>,
    by_id: Ordered<Pendings>,
}

impl fmt::Debug for Producer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a producer of {} messages", self.by_id.len())
    }
}

impl fmt::Debug for Producers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} producers", self.len())
    }
}

impl Shelved for Producer {
    fn content_bytes(&self) -> usize {
        self.by_message.memory_bytes() + self.by_id.memory_bytes()
    }
}

/// A digest as an ID.
fn key(digest: u128) -> StreamId {
    StreamId { ms: (digest >> 64) as u64, seq: digest as u64 }
}

/// A digest with an entry's ID, or the other way round, and when the entry was added.
fn pair(id: StreamId, with: StreamId, came_ms: Option<u64>) -> Pending {
    Pending { id, delivered_ms: with.ms, times: with.seq, consumer: came_ms }
}

/// The value stored with an ID.
fn with(bytes: &[u8]) -> StreamId {
    let Pending { delivered_ms, times, .. } = item::pending(bytes);
    StreamId { ms: delivered_ms, seq: times }
}

/// When an entry was added: at the time of its ID, unless that is said.
fn came_ms(bytes: &[u8], id: StreamId) -> u64 {
    item::pending(bytes).consumer.unwrap_or(id.ms)
}

impl Producer {
    /// The oldest entry, and when it was added.
    fn oldest(&self) -> Option<(StreamId, u64)> {
        let oldest = self.by_id.range(0..1).next()?;
        let id = item::id(oldest);
        Some((id, came_ms(oldest, id)))
    }

    /// Forgets the message of an entry.
    fn forget(&mut self, id: StreamId) {
        let message = self.by_id.get(id).map(with);
        if let Some(message) = message {
            self.by_id.remove(id);
            self.by_message.remove(message);
        }
    }

    /// Forgets some of those before a time.
    fn forget_before(&mut self, since_ms: u64) {
        for _ in 0..FORGOTTEN_AT_ONCE {
            match self.oldest().filter(|(_, came_ms)| *came_ms < since_ms) {
                Some((id, _)) => self.forget(id),
                None => break,
            }
        }
    }

    fn add(&mut self, message: StreamId, (id, now): (StreamId, u64), max: usize) {
        let before = self.by_message.get(message).map(with);
        before.into_iter().for_each(|id| self.forget(id));
        while self.by_id.len() >= max.max(1)
            && let Some((oldest, _)) = self.oldest()
        {
            self.forget(oldest);
        }
        let came_ms = (now != id.ms).then_some(now);
        self.by_message.put(message, &Code::of(&pair(message, id, came_ms)));
        self.by_id.put(id, &Code::of(&pair(id, message, came_ms)));
        assert_eq!(self.by_message.len(), self.by_id.len(), "P2");
    }
}

impl Producers {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory, with memory shared by cuts. Cost: O(1).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.all.memory_bytes()
    }

    /// The entry that a producer's message became, if that was not before a time. Cost: O(log n).
    #[must_use]
    pub fn find(&self, producer: u128, message: u128, since_ms: u64) -> Option<StreamId> {
        let index = self.all.find(|other| other.digest.cmp(&producer)).ok()?;
        let found = self.all.get(index).by_message.get(key(message))?;
        let id = with(found);
        (came_ms(found, id) >= since_ms).then_some(id)
    }

    /// Notes the ID of a producer's message, and its time; some messages before a time, and those
    /// beyond `max` of that producer are forgotten. Cost: O(log n).
    pub fn add(
        &mut self,
        (producer, message): (u128, u128),
        entry: (StreamId, u64),
        (max, since_ms): (usize, u64),
    ) {
        let found = self.all.find(|other| other.digest.cmp(&producer));
        let index = found.unwrap_or_else(|index| {
            let (by_message, by_id) = (Ordered::default(), Ordered::default());
            self.all.insert(index, Producer { digest: producer, by_message, by_id });
            index
        });
        self.all.edit(index, |producer| {
            producer.forget_before(since_ms);
            producer.add(key(message), entry, max);
        });
    }

    /// Forgets some messages before a time of the next producer in turn, and it, if it has no others.
    pub fn tend(&mut self, since_ms: u64) {
        if self.is_empty() {
            return;
        }
        let index = self.next % self.len();
        let is_old = self.all.get(index).oldest().is_none_or(|(_, came_ms)| came_ms < since_ms);
        let left = match is_old {
            true => self.all.edit(index, |producer| {
                producer.forget_before(since_ms);
                producer.by_id.len()
            }),
            false => 1,
        };
        if left == 0 {
            self.all.remove(index);
        }
        self.next = index + usize::from(left > 0);
    }

    /// Panics when an invariant does not hold. Cost: O(n log n): for tests.
    pub fn check_invariants(&self) {
        self.all.check();
        let mut before = None;
        for producer in (0..self.len()).map(|index| self.all.get(index)) {
            assert!(before < Some(producer.digest) && producer.by_id.len() > 0, "P1");
            before = Some(producer.digest);
            producer.by_message.check();
            producer.by_id.check();
            assert_eq!(producer.by_message.len(), producer.by_id.len(), "P2");
            for item in producer.by_id.range(0..producer.by_id.len()) {
                let other = producer.by_message.get(with(item)).map(with);
                assert_eq!(other, Some(item::id(item)), "P2");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;
    use std::collections::BTreeMap;

    #[test] // Cuts do not change.
    fn random_changes_of_producers_agree_with_a_map() {
        let mut prng = Prng::from_seed(5);
        let (mut producers, mut model) = (Producers::default(), BTreeMap::new());
        let (mut now, max, lasts_ms) = (1_000_u64, 7, 50);
        for step in 0..20_000 {
            now += prng.below(3);
            // At last, the stream's IDs are ahead of the clock.
            let id = StreamId::new(if step < 10_000 { now } else { now.max(1 << 40) }, step);
            let (producer, message) = (prng.below(40), prng.below(12));
            let (one, other) = (u128::from(producer) << 90, u128::from(message) << 63);
            let since = now - lasts_ms;
            let known: Option<StreamId> = model
                .get(&producer)
                .and_then(|all: &Vec<(u64, StreamId, u64)>| all.iter().find(|one| one.0 == message))
                .filter(|(_, _, came_ms)| *came_ms >= since)
                .map(|one| one.1);
            assert_eq!(producers.find(one, other, since), known, "{step}");
            if known.is_none() {
                let cut = producers.clone();
                producers.add((one, other), (id, now), (max, since));
                assert_eq!(cut.find(one, other, since), None);
                let all = model.entry(producer).or_insert_with(Vec::new);
                all.retain(|one| one.0 != message);
                all.push((message, id, now));
                let len = all.len();
                all.drain(..len.saturating_sub(max));
            }
            producers.tend(since);
            if step % 100 == 0 {
                producers.check_invariants();
            }
        }
        for _ in 0..10_000 {
            producers.tend(u64::MAX);
        }
        assert_eq!((producers.len(), producers.memory_bytes()), (0, 0));
    }
}

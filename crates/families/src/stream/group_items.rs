//! Consumer groups as items, for files and payloads.
//!
//! Redis 7.0 expects a consumer for each pending entry. Entries without one are written as those of
//! a consumer with an empty name, delivered at time 0. Reading such entries restores them without a
//! consumer. A real consumer with an empty name is written with time 1 instead of 0, for its
//! deliveries and for its last activity.

use super::id::NAME_BYTES_MAX;
use darter_base::StreamId;
use darter_rdb::{Item, Piece, Source};
use darter_structs::groups::{Consumer, Group, Groups, Pending};

/// Pending entries that are copied out of the tree at a time.
const BATCH: usize = 64;

/// The next item to return.
#[derive(Clone, Copy, Debug)]
enum Next {
    Group,
    /// The pending entry of this rank.
    Pending(usize),
    /// The consumer that stands for entries without one, if there are any.
    Nobody,
    /// The consumer at this index.
    Consumer(usize),
    /// The pending entry at this rank of that consumer.
    Owned(usize, usize),
    /// The next entry without a consumer, from this rank in the group; then the consumer at this
    /// index.
    Unowned(usize, usize),
}

/// The name under which entries without a consumer are written.
const NOBODY: &[u8] = b"";

/// The items of the groups of a cut, one by one.
pub(super) struct GroupItems {
    cut: Groups,
    /// The current group, and its index.
    group: Option<Group>,
    index: usize,
    consumer: Option<Consumer>,
    next: Next,
    pending: std::vec::IntoIter<Pending>,
    owned: std::vec::IntoIter<StreamId>,
}

impl GroupItems {
    pub(super) fn new(cut: Groups) -> Self {
        let (pending, owned) = (Vec::new().into_iter(), Vec::new().into_iter());
        let (group, consumer) = (None, None);
        Self { cut, group, index: 0, consumer, next: Next::Group, pending, owned }
    }

    /// The next pending entry of the group.
    fn pending(&mut self, rank: usize) -> Option<Pending> {
        if self.pending.len() == 0 {
            let group = self.group.as_ref()?;
            self.pending = group.pending(rank..rank + BATCH).collect::<Vec<_>>().into_iter();
        }
        self.next = Next::Pending(rank + 1);
        self.pending.next()
    }

    /// The delivery time of a pending entry; for a consumer with an empty name, never 0.
    fn delivered_ms(&self, pending: &Pending) -> u64 {
        let owner = pending.consumer.filter(|_| pending.delivered_ms == 0);
        let is_of_nobody = owner.zip(self.group.as_ref()).is_some_and(|(number, group)| {
            group.numbered(number).is_some_and(|consumer| consumer.name() == NOBODY)
        });
        pending.delivered_ms.max(u64::from(is_of_nobody))
    }

    /// The next ID of the consumer.
    fn owned(&mut self, consumer: usize, rank: usize) -> Option<StreamId> {
        if self.owned.len() == 0 {
            let of = self.consumer.as_ref()?;
            self.owned = of.pending(rank..rank + BATCH).collect::<Vec<_>>().into_iter();
        }
        self.next = Next::Owned(consumer, rank + 1);
        self.owned.next()
    }

    /// Moves to the next consumer. Returns false after the last.
    fn next_consumer(&mut self, index: usize) -> bool {
        let group = self.group.as_ref();
        self.consumer = group.and_then(|group| group.consumers(index..index + 1).next().cloned());
        self.next = Next::Owned(index, 0);
        self.consumer.is_some()
    }

    /// Returns the consumer with an empty name first, if some entries have no consumer.
    fn nobody(&mut self) -> Option<Piece<'static>> {
        let group = self.group.as_ref()?;
        let unowned = group.unowned() as u64;
        if unowned == 0 {
            return None;
        }
        let real = group.consumer(NOBODY).cloned();
        let owned = real.as_ref().map_or(0, |real| real.pending_len() as u64);
        let (seen_ms, active_ms) =
            real.as_ref().map_or((0, None), |real| (seen_ms(real), real.active_ms()));
        // A consumer with an empty name is the first by name.
        self.next = if real.is_some() { Next::Owned(0, 0) } else { Next::Unowned(0, 0) };
        self.consumer = real;
        Some(Piece::Consumer { name: NOBODY, seen_ms, active_ms, pending: owned + unowned })
    }

    /// True if the current consumer also stands for the entries without one.
    fn is_nobody(&self) -> bool {
        let is_named = self.consumer.as_ref().is_none_or(|consumer| consumer.name() != NOBODY);
        !is_named && self.group.as_ref().is_some_and(|group| group.unowned() > 0)
    }

    /// Finds the next pending entry without a consumer, and subtracts the visited ones from
    /// `looks`.
    fn find_unowned(&mut self, mut rank: usize, index: usize, looks: &mut usize) {
        while let Some(group) = self.group.as_ref().filter(|_| self.owned.len() == 0)
            && rank < group.pending_len()
            && *looks > 0
        {
            let batch = group.pending(rank..rank + BATCH);
            let unowned = batch.filter(|one| one.consumer.is_none()).map(|one| one.id);
            self.owned = unowned.collect::<Vec<_>>().into_iter();
            rank += BATCH;
            *looks = looks.saturating_sub(BATCH);
            self.next = Next::Unowned(rank, index);
        }
    }
}

/// A group, as its item.
fn of_group(group: &Group) -> Piece<'_> {
    let is_nobody = group.unowned() > 0 && group.consumer(NOBODY).is_none();
    Piece::Group {
        name: group.name(),
        last: group.last(),
        read: group.read(),
        pending: group.pending_len() as u64,
        consumers: group.consumers_len() as u64 + u64::from(is_nobody),
    }
}

/// When a consumer was last seen; never 0 if its name is empty.
fn seen_ms(consumer: &Consumer) -> u64 {
    consumer.seen_ms().max(u64::from(consumer.name() == NOBODY))
}

/// A consumer, as its item.
fn of_consumer(consumer: &Consumer) -> Piece<'_> {
    Piece::Consumer {
        name: consumer.name(),
        seen_ms: seen_ms(consumer),
        active_ms: consumer.active_ms(),
        pending: consumer.pending_len() as u64,
    }
}

impl Source for GroupItems {
    fn find(&mut self, looks: &mut usize) -> bool {
        let Next::Unowned(rank, index) = self.next else { return true };
        self.find_unowned(rank, index, looks);
        let Next::Unowned(rank, _) = self.next else { return true };
        let is_over = |group: &Group| rank >= group.pending_len();
        self.owned.len() > 0 || self.group.as_ref().is_none_or(is_over)
    }

    fn next(&mut self) -> Option<Item<'_>> {
        loop {
            match self.next {
                Next::Group => {
                    self.group = Some(self.cut.at(self.index)?.clone());
                    self.index += 1;
                    self.next = Next::Pending(0);
                    return self.group.as_ref().map(|group| Item::Piece(of_group(group)));
                }
                Next::Pending(rank) => match self.pending(rank) {
                    Some(pending @ Pending { id, times, .. }) => {
                        let delivered_ms = self.delivered_ms(&pending);
                        return Some(Item::Piece(Piece::Pending { id, delivered_ms, times }));
                    }
                    None => self.next = Next::Nobody,
                },
                Next::Nobody => {
                    self.next = Next::Consumer(0);
                    if let Some(piece) = self.nobody() {
                        return Some(Item::Piece(piece));
                    }
                }
                Next::Consumer(index) => {
                    if self.next_consumer(index) {
                        let consumer = self.consumer.as_ref();
                        return consumer.map(|consumer| Item::Piece(of_consumer(consumer)));
                    }
                    self.next = Next::Group;
                }
                Next::Owned(index, rank) => match self.owned(index, rank) {
                    Some(id) => return Some(Item::Piece(Piece::Owned(id))),
                    None if self.is_nobody() => self.next = Next::Unowned(0, index + 1),
                    None => self.next = Next::Consumer(index + 1),
                },
                Next::Unowned(rank, index) => {
                    self.find_unowned(rank, index, &mut { usize::MAX });
                    match self.owned.next() {
                        Some(id) => return Some(Item::Piece(Piece::Owned(id))),
                        None => self.next = Next::Consumer(index),
                    }
                }
            }
        }
    }

    fn rewind(&mut self) {
        *self = Self::new(std::mem::take(&mut self.cut));
    }
}

/// Adds an item to groups being loaded: to the last group and its last consumer. Returns false if
/// it is a duplicate, or contradicts earlier items.
pub(super) fn take_in(groups: &mut Groups, piece: Piece<'_>) -> bool {
    match piece {
        Piece::Group { name, .. } | Piece::Consumer { name, .. } if name.len() > NAME_BYTES_MAX => {
            false
        }
        // Added last, because the next items belong to the last group.
        Piece::Group { name, last, read, .. } => {
            let is_last = groups.at(groups.len().wrapping_sub(1)).is_none_or(|at| at.name() < name);
            is_last && groups.create(name, last, read)
        }
        Piece::Pending { id, delivered_ms, times } => {
            let new = Pending { id, delivered_ms, times, consumer: None };
            groups.edit_last(|group| group.put(&new).is_none()) == Some(true)
        }
        Piece::Consumer { name, seen_ms, active_ms, .. } => {
            let added = groups.edit_last(|group| {
                if name == NOBODY && seen_ms == 0 && group.newest_consumer().is_none() {
                    return Some(0);
                }
                let number = group.create_consumer(name, seen_ms)?;
                group.set_times(number, seen_ms, active_ms);
                Some(number)
            });
            matches!(added, Some(Some(_)))
        }
        Piece::Owned(id) => {
            let owned = groups.edit_last(|group| {
                let old = group.get(id).filter(|old| old.consumer.is_none())?;
                let consumer = group.newest_consumer();
                let is_nobody = consumer.is_none_or(|number| {
                    let name = group.numbered(number).map(Consumer::name);
                    name == Some(NOBODY) && old.delivered_ms == 0
                });
                if is_nobody { Some(old) } else { group.put(&Pending { consumer, ..old }) }
            });
            matches!(owned, Some(Some(_)))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::Stream;
    use super::*;
    use darter_keyspace::{Draft, Fresh, NewItem, Value};

    /// The stream made from the items of another.
    fn copy_of(stream: &Stream) -> Stream {
        let (mut items, mut copy) = (stream.items(0), Stream::new());
        while let Some(item) = items.next() {
            assert!(copy.take_in(NewItem::of(item).expect("nothing is long")), "{item:?}");
        }
        copy.check_invariants();
        copy
    }

    #[test]
    fn entries_without_a_consumer_stay_so_next_to_a_consumer_with_an_empty_name() {
        for (seen_ms, delivered_ms) in [(0, 0), (0, 5), (7, 0), (7, 5)] {
            let mut draft = Draft::<Stream>::default();
            let mut edit = draft.edit(1);
            edit.create_group(b"g", StreamId::MIN, None);
            let number = edit.create_consumer(b"g", NOBODY, seen_ms);
            for (ms, consumer) in [(1, number), (2, None), (3, number)] {
                let id = StreamId::new(ms, 0);
                edit.append(id, [Fresh::Bytes(b"f"); 2].into_iter());
                let delivered_ms = if consumer.is_some() { delivered_ms } else { 0 };
                edit.deliver(b"g", &Pending { id, delivered_ms, times: 1, consumer });
            }
            let copy = copy_of(draft.value());
            let group = copy.groups().get(b"g").expect("it was copied");
            let owned = group.consumer(NOBODY).map(Consumer::pending_len);
            assert_eq!((owned, group.unowned()), (Some(2), 1), "{seen_ms} {delivered_ms}");
        }
    }

    #[test] // The limit is the same as for commands.
    fn too_long_group_and_consumer_names_in_payloads_are_refused() {
        let long = vec![b'n'; NAME_BYTES_MAX + 1];
        for (len, is_taken) in [(NAME_BYTES_MAX, true), (NAME_BYTES_MAX + 1, false)] {
            let (mut groups, name) = (Groups::default(), &long[..len]);
            let (last, read, pending, consumers) = (StreamId::MIN, None, 0, 0);
            let group = |name| Piece::Group { name, last, read, pending, consumers };
            assert_eq!(take_in(&mut groups, group(name)), is_taken);
            take_in(&mut groups, group(b"zzz"));
            let consumer = Piece::Consumer { name, seen_ms: 1, active_ms: None, pending };
            assert_eq!(take_in(&mut groups, consumer), is_taken);
        }
    }
}

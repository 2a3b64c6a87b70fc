//! Consumer groups as items, for files and payloads.

use darter_base::StreamId;
use darter_rdb::{Item, Piece, Source};
use darter_structs::groups::{Consumer, Group, Groups, Pending};

/// Pending entries that are copied out of the tree at a time.
const BATCH: usize = 64;

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum Next {
    Group,
    /// The pending entry of this rank.
    Pending(usize),
    /// The consumer of this index.
    Consumer(usize),
    /// The pending entry of this rank of that consumer.
    Owned(usize, usize),
}

/// The items of the groups of a cut, one by one.
pub(super) struct GroupItems {
    cut: Groups,
    /// The group at hand, of this index.
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

    /// The next ID of the consumer.
    fn owned(&mut self, consumer: usize, rank: usize) -> Option<StreamId> {
        if self.owned.len() == 0 {
            let of = self.consumer.as_ref()?;
            self.owned = of.pending(rank..rank + BATCH).collect::<Vec<_>>().into_iter();
        }
        self.next = Next::Owned(consumer, rank + 1);
        self.owned.next()
    }

    /// Goes on to the next consumer. False after the last.
    fn next_consumer(&mut self, index: usize) -> bool {
        let group = self.group.as_ref();
        self.consumer = group.and_then(|group| group.consumers(index..index + 1).next().cloned());
        self.next = Next::Owned(index, 0);
        self.consumer.is_some()
    }
}

/// A group, as its item.
fn of_group(group: &Group) -> Piece<'_> {
    Piece::Group {
        name: group.name(),
        last: group.last(),
        read: group.read(),
        pending: group.pending_len() as u64,
        consumers: group.consumers_len() as u64,
    }
}

/// A consumer, as its item.
fn of_consumer(consumer: &Consumer) -> Piece<'_> {
    Piece::Consumer {
        name: consumer.name(),
        seen_ms: consumer.seen_ms(),
        active_ms: consumer.active_ms(),
        pending: consumer.pending_len() as u64,
    }
}

impl Source for GroupItems {
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
                    Some(Pending { id, delivered_ms, times, .. }) => {
                        return Some(Item::Piece(Piece::Pending { id, delivered_ms, times }));
                    }
                    None => self.next = Next::Consumer(0),
                },
                Next::Consumer(index) => {
                    if self.next_consumer(index) {
                        let consumer = self.consumer.as_ref();
                        return consumer.map(|consumer| Item::Piece(of_consumer(consumer)));
                    }
                    self.next = Next::Group;
                }
                Next::Owned(index, rank) => match self.owned(index, rank) {
                    Some(id) => return Some(Item::Piece(Piece::Owned(id))),
                    None => self.next = Next::Consumer(index + 1),
                },
            }
        }
    }

    fn rewind(&mut self) {
        *self = Self::new(std::mem::take(&mut self.cut));
    }
}

/// Adds a piece to groups that are built aside: to the last one, and to its last consumer. False when
/// it is there already, or contradicts what is.
pub(super) fn take_in(groups: &mut Groups, piece: Piece<'_>) -> bool {
    match piece {
        // Behind the others, so that what follows belongs to the last one.
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
                let number = group.create_consumer(name, seen_ms)?;
                group.set_times(number, seen_ms, active_ms);
                Some(number)
            });
            matches!(added, Some(Some(_)))
        }
        Piece::Owned(id) => {
            let owned = groups.edit_last(|group| {
                let old = group.get(id).filter(|old| old.consumer.is_none())?;
                let consumer = Some(group.newest_consumer()?);
                group.put(&Pending { consumer, ..old })
            });
            matches!(owned, Some(Some(_)))
        }
        _ => false,
    }
}

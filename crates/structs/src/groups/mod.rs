//! The consumer groups of a stream: the entries delivered to each consumer and not acknowledged
//! yet.
//!
//! Redis keeps two radix trees of pointers to one allocation for each pending entry, some hundred
//! bytes. Here the pending entries of a group lie packed in the chunks of a counted tree by ID, and
//! the IDs of each consumer in another, and their ages in a third: some thirty bytes. Numbers, and
//! what we rejected: docs/design/0019-consumer-groups.md.
//!
//! ```text
//! Groups -> groups by name -> Group --+-- pending: tree of | ID, delivered, times, consumer | ...
//!                                     +-- ages: tree of | delivered, ID | ...
//!                                     +-- consumers by number -> Consumer -- tree of | ID | ...
//!                                     +-- numbers by name
//! ```
//! | file       | holds                                                    |
//! |------------|----------------------------------------------------------|
//! | `item`     | the bytes of an ID, and of a pending entry               |
//! | `ordered`  | a tree of either, by ID; or of IDs, by age               |
//! | `shelf`    | groups, consumers and names in order, few or very many   |
//! | `group`    | a group, its consumers                                   |
//! | `producers` | what producers have sent lately                         |
//!
//! Cuts: `clone` counts a few references, whatever hangs below. Writers copy the chunks that they
//! change and the nodes above them, where a cut shares them. Large dropped parts are freed in
//! portions.
//!
//! Invariants (`check_invariants`; those of trees and chunks are in their files):
//! - G1: groups are in the order of their names, which differ; so are the names of consumers.
//! - G2: a consumer's IDs are those of the pending entries that name it.
//! - G3: `unowned` is the number of pending entries without a consumer.
//! - G4: `busy` is the number of consumers that have pending entries.
//! - G5: `ages` has each pending entry once, by when it was delivered.
//!
//! Not here: the entries of the stream, times and replies. See `families`.

mod group;
mod item;
mod ordered;
mod producers;
mod shelf;
#[cfg(test)]
mod tests;

pub use group::{Consumer, Group};
pub use item::Pending;
pub use producers::Producers;

use darter_base::StreamId;
use shelf::Shelf;
use std::fmt;

/// The groups of one stream, by name. Cloning them is a cut.
#[derive(Clone, Default)]
pub struct Groups(Option<Box<Shelf<Group>>>);

const _: () = assert!(size_of::<Groups>() == 8);

impl fmt::Debug for Groups {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} groups", self.len())
    }
}

impl Groups {
    /// No groups. Allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self(None)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |all| all.len())
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory, with memory shared by cuts. Cost: O(1).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |all| size_of::<Shelf<Group>>() + all.memory_bytes())
    }

    /// The group of this name. Cost: O(log n).
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&Group> {
        let all = self.0.as_ref()?;
        Some(all.get(all.find(|group| group.name().cmp(name)).ok()?))
    }

    /// The group with this index in the order of names.
    #[must_use]
    pub fn at(&self, index: usize) -> Option<&Group> {
        self.0.as_ref().filter(|all| index < all.len()).map(|all| all.get(index))
    }

    /// All groups, in the order of their names. Cost: O(log n) each.
    pub fn iter(&self) -> impl Iterator<Item = &Group> {
        (0..self.len()).filter_map(|index| self.at(index))
    }

    /// Creates a group. False, without a change, if there is one of this name.
    pub fn create(&mut self, name: &[u8], last: StreamId, read: Option<u64>) -> bool {
        let all = self.0.get_or_insert_default();
        let Err(index) = all.find(|group| group.name().cmp(name)) else { return false };
        all.insert(index, Group::new(name, last, read));
        true
    }

    /// Calls `f` with the group of this name, for changing. `None` if there is none.
    ///
    /// Cost: O(log n), and the cost of `f`; copies the shared parts of the way there.
    pub fn edit<R>(&mut self, name: &[u8], f: impl FnOnce(&mut Group) -> R) -> Option<R> {
        let all = self.0.as_mut()?;
        let index = all.find(|group| group.name().cmp(name)).ok()?;
        Some(all.edit(index, f))
    }

    /// [`Groups::edit`] of the last group in the order of names: of the one that is being built.
    pub fn edit_last<R>(&mut self, f: impl FnOnce(&mut Group) -> R) -> Option<R> {
        let all = self.0.as_mut()?;
        let index = all.len().checked_sub(1)?;
        Some(all.edit(index, f))
    }

    /// Removes a group, and all that is pending in it. Returns whether it was there. Cost: O(log n);
    /// its memory is freed in portions.
    pub fn destroy(&mut self, name: &[u8]) -> bool {
        let Some(all) = self.0.as_mut() else { return false };
        let Ok(index) = all.find(|group| group.name().cmp(name)) else { return false };
        all.remove(index);
        if all.len() == 0 {
            self.0 = None;
        }
        true
    }

    /// Panics when an invariant does not hold. Cost: O(n log n): for tests.
    pub fn check_invariants(&self) {
        let Some(all) = &self.0 else { return };
        assert!(all.len() > 0, "no groups are no shelf");
        all.check();
        let names: Vec<_> = self.iter().map(Group::name).collect();
        assert!(names.is_sorted_by(|one, other| one < other), "G1");
        self.iter().for_each(Group::check);
    }
}

//! The next deadline among the fields or members of each value, for the sweeper.
//!
//! Keys whose fields have deadlines are in a tree, ordered by the moment at which they must be
//! looked at: a tree, because it grows without moving as a whole. Each key has one pair at most,
//! and its value knows the moment ([`Clock`]): removing the value removes its pair. So the tree is
//! never longer than the keyspace, however often keys come and go.
//!
//! A pair moves to an earlier moment at once, to a later one only when its own has come: sessions
//! whose fields are extended again and again would otherwise pay for a move each time.
//!
//! A long key is held once: the pair shares the block of the key's entry, so it counts nothing
//! here.
//!
//! Invariant: `name_bytes` is the sum over all short names. For the pairs being those of the
//! values, see I3 in `db`.
//!
//! Not here: a key's value, and when to reap. See `db`.

use crate::lazyfree;
use darter_base::hash;
use darter_base::limits::CHUNK_BYTES;
use darter_base::long::Long;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::{Bound, Deref};

/// The size of a pair in a node of typical fill, without its name.
const PAIR_BYTES: usize = 48;

/// The moment of a value in [`Clocks`], if it has one. It is part of the value: copies and cuts
/// have it too, and putting one of these at a key puts that key under the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock(u64);

impl Clock {
    /// The clock of a value that is not in the tree.
    const NONE: Self = Self(u64::MAX);

    /// The moment.
    pub(crate) fn at(self) -> Option<u64> {
        (self != Self::NONE).then_some(self.0)
    }

    /// The clock of a value with this earliest deadline, which had the clock `old`.
    #[inline]
    pub(crate) fn settled(self, earliest: Option<u64>) -> Self {
        debug_assert_ne!(earliest, Some(Self::NONE.0), "a moment that means none");
        earliest.map_or(Self::NONE, |at| Self(at.min(self.0)))
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::NONE
    }
}

/// A moment, and a key under it.
pub type Pair = (u64, Name);

/// A key, owned: a long one by its block. Ordered in whatever way is cheap to compare.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// Copied.
    Short(Box<[u8]>),
    /// Shared.
    Long(Long),
}

const _: () = assert!(size_of::<Name>() == size_of::<Box<[u8]>>());

impl From<&[u8]> for Name {
    fn from(name: &[u8]) -> Self {
        if name.len() > CHUNK_BYTES {
            return Self::Long(Long::new(name, hash::of(name)));
        }
        Self::Short(Box::from(name))
    }
}

impl Deref for Name {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short(name) => name,
            Self::Long(name) => name,
        }
    }
}

impl Name {
    /// Bytes of memory that are its own.
    fn own_bytes(&self) -> usize {
        match self {
            Self::Short(name) => name.len(),
            Self::Long(_) => 0, // The entry's.
        }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.escape_ascii())
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Clocks {
    pairs: BTreeSet<Pair>,
    name_bytes: usize,
}

impl Clocks {
    /// The earliest moment at which a key must be looked at.
    pub(crate) fn next(&self) -> Option<u64> {
        self.pairs.first().map(|&(at, _)| at)
    }

    /// True when something has a deadline. A value that is overdue without a deadline stands under
    /// the moment 0.
    pub(crate) fn has_deadlines(&self) -> bool {
        self.pairs.last().is_some_and(|&(at, _)| at > 0)
    }

    /// The key to look at first.
    pub(crate) fn next_name(&self) -> Option<&Name> {
        self.pairs.first().map(|(_, name)| name)
    }

    /// Moves the key `name` from one moment to another. A new one must be lent by its entry: a long
    /// name is shared with its lender.
    #[inline]
    pub(crate) fn change(&mut self, name: &[u8], before: Clock, after: Clock) {
        debug_assert!(before.at().is_none_or(|_| !self.pairs.is_empty()), "nothing has a clock");
        if before != after {
            self.replace(name, before.at(), after.at());
        }
    }

    fn replace(&mut self, name: &[u8], before: Option<u64>, after: Option<u64>) {
        let mut name = Name::from(name);
        if let Some(at) = before {
            let pair = (at, name);
            let was_there = self.pairs.take(&pair);
            assert!(was_there.is_some(), "no clock of {:?} at {at}", pair.1);
            name = was_there.unwrap_or(pair).1; // Already shared.
            assert!(self.name_bytes >= name.own_bytes(), "{} bytes of names", self.name_bytes);
            self.name_bytes -= name.own_bytes();
        }
        if let Some(at) = after {
            self.name_bytes += name.own_bytes();
            let is_new = self.pairs.insert((at, name));
            assert!(is_new, "two clocks at {at}");
        }
    }

    /// Forgets everything. O(1): memory is freed in slices.
    pub(crate) fn clear(&mut self) {
        /// Pairs in a portion.
        const PORTION: usize = 64;
        // Names are short, or deferred on their own.
        lazyfree::defer_long(std::mem::take(self).pairs, PORTION, PAIR_BYTES);
    }

    /// Approximate bytes of memory. Cost: O(1).
    pub(crate) fn memory_bytes(&self) -> usize {
        self.pairs.len() * PAIR_BYTES + self.name_bytes
    }

    /// True when `name` is under that moment.
    pub(crate) fn has(&self, at: u64, name: &[u8]) -> bool {
        self.pairs.contains(&(at, Name::from(name)))
    }

    /// The pairs after `last`, in order; without it, all of them.
    pub(crate) fn after(&self, last: Option<&Pair>) -> impl Iterator<Item = &Pair> {
        self.pairs.range((last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded))
    }

    /// Asserts that the bytes of names match the count. Cost: O(pairs).
    pub(crate) fn check(&self) {
        let name_bytes: usize = self.pairs.iter().map(|(_, name)| name.own_bytes()).sum();
        assert_eq!(self.name_bytes, name_bytes);
    }
}

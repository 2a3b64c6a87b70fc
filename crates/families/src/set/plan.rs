//! How the algebra of sets goes about it: which set is gone through, which are asked.
//!
//! | act   | gone through                           | asked                 | kept when |
//! |-------|----------------------------------------|-----------------------|-----------|
//! | inter | the smallest                           | the others, small first | in all  |
//! | union | all, large first                       | those before          | in none   |
//! | diff  | the first                              | the others, large first | in none |
//!
//! So nothing is copied: a member of the result is one that was kept, and it still lies where it
//! lay. With many sets, asking all of them for each member of a union or a difference would cost
//! the square of their number; those are built aside instead (see `build`).

use super::cuts::Cuts;
use super::walk::{Walk, Wanted};
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_keyspace::Set;
use darter_structs::table::{Never, Table};
use std::cmp::Reverse;

/// With more sets than this, a union is built aside.
const ASKED_MAX: usize = 4;

/// What is made of several sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// The members of all.
    Inter,
    /// The members of any.
    Union,
    /// The members of the first that are in no other.
    Diff,
}

/// What is to be gone through, and whom to ask.
pub(super) struct Leg {
    /// Gone through.
    pub(super) walked: Table<Never>,
    /// Asked.
    pub(super) asked: Vec<Set>,
    /// When a member is kept.
    pub(super) wanted: Wanted,
}

impl Leg {
    /// Begins to walk, as of `now`. The leg keeps its cut, for a second walk.
    pub(super) fn walk(&mut self, now: u64) -> Walk {
        Walk::new(self.walked.clone(), std::mem::take(&mut self.asked), self.wanted, now)
    }
}

/// The inputs without those that do not matter; the first, or the smallest, comes first.
pub(super) struct Inputs {
    /// What is made of them.
    pub(super) act: Act,
    /// None of them is empty. No sets: the result is empty.
    pub(super) sets: Vec<Set>,
}

impl Inputs {
    /// Sorts out what was read. Cost: O(sets * log(sets)).
    pub(super) fn new(act: Act, cuts: Cuts) -> Self {
        let nothing = match act {
            Act::Inter => cuts.iter().any(Option::is_none),
            Act::Diff => cuts.first().is_none_or(Option::is_none),
            Act::Union => false,
        };
        if nothing {
            return Self { act, sets: Vec::new() };
        }
        let mut sets: Vec<Set> = cuts.into_iter().flatten().collect();
        match act {
            Act::Inter => sets.sort_by_key(Set::len),
            Act::Union => sets.sort_by_key(|set| Reverse(set.len())),
            Act::Diff => sets[1..].sort_by_key(|set| Reverse(set.len())),
        }
        Self { act, sets }
    }

    /// Members of all sets together.
    fn total(&self) -> usize {
        self.sets.iter().map(Set::len).sum()
    }

    /// Members that are gone through.
    pub(super) fn walked(&self) -> usize {
        match self.act {
            Act::Union => self.total(),
            Act::Inter | Act::Diff => self.sets.first().map_or(0, Set::len),
        }
    }

    /// True when the whole work fits the running slice.
    pub(super) fn is_small(&self) -> bool {
        self.walked() * self.sets.len().max(1) <= 2 * ENTRIES_AT_ONCE
    }

    /// True when asking would cost more than building the result aside.
    pub(super) fn is_built(&self) -> bool {
        match self.act {
            Act::Inter => false,
            Act::Union => self.sets.len() > ASKED_MAX,
            Act::Diff => {
                let others = self.sets.len().saturating_sub(1);
                others > ASKED_MAX && self.walked().saturating_mul(others) / 4 > self.total()
            }
        }
    }

    /// The walks whose kept members, one after another, are the result.
    pub(super) fn legs(self) -> Vec<Leg> {
        let leg = |walked: &Set, asked: &[Set], wanted| Leg {
            walked: walked.members().clone(),
            asked: asked.to_vec(),
            wanted,
        };
        match (self.act, self.sets.split_first()) {
            (_, None) => Vec::new(),
            (Act::Inter, Some((first, others))) => vec![leg(first, others, Wanted::InAll)],
            (Act::Diff, Some((first, others))) => vec![leg(first, others, Wanted::InNone)],
            (Act::Union, Some(_)) => {
                let sets = &self.sets;
                let each = sets.iter().enumerate();
                each.map(|(at, set)| leg(set, &sets[..at], Wanted::InNone)).collect()
            }
        }
    }
}

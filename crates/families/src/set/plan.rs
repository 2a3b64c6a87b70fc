//! The plan of set operations: which sets are walked, and which are probed for each member.
//!
//! | act   | walked                                 | probed                | kept when |
//! |-------|----------------------------------------|-----------------------|-----------|
//! | inter | the smallest                           | the others, small first | in all  |
//! | union | all, large first                       | those before          | in none   |
//! | diff  | the first                              | the others, large first | in none |
//!
//! So nothing is copied: the members of the result stay in the walked sets. With many sets, probing
//! all of them for each member of a union or a difference would be quadratic; such results are
//! built instead (see `build`).

use super::sets::Sets;
use super::value::Set;
use super::walk::{Walk, Wanted};
use crate::multi_input::{InputCuts, pause_now_and_then};
use crate::pinned_values::PinnedValues;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::Call;
use darter_structs::Watch;
use darter_structs::table::{Never, Table};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// With more sets than this, a union is built.
const ASKED_MAX: usize = 4;
/// Up to this many sets are sorted, in one step. With more, the first set matters most.
const SORTED_MAX: usize = 1_024;

/// The operation that combines several sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// The members that are in all sets.
    Inter,
    /// The members that are in any set.
    Union,
    /// The members of the first set that are in no other.
    Diff,
}

/// One walk: the set to walk, and the sets to probe.
pub(super) struct Leg {
    /// The set that is walked.
    pub(super) walked: Table<Never>,
    /// The sets that are probed.
    pub(super) asked: Sets,
    /// The condition for keeping a member.
    pub(super) wanted: Wanted,
}

impl Leg {
    fn new(walked: &Set, asked: Sets, wanted: Wanted) -> Self {
        Self { walked: walked.members().clone(), asked, wanted }
    }

    /// Starts the walk as of `now`. The leg keeps its cut, for a second walk.
    pub(super) fn walk(&mut self, now: u64) -> Walk {
        Walk::new(self.walked.clone(), std::mem::take(&mut self.asked), self.wanted, now)
    }
}

/// The relevant inputs; the first, or the smallest, is in front.
pub(super) struct Inputs {
    /// The operation that combines the inputs.
    pub(super) act: Act,
    /// The inputs; none of them is empty. Without any, the result is empty.
    pub(super) sets: Sets,
    /// The total number of members of all sets.
    total: usize,
    /// Measures the bytes that only readers keep alive.
    watched: PinnedValues<Watch>,
    /// The inputs that are measured.
    seen: BTreeSet<usize>,
    /// The result is known to be empty.
    is_void: bool,
}

impl Inputs {
    /// Sorts the inputs in one step, for a few.
    pub(super) fn here(act: Act, cuts: InputCuts<Set>) -> Self {
        let mut inputs = Self::new(act, cuts.len());
        for cut in cuts {
            inputs.push(cut);
        }
        inputs.sorted()
    }

    /// Sorts the inputs, in portions.
    pub(super) async fn anywhere(call: &Call, act: Act, cuts: InputCuts<Set>) -> Self {
        let mut inputs = Self::new(act, cuts.len());
        for (done, cut) in cuts.into_iter().enumerate() {
            inputs.push(cut);
            pause_now_and_then(call, done).await;
        }
        inputs.sorted()
    }

    fn new(act: Act, count: usize) -> Self {
        let (mut sets, watched, seen) = (Sets::default(), PinnedValues::new([]), BTreeSet::new());
        sets.reserve_exact(count); // Reserved in full, so the vector never moves.
        Self { act, sets, total: 0, watched, seen, is_void: false }
    }

    /// Adds the next input. Cost: O(1); O(log(watched)) for a measured one.
    fn push(&mut self, cut: Option<Set>) {
        let is_needed = self.act == Act::Inter || self.act == Act::Diff && self.sets.is_empty();
        self.is_void |= cut.is_none() && is_needed;
        let Some(set) = cut.filter(|_| !self.is_void) else { return };
        let watch = set.members().watch();
        // A set named twice is measured once. A set that is too small to be measured is skipped.
        if watch.value().is_some_and(|value| self.seen.insert(value)) {
            self.watched.push(watch);
        }
        self.total += set.len();
        self.sets.push_back(set);
        self.bring_forward(self.sets.len() - 1);
    }

    /// Swaps the set at `last` with the first one, if it should come before it.
    fn bring_forward(&mut self, last: usize) {
        let first = usize::from(self.act == Act::Diff);
        let (Some(old), new) = (self.sets.get(first), &self.sets[last]) else { return };
        let is_better = match self.act {
            Act::Inter => new.len() < old.len(),
            Act::Union | Act::Diff => new.len() > old.len(),
        };
        if is_better && last > first {
            self.sets.swap(first, last);
        }
    }

    /// Sorts the inputs by size. Very many inputs stay unsorted, except for the first.
    fn sorted(mut self) -> Self {
        if self.is_void {
            self.sets = Sets::default();
        }
        if self.sets.len() <= SORTED_MAX {
            let sets = self.sets.make_contiguous();
            match self.act {
                Act::Inter => sets.sort_by_key(Set::len),
                Act::Union => sets.sort_by_key(|set| Reverse(set.len())),
                Act::Diff => {
                    let others = sets.get_mut(1..).unwrap_or_default();
                    others.sort_by_key(|set| Reverse(set.len()));
                }
            }
        }
        self
    }

    /// Measures the bytes that only readers keep alive, counting each value once. The caller owns
    /// the measurement from now on.
    pub(super) fn watch(&mut self) -> PinnedValues<Watch> {
        std::mem::replace(&mut self.watched, PinnedValues::new([]))
    }

    /// The total number of members of all sets but the first.
    pub(super) fn others(&self) -> usize {
        self.total - self.sets.front().map_or(0, Set::len)
    }

    /// The number of members that are walked.
    pub(super) fn walked(&self) -> usize {
        match self.act {
            Act::Union => self.total,
            Act::Inter | Act::Diff => self.sets.front().map_or(0, Set::len),
        }
    }

    /// True if the whole operation fits the running slice.
    pub(super) fn is_small(&self) -> bool {
        self.walked() * self.sets.len().max(1) <= 2 * ENTRIES_AT_ONCE
    }

    /// True if probing would cost more than building the result.
    pub(super) fn is_built(&self) -> bool {
        match self.act {
            Act::Inter => false,
            Act::Union => self.sets.len() > ASKED_MAX,
            Act::Diff => {
                let others = self.sets.len().saturating_sub(1);
                others > ASKED_MAX && self.walked().saturating_mul(others) / 4 > self.total
            }
        }
    }

    /// The walks whose kept members, in sequence, are the result. Cost: O(1), except for a union; a
    /// large union is built.
    pub(super) fn legs(mut self) -> Vec<Leg> {
        if self.act == Act::Union {
            let each = self.sets.iter().enumerate();
            let asked = |at| self.sets.iter().take(at).cloned().collect();
            return each.map(|(at, set)| Leg::new(set, asked(at), Wanted::InNone)).collect();
        }
        let wanted = if self.act == Act::Inter { Wanted::InAll } else { Wanted::InNone };
        let first = self.sets.pop_front();
        first.map(|first| Leg::new(&first, self.sets, wanted)).into_iter().collect()
    }
}

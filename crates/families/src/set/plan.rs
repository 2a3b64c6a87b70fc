//! The plan of the algebra of sets: which set is walked, which are asked.
//!
//! | act   | gone through                           | asked                 | kept when |
//! |-------|----------------------------------------|-----------------------|-----------|
//! | inter | the smallest                           | the others, small first | in all  |
//! | union | all, large first                       | those before          | in none   |
//! | diff  | the first                              | the others, large first | in none |
//!
//! So nothing is copied: a member of the result is one that was kept, and it stays in place. With
//! many sets, asking all of them for each member of a union or a difference would be quadratic in
//! their number; those are built aside instead (see `build`).

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

/// With more sets than this, a union is built aside.
const ASKED_MAX: usize = 4;
/// Up to this many sets are sorted, in one step. With more, the first one decides most.
const SORTED_MAX: usize = 1_024;

/// How several sets are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// The members of all.
    Inter,
    /// The members of any.
    Union,
    /// The members of the first that are in no other.
    Diff,
}

/// Which set to walk, and which to ask.
pub(super) struct Leg {
    /// Gone through.
    pub(super) walked: Table<Never>,
    /// Asked.
    pub(super) asked: Sets,
    /// When a member is kept.
    pub(super) wanted: Wanted,
}

impl Leg {
    fn new(walked: &Set, asked: Sets, wanted: Wanted) -> Self {
        Self { walked: walked.members().clone(), asked, wanted }
    }

    /// Starts a walk, as of `now`. The leg keeps its cut, for a second walk.
    pub(super) fn walk(&mut self, now: u64) -> Walk {
        Walk::new(self.walked.clone(), std::mem::take(&mut self.asked), self.wanted, now)
    }
}

/// The inputs without those that do not matter; the first, or the smallest, comes first.
pub(super) struct Inputs {
    /// How they are combined.
    pub(super) act: Act,
    /// None of them is empty. No sets: the result is empty.
    pub(super) sets: Sets,
    /// Members of all sets together.
    total: usize,
    /// How much of them only readers hold.
    watched: PinnedValues<Watch>,
    /// The inputs that are watched.
    seen: BTreeSet<usize>,
    /// The result is empty already.
    is_void: bool,
}

impl Inputs {
    /// Sorts the inputs, all at once: a few.
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
        sets.reserve_exact(count); // The vector never moves.
        Self { act, sets, total: 0, watched, seen, is_void: false }
    }

    /// Adds the next one. Cost: O(1), of a watched one O(log(watched)).
    fn push(&mut self, cut: Option<Set>) {
        let is_needed = self.act == Act::Inter || self.act == Act::Diff && self.sets.is_empty();
        self.is_void |= cut.is_none() && is_needed;
        let Some(set) = cut.filter(|_| !self.is_void) else { return };
        let watch = set.members().watch();
        // Named twice it is held once; one that is too small to be counted is not worth asking.
        if watch.value().is_some_and(|value| self.seen.insert(value)) {
            self.watched.push(watch);
        }
        self.total += set.len();
        self.sets.push_back(set);
        self.bring_forward(self.sets.len() - 1);
    }

    /// Swaps the operand at `last` with the first, if it should come before it.
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

    /// Sorts them; of very many only the first is in its place.
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

    /// How much of them only readers hold: each value once, however often it is named. The caller
    /// owns it from here on.
    pub(super) fn watch(&mut self) -> PinnedValues<Watch> {
        std::mem::replace(&mut self.watched, PinnedValues::new([]))
    }

    /// Members of all but the first together.
    pub(super) fn others(&self) -> usize {
        self.total - self.sets.front().map_or(0, Set::len)
    }

    /// Members that are walked.
    pub(super) fn walked(&self) -> usize {
        match self.act {
            Act::Union => self.total,
            Act::Inter | Act::Diff => self.sets.front().map_or(0, Set::len),
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
                others > ASKED_MAX && self.walked().saturating_mul(others) / 4 > self.total
            }
        }
    }

    /// The walks whose kept members, one after the other, are the result. Cost: O(1), except for a
    /// union: a large one is built.
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

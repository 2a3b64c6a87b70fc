//! How sorted sets are combined: the act, the weights, the aggregate, and the order of the operands.
//!
//! Sums of floating-point numbers depend on their order. It is Redis's: small operands first.

use super::operand::Operand;
use crate::multi_input::{InputCuts, Queue, pause_now_and_then};
use crate::pinned_values::PinnedValues;
use darter_command::Call;
use darter_structs::Watch;
use std::collections::BTreeSet;

/// Up to this many operands are sorted, in one step. With more, the first one decides most.
const SORTED_MAX: usize = 1_024;

/// Members that are looked up at once.
const LOOKS_AT_ONCE: usize = 64;

/// How several sorted sets are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// The members of any.
    Union,
    /// The members of all.
    Inter,
    /// The members of the first that are in no other.
    Diff,
}

/// How the scores of a member in several operands become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aggregate {
    Sum,
    Min,
    Max,
    /// The sum of the weights of the operands that have it: without weights, how many have it.
    Count,
}

impl Aggregate {
    /// The weighted score of a member in the first operand that has it. Infinity times zero is 0.
    pub(super) fn first(self, score: f64, weight: f64) -> f64 {
        let product = self.weighted(score, weight);
        if product.is_nan() { 0.0 } else { product }
    }

    /// The weighted score.
    pub(super) fn weighted(self, score: f64, weight: f64) -> f64 {
        if self == Self::Count { weight } else { score * weight }
    }

    /// One score of two. The sum of two infinities is 0 if it is no number; a product that is none
    /// loses against any other.
    pub(super) fn merge(self, one: f64, other: f64) -> f64 {
        match self {
            Self::Sum | Self::Count => {
                let sum = one + other;
                if sum.is_nan() { 0.0 } else { sum }
            }
            Self::Min => {
                if other < one {
                    other
                } else {
                    one
                }
            }
            Self::Max => {
                if other > one {
                    other
                } else {
                    one
                }
            }
        }
    }
}

/// An operand and its weight.
#[derive(Clone)]
pub(super) struct Weighted {
    pub(super) operand: Operand,
    pub(super) weight: f64,
}

/// The operands without those that do not matter, in the order in which they are combined.
pub(super) struct Inputs {
    pub(super) act: Act,
    /// None of them is empty. No operands: the result is empty.
    pub(super) operands: Queue<Weighted>,
    /// Members of all operands together.
    pub(super) total: usize,
    /// How much of them only readers hold.
    watched: PinnedValues<Watch>,
    /// The inputs that are watched.
    seen: BTreeSet<usize>,
    /// The result is empty already.
    is_void: bool,
}

impl Inputs {
    /// Sorts the operands, all at once: a few.
    pub(super) fn here(act: Act, cuts: InputCuts<Operand>, weights: &[f64]) -> Self {
        let mut inputs = Self::new(act, cuts.len());
        for (at, cut) in cuts.into_iter().enumerate() {
            inputs.push(cut, weights.get(at));
        }
        inputs.sorted()
    }

    /// Sorts the operands, in portions.
    pub(super) async fn anywhere(
        call: &Call,
        act: Act,
        cuts: InputCuts<Operand>,
        weights: &[f64],
    ) -> Self {
        let mut inputs = Self::new(act, cuts.len());
        for (at, cut) in cuts.into_iter().enumerate() {
            inputs.push(cut, weights.get(at));
            pause_now_and_then(call, at).await;
        }
        inputs.sorted()
    }

    fn new(act: Act, count: usize) -> Self {
        let (mut operands, watched) = (Queue::default(), PinnedValues::new([]));
        operands.reserve_exact(count); // The vector never moves.
        Self { act, operands, total: 0, watched, seen: BTreeSet::new(), is_void: false }
    }

    /// Adds the next one. Cost: O(1), of a watched one O(log(watched)).
    fn push(&mut self, cut: Option<Operand>, weight: Option<&f64>) {
        let is_needed = self.act == Act::Inter || self.act == Act::Diff && self.operands.is_empty();
        self.is_void |= cut.is_none() && is_needed;
        let Some(operand) = cut.filter(|_| !self.is_void) else { return };
        let watch = operand.watch();
        // Named twice it is held once; one that is too small to be counted is not worth asking.
        if watch.value().is_some_and(|value| self.seen.insert(value)) {
            self.watched.push(watch);
        }
        self.total += operand.len();
        self.operands.push_back(Weighted { operand, weight: weight.copied().unwrap_or(1.0) });
        let last = self.operands.len() - 1;
        if self.act == Act::Inter && self.len_of(last) < self.len_of(0) && last >= SORTED_MAX {
            self.operands.swap(0, last);
        }
    }

    fn len_of(&self, index: usize) -> usize {
        self.operands[index].operand.len()
    }

    /// Sorts them; of very many only the first is in its place.
    fn sorted(mut self) -> Self {
        if self.is_void {
            self.operands = Queue::default();
        }
        if self.act != Act::Diff && self.operands.len() <= SORTED_MAX {
            self.operands.make_contiguous().sort_by_key(|input| input.operand.len());
        }
        self
    }

    /// How much of them only readers hold: each value once, however often it is named. The caller
    /// owns it from here on.
    pub(super) fn watch(&mut self) -> PinnedValues<Watch> {
        std::mem::replace(&mut self.watched, PinnedValues::new([]))
    }

    /// Members that are walked.
    pub(super) fn walked(&self) -> usize {
        match self.act {
            Act::Union => self.total,
            Act::Inter | Act::Diff => self.operands.front().map_or(0, |one| one.operand.len()),
        }
    }

    /// True when an intersection is found faster by sorting all members than by looking those of the
    /// first up: if the others have not many more, and all products are numbers.
    pub(super) fn is_sorted_together(&self) -> bool {
        const MORE: usize = 4;
        self.act == Act::Inter
            && self.operands.len() <= MORE
            && self.total <= self.walked() * MORE
            && self.operands.iter().all(|one| one.weight.is_normal())
    }

    /// True when the whole work fits the running slice.
    pub(super) fn is_small(&self) -> bool {
        self.walked() * self.operands.len().max(1) <= LOOKS_AT_ONCE
    }
}

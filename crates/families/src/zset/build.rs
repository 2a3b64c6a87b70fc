//! The combination of sorted sets, built aside in portions. The STORE forms install it, the others
//! reply with it.
//!
//! A few members are added one by one; very many are gathered, and sorted together (`sorted::SortedBuilder`).

use super::operand::Reader;
use super::plan::{Act, Aggregate, Inputs, Weighted};
use super::value::{ZSet, ZSetEdit};
use super::walk::Walk;
use crate::multi_input::Queue;
use darter_base::hash;
use darter_keyspace::Collection;
use darter_structs::sorted;
use darter_structs::table::Scratch;

/// Members merged in one portion, and looked up.
const MERGED: usize = 12;
const GATHERED: usize = 128;
/// Members gathered between two checks of their bytes, and the most bytes in one portion: these are
/// hashed and copied.
const GATHERED_TOGETHER: usize = 4;
const GATHERED_BYTES: usize = 64 * 1024;
const LOOKED_UP: usize = 32;
/// From this many members on they are sorted together.
const BULK_MIN: usize = 4_096;
/// With more operands members are added one by one: members common to all would be merged in one
/// step.
const BULK_OPERANDS_MAX: usize = 16;

/// See the module.
pub(super) struct Build {
    result: ZSet,
    /// Very many members of the result.
    bulk: Option<Bulk>,
    work: BuildStep,
    aggregate: Aggregate,
    now: u64,
}

/// Very many members, in any order: gathered, then sorted together.
pub(crate) struct Bulk {
    builder: sorted::SortedBuilder,
    /// Bytes of the longest.
    longest: usize,
}

impl Bulk {
    /// A builder for about this many members. `None` if they are too few.
    pub(crate) fn new(len: usize) -> Option<Self> {
        Self::of_common(len, 1)
    }

    /// The same, of members that should come once each.
    pub(super) fn of_different(len: usize) -> Option<Self> {
        let bulk = || Self { builder: sorted::SortedBuilder::of_different(len), longest: 0 };
        (len >= BULK_MIN).then(bulk)
    }

    /// True if a member that came twice was found already.
    pub(super) fn is_overfull(&self) -> bool {
        self.builder.is_overfull()
    }

    /// The same, of members that are added so often.
    fn of_common(len: usize, times: usize) -> Option<Self> {
        let bulk = || Self { builder: sorted::SortedBuilder::of_common(len, times), longest: 0 };
        (len >= BULK_MIN).then(bulk)
    }

    /// Adds a member.
    pub(crate) fn push(&mut self, member: &[u8], score: f64) {
        self.longest = self.longest.max(member.len());
        self.builder.push(hash::of(member), member, score);
    }

    /// Sorts some of them, and merges the scores of those that came twice. True while there is more to
    /// do.
    pub(crate) fn sort(&mut self, merge: &dyn Fn(f64, f64) -> f64) -> bool {
        self.builder.step(merge)
    }

    /// The set, once there is no more to do.
    pub(crate) fn finish(self) -> ZSet {
        ZSet::of_sorted(self.builder.finish(), self.longest)
    }
}

/// The remaining step.
enum BuildStep {
    /// The members of all operands are merged, one operand after the other; of an intersection those
    /// that all have.
    Merge { operands: Queue<Weighted>, reading: Option<(Reader, f64)> },
    /// The members that are kept are added.
    Filter(Walk),
    /// The gathered members are sorted.
    Nothing,
}

impl Build {
    /// Starts building, as of `now`. Cost: O(1).
    pub(super) fn new(mut inputs: Inputs, aggregate: Aggregate, now: u64) -> Self {
        let is_sorted = inputs.is_sorted_together();
        let bulk = match is_sorted {
            true => Bulk::of_common(inputs.total, inputs.operands.len()),
            false if inputs.operands.len() > BULK_OPERANDS_MAX => None,
            false => Bulk::new(inputs.walked()),
        };
        let operands = std::mem::take(&mut inputs.operands);
        let work = match inputs.act {
            Act::Union => BuildStep::Merge { operands, reading: None },
            Act::Inter if is_sorted && bulk.is_some() => {
                BuildStep::Merge { operands, reading: None }
            }
            act @ (Act::Inter | Act::Diff) => Self::filter(operands, (act, aggregate), now)
                .map_or(BuildStep::Nothing, BuildStep::Filter),
        };
        Self { result: ZSet::new(), bulk, work, aggregate, now }
    }

    /// The walk through the first operand that asks the others.
    pub(super) fn filter(
        mut operands: Queue<Weighted>,
        how: (Act, Aggregate),
        now: u64,
    ) -> Option<Walk> {
        let first = operands.pop_front()?;
        Some(Walk::new(first, operands, how, now))
    }

    /// Does the next portion. Returns true while there is more to do.
    pub(super) fn step(&mut self) -> bool {
        let Self { result, bulk, work, aggregate, now } = self;
        let more = match work {
            BuildStep::Nothing => return self.sort(),
            BuildStep::Filter(walk) => match bulk {
                Some(bulk) => walk.step(LOOKED_UP, &mut |member, score| bulk.push(member, score)),
                None => {
                    let mut edit = result.edit_aside(*now);
                    walk.step(LOOKED_UP, &mut |member, score| _ = edit.insert(member, score))
                }
            },
            BuildStep::Merge { operands, reading } => {
                let is_done = reading.as_ref().is_none_or(|(reader, _)| reader.is_done());
                if is_done {
                    let next = operands.pop_front();
                    *reading = next.map(|next| (Reader::new(next.operand, *now), next.weight));
                }
                match (reading, bulk) {
                    (None, _) => false,
                    (Some(reading), Some(bulk)) => {
                        gather(reading, bulk, *aggregate);
                        true
                    }
                    (Some(reading), None) => {
                        merge(reading, &mut result.edit_aside(*now), *aggregate);
                        true
                    }
                }
            }
        };
        if !more {
            self.work = BuildStep::Nothing;
        }
        more || self.bulk.is_some()
    }

    /// Sorts a portion of the gathered members. Returns true while there is more to do.
    fn sort(&mut self) -> bool {
        let Self { result, bulk, aggregate, .. } = self;
        if bulk.as_mut().is_some_and(|bulk| bulk.sort(&|one, other| aggregate.merge(one, other))) {
            return true;
        }
        if let Some(bulk) = bulk.take() {
            *result = bulk.finish();
        }
        false
    }

    /// Bytes that were made.
    pub(super) fn memory_bytes(&self) -> usize {
        let bulk = self.bulk.as_ref().map_or(0, |bulk| bulk.builder.memory_bytes());
        self.result.memory_bytes() + bulk
    }

    /// The result, once there is no more to do.
    pub(super) fn take_set(&mut self) -> ZSet {
        std::mem::take(&mut self.result)
    }
}

/// Adds some members of an operand to a result.
fn merge((reader, weight): &mut (Reader, f64), edit: &mut ZSetEdit<'_>, aggregate: Aggregate) {
    reader.next_slice(MERGED, &mut |element| {
        let score = aggregate.first(element.score, *weight);
        edit.update(element.member.bytes(&mut Scratch::new()), |old| {
            Some(old.map_or(score, |old| aggregate.merge(old, score)))
        });
    });
}

/// Adds a portion of an operand's members to the bulk.
fn gather((reader, weight): &mut (Reader, f64), bulk: &mut Bulk, aggregate: Aggregate) {
    in_portion(|most, bytes| {
        reader.next_slice(most, &mut |element| {
            let score = aggregate.first(element.score, *weight);
            *bytes += element.member.len();
            bulk.push(element.member.bytes(&mut Scratch::new()), score);
        });
        !reader.is_done()
    });
}

/// Calls `gather` for some members, until it returns false or the portion is over: its arguments
/// are the number to gather, and the sum of their bytes.
pub(super) fn in_portion(mut gather: impl FnMut(usize, &mut usize) -> bool) {
    let (mut left, mut bytes) = (GATHERED, 0);
    while left > 0 && bytes < GATHERED_BYTES && gather(GATHERED_TOGETHER, &mut bytes) {
        left -= GATHERED_TOGETHER;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // The bytes matter if the members are long.
    fn portions_are_bounded_by_members_and_by_bytes() {
        let gathered = |len: usize| {
            let mut count = 0;
            in_portion(|most, bytes| {
                count += most;
                *bytes += most * len;
                true
            });
            count
        };
        assert_eq!([10, 60_000].map(gathered), [GATHERED, GATHERED_TOGETHER]);
    }
}

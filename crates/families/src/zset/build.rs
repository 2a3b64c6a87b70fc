//! The combination of sorted sets, built aside in portions: what the STORE forms install, and what
//! the others show.

use super::operand::Reader;
use super::plan::{Act, Aggregate, Inputs, Weighted};
use super::value::ZSet;
use super::walk::Walk;
use crate::inputs::Queue;
use darter_keyspace::Collection;
use darter_structs::table::Scratch;

/// Members merged in one portion, and looked up or added: at most about 50 us.
const MERGED: usize = 12;
const LOOKED_UP: usize = 24;

/// See the module.
pub(super) struct Build {
    result: ZSet,
    work: Work,
    now: u64,
}

/// What is left to do.
enum Work {
    /// The members of all operands are merged, one operand after the other.
    Merge {
        operands: Queue<Weighted>,
        reading: Option<(Reader, f64)>,
        aggregate: Aggregate,
    },
    /// The members that are kept are added.
    Filter(Walk),
    Nothing,
}

impl Build {
    /// Starts building, as of `now`. Cost: O(1).
    pub(super) fn new(mut inputs: Inputs, aggregate: Aggregate, now: u64) -> Self {
        let operands = std::mem::take(&mut inputs.operands);
        let work = match inputs.act {
            Act::Union => Work::Merge { operands, reading: None, aggregate },
            act @ (Act::Inter | Act::Diff) => {
                Self::filter(operands, (act, aggregate), now).map_or(Work::Nothing, Work::Filter)
            }
        };
        Self { result: ZSet::new(), work, now }
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
        let mut edit = self.result.edit_aside(self.now);
        match &mut self.work {
            Work::Nothing => false,
            Work::Filter(walk) => walk.step(LOOKED_UP, &mut |member, score| {
                edit.insert(member, score);
            }),
            Work::Merge { operands, reading, aggregate } => {
                let Some((reader, weight)) = reading else {
                    *reading = operands.pop_front().map(|Weighted { operand, weight }| {
                        (Reader::new(operand, self.now), weight)
                    });
                    return reading.is_some();
                };
                reader.next_slice(MERGED, &mut |element| {
                    let score = aggregate.first(element.score, *weight);
                    edit.update(element.member.bytes(&mut Scratch::new()), |old| {
                        Some(old.map_or(score, |old| aggregate.merge(old, score)))
                    });
                });
                if reader.is_done() {
                    *reading = None;
                }
                true
            }
        }
    }

    /// Bytes that were made.
    pub(super) fn memory_bytes(&self) -> usize {
        self.result.memory_bytes()
    }

    /// The result, once there is no more to do.
    pub(super) fn take_set(&mut self) -> ZSet {
        std::mem::take(&mut self.result)
    }
}

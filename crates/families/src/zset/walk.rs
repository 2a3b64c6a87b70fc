//! Walking one operand while asking others: the inner loop of ZINTER and ZDIFF.
//!
//! As for sets (`set::walk`), members are taken in batches, and the state between batches, and
//! between the operands that are asked, is kept: a portion is as short as its caller wants, whether
//! there are two operands or a million.

use super::operand::Reader;
use super::plan::{Act, Aggregate, Weighted};
use crate::multi_input::Queue;
use arrayvec::ArrayVec;
use darter_base::hash;
use darter_base::limits::CHUNK_BYTES;
use darter_structs::table::{HeldKey, Scratch};

/// Members in a batch, which is added in one step.
const BATCH: usize = 16;

/// See the module.
pub(super) struct Walk {
    reader: Reader,
    weight: f64,
    asked: Queue<Weighted>,
    act: Act,
    aggregate: Aggregate,
    now: u64,
    batch: Batch,
    /// Index of the operand that the batch is looked up in next.
    next: usize,
}

/// A batch of members being looked up.
#[derive(Default)]
struct Batch {
    /// Copies of the short ones.
    bytes: Vec<u8>,
    members: Vec<Member>,
}

struct Member {
    /// The end among the copies.
    end: usize,
    /// A long one.
    held: Option<HeldKey>,
    hash: u64,
    score: f64,
    kept: bool,
}

impl Batch {
    fn bytes(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.members[before].end);
        let member = &self.members[index];
        member.held.as_ref().map_or(&self.bytes[start..member.end], HeldKey::bytes)
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.members.clear();
    }
}

impl Walk {
    /// Walks `walked`, as of `now`, and asks `asked`, in that order.
    pub(super) fn new(
        walked: Weighted,
        asked: Queue<Weighted>,
        (act, aggregate): (Act, Aggregate),
        now: u64,
    ) -> Self {
        let (reader, weight) = (Reader::new(walked.operand, now), walked.weight);
        Self { reader, weight, asked, act, aggregate, now, batch: Batch::default(), next: 0 }
    }

    /// Looks about `budget` members up in one operand each, and passes those that are kept to
    /// `sink`, with their scores: up to a batch at once. Returns true while members are left.
    pub(super) fn step(&mut self, budget: usize, sink: &mut dyn FnMut(&[u8], f64)) -> bool {
        let mut budget = budget;
        while budget > 0 {
            if self.batch.members.is_empty() {
                if self.reader.is_done() {
                    return false;
                }
                self.fill();
                budget = budget.saturating_sub(BATCH / 2);
            }
            let mut kept = self.kept();
            while budget > 0 && self.next < self.asked.len() && kept > 0 {
                budget = budget.saturating_sub(kept);
                self.ask();
                kept = self.kept();
            }
            if self.next == self.asked.len() || kept == 0 {
                let kept = self.batch.members.iter().enumerate().filter(|(_, one)| one.kept);
                kept.for_each(|(at, member)| sink(self.batch.bytes(at), member.score));
                budget = budget.saturating_sub(self.batch.members.len());
                self.batch.clear();
            }
        }
        !self.batch.members.is_empty() || !self.reader.is_done()
    }

    fn kept(&self) -> usize {
        self.batch.members.iter().filter(|member| member.kept).count()
    }

    fn fill(&mut self) {
        let Self { reader, batch, weight, act, aggregate, .. } = self;
        self.next = 0;
        reader.next_slice(BATCH, &mut |element| {
            let mut scratch = Scratch::new();
            let member = element.member.bytes(&mut scratch);
            let held = (member.len() > CHUNK_BYTES).then(|| element.hold_member()).flatten();
            if held.is_none() {
                batch.bytes.extend_from_slice(member);
            }
            let score = match act {
                Act::Diff => element.score,
                Act::Union | Act::Inter => aggregate.first(element.score, *weight),
            };
            let (end, hash) = (batch.bytes.len(), hash::of(member));
            batch.members.push(Member { end, held, hash, score, kept: true });
        });
    }

    /// Looks up the kept members of the batch in the next operand.
    fn ask(&mut self) {
        let Self { asked, batch, act, aggregate, now, next, .. } = self;
        let Weighted { operand, weight } = &asked[*next];
        let hashes = batch.members.iter().filter(|member| member.kept).map(|member| member.hash);
        operand.prefetch(&hashes.collect::<ArrayVec<_, BATCH>>());
        for index in 0..batch.members.len() {
            let Member { hash, score, kept, .. } = &batch.members[index];
            let (hash, score) = (*hash, *score);
            if !kept {
                continue;
            }
            let found = operand.score(hash, batch.bytes(index), *now);
            let member = &mut batch.members[index];
            match found {
                Some(other) if *act == Act::Inter => {
                    member.score = aggregate.merge(score, aggregate.weighted(other, *weight));
                }
                found => member.kept = found.is_some() == (*act == Act::Inter),
            }
        }
        *next += 1;
    }
}

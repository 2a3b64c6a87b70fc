//! A set that is built aside, in portions: what the STORE forms install.
//!
//! Where most of the result is one of the inputs, the work begins with that: a cut of it, which
//! shares all memory, and the changes are made to it. SUNIONSTORE begins with the largest input and
//! adds the others; SDIFFSTORE begins with the first and removes the others, if these have fewer
//! members. An input whose members have deadlines is copied instead: the result has none.

use super::plan::{Act, Inputs};
use super::walk::{Walk, Wanted};
use darter_keyspace::{Deadline, Set};
use std::collections::VecDeque;

/// Sets up to this size are always built anew: they are cheap, and their encoding follows from
/// what they hold, as in Redis.
const NEW_MAX: usize = 512;
/// Changes in one portion: each may copy a segment (8 us and more), so that is at most about 40 us,
/// and about 1 us mostly.
const PORTION: usize = 4;

/// What is done with the members that a walk keeps.
#[derive(Clone, Copy)]
enum Change {
    Add,
    Remove,
}

/// See the module.
pub(super) struct Build {
    result: Set,
    walks: VecDeque<(Walk, Change)>,
    now: u64,
    /// The result began as a cut of an input.
    shares: bool,
}

impl Build {
    /// Begins to build, as of `now`. Cost: O(sets).
    pub(super) fn new(inputs: Inputs, now: u64) -> Self {
        let walk = |set: &Set, asked: Vec<Set>, wanted| {
            Walk::new(set.members().clone(), asked, wanted, now)
        };
        let all = |sets: &[Set], change| {
            sets.iter().map(|set| (walk(set, Vec::new(), Wanted::InNone), change)).collect()
        };
        let Some((first, others)) = inputs.sets.split_first() else {
            return Self { now, ..Self::empty() };
        };
        let mortal = first.members().earliest_deadline().is_some();
        let removed: usize = others.iter().map(Set::len).sum();
        let shares = first.len() > NEW_MAX
            && !mortal
            && match inputs.act {
                Act::Inter => false,
                Act::Union => true,
                Act::Diff => removed <= first.len(),
            };
        let walks = match (inputs.act, shares) {
            (Act::Union, true) => all(others, Change::Add),
            (Act::Union, false) => all(&inputs.sets, Change::Add),
            (Act::Diff, true) => all(others, Change::Remove),
            (Act::Diff, false) => {
                VecDeque::from([(walk(first, others.to_vec(), Wanted::InNone), Change::Add)])
            }
            (Act::Inter, _) => {
                VecDeque::from([(walk(first, others.to_vec(), Wanted::InAll), Change::Add)])
            }
        };
        let result = if shares { first.clone() } else { Set::new() };
        Self { result, walks, now, shares }
    }

    /// Builds nothing.
    pub(super) fn empty() -> Self {
        Self { result: Set::new(), walks: VecDeque::new(), now: 0, shares: false }
    }

    /// Members of the result so far.
    pub(super) fn len(&self) -> usize {
        self.result.len()
    }

    /// True when the result only grows from here on.
    pub(super) fn grows(&self) -> bool {
        self.walks.front().is_none_or(|(_, change)| matches!(change, Change::Add))
    }

    /// Does the next portion. Returns true while there is more to do.
    pub(super) fn step(&mut self) -> bool {
        let Some((walk, change)) = self.walks.front_mut() else { return false };
        let (mut edit, change) = (self.result.edit_aside(self.now), *change);
        let more = walk.step(PORTION, &mut |member, kept| {
            match change {
                _ if !kept => false,
                Change::Add => edit.add(member, Deadline::Clear),
                Change::Remove => edit.remove(member),
            };
        });
        if !more {
            self.walks.pop_front();
        }
        if self.result.is_empty() && !self.grows() {
            self.walks.clear();
        }
        !self.walks.is_empty()
    }

    /// The result.
    pub(super) fn into_set(self) -> Set {
        if !self.shares || self.result.len() > NEW_MAX {
            return self.result;
        }
        // Few are left of a large set: its encoding begins anew, as in Redis.
        let mut small = Set::new();
        let mut edit = small.edit_aside(self.now);
        self.result.members().for_each(&mut |entry| {
            edit.add(entry.key().bytes(&mut Default::default()), Deadline::Clear);
        });
        small
    }
}

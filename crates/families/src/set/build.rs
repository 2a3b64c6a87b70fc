//! Builds a set in portions, for the STORE forms to install.
//!
//! If one input makes up most of the result, the build starts with a cut of it, which shares its
//! memory, and applies changes. SUNIONSTORE starts with the largest input and adds the others.
//! SDIFFSTORE starts with the first and removes the others, if these have fewer members. An input
//! whose members have deadlines is copied instead, because the result has no deadlines.

use super::plan::{Act, Inputs};
use super::sets::Turns;
use super::value::Set;
use super::walk::Walk;
use darter_keyspace::{Collection, Deadline};

/// Sets up to this size are always built from scratch: that is cheap, and the encoding then depends
/// on the contents, as in Redis.
const NEW_MAX: usize = 512;
/// Changes in one portion; each may copy a segment.
const PORTION: usize = 4;

/// Bytes that a change copies if the set shares its memory: about a segment.
const COPIED_BYTES: usize = 40 * 1024;

/// The action on the members kept by a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Add,
    Remove,
}

/// A set being built; see the module's documentation.
pub(super) struct Build {
    result: Set,
    turns: Turns,
    change: Change,
    now: u64,
    /// The result started as a cut of an input.
    shares: bool,
    /// The number of members added and removed.
    changes: usize,
}

impl Build {
    /// Starts building, as of `now`. Cost: O(1).
    pub(super) fn new(mut inputs: Inputs, now: u64) -> Self {
        let removed = inputs.others();
        let shares = inputs.sets.front().is_some_and(|first| {
            let has_deadline = first.members().earliest_deadline().is_some();
            first.len() > NEW_MAX
                && !has_deadline
                && match inputs.act {
                    Act::Inter => false,
                    Act::Union => true,
                    Act::Diff => removed <= first.len(),
                }
        });
        let change = if shares && inputs.act == Act::Diff { Change::Remove } else { Change::Add };
        let first = if shares { inputs.sets.pop_front() } else { None };
        let turns = if shares || inputs.act == Act::Union {
            Turns::new(inputs.sets, now)
        } else {
            // There is one leg, or none.
            let mut legs = inputs.legs();
            let walk: Option<Walk> = legs.first_mut().map(|leg| leg.walk(now));
            walk.map(Turns::of).unwrap_or_default()
        };
        let result = first.unwrap_or_else(Set::new);
        Self { result, turns, change, now, shares, changes: 0 }
    }

    /// An empty result.
    pub(super) fn empty() -> Self {
        let (result, turns) = (Set::new(), Turns::default());
        Self { result, turns, change: Change::Add, now: 0, shares: false, changes: 0 }
    }

    /// Bytes of the result that are not an input's: all, or at most the bytes copied by changes.
    pub(super) fn own_bytes(&self) -> usize {
        let bytes = self.result.memory_bytes();
        if self.shares { bytes.min(self.changes.saturating_mul(COPIED_BYTES)) } else { bytes }
    }

    /// The number of members so far.
    pub(super) fn len(&self) -> usize {
        self.result.len()
    }

    /// True if the result only grows from now on.
    pub(super) fn grows(&self) -> bool {
        self.change == Change::Add || self.turns.is_done()
    }

    /// Does the next portion. Returns true while more is left.
    pub(super) fn step(&mut self) -> bool {
        let (mut edit, change) = (self.result.edit_aside(self.now), self.change);
        let changes = &mut self.changes;
        let more = self.turns.step(PORTION, &mut |member, kept| {
            let changed = match change {
                _ if !kept => false,
                Change::Add => edit.add(member, Deadline::Clear),
                Change::Remove => edit.remove(member),
            };
            *changes += usize::from(changed);
        });
        if self.result.is_empty() && !self.grows() {
            self.turns = Turns::default();
        }
        more && !self.turns.is_done()
    }

    /// The result.
    pub(super) fn into_set(self) -> Set {
        if !self.shares || self.result.len() > NEW_MAX {
            return self.result;
        }
        // If few members are left of a large set, its encoding starts again from a new set, as in
        // Redis.
        let mut small = Set::new();
        let mut edit = small.edit_aside(self.now);
        self.result.members().for_each(&mut |entry| {
            edit.add(entry.key().bytes(&mut Default::default()), Deadline::Clear);
        });
        small
    }
}

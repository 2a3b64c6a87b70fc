//! A set that is built aside, in portions, for the STORE forms to install.
//!
//! If most of the result is one of the inputs, the work begins with that: a cut of it, which shares
//! all memory, and the changes are made to it. SUNIONSTORE begins with the largest input and adds
//! the others; SDIFFSTORE begins with the first and removes the others, if these have fewer
//! members. An input whose members have deadlines is copied instead: the result has none.

use super::plan::{Act, Inputs};
use super::sets::Turns;
use super::value::Set;
use super::walk::Walk;
use darter_keyspace::{Collection, Deadline};

/// Sets up to this size are always built from scratch: they are cheap, and their encoding follows
/// from their contents, as in Redis.
const NEW_MAX: usize = 512;
/// Changes in one portion: each may copy a segment.
const PORTION: usize = 4;

/// Bytes copied by a change of a set that shares its memory: about a segment.
const COPIED_BYTES: usize = 40 * 1024;

/// An action on the members that a walk keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Add,
    Remove,
}

/// See the module.
pub(super) struct Build {
    result: Set,
    turns: Turns,
    change: Change,
    now: u64,
    /// The result began as a cut of an input.
    shares: bool,
    /// Members added and removed.
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
            // One leg, or none.
            let mut legs = inputs.legs();
            let walk: Option<Walk> = legs.first_mut().map(|leg| leg.walk(now));
            walk.map(Turns::of).unwrap_or_default()
        };
        let result = first.unwrap_or_else(Set::new);
        Self { result, turns, change, now, shares, changes: 0 }
    }

    /// Builds nothing.
    pub(super) fn empty() -> Self {
        let (result, turns) = (Set::new(), Turns::default());
        Self { result, turns, change: Change::Add, now: 0, shares: false, changes: 0 }
    }

    /// Bytes of the result that are not an input's: all, or at most what the changes have copied.
    pub(super) fn own_bytes(&self) -> usize {
        let bytes = self.result.memory_bytes();
        if self.shares { bytes.min(self.changes.saturating_mul(COPIED_BYTES)) } else { bytes }
    }

    /// Members of the result so far.
    pub(super) fn len(&self) -> usize {
        self.result.len()
    }

    /// True when the result only grows from here on.
    pub(super) fn grows(&self) -> bool {
        self.change == Change::Add || self.turns.is_done()
    }

    /// Does the next portion. Returns true while there is more to do.
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
        // Few are left of a large set: its encoding starts again, as in Redis.
        let mut small = Set::new();
        let mut edit = small.edit_aside(self.now);
        self.result.members().for_each(&mut |entry| {
            edit.add(entry.key().bytes(&mut Default::default()), Deadline::Clear);
        });
        small
    }
}

//! A sequence of sets, as many as a request names keys: freed in portions, and walked one by one.
//!
//! Freeing a hundred thousand sets takes milliseconds, so a long sequence is dropped through
//! `lazyfree`. A walk is larger than a small set: there is only one at a time.

use super::value::Set;
use super::walk::{Walk, Wanted};
use darter_keyspace::lazyfree::{self, Dismantle};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

/// Sets freed at once: about 10 us.
const FREED_AT_ONCE: usize = 128;

/// See the module.
#[derive(Clone, Default)]
pub(super) struct Sets(VecDeque<Set>);

impl Deref for Sets {
    type Target = VecDeque<Set>;

    fn deref(&self) -> &VecDeque<Set> {
        &self.0
    }
}

impl DerefMut for Sets {
    fn deref_mut(&mut self) -> &mut VecDeque<Set> {
        &mut self.0
    }
}

impl FromIterator<Set> for Sets {
    fn from_iter<I: IntoIterator<Item = Set>>(sets: I) -> Self {
        Self(sets.into_iter().collect())
    }
}

impl Drop for Sets {
    fn drop(&mut self) {
        if self.0.len() > FREED_AT_ONCE {
            lazyfree::defer(Box::new(Rest(std::mem::take(&mut self.0))));
        }
    }
}

/// Sets that are no longer read.
struct Rest(VecDeque<Set>);

impl Dismantle for Rest {
    fn dismantle(&mut self) -> bool {
        self.0.truncate(self.0.len().saturating_sub(FREED_AT_ONCE));
        !self.0.is_empty()
    }

    /// The sequence itself: the sets' contents may be the keyspace's.
    fn bytes(&self) -> usize {
        self.0.len() * size_of::<Set>()
    }
}

/// All members of some sets, one set after the other; each is released once it has been read.
#[derive(Default)]
pub(super) struct Turns {
    walk: Option<Walk>,
    waiting: Sets,
    now: u64,
}

impl Turns {
    /// Those of `sets` that live at `now`. Cost: O(1).
    pub(super) fn new(sets: Sets, now: u64) -> Self {
        Self { walk: None, waiting: sets, now }
    }

    /// One walk that has begun.
    pub(super) fn of(walk: Walk) -> Self {
        Self { walk: Some(walk), ..Self::default() }
    }

    /// [`Walk::step`] of the current set.
    pub(super) fn step(&mut self, budget: usize, sink: &mut dyn FnMut(&[u8], bool)) -> bool {
        if self.walk.is_none() {
            let next = self.waiting.pop_front();
            self.walk = next.map(|set| {
                Walk::new(set.members().clone(), Sets::default(), Wanted::InNone, self.now)
            });
        }
        let Some(walk) = &mut self.walk else { return false };
        if !walk.step(budget, sink) {
            self.walk = None;
        }
        !self.is_done()
    }

    /// True when nothing is left.
    pub(super) fn is_done(&self) -> bool {
        self.walk.is_none() && self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::preempt::Countdown;
    use darter_keyspace::{Collection, Deadline};

    #[test] // A very long sequence is freed in portions, wherever it is dropped.
    fn a_long_row_is_freed_in_portions() {
        let mut set = Set::new();
        set.edit_aside(0).add(b"member", Deadline::Clear);
        let row: Sets = std::iter::repeat_n(set, FREED_AT_ONCE * 10).collect();
        let mut turns = Turns::new(row, 0);
        let mut read = 0;
        assert!(turns.step(10, &mut |_, _| read += 1));
        assert_eq!(read, 1);
        drop(turns);
        let mut portions = 1;
        while lazyfree::run(&Countdown::new(0)) {
            portions += 1;
        }
        assert_eq!(portions, 10);
    }
}

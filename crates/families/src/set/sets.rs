//! A sequence of sets, one for each key of a request, walked one by one: a walk is larger than a
//! small set, so there is only one at a time.

use super::value::Set;
use super::walk::{Walk, Wanted};
use crate::multi_input::Queue;

/// See the module.
pub(super) type Sets = Queue<Set>;

/// All members of some sets, one set after the other; each is released once it has been read.
#[derive(Default)]
pub(super) struct Turns {
    walk: Option<Walk>,
    waiting: Sets,
    now: u64,
}

impl Turns {
    /// The sets of `sets` with members that live at `now`. Cost: O(1).
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
    use crate::multi_input::FREED_AT_ONCE;
    use darter_base::preempt::Countdown;
    use darter_keyspace::{Collection, Deadline, lazyfree};

    #[test] // A very long sequence is freed in portions, wherever it is dropped.
    fn a_long_sequence_is_freed_in_portions() {
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

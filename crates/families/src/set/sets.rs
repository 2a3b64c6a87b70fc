//! A sequence of sets that are walked one after another. A walk takes more memory than a small set,
//! so only one exists at a time.

use super::value::Set;
use super::walk::{Walk, Wanted};
use crate::multi_input::Queue;

/// A sequence of sets; see the module's documentation.
pub(super) type Sets = Queue<Set>;

/// Walks all members of several sets, one set after another; each set is freed once it has been
/// read.
#[derive(Default)]
pub(super) struct Turns {
    walk: Option<Walk>,
    waiting: Sets,
    now: u64,
}

impl Turns {
    /// Walks the members of `sets` that are live at `now`. Cost: O(1).
    pub(super) fn new(sets: Sets, now: u64) -> Self {
        Self { walk: None, waiting: sets, now }
    }

    /// A walk of a single set that has already started.
    pub(super) fn of(walk: Walk) -> Self {
        Self { walk: Some(walk), ..Self::default() }
    }

    /// [`Walk::step`] for the current set.
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

    #[test]
    fn a_dropped_queue_of_many_sets_is_freed_in_portions() {
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

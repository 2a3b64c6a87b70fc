//! Things to do later, by deadline.
//!
//! A core has few timers (its own rounds, and clients that wait with a timeout), and most are
//! cancelled; an ordered map gives the earliest and cancels exactly, without stale entries.
//!
//! Not here: expiry of keys, which segments know themselves.

use std::collections::BTreeMap;

/// Identifies a timer, for cancelling. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId {
    deadline: u64,
    serial: u64,
}

/// Things to do, by deadline, in the caller's unit. Equal deadlines fire in the order in which they
/// were set.
#[derive(Debug)]
pub struct Timers<T> {
    waiting: BTreeMap<TimerId, T>,
    serial: u64,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), serial: 0 }
    }
}

impl<T> Timers<T> {
    /// Sets a timer. O(log n).
    pub fn set(&mut self, deadline: u64, what: T) -> TimerId {
        self.serial += 1;
        let id = TimerId { deadline, serial: self.serial };
        let old = self.waiting.insert(id, what);
        debug_assert!(old.is_none(), "{id:?} is set twice");
        id
    }

    /// Cancels a timer and returns its payload; `None` when it has fired. O(log n).
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        self.waiting.remove(&id)
    }

    /// The earliest deadline.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.waiting.first_key_value().map(|(id, _)| id.deadline)
    }

    /// The earliest thing whose deadline is `now` or before. One at a time, so that the caller can
    /// look at the clock in between.
    pub fn pop_due(&mut self, now: u64) -> Option<T> {
        let first = self.waiting.first_entry()?;
        (first.key().deadline <= now).then(|| first.remove())
    }

    /// Number of pending timers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// True when none is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;

    #[test]
    fn random_timer_operations_agree_with_a_list() {
        for seed in 0..50 {
            let mut prng = Prng::from_seed(seed);
            let (mut timers, mut model) = (Timers::default(), Vec::<(TimerId, u64, u32)>::new());
            let mut now = 0;
            for step in 0..1_000 {
                match prng.below(3) {
                    0 => {
                        let deadline = now + prng.below(20);
                        let place = model.partition_point(|&(_, other, _)| other <= deadline);
                        model.insert(place, (timers.set(deadline, step), deadline, step));
                    }
                    1 if !model.is_empty() => {
                        let (id, _, what) = model.remove(prng.below(model.len() as u64) as usize);
                        assert_eq!(timers.cancel(id), Some(what), "{seed} {step}");
                        assert_eq!(timers.cancel(id), None, "{seed} {step}");
                    }
                    _ => {
                        now += prng.below(6);
                        while let Some(what) = timers.pop_due(now) {
                            let (_, deadline, expected) = model.remove(0);
                            assert!(what == expected && deadline <= now, "{seed} {step}");
                        }
                    }
                }
                assert!(timers.next_deadline() == model.first().map(|&(_, next, _)| next));
                assert_eq!((timers.len(), timers.is_empty()), (model.len(), model.is_empty()));
            }
        }
    }
}

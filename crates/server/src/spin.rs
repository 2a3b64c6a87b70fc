//! How long a recently busy core polls before it sleeps.
//!
//! Sleeping and waking costs a core and its waker 10 to 50 us, more than a quiet client's request;
//! with several cores a command would pay twice. So a core polls for a short time, yielding to
//! other threads each time, if its waits are usually short.
//!
//! The core learns from all waits, with and without sleep: a poll that is too short does not show
//! how long it should have been. The mean is a moving one: after a wait of a millisecond or more
//! some short waits must follow before the core polls again.
//!
//! On a shared processor polling does harm: a core that yields gets the processor back milliseconds
//! later, after the time slices of others, but a sleeping core is woken at once. Such a slow yield
//! ends the polling for a number of waits, which doubles each time.
//!
//! Bounds: polling takes at most [`MOST_NS`]. A core whose waits are longer than [`WORTH_NS`] does
//! not poll. An idle core does not poll either: polling follows only a turn with arrivals.
//!
//! Not here: the polling itself. See `thread`.

/// The longest polling: the time from a reply to a client's next request, even if its processor
/// slept, plus one or two requests to other cores.
const MOST_NS: u64 = 200_000;
/// Waits with at most this mean are worth polling.
const WORTH_NS: u64 = 150_000;
/// A longer wait counts as this.
const LONG_NS: u64 = 1_000_000;
/// The weight of a new wait in the mean is 1 / `PARTS`.
const PARTS: u64 = 4;
/// A longer yield was lost to other threads. A client on the same processor takes less.
const LOST_NS: u64 = 300_000;
/// The number of waits without polling after such a yield: least and most.
const APART_LEAST: u32 = 16;
const APART_MOST: u32 = 4_096;

/// See the module.
#[derive(Debug)]
pub(crate) struct PollTime {
    /// The mean of the last waits.
    wait_ns: u64,
    /// Waits left without polling, whatever the mean.
    apart: u32,
    /// The value of `apart` after the next lost yield.
    apart_next: u32,
}

impl Default for PollTime {
    fn default() -> Self {
        Self { wait_ns: LONG_NS, apart: 0, apart_next: APART_LEAST }
    }
}

impl PollTime {
    /// Nanoseconds to poll before this sleep: twice the mean wait.
    pub(crate) fn before_sleep(&self) -> u64 {
        if self.wait_ns <= WORTH_NS && self.apart == 0 {
            (self.wait_ns * 2).min(MOST_NS)
        } else {
            0
        }
    }

    /// Learns a wait: something arrived after the core was idle for `wait_ns`.
    pub(crate) fn learn(&mut self, wait_ns: u64) {
        self.wait_ns = (self.wait_ns * (PARTS - 1) + wait_ns.min(LONG_NS)) / PARTS;
        if self.apart > 0 {
            self.apart -= 1;
        } else {
            self.apart_next = (self.apart_next - 1).max(APART_LEAST);
        }
    }

    /// Learns the length of a yield. True if the core should sleep now.
    pub(crate) fn yielded(&mut self, ns: u64) -> bool {
        if ns <= LOST_NS {
            return false;
        }
        self.apart = self.apart_next;
        self.apart_next = (self.apart_next * 2).min(APART_MOST);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The polling before each of `count` waits of `wait_ns`.
    fn looks(poll_time: &mut PollTime, wait_ns: u64, count: usize) -> Vec<u64> {
        let look = |_| {
            let ns = poll_time.before_sleep();
            poll_time.learn(wait_ns);
            ns
        };
        (0..count).map(look).collect()
    }

    #[test] // A core polls for short waits of any length, and not for long ones.
    fn a_core_polls_only_if_its_waits_are_short() {
        let mut poll_time = PollTime::default();
        for wait_ns in [5_000, 40_000, 90_000] {
            let looks = looks(&mut poll_time, wait_ns, 30);
            assert!(looks[20..].iter().all(|look| (wait_ns..=MOST_NS).contains(look)), "{looks:?}");
        }
        for wait_ns in [WORTH_NS * 2, LONG_NS, u64::MAX] {
            let vain: u64 = looks(&mut poll_time, wait_ns, 100).iter().sum();
            assert!(vain <= 3 * MOST_NS, "{vain} in vain");
            looks(&mut poll_time, 10_000, 20);
        }
    }

    #[test] // Polling returns when the processor is free again.
    fn polling_becomes_rare_on_a_shared_processor() {
        let mut poll_time = PollTime::default();
        looks(&mut poll_time, 10_000, 20);
        assert!(!poll_time.yielded(LOST_NS));
        let mut polled = 0;
        for _ in 0..100_000 {
            if poll_time.before_sleep() > 0 {
                polled += 1;
                assert!(poll_time.yielded(LOST_NS * 10));
            }
            poll_time.learn(10_000);
        }
        assert!((10..50).contains(&polled), "{polled} lost");
        let looks = looks(&mut poll_time, 10_000, 4 * APART_MOST as usize);
        assert!(looks[APART_MOST as usize..].iter().all(|look| *look > 0));
        assert_eq!(poll_time.apart_next, APART_LEAST, "it is forgotten");
    }

    #[test] // A new core starts without polling.
    fn one_long_wait_stops_polling_until_some_short_ones() {
        let mut poll_time = PollTime::default();
        assert_eq!(poll_time.before_sleep(), 0);
        looks(&mut poll_time, 10_000, 20);
        assert!(poll_time.before_sleep() >= 10_000);
        poll_time.learn(u64::MAX);
        assert_eq!(looks(&mut poll_time, 10_000, 20)[..2], [0; 2]);
        assert!(poll_time.before_sleep() >= 10_000);
    }
}

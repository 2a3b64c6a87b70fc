//! Decides how long a core polls for arrivals before it sleeps.
//!
//! Putting a core to sleep and waking it costs 10 to 50 us on the core and on the one that wakes
//! it: more than a client's request. With several cores, a command would pay that twice. So if the
//! waits of a core are usually short, it polls for a short time before it sleeps. Between polls it
//! yields the processor to other threads.
//!
//! The core learns from all its waits, with and without sleep, because polling that ends too early
//! does not show how long it should have lasted. The mean of the waits is a moving average: after a
//! wait of a millisecond or more, several short waits must follow before the core polls again.
//!
//! On a shared processor, polling does harm. A core that yields gets the processor back only after
//! the time slices of other threads, milliseconds later, while a sleeping core is woken at once.
//! After such a slow yield, the core does not poll for a number of waits, and this number doubles
//! each time.
//!
//! Bounds: polling lasts at most [`MOST_NS`]. A core whose mean wait is longer than [`WORTH_NS`]
//! does not poll. An idle core does not poll either, because polling follows only a turn with
//! arrivals.
//!
//! Not here: the polling itself. See `thread`.

/// The longest time of polling. It covers the time from a reply to the client's next request, even
/// if the client's processor slept, and one or two requests to other cores.
const MOST_NS: u64 = 200_000;
/// A core polls if the mean of its waits is at most this.
const WORTH_NS: u64 = 150_000;
/// A wait that is longer than this counts as this long.
const LONG_NS: u64 = 1_000_000;
/// A new wait counts for 1 / `PARTS` of the moving average.
const PARTS: u64 = 4;
/// A yield that takes longer has lost the processor to other threads. A client that shares the
/// processor takes less.
const LOST_NS: u64 = 300_000;
/// The number of waits without polling after such a yield: the minimum and the maximum.
const APART_LEAST: u32 = 16;
const APART_MOST: u32 = 4_096;

/// The decision how long to poll, and the waits on which it depends.
#[derive(Debug)]
pub(crate) struct PollTime {
    /// The moving average of the waits, in nanoseconds.
    wait_ns: u64,
    /// The number of next waits for which the core does not poll.
    apart: u32,
    /// The value that `apart` gets after the next slow yield.
    apart_next: u32,
}

impl Default for PollTime {
    fn default() -> Self {
        Self { wait_ns: LONG_NS, apart: 0, apart_next: APART_LEAST }
    }
}

impl PollTime {
    /// How long to poll before this sleep, in nanoseconds: twice the mean wait.
    pub(crate) fn before_sleep(&self) -> u64 {
        if self.wait_ns <= WORTH_NS && self.apart == 0 {
            (self.wait_ns * 2).min(MOST_NS)
        } else {
            0
        }
    }

    /// Records a wait: the core was idle for `wait_ns` before something arrived.
    pub(crate) fn learn(&mut self, wait_ns: u64) {
        self.wait_ns = (self.wait_ns * (PARTS - 1) + wait_ns.min(LONG_NS)) / PARTS;
        if self.apart > 0 {
            self.apart -= 1;
        } else {
            self.apart_next = (self.apart_next - 1).max(APART_LEAST);
        }
    }

    /// Records the length of a yield. Returns true if the core should sleep now.
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

    /// The times of polling before each of `count` waits of `wait_ns`.
    fn looks(poll_time: &mut PollTime, wait_ns: u64, count: usize) -> Vec<u64> {
        let look = |_| {
            let ns = poll_time.before_sleep();
            poll_time.learn(wait_ns);
            ns
        };
        (0..count).map(look).collect()
    }

    #[test] // A core polls for short waits of any length.
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

    #[test] // The core polls again when the processor is free.
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

//! How long a recently busy core polls before it sleeps.
//!
//! Sleeping and waking costs a core and its waker some 10 to 50 us, more than the requests of a
//! quiet client: with several cores that was paid twice a command. So a core polls for a little
//! while, yielding to other threads each time, if what it waits for usually comes soon.
//!
//! Whether it does is learnt from the waits themselves, slept through or not: a poll that is too
//! short does not tell how long it should have been. Their mean forgets: after a wait of a
//! millisecond or more it takes some short ones until the core polls again.
//!
//! A processor that others want, too, is no place for polling: a core that yields it gets it back
//! when their time slices are over, milliseconds later, where one that sleeps is woken at once. A
//! yield that took so long ends the polling, for some waits; for twice as many the next time.
//!
//! Bounds: polling takes at most [`MOST_NS`], and a core whose waits are longer than [`WORTH_NS`]
//! does not poll at all. Nor does one without arrivals: it polls only after a turn that brought
//! something.
//!
//! Not here: what it polls. See `thread`.

/// The longest polling: what a client needs from a reply to its next request, even if its processor
/// had fallen asleep, and one or two of its requests to other cores.
const MOST_NS: u64 = 200_000;
/// Waits with at most this mean are worth polling.
const WORTH_NS: u64 = 150_000;
/// A longer wait counts as this.
const LONG_NS: u64 = 1_000_000;
/// A new wait's share of the mean is one of this many parts.
const PARTS: u64 = 4;
/// A yield that takes longer than this was lost to others. A client on the same processor needs less.
const LOST_NS: u64 = 300_000;
/// After such a yield so many waits, at least and at most, are slept through.
const APART_LEAST: u32 = 16;
const APART_MOST: u32 = 4_096;

/// See the module.
#[derive(Debug)]
pub(crate) struct Patience {
    /// The mean of the last waits.
    wait_ns: u64,
    /// So many waits are slept through, whatever their mean.
    apart: u32,
    /// So many are after the next yield that is lost.
    apart_next: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self { wait_ns: LONG_NS, apart: 0, apart_next: APART_LEAST }
    }
}

impl Patience {
    /// How long to poll before this sleep, in nanoseconds: twice as long as it usually takes.
    pub(crate) fn before_sleep(&self) -> u64 {
        if self.wait_ns <= WORTH_NS && self.apart == 0 {
            (self.wait_ns * 2).min(MOST_NS)
        } else {
            0
        }
    }

    /// Something arrived after the core had nothing to do for `wait_ns`.
    pub(crate) fn learn(&mut self, wait_ns: u64) {
        self.wait_ns = (self.wait_ns * (PARTS - 1) + wait_ns.min(LONG_NS)) / PARTS;
        if self.apart > 0 {
            self.apart -= 1;
        } else {
            self.apart_next = (self.apart_next - 1).max(APART_LEAST);
        }
    }

    /// A yield has taken this long. True if the core had better sleep now.
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
    fn looks(patience: &mut Patience, wait_ns: u64, count: usize) -> Vec<u64> {
        let look = |_| {
            let ns = patience.before_sleep();
            patience.learn(wait_ns);
            ns
        };
        (0..count).map(look).collect()
    }

    #[test] // A core polls as long as it pays, whatever the wait, and not where it does not.
    fn patience_follows_what_comes() {
        let mut patience = Patience::default();
        for wait_ns in [5_000, 40_000, 90_000] {
            let looks = looks(&mut patience, wait_ns, 30);
            assert!(looks[20..].iter().all(|look| (wait_ns..=MOST_NS).contains(look)), "{looks:?}");
        }
        for wait_ns in [WORTH_NS * 2, LONG_NS, u64::MAX] {
            let vain: u64 = looks(&mut patience, wait_ns, 100).iter().sum();
            assert!(vain <= 3 * MOST_NS, "{vain} in vain");
            looks(&mut patience, 10_000, 20);
        }
    }

    #[test] // Where others want the processor, it polls ever more seldom; and again once they are gone.
    fn lost_yields_end_the_polling() {
        let mut patience = Patience::default();
        looks(&mut patience, 10_000, 20);
        assert!(!patience.yielded(LOST_NS));
        let mut polled = 0;
        for _ in 0..100_000 {
            if patience.before_sleep() > 0 {
                polled += 1;
                assert!(patience.yielded(LOST_NS * 10));
            }
            patience.learn(10_000);
        }
        assert!((10..50).contains(&polled), "{polled} lost");
        let looks = looks(&mut patience, 10_000, 4 * APART_MOST as usize);
        assert!(looks[APART_MOST as usize..].iter().all(|look| *look > 0));
        assert_eq!(patience.apart_next, APART_LEAST, "it is forgotten");
    }

    #[test] // One long wait ends it; a few short ones bring it back. A new core starts without.
    fn patience_is_lost_at_once() {
        let mut patience = Patience::default();
        assert_eq!(patience.before_sleep(), 0);
        looks(&mut patience, 10_000, 20);
        assert!(patience.before_sleep() >= 10_000);
        patience.learn(u64::MAX);
        assert_eq!(looks(&mut patience, 10_000, 20)[..2], [0; 2]);
        assert!(patience.before_sleep() >= 10_000);
    }
}

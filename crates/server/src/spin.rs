//! How long a core that was asked lately looks on before it sleeps.
//!
//! To sleep and to be woken costs a core and whoever wakes it some 10 to 50 us, more than what a quiet
//! client asks for: with several cores it paid that twice a command. So a core looks on for a little
//! while, giving way to other threads at every look, where what it waits for usually comes soon.
//!
//! Whether it does is learnt from the waits themselves, slept through or not: a look that is too short
//! tells nothing of how long it should have been. Their mean forgets: after a wait of a millisecond or
//! more it takes some short ones until the core looks on again.
//!
//! Bounds: a look takes [`MOST_NS`], and a core whose waits are longer than [`WORTH_NS`] does not look
//! at all. Nor does one that nothing came to: it looks only after a turn that brought something.
//!
//! Not here: what it looks at. See `thread`.

/// The longest look: what a client needs from a reply to its next request, also where its processor
/// had fallen asleep, and one or two of its requests to other cores.
const MOST_NS: u64 = 200_000;
/// Waits of this mean are worth a look.
const WORTH_NS: u64 = 150_000;
/// A longer wait counts as this.
const LONG_NS: u64 = 1_000_000;
/// A new wait's part of the mean is one of so many.
const PARTS: u64 = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct Patience {
    /// The mean of the last waits.
    wait_ns: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self { wait_ns: LONG_NS }
    }
}

impl Patience {
    /// How long to look on before this sleep, in nanoseconds: twice as long as it usually takes.
    pub(crate) fn before_sleep(&self) -> u64 {
        if self.wait_ns <= WORTH_NS { (self.wait_ns * 2).min(MOST_NS) } else { 0 }
    }

    /// From when the core had nothing left to do it took so long until something came.
    pub(crate) fn learn(&mut self, wait_ns: u64) {
        self.wait_ns = (self.wait_ns * (PARTS - 1) + wait_ns.min(LONG_NS)) / PARTS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The looks before each of `count` waits of `wait_ns`.
    fn looks(patience: &mut Patience, wait_ns: u64, count: usize) -> Vec<u64> {
        let look = |_| {
            let ns = patience.before_sleep();
            patience.learn(wait_ns);
            ns
        };
        (0..count).map(look).collect()
    }

    #[test] // A core looks on as long as it pays, whatever the wait, and not where it does not.
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

    #[test] // One long wait ends it; a few short ones bring it back. A new core begins without.
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

//! How long a core that was asked lately looks on before it sleeps.
//!
//! To sleep and to be woken costs a core and whoever wakes it some 10 to 50 us, more than what a quiet
//! client asks for: with several cores it paid that twice a command. So a core looks on for a little
//! while, giving way to other threads at every look, if that has paid off lately. Each look that
//! something came to doubles the patience, up to [`MOST_NS`]; each in vain halves it, down to nothing;
//! and now and then a core without patience tries again.
//!
//! Bounds: a core whose looks are in vain spends `FIRST_NS` of every [`TRY_EVERY`] sleeps on them, and
//! none at all while nothing comes to it, as it looks only after a turn that something came to.
//!
//! Not here: what it looks at. See `thread`.

/// The longest look: what a client on the same machine needs from a reply to its next request.
const MOST_NS: u64 = 64_000;
/// The look of a core that tries again.
const FIRST_NS: u64 = 8_000;
/// A core without patience tries once in so many sleeps.
const TRY_EVERY: u32 = 32;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    ns: u64,
    sleeps: u32,
}

impl Patience {
    /// How long to look on before this sleep, in nanoseconds.
    pub(crate) fn before_sleep(&mut self) -> u64 {
        if self.ns > 0 {
            return self.ns;
        }
        self.sleeps += 1;
        if self.sleeps < TRY_EVERY {
            return 0;
        }
        self.sleeps = 0;
        self.ns = FIRST_NS;
        self.ns
    }

    /// Something came while the core looked on, or nothing did.
    pub(crate) fn learn(&mut self, came: bool) {
        self.ns = if came { (self.ns * 2).min(MOST_NS) } else { self.ns / 2 };
        if self.ns < FIRST_NS {
            self.ns = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // What pays off goes on, up to a bound; what does not ends, but for a try now and then.
    fn patience_follows_what_comes() {
        let mut patience = Patience::default();
        let tries = |patience: &mut Patience| {
            let waits: Vec<u64> = (0..TRY_EVERY).map(|_| patience.before_sleep()).collect();
            waits.iter().sum::<u64>()
        };
        assert_eq!(tries(&mut patience), FIRST_NS);
        for _ in 0..10 {
            patience.learn(true);
        }
        assert_eq!(patience.before_sleep(), MOST_NS);
        let mut vain = 0;
        for _ in 0..10 * TRY_EVERY {
            let ns = patience.before_sleep();
            if ns > 0 {
                vain += ns;
                patience.learn(false);
            }
        }
        assert!(vain <= 2 * MOST_NS + 10 * FIRST_NS, "{vain}");
    }
}

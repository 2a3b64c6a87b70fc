//! When a connection moves to the core of its keys, and when it goes back.
//!
//! It moves if its last requests have all gone to one other core, for a while, and that core has the
//! time for it. What it costs to serve a connection is mostly its socket, so a core takes over nearly
//! all that there is to do for it: a core must not be given more than it can do, while others rest.
//! So a core is given connections while it is calm, or no busier than who gives; by one other core at
//! a time, and no more in a span than what it reports can follow. Who is there as a guest when a core
//! has no time left goes back to the core that accepted it, if that has a quarter of its time more.
//!
//! docs/design/0036-connections-move.md has the figures behind these numbers.

use darter_tx::CoreId;

/// How busy a core is: thousandths of its time.
pub(crate) type Share = u16;

/// A core that is busy for up to this share of its time is given connections, whoever gives.
const CALM: Share = 700;
/// A core that is busier has no time for guests.
const FULL: Share = 900;
/// Guests go back to a core whose share is lower by at least this.
const GAP: Share = 250;
/// What a core gives away in a span, if that is more than one connection, takes up to this share of
/// the other one.
const GIVEN_MAX: u32 = 100;
/// What a request takes of a core, with its part of the work on the socket, at most: 10 us. So one
/// in a millisecond is this share.
const REQUEST: u32 = 10;
/// However little a connection asks, to move it takes some microseconds, of which a span is not to
/// have too many at once.
const LEAST: u64 = 4;
/// What a guest takes that goes back, whose requests are not counted.
const GUEST: u32 = GIVEN_MAX / 4;

/// The numbers that depend on the machine's pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// So many requests in a row, at least, have gone to the other core.
    pub requests: u32,
    /// For at least so long, in milliseconds.
    pub streak_ms: u64,
    /// Whoever has moved stays for so long.
    pub stay_ms: u64,
    /// What a span is: shares are measured, and moves counted, by spans.
    pub span_ms: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self { requests: 64, streak_ms: 100, stay_ms: 1_000, span_ms: 50 }
    }
}

/// Where the last requests of a connection have gone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trail {
    core: u16,
    /// How many in a row went to that core; 0 if the last one did not go away.
    count: u32,
    since_ms: u64,
}

impl Trail {
    /// A request goes to another core.
    #[inline]
    pub(crate) fn goes(&mut self, to: CoreId, now_ms: u64) {
        // The clock may be set back.
        let goes_on = usize::from(self.core) == to && self.since_ms <= now_ms;
        if self.count > 0 && goes_on {
            self.count = self.count.saturating_add(1);
        } else {
            *self = Self { core: to as u16, count: 1, since_ms: now_ms };
        }
    }

    /// A request stays here, as one without keys does, or goes to several.
    #[inline]
    pub(crate) fn stays(&mut self) {
        self.count = 0;
    }

    /// So many in a row went to one other core.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.count
    }
}

/// Where a connection had better be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) to: CoreId,
    /// The share that it will take of that core, roughly.
    pub(crate) weight: u32,
}

/// What decides whether a connection moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Roamer {
    pub(crate) trail: Trail,
    /// The core that accepted it.
    pub(crate) home: CoreId,
    /// Where it is.
    pub(crate) here: CoreId,
    /// When it came here from another core, in Unix milliseconds; 0 if it did not.
    pub(crate) came_ms: u64,
}

impl Policy {
    /// Where the connection had better be, if not here.
    pub(crate) fn wish(
        &self,
        roamer: Roamer,
        now_ms: u64,
        share: impl Fn(CoreId) -> Share,
    ) -> Option<Wish> {
        let Roamer { trail, home, here, came_ms } = roamer;
        if now_ms.checked_sub(came_ms).is_some_and(|stayed_ms| stayed_ms < self.stay_ms) {
            return None;
        }
        let streak_ms = now_ms.saturating_sub(trail.since_ms);
        let is_long = trail.count >= self.requests && streak_ms >= self.streak_ms;
        let to = usize::from(trail.core);
        if is_long && share(to) <= share(here).max(CALM) {
            let weight = u64::from(trail.count) * u64::from(REQUEST) / streak_ms.max(1);
            return Some(Wish { to, weight: weight.clamp(LEAST, 1_000) as u32 });
        }
        let is_crowded = home != here && share(here) >= FULL;
        let goes_back = is_crowded && share(home) + GAP <= share(here);
        goes_back.then_some(Wish { to: home, weight: GUEST })
    }

    /// Whether a core that has given away connections of weight `given` in this span may give
    /// another.
    pub(crate) fn may_give(given: u32, weight: u32) -> bool {
        given == 0 || given + weight <= GIVEN_MAX
    }

    /// Whether core `from` may give connections to core `to` in this span: each other core has its
    /// turn.
    pub(crate) fn is_turn(from: CoreId, to: CoreId, cores: usize, span: u64) -> bool {
        let others = cores as u64 - 1;
        let place = (from + cores - to - 1) % cores;
        span % others == place as u64
    }
}

/// What a core reports of its share, in one word: it is of the span before `span`.
pub(crate) fn word(span: u64, share: Share) -> u64 {
    span << 16 | u64::from(share)
}

/// The share in a word, as seen in `span`: a core that has not reported lately sleeps.
pub(crate) fn share_in(word: u64, span: u64) -> Share {
    if (word >> 16) + 1 < span { 0 } else { word as Share }
}

/// The share of `passed_ns` in which a core was busy: it was idle, as far as it knows, for
/// `idle_ns` of it, and has used `cpu_ns` of processor time. Both understate what it did: what is
/// sent just before a sleep counts as idle, and a processor may be shared with others.
pub(crate) fn share_of(passed_ns: u64, idle_ns: u64, cpu_ns: u64) -> Share {
    let busy_ns = passed_ns.saturating_sub(idle_ns).max(cpu_ns).min(passed_ns);
    (busy_ns * 1_000 / passed_ns.max(1)) as Share
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy { requests: 3, streak_ms: 200, stay_ms: 1_000, span_ms: 100 };

    /// The wish of a connection of core 0, at home at core `home`, whose last three requests went
    /// to core 1, given both shares.
    fn wish(home: CoreId, shares: [Share; 2], now_ms: u64) -> Option<CoreId> {
        let mut trail = Trail::default();
        (0..3).for_each(|_| trail.goes(1, 5_000));
        let roamer = Roamer { trail, home, here: 0, came_ms: 0 };
        POLICY.wish(roamer, now_ms, |core| shares[core]).map(|wish| wish.to)
    }

    #[test] // It follows its keys to a calm core, or to one no busier than its own.
    fn who_has_time_is_given_more() {
        for (here, there, goes) in [
            (0, 0, true),
            (0, CALM, true),
            (0, CALM + 1, false),
            (800, 800, true),
            (800, 801, false),
            (1_000, 1_000, true),
            (1_000, 700, true),
        ] {
            assert_eq!(wish(0, [here, there], 6_000), goes.then_some(1), "{here} {there}");
        }
        assert_eq!(wish(0, [0, 0], 5_199), None, "not for long");
        assert_eq!(wish(0, [0, 0], 5_200), Some(1));
    }

    #[test] // Requests that stay, or go elsewhere, begin anew.
    fn trails_are_of_one_core() {
        let mut trail = Trail::default();
        for (to, len) in [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3)] {
            trail.goes(to, 7);
            assert_eq!(trail.len(), len);
        }
        trail.stays();
        assert_eq!(trail.len(), 0);
        trail.goes(2, 9);
        assert_eq!((trail.len(), trail.since_ms), (1, 9));
        trail.goes(2, 8);
        assert_eq!((trail.len(), trail.since_ms), (1, 8), "the clock was set back");
        trail.goes(2, 9);
        trail.stays();
        trail.goes(2, 9);
        let here = Roamer { trail, home: 0, here: 0, came_ms: 0 };
        assert_eq!(POLICY.wish(here, 99_999, |_| 0), None, "one is not enough");
    }

    #[test] // A busy connection weighs more; of the heaviest, one goes in a span.
    fn who_asks_much_weighs_much() {
        for (requests, ms, weight) in
            [(3, 1_000, 4), (1_000, 1_000, 10), (5_000, 500, 100), (u32::MAX, 1_000, 1_000)]
        {
            let trail = Trail { core: 1, count: requests, since_ms: 5_000 };
            let roamer = Roamer { trail, home: 0, here: 0, came_ms: 0 };
            let wish = POLICY.wish(roamer, 5_000 + ms, |_| 0);
            assert_eq!(wish, Some(Wish { to: 1, weight }), "{requests} in {ms} ms");
        }
        assert!(Policy::may_give(0, 1_000) && !Policy::may_give(1, 1_000));
        assert!(Policy::may_give(90, 10) && !Policy::may_give(90, 11));
    }

    #[test] // A guest goes back from a full core, if there is more time at home; never at once.
    fn guests_go_back() {
        let guest = Roamer { trail: Trail::default(), home: 1, here: 0, came_ms: 10_000 };
        let wish = |here, home| POLICY.wish(guest, 11_000, |core| [here, home][core]);
        assert_eq!(wish(FULL, FULL - GAP), Some(Wish { to: 1, weight: GUEST }));
        assert_eq!(wish(FULL, FULL - GAP + 1), None, "home is busy, too");
        assert_eq!(wish(FULL - 1, 0), None, "there is time");
        assert_eq!(POLICY.wish(guest, 10_999, |core| [1_000, 0][core]), None, "it has just come");
        let goes = POLICY.wish(guest, 9_999, |core| [1_000, 0][core]).is_some();
        assert!(goes, "the clock was set back, nobody knows when it came");
        let native = Roamer { home: 0, ..guest };
        assert_eq!(POLICY.wish(native, 11_000, |core| [1_000, 0][core]), None);
    }

    #[test] // Who has gone back does not want to come again: the core that it left is not calm.
    fn between_going_and_coming_is_a_gap() {
        for full in FULL..=1_000 {
            for home in 0..=full - GAP {
                assert_eq!(wish(0, [home, full], 9_000), None, "{home} {full}");
            }
        }
    }

    #[test] // In each span a core is given to by one other; all have their turn.
    fn turns_go_round() {
        for cores in 2..6 {
            for to in 0..cores {
                let mut given = vec![0; cores];
                for span in 40..40 + cores as u64 - 1 {
                    let from = (0..cores).filter(|from| *from != to);
                    let may: Vec<_> =
                        from.filter(|from| Policy::is_turn(*from, to, cores, span)).collect();
                    assert_eq!(may.len(), 1, "{cores} cores, to {to}");
                    given[may[0]] += 1;
                }
                let all = given.iter().enumerate().all(|(at, turns)| *turns == i32::from(at != to));
                assert!(all, "{cores} cores, to {to}: {given:?}");
            }
        }
    }

    #[test] // Time that was not idle, or processor time, whichever is more; old reports are of sleepers.
    fn shares_are_measured() {
        for (idle, cpu, share) in [(0, 0, 1_000), (100, 0, 0), (60, 10, 400), (60, 70, 700)] {
            assert_eq!(share_of(100, idle, cpu), share, "{idle} {cpu}");
        }
        assert_eq!((share_of(100, 200, 500), share_of(0, 0, 0)), (1_000, 0));
        let told = word(70, 333);
        assert_eq!([70, 71, 72].map(|span| share_in(told, span)), [333, 333, 0]);
    }

    /// Connections that all ask for one key of core 0, on two cores: what becomes of them. A request
    /// takes 8 us of its connection's core, 0.7 us where the key is, and 1.5 us more on both cores if
    /// these differ.
    struct Crowd {
        /// Where each is, where it was accepted, and when it came.
        all: Vec<(CoreId, CoreId, u64)>,
        now_ms: u64,
    }

    impl Crowd {
        fn accepted(count: usize) -> Self {
            Self { all: (0..count).map(|at| (at % 2, at % 2, 0)).collect(), now_ms: 10_000 }
        }

        /// Microseconds of each core for a request of each connection.
        fn costs(&self) -> [f64; 2] {
            let guests = self.all.iter().filter(|(here, ..)| *here == 1).count() as f64;
            let at_home = self.all.len() as f64 - guests;
            [at_home * 8.7 + guests * 2.2, guests * 9.5]
        }

        /// How many requests a connection has answered in a millisecond: as many as it wants, or as
        /// the busiest core can do.
        fn pace(&self, wanted: f64) -> f64 {
            let costs = self.costs();
            wanted.min(1_000.0 / costs[0].max(costs[1]))
        }

        /// Lets some time pass. Returns how many are on the core of the key, and how many have moved.
        fn pass(&mut self, spans: u64, wanted: f64) -> (usize, usize) {
            let (policy, mut moves) = (Policy::default(), 0);
            for _ in 0..spans {
                self.now_ms += policy.span_ms;
                let (costs, pace) = (self.costs(), self.pace(wanted));
                let shares = costs.map(|us| (us * pace) as Share);
                let mut given = [0; 2];
                for (here, home, came_ms) in &mut self.all {
                    let since_ms = self.now_ms - 1_000;
                    let count = if *here == 0 { 0 } else { (pace * 1_000.0) as u32 };
                    let trail = Trail { core: 0, count, since_ms };
                    let roamer = Roamer { trail, home: *home, here: *here, came_ms: *came_ms };
                    let wish = policy.wish(roamer, self.now_ms, |core| shares[core]);
                    if let Some(Wish { to, weight }) = wish
                        && Policy::may_give(given[*here], weight)
                    {
                        given[*here] += weight.max(1);
                        (*here, *came_ms) = (to, self.now_ms);
                        moves += 1;
                    }
                }
            }
            (self.all.iter().filter(|(here, ..)| *here == 0).count(), moves)
        }
    }

    #[test] // They come together where one core is enough, and stay spread where it is not.
    fn one_key_does_not_crowd_a_core() {
        let mut crowd = Crowd::accepted(50);
        let most = crowd.pace(f64::MAX);
        assert_eq!(crowd.pass(1_000, f64::MAX), (25, 0), "both cores are needed");
        assert_eq!(crowd.pass(100, 0.5).0, 50, "one is enough, and each request costs less");
        // Then they want as much as there is: guests go back, until both cores have their part.
        crowd.pass(200, f64::MAX);
        assert!(crowd.pace(f64::MAX) > 0.9 * most, "{} of {most}", crowd.pace(f64::MAX));
        assert_eq!(crowd.pass(1_000, f64::MAX).1, 0, "nobody moves to and fro");
        for wanted in [0.2, 0.8, 1.5, 2.0, 2.5, 3.0, 3.5, 5.0] {
            let mut crowd = Crowd::accepted(50);
            let before = crowd.pace(wanted);
            crowd.pass(1_000, wanted);
            assert!(crowd.pace(wanted) > 0.99 * before, "{wanted}: {:?}", crowd.costs());
        }
        for heavy in 2..6 {
            let mut crowd = Crowd::accepted(heavy);
            let before = crowd.pace(f64::MAX);
            assert_eq!(crowd.pass(1_000, f64::MAX).1, 0);
            assert_eq!(crowd.pace(f64::MAX), before);
        }
    }
}

//! The policy of moves: when a connection moves to the core that owns its keys, and when it
//! returns.
//!
//! A connection moves if for some time all its requests have gone to one other core, and that core
//! is not too busy. Most of the work for a connection is the work on its socket, so nearly all of
//! its load moves with it. So a core receives connections only while its load is low, or not higher
//! than the load of the core that gives them. In each span a core receives connections from only
//! one other core, and only as many as the measured load can reflect. A *guest* is a connection
//! that another core accepted. When a core is full, its guests return to the cores that accepted
//! them, if those have at least a quarter more free time.
//!
//! The measurements behind the numbers are in docs/design/0036-connections-move.md.

use darter_tx::CoreId;

/// The load of a core: the busy part of its time, in thousandths.
pub(crate) type Share = u16;

/// A core with at most this load receives connections from any core.
const CALM: Share = 700;
/// A core with at least this load is full: its guests return.
const FULL: Share = 900;
/// Guests return to their own core only if its load is lower by at least this.
const GAP: Share = 250;
/// The load that a core may give away in one span. A single connection may exceed it.
const GIVEN_MAX: u32 = 100;
/// The load of one request per millisecond: at most 10 us for a request, including its share of the
/// work on the socket.
const REQUEST: u32 = 10;
/// The minimal weight of a connection, added to that of its requests. A move itself costs a few
/// microseconds, so this limits the number of moves in a span.
const LEAST: u64 = 4;
/// The weight of a guest that returns. The requests of guests are not counted.
const GUEST: u32 = GIVEN_MAX / 4;

/// The parameters of the policy that depend on the speed of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// A connection moves after at least this number of consecutive requests to the other core.
    pub requests: u32,
    /// The minimal time over which those requests were sent, in milliseconds.
    pub streak_ms: u64,
    /// The minimal time between two moves of a connection, in milliseconds.
    pub stay_ms: u64,
    /// The length of a span in milliseconds. Per span, loads are measured and moves are limited.
    pub span_ms: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self { requests: 64, streak_ms: 100, stay_ms: 1_000, span_ms: 50 }
    }
}

/// The core to which a connection's last requests went, and how many went there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trail {
    core: u16,
    /// The number of consecutive requests to that core; 0 if the last request ran on the
    /// connection's own core.
    count: u32,
    since_ms: u64,
}

impl Trail {
    /// Records a request to another core.
    #[inline]
    pub(crate) fn goes(&mut self, to: CoreId, now_ms: u64) {
        // A start in the future means that the clock was set back; the count then restarts.
        let goes_on = usize::from(self.core) == to && self.since_ms <= now_ms;
        if self.count > 0 && goes_on {
            self.count = self.count.saturating_add(1);
        } else {
            *self = Self { core: to as u16, count: 1, since_ms: now_ms };
        }
    }

    /// Records a request that ran on the connection's own core, or on several cores.
    #[inline]
    pub(crate) fn stays(&mut self) {
        self.count = 0;
    }

    /// The number of consecutive requests to one other core.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.count
    }
}

/// A proposed move of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) to: CoreId,
    /// The approximate load that the connection adds to the destination.
    pub(crate) weight: u32,
}

/// The facts about a connection that decide whether it moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Roamer {
    pub(crate) trail: Trail,
    /// The core that accepted the connection.
    pub(crate) home: CoreId,
    /// The core on which the connection is.
    pub(crate) here: CoreId,
    /// The time of the last move, in Unix milliseconds; 0 if the connection has not moved.
    pub(crate) came_ms: u64,
}

impl Policy {
    /// The move that the policy proposes for the connection, if any.
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

    /// True if a core that has given away connections of total weight `given` in this span may give
    /// away one of weight `weight`, too.
    pub(crate) fn may_give(given: u32, weight: u32) -> bool {
        given == 0 || given + weight <= GIVEN_MAX
    }

    /// True if core `from` may give connections to core `to` in this span. The other cores take
    /// turns, one per span.
    pub(crate) fn is_turn(from: CoreId, to: CoreId, cores: usize, span: u64) -> bool {
        let others = cores as u64 - 1;
        let place = (from + cores - to - 1) % cores;
        span % others == place as u64
    }
}

/// Packs a core's report into one word: the number of a span, and the load in the span before it.
pub(crate) fn word(span: u64, share: Share) -> u64 {
    span << 16 | u64::from(share)
}

/// Unpacks the load from a report, as seen in span `span`. An old report counts as 0, because its
/// core sleeps.
pub(crate) fn share_in(word: u64, span: u64) -> Share {
    if (word >> 16) + 1 < span { 0 } else { word as Share }
}

/// The load of a core during `passed_ns`, in which it was idle for `idle_ns` and used `cpu_ns` of
/// CPU time. The higher of busy time and CPU time counts, because each may be too low. Sends just
/// before a sleep count as idle time, and a shared processor also runs other threads.
pub(crate) fn share_of(passed_ns: u64, idle_ns: u64, cpu_ns: u64) -> Share {
    let busy_ns = passed_ns.saturating_sub(idle_ns).max(cpu_ns).min(passed_ns);
    (busy_ns * 1_000 / passed_ns.max(1)) as Share
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy { requests: 3, streak_ms: 200, stay_ms: 1_000, span_ms: 100 };

    /// The destination proposed for a connection on core 0 that was accepted by core `home` and
    /// whose last three requests went to core 1, if the cores have these loads.
    fn wish(home: CoreId, shares: [Share; 2], now_ms: u64) -> Option<CoreId> {
        let mut trail = Trail::default();
        (0..3).for_each(|_| trail.goes(1, 5_000));
        let roamer = Roamer { trail, home, here: 0, came_ms: 0 };
        POLICY.wish(roamer, now_ms, |core| shares[core]).map(|wish| wish.to)
    }

    #[test]
    fn a_connection_moves_only_to_a_core_that_is_calm_or_less_busy() {
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

    #[test] // A request that runs on the connection's own core resets the count, too.
    fn the_request_count_restarts_when_the_destination_changes() {
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

    #[test] // In one span, at most one of the heaviest connections moves.
    fn weight_of_a_connection_follows_its_request_rate() {
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

    #[test] // A guest returns only after a minimal stay.
    fn guests_return_from_a_full_core_to_a_less_busy_home() {
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

    #[test] // The core that the guest has left is still too busy.
    fn a_returned_guest_does_not_move_again() {
        for full in FULL..=1_000 {
            for home in 0..=full - GAP {
                assert_eq!(wish(0, [home, full], 9_000), None, "{home} {full}");
            }
        }
    }

    #[test] // The other cores take turns.
    fn in_each_span_a_core_receives_connections_from_one_other_core() {
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

    #[test] // An old report counts as no load.
    fn load_is_the_higher_of_busy_time_and_cpu_time() {
        for (idle, cpu, share) in [(0, 0, 1_000), (100, 0, 0), (60, 10, 400), (60, 70, 700)] {
            assert_eq!(share_of(100, idle, cpu), share, "{idle} {cpu}");
        }
        assert_eq!((share_of(100, 200, 500), share_of(0, 0, 0)), (1_000, 0));
        let report = word(70, 333);
        assert_eq!([70, 71, 72].map(|span| share_in(report, span)), [333, 333, 0]);
    }

    /// A model of connections on two cores that all use one key of core 0. A request costs 8 us on
    /// the core of the connection and 0.7 us on the core of the key; if the two differ, each has
    /// 1.5 us more.
    struct Crowd {
        /// For each connection: its core, the core that accepted it, and the time of its last move.
        all: Vec<(CoreId, CoreId, u64)>,
        now_ms: u64,
    }

    impl Crowd {
        fn accepted(count: usize) -> Self {
            Self { all: (0..count).map(|at| (at % 2, at % 2, 0)).collect(), now_ms: 10_000 }
        }

        /// The CPU time of each core, in microseconds, for one request of every connection.
        fn costs(&self) -> [f64; 2] {
            let guests = self.all.iter().filter(|(here, ..)| *here == 1).count() as f64;
            let at_home = self.all.len() as f64 - guests;
            [at_home * 8.7 + guests * 2.2, guests * 9.5]
        }

        /// The requests per millisecond of each connection: `wanted`, or less if the busiest core
        /// allows only less.
        fn pace(&self, wanted: f64) -> f64 {
            let costs = self.costs();
            wanted.min(1_000.0 / costs[0].max(costs[1]))
        }

        /// Simulates `spans` spans. Returns the number of connections on the core of the key, and
        /// the number of moves.
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

    #[test] // If one core is too slow, the clients stay on both.
    fn clients_of_one_key_gather_only_if_one_core_can_serve_them() {
        let mut crowd = Crowd::accepted(50);
        let most = crowd.pace(f64::MAX);
        assert_eq!(crowd.pass(1_000, f64::MAX), (25, 0), "both cores are needed");
        assert_eq!(crowd.pass(100, 0.5).0, 50, "one is enough, and each request costs less");
        // Under full load, guests return until both cores are busy.
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

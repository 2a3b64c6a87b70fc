//! Times of access: when a key was last used, in the stamp of its entry.
//!
//! A stamp is the end of the second of the access, as Unix seconds modulo 2^24: 194 days, as in
//! Redis. The end, not the beginning, so that an idle time never comes out longer than it is. A
//! stamp ahead of now by up to 12 days counts as just used: the clock was set back. So idle times
//! count to 182 days; a key that has not been used for longer restarts at 0. Idle times given by
//! clients count as 91 days at most, so that they do not restart a second later.
//!
//! Eviction by age will have to compare idle times, not stamps.
//!
//! Not here: what counts as an access. See [`crate::Db::read`].

use darter_base::UnixMillis;
use darter_structs::table::STAMP_END;

const MASK: u64 = STAMP_END as u64 - 1;
/// The number of seconds by which a stamp may be ahead of the clock.
const SKEW_MAX: u64 = 1 << 20;
/// The longest idle time, in seconds.
pub(crate) const IDLE_MAX: u64 = MASK - SKEW_MAX;
/// The longest idle time that a client can set. The other half of the range is left for it to grow.
pub(crate) const GIVEN_MAX: u64 = IDLE_MAX / 2;

const _: () = assert!(STAMP_END.is_power_of_two());
const _: () = assert!(SKEW_MAX + IDLE_MAX == MASK && SKEW_MAX < IDLE_MAX);
const _: () = assert!(GIVEN_MAX + GIVEN_MAX <= IDLE_MAX);

/// The stamp of an access at `now`.
pub(crate) fn stamp(now: UnixMillis) -> u32 {
    wrapped(now / 1_000 + 1)
}

/// The stamp of a key that has been idle for `seconds` at `now`, at most [`GIVEN_MAX`]. OBJECT
/// IDLETIME reports this number at once, so the seconds count from the beginning of the current
/// second.
pub(crate) fn stamp_of_idle(seconds: u64, now: UnixMillis) -> u32 {
    wrapped((now / 1_000).wrapping_sub(seconds.min(GIVEN_MAX)))
}

/// Seconds since the access that left `stamp`, rounded down.
pub(crate) fn idle_seconds(stamp: u32, now: UnixMillis) -> u64 {
    let since = (now / 1_000).wrapping_sub(u64::from(stamp)) & MASK;
    debug_assert!(stamp < STAMP_END, "stamp={stamp}");
    if since > IDLE_MAX { 0 } else { since }
}

fn wrapped(seconds: u64) -> u32 {
    u32::try_from(seconds & MASK).expect("masked to 24 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_900_000_000_123;

    #[test] // Never above the true time, and at most two seconds below; 0 right after an access.
    fn idle_times_are_rounded_down() {
        for access in [NOW, NOW + 876, NOW + 877, 0, MASK * 1_000, (MASK + 1) * 1_000 - 1] {
            for passed in [0, 1, 999, 1_000, 1_999, 2_000, 3_000, 86_400_000, IDLE_MAX * 1_000] {
                let told = idle_seconds(stamp(access), access + passed) * 1_000;
                assert!(told <= passed && passed < told + 2_000, "{access} {passed} {told}");
            }
        }
    }

    #[test] // Up to the longest.
    fn a_given_idle_time_is_reported_and_grows() {
        for seconds in [0, 1, 1_000, GIVEN_MAX - 1, GIVEN_MAX, GIVEN_MAX + 1, IDLE_MAX, u64::MAX] {
            let (stamp, given) = (stamp_of_idle(seconds, NOW), seconds.min(GIVEN_MAX));
            for later in [0, 1, 5, GIVEN_MAX] {
                assert_eq!(idle_seconds(stamp, NOW + later * 1_000), given + later);
            }
        }
    }

    #[test] // Setting the clock back does not change idle times.
    fn stamps_ahead_of_the_clock_count_as_age_zero() {
        for back in [1_000, 60_000, 86_400_000, (SKEW_MAX - 2) * 1_000] {
            assert_eq!(idle_seconds(stamp(NOW), NOW - back), 0, "{back}");
        }
    }
}

//! CL.THROTTLE: rate limiting, as in the module redis-cell.
//!
//! This is the generic cell rate algorithm. In theory actions are evenly spaced, and the key stores
//! when the next one would be due. An action may come earlier than that by at most the burst, and
//! moves the due time forward. So the whole state is one integer (nanoseconds since 1970, as a
//! string), and the key expires at the due time, when it carries no information.

use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::{Deadline, Fresh};

const NS_PER_MS: i128 = 1_000_000;
const NS_PER_SECOND: i128 = 1_000_000_000;

/// `CL.THROTTLE key max_burst count period [quantity]`: takes `quantity` (default 1) actions.
/// `count` actions are allowed in `period` seconds, and a burst of `max_burst` more.
///
/// Reply: five integers: 1 if the request is limited (then nothing is taken), else 0; the largest
/// burst; the actions left; the seconds until a retry can succeed, or -1; the seconds until the
/// burst is fully available.
/// Refusals: `NotAnInteger`, also for negative, zero or too large numbers; a rate above one per
/// nanosecond; `WrongType`. Cost: O(1). Source: <https://github.com/brandur/redis-cell> (0.4.0).
pub(super) fn throttle(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let rate = Rate::parse(&mut args)?;
    let quantity = if args.left() > 0 { natural(&mut args, 0)? } else { 1 };
    args.end()?;

    let now = i128::from(cx.now) * NS_PER_MS;
    let due = match cx.db.read_text(&key)? {
        None => now,
        Some(text) => text.as_int().ok_or(Refusal::NotAnInteger)?.into(),
    };
    let taken = rate.take(due, now, quantity).ok_or(Refusal::NotAnInteger)?;
    if let (Some(due), 1..) = (taken.due, quantity) {
        let ms = u64::try_from((i128::from(due) + NS_PER_MS - 1) / NS_PER_MS);
        let deadline = Deadline::At(ms.map_err(|_| Refusal::NotAnInteger)?);
        cx.db.set_text(&key, Fresh::Bytes(due.to_string().as_bytes()), deadline);
    }
    cx.reply.array(5);
    cx.reply.int(i64::from(taken.due.is_none()));
    cx.reply.int(rate.limit);
    cx.reply.int(taken.remaining);
    cx.reply.int(taken.retry_after.map_or(-1, seconds));
    cx.reply.int(seconds(taken.reset_after));
    Ok(Flow::Done)
}

/// Takes the next argument as an integer of at least `least`.
fn natural(args: &mut Args<'_>, least: i64) -> Result<i64, Refusal> {
    let number = args.int()?;
    if number < least { Err(Refusal::NotAnInteger) } else { Ok(number) }
}

/// Nanoseconds as seconds, rounded up, but ignoring less than a millisecond.
fn seconds(ns: i128) -> i64 {
    let part = ns % NS_PER_SECOND >= NS_PER_MS;
    (ns / NS_PER_SECOND) as i64 + i64::from(part)
}

/// The allowed rate.
struct Rate {
    /// The largest burst.
    limit: i64,
    /// The time from one action to the next, in nanoseconds.
    interval: i64,
}

/// The outcome of a request. Times are in nanoseconds.
struct Taken {
    /// When the next action is due; `None` if nothing was taken.
    due: Option<i64>,
    remaining: i64,
    retry_after: Option<i128>,
    reset_after: i128,
}

impl Rate {
    fn parse(args: &mut Args<'_>) -> Result<Self, Refusal> {
        let burst = natural(args, 0)?;
        let (count, period) = (natural(args, 1)?, natural(args, 1)?);
        let limit = burst.checked_add(1).ok_or(Refusal::NotAnInteger)?;
        let interval = i128::from(period) * NS_PER_SECOND / i128::from(count);
        let interval = i64::try_from(interval).map_err(|_| Refusal::NotAnInteger)?;
        if interval == 0 {
            return Err(Refusal::line("ERR zero rates are not supported"));
        }
        Ok(Self { limit, interval })
    }

    /// Takes `quantity` at `now`, if the next action is due at `due`. `None` if a number that is
    /// stored or returned does not fit 64 bits.
    fn take(&self, due: i128, now: i128, quantity: i64) -> Option<Taken> {
        let fits = |ns: i128| i64::try_from(ns).ok();
        let interval = i128::from(self.interval);
        let tolerance = i128::from(fits(interval * i128::from(self.limit))?);
        let increment = i128::from(fits(interval * i128::from(quantity))?);
        let next = due.max(now) + increment;
        let early = next - tolerance - now;
        let is_limited = early > 0;
        let reset_after = if is_limited { due - now } else { next - now };
        let left = tolerance - reset_after;
        Some(Taken {
            due: if is_limited { None } else { Some(fits(next)?) },
            remaining: if left > 0 { fits(left / interval)? } else { 0 },
            retry_after: (is_limited && increment <= tolerance).then_some(early),
            reset_after,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // The cases of redis-cell's own test: five at once, one in a second.
    fn rates_are_limited_as_in_redis_cell() {
        let rate = Rate { limit: 5, interval: 1_000_000_000 };
        let (start, mut due) = (1_000_000 * NS_PER_SECOND, None);
        #[rustfmt::skip] // A table: ms since the start, quantity; left, ms to reset and to retry, limited.
        let cases = [
            (0, 6, 5, 0, -1, true),
            (0, 1, 4, 1_000, -1, false), (0, 1, 3, 2_000, -1, false), (0, 1, 2, 3_000, -1, false),
            (0, 1, 1, 4_000, -1, false), (0, 1, 0, 5_000, -1, false), (0, 1, 0, 5_000, 1_000, true),
            (3_000, 1, 2, 3_000, -1, false), (3_100, 1, 1, 3_900, -1, false),
            (4_000, 1, 1, 4_000, -1, false), (8_000, 1, 4, 1_000, -1, false),
            (9_500, 1, 4, 1_000, -1, false), (9_500, 0, 4, 1_000, -1, false),
            (9_500, 2, 2, 3_000, -1, false), (9_500, 5, 2, 3_000, 3_000, true),
        ];
        for (at, case) in cases.into_iter().enumerate() {
            let now = start + i128::from(case.0) * NS_PER_MS;
            let taken = rate.take(due.unwrap_or(now), now, case.1).expect("it fits");
            due = taken.due.map(i128::from).or(due);
            let retry_after = taken.retry_after.map_or(-1, |ns| ns / NS_PER_MS);
            let found = (taken.remaining, taken.reset_after / NS_PER_MS, retry_after);
            assert_eq!(found, (case.2, case.3, case.4), "case {at}");
            assert_eq!(taken.due.is_none(), case.5, "case {at}");
        }
    }

    // A quantity far beyond the limit is refused, though its due time would overflow.
    #[test]
    fn a_refused_quantity_may_overflow_the_due_time() {
        let rate = Rate { limit: 5, interval: 1_000_000_000 };
        let now = 1_700_000_000 * NS_PER_SECOND;
        let taken = rate.take(now, now, 8_000_000_000).expect("nothing is kept");
        assert_eq!((taken.due, taken.remaining, taken.retry_after), (None, 5, None));
        let patient = Rate { limit: 8_000_000_000, ..rate };
        assert!(patient.take(now, now, 8_000_000_000).is_none(), "it cannot be kept");
    }

    #[test] // Less than a millisecond is ignored.
    fn seconds_are_rounded_up() {
        let cases = [(0, 0), (999_999, 0), (1_000_000, 1), (2_000_000_000, 2), (2_001_000_000, 3)];
        cases.into_iter().for_each(|(ns, expected)| assert_eq!(seconds(ns), expected, "{ns}"));
    }
}

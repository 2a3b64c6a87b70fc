//! EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT: when a key dies.

use crate::expiry::Unit;
use darter_base::number;
use darter_command::{Args, Cx, Flow, Refusal};

/// Under which conditions a deadline is set. No deadline counts as later than any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Conditions {
    /// Only if there is no deadline.
    nx: bool,
    /// Only if there is a deadline.
    xx: bool,
    /// Only if the new one is later.
    gt: bool,
    /// Only if the new one is earlier.
    lt: bool,
}

impl Conditions {
    /// Reads all arguments that are left.
    fn parse(mut args: Args<'_>) -> Result<Self, Refusal> {
        let mut all = Self::default();
        while let Some(word) = args.next() {
            let known = [
                ("NX", &mut all.nx),
                ("XX", &mut all.xx),
                ("GT", &mut all.gt),
                ("LT", &mut all.lt),
            ];
            let named =
                known.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()));
            let Some((_, set)) = named else {
                let word = String::from_utf8_lossy(word);
                return Err(Refusal::line(format!("ERR Unsupported option {word}")));
            };
            *set = true;
        }
        if all.nx && (all.xx || all.gt || all.lt) {
            let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
            return Err(Refusal::line(text));
        }
        if all.gt && all.lt {
            let text = "ERR GT and LT options at the same time are not compatible";
            return Err(Refusal::line(text));
        }
        Ok(all)
    }

    /// True when a key with the deadline `old` may get the deadline `new`.
    fn allow(self, old: Option<u64>, new: i64) -> bool {
        let old = old.map(|old| i64::try_from(old).unwrap_or(i64::MAX));
        !(self.nx && old.is_some()
            || self.xx && old.is_none()
            || self.gt && old.is_none_or(|old| new <= old)
            || self.lt && old.is_some_and(|old| new >= old))
    }
}

/// `EXPIRE key seconds [NX | XX | GT | LT]`: sets the deadline of `key`, counted from now.
///
/// A deadline that has passed already removes the key. Reply: 1, or 0 when the key is absent or a
/// condition does not hold. Refusals: an unknown option or two that contradict each other,
/// `NotAnInteger`, `InvalidExpire` when the time does not fit. Cost: O(1).
/// Source: <https://redis.io/commands/expire> (1.0.0, options 7.0.0).
pub(super) fn expire(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    set(cx, args, Unit::Seconds, "expire")
}

/// `PEXPIRE key milliseconds [NX | XX | GT | LT]`: as EXPIRE.
/// Source: <https://redis.io/commands/pexpire> (2.6.0).
pub(super) fn pexpire(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    set(cx, args, Unit::Millis, "pexpire")
}

/// `EXPIREAT key unix-time-seconds [NX | XX | GT | LT]`: as EXPIRE, at an absolute time.
/// Source: <https://redis.io/commands/expireat> (1.2.0).
pub(super) fn expireat(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    set(cx, args, Unit::UnixSeconds, "expireat")
}

/// `PEXPIREAT key unix-time-milliseconds [NX | XX | GT | LT]`: as EXPIRE, at an absolute time.
/// Source: <https://redis.io/commands/pexpireat> (2.6.0).
pub(super) fn pexpireat(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    set(cx, args, Unit::UnixMillis, "pexpireat")
}

fn set(
    cx: &mut Cx<'_>,
    mut args: Args<'_>,
    unit: Unit,
    command: &'static str,
) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let amount = args.bytes()?;
    let conditions = Conditions::parse(args)?;
    let amount = number::parse_i64(amount).ok_or(Refusal::NotAnInteger)?;
    let at = unit.absolute(amount, cx.now).ok_or(Refusal::InvalidExpire(command.into()))?;

    let old = cx.db.get(&key).map(|found| found.deadline());
    let allowed = old.is_some_and(|old| conditions.allow(old, at));
    if allowed {
        match u64::try_from(at) {
            Ok(at) if at > cx.now => cx.db.set_deadline(&key, Some(at)),
            _ => cx.db.remove(&key),
        };
    }
    cx.reply.int(i64::from(allowed));
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_resp as resp;
    use std::sync::Arc;

    fn parse(words: &[&str]) -> Result<Conditions, Refusal> {
        let request = Arc::new(resp::Request::from_args(words.iter().map(|word| word.as_bytes())));
        Conditions::parse(Args::new(resp::Args::owned(&request), 0))
    }

    #[test]
    fn conditions_contradict_each_other() {
        assert_eq!(parse(&[]), Ok(Conditions::default()));
        let both = Conditions { xx: true, gt: true, ..Conditions::default() };
        assert_eq!(parse(&["xx", "Gt", "XX"]), Ok(both));
        for words in [&["nx", "xx"][..], &["gt", "lt"], &["lt", "nx"], &["nx", "what"]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }

    #[test] // One row: the conditions, the old deadline, whether 100 may follow it.
    fn no_deadline_is_later_than_any() {
        #[rustfmt::skip] // A table.
        let cases: &[(&[&str], Option<u64>, bool)] = &[
            (&[], None, true),       (&[], Some(5), true),
            (&["NX"], None, true),   (&["NX"], Some(5), false),
            (&["XX"], None, false),  (&["XX"], Some(5), true),
            (&["GT"], None, false),  (&["GT"], Some(99), true),   (&["GT"], Some(100), false),
            (&["LT"], None, true),   (&["LT"], Some(100), false), (&["LT"], Some(101), true),
            (&["XX", "LT"], None, false),
        ];
        for (words, old, expected) in cases {
            let conditions = parse(words).expect("they fit each other");
            assert_eq!(conditions.allow(*old, 100), *expected, "{words:?} {old:?}");
        }
    }
}

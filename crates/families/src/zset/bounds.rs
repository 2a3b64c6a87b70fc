//! The ends of ranges, as requests write them: of scores, of members, of ranks.
//!
//! | of      | closed     | open  | unbounded       |
//! |---------|------------|-------|-----------------|
//! | scores  | `1`, `inf` | `(1`  | `-inf`, `+inf`  |
//! | members | `[a`       | `(a`  | `-`, `+`        |
//! | ranks   | `0`, `-1`  |       |                 |
//!
//! The entries of a range of scores or members are neighbours, so it becomes a range of ranks.

use darter_base::score;
use darter_command::Refusal;
use darter_structs::sorted::{Place, Sorted};
use darter_structs::table::Scratch;
use std::ops::Range;

/// A range of entries.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bounds<'a> {
    /// By rank, both ends included; negative ones count from the end.
    Ranks(i64, i64),
    /// By score.
    Scores(Limit<f64>, Limit<f64>),
    /// By member; members are in order where all scores are the same.
    Members(Limit<&'a [u8]>, Limit<&'a [u8]>),
}

/// One end of a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Limit<T> {
    /// Before everything.
    Least,
    /// This is in the range.
    Closed(T),
    /// This is not.
    Open(T),
    /// Behind everything.
    Greatest,
}

impl<'a> Bounds<'a> {
    /// Reads the ends of a range of scores.
    pub(super) fn scores(min: &[u8], max: &[u8]) -> Result<Self, Refusal> {
        let refusal = Refusal::line("ERR min or max is not a float");
        let ends = score_limit(min).zip(score_limit(max));
        ends.map(|(min, max)| Self::Scores(min, max)).ok_or(refusal)
    }

    /// Reads the ends of a range of members.
    pub(super) fn members(min: &'a [u8], max: &'a [u8]) -> Result<Self, Refusal> {
        let refusal = Refusal::line("ERR min or max not valid string range item");
        let ends = member_limit(min).zip(member_limit(max));
        ends.map(|(min, max)| Self::Members(min, max)).ok_or(refusal)
    }

    /// The ranks of the entries in the range; with `back`, counted from the highest entry.
    pub(super) fn ranks(&self, set: &Sorted, back: bool) -> Range<usize> {
        let (start, end) = match *self {
            Self::Ranks(start, stop) => {
                let (start, end) = positions(start, stop, set.len());
                if back { (set.len() - end, set.len() - start) } else { (start, end) }
            }
            Self::Scores(min, max) => {
                let place = |limit: Limit<f64>, is_end| {
                    set.rank_of(limit.place(is_end, Place::BeforeScore, Place::AfterScore))
                };
                (place(min, false), place(max, true))
            }
            // Empty unless the set's last member reaches the start and its first one the end: as in
            // Redis, where scores differ.
            Self::Members(min, max) if !has_ends(set, min, max) => (0, 0),
            Self::Members(min, max) => {
                let place = |limit: Limit<&'a [u8]>, is_end| {
                    set.rank_of(limit.place(is_end, Place::BeforeMember, Place::AfterMember))
                };
                (place(min, false), place(max, true))
            }
        };
        start..end.max(start)
    }
}

fn has_ends(set: &Sorted, min: Limit<&[u8]>, max: Limit<&[u8]>) -> bool {
    let ends = set.get(0).zip(set.get(set.len().saturating_sub(1)));
    ends.is_some_and(|(first, last)| {
        min.admits(false, last.member().bytes(&mut Scratch::new()))
            && max.admits(true, first.member().bytes(&mut Scratch::new()))
    })
}

impl Limit<&[u8]> {
    /// Whether a member is after the start of a range, or before its end.
    fn admits(self, is_end: bool, member: &[u8]) -> bool {
        let compared = |at: &[u8]| if is_end { at.cmp(member) } else { member.cmp(at) };
        match self {
            Self::Least => !is_end,
            Self::Greatest => is_end,
            Self::Closed(at) => compared(at).is_ge(),
            Self::Open(at) => compared(at).is_gt(),
        }
    }
}

impl<'a, T> Limit<T> {
    /// The rank at which a range with this limit begins, or ends.
    fn place(
        self,
        is_end: bool,
        before: fn(T) -> Place<'a>,
        after: fn(T) -> Place<'a>,
    ) -> Place<'a> {
        match self {
            Self::Least => Place::Start,
            Self::Greatest => Place::End,
            Self::Closed(at) => {
                if is_end {
                    after(at)
                } else {
                    before(at)
                }
            }
            Self::Open(at) => {
                if is_end {
                    before(at)
                } else {
                    after(at)
                }
            }
        }
    }
}

/// The first and one past the last of `len` entries, from the first and the last as a client counts
/// them. Without any, both are the same.
fn positions(start: i64, stop: i64, len: usize) -> (usize, usize) {
    let from_front = |at: i64| match usize::try_from(at) {
        Ok(at) => Some(at),
        Err(_) => len.checked_sub(usize::try_from(at.unsigned_abs()).unwrap_or(usize::MAX)),
    };
    let start = from_front(start).unwrap_or(0).min(len);
    let end = from_front(stop).map_or(0, |stop| stop.saturating_add(1)).min(len);
    (start, end.max(start))
}

fn score_limit(word: &[u8]) -> Option<Limit<f64>> {
    match word {
        [b'(', score @ ..] => score::parse_bound(score).map(Limit::Open),
        score => score::parse_bound(score).map(Limit::Closed),
    }
}

fn member_limit(word: &[u8]) -> Option<Limit<&[u8]>> {
    match word {
        [b'[', member @ ..] => Some(Limit::Closed(member)),
        [b'(', member @ ..] => Some(Limit::Open(member)),
        // A NUL ends a text in C.
        [b'-'] | [b'-', 0, ..] => Some(Limit::Least),
        [b'+'] | [b'+', 0, ..] => Some(Limit::Greatest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Ranks are clamped to the set, as in Redis.
    fn ranks_are_counted_from_both_ends() {
        #[rustfmt::skip] // A table: start, stop, entries, the range.
        let cases = [
            (0, -1, 5, 0..5), (1, 3, 5, 1..4), (-3, -2, 5, 2..4), (-100, 100, 5, 0..5), (3, 1, 5, 3..3),
            (5, 10, 5, 5..5), (-1, -100, 5, 4..4), (0, 0, 5, 0..1), (0, -1, 0, 0..0), (i64::MIN, i64::MAX, 5, 0..5),
            (i64::MAX, i64::MAX, 5, 5..5), (0, i64::MIN, 5, 0..0),
        ];
        for (start, stop, len, range) in cases {
            assert_eq!(positions(start, stop, len), (range.start, range.end), "{start} {stop}");
        }
    }

    #[test]
    fn limits_are_read_as_by_redis() {
        use Limit::{Closed, Greatest, Least, Open};
        #[rustfmt::skip] // A table.
        let members: &[(&str, Option<Limit<&[u8]>>)] = &[
            ("-", Some(Least)), ("+", Some(Greatest)), ("[a", Some(Closed(b"a"))), ("(a", Some(Open(b"a"))),
            ("[", Some(Closed(b""))), ("(", Some(Open(b""))), ("", None), ("a", None), ("-x", None), ("++", None),
            ("-\0x", Some(Least)), ("+\0", Some(Greatest)),
        ];
        for (word, expected) in members {
            assert_eq!(member_limit(word.as_bytes()), *expected, "{word:?}");
        }
        assert_eq!(score_limit(b"(1.5"), Some(Open(1.5)));
        assert_eq!(score_limit(b"("), Some(Open(0.0)));
        assert_eq!(score_limit(b"-inf"), Some(Closed(f64::NEG_INFINITY)));
        assert_eq!(score_limit(b"((1"), None);
    }
}

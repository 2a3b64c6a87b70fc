//! A place at which a range of a sorted set begins or ends, and the entry there.

use crate::table::{HeldKey, Scratch, Text};
use darter_base::long::Long;
use std::cmp::Ordering;

/// A place between two entries: smaller entries come before it.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// Before all entries.
    Start,
    /// Before the entries with this score.
    BeforeScore(f64),
    /// After the entries with this score.
    AfterScore(f64),
    /// Before the entries with this member, whatever their scores. Meaningful in a set whose scores
    /// are all equal; in any other, an arbitrary place.
    BeforeMember(&'a [u8]),
    /// After the entries with this member, as for `BeforeMember`.
    AfterMember(&'a [u8]),
    /// Before the entry with this score and member, or where it would be.
    SortedEntry(f64, &'a [u8]),
    /// After all entries.
    End,
}

/// Compares a member with a name.
#[inline]
pub(super) fn order(member: &Text<'_>, name: &[u8]) -> Ordering {
    match member.as_raw() {
        Some(bytes) => bytes.cmp(name),
        None => member.bytes(&mut Scratch::new()).cmp(name),
    }
}

impl Place<'_> {
    /// True if an entry is before the place.
    #[inline]
    pub(super) fn is_behind(&self, score: f64, member: impl Fn(&[u8]) -> Ordering) -> bool {
        match self {
            Self::Start => false,
            Self::BeforeScore(bound) => score < *bound,
            Self::AfterScore(bound) => score <= *bound,
            Self::BeforeMember(bound) => member(bound).is_lt(),
            Self::AfterMember(bound) => member(bound).is_le(),
            Self::SortedEntry(bound, name) => {
                score < *bound || score == *bound && member(name).is_lt()
            }
            Self::End => true,
        }
    }
}

/// An entry of a sorted set, read in place.
#[derive(Clone, Copy)]
pub struct SortedEntry<'a> {
    pub(super) score: f64,
    pub(super) member: Text<'a>,
    /// The out-of-line member, if it is longer than [`super::INLINE_MAX`].
    pub(super) long: Option<&'a Long>,
}

impl<'a> SortedEntry<'a> {
    /// The score; never NaN.
    #[must_use]
    pub fn score(&self) -> f64 {
        self.score
    }

    /// The member.
    #[must_use]
    pub fn member(&self) -> Text<'a> {
        self.member
    }

    /// An owned reference to the member, if it is a long one, so that it can be read in slices.
    #[must_use]
    pub fn hold_member(&self) -> Option<HeldKey> {
        self.long.map(|long| HeldKey::of(long.clone()))
    }
}

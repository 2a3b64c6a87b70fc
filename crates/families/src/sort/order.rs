//! The order of elements: Redis's `sortCompare`.
//!
//! What decides most comparisons is a number made once an element, its *rank*: of a score its bits,
//! in the order of the scores; of a text its first eight bytes. Only where two ranks are equal are
//! texts looked at.

use super::texts::{TextId, Texts};
use darter_base::score;
use darter_command::until_nul;
use darter_keyspace::Str;
use std::cmp::Ordering;

/// Bytes of long texts compared at once.
const COMPARED: usize = 16 * 1024;
/// The longest text that may be a number.
const NUMBER_MAX: usize = 64 * 1024;

/// An element in its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// Decides, unless it is equal.
    pub(super) rank: u64,
    /// The element, or a pair with its weight.
    pub(super) text: TextId,
}

impl Item {
    /// Itself, or `other`. Without a branch: which it is cannot be predicted, and a wrong guess
    /// costs more than all else in a merge.
    #[inline(always)]
    pub(super) fn or(self, other: Self, is_other: bool) -> Self {
        let mask = u64::from(is_other).wrapping_neg();
        let rank = self.rank ^ ((self.rank ^ other.rank) & mask);
        Self { rank, text: self.text.or(other.text, mask) }
    }
}

/// What elements are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Numbers; equal ones by the elements themselves.
    Numbers,
    /// The elements' bytes.
    Texts(End),
    /// The bytes of their weights; those without one come first.
    Weights(End),
    /// Nothing: they stay in the order in which they came.
    Nothing,
}

/// Where a text ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// At its last byte.
    Whole,
    /// At the first NUL: Redis compares with `strcoll` what it does not store.
    Nul,
}

impl End {
    fn cut(self, bytes: &[u8]) -> &[u8] {
        match self {
            Self::Whole => bytes,
            Self::Nul => until_nul(bytes),
        }
    }
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub(super) by: By,
    pub(super) is_descending: bool,
}

impl Order {
    /// The rank of a text, that of the element or of its weight. `None`: it should be a number, and
    /// is none.
    pub(super) fn rank(self, text: &Str<'_>) -> Option<u64> {
        let rank = match self.by {
            By::Nothing => 0,
            By::Numbers => bits(number(text)?),
            By::Texts(end) | By::Weights(end) => prefix(text, end),
        };
        Some(if self.is_descending { !rank } else { rank })
    }

    /// The rank of an element whose weight is missing: that of 0, and before all texts.
    pub(super) fn rank_of_none(self) -> u64 {
        let rank = if self.by == By::Numbers { bits(0.0) } else { 0 };
        if self.is_descending { !rank } else { rank }
    }

    /// True when `one` comes before `other`.
    #[inline]
    pub(super) fn is_before(self, one: &Item, other: &Item, texts: &Texts) -> bool {
        one.rank < other.rank
            || one.rank == other.rank && self.compare_equal(one, other, texts) == Ordering::Less
    }

    /// The order of two items.
    pub(super) fn compare(self, one: &Item, other: &Item, texts: &Texts) -> Ordering {
        one.rank.cmp(&other.rank).then_with(|| self.compare_equal(one, other, texts))
    }

    /// The order of two items of the same rank.
    fn compare_equal(self, one: &Item, other: &Item, texts: &Texts) -> Ordering {
        let order = match self.by {
            By::Nothing => Ordering::Equal,
            By::Numbers => compare(texts, one.text, other.text, End::Whole),
            By::Texts(end) => compare(texts, one.text, other.text, end),
            By::Weights(end) => {
                compare(texts, texts.weight(one.text), texts.weight(other.text), end)
            }
        };
        if self.is_descending { order.reverse() } else { order }
    }
}

/// The number that a text is, as SORT reads it.
fn number(text: &Str<'_>) -> Option<f64> {
    if let Some(number) = text.as_int() {
        return Some(number as f64);
    }
    if text.len() > NUMBER_MAX {
        return None;
    }
    score::parse_weight(&text.to_vec())
}

/// The bits of a number, which is not NaN, in the order of numbers; 0 and -0 are equal.
fn bits(number: f64) -> u64 {
    let bits = (number + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// The first eight bytes of a text, the first one high.
fn prefix(text: &Str<'_>, end: End) -> u64 {
    let mut first = Vec::with_capacity(8);
    text.write_range(0..8, &mut first);
    let mut word = [0; 8];
    let kept = end.cut(&first);
    word[..kept.len()].copy_from_slice(kept);
    u64::from_be_bytes(word)
}

/// The order of two texts; none comes first.
fn compare(texts: &Texts, one: TextId, other: TextId, end: End) -> Ordering {
    if one == other {
        return Ordering::Equal;
    }
    if one == TextId::NONE || other == TextId::NONE {
        return (other == TextId::NONE).cmp(&(one == TextId::NONE));
    }
    texts.with(one, |one| texts.with(other, |other| compare_texts(one, other, end)))
}

fn compare_texts(one: &Str<'_>, other: &Str<'_>, end: End) -> Ordering {
    if let (Some(one), Some(other)) = (in_one_piece(one), in_one_piece(other)) {
        return end.cut(one).cmp(end.cut(other));
    }
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let len = one.len().max(other.len());
    for from in (0..len).step_by(COMPARED) {
        for (text, part) in [(one, &mut first), (other, &mut second)] {
            part.clear();
            text.write_range(from.min(text.len())..text.len().min(from + COMPARED), part);
        }
        let (first, second) = (end.cut(&first), end.cut(&second));
        let order = first.cmp(second);
        if order != Ordering::Equal || first.len() < COMPARED {
            return order;
        }
    }
    Ordering::Equal
}

fn in_one_piece<'a>(text: &Str<'a>) -> Option<&'a [u8]> {
    match text {
        Str::Inline(text) => text.as_raw(),
        Str::Blob(blob) => blob.as_slice(),
    }
}

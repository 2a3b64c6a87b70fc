//! The order of elements: Redis's `sortCompare`.
//!
//! Most comparisons are decided by an element's *rank*, a number computed once. The rank of a score
//! is its bits, mapped to the order of scores. The rank of a text is the eight bytes after the
//! common prefix of all texts. Texts are compared only if two ranks are equal.

use super::texts::{TextId, Texts};
use darter_base::score;
use darter_command::until_nul;
use darter_keyspace::Str;
use darter_structs::table::Scratch;
use std::cmp::Ordering;

/// Bytes of texts compared in one step, and the fixed cost of a comparison, in bytes.
const COMPARED: usize = 4 * 1024;
pub(super) const LOOK: usize = 48;
/// Integers up to this value are exact as scores.
pub(super) const EXACT_MAX: u64 = 1 << f64::MANTISSA_DIGITS;
/// The longest text that can be a number.
const NUMBER_MAX: usize = 64 * 1024;

/// An element during the sort.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// Decides the order, unless two ranks are equal.
    pub(super) rank: u64,
    /// The element's text, or the pair of the element and its weight.
    pub(super) text: TextId,
}

impl Item {
    /// Returns itself or `other`, without a branch: the choice is unpredictable, and a
    /// misprediction would cost more than anything else in a merge.
    #[inline(always)]
    pub(super) fn or(self, other: Self, is_other: bool) -> Self {
        let mask = u64::from(is_other).wrapping_neg();
        let rank = self.rank ^ ((self.rank ^ other.rank) & mask);
        Self { rank, text: self.text.or(other.text, mask) }
    }
}

/// The criterion by which elements are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Their values as numbers; equal numbers by the elements' texts.
    Numbers,
    /// Their bytes.
    Texts(End),
    /// The bytes of their weights; elements without a weight come first.
    Weights(End),
    /// Nothing: they stay in their original order.
    Nothing,
}

/// The end of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// At its last byte.
    Whole,
    /// At the first NUL: without STORE, Redis compares with `strcoll`.
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

/// The complete order of elements; see the module's documentation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub(super) by: By,
    pub(super) is_descending: bool,
    /// The length of the common prefix of all texts: ranks use the bytes after it.
    pub(super) skipped: usize,
}

impl Order {
    /// The rank of a text (the element or its weight). `None` if it must be a number but is not.
    pub(super) fn rank(self, text: &Str<'_>) -> Option<u64> {
        let rank = match self.by {
            By::Nothing => 0,
            By::Numbers => bits(number(text)?),
            By::Texts(end) | By::Weights(end) => eight(text, end, self.skipped),
        };
        Some(if self.is_descending { !rank } else { rank })
    }

    /// [`Order::rank`] of an integer that is compared as a number.
    pub(super) fn rank_of_int(self, number: i64) -> u64 {
        let rank = bits(number as f64);
        if self.is_descending { !rank } else { rank }
    }

    /// The cost of comparing this item with another of the same rank, in bytes.
    pub(super) fn cost(self, item: &Item, texts: &Texts) -> usize {
        match (self.by, item.text.as_int()) {
            (By::Nothing, _) => 0,
            (By::Numbers, Some(number)) if number.unsigned_abs() <= EXACT_MAX => 0,
            (By::Weights(_), _) => LOOK + texts.len(texts.weight(item.text)),
            _ => LOOK + texts.len(texts.element(item.text)),
        }
    }

    /// The rank of an element without a weight: as a number that of 0, as a text before all others.
    pub(super) fn rank_of_none(self) -> u64 {
        let rank = if self.by == By::Numbers { bits(0.0) } else { 0 };
        if self.is_descending { !rank } else { rank }
    }

    /// Compares two items of the same rank, whose texts agree in their first `at` bytes. `None` if
    /// `budget` is used up first; then `at` has advanced.
    pub(super) fn compare(
        self,
        (one, other): (&Item, &Item),
        texts: &Texts,
        at: &mut usize,
        budget: &mut usize,
    ) -> Option<Ordering> {
        debug_assert_eq!(one.rank, other.rank, "the ranks decide");
        *budget = budget.saturating_sub(LOOK);
        let order = match self.by {
            By::Nothing => Ordering::Equal,
            By::Numbers => compare(texts, (one.text, other.text), End::Whole, at, budget)?,
            By::Texts(end) => compare(texts, (one.text, other.text), end, at, budget)?,
            By::Weights(end) => {
                let weights = (texts.weight(one.text), texts.weight(other.text));
                compare(texts, weights, end, at, budget)?
            }
        };
        Some(if self.is_descending { order.reverse() } else { order })
    }

    /// [`Order::compare`] to the end, for short texts.
    pub(super) fn compare_all(self, one: &Item, other: &Item, texts: &Texts) -> Ordering {
        let (mut at, mut budget) = (0, usize::MAX);
        self.compare((one, other), texts, &mut at, &mut budget).unwrap_or(Ordering::Equal)
    }
}

/// The number that a text stands for, as SORT reads it.
fn number(text: &Str<'_>) -> Option<f64> {
    if let Some(number) = text.as_int() {
        return Some(number as f64);
    }
    if text.len() > NUMBER_MAX {
        return None;
    }
    score::parse_weight(&text.to_vec())
}

/// Maps a number (not NaN) to bits in the order of numbers; 0 and -0 are equal.
fn bits(number: f64) -> u64 {
    let bits = (number + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// Eight bytes of a text from `at` on, as a big-endian number.
fn eight(text: &Str<'_>, end: End, at: usize) -> u64 {
    let mut word = [0; 8];
    window(text, at, word.len(), |bytes| {
        let kept = end.cut(bytes);
        word[..kept.len()].copy_from_slice(kept);
    });
    u64::from_be_bytes(word)
}

/// Calls `f` with at most `len` bytes of a text from `at` on.
fn window<R>(text: &Str<'_>, at: usize, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
    if let Str::Inline(text) = text {
        let mut scratch = Scratch::new();
        let bytes = text.bytes(&mut scratch);
        return f(&bytes[at.min(bytes.len())..bytes.len().min(at + len)]);
    }
    let mut bytes = Vec::with_capacity(len);
    text.write_range(at.min(text.len())..text.len().min(at + len), &mut bytes);
    f(&bytes)
}

/// Finds the common prefix of all texts, up to [`COMMON_MAX`] bytes.
#[derive(Debug, Default)]
pub(super) struct Common(Option<Vec<u8>>);

/// The longest common prefix that is detected.
const COMMON_MAX: usize = 64;

impl Common {
    /// Adds a text. Returns the length of the common prefix of all so far.
    pub(super) fn add(&mut self, text: &Str<'_>, end: End) -> usize {
        window(text, 0, COMMON_MAX, |bytes| {
            let bytes = end.cut(bytes);
            let common = self.0.get_or_insert_with(|| bytes.to_vec());
            if bytes.starts_with(common) {
                return common.len();
            }
            let same = common.iter().zip(bytes).take_while(|(one, other)| one == other).count();
            common.truncate(same);
            same
        })
    }
}

/// Compares two texts; a missing text comes first. See [`Order::compare`].
fn compare(
    texts: &Texts,
    (one, other): (TextId, TextId),
    end: End,
    at: &mut usize,
    budget: &mut usize,
) -> Option<Ordering> {
    if one == other {
        return Some(Ordering::Equal);
    }
    if one == TextId::NONE || other == TextId::NONE {
        return Some((other == TextId::NONE).cmp(&(one == TextId::NONE)));
    }
    texts.with(one, |one| texts.with(other, |other| compare_texts((one, other), end, at, budget)))
}

fn compare_texts(
    (one, other): (&Str<'_>, &Str<'_>),
    end: End,
    at: &mut usize,
    budget: &mut usize,
) -> Option<Ordering> {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    loop {
        let first = end.cut(part(one, *at, &mut first));
        let second = end.cut(part(other, *at, &mut second));
        let (order, len) = (first.cmp(second), first.len());
        *budget = budget.saturating_sub(len.min(second.len()));
        if order != Ordering::Equal || len < COMPARED {
            return Some(order);
        }
        *at += COMPARED;
        if *budget == 0 {
            return None;
        }
    }
}

/// The next bytes of a text, in one piece.
fn part<'a>(text: &Str<'a>, at: usize, copy: &'a mut Vec<u8>) -> &'a [u8] {
    let range = at.min(text.len())..text.len().min(at + COMPARED);
    let whole = match text {
        Str::Inline(text) => text.as_raw(),
        Str::Blob(blob) => blob.as_slice(),
    };
    if let Some(whole) = whole {
        return &whole[range];
    }
    copy.clear();
    text.write_range(range, copy);
    copy
}

//! The order of elements: Redis's `sortCompare`.
//!
//! Most comparisons are decided by a number made once an element, its *rank*: for a score its bits,
//! in the order of the scores; for a text eight of its bytes, the first one after the common
//! beginning of all texts. Only where two ranks are equal are texts looked at.

use super::texts::{TextId, Texts};
use darter_base::score;
use darter_command::until_nul;
use darter_keyspace::Str;
use darter_structs::table::Scratch;
use std::cmp::Ordering;

/// Bytes of texts compared at once, and the further cost of a comparison, in bytes.
const COMPARED: usize = 4 * 1024;
pub(super) const LOOK: usize = 48;
/// Integers up to this have different scores.
pub(super) const EXACT_MAX: u64 = 1 << f64::MANTISSA_DIGITS;
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

/// The sort key of elements.
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

/// The end of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// At its last byte.
    Whole,
    /// At the first NUL: Redis compares with `strcoll` if it does not store.
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
    /// The length of the common prefix of all texts: ranks use the bytes after it.
    pub(super) skipped: usize,
}

impl Order {
    /// The rank of a text, that of the element or of its weight. `None`: it should be a number, and
    /// is none.
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

    /// The cost of comparing this item with one of the same rank, in bytes.
    pub(super) fn cost(self, item: &Item, texts: &Texts) -> usize {
        match (self.by, item.text.as_int()) {
            (By::Nothing, _) => 0,
            (By::Numbers, Some(number)) if number.unsigned_abs() <= EXACT_MAX => 0,
            (By::Weights(_), _) => LOOK + texts.len(texts.weight(item.text)),
            _ => LOOK + texts.len(texts.element(item.text)),
        }
    }

    /// The rank of an element whose weight is missing: that of 0, and before all texts.
    pub(super) fn rank_of_none(self) -> u64 {
        let rank = if self.by == By::Numbers { bits(0.0) } else { 0 };
        if self.is_descending { !rank } else { rank }
    }

    /// The order of two items of the same rank, whose texts are the same in their first `at` bytes.
    /// `None` when `budget` is used up before it is known: then `at` has moved.
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

    /// [`Order::compare`] to the end: for short texts.
    pub(super) fn compare_all(self, one: &Item, other: &Item, texts: &Texts) -> Ordering {
        let (mut at, mut budget) = (0, usize::MAX);
        self.compare((one, other), texts, &mut at, &mut budget).unwrap_or(Ordering::Equal)
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

/// Eight bytes of a text from `at` on, the first one high.
fn eight(text: &Str<'_>, end: End, at: usize) -> u64 {
    let mut word = [0; 8];
    window(text, at, word.len(), |bytes| {
        let kept = end.cut(bytes);
        word[..kept.len()].copy_from_slice(kept);
    });
    u64::from_be_bytes(word)
}

/// Calls `f` with `len` bytes of a text from `at` on, or with those that there are.
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

/// The common beginning of all texts, as far as they are compared: at most [`COMMON_MAX`] bytes.
#[derive(Debug, Default)]
pub(super) struct Common(Option<Vec<u8>>);

/// Bytes of a common beginning that are looked for.
const COMMON_MAX: usize = 64;

impl Common {
    /// Adds a text. Returns how many bytes all have in common.
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

/// The order of two texts; none comes first. See [`Order::compare`].
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

//! The texts of elements and weights during a sort: small texts are copied into chunks, long ones
//! are shared.
//!
//! ```text
//! id:   number << 3 | INT        an integer of at most 61 bits, stored in the id
//!       place  << 3 | SHORT      | len: 2 | bytes |
//!       index  << 3 | LONG       a blob, or a long name
//!       place  << 3 | PAIR       | id: 8 | id: 8 |, an element and its weight
//!       NONE                     there is no text: a weight whose key is missing
//! ```
//! Not here: the order. See `order`.

use crate::chunks::Chunks;
use darter_base::number::{I64_TEXT_MAX, i64_text};
use darter_keyspace::Str;
use darter_structs::blob::Blob;
use darter_structs::table::{HeldKey, Scratch, Text};

/// Longest text that is copied.
const SHORT_MAX: usize = 1_024;
/// Bytes of a chunk of short texts.
const CHUNK: usize = 32 * 1024;
/// Long texts in a chunk. Each may be the last reference to memory that is then freed.
const LONGS: usize = 8;

const TAG_BITS: u32 = 3;
const INT: u64 = 0;
const SHORT: u64 = 1;
const LONG: u64 = 2;
const PAIR: u64 = 3;

const _: () = assert!(SHORT_MAX + 2 <= CHUNK);

/// The id of a text in [`Texts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextId(u64);

impl TextId {
    /// No text.
    pub(super) const NONE: Self = Self(7);

    fn of(value: usize, tag: u64) -> Self {
        Self((value as u64) << TAG_BITS | tag)
    }

    fn tag(self) -> u64 {
        self.0 & ((1 << TAG_BITS) - 1)
    }

    fn value(self) -> usize {
        (self.0 >> TAG_BITS) as usize
    }

    /// Returns itself if `mask` is 0, and `other` if all bits of `mask` are set.
    #[inline(always)]
    pub(super) fn or(self, other: Self, mask: u64) -> Self {
        Self(self.0 ^ ((self.0 ^ other.0) & mask))
    }

    /// The integer, if the id stores one.
    pub(super) fn as_int(self) -> Option<i64> {
        (self.tag() == INT).then_some(self.0.cast_signed() >> TAG_BITS)
    }
}

/// The form in which an element is returned.
pub(super) enum Shown<'a> {
    /// There is no value.
    Nothing,
    Text(&'a Str<'a>),
    /// A long name, in one piece.
    Name(&'a HeldKey),
}

/// A long text.
enum Long {
    Blob(Blob),
    Name(HeldKey),
}

/// The texts; see the module's documentation.
#[derive(Default)]
pub(super) struct Texts {
    short: Chunks<u8, CHUNK>,
    long: Chunks<Long, LONGS>,
}

impl Texts {
    /// Adds a text; `hold` returns a reference to it if it is a long name.
    pub(super) fn push(
        &mut self,
        text: &Str<'_>,
        hold: impl FnOnce() -> Option<HeldKey>,
    ) -> TextId {
        let text = match text {
            Str::Blob(blob) => return self.push_long(Long::Blob(blob.reader())),
            Str::Inline(text) => text,
        };
        if let Some(number) = text.as_int() {
            return self.push_number(number);
        }
        let mut scratch = Scratch::new();
        let bytes = text.bytes(&mut scratch);
        if bytes.len() <= SHORT_MAX {
            return self.push_short(bytes);
        }
        let name = hold().map(Long::Name);
        self.push_long(name.unwrap_or_else(|| Long::Blob(Blob::from(bytes))))
    }

    /// Adds the decimal text of a number.
    pub(super) fn push_number(&mut self, number: i64) -> TextId {
        if number << TAG_BITS >> TAG_BITS == number {
            return TextId((number << TAG_BITS).cast_unsigned() | INT);
        }
        self.push_short(i64_text(&mut [0; I64_TEXT_MAX], number))
    }

    /// Adds a copy of a text of `other`.
    pub(super) fn push_from(&mut self, other: &Self, id: TextId) -> TextId {
        match id.tag() {
            SHORT => self.push_short(other.short_bytes(id)),
            LONG => self.push_long(match other.long(id) {
                Long::Blob(blob) => Long::Blob(blob.clone()),
                Long::Name(name) => Long::Name(name.clone()),
            }),
            _ => id,
        }
    }

    /// Adds an element with its weight.
    pub(super) fn push_pair(&mut self, element: TextId, weight: TextId) -> TextId {
        let tail = self.short.tail(16);
        tail.extend_from_slice(&element.0.to_le_bytes());
        tail.extend_from_slice(&weight.0.to_le_bytes());
        TextId::of(self.place_before(16), PAIR)
    }

    /// The element of a pair; any other text is the element itself.
    pub(super) fn element(&self, id: TextId) -> TextId {
        if id.tag() == PAIR { self.part(id, 0) } else { id }
    }

    /// The weight of a pair.
    pub(super) fn weight(&self, id: TextId) -> TextId {
        debug_assert_eq!(id.tag(), PAIR, "{id:?} has no weight");
        self.part(id, 8)
    }

    /// Calls `f` with a text, which is not [`TextId::NONE`].
    pub(super) fn with<R>(&self, id: TextId, f: impl FnOnce(&Str<'_>) -> R) -> R {
        let mut digits = [0; I64_TEXT_MAX];
        let bytes = match (id.as_int(), id.tag()) {
            (Some(number), _) => i64_text(&mut digits, number),
            (None, SHORT) => self.short_bytes(id),
            _ => match self.long(id) {
                Long::Blob(blob) => return f(&Str::Blob(blob)),
                Long::Name(name) => name.bytes(),
            },
        };
        f(&Str::Inline(Text::raw(bytes)))
    }

    /// The approximate length of a text; 0 for [`TextId::NONE`].
    pub(super) fn len(&self, id: TextId) -> usize {
        match id.tag() {
            INT => I64_TEXT_MAX,
            SHORT => self.short_len(id),
            LONG => match self.long(id) {
                Long::Blob(blob) => blob.len(),
                Long::Name(name) => name.bytes().len(),
            },
            _ => 0,
        }
    }

    /// Calls `f` with a text in the form in which it is returned.
    pub(super) fn show<R>(&self, id: TextId, f: impl FnOnce(Shown<'_>) -> R) -> R {
        if id.tag() == LONG
            && let Long::Name(name) = self.long(id)
        {
            return f(Shown::Name(name));
        }
        self.with(id, |text| f(Shown::Text(text)))
    }

    /// Removes all texts; call this only with a few.
    pub(super) fn clear(&mut self) {
        self.short.clear();
        self.long.clear();
    }

    /// Bytes of memory held for the sort.
    pub(super) fn memory_bytes(&self) -> usize {
        self.short.memory_bytes() + self.long.memory_bytes()
    }

    fn push_short(&mut self, bytes: &[u8]) -> TextId {
        let tail = self.short.tail(bytes.len() + 2);
        let len = bytes.len() as u16; // At most `SHORT_MAX`.
        tail.extend_from_slice(&len.to_le_bytes());
        tail.extend_from_slice(bytes);
        TextId::of(self.place_before(bytes.len() + 2), SHORT)
    }

    fn push_long(&mut self, long: Long) -> TextId {
        self.long.tail(1).push(long);
        let (chunk, len) = self.long.end();
        TextId::of(chunk * LONGS + len - 1, LONG)
    }

    /// The place of the last `bytes` bytes.
    fn place_before(&self, bytes: usize) -> usize {
        let (chunk, len) = self.short.end();
        chunk * CHUNK + len - bytes
    }

    fn part(&self, id: TextId, offset: usize) -> TextId {
        let bytes = self.bytes(id.value() + offset, 8);
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        TextId(u64::from_le_bytes(word))
    }

    fn short_bytes(&self, id: TextId) -> &[u8] {
        // An empty text may be at the very end of its chunk.
        &self.bytes(id.value(), 2 + self.short_len(id))[2..]
    }

    fn short_len(&self, id: TextId) -> usize {
        let len = self.bytes(id.value(), 2);
        usize::from(len[0]) | usize::from(len[1]) << 8
    }

    fn bytes(&self, place: usize, len: usize) -> &[u8] {
        &self.short.chunks()[place / CHUNK][place % CHUNK..][..len]
    }

    fn long(&self, id: TextId) -> &Long {
        debug_assert_eq!(id.tag(), LONG, "{id:?} is no text");
        &self.long.chunks()[id.value() / LONGS][id.value() % LONGS]
    }
}

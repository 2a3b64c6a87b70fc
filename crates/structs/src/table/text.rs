//! Byte strings as stored in entries: raw, or packed if they are a canonical integer or a canonical
//! UUID.
//!
//! A third of the keys and members in practice are one of the two, and both are wasteful as text:
//! the 36 characters of a UUID fit 16 bytes, and the eight digits of ten million fit 25 bits.
//! Packing is invisible, because a text is packed only if unpacking restores it byte for byte. So
//! equal texts have equal packed forms, and a lookup compares packed bytes.
//!
//! ```text
//! Raw    | length: varint | bytes ...      |
//! Int    | zigzag(value): varint           |   1 to 9 bytes, "0" to i64::MIN
//! Uuid   | 16 bytes, in the text's order   |   lower case, dashes at 8, 13, 18 and 23
//! varint | low bits of the value, and below them as many 1s as bytes follow, then a 0 |
//! ```
//! The varint's first byte gives its length, so it is decoded without a loop.
//!
//! Not here: the layout of an entry. See `entry`.

use super::entry::KEY_INLINE_MAX;
use super::pack::Joined;
use darter_base::number;
use std::fmt;
use std::mem::MaybeUninit;

/// A buffer to unpack a [`Text`] into; its longest use is for a name in a pack that is stored in
/// two pieces.
#[derive(Clone)]
pub struct Scratch([MaybeUninit<u8>; KEY_INLINE_MAX]);

impl Scratch {
    /// A buffer for one text.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self([MaybeUninit::uninit(); KEY_INLINE_MAX])
    }

    /// Copies two texts into the buffer, one after another.
    #[inline]
    fn join(&mut self, first: &[u8], rest: &[u8]) -> &[u8] {
        let len = first.len() + rest.len();
        let room = &mut self.0[..len];
        let (left, right) = room.split_at_mut(first.len());
        left.iter_mut().zip(first).for_each(|(to, byte)| _ = to.write(*byte));
        right.iter_mut().zip(rest).for_each(|(to, byte)| _ = to.write(*byte));
        // SAFETY: `len` bytes have just been written.
        unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), len) }
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("room for a text")
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// A byte string inside a table: raw, or a packed integer or UUID that reads as its text.
#[derive(Clone, Copy)]
pub struct Text<'a>(pub(super) Form<'a>);

/// The stored form of a text.
#[derive(Clone, Copy)]
pub(super) enum Form<'a> {
    Raw(&'a [u8]),
    Int(i64),
    Uuid(&'a [u8; UUID_BYTES]),
    /// A text in two pieces; never an integer or a UUID.
    Joined(Joined<'a>),
}

const _: () = assert!(size_of::<Text<'_>>() <= 24);

/// Bytes of a packed UUID.
pub(super) const UUID_BYTES: usize = 16;
/// Characters of a UUID's text.
const UUID_CHARS: usize = 36;
/// Longest varint.
pub(super) const VARINT_MAX: usize = 9;

impl<'a> Text<'a> {
    /// An unpacked text, for callers with plain bytes where a `Text` is expected.
    #[must_use]
    pub fn raw(bytes: &'a [u8]) -> Self {
        Self(Form::Raw(bytes))
    }

    /// The length of the text, unpacked. Cost: a few nanoseconds.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {
            Form::Raw(bytes) => bytes.len(),
            Form::Uuid(_) => UUID_CHARS,
            Form::Int(value) => int_chars(value),
            Form::Joined(joined) => joined.texts().0.len() + joined.texts().1.len(),
        }
    }

    /// True for the empty string.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Form::Raw([]))
    }

    /// Appends the text to `out`.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        match self.0 {
            Form::Raw(bytes) => out.extend_from_slice(bytes),
            Form::Int(value) => number::write_i64(out, value),
            Form::Uuid(packed) => out.extend_from_slice(&uuid_text(packed)),
            Form::Joined(joined) => {
                out.extend_from_slice(joined.texts().0);
                out.extend_from_slice(joined.texts().1);
            }
        }
    }

    /// The text as a new vector.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        self.write_to(&mut out);
        out
    }

    /// The value, if the text is a canonical decimal `i64`. Cost: O(1) without parsing, unless the
    /// text came from [`Text::raw`].
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        match self.0 {
            Form::Int(value) => Some(value),
            Form::Raw(bytes) => parse_int(bytes),
            Form::Uuid(_) | Form::Joined(..) => None,
        }
    }

    /// The text's bytes: in place if it is raw, otherwise unpacked into `scratch`.
    #[inline]
    #[must_use]
    pub fn bytes<'s>(&'s self, scratch: &'s mut Scratch) -> &'s [u8] {
        if let Form::Raw(bytes) = self.0 { bytes } else { self.unpacked(scratch) }
    }

    /// [`Text::bytes`] for a text that is not raw.
    fn unpacked<'s>(&'s self, scratch: &'s mut Scratch) -> &'s [u8] {
        match self.0 {
            Form::Raw(bytes) => bytes,
            Form::Uuid(packed) => scratch.join(&uuid_text(packed), &[]),
            Form::Int(value) => {
                let mut text = [0; number::I64_TEXT_MAX];
                scratch.join(number::i64_text(&mut text, value), &[])
            }
            Form::Joined(joined) => scratch.join(joined.texts().0, joined.texts().1),
        }
    }

    /// The bytes in place, if the text is stored raw; they live as long as the entry.
    #[must_use]
    pub fn as_raw(&self) -> Option<&'a [u8]> {
        match self.0 {
            Form::Raw(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The hash of the text, equal to `darter_base::hash::of`.
    #[inline]
    #[must_use]
    pub fn hash(&self) -> u64 {
        // Each form is hashed separately, so that its text goes from registers to the hash, not
        // through memory.
        match self.0 {
            Form::Raw(bytes) => darter_base::hash::of(bytes),
            Form::Uuid(packed) => darter_base::hash::of(&uuid_text(packed)),
            Form::Int(value) => {
                let mut text = [0; number::I64_TEXT_MAX];
                darter_base::hash::of(number::i64_text(&mut text, value))
            }
            Form::Joined(joined) => {
                let mut scratch = Scratch::new();
                darter_base::hash::of(scratch.join(joined.texts().0, joined.texts().1))
            }
        }
    }
}

impl PartialEq<[u8]> for Text<'_> {
    fn eq(&self, other: &[u8]) -> bool {
        let mut scratch = Scratch::new();
        self.bytes(&mut scratch) == other
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", String::from_utf8_lossy(&self.to_vec()))
    }
}

/// A text in its packed form, borrowed if it is raw. Lookups compare it, and entries are written
/// from it.
pub(crate) enum Packed<'a> {
    Raw(&'a [u8]),
    Int(i64),
    /// The bytes as a number, the first byte lowest.
    Uuid(u128),
}

impl<'a> Packed<'a> {
    /// Packs `text` if it is canonical. Cost: a few nanoseconds; the length and the first byte
    /// exclude most texts.
    #[inline]
    pub(crate) fn of(text: &'a [u8]) -> Self {
        if text.len() == UUID_CHARS {
            return uuid_of(text).map_or(Self::Raw(text), Self::Uuid);
        }
        parse_int(text).map_or(Self::Raw(text), Self::Int)
    }
}

/// Parses a canonical integer; first rejects by length and first byte.
#[inline]
fn parse_int(text: &[u8]) -> Option<i64> {
    match text {
        [b'0'..=b'9' | b'-', ..] if text.len() <= number::I64_TEXT_MAX => {}
        _ => return None,
    }
    parse_numeral(text)
}

/// [`parse_int`] for a text that begins like a number. A separate function, so that the first check
/// is inlined.
fn parse_numeral(text: &[u8]) -> Option<i64> {
    if text.len() <= 8 && text[0] != b'-' {
        return parse_digits(text);
    }
    number::parse_i64(text)
}

/// Parses one to eight digits at once: each step combines neighbours, first digits, then pairs,
/// then quartets.
#[inline]
fn parse_digits(text: &[u8]) -> Option<i64> {
    if text[0] == b'0' {
        return (text.len() == 1).then_some(0);
    }
    let mut digits = [b'0'; 8];
    digits[8 - text.len()..].copy_from_slice(text);
    let value = u64::from_le_bytes(digits);
    let high = value & 0xf0f0_f0f0_f0f0_f0f0;
    let carry = value.wrapping_add(0x0606_0606_0606_0606) & 0xf0f0_f0f0_f0f0_f0f0;
    if high != 0x3030_3030_3030_3030 || carry != high {
        return None;
    }
    let value = value & 0x0f0f_0f0f_0f0f_0f0f;
    let value = value.wrapping_mul((10 << 8) + 1) >> 8;
    let value = (value & 0x00ff_00ff_00ff_00ff).wrapping_mul((100 << 16) + 1) >> 16;
    let value = (value & 0x0000_ffff_0000_ffff).wrapping_mul((10_000 << 32) + 1) >> 32;
    i64::try_from(value).ok()
}

/// The length of the decimal text of `value`.
fn int_chars(value: i64) -> usize {
    let digits = value.unsigned_abs().checked_ilog10().unwrap_or(0) as usize + 1;
    digits + usize::from(value < 0)
}

/// Folds the sign into the lowest bit, so that small negative numbers stay short.
pub(super) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// The inverse of [`zigzag`].
pub(super) fn unzigzag(folded: u64) -> i64 {
    (folded >> 1).cast_signed() ^ -(folded & 1).cast_signed()
}

/// The length of the varint of `value`: 1 to [`VARINT_MAX`].
#[inline]
pub(super) fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    if bits > 56 { VARINT_MAX } else { bits.div_ceil(7) }
}

/// The length of the varint whose first byte is `first`.
#[inline]
pub(super) fn varint_len_at(first: u8) -> usize {
    first.trailing_ones() as usize + 1
}

/// The varint of `value` as a number (its first byte lowest), and its length in bytes.
#[inline]
pub(super) fn varint(value: u64) -> (u128, usize) {
    let len = varint_len(value);
    let ones = (1 << (len - 1)) - 1;
    if len == VARINT_MAX {
        return (u128::from(value) << 8 | 0xff, len);
    }
    (u128::from(value << len | ones), len)
}

/// Writes the varint of `value` to the front of `out`, which must have room for the longest.
/// Returns its length. Further bytes of `out` are overwritten, because a copy of fixed length is
/// cheapest.
#[inline]
pub(super) fn varint_write(out: &mut [u8], value: u64) -> usize {
    let (word, len) = varint(value);
    out[..VARINT_MAX].copy_from_slice(&word.to_le_bytes()[..VARINT_MAX]);
    len
}

/// True if both are equal. Two to 32 bytes are compared as words from both ends, which may overlap:
/// cheaper than a call.
#[inline]
pub(super) fn same(left: &[u8], right: &[u8]) -> bool {
    #[inline]
    fn ends<const N: usize>(left: &[u8], right: &[u8]) -> bool {
        left.first_chunk::<N>() == right.first_chunk()
            && left.last_chunk::<N>() == right.last_chunk()
    }
    left.len() == right.len()
        && match left.len() {
            2..=3 => ends::<2>(left, right),
            4..=7 => ends::<4>(left, right),
            8..=16 => ends::<8>(left, right),
            17..=32 => ends::<16>(left, right),
            _ => left == right,
        }
}

/// Reads the varint at the front of `bytes`. Returns it with its length.
#[inline]
pub(super) fn varint_read(bytes: &[u8]) -> (u64, usize) {
    let len = varint_len_at(bytes[0]);
    if len == 1 {
        return (u64::from(bytes[0] >> 1), 1);
    }
    let word = match len {
        VARINT_MAX => return (u64::from_le_bytes(bytes_at(bytes, 1)), len),
        2 | 3 => {
            let last = u64::from(bytes[len - 1]) << (8 * (len - 1));
            u64::from(u16::from_le_bytes(bytes_at(bytes, 0))) | last
        }
        _ => {
            let last = u64::from(u32::from_le_bytes(bytes_at(bytes, len - 4))) << (8 * (len - 4));
            u64::from(u32::from_le_bytes(bytes_at(bytes, 0))) | last
        }
    };
    (word >> len, len)
}

/// `N` bytes from `at`, read as a word that may overlap another, which avoids a copy of variable
/// length.
#[inline]
fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("as long as its first byte says")
}

/// Packs the text of a canonical UUID. Cost: O(1), eight characters at a time.
fn uuid_of(text: &[u8]) -> Option<u128> {
    let text: &[u8; UUID_CHARS] = text.try_into().ok()?;
    if [text[8], text[13], text[18], text[23]] != [b'-'; 4] {
        return None;
    }
    UUID_CHUNKS.iter().rev().try_fold(0, |packed: u128, &(left, right)| {
        let mut chars = [0_u8; 8];
        chars[..4].copy_from_slice(&text[left..left + 4]);
        chars[4..].copy_from_slice(&text[right..right + 4]);
        Some(packed << 32 | u128::from(unhex(u64::from_le_bytes(chars))?))
    })
}

/// Offsets of the characters for every four bytes of a UUID: two runs of four characters.
const UUID_CHUNKS: [(usize, usize); 4] = [(0, 4), (9, 14), (19, 24), (28, 32)];

/// The text of a packed UUID, built eight characters at a time: reading words (as a hash does)
/// after smaller writes stalls.
#[inline]
fn uuid_text(packed: &[u8; UUID_BYTES]) -> [u8; UUID_CHARS] {
    const DASH: u64 = b'-' as u64;
    let four = |at: usize| hex(u32::from_le_bytes(bytes_at(packed, at)));
    // Each chunk is two runs of four characters; see `UUID_CHUNKS`. The dashes are between the
    // runs.
    let (one, two, three, last) = (four(0), four(4), four(8), four(12));
    let low = |word: u64| word & 0xffff_ffff;
    let words = [
        one,
        DASH | low(two) << 8 | DASH << 40 | (two >> 32) << 48,
        two >> 48 | DASH << 16 | low(three) << 24 | DASH << 56,
        three >> 32 | last << 32,
    ];
    let mut text = [0; UUID_CHARS];
    for (eight, word) in text.chunks_exact_mut(8).zip(words) {
        eight.copy_from_slice(&word.to_le_bytes());
    }
    text[32..].copy_from_slice(&last.to_le_bytes()[4..]);
    text
}

const ONES: u64 = 0x0101_0101_0101_0101;

/// Converts eight lower-case hexadecimal characters to four bytes; `None` if any is not one.
#[inline]
fn unhex(chars: u64) -> Option<u32> {
    let letters = (chars >> 6) & ONES; // Bit 6 distinguishes letters from digits.
    let nibbles = (chars & (ONES * 0x0f)) + letters * 9;
    if nibbles & (ONES * 0xf0) != 0 || hex_of_nibbles(nibbles) != chars {
        return None;
    }
    let pairs = ((nibbles << 4) | (nibbles >> 8)) & 0x00ff_00ff_00ff_00ff;
    let quads = (pairs | (pairs >> 8)) & 0x0000_ffff_0000_ffff;
    u32::try_from((quads | (quads >> 16)) & 0xffff_ffff).ok()
}

/// Reverses [`unhex`].
#[inline]
fn hex(four: u32) -> u64 {
    let word = u64::from(four);
    let quads = (word | (word << 16)) & 0x0000_ffff_0000_ffff;
    let pairs = (quads | (quads << 8)) & 0x00ff_00ff_00ff_00ff;
    hex_of_nibbles(((pairs >> 4) & 0x000f_000f_000f_000f) | ((pairs & 0x000f_000f_000f_000f) << 8))
}

/// The characters of eight nibbles, one nibble a byte.
#[inline]
fn hex_of_nibbles(nibbles: u64) -> u64 {
    let letters = ((nibbles + ONES * 6) >> 4) & ONES;
    nibbles + ONES * 0x30 + letters * 0x27
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;

    fn round_trip(text: &[u8]) -> Vec<u8> {
        match Packed::of(text) {
            Packed::Raw(bytes) => Text(Form::Raw(bytes)).to_vec(),
            Packed::Int(value) => Text(Form::Int(value)).to_vec(),
            Packed::Uuid(packed) => Text(Form::Uuid(&packed.to_le_bytes())).to_vec(),
        }
    }

    // Equal texts compare as equal at all lengths, and texts that differ in one byte do not.
    #[test]
    fn same_agrees_with_byte_equality() {
        let mut prng = Prng::from_seed(5);
        for len in 0..=40 {
            let text: Vec<u8> = prng.bytes(len..=len);
            assert!(same(&text, &text.clone()), "{len}");
            assert!(!same(&text, &[&text[..], b"x"].concat()), "{len}");
            for at in 0..len {
                let mut other = text.clone();
                other[at] ^= 1;
                assert!(!same(&text, &other), "{len} {at}");
            }
        }
    }

    #[test] // Texts that do not quite match a packed form stay raw.
    fn packed_texts_read_as_written() {
        #[rustfmt::skip] // A table.
        let cases: &[(&str, bool)] = &[
            ("", false), ("0", true), ("-0", false), ("00", false), ("7", true), ("-1", true),
            ("12345678", true), ("123456789", true), ("1234567a", false), ("+5", false),
            ("9223372036854775807", true), ("-9223372036854775808", true),
            ("9223372036854775808", false), ("1:", false), ("12/", false),
            ("6ba7b810-9dad-11d1-80b4-00c04fd430c8", true),
            ("6BA7b810-9dad-11d1-80b4-00c04fd430c8", false),
            ("6ba7b810-9dad-11d1-80b4-00c04fd430cg", false),
            ("6ba7b810-9dad-11d1-80b4-00c04fd430co", false),
            ("6ba7b810_9dad-11d1-80b4-00c04fd430c8", false),
            ("6ba7b810-9dad-11d1-80b4-00c04fd430c", false),
        ];
        for &(text, packed) in cases {
            assert_eq!(round_trip(text.as_bytes()), text.as_bytes());
            let is_packed = !matches!(Packed::of(text.as_bytes()), Packed::Raw(_));
            assert_eq!(is_packed, packed, "{text}");
        }
    }

    #[test]
    fn encoded_random_texts_are_read_back() {
        let mut prng = Prng::from_seed(1);
        let alphabet = b"0123456789abcdef-/:g@`AF";
        for _ in 0..if cfg!(miri) { 200 } else { 20_000 } {
            let mut text: Vec<u8> = prng.bytes(0..=40);
            text.iter_mut().for_each(|byte| *byte = alphabet[*byte as usize % alphabet.len()]);
            assert_eq!(round_trip(&text), text);
            let uuid = format!("{:016x}{:016x}", prng.next_u64(), prng.next_u64());
            let uuid = [&uuid[..8], &uuid[8..12], &uuid[12..16], &uuid[16..20], &uuid[20..]];
            let uuid = uuid.join("-").into_bytes();
            assert!(matches!(Packed::of(&uuid), Packed::Uuid(_)));
            assert_eq!(round_trip(&uuid), uuid);
            let value = prng.next_u64().cast_signed() >> prng.below(64);
            let digits = value.to_string().into_bytes();
            assert_eq!(Text(Form::Int(value)).len(), digits.len(), "{value}");
            assert!(matches!(Packed::of(&digits), Packed::Int(read) if read == value));
        }
    }

    #[test]
    fn encoded_varints_are_read_back() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1 << shift) - 1, !0 >> shift] {
                let mut bytes = [0; VARINT_MAX];
                let len = varint_write(&mut bytes, value);
                assert_eq!(varint_read(&bytes[..len]), (value, len));
                assert_eq!((varint_len(value), varint_len_at(bytes[0])), (len, len));
            }
            let value = (1_i64 << shift).wrapping_neg();
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert_eq!(varint_len(zigzag(1_000_000)), 3);
    }
}

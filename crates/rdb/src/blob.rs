//! The packed forms of small collections: intset, listpack, ziplist, zipmap.
//!
//! Redis keeps a small collection as one block of bytes and saves that block as a string. Here an
//! entry is read from the block in place; nothing is unpacked, and every offset is checked, because
//! the block is untrusted.
//!
//! ```text
//! intset:   width u32 | count u32 | integers of `width` bytes, sorted
//! listpack: bytes u32 | count u16 | entry.. | ff          entry:  coding | data | own length
//! ziplist:  bytes u32 | tail u32 | count u16 | entry.. | ff   entry: previous length | coding | data
//! zipmap:   count u8 | (len | field | len | free u8 | value | free bytes).. | ff
//! ```
//! All little-endian, except the two long string lengths of ziplists.

use darter_base::number;

/// A packed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Sorted integers.
    Intset,
    /// Entries that end in their own length.
    Listpack,
    /// Entries that begin with the length of the previous entry.
    Ziplist,
    /// Fields and values with unused bytes between them.
    Zipmap,
}

/// An entry: a range of the block, or an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// Bytes of the block.
    Text { start: usize, len: usize },
    /// An integer.
    Int(i64),
}

/// The reason why a block is invalid.
type Fault = &'static str;

const CUT: Fault = "an entry reaches past the end";
const PREVIOUS: Fault = "an entry's length of the previous one is wrong";
/// The count in the header of a listpack or ziplist with too many entries for 16 bits.
const COUNT_UNKNOWN: u16 = u16::MAX;

impl Form {
    /// The name for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Intset => "intset",
            Self::Listpack => "listpack",
            Self::Ziplist => "ziplist",
            Self::Zipmap => "zipmap",
        }
    }

    /// The start of the first entry.
    pub(super) fn first(self) -> usize {
        match self {
            Self::Intset => 8,
            Self::Listpack => 6,
            Self::Ziplist => 10,
            Self::Zipmap => 1,
        }
    }

    /// Checks the header of `block`. Returns the offset of the first entry, and the number of
    /// entries if the header has it.
    pub(super) fn open(self, block: &[u8]) -> Result<(usize, Option<u64>), Fault> {
        match self {
            Self::Intset => Ok((self.first(), Some(count_of_intset(block)?))),
            Self::Listpack => {
                let announced = checked_size(block, self.first())?;
                Ok((self.first(), count_of(announced)))
            }
            Self::Ziplist => {
                let announced = checked_size(block, self.first())?;
                let tail = u32_at(block, 4)? as usize;
                if tail < self.first() || tail >= block.len() {
                    return Err("the tail's offset is outside");
                }
                if block[self.first()] != 0xff && previous_length(block, self.first())?.0 != 0 {
                    return Err(PREVIOUS);
                }
                Ok((self.first(), count_of(announced)))
            }
            Self::Zipmap => match *block {
                [_, .., 0xff] => {
                    let pairs = block[0];
                    Ok((self.first(), (pairs < 254).then_some(u64::from(pairs) * 2)))
                }
                _ => Err("too short, or no end mark"),
            },
        }
    }

    /// The entry at `at`, and where the next one begins; `None` at the end mark. `index` counts
    /// entries: in a zipmap every second one is a value.
    pub(super) fn entry(
        self,
        block: &[u8],
        at: usize,
        index: u64,
    ) -> Result<Option<(Entry, usize)>, Fault> {
        match self {
            Self::Intset => intset_entry(block, at),
            Self::Listpack => listpack_entry(block, at),
            Self::Ziplist => ziplist_entry(block, at),
            Self::Zipmap => zipmap_entry(block, at, index % 2 == 1),
        }
    }

    /// The integer at `at`, and where the next entry begins. `None` for an entry that is text or
    /// invalid.
    #[inline]
    pub(super) fn number(self, block: &[u8], at: usize) -> Option<(i64, usize)> {
        let entry = match self {
            Self::Listpack => return listpack_number(block, at),
            Self::Intset => intset_entry(block, at).ok().flatten(),
            Self::Ziplist => ziplist_entry(block, at).ok().flatten(),
            Self::Zipmap => None, // Texts only.
        };
        match entry {
            Some((Entry::Int(number), next)) => Some((number, next)),
            _ => None,
        }
    }
}

impl Form {
    /// The text at `at`, and where the next entry begins. `None` for an entry that is an integer or
    /// invalid, and for forms with entries of several kinds.
    #[inline]
    pub(super) fn text(self, block: &[u8], at: usize) -> Option<(&[u8], usize)> {
        let entry = match self {
            Self::Listpack => return listpack_text(block, at),
            Self::Ziplist => ziplist_entry(block, at),
            Self::Intset | Self::Zipmap => return None,
        };
        match entry {
            Ok(Some((Entry::Text { start, len }, next))) => {
                Some((&block[start..start + len], next))
            }
            _ => None,
        }
    }
}

impl Entry {
    /// The entry as an integer, if it is one.
    pub(super) fn integer(self, block: &[u8]) -> Option<i64> {
        match self {
            Self::Int(value) => Some(value),
            Self::Text { start, len } => number::parse_i64(&block[start..start + len]),
        }
    }
}

/// The `N` bytes at `at`.
fn array<const N: usize>(block: &[u8], at: usize) -> Result<[u8; N], Fault> {
    let slice = block.get(at..).and_then(|rest| rest.get(..N)).ok_or(CUT)?;
    let mut array = [0; N];
    array.copy_from_slice(slice);
    Ok(array)
}

fn u32_at(block: &[u8], at: usize) -> Result<u32, Fault> {
    array(block, at).map(u32::from_le_bytes)
}

/// A string entry of `len` bytes at `start`, which must end before the block's end mark.
fn text(block: &[u8], start: usize, len: usize) -> Result<Entry, Fault> {
    if start.checked_add(len).is_none_or(|end| end >= block.len()) {
        return Err(CUT);
    }
    Ok(Entry::Text { start, len })
}

/// A signed integer of `width` bytes (at most 8), little-endian.
fn int(block: &[u8], at: usize, width: usize) -> Result<Entry, Fault> {
    let rest = block.get(at..).ok_or(CUT)?;
    let unused = 64 - 8 * width;
    // Shift the value to the top, so that shifting back extends the sign.
    let wide = match rest.first_chunk() {
        Some(eight) => i64::from_le_bytes(*eight) << unused,
        None => {
            let mut wide = [0; 8];
            wide[8 - width..].copy_from_slice(rest.get(..width).ok_or(CUT)?);
            i64::from_le_bytes(wide)
        }
    };
    Ok(Entry::Int(wide >> unused))
}

fn count_of(announced: u16) -> Option<u64> {
    (announced != COUNT_UNKNOWN).then_some(u64::from(announced))
}

/// Checks size and end mark of a listpack or ziplist; returns the count, the last 2 bytes of the
/// head.
fn checked_size(block: &[u8], head: usize) -> Result<u16, Fault> {
    if block.len() <= head || block.last() != Some(&0xff) {
        return Err("too short, or no end mark");
    }
    if u32_at(block, 0)? as usize != block.len() {
        return Err("its size differs from the string's");
    }
    array(block, head - 2).map(u16::from_le_bytes)
}

fn count_of_intset(block: &[u8]) -> Result<u64, Fault> {
    let (width, count) = (u32_at(block, 0)?, u64::from(u32_at(block, 4)?));
    if !matches!(width, 2 | 4 | 8) {
        return Err("integers are neither 2, 4 nor 8 bytes wide");
    }
    if count * u64::from(width) + 8 != block.len() as u64 {
        return Err("its count differs from the string's length");
    }
    Ok(count)
}

fn intset_entry(block: &[u8], at: usize) -> Result<Option<(Entry, usize)>, Fault> {
    let width = u32_at(block, 0)? as usize;
    let Ok(entry) = int(block, at, width) else { return Ok(None) };
    if at > Form::Intset.first()
        && int(block, at - width, width)?.integer(block) >= entry.integer(block)
    {
        return Err("its integers are not in ascending order");
    }
    Ok(Some((entry, at + width)))
}

/// Reads a listpack entry. Its own length after it must be right: backward walks rely on it.
fn listpack_entry(block: &[u8], at: usize) -> Result<Option<(Entry, usize)>, Fault> {
    let [first] = array(block, at)?;
    let low = usize::from(first);
    let (entry, end) = match first {
        0x00..=0x7f => (Entry::Int(i64::from(first)), at + 1),
        0x80..=0xbf => sized(block, at + 1, low & 0x3f)?,
        0xc0..=0xdf => {
            let [_, second] = array(block, at)?;
            let raw = i64::from(first & 0x1f) << 8 | i64::from(second);
            (Entry::Int(if raw >= 1 << 12 { raw - (1 << 13) } else { raw }), at + 2)
        }
        0xe0..=0xef => {
            let [_, second] = array(block, at)?;
            sized(block, at + 2, (low & 0x0f) << 8 | usize::from(second))?
        }
        0xf0 => sized(block, at + 5, u32_at(block, at + 1)? as usize)?,
        0xf1..=0xf4 => {
            let width = [2, 3, 4, 8][low - 0xf1];
            (int(block, at + 1, width)?, at + 1 + width)
        }
        0xf5..=0xfe => return Err("an entry's coding is unknown"),
        0xff if at + 1 == block.len() => return Ok(None),
        0xff => return Err("bytes behind the end mark"),
    };
    if let (len @ ..=127, Some(found)) = (end - at, block.get(end))
        && usize::from(*found) == len
    {
        return Ok(Some((entry, end + 1))); // Nearly all.
    }
    let mut backwards = [0; 5];
    let backwards = back_length(&mut backwards, end - at);
    match block.get(end..end + backwards.len()) {
        Some(found) if found == backwards => Ok(Some((entry, end + backwards.len()))),
        _ => Err("an entry's length behind it is wrong"),
    }
}

/// A listpack entry, if it is an integer. Two reads suffice, which is fast for long runs of them.
#[inline]
fn listpack_number(block: &[u8], at: usize) -> Option<(i64, usize)> {
    let Some(bytes) = block.get(at..).and_then(|rest| rest.first_chunk::<10>()) else {
        return match listpack_entry(block, at) {
            Ok(Some((Entry::Int(number), next))) => Some((number, next)),
            _ => None,
        };
    };
    let [first, word @ .., _] = *bytes;
    let (word, low) = (i64::from_le_bytes(word), usize::from(first));
    let (number, len) = match first {
        0x00..=0x7f => (i64::from(first), 1),
        0xc0..=0xdf => {
            const UNUSED: u32 = i64::BITS - 13;
            let raw = i64::from(first & 0x1f) << 8 | word & 0xff;
            (raw << UNUSED >> UNUSED, 2)
        }
        0xf1..=0xf4 => {
            let width = [2, 3, 4, 8][low - 0xf1];
            let unused = 64 - 8 * width;
            (word << unused >> unused, 1 + width)
        }
        _ => return None,
    };
    (usize::from(bytes[len]) == len).then_some((number, at + len + 1))
}

/// A listpack entry, if it is a text. Two reads suffice for one of at most 63 bytes.
#[inline]
fn listpack_text(block: &[u8], at: usize) -> Option<(&[u8], usize)> {
    if let first @ 0x80..=0xbf = *block.get(at)? {
        let (start, len) = (at + 1, usize::from(first & 0x3f));
        let text = block.get(start..start + len)?;
        let is_right = *block.get(start + len)? == first - 0x7f && start + len + 1 < block.len();
        return is_right.then_some((text, start + len + 1));
    }
    match listpack_entry(block, at) {
        Ok(Some((Entry::Text { start, len }, next))) => Some((&block[start..start + len], next)),
        _ => None,
    }
}

/// A string entry and where it ends.
fn sized(block: &[u8], start: usize, len: usize) -> Result<(Entry, usize), Fault> {
    Ok((text(block, start, len)?, start + len))
}

/// The trailing length of a listpack entry: 7 bits a byte, most significant first. All bytes but
/// the first have a mark, at which a backward reader continues.
pub(super) fn back_length(out: &mut [u8; 5], len: usize) -> &[u8] {
    let width = match len {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    };
    for (index, byte) in out[..width].iter_mut().enumerate() {
        let bits = (len >> (7 * (width - 1 - index))) & 0x7f;
        *byte = u8::try_from(bits).unwrap_or(0) | if index > 0 { 0x80 } else { 0 };
    }
    &out[..width]
}

/// An entry of a ziplist. The next entry must begin with its length. If it is the last, the
/// header's tail offset must point to it.
fn ziplist_entry(block: &[u8], start: usize) -> Result<Option<(Entry, usize)>, Fault> {
    if array(block, start)? == [0xff] {
        let last = start + 1 == block.len();
        return if last { Ok(None) } else { Err("bytes behind the end mark") };
    }
    let (_, at) = previous_length(block, start)?;
    let [first] = array(block, at)?;
    let low = usize::from(first & 0x3f);
    let (entry, end) = match first {
        0x00..=0x3f => sized(block, at + 1, low)?,
        0x40..=0x7f => {
            let [_, second] = array(block, at)?;
            sized(block, at + 2, low << 8 | usize::from(second))?
        }
        0x80 => sized(block, at + 5, u32::from_be_bytes(array(block, at + 1)?) as usize)?,
        0xc0 => (int(block, at + 1, 2)?, at + 3),
        0xd0 => (int(block, at + 1, 4)?, at + 5),
        0xe0 => (int(block, at + 1, 8)?, at + 9),
        0xf0 => (int(block, at + 1, 3)?, at + 4),
        0xfe => (int(block, at + 1, 1)?, at + 2),
        0xf1..=0xfd => (Entry::Int(i64::from(first & 0x0f) - 1), at + 1),
        _ => return Err("an entry's coding is unknown"),
    };
    match array(block, end)? {
        [0xff] if u32_at(block, 4)? as usize != start => Err("the tail's offset is wrong"),
        [0xff] => Ok(Some((entry, end))),
        _ if previous_length(block, end)?.0 != end - start => Err(PREVIOUS),
        _ => Ok(Some((entry, end))),
    }
}

/// The length of the previous entry, which is stored at `at`; and where that number ends.
fn previous_length(block: &[u8], at: usize) -> Result<(usize, usize), Fault> {
    match array(block, at)? {
        [0xfe] => Ok((u32_at(block, at + 1)? as usize, at + 5)),
        [length] => Ok((usize::from(length), at + 1)),
    }
}

fn zipmap_entry(block: &[u8], at: usize, is_value: bool) -> Result<Option<(Entry, usize)>, Fault> {
    let [first] = array(block, at)?;
    let (len, mut at) = match first {
        0xff if is_value => return Err("a field without a value"),
        0xff if at + 1 == block.len() => return Ok(None),
        0xff => return Err("bytes behind the end mark"),
        0xfe => (u32_at(block, at + 1)? as usize, at + 5),
        len => (usize::from(len), at + 1),
    };
    let mut free = 0;
    if is_value {
        [free] = array(block, at)?;
        at += 1;
    }
    let entry = text(block, at, len)?;
    let next = at + len + usize::from(free);
    if next >= block.len() { Err(CUT) } else { Ok(Some((entry, next))) }
}

//! Lengths, strings and numbers, parsed from bytes that may not all have arrived.
//!
//! A [`Cursor`] walks over the arrived bytes. If an element is incomplete, the cursor reports how
//! many bytes from its start are needed to continue. The reader waits for these and then parses the
//! element again from its start. Nothing is kept between attempts, and no announced length
//! allocates anything.

use crate::error::Reason;
use crate::lzf;

/// The reason why an element was not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The value needs at least this many bytes from the cursor's start.
    Short(usize),
    /// This many bytes of a long text in it have been unpacked, and more are left.
    Paused(usize),
    /// The value is invalid, at this many bytes after the cursor's start.
    Bad(usize, Reason),
}

/// A length, or one of the special encodings of strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// This many bytes or items follow.
    Plain(u64),
    /// A string in a special encoding.
    Special(u8),
}

/// The header of a string: the form and length of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// This many bytes follow.
    Raw(u64),
    /// An integer in place of a string, already read.
    Int(i64),
    /// Packed bytes follow.
    Lzf {
        /// The number of packed bytes.
        packed: u64,
        /// The unpacked length.
        len: u64,
    },
}

/// A string that has fully arrived. Offsets count from the cursor's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Text {
    /// The bytes as they are.
    Raw { start: usize, len: usize },
    /// The decimal text of an integer.
    Int(i64),
    /// The packed bytes.
    Lzf { start: usize, packed: usize, len: usize },
}

/// A position in the received bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    /// The number of bytes read.
    pub(super) at: usize,
    /// Longest string accepted.
    limit: u64,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], limit: u64) -> Self {
        Self { bytes, at: 0, limit }
    }

    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let Some(taken) = rest.get(..len) else {
            return Err(Stop::Short(self.at.saturating_add(len)));
        };
        self.at += len;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, Stop> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16_le(&mut self) -> Result<u16, Stop> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn i32_le(&mut self) -> Result<i32, Stop> {
        self.array().map(i32::from_le_bytes)
    }

    pub(super) fn u64_le(&mut self) -> Result<u64, Stop> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn i64_le(&mut self) -> Result<i64, Stop> {
        self.array().map(i64::from_le_bytes)
    }

    /// Reads a length, or the number of a special encoding.
    #[inline]
    pub(super) fn length(&mut self) -> Result<Length, Stop> {
        let start = self.at;
        let first = self.byte()?;
        let low = u64::from(first & 0x3f);
        match first {
            0x00..=0x3f => Ok(Length::Plain(low)),
            0x40..=0x7f => Ok(Length::Plain(low << 8 | u64::from(self.byte()?))),
            0x80 => self.array().map(|bytes| Length::Plain(u32::from_be_bytes(bytes).into())),
            0x81 => self.array().map(|bytes| Length::Plain(u64::from_be_bytes(bytes))),
            0x82..=0xbf => Err(Stop::Bad(start, Reason::Length(first))),
            0xc0..=0xff => Ok(Length::Special(first & 0x3f)),
        }
    }

    /// Reads a length; a special encoding is refused.
    #[inline]
    pub(super) fn count(&mut self) -> Result<u64, Stop> {
        let start = self.at;
        match self.length()? {
            Length::Plain(count) => Ok(count),
            Length::Special(code) => Err(Stop::Bad(start, Reason::StringEncoding(code))),
        }
    }

    /// Reads the header of a string, and checks it against the limit.
    #[inline]
    pub(super) fn head(&mut self) -> Result<Head, Stop> {
        let start = self.at;
        let head = match self.length()? {
            Length::Plain(len) => Head::Raw(len),
            Length::Special(0) => Head::Int(i64::from(i8::from_le_bytes(self.array()?))),
            Length::Special(1) => Head::Int(i64::from(i16::from_le_bytes(self.array()?))),
            Length::Special(2) => Head::Int(i64::from(i32::from_le_bytes(self.array()?))),
            Length::Special(3) => Head::Lzf { packed: self.count()?, len: self.count()? },
            Length::Special(code) => return Err(Stop::Bad(start, Reason::StringEncoding(code))),
        };
        match head {
            Head::Raw(len) | Head::Lzf { len, .. } if len > self.limit => {
                Err(Stop::Bad(start, Reason::TooLong { bytes: len, limit: self.limit }))
            }
            Head::Lzf { packed, .. } if packed > self.limit => {
                Err(Stop::Bad(start, Reason::TooLong { bytes: packed, limit: self.limit }))
            }
            Head::Lzf { packed, len } if lzf::absurd(packed, len) => {
                Err(Stop::Bad(start, Reason::LzfAbsurd { packed, bytes: len }))
            }
            head => Ok(head),
        }
    }

    /// Reads a whole string.
    #[inline]
    pub(super) fn text(&mut self) -> Result<Text, Stop> {
        match self.head()? {
            Head::Int(value) => Ok(Text::Int(value)),
            Head::Raw(len) => {
                let (start, len) = (self.at, size(len));
                self.take(len)?;
                Ok(Text::Raw { start, len })
            }
            Head::Lzf { packed, len } => {
                let (start, packed) = (self.at, size(packed));
                self.take(packed)?;
                Ok(Text::Lzf { start, packed, len: size(len) })
            }
        }
    }
}

/// `len` as a size in memory. Bytes that exceed the memory can never arrive.
pub(super) fn size(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(bytes: &[u8]) -> Cursor<'_> {
        Cursor::new(bytes, 1 << 20)
    }

    #[test]
    fn lengths_of_every_width_are_read() {
        let cases: &[(&[u8], u64)] = &[
            (&[0x00], 0),
            (&[0x3f], 63),
            (&[0x40, 0x40], 64),
            (&[0x7f, 0xff], 16_383),
            (&[0x80, 0, 0, 0x40, 0], 16_384),
            (&[0x81, 0, 0, 0, 1, 0, 0, 0, 0], 1 << 32),
        ];
        for (bytes, count) in cases {
            assert_eq!(cursor(bytes).count(), Ok(*count), "{bytes:?}");
            let cut = &bytes[..bytes.len() - 1];
            assert!(matches!(cursor(cut).count(), Err(Stop::Short(_))), "{cut:?}");
        }
        assert_eq!(cursor(&[0x82]).count(), Err(Stop::Bad(0, Reason::Length(0x82))));
        assert_eq!(cursor(&[0xc3]).count(), Err(Stop::Bad(0, Reason::StringEncoding(3))));
    }

    #[test]
    fn string_headers_are_parsed_or_refused() {
        assert_eq!(cursor(&[0xc0, 0x85]).text(), Ok(Text::Int(-123)));
        assert_eq!(cursor(&[0xc1, 0xb0, 0xff]).text(), Ok(Text::Int(-80)));
        assert_eq!(cursor(&[0xc2, 0, 0, 0, 0x80]).text(), Ok(Text::Int(i32::MIN.into())));
        assert_eq!(cursor(b"\x03ab").text(), Err(Stop::Short(4)));
        assert_eq!(cursor(b"\x03abcd").text(), Ok(Text::Raw { start: 1, len: 3 }));
        assert_eq!(cursor(&[0xc4]).text(), Err(Stop::Bad(0, Reason::StringEncoding(4))));
        let long = Reason::TooLong { bytes: 0xffff_ffff, limit: 1 << 20 };
        assert_eq!(cursor(&[0x80, 0xff, 0xff, 0xff, 0xff]).text(), Err(Stop::Bad(0, long)));
        let absurd = Reason::LzfAbsurd { packed: 1, bytes: 16_383 };
        assert_eq!(cursor(&[0xc3, 1, 0x7f, 0xff]).text(), Err(Stop::Bad(0, absurd)));
    }
}

//! Libraries of functions: their records in files, and the payload of FUNCTION DUMP.
//!
//! ```text
//! | 245 | text of a library, a string | .. | version u16 | CRC-64 of all before, u64 |
//! ```
//! Writing and reading work in pieces, because a text may have megabytes.

use crate::encode;
use crate::lzf::{self, Packer};
use crate::reader::Limits;
use crate::types;
use crate::wire::{Cursor, Text};

/// Appends the header of a library, and its text if that is short or packed. Returns the part of
/// the text that must follow as it is.
pub fn begin_library<'a>(
    out: &mut Vec<u8>,
    text: &'a [u8],
    packer: Option<&mut Packer>,
) -> &'a [u8] {
    out.push(types::OP_FUNCTION2);
    if text.len() > encode::PACKED_MAX {
        encode::length(out, text.len() as u64);
        return text;
    }
    match packer {
        Some(packer) => encode::packed_text(out, text, packer),
        None => encode::text(out, text),
    }
    &[]
}

/// The reason why a payload with a valid checksum is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damaged {
    /// A record of another type.
    Kind,
    /// A text that is truncated or invalidly packed.
    Text,
}

impl Damaged {
    /// The reason in Redis's words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Kind => "given type is not a function",
            Self::Text => "Failed loading library payload",
        }
    }
}

/// A library of a payload, while its text is unpacked.
#[derive(Debug)]
pub struct LibraryText<'a> {
    rest: &'a [u8],
    /// The unpacked length of a packed text; `None` for a plain one.
    unpacked: Option<usize>,
    text: Vec<u8>,
}

impl<'a> LibraryText<'a> {
    /// The first library in `records`, and the records after it. Cost: O(1).
    ///
    /// # Errors
    /// Any [`Damaged`].
    pub fn first(records: &'a [u8]) -> Result<(Self, &'a [u8]), Damaged> {
        let mut cursor = Cursor::new(records, Limits::default().string_bytes_max);
        let opcode = cursor.byte().map_err(|_| Damaged::Kind)?;
        if opcode != types::OP_FUNCTION2 {
            return Err(Damaged::Kind);
        }
        let text = cursor.text().map_err(|_| Damaged::Text)?;
        let after = &records[cursor.at..];
        Ok(match text {
            Text::Raw { start, len } => {
                let rest = &records[start..start + len];
                (Self { rest, unpacked: None, text: Vec::with_capacity(len) }, after)
            }
            Text::Int(value) => {
                (Self { rest: &[], unpacked: None, text: value.to_string().into_bytes() }, after)
            }
            // The memory grows with the bytes that arrive, not with the announced number.
            Text::Lzf { start, packed, len } => {
                let rest = &records[start..start + packed];
                (Self { rest, unpacked: Some(len), text: Vec::new() }, after)
            }
        })
    }

    /// Unpacks about `bytes_max` more bytes of the text; true when it is complete.
    ///
    /// # Errors
    /// [`Damaged::Text`].
    pub fn step(&mut self, bytes_max: usize) -> Result<bool, Damaged> {
        let Some(len) = self.unpacked else {
            let (piece, rest) = self.rest.split_at(self.rest.len().min(bytes_max));
            self.text.extend_from_slice(piece);
            self.rest = rest;
            return Ok(rest.is_empty());
        };
        let want = len.min(self.text.len() + bytes_max);
        let used = lzf::unpack(self.rest, &mut self.text, want).map_err(|_| Damaged::Text)?;
        self.rest = &self.rest[used..];
        if self.text.len() >= want && want < len {
            return Ok(false);
        }
        lzf::check(self.rest.len(), self.text.len(), len).map_err(|_| Damaged::Text)?;
        Ok(true)
    }

    /// The text.
    #[must_use]
    pub fn into_text(self) -> Vec<u8> {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;

    fn read(mut records: &[u8]) -> Result<Vec<Vec<u8>>, Damaged> {
        let mut texts = Vec::new();
        while !records.is_empty() {
            let (mut library, after) = LibraryText::first(records)?;
            while !library.step(100)? {}
            texts.push(library.into_text());
            records = after;
        }
        Ok(texts)
    }

    #[test] // Compressed or not, short, long, and like numbers.
    fn function_libraries_are_written_and_read_back() {
        let mut prng = Prng::from_seed(1);
        let mut texts: Vec<Vec<u8>> = [0, 1, 20, 21, 100, 16_384, 16_385, 100_000]
            .map(|len| b"function of nothing "[..].repeat(len / 20 + 1)[..len].to_vec())
            .to_vec();
        texts.push(b"12345".to_vec());
        texts.push((0..5_000).map(|_| prng.below(256) as u8).collect());
        let mut packer = Packer::default();
        let mut sizes = [0, 0];
        for (size, packs) in sizes.iter_mut().zip([true, false]) {
            let mut out = Vec::new();
            for text in &texts {
                let rest = begin_library(&mut out, text, packs.then_some(&mut packer));
                out.extend_from_slice(rest);
            }
            assert_eq!(read(&out).as_ref(), Ok(&texts));
            *size = out.len();
        }
        assert!(sizes[0] < sizes[1] - 16_000, "{sizes:?}");
    }

    #[test]
    fn damaged_libraries_are_refused() {
        assert_eq!(read(b"\xf6\x01a"), Err(Damaged::Kind));
        assert_eq!(read(b"\x00\x01a"), Err(Damaged::Kind));
        assert_eq!(read(b"\xf5\x02a"), Err(Damaged::Text));
        assert_eq!(read(b"\xf5"), Err(Damaged::Text));
        assert_eq!(read(b"\xf5\x80\xff\xff\xff\xff"), Err(Damaged::Text));
        assert_eq!(read(b"\xf5\xc3\x03\x05\x01aa"), Err(Damaged::Text)); // Two bytes, not five.
        assert_eq!(read(b"\xf5\xc3\x04\x03\x01aaa"), Err(Damaged::Text)); // One is left.
        assert_eq!(read(b"\xf5\xc3\x03\x05\x20\x07\x00"), Err(Damaged::Text)); // Reaches back.
        assert_eq!(read(b"\xf5\xc3\x03\x02\x01aa"), Ok(vec![b"aa".to_vec()]));
    }
}

//! The ID of a stream entry: milliseconds, and a sequence number within them.

use crate::number::{U64_TEXT_MAX, parse_i64, u64_text};
use std::fmt;

/// A stream ID, ordered by time, then by sequence number. `0-0` is before all entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Milliseconds since 1970, or another count that the client chose.
    pub ms: u64,
    /// Sequence number among the entries of the same millisecond.
    pub seq: u64,
}

impl StreamId {
    /// Longest text: two numbers, and the dash.
    pub const TEXT_MAX: usize = 2 * U64_TEXT_MAX + 1;
    /// `0-0`: before all entries.
    pub const MIN: Self = Self { ms: 0, seq: 0 };
    /// The largest possible ID.
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// The ID `ms-seq`.
    #[must_use]
    pub const fn new(ms: u64, seq: u64) -> Self {
        Self { ms, seq }
    }

    /// The next ID. `None` after the last.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The ID before. `None` before the first.
    #[must_use]
    pub fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// Reads `ms-seq`; or `ms` alone, which gets `seq` as its sequence number.
    #[must_use]
    pub fn parse(text: &[u8], seq: u64) -> Option<Self> {
        let Some(dash) = text.iter().position(|byte| *byte == b'-') else {
            return Some(Self { ms: number(text)?, seq });
        };
        Some(Self { ms: number(&text[..dash])?, seq: number(&text[dash + 1..])? })
    }

    /// The text `ms-seq`, written into `room`.
    #[must_use]
    pub fn text(self, room: &mut [u8; Self::TEXT_MAX]) -> &[u8] {
        let mut digits = [0; U64_TEXT_MAX];
        let ms = u64_text(&mut digits, self.ms);
        let dash = ms.len();
        room[..dash].copy_from_slice(ms);
        room[dash] = b'-';
        let seq = u64_text(&mut digits, self.seq);
        let end = dash + 1 + seq.len();
        room[dash + 1..end].copy_from_slice(seq);
        &room[..end]
    }

    /// The ID in big-endian bytes, as in files.
    #[must_use]
    pub fn to_be_bytes(self) -> [u8; 16] {
        ((u128::from(self.ms) << 64) | u128::from(self.seq)).to_be_bytes()
    }

    /// The ID with these big-endian bytes.
    #[must_use]
    pub fn from_be_bytes(bytes: [u8; 16]) -> Self {
        let number = u128::from_be_bytes(bytes);
        Self { ms: (number >> 64) as u64, seq: number as u64 }
    }
}

/// Reads a number as Redis does. A text that is not a canonical integer is read as by C's
/// `strtoull`: blanks, a sign and zeros may precede it, and a minus counts down from 2^64.
fn number(text: &[u8]) -> Option<u64> {
    if let Some(value) = parse_i64(text) {
        return u64::try_from(value).ok();
    }
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let text = &text[text.iter().take_while(|byte| is_blank(byte)).count()..];
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let value = digits.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    });
    let value = value.filter(|_| !digits.is_empty())?;
    Some(if is_negative { value.wrapping_neg() } else { value })
}

impl fmt::Display for StreamId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut room = [0; Self::TEXT_MAX];
        out.write_str(str::from_utf8(self.text(&mut room)).expect("digits and a dash"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_parsed_and_printed() {
        let id = StreamId::new(12, 7);
        assert_eq!(StreamId::parse(b"12-7", 0), Some(id));
        assert_eq!(StreamId::parse(b"12", 7), Some(id));
        assert_eq!(id.to_string(), "12-7");
        assert_eq!(StreamId::MIN.to_string(), "0-0");
        assert_eq!(StreamId::MAX.to_string(), format!("{0}-{0}", u64::MAX));
        assert_eq!(StreamId::new(1_763_841_600_000, 10).to_string(), "1763841600000-10");
        let last = StreamId::MAX.to_string();
        assert_eq!(StreamId::parse(last.as_bytes(), 0), Some(StreamId::MAX));
        let lenient: [(&[u8], StreamId); 4] = [
            (b"+012-007", id),
            (b" \t12- 7", id),
            (b"12--03", StreamId::new(12, u64::MAX - 2)),
            (b"12-18446744073709551615", StreamId::new(12, u64::MAX)),
        ];
        for (text, id) in lenient {
            assert_eq!(StreamId::parse(text, 0), Some(id), "{text:?}");
        }
        let wrong: [&[u8]; 10] = [
            b"",
            b"-",
            b"1-",
            b"-1",
            b"1-2-3",
            b"1--2",
            b"x",
            b"1-x",
            b"18446744073709551616",
            b"1 -1",
        ];
        for text in wrong {
            assert_eq!(StreamId::parse(text, 0), None, "{text:?}");
        }
    }

    #[test]
    fn next_and_previous_ids_are_adjacent_and_sort_like_their_bytes() {
        assert_eq!(StreamId::MIN.previous(), None);
        assert_eq!(StreamId::MAX.next(), None);
        for id in [StreamId::MIN, StreamId::new(3, u64::MAX), StreamId::new(9, 4)] {
            let next = id.next().expect("there is one");
            assert!(next > id && next.to_be_bytes() > id.to_be_bytes());
            assert_eq!(next.previous(), Some(id));
            assert_eq!(StreamId::from_be_bytes(id.to_be_bytes()), id);
        }
    }
}

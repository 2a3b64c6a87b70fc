//! The line that begins each batch of Darter's increments. Redis skips it, as all lines that begin
//! with `#`.
//!
//! ```text
//! #DJ1 RUN BATCH OFFSET BYTES UNSYNCED TIME PREVIOUS SUM CR LF
//! ```
//! | field | digits | meaning |
//! |---|---|---|
//! | RUN | 16 | random number of the process |
//! | BATCH | 1 to 12 | number of the batch in the run, from 1 on |
//! | OFFSET | 1 to 16 | bytes of the stream before the batch, without lines |
//! | BYTES | 1 to 12 | bytes of the batch after the line |
//! | UNSYNCED | 1 to 12 | bytes of the stream before the batch that may not have been durable when the line was written |
//! | TIME | 1 to 12 | Unix milliseconds; they never decrease in a run |
//! | PREVIOUS | 8 | low half of the SUM of the batch before, or 0 |
//! | SUM | 16 | CRC-64 (`darter_rdb::crc64`) of the line up to SUM, then of the batch's bytes |
//!
//! All numbers are hexadecimal, in lower case; those of variable length have no leading zeros. So a
//! line has at most [`LINE_MAX_BYTES`] bytes: Redis 7.0.0 reads lines of 127 bytes.

use darter_rdb::crc64::Crc64;
use std::fmt;

/// The first bytes of every line.
pub const TAG: &[u8] = b"#DJ1 ";
/// The first bytes of the lines of any version.
pub const ANY_TAG: &[u8] = b"#DJ";
/// The longest line, with CR and LF.
pub const LINE_MAX_BYTES: usize = TAG.len() + 17 + 13 + 17 + 13 + 13 + 13 + 9 + 16 + 2;
const _: () = assert!(LINE_MAX_BYTES < 120);
/// The greatest number of 12 digits: the limit of a batch's number, of its bytes, and of its time.
pub const FIELD_MAX: u64 = (1 << 48) - 1;

/// The fields of the line, without the checksum of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The random number of the process.
    pub run: u64,
    /// The number of the batch in the run, from 1 on; at most [`FIELD_MAX`].
    pub batch: u64,
    /// The number of bytes of the stream before the batch. Lines do not count.
    pub offset: u64,
    /// The number of bytes of the batch after the line; at most [`FIELD_MAX`]. It may be 0.
    pub bytes: u64,
    /// The stream is known to be durable up to this offset, as of the time when the line was made.
    /// At most `offset`, and at least `offset` - [`FIELD_MAX`].
    pub stable: u64,
    /// The time in Unix milliseconds; at most [`FIELD_MAX`].
    pub unix_ms: u64,
    /// [`Annotation::link`] of the batch before, or 0.
    pub previous: u32,
}

/// A complete line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// The fields.
    pub head: Head,
    /// The checksum of the fields and of the batch's bytes.
    pub sum: u64,
}

/// The line is not an annotation of this version, or is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAnnotation;

impl fmt::Display for BadAnnotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the line that begins a batch is damaged")
    }
}

/// The running checksum of a batch.
#[derive(Clone, Debug)]
pub struct Checksum {
    sum: Crc64,
}

impl Checksum {
    /// Begins with the fields of the line.
    #[must_use]
    pub fn new(head: &Head) -> Self {
        let (mut sum, mut text) = (Crc64::new(), Vec::with_capacity(LINE_MAX_BYTES));
        head.write(&mut text);
        sum.update(&text);
        Self { sum }
    }

    /// Adds bytes of the batch. Cost: O(bytes); less for each byte of a long part.
    pub fn update(&mut self, bytes: &[u8]) {
        self.sum.update(bytes);
    }

    /// The checksum of all bytes so far.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.sum.value()
    }
}

impl Head {
    /// The line of a batch that consists of `parts`.
    ///
    /// Panics if the lengths of the parts do not add up to `bytes`, or a field exceeds its limit.
    #[must_use]
    pub fn seal<'a>(self, parts: impl IntoIterator<Item = &'a [u8]>) -> Annotation {
        let (mut sum, mut bytes) = (Checksum::new(&self), 0);
        for part in parts {
            sum.update(part);
            bytes += part.len() as u64;
        }
        assert_eq!(bytes, self.bytes, "the parts are the whole batch");
        Annotation { head: self, sum: sum.value() }
    }

    /// Appends the line up to the checksum.
    fn write(&self, out: &mut Vec<u8>) {
        let Self { run, batch, offset, bytes, stable, unix_ms, previous } = *self;
        let unsynced = offset.checked_sub(stable).expect("only written bytes are stable");
        for field in [batch, bytes, unsynced, unix_ms] {
            assert!(field <= FIELD_MAX, "{self:?}");
        }
        out.extend_from_slice(TAG);
        hex(out, run, 16);
        for field in [batch, offset, bytes, unsynced, unix_ms] {
            hex(out, field, 1);
        }
        hex(out, u64::from(previous), 8);
    }
}

impl Annotation {
    /// Appends the line. Cost: at most [`LINE_MAX_BYTES`] bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.head.write(out);
        hex(out, self.sum, 16);
        // Each field is followed by a blank; the last one by the end of the line.
        out.pop();
        out.extend_from_slice(b"\r\n");
    }

    /// Reads a line, with its CR and LF.
    ///
    /// # Errors
    /// Errors: the line is not exactly as [`Annotation::write`] writes it.
    pub fn parse(line: &[u8]) -> Result<Self, BadAnnotation> {
        Self::read(line).ok_or(BadAnnotation)
    }

    fn read(line: &[u8]) -> Option<Self> {
        let fields = line.strip_prefix(TAG)?.strip_suffix(b"\r\n")?;
        let mut fields = fields.split(|byte| *byte == b' ');
        let mut next = |least, most| number(fields.next()?, least, most);
        let run = next(16, 16)?;
        let (batch, offset, bytes) = (next(1, 12)?, next(1, 16)?, next(1, 12)?);
        let (unsynced, unix_ms) = (next(1, 12)?, next(1, 12)?);
        let previous = u32::try_from(next(8, 8)?).ok()?;
        let sum = next(16, 16)?;
        if fields.next().is_some() {
            return None;
        }
        let stable = offset.checked_sub(unsynced)?;
        offset.checked_add(bytes)?;
        let head = Head { run, batch, offset, bytes, stable, unix_ms, previous };
        Some(Self { head, sum })
    }

    /// The stream's offset after the batch.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.head.offset + self.head.bytes
    }

    /// The value for the field `previous` of the next batch.
    #[must_use]
    pub fn link(&self) -> u32 {
        self.sum as u32
    }

    /// True if `next` is the line of the next batch of the same run.
    #[must_use]
    pub fn precedes(&self, next: &Self) -> bool {
        let (this, next) = (&self.head, &next.head);
        next.run == this.run
            && next.batch == this.batch + 1
            && next.offset == self.end()
            && next.previous == self.link()
    }
}

/// Appends `value` with at least `least` digits, and a blank.
fn hex(out: &mut Vec<u8>, value: u64, least: usize) {
    let used = (u64::BITS - value.leading_zeros()).div_ceil(4) as usize;
    for digit in (0..used.max(least)).rev() {
        let digit = (value >> (4 * digit)) & 0xf;
        out.push(b"0123456789abcdef"[digit as usize]);
    }
    out.push(b' ');
}

/// Reads a number of `least` to `most` digits, without more leading zeros than `least` needs.
fn number(text: &[u8], least: usize, most: usize) -> Option<u64> {
    let is_canonical = text.len() == least || !text.starts_with(b"0");
    if text.len() < least || text.len() > most || !is_canonical {
        return None;
    }
    text.iter().try_fold(0, |value, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;

    fn head() -> Head {
        Head {
            run: 0x12,
            batch: 0xa,
            offset: 1_000,
            bytes: 5,
            stable: 744,
            unix_ms: 1_795_310_400_000,
            previous: 7,
        }
    }

    fn line(annotation: &Annotation) -> Vec<u8> {
        let mut line = Vec::new();
        annotation.write(&mut line);
        line
    }

    #[test]
    fn the_line_of_a_batch_is_as_documented() {
        let annotation = head().seal([&b"he"[..], b"llo"]);
        let line = line(&annotation);
        let sum =
            darter_rdb::crc64::of(b"#DJ1 0000000000000012 a 3e8 5 100 1a200d6b200 00000007 hello");
        let expected =
            format!("#DJ1 0000000000000012 a 3e8 5 100 1a200d6b200 00000007 {sum:016x}\r\n");
        assert_eq!(String::from_utf8(line.clone()).unwrap(), expected);
        assert_eq!(Annotation::parse(&line), Ok(annotation));
        assert_eq!((annotation.end(), annotation.link()), (1_005, sum as u32));
    }

    #[test]
    fn the_example_of_the_documentation_is_a_chain() {
        let text = include_str!("../../../../docs/formats/aof.md");
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with("#DJ1 ")).collect();
        let set = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";
        let mut last = None::<Annotation>;
        for (shown, body) in lines.iter().zip([&b""[..], set]) {
            let read = Annotation::parse(format!("{shown}\r\n").as_bytes()).unwrap();
            assert!(last.is_none_or(|last| last.precedes(&read)), "{read:?}");
            let sealed = read.head.seal([body]);
            assert_eq!(format!("{sealed:x?}"), format!("{read:x?}"));
            last = Some(sealed);
        }
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn random_lines_are_read_back_and_are_short() {
        let mut prng = Prng::from_seed(1);
        let mut any = |bits: u32| prng.next_u64() >> (64 - bits) >> prng.below(u64::from(bits));
        for _ in 0..2_000 {
            let (offset, bytes) = (any(63), any(48));
            let head = Head {
                run: any(64),
                batch: any(48),
                offset,
                bytes,
                stable: offset.saturating_sub(any(48)),
                unix_ms: any(48),
                previous: any(32) as u32,
            };
            let annotation = Annotation { head, sum: any(64) };
            let line = line(&annotation);
            assert!(line.len() <= LINE_MAX_BYTES, "{}", line.escape_ascii());
            assert_eq!(Annotation::parse(&line), Ok(annotation), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn a_line_with_any_byte_changed_is_another_line_or_none() {
        let annotation = head().seal([&b"hello"[..]]);
        let line = line(&annotation);
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut wrong = line.clone();
                wrong[at] ^= 1 << bit;
                let Ok(read) = Annotation::parse(&wrong) else { continue };
                let mut sum = Checksum::new(&read.head);
                sum.update(b"hello");
                assert_ne!(sum.value(), read.sum, "byte {at}, bit {bit}");
            }
            assert!(Annotation::parse(&line[..at]).is_err());
        }
    }

    #[test]
    fn a_batch_precedes_only_the_next_one_of_its_run() {
        let first = head().seal([&b"hello"[..]]);
        let next = Head { batch: 0xb, offset: 1_005, previous: first.link(), ..head() };
        let seal = |head: Head| head.seal([&b"world"[..]]);
        assert!(first.precedes(&seal(next)));
        for wrong in [
            Head { run: 3, ..next },
            Head { batch: 0xc, ..next },
            Head { offset: 1_006, ..next },
            Head { previous: 0, ..next },
        ] {
            assert!(!first.precedes(&seal(wrong)));
        }
    }
}

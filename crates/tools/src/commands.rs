//! The commands and lines of an append-only file, one after the other.

use darter_persist::aof::annotation::Annotation;
use darter_persist::aof::reader::{Item, Malformed, Reader};
use std::fmt::Write as _;

/// The first bytes of the lines in which Redis writes the time.
const TIMESTAMP: &[u8] = b"TS:";

/// An item of an append-only file.
#[derive(Debug)]
pub(crate) enum Entry<'a> {
    /// A line that begins a batch, and its file offset.
    Batch(Annotation, u64),
    /// The time in Unix milliseconds, from a line of Redis. The file may be cut at the offset.
    Time(u64, u64),
    /// A command.
    Command(&'a FoundCommand<'a>),
}

/// A command of a file.
#[derive(Debug)]
pub(crate) struct FoundCommand<'a> {
    /// The file offset of the command.
    pub(crate) offset: u64,
    /// The offset of the MULTI that the command follows, if no EXEC has followed before it.
    pub(crate) multi: Option<u64>,
    /// The first bytes of the command.
    kept: &'a [u8],
}

/// An argument of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Argument<'a> {
    /// The bytes, or the first of them if the command is long.
    pub(crate) bytes: &'a [u8],
    /// The number of bytes in the file.
    pub(crate) len: u64,
}

impl<'a> FoundCommand<'a> {
    /// The arguments that were kept, with the command's name.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = Argument<'a>> + use<'a> {
        let mut rest = after_line(self.kept).unwrap_or_default();
        std::iter::from_fn(move || {
            let header = rest.strip_prefix(b"$")?;
            let digits = header.iter().take_while(|byte| byte.is_ascii_digit());
            let len = digits.fold(0, |len: u64, byte| len * 10 + u64::from(byte - b'0'));
            let bytes = after_line(header)?;
            let (bytes, after) = bytes.split_at(bytes.len().min(usize::try_from(len).ok()?));
            rest = after.get(2..).unwrap_or_default();
            Some(Argument { bytes, len })
        })
    }

    /// The command's name, in upper case.
    pub(crate) fn name(&self) -> String {
        let name = self.arguments().next().map_or(&b""[..], |name| name.bytes);
        String::from_utf8_lossy(name).to_ascii_uppercase()
    }

    /// The command as redis-cli writes it: each argument in quotes.
    pub(crate) fn show(&self) -> String {
        let mut text = String::new();
        for argument in self.arguments() {
            if !text.is_empty() {
                text.push(' ');
            }
            quote(argument.bytes, &mut text);
            let missing = argument.len - argument.bytes.len() as u64;
            if missing > 0 {
                let _ = write!(text, "... ({missing} more bytes)");
            }
        }
        text
    }
}

/// The bytes after the first line feed.
fn after_line(bytes: &[u8]) -> Option<&[u8]> {
    memchr::memchr(b'\n', bytes).map(|end| &bytes[end + 1..])
}

/// Appends bytes in quotes, with Redis's escapes.
fn quote(bytes: &[u8], out: &mut String) {
    out.push('"');
    for byte in bytes {
        match byte {
            b'\\' | b'"' => out.extend(['\\', char::from(*byte)]),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x07 => out.push_str("\\a"),
            0x08 => out.push_str("\\b"),
            b' ' => out.push(' '),
            byte if byte.is_ascii_graphic() => out.push(char::from(*byte)),
            byte => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push('"');
}

/// Splits the bytes of a file into its items.
#[derive(Debug)]
pub(crate) struct Splitter {
    reader: Reader,
    /// The file offset of the current item.
    start: u64,
    kept: Vec<u8>,
    kept_max: usize,
}

impl Splitter {
    /// A splitter of the bytes from the file offset `offset` on, outside of MULTI. It keeps at most
    /// `kept_max` bytes of each command.
    pub(crate) fn new(offset: u64, kept_max: usize) -> Self {
        Self { reader: Reader::new(offset), start: offset, kept: Vec::new(), kept_max }
    }

    /// The file offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.reader.offset()
    }

    /// Takes in bytes, and passes each complete item to `take`. Other lines are left out.
    ///
    /// Cost: O(bytes); the arguments of long commands are skipped.
    ///
    /// Errors: the bytes are no append-only file.
    pub(crate) fn feed(
        &mut self,
        mut bytes: &[u8],
        take: &mut dyn FnMut(Entry<'_>),
    ) -> Result<(), Malformed> {
        while !bytes.is_empty() {
            let multi = self.reader.multi();
            if self.reader.is_between() {
                self.start = self.reader.offset();
            }
            let (taken, item) = self.reader.next(bytes)?;
            let space = self.kept_max.saturating_sub(self.kept.len());
            self.kept.extend_from_slice(&bytes[..taken.min(space)]);
            bytes = &bytes[taken..];
            let Some(item) = item else { continue };
            if item == Item::Command {
                let offset = self.start;
                take(Entry::Command(&FoundCommand { offset, multi, kept: &self.kept }));
            } else if let Some(entry) = line(&self.kept, self.start, multi) {
                take(entry);
            }
            self.kept.clear();
        }
        Ok(())
    }
}

/// The meaning of a line at a file offset.
fn line(bytes: &[u8], offset: u64, multi: Option<u64>) -> Option<Entry<'static>> {
    if let Ok(annotation) = Annotation::parse(bytes) {
        return Some(Entry::Batch(annotation, offset));
    }
    let seconds = bytes.strip_prefix(b"#")?.strip_prefix(TIMESTAMP)?.trim_ascii();
    let seconds: u64 = str::from_utf8(seconds).ok()?.parse().ok()?;
    Some(Entry::Time(seconds.checked_mul(1_000)?, multi.unwrap_or(offset)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: &[u8] = b"#TS:17\r\n*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nset\r\n$3\r\nk\x01\"\r\n\
                           $2\r\n\r\n\r\n*1\r\n$4\r\nEXEC\r\n";

    fn split(bytes: &[u8], chunk: usize, kept_max: usize) -> (Vec<String>, Result<(), Malformed>) {
        let (mut splitter, mut found) = (Splitter::new(100, kept_max), Vec::new());
        for part in bytes.chunks(chunk) {
            let fed = splitter.feed(part, &mut |entry| {
                found.push(match entry {
                    Entry::Batch(annotation, _) => format!("batch {}", annotation.head.batch),
                    Entry::Time(unix_ms, _) => format!("time {unix_ms}"),
                    Entry::Command(command) => {
                        let FoundCommand { offset, multi, .. } = command;
                        format!("{offset} {multi:?} {} {}", command.name(), command.show())
                    }
                });
            });
            if fed.is_err() {
                return (found, fed);
            }
        }
        (found, Ok(()))
    }

    #[test]
    fn commands_are_split_alike_in_chunks_of_any_size() {
        let wanted = [
            "time 17000",
            "108 None MULTI \"MULTI\"",
            "123 Some(108) SET \"set\" \"k\\x01\\\"\" \"\\r\\n\"",
            "153 Some(108) EXEC \"EXEC\"",
        ];
        for chunk in 1..=BYTES.len() {
            assert_eq!(split(BYTES, chunk, 1 << 10), (wanted.map(String::from).to_vec(), Ok(())));
        }
    }

    #[test]
    fn the_end_of_a_long_command_is_not_kept() {
        let bytes = b"*2\r\n$3\r\nDEL\r\n$10\r\n0123456789\r\n";
        let (found, _) = split(bytes, 7, 20);
        assert_eq!(found, ["100 None DEL \"DEL\" \"01\"... (8 more bytes)"]);
    }

    #[test]
    fn bytes_after_a_fault_are_not_read() {
        let (found, fed) = split(b"*1\r\n$4\r\nPING\r\njunk", 100, 100);
        assert_eq!((found.len(), fed), (1, Err(Malformed::Begin(b'j'))));
    }
}

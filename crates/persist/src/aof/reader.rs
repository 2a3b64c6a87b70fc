//! Splits the bytes of an AOF into commands and lines, without copying them.
//!
//! ```text
//! #TS:1795310400 CR LF | *3 CR LF $3 CR LF SET CR LF $1 CR LF k CR LF $1 CR LF v CR LF | *1 …
//! `──── a line ──────´ `──────────────────── a command ───────────────────────────────´
//! ```
//! The caller has the bytes; the reader counts them. So its memory is one line at most, whatever
//! lengths the file announces. As redis-check-aof, it wants CR LF at each end, and numbers without
//! other characters.

use darter_base::number;
use darter_resp::{Span, plain};
use std::fmt;

/// The longest line that begins with `#`, in bytes. Redis 7.0 reads 1023.
const COMMENT_MAX_BYTES: usize = 1_024;
/// The longest header, such as `$536870912` with CR and LF.
const HEADER_MAX_BYTES: usize = 24;
/// The number of bytes of a command's name that are kept, to recognise MULTI, EXEC and DISCARD.
const NAME_BYTES: usize = 8;
/// The longest command that is read in one step, and the most arguments.
const PLAIN_MAX_BYTES: usize = 64 * 1024;
const PLAIN_ARGUMENTS_MAX: usize = 256;
/// The most arguments of a command, and the most bytes of an argument.
const NUMBER_MAX: u64 = i32::MAX as u64;

/// An item of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A line that begins with `#`: [`Reader::line`].
    Line,
    /// A whole command.
    Command,
}

/// The bytes are not an AOF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// A command or a line begins with this byte.
    Begin(u8),
    /// The number of arguments, or the length of an argument, is none.
    Number,
    /// A line is too long, or does not end with CR LF.
    LineEnd,
    /// An argument does not end with CR LF.
    ArgumentEnd,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin(byte) => {
                write!(f, "expected '*', got '{}'", [*byte].escape_ascii())
            }
            Self::Number => f.write_str("invalid number of arguments or bytes"),
            Self::LineEnd => f.write_str("a line does not end with CR LF"),
            Self::ArgumentEnd => f.write_str("an argument does not end with CR LF"),
        }
    }
}

/// The position within an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before an item.
    Start,
    /// In a line that begins with `#`.
    Comment,
    /// In the line with the number of arguments.
    Count,
    /// In the line with the length of the next of `arguments` arguments.
    Length { arguments: u64 },
    /// In an argument; `bytes` of it and of its CR LF are missing, and `arguments` after it.
    Argument { bytes: u64, arguments: u64 },
}

/// The state of reading a file.
#[derive(Clone, Debug)]
pub struct Reader {
    place: Place,
    /// The file offset of the next byte.
    offset: u64,
    /// The file offset at which the current item begins.
    start: u64,
    /// The bytes of the current line.
    line: Vec<u8>,
    /// The first bytes of the command's name and of its CR LF, in upper case.
    name: Vec<u8>,
    /// True until the command's name is complete.
    is_in_name: bool,
    /// The file offset of the MULTI whose EXEC was not read yet.
    multi: Option<u64>,
    /// The end of the last item outside of MULTI.
    good: u64,
    /// The arguments of the command that is read in one step.
    spans: Vec<Span>,
}

impl Reader {
    /// A reader of the bytes from the file offset `offset` on, outside of MULTI.
    #[must_use]
    pub fn new(offset: u64) -> Self {
        Self {
            place: Place::Start,
            offset,
            start: offset,
            line: Vec::new(),
            name: Vec::new(),
            is_in_name: false,
            multi: None,
            good: offset,
            spans: Vec::new(),
        }
    }

    /// The file offset of the next byte.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The file offset of the current item, or of the next one between two items.
    #[must_use]
    pub fn start(&self) -> u64 {
        if self.is_between() { self.offset } else { self.start }
    }

    /// The offset at which the file may be cut: the end of the last item outside of MULTI.
    #[must_use]
    pub fn good(&self) -> u64 {
        self.good
    }

    /// The file offset of the MULTI whose EXEC was not read yet.
    #[must_use]
    pub fn multi(&self) -> Option<u64> {
        self.multi
    }

    /// True between two items.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.place == Place::Start
    }

    /// True within a line that begins with `#`.
    #[must_use]
    pub fn is_in_line(&self) -> bool {
        self.place == Place::Comment
    }

    /// The line that was read last, without CR and LF. Valid after [`Item::Line`].
    #[must_use]
    pub fn line(&self) -> &[u8] {
        &self.line
    }

    /// Reads up to the end of the current item, or all of `bytes`. Returns the number of bytes, and
    /// the item if it is complete.
    ///
    /// Cost: O(headers); the bytes of arguments are skipped.
    ///
    /// # Errors
    /// Errors: the bytes are not an AOF. The reader is then at the offset of the fault, and must not
    /// be called again.
    pub fn next(&mut self, bytes: &[u8]) -> Result<(usize, Option<Item>), Malformed> {
        if let Some(len) = self.plain(bytes) {
            return Ok((len, Some(Item::Command)));
        }
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            match self.place {
                Place::Start => self.begin(*byte)?,
                Place::Argument { bytes: missing, arguments } => {
                    let item = self.argument(bytes, &mut at, missing, arguments)?;
                    if item.is_some() {
                        return Ok((at, item));
                    }
                }
                place => {
                    let most = match place {
                        Place::Comment => COMMENT_MAX_BYTES,
                        _ => HEADER_MAX_BYTES,
                    };
                    if self.take_line(bytes, &mut at, most)? && self.end_of_line()? {
                        self.end_of_item();
                        return Ok((at, Some(Item::Line)));
                    }
                }
            }
        }
        Ok((at, None))
    }

    /// Reads the command at the front of `bytes` in one step, if it is whole, short and sound, as
    /// nearly all are. Returns its length.
    #[inline]
    fn plain(&mut self, bytes: &[u8]) -> Option<usize> {
        if !self.is_between() || bytes.first() != Some(&b'*') {
            return None;
        }
        let bytes = &bytes[..bytes.len().min(PLAIN_MAX_BYTES)];
        self.spans.clear();
        let len = plain(bytes, PLAIN_ARGUMENTS_MAX, PLAIN_MAX_BYTES, &mut self.spans)?;
        let is_end = |at: usize| bytes[at] == b'\r' && bytes[at + 1] == b'\n';
        let count_end = bytes.iter().position(|byte| *byte == b'$')? - 2;
        let is_sound = |span: &Span| is_end(span.start as usize - 2) && is_end(span.end as usize);
        if !is_end(count_end) || !self.spans.iter().all(is_sound) {
            return None; // The fault is found step by step.
        }
        let name = self.spans[0].start as usize..self.spans[0].end as usize + 2;
        self.start = self.offset;
        self.name.clear();
        if name.len() <= NAME_BYTES + 1 {
            let kept = bytes[name].iter().take(NAME_BYTES);
            self.name.extend(kept.map(u8::to_ascii_uppercase));
        }
        self.note_command();
        self.offset += len as u64;
        self.end_of_item();
        Some(len)
    }

    fn begin(&mut self, byte: u8) -> Result<(), Malformed> {
        self.start = self.offset;
        self.line.clear();
        self.name.clear();
        self.is_in_name = true;
        self.place = match byte {
            b'#' => Place::Comment,
            b'*' => Place::Count,
            _ => return Err(Malformed::Begin(byte)),
        };
        Ok(())
    }

    /// Adds bytes to the line. Returns true when it is complete.
    fn take_line(&mut self, bytes: &[u8], at: &mut usize, most: usize) -> Result<bool, Malformed> {
        let left = &bytes[*at..];
        let space = most - self.line.len();
        let end = left.iter().take(space).position(|byte| *byte == b'\n');
        let taken = end.map_or(left.len().min(space), |end| end + 1);
        self.line.extend_from_slice(&left[..taken]);
        *at += taken;
        self.offset += taken as u64;
        if end.is_none() && self.line.len() < most {
            return Ok(false);
        }
        if !self.line.ends_with(b"\r\n") {
            return Err(Malformed::LineEnd);
        }
        self.line.truncate(self.line.len() - 2);
        Ok(true)
    }

    /// Reads the complete line. Returns true if it is an item of its own.
    fn end_of_line(&mut self) -> Result<bool, Malformed> {
        let number = |sign: u8| {
            let text = self.line.strip_prefix(&[sign]).filter(|text| !text.starts_with(b"+"));
            text.and_then(number::parse_u64).filter(|value| *value <= NUMBER_MAX)
        };
        self.place = match self.place {
            Place::Comment => return Ok(true),
            Place::Count => {
                let arguments = number(b'*').filter(|count| *count > 0);
                Place::Length { arguments: arguments.ok_or(Malformed::Number)? }
            }
            Place::Length { arguments } => {
                let bytes = number(b'$').ok_or(Malformed::Number)?;
                Place::Argument { bytes: bytes + 2, arguments: arguments - 1 }
            }
            Place::Start | Place::Argument { .. } => unreachable!("no line is open"),
        };
        self.line.clear();
        Ok(false)
    }

    /// Skips bytes of an argument. Returns the item if this ends the command.
    fn argument(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        missing: u64,
        arguments: u64,
    ) -> Result<Option<Item>, Malformed> {
        let left = &bytes[*at..];
        let taken = left.len().min(usize::try_from(missing).unwrap_or(usize::MAX));
        self.check_argument(&left[..taken], missing)?;
        *at += taken;
        self.offset += taken as u64;
        let bytes = missing - taken as u64;
        if bytes > 0 {
            self.place = Place::Argument { bytes, arguments };
            return Ok(None);
        }
        if arguments > 0 {
            self.place = Place::Length { arguments };
            return Ok(None);
        }
        self.note_command();
        self.end_of_item();
        Ok(Some(Item::Command))
    }

    /// Checks the CR LF at the end of an argument, as far as it is in `part`, and keeps the
    /// command's name. `missing` bytes were missing before `part`.
    fn check_argument(&mut self, part: &[u8], missing: u64) -> Result<(), Malformed> {
        let tail = part.len().saturating_sub(2);
        for (index, byte) in part.iter().enumerate().skip(tail) {
            let wanted = match missing - index as u64 {
                2 => b'\r',
                1 => b'\n',
                _ => continue,
            };
            if *byte != wanted {
                self.offset += index as u64;
                return Err(Malformed::ArgumentEnd);
            }
        }
        if self.is_in_name {
            let space = NAME_BYTES - self.name.len();
            let taken = part.iter().take(space).map(u8::to_ascii_uppercase);
            self.name.extend(taken);
            self.is_in_name = missing > part.len() as u64;
        }
        Ok(())
    }

    fn note_command(&mut self) {
        match &self.name[..] {
            b"MULTI\r\n" if self.multi.is_none() => self.multi = Some(self.start),
            b"EXEC\r\n" | b"DISCARD\r" => self.multi = None,
            _ => {}
        }
    }

    fn end_of_item(&mut self) {
        self.place = Place::Start;
        if self.multi.is_none() {
            self.good = self.offset;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Redis's form of a command.
    fn command(words: &[&str]) -> Vec<u8> {
        let mut out = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
        out
    }

    /// The items with the offsets of their ends, reading `piece` bytes at a time.
    fn items(bytes: &[u8], piece: usize) -> (Vec<(Item, u64)>, Result<Reader, Malformed>) {
        let (mut reader, mut found) = (Reader::new(100), Vec::new());
        for mut part in bytes.chunks(piece) {
            while !part.is_empty() {
                match reader.next(part) {
                    Ok((taken, item)) => {
                        found.extend(item.map(|item| (item, reader.offset())));
                        part = &part[taken..];
                    }
                    Err(error) => return (found, Err(error)),
                }
            }
        }
        (found, Ok(reader))
    }

    #[test]
    fn commands_and_lines_are_found_in_pieces_of_any_length() {
        let parts = [
            b"#TS:1795310400\r\n".to_vec(),
            command(&["SELECT", "0"]),
            command(&["set", "k", &"v".repeat(300)]),
            b"#\r\n".to_vec(),
            command(&["X", "", "\r\n"]),
        ];
        let bytes = parts.concat();
        let mut end = 100;
        let expected: Vec<_> = parts
            .iter()
            .map(|part| {
                end += part.len() as u64;
                (if part[0] == b'#' { Item::Line } else { Item::Command }, end)
            })
            .collect();
        for piece in 1..=bytes.len() {
            let (found, reader) = items(&bytes, piece);
            let reader = reader.unwrap();
            assert_eq!(found, expected, "{piece}");
            assert_eq!((reader.good(), reader.is_between()), (end, true));
        }
    }

    #[test]
    fn a_file_may_be_cut_outside_of_transactions_only() {
        let parts = [
            command(&["SET", "a", "1"]),
            command(&["multi"]),
            command(&["SET", "b", "MULTI"]),
            command(&["EXEC"]),
            command(&["EXECUTE"]),
        ];
        let ends: Vec<u64> = parts
            .iter()
            .scan(100, |end, part| {
                *end += part.len() as u64;
                Some(*end)
            })
            .collect();
        let bytes = parts.concat();
        for len in 1..=bytes.len() {
            let reader = items(&bytes[..len], 7).1.unwrap();
            let whole = ends.iter().rev().find(|end| **end <= 100 + len as u64);
            let whole = whole.copied().unwrap_or(100);
            let is_open = (ends[1]..ends[3]).contains(&whole);
            assert_eq!(reader.good(), if is_open { ends[0] } else { whole }, "{len}");
            assert_eq!(reader.multi(), is_open.then_some(ends[0]), "{len}");
        }
    }

    #[test]
    fn bytes_of_another_form_are_refused_at_their_offset() {
        let long = [b"#", &[b'x'; 2_000][..]].concat();
        for (bytes, error, offset) in [
            (&b"\0\0"[..], Malformed::Begin(0), 100),
            (b"SET a 1\r\n", Malformed::Begin(b'S'), 100),
            (b"*0\r\n", Malformed::Number, 104),
            (b"*-1\r\n", Malformed::Number, 105),
            (b"*1\n", Malformed::LineEnd, 103),
            (b"*1\r\n+3\r\n", Malformed::Number, 108),
            (b"*1\r\n$99999999999999999999\r\n", Malformed::Number, 127),
            (b"*1\r\n$1\r\nab\n", Malformed::ArgumentEnd, 109),
            (b"*1\r\n$1\r\na\r\r", Malformed::ArgumentEnd, 110),
            (b"*000000000000000000000000001\r\n", Malformed::LineEnd, 124),
            (&long, Malformed::LineEnd, 1_124),
        ] {
            for piece in [1, 2, 3, 5_000] {
                let mut reader = Reader::new(100);
                let failed = bytes.chunks(piece).find_map(|mut part| {
                    while !part.is_empty() {
                        match reader.next(part) {
                            Ok((taken, _)) => part = &part[taken..],
                            Err(error) => return Some(error),
                        }
                    }
                    None
                });
                assert_eq!(failed, Some(error), "{}", bytes.escape_ascii());
                if piece == 1 {
                    assert_eq!(reader.offset(), offset, "{}", bytes.escape_ascii());
                }
                assert_eq!(reader.good(), 100);
            }
        }
    }
}

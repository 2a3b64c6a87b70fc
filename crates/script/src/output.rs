//! Writes a script's result as a reply.
//!
//! Written without recursion, in portions. Headers need the number of elements first, so a table is
//! walked twice. Metatables are ignored. Bytes are kept in pieces, so that appending copies none of
//! them.

use crate::values::{Portion, c_text, one_line, to_i64, trimmed};
use darter_base::number::{I64_TEXT_MAX, i64_text};
use darter_lua::{Error, Lua, Position, Progress, Type, number};

/// A piece of this length is complete: the next bytes go to a new one.
const PIECE: usize = 64 << 10;

/// The field of an error table that marks the error as counted by a command.
pub(crate) const COUNTED: &str = "ignore_error_stats_update";

/// Values on the stack of one call; deeper nesting is an error, in Redis's words.
const STACK_MAX: usize = 8000;

/// The bytes, and the tables that are being written.
#[derive(Default)]
pub(crate) struct Output {
    pieces: Vec<Vec<u8>>,
    levels: Vec<Level>,
    /// The number of bytes already written of the long string on top.
    written: Option<usize>,
    bytes_max: usize,
    bytes: usize,
    /// There was an error.
    has_failed: bool,
    /// Errors that are not counted yet.
    uncounted: Vec<Vec<u8>>,
}

/// The most errors of one reply that are counted.
const COUNTED_MAX: usize = 64;

/// A table that is being written. Its own values are above it on the stack.
#[derive(Clone, Copy)]
enum Level {
    /// Elements are counted, up to the first nil.
    Count {
        next: usize,
    },
    Array {
        next: usize,
        count: usize,
    },
    /// Pairs are counted.
    CountPairs {
        position: Position,
        count: usize,
        is_map: bool,
    },
    /// A pair is next. Above the table is its map, and with `has_key` the pair whose key was
    /// written.
    Map {
        position: Position,
        has_key: bool,
    },
    Members {
        position: Position,
        has_key: bool,
    },
}

/// The version of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2.
    #[default]
    Two,
    /// RESP3.
    Three,
}

/// The protocols that decide how a reply is written.
#[derive(Clone, Copy)]
pub(crate) struct Protocols {
    /// The client's.
    pub(crate) client: Protocol,
    /// The script's, which decides about booleans.
    pub(crate) script: Protocol,
}

impl Output {
    /// Begins a reply of at most `bytes_max`. Reuses the memory of a short previous reply.
    pub(crate) fn begin(&mut self, bytes_max: usize) {
        /// The most bytes that are reused.
        const SHORT: usize = 4096;
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.truncate(1);
        pieces.retain(|piece| piece.capacity() <= SHORT);
        pieces.iter_mut().for_each(Vec::clear);
        *self = Self { bytes_max, pieces, ..Self::default() };
    }

    /// The reply, in pieces.
    pub(crate) fn take(&mut self) -> Vec<Vec<u8>> {
        self.pieces.retain(|piece| !piece.is_empty());
        std::mem::take(&mut self.pieces)
    }

    /// The reply, if it is one piece without an error.
    pub(crate) fn short(&self) -> Option<&[u8]> {
        match &self.pieces[..] {
            [piece] if !self.has_failed && !piece.is_empty() => Some(piece),
            _ => None,
        }
    }

    /// Whether the reply has an error, and the errors that are not counted yet.
    pub(crate) fn take_errors(&mut self) -> (bool, Vec<Vec<u8>>) {
        (std::mem::take(&mut self.has_failed), std::mem::take(&mut self.uncounted))
    }

    fn piece(&mut self) -> &mut Vec<u8> {
        if self.pieces.is_empty() {
            self.pieces.push(Vec::new());
        } else if self.pieces.last().is_some_and(|piece| piece.len() >= PIECE) {
            self.pieces.push(Vec::with_capacity(PIECE + PIECE / 16)); // The reply is a long one.
        }
        self.pieces.last_mut().expect("it was pushed")
    }

    fn put(&mut self, parts: &[&[u8]]) {
        self.bytes += parts.iter().map(|part| part.len()).sum::<usize>();
        let piece = self.piece();
        for part in parts {
            piece.extend_from_slice(part);
        }
    }

    fn header(&mut self, kind: u8, count: i64) {
        let mut line = [0; I64_TEXT_MAX];
        self.put(&[&[kind], i64_text(&mut line, count), b"\r\n"]);
    }

    /// An error: a line that begins with its code.
    pub(crate) fn error(&mut self, text: &[u8]) {
        if self.uncounted.len() < COUNTED_MAX {
            self.uncounted.push(text.to_vec());
        }
        self.counted_error(text);
    }

    /// An error that a command has already counted.
    pub(crate) fn counted_error(&mut self, text: &[u8]) {
        let mut line = trimmed(c_text(text)).to_vec();
        one_line(&mut line);
        self.has_failed = true;
        self.put(&[b"-", &line, b"\r\n"]);
    }

    fn bulk(&mut self, text: &[u8]) {
        self.header(b'$', i64::try_from(text.len()).unwrap_or(i64::MAX));
        self.put(&[text, b"\r\n"]);
    }

    fn null(&mut self, protocols: Protocols) {
        self.put(&[if protocols.client == Protocol::Two { b"$-1\r\n" } else { b"_\r\n" }]);
    }

    /// Writes a portion of the value on top. The value is popped at the end.
    pub(crate) fn write(
        &mut self,
        lua: &mut Lua<'_>,
        protocols: Protocols,
    ) -> Result<Progress, Error> {
        let mut portion = Portion::new();
        if self.levels.is_empty() && self.written.is_none() && self.bytes == 0 {
            self.value(lua, protocols)?;
        }
        while portion.spend(10) {
            if self.bytes > self.bytes_max {
                return Err(Error::Memory);
            }
            if let Some(written) = self.written {
                portion.spend(PIECE / 32);
                self.long_string(lua, written);
            } else if let Some(level) = self.levels.pop() {
                self.level(lua, level, protocols)?;
            } else {
                return Ok(Progress::Done(0));
            }
        }
        Ok(Progress::More)
    }

    /// The next piece of the string on top.
    fn long_string(&mut self, lua: &mut Lua<'_>, written: usize) {
        let text = lua.bytes(-1).expect("a string is being written");
        let end = text.len().min(written + PIECE);
        self.put(&[&text[written..end]]);
        if end < text.len() {
            self.written = Some(end);
        } else {
            self.put(&[b"\r\n"]);
            self.written = None;
            lua.pop(1);
        }
    }

    /// Begins the value on top. A value that is no table is popped, unless it is a long string.
    fn value(&mut self, lua: &mut Lua<'_>, protocols: Protocols) -> Result<(), Error> {
        if lua.top() + 5 > STACK_MAX {
            self.error(b"ERR reached lua stack limit");
            lua.pop(1);
            return Ok(());
        }
        match lua.kind(-1) {
            Some(Type::String) => {
                let text = lua.bytes(-1).unwrap_or_default();
                if text.len() > PIECE {
                    self.header(b'$', i64::try_from(text.len()).unwrap_or(i64::MAX));
                    self.written = Some(0);
                    return Ok(());
                }
                self.bulk(text);
            }
            Some(Type::Number) => self.header(b':', to_i64(lua.number(-1).unwrap_or(0.0))),
            Some(Type::Boolean) => self.boolean(lua.truth(-1), protocols),
            Some(Type::Table) => return self.table(lua, protocols),
            _ => self.null(protocols),
        }
        lua.pop(1);
        Ok(())
    }

    fn boolean(&mut self, value: bool, protocols: Protocols) {
        match (protocols.script, protocols.client, value) {
            (Protocol::Two, _, true) | (_, Protocol::Two, true) => self.put(&[b":1\r\n"]),
            (Protocol::Two, _, false) => self.null(protocols),
            (_, Protocol::Two, false) => self.put(&[b":0\r\n"]),
            (_, Protocol::Three, true) => self.put(&[b"#t\r\n"]),
            (_, Protocol::Three, false) => self.put(&[b"#f\r\n"]),
        }
    }

    /// Begins the table on top: the first known field that fits decides its kind.
    fn table(&mut self, lua: &mut Lua<'_>, protocols: Protocols) -> Result<(), Error> {
        lua.reserve(4)?;
        if self.scalar(lua, protocols)? {
            lua.pop(1);
            return Ok(());
        }
        for (field, is_map) in [("map", true), ("set", false)] {
            lua.get(-1, field)?;
            if lua.kind(-1) == Some(Type::Table) {
                let position = Position::default();
                self.levels.push(Level::CountPairs { position, count: 0, is_map });
                return Ok(());
            }
            lua.pop(1);
        }
        self.levels.push(Level::Count { next: 1 });
        Ok(())
    }

    /// Writes the table on top if it stands for an error, a status, a double, a big number or a
    /// verbatim string.
    fn scalar(&mut self, lua: &mut Lua<'_>, protocols: Protocols) -> Result<bool, Error> {
        let is_two = protocols.client == Protocol::Two;
        for field in ["err", "ok", "double", "big_number", "verbatim_string"] {
            lua.get(-1, field)?;
            let kind = lua.kind(-1);
            match (field, kind) {
                ("err", Some(Type::String)) => self.table_error(lua)?,
                ("ok", Some(Type::String)) => {
                    let mut line = c_text(lua.bytes(-1).unwrap_or_default()).to_vec();
                    one_line(&mut line);
                    self.put(&[b"+", &line, b"\r\n"]);
                }
                ("double", Some(Type::Number)) => {
                    let mut buffer = [0; 64];
                    let text = number::general(&mut buffer, lua.number(-1).unwrap_or(0.0), 17);
                    if is_two {
                        self.bulk(text.as_bytes());
                    } else {
                        self.put(&[b",", text.as_bytes(), b"\r\n"]);
                    }
                }
                ("big_number", Some(Type::String)) => {
                    let mut text = lua.bytes(-1).unwrap_or_default().to_vec();
                    one_line(&mut text);
                    if is_two {
                        self.bulk(&text);
                    } else {
                        self.put(&[b"(", &text, b"\r\n"]);
                    }
                }
                ("verbatim_string", Some(Type::Table)) if self.verbatim(lua, is_two)? => {}
                _ => {
                    lua.pop(1);
                    continue;
                }
            }
            lua.pop(1);
            return Ok(true);
        }
        Ok(false)
    }

    /// Writes the error text on top, which belongs to the table below it.
    fn table_error(&mut self, lua: &mut Lua<'_>) -> Result<(), Error> {
        lua.get(-2, COUNTED)?;
        let is_counted = lua.truth(-1);
        lua.pop(1);
        let text = lua.bytes(-1).unwrap_or_default();
        if is_counted {
            self.counted_error(text)
        } else {
            self.error(text)
        }
        Ok(())
    }

    /// Writes the table on top, if it has the two fields of a verbatim string.
    fn verbatim(&mut self, lua: &mut Lua<'_>, is_two: bool) -> Result<bool, Error> {
        lua.get(-1, "format")?;
        lua.get(-2, "string")?;
        let both = lua.bytes(-2).zip(lua.bytes(-1));
        let is_verbatim = both.is_some();
        if let Some((format, text)) = both {
            if is_two {
                self.bulk(text);
            } else {
                let mut name = *b"   ";
                for (to, from) in name.iter_mut().zip(c_text(format)) {
                    *to = *from;
                }
                self.header(b'=', i64::try_from(text.len() + 4).unwrap_or(i64::MAX));
                self.put(&[&name, b":", text, b"\r\n"]);
            }
        }
        lua.pop(2);
        Ok(is_verbatim)
    }

    /// The next step of a table.
    fn level(
        &mut self,
        lua: &mut Lua<'_>,
        level: Level,
        protocols: Protocols,
    ) -> Result<(), Error> {
        match level {
            Level::Count { next } => {
                lua.get_element(-1, next)?;
                let is_end = lua.kind(-1) == Some(Type::Nil);
                lua.pop(1);
                if is_end {
                    self.header(b'*', i64::try_from(next - 1).unwrap_or(i64::MAX));
                    self.levels.push(Level::Array { next: 1, count: next - 1 });
                } else {
                    self.levels.push(Level::Count { next: next + 1 });
                }
            }
            Level::Array { next, count } if next > count => lua.pop(1),
            Level::Array { next, count } => {
                self.levels.push(Level::Array { next: next + 1, count });
                lua.get_element(-1, next)?;
                self.value(lua, protocols)?;
            }
            Level::CountPairs { mut position, count, is_map } => {
                if lua.next(-1, &mut position)? {
                    lua.pop(2);
                    self.levels.push(Level::CountPairs { position, count: count + 1, is_map });
                } else {
                    self.pairs(count, is_map, protocols);
                }
            }
            Level::Map { position, has_key } => self.pair(lua, position, has_key, protocols)?,
            Level::Members { position, has_key } => {
                self.member(lua, position, has_key, protocols)?
            }
        }
        Ok(())
    }

    /// The header of a map or a set.
    fn pairs(&mut self, count: usize, is_map: bool, protocols: Protocols) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let position = Position::default();
        match (protocols.client, is_map) {
            (Protocol::Two, true) => self.header(b'*', 2 * count),
            (Protocol::Two, false) => self.header(b'*', count),
            (Protocol::Three, true) => self.header(b'%', count),
            (Protocol::Three, false) => self.header(b'~', count),
        }
        self.levels.push(if is_map {
            Level::Map { position, has_key: false }
        } else {
            Level::Members { position, has_key: false }
        });
    }

    /// Writes a key, or the value of the key written last.
    fn pair(
        &mut self,
        lua: &mut Lua<'_>,
        mut position: Position,
        has_key: bool,
        protocols: Protocols,
    ) -> Result<(), Error> {
        if has_key {
            // The key and the value are on top: the value is written, and popped with the key.
            self.levels.push(Level::Map { position, has_key: false });
            lua.remove(-2);
            return self.value(lua, protocols);
        }
        if !lua.next(-1, &mut position)? {
            lua.pop(2);
            return Ok(());
        }
        self.levels.push(Level::Map { position, has_key: true });
        lua.push_copy(-2)?;
        self.value(lua, protocols)
    }

    /// Writes the next member of a set: a key of its table.
    fn member(
        &mut self,
        lua: &mut Lua<'_>,
        mut position: Position,
        has_key: bool,
        protocols: Protocols,
    ) -> Result<(), Error> {
        if has_key {
            lua.pop(1);
        }
        if !lua.next(-1, &mut position)? {
            lua.pop(2);
            return Ok(());
        }
        self.levels.push(Level::Members { position, has_key: true });
        lua.pop(1);
        lua.push_copy(-1)?;
        self.value(lua, protocols)
    }
}

//! Replies of commands, as they become values of Lua.
//!
//! The bytes may come in parts. They are read token by token, without recursion, and a portion
//! ends after some tokens.

use crate::output::COUNTED;
use crate::session::Session;
use crate::session::Wanted;
use crate::values::{Call, Portion, trimmed};
use darter_lua::{Error, Lua, Progress, Work};

/// Bytes of a reply that have come and are not read yet, and where the reading is.
#[derive(Default)]
pub(crate) struct Incoming {
    bytes: Vec<u8>,
    read: usize,
    levels: Vec<Level>,
    /// An error as a whole reply is raised.
    raises: bool,
    /// The script has asked for the reply, and waits.
    is_asked: bool,
}

impl Incoming {
    /// Begins a reply.
    pub(crate) fn begin(&mut self, raises: bool) {
        self.bytes.clear();
        self.read = 0;
        self.levels.clear();
        self.raises = raises;
        self.is_asked = false;
    }

    /// Bytes that it keeps for the next reply.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.levels.capacity() * size_of::<Level>()
    }

    /// [`Incoming::feed`] of bytes whose memory it takes, if all before them was read. Returns memory
    /// for the next part.
    pub(crate) fn feed_owned(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        if self.read < self.bytes.len() {
            self.feed(&bytes);
            return bytes;
        }
        self.read = 0;
        std::mem::replace(&mut self.bytes, bytes)
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.read)); // The rest is part of a token.
        self.bytes.extend_from_slice(bytes);
    }

    /// The next token, if all of it is there: its kind, and its line or its bytes.
    fn token(&mut self) -> Option<Token> {
        let rest = &self.bytes[self.read..];
        let line_end = rest.iter().position(|byte| *byte == b'\n')?.checked_sub(1)?; // After CR.
        let kind = rest[0];
        let line = self.read + 1..self.read + line_end;
        let after = self.read + line_end + 2;
        if !matches!(kind, b'$' | b'=') || rest.get(1) == Some(&b'-') {
            self.read = after;
            return Some(Token { kind, text: line });
        }
        let length = count(&self.bytes[line]);
        if self.bytes.len() < after + length + 2 {
            return None;
        }
        self.read = after + length + 2;
        Some(Token { kind, text: after..after + length })
    }
}

/// A token: where its text is among the bytes.
struct Token {
    kind: u8,
    text: std::ops::Range<usize>,
}

/// An aggregate that is being read; `left` values are to come.
enum Level {
    /// The table is on the stack.
    Array {
        next: usize,
        left: usize,
    },
    /// An outer and an inner table are on the stack, then the key, if that has been read.
    Map {
        has_key: bool,
        left: usize,
    },
    Members {
        left: usize,
    },
    /// Attributes, which no command asked for, before the value proper.
    Attribute {
        left: usize,
    },
}

/// The number in a line; the server's own replies have no others.
fn count(line: &[u8]) -> usize {
    std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Turns the reply into the function's one result.
pub(crate) struct Reading;

impl Work<Session> for Reading {
    fn step(&mut self, cx: Call<'_, '_>) -> Result<Progress, Error> {
        if !std::mem::replace(&mut cx.host.incoming.is_asked, true) {
            return Ok(Progress::Wait);
        }
        let mut portion = Portion::new();
        loop {
            let Some(token) = cx.host.incoming.token() else {
                cx.host.wanted = Wanted::More;
                return Ok(Progress::Wait);
            };
            let is_first = cx.host.incoming.levels.is_empty();
            let size = token.text.len();
            if push(cx, &token)? && settle(cx)? {
                let raises = is_first && token.kind == b'-' && cx.host.incoming.raises;
                return if raises { Err(Error::Value) } else { Ok(Progress::Done(1)) };
            }
            if !portion.spend(20 + size / 16) {
                return Ok(Progress::More);
            }
        }
    }
}

/// Pushes a token's value; false where its elements are to come.
fn push(cx: Call<'_, '_>, token: &Token) -> Result<bool, Error> {
    let Incoming { bytes, levels, .. } = &mut cx.host.incoming;
    let (lua, text) = (&mut cx.lua, &bytes[token.text.clone()]);
    match (token.kind, text.first()) {
        (b'$' | b'*', Some(b'-')) if token.kind == b'*' || is_null(bytes, token) => {
            lua.push_boolean(false)?;
        }
        (b'$', _) => lua.push_bytes(text)?,
        (b':', _) => lua.push_number(leading(text))?,
        (b'+', _) => push_field(lua, "ok", text)?,
        (b'-', _) => push_failure(lua, text)?,
        (b'_', _) => lua.push_nil()?,
        (b'#', first) => lua.push_boolean(first == Some(&b't'))?,
        (b',', _) => {
            lua.push_table(0)?;
            lua.push_number(leading(text))?;
            lua.set(-2, "double")?;
        }
        (b'(', _) => push_field(lua, "big_number", text)?,
        (b'=', _) => push_verbatim(lua, text)?,
        (kind, _) => return open(lua, levels, kind, count(text)),
    }
    Ok(true)
}

/// Whether a bulk string is the null one: its text is the line then, not what follows.
fn is_null(bytes: &[u8], token: &Token) -> bool {
    token.text.start > 0 && bytes[token.text.start - 1] == b'$'
}

fn leading(text: &[u8]) -> f64 {
    darter_lua::number::leading(text).0
}

/// Begins an aggregate; true if it is empty and so complete.
fn open(lua: &mut Lua<'_>, levels: &mut Vec<Level>, kind: u8, left: usize) -> Result<bool, Error> {
    lua.reserve(8)?;
    if kind != b'|' {
        lua.push_table(0)?;
    }
    match kind {
        b'*' if left == 0 => return Ok(true),
        b'*' => levels.push(Level::Array { next: 1, left }),
        b'|' => levels.push(Level::Attribute { left: 2 * left }),
        _ => {
            lua.push_table(0)?;
            if left == 0 {
                lua.set(-2, if kind == b'%' { "map" } else { "set" })?;
                return Ok(true);
            }
            levels.push(if kind == b'%' {
                Level::Map { has_key: false, left }
            } else {
                Level::Members { left }
            });
        }
    }
    Ok(false)
}

/// A value is complete on top: puts it where it belongs; true when nothing is left to read.
fn settle(cx: Call<'_, '_>) -> Result<bool, Error> {
    let (levels, lua) = (&mut cx.host.incoming.levels, &mut cx.lua);
    loop {
        let Some(level) = levels.last_mut() else { return Ok(true) };
        let left = match level {
            Level::Array { next, left } => {
                lua.set_element(-2, *next)?;
                *next += 1;
                left
            }
            Level::Map { has_key: has_key @ false, .. } => {
                *has_key = true;
                return Ok(false);
            }
            Level::Map { has_key, left } => {
                lua.set_pair(-3)?;
                *has_key = false;
                left
            }
            Level::Members { left } => {
                lua.push_boolean(true)?;
                lua.set_pair(-3)?;
                left
            }
            Level::Attribute { left } => {
                lua.pop(1);
                left
            }
        };
        *left -= 1;
        if *left > 0 {
            return Ok(false);
        }
        match levels.pop() {
            Some(Level::Map { .. }) => lua.set(-2, "map")?,
            Some(Level::Members { .. }) => lua.set(-2, "set")?,
            Some(Level::Attribute { .. }) => return Ok(false),
            _ => {}
        }
    }
}

/// `{field = text}`.
pub(crate) fn push_field(lua: &mut Lua<'_>, field: &str, text: &[u8]) -> Result<(), Error> {
    lua.push_table(0)?;
    lua.push_bytes(text)?;
    lua.set(-2, field)
}

/// `{err = text}`, for a text that begins with `-` and a code, or gets the code `ERR`.
pub(crate) fn push_error(lua: &mut Lua<'_>, text: &[u8]) -> Result<(), Error> {
    let (code, message) = match text.strip_prefix(b"-") {
        Some(rest) => match rest.iter().position(|byte| *byte == b' ') {
            Some(space) => (&rest[..space], &rest[space + 1..]),
            None => (&b"ERR"[..], rest),
        },
        None => (&b"ERR"[..], text),
    };
    push_field(lua, "err", &[code, b" ", trimmed(message)].concat())
}

/// The error of a command, which its own statistics have counted.
fn push_failure(lua: &mut Lua<'_>, text: &[u8]) -> Result<(), Error> {
    push_error(lua, &[b"-", text].concat())?;
    lua.push_boolean(true)?;
    lua.set(-2, COUNTED)
}

/// `{verbatim_string = {format =, string =}}`, of `txt:text`.
fn push_verbatim(lua: &mut Lua<'_>, text: &[u8]) -> Result<(), Error> {
    let (format, string) = text.split_at_checked(3).unwrap_or((text, b""));
    lua.push_table(0)?;
    lua.push_table(0)?;
    lua.push_bytes(string.get(1..).unwrap_or_default())?;
    lua.set(-2, "string")?;
    lua.push_bytes(format)?;
    lua.set(-2, "format")?;
    lua.set(-2, "verbatim_string")
}

/// Turns the answer to `redis.acl_check_cmd` into its result.
pub(crate) struct Permission;

impl Work<Session> for Permission {
    fn step(&mut self, cx: Call<'_, '_>) -> Result<Progress, Error> {
        let Some(token) = cx.host.incoming.token() else {
            cx.host.wanted = Wanted::Permission;
            return Ok(Progress::Wait);
        };
        let text = cx.host.incoming.bytes[token.text].to_vec();
        if token.kind == b'-' {
            push_error(&mut cx.lua, &[b"-", &*text].concat())?;
            return Err(Error::Value);
        }
        cx.lua.push_boolean(text == b"1")?;
        Ok(Progress::Done(1))
    }
}

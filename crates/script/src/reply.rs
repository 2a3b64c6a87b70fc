//! Turns replies of commands into values of Lua.
//!
//! The bytes may come in parts. They are read token by token, without recursion, in portions.

use crate::incoming::{Incoming, Level, Token, count};
use crate::output::COUNTED;
use crate::session::{Call, Session, Wanted};
use crate::values::{Portion, trimmed};
use darter_lua::{Error, Lua, Progress, Work};

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

/// Pushes a token's value; false if its elements follow.
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

/// Whether a bulk string is null: then its text is the line, not the bytes after it.
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

/// Stores the complete value on top in its aggregate; true when the reply is complete.
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

//! The table `redis` of scripts.

use crate::output::Protocol;
use crate::reply::{Permission, Reading, push_error, push_field};
use crate::session::{Call, Session, Step, Wanted};
use crate::values::{c_text, make_text, to_i32};
use darter_lua::{Error, Lua, Progress, Type, Work, number};
use sha1::{Digest, Sha1};
use std::fmt::Write;

/// The version that scripts see, and its number.
pub(crate) const VERSION: (&str, f64) = ("7.0.15", 458_767.0);

/// Pushes `{err = "ERR text"}`.
fn failure(lua: &mut Lua<'_>, text: &str) -> Result<(), Error> {
    push_error(lua, text.as_bytes())
}

/// Raises `{err = "ERR text"}`.
pub(crate) fn raise<T>(lua: &mut Lua<'_>, text: &str) -> Result<T, Error> {
    failure(lua, text)?;
    Err(Error::Value)
}

/// `redis.call(name, …)`: raises the refusals of the command.
pub(crate) fn call(cx: Call<'_, '_>) -> Result<Step, Error> {
    command(cx, true)
}

/// `redis.pcall(name, …)`: returns the refusals of the command.
pub(crate) fn pcall(cx: Call<'_, '_>) -> Result<Step, Error> {
    command(cx, false)
}

fn command(cx: Call<'_, '_>, raises: bool) -> Result<Step, Error> {
    if !cx.host.is_running {
        return raise(
            &mut cx.lua,
            "redis.call/pcall can only be called inside a script invocation",
        );
    }
    if let Err(text) = read_command(cx) {
        failure(&mut cx.lua, text)?;
        return if raises { Err(Error::Value) } else { Ok(Step::Return(1)) };
    }
    cx.host.wanted = Wanted::Reply;
    cx.host.incoming.begin(raises);
    Ok(Step::Work(Box::new(Reading)))
}

/// Turns the arguments into the words of a command, and pops them: they may fill the stack, and the
/// reply needs a few slots.
fn read_command(cx: Call<'_, '_>) -> Result<(), &'static str> {
    let result = copy_words(cx);
    cx.lua.pop(cx.lua.top());
    result
}

fn copy_words(cx: Call<'_, '_>) -> Result<(), &'static str> {
    let (words, lua) = (&mut cx.host.command, &cx.lua);
    words.clear();
    if lua.top() == 0 {
        return Err("Please specify at least one argument for this redis lib call");
    }
    for index in 1..=i32::try_from(lua.top()).unwrap_or(i32::MAX) {
        match lua.kind(index) {
            Some(Type::String) => words.push(lua.bytes(index).unwrap_or_default()),
            Some(Type::Number) => {
                let value = lua.number(index).unwrap_or(0.0);
                words.push(number::general(&mut [0; 64], value, 17).as_bytes());
            }
            _ => return Err("Lua redis lib command arguments must be strings or integers"),
        }
    }
    Ok(())
}

/// `redis.acl_check_cmd(name, …)`.
pub(crate) fn acl_check_cmd(cx: Call<'_, '_>) -> Result<Step, Error> {
    if !cx.host.is_running {
        return raise(
            &mut cx.lua,
            "redis.acl_check_cmd can only be called inside a script invocation",
        );
    }
    if let Err(text) = read_command(cx) {
        return raise(&mut cx.lua, text);
    }
    cx.host.wanted = Wanted::Permission;
    cx.host.incoming.begin(true);
    Ok(Step::Work(Box::new(Permission)))
}

/// True if the only argument is a string. Otherwise an error is pushed, for the caller to return.
fn has_one_string(lua: &mut Lua<'_>) -> Result<bool, Error> {
    let has = lua.top() == 1 && lua.kind(1) == Some(Type::String);
    if !has {
        failure(lua, "wrong number or type of arguments")?;
    }
    Ok(has)
}

/// `redis.error_reply(text)`.
pub(crate) fn error_reply(cx: Call<'_, '_>) -> Result<Step, Error> {
    let lua = &mut cx.lua;
    if has_one_string(lua)? {
        let text = c_text(lua.bytes(1).unwrap_or_default());
        let text = if text.first() == Some(&b'-') { text.to_vec() } else { [b"-", text].concat() };
        push_error(lua, &text)?;
    }
    Ok(Step::Return(1))
}

/// `redis.status_reply(text)`.
pub(crate) fn status_reply(cx: Call<'_, '_>) -> Result<Step, Error> {
    let lua = &mut cx.lua;
    if has_one_string(lua)? {
        let text = lua.bytes(1).unwrap_or_default().to_vec();
        push_field(lua, "ok", &text)?;
    }
    Ok(Step::Return(1))
}

/// `redis.sha1hex(text)`.
pub(crate) fn sha1hex(cx: Call<'_, '_>) -> Result<Step, Error> {
    let lua = &mut cx.lua;
    if lua.top() != 1 {
        return raise(lua, "wrong number of arguments");
    }
    if make_text(lua, 1).is_err() {
        lua.push_bytes(b"")?;
        lua.replace(1);
    }
    Ok(Step::Work(Box::new(Hashing { sha1: Sha1::new(), done: 0 })))
}

struct Hashing {
    sha1: Sha1,
    done: usize,
}

/// Bytes that are hashed in a portion.
const HASHED_AT_ONCE: usize = 16 << 10;

impl Work<Session> for Hashing {
    fn step(&mut self, cx: Call<'_, '_>) -> Result<Progress, Error> {
        let text = cx.lua.bytes(1).unwrap_or_default();
        let end = text.len().min(self.done + HASHED_AT_ONCE);
        self.sha1.update(&text[self.done..end]);
        self.done = end;
        if end < text.len() {
            return Ok(Progress::More);
        }
        let digest = hex(&self.sha1.clone().finalize());
        cx.lua.push_bytes(digest.as_bytes())?;
        Ok(Progress::Done(1))
    }
}

/// Bytes in lower-case digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // A string takes all.
        text
    })
}

/// `redis.log(level, …)`.
pub(crate) fn log(cx: Call<'_, '_>) -> Result<Step, Error> {
    let lua = &mut cx.lua;
    if lua.top() < 2 {
        return raise(lua, "redis.log() requires two arguments or more.");
    }
    let Some(level) = lua.number(1) else {
        return raise(lua, "First argument must be a number (log level).");
    };
    let Some(level) = u8::try_from(to_i32(level)).ok().filter(|level| *level <= 3) else {
        return raise(lua, "Invalid debug level.");
    };
    if level < cx.host.log_level {
        return Ok(Step::Return(0));
    }
    let mut line = Vec::new();
    for index in 2..=i32::try_from(lua.top()).unwrap_or(i32::MAX) {
        if make_text(lua, index).is_ok() {
            line.extend_from_slice(if index == 2 { b"" } else { b" " });
            let bytes = lua.bytes(index).unwrap_or_default();
            line.extend_from_slice(&bytes[..bytes.len().min(LOG_MAX)]);
        }
    }
    let room = LOG_MAX.saturating_sub(cx.host.log_bytes + LOG_LINE_BYTES);
    if room > 0 {
        line.truncate(room);
        cx.host.log_bytes += LOG_LINE_BYTES + line.len();
        cx.host.log.push((level, line));
    }
    Ok(Step::Return(0))
}

/// The most bytes of log lines that are kept for the embedder; the rest is cut.
const LOG_MAX: usize = 1 << 20;
/// The size of a log line besides its text.
const LOG_LINE_BYTES: usize = 64;

/// `redis.setresp(version)`.
pub(crate) fn setresp(cx: Call<'_, '_>) -> Result<Step, Error> {
    let lua = &mut cx.lua;
    if !cx.host.is_running {
        return raise(lua, "redis.setresp can only be called inside a script invocation");
    }
    if lua.top() != 1 {
        return raise(lua, "redis.setresp() requires one argument.");
    }
    cx.host.protocol = match to_i32(lua.number(1).unwrap_or(0.0)) {
        2 => Protocol::Two,
        3 => Protocol::Three,
        _ => return raise(lua, "RESP version must be 2 or 3."),
    };
    Ok(Step::Return(0))
}

/// `redis.set_repl(flags)`.
pub(crate) fn set_repl(cx: Call<'_, '_>) -> Result<Step, Error> {
    let lua = &mut cx.lua;
    if !cx.host.is_running {
        return raise(lua, "redis.set_repl can only be called inside a script invocation");
    }
    if lua.top() != 1 {
        return raise(lua, "redis.set_repl() requires two arguments.");
    }
    match u8::try_from(to_i32(lua.number(1).unwrap_or(0.0))) {
        Ok(flags @ 0..=3) => cx.host.replication = flags,
        _ => {
            return raise(
                lua,
                "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
            );
        }
    }
    Ok(Step::Return(0))
}

/// `redis.replicate_commands()`: deprecated, always true.
pub(crate) fn replicate_commands(cx: Call<'_, '_>) -> Result<Step, Error> {
    cx.lua.push_boolean(true)?;
    Ok(Step::Return(1))
}

/// `redis.breakpoint()`: there is no debugger.
pub(crate) fn breakpoint(cx: Call<'_, '_>) -> Result<Step, Error> {
    cx.lua.push_boolean(false)?;
    Ok(Step::Return(1))
}

/// `redis.debug(…)`: there is no debugger.
pub(crate) fn debug(_: Call<'_, '_>) -> Result<Step, Error> {
    Ok(Step::Return(0))
}

//! Arguments of functions, read by Lua's rules and with Lua's error texts.

use darter_lua::{Error, Function, Lua, Type, number};

/// Sets functions in the table on top.
pub(crate) fn fill<H: 'static>(
    lua: &mut Lua<'_>,
    functions: &[(&str, Function<H>)],
) -> Result<(), Error> {
    for (name, function) in functions {
        lua.push_function(*function)?;
        lua.set(-2, name)?;
    }
    Ok(())
}

/// `number expected, got nil`, for argument `index`.
pub(crate) fn type_error(lua: &Lua<'_>, index: i32, expected: &str) -> Error {
    let position = usize::try_from(index).unwrap_or(0);
    Error::argument(position, format!("{expected} expected, got {}", lua.kind_name(index)))
}

/// A number, or a text that Lua reads as one.
pub(crate) fn number_at(lua: &Lua<'_>, index: i32) -> Result<f64, Error> {
    lua.number(index).ok_or_else(|| type_error(lua, index, "number"))
}

/// A number truncated to an integer, as C casts a double.
pub(crate) fn integer_at(lua: &Lua<'_>, index: i32) -> Result<i64, Error> {
    number_at(lua, index).map(to_i64)
}

/// As [`integer_at`]; `default` where the argument is missing or nil.
pub(crate) fn integer_or(lua: &Lua<'_>, index: i32, default: i64) -> Result<i64, Error> {
    match lua.kind(index) {
        None | Some(Type::Nil) => Ok(default),
        Some(_) => integer_at(lua, index),
    }
}

/// C's cast of a double to 64 bits on x86: values out of range become `i64::MIN`.
pub(crate) fn to_i64(value: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0; // 2^63
    if (-END..END).contains(&value) { value as i64 } else { i64::MIN }
}

/// C's cast of a double to 32 bits on x86, by way of 64.
pub(crate) fn to_i32(value: f64) -> i32 {
    to_i64(value) as i32 // C keeps the low bits, too.
}

/// Makes argument `index` a string, if it is a number.
pub(crate) fn make_text(lua: &mut Lua<'_>, index: i32) -> Result<(), Error> {
    match lua.kind(index) {
        Some(Type::String) => Ok(()),
        Some(Type::Number) => {
            let index = lua.absolute(index);
            let mut buffer = [0; 64];
            let text = number::general(&mut buffer, lua.number(index).unwrap_or(0.0), 14);
            lua.push_bytes(text.as_bytes())?;
            lua.replace(index);
            Ok(())
        }
        _ => Err(type_error(lua, index, "string")),
    }
}

/// The part of a text that C sees: up to the first NUL.
pub(crate) fn c_text(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A text without the bytes that would end a line of the protocol.
pub(crate) fn one_line(text: &mut [u8]) {
    for byte in text.iter_mut().filter(|byte| matches!(byte, b'\r' | b'\n')) {
        *byte = b' ';
    }
}

/// A text without CR and LF at both ends.
pub(crate) fn trimmed(text: &[u8]) -> &[u8] {
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let start = text.iter().position(|byte| !is_end(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !is_end(byte)).map_or(start, |last| last + 1);
    &text[start..end]
}

/// Work that a portion may still do, in units of a few nanoseconds.
pub(crate) struct Portion(usize);

impl Portion {
    /// About 20 µs.
    pub(crate) fn new() -> Self {
        Self(4000)
    }

    /// Spends `units`; false once the portion is used up.
    pub(crate) fn spend(&mut self, units: usize) -> bool {
        self.0 = self.0.saturating_sub(units);
        self.0 > 0
    }
}

//! The library `cjson`.
//!
//! Its settings outlive a script: they are in a table that the functions of one instance share.
//! Both directions work without recursion, and in portions.

mod decode;
mod encode;
mod settings;

use crate::session::{Call, LuaFunction, Step};
use crate::values::{integer_at, make_text, type_error};
use darter_lua::{Error, Lua, Type};
use settings::Settings;

#[rustfmt::skip] // A table.
const FUNCTIONS: &[(&str, LuaFunction)] = &[
    ("encode",                  encode::encode),
    ("decode",                  decode::decode),
    ("encode_sparse_array",     sparse_array),
    ("encode_max_depth",        |cx| one(cx, |cx| integer(cx, 1, 4, 1, i32::MAX))),
    ("decode_max_depth",        |cx| one(cx, |cx| integer(cx, 1, 5, 1, i32::MAX))),
    ("encode_number_precision", |cx| one(cx, |cx| integer(cx, 1, 6, 1, 14))),
    ("encode_keep_buffer",      |cx| one(cx, |cx| choice(cx, 1, 7, &["off", "on"]))),
    ("encode_invalid_numbers",  |cx| one(cx, |cx| choice(cx, 1, 8, &["off", "on", "null"]))),
    ("decode_invalid_numbers",  |cx| one(cx, |cx| choice(cx, 1, 9, &["off", "on"]))),
    ("new",                     |cx| { push(&mut cx.lua)?; Ok(Step::Return(1)) }),
];

/// Pushes an instance of the library.
pub(crate) fn push(lua: &mut Lua<'_>) -> Result<(), Error> {
    lua.push_table(0)?;
    lua.push_table(Settings::DEFAULTS.len())?;
    for (index, value) in Settings::DEFAULTS.iter().enumerate() {
        lua.push_number(f64::from(*value))?;
        lua.set_element(-2, index + 1)?;
    }
    for (name, function) in FUNCTIONS {
        lua.push_copy(-1)?;
        lua.make_function(*function)?;
        lua.set(-3, name)?;
    }
    lua.pop(1);
    lua.push_null()?;
    lua.set(-2, "null")?;
    for (name, text) in [("_NAME", "cjson"), ("_VERSION", "2.1.0")] {
        lua.push_bytes(text.as_bytes())?;
        lua.set(-2, name)?;
    }
    Ok(())
}

/// Makes the arguments exactly `count`, and pushes the settings after them.
fn prepare(cx: Call<'_, '_>, count: usize) -> Result<(), Error> {
    if cx.lua.top() > count {
        return Err(Error::argument(count + 1, "found too many arguments"));
    }
    cx.lua.set_top(count)?;
    cx.lua.push_own()
}

/// A function that has one setting, which it returns.
fn one(
    cx: Call<'_, '_>,
    set: impl FnOnce(Call<'_, '_>) -> Result<(), Error>,
) -> Result<Step, Error> {
    prepare(cx, 1)?;
    set(cx)?;
    cx.lua.pop(1);
    Ok(Step::Return(1))
}

/// Sets the setting at `slot` to argument `index`, unless that is nil, and pushes it.
fn integer(cx: Call<'_, '_>, index: i32, slot: usize, min: i32, max: i32) -> Result<(), Error> {
    let lua = &mut cx.lua;
    let settings = i32::try_from(lua.top()).unwrap_or(1);
    if lua.kind(index) != Some(Type::Nil) {
        let value = i32::try_from(integer_at(lua, index)?).unwrap_or(0);
        if value < min || value > max {
            let text = format!("expected integer between {min} and {max}");
            return Err(Error::argument(1, text));
        }
        lua.push_number(f64::from(value))?;
        lua.set_element(settings, slot)?;
    }
    lua.get_element(settings, slot)?;
    lua.insert(settings);
    Ok(())
}

/// As [`integer`], for a setting that has names; 0 and 1 are also false and true.
fn choice(cx: Call<'_, '_>, index: i32, slot: usize, names: &[&str]) -> Result<(), Error> {
    let lua = &mut cx.lua;
    let settings = i32::try_from(lua.top()).unwrap_or(1);
    let chosen = match lua.kind(index) {
        Some(Type::Nil) => None,
        Some(Type::Boolean) => Some(usize::from(lua.truth(index))),
        Some(Type::String | Type::Number) => {
            make_text(lua, index)?;
            let name = crate::values::c_text(lua.bytes(index).unwrap_or_default());
            let found = names.iter().position(|known| known.as_bytes() == name);
            let name = String::from_utf8_lossy(name);
            let position = usize::try_from(index).unwrap_or(0);
            Some(found.ok_or(Error::argument(position, format!("invalid option '{name}'")))?)
        }
        _ => return Err(type_error(lua, index, "string")),
    };
    if let Some(chosen) = chosen {
        lua.push_number(f64::from(u8::try_from(chosen).unwrap_or(0)))?;
        lua.set_element(settings, slot)?;
    }
    lua.get_element(settings, slot)?;
    match lua.number(-1) {
        Some(2.0) => lua.push_bytes(names.get(2).unwrap_or(&"").as_bytes())?,
        value => lua.push_boolean(value == Some(1.0))?,
    }
    lua.insert(settings);
    lua.pop(1);
    Ok(())
}

/// `cjson.encode_sparse_array([convert [, ratio [, safe]]])`.
fn sparse_array(cx: Call<'_, '_>) -> Result<Step, Error> {
    prepare(cx, 3)?;
    choice(cx, 1, 1, &["off", "on"])?;
    integer(cx, 2, 2, 0, i32::MAX)?;
    integer(cx, 3, 3, 0, i32::MAX)?;
    cx.lua.pop(1);
    Ok(Step::Return(3))
}

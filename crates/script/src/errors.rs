//! Errors that scripts raise: the handler that adds the place, and the line that the client gets.

use crate::output::COUNTED;
use crate::session::{Call, Session, Step};
use crate::values::c_text;
use darter_lua::{Cx, Error, Lua, Outcome, Type, number};

/// The handler of errors, which scripts see as `__redis__err__handler`. Turns any error into a
/// table with `err`, and adds the `source` and `line` of the function that raised it, or of its
/// caller if that is a function of the host.
pub(crate) fn handle(cx: Call<'_, '_>) -> Result<Step, Error> {
    let lua = &mut cx.lua;
    lua.set_top(1)?;
    if lua.kind(1) != Some(Type::Table) {
        let text = [b"ERR ", &*described(lua, 1)].concat();
        lua.push_table(0)?;
        lua.push_bytes(&text)?;
        lua.set(-2, "err")?;
        lua.replace(1);
    }
    let place = match lua.location(1) {
        Some((true, place)) => lua.location(2).map(|(_, place)| place).or(Some(place)),
        place => place.map(|(_, place)| place),
    };
    if let Some(place) = place {
        lua.push_bytes(&place.source)?;
        lua.set(1, "source")?;
        lua.push_number(f64::from(place.line))?;
        lua.set(1, "line")?;
    }
    lua.set_top(1)?;
    Ok(Step::Return(1))
}

/// Pushes the handler.
pub(crate) fn push_handler(cx: Call<'_, '_>) -> Result<(), Error> {
    if cx.host.handler.is_none() {
        cx.lua.push_function(handle)?;
        cx.host.handler = Some(cx.lua.keep()?);
    }
    cx.lua.push_kept(cx.host.handler.as_ref().expect("it is kept"))
}

/// A value as `tostring` writes it.
fn described(lua: &Lua<'_>, index: i32) -> Vec<u8> {
    match lua.kind(index) {
        Some(Type::String) => lua.bytes(index).unwrap_or_default().to_vec(),
        Some(Type::Number) => {
            let value = lua.number(index).unwrap_or(0.0);
            number::general(&mut [0; 64], value, 14).into()
        }
        Some(Type::Boolean) => lua.truth(index).to_string().into_bytes(),
        None | Some(Type::Nil) => b"nil".to_vec(),
        Some(Type::Light) => b"userdata: (nil)".to_vec(),
        Some(kind) => format!("{}: {:#x}", kind.name(), lua.address(index)).into_bytes(),
    }
}

/// The line of the error on top, which ended the script `name`; without `-` and CRLF.
pub(crate) fn line(
    cx: &mut Cx<'_, Session>,
    outcome: Outcome,
    name: &str,
) -> Result<Vec<u8>, Error> {
    let lua = &mut cx.lua;
    if outcome == Outcome::Broken || lua.kind(-1) != Some(Type::Table) {
        return Ok(broken(lua, name));
    }
    let mut line = text(lua)?;
    if let (Some(source), Some(number)) = (field(lua, "source")?, field(lua, "line")?) {
        let place = [b" script: ", name.as_bytes(), b", on ", &source, b":", &number, b"."];
        line.extend_from_slice(&place.concat());
    }
    Ok(line)
}

/// The error on top, which ended the text of a library; without a place.
pub(crate) fn message(cx: &mut Cx<'_, Session>, outcome: Outcome) -> Result<Vec<u8>, Error> {
    let lua = &mut cx.lua;
    if outcome == Outcome::Broken || lua.kind(-1) != Some(Type::Table) {
        return Ok([b"ERR ", c_text(lua.bytes(-1).unwrap_or(b"execution failure"))].concat());
    }
    text(lua)
}

/// The line for a script that could not be called, without `-` and CRLF.
pub(crate) fn no_memory(name: &str) -> Vec<u8> {
    format!("ERR Error running script {name}, not enough memory").into_bytes()
}

/// The line of an error that has not gone through the handler.
fn broken(lua: &Lua<'_>, name: &str) -> Vec<u8> {
    let text = c_text(lua.bytes(-1).unwrap_or(b"execution failure"));
    let text = &text[..text.len().min(100)];
    [b"ERR Error running script ", name.as_bytes(), b", ", text].concat()
}

/// The text of the error table on top.
fn text(lua: &mut Lua<'_>) -> Result<Vec<u8>, Error> {
    Ok(field(lua, "err")?.unwrap_or_else(|| b"ERR unknown error".to_vec()))
}

/// Whether a command has already counted the error on top.
pub(crate) fn is_counted(lua: &mut Lua<'_>) -> Result<bool, Error> {
    if lua.kind(-1) != Some(Type::Table) {
        return Ok(false);
    }
    lua.get(-1, COUNTED)?;
    let is_counted = lua.truth(-1);
    lua.pop(1);
    Ok(is_counted)
}

/// A field of the table on top, if it is a string or a number.
fn field(lua: &mut Lua<'_>, name: &str) -> Result<Option<Vec<u8>>, Error> {
    lua.get(-1, name)?;
    let text = match lua.kind(-1) {
        Some(Type::String | Type::Number) => Some(c_text(&described(lua, -1)).to_vec()),
        _ => None,
    };
    lua.pop(1);
    Ok(text)
}

//! `redis.register_function`, by which a library that is being loaded names its functions.

use crate::library::{self, Function};
use crate::redis::raise;
use crate::session::{Call, Step};
use crate::shebang::Flags;
use crate::values::{c_text, make_text};
use darter_lua::{Error, Lua, Position, Type};

/// The arguments of a call of `redis.register_function`.
#[derive(Default)]
struct Named {
    name: Option<Vec<u8>>,
    description: Option<Box<[u8]>>,
    flags: Flags,
    has_callback: bool,
}

/// `redis.register_function(name, callback)`, or with a table of named arguments.
pub(crate) fn register_function(cx: Call<'_, '_>) -> Result<Step, Error> {
    let lua = &mut cx.lua;
    let Some(registering) = &mut cx.host.registering else {
        return raise(lua, "redis.register_function can only be called on FUNCTION LOAD command");
    };
    let named = match lua.top() {
        1 => read_table(lua)?,
        2 => read_pair(lua)?,
        _ => Err("wrong number of arguments to redis.register_function"),
    };
    let named = match named {
        Ok(named) => named,
        Err(text) => return raise(lua, text),
    };
    let name = named.name.as_deref().and_then(library::name_of);
    let Some(name) = name else { return raise(lua, library::BAD_NAME) };
    lua.push_kept(&registering.table)?;
    lua.get(-1, &name)?;
    if lua.kind(-1) != Some(Type::Nil) {
        return raise(lua, "Function already exists in the library");
    }
    lua.pop(1);
    lua.push_copy(CALLBACK)?;
    lua.set(-2, &name)?;
    let Named { description, flags, .. } = named;
    registering.functions.push(Function { name: (*name).into(), description, flags });
    Ok(Step::Return(0))
}

/// The stack index at which both forms leave the callback.
const CALLBACK: i32 = 2;

/// Reads the form with two arguments.
fn read_pair(lua: &mut Lua<'_>) -> Result<Result<Named, &'static str>, Error> {
    let Some(name) = text_at(lua, 1) else {
        return Ok(Err("first argument to redis.register_function must be a string"));
    };
    if lua.kind(CALLBACK) != Some(Type::Function) {
        return Ok(Err("second argument to redis.register_function must be a function"));
    }
    Ok(Ok(Named { name: Some(name), has_callback: true, ..Named::default() }))
}

/// Reads the form with one table; its callback stays on the stack.
fn read_table(lua: &mut Lua<'_>) -> Result<Result<Named, &'static str>, Error> {
    if lua.kind(1) != Some(Type::Table) {
        return Ok(Err(
            "calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).",
        ));
    }
    lua.push_nil()?;
    let mut named = Named::default();
    let mut position = Position::default();
    while lua.next(1, &mut position)? {
        if let Err(text) = named.read(lua)? {
            return Ok(Err(text));
        }
        lua.set_top(2)?;
    }
    if named.name.is_none() {
        return Ok(Err("redis.register_function must get a function name argument"));
    }
    if !named.has_callback {
        return Ok(Err("redis.register_function must get a callback argument"));
    }
    Ok(Ok(named))
}

impl Named {
    /// Reads the argument whose name and value are on top.
    fn read(&mut self, lua: &mut Lua<'_>) -> Result<Result<(), &'static str>, Error> {
        let Some(key) = text_at(lua, -2) else {
            return Ok(Err("named argument key given to redis.register_function is not a string"));
        };
        let is = |name: &str| c_text(&key).eq_ignore_ascii_case(name.as_bytes());
        if is("function_name") {
            self.name = text_at(lua, -1);
            if self.name.is_none() {
                return Ok(Err(
                    "function_name argument given to redis.register_function must be a string",
                ));
            }
        } else if is("description") {
            let Some(text) = text_at(lua, -1) else {
                return Ok(Err(
                    "description argument given to redis.register_function must be a string",
                ));
            };
            self.description = Some(text.into());
        } else if is("callback") {
            if lua.kind(-1) != Some(Type::Function) {
                return Ok(Err(
                    "callback argument given to redis.register_function must be a function",
                ));
            }
            lua.push_copy(-1)?;
            lua.replace(CALLBACK);
            self.has_callback = true;
        } else if is("flags") {
            if lua.kind(-1) != Some(Type::Table) {
                return Ok(Err(
                    "flags argument to redis.register_function must be a table representing function flags",
                ));
            }
            let Some(flags) = read_flags(lua)? else { return Ok(Err("unknown flag given")) };
            self.flags = flags;
        } else {
            return Ok(Err("unknown argument given to redis.register_function"));
        }
        Ok(Ok(()))
    }
}

/// The flags in the table on top, up to the first nil.
fn read_flags(lua: &mut Lua<'_>) -> Result<Option<Flags>, Error> {
    /// The most names that are read; there are only five flags.
    const NAMES_MAX: usize = 1024;
    let mut flags = Flags::default();
    for index in 1..=NAMES_MAX {
        lua.get_element(-1, index)?;
        if lua.kind(-1) == Some(Type::Nil) {
            lua.pop(1);
            return Ok(Some(flags));
        }
        let name = text_at(lua, -1).unwrap_or_default();
        let Some(flag) = Flags::from_name(&c_text(&name).to_ascii_lowercase()) else {
            return Ok(None);
        };
        flags = flags | flag;
        lua.pop(1);
    }
    Ok(None)
}

/// A string, or a number as its text.
fn text_at(lua: &mut Lua<'_>, index: i32) -> Option<Vec<u8>> {
    lua.push_copy(index).ok()?;
    let is_text = make_text(lua, -1).is_ok();
    let text = lua.bytes(-1).filter(|_| is_text).map(<[u8]>::to_vec);
    lua.pop(1);
    text
}

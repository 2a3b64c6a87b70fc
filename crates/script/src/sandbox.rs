//! The environment of scripts: their globals, which no script can change.

use crate::register::register_function;
use crate::session::{Call, Globals, LibraryStage, LuaFunction, Session, Step};
use crate::values::fill;
use crate::{bit, cjson, cmsgpack, errors, math, packing, redis};
use darter_lua::{Cx, Error, Lua, Position, Type, number};

#[rustfmt::skip] // A table.
const REDIS: &[(&str, LuaFunction)] = &[
    ("call",               redis::call),
    ("pcall",              redis::pcall),
    ("log",                redis::log),
    ("setresp",            redis::setresp),
    ("sha1hex",            redis::sha1hex),
    ("error_reply",        redis::error_reply),
    ("status_reply",       redis::status_reply),
    ("set_repl",           redis::set_repl),
    ("acl_check_cmd",      redis::acl_check_cmd),
];

/// Further functions of EVAL's scripts.
#[rustfmt::skip] // A table.
const REDIS_OF_SCRIPTS: &[(&str, LuaFunction)] = &[
    ("breakpoint",         redis::breakpoint),
    ("debug",              redis::debug),
    ("replicate_commands", redis::replicate_commands),
];

#[rustfmt::skip] // A table.
const NUMBERS: &[(&str, f64)] = &[
    ("LOG_DEBUG", 0.0), ("LOG_VERBOSE", 1.0), ("LOG_NOTICE", 2.0), ("LOG_WARNING", 3.0),
    ("REDIS_VERSION_NUM", redis::VERSION.1),
];

#[rustfmt::skip] // A table.
const REPLICATION: &[(&str, f64)] = &[
    ("REPL_NONE", 0.0), ("REPL_AOF", 1.0), ("REPL_SLAVE", 2.0), ("REPL_REPLICA", 2.0),
    ("REPL_ALL", 3.0),
];

/// The `redis` of a library while it is loaded.
#[rustfmt::skip] // A table.
const REDIS_OF_LOADING: &[(&str, LuaFunction)] = &[
    ("register_function",  register_function),
    ("log",                redis::log),
];

/// Fills the globals of a new VM for scripts, and closes them.
pub(crate) fn furnish(cx: &mut Cx<'_, Session>) -> Result<(), Error> {
    let lua = &mut cx.lua;
    fill_globals(lua)?;
    lua.get(1, "redis")?;
    fill(lua, REDIS_OF_SCRIPTS)?;
    lua.pop(1);
    lua.push_function(errors::handle)?;
    lua.set(1, "__redis__err__handler")?;
    close(lua)
}

/// As [`furnish`], for a VM for functions, which has two sets of globals.
pub(crate) fn furnish_for_functions(cx: &mut Cx<'_, Session>) -> Result<(), Error> {
    let lua = &mut cx.lua;
    fill_globals(lua)?;
    close(lua)?;
    lua.set_top(1)?;
    let running = lua.keep()?;

    lua.push_table(0)?;
    push_redis(lua, REDIS_OF_LOADING, &[])?;
    refuse_unknown(lua, -1)?;
    lua.set(-2, "redis")?;
    refuse_unknown(lua, -1)?;
    protect(lua)?;
    let loading = lua.keep()?;

    lua.push_table(0)?;
    lua.push_table(0)?;
    lua.push_kept(&running)?;
    lua.set(-2, "__index")?;
    lua.set_read_only(-1, true);
    lua.set_metatable(-2)?;
    lua.set_read_only(-1, true);
    lua.set_globals();
    cx.host.globals = Some(Globals { loading, running, stage: LibraryStage::Running });
    Ok(())
}

/// Sets the tables behind the globals of functions.
pub(crate) fn set_stage(cx: Call<'_, '_>, stage: LibraryStage) -> Result<(), Error> {
    let globals = cx.host.globals.as_mut().expect("the machine is one for functions");
    if globals.stage == stage {
        return Ok(());
    }
    let lua = &mut cx.lua;
    lua.push_globals()?;
    let has_metatable = lua.push_metatable(-1)?;
    assert!(has_metatable, "the globals of functions are empty");
    lua.set_read_only(-1, false);
    lua.push_kept(match stage {
        LibraryStage::Loading => &globals.loading,
        LibraryStage::Running => &globals.running,
    })?;
    lua.set(-2, "__index")?; // Without memory for this nothing has changed: the key is there.
    lua.set_read_only(-1, true);
    lua.pop(2);
    globals.stage = stage;
    Ok(())
}

/// Pushes the globals of a new VM, and adds to Lua's own what scripts and functions see.
fn fill_globals(lua: &mut Lua<'_>) -> Result<(), Error> {
    lua.push_globals()?;
    push_redis(lua, REDIS, REPLICATION)?;
    lua.set(1, "redis")?;
    lua.get(1, "math")?;
    fill(lua, &[("random", math::random), ("randomseed", math::randomseed)])?;
    lua.pop(1);
    for (name, push) in [
        ("cjson", cjson::push as fn(&mut Lua<'_>) -> Result<(), Error>),
        ("struct", packing::push),
        ("cmsgpack", cmsgpack::push),
        ("bit", bit::push),
    ] {
        push(lua)?;
        lua.set(1, name)?;
    }
    Ok(())
}

fn push_redis(
    lua: &mut Lua<'_>,
    functions: &[(&str, LuaFunction)],
    numbers: &[(&str, f64)],
) -> Result<(), Error> {
    lua.push_table(0)?;
    fill(lua, functions)?;
    for (name, value) in NUMBERS.iter().chain(numbers) {
        lua.push_number(*value)?;
        lua.set(-2, name)?;
    }
    lua.push_bytes(redis::VERSION.0.as_bytes())?;
    lua.set(-2, "REDIS_VERSION")
}

/// Makes the globals, all that they lead to, and the metatable of strings read-only.
fn close(lua: &mut Lua<'_>) -> Result<(), Error> {
    refuse_unknown(lua, 1)?;
    protect(lua)?;
    lua.push_bytes(b"")?;
    if lua.push_metatable(-1)? {
        protect(lua)?;
    }
    Ok(())
}

/// Gives a table a metatable by which names that it does not have are errors.
fn refuse_unknown(lua: &mut Lua<'_>, table: i32) -> Result<(), Error> {
    let table = lua.absolute(table);
    lua.push_table(0)?;
    lua.push_function(unknown_global)?;
    lua.set(-2, "__index")?;
    lua.set_metatable(table)
}

/// Makes the table on top read-only, its metatable, and those in it.
fn protect(lua: &mut Lua<'_>) -> Result<(), Error> {
    if lua.is_read_only(-1) {
        return Ok(());
    }
    lua.set_read_only(-1, true);
    let mut position = Position::default();
    while lua.next(-1, &mut position)? {
        if lua.kind(-1) == Some(Type::Table) {
            protect(lua)?;
        }
        lua.pop(2);
    }
    if lua.push_metatable(-1)? {
        protect(lua)?;
        lua.pop(1);
    }
    Ok(())
}

/// `__index` of the globals: there is no such variable.
fn unknown_global(cx: Call<'_, '_>) -> Result<Step, Error> {
    let lua = &cx.lua;
    if lua.top() != 2 {
        return Err(Error::located("Wrong number of arguments to luaProtectedTableError"));
    }
    let name = match lua.kind(2) {
        Some(Type::String) => {
            let name = crate::values::c_text(lua.bytes(2).unwrap_or_default());
            String::from_utf8_lossy(name).into_owned()
        }
        Some(Type::Number) => {
            number::general(&mut [0; 64], lua.number(2).unwrap_or(0.0), 14).to_owned()
        }
        _ => {
            return Err(Error::located(
                "Second argument to luaProtectedTableError must be a string or number",
            ));
        }
    };
    let text = format!("Script attempted to access nonexistent global variable '{name}'");
    Err(Error::located(text))
}

/// Sets the globals `KEYS` or `ARGV` to the table on top.
pub(crate) fn set_global(lua: &mut Lua<'_>, name: &str) -> Result<(), Error> {
    lua.push_globals()?;
    lua.insert(-2);
    lua.set_read_only(-2, false);
    lua.set(-2, name)?; // Without memory for this there is no script that could misuse it.
    lua.set_read_only(-1, true);
    lua.pop(1);
    Ok(())
}

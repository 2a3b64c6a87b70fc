//! The part of Lua's C interface that this crate uses, as `vendor/lua.h` and `lauxlib.h` declare it.
//!
//! All functions are `C-unwind`: no panic crosses them (`call.rs` catches them), but those that
//! raise errors leave by `longjmp`. Each use says why it cannot raise, or that nothing on the
//! stack needs to be dropped.

use std::ffi::{c_char, c_int, c_void};

/// A Lua thread: the main one, or a coroutine of a script.
#[repr(C)]
pub(crate) struct State {
    _opaque: [u8; 0],
}

pub(crate) type CFunction = unsafe extern "C-unwind" fn(*mut State) -> c_int;
pub(crate) type Alloc = unsafe extern "C-unwind" fn(
    *mut c_void,
    *mut c_void,
    old_bytes: usize,
    new_bytes: usize,
) -> *mut c_void;
pub(crate) type Hook = unsafe extern "C-unwind" fn(*mut State, *mut Debug);
pub(crate) type Tick = unsafe extern "C-unwind" fn(*mut c_void, *mut State);

pub(crate) const REGISTRY: c_int = -10_000;
pub(crate) const GLOBALS: c_int = -10_002;
/// The first value that belongs to a C function.
pub(crate) const UPVALUE_1: c_int = GLOBALS - 1;
/// The second value that belongs to a C function.
pub(crate) const UPVALUE_2: c_int = GLOBALS - 2;

pub(crate) const NIL: c_int = 0;
pub(crate) const BOOLEAN: c_int = 1;
pub(crate) const LIGHT: c_int = 2;
pub(crate) const NUMBER: c_int = 3;
pub(crate) const STRING: c_int = 4;
pub(crate) const TABLE: c_int = 5;
pub(crate) const FUNCTION: c_int = 6;
pub(crate) const USERDATA: c_int = 7;

pub(crate) const OK: c_int = 0;
pub(crate) const ERROR_RUN: c_int = 2;

pub(crate) const GC_STEP: c_int = 5;
pub(crate) const GC_COLLECT: c_int = 2;

pub(crate) const MASK_COUNT: c_int = 1 << 3;

/// `lua_Debug`.
#[repr(C)]
pub(crate) struct Debug {
    pub(crate) event: c_int,
    pub(crate) name: *const c_char,
    pub(crate) namewhat: *const c_char,
    pub(crate) what: *const c_char,
    pub(crate) source: *const c_char,
    pub(crate) currentline: c_int,
    pub(crate) nups: c_int,
    pub(crate) linedefined: c_int,
    pub(crate) lastlinedefined: c_int,
    pub(crate) short_src: [c_char; 60],
    i_ci: c_int,
}

impl Debug {
    pub(crate) fn new() -> Self {
        let null = std::ptr::null();
        Self {
            event: 0,
            name: null,
            namewhat: null,
            what: null,
            source: null,
            currentline: -1,
            nups: 0,
            linedefined: -1,
            lastlinedefined: -1,
            short_src: [0; 60],
            i_ci: 0,
        }
    }
}

#[rustfmt::skip] // A table.
unsafe extern "C-unwind" {
    // The state, and memory.
    pub(crate) fn lua_newstate(alloc: Alloc, ud: *mut c_void) -> *mut State;
    pub(crate) fn lua_close(state: *mut State);
    pub(crate) fn lua_getallocf(state: *mut State, ud: *mut *mut c_void) -> Alloc;
    pub(crate) fn lua_gc(state: *mut State, what: c_int, data: c_int) -> c_int;

    // The stack.
    pub(crate) fn lua_gettop(state: *mut State) -> c_int;
    pub(crate) fn lua_settop(state: *mut State, index: c_int);
    pub(crate) fn lua_pushvalue(state: *mut State, index: c_int);
    pub(crate) fn lua_remove(state: *mut State, index: c_int);
    pub(crate) fn lua_insert(state: *mut State, index: c_int);
    pub(crate) fn lua_replace(state: *mut State, index: c_int);
    pub(crate) fn lua_checkstack(state: *mut State, slots: c_int) -> c_int;

    // Reading.
    pub(crate) fn lua_type(state: *mut State, index: c_int) -> c_int;
    pub(crate) fn lua_isnumber(state: *mut State, index: c_int) -> c_int;
    pub(crate) fn lua_tonumber(state: *mut State, index: c_int) -> f64;
    pub(crate) fn lua_toboolean(state: *mut State, index: c_int) -> c_int;
    pub(crate) fn lua_tolstring(state: *mut State, index: c_int, length: *mut usize) -> *const c_char;
    pub(crate) fn lua_touserdata(state: *mut State, index: c_int) -> *mut c_void;
    pub(crate) fn lua_topointer(state: *mut State, index: c_int) -> *const c_void;
    pub(crate) fn lua_objlen(state: *mut State, index: c_int) -> usize;

    // Pushing.
    pub(crate) fn lua_pushnil(state: *mut State);
    pub(crate) fn lua_pushnumber(state: *mut State, value: f64);
    pub(crate) fn lua_pushlstring(state: *mut State, bytes: *const c_char, length: usize);
    pub(crate) fn lua_pushcclosure(state: *mut State, function: CFunction, values: c_int);
    pub(crate) fn lua_pushboolean(state: *mut State, value: c_int);
    pub(crate) fn lua_pushlightuserdata(state: *mut State, value: *mut c_void);
    pub(crate) fn lua_createtable(state: *mut State, array: c_int, records: c_int);

    // Tables.
    pub(crate) fn lua_rawget(state: *mut State, index: c_int);
    pub(crate) fn lua_rawgeti(state: *mut State, index: c_int, n: c_int);
    pub(crate) fn lua_rawset(state: *mut State, index: c_int);
    pub(crate) fn lua_rawseti(state: *mut State, index: c_int, n: c_int);
    pub(crate) fn lua_getmetatable(state: *mut State, index: c_int) -> c_int;
    pub(crate) fn lua_setmetatable(state: *mut State, index: c_int) -> c_int;

    // Calls and errors.
    pub(crate) fn lua_call(state: *mut State, arguments: c_int, results: c_int);
    pub(crate) fn lua_pcall(state: *mut State, arguments: c_int, results: c_int, handler: c_int) -> c_int;
    pub(crate) fn lua_error(state: *mut State) -> c_int;
    pub(crate) fn lua_getstack(state: *mut State, level: c_int, debug: *mut Debug) -> c_int;
    pub(crate) fn lua_getinfo(state: *mut State, what: *const c_char, debug: *mut Debug) -> c_int;
    pub(crate) fn lua_sethook(state: *mut State, hook: Option<Hook>, mask: c_int, count: c_int) -> c_int;

    // The auxiliary library, and the libraries.
    pub(crate) fn luaL_loadbuffer(state: *mut State, text: *const c_char, length: usize, name: *const c_char) -> c_int;
    pub(crate) fn luaL_ref(state: *mut State, table: c_int) -> c_int;
    pub(crate) fn luaL_unref(state: *mut State, table: c_int, reference: c_int);
    pub(crate) fn luaopen_base(state: *mut State) -> c_int;
    pub(crate) fn luaopen_table(state: *mut State) -> c_int;
    pub(crate) fn luaopen_string(state: *mut State) -> c_int;
    pub(crate) fn luaopen_math(state: *mut State) -> c_int;

    // Added to Lua: see PATCHES.md.
    pub(crate) fn lua_settick(state: *mut State, tick: Tick);
    pub(crate) fn lua_abandon(state: *mut State);
    pub(crate) fn lua_outofmemory(state: *mut State) -> c_int;
    pub(crate) fn lua_gcrestore(state: *mut State);
    pub(crate) fn lua_nextat(state: *mut State, index: c_int, position: *mut c_int) -> c_int;
    pub(crate) fn lua_setreadonly(state: *mut State, index: c_int, readonly: c_int);
    pub(crate) fn lua_isreadonly(state: *mut State, index: c_int) -> c_int;
    pub(crate) fn lua_writenumber(buffer: *mut c_char, bytes: usize, digits: c_int, value: f64);

    // The C library: numbers as Lua reads them.
    pub(crate) fn strtod(text: *const c_char, end: *mut *mut c_char) -> f64;
}

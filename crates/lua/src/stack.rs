//! The values of a Lua thread, in safe Rust.
//!
//! No method raises a Lua error: each checks for the causes (a slot that does not exist, a key that
//! is nil, a read-only table, a table that is full), and memory is not refused while the host's
//! functions run (`core.rs`). Indices count from 1 at the bottom of the call's values, or from -1
//! at the top. An index of no value is a bug of the caller, and panics.

use crate::call::{Error, Function, push_function};
use crate::core::Core;
use crate::ffi;
use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::ptr;

/// The most slots that one table of Lua can have, before its last doubling.
const TABLE_ITEMS_MAX: usize = 1 << 25;

/// The types of Lua.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// `nil`.
    Nil,
    /// `true` or `false`.
    Boolean,
    /// A pointer as a value. Here it is always null, which stands for JSON's null.
    Light,
    /// A double.
    Number,
    /// Bytes.
    String,
    /// A table.
    Table,
    /// A function of Lua or of the host.
    Function,
    /// Memory of the host. This crate makes none.
    Userdata,
    /// A coroutine.
    Thread,
}

impl Type {
    /// The name that Lua uses for the type.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nil => "nil",
            Self::Boolean => "boolean",
            Self::Light | Self::Userdata => "userdata",
            Self::Number => "number",
            Self::String => "string",
            Self::Table => "table",
            Self::Function => "function",
            Self::Thread => "thread",
        }
    }
}

/// A line in a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The chunk's name as it was given, such as `@user_script`.
    pub source: Vec<u8>,
    /// The line, counted from 1. -1 if it is not known.
    pub line: i32,
}

/// A value that is kept until it is released, such as a compiled function.
#[derive(Debug, PartialEq, Eq)]
pub struct Kept(c_int);

/// The values of a Lua thread: see the module.
pub struct Lua<'a> {
    state: *mut ffi::State,
    core: &'a Core,
    marker: PhantomData<&'a mut ffi::State>,
}

impl<'a> Lua<'a> {
    pub(crate) fn new(state: *mut ffi::State, core: &'a Core) -> Self {
        Self { state, core, marker: PhantomData }
    }

    pub(crate) fn state(&self) -> *mut ffi::State {
        self.state
    }

    /// The number of values.
    #[must_use]
    pub fn top(&self) -> usize {
        // SAFETY: the thread is alive; this reads two fields.
        let top = unsafe { ffi::lua_gettop(self.state) };
        usize::try_from(top).expect("the top is not below the bottom")
    }

    /// Checks that there is a value at `index`.
    fn at(&self, index: i32) -> c_int {
        let top = self.top();
        assert!(index != 0 && index.unsigned_abs() as usize <= top, "no value {index} among {top}");
        index
    }

    /// Checks that there is a table at `index`.
    fn table_at(&self, index: i32) -> c_int {
        assert_eq!(self.kind(index), Some(Type::Table), "value {index}");
        index
    }

    /// Makes sure that `slots` more values fit.
    ///
    /// # Errors
    /// A call can have 8000.
    pub fn reserve(&mut self, slots: usize) -> Result<(), Error> {
        let slots = c_int::try_from(slots).unwrap_or(c_int::MAX);
        // SAFETY: memory is not refused, and nothing else makes this raise.
        let fits = unsafe { ffi::lua_checkstack(self.state, slots) };
        if fits == 0 { Err(Error::located("stack overflow")) } else { Ok(()) }
    }

    /// Makes sure that a value of `bytes` fits, on the stack and into the account.
    fn allow(&mut self, slots: usize, bytes: usize) -> Result<(), Error> {
        if self.core.refuses(bytes) {
            return Err(Error::Memory);
        }
        self.reserve(slots)
    }

    /// The number of bytes that may still be allocated.
    #[must_use]
    pub fn left_bytes(&self) -> usize {
        self.core.limit_bytes().saturating_sub(self.core.used_bytes())
    }

    /// Drops all values above the first `count`, or pushes nils up to that number.
    ///
    /// # Errors
    /// As [`Lua::reserve`].
    pub fn set_top(&mut self, count: usize) -> Result<(), Error> {
        self.reserve(count.saturating_sub(self.top()))?;
        let count = c_int::try_from(count).expect("at most 8000 values fit");
        // SAFETY: there are `count` slots.
        unsafe { ffi::lua_settop(self.state, count) };
        Ok(())
    }

    /// Drops the `count` values on top.
    pub fn pop(&mut self, count: usize) {
        let left = self.top().checked_sub(count).expect("no more than there are");
        let left = c_int::try_from(left).expect("at most 8000 values fit");
        // SAFETY: not above the top.
        unsafe { ffi::lua_settop(self.state, left) };
    }

    /// Removes a value from among the others.
    pub fn remove(&mut self, index: i32) {
        let index = self.at(index);
        // SAFETY: the value is there.
        unsafe { ffi::lua_remove(self.state, index) };
    }

    /// Replaces the value at `index` by the value on top, which is popped.
    pub fn replace(&mut self, index: i32) {
        let index = self.absolute(self.at(index));
        self.insert(index);
        if self.top() > index.unsigned_abs() as usize {
            self.remove(index + 1);
        }
    }

    /// Moves the value on top to `index`, and the values from there on up by one.
    pub fn insert(&mut self, index: i32) {
        let index = self.at(index);
        // SAFETY: the value is there.
        unsafe { ffi::lua_insert(self.state, index) };
    }

    // Reading.

    /// The type of a value. `None` if there is no value, as for an argument that was not given.
    #[must_use]
    pub fn kind(&self, index: i32) -> Option<Type> {
        if index.unsigned_abs() as usize > self.top() || index == 0 {
            return None;
        }
        // SAFETY: the value is there; this reads it.
        let kind = unsafe { ffi::lua_type(self.state, index) };
        Some(match kind {
            ffi::NIL => Type::Nil,
            ffi::BOOLEAN => Type::Boolean,
            ffi::LIGHT => Type::Light,
            ffi::NUMBER => Type::Number,
            ffi::STRING => Type::String,
            ffi::TABLE => Type::Table,
            ffi::FUNCTION => Type::Function,
            ffi::USERDATA => Type::Userdata,
            _ => Type::Thread,
        })
    }

    /// The name of an argument's type. `no value` if the argument was not given.
    #[must_use]
    pub fn kind_name(&self, index: i32) -> &'static str {
        self.kind(index).map_or("no value", Type::name)
    }

    /// The bytes of a string. `None` for all other types, also for numbers.
    #[must_use]
    pub fn bytes(&self, index: i32) -> Option<&[u8]> {
        if self.kind(index) != Some(Type::String) {
            return None;
        }
        let mut length = 0;
        // SAFETY: the value is there and a string, so this only reads it.
        let bytes = unsafe { ffi::lua_tolstring(self.state, index, &raw mut length) };
        // SAFETY: Lua's strings do not move, and it lives while it is on the stack, from which it
        // cannot be removed while `self` is borrowed.
        Some(unsafe { std::slice::from_raw_parts(bytes.cast(), length) })
    }

    /// A number, or the number in the text of a string. `None` for all other values.
    #[must_use]
    pub fn number(&self, index: i32) -> Option<f64> {
        let kind = self.kind(index)?;
        if !matches!(kind, Type::Number | Type::String) {
            return None;
        }
        // SAFETY: the value is there; this reads it.
        if unsafe { ffi::lua_isnumber(self.state, index) } == 0 {
            return None;
        }
        // SAFETY: the value is there; this reads it.
        Some(unsafe { ffi::lua_tonumber(self.state, index) })
    }

    /// Whether a value is neither nil nor false.
    #[must_use]
    pub fn truth(&self, index: i32) -> bool {
        let index = self.at(index);
        // SAFETY: the value is there; this reads it.
        unsafe { ffi::lua_toboolean(self.state, index) != 0 }
    }

    /// Whether a value is the pointer null, which stands for JSON's null.
    #[must_use]
    pub fn is_null(&self, index: i32) -> bool {
        self.kind(index) == Some(Type::Light)
            // SAFETY: the value is there; this reads it.
            && unsafe { ffi::lua_touserdata(self.state, index) }.is_null()
    }

    /// The address of a table, function or coroutine, by which Lua names it.
    #[must_use]
    pub fn address(&self, index: i32) -> usize {
        let index = self.at(index);
        // SAFETY: the value is there; this reads it.
        unsafe { ffi::lua_topointer(self.state, index) }.addr()
    }

    /// The length of a table by Lua's `#`.
    #[must_use]
    pub fn length(&self, index: i32) -> usize {
        let index = self.table_at(index);
        // SAFETY: the value is a table; this looks for its border.
        unsafe { ffi::lua_objlen(self.state, index) }
    }

    // Pushing.

    /// # Errors
    /// No slot is left.
    pub fn push_nil(&mut self) -> Result<(), Error> {
        self.reserve(1)?;
        // SAFETY: there is a slot.
        unsafe { ffi::lua_pushnil(self.state) };
        Ok(())
    }

    /// # Errors
    /// No slot is left.
    pub fn push_number(&mut self, value: f64) -> Result<(), Error> {
        self.reserve(1)?;
        // SAFETY: there is a slot.
        unsafe { ffi::lua_pushnumber(self.state, value) };
        Ok(())
    }

    /// # Errors
    /// No slot is left.
    pub fn push_boolean(&mut self, value: bool) -> Result<(), Error> {
        self.reserve(1)?;
        // SAFETY: there is a slot.
        unsafe { ffi::lua_pushboolean(self.state, value.into()) };
        Ok(())
    }

    /// Pushes the pointer null, which stands for JSON's null.
    ///
    /// # Errors
    /// No slot is left.
    pub fn push_null(&mut self) -> Result<(), Error> {
        self.reserve(1)?;
        // SAFETY: there is a slot.
        unsafe { ffi::lua_pushlightuserdata(self.state, ptr::null_mut()) };
        Ok(())
    }

    /// # Errors
    /// No slot is left, or no memory.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.allow(1, bytes.len())?;
        // SAFETY: there is a slot; the bytes are copied, and memory is not refused.
        unsafe { ffi::lua_pushlstring(self.state, bytes.as_ptr().cast(), bytes.len()) };
        Ok(())
    }

    /// Pushes a buffer's bytes, and frees it: in portions, if it is long.
    ///
    /// # Errors
    /// No slot is left, or no memory.
    pub fn push_buffer(&mut self, buffer: Vec<u8>) -> Result<(), Error> {
        let result = self.push_bytes(&buffer);
        self.core.discard(buffer);
        result
    }

    /// Makes room in a buffer for `bytes` more, in portions if it is long.
    pub fn grow(&self, buffer: &mut Vec<u8>, bytes: usize) {
        self.core.grow(buffer, bytes);
    }

    /// Appends to a buffer, in portions if it is long.
    pub fn append(&self, buffer: &mut Vec<u8>, bytes: &[u8]) {
        self.core.grow(buffer, bytes.len());
        self.core.copy(buffer, bytes);
    }

    /// Pushes a copy of a value.
    ///
    /// # Errors
    /// No slot is left.
    pub fn push_copy(&mut self, index: i32) -> Result<(), Error> {
        let index = self.at(index);
        self.reserve(1)?;
        // SAFETY: the value is there, and a slot.
        unsafe { ffi::lua_pushvalue(self.state, index) };
        Ok(())
    }

    /// # Errors
    /// No slot is left, or no memory.
    pub fn push_function<H: 'static>(&mut self, function: Function<H>) -> Result<(), Error> {
        self.push_nil()?;
        self.make_function(function)
    }

    /// Pops a value, and pushes a function that owns it: see [`Lua::push_own`].
    ///
    /// # Errors
    /// No slot is left, or no memory.
    pub fn make_function<H: 'static>(&mut self, function: Function<H>) -> Result<(), Error> {
        self.at(-1);
        self.allow(2, 0)?;
        push_function(self, function);
        Ok(())
    }

    /// Pushes the value that the running function owns.
    ///
    /// # Errors
    /// No slot is left.
    pub fn push_own(&mut self) -> Result<(), Error> {
        self.reserve(1)?;
        // SAFETY: there is a slot. Outside of a function of the host, and in one without a second
        // value, this is nil.
        unsafe { ffi::lua_pushvalue(self.state, ffi::UPVALUE_2) };
        Ok(())
    }

    /// Pushes an empty table with room for this many elements. Room for more than follow changes
    /// the order of `pairs`.
    ///
    /// # Errors
    /// No slot is left, or no memory.
    pub fn push_table(&mut self, elements: usize) -> Result<(), Error> {
        let elements = elements.min(TABLE_ITEMS_MAX);
        self.allow(1, elements.saturating_mul(16))?;
        let elements = c_int::try_from(elements).expect("cut to less");
        // SAFETY: there is a slot; memory is not refused, and the size is not too much for a table.
        unsafe { ffi::lua_createtable(self.state, elements, 0) };
        Ok(())
    }

    /// Pushes the table of globals.
    ///
    /// # Errors
    /// No slot is left.
    pub fn push_globals(&mut self) -> Result<(), Error> {
        self.reserve(1)?;
        // SAFETY: there is a slot.
        unsafe { ffi::lua_pushvalue(self.state, ffi::GLOBALS) };
        Ok(())
    }

    /// Makes the table on top the globals of this thread, of coroutines that it makes from now on,
    /// and of texts that are compiled from now on, and pops it.
    pub fn set_globals(&mut self) {
        self.table_at(-1);
        // SAFETY: a table is on top; this sets a field of the thread.
        unsafe { ffi::lua_replace(self.state, ffi::GLOBALS) };
    }

    // Tables, raw: metatables are not asked.

    /// Pushes the value at `key`.
    ///
    /// # Errors
    /// No slot is left, or no memory.
    pub fn get(&mut self, table: i32, key: &str) -> Result<(), Error> {
        let table = self.absolute(self.table_at(table));
        self.push_bytes(key.as_bytes())?;
        // SAFETY: the table is there, and a key on top.
        unsafe { ffi::lua_rawget(self.state, table) };
        Ok(())
    }

    /// Pushes the value at the number `index`.
    ///
    /// # Errors
    /// No slot is left.
    pub fn get_element(&mut self, table: i32, index: usize) -> Result<(), Error> {
        let table = self.table_at(table);
        let index = c_int::try_from(index).map_err(|_| Error::Memory)?;
        self.reserve(1)?;
        // SAFETY: the table is there, and a slot.
        unsafe { ffi::lua_rawgeti(self.state, table, index) };
        Ok(())
    }

    /// Sets the value on top at `key`, and pops it.
    ///
    /// # Errors
    /// The table is read-only, or there is no memory.
    pub fn set(&mut self, table: i32, key: &str) -> Result<(), Error> {
        let table = self.absolute(self.table_at(table));
        self.push_bytes(key.as_bytes())?;
        self.insert(-2);
        self.set_pair(table)
    }

    /// Sets the value on top at the key below it, and pops both.
    ///
    /// # Errors
    /// The key is nil or not a number, the table is read-only, or there is no memory.
    pub fn set_pair(&mut self, table: i32) -> Result<(), Error> {
        let table = self.absolute(self.table_at(table));
        match self.kind(-2) {
            Some(Type::Nil) => return Err(Error::Plain("table index is nil")),
            Some(Type::Number) if self.number(-2).is_some_and(f64::is_nan) => {
                return Err(Error::Plain("table index is NaN"));
            }
            _ => {}
        }
        self.allow_change(table)?;
        // SAFETY: the table is there and may be changed, a key that may be one and a value are on
        // top; memory is not refused, and a table cannot be full (`allow_change`).
        unsafe { ffi::lua_rawset(self.state, table) };
        Ok(())
    }

    /// Sets the value on top at the number `index`, and pops it.
    ///
    /// # Errors
    /// The table is read-only, or there is no memory.
    pub fn set_element(&mut self, table: i32, index: usize) -> Result<(), Error> {
        let table = self.table_at(table);
        let index = c_int::try_from(index).map_err(|_| Error::Memory)?;
        self.allow_change(table)?;
        // SAFETY: as in `set_pair`.
        unsafe { ffi::lua_rawseti(self.state, table, index) };
        Ok(())
    }

    /// Whether a table may take one more value: it is not read-only, and not full.
    ///
    /// A table overflows beyond 2^26 nodes of 40 bytes; the account's limit, which a `Vm` keeps
    /// below half of that, is reached before.
    fn allow_change(&mut self, table: c_int) -> Result<(), Error> {
        if self.core.is_over() {
            return Err(Error::Memory);
        }
        if self.is_read_only(table) {
            return Err(Error::Plain("Attempt to modify a readonly table"));
        }
        self.reserve(1)
    }

    /// Pushes the next key and value from `position` on, which is 0 at first; false at the end.
    ///
    /// The order is that of `pairs`. Nothing may be set in between; if it is, pairs may be left
    /// out or come twice.
    ///
    /// # Errors
    /// No slots are left.
    pub fn next(&mut self, table: i32, position: &mut Position) -> Result<bool, Error> {
        let table = self.table_at(table);
        self.reserve(2)?;
        // SAFETY: the table and two slots are there. A position that is not this table's is only
        // compared with its sizes; it is not negative.
        Ok(unsafe { ffi::lua_nextat(self.state, table, &raw mut position.0) } != 0)
    }

    /// Makes a table read-only, or writable again.
    pub fn set_read_only(&mut self, table: i32, read_only: bool) {
        let table = self.table_at(table);
        // SAFETY: the value is a table.
        unsafe { ffi::lua_setreadonly(self.state, table, read_only.into()) };
    }

    /// Whether a table is read-only.
    #[must_use]
    pub fn is_read_only(&self, table: i32) -> bool {
        let table = self.table_at(table);
        // SAFETY: the value is a table.
        unsafe { ffi::lua_isreadonly(self.state, table) != 0 }
    }

    /// Pushes a value's metatable; false, and pushes nothing, where it has none.
    ///
    /// # Errors
    /// No slot is left.
    pub fn push_metatable(&mut self, index: i32) -> Result<bool, Error> {
        let index = self.at(index);
        self.reserve(1)?;
        // SAFETY: the value is there, and a slot.
        Ok(unsafe { ffi::lua_getmetatable(self.state, index) } != 0)
    }

    /// Makes the table on top the metatable of another, and pops it.
    ///
    /// # Errors
    /// The table is read-only.
    pub fn set_metatable(&mut self, table: i32) -> Result<(), Error> {
        let table = self.absolute(self.table_at(table));
        self.table_at(-1);
        self.allow_change(table)?;
        // SAFETY: both are tables, and the first may be changed.
        unsafe { ffi::lua_setmetatable(self.state, table) };
        Ok(())
    }

    // Code.

    /// Compiles a text, and pushes the function, or the error.
    ///
    /// `name` is the chunk's name, such as `@user_script`.
    ///
    /// # Errors
    /// No slot is left, or no memory. `Ok(false)`: an error was pushed.
    pub fn compile(&mut self, text: &[u8], name: &CStr) -> Result<bool, Error> {
        self.allow(1, text.len())?;
        let (start, length) = (text.as_ptr().cast(), text.len());
        // SAFETY: the text is read until this returns; errors are caught within, and memory is
        // not refused.
        let status = unsafe { ffi::luaL_loadbuffer(self.state, start, length, name.as_ptr()) };
        Ok(status == ffi::OK)
    }

    /// Pops a value and keeps it.
    ///
    /// # Errors
    /// No slot is left.
    pub fn keep(&mut self) -> Result<Kept, Error> {
        self.at(-1);
        self.reserve(2)?;
        // SAFETY: a value is on top, and two slots above it; memory is not refused.
        Ok(Kept(unsafe { ffi::luaL_ref(self.state, ffi::REGISTRY) }))
    }

    /// Pushes a kept value.
    ///
    /// # Errors
    /// No slot is left.
    pub fn push_kept(&mut self, kept: &Kept) -> Result<(), Error> {
        self.reserve(1)?;
        // SAFETY: there is a slot. In another VM it holds another value, or nil.
        unsafe { ffi::lua_rawgeti(self.state, ffi::REGISTRY, kept.0) };
        Ok(())
    }

    /// Forgets a kept value.
    ///
    /// # Errors
    /// No slot is left.
    pub fn release(&mut self, kept: Kept) -> Result<(), Error> {
        self.reserve(2)?;
        // SAFETY: there are two slots; numbers that were not given out are set to what `luaL_ref` reads as free.
        unsafe { ffi::luaL_unref(self.state, ffi::REGISTRY, kept.0) };
        Ok(())
    }

    /// Does a step of the collector. Returns whether it has finished a cycle.
    pub fn collect_step(&mut self) -> bool {
        // SAFETY: memory is not refused; there are no finalisers, so no script's code is called.
        unsafe { ffi::lua_gc(self.state, ffi::GC_STEP, 0) != 0 }
    }

    /// Resets the collector's settings, which a script may have changed.
    pub fn restore_collector(&mut self) {
        // SAFETY: this sets fields of the state.
        unsafe { ffi::lua_gcrestore(self.state) };
    }

    // Places, for errors.

    /// The place of the function at `level`: 0 is the one that runs, 1 its caller. `None` where
    /// there is none; a function of the host has no source and no line.
    #[must_use]
    pub fn location(&self, level: usize) -> Option<(bool, Location)> {
        location(self.state, level)
    }

    /// The prefix of errors: `name:line: `, or nothing. `name:line: `, or nothing.
    pub(crate) fn place_of_caller(&self) -> Vec<u8> {
        let Some(debug) = info(self.state, 1, c"Sl") else { return Vec::new() };
        if debug.currentline <= 0 {
            return Vec::new();
        }
        // SAFETY: `lua_getinfo` ends it with a NUL within its 60 bytes.
        let source = unsafe { CStr::from_ptr(debug.short_src.as_ptr()) };
        [source.to_bytes(), b":", debug.currentline.to_string().as_bytes(), b": "].concat()
    }

    /// The error `bad argument #index to 'name' (text)`, as Lua words it.
    pub(crate) fn about_argument(&self, index: usize, text: &str) -> Vec<u8> {
        let Some(debug) = info(self.state, 0, c"n") else {
            return format!("bad argument #{index} ({text})").into_bytes();
        };
        let name = c_string(debug.name).unwrap_or(b"?");
        let is_method = c_string(debug.namewhat) == Some(b"method");
        let index = if is_method { index.wrapping_sub(1) } else { index };
        let text = text.as_bytes();
        if is_method && index == 0 {
            return [b"calling '", name, b"' on bad self (", text, b")"].concat();
        }
        let number = index.to_string();
        [b"bad argument #", number.as_bytes(), b" to '", name, b"' (", text, b")"].concat()
    }

    /// `index` counted from the bottom, so that it stays valid when more values are pushed.
    #[must_use]
    pub fn absolute(&self, index: i32) -> i32 {
        if index > 0 { index } else { c_int::try_from(self.top()).unwrap_or(0) + index + 1 }
    }
}

/// The position of a traversal by [`Lua::next`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Position(c_int);

/// See [`Lua::location`].
pub(crate) fn location(state: *mut ffi::State, level: usize) -> Option<(bool, Location)> {
    let debug = info(state, level, c"Sl")?;
    let source = c_string(debug.source).unwrap_or_default().to_vec();
    let is_host = c_string(debug.what) == Some(b"C");
    Some((is_host, Location { source, line: debug.currentline }))
}

/// Lua's information about the function at `level`.
fn info(state: *mut ffi::State, level: usize, what: &CStr) -> Option<ffi::Debug> {
    let level = c_int::try_from(level).ok()?;
    let mut debug = ffi::Debug::new();
    // SAFETY: the thread is alive, running or suspended at rest; this reads it.
    if unsafe { ffi::lua_getstack(state, level, &raw mut debug) } == 0 {
        return None;
    }
    // SAFETY: `lua_getstack` has found the level; this reads the state and fills in the fields.
    unsafe { ffi::lua_getinfo(state, what.as_ptr(), &raw mut debug) };
    Some(debug)
}

/// The bytes of a string that belongs to Lua. They are valid until Lua is called again.
fn c_string<'a>(string: *const std::ffi::c_char) -> Option<&'a [u8]> {
    if string.is_null() {
        return None;
    }
    // SAFETY: `lua_getinfo` has left null, or a string that ends with a NUL: a literal, or one of
    // the function's own, which is on the stack. Callers copy it at once.
    Some(unsafe { CStr::from_ptr(string) }.to_bytes())
}

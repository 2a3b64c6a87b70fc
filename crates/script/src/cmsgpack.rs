//! The library `cmsgpack`: values as MessagePack.
//!
//! Both directions work without recursion, and in portions.

use crate::session::{Call, Session, Step};
use crate::values::{Portion, fill, integer_at, integer_or, make_text, to_i64};
use darter_lua::{Error, Lua, Position, Progress, Type, Work};

/// Tables within tables that are written; deeper ones are nil.
const NESTING_MAX: usize = 16;
/// Bytes of the longest header or number.
const HEADER_MAX: usize = 9;

/// Pushes the library.
pub(crate) fn push(lua: &mut Lua<'_>) -> Result<(), Error> {
    lua.push_table(0)?;
    fill(
        lua,
        &[
            ("pack", pack),
            ("unpack", unpack),
            ("unpack_one", unpack_one),
            ("unpack_limit", unpack_limit),
        ],
    )?;
    for (name, text) in [
        ("_NAME", "cmsgpack"),
        ("_VERSION", "lua-cmsgpack 0.4.0"),
        ("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo"),
        ("_DESCRIPTION", "MessagePack C implementation for Lua"),
    ] {
        lua.push_bytes(text.as_bytes())?;
        lua.set(-2, name)?;
    }
    Ok(())
}

/// `cmsgpack.pack(…)`: all arguments, concatenated.
fn pack(cx: Call<'_, '_>) -> Result<Step, Error> {
    if cx.lua.top() == 0 {
        return Err(Error::argument(0, "MessagePack pack needs input."));
    }
    let count = cx.lua.top();
    cx.lua.reserve(count)?;
    let packing = Packing { bytes: Vec::new(), next: 1, count, levels: Vec::new() };
    Ok(Step::Work(Box::new(packing)))
}

struct Packing {
    bytes: Vec<u8>,
    next: usize,
    count: usize,
    levels: Vec<Packed>,
}

/// A table that is being written; it is on top of the stack.
#[derive(Clone, Copy)]
enum Packed {
    /// Checks whether the keys are 1 to n.
    Look {
        position: Position,
        count: usize,
        max: i64,
    },
    Count {
        position: Position,
        count: usize,
    },
    Array {
        next: usize,
        count: usize,
    },
    /// A pair is next. With `has_value`, the value of the current pair is on top.
    Map {
        position: Position,
        has_value: bool,
    },
}

impl Work<Session> for Packing {
    fn step(&mut self, cx: Call<'_, '_>) -> Result<Progress, Error> {
        let lua = &mut cx.lua;
        let mut portion = Portion::new();
        loop {
            let before = self.bytes.len();
            lua.grow(&mut self.bytes, HEADER_MAX);
            if let Some(level) = self.levels.pop() {
                self.level(lua, level)?;
            } else if self.next <= self.count {
                let argument = i32::try_from(self.next).unwrap_or(i32::MAX);
                self.next += 1;
                lua.push_copy(argument)?;
                self.value(lua)?;
            } else {
                lua.push_buffer(std::mem::take(&mut self.bytes))?;
                return Ok(Progress::Done(1));
            }
            if self.bytes.len() > lua.left_bytes() {
                return Err(Error::Memory);
            }
            if !portion.spend(10 + (self.bytes.len() - before) / 16) {
                return Ok(Progress::More);
            }
        }
    }
}

impl Packing {
    /// Writes the value on top and pops it; a table is only begun.
    fn value(&mut self, lua: &mut Lua<'_>) -> Result<(), Error> {
        match lua.kind(-1) {
            Some(Type::String) => {
                let text = lua.bytes(-1).unwrap_or_default();
                string_header(&mut self.bytes, text.len());
                lua.append(&mut self.bytes, text);
            }
            Some(Type::Boolean) => self.bytes.push(if lua.truth(-1) { 0xc3 } else { 0xc2 }),
            Some(Type::Number) => number(&mut self.bytes, lua.number(-1).unwrap_or(0.0)),
            Some(Type::Table) if self.levels.len() < NESTING_MAX => {
                let position = Position::default();
                self.levels.push(Packed::Look { position, count: 0, max: 0 });
                return Ok(());
            }
            _ => self.bytes.push(0xc0),
        }
        lua.pop(1);
        Ok(())
    }

    fn level(&mut self, lua: &mut Lua<'_>, level: Packed) -> Result<(), Error> {
        match level {
            Packed::Look { position, count, max } => self.look(lua, position, count, max)?,
            Packed::Count { mut position, count } => {
                if lua.next(-1, &mut position)? {
                    lua.pop(2);
                    self.levels.push(Packed::Count { position, count: count + 1 });
                } else {
                    aggregate_header(&mut self.bytes, count, 0x80, 0xde);
                    let position = Position::default();
                    self.levels.push(Packed::Map { position, has_value: false });
                }
            }
            Packed::Array { next, count } if next > count => lua.pop(1),
            Packed::Array { next, count } => {
                self.levels.push(Packed::Array { next: next + 1, count });
                lua.get_element(-1, next)?;
                self.value(lua)?;
            }
            Packed::Map { position, has_value: true } => {
                self.levels.push(Packed::Map { position, has_value: false });
                self.value(lua)?;
            }
            Packed::Map { mut position, has_value: false } => {
                if lua.next(-1, &mut position)? {
                    self.levels.push(Packed::Map { position, has_value: true });
                    lua.insert(-2); // The key is written first.
                    self.value(lua)?;
                } else {
                    lua.pop(1);
                }
            }
        }
        Ok(())
    }

    /// Looks at one key: a table with the keys 1 to n is an array.
    fn look(
        &mut self,
        lua: &mut Lua<'_>,
        mut position: Position,
        count: usize,
        max: i64,
    ) -> Result<(), Error> {
        if !lua.next(-1, &mut position)? {
            let is_array = i64::try_from(count).is_ok_and(|count| count == max);
            if is_array {
                aggregate_header(&mut self.bytes, count, 0x90, 0xdc);
                self.levels.push(Packed::Array { next: 1, count });
                return Ok(());
            }
        } else {
            let key = lua.number(-2).filter(|_| lua.kind(-2) == Some(Type::Number));
            lua.pop(2);
            let key =
                key.filter(|key| *key > 0.0 && f64::from(crate::values::to_i32(*key)) == *key);
            if let Some(key) = key {
                let max = max.max(to_i64(key));
                self.levels.push(Packed::Look { position, count: count + 1, max });
                return Ok(());
            }
        }
        self.levels.push(Packed::Count { position: Position::default(), count: 0 });
        Ok(())
    }
}

fn string_header(out: &mut Vec<u8>, length: usize) {
    match length {
        0..32 => out.push(0xa0 | length.to_le_bytes()[0]),
        32..=0xff => out.extend([0xd9, length.to_le_bytes()[0]]),
        0x100..=0xffff => {
            out.push(0xda);
            out.extend(&length.to_be_bytes()[6..]);
        }
        _ => {
            out.push(0xdb);
            out.extend(&length.to_be_bytes()[4..]);
        }
    }
}

/// The header of an array or a map: `short` is the form for up to 15 elements, `long` the form of
/// 16 bits; the form of 32 bits is `long + 1`.
fn aggregate_header(out: &mut Vec<u8>, count: usize, short: u8, long: u8) {
    match count {
        0..=15 => out.push(short | count.to_le_bytes()[0]),
        16..=0xffff => {
            out.push(long);
            out.extend(&count.to_be_bytes()[6..]);
        }
        _ => {
            out.push(long + 1);
            out.extend(&count.to_be_bytes()[4..]);
        }
    }
}

fn number(out: &mut Vec<u8>, value: f64) {
    if value.is_finite() && to_i64(value) as f64 == value {
        return integer(out, to_i64(value));
    }
    let short = value as f32;
    if f64::from(short) == value {
        out.push(0xca);
        out.extend(short.to_be_bytes());
    } else {
        out.push(0xcb);
        out.extend(value.to_be_bytes());
    }
}

/// A whole number in its shortest form.
fn integer(out: &mut Vec<u8>, value: i64) {
    let (kind, bytes): (Option<u8>, usize) = match value {
        -32..=127 => (None, 1),
        128..=0xff => (Some(0xcc), 1),
        0x100..=0xffff => (Some(0xcd), 2),
        0x1_0000..=0xffff_ffff => (Some(0xce), 4),
        0x1_0000_0000.. => (Some(0xcf), 8),
        -128..=-33 => (Some(0xd0), 1),
        -0x8000..=-129 => (Some(0xd1), 2),
        -0x8000_0000..=-0x8001 => (Some(0xd2), 4),
        _ => (Some(0xd3), 8),
    };
    out.extend(kind);
    out.extend(&value.to_be_bytes()[8 - bytes..]);
}

/// `cmsgpack.unpack(text)`: all its values.
fn unpack(cx: Call<'_, '_>) -> Result<Step, Error> {
    begin(cx, 0, 0)
}

/// `cmsgpack.unpack_one(text [, offset])`: the next offset, and a value.
fn unpack_one(cx: Call<'_, '_>) -> Result<Step, Error> {
    let offset = integer_or(&cx.lua, 2, 0)?;
    begin(cx, 1, offset)
}

/// `cmsgpack.unpack_limit(text, limit [, offset])`: the next offset, and that many values.
fn unpack_limit(cx: Call<'_, '_>) -> Result<Step, Error> {
    let limit = integer_at(&cx.lua, 2)?;
    let offset = integer_or(&cx.lua, 3, 0)?;
    begin(cx, limit, offset)
}

fn begin(cx: Call<'_, '_>, limit: i64, offset: i64) -> Result<Step, Error> {
    let lua = &mut cx.lua;
    make_text(lua, 1)?;
    lua.set_top(1)?;
    let length = lua.bytes(1).unwrap_or_default().len();
    let (Ok(at), Ok(count)) = (usize::try_from(offset), usize::try_from(limit)) else {
        let text =
            format!("Invalid request to unpack with offset of {offset} and limit of {length}.");
        return Err(Error::located(text));
    };
    if at > length {
        let text = format!("Start offset {offset} greater than input length {length}.");
        return Err(Error::located(text));
    }
    let is_all = limit == 0 && offset == 0;
    let left = if is_all { usize::MAX } else { count };
    let unpacking = Unpacking { at, left, values: 0, is_all, levels: Vec::new() };
    Ok(Step::Work(Box::new(unpacking)))
}

struct Unpacking {
    at: usize,
    /// Values still to be read.
    left: usize,
    values: usize,
    is_all: bool,
    levels: Vec<Unpacked>,
}

/// A table that is being read. It is on the stack, below the key of its next value.
enum Unpacked {
    Array { next: usize, left: usize },
    Map { has_key: bool, left: usize },
}

/// The value that a head byte begins.
enum Head {
    Nil,
    Boolean(bool),
    Number(f64),
    Text(std::ops::Range<usize>),
    Array(usize),
    Map(usize),
}

impl Work<Session> for Unpacking {
    fn step(&mut self, cx: Call<'_, '_>) -> Result<Progress, Error> {
        let lua = &mut cx.lua;
        let mut portion = Portion::new();
        loop {
            let length = lua.bytes(1).unwrap_or_default().len();
            if self.levels.is_empty() && (self.left == 0 || self.at == length) {
                return self.end(lua, length);
            }
            lua.reserve(1).map_err(|_| {
                Error::located(
                    "stack overflow (too many return values at once; use unpack_one or \
                     unpack_limit instead.)",
                )
            })?;
            let before = self.at;
            self.read(lua)?;
            if !portion.spend(16 + (self.at - before) / 16) {
                return Ok(Progress::More);
            }
        }
    }
}

impl Unpacking {
    /// All values are read.
    fn end(&mut self, lua: &mut Lua<'_>, length: usize) -> Result<Progress, Error> {
        if self.is_all {
            return Ok(Progress::Done(self.values));
        }
        let offset = if self.at == length { -1.0 } else { self.at as f64 };
        lua.push_number(offset)?;
        lua.insert(2);
        Ok(Progress::Done(self.values + 1))
    }

    /// Reads a head and the value after it.
    fn read(&mut self, lua: &mut Lua<'_>) -> Result<(), Error> {
        let bytes = lua.bytes(1).unwrap_or_default();
        let (head, at) = head(bytes, self.at)?;
        self.at = at;
        let is_new = matches!(head, Head::Array(_) | Head::Map(_));
        match head {
            Head::Nil => lua.push_nil()?,
            Head::Boolean(value) => lua.push_boolean(value)?,
            Head::Number(value) => lua.push_number(value)?,
            Head::Text(range) => {
                let text = bytes[range].to_vec();
                lua.push_bytes(&text)?;
            }
            Head::Array(left) => {
                lua.push_table(0)?;
                lua.reserve(1).map_err(|_| {
                    Error::located("stack overflow (in function mp_decode_to_lua_array)")
                })?;
                self.levels.push(Unpacked::Array { next: 1, left });
            }
            Head::Map(left) => {
                lua.push_table(0)?;
                self.levels.push(Unpacked::Map { has_key: false, left });
            }
        }
        self.settle(lua, is_new)
    }

    /// Stores the value on top in its table, unless it is a table that has just begun. Does the
    /// same with each table that this completes.
    fn settle(&mut self, lua: &mut Lua<'_>, mut is_new: bool) -> Result<(), Error> {
        loop {
            let Some(level) = self.levels.last_mut() else {
                self.values += 1;
                self.left -= 1;
                return Ok(());
            };
            let left = match level {
                Unpacked::Array { left, .. } if is_new => *left,
                Unpacked::Map { left, .. } if is_new => *left,
                Unpacked::Array { next, left } => {
                    lua.set_pair(-3)?;
                    *next += 1;
                    *left -= 1;
                    *left
                }
                Unpacked::Map { has_key: has_key @ false, .. } => {
                    *has_key = true;
                    return Ok(());
                }
                Unpacked::Map { has_key, left } => {
                    lua.set_pair(-3)?;
                    *has_key = false;
                    *left -= 1;
                    *left
                }
            };
            is_new = false;
            if left > 0 {
                if let Unpacked::Array { next, .. } = level {
                    lua.push_number(*next as f64)?;
                }
                return Ok(());
            }
            self.levels.pop();
        }
    }
}

/// `count` bytes at `at`.
fn take(bytes: &[u8], at: usize, count: usize) -> Result<&[u8], Error> {
    let end = at.checked_add(count);
    let taken = end.and_then(|end| bytes.get(at..end));
    taken.ok_or(Error::located("Missing bytes in input."))
}

/// The head at `at`, and where it ends.
fn head(bytes: &[u8], at: usize) -> Result<(Head, usize), Error> {
    let kind = take(bytes, at, 1)?[0];
    let at = at + 1;
    let wide = |width: usize| -> Result<u64, Error> {
        let taken = take(bytes, at, width)?;
        Ok(taken.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    let size = |width: usize| Ok(usize::try_from(wide(width)?).unwrap_or(usize::MAX));
    let text = |start: usize, length: usize| {
        take(bytes, start, length)?;
        Ok((Head::Text(start..start + length), start + length))
    };
    let signed = |width: usize| -> Result<f64, Error> {
        let unused = 64 - 8 * width;
        Ok((wide(width)?.cast_signed() << unused >> unused) as f64)
    };
    let short = usize::from(kind);
    Ok(match kind {
        0..0x80 => (Head::Number(f64::from(kind)), at),
        0xe0.. => (Head::Number(f64::from(kind.cast_signed())), at),
        0x80..0x90 => (Head::Map(short & 15), at),
        0x90..0xa0 => (Head::Array(short & 15), at),
        0xa0..0xc0 => text(at, short & 31)?,
        0xc0 => (Head::Nil, at),
        0xc2 | 0xc3 => (Head::Boolean(kind == 0xc3), at),
        0xca => {
            let bits = u32::try_from(wide(4)?).unwrap_or(0);
            (Head::Number(f64::from(f32::from_bits(bits))), at + 4)
        }
        0xcb => (Head::Number(f64::from_bits(wide(8)?)), at + 8),
        0xcc => (Head::Number(wide(1)? as f64), at + 1),
        0xcd => (Head::Number(wide(2)? as f64), at + 2),
        0xce => (Head::Number(wide(4)? as f64), at + 4),
        0xcf => (Head::Number(wide(8)?.cast_signed() as f64), at + 8),
        0xd0 => (Head::Number(signed(1)?), at + 1),
        0xd1 => (Head::Number(signed(2)?), at + 2),
        0xd2 => (Head::Number(signed(4)?), at + 4),
        0xd3 => (Head::Number(signed(8)?), at + 8),
        0xd9 => text(at + 1, size(1)?)?,
        0xda => text(at + 2, size(2)?)?,
        0xdb => text(at + 4, size(4)?)?,
        0xdc => (Head::Array(size(2)?), at + 2),
        0xdd => (Head::Array(size(4)?), at + 4),
        0xde => (Head::Map(size(2)?), at + 2),
        0xdf => (Head::Map(size(4)?), at + 4),
        0xc1 | 0xc4..=0xc9 | 0xd4..=0xd8 => {
            return Err(Error::located("Bad data format in input."));
        }
    })
}

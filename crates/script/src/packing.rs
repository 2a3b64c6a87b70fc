//! The library `struct`: numbers and strings as bytes, by a format.

use crate::session::{Call, Session, Step};
use crate::values::{Portion, c_text, fill, integer_or, make_text, number_at, to_i64};
use darter_lua::{Error, Lua, Progress, Work};

/// The largest size of an integer, in bytes.
const INTEGER_MAX: usize = 32;
/// The alignment of `!` without a number.
const ALIGNMENT: usize = 8;

/// Pushes the library.
pub(crate) fn push(lua: &mut Lua<'_>) -> Result<(), Error> {
    lua.push_table(0)?;
    fill(lua, &[("pack", pack), ("unpack", unpack), ("size", size)])
}

/// The place in a format, with its byte order and alignment.
struct Format {
    at: usize,
    is_big: bool,
    alignment: usize,
}

impl Format {
    fn new() -> Self {
        Self { at: 0, is_big: false, alignment: 1 }
    }

    /// The next option and its size; `None` at the end.
    fn next(&mut self, text: &[u8]) -> Result<Option<(u8, usize)>, Error> {
        let Some(option) = text.get(self.at).copied() else { return Ok(None) };
        self.at += 1;
        let size = match option {
            b'B' | b'b' | b'x' => 1,
            b'H' | b'h' => 2,
            b'L' | b'l' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.number(text, 1)?,
            b'i' | b'I' => {
                let size = self.number(text, 4)?;
                if size > INTEGER_MAX {
                    let text =
                        format!("integral size {size} is larger than limit of {INTEGER_MAX}");
                    return Err(Error::located(text));
                }
                size
            }
            _ => 0,
        };
        Ok(Some((option, size)))
    }

    /// The number at this place, or `default`.
    fn number(&mut self, text: &[u8], default: usize) -> Result<usize, Error> {
        let digits = text[self.at..].iter().take_while(|byte| byte.is_ascii_digit());
        let mut number: Option<i32> = None;
        for digit in digits {
            let before = number.unwrap_or(0).checked_mul(10);
            let after = before.and_then(|value| value.checked_add(i32::from(digit - b'0')));
            number = Some(after.ok_or(Error::located("integral size overflow"))?);
            self.at += 1;
        }
        Ok(number.map_or(default, |number| usize::try_from(number).unwrap_or(0)))
    }

    /// Bytes that align an element of `size` at `position`.
    fn padding(&self, position: usize, option: u8, size: usize) -> usize {
        if size == 0 || option == b'c' {
            return 0;
        }
        let size = size.min(self.alignment);
        size.wrapping_sub(position & (size.wrapping_sub(1))) & (size.wrapping_sub(1))
    }

    /// An option that is no element.
    fn control(&mut self, option: u8, text: &[u8]) -> Result<(), Error> {
        match option {
            b' ' => {}
            b'>' => self.is_big = true,
            b'<' => self.is_big = false,
            b'!' => {
                let alignment = self.number(text, ALIGNMENT)?;
                if !alignment.is_power_of_two() {
                    let text = format!("alignment {alignment} is not a power of 2");
                    return Err(Error::located(text));
                }
                self.alignment = alignment;
            }
            _ => {
                let option = char::from(option);
                return Err(Error::argument(1, format!("invalid format option '{option}'")));
            }
        }
        Ok(())
    }
}

/// The format: argument 1 up to its first NUL.
fn format_of<'a>(lua: &'a Lua<'_>) -> &'a [u8] {
    c_text(lua.bytes(1).unwrap_or_default())
}

/// The low bytes of a number, truncated as C does.
fn integer_bytes(number: f64, size: usize, is_big: bool) -> Vec<u8> {
    let value = if number < 9_223_372_036_854_775_808.0 {
        to_i64(number).cast_unsigned()
    } else {
        to_i64(number - 9_223_372_036_854_775_808.0).cast_unsigned() ^ 1 << 63
    };
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.resize(size.max(8), 0);
    bytes.truncate(size);
    if is_big {
        bytes.reverse();
    }
    bytes
}

/// The number in `bytes`.
fn integer_of(bytes: &[u8], is_big: bool, is_signed: bool) -> f64 {
    let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    let mut value =
        if is_big { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) };
    if !is_signed {
        return value as f64;
    }
    let bits = u32::try_from(bytes.len() * 8).unwrap_or(0);
    let mask = u64::MAX.wrapping_shl(bits.wrapping_sub(1)); // As x86 shifts.
    if value & mask != 0 {
        value |= mask;
    }
    value.cast_signed() as f64
}

/// `struct.pack(format, …)`.
fn pack(cx: Call<'_, '_>) -> Result<Step, Error> {
    make_text(&mut cx.lua, 1)?;
    cx.lua.push_nil()?; // A missing argument is called nil in errors.
    let packing = Packing { format: Format::new(), argument: 2, bytes: Vec::new() };
    Ok(Step::Work(Box::new(packing)))
}

struct Packing {
    format: Format,
    argument: i32,
    bytes: Vec<u8>,
}

impl Work<Session> for Packing {
    fn step(&mut self, cx: Call<'_, '_>) -> Result<Progress, Error> {
        let mut portion = Portion::new();
        while portion.spend(10) {
            let next = self.format.next(format_of(&cx.lua))?;
            let Some((option, size)) = next else {
                cx.lua.push_bytes(&self.bytes)?;
                return Ok(Progress::Done(1));
            };
            let padding = self.format.padding(self.bytes.len(), option, size);
            self.bytes.resize(self.bytes.len() + padding, 0);
            self.element(&mut cx.lua, option, size)?;
            if self.bytes.len() > cx.lua.left_bytes() {
                return Err(Error::Memory);
            }
        }
        Ok(Progress::More)
    }
}

impl Packing {
    fn element(&mut self, lua: &mut Lua<'_>, option: u8, size: usize) -> Result<(), Error> {
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = self.number(lua)?;
                self.bytes.extend(integer_bytes(number, size, self.format.is_big));
            }
            b'x' => self.bytes.push(0),
            b'f' => {
                let bytes = (self.number(lua)? as f32).to_bits();
                let order =
                    if self.format.is_big { bytes.to_be_bytes() } else { bytes.to_le_bytes() };
                self.bytes.extend(order);
            }
            b'd' => {
                let bytes = self.number(lua)?.to_bits();
                let order =
                    if self.format.is_big { bytes.to_be_bytes() } else { bytes.to_le_bytes() };
                self.bytes.extend(order);
            }
            b'c' | b's' => {
                make_text(lua, self.argument)?;
                let text = lua.bytes(self.argument).unwrap_or_default();
                self.argument += 1;
                let size = if size == 0 { text.len() } else { size };
                let Some(text) = text.get(..size) else {
                    let argument = usize::try_from(self.argument).unwrap_or(0);
                    return Err(Error::argument(argument, "string too short"));
                };
                self.bytes.extend_from_slice(text);
                if option == b's' {
                    self.bytes.push(0);
                }
            }
            _ => self.format.control(option, format_of(lua))?,
        }
        Ok(())
    }

    fn number(&mut self, lua: &Lua<'_>) -> Result<f64, Error> {
        self.argument += 1;
        number_at(lua, self.argument - 1)
    }
}

/// `struct.unpack(format, data [, position])`: the values, and the position after them.
fn unpack(cx: Call<'_, '_>) -> Result<Step, Error> {
    let lua = &mut cx.lua;
    make_text(lua, 1)?;
    make_text(lua, 2)?;
    let position = usize::try_from(integer_or(lua, 3, 1)?).unwrap_or(usize::MAX);
    if position == 0 {
        return Err(Error::argument(3, "offset must be 1 or greater"));
    }
    let unpacking = Unpacking { format: Format::new(), position: position - 1, values: 0 };
    Ok(Step::Work(Box::new(unpacking)))
}

struct Unpacking {
    format: Format,
    position: usize,
    values: usize,
}

impl Work<Session> for Unpacking {
    fn step(&mut self, cx: Call<'_, '_>) -> Result<Progress, Error> {
        let lua = &mut cx.lua;
        let mut portion = Portion::new();
        while portion.spend(10) {
            let Some((option, size)) = self.format.next(format_of(lua))? else {
                lua.push_number(self.position as f64 + 1.0)?;
                return Ok(Progress::Done(self.values + 1));
            };
            let padding = self.format.padding(self.position, option, size);
            self.position = self.position.wrapping_add(padding);
            self.check(lua, size)?;
            lua.reserve(2).map_err(|_| Error::located("stack overflow (too many results)"))?;
            let size = self.element(lua, option, size)?;
            self.position += size;
        }
        Ok(Progress::More)
    }
}

impl Unpacking {
    fn check(&self, lua: &Lua<'_>, size: usize) -> Result<(), Error> {
        let length = lua.bytes(2).unwrap_or_default().len();
        if size <= length && self.position <= length - size {
            return Ok(());
        }
        Err(Error::argument(2, "data string too short"))
    }

    /// Pushes an element; returns its size.
    fn element(&mut self, lua: &mut Lua<'_>, option: u8, size: usize) -> Result<usize, Error> {
        let is_big = self.format.is_big;
        let bytes = &lua.bytes(2).unwrap_or_default()[self.position..];
        let value = match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                integer_of(&bytes[..size], is_big, option.is_ascii_lowercase())
            }
            b'f' => {
                let bytes = bytes[..4].try_into().unwrap_or_default();
                f64::from(if is_big {
                    f32::from_be_bytes(bytes)
                } else {
                    f32::from_le_bytes(bytes)
                })
            }
            b'd' => {
                let bytes = bytes[..8].try_into().unwrap_or_default();
                if is_big { f64::from_be_bytes(bytes) } else { f64::from_le_bytes(bytes) }
            }
            b'x' => return Ok(size),
            b'c' | b's' => return self.string(lua, option, size),
            _ => {
                self.format.control(option, format_of(lua))?;
                return Ok(size);
            }
        };
        lua.push_number(value)?;
        self.values += 1;
        Ok(size)
    }

    /// Pushes a string; returns how many bytes it takes.
    fn string(&mut self, lua: &mut Lua<'_>, option: u8, mut size: usize) -> Result<usize, Error> {
        if option == b'c' && size == 0 {
            let length = lua.number(-1).filter(|_| self.values > 0);
            let length = length.ok_or(Error::located("format 'c0' needs a previous size"))?;
            size = usize::try_from(to_i64(length)).unwrap_or(usize::MAX);
            lua.pop(1);
            self.values -= 1;
            self.check(lua, size)?;
        }
        let bytes = &lua.bytes(2).unwrap_or_default()[self.position..];
        let length = if option == b's' {
            let end = bytes.iter().position(|byte| *byte == 0);
            let end = end.ok_or(Error::located("unfinished string in data"))?;
            size = end + 1;
            end
        } else {
            size
        };
        let text = bytes[..length].to_vec();
        lua.push_bytes(&text)?;
        self.values += 1;
        Ok(size)
    }
}

/// `struct.size(format)`.
fn size(cx: Call<'_, '_>) -> Result<Step, Error> {
    make_text(&mut cx.lua, 1)?;
    Ok(Step::Work(Box::new(Sizing { format: Format::new(), position: 0 })))
}

struct Sizing {
    format: Format,
    position: usize,
}

impl Work<Session> for Sizing {
    fn step(&mut self, cx: Call<'_, '_>) -> Result<Progress, Error> {
        let mut portion = Portion::new();
        while portion.spend(4) {
            let text = format_of(&cx.lua);
            let Some((option, size)) = self.format.next(text)? else {
                let position = self.position as f64;
                cx.lua.push_number(position)?;
                return Ok(Progress::Done(1));
            };
            let padding = self.format.padding(self.position, option, size);
            if option == b's' || option == b'c' && size == 0 {
                let name = if option == b's' { "s" } else { "c0" };
                return Err(Error::argument(1, format!("option '{name}' has no fixed size")));
            }
            if !option.is_ascii_alphanumeric() {
                self.format.control(option, text)?;
            }
            self.position = self.position.wrapping_add(padding).wrapping_add(size);
        }
        Ok(Progress::More)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // On x86.
    fn struct_pack_truncates_integers_as_c_does() {
        assert_eq!(integer_bytes(300.0, 1, false), [44]);
        assert_eq!(integer_bytes(-2.0, 4, true), [255, 255, 255, 254]);
        assert_eq!(integer_bytes(-2.0, 10, false)[8..], [0, 0]);
        assert_eq!(integer_bytes(1e30, 8, false), [0; 8]);
        assert!(integer_of(&[0xfe, 0xff], false, true) < -1.0);
        assert_eq!(to_i64(integer_of(&[0xff], true, false)), 255);
    }
}

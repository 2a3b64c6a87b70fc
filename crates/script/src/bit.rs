//! The library `bit`: operations on 32 bits, with signed results.

use crate::session::{Call, Step};
use crate::values::{fill, type_error};
use darter_lua::{Error, Lua};

/// Pushes the library.
pub(crate) fn push(lua: &mut Lua<'_>) -> Result<(), Error> {
    lua.push_table(0)?;
    fill(
        lua,
        &[
            ("tobit", |cx| unary(cx, |a| a)),
            ("bnot", |cx| unary(cx, |a| !a)),
            ("bswap", |cx| unary(cx, u32::swap_bytes)),
            ("band", |cx| fold(cx, |a, b| a & b)),
            ("bor", |cx| fold(cx, |a, b| a | b)),
            ("bxor", |cx| fold(cx, |a, b| a ^ b)),
            ("lshift", |cx| shift(cx, |a, n| a << n)),
            ("rshift", |cx| shift(cx, |a, n| a >> n)),
            ("arshift", |cx| shift(cx, |a, n| (a.cast_signed() >> n).cast_unsigned())),
            ("rol", |cx| shift(cx, u32::rotate_left)),
            ("ror", |cx| shift(cx, u32::rotate_right)),
            ("tohex", tohex),
        ],
    )
}

/// An argument's low 32 bits; fractions are rounded to the nearest even number by an addition.
fn argument(lua: &Lua<'_>, index: i32) -> Result<u32, Error> {
    const ROUNDS: f64 = 6_755_399_441_055_744.0; // 2^52 + 2^51
    let value = lua.number(index);
    let bits = (value.unwrap_or(0.0) + ROUNDS).to_bits() as u32;
    if bits == 0 && value.is_none() { Err(type_error(lua, index, "number")) } else { Ok(bits) }
}

fn result(cx: Call<'_, '_>, bits: u32) -> Result<Step, Error> {
    cx.lua.push_number(f64::from(bits.cast_signed()))?;
    Ok(Step::Return(1))
}

fn unary(cx: Call<'_, '_>, operation: fn(u32) -> u32) -> Result<Step, Error> {
    let bits = argument(&cx.lua, 1)?;
    result(cx, operation(bits))
}

fn fold(cx: Call<'_, '_>, operation: fn(u32, u32) -> u32) -> Result<Step, Error> {
    let mut bits = argument(&cx.lua, 1)?;
    for index in (2..=i32::try_from(cx.lua.top()).unwrap_or(i32::MAX)).rev() {
        bits = operation(bits, argument(&cx.lua, index)?);
    }
    result(cx, bits)
}

fn shift(cx: Call<'_, '_>, operation: fn(u32, u32) -> u32) -> Result<Step, Error> {
    let bits = argument(&cx.lua, 1)?;
    let count = argument(&cx.lua, 2)? & 31;
    result(cx, operation(bits, count))
}

/// `bit.tohex(x [, digits])`: with a negative number of digits in upper case.
fn tohex(cx: Call<'_, '_>) -> Result<Step, Error> {
    let bits = argument(&cx.lua, 1)?;
    let digits = if cx.lua.kind(2).is_none() { 8 } else { argument(&cx.lua, 2)?.cast_signed() };
    let count = usize::try_from(digits.unsigned_abs()).unwrap_or(8).min(8);
    let text = if digits < 0 { format!("{bits:08X}") } else { format!("{bits:08x}") };
    cx.lua.push_bytes(&text.as_bytes()[8 - count..])?;
    Ok(Step::Return(1))
}

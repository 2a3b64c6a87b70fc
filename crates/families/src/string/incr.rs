//! Incrementing integers, and INCRBYFLOAT.

use crate::option_names;
use darter_base::{extended, number};
use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::event::INCRBY;
use darter_keyspace::{Deadline, Fresh, Str};

/// `INCR key`: adds one to the integer at `key`; an absent key counts as 0.
///
/// Reply: the sum. Refusals: `WrongType`, `NotAnInteger`, `Overflow`. The deadline stays.
/// Cost: O(1), one lookup. Source: <https://redis.io/commands/incr> (1.0.0).
pub(super) fn incr(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    add(cx, args, 1)
}

/// `DECR key`: INCRBY by -1. Source: <https://redis.io/commands/decr> (1.0.0).
pub(super) fn decr(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    add(cx, args, -1)
}

/// `INCRBY key increment`: adds to the integer at `key`. As INCR.
///
/// Source: <https://redis.io/commands/incrby> (1.0.0).
pub(super) fn incrby(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    let increment = amount(args)?;
    add(cx, args, increment)
}

/// `DECRBY key decrement`: subtracts from the integer at `key`. As INCR; the least integer cannot
/// be subtracted. Source: <https://redis.io/commands/decrby> (1.0.0).
pub(super) fn decrby(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    let increment = amount(args)?.checked_neg();
    add(cx, args, increment.ok_or(Refusal::line("ERR decrement would overflow"))?)
}

/// Parses the second argument as an integer.
fn amount(mut args: Args<'_>) -> Result<i64, Refusal> {
    args.seek(args.position() + 1);
    number::parse_i64(option_names::take(&mut args).ok_or(Refusal::Syntax)?)
        .ok_or(Refusal::NotAnInteger)
}

fn add(cx: &mut Cx<'_>, mut args: Args<'_>, increment: i64) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let sum = cx.db.update_int(&key, |text: Str<'_>| {
        let old = text.as_int().ok_or(Refusal::NotAnInteger)?;
        old.checked_add(increment).ok_or(Refusal::Overflow)
    })?;
    let sum = sum.unwrap_or_else(|| {
        let mut text = [0; number::I64_TEXT_MAX];
        let text = number::i64_text(&mut text, increment);
        cx.db.set_text_as(&key, Fresh::Bytes(text), Deadline::Clear, &[INCRBY]);
        increment
    });
    cx.reply.int(sum);
    Ok(Flow::Done)
}

/// `INCRBYFLOAT key increment`: adds to the number at `key`; an absent key counts as 0.
///
/// Reply: the sum as a bulk, in Redis's text: see [`extended`]. Refusals: `WrongType`,
/// `NotAFloat`, an infinite sum. The deadline stays. Cost: O(digits).
/// Source: <https://redis.io/commands/incrbyfloat> (2.6.0).
pub(super) fn incrbyfloat(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let increment = option_names::take(&mut args).ok_or(Refusal::Syntax)?;
    let old =
        cx.db.read_text(&key)?.map_or(Ok(extended::Extended::ZERO), |text| float_of(&text))?;
    let increment = extended::parse(increment).ok_or(Refusal::NotAFloat)?;
    let sum = extended::add(old, increment)
        .ok_or(Refusal::line("ERR increment would produce NaN or Infinity"))?;
    let text = extended::format(sum);
    cx.db.set_text_float(&key, Fresh::Bytes(text.as_bytes()), Deadline::Keep);
    cx.reply.bulk(text.as_bytes());
    Ok(Flow::Done)
}

/// The string as a long double. A string longer than 5 KiB is refused unread.
pub(super) fn float_of(text: &Str<'_>) -> Result<extended::Extended, Refusal> {
    const TEXT_MAX_BYTES: usize = 5 * 1024;
    let short = (text.len() < TEXT_MAX_BYTES).then(|| text.to_vec());
    short.and_then(|text| extended::parse(&text)).ok_or(Refusal::NotAFloat)
}

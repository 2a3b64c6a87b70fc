//! Incrementing fields: HINCRBY, HINCRBYFLOAT. The field keeps its deadline.

use super::value::{HINCRBY, Hash, value_of};
use darter_base::{extended, number};
use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::{Deadline, Event, Fresh, Str};

const HINCRBYFLOAT: &Event = &Event::new("hincrbyfloat", b'h');

/// `HINCRBY key field increment`: adds to the integer in a field; an absent field counts as 0.
///
/// Reply: the sum. Refusals: `NotAnInteger`, `WrongType`, a value that is not an integer,
/// `Overflow`. Cost: O(1), one lookup of the field. Source: <https://redis.io/commands/hincrby>
/// (2.0.0).
pub(super) fn hincrby(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, field, increment) = (args.key()?, args.bytes()?, args.int()?);
    let sum = cx.db.edit::<Hash, _>(&key, true, |edit| {
        let sum = edit.update_int(field, |text: Str<'_>| {
            let old = text.as_int().ok_or(Refusal::line("ERR hash value is not an integer"))?;
            old.checked_add(increment).ok_or(Refusal::Overflow)
        })?;
        Ok::<_, Refusal>(sum.unwrap_or_else(|| {
            edit.tell_as(HINCRBY);
            let mut text = [0; number::I64_TEXT_MAX];
            edit.set(field, Fresh::Bytes(number::i64_text(&mut text, increment)), Deadline::Clear);
            increment
        }))
    })?;
    let Some(sum) = sum.transpose()? else { return Ok(Flow::Done) };
    cx.reply.int(sum);
    Ok(Flow::Done)
}

/// `HINCRBYFLOAT key field increment`: adds to the number in a field; an absent field counts as 0.
///
/// Reply: the sum as a bulk, in Redis's text: see [`extended`]. Refusals: `NotAFloat`, an infinite
/// increment, `WrongType`, a value that is not a number, an infinite sum. Cost: O(digits).
/// Source: <https://redis.io/commands/hincrbyfloat> (2.6.0).
pub(super) fn hincrbyfloat(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, field) = (args.key()?, args.bytes()?);
    let increment = extended::parse(args.bytes()?).ok_or(Refusal::NotAFloat)?;
    if increment.is_infinite() {
        return Err(Refusal::line("ERR value is NaN or Infinity"));
    }
    let hash = cx.db.read_value::<Hash>(&key)?;
    let old = hash.as_deref().and_then(|hash| hash.get(field, cx.now));
    let old = old.map(|entry| number(&value_of(&entry)));
    let old = old.transpose()?.unwrap_or(extended::Extended::ZERO);
    let sum = extended::add(old, increment)
        .ok_or(Refusal::line("ERR increment would produce NaN or Infinity"))?;
    let text = extended::format(sum);
    cx.db.edit::<Hash, _>(&key, true, |edit| {
        edit.tell_as(HINCRBYFLOAT);
        edit.set(field, Fresh::Bytes(text.as_bytes()), Deadline::Keep)
    })?;
    cx.reply.bulk(text.as_bytes());
    Ok(Flow::Done)
}

/// The value as a long double. A value longer than 5 KiB is refused unread.
fn number(text: &Str<'_>) -> Result<extended::Extended, Refusal> {
    const TEXT_MAX_BYTES: usize = 5 * 1024;
    let short = (text.len() < TEXT_MAX_BYTES).then(|| text.to_vec());
    short
        .and_then(|text| extended::parse(&text))
        .ok_or(Refusal::line("ERR hash value is not a float"))
}

//! SETBIT and GETBIT: single bits. The first bit of a byte is its highest.

use super::edit::{SETBIT, edit};
use crate::lookup::find_text;
use darter_base::limits::string_max_bytes;
use darter_base::number;
use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::{Fresh, TextEdit};
use std::slice;

/// `GETBIT key offset`: replies with the bit at `offset`, 0 beyond the end of the string.
///
/// Reply: integer. Refusals: an offset beyond the longest string, `WrongType`. Cost: O(1).
/// Source: <https://redis.io/commands/getbit> (2.2.0).
pub(super) fn getbit(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let at = Bit::parse(args.word()?)?;
    let text = find_text(cx.db, cx.stats, &key)?;
    let byte = text.and_then(|text| text.byte(at.byte)).unwrap_or(0);
    cx.reply.int(i64::from(byte & at.mask() != 0));
    Ok(Flow::Done)
}

/// `SETBIT key offset value`: sets or clears the bit at `offset`; the string grows to hold it.
///
/// Reply: the bit before. Refusals: an offset beyond the longest string, a value other than 0 and
/// 1, `WrongType`. The deadline stays. Cost: O(1), plus O(chunks) for a gap. Source:
/// <https://redis.io/commands/setbit> (2.2.0).
pub(super) fn setbit(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let at = Bit::parse(args.word()?)?;
    let on = match number::parse_i64(args.word()?) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(Refusal::line("ERR bit is not an integer or out of range")),
    };
    let before = edit(cx.db, &key, |text| at.set(text, on))?;
    cx.reply.int(i64::from(before));
    Ok(Flow::Done)
}

/// The refusal of an offset.
pub(super) fn out_of_range() -> Refusal {
    Refusal::line("ERR bit offset is not an integer or out of range")
}

/// The offset of a bit, if some legal string could contain it.
pub(super) fn checked(offset: i64) -> Result<usize, Refusal> {
    let offset = usize::try_from(offset).ok().filter(|offset| offset / 8 < string_max_bytes());
    offset.ok_or_else(out_of_range)
}

/// The place of a bit.
#[derive(Clone, Copy, Debug)]
struct Bit {
    byte: usize,
    /// The bit's number within its byte; 0 is the highest bit.
    within: usize,
}

impl Bit {
    fn parse(offset: &[u8]) -> Result<Self, Refusal> {
        let offset = checked(number::parse_i64(offset).ok_or_else(out_of_range)?)?;
        Ok(Self { byte: offset / 8, within: offset % 8 })
    }

    fn mask(self) -> u8 {
        0x80 >> self.within
    }

    /// Sets or clears the bit. Returns its previous value, and the number of changes: 1 if the bit
    /// or the string's length changed, else 0.
    fn set(self, text: &mut TextEdit<'_>, on: bool) -> (bool, usize) {
        let old = text.text().byte(self.byte);
        let byte = old.unwrap_or(0);
        let new = if on { byte | self.mask() } else { byte & !self.mask() };
        let has_changed = old != Some(new);
        if has_changed {
            text.write(self.byte, Fresh::Bytes(slice::from_ref(&new)), &[SETBIT]);
        }
        (byte & self.mask() != 0, usize::from(has_changed))
    }
}

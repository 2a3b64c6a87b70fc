//! BITCOUNT: counts the set bits.

use super::range::{Unit, bytes_of};
use crate::lookup::find_text;
use crate::text::{BYTES_AT_ONCE, find_piece};
use darter_base::bits::count_ones;
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_keyspace::Str;
use darter_resp::Reply;
use darter_structs::blob::Blob;
use std::ops::Range;

/// `BITCOUNT key [start end [BYTE | BIT]]`: how many bits of the string at `key` are set, or of a
/// part of it. Both ends belong to it; negative ones count from the end of the string.
///
/// Reply: integer, 0 when the key is absent, without a check of the other arguments. Refusals:
/// `WrongType`, `NotAnInteger`, `Syntax`. Cost: O(bytes); in slices from a cut when they are many.
/// Source: <https://redis.io/commands/bitcount> (2.6.0).
pub(super) fn bitcount(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let Some(text) = find_text(cx.db, cx.stats, &key)? else {
        cx.reply.int(0);
        return Ok(Flow::Done);
    };
    let bits = parse(args, text.len())?;
    let bytes = bytes_of(&bits);
    match text {
        Str::Blob(blob) if bytes.len() > BYTES_AT_ONCE => {
            let count = 0_usize.wrapping_sub(count_edges(&text, &bits));
            Ok(Flow::Stream(Box::new(Counting { blob: blob.reader(), rest: bytes, count })))
        }
        _ => {
            cx.reply.count(count_bytes(&text, bytes) - count_edges(&text, &bits));
            Ok(Flow::Done)
        }
    }
}

/// The range of bits to count, in a string of `len` bytes.
fn parse(mut args: Args<'_>, len: usize) -> Result<Range<usize>, Refusal> {
    if args.left() == 0 {
        return Ok(0..len * 8);
    }
    if args.left() == 1 || args.left() > 3 {
        return Err(Refusal::Syntax);
    }
    let (start, end) = (args.int()?, args.int()?);
    if start < 0 && end < 0 && start > end {
        return Ok(0..0); // An absent key replies 0; the other arguments are not checked.
    }
    let unit = if args.left() > 0 { Unit::parse(args.word()?)? } else { Unit::Byte };
    Ok(unit.resolve(start, end, len))
}

fn count_bytes(text: &Str<'_>, bytes: Range<usize>) -> usize {
    let mut count = 0;
    find_piece(text, bytes, |_, piece| {
        count += count_ones(piece);
        None::<()>
    });
    count
}

/// Counts the set bits that are in the first and last byte of `bits`, but outside the range.
fn count_edges(text: &Str<'_>, bits: &Range<usize>) -> usize {
    if bits.is_empty() {
        return 0;
    }
    let byte = |at| text.byte(at).unwrap_or(0);
    let before = byte(bits.start / 8) & !(0xff >> (bits.start % 8));
    let after = byte((bits.end - 1) / 8) & (0x7f >> ((bits.end - 1) % 8));
    (before.count_ones() + after.count_ones()) as usize
}

/// A running count in a long string; the reply comes at the end.
struct Counting {
    blob: Blob,
    rest: Range<usize>,
    /// Bits counted so far, minus those of the edges. The number wraps below zero until the edges'
    /// bytes are counted.
    count: usize,
}

impl Stream for Counting {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let end = self.rest.end.min(self.rest.start + BYTES_AT_ONCE);
        let ones: usize = self.blob.slices(self.rest.start..end).map(count_ones).sum();
        self.count = self.count.wrapping_add(ones);
        self.rest.start = end;
        let more = !self.rest.is_empty();
        if !more {
            reply.count(self.count);
        }
        more
    }

    fn pinned_bytes(&self) -> usize {
        self.blob.pinned_bytes()
    }
}

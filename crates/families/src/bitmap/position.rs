//! BITPOS: finds the first bit that is set, or clear.

use super::range::{Unit, bytes_of};
use crate::lookup::find_text;
use crate::text::{BYTES_AT_ONCE, find_piece};
use darter_base::bits::first_other;
use darter_base::number;
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_keyspace::Str;
use darter_resp::Reply;
use darter_structs::blob::Blob;
use std::ops::Range;

/// `BITPOS key bit [start [end [BYTE | BIT]]]`: the position of the first bit of that value in the
/// string at `key`, or in a part of it.
///
/// Reply: integer, counted from the beginning of the string; -1 when there is none. A string
/// without a given end continues with clear bits. Refusals: a bit other than 0 and 1, `WrongType`,
/// `NotAnInteger`, `Syntax`. For an absent key, only the bit argument is checked. Cost: O(bytes);
/// in slices from a cut when they are many. Source: <https://redis.io/commands/bitpos> (2.8.7).
pub(super) fn bitpos(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let on = match args.int()? {
        0 => false,
        1 => true,
        _ => return Err(Refusal::line("ERR The bit argument must be 1 or 0.")),
    };
    let Some(text) = find_text(cx.db, cx.stats, &key)? else {
        cx.reply.int(if on { -1 } else { 0 });
        return Ok(Flow::Done);
    };
    let search = parse(args, on, text.len())?;
    let bytes = bytes_of(&search.bits);
    match text {
        Str::Blob(blob) if bytes.len() > BYTES_AT_ONCE => {
            Ok(Flow::Stream(Box::new(Searching { blob: blob.reader(), search, rest: bytes })))
        }
        _ => {
            let found = find_piece(&text, bytes, |at, piece| search.look(at, piece));
            search.reply(&mut cx.reply, found);
            Ok(Flow::Done)
        }
    }
}

/// Reads the search range within a string of `len` bytes.
fn parse(mut args: Args<'_>, on: bool, len: usize) -> Result<Search, Refusal> {
    if args.left() == 0 {
        return Ok(Search { on, bits: 0..len * 8, is_open: true });
    }
    if args.left() > 3 {
        return Err(Refusal::Syntax);
    }
    let start = args.int()?;
    let end = if args.left() > 0 { Some(args.word()?) } else { None };
    let unit = if args.left() > 0 { Unit::parse(args.word()?)? } else { Unit::Byte };
    let is_open = end.is_none();
    let end = end.map_or(Some(-1), number::parse_i64).ok_or(Refusal::NotAnInteger)?;
    Ok(Search { on, bits: unit.resolve(start, end, len), is_open })
}

/// A search for a bit.
#[derive(Debug)]
struct Search {
    on: bool,
    bits: Range<usize>,
    /// The search continues after the end of the string, where all bits are clear.
    is_open: bool,
}

impl Search {
    /// Searches a piece that begins at byte `at`. The position found may lie after the range's end,
    /// within the same byte.
    fn look(&self, at: usize, piece: &[u8]) -> Option<usize> {
        let skipped: u8 = if self.on { 0 } else { 0xff };
        let place = |byte: usize, bits: u8| (at + byte) * 8 + bits.leading_zeros() as usize;
        let is_first = at * 8 <= self.bits.start;
        if is_first {
            let bits = (piece.first()? ^ skipped) & (0xff >> (self.bits.start % 8));
            if bits != 0 {
                return Some(place(0, bits));
            }
        }
        let from = usize::from(is_first);
        let byte = from + first_other(&piece[from..], skipped)?;
        Some(place(byte, piece[byte] ^ skipped))
    }

    fn reply(&self, reply: &mut Reply<'_>, found: Option<usize>) {
        match found.filter(|at| self.bits.contains(at)) {
            Some(at) => reply.count(at),
            None if !self.on && self.is_open && !self.bits.is_empty() => reply.count(self.bits.end),
            None => reply.int(-1),
        }
    }
}

/// A search through a long string.
struct Searching {
    blob: Blob,
    search: Search,
    rest: Range<usize>,
}

impl Stream for Searching {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let end = self.rest.end.min(self.rest.start + BYTES_AT_ONCE);
        let mut at = self.rest.start;
        let found = self.blob.slices(at..end).find_map(|piece| {
            at += piece.len();
            self.search.look(at - piece.len(), piece)
        });
        self.rest.start = end;
        let more = found.is_none() && !self.rest.is_empty();
        if !more {
            self.search.reply(reply, found);
        }
        more
    }

    fn pinned_bytes(&self) -> usize {
        self.blob.pinned_bytes()
    }
}

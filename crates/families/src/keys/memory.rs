//! MEMORY USAGE. The other MEMORY subcommands concern the server, and are there.

use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::{self as keyspace, Found};
use darter_structs::table::{Text, ValueRef};

/// The size of each entry without its texts: flags, fingerprint, and offset in the index.
const ENTRY_BYTES: usize = 1 + 3;
/// The size of a deadline: Unix milliseconds of this century as a varint.
const DEADLINE_BYTES: usize = 6;
const POINTER_BYTES: usize = 8;
/// The bytes before a small collection stored in an entry: its length, its note, its slack.
const PACK_BYTES: usize = 4;

/// `MEMORY USAGE key [SAMPLES count]`: bytes that the entry and its value take.
///
/// Exact except for the slack of pages. Nothing is sampled, so `count` has no effect. Reply:
/// integer, null when the key is absent. Refusals: `Syntax`, `NotAnInteger`. Cost: O(1).
/// Source: <https://redis.io/commands/memory-usage> (4.0.0).
pub(super) fn usage(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    while args.left() > 0 {
        if !args.option("SAMPLES") || args.left() == 0 || args.int()? < 0 {
            return Err(Refusal::Syntax);
        }
    }

    match cx.inspect(&key).map(|found| memory_bytes(&found)) {
        Some(bytes) => cx.reply.count(bytes),
        None => cx.reply.null(),
    }
    Ok(Flow::Done)
}

/// Bytes that a key's entry and its value take: the reply of MEMORY USAGE. Cost: O(1).
#[must_use]
pub fn memory_bytes(found: &Found<'_>) -> usize {
    let entry = found.entry();
    let deadline = entry.deadline().map_or(0, |_| DEADLINE_BYTES);
    let value = match entry.value() {
        ValueRef::Text(text) => packed_bytes(text),
        ValueRef::Packed(packed) => PACK_BYTES + packed.bytes.len(),
        ValueRef::Out(object) => POINTER_BYTES + keyspace::memory_bytes(object),
    };
    ENTRY_BYTES + packed_bytes(entry.key()) + deadline + value
}

/// The size of a text in a page: see the table's `text`.
fn packed_bytes(text: Text<'_>) -> usize {
    const UUID_BYTES: usize = 16;
    if let Some(value) = text.as_int() {
        let zigzag = (value << 1) ^ (value >> 63);
        let bits = 64 - zigzag.leading_zeros() as usize;
        return bits.div_ceil(7).clamp(1, 9);
    }
    match text.as_raw() {
        Some([]) => 0,
        Some(bytes) => bytes.len() + 1 + usize::from(bytes.len() > 127),
        None => UUID_BYTES,
    }
}

//! Whole hashes: HGETALL, HKEYS, HVALS.
//!
//! The reply is streamed from a cut, its first portion at once. If some fields have expired, the
//! live fields are counted first, in portions that encode nothing. So the header is exact, and the
//! fields are of the same instant.

use super::value::{Hash, value_of};
use crate::live_entries::{LiveEntries, is_alive};
use crate::lookup::find_value;
use crate::pending_values::{CutWalk, PendingValues, flow};
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_resp::Reply;
use darter_structs::blob::Blob;
use darter_structs::table::{Entry, Reader, Table};
use std::sync::Arc;

/// A table of fields.
pub(super) type Fields = Table<Arc<Blob>>;

/// Which part of a field is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldPart {
    /// The name.
    Field,
    /// The value.
    Value,
    /// Both name and value: a map in RESP3.
    Map,
    /// Both name and value, as a flat array.
    Flat,
    /// Both name and value: in RESP3, an array of two.
    Pairs,
}

impl FieldPart {
    /// The header of a reply with `fields` fields.
    pub(super) fn header(self, reply: &mut Reply<'_>, fields: usize) {
        match self {
            Self::Map => reply.map(fields),
            Self::Flat => reply.array(fields * 2),
            Self::Pairs if !reply.is_resp3() => reply.array(fields.saturating_mul(2)),
            _ => reply.array(fields),
        }
    }

    /// Encodes one field. Returns the bytes to charge to this portion.
    pub(super) fn encode(
        self,
        reply: &mut Reply<'_>,
        unsent: &mut PendingValues,
        entry: &Entry<'_, Arc<Blob>>,
    ) -> usize {
        if self == Self::Pairs && reply.is_resp3() {
            unsent.array(reply, 2);
        }
        let field = if self == Self::Value { 0 } else { unsent.key(reply, entry) };
        match self {
            Self::Field => field,
            _ => field + unsent.value(reply, &value_of(entry)),
        }
    }
}

/// `HGETALL key`: all fields and their values.
///
/// Reply: map (array in RESP2), streamed from a cut. Refusals: `WrongType`. Cost: O(fields).
/// Source: <https://redis.io/commands/hgetall> (2.0.0).
pub(super) fn hgetall(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    whole(cx, args, FieldPart::Map)
}

/// `HKEYS key`: all fields. Reply: array. Otherwise as HGETALL.
/// Source: <https://redis.io/commands/hkeys> (2.0.0).
pub(super) fn hkeys(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    whole(cx, args, FieldPart::Field)
}

/// `HVALS key`: all values. Reply: array. Otherwise as HGETALL.
/// Source: <https://redis.io/commands/hvals> (2.0.0).
pub(super) fn hvals(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    whole(cx, args, FieldPart::Value)
}

fn whole(cx: &mut Cx<'_>, mut args: Args<'_>, part: FieldPart) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let Some(hash) = find_value::<Hash>(cx.db, cx.stats, &key)? else {
        part.header(&mut cx.reply, 0);
        return Ok(Flow::Done);
    };
    let all = All::new(hash.fields().reader(), hash.memory_bytes(), part, cx.now);
    Ok(flow(&mut cx.reply, all))
}

/// All live fields of a cut, including the reply's header.
pub(super) struct All {
    /// Counts the live fields; `None` once the header is written.
    living: Option<LiveEntries<Arc<Blob>>>,
    walk: CutWalk<Arc<Blob>>,
    /// Bytes of memory of the hash.
    bytes: usize,
    part: FieldPart,
    now: u64,
}

impl All {
    /// The fields of `cut` that are live at `now`. `bytes` is the memory of the hash.
    pub(super) fn new(cut: Fields, bytes: usize, part: FieldPart, now: u64) -> Self {
        let living = Some(LiveEntries::new(cut, now));
        Self { living, walk: CutWalk::new(Reader::new(Table::new())), bytes, part, now }
    }
}

impl Stream for All {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        if let Some(living) = &mut self.living {
            let Some((count, cut)) = living.portion() else { return true };
            self.living = None;
            self.part.header(reply, count);
            self.walk = CutWalk::new(Reader::of_value(cut, self.bytes));
        }
        let (part, now) = (self.part, self.now);
        self.walk.portion(reply, &mut |reply, unsent, entry| {
            if is_alive(entry.deadline(), now) { part.encode(reply, unsent, entry) } else { 0 }
        })
    }

    fn pinned_bytes(&self) -> usize {
        match &self.living {
            Some(living) if living.pinned_bytes() > 0 => self.bytes,
            _ => self.walk.pinned_bytes(),
        }
    }
}

//! Changing a string in place: APPEND and SETRANGE.
//!
//! A long string is changed chunk by chunk: a chunk is copied only if a cut still holds it, and a
//! gap shares one chunk of zeros. So the cost depends only on the bytes that the client sends. If
//! they take more than a slice, an [`Edit`] writes them in portions into a copy that shares all
//! chunks, and installs the copy at the end.

use crate::option_names;
use crate::text::{self, BYTES_AT_ONCE, piece};
use darter_base::limits::string_max_bytes;
use darter_base::number;
use darter_command::{Args, Cx, Flow, Job, Refusal, Step};
use darter_keyspace::event::{APPEND, SETRANGE};
use darter_keyspace::{Deadline, Draft, Event, Fresh, Key};
use darter_resp::{self as resp, Request};
use darter_structs::blob::Blob;
use std::sync::Arc;

/// `APPEND key value`: appends to the string at `key`; an absent key counts as empty.
///
/// Reply: the new length. Refusals: `WrongType`, a string longer than 512 MiB. The deadline stays.
/// Cost: O(bytes of the value), in slices if the value is long.
/// Source: <https://redis.io/commands/append> (2.0.0).
pub(super) fn append(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let first = args.position();
    let key = args.key()?;
    let at = args.position();
    let value = args.value()?;
    let len = match cx.db.read_text(&key)? {
        None => {
            cx.db.set_text_as(&key, value, Deadline::Clear, &[APPEND]);
            cx.reply.count(value.len());
            return Ok(Flow::Done);
        }
        Some(text) => text.len(),
    };
    write(cx, &key, Write { args, key: first, value: at, offset: len, event: APPEND })
}

/// `SETRANGE key offset value`: overwrites the string at `key` from `offset` on; bytes between its
/// end and `offset` become zeros.
///
/// Reply: the new length. Refusals: `NotAnInteger`, a negative offset, `WrongType`, a string longer
/// than 512 MiB. An empty value changes nothing. The deadline stays. Cost: O(bytes of the value),
/// in slices if the value is long; O(chunks) of a gap. Source: <https://redis.io/commands/setrange>
/// (2.2.0).
pub(super) fn setrange(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let first = args.position();
    let key = args.key()?;
    let offset = number::parse_i64(option_names::take(&mut args).ok_or(Refusal::Syntax)?);
    let offset = usize::try_from(offset.ok_or(Refusal::NotAnInteger)?)
        .map_err(|_| Refusal::line("ERR offset is out of range"))?;
    let at = args.position();
    let value = args.value()?;
    let len = cx.db.read_text(&key)?.map_or(0, |text| text.len());
    if value.is_empty() {
        cx.reply.count(len);
        return Ok(Flow::Done);
    }
    write(cx, &key, Write { args, key: first, value: at, offset, event: SETRANGE })
}

/// The parameters of a write.
struct Write<'a> {
    args: Args<'a>,
    /// The index of the key in the request.
    key: usize,
    /// The index of the value in the request.
    value: usize,
    /// The place of the value's first byte.
    offset: usize,
    /// The event.
    event: &'static Event,
}

impl<'a> Write<'a> {
    fn bytes(&self) -> Fresh<'a> {
        value_at(self.args, self.value)
    }
}

/// The argument at `index` of a request.
fn value_at(mut args: Args<'_>, index: usize) -> Fresh<'_> {
    args.seek(index);
    args.value().unwrap_or(Fresh::Bytes(b""))
}

fn write(cx: &mut Cx<'_>, key: &Key<'_>, write: Write<'_>) -> Result<Flow, Refusal> {
    let value = write.bytes();
    if write.offset.saturating_add(value.len()) > string_max_bytes() {
        return Err(Refusal::line("ERR string exceeds maximum allowed size (proto-max-bulk-len)"));
    }
    if value.len() > BYTES_AT_ONCE {
        let draft = cx.db.draft_text(key)?;
        return Ok(Flow::Job(Box::new(Edit::new(draft, &write))));
    }
    let len = text::write(cx.db, key, (write.offset, value), write.event)?;
    cx.reply.count(len);
    Ok(Flow::Done)
}

/// A write that takes more than a slice.
struct Edit {
    request: Arc<Request>,
    key: usize,
    value: usize,
    /// The new string: a copy that shares its chunks.
    draft: Draft<Blob>,
    offset: usize,
    next: usize,
    event: &'static Event,
}

impl Edit {
    fn new(draft: Draft<Blob>, write: &Write<'_>) -> Self {
        let Write { key, value, offset, event, .. } = *write;
        Self { request: write.args.all().to_request(), key, value, draft, offset, next: 0, event }
    }
}

impl Job for Edit {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let args = Args::new(resp::Args::owned(&self.request), 0);
        let value = value_at(args, self.value);
        if let Some(piece) = piece(value, self.next) {
            self.draft.write_piece(self.offset, piece);
            self.offset += piece.len();
            self.next += 1;
            return Ok(Step::More);
        }
        self.draft.end_write(self.offset - value.len(), value, self.event);
        cx.reply.count(self.draft.value().len());
        let key = Key::new(args.all().get(self.key));
        cx.db.install_draft(&key, std::mem::take(&mut self.draft));
        Ok(Step::Done(Flow::Done))
    }
}

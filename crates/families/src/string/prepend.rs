//! PREPEND: APPEND at the front. All bytes move, so a long string is built in portions.

use crate::text::{BYTES_AT_ONCE, piece, pieces};
use darter_base::limits::{CHUNK_BYTES, string_max_bytes};
use darter_command::{Args, Cx, Flow, Job, Refusal, Step};
use darter_keyspace::{Deadline, Draft, Event, Fresh, Key};
use darter_resp::{self as resp, Request};
use darter_structs::blob::Blob;
use std::sync::Arc;

const PREPEND: &Event = &Event::new("prepend", b'$');

/// `PREPEND key value`: prepends `value` to the string at `key`; an absent key counts as empty.
///
/// Reply: the new length. Refusals: `WrongType`, a string longer than 512 MiB. The deadline stays.
/// Cost: O(bytes of both), in slices when they are many.
/// Source: <https://www.dragonflydb.io/docs/command-reference/strings/prepend>.
pub(super) fn prepend(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let first = args.position();
    let (key, value) = (args.key()?, args.value()?);
    let Some(old) = cx.db.read_text(&key)? else {
        cx.db.set_text_as(&key, value, Deadline::Clear, &[PREPEND]);
        cx.reply.count(value.len());
        return Ok(Flow::Done);
    };
    let len = old.len() + value.len();
    if len > string_max_bytes() {
        return Err(Refusal::line("ERR string exceeds maximum allowed size (proto-max-bulk-len)"));
    }
    if len > BYTES_AT_ONCE {
        let (request, draft) = (args.all().to_request(), cx.db.draft_text(&key)?);
        let (whole, of_value) = (Blob::default(), value.len().div_ceil(CHUNK_BYTES));
        let job = Prepending { request, first, draft, whole, of_value, next: 0 };
        return Ok(Flow::Job(Box::new(job)));
    }
    let mut bytes = Vec::with_capacity(len);
    pieces(value).for_each(|piece| bytes.extend_from_slice(piece));
    old.write_to(&mut bytes);
    cx.db.set_text_raw(&key, Fresh::Bytes(&bytes), Deadline::Keep, &[PREPEND]);
    cx.reply.count(len);
    Ok(Flow::Done)
}

/// A PREPEND that takes more than a slice.
struct Prepending {
    request: Arc<Request>,
    /// The index of the key in the request.
    first: usize,
    /// The string as the command found it.
    draft: Draft<Blob>,
    /// The new value.
    whole: Blob,
    /// The next piece of the value and the number of its pieces; then the same for the string.
    of_value: usize,
    next: usize,
}

impl Job for Prepending {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let mut args = Args::new(resp::Args::owned(&self.request), self.first);
        let (key, value) = (args.key()?, args.value()?);
        let old = Fresh::Blob(self.draft.value());
        let next = match self.next.checked_sub(self.of_value) {
            None => piece(value, self.next),
            Some(index) => piece(old, index),
        };
        if let Some(next) = next {
            self.whole.append(next);
            self.next += 1;
            return Ok(Step::More);
        }
        let key = Key::new(key.bytes);
        cx.reply.count(self.whole.len());
        self.draft.replace(std::mem::take(&mut self.whole), PREPEND);
        cx.db.install_draft(&key, std::mem::take(&mut self.draft));
        Ok(Step::Done(Flow::Done))
    }
}

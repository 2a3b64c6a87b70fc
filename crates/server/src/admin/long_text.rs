//! The text of a reply that may become long, such as one line for each client.

use crate::engine::ServerCall;
use darter_base::limits::CHUNK_BYTES;
use darter_command::{Answer, Flow, reply_text};
use darter_resp::{Output, Reply};
use darter_structs::blob::Blob;

/// A long text, stored in blocks so that it is never copied as a whole.
#[derive(Default)]
pub(super) struct LongText {
    blocks: Blob,
    /// The end of the text, to which callers append.
    pub(super) tail: String,
}

impl LongText {
    pub(super) fn is_empty(&self) -> bool {
        self.tail.is_empty() && self.blocks.is_empty()
    }

    /// Moves the tail into the blocks if it is long enough.
    pub(super) fn settle(&mut self) {
        if self.tail.len() >= CHUNK_BYTES {
            self.blocks.append(self.tail.as_bytes());
            self.tail.clear();
        }
    }

    /// Converts the text into the reply of `call`.
    pub(super) fn into_answer(mut self, call: &ServerCall) -> Answer {
        if self.blocks.is_empty() {
            return call.answer(|reply| reply.verbatim(*b"txt", self.tail.as_bytes()));
        }
        self.blocks.append(self.tail.as_bytes());
        let (mut out, resp3) = (Output::default(), call.session.resp3);
        match reply_text(&mut Reply::new(&mut out, resp3), *b"txt", &self.blocks) {
            Flow::Stream(rest) => Answer::Stream(out, rest),
            _ => Answer::Done(out),
        }
    }
}

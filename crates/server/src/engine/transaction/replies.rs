//! The reply of EXEC: the array of its commands' replies, partly streamed.
//!
//! The reply is made under the locks, and sent later, at any speed of the client: long values are
//! streams of cuts.

use darter_base::lazyfree::{self, Dismantle};
use darter_command::Stream;
use darter_resp::{Output, Reply};
use std::collections::VecDeque;

/// A part of the reply: its beginning, and the rest as a stream.
pub(crate) type Part = (Output, Option<Box<dyn Stream>>);

/// Encoded bytes from which on a separate part begins, so that the connection sends portion by
/// portion.
const PART_BYTES: usize = 64 * 1024;

/// The replies so far.
#[derive(Default)]
pub(crate) struct Replies {
    parts: VecDeque<Part>,
    /// The encoded replies after the parts.
    pub(crate) out: Output,
    /// Bytes of the parts, with the memory that their streams held at first.
    held_bytes: usize,
}

impl Replies {
    /// No replies yet; they are encoded into this buffer.
    pub(super) fn into_buffer(buffer: Vec<u8>) -> Self {
        Self { parts: VecDeque::new(), out: Output::with_buffer(buffer), held_bytes: 0 }
    }

    /// The bytes of the whole reply, if it is short.
    pub(super) fn into_flat(mut self) -> Result<Vec<u8>, Self> {
        if !self.parts.is_empty() {
            return Err(self);
        }
        match self.out.take_flat(Vec::new()) {
            Some(flat) => Ok(flat),
            None => Err(self),
        }
    }

    /// Ends the reply of a command.
    pub(crate) fn settle(&mut self) {
        if self.out.len() >= PART_BYTES {
            self.close(None);
        }
    }

    /// Adds the stream of the rest of the last reply.
    pub(super) fn stream(&mut self, stream: Box<dyn Stream>) {
        self.close(Some(stream));
    }

    fn close(&mut self, stream: Option<Box<dyn Stream>>) {
        let out = std::mem::take(&mut self.out);
        self.held_bytes += out.len() + stream.as_ref().map_or(0, |stream| stream.held_bytes());
        self.parts.push_back((out, stream));
    }

    /// The first part to send, and the rest as a stream.
    pub(crate) fn into_part(mut self) -> Part {
        if self.parts.is_empty() {
            return (std::mem::take(&mut self.out), None);
        }
        self.close(None);
        (Output::default(), Some(Box::new(self)))
    }
}

impl Stream for Replies {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let Some((out, stream)) = self.parts.front_mut() else { return false };
        reply.out.append(std::mem::take(out));
        if let Some(stream) = stream
            && stream.pump(reply)
        {
            return true;
        }
        self.parts.pop_front();
        !self.parts.is_empty()
    }

    fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    fn pinned_bytes(&self) -> usize {
        /// Streams that are checked: each takes up to 10 us.
        const ASKED: usize = 4;
        let streams = self.parts.iter().take(ASKED).filter_map(|(_, stream)| stream.as_deref());
        streams.map(Stream::pinned_bytes).sum()
    }

    fn row(&self) -> Option<usize> {
        self.parts.front().and_then(|(_, stream)| stream.as_deref()).and_then(Stream::row)
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        /// Parts up to which they are freed at once.
        const FEW: usize = 4;
        if self.parts.len() > FEW {
            lazyfree::defer(Box::new(Remains(std::mem::take(&mut self.parts))));
        }
    }
}

/// Dropped replies, freed in portions.
struct Remains(VecDeque<Part>);

impl Dismantle for Remains {
    fn dismantle(&mut self) -> bool {
        self.0.pop_front();
        !self.0.is_empty()
    }

    fn bytes(&self) -> usize {
        self.0.len() * PART_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream of this number of letters.
    struct Letters(usize);

    impl Stream for Letters {
        fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
            let some = self.0.min(3);
            reply.out.tail().extend(std::iter::repeat_n(b's', some));
            self.0 -= some;
            self.0 > 0
        }
    }

    #[test] // Streams and encoded replies keep their order.
    fn parts_come_in_order() {
        let mut replies = Replies::default();
        replies.out.tail().extend_from_slice(b"*4 a ");
        replies.stream(Box::new(Letters(7)));
        replies.out.tail().extend_from_slice(b" b ");
        replies.settle();
        replies.stream(Box::new(Letters(1)));
        let (mut out, rest) = replies.into_part();
        let mut rest = rest.expect("there are streams");
        while rest.pump(&mut Reply::new(&mut out, false)) {}
        assert_eq!(out.flatten(), b"*4 a sssssss b s");
    }

    #[test] // A short reply is sent at once, a long one part by part.
    fn long_ones_are_not_sent_at_once() {
        let mut replies = Replies::default();
        replies.out.tail().extend_from_slice(b"*0");
        assert!(replies.into_part().1.is_none());
        let mut replies = Replies::default();
        for _ in 0..10 {
            replies.out.tail().extend_from_slice(&[b'x'; PART_BYTES]);
            replies.settle();
        }
        let mut out = Output::default();
        let mut rest = replies.into_part().1.expect("it is long");
        assert!(rest.held_bytes() == 10 * PART_BYTES && rest.pump(&mut Reply::new(&mut out, true)));
        assert_eq!(out.len(), PART_BYTES);
    }
}

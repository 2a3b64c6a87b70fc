//! The reply of EXEC: the array of the replies of its commands, some of them as streams.
//!
//! The reply is encoded while the locks are held, and sent later, as fast as the client reads. A
//! long value is a stream that reads from a cut.

use darter_base::lazyfree;
use darter_command::Stream;
use darter_resp::{Output, Reply};
use std::collections::VecDeque;

/// A part of the reply: its encoded beginning, and a stream of the rest.
pub(crate) type Part = (Output, Option<Box<dyn Stream>>);

/// When a part has this many encoded bytes, another part begins, so that the connection can send
/// them one by one.
const PART_BYTES: usize = 64 * 1024;

/// The replies of the commands that have run.
#[derive(Default)]
pub(crate) struct Replies {
    parts: VecDeque<Part>,
    /// The encoded replies that follow the parts.
    pub(crate) out: Output,
    /// Bytes of the parts, including the memory that their streams held at first.
    held_bytes: usize,
}

impl Replies {
    /// No replies yet. They will be encoded into `buffer`.
    pub(super) fn into_buffer(buffer: Vec<u8>) -> Self {
        Self { parts: VecDeque::new(), out: Output::with_buffer(buffer), held_bytes: 0 }
    }

    /// The bytes of the complete reply, if it is short.
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

    /// Adds a stream with the rest of the last reply.
    pub(super) fn stream(&mut self, stream: Box<dyn Stream>) {
        self.close(Some(stream));
    }

    fn close(&mut self, stream: Option<Box<dyn Stream>>) {
        let out = std::mem::take(&mut self.out);
        self.held_bytes += out.len() + stream.as_ref().map_or(0, |stream| stream.held_bytes());
        self.parts.push_back((out, stream));
    }

    /// The first part to send, and a stream of all other parts.
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
        /// The number of streams that are checked at a time: each check takes up to 10 us.
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
        lazyfree::defer_long(std::mem::take(&mut self.parts), 1, PART_BYTES);
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

    #[test]
    fn streams_and_encoded_replies_of_exec_keep_their_order() {
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

    #[test] // A short reply is sent in one piece.
    fn a_long_reply_of_exec_is_sent_in_parts() {
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

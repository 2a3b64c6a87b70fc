//! Keys or members gathered for a reply whose count is known only at the end.
//!
//! Each is encoded into chunks when it is found. One vector for 200 MB of keys would be copied as a
//! whole each time it grows.

use darter_base::limits::CHUNK_BYTES;
use darter_base::number;
use darter_command::{Answer, Stream};
use darter_keyspace::lazyfree;
use darter_resp::{Output, Reply};
use darter_structs::table::{Entry, HeldKey, OutOfLine, Text};
use std::collections::VecDeque;

/// Extra capacity of a chunk, so that the string that crosses its limit rarely makes it grow.
const CHUNK_SLACK_BYTES: usize = 1024;
/// Chunks freed in one step.
const CHUNKS_FREED_AT_ONCE: usize = 8;
/// Longer names are referenced, not copied.
const COPIED_MAX: usize = 4 * 1024;
/// Bytes of a referenced name that are sent in one portion.
const SENT_AT_ONCE: usize = 32 * 1024;

/// Encoded bulk strings. As a stream, it sends them after their header has been written.
#[derive(Default)]
pub(crate) struct CountedReply {
    full: Chunks,
    tail: Vec<u8>,
    count: usize,
}

/// The chunks of an unread reply, waiting to be freed in portions.
#[derive(Default)]
struct Chunks(VecDeque<Chunk>);

enum Chunk {
    Bytes(Vec<u8>),
    /// A long name, and the number of bytes already sent.
    Name(HeldKey, usize),
}

impl Drop for Chunks {
    fn drop(&mut self) {
        lazyfree::defer_long(std::mem::take(&mut self.0), CHUNKS_FREED_AT_ONCE, CHUNK_BYTES);
    }
}

/// Appends `text` as a bulk string.
pub(crate) fn write_bulk(out: &mut Vec<u8>, text: Text<'_>) {
    write_header(out, text.len());
    text.write_to(out);
    out.extend_from_slice(b"\r\n");
}

fn write_header(out: &mut Vec<u8>, len: usize) {
    out.push(b'$');
    number::write_i64(out, i64::try_from(len).unwrap_or(i64::MAX));
    out.extend_from_slice(b"\r\n");
}

impl CountedReply {
    /// Adds a string.
    pub(crate) fn push(&mut self, text: Text<'_>) {
        self.make_room();
        write_bulk(&mut self.tail, text);
        self.count += 1;
    }

    /// Adds the key of an entry.
    pub(crate) fn push_key<X: OutOfLine>(&mut self, entry: &Entry<'_, X>) {
        let key = entry.key();
        match (key.len() > COPIED_MAX).then(|| entry.hold_key()).flatten() {
            Some(name) => self.hold(name),
            None => self.push(key),
        }
    }

    fn hold(&mut self, name: HeldKey) {
        write_header(&mut self.tail, name.bytes().len());
        self.full.0.push_back(Chunk::Bytes(std::mem::take(&mut self.tail)));
        self.full.0.push_back(Chunk::Name(name, 0));
        self.tail.extend_from_slice(b"\r\n");
        self.count += 1;
    }

    /// Adds `count` strings that are already encoded.
    pub(crate) fn append(&mut self, encoded: &[u8], count: usize) {
        self.make_room();
        self.tail.extend_from_slice(encoded);
        self.count += count;
    }

    /// The number of strings.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    fn make_room(&mut self) {
        if self.tail.capacity() == 0 {
            return; // The first chunk grows as vectors do.
        }
        if self.tail.len() >= CHUNK_BYTES {
            let next = Vec::with_capacity(CHUNK_BYTES + CHUNK_SLACK_BYTES);
            self.full.0.push_back(Chunk::Bytes(std::mem::replace(&mut self.tail, next)));
        }
    }

    /// The reply: the output of `head`, then an array of the gathered strings, streamed if it is
    /// long.
    pub(crate) fn into_answer(self, resp3: bool, head: impl FnOnce(&mut Reply<'_>)) -> Answer {
        let mut out = Output::default();
        let mut reply = Reply::new(&mut out, resp3);
        head(&mut reply);
        reply.array(self.count);
        if self.full.0.is_empty() {
            reply.out.tail().extend_from_slice(&self.tail);
            return Answer::Done(out);
        }
        Answer::Stream(out, Box::new(self))
    }
}

impl Stream for CountedReply {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        if let Some(Chunk::Name(name, sent)) = self.full.0.front_mut() {
            let rest = &name.bytes()[*sent..];
            let part = &rest[..rest.len().min(SENT_AT_ONCE)];
            reply.out.tail().extend_from_slice(part);
            *sent += part.len();
            if part.len() == rest.len() {
                self.full.0.pop_front();
            }
            return true;
        }
        let (chunk, more) = match self.full.0.pop_front() {
            Some(Chunk::Bytes(chunk)) => (chunk, true),
            Some(Chunk::Name(..)) => unreachable!("it was first"),
            None => (std::mem::take(&mut self.tail), false),
        };
        let mut part = Output::default();
        *part.tail() = chunk;
        reply.out.append(part);
        more
    }

    /// All its bytes were made for this reply.
    fn pinned_bytes(&self) -> usize {
        self.full.0.len() * CHUNK_BYTES + self.tail.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::preempt::Never;

    fn gather(count: usize) -> CountedReply {
        let mut all = CountedReply::default();
        for at in 0..count {
            all.push(Text::raw(format!("key:{at}").as_bytes()));
        }
        all
    }

    #[test] // For none, a few and several chunks; no chunk is too long.
    fn gathered_strings_are_sent_completely_and_in_order() {
        for count in [0, 1, 5_000, 50_000] {
            let out = match gather(count).into_answer(false, |reply| reply.simple("head")) {
                Answer::Done(out) => out,
                Answer::Stream(mut out, mut rest) => {
                    let mut sent = out.len();
                    while rest.pump(&mut Reply::new(&mut out, false)) {
                        assert!(out.len() - sent <= CHUNK_BYTES + CHUNK_SLACK_BYTES);
                        sent = out.len();
                    }
                    out
                }
            };
            let mut expected = format!("+head\r\n*{count}\r\n");
            for at in 0..count {
                let key = format!("key:{at}");
                expected.push_str(&format!("${}\r\n{key}\r\n", key.len()));
            }
            assert!(out.flatten() == expected.as_bytes(), "{count}");
        }
    }

    #[test]
    fn unread_replies_are_freed_in_portions() {
        drop(gather(100_000));
        assert!(!lazyfree::is_empty());
        while lazyfree::run(&Never) {}
        drop(gather(10));
        assert!(lazyfree::is_empty());
    }
}

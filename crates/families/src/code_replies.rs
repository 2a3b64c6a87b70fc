//! Replies with one result code per entry, as of HEXPIRE and its relatives.

use darter_command::{Flow, Stream};
use darter_resp::Reply;

/// The entry does not exist.
pub(crate) const ABSENT: i8 = -2;
/// The entry has no deadline.
pub(crate) const NO_DEADLINE: i8 = -1;
/// The condition was not met, so nothing changed.
pub(crate) const UNCHANGED: i8 = 0;
/// Done. For a set entry: it is new.
pub(crate) const DONE: i8 = 1;
/// Done, and the entry was removed because the new deadline had passed.
pub(crate) const GONE: i8 = 2;

/// Codes in one portion of a reply.
const AT_ONCE: usize = 1_024;

/// Replies with the given codes.
pub(crate) fn reply_codes(reply: &mut Reply<'_>, codes: Vec<i8>) -> Flow {
    send(reply, codes.len(), Codes::Each(codes))
}

/// Replies that each of `count` entries is absent.
pub(crate) fn reply_absent(reply: &mut Reply<'_>, count: usize) -> Flow {
    send(reply, count, Codes::Absent)
}

/// Replies with `count` nulls in place of values.
pub(crate) fn reply_nulls(reply: &mut Reply<'_>, count: usize) -> Flow {
    send(reply, count, Codes::Nulls)
}

/// Replies with the given codes, each written by `write`.
pub(crate) fn reply_as(reply: &mut Reply<'_>, codes: Vec<i8>, write: WriteCode) -> Flow {
    send(reply, codes.len(), Codes::As(codes, write))
}

/// Writes a code.
pub(crate) type WriteCode = fn(&mut Reply<'_>, i8);

/// The codes of the entries.
enum Codes {
    Each(Vec<i8>),
    As(Vec<i8>, WriteCode),
    Absent,
    Nulls,
}

/// A reply of codes. Its header is already written.
struct Sending {
    codes: Codes,
    next: usize,
    count: usize,
}

/// Sends the first portion at once; the rest becomes a stream.
fn send(reply: &mut Reply<'_>, count: usize, codes: Codes) -> Flow {
    reply.array(count);
    let mut sending = Sending { codes, next: 0, count };
    if sending.pump(reply) { Flow::Stream(Box::new(sending)) } else { Flow::Done }
}

impl Stream for Sending {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let end = self.count.min(self.next + AT_ONCE);
        for at in self.next..end {
            match &self.codes {
                Codes::Each(codes) => reply.int(i64::from(codes[at])),
                Codes::As(codes, write) => write(reply, codes[at]),
                Codes::Absent => reply.int(i64::from(ABSENT)),
                Codes::Nulls => reply.null(),
            }
        }
        self.next = end;
        end < self.count
    }
}

//! Replies of one code an entry: its outcome, as in HEXPIRE and the like.

use darter_command::{Flow, Stream};
use darter_resp::Reply;

/// There is no such entry.
pub(crate) const ABSENT: i8 = -2;
/// The entry has no deadline.
pub(crate) const NO_DEADLINE: i8 = -1;
/// The condition was not met: nothing has changed.
pub(crate) const UNCHANGED: i8 = 0;
/// Done; for an entry that is set: it is new.
pub(crate) const DONE: i8 = 1;
/// Done, and the entry is gone, because its deadline has passed.
pub(crate) const GONE: i8 = 2;

/// Codes in one portion of a reply.
const AT_ONCE: usize = 1_024;

/// Replies with known codes.
pub(crate) fn reply_codes(reply: &mut Reply<'_>, codes: Vec<i8>) -> Flow {
    send(reply, codes.len(), Codes::Each(codes))
}

/// Replies that each of `count` entries is absent.
pub(crate) fn reply_absent(reply: &mut Reply<'_>, count: usize) -> Flow {
    send(reply, count, Codes::Absent)
}

/// Replies with `count` nulls: there are no values.
pub(crate) fn reply_nulls(reply: &mut Reply<'_>, count: usize) -> Flow {
    send(reply, count, Codes::Nulls)
}

/// Replies with known codes, each as `write` says it.
pub(crate) fn reply_as(reply: &mut Reply<'_>, codes: Vec<i8>, write: WriteCode) -> Flow {
    send(reply, codes.len(), Codes::As(codes, write))
}

/// How a code is said.
pub(crate) type WriteCode = fn(&mut Reply<'_>, i8);

/// The codes of the entries.
enum Codes {
    Each(Vec<i8>),
    As(Vec<i8>, WriteCode),
    Absent,
    Nulls,
}

/// Codes being sent. The header is already written.
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

//! Pending replies of a connection, and the memory that they pin.
//!
//! A long reply of another core arrives as a header and a stream, which waits until all earlier
//! replies are sent: up to two thousand streams in a pipeline. The memory that they pin counts as
//! their client's. No reader of the sum (the census, CLIENT LIST) can visit all streams each time:
//! each visit checks some of them, and their sizes are kept until they leave. So the sum may lag,
//! but is never too large, because a waiting stream releases nothing.
//!
//! Short replies, nearly all of them, wait in two buffers of the connection: a queue of places in a
//! buffer is smaller than one of outputs, and needs no allocation per reply. A buffer is reset when
//! its last reply has left; until then a continuous pipeline fills the other one.
//!
//! Messages of channels wait here, too, after a reply that the client does not read: hundreds of
//! thousands until `client-output-buffer-limit` closes the client. The pending replies are then
//! freed in portions.

use darter_base::lazyfree::{self, Dismantle};
use darter_command::Stream;
use darter_resp::Output;
use std::cell::Cell;
use std::collections::VecDeque;

/// The size of a buffer of short replies, which the connection keeps.
const EARLY_MAX: usize = 4 * 1024;

const _: () = assert!(EARLY_MAX <= u16::MAX as usize);

/// A pending reply, in the order of the requests.
pub(super) enum Owed {
    /// An encoded short reply, in a buffer.
    Early(Place),
    /// A ready reply that is longer, has parts, or continues as a stream.
    Ready(Box<Ready>),
    /// The next reply in a batch from this core.
    Remote(usize),
    /// The next reply in a batch from this core, for a client with replies off.
    Silent(usize),
}

/// The place of a short reply: its buffer and its range.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    buffer: u16,
    start: u16,
    end: u16,
}

const _: () = assert!(size_of::<Owed>() == 16);

/// See [`Owed::Ready`].
pub(super) struct Ready {
    pub(super) out: Output,
    pub(super) stream: Option<Box<dyn Stream>>,
    /// Bytes that its stream pins, as last checked.
    pinned: Cell<usize>,
}

impl Ready {
    /// Bytes of the reply, and of its stream.
    pub(super) fn bytes(&self) -> usize {
        self.out.len() + held_by(self.stream.as_deref())
    }
}

pub(super) fn held_by(stream: Option<&dyn Stream>) -> usize {
    stream.map_or(0, Stream::held_bytes)
}

/// Streams checked in one visit: a few microseconds with one value each.
const CHECKED_AT_ONCE: usize = 32;
/// Places of the queue that one visit may pass.
const PASSED_AT_ONCE: usize = 256;

/// A buffer of short replies.
#[derive(Default)]
struct Early {
    bytes: Vec<u8>,
    /// Bytes of its replies that are still pending.
    owed: usize,
}

impl Early {
    fn has_room(&self, reply: &[u8]) -> bool {
        self.bytes.len() + reply.len() <= EARLY_MAX
    }
}

/// The ready replies in a queue of pending ones.
#[derive(Default)]
pub(super) struct Waiting {
    /// Bytes of ready replies, and of their streams.
    pub(super) bytes: usize,
    /// The buffers of short replies.
    early: [Early; 2],
    /// The buffer that takes new replies.
    filling: usize,
    /// The number of streams.
    streams: usize,
    /// The sum of the bytes that they pin, as last checked.
    pinned: Cell<usize>,
    /// The start of the next visit.
    next: Cell<usize>,
}

impl Waiting {
    /// Stores a ready reply.
    pub(super) fn take_in(&mut self, out: Output, stream: Option<Box<dyn Stream>>) -> Owed {
        let ready = Ready { out, stream, pinned: Cell::new(0) };
        self.bytes += ready.bytes();
        self.streams += usize::from(ready.stream.is_some());
        Owed::Ready(Box::new(ready))
    }

    /// Stores a short encoded reply.
    pub(super) fn take_in_flat(&mut self, reply: &[u8]) -> Owed {
        if reply.is_empty() {
            return Owed::Early(Place::default()); // A place in a buffer could become stale.
        }
        if !self.early[self.filling].has_room(reply) {
            self.filling = 1 - self.filling;
        }
        let early = &mut self.early[self.filling];
        if !early.has_room(reply) {
            let mut out = Output::default();
            out.copy(reply);
            return self.take_in(out, None);
        }
        let start = early.bytes.len();
        early.bytes.extend_from_slice(reply);
        early.owed += reply.len();
        self.bytes += reply.len();
        let end = start + reply.len();
        Owed::Early(Place { buffer: self.filling as u16, start: start as u16, end: end as u16 })
    }

    /// Appends a short encoded reply to the last one, in the same place, so that the replies after
    /// MULTI need one place. False if there is no room.
    pub(super) fn join_flat(&mut self, last: &mut Place, reply: &[u8]) -> bool {
        let early = &mut self.early[usize::from(last.buffer)];
        let is_last = last.start < last.end && usize::from(last.end) == early.bytes.len();
        if !is_last || usize::from(last.buffer) != self.filling || !early.has_room(reply) {
            return false;
        }
        early.bytes.extend_from_slice(reply);
        early.owed += reply.len();
        self.bytes += reply.len();
        last.end += reply.len() as u16;
        true
    }

    /// Moves the first reply, a short one, into the output.
    pub(super) fn send_early(&mut self, place: Place, out: &mut Output) {
        let early = &mut self.early[usize::from(place.buffer)];
        let reply = &early.bytes[usize::from(place.start)..usize::from(place.end)];
        out.tail().extend_from_slice(reply);
        early.owed -= reply.len();
        self.bytes -= reply.len();
        self.next.set(self.next.get().saturating_sub(1));
        if early.owed == 0 {
            early.bytes.clear();
        }
    }

    /// Unused bytes of the buffers.
    pub(super) fn spare_bytes(&self) -> usize {
        self.early.iter().map(|early| early.bytes.capacity() - early.owed).sum()
    }

    /// Uncounts the first reply, which leaves the queue.
    pub(super) fn leave(&mut self, ready: &Ready) {
        self.bytes -= ready.bytes();
        self.streams -= usize::from(ready.stream.is_some());
        self.pinned.set(self.pinned.get() - ready.pinned.get());
        self.next.set(self.next.get().saturating_sub(1));
    }

    /// Bytes that the streams in the queue pin, as last checked. Cost: a check of some of them.
    pub(super) fn pinned_bytes(&self, owed: &VecDeque<Owed>) -> usize {
        let mut left = self.streams.min(CHECKED_AT_ONCE);
        for _ in 0..owed.len().min(PASSED_AT_ONCE) {
            if left == 0 {
                break;
            }
            let at = self.next.get() % owed.len();
            self.next.set(at + 1);
            if let Owed::Ready(ready) = &owed[at]
                && let Ready { stream: Some(stream), pinned, .. } = &**ready
            {
                let before = pinned.replace(stream.pinned_bytes());
                self.pinned.set(self.pinned.get() - before + pinned.get());
                left -= 1;
            }
        }
        self.pinned.get()
    }
}

/// A push: its encoded bytes, and the rest as a stream.
type Push = (Output, Option<Box<dyn Stream>>);

/// The pending replies of a closed connection.
pub(super) struct Unread {
    owed: VecDeque<Owed>,
    /// Invalidations that waited for the reply of a task.
    late: Vec<Push>,
    /// Bytes of the ready replies.
    bytes: usize,
}

/// Replies freed at once: about 10 us.
const FREED_AT_ONCE: usize = 64;
/// Bytes of replies freed at once.
const FREED_BYTES: usize = 64 * 1024;

impl Unread {
    /// Frees pending replies: a few at once, more in portions. `bytes` is the size of the ready
    /// ones.
    pub(super) fn free(owed: VecDeque<Owed>, late: Vec<Push>, bytes: usize) {
        let mut unread = Self { owed, late, bytes };
        if unread.dismantle() {
            lazyfree::defer(Box::new(unread));
        }
    }

    /// Frees one reply. Returns its bytes; `None` if nothing is left.
    fn free_one(&mut self) -> Option<usize> {
        match self.owed.pop_front() {
            Some(Owed::Ready(ready)) => Some(ready.bytes()),
            Some(_) => Some(0),
            None => self.late.pop().map(|(out, rest)| out.len() + held_by(rest.as_deref())),
        }
    }
}

impl Dismantle for Unread {
    fn dismantle(&mut self) -> bool {
        let mut freed = 0;
        for _ in 0..FREED_AT_ONCE {
            let Some(bytes) = self.free_one() else { return false };
            freed += bytes;
            if freed >= FREED_BYTES {
                break;
            }
        }
        self.bytes = self.bytes.saturating_sub(freed);
        true
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::preempt::Countdown;

    fn push(len: usize) -> Push {
        let mut out = Output::default();
        out.copy(&vec![b'x'; len]);
        (out, None)
    }

    #[test] // Many messages, or long ones, are freed in portions.
    fn pending_replies_are_freed_in_portions() {
        for (replies, len, portions) in [(20, 100, 0), (10_000, 100, 156), (100, 60_000, 50)] {
            let (mut waiting, mut owed) = (Waiting::default(), VecDeque::new());
            for _ in 0..replies / 2 {
                owed.push_back(waiting.take_in(push(len).0, None));
            }
            let late: Vec<Push> = (0..replies / 2).map(|_| push(len)).collect();
            Unread::free(owed, late, waiting.bytes);
            let mut left = 0;
            while !lazyfree::is_empty() {
                lazyfree::run(&Countdown::new(0));
                left += 1;
            }
            assert_eq!(left, portions, "{replies} replies of {len} bytes");
            assert_eq!(lazyfree::waiting(), (0, 0));
        }
    }
}

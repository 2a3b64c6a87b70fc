//! The pending replies of a connection, and the memory that they pin.
//!
//! A long reply from another core arrives as a header and a stream. The stream waits until all
//! earlier replies are sent, so a pipeline may have two thousand waiting streams. The memory that
//! they pin counts as memory of their client. The readers of the sum (the census, CLIENT LIST)
//! cannot visit all streams each time. So each visit checks only some of them, and the last known
//! size of a stream is kept until its reply leaves. The sum may be out of date, but is never too
//! large, because a waiting stream releases nothing.
//!
//! Nearly all replies are short. They wait in two buffers of the connection, and the queue holds
//! only their ranges: that needs less memory than a queue of outputs, and no allocation per reply.
//! A buffer is cleared when its last reply has left. During a continuous pipeline, new replies go
//! to the other buffer until then.
//!
//! Pushed messages wait here, too, if the client does not read an earlier reply: there may be
//! hundreds of thousands before `client-output-buffer-limit` closes the client. Its pending replies
//! are then freed in portions.

use darter_base::lazyfree::{self, Dismantle};
use darter_command::Stream;
use darter_resp::Output;
use std::cell::Cell;
use std::collections::VecDeque;

/// The size of a buffer of short replies. The connection keeps these buffers.
const EARLY_MAX: usize = 4 * 1024;

const _: () = assert!(EARLY_MAX <= u16::MAX as usize);

/// A pending reply. The queue has the order of the requests.
pub(super) enum Owed {
    /// A short reply, encoded in one of the two buffers.
    Early(Place),
    /// A ready reply that is longer, consists of parts, or continues as a stream.
    Ready(Box<Ready>),
    /// A reply that is expected in a batch from this core.
    Remote(usize),
    /// A reply that is expected in a batch from this core, and dropped because the client has
    /// replies off.
    Silent(usize),
}

/// The place of a short reply: the index of the buffer, and the range in it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    buffer: u16,
    start: u16,
    end: u16,
}

const _: () = assert!(size_of::<Owed>() == 16);

/// A ready reply that does not fit into the buffers: see [`Owed::Ready`].
pub(super) struct Ready {
    pub(super) out: Output,
    pub(super) stream: Option<Box<dyn Stream>>,
    /// Bytes that the stream pinned when it was last checked.
    pinned: Cell<usize>,
}

impl Ready {
    /// Bytes of the reply and of memory that its stream pins.
    pub(super) fn bytes(&self) -> usize {
        self.out.len() + held_by(self.stream.as_deref())
    }
}

pub(super) fn held_by(stream: Option<&dyn Stream>) -> usize {
    stream.map_or(0, Stream::held_bytes)
}

/// Streams checked in one visit: a few microseconds if each reads one value.
const CHECKED_AT_ONCE: usize = 32;
/// Entries of the queue that one visit may skip.
const PASSED_AT_ONCE: usize = 256;

/// A buffer of encoded short replies.
#[derive(Default)]
struct Early {
    bytes: Vec<u8>,
    /// Bytes of the replies in the buffer that are still pending.
    owed: usize,
}

impl Early {
    fn has_room(&self, reply: &[u8]) -> bool {
        self.bytes.len() + reply.len() <= EARLY_MAX
    }
}

/// The ready replies among the pending ones, with their buffers and sums.
#[derive(Default)]
pub(super) struct Waiting {
    /// Bytes of ready replies, including their streams.
    pub(super) bytes: usize,
    /// The two buffers of short replies.
    early: [Early; 2],
    /// The index of the buffer to which new replies are appended.
    filling: usize,
    /// The number of waiting streams.
    streams: usize,
    /// The sum of the bytes that the streams pinned when each was last checked.
    pinned: Cell<usize>,
    /// The index in the queue at which the next visit begins.
    next: Cell<usize>,
}

impl Waiting {
    /// Stores a ready reply, and returns its entry for the queue.
    pub(super) fn take_in(&mut self, out: Output, stream: Option<Box<dyn Stream>>) -> Owed {
        let ready = Ready { out, stream, pinned: Cell::new(0) };
        self.bytes += ready.bytes();
        self.streams += usize::from(ready.stream.is_some());
        Owed::Ready(Box::new(ready))
    }

    /// Stores a short encoded reply, and returns its entry for the queue.
    pub(super) fn take_in_flat(&mut self, reply: &[u8]) -> Owed {
        if reply.is_empty() {
            // An empty reply has no bytes, and its range could become invalid.
            return Owed::Early(Place::default());
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

    /// Appends a short encoded reply to the previous one, so that both have one entry, as the many
    /// replies after MULTI do. Returns false if the buffer has no room.
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

    /// Moves the reply at the head of the queue, which is a short one, into the output.
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

    /// Unused bytes of the two buffers.
    pub(super) fn spare_bytes(&self) -> usize {
        self.early.iter().map(|early| early.bytes.capacity() - early.owed).sum()
    }

    /// Subtracts the reply that leaves the head of the queue from the sums.
    pub(super) fn leave(&mut self, ready: &Ready) {
        self.bytes -= ready.bytes();
        self.streams -= usize::from(ready.stream.is_some());
        self.pinned.set(self.pinned.get() - ready.pinned.get());
        self.next.set(self.next.get().saturating_sub(1));
    }

    /// Bytes that the streams in the queue pinned when each was last checked. Checks some of them
    /// again.
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

/// A push: the encoded beginning, and a stream of the rest.
type Push = (Output, Option<Box<dyn Stream>>);

/// The pending replies of a closed connection, while they are freed.
pub(super) struct Unread {
    owed: VecDeque<Owed>,
    /// Invalidations that were waiting for the reply of a task.
    late: Vec<Push>,
    /// Bytes of the ready replies.
    bytes: usize,
}

/// Replies freed in one step: about 10 us.
const FREED_AT_ONCE: usize = 64;
/// Bytes of replies freed in one step.
const FREED_BYTES: usize = 64 * 1024;

impl Unread {
    /// Frees pending replies: at once if there are few, and otherwise in portions. `bytes` is the
    /// size of the ready replies.
    pub(super) fn free(owed: VecDeque<Owed>, late: Vec<Push>, bytes: usize) {
        let mut unread = Self { owed, late, bytes };
        if unread.dismantle() {
            lazyfree::defer(Box::new(unread));
        }
    }

    /// Frees one reply and returns its size; `None` if there is none left.
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

    #[test]
    fn many_or_long_pending_replies_are_freed_in_portions() {
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

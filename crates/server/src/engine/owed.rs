//! Replies owed to a connection, and what those that wait their turn pin.
//!
//! A long reply of another core arrives as a header and a stream, which waits until everything
//! before it has left: up to two thousand of them in a pipeline. What they pin is charged to their
//! client, as if it were being sent. But no reader (the census, CLIENT LIST) can ask them all each
//! time: a look asks some, the next look continues from there, and what was found is kept until it
//! leaves. The sum lags by the looks that it takes and is never too large: a stream that waits
//! releases nothing.
//!
//! Short replies, which is nearly all of them, wait in two buffers of the connection: a queue of
//! places in them takes less memory to walk than one of outputs, and no allocation for each. A buffer is
//! emptied when the last reply in it has left; a pipeline that never pauses fills the other one
//! meanwhile.
//!
//! Messages of channels wait here, too, behind a reply that its client does not read: hundreds of
//! thousands, until `client-output-buffer-limit` closes it. What is still owed then is freed in portions.

use darter_base::lazyfree::{self, Dismantle};
use darter_command::Stream;
use darter_resp::Output;
use std::cell::Cell;
use std::collections::VecDeque;

/// Bytes of a buffer of replies that wait. It stays with the connection.
const EARLY_MAX: usize = 4 * 1024;

const _: () = assert!(EARLY_MAX <= u16::MAX as usize);

/// A reply that is owed, in the order of the requests.
pub(super) enum Owed {
    /// Encoded, and waiting for those before it: a part of the early replies.
    Early(Place),
    /// The same, longer or in parts, and perhaps continued by a stream.
    Ready(Box<Ready>),
    /// The next reply in a batch from this core.
    Remote(usize),
    /// The same, and the client has its replies off.
    Silent(usize),
}

/// Where an early reply is: in which buffer, from and to which byte.
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
    /// What its stream was found to pin.
    pinned: Cell<usize>,
}

impl Ready {
    /// Its bytes, and what its stream holds.
    pub(super) fn bytes(&self) -> usize {
        self.out.len() + held_by(self.stream.as_deref())
    }
}

pub(super) fn held_by(stream: Option<&dyn Stream>) -> usize {
    stream.map_or(0, Stream::held_bytes)
}

/// Streams that one look asks: some microseconds, where each has one value to ask in turn.
const ASKED_AT_ONCE: usize = 32;
/// Places of the queue that one look skips on its way to them.
const PASSED_AT_ONCE: usize = 256;

/// A buffer of short replies.
#[derive(Default)]
struct Early {
    bytes: Vec<u8>,
    /// Bytes of those of them that are still owed.
    owed: usize,
}

impl Early {
    fn has_room(&self, reply: &[u8]) -> bool {
        self.bytes.len() + reply.len() <= EARLY_MAX
    }
}

/// What waits in a queue of owed replies.
#[derive(Default)]
pub(super) struct Waiting {
    /// Bytes of those that are ready, and of what their streams hold.
    pub(super) bytes: usize,
    /// Short replies, in the order in which they came.
    early: [Early; 2],
    /// The buffer that takes them.
    filling: usize,
    /// How many of them are streams.
    streams: usize,
    /// The sum of what these were found to pin.
    pinned: Cell<usize>,
    /// Where the next look begins.
    next: Cell<usize>,
}

impl Waiting {
    /// A reply has come, and will wait.
    pub(super) fn take_in(&mut self, out: Output, stream: Option<Box<dyn Stream>>) -> Owed {
        let ready = Ready { out, stream, pinned: Cell::new(0) };
        self.bytes += ready.bytes();
        self.streams += usize::from(ready.stream.is_some());
        Owed::Ready(Box::new(ready))
    }

    /// An encoded reply has come, and will wait.
    pub(super) fn take_in_flat(&mut self, reply: &[u8]) -> Owed {
        if reply.is_empty() {
            return Owed::Early(Place::default()); // Its place would not outlast those of the others.
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

    /// An encoded reply has come, and waits behind the last one, in the same place: so what is queued
    /// after MULTI is one place. False if there is no room.
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

    /// The first in the queue leaves it: its bytes.
    pub(super) fn let_out_early(&mut self, place: Place, out: &mut Output) {
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

    /// Memory of the short replies beside their bytes.
    pub(super) fn spare_bytes(&self) -> usize {
        self.early.iter().map(|early| early.bytes.capacity() - early.owed).sum()
    }

    /// The first in the queue leaves it.
    pub(super) fn let_out(&mut self, ready: &Ready) {
        self.bytes -= ready.bytes();
        self.streams -= usize::from(ready.stream.is_some());
        self.pinned.set(self.pinned.get() - ready.pinned.get());
        self.next.set(self.next.get().saturating_sub(1));
    }

    /// Bytes that the streams in the queue pin, as far as is known. Cost: a look at some of them.
    pub(super) fn pinned_bytes(&self, owed: &VecDeque<Owed>) -> usize {
        let mut left = self.streams.min(ASKED_AT_ONCE);
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

/// What is sent unasked: encoded, and the rest as a stream.
type Push = (Output, Option<Box<dyn Stream>>);

/// What a connection was owed when it ended.
pub(super) struct Unread {
    owed: VecDeque<Owed>,
    /// What was to come behind the reply of a task.
    late: Vec<Push>,
    /// Of those that are ready.
    bytes: usize,
}

/// Replies that are freed at once: some 10 us.
const FREED_AT_ONCE: usize = 64;
/// Bytes of replies after which no other is freed at once.
const FREED_BYTES: usize = 64 * 1024;

impl Unread {
    /// Frees it: a few replies at once, more in portions. `bytes` are those that are ready.
    pub(super) fn free(owed: VecDeque<Owed>, late: Vec<Push>, bytes: usize) {
        let mut unread = Self { owed, late, bytes };
        if unread.dismantle() {
            lazyfree::defer(Box::new(unread));
        }
    }

    /// Frees the first. Returns its bytes; none if there is nothing left.
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

    #[test] // A client that is owed very many messages, or long ones, leaves portions to be freed.
    fn what_is_owed_is_freed_in_portions() {
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

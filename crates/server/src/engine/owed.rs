//! Replies owed to a connection, and what those that wait their turn pin.
//!
//! A long reply of another core arrives as a header and a stream, which waits until everything
//! before it has left: up to two thousand of them in a pipeline. What they pin is charged to their
//! client, as if it were being sent. But no reader (the census, CLIENT LIST) can ask them all each
//! time: a look asks some, the next look continues from there, and what was found is kept until it
//! leaves. The sum lags by the looks that it takes and is never too large: a stream that waits
//! releases nothing.
//!
//! Short replies, which is nearly all of them, wait in one buffer of the connection: a queue of
//! places in it takes less memory to walk than one of outputs, and no allocation for each.

use darter_command::Stream;
use darter_resp::Output;
use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;

/// Replies that wait are together in one buffer up to these bytes. It stays with the connection.
const EARLY_MAX: usize = 8 * 1024;

/// A reply that is owed, in the order of the requests.
pub(super) enum Owed {
    /// Encoded, and waiting for those before it: this part of the early replies.
    Early(Range<u32>),
    /// The same, longer or in parts, and perhaps continued by a stream.
    Ready(Box<Ready>),
    /// The next reply in a batch from this core.
    Remote(usize),
    /// The same, and the client has its replies off.
    Silent(usize),
}

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

/// What waits in a queue of owed replies.
#[derive(Default)]
pub(super) struct Waiting {
    /// Bytes of those that are ready, and of what their streams hold.
    pub(super) bytes: usize,
    /// Short replies, in the order in which they came.
    early: Vec<u8>,
    /// Bytes of those of them that are still owed.
    early_owed: usize,
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
            return Owed::Early(0..0); // Its place would not outlast those of the others.
        }
        let start = self.early.len();
        let end = start + reply.len();
        if end > EARLY_MAX {
            let mut out = Output::default();
            out.copy(reply);
            return self.take_in(out, None);
        }
        self.early.extend_from_slice(reply);
        self.early_owed += reply.len();
        self.bytes += reply.len();
        Owed::Early(start as u32..end as u32)
    }

    /// The first in the queue leaves it: its bytes.
    pub(super) fn let_out_early(&mut self, place: Range<u32>, out: &mut Output) {
        let reply = &self.early[place.start as usize..place.end as usize];
        out.tail().extend_from_slice(reply);
        self.early_owed -= reply.len();
        self.bytes -= reply.len();
        self.next.set(self.next.get().saturating_sub(1));
        if self.early_owed == 0 {
            self.early.clear();
        }
    }

    /// Memory of the short replies beside their bytes.
    pub(super) fn spare_bytes(&self) -> usize {
        self.early.capacity() - self.early_owed
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

//! The contents of batches, and the batches that a core is running. See `engine::batch` for running
//! them.

use super::super::point::View;
use super::super::presence::{Awaited, Gone};
use super::super::transaction::queued::Queued;
use super::requests::{Kept, Requests};
use darter_base::hash::IdentityMap;
use darter_command::Stream;
use darter_resp::{Args, LOOKAHEAD_MAX, Output};
use darter_tx::CoreId;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;

/// The limit of reply bytes held for one batch.
pub(crate) const HELD_BYTES_MAX: usize = darter_base::limits::REPLY_BUFFER_BYTES / 4;

/// Requests from one connection to another core. Their replies return in the same batch.
pub struct Batch {
    pub(crate) from: CoreId,
    pub(crate) client: u64,
    pub(crate) resp3: bool,
    requests: Requests,
    /// Bytes of all requests. They are held until the last of them is done.
    pub(crate) request_bytes: usize,
    pub(crate) items: Vec<Item>,
    pub(crate) next: usize,
    pub(crate) replies: Vec<u8>,
    pub(crate) ends: Vec<Replied>,
    /// Bytes of the replies so far.
    pub(crate) held_bytes: usize,
    /// The time that the commands of the batch have taken so far, in nanoseconds, without those
    /// that became tasks.
    pub(crate) took_ns: u64,
    /// True if a reply may show changes that are not safe yet.
    pub(crate) gated: bool,
    /// True if requests are left on the other core, which runs them when the client's core asks for
    /// their replies.
    pub(crate) rests: bool,
}

pub(crate) struct Item {
    pub(crate) entry: usize,
    pub(crate) view: View,
    args: Kept,
    /// The queued commands, if the last request is an EXEC.
    pub(crate) queued: Option<Box<Queued>>,
}

pub(crate) enum Replied {
    /// An encoded reply that ends at this byte of `replies`.
    Flat(usize),
    /// A reply with parts, or one that continues as a stream. Rare, so it is boxed.
    Parts(Box<(Output, Option<Box<dyn Stream>>)>),
}

impl Batch {
    pub(crate) fn new(from: CoreId, client: u64, resp3: bool) -> Self {
        Self {
            from,
            client,
            resp3,
            requests: Requests::default(),
            request_bytes: 0,
            items: Vec::new(),
            next: 0,
            replies: Vec::new(),
            ends: Vec::new(),
            held_bytes: 0,
            took_ns: 0,
            gated: false,
            rests: false,
        }
    }

    pub(crate) fn is_resp3(&self) -> bool {
        self.resp3
    }

    /// Adds a request. Returns its size in bytes.
    pub(crate) fn push(&mut self, entry: usize, view: View, args: Args<'_>) -> usize {
        let bytes = args.held_bytes();
        let args = self.requests.keep(args);
        self.items.push(Item { entry, view, args, queued: None });
        self.request_bytes += bytes;
        bytes
    }

    /// Attaches queued commands to the last request, which is an EXEC. Returns their size in bytes.
    pub(crate) fn attach(&mut self, queued: Box<Queued>) -> usize {
        let bytes = queued.sizes.held_bytes;
        let item = self.items.last_mut().expect("EXEC itself comes first");
        item.queued = Some(queued);
        self.request_bytes += bytes;
        bytes
    }

    pub(crate) fn args<'a>(&'a self, item: &'a Item) -> Args<'a> {
        self.requests.args(&item.args)
    }

    /// The requests that run next, with the database of the first of them.
    pub(crate) fn lookahead(&self) -> impl Iterator<Item = Args<'_>> {
        let items = self.items[self.next..].iter().take(LOOKAHEAD_MAX);
        let db = self.items[self.next].view.db;
        items.filter(move |item| item.view.db == db).map(|item| self.args(item))
    }

    /// Bytes of memory that the batch occupies, including unused capacity.
    fn capacity_bytes(&self) -> usize {
        size_of::<Self>()
            + self.requests.capacity_bytes()
            + self.items.capacity() * size_of::<Item>()
            + self.replies.capacity()
            + self.ends.capacity() * size_of::<Replied>()
    }

    /// Removes all requests and replies, and releases the memory of long ones.
    fn clear(&mut self) {
        (self.request_bytes, self.next, self.held_bytes, self.rests) = (0, 0, 0, false);
        (self.took_ns, self.gated) = (0, false);
        self.requests.clear();
        self.replies.clear();
        self.items.clear();
        self.ends.clear();
    }

    /// Moves the replies so far into a batch of their own, and returns it. With `rests`, the
    /// remaining requests wait until the client's core asks for their replies.
    pub(crate) fn split_replies(&mut self, rests: bool) -> Box<Self> {
        let mut done = Self::new(self.from, self.client, self.resp3);
        (done.replies, done.ends) =
            (std::mem::take(&mut self.replies), std::mem::take(&mut self.ends));
        (done.held_bytes, done.rests) = (std::mem::take(&mut self.held_bytes), rests);
        done.took_ns = std::mem::take(&mut self.took_ns);
        done.gated = self.gated;
        Box::new(done)
    }

    /// Adds the encoded reply of the next command.
    pub(crate) fn replied_flat(&mut self, reply: &[u8]) {
        self.held_bytes += reply.len();
        self.replies.extend_from_slice(reply);
        self.ends.push(Replied::Flat(self.replies.len()));
        self.next += 1;
    }

    /// Adds the reply of the next command: parts, or a stream.
    pub(crate) fn replied(&mut self, out: Output, stream: Option<Box<dyn Stream>>) {
        self.held_bytes += out.len();
        self.ends.push(Replied::Parts(Box::new((out, stream))));
        self.next += 1;
    }
}

/// When the task of a batch may stop after its client has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stops {
    /// At any time, because the task only reads.
    Always,
    /// Only if the client has sent no later request.
    AtTheEnd,
}

/// The batches that a core runs for clients of other cores, in order.
#[derive(Default)]
pub(crate) struct Batches {
    /// Batches that can continue. They run before any later batch.
    queue: VecDeque<Box<Batch>>,
    /// Batches that wait for CLIENT PAUSE to end: at most one per client.
    paused: VecDeque<Box<Batch>>,
    /// By client, while one of its batches waits (for a task, the end of a pause, or a request for
    /// its replies): the client's later batches. A batch that rests is the first of them.
    behind: IdentityMap<VecDeque<Box<Batch>>>,
    /// Empty batches, kept to reuse their memory.
    #[expect(clippy::vec_box, reason = "they travel in their boxes, which are kept too")]
    spare: Vec<Box<Batch>>,
    /// Bytes of memory of `spare`.
    spare_bytes: usize,
    /// By client: the task for which one of its batches waits, if that task may stop.
    awaited: IdentityMap<(Awaited, Stops)>,
    /// Clients that have half-closed or closed, until their batches are done.
    gone: IdentityMap<Gone>,
}

/// The memory of empty batches that a core keeps for reuse: a few dozen batches of fifty requests.
const SPARE_BATCHES_BYTES: usize = 256 * 1024;

impl Batches {
    /// True if a batch can continue.
    pub(crate) fn has_next(&self) -> bool {
        !self.queue.is_empty()
    }

    /// True if a batch waits for CLIENT PAUSE to end.
    pub(crate) fn awaits_pause(&self) -> bool {
        !self.paused.is_empty()
    }

    /// Makes the batches that waited for CLIENT PAUSE continue.
    pub(crate) fn end_pause(&mut self) {
        self.queue.append(&mut self.paused);
    }

    /// True while a batch of this client waits, so that its later batches must wait, too.
    pub(crate) fn are_held(&self, client: u64) -> bool {
        self.behind.contains_key(&client)
    }

    /// True if no batch is running or waiting.
    pub(crate) fn is_empty(&self) -> bool {
        self.behind.is_empty() && self.queue.is_empty()
    }

    /// Returns an empty batch, made of spare memory if possible.
    pub(crate) fn fresh(&mut self, from: CoreId, client: u64, resp3: bool) -> Box<Batch> {
        let Some(mut batch) = self.spare.pop() else {
            return Box::new(Batch::new(from, client, resp3));
        };
        self.spare_bytes -= batch.capacity_bytes();
        (batch.from, batch.client, batch.resp3) = (from, client, resp3);
        batch
    }

    /// Keeps a returned batch for reuse, after its replies were taken.
    pub(crate) fn keep(&mut self, mut batch: Box<Batch>) {
        batch.clear();
        let bytes = batch.capacity_bytes();
        if self.spare_bytes + bytes <= SPARE_BATCHES_BYTES {
            self.spare_bytes += bytes;
            self.spare.push(batch);
        }
    }

    /// Accepts a batch from another core. Returns it to be run, unless an earlier batch of the same
    /// client waits.
    pub(crate) fn begin(&mut self, batch: Box<Batch>) -> Option<Box<Batch>> {
        if self.behind.is_empty() {
            return Some(batch); // The usual case.
        }
        match self.behind.get_mut(&batch.client) {
            Some(behind) => {
                behind.push_back(batch);
                None
            }
            None => Some(batch),
        }
    }

    /// Takes the batch that continues next.
    pub(crate) fn next(&mut self) -> Option<Box<Batch>> {
        self.queue.pop_front()
    }

    /// Queues a batch that can continue, before all later ones.
    pub(crate) fn resume(&mut self, batch: Box<Batch>) {
        self.queue.push_front(batch);
    }

    /// Records that a batch of the client waits for a task that may stop.
    pub(crate) fn note_awaited(&mut self, client: u64, awaited: Awaited, stops: Stops) {
        let old = self.awaited.insert(client, (awaited, stops));
        assert!(old.is_none(), "client {client} waits for two tasks");
    }

    /// Records that the client has closed, so that its reads are useless from now on. All its
    /// requests have arrived. Returns the task for which its batch waits, if that task may stop
    /// now.
    pub(crate) fn note_closed(&mut self, client: u64) -> Option<&Awaited> {
        self.note_gone(client, Gone::Closed);
        let is_last = self.behind.get(&client).is_none_or(VecDeque::is_empty);
        let (awaited, stops) = self.awaited.get(&client)?;
        (is_last || *stops == Stops::Always).then_some(awaited)
    }

    /// Records that the client has half-closed. All its requests have arrived.
    pub(crate) fn note_ended(&mut self, client: u64) {
        self.note_gone(client, Gone::Ended);
        if let Some((awaited, _)) = self.awaited.get(&client) {
            awaited.presence.set(Gone::Ended);
        }
    }

    fn note_gone(&mut self, client: u64, gone: Gone) {
        let has = |queue: &VecDeque<Box<Batch>>| queue.iter().any(|batch| batch.client == client);
        if self.behind.contains_key(&client) || has(&self.queue) || has(&self.paused) {
            self.gone.insert(client, gone);
        }
    }

    /// Whether the client of a running batch is connected, has half-closed or has closed.
    pub(crate) fn gone(&self, client: u64) -> Gone {
        self.gone.get(&client).copied().unwrap_or_default()
    }

    /// Queues a batch to continue, after its task has ended.
    pub(crate) fn answered(&mut self, batch: Box<Batch>) {
        self.awaited.remove(&batch.client);
        self.resume(batch);
    }

    /// Makes the later batches of this client wait. Returns their queue.
    pub(crate) fn hold(&mut self, client: u64) -> &mut VecDeque<Box<Batch>> {
        self.behind.entry(client).or_default()
    }

    /// Holds a batch, and the later batches of its client, until CLIENT PAUSE ends.
    pub(crate) fn pause(&mut self, batch: Box<Batch>) {
        self.hold(batch.client);
        self.paused.push_back(batch);
    }

    /// Holds a batch until its replies are asked for, with the later batches of its client behind
    /// it.
    pub(crate) fn rest(&mut self, batch: Box<Batch>) {
        self.hold(batch.client).push_front(batch);
    }

    /// Makes the resting batch of this client continue.
    pub(crate) fn wake(&mut self, client: u64) {
        let rested = self.behind.get_mut(&client).and_then(VecDeque::pop_front);
        self.resume(rested.expect("woken once for each rest"));
    }

    /// Ends the current batch of this client. If the client has another one, that continues.
    pub(crate) fn done(&mut self, client: u64) {
        if self.behind.is_empty() && self.gone.is_empty() {
            return;
        }
        if let Entry::Occupied(mut behind) = self.behind.entry(client) {
            match behind.get_mut().pop_front() {
                Some(next) => return self.queue.push_front(next),
                None => drop(behind.remove()),
            }
        }
        self.gone.remove(&client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::point::Tracker;
    use darter_resp::Request;
    use std::sync::Arc;

    #[test] // Reused batches are empty.
    fn memory_kept_for_reused_batches_is_bounded() {
        let mut batches = Batches::default();
        let value = vec![b'v'; 5_000]; // The long value is shared with the request, not copied.
        let words = Request::from_args([&b"SET"[..], b"key", &value]);
        let words = Arc::new(words);
        let full = |batches: &mut Batches| {
            let mut batch = batches.fresh(1, 2, true);
            let view = View { db: 0, no_touch: false, tracker: Tracker::default() };
            assert!(batch.push(7, view, Args::owned(&words)) >= 5_006);
            batch.replies.extend_from_slice(b"+OK\r\n");
            batch.ends.push(Replied::Flat(5));
            batch
        };
        let burst: Vec<_> = (0..1_000).map(|_| full(&mut batches)).collect();
        burst.into_iter().for_each(|batch| batches.keep(batch));
        let kept = batches.spare.len();
        assert!((10..900).contains(&kept), "{kept}");
        assert_eq!(Arc::strong_count(&words), 1, "what was asked is not kept");
        let sum: usize = batches.spare.iter().map(|batch| batch.capacity_bytes()).sum();
        assert_eq!(batches.spare_bytes, sum);
        assert!(sum <= SPARE_BATCHES_BYTES);

        let batch = batches.fresh(3, 4, false);
        assert_eq!((batch.from, batch.client, batch.is_resp3()), (3, 4, false));
        assert_eq!((batch.items.len(), batch.ends.len(), batch.request_bytes), (0, 0, 0));
        assert!(batch.items.capacity() >= 1 && batch.replies.is_empty());
        assert_eq!(batches.spare.len(), kept - 1);
    }
}

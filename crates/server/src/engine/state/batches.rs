//! Batches: what they carry, and those that a core has begun. See `engine::batch` for what runs them.

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

/// Requests of one connection on their way to another core, then their replies on their way back.
pub struct Batch {
    pub(crate) from: CoreId,
    pub(crate) client: u64,
    pub(crate) resp3: bool,
    requests: Requests,
    /// Bytes of all its requests: held until the last of them is done.
    pub(crate) request_bytes: usize,
    pub(crate) items: Vec<Item>,
    pub(crate) next: usize,
    pub(crate) replies: Vec<u8>,
    pub(crate) ends: Vec<Replied>,
    /// Bytes of the replies so far.
    pub(crate) held_bytes: usize,
    /// Those are not all: the rest waits to be requested.
    pub(crate) rests: bool,
}

pub(crate) struct Item {
    pub(crate) entry: usize,
    pub(crate) view: View,
    args: Kept,
    /// The commands of an EXEC.
    pub(crate) queued: Option<Box<Queued>>,
}

pub(crate) enum Replied {
    /// Ends at this byte of `replies`.
    Flat(usize),
    /// Has parts, or continues as a stream: rare, so it is apart.
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
            rests: false,
        }
    }

    pub(crate) fn is_resp3(&self) -> bool {
        self.resp3
    }

    /// Adds a request. Returns its bytes.
    pub(crate) fn push(&mut self, entry: usize, view: View, args: Args<'_>) -> usize {
        let bytes = args.held_bytes();
        let args = self.requests.keep(args);
        self.items.push(Item { entry, view, args, queued: None });
        self.request_bytes += bytes;
        bytes
    }

    /// The last request is an EXEC of these commands. Returns their bytes.
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

    /// The next commands, all of one database.
    pub(crate) fn lookahead(&self) -> impl Iterator<Item = Args<'_>> {
        let items = self.items[self.next..].iter().take(LOOKAHEAD_MAX);
        let db = self.items[self.next].view.db;
        items.filter(move |item| item.view.db == db).map(|item| self.args(item))
    }

    /// Bytes of memory that it holds, empty as it may be.
    fn capacity_bytes(&self) -> usize {
        size_of::<Self>()
            + self.requests.capacity_bytes()
            + self.items.capacity() * size_of::<Item>()
            + self.replies.capacity()
            + self.ends.capacity() * size_of::<Replied>()
    }

    /// Lets go of its requests, which may be long, and of their replies.
    fn clear(&mut self) {
        (self.request_bytes, self.next, self.held_bytes, self.rests) = (0, 0, 0, false);
        self.requests.clear();
        self.replies.clear();
        self.items.clear();
        self.ends.clear();
    }

    /// The replies so far, as a batch that says whether the others wait to be requested.
    pub(crate) fn split_replies(&mut self, rests: bool) -> Box<Self> {
        let mut done = Self::new(self.from, self.client, self.resp3);
        (done.replies, done.ends) =
            (std::mem::take(&mut self.replies), std::mem::take(&mut self.ends));
        (done.held_bytes, done.rests) = (std::mem::take(&mut self.held_bytes), rests);
        Box::new(done)
    }

    /// The next command was answered so.
    pub(crate) fn replied_flat(&mut self, reply: &[u8]) {
        self.held_bytes += reply.len();
        self.replies.extend_from_slice(reply);
        self.ends.push(Replied::Flat(self.replies.len()));
        self.next += 1;
    }

    /// [`Batch::replied_flat`] of a reply that has parts or is streamed.
    pub(crate) fn replied(&mut self, out: Output, stream: Option<Box<dyn Stream>>) {
        self.held_bytes += out.len();
        self.ends.push(Replied::Parts(Box::new((out, stream))));
        self.next += 1;
    }
}

/// When the task that a batch waits for may stop, once its client is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stops {
    /// In any case: it only reads.
    Always,
    /// If the client has sent nothing after it.
    AtTheEnd,
}

/// The batches that a core has begun, and those that wait for them.
#[derive(Default)]
pub(crate) struct Batches {
    /// Those that can be resumed: before anything that came later.
    queue: VecDeque<Box<Batch>>,
    /// Those that wait for the end of CLIENT PAUSE: at most one per client.
    paused: VecDeque<Box<Batch>>,
    /// By client, while one of its batches has had to wait (for a task, for the end of a pause, for
    /// its replies to be wanted) and is not done: the later ones. A batch that rests is the first
    /// of them.
    behind: IdentityMap<VecDeque<Box<Batch>>>,
    /// Those that have come home, for their memory.
    #[expect(clippy::vec_box, reason = "they travel in their boxes, which are kept too")]
    spare: Vec<Box<Batch>>,
    /// The sum of that.
    spare_bytes: usize,
    /// By client, the task that one of its batches waits for, if that may stop.
    awaited: IdentityMap<(Awaited, Stops)>,
    /// Clients that are gone, and how far, until their batches are done.
    gone: IdentityMap<Gone>,
}

/// Memory of batches that a core keeps for the next ones: some dozen of fifty requests.
const SPARE_BATCHES_BYTES: usize = 256 * 1024;

impl Batches {
    /// True when one can be resumed.
    pub(crate) fn has_next(&self) -> bool {
        !self.queue.is_empty()
    }

    /// True when one waits for the end of a pause.
    pub(crate) fn awaits_pause(&self) -> bool {
        !self.paused.is_empty()
    }

    /// The pause is over.
    pub(crate) fn end_pause(&mut self) {
        self.queue.append(&mut self.paused);
    }

    /// True when one of this client has had to wait.
    pub(crate) fn are_held(&self, client: u64) -> bool {
        self.behind.contains_key(&client)
    }

    /// True when every batch begun is done.
    pub(crate) fn is_empty(&self) -> bool {
        self.behind.is_empty() && self.queue.is_empty()
    }

    /// A batch without requests.
    pub(crate) fn fresh(&mut self, from: CoreId, client: u64, resp3: bool) -> Box<Batch> {
        let Some(mut batch) = self.spare.pop() else {
            return Box::new(Batch::new(from, client, resp3));
        };
        self.spare_bytes -= batch.capacity_bytes();
        (batch.from, batch.client, batch.resp3) = (from, client, resp3);
        batch
    }

    /// A batch has come home, and its replies were taken.
    pub(crate) fn keep(&mut self, mut batch: Box<Batch>) {
        batch.clear();
        let bytes = batch.capacity_bytes();
        if self.spare_bytes + bytes <= SPARE_BATCHES_BYTES {
            self.spare_bytes += bytes;
            self.spare.push(batch);
        }
    }

    /// The turn of a batch from another core has come. Returns it, unless it has to wait for
    /// another of its client.
    pub(crate) fn begin(&mut self, batch: Box<Batch>) -> Option<Box<Batch>> {
        if self.behind.is_empty() {
            return Some(batch); // Nearly always.
        }
        match self.behind.get_mut(&batch.client) {
            Some(behind) => {
                behind.push_back(batch);
                None
            }
            None => Some(batch),
        }
    }

    /// The batch to resume next.
    pub(crate) fn next(&mut self) -> Option<Box<Batch>> {
        self.queue.pop_front()
    }

    /// A batch can be resumed: what came later must not overtake it.
    pub(crate) fn go_on(&mut self, batch: Box<Batch>) {
        self.queue.push_front(batch);
    }

    /// The client's batch waits for a task, which may stop.
    pub(crate) fn note_awaited(&mut self, client: u64, awaited: Awaited, stops: Stops) {
        let old = self.awaited.insert(client, (awaited, stops));
        assert!(old.is_none(), "client {client} waits for two tasks");
    }

    /// The client is gone: what its batches read from now on, nobody wants. All that it sent has
    /// come. Returns the task that one of them waits for, if that may stop now.
    pub(crate) fn give_up(&mut self, client: u64) -> Option<&Awaited> {
        self.note_gone(client, Gone::Closed);
        let is_last = self.behind.get(&client).is_none_or(VecDeque::is_empty);
        let (awaited, stops) = self.awaited.get(&client)?;
        (is_last || *stops == Stops::Always).then_some(awaited)
    }

    /// The client sends no more. All that it sent has come.
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

    /// How far a client has gone whose batch is run.
    pub(crate) fn gone(&self, client: u64) -> Gone {
        self.gone.get(&client).copied().unwrap_or_default()
    }

    /// The task that a batch waited for is done.
    pub(crate) fn answered(&mut self, batch: Box<Batch>) {
        self.awaited.remove(&batch.client);
        self.go_on(batch);
    }

    /// A batch has to wait, and the later ones of its client wait for it.
    pub(crate) fn hold(&mut self, client: u64) -> &mut VecDeque<Box<Batch>> {
        self.behind.entry(client).or_default()
    }

    /// A batch waits for the end of a pause, and the later ones of its client wait for it.
    pub(crate) fn pause(&mut self, batch: Box<Batch>) {
        self.hold(batch.client);
        self.paused.push_back(batch);
    }

    /// A batch rests, before anything that came later.
    pub(crate) fn rest(&mut self, batch: Box<Batch>) {
        self.hold(batch.client).push_front(batch);
    }

    /// The client's resting batch may continue.
    pub(crate) fn wake(&mut self, client: u64) {
        let rested = self.behind.get_mut(&client).and_then(VecDeque::pop_front);
        self.go_on(rested.expect("woken once for each rest"));
    }

    /// The client's batch is done: its next one, if any, is resumed.
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

    #[test] // Batches come back empty, and those of a burst are not kept.
    fn memory_of_batches_is_kept_within_bounds() {
        let mut batches = Batches::default();
        let value = vec![b'v'; 5_000]; // It is shared, not copied.
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

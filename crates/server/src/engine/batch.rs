//! Point commands of one connection for one other core: sent at once, answered at once.
//!
//! A pipeline is cut into one batch per core. The commands of a batch run in order on the core that
//! owns their keys; where one must wait for a lock, or takes more than a slice, the rest of the
//! batch waits, as it would on a connection. So do batches of the same connection that arrive
//! meanwhile: replies are matched to requests by their order alone. A batch that the end of the
//! slice interrupts is resumed first in the next one: what other cores sent runs in its order (see
//! `queue`). The sender bounds what a batch holds: [`AWAY_AT_ONCE`].
//!
//! [`AWAY_AT_ONCE`]: super::conn::AWAY_AT_ONCE
//!
//! A batch whose replies have grown large sends them home, and rests until that core wants the
//! next: it has sent what it had, and the reply that it owes next is one of ours. A batch that
//! reaches a command held back by CLIENT PAUSE sends its replies home likewise, and continues when
//! that is over.

use super::account::Caller;
use super::conn::{Lane, View};
use super::core::{Core, Mail};
use super::entry::Entry as Row;
use super::owed::Owed;
use darter_base::hash::IdentityMap;
use darter_command::Stream;
use darter_resp::{Args, LOOKAHEAD_MAX, Output, Reply, Request, Span};
use darter_tx::CoreId;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::rc::Rc;
use std::sync::Arc;

/// See the module.
pub struct Batch {
    from: CoreId,
    client: u64,
    resp3: bool,
    bytes: Vec<u8>,
    /// Bytes of all its requests: held until the last of them is done.
    request_bytes: usize,
    spans: Vec<Span>,
    items: Vec<Item>,
    next: usize,
    replies: Vec<u8>,
    ends: Vec<Replied>,
    /// Bytes of the replies so far.
    held_bytes: usize,
    /// Those are not all: the rest waits to be requested.
    rests: bool,
}

/// Replies held for a batch, in bytes.
const HELD_BYTES_MAX: usize = darter_base::limits::REPLY_BUFFER_BYTES / 4;

struct Item {
    entry: usize,
    view: View,
    args: ItemArgs,
}

enum ItemArgs {
    Spans(usize, usize),
    Owned(Arc<Request>),
}

enum Replied {
    /// Ends at this byte of `replies`.
    Flat(usize),
    /// Has parts, or continues as a stream.
    Parts(Output, Option<Box<dyn Stream>>),
}

impl Batch {
    pub(super) fn new(from: CoreId, client: u64, resp3: bool) -> Self {
        Self {
            from,
            client,
            resp3,
            bytes: Vec::new(),
            request_bytes: 0,
            spans: Vec::new(),
            items: Vec::new(),
            next: 0,
            replies: Vec::new(),
            ends: Vec::new(),
            held_bytes: 0,
            rests: false,
        }
    }

    fn caller(&self) -> Caller<'static> {
        Caller::Client(self.from, self.client)
    }

    pub(super) fn is_resp3(&self) -> bool {
        self.resp3
    }

    /// Longer arguments are shared instead of copied.
    const COPY_MAX: usize = 4 * 1024;

    /// Adds a request. Returns its bytes.
    pub(super) fn push(&mut self, entry: &Row, view: View, args: Args<'_>) -> usize {
        let bytes = args.held_bytes();
        let args = if args.len() > 64 || args.total_bytes() > Self::COPY_MAX {
            ItemArgs::Owned(args.to_request())
        } else {
            let first = self.spans.len();
            for arg in args.iter() {
                let start = u32::try_from(self.bytes.len()).expect("a batch stays small");
                self.bytes.extend_from_slice(arg);
                let end = u32::try_from(self.bytes.len()).expect("a batch stays small");
                self.spans.push(Span { start, end });
            }
            ItemArgs::Spans(first, self.spans.len())
        };
        self.items.push(Item { entry: entry.index, view, args });
        self.request_bytes += bytes;
        bytes
    }

    fn args<'a>(&'a self, item: &'a Item) -> Args<'a> {
        match &item.args {
            ItemArgs::Spans(first, end) => Args::flat(&self.bytes, &self.spans[*first..*end]),
            ItemArgs::Owned(request) => Args::owned(request),
        }
    }

    /// The next commands, all of one database.
    fn lookahead(&self) -> impl Iterator<Item = Args<'_>> {
        let items = self.items[self.next..].iter().take(LOOKAHEAD_MAX);
        let db = self.items[self.next].view.db;
        items.filter(move |item| item.view.db == db).map(|item| self.args(item))
    }

    /// The replies so far, as a batch that says whether the others wait to be requested.
    fn split_replies(&mut self, rests: bool) -> Box<Self> {
        let mut done = Self::new(self.from, self.client, self.resp3);
        (done.replies, done.ends) =
            (std::mem::take(&mut self.replies), std::mem::take(&mut self.ends));
        (done.held_bytes, done.rests) = (std::mem::take(&mut self.held_bytes), rests);
        Box::new(done)
    }

    fn replied(&mut self, out: Output, stream: Option<Box<dyn Stream>>) {
        self.held_bytes += out.len();
        self.ends.push(Replied::Parts(out, stream));
        self.next += 1;
    }
}

/// The batches that a core has begun, and those that wait for them.
#[derive(Default)]
pub(super) struct Batches {
    /// Those that can be resumed: before anything that came later.
    queue: VecDeque<Box<Batch>>,
    /// Those that wait for the end of CLIENT PAUSE: at most one per client.
    paused: VecDeque<Box<Batch>>,
    /// By client, while one of its batches has had to wait (for a task, for the end of a pause, for
    /// its replies to be wanted) and is not done: the later ones. A batch that rests is the first
    /// of them.
    behind: IdentityMap<VecDeque<Box<Batch>>>,
}

impl Batches {
    /// True when one can be resumed.
    pub(super) fn has_next(&self) -> bool {
        !self.queue.is_empty()
    }

    /// True when one waits for the end of a pause.
    pub(super) fn awaits_pause(&self) -> bool {
        !self.paused.is_empty()
    }

    /// The pause is over.
    pub(super) fn end_pause(&mut self) {
        self.queue.append(&mut self.paused);
    }

    /// True when every batch begun is done.
    pub(super) fn is_empty(&self) -> bool {
        self.behind.is_empty() && self.queue.is_empty()
    }

    /// The turn of a batch from another core has come. Returns it, unless it has to wait for
    /// another of its client.
    fn begin(&mut self, batch: Box<Batch>) -> Option<Box<Batch>> {
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
    fn next(&mut self) -> Option<Box<Batch>> {
        self.queue.pop_front()
    }

    /// A batch can be resumed: what came later must not overtake it.
    fn go_on(&mut self, batch: Box<Batch>) {
        self.queue.push_front(batch);
    }

    /// A batch has to wait, and the later ones of its client wait for it.
    fn hold(&mut self, client: u64) -> &mut VecDeque<Box<Batch>> {
        self.behind.entry(client).or_default()
    }

    /// A batch rests, before anything that came later.
    fn rest(&mut self, batch: Box<Batch>) {
        self.hold(batch.client).push_front(batch);
    }

    /// The client's resting batch may continue.
    fn wake(&mut self, client: u64) {
        let rested = self.behind.get_mut(&client).and_then(VecDeque::pop_front);
        self.go_on(rested.expect("woken once for each rest"));
    }

    /// The client's batch is done: its next one, if any, is resumed.
    fn done(&mut self, client: u64) {
        if self.behind.is_empty() {
            return;
        }
        if let Entry::Occupied(mut behind) = self.behind.entry(client) {
            match behind.get_mut().pop_front() {
                Some(next) => self.queue.push_front(next),
                None => drop(behind.remove()),
            }
        }
    }
}

impl Core {
    /// Runs a batch from another core.
    pub(super) fn begin_batch(self: &Rc<Self>, batch: Box<Batch>) {
        let begun = self.batches.borrow_mut().begin(batch);
        if let Some(batch) = begun {
            self.run_batch(batch);
        }
    }

    /// Resumes the next batch.
    pub(super) fn resume_batch(self: &Rc<Self>) {
        let next = self.batches.borrow_mut().next();
        if let Some(batch) = next {
            self.run_batch(batch);
        }
    }

    /// Runs a batch until it is done, the slice is over, or a command must wait.
    fn run_batch(self: &Rc<Self>, mut batch: Box<Batch>) {
        while batch.next < batch.items.len() {
            if batch.next.is_multiple_of(LOOKAHEAD_MAX) {
                let db = batch.items[batch.next].view.db;
                self.prefetch(batch.lookahead().map(|request| (request, db)));
            }
            let item = &batch.items[batch.next];
            let entry = &self.table.entries()[item.entry];
            if self.is_paused(entry) {
                self.pause_batch(batch);
                return;
            }
            let mut out = Output::with_buffer(self.admin.take_buffer());
            let ran = {
                let mut reply = Reply::new(&mut out, batch.resp3);
                self.call_unless_locked(
                    entry,
                    batch.args(item),
                    item.view,
                    &mut reply,
                    batch.caller(),
                )
            };
            match ran {
                super::serve::Ran::Done(None) => {
                    let (replies, ends) = (&mut batch.replies, &mut batch.ends);
                    match out.take_flat(Vec::new()) {
                        Some(flat) => {
                            batch.held_bytes += flat.len();
                            replies.extend_from_slice(&flat);
                            ends.push(Replied::Flat(replies.len()));
                            self.admin.keep_buffer(flat);
                            batch.next += 1;
                        }
                        None => batch.replied(out, None),
                    }
                }
                super::serve::Ran::Done(stream) => batch.replied(out, stream),
                super::serve::Ran::Waits(work) => {
                    let request = batch.args(&batch.items[batch.next]).to_request();
                    let (index, view) = (item.entry, item.view);
                    self.wait_in_batch(batch, index, request, view, work);
                    return;
                }
            }
            if batch.next == batch.items.len() {
                break;
            }
            if batch.held_bytes > HELD_BYTES_MAX {
                self.post(batch.from, Mail::BatchDone(batch.split_replies(true)));
                self.batches.borrow_mut().rest(batch);
                return;
            }
            if self.slice.is_over(self.meter.now_ns()) {
                self.batches.borrow_mut().go_on(batch);
                return;
            }
        }
        let from = batch.from;
        self.batches.borrow_mut().done(batch.client);
        self.post(from, Mail::BatchDone(batch));
    }

    /// Sets a batch aside until the end of CLIENT PAUSE. Its client gets the replies so far.
    fn pause_batch(&self, mut batch: Box<Batch>) {
        if !batch.ends.is_empty() {
            self.post(batch.from, Mail::BatchDone(batch.split_replies(false)));
        }
        let mut batches = self.batches.borrow_mut();
        batches.hold(batch.client);
        batches.paused.push_back(batch);
    }

    fn wait_in_batch(
        self: &Rc<Self>,
        mut batch: Box<Batch>,
        index: usize,
        request: Arc<Request>,
        view: View,
        work: super::serve::Work,
    ) {
        self.batches.borrow_mut().hold(batch.client);
        let core = Rc::clone(self);
        self.tx.spawn(async move {
            let (resp3, caller) = (batch.resp3, batch.caller());
            let answer = core.finish_waiting(index, request, view, resp3, work, caller).await;
            let (out, stream) = core.encode_answer(answer, resp3);
            batch.replied(out, stream);
            core.batches.borrow_mut().go_on(batch);
        });
    }

    /// Accepts the replies of a batch that another core has run.
    pub(super) fn batch_done(&self, from: CoreId, batch: Batch) {
        let Some(token) = self.clients.token_of(batch.client) else {
            if batch.rests {
                self.wake_batch(from, batch.client); // Its commands have run.
            }
            return;
        };
        self.with_conn(token, |conn| {
            let lane = &mut conn.lane;
            if batch.rests {
                lane.resting.push(from);
            }
            lane.away_bytes -= batch.request_bytes;
            lane.learn_owed(batch.ends.len(), batch.held_bytes);
            let (mut start, mut slot) = (0, 0);
            for replied in batch.ends {
                while !lane.owes_from(slot, from) {
                    assert!(slot < lane.owed.len(), "a reply is owed for every command of a batch");
                    slot += 1;
                }
                let in_turn = slot == 0 && lane.stream.is_none();
                let silent = matches!(lane.owed[slot], Owed::Silent(_));
                match replied {
                    silenced if silent => {
                        start = if let Replied::Flat(end) = silenced { end } else { start };
                        lane.ready_at(slot, Output::default(), None);
                    }
                    Replied::Flat(end) if in_turn => {
                        lane.out.tail().extend_from_slice(&batch.replies[start..end]);
                        lane.owed.pop_front();
                        start = end;
                        lane.settle();
                    }
                    Replied::Flat(end) => {
                        let mut out = Output::default();
                        out.tail().extend_from_slice(&batch.replies[start..end]);
                        lane.ready_at(slot, out, None);
                        start = end;
                    }
                    Replied::Parts(out, stream) => lane.ready_at(slot, out, stream),
                }
            }
            self.after_settling(lane);
        });
    }

    /// Lets another core continue what rests there, once the next reply owed is its own and those
    /// before it have left.
    pub(super) fn wake_wanted(&self, lane: &mut Lane) {
        if let Some(at) = wanted(lane) {
            let core = lane.resting.swap_remove(at);
            self.wake_batch(core, lane.session.id);
        }
    }

    /// The connection has gone: what rests for it continues, as what it sent must be done.
    pub(super) fn wake_all(&self, lane: &mut Lane) {
        for core in std::mem::take(&mut lane.resting) {
            self.wake_batch(core, lane.session.id);
        }
    }

    fn wake_batch(&self, core: CoreId, client: u64) {
        let wake = move |there: &Rc<Self>| there.batches.borrow_mut().wake(client);
        self.post(core, Mail::Ask(Box::new(wake)));
    }
}

/// Index, among the resting cores, of one whose batch may continue: the next reply owed is its own,
/// and those before it have left.
pub(super) fn wanted(lane: &Lane) -> Option<usize> {
    let Some(Owed::Remote(core) | Owed::Silent(core)) = lane.owed.front() else { return None };
    let has_left = lane.stream.is_none() && lane.output_bytes() < HELD_BYTES_MAX;
    lane.resting.iter().position(|resting| resting == core).filter(|_| has_left)
}

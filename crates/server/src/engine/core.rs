//! One core: its parts, its inputs and its outputs.

use super::conn::{Conn, Ending};
use super::entry::Table;
use super::queue::Queue;
use super::scripts::machines::Machines;
use super::slices::Slices;
use super::state::background::Background;
use super::state::batches::{Batch, Batches};
use super::state::census::Census;
use super::state::clients::Clients;
use super::state::clock::{Clock, SliceClock, World};
use super::state::corked::Corked;
use super::state::hot::Hot;
use super::state::idle::IdleCheck;
use super::state::journal::Journaling;
use super::state::local::Local;
use super::state::meter::Meter;
use super::state::moves::Moves;
use super::state::outgoing::{Action, Outgoing};
use super::state::pubsub::PubSub;
use super::state::receiving::Stalls;
use super::state::release::Release;
use super::state::saving::Saving;
use super::state::tracking::Tracking;
use super::state::waits::Waits;
use super::state::watchers::Watchers;
use super::state::writers::Writers;
use super::stats::{CommandStats, CoreStats};
use super::transaction::queued::Spare;
use crate::settings::Settings;
use darter_base::Preempt;
use darter_command::Stream;
use darter_keyspace::Shard;
use darter_resp::Output;
use darter_runtime::net::Token;
use darter_tx::{CoreId, Message, Tx};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

/// A closure that another core runs.
pub(super) type Question = Box<dyn FnOnce(&Rc<Core>) + Send>;

/// A message from one core to another.
pub enum Mail {
    /// Messages of tasks: closures to run, and locks.
    Tx(Message),
    /// Point commands to run on the receiver's shard.
    Batch(Box<Batch>),
    /// The replies of a batch.
    BatchDone(Box<Batch>),
    /// A closure to run, for an administration command.
    Ask(Question),
}

impl From<Message> for Mail {
    fn from(message: Message) -> Self {
        Self::Tx(message)
    }
}

/// One core: connections, a shard, and all work on them.
pub struct Core {
    /// The core's end of the connections to other cores, and its tasks.
    pub tx: Tx,
    /// All commands.
    pub table: Arc<Table>,
    /// The source of time.
    pub clock: Rc<dyn Clock>,
    /// The settings that the hot path reads.
    pub hot: RefCell<Hot>,
    /// The core's counters.
    pub stats: RefCell<CoreStats>,
    /// The histogram of slices, and the longest ones.
    pub slices: RefCell<Slices>,
    /// The core's state of administration commands.
    pub admin: Local,
    me: std::rc::Weak<Self>,
    pub(super) slice: Rc<dyn SliceClock>,
    pub(super) meter: Meter,
    pub(super) clients: Clients,
    /// The row of the last request. The next request is likely to have the same.
    pub(super) last_entry: Cell<usize>,
    /// Buffers of ended transactions, kept for reuse.
    pub(super) spare_queued: Spare,
    pub(super) now_ms: Cell<u64>,
    /// Messages that have arrived, and connections with requests, in order.
    pub(super) queue: RefCell<Queue<Mail>>,
    pub(super) look: Cell<u64>,
    /// The scan that releases the buffers of silent connections.
    pub(super) release: Release,
    /// Connections whose replies are delayed, to be sent with the next reply.
    pub(super) corked: Corked,
    /// Connections whose receiving is paused.
    pub(super) stalls: Stalls,
    /// The state of connections that move between cores.
    pub(super) moves: Moves,
    /// The scan for idle connections.
    pub(super) idle_check: IdleCheck,
    pub(super) census: RefCell<Census>,
    /// The core's part of the current snapshot.
    pub(crate) saving: Saving,
    /// The core's changes on their way to the journal, and the replies that wait for them.
    pub(super) journal: Journaling,
    /// The order of background work.
    pub(super) background: Background,
    pub(super) batches: RefCell<Batches>,
    pub(super) watchers: RefCell<Watchers>,
    pub(crate) pubsub: PubSub,
    pub(crate) tracking: Tracking,
    /// True if the log of the shard has a reader.
    pub(crate) is_logged: Cell<bool>,
    /// Actions and messages that leave at the end of the turn.
    pub(super) outgoing: Outgoing<Mail>,
    /// Connections whose writes wait for a snapshot or for keyspace events.
    pub(super) writers: Writers,
    /// Blocking commands that wait for keys of this core, and the blocked clients of this core.
    pub(crate) waits: RefCell<Waits>,
    /// The Lua machines that run scripts and functions.
    pub(crate) machines: Machines,
}

impl Core {
    /// Creates core `id` of `cores`, with `databases` empty databases.
    #[must_use]
    pub fn new(
        id: CoreId,
        cores: usize,
        databases: usize,
        table: Arc<Table>,
        world: World,
        admin: Local,
    ) -> Rc<Self> {
        let World { clock, slice, seed } = world;
        let mut shard = Shard::new(databases, seed);
        shard.set_now(clock.unix_ms());
        let preempt: Rc<dyn Preempt> = Rc::clone(&slice) as Rc<dyn Preempt>;
        let by_command = vec![CommandStats::default(); table.entries().len()];
        Rc::new_cyclic(|me| Self {
            me: me.clone(),
            tx: Tx::new(id, cores, shard, preempt).hosted_by(me.clone()),
            table,
            hot: RefCell::default(),
            stats: RefCell::new(CoreStats { by_command, ..CoreStats::default() }),
            slices: RefCell::default(),
            admin,
            slice,
            meter: Meter::default(),
            clients: Clients::default(),
            last_entry: Cell::new(0),
            spare_queued: Spare::default(),
            now_ms: Cell::new(clock.unix_ms()),
            clock,
            queue: RefCell::default(),
            look: Cell::new(0),
            release: Release::default(),
            corked: Corked::default(),
            stalls: Stalls::default(),
            moves: Moves::default(),
            idle_check: IdleCheck::default(),
            census: RefCell::default(),
            saving: Saving::default(),
            journal: Journaling::default(),
            background: Background::default(),
            batches: RefCell::default(),
            watchers: RefCell::default(),
            pubsub: PubSub::default(),
            tracking: Tracking::default(),
            is_logged: Cell::default(),
            outgoing: Outgoing::default(),
            writers: Writers::default(),
            waits: RefCell::default(),
            machines: Machines::default(),
        })
    }

    /// The number of this core.
    #[must_use]
    pub fn id(&self) -> CoreId {
        self.tx.core()
    }

    /// The time of this turn, in Unix milliseconds.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.now_ms.get()
    }

    // ---- inputs ----

    /// Handles the end of a send. The memory of `buffer` can be reused.
    pub fn sent(&self, token: Token, buffer: Option<Vec<u8>>) {
        if let Some(buffer) = buffer {
            self.outgoing.keep_spare(buffer);
        }
        self.with_conn(token, |conn| {
            let lane = &mut conn.lane;
            lane.session.active_ms = self.now_ms();
            lane.sending.bytes += lane.sending.in_flight as u64;
            self.stats.borrow_mut().bytes_out += lane.sending.in_flight as u64;
            lane.sending.in_flight = 0;
            self.clients.mark_sent(lane);
            self.mark_streaming(lane);
            let lane = &mut conn.lane;
            if lane.input.eof || lane.held().is_some() || conn.parser.pending_bytes() > 0 {
                self.mark_ready(lane);
            }
        });
    }

    /// Holds requests, or ends the hold: requests wait while another core accepts no mail from this
    /// one. Messages still run.
    pub fn hold_requests(&self, holds: bool) {
        self.queue.borrow_mut().hold_ready(holds);
    }

    /// Queues a message that core `from` has sent.
    pub fn deliver(&self, from: CoreId, mail: Mail) {
        self.stats.borrow_mut().hops += 1;
        self.queue.borrow_mut().take_in(self.look.get(), from, mail);
    }

    /// True if every received request was answered and every reply was sent. Blocked commands do
    /// not count.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let quiet = |conn: &Conn| {
            let lane = &conn.lane;
            let is_settled = lane.is_settled() || (lane.is_blocked() && lane.owed.is_empty());
            is_settled && lane.output_bytes() == 0 && !lane.lists.ready
        };
        self.clients.all(quiet)
            && self.batches.borrow().is_empty()
            && !self.queue.borrow().has_mail()
            && !self.moves.are_under_way()
            && !self.tx.has_ready()
            && self.pubsub.is_quiet()
            && self.tracking.is_quiet()
    }

    /// Moves the pending actions on sockets into `into`.
    pub fn drain_actions(&self, into: &mut Vec<Action>) {
        self.outgoing.drain_actions(into);
    }

    /// Moves the messages for other cores into `into`, in the order in which they were posted.
    pub fn drain_outbox(&self, into: &mut Vec<(CoreId, Mail)>) {
        self.outgoing.drain_mail(&self.tx, into);
    }

    // ---- for administration commands ----

    /// Runs `run` on core `core`, and waits for its result.
    pub async fn ask<R: Send + 'static>(
        self: &Rc<Self>,
        core: CoreId,
        run: impl FnOnce(&Rc<Core>) -> R + Send + 'static,
    ) -> R {
        if core == self.id() {
            return run(self);
        }
        let (ticket, answer) = self.tx.ticket();
        let from = self.id();
        self.post(
            core,
            Mail::Ask(Box::new(move |there| {
                let value = Box::new(run(there));
                there.post(from, Mail::Tx(Message::Return { ticket, value, changed: false }));
            })),
        );
        answer.await
    }

    /// Runs a closure on each core, one after another, and collects their results.
    pub async fn ask_all<R: Send + 'static, F>(self: &Rc<Self>, make: impl Fn() -> F) -> Vec<R>
    where
        F: FnOnce(&Rc<Core>) -> R + Send + 'static,
    {
        let mut results = Vec::new();
        for core in 0..self.tx.cores() {
            results.push(self.ask(core, make()).await);
        }
        results
    }

    /// Runs a task on core `core`, in slices of its own, and waits for its result.
    pub async fn run_on<R: Send + 'static, T: Future<Output = R> + 'static>(
        self: &Rc<Self>,
        core: CoreId,
        start: impl FnOnce(Rc<Core>) -> T + Send + 'static,
    ) -> R {
        if core == self.id() {
            return start(Rc::clone(self)).await;
        }
        self.start_on(core, start).await
    }

    /// Starts a task on another core. The returned future waits for its result.
    fn start_on<R: Send + 'static, S, T: Future<Output = R> + 'static>(
        self: &Rc<Self>,
        core: CoreId,
        start: S,
    ) -> impl Future<Output = R> + use<R, S, T>
    where
        S: FnOnce(Rc<Core>) -> T + Send + 'static,
    {
        let from = self.id();
        let (ticket, result) = self.tx.ticket();
        self.tell(core, move |there| {
            there.spawn_on_self(move |core| async move {
                let value = start(Rc::clone(&core)).await;
                core.return_to(from, ticket, Box::new(value));
            });
        });
        result
    }

    /// Runs a task on each core, on all at the same time, and collects their results in order.
    pub async fn run_on_all<R, F, T>(self: &Rc<Self>, make: impl Fn() -> F) -> Vec<R>
    where
        R: Send + 'static,
        F: FnOnce(Rc<Core>) -> T + Send + 'static,
        T: Future<Output = R> + 'static,
    {
        let cores: Vec<CoreId> = (0..self.tx.cores()).collect();
        self.run_on_each(&cores, |_| make()).await
    }

    /// Like [`Core::run_on_all`], for some of the cores.
    pub(super) async fn run_on_each<R, F, T>(
        self: &Rc<Self>,
        cores: &[CoreId],
        make: impl Fn(CoreId) -> F,
    ) -> Vec<R>
    where
        R: Send + 'static,
        F: FnOnce(Rc<Core>) -> T + Send + 'static,
        T: Future<Output = R> + 'static,
    {
        let others = |core| (core != self.id()).then(|| self.start_on(core, make(core)));
        let others: Vec<_> = cores.iter().copied().map(others).collect();
        let mut here = None;
        if others.iter().any(Option::is_none) {
            here = Some(make(self.id())(Rc::clone(self)).await);
        }
        let mut results = Vec::new();
        for other in others {
            match other {
                Some(result) => results.push(result.await),
                None => results.extend(here.take()),
            }
        }
        results
    }

    /// Runs `run` on core `core`, without waiting for it.
    pub fn tell(self: &Rc<Self>, core: CoreId, run: impl FnOnce(&Rc<Core>) + Send + 'static) {
        if core == self.id() {
            run(self);
        } else {
            self.post(core, Mail::Ask(Box::new(run)));
        }
    }

    /// Sends `run` to another core at the end of the turn.
    pub(super) fn tell_later(&self, core: CoreId, run: impl FnOnce(&Rc<Core>) + Send + 'static) {
        self.post(core, Mail::Ask(Box::new(run)));
    }

    /// Completes a ticket on core `to`; this may be called on any core.
    pub fn return_to(&self, to: CoreId, ticket: u64, value: Box<dyn std::any::Any + Send>) {
        if to == self.id() {
            self.tx.complete(ticket, value);
        } else {
            self.post(to, Mail::Tx(Message::Return { ticket, value, changed: false }));
        }
    }

    /// Applies `settings` to the listeners. Returns false if that failed and nothing has changed.
    /// Core 0 only.
    pub async fn listen(&self, settings: Arc<Settings>) -> bool {
        let (ticket, listens) = self.tx.ticket();
        self.act(Action::Listen(settings, ticket));
        listens.await
    }

    /// Starts a task on this core.
    pub fn spawn_on_self<F: Future<Output = ()> + 'static>(
        &self,
        make: impl FnOnce(Rc<Core>) -> F,
    ) {
        if let Some(core) = self.me.upgrade() {
            self.tx.spawn(make(core));
        }
    }

    /// For tasks: calls `visit` with every connection of this core, in portions. Connections that
    /// arrive or leave during the visit may be missed.
    pub async fn each_conn(&self, mut visit: impl FnMut(&mut Conn)) {
        /// Few, because a line of CLIENT LIST takes about 3 us.
        const AT_ONCE: usize = 4;
        let mut next = 0;
        loop {
            next = self.some_conns(next, AT_ONCE, &mut visit);
            if next == 0 {
                return;
            }
            self.tx.pause().await;
        }
    }

    /// Calls `visit` with at most `most` connections of this core, beginning at index `from`. The
    /// connection whose command is running is left out. Returns the next index, or 0 at the end.
    pub fn some_conns(&self, from: usize, most: usize, visit: impl FnMut(&mut Conn)) -> usize {
        self.clients.visit_some(from, most, visit)
    }

    /// Calls `visit` with the connection of this handle, if it is on this core and its command is
    /// not running.
    pub fn with_client<R>(&self, client: u64, visit: impl FnOnce(&mut Conn) -> R) -> Option<R> {
        self.with_conn(self.clients.token_of(client)?, visit)
    }

    /// Calls `visit` with the connection of this id, if it is on this core and its command is not
    /// running.
    pub fn with_id<R>(&self, id: u64, visit: impl FnOnce(&mut Conn) -> R) -> Option<R> {
        self.with_client(self.clients.handle_of(id)?, visit)
    }

    /// Returns the handle of the client with this id, if it is on this core. From now on the client
    /// cannot move to another core.
    pub(crate) fn keep_target(&self, id: u64) -> Option<u64> {
        let handle = self.clients.handle_of(id)?;
        self.with_client(handle, |conn| conn.lane.session.is_target = true)?;
        Some(handle)
    }

    /// The number of connections on this core.
    #[must_use]
    pub fn conns_len(&self) -> usize {
        self.clients.len()
    }

    /// True if the running slice has used up its time.
    #[must_use]
    pub fn slice_is_over(&self) -> bool {
        self.slice.must_yield()
    }

    /// Closes a connection at once.
    pub fn kill(&self, lane: &mut super::conn::Lane) {
        if lane.session.is_replay {
            return; // No client may end loading.
        }
        lane.session.ending = Ending::Now;
        if let Some(blocked) = &lane.blocked {
            blocked.call.fate.end();
        }
        self.mark_ready(lane);
    }

    /// Appends a push, such as a line of MONITOR, after all pending replies.
    pub fn push(&self, lane: &mut super::conn::Lane, out: Output, rest: Option<Box<dyn Stream>>) {
        if lane.session.reply_mode != super::conn::ReplyMode::On {
            return;
        }
        lane.owe(out, rest);
        self.mark_streaming(lane);
        self.clients.mark_pushed(lane);
    }

    /// Sends mail to another core at the end of the turn.
    pub(super) fn post(&self, core: CoreId, mail: Mail) {
        debug_assert_ne!(core, self.id(), "mail to oneself");
        self.outgoing.post(&self.tx, core, mail);
    }

    pub(super) fn act(&self, action: Action) {
        self.outgoing.act(action);
    }

    pub(super) fn mark_ready(&self, lane: &mut super::conn::Lane) {
        if !lane.lists.ready {
            lane.lists.ready = true;
            self.queue.borrow_mut().mark_ready(self.look.get(), lane.token);
        }
    }

    pub(super) fn mark_dirty(&self, lane: &mut super::conn::Lane) {
        self.clients.mark_dirty(lane);
    }

    pub(super) fn mark_streaming(&self, lane: &mut super::conn::Lane) {
        self.clients.mark_streaming(lane);
    }

    pub(super) fn with_conn<R>(
        &self,
        token: Token,
        visit: impl FnOnce(&mut Conn) -> R,
    ) -> Option<R> {
        self.clients.with(token, visit)
    }

    /// Creates a handle that is unique across cores.
    pub(super) fn new_handle(&self) -> u64 {
        self.unique(self.clients.next_number()) + 1
    }

    /// Extends a number that is unique on this core to one that is unique across cores.
    pub(super) fn unique(&self, number: u64) -> u64 {
        number * self.tx.cores() as u64 + self.id() as u64
    }

    /// The core of the client with this handle.
    pub(crate) fn core_of_client(&self, handle: u64) -> CoreId {
        ((handle - 1) % self.tx.cores() as u64) as CoreId
    }
}

//! One connection: its unparsed requests, its pending replies, and its session.

pub(super) mod outbound;
pub(super) mod parts;
mod receive;

use super::owed::{Owed, Unread, Waiting, held_by};
use super::point::View;
use super::presence::{Awaited, Gone};
use super::state::pubsub::Subscribed;
use super::state::tracking::message::Push;
use super::state::tracking::mode::Mode;
use super::state::waits::Blocked;
use super::transaction::queued::{Queued, QueuedSizes};
use darter_command::Stream;
use darter_resp::{Output, Parser, Request};
use darter_runtime::net::Token;
use parts::{Away, Input, Lists, Location, OpenTransaction, Sending};
use std::collections::VecDeque;
use std::sync::Arc;

/// The addresses of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// `ip:port`, or the path of the unix socket with `:0`, as CLIENT LIST prints it.
    pub remote: String,
    /// The local end, in the same form.
    pub local: String,
    /// True for a unix socket or a loopback address.
    pub is_local: bool,
}

/// CLIENT REPLY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    /// Every command gets a reply.
    #[default]
    On,
    /// No command gets a reply.
    Off,
    /// The next command gets no reply: set by SKIP.
    SkipNext,
    /// The current command gets no reply.
    Skip,
}

/// The watched keys, for CLIENT LIST.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watching {
    /// The number of watched keys.
    pub keys: usize,
    /// One of them was touched, as far as this core knows. EXEC checks on the cores of the keys.
    pub is_touched: bool,
}

/// Whether a connection is about to be closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// It stays open.
    #[default]
    Open,
    /// It is closed once its output is sent.
    AfterReply,
    /// It is closed at once: CLIENT KILL, or a limit.
    Now,
}

/// The session of a connection: its settings, and the fields of CLIENT LIST.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// The id that clients see: unique among all connections since startup.
    pub id: u64,
    /// The handle, by which cores know the connection: it names the core, and changes with each
    /// move.
    pub handle: u64,
    /// Another client redirects its invalidations to this one, which therefore stays on its core.
    pub is_target: bool,
    /// Its addresses.
    pub peer: Peer,
    /// The selected database.
    pub db: usize,
    /// Whether the protocol is RESP3.
    pub resp3: bool,
    /// Whether commands other than AUTH and HELLO are allowed.
    pub authenticated: bool,
    /// CLIENT SETNAME.
    pub name: Vec<u8>,
    /// CLIENT SETINFO LIB-NAME.
    pub lib_name: Vec<u8>,
    /// CLIENT SETINFO LIB-VER.
    pub lib_version: Vec<u8>,
    /// CLIENT NO-EVICT.
    pub no_evict: bool,
    /// CLIENT NO-TOUCH.
    pub no_touch: bool,
    /// MONITOR.
    pub monitor: bool,
    /// Commands queued since MULTI, until EXEC has ended.
    pub queued: Option<QueuedSizes>,
    /// WATCH.
    pub watching: Watching,
    /// Its subscriptions.
    pub subscribed: Subscribed,
    /// CLIENT TRACKING.
    pub tracking: Mode,
    /// CLIENT REPLY.
    pub reply_mode: ReplyMode,
    /// The time of the accept, in Unix milliseconds.
    pub created_ms: u64,
    /// The last time at which it sent something, had read all output, or waited for the server; in
    /// Unix milliseconds.
    pub active_ms: u64,
    /// The last command, as an index into the table.
    pub last_command: Option<usize>,
    /// Whether it is about to be closed.
    pub ending: Ending,
}

impl Session {
    /// Closes the connection once its output is sent.
    pub(crate) fn close_after_reply(&mut self) {
        if self.ending == Ending::Open {
            self.ending = Ending::AfterReply;
        }
    }

    /// True if the connection is closed once its output is sent.
    pub(crate) fn closes_after_reply(&self) -> bool {
        self.ending == Ending::AfterReply
    }

    /// True if the connection is closed at once.
    pub(crate) fn is_killed(&self) -> bool {
        self.ending == Ending::Now
    }

    pub(super) fn view(&self) -> View {
        let tracker = self.tracking.tracker(self.handle);
        View { db: self.db, no_touch: self.no_touch, tracker }
    }
}

/// The limit of a connection's requests on other cores, in bytes. Below it one more request is
/// sent, of any length.
const AWAY_BYTES_MAX: usize = 1024 * 1024;

/// Approximate bytes of requests that a connection sends to other cores in one turn: about 100 us
/// of work there, for commands as quick as GET. Requests of other connections cannot overtake a
/// batch, so they wait longer for heavy ones.
pub(super) const AWAY_AT_ONCE: usize = 32 * 1024;

/// The limit of pending replies of a connection: two batches of a full receive buffer.
const OWED_MAX: usize = 2_048;
/// The limit until the length of replies is known.
const OWED_FIRST: usize = 128;
/// The limit with long replies: enough to keep the other cores busy.
const OWED_MIN: usize = 16;

/// Bytes of encoded replies that CLIENT LIST shows as `obl`, as in Redis. With more, all of them
/// are part of `omem`.
const REPLY_BUFFER_BYTES: usize = 16 * 1024;

/// The memory of a connection in bytes, by the names of CLIENT LIST.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    /// `qbuf`: received bytes that are not part of a whole argument yet.
    pub query: usize,
    /// `qbuf-free`: free bytes in the receive buffer.
    pub query_free: usize,
    /// `argv-mem`: complete arguments of an arriving, waiting or running request.
    pub arguments: usize,
    /// `rbs`: the buffer that replies are encoded into.
    pub reply_buffer: usize,
    /// `obl`: the used part of it.
    pub reply_bytes: usize,
    /// `oll`: the number of parts of other output.
    pub output_parts: usize,
    /// `omem`: the bytes of these parts, and of removed values that are still being read.
    pub output: usize,
    /// The part of `output` that only this reader keeps alive: see [`Stream::pinned_bytes`].
    pub pinned: usize,
    /// `tot-mem`: the sum.
    pub total: usize,
}

/// One connection of this core.
pub struct Conn {
    pub(super) parser: Parser,
    /// Everything but the parser, so that a request can stay borrowed from the parser.
    pub lane: Lane,
}

/// The state of the next request. While a parsed request is held or run by a task, no other is
/// parsed.
#[derive(Default)]
pub(super) enum Next {
    /// The next request is parsed and runs.
    #[default]
    Parsed,
    /// A parsed request that must wait: for the replies before it, for its names to be gathered,
    /// for the end of a pause, or for a snapshot that writers outrun.
    Held(Arc<Request>),
    /// A task runs the last request.
    AwaitsTask,
    /// The last request waits for a key.
    Waits,
}

/// Whether the connection is in a queue of `writers`. Its request may run before it leaves the
/// queue, so this is not a variant of [`Next`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WriteHold {
    /// The connection is not listed.
    #[default]
    No,
    /// The connection is listed.
    Listed,
    /// The wait is over: the next write runs, even if the snapshot still holds much.
    Released,
}

/// The output side of a connection, and its session.
pub struct Lane {
    /// The runtime's token.
    pub token: Token,
    /// The session.
    pub session: Session,
    /// The cores that it has been on, and goes to.
    pub(super) location: Location,
    /// Encoded output that the socket does not have yet.
    pub(super) out: Output,
    /// The current send, and what delays the next one.
    pub(super) sending: Sending,
    /// Pending replies after `out`.
    pub(super) owed: VecDeque<Owed>,
    /// The ready part of `owed`.
    pub(super) waiting: Waiting,
    /// Invalidations that must follow the reply of the running task.
    late: Vec<Push>,
    /// The limit of pending replies, learned from the length of earlier ones.
    pub(super) owed_max: usize,
    /// The rest of the reply that is being streamed.
    pub(super) stream: Option<Box<dyn Stream>>,
    /// The state of the next request.
    pub(super) next: Next,
    /// The task that runs the last request, if any.
    pub(super) awaited: Option<Awaited>,
    /// MULTI and WATCH.
    pub(super) transaction: OpenTransaction,
    /// The call that waits for keys, if any.
    pub(super) blocked: Option<Box<Blocked>>,
    /// Its requests on other cores.
    pub(super) away: Away,
    /// The lists of its core that it is in.
    pub(super) lists: Lists,
    /// Its input.
    pub(super) input: Input,
    /// In the list of connections that wait for the end of CLIENT PAUSE. Its request may run before
    /// it leaves the list, so this is not a variant of `next`.
    pub(super) awaits_pause: bool,
    /// The wait of the next write.
    pub(super) write_hold: WriteHold,
    /// The runtime was asked to close the connection. A send may still be in flight: a killed
    /// connection does not wait for it.
    pub(super) closing: bool,
}

impl Conn {
    pub(super) fn new(token: Token, session: Session, bulk_max: usize, cores: usize) -> Self {
        let parser = Parser::new(bulk_max, session.authenticated);
        Self { parser, lane: Lane::new(token, session, cores) }
    }

    /// True if another reply of the pipeline will follow soon: a request is held or running, or has
    /// arrived after one that a task ran. False if the request waits for other clients.
    pub(super) fn expects_more(&self) -> bool {
        let lane = &self.lane;
        if lane.awaits_pause || lane.waits_to_write() || lane.is_blocked() {
            return false;
        }
        let follows = lane.sending.corked_until.is_some()
            && lane.lists.ready
            && self.parser.pending_bytes() > 0;
        lane.stream.is_none() && (follows || !matches!(lane.next, Next::Parsed))
    }

    /// Received bytes that are not part of a whole argument yet.
    #[must_use]
    pub fn query_bytes(&self) -> usize {
        self.parser.query_bytes()
    }

    /// The first of these bytes, for the log.
    #[must_use]
    pub fn query_head(&self) -> &[u8] {
        self.parser.query_head()
    }

    /// Bytes of memory held by the connection.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.sizes().total
    }

    /// The memory of the connection. Memory that several clients share (a removed value, a line of
    /// MONITOR) counts for each. Cost: O(1), plus a visit to each block of a large request and to
    /// some of the pending replies.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let (parser, lane) = (&self.parser, &self.lane);
        let (encoded, reply_buffer) = lane.out.tail_bytes();
        let reply_bytes = if encoded > REPLY_BUFFER_BYTES { 0 } else { encoded };
        let (parts, _) = lane.out.parts();
        let others = [lane.sending.in_flight > 0, encoded > reply_bytes, lane.stream.is_some()];
        let pinned = lane.pinned_bytes();
        let output = lane.buffered_bytes() + pinned - reply_bytes;
        let held = lane.held().map_or(0, |request| request.bytes());
        let blocked = lane.blocked.as_ref().map_or(0, |blocked| blocked.memory_bytes());
        let owed = blocked + lane.owed.capacity() * size_of::<Owed>() + lane.waiting.spare_bytes();
        Sizes {
            query: parser.query_bytes(),
            query_free: parser.free_bytes(),
            arguments: parser.argument_bytes() + lane.away.bytes + held,
            reply_buffer,
            reply_bytes,
            output_parts: parts + lane.owed.len() + others.iter().filter(|is| **is).count(),
            output,
            pinned,
            total: size_of::<Self>()
                + parser.memory_bytes()
                + (lane.away.bytes + held + owed)
                + (lane.transaction_bytes() + lane.session.subscribed.bytes)
                + lane.session.tracking.prefix_bytes
                + reply_buffer.max(reply_bytes)
                + (output - (encoded - reply_bytes)),
        }
    }
}

impl Lane {
    pub(super) fn new(token: Token, session: Session, cores: usize) -> Self {
        Self {
            token,
            session,
            location: Location::default(),
            out: Output::default(),
            sending: Sending::default(),
            owed: VecDeque::new(),
            waiting: Waiting::default(),
            late: Vec::new(),
            owed_max: OWED_FIRST,
            stream: None,
            next: Next::default(),
            awaited: None,
            transaction: OpenTransaction::default(),
            blocked: None,
            away: Away::new(cores),
            lists: Lists::default(),
            input: Input::default(),
            awaits_pause: false,
            write_hold: WriteHold::default(),
            closing: false,
        }
    }

    /// True while a task runs a request.
    pub(super) fn awaits_task(&self) -> bool {
        matches!(self.next, Next::AwaitsTask)
    }

    /// The held request.
    pub(super) fn held(&self) -> Option<&Request> {
        match &self.next {
            Next::Held(request) => Some(request),
            Next::Parsed | Next::AwaitsTask | Next::Waits => None,
        }
    }

    /// Takes the held request, to run it now.
    pub(super) fn take_held(&mut self) -> Option<Arc<Request>> {
        match std::mem::take(&mut self.next) {
            Next::Held(request) => Some(request),
            other => {
                self.next = other;
                None
            }
        }
    }

    /// Holds a parsed request.
    pub(super) fn hold(&mut self, request: Arc<Request>) {
        debug_assert!(matches!(self.next, Next::Parsed), "another one waits");
        self.next = Next::Held(request);
    }

    /// Records that a task runs the parsed request.
    pub(super) fn await_task(&mut self) {
        debug_assert!(matches!(self.next, Next::Parsed), "another one waits");
        self.next = Next::AwaitsTask;
    }

    /// Attaches queued commands to the last request for another core, an EXEC.
    pub(super) fn attach(&mut self, core: usize, queued: Box<Queued>) {
        let batch = self.away.batches[core].as_mut().expect("it has just been sent there");
        let bytes = batch.attach(queued);
        self.away.bytes += bytes;
        self.away.turn_bytes += bytes;
    }

    /// Bytes of the transaction: queued commands and watched keys.
    pub(super) fn transaction_bytes(&self) -> usize {
        let queued = self.session.queued.map_or(0, |sizes| sizes.held_bytes);
        queued + self.transaction.watched.as_ref().map_or(0, |watched| watched.held_bytes())
    }

    /// True if the client waits for a key: flag `b` of CLIENT LIST.
    pub(crate) fn is_blocked(&self) -> bool {
        matches!(self.next, Next::Waits)
    }

    /// True if the next write waits for a snapshot or for keyspace events.
    pub(super) fn waits_to_write(&self) -> bool {
        self.write_hold == WriteHold::Listed
    }

    /// Whether the client has half-closed.
    pub(super) fn gone(&self) -> Gone {
        if self.input.eof { Gone::Ended } else { Gone::No }
    }

    /// Records that the task is done.
    pub(super) fn task_done(&mut self) {
        debug_assert!(self.awaits_task(), "no task runs for it");
        self.next = Next::Parsed;
        self.awaited = None;
    }

    /// Bytes of output, queued or being sent.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.out.len() + self.sending.in_flight
    }

    /// Bytes of output, of pending replies, and of streams. Large for a MONITOR, and for a client
    /// that reads a removed value.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.buffered_bytes() + self.pinned_bytes()
    }

    /// Bytes of output and of ready replies, beyond the reply buffer.
    pub(super) fn unread_bytes(&self) -> usize {
        (self.output_bytes() + self.waiting.bytes).saturating_sub(REPLY_BUFFER_BYTES)
    }

    fn buffered_bytes(&self) -> usize {
        let waiting = self.waiting.bytes + self.late_bytes();
        self.output_bytes() + waiting + held_by(self.stream.as_deref())
    }

    fn pinned_bytes(&self) -> usize {
        let stream = self.stream.as_deref().map_or(0, Stream::pinned_bytes);
        stream + self.waiting.pinned_bytes(&self.owed)
    }

    /// `rbp` of CLIENT LIST.
    #[must_use]
    pub fn reply_peak(&self) -> usize {
        self.sending.peak.0
    }

    /// Records a send. The peak is that of the last seconds.
    pub(super) fn note_sent(&mut self, bytes: usize, now_ms: u64) {
        /// Redis's `reply-buffer-peak-reset-time`.
        const RESET_MS: u64 = 5_000;
        let (peak, since_ms) = self.sending.peak;
        if bytes > peak || now_ms.saturating_sub(since_ms) > RESET_MS {
            self.sending.peak = (bytes.min(REPLY_BUFFER_BYTES), now_ms);
        }
    }

    /// True if the server is working for the client, so that it is not idle. A client that does not
    /// read its replies still counts as idle.
    pub(crate) fn is_working(&self) -> bool {
        let waits = match self.owed.front() {
            Some(Owed::Remote(core) | Owed::Silent(core)) => !self.away.resting.contains(core),
            _ => false,
        };
        let searches = self.stream.is_some() && self.output_bytes() == 0;
        let is_blocked = self.blocked.is_some();
        is_blocked
            || self.awaits_task()
            || self.awaits_pause
            || self.waits_to_write()
            || waits
            || searches
    }

    /// True for a client that mostly gets pushes.
    pub(super) fn is_pushed_to(&self) -> bool {
        let session = &self.session;
        session.subscribed.is_any() || session.tracking.is_on || session.monitor
    }

    /// True if no reply is pending and nothing runs.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.owed.is_empty() && self.stream.is_none() && matches!(self.next, Next::Parsed)
    }

    /// Appends a reply after all pending ones.
    pub(super) fn owe(&mut self, out: Output, stream: Option<Box<dyn Stream>>) {
        if self.owed.is_empty() && self.stream.is_none() {
            self.out.append(out);
            self.stream = stream;
        } else {
            self.owed.push_back(self.waiting.take_in(out, stream));
        }
    }

    /// Appends an invalidation after all pending replies, including that of a running task, which
    /// may have read the old value.
    pub(super) fn owe_late(&mut self, (out, rest): Push) {
        if self.awaits_task() {
            self.late.push((out, rest));
        } else {
            self.owe(out, rest);
        }
    }

    /// Appends the invalidations that had to wait for the task's reply.
    pub(super) fn send_late(&mut self) {
        for (out, rest) in std::mem::take(&mut self.late) {
            self.owe(out, rest);
        }
    }

    /// Bytes of invalidations that wait for a task's reply.
    pub(super) fn late_bytes(&self) -> usize {
        self.late.iter().map(|(out, rest)| out.len() + held_by(rest.as_deref())).sum()
    }

    /// [`Lane::owe`] for an encoded reply.
    pub(super) fn owe_flat(&mut self, reply: &[u8]) {
        if self.owed.is_empty() && self.stream.is_none() {
            self.out.add(reply);
            return;
        }
        let is_joined = match self.owed.back_mut() {
            Some(Owed::Early(last)) => self.waiting.join_flat(last, reply),
            _ => false,
        };
        if !is_joined {
            self.owed.push_back(self.waiting.take_in_flat(reply));
        }
    }

    /// Stores the encoded reply of `slot`, which is not the first.
    pub(super) fn flat_at(&mut self, slot: usize, reply: &[u8]) {
        self.owed[slot] = self.waiting.take_in_flat(reply);
    }

    /// Stores the reply of `slot`, which is not the first.
    pub(super) fn ready_at(&mut self, slot: usize, out: Output, stream: Option<Box<dyn Stream>>) {
        self.owed[slot] = self.waiting.take_in(out, stream);
    }

    /// Moves the ready replies at the front into the output, up to one that continues as a stream.
    pub(super) fn settle(&mut self) {
        let is_here = |owed: &Owed| matches!(owed, Owed::Early(_) | Owed::Ready(_));
        while self.stream.is_none() && self.owed.front().is_some_and(is_here) {
            match self.owed.pop_front() {
                Some(Owed::Early(place)) => self.waiting.send_early(place, &mut self.out),
                Some(Owed::Ready(ready)) => {
                    self.waiting.leave(&ready);
                    self.out.append(ready.out);
                    self.stream = ready.stream;
                }
                _ => {}
            }
        }
    }

    /// Learns from `replies` replies of another core, `bytes` long, how many may be pending: they
    /// are produced before the socket can take them. Long replies lower the limit at once. Short
    /// ones double it if it was used up, so that one short reply changes nothing.
    pub(super) fn learn_owed(&mut self, replies: usize, bytes: usize) {
        let each = (bytes / replies.max(1)).max(1);
        let fitting = darter_base::limits::REPLY_BUFFER_BYTES / 2 / each;
        let used_up = replies * self.away.batches.len() * 2 >= self.owed_max;
        let grown = if used_up { self.owed_max * 2 } else { self.owed_max };
        self.owed_max = fitting.min(grown).clamp(OWED_MIN, OWED_MAX);
    }

    /// The cores with pending replies.
    pub(super) fn owing(&self) -> Vec<usize> {
        let mut cores: Vec<usize> = Vec::new();
        for owed in &self.owed {
            if let Owed::Remote(core) | Owed::Silent(core) = owed
                && !cores.contains(core)
            {
                cores.push(*core);
            }
        }
        cores
    }

    /// True if all pending replies of other cores are from `core`.
    pub(super) fn is_owed_only_by(&self, core: usize) -> bool {
        self.owed.iter().all(|owed| match owed {
            Owed::Remote(from) | Owed::Silent(from) => *from == core,
            Owed::Early(_) | Owed::Ready(_) => true,
        })
    }

    /// True if the reply of `slot` is pending on `core`.
    pub(super) fn owes_from(&self, slot: usize, core: usize) -> bool {
        match self.owed.get(slot) {
            Some(Owed::Remote(from) | Owed::Silent(from)) => *from == core,
            _ => false,
        }
    }

    /// True if a request may be parsed now.
    pub(super) fn may_parse(&self) -> bool {
        matches!(self.next, Next::Parsed)
            && self.stream.is_none()
            && self.owed.len() < self.owed_max
            && self.away.bytes < AWAY_BYTES_MAX
            && self.output_bytes() + self.waiting.bytes
                < darter_base::limits::REPLY_BUFFER_BYTES / 4
            && self.session.ending == Ending::Open
    }
}

impl Drop for Lane {
    /// Frees pending replies in portions: a closed client that has not read may leave many.
    fn drop(&mut self) {
        let (owed, late) = (std::mem::take(&mut self.owed), std::mem::take(&mut self.late));
        Unread::free(owed, late, self.waiting.bytes);
    }
}

//! One connection: the requests that are not parsed yet, the pending replies, and the session.

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

/// The two addresses of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The client's address: `ip:port`, or the path of the unix socket with `:0`, as in CLIENT
    /// LIST.
    pub remote: String,
    /// The server's address, in the same form.
    pub local: String,
    /// True for a unix socket or a loopback address.
    pub is_local: bool,
}

/// The modes of CLIENT REPLY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    /// Every command gets a reply.
    #[default]
    On,
    /// No command gets a reply.
    Off,
    /// The next command gets no reply: set by SKIP.
    SkipNext,
    /// The current command gets no reply: the state after `SkipNext`.
    Skip,
}

/// The watched keys, for CLIENT LIST.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watching {
    /// The number of watched keys.
    pub keys: usize,
    /// True if a watched key was changed, as far as this core knows. EXEC asks the cores that own
    /// the keys.
    pub is_touched: bool,
}

/// Whether and when a connection is about to be closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// The connection stays open.
    #[default]
    Open,
    /// The connection is closed when its output has been sent.
    AfterReply,
    /// The connection is closed at once, because of CLIENT KILL or a limit.
    Now,
}

/// The session of a connection: its settings, and the fields of CLIENT LIST.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// The client's id: unique among all connections since the start of the server.
    pub id: u64,
    /// The handle by which the cores address the connection. It contains the core's number, and
    /// changes with each move to another core.
    pub handle: u64,
    /// True if another client redirects its invalidations to this one, which therefore cannot move
    /// to another core.
    pub is_target: bool,
    /// The addresses.
    pub peer: Peer,
    /// The selected database.
    pub db: usize,
    /// Whether the protocol is RESP3.
    pub resp3: bool,
    /// Whether commands other than AUTH and HELLO are allowed.
    pub authenticated: bool,
    /// The name that CLIENT SETNAME has set.
    pub name: Vec<u8>,
    /// The library name that CLIENT SETINFO LIB-NAME has set.
    pub lib_name: Vec<u8>,
    /// The library version that CLIENT SETINFO LIB-VER has set.
    pub lib_version: Vec<u8>,
    /// True for the connection without a socket that replays append-only files.
    pub is_replay: bool,
    /// True after CLIENT NO-EVICT ON.
    pub no_evict: bool,
    /// True after CLIENT NO-TOUCH ON.
    pub no_touch: bool,
    /// True if the client gets the lines of MONITOR.
    pub monitor: bool,
    /// The sizes of the commands queued by MULTI, until EXEC has ended.
    pub queued: Option<QueuedSizes>,
    /// The keys watched by WATCH.
    pub watching: Watching,
    /// The client's subscriptions.
    pub subscribed: Subscribed,
    /// The mode set by CLIENT TRACKING.
    pub tracking: Mode,
    /// The mode set by CLIENT REPLY.
    pub reply_mode: ReplyMode,
    /// The time at which the connection was accepted, in Unix milliseconds.
    pub created_ms: u64,
    /// The time of the last activity, in Unix milliseconds: bytes were received, all output was
    /// read, or a wait for the server ended.
    pub active_ms: u64,
    /// The last command, as an index into the command table.
    pub last_command: Option<usize>,
    /// Whether the connection is about to be closed.
    pub ending: Ending,
}

impl Session {
    /// Marks the connection to be closed when its output has been sent.
    pub(crate) fn close_after_reply(&mut self) {
        if self.ending == Ending::Open {
            self.ending = Ending::AfterReply;
        }
    }

    /// True if the connection is closed when its output has been sent.
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

/// The limit of a connection's requests on other cores, in bytes. While the sum is lower, one more
/// request may be sent, whatever its length.
const AWAY_BYTES_MAX: usize = 1024 * 1024;

/// Approximate limit of the bytes that a connection sends to other cores in one turn: about 100 us
/// of work for commands as fast as GET.
pub(super) const AWAY_AT_ONCE: usize = 32 * 1024;

/// The limit of pending replies of a connection: twice the requests that a full receive buffer can
/// hold.
const OWED_MAX: usize = 2_048;
/// The limit of pending replies while their length and the time of their commands are unknown.
const OWED_FIRST: usize = 32;
/// The limit of pending replies if they are long: enough to keep the other cores busy.
const OWED_MIN: usize = 16;
/// The lowest limit of pending replies, for slow commands.
const OWED_SLOW: usize = 2;
/// Nanoseconds of work that one connection may have pending on other cores. Requests of other
/// connections cannot overtake that work, so they may wait as long.
const OWED_NS: u64 = 1_000_000;

/// The bytes of encoded replies that CLIENT LIST shows as `obl`, as in Redis. If there are more,
/// all of them count as `omem` instead.
const REPLY_BUFFER_BYTES: usize = 16 * 1024;

/// The memory of a connection in bytes. Each field has the name that CLIENT LIST gives it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    /// `qbuf`: received bytes that do not form a complete argument yet.
    pub query: usize,
    /// `qbuf-free`: free bytes in the receive buffer.
    pub query_free: usize,
    /// `argv-mem`: complete arguments of a request that is arriving, waiting or running.
    pub arguments: usize,
    /// `rbs`: the size of the buffer into which replies are encoded.
    pub reply_buffer: usize,
    /// `obl`: the used bytes of that buffer.
    pub reply_bytes: usize,
    /// `oll`: the number of parts of the other output.
    pub output_parts: usize,
    /// `omem`: the bytes of these parts, and of removed values that the client is still reading.
    pub output: usize,
    /// The part of `output` that exists only because this client is reading it: see
    /// [`Stream::pinned_bytes`].
    pub pinned: usize,
    /// `tot-mem`: the sum.
    pub total: usize,
}

/// One connection of this core.
pub struct Conn {
    pub(super) parser: Parser,
    /// All state except the parser, so that a request can stay borrowed from the parser.
    pub lane: Lane,
}

/// The state of the next request. While a parsed request is held, or runs as a task, no further
/// request is parsed.
#[derive(Default)]
pub(super) enum Next {
    /// The next request runs as soon as it is parsed.
    #[default]
    Parsed,
    /// A parsed request that must wait: for earlier replies, for its long names to be copied into
    /// one piece, for CLIENT PAUSE to end, or for a snapshot.
    Held(Arc<Request>),
    /// The last request runs as a task.
    AwaitsTask,
    /// The last request is a blocking command that waits for a key.
    Waits,
}

/// Whether the connection is in a queue of throttled writers (see `writers`). The request may run
/// before the connection leaves the queue, so this is not a variant of [`Next`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WriteHold {
    /// The connection is in no queue.
    #[default]
    No,
    /// The connection is in a queue.
    Listed,
    /// The wait is over: the next write runs, even if the snapshot is still behind.
    Released,
}

/// The output side of a connection, and its session.
pub struct Lane {
    /// The runtime's token of the connection.
    pub token: Token,
    /// The state that commands can see and change.
    pub session: Session,
    /// The core that accepted the connection, and its moves.
    pub(super) location: Location,
    /// Encoded output that was not handed to the socket yet.
    pub(super) out: Output,
    /// The send in progress, and the reasons to delay the next one.
    pub(super) sending: Sending,
    /// Pending replies, in the order of the requests. They follow `out`.
    pub(super) owed: VecDeque<Owed>,
    /// The replies in `owed` that are ready, but follow a reply that is not.
    pub(super) waiting: Waiting,
    /// Invalidations that must follow the reply of the running task.
    late: Vec<Push>,
    /// The limit of pending replies, adjusted to the length of earlier replies.
    pub(super) owed_max: usize,
    /// The rest of the reply that is being sent as a stream.
    pub(super) stream: Option<Box<dyn Stream>>,
    /// The state of the next request.
    pub(super) next: Next,
    /// The task that runs the last request, if any.
    pub(super) awaited: Option<Awaited>,
    /// The state of MULTI and WATCH.
    pub(super) transaction: OpenTransaction,
    /// The state of a blocking command that waits for keys, if any.
    pub(super) blocked: Option<Box<Blocked>>,
    /// The requests of this connection on other cores.
    pub(super) away: Away,
    /// The core's lists that contain this connection.
    pub(super) lists: Lists,
    /// The state of receiving and parsing.
    pub(super) input: Input,
    /// True if the connection is in the list of those that wait for the end of CLIENT PAUSE. The
    /// request may run before the connection leaves the list, so this is not a variant of `next`.
    pub(super) awaits_pause: bool,
    /// Whether the next write waits for a snapshot or for keyspace events.
    pub(super) write_hold: WriteHold,
    /// True if the runtime was asked to close the connection. A send may still be in progress,
    /// because a killed connection does not wait for it.
    pub(super) closing: bool,
}

impl Conn {
    pub(super) fn new(token: Token, session: Session, bulk_max: usize, cores: usize) -> Self {
        let parser = Parser::new(bulk_max, session.authenticated);
        Self { parser, lane: Lane::new(token, session, cores) }
    }

    /// True if another reply of the pipeline is expected soon: a request is held or running, or
    /// more requests arrived while a task ran one. False if the held request waits for other
    /// clients.
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

    /// The number of received bytes that do not form a complete argument yet.
    #[must_use]
    pub fn query_bytes(&self) -> usize {
        self.parser.query_bytes()
    }

    /// The first bytes of the incomplete request, for the log.
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
    /// MONITOR) counts for each of them. Cost: O(1), plus a visit to each block of a long request
    /// and to some of the pending replies.
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

    /// The held request, if there is one.
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

    /// Attaches queued commands to the last request sent to `core`, which is an EXEC.
    pub(super) fn attach(&mut self, core: usize, queued: Box<Queued>) {
        let batch = self.away.batches[core].as_mut().expect("it has just been sent there");
        let bytes = batch.attach(queued);
        self.away.bytes += bytes;
        self.away.turn_bytes += bytes;
    }

    /// Bytes of memory of the queued commands and watched keys.
    pub(super) fn transaction_bytes(&self) -> usize {
        let queued = self.session.queued.map_or(0, |sizes| sizes.held_bytes);
        queued + self.transaction.watched.as_ref().map_or(0, |watched| watched.held_bytes())
    }

    /// True if the client waits for a key. CLIENT LIST shows the flag `b`.
    pub(crate) fn is_blocked(&self) -> bool {
        matches!(self.next, Next::Waits)
    }

    /// True if the next write waits for a snapshot or for keyspace events.
    pub(super) fn waits_to_write(&self) -> bool {
        self.write_hold == WriteHold::Listed
    }

    /// Whether the client is connected, has half-closed or has closed.
    pub(super) fn gone(&self) -> Gone {
        if self.input.eof { Gone::Ended } else { Gone::No }
    }

    /// Records that the task of the last request has ended.
    pub(super) fn task_done(&mut self) {
        debug_assert!(self.awaits_task(), "no task runs for it");
        self.next = Next::Parsed;
        self.awaited = None;
    }

    /// The number of output bytes that are queued or being sent.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.out.len() + self.sending.in_flight
    }

    /// The number of output bytes, including pending replies and streams. Large for a client of
    /// MONITOR, and for a client that reads a removed value.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.buffered_bytes() + self.pinned_bytes()
    }

    /// The number of output bytes, including ready replies, that exceed the reply buffer.
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

    /// The largest recent send, for the field `rbp` of CLIENT LIST.
    #[must_use]
    pub fn reply_peak(&self) -> usize {
        self.sending.peak.0
    }

    /// Records a send, and updates the peak of the last seconds.
    pub(super) fn note_sent(&mut self, bytes: usize, now_ms: u64) {
        /// The value of Redis's setting `reply-buffer-peak-reset-time`.
        const RESET_MS: u64 = 5_000;
        let (peak, since_ms) = self.sending.peak;
        if bytes > peak || now_ms.saturating_sub(since_ms) > RESET_MS {
            self.sending.peak = (bytes.min(REPLY_BUFFER_BYTES), now_ms);
        }
    }

    /// True if the server is working for the client, so that the client is not idle. A client that
    /// does not read its replies counts as idle.
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

    /// True for a client whose output consists mostly of pushes.
    pub(super) fn is_pushed_to(&self) -> bool {
        let session = &self.session;
        session.subscribed.is_any() || session.tracking.is_on || session.monitor
    }

    /// True if no reply is pending and no request runs or waits.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.owed.is_empty() && self.stream.is_none() && matches!(self.next, Next::Parsed)
    }

    /// Appends a reply after all pending replies.
    pub(super) fn owe(&mut self, out: Output, stream: Option<Box<dyn Stream>>) {
        if self.owed.is_empty() && self.stream.is_none() {
            self.out.append(out);
            self.stream = stream;
        } else {
            self.owed.push_back(self.waiting.take_in(out, stream));
        }
    }

    /// Appends an invalidation after all pending replies. It also follows the reply of a running
    /// task, because the task may have read the old value.
    pub(super) fn owe_late(&mut self, (out, rest): Push) {
        self.sending.gated = true;
        if self.awaits_task() {
            self.late.push((out, rest));
        } else {
            self.owe(out, rest);
        }
    }

    /// Appends the invalidations that had to wait for the reply of a task.
    pub(super) fn send_late(&mut self) {
        for (out, rest) in std::mem::take(&mut self.late) {
            self.owe(out, rest);
        }
    }

    /// Bytes of invalidations that wait for a task's reply.
    pub(super) fn late_bytes(&self) -> usize {
        self.late.iter().map(|(out, rest)| out.len() + held_by(rest.as_deref())).sum()
    }

    /// Calls [`Lane::owe`] with an encoded reply.
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

    /// Stores an encoded reply in `slot` of the pending replies, which is not the first.
    pub(super) fn flat_at(&mut self, slot: usize, reply: &[u8]) {
        self.owed[slot] = self.waiting.take_in_flat(reply);
    }

    /// Stores a reply in `slot` of the pending replies, which is not the first.
    pub(super) fn ready_at(&mut self, slot: usize, out: Output, stream: Option<Box<dyn Stream>>) {
        self.owed[slot] = self.waiting.take_in(out, stream);
    }

    /// Moves the ready replies at the head of the queue into the output. Stops after a reply that
    /// continues as a stream.
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

    /// Adjusts the limit of pending replies after another core has sent `replies` replies with
    /// `bytes` bytes in total, whose commands took `ns` nanoseconds. Replies are produced before the
    /// socket can take them. So long replies lower the limit at once. Other clients wait for slow
    /// commands, so these lower it too, but only to a half: the core may have lost its processor
    /// meanwhile. Otherwise the limit doubles if it was reached, so that a single short reply changes
    /// nothing.
    pub(super) fn learn_owed(&mut self, replies: usize, bytes: usize, ns: u64) {
        let replies = replies.max(1);
        let used_up = replies * self.away.batches.len() * 2 >= self.owed_max;
        let grown = if used_up { self.owed_max * 2 } else { self.owed_max };
        let each = (bytes / replies).max(1);
        let fitting = (darter_base::limits::REPLY_BUFFER_BYTES / 2 / each).max(OWED_MIN);
        let each_ns = (ns / replies as u64).max(1);
        let timely = usize::try_from(OWED_NS / each_ns).unwrap_or(OWED_MAX);
        let timely = timely.max(self.owed_max / 2).max(OWED_SLOW);
        self.owed_max = grown.min(fitting).min(timely).min(OWED_MAX);
    }

    /// The cores that have not sent all of their replies yet.
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

    /// True if the next request may be parsed now.
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
    /// Frees the pending replies in portions, because a client that did not read may leave many of
    /// them.
    fn drop(&mut self) {
        let (owed, late) = (std::mem::take(&mut self.owed), std::mem::take(&mut self.late));
        Unread::free(owed, late, self.waiting.bytes);
    }
}

//! One connection: what it sent, what it is owed, and what it has declared about itself.

mod receive;

use super::moving::policy::Trail;
use super::owed::{Owed, Unread, Waiting, held_by};
use super::point::View;
use super::presence::{Awaited, Gone};
use super::state::batches::Batch;
use super::state::pubsub::Subscribed;
use super::state::receiving::Receiving;
use super::state::tracking::message::Push;
use super::state::tracking::mode::Mode;
use super::state::waits::Blocked;
use super::transaction::queued::{Queued, Sizes as QueuedSizes, Watched};
use darter_command::Stream;
use darter_resp::{Output, Parser, Request};
use darter_runtime::net::Token;
use darter_tx::CoreId;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// Where a connection comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// `ip:port`, or the path of the unix socket with `:0`, as CLIENT LIST prints it.
    pub remote: String,
    /// The same for our end.
    pub local: String,
    /// True for a unix socket, or when the peer's address is a loopback one.
    pub is_local: bool,
}

/// CLIENT REPLY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    /// Every command is answered.
    #[default]
    On,
    /// None is.
    Off,
    /// The next one is not (set by SKIP, for the command after it).
    SkipNext,
    /// This one is not.
    Skip,
}

/// What a connection has declared about itself, and what CLIENT LIST shows of it.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// What clients see: unique among all connections since startup.
    pub id: u64,
    /// By which cores know it: it names its core, and is new after each move to another.
    pub handle: u64,
    /// Another client has named it, to be told in its place: it stays on its core.
    pub is_target: bool,
    /// Where it comes from.
    pub peer: Peer,
    /// The selected database.
    pub db: usize,
    /// It speaks RESP3.
    pub resp3: bool,
    /// It may run commands other than AUTH and HELLO.
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
    /// It wants to see every command.
    pub monitor: bool,
    /// Commands queued since MULTI, until EXEC has ended.
    pub queued: Option<QueuedSizes>,
    /// Keys that it watches.
    pub watched: usize,
    /// One of them was touched, as far as is known here: EXEC asks those who know.
    pub is_touched: bool,
    /// What it subscribes to.
    pub subscribed: Subscribed,
    /// CLIENT TRACKING.
    pub tracking: Mode,
    /// CLIENT REPLY.
    pub reply_mode: ReplyMode,
    /// When it was accepted, in Unix milliseconds.
    pub created_ms: u64,
    /// When it last sent something, had read everything sent to it, or had been waiting for us.
    pub active_ms: u64,
    /// The row of its last command: an index into the table.
    pub last_command: Option<usize>,
    /// To be closed once its output is sent.
    pub close_after_reply: bool,
    /// CLIENT KILL: to be closed at once.
    pub killed: bool,
}

impl Session {
    pub(super) fn view(&self) -> View {
        let tracker = self.tracking.tracker(self.handle);
        View { db: self.db, no_touch: self.no_touch, tracker }
    }
}

/// Bytes of a connection's requests that other cores may have at a time: one more is sent, however
/// long it is.
const AWAY_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of requests that one connection sends to other cores in one turn, roughly: some 100 us of
/// work there, where commands are as quick as GET. Other connections' requests cannot overtake a
/// batch, and wait longer for heavy ones.
pub(super) const AWAY_AT_ONCE: usize = 32 * 1024;

/// Replies that other cores may owe a connection: two batches of a full receive buffer.
const OWED_MAX: usize = 2_048;
/// The same until their length is known.
const OWED_FIRST: usize = 128;
/// The same when they are long: enough to keep the other cores busy.
const OWED_MIN: usize = 16;

/// The most of encoded replies that CLIENT LIST shows as the reply buffer (`obl`), as in Redis; the
/// excess is part of `omem`.
const REPLY_BUFFER_BYTES: usize = 16 * 1024;

/// What a connection holds, in bytes, with the names that CLIENT LIST gives it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    /// `qbuf`: received, and not yet part of a whole argument.
    pub query: usize,
    /// `qbuf-free`: room in the buffer for more.
    pub query_free: usize,
    /// `argv-mem`: complete arguments of a request that is arriving, waiting or running.
    pub arguments: usize,
    /// `rbs`: the buffer that replies are encoded into.
    pub reply_buffer: usize,
    /// `obl`: the used part of it.
    pub reply_bytes: usize,
    /// `oll`: what waits besides it, in parts, not bytes.
    pub output_parts: usize,
    /// `omem`: the bytes of these, and of removed values that it has yet to read.
    pub output: usize,
    /// The part of that kept alive only for this reader: see [`Stream::pinned_bytes`].
    pub pinned: usize,
    /// `tot-mem`: all of it.
    pub total: usize,
}

/// One connection of this core.
pub struct Conn {
    pub(super) parser: Parser,
    /// Everything but the parser, so that a request can stay borrowed from the parser.
    pub lane: Lane,
}

/// What becomes of the next request. One is held, or run by a task, once it was parsed, and none is
/// parsed until that has ended.
#[derive(Default)]
pub(super) enum Next {
    /// It is parsed, and runs.
    #[default]
    Parsed,
    /// This one, which must wait: until nothing is owed before it, until its names are gathered,
    /// until a pause ends, or until a snapshot has caught up with those who write.
    Held(Arc<Request>),
    /// A task runs the last one.
    AwaitsTask,
    /// The last one waits for a key.
    Waits,
}

/// Whether the next request waits in the list of `writers`. It may have run before that is noticed, so
/// this is no kind of [`Next`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WriteHold {
    /// It is not listed.
    #[default]
    No,
    /// It is listed.
    Listed,
    /// It has been: the next write runs, whatever the snapshot holds.
    Released,
}

/// What a connection is owed, and what it has declared.
pub struct Lane {
    /// The runtime's name for it.
    pub token: Token,
    /// What it has declared.
    pub session: Session,
    /// The core that accepted it, and when it came from another, in Unix milliseconds.
    pub(super) home: CoreId,
    pub(super) came_ms: u64,
    /// Where its last requests have gone.
    pub(super) trail: Trail,
    /// It is about to move to this core: nothing is parsed until then.
    pub(super) leaving: Option<CoreId>,
    /// Encoded and not yet handed to the socket.
    pub(super) out: Output,
    /// Bytes in flight: 0 when no send is.
    pub(super) in_flight: usize,
    /// Replies owed after `out`.
    pub(super) owed: VecDeque<Owed>,
    /// How much of those is ready.
    pub(super) waiting: Waiting,
    /// Invalidations that come behind the reply of the task that runs for it.
    late: Vec<Push>,
    /// How many may be owed, so that they stay few bytes: learned from earlier replies.
    pub(super) owed_max: usize,
    /// The rest of a reply that is being streamed, once nothing is owed before it.
    pub(super) stream: Option<Box<dyn Stream>>,
    /// What becomes of the next request.
    pub(super) next: Next,
    /// The task that runs the last request, if one does.
    pub(super) awaited: Option<Awaited>,
    /// The commands since MULTI.
    pub(super) queued_commands: Option<Box<Queued>>,
    /// What it watches; shared with an EXEC that runs.
    pub(super) watched: Option<Rc<Watched>>,
    /// With what its client waits for keys, if it does.
    pub(super) blocked: Option<Box<Blocked>>,
    /// Cores on which a batch rests until its next reply is wanted.
    pub(super) resting: Vec<usize>,
    /// Where the last script is that may touch keys of other cores, as far as replies are owed.
    pub(super) script_at: Option<usize>,
    /// The home of the channel of its last PUBLISH, if that is another core.
    pub(super) published_at: Option<usize>,
    /// Bytes of requests that other cores have, or are about to be sent: see
    /// `Batch::request_bytes`.
    pub(super) away_bytes: usize,
    /// Those of them gathered in the current turn.
    pub(super) away_now: usize,
    /// Batches to other cores, by core, gathered while parsing.
    pub(super) batches: Vec<Option<Box<Batch>>>,
    /// In the queue of connections with work.
    pub(super) queued: bool,
    /// The look with which its last bytes came: see `queue`.
    pub(super) look: u64,
    /// In the queue of connections with a stream.
    pub(super) streaming: bool,
    /// In the list of connections with output.
    pub(super) dirty: bool,
    /// In the list of connections with output that they did not ask for.
    pub(super) pushed: bool,
    /// Of the output behind what is being sent, some is a reply.
    pub(super) reply_waits: bool,
    /// Until when its output waits for that of the next request: see `corked`. It may be over.
    pub(super) corked_until: Option<u64>,
    /// The next request has arrived only in part.
    pub(super) wanting: bool,
    /// The peer sends no more.
    pub(super) eof: bool,
    /// Since then, how long its stream has searched without anything to send.
    pub(super) silent_ns: u64,
    /// Whether it is received from.
    pub(super) receiving: Receiving,
    /// In the list of those that wait for the end of CLIENT PAUSE. Its request may have run before
    /// that is noticed, so this is no kind of `next`.
    pub(super) awaits_pause: bool,
    /// Whether its next write waits.
    pub(super) write_hold: WriteHold,
    /// The runtime was asked to close it. A send may still be in flight: one that is killed does not
    /// wait for it.
    pub(super) closing: bool,
    /// `rbp`: the most that was sent at once lately, up to the reply buffer's size, and since when.
    pub(super) reply_peak: (usize, u64),
    /// Since when its output has been above the soft limit, in Unix milliseconds.
    pub(crate) soft_since_ms: Option<u64>,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
}

impl Conn {
    pub(super) fn new(token: Token, session: Session, bulk_max: usize, cores: usize) -> Self {
        let parser = Parser::new(bulk_max, session.authenticated);
        Self { parser, lane: Lane::new(token, session, cores) }
    }

    /// True when the reply of another request of its pipeline will soon be there: one waits or runs,
    /// or has arrived behind one that was run by a task. Not of one that waits for others.
    pub(super) fn expects_more(&self) -> bool {
        let lane = &self.lane;
        if lane.awaits_pause || lane.waits_to_write() || lane.is_blocked() {
            return false;
        }
        let follows = lane.corked_until.is_some() && lane.queued && self.parser.pending_bytes() > 0;
        lane.stream.is_none() && (follows || !matches!(lane.next, Next::Parsed))
    }

    /// Bytes received that are not yet part of a whole argument.
    #[must_use]
    pub fn query_bytes(&self) -> usize {
        self.parser.query_bytes()
    }

    /// The first of these, for the log.
    #[must_use]
    pub fn query_head(&self) -> &[u8] {
        self.parser.query_head()
    }

    /// Bytes of memory held by the connection.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.sizes().total
    }

    /// What it holds. What several clients read or wait for (a removed value, a line of MONITOR) is
    /// held once, and counted for each. Cost: O(1), plus a look at each block of a large request
    /// and at some of the waiting replies.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let (parser, lane) = (&self.parser, &self.lane);
        let (encoded, reply_buffer) = lane.out.tail_bytes();
        let reply_bytes = if encoded > REPLY_BUFFER_BYTES { 0 } else { encoded };
        let (parts, _) = lane.out.parts();
        let others = [lane.in_flight > 0, encoded > reply_bytes, lane.stream.is_some()];
        let pinned = lane.pinned_bytes();
        let output = lane.buffered_bytes() + pinned - reply_bytes;
        let held = lane.held().map_or(0, |request| request.bytes());
        let blocked = lane.blocked.as_ref().map_or(0, |blocked| blocked.memory_bytes());
        let owed = blocked + lane.owed.capacity() * size_of::<Owed>() + lane.waiting.spare_bytes();
        Sizes {
            query: parser.query_bytes(),
            query_free: parser.free_bytes(),
            arguments: parser.argument_bytes() + lane.away_bytes + held,
            reply_buffer,
            reply_bytes,
            output_parts: parts + lane.owed.len() + others.iter().filter(|is| **is).count(),
            output,
            pinned,
            total: size_of::<Self>()
                + parser.memory_bytes()
                + (lane.away_bytes + held + owed)
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
            home: 0,
            came_ms: 0,
            trail: Trail::default(),
            leaving: None,
            out: Output::default(),
            in_flight: 0,
            owed: VecDeque::new(),
            waiting: Waiting::default(),
            late: Vec::new(),
            owed_max: OWED_FIRST,
            stream: None,
            next: Next::default(),
            awaited: None,
            queued_commands: None,
            watched: None,
            blocked: None,
            resting: Vec::new(),
            script_at: None,
            published_at: None,
            away_bytes: 0,
            away_now: 0,
            batches: (0..cores).map(|_| None).collect(),
            queued: false,
            look: 0,
            streaming: false,
            dirty: false,
            pushed: false,
            reply_waits: false,
            corked_until: None,
            wanting: false,
            eof: false,
            silent_ns: 0,
            receiving: Receiving::default(),
            awaits_pause: false,
            write_hold: WriteHold::default(),
            closing: false,
            reply_peak: (0, 0),
            soft_since_ms: None,
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    /// True while a task runs a request.
    pub(super) fn awaits_task(&self) -> bool {
        matches!(self.next, Next::AwaitsTask)
    }

    /// The request that is held.
    pub(super) fn held(&self) -> Option<&Request> {
        match &self.next {
            Next::Held(request) => Some(request),
            Next::Parsed | Next::AwaitsTask | Next::Waits => None,
        }
    }

    /// Takes the request that is held, to be run now.
    pub(super) fn take_held(&mut self) -> Option<Arc<Request>> {
        match std::mem::take(&mut self.next) {
            Next::Held(request) => Some(request),
            other => {
                self.next = other;
                None
            }
        }
    }

    /// A request that was parsed must wait.
    pub(super) fn hold(&mut self, request: Arc<Request>) {
        debug_assert!(matches!(self.next, Next::Parsed), "another one waits");
        self.next = Next::Held(request);
    }

    /// A task runs a request that was parsed.
    pub(super) fn await_task(&mut self) {
        debug_assert!(matches!(self.next, Next::Parsed), "another one waits");
        self.next = Next::AwaitsTask;
    }

    /// The last request for another core is an EXEC of these commands.
    pub(super) fn attach(&mut self, core: usize, queued: Box<Queued>) {
        let batch = self.batches[core].as_mut().expect("it has just been sent there");
        let bytes = batch.attach(queued);
        self.away_bytes += bytes;
        self.away_now += bytes;
    }

    /// What it holds of a transaction: what is queued, and what is watched.
    pub(super) fn transaction_bytes(&self) -> usize {
        let queued = self.session.queued.map_or(0, |sizes| sizes.held_bytes);
        queued + self.watched.as_ref().map_or(0, |watched| watched.held_bytes())
    }

    /// True when it waits for a key: flag `b` of CLIENT LIST.
    pub(crate) fn is_blocked(&self) -> bool {
        matches!(self.next, Next::Waits)
    }

    /// True when its next write waits for a snapshot or for keyspace events.
    pub(super) fn waits_to_write(&self) -> bool {
        self.write_hold == WriteHold::Listed
    }

    /// How far its client has gone.
    pub(super) fn gone(&self) -> Gone {
        if self.eof { Gone::Ended } else { Gone::No }
    }

    /// The task is done.
    pub(super) fn task_done(&mut self) {
        debug_assert!(self.awaits_task(), "no task runs for it");
        self.next = Next::Parsed;
        self.awaited = None;
    }

    /// Bytes of replies that wait for the socket.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.out.len() + self.in_flight
    }

    /// Those, what waits its turn after them, and what is kept for the rest of a reply: more than a
    /// little for a MONITOR, and for a client that reads a removed value.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.buffered_bytes() + self.pinned_bytes()
    }

    /// Bytes that wait for the socket or for their turn, beyond the reply buffer.
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
        self.reply_peak.0
    }

    /// This many bytes are sent at once. The peak is one of the last seconds.
    pub(super) fn note_sent(&mut self, bytes: usize, now_ms: u64) {
        /// As Redis's `reply-buffer-peak-reset-time`.
        const RESET_MS: u64 = 5_000;
        let (peak, since_ms) = self.reply_peak;
        if bytes > peak || now_ms.saturating_sub(since_ms) > RESET_MS {
            self.reply_peak = (bytes.min(REPLY_BUFFER_BYTES), now_ms);
        }
    }

    /// True when something is being done for the client: it is not idle then. Not reading what was
    /// sent is no excuse.
    pub(crate) fn is_working(&self) -> bool {
        let waits = match self.owed.front() {
            Some(Owed::Remote(core) | Owed::Silent(core)) => !self.resting.contains(core),
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

    /// True for a client that is mostly sent what it does not ask for.
    pub(super) fn is_pushed_to(&self) -> bool {
        let session = &self.session;
        session.subscribed.is_any() || session.tracking.is_on || session.monitor
    }

    /// True when nothing is owed and nothing runs.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.owed.is_empty() && self.stream.is_none() && matches!(self.next, Next::Parsed)
    }

    /// Appends a reply to all that is owed.
    pub(super) fn owe(&mut self, out: Output, stream: Option<Box<dyn Stream>>) {
        if self.owed.is_empty() && self.stream.is_none() {
            self.out.append(out);
            self.stream = stream;
        } else {
            self.owed.push_back(self.waiting.take_in(out, stream));
        }
    }

    /// Appends an invalidation to all that is owed, and to what a task that runs will reply: that may
    /// have read what is no longer valid.
    pub(super) fn owe_late(&mut self, (out, rest): Push) {
        if self.awaits_task() {
            self.late.push((out, rest));
        } else {
            self.owe(out, rest);
        }
    }

    /// The task has replied: what came after that follows.
    pub(super) fn let_out_late(&mut self) {
        for (out, rest) in std::mem::take(&mut self.late) {
            self.owe(out, rest);
        }
    }

    /// Bytes of what comes behind the reply of a task.
    pub(super) fn late_bytes(&self) -> usize {
        self.late.iter().map(|(out, rest)| out.len() + held_by(rest.as_deref())).sum()
    }

    /// [`Lane::owe`] of an encoded reply.
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

    /// The encoded reply owed at `slot` has come, before its turn.
    pub(super) fn flat_at(&mut self, slot: usize, reply: &[u8]) {
        self.owed[slot] = self.waiting.take_in_flat(reply);
    }

    /// The reply owed at `slot` has come, before its turn.
    pub(super) fn ready_at(&mut self, slot: usize, out: Output, stream: Option<Box<dyn Stream>>) {
        self.owed[slot] = self.waiting.take_in(out, stream);
    }

    /// Moves replies whose turn has come into the output, up to one that continues as a stream.
    pub(super) fn settle(&mut self) {
        let is_here = |owed: &Owed| matches!(owed, Owed::Early(_) | Owed::Ready(_));
        while self.stream.is_none() && self.owed.front().is_some_and(is_here) {
            match self.owed.pop_front() {
                Some(Owed::Early(place)) => self.waiting.let_out_early(place, &mut self.out),
                Some(Owed::Ready(ready)) => {
                    self.waiting.let_out(&ready);
                    self.out.append(ready.out);
                    self.stream = ready.stream;
                }
                _ => {}
            }
        }
    }

    /// Another core has sent `replies` replies of `bytes` bytes: decides how many may be owed next,
    /// since those too are made ahead of the socket. Long ones shrink it at once; short ones let it
    /// double where it was used up, so that one short reply says nothing about a pipeline.
    pub(super) fn learn_owed(&mut self, replies: usize, bytes: usize) {
        let each = (bytes / replies.max(1)).max(1);
        let fitting = darter_base::limits::REPLY_BUFFER_BYTES / 2 / each;
        let used_up = replies * self.batches.len() * 2 >= self.owed_max;
        let grown = if used_up { self.owed_max * 2 } else { self.owed_max };
        self.owed_max = fitting.min(grown).clamp(OWED_MIN, OWED_MAX);
    }

    /// The cores that owe it replies.
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

    /// True when no other core owes it replies.
    pub(super) fn is_owed_only_by(&self, core: usize) -> bool {
        self.owed.iter().all(|owed| match owed {
            Owed::Remote(from) | Owed::Silent(from) => *from == core,
            Owed::Early(_) | Owed::Ready(_) => true,
        })
    }

    /// True when the reply at `slot` is to come from `core`.
    pub(super) fn owes_from(&self, slot: usize, core: usize) -> bool {
        match self.owed.get(slot) {
            Some(Owed::Remote(from) | Owed::Silent(from)) => *from == core,
            _ => false,
        }
    }

    /// True when a request may be parsed now.
    pub(super) fn may_parse(&self) -> bool {
        matches!(self.next, Next::Parsed)
            && self.stream.is_none()
            && self.owed.len() < self.owed_max
            && self.away_bytes < AWAY_BYTES_MAX
            && self.output_bytes() + self.waiting.bytes
                < darter_base::limits::REPLY_BUFFER_BYTES / 4
            && !self.session.close_after_reply
            && !self.session.killed
    }
}

impl Drop for Lane {
    /// Who is closed may be owed very much, above all if it has not read for long.
    fn drop(&mut self) {
        let (owed, late) = (std::mem::take(&mut self.owed), std::mem::take(&mut self.late));
        Unread::free(owed, late, self.waiting.bytes);
    }
}

//! The thread of one core: it receives from sockets and other cores, runs a turn, and sends to
//! sockets and other cores.
//!
//! The order of a turn: sockets are polled first, and messages are taken after that, so that every
//! message on which received bytes depend is taken as well. Then the slice runs: first the
//! messages, then the connections (docs/design/0011-pipeline-order.md). Messages to other cores
//! leave before replies, so that no client sees a change before the messages that precede it were
//! sent.
//!
//! While the ring to another core is full, no message and no reply leaves, and the sockets are not
//! polled, because more requests would only make more messages. Messages from other cores are still
//! taken, so that cores which wait for each other make progress.

use crate::arrivals::Arrivals;
use crate::doors::Doors;
use crate::engine::replay::loading_ended;
use crate::engine::{Action, Core, Moving, Peer, REPLAY, Wait};
use crate::journal::JournalState;
use crate::post::Post;
use crate::replay::Replay;
use crate::settings::Settings;
use crate::spent;
use crate::spin::PollTime;
use darter_runtime::mailbox::Mailbox;
use darter_runtime::net::{self, Address, Event, Net, SendBuffer, Token};
use darter_runtime::topology;
use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The thread of one core.
pub(crate) struct Thread {
    pub(crate) core: Rc<Core>,
    pub(crate) net: Rc<RefCell<Net>>,
    /// The TCP listeners. Core 0 only.
    pub(crate) doors: Doors,
    pub(crate) mailbox: Rc<RefCell<Mailbox<Post>>>,
    /// Checks the sockets and the mailbox for arrivals while the core works.
    pub(crate) arrivals: Rc<Arrivals>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) inbox: Option<crate::load::Inbox>,
    /// Replays this core's commands of append-only files, after the base.
    pub(crate) replay: Option<Replay>,
    pub(crate) loaded: Arc<crate::load::Loaded>,
    pub(crate) loading: bool,
    /// By core: true if the core has nothing left to do. Updated while the server stops.
    pub(crate) quiet: Arc<[AtomicBool]>,
    /// Decides how long the core polls before it sleeps; `None` if it never polls.
    pub(crate) poll_time: Option<PollTime>,
    /// True if requests or messages have arrived since the core last polled before a sleep.
    pub(crate) had_requests: bool,
    /// The time since which the core has been idle, if it had requests before that.
    pub(crate) waiting_since: Option<u64>,
}

/// How long a stopping core waits for clients to read their replies.
const LINGER_NS: u64 = 2_000_000_000;
/// Like [`LINGER_NS`], for a stop after the final snapshot: no new command could run during that
/// snapshot.
const FROZEN_LINGER_NS: u64 = 20_000_000;

impl Thread {
    /// Runs until the process must stop and every received request is answered.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut next_core = 0;
        let mut wait = Wait::Nothing;
        let mut stopping_since = None;
        loop {
            self.look(wait, &mut next_core)?;
            let is_loading = self.turn()?;
            wait = if is_loading { Wait::Nothing } else { self.core.wait() };
            if self.stop.load(Ordering::Acquire) {
                let now = self.core.clock.monotonic_ns();
                let since = *stopping_since.get_or_insert_with(|| {
                    self.net.borrow_mut().stop_listening();
                    self.core.end_moves();
                    now
                });
                if self.all_are_quiet() || now - since > self.linger_ns() {
                    self.report_losses();
                    return self.net.borrow_mut().flush_submissions();
                }
                wait = match wait {
                    Wait::Nothing => Wait::Nothing,
                    Wait::Millis(_) | Wait::Forever => Wait::Millis(1),
                };
            }
        }
    }

    /// How long to wait for clients to read. After the final snapshot, only earlier replies are
    /// left to send, so the wait is short.
    fn linger_ns(&self) -> u64 {
        if self.core.admin.shared.saves.is_last() { FROZEN_LINGER_NS } else { LINGER_NS }
    }

    /// Reports this core's unsaved changes, which are lost when the process ends. The journal has
    /// them all.
    fn report_losses(&self) {
        if self.core.admin.shared.journal.state() == JournalState::On {
            return;
        }
        let shard = &self.core.tx.home().shard;
        let [changes, keys] = &self.core.admin.shared.lost;
        changes.fetch_add(self.core.saving.unsaved(shard.lasting_changes()), Ordering::Relaxed);
        keys.fetch_add(shard.keys() as u64, Ordering::Relaxed);
    }

    /// True if no core has anything left to do. A quiet core must still run, because the replies of
    /// another core may depend on it.
    fn all_are_quiet(&self) -> bool {
        let quiet = self.core.is_quiet() && self.mailbox.borrow().backlog() == 0;
        self.quiet[self.core.id()].store(quiet, Ordering::SeqCst);
        self.quiet.iter().all(|core| core.load(Ordering::SeqCst))
    }

    /// Polls the sockets, takes the messages, and passes everything to the core.
    fn look(&mut self, wait: Wait, next_core: &mut usize) -> io::Result<()> {
        let may_wait = wait != Wait::Nothing && self.mailbox.borrow().backlog() == 0;
        let wait = if !may_wait || self.poll_before_sleep()? { Wait::Nothing } else { wait };
        let may_sleep = || self.mailbox.borrow_mut().before_sleep();
        let sleep = match wait {
            Wait::Millis(ms) if may_sleep() => net::Wait::Until(ms * 1_000_000),
            Wait::Forever if may_sleep() => net::Wait::Forever,
            _ => net::Wait::Nothing,
        };
        let core = &self.core;
        let holds = self.mailbox.borrow().backlog() > 0;
        core.hold_requests(holds);
        let (mut accepted, mut moving) = (Vec::new(), Vec::new());
        let (mut begun, mut asked) = (false, false);
        if !holds {
            self.net.borrow_mut().poll(sleep, &mut |event| {
                if !begun {
                    begun = true;
                    core.begin_turn();
                }
                match event {
                    Event::Accepted { conn, peer, .. } => accepted.push((conn, peer)),
                    Event::Received { conn, bytes } => {
                        asked = true;
                        core.received(conn, bytes);
                    }
                    Event::Eof { conn } => core.ended(conn),
                    Event::Sent { conn, buffer, .. } => {
                        core.sent(conn, Some(spent::take_back(buffer)));
                    }
                    Event::Closed { conn, .. } => core.closed(conn),
                    Event::Released { conn, socket } => {
                        // Called at once, because the next event may be a new connection with the
                        // same token index.
                        moving.extend(core.released(conn).map(|(to, state)| (to, socket, state)));
                    }
                    Event::Woken => {}
                }
            })?;
        }
        if !begun {
            core.begin_turn();
        }
        self.mailbox.borrow_mut().after_sleep();
        for (conn, peer) in accepted {
            self.place(conn, &peer, next_core);
        }
        for (to, socket, state) in moving {
            self.move_to(to, socket, state);
        }
        let (core, net, quiet) = (&self.core, &self.net, &self.quiet);
        let messages = self.mailbox.borrow_mut().drain(|from, post| match post {
            Post::Mail(mail) => core.deliver(from, mail),
            Post::Adopt(parcel) => {
                let peer = peer_of(&parcel.peer);
                let token = net.borrow_mut().adopt(parcel);
                core.accepted(token, peer);
            }
            Post::Move(socket, moving) => {
                // Cleared before the sending core can see that the message was taken, and report
                // itself quiet.
                quiet[core.id()].store(false, Ordering::SeqCst);
                core.arrived(net.borrow_mut().take_over(socket), moving);
            }
        });
        if asked {
            self.arrivals.note_request();
        }
        if asked || messages > 0 {
            self.had_requests = true;
            self.end_waiting();
        }
        Ok(())
    }

    /// Polls for a short time, if the core had requests before it became idle: see `spin`. Returns
    /// true if anything has arrived, including a completed send.
    fn poll_before_sleep(&mut self) -> io::Result<bool> {
        if self.core.tx.cores() > 1 {
            // Idle time, for the load that `moving` compares.
            self.core.rests(self.core.clock.monotonic_ns());
        }
        let Some(poll_time) = &self.poll_time else { return Ok(false) };
        let look_ns = poll_time.before_sleep();
        if self.had_requests && look_ns > 0 {
            self.net.borrow_mut().flush_submissions()?;
            if self.has_come()? {
                return Ok(true); // Usually a completed send, which is not an arrival.
            }
        }
        if std::mem::take(&mut self.had_requests) {
            self.waiting_since = Some(self.core.clock.monotonic_ns());
        }
        let Some(since) = self.waiting_since.filter(|_| look_ns > 0) else { return Ok(false) };
        let (mut came, mut now) = (false, self.core.clock.monotonic_ns());
        let began = now;
        while !came && now < since + look_ns {
            topology::give_way();
            came = self.has_come()?;
            let yielded = std::mem::replace(&mut now, self.core.clock.monotonic_ns());
            if let Some(poll_time) = &mut self.poll_time
                && poll_time.yielded(now.saturating_sub(yielded))
            {
                break;
            }
        }
        self.core.polled(now - began);
        Ok(came)
    }

    /// Handles an arrival: if the core was idle, reports the length of its wait to `spin`.
    fn end_waiting(&mut self) {
        if let (Some(poll_time), Some(since)) = (&mut self.poll_time, self.waiting_since.take()) {
            poll_time.learn(self.core.clock.monotonic_ns().saturating_sub(since));
        }
    }

    fn has_come(&mut self) -> io::Result<bool> {
        Ok(self.mailbox.borrow().has_mail() || self.net.borrow_mut().has_news()?)
    }

    /// Gives a new connection to the next core, round robin, so that few connections are spread
    /// evenly.
    fn place(&mut self, conn: Token, peer: &net::Peer, next_core: &mut usize) {
        let target = *next_core % self.core.tx.cores();
        *next_core += 1;
        if target != self.core.id()
            && let Some(parcel) = self.net.borrow_mut().hand_over(conn)
        {
            self.mailbox.borrow_mut().post(target, Post::Adopt(parcel));
            return;
        }
        self.core.accepted(conn, peer_of(peer));
    }

    /// Sends a connection to the core of its keys, unless its move was cancelled.
    fn move_to(&self, core: usize, socket: OwnedFd, moving: Box<Moving>) {
        if core == self.core.id() {
            let token = self.net.borrow_mut().take_over(socket);
            return self.core.arrived(token, moving);
        }
        self.mailbox.borrow_mut().post(core, Post::Move(socket, moving));
    }

    /// Runs a slice, and performs its outputs. Returns true while there is more to load.
    fn turn(&mut self) -> io::Result<bool> {
        self.look_at_loading();
        if self.core.serve_all() {
            self.send_outputs();
            let mut net = self.net.borrow_mut();
            net.flush_submissions()?;
            net.note_news(); // A completed send must not count as a knock.
        }
        self.core.work_on();
        let is_loading = self.load_step();
        self.send_outputs();
        Ok(is_loading || self.replay.as_ref().is_some_and(Replay::is_due))
    }

    /// Sends the messages to other cores, and then performs the core's actions: no client may see a
    /// change before the messages that precede it were sent. While a ring is full, replies wait in
    /// the core.
    fn send_outputs(&mut self) {
        let mut outbox = Vec::new();
        self.core.drain_outbox(&mut outbox);
        for (to, mail) in outbox {
            self.mailbox.borrow_mut().post(to, Post::Mail(mail));
        }
        if !self.mailbox.borrow_mut().flush() {
            return;
        }
        let mut actions = Vec::new();
        self.core.drain_actions(&mut actions);
        for action in actions {
            self.act(action);
        }
    }

    fn listen(&mut self, settings: &Settings, ticket: u64) {
        let net = &mut self.net.borrow_mut();
        let listens = self.doors.follow(net, settings, Net::listen_tcp_at_once);
        if let Err(why) = &listens {
            tracing::warn!("{why}; the addresses are not changed");
        }
        self.core.tx.complete(ticket, Box::new(listens.is_ok()));
    }

    /// Loads a portion of the file. Returns true while there is more.
    fn load_step(&mut self) -> bool {
        let Some(inbox) = &mut self.inbox else {
            return self.replay_step();
        };
        let more = self.core.load_slice(|shard, preempt| inbox.step(shard, preempt));
        if inbox.is_finished() {
            self.inbox = None;
            if self.replay.is_none() {
                self.loaded.one_is_done();
            }
            return true;
        }
        more
    }

    /// Replays a portion of the append-only files, after the base was loaded. Returns true while there
    /// is more.
    fn replay_step(&mut self) -> bool {
        if let Some(replay) = &mut self.replay {
            let more = replay.step(&self.core);
            if replay.is_finished() {
                self.replay = None;
                self.loaded.one_is_done();
                return true;
            }
            return more;
        }
        false
    }

    /// Ends loading when all cores are done: before messages of a core run that has seen it.
    fn look_at_loading(&mut self) {
        if self.loading && self.loaded.all_are_done() {
            self.loading = false;
            loading_ended(&self.core);
        }
    }

    fn act(&mut self, action: Action) {
        if action.token() == Some(REPLAY) {
            if let Some(replay) = &mut self.replay {
                replay.act(&self.core, action);
            }
            return;
        }
        let mut net = self.net.borrow_mut();
        let (conn, refused) = match action {
            Action::SendFlat(conn, bytes) => (conn, net.send(conn, SendBuffer::Flat(bytes))),
            Action::Send(conn, parts) => {
                let parts = parts.into_iter().map(part).collect();
                (conn, net.send(conn, SendBuffer::Parts(parts)))
            }
            Action::Pause(conn) => return net.pause_receive(conn),
            Action::Resume(conn) => return net.resume_receive(conn),
            Action::Close(conn) => return net.close(conn),
            Action::Release(conn) => return net.release(conn),
            Action::Listen(settings, ticket) => {
                drop(net);
                return self.listen(&settings, ticket);
            }
        };
        if let Err(buffer) = refused {
            // If the send fails, the connection is closing: the event `Closed` follows, or has been
            // handled.
            self.core.sent(conn, Some(spent::take_back(buffer)));
        }
    }
}

fn part(part: darter_resp::Part) -> net::Part {
    match part {
        darter_resp::Part::Bytes(bytes) => net::Part::Bytes(bytes),
        darter_resp::Part::Shared(piece, range) => net::Part::Shared(piece, range),
    }
}

fn peer_of(peer: &net::Peer) -> Peer {
    let is_local = match &peer.remote {
        Address::Tcp(address) => address.ip().is_loopback(),
        Address::Unix(_) => true,
    };
    Peer { remote: peer.remote.to_string(), local: peer.local.to_string(), is_local }
}

#[cfg(test)]
mod tests;

//! The network backend on epoll, for kernels and containers that forbid io_uring. It turns
//! readiness into completions.
//!
//! Sends are queued and made together at the next poll, with one system call for each connection.
//! Receives use one buffer, with one system call for each readiness, so that no client can occupy
//! the whole turn. Interest is level-triggered and changed only where necessary: `Out` is added
//! while a socket is full, and `In` is removed after the end of input or when a paused client sends
//! nevertheless.
//!
//! Invariants:
//! - I1: a connection is in the table until its `Closed` or `Released` is in `pending`, and never
//!   after. Its place in the table is free once that event is delivered.
//! - I2: `sending` is set from `send` until the `Sent` is in `pending`.
//! - I3: a fresh connection (not armed yet) is not in the kernel's set.
//!
//! Not here: how much a connection may send. See `server`.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags};

use super::RECEIVED_MAX;
use super::buffer::{IOVECS_MAX, SendBuffer, Sending};
use super::event::{Event, Parcel, Peer, Token, Wait};
use super::listen::{self, Listener};
use super::pending::Pending;
use super::slab::Slab;
use super::waker::Waker;

/// The most bytes that one receive takes.
const RECEIVE_BYTES: usize = 64 * 1024;
/// The most events that one wait reports. The next wait reports the rest.
const EVENTS_MAX: usize = 512;
/// The most connections that one listener accepts in a turn.
const ACCEPTS_MAX: usize = 256;
/// Tokens with an index from here on are those of listeners. The last index is that of the waker.
const LISTENERS_FROM: u32 = 0xffff_0000;
const WAKER: u32 = u32::MAX;

type Flags = epoll::EventFlags;

/// How far the sending side is shut down.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shut {
    Open,
    AfterSend,
    Done,
}

struct Conn {
    socket: OwnedFd,
    /// The connection and its peer, for the event, until receiving begins.
    fresh: Option<Box<(usize, Peer)>>,
    /// The events that the kernel's set watches for; `None` when it is not in the set.
    interest: Option<Flags>,
    paused: bool,
    eof: bool,
    /// The socket is full: the backend waits for `Out`.
    blocked: bool,
    shut: Shut,
    sending: Option<Sending>,
}

impl Conn {
    fn new(socket: OwnedFd, fresh: Option<Box<(usize, Peer)>>) -> Self {
        Self {
            socket,
            fresh,
            interest: None,
            paused: false,
            eof: false,
            blocked: false,
            shut: Shut::Open,
            sending: None,
        }
    }

    fn wanted(&self) -> Flags {
        let mut flags = Flags::empty();
        flags.set(Flags::IN, !self.paused && !self.eof);
        flags.set(Flags::OUT, self.blocked);
        flags
    }
}

/// A [`super::Net`] on epoll.
pub struct Epoll {
    set: OwnedFd,
    conns: Slab<Conn>,
    listeners: Vec<Option<Listener>>,
    resting: bool,
    waker: Waker,
    fresh: Vec<Token>,
    queued: Vec<Token>,
    pending: Vec<Pending>,
    /// The last blocking poll delivered pending events without asking the kernel.
    looked_away: bool,
    events: Vec<epoll::Event>,
    /// Events that are not handled yet, because they are more than one turn handles.
    ready: VecDeque<(u64, Flags)>,
    received: Box<[u8]>,
    /// The bytes that this poll has handed over.
    received_bytes: usize,
    /// See [`super::Net::note_news`].
    noted: usize,
}

impl Epoll {
    pub(super) fn open(waker: Waker) -> io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&set, waker.fd(), data(Token { index: WAKER, generation: 0 }), Flags::IN)?;
        Ok(Self {
            set,
            conns: Slab::new(),
            listeners: Vec::new(),
            resting: false,
            waker,
            fresh: Vec::new(),
            queued: Vec::new(),
            pending: Vec::new(),
            looked_away: false,
            events: Vec::with_capacity(EVENTS_MAX),
            ready: VecDeque::with_capacity(EVENTS_MAX),
            received_bytes: 0,
            noted: 0,
            received: vec![0; RECEIVE_BYTES].into_boxed_slice(),
        })
    }

    pub(super) fn add_listener(&mut self, listener: Listener) -> io::Result<usize> {
        let free = self.listeners.iter().position(Option::is_none);
        let id = free.unwrap_or(self.listeners.len());
        assert!(id < (WAKER - LISTENERS_FROM) as usize, "too many listeners");
        epoll::add(&self.set, &listener.socket, data(listener_token(id)), Flags::IN)?;
        if free.is_none() {
            self.listeners.push(None);
        }
        self.listeners[id] = Some(listener);
        Ok(id)
    }

    pub(super) fn listener(&self, id: usize) -> Option<&Listener> {
        self.listeners.get(id)?.as_ref()
    }

    pub(super) fn stop_listener(&mut self, id: usize) {
        // Dropping the socket removes it from the set: there is no other descriptor for it.
        self.listeners[id] = None;
    }

    pub(super) fn stop_listening(&mut self) {
        (0..self.listeners.len()).for_each(|id| self.stop_listener(id));
        self.resting = false;
    }

    pub(super) fn connections(&self) -> usize {
        self.conns.len()
    }

    pub(super) fn tokens(&self) -> Vec<Token> {
        self.conns.tokens()
    }

    pub(super) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(super) fn poll(
        &mut self,
        wait: Wait,
        handler: &mut dyn FnMut(Event<'_>),
    ) -> io::Result<()> {
        self.noted = 0;
        self.flush()?;
        let had_pending = !self.pending.is_empty();
        self.deliver(handler);
        // The caller wants to act on its events before it sleeps. Returning at once saves a system
        // call. But that never happens twice in a row, because a busy sender would starve all
        // others.
        if had_pending && wait != Wait::Nothing && !self.looked_away {
            self.looked_away = true;
            return Ok(());
        }
        self.looked_away = false;
        if self.ready.is_empty() {
            self.wait(if had_pending { Wait::Nothing } else { wait })?;
        }
        self.received_bytes = 0;
        while self.received_bytes < RECEIVED_MAX
            && let Some((word, flags)) = self.ready.pop_front()
        {
            self.on_event(word, flags, handler);
        }
        self.deliver(handler);
        Ok(())
    }

    pub(super) fn has_news(&mut self) -> io::Result<bool> {
        if self.ready.is_empty() && self.pending.is_empty() {
            self.wait(Wait::Nothing)?;
        }
        Ok(!self.ready.is_empty() || !self.pending.is_empty())
    }

    pub(super) fn note_news(&mut self) {
        self.noted = self.ready.len() + self.pending.len();
    }

    pub(super) fn has_newer(&mut self) -> io::Result<bool> {
        // Another call of `epoll_wait` would report events that are not handled yet, and take a
        // wake twice.
        if self.ready.is_empty() && self.pending.len() <= self.noted {
            self.wait(Wait::Nothing)?;
        }
        Ok(self.ready.len() + self.pending.len() > self.noted)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        let mut fresh = std::mem::take(&mut self.fresh);
        for token in fresh.drain(..) {
            self.arm(token);
        }
        self.fresh = fresh;
        let mut queued = std::mem::take(&mut self.queued);
        for token in queued.drain(..) {
            self.push(token);
        }
        self.queued = queued;
        Ok(())
    }

    pub(super) fn send(&mut self, token: Token, buffer: SendBuffer) -> Result<(), SendBuffer> {
        let Some(conn) = self.conns.get_mut(token) else { return Err(buffer) };
        assert!(conn.sending.is_none(), "a second send for {token:?}");
        assert!(conn.shut == Shut::Open, "a send after shutdown_send for {token:?}");
        conn.sending = Some(Sending::new(buffer));
        self.queued.push(token);
        Ok(())
    }

    pub(super) fn pause_receive(&mut self, token: Token) {
        if let Some(conn) = self.conns.get_mut(token) {
            // The interest is changed only if the client keeps sending: see `on_conn`.
            conn.paused = true;
        }
    }

    pub(super) fn resume_receive(&mut self, token: Token) {
        if let Some(conn) = self.conns.get_mut(token) {
            conn.paused = false;
            self.watch(token);
        }
    }

    pub(super) fn shutdown_send(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token) else { return };
        if conn.shut == Shut::Open {
            conn.shut = Shut::AfterSend;
            self.shut_if_sent(token);
        }
    }

    pub(super) fn close(&mut self, token: Token) {
        self.finish(token, None);
    }

    pub(super) fn hand_over(&mut self, token: Token) -> Option<Parcel> {
        let conn = self.conns.get_mut(token)?;
        assert!(conn.sending.is_none(), "handed over with a send in flight: {token:?}");
        let (listener, peer) = *conn.fresh.take()?;
        let conn = self.conns.remove(token)?;
        Some(Parcel { socket: conn.socket, listener, peer })
    }

    pub(super) fn adopt(&mut self, parcel: Parcel) -> Token {
        let fresh = Box::new((parcel.listener, parcel.peer));
        let token = self.conns.insert(Conn::new(parcel.socket, Some(fresh)));
        self.fresh.push(token);
        token
    }

    pub(super) fn release(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token) else { return };
        let is_idle = conn.sending.is_none() && conn.shut == Shut::Open;
        assert!(is_idle, "given away while it sends: {token:?}");
        // Later reports of the set for this token find no connection.
        self.unwatch(token);
        let Some(conn) = self.conns.leave(token) else { return };
        self.pending.push(Pending::Released(token, conn.socket));
    }

    pub(super) fn take_over(&mut self, socket: OwnedFd) -> Token {
        // Sockets that io_uring used are blocking. Making a socket non-blocking cannot fail.
        let _ = rustix::io::ioctl_fionbio(&socket, true);
        let token = self.conns.insert(Conn::new(socket, None));
        self.arm(token);
        token
    }

    fn deliver(&mut self, handler: &mut dyn FnMut(Event<'_>)) {
        for pending in self.pending.drain(..) {
            let ended = pending.ended();
            handler(pending.into_event());
            if let Some(token) = ended {
                self.conns.vacate(token);
            }
        }
    }

    fn wait(&mut self, wait: Wait) -> io::Result<()> {
        let wait = if self.resting { self.rouse(wait) } else { wait };
        let timeout = match wait {
            Wait::Nothing => Some(Timespec::default()),
            Wait::Until(nanos) => Some(whole_millis(nanos)),
            Wait::Forever => None,
        };
        match epoll::wait(&self.set, spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        self.ready.extend(self.events.drain(..).map(|event| (event.data.u64(), event.flags)));
        Ok(())
    }

    fn on_event(&mut self, word: u64, flags: Flags, handler: &mut dyn FnMut(Event<'_>)) {
        let token = token(word);
        match token.index {
            WAKER => {
                self.waker.clear();
                handler(Event::Woken);
            }
            LISTENERS_FROM.. => self.accept((token.index - LISTENERS_FROM) as usize, handler),
            _ => self.on_conn(token, flags, handler),
        }
    }

    fn on_conn(&mut self, token: Token, flags: Flags, handler: &mut dyn FnMut(Event<'_>)) {
        let over = flags.intersects(Flags::HUP | Flags::ERR);
        let Some(conn) = self.conns.get_mut(token) else { return };
        if conn.blocked && (over || flags.contains(Flags::OUT)) {
            self.push(token);
        }
        let Some(conn) = self.conns.get_mut(token) else { return };
        if !conn.paused && !conn.eof {
            if over || flags.contains(Flags::IN) {
                self.receive(token, handler);
            }
        } else if conn.eof && over || flags.contains(Flags::ERR) {
            let error = rustix::net::sockopt::socket_error(&conn.socket);
            self.finish(token, error.ok().and_then(Result::err).map(io::Error::from));
        } else if over {
            // The connection is paused and the client is gone. The bytes it sent must still be
            // read, but the set would report this event forever, so the connection is removed from
            // the set until it is resumed.
            self.unwatch(token);
        } else {
            self.watch(token);
        }
    }

    fn receive(&mut self, token: Token, handler: &mut dyn FnMut(Event<'_>)) {
        let Some(conn) = self.conns.get_mut(token) else { return };
        match rustix::net::recv(&conn.socket, &mut self.received[..], RecvFlags::empty()) {
            Ok((0, _)) => {
                conn.eof = true;
                let both = conn.shut == Shut::Done;
                handler(Event::Eof { conn: token });
                if both { self.finish(token, None) } else { self.watch(token) }
            }
            Ok((count, _)) => {
                self.received_bytes += count;
                handler(Event::Received { conn: token, bytes: &self.received[..count] });
            }
            // Level-triggered: an interrupted event is reported again.
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => self.finish(token, Some(errno.into())),
        }
    }

    /// Sends the queued bytes of `token`, as many as the socket takes.
    fn push(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token) else { return };
        let Some(sending) = &mut conn.sending else { return };
        let full = loop {
            if sending.is_done() {
                break false;
            }
            match write(&conn.socket, sending) {
                Ok(count) => sending.advance(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break true,
                Err(errno) => return self.finish(token, Some(errno.into())),
            }
        };
        if full != conn.blocked {
            conn.blocked = full;
            self.watch(token);
        }
        if !full {
            self.sent(token);
        }
    }

    fn sent(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token) else { return };
        if let Some(sending) = conn.sending.take() {
            self.pending.push(Pending::Sent(token, sending.into_buffer(), None));
        }
        self.shut_if_sent(token);
    }

    fn shut_if_sent(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token) else { return };
        if conn.shut != Shut::AfterSend || conn.sending.is_some() {
            return;
        }
        conn.shut = Shut::Done;
        // This fails if the client has already gone. Then there is nothing to shut down.
        let _ = rustix::net::shutdown(&conn.socket, Shutdown::Write);
        if conn.eof {
            self.finish(token, None);
        }
    }

    /// Ends a connection: closes its socket now and queues its last events.
    fn finish(&mut self, token: Token, error: Option<io::Error>) {
        let Some(conn) = self.conns.leave(token) else { return };
        if let Some(sending) = conn.sending {
            let reason = error.as_ref().map_or(io::ErrorKind::ConnectionAborted, io::Error::kind);
            self.pending.push(Pending::Sent(token, sending.into_buffer(), Some(reason)));
        }
        self.pending.push(Pending::Closed(token, error));
    }

    fn arm(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token) else { return };
        conn.fresh = None;
        let wanted = conn.wanted();
        match epoll::add(&self.set, &conn.socket, data(token), wanted) {
            Ok(()) => conn.interest = Some(wanted),
            Err(errno) => self.finish(token, Some(errno.into())),
        }
    }

    /// Changes the interest of the set to the events that the connection needs.
    fn watch(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token) else { return };
        let wanted = conn.wanted();
        let changed = match conn.interest {
            // A fresh connection is added by `arm` (I3).
            None if conn.fresh.is_some() => return,
            None => epoll::add(&self.set, &conn.socket, data(token), wanted),
            Some(interest) if interest == wanted => return,
            Some(_) => epoll::modify(&self.set, &conn.socket, data(token), wanted),
        };
        match changed {
            Ok(()) => conn.interest = Some(wanted),
            Err(errno) => self.finish(token, Some(errno.into())),
        }
    }

    fn unwatch(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token) else { return };
        if conn.interest.take().is_some() {
            // The socket is in the set, and nothing else removes it.
            let _ = epoll::delete(&self.set, &conn.socket);
        }
    }

    fn accept(&mut self, id: usize, handler: &mut dyn FnMut(Event<'_>)) {
        for _ in 0..ACCEPTS_MAX {
            let Some(Some(listener)) = self.listeners.get(id) else { return };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(&listener.socket, flags) {
                Ok(socket) => {
                    let Ok(peer) = listen::peer_of(&socket, &listener.address) else { continue };
                    let ends = peer.clone();
                    let conn = self.conns.insert(Conn::new(socket, Some(Box::new((id, peer)))));
                    self.fresh.push(conn);
                    handler(Event::Accepted { listener: id, conn, peer: ends });
                }
                Err(Errno::AGAIN) => return,
                Err(errno) if listen::concerns_one_client(errno) => {}
                Err(_) => return self.rest(id),
            }
        }
    }

    /// Suspends a listener that cannot accept, so that the clients waiting for it do not make the
    /// loop spin.
    fn rest(&mut self, id: usize) {
        let Some(Some(listener)) = self.listeners.get_mut(id) else { return };
        listener.rests_until = Some(Instant::now() + listen::REST);
        self.resting = true;
        let socket = &listener.socket;
        // The listener was added when it was opened; a failure here costs a spin, not a client.
        let _ = epoll::modify(&self.set, socket, data(listener_token(id)), Flags::empty());
    }

    /// Resumes the listeners whose rest is over. Shortens `wait` to the end of the next rest.
    fn rouse(&mut self, wait: Wait) -> Wait {
        let roused = listen::rouse(&mut self.listeners, wait);
        for id in roused.ids {
            let Some(Some(listener)) = self.listeners.get(id) else { continue };
            let token = data(listener_token(id));
            let _ = epoll::modify(&self.set, &listener.socket, token, Flags::IN);
        }
        self.resting = roused.others_rest;
        roused.wait
    }
}

fn write(socket: &OwnedFd, sending: &Sending) -> rustix::io::Result<usize> {
    if let Some(bytes) = sending.flat() {
        return rustix::net::send(socket, bytes, SendFlags::NOSIGNAL);
    }
    let mut slices = [IoSlice::new(&[]); IOVECS_MAX];
    let count = sending.fill(&mut slices);
    let mut control = SendAncillaryBuffer::default();
    rustix::net::sendmsg(socket, &slices[..count], &mut control, SendFlags::NOSIGNAL)
}

fn whole_millis(nanos: u64) -> Timespec {
    let nanos = nanos.next_multiple_of(1_000_000).min(i64::MAX as u64);
    Timespec {
        tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or(0),
    }
}

fn listener_token(id: usize) -> Token {
    Token { index: LISTENERS_FROM + id as u32, generation: 0 }
}

fn data(token: Token) -> epoll::EventData {
    epoll::EventData::new_u64(u64::from(token.generation) << 32 | u64::from(token.index))
}

fn token(word: u64) -> Token {
    Token { index: word as u32, generation: (word >> 32) as u32 }
}

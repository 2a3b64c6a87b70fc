//! The connections of one core: by index, by handle and by id, with lists of those that need work.
//!
//! Each connection is at the index that its token names (its *place*). While it is served, it is
//! taken out of the place and put back afterwards, so that its commands can access all other
//! connections.
//!
//! Invariants (`check_invariants`):
//! - C1: a place holds the connection whose token names the place.
//! - C2: every connection in a place can be found by its handle and by its id, and by no other
//!   number.
//! - C3: a connection whose lane is marked as dirty, pushed or streaming is in the list of that
//!   kind exactly once.

use super::super::conn::{Conn, Lane};
use darter_base::hash::IdentityMap;
use darter_runtime::net::Token;
use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;

/// The number of connections to which one slice sends pushes. Appending a message takes 0.3 us, but
/// sending it 5 us, so without a limit the sends of one slice could take milliseconds. Pushes that
/// wait are sent together with later ones.
const PUSHED_AT_ONCE: usize = 24;
/// Sending this number of bytes takes as long as sending to one more connection.
const SENT_AS_ONE: usize = 8 * 1024;
/// The number of connections checked for pushes in one slice. It exceeds [`PUSHED_AT_ONCE`],
/// because the pushes of most were sent together with a reply.
const VISITED_AT_ONCE: usize = 256;

/// The token of the connection without a socket that replays append-only files. The runtime has no
/// such index, so the connection is in no place: no scan finds it.
pub(crate) const REPLAY: Token = Token { index: u32::MAX, generation: 0 };

/// The connections, at the index of their tokens.
type Places = Vec<Option<Box<Conn>>>;

/// The connections of one core.
#[derive(Default)]
pub(crate) struct Clients {
    places: RefCell<Places>,
    /// The connection with the token [`REPLAY`].
    replay: RefCell<Option<Box<Conn>>>,
    /// From handles to tokens.
    tokens: RefCell<IdentityMap<Token>>,
    /// For moved connections: from id to handle, and from handle to `None`, because such a handle
    /// is no id. The handle of any other connection is also its id.
    moved: RefCell<IdentityMap<Option<u64>>>,
    numbers: Cell<u64>,
    /// Connections with output to send.
    dirty: RefCell<Vec<Token>>,
    /// Connections whose only output is pushes. Each slice sends to a limited number of them.
    pushed: RefCell<VecDeque<Token>>,
    /// The number of `pushed` connections to which the current slice may still send.
    room: Cell<usize>,
    /// Connections whose reply continues as a stream.
    streaming: RefCell<VecDeque<Token>>,
    /// Connections that wait for CLIENT PAUSE to end.
    paused: RefCell<Vec<Token>>,
}

impl Clients {
    /// Returns a number that no client of this core has had.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.replace(self.numbers.get() + 1)
    }

    /// The number of connections.
    pub(crate) fn len(&self) -> usize {
        self.tokens.borrow().len()
    }

    /// Adds an accepted connection.
    pub(crate) fn add(&self, conn: Box<Conn>) {
        let (token, id, handle) = (conn.lane.token, conn.lane.session.id, conn.lane.session.handle);
        let old = self.tokens.borrow_mut().insert(handle, token);
        assert!(old.is_none(), "client {handle} is there twice");
        if token == REPLAY {
            *self.replay.borrow_mut() = Some(conn);
            return;
        }
        let index = token.index as usize;
        let mut places = self.places.borrow_mut();
        if places.len() <= index {
            places.resize_with(index + 1, || None);
        }
        assert!(places[index].is_none(), "a place of a connection is used twice");
        places[index] = Some(conn);
        if id != handle {
            self.moved.borrow_mut().extend([(id, Some(handle)), (handle, None)]);
        }
    }

    /// Removes a connection; `None` if it is not there.
    pub(crate) fn remove(&self, token: Token) -> Option<Box<Conn>> {
        let conn = self.take(token)?;
        let (id, handle) = (conn.lane.session.id, conn.lane.session.handle);
        let known = self.tokens.borrow_mut().remove(&handle);
        assert_eq!(known, Some(token), "client {handle}");
        if id != handle {
            let mut moved = self.moved.borrow_mut();
            moved.remove(&id);
            moved.remove(&handle);
        }
        Some(conn)
    }

    /// Takes a connection out of its place. The caller puts it back with [`Clients::put`].
    #[inline]
    pub(crate) fn take(&self, token: Token) -> Option<Box<Conn>> {
        let mut places = self.places.borrow_mut();
        match places.get_mut(token.index as usize) {
            Some(place) => place.take_if(|conn| conn.lane.token == token),
            None if token == REPLAY => self.replay.take(),
            None => None,
        }
    }

    /// Puts a connection back that was taken.
    #[inline]
    pub(crate) fn put(&self, conn: Box<Conn>) {
        let mut places = self.places.borrow_mut();
        let Some(place) = places.get_mut(conn.lane.token.index as usize) else {
            debug_assert_eq!(conn.lane.token, REPLAY, "a connection has no place");
            *self.replay.borrow_mut() = Some(conn);
            return;
        };
        debug_assert!(place.is_none(), "another one is in its place");
        *place = Some(conn);
    }

    /// Calls `visit` with a connection, unless it has gone or is being served.
    #[inline]
    pub(crate) fn with<R>(&self, token: Token, visit: impl FnOnce(&mut Conn) -> R) -> Option<R> {
        let mut places = self.places.borrow_mut();
        let Some(place) = places.get_mut(token.index as usize) else {
            return self
                .replay
                .borrow_mut()
                .as_mut()
                .filter(|_| token == REPLAY)
                .map(|it| visit(it));
        };
        let conn = place.as_mut()?;
        (conn.lane.token == token).then(|| visit(conn))
    }

    /// The token of the connection with this handle, if it is on this core.
    pub(crate) fn token_of(&self, handle: u64) -> Option<Token> {
        self.tokens.borrow().get(&handle).copied()
    }

    /// The handle of the client with this id, if it is on this core.
    pub(crate) fn handle_of(&self, id: u64) -> Option<u64> {
        let moved = self.moved.borrow().get(&id).copied();
        moved.unwrap_or_else(|| self.token_of(id).map(|_| id))
    }

    /// All connections by place, for callers with their own order. The clients stay borrowed.
    pub(crate) fn places(&self) -> RefMut<'_, Places> {
        self.places.borrow_mut()
    }

    /// True if `test` holds for all connections. A connection that is being served is not tested.
    pub(crate) fn all(&self, test: impl Fn(&Conn) -> bool) -> bool {
        let places = self.places.borrow();
        places.iter().flatten().chain(&*self.replay.borrow()).all(|conn| test(conn))
    }

    /// Calls `visit` with at most `most` connections, beginning at index `from`. A connection that
    /// is being served is left out. Returns the next index, or 0 at the end.
    pub(crate) fn visit_some(
        &self,
        from: usize,
        most: usize,
        mut visit: impl FnMut(&mut Conn),
    ) -> usize {
        let mut places = self.places.borrow_mut();
        let end = places.len().min(from.saturating_add(most));
        places[from.min(end)..end].iter_mut().flatten().for_each(|conn| visit(conn));
        if end == places.len() { 0 } else { end }
    }

    /// Adds a connection to the list of those with output to send.
    #[inline]
    pub(crate) fn mark_dirty(&self, lane: &mut Lane) {
        if !std::mem::replace(&mut lane.lists.dirty, true) {
            self.dirty.borrow_mut().push(lane.token);
        }
    }

    /// Begins a slice: it may send pushes to [`PUSHED_AT_ONCE`] connections.
    pub(crate) fn begin_slice(&self) {
        self.room.set(PUSHED_AT_ONCE);
    }

    /// Adds a connection to the list of those with pushes to send. A slice sends pushes in the
    /// order of the list, until its limit is reached. A connection with a send in progress is not
    /// added, because it cannot send now; [`Clients::mark_sent`] adds it when that send has ended.
    pub(crate) fn mark_pushed(&self, lane: &mut Lane) {
        if lane.lists.dirty || lane.lists.pushed || lane.sending.in_flight > 0 {
            return;
        }
        let mut pushed = self.pushed.borrow_mut();
        if pushed.is_empty() && self.room.get() > 0 {
            self.take_room(lane.out.len());
            return self.mark_dirty(lane);
        }
        lane.lists.pushed = true;
        pushed.push_back(lane.token);
    }

    fn take_room(&self, bytes: usize) {
        self.room.set(self.room.get().saturating_sub(1 + bytes / SENT_AS_ONE));
    }

    /// Handles the end of a send: if more output waits, adds the connection to the list for
    /// replies, or to that for pushes.
    pub(crate) fn mark_sent(&self, lane: &mut Lane) {
        let is_pushed = lane.is_pushed_to() && !lane.out.is_empty() && !lane.sending.reply_waits;
        if is_pushed { self.mark_pushed(lane) } else { self.mark_dirty(lane) }
    }

    /// True if any connection has output to send in this slice.
    pub(crate) fn are_dirty(&self) -> bool {
        !self.dirty.borrow().is_empty() || !self.pushed.borrow().is_empty()
    }

    /// Calls `visit` with all connections that have output, and with as many of the pushed ones as
    /// this slice may still send to. They leave the lists.
    pub(crate) fn each_dirty(&self, mut visit: impl FnMut(&mut Conn)) {
        let mut dirty = self.dirty.take();
        for token in dirty.drain(..) {
            self.with(token, |conn| {
                conn.lane.lists.dirty = false;
                conn.lane.sending.reply_waits = conn.lane.sending.in_flight > 0;
                visit(conn);
            });
        }
        let mut now = self.dirty.borrow_mut();
        if now.is_empty() {
            *now = dirty; // Reuses the memory of the list.
        }
        drop(now);
        for _ in 0..VISITED_AT_ONCE {
            if self.room.get() == 0 {
                return;
            }
            let Some(token) = self.pushed.borrow_mut().pop_front() else { return };
            self.with(token, |conn| {
                conn.lane.lists.pushed = false;
                let before = conn.lane.sending.in_flight;
                visit(conn); // The pushes may have been sent together with a reply.
                if before == 0 && conn.lane.sending.in_flight > 0 {
                    self.take_room(conn.lane.sending.in_flight);
                }
            });
        }
    }

    /// Adds a connection to the list of streams if its reply continues as one.
    #[inline]
    pub(crate) fn mark_streaming(&self, lane: &mut Lane) {
        if lane.stream.is_some() && !std::mem::replace(&mut lane.lists.streaming, true) {
            self.streaming.borrow_mut().push_back(lane.token);
        }
    }

    /// True if any stream can continue.
    pub(crate) fn are_streaming(&self) -> bool {
        !self.streaming.borrow().is_empty()
    }

    /// Takes the connection whose stream continues next.
    pub(crate) fn next_streaming(&self) -> Option<Token> {
        self.streaming.borrow_mut().pop_front()
    }

    /// Adds a connection to the list of those that wait for CLIENT PAUSE to end.
    pub(crate) fn pause(&self, lane: &mut Lane) {
        if !std::mem::replace(&mut lane.awaits_pause, true) {
            self.paused.borrow_mut().push(lane.token);
        }
    }

    /// True if any connection waits for CLIENT PAUSE to end.
    pub(crate) fn are_paused(&self) -> bool {
        !self.paused.borrow().is_empty()
    }

    /// Calls `visit` with all connections that waited for CLIENT PAUSE to end, and empties the
    /// list.
    pub(crate) fn end_pause(&self, mut visit: impl FnMut(&mut Conn)) {
        for token in self.paused.take() {
            self.with(token, |conn| {
                conn.lane.awaits_pause = false;
                visit(conn);
            });
        }
    }

    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        let (dirty, streaming) = (self.dirty.borrow(), self.streaming.borrow());
        let pushed = self.pushed.borrow();
        for (index, place) in self.places.borrow().iter().enumerate() {
            let Some(conn) = place else { continue };
            let (lane, token) = (&conn.lane, conn.lane.token);
            assert_eq!(token.index as usize, index, "C1");
            assert_eq!(self.token_of(lane.session.handle), Some(token), "C2");
            let (id, handle) = (lane.session.id, lane.session.handle);
            assert_eq!(self.handle_of(id), Some(handle), "C2");
            assert!(id == handle || self.handle_of(handle).is_none(), "C2");
            let times =
                |list: &mut dyn Iterator<Item = &Token>| list.filter(|at| **at == token).count();
            assert_eq!(times(&mut dirty.iter()), usize::from(lane.lists.dirty), "C3");
            assert_eq!(times(&mut pushed.iter()), usize::from(lane.lists.pushed), "C3");
            assert_eq!(times(&mut streaming.iter()), usize::from(lane.lists.streaming), "C3");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Session;

    fn conn(token: Token, id: u64) -> Box<Conn> {
        let session = Session { id, handle: id, ..Session::default() };
        Box::new(Conn::new(token, session, 1 << 20, 1))
    }

    #[test] // A reused place has a new token, so an old token finds no connection.
    fn an_old_token_does_not_find_the_next_connection_in_its_place() {
        let clients = Clients::default();
        let first = Token { index: 1, generation: 1 };
        let second = Token { index: 1, generation: 2 };
        clients.add(conn(first, 7));
        clients.with(first, |conn| clients.mark_dirty(&mut conn.lane));
        clients.with(first, |conn| clients.pause(&mut conn.lane));
        clients.check_invariants();
        let taken = clients.take(first).expect("it is there");
        assert!(clients.with(first, |_| ()).is_none(), "it is being served");
        assert_eq!((clients.len(), clients.token_of(7)), (1, Some(first)));
        clients.put(taken);
        assert!(clients.remove(first).is_some_and(|conn| conn.lane.session.handle == 7));
        assert_eq!((clients.len(), clients.token_of(7)), (0, None));
        assert!(clients.remove(first).is_none());
        clients.add(conn(second, 8));
        assert!(clients.with(first, |_| ()).is_none());
        assert!(clients.are_dirty() && clients.are_paused());
        clients.each_dirty(|_| panic!("the first has gone"));
        clients.end_pause(|_| panic!("the first has gone"));
        assert!(!clients.are_dirty() && !clients.are_paused());
        clients.check_invariants();
    }

    #[test] // If it is marked again during a visit, it is listed again.
    fn a_connection_that_is_marked_twice_is_listed_once() {
        let clients = Clients::default();
        let tokens = [0, 1, 2].map(|index| Token { index, generation: 1 });
        tokens.iter().for_each(|token| clients.add(conn(*token, u64::from(token.index) + 1)));
        for token in [tokens[0], tokens[2], tokens[0]] {
            clients.with(token, |conn| clients.mark_dirty(&mut conn.lane));
        }
        clients.check_invariants();
        let mut seen = Vec::new();
        clients.each_dirty(|conn| {
            seen.push(conn.lane.token);
            clients.mark_dirty(&mut conn.lane);
        });
        assert_eq!(seen, [tokens[0], tokens[2]]);
        clients.check_invariants();
        clients.with(tokens[1], |conn| clients.mark_streaming(&mut conn.lane));
        assert!(!clients.are_streaming(), "it has no stream");
        assert_eq!([clients.next_number(), clients.next_number()], [0, 1]);
    }

    #[test] // The handle of a moved client is not an id. Its removal removes both numbers.
    fn moved_clients_are_found_by_id_and_by_handle() {
        let clients = Clients::default();
        let token = Token { index: 0, generation: 1 };
        let mut moved = conn(token, 7);
        moved.lane.session.handle = 9;
        clients.add(moved);
        clients.check_invariants();
        assert_eq!([7, 9, 8].map(|id| clients.handle_of(id)), [Some(9), None, None]);
        assert_eq!([7, 9].map(|handle| clients.token_of(handle)), [None, Some(token)]);
        assert!(clients.remove(token).is_some());
        assert_eq!([7, 9].map(|id| clients.handle_of(id)), [None; 2]);
        assert!(clients.moved.borrow().is_empty());
    }

    #[test]
    fn after_a_send_replies_leave_at_once_and_pushes_wait() {
        for asks in [true, false] {
            let clients = Clients::default();
            let token = |at: usize| Token { index: at as u32, generation: 1 };
            for at in 0..2 {
                clients.add(conn(token(at), at as u64 + 1));
            }
            clients.with(token(0), |conn| {
                conn.lane.session.monitor = true;
                conn.lane.sending.in_flight = 1;
                conn.lane.out.copy(b"more");
                clients.mark_pushed(&mut conn.lane);
                assert!(!clients.are_dirty(), "it is marked when that is sent");
                if asks {
                    clients.mark_dirty(&mut conn.lane);
                }
            });
            clients.each_dirty(|_| ());
            clients.with(token(1), |conn| {
                conn.lane.out.copy(b"pushed");
                clients.mark_pushed(&mut conn.lane);
            });
            clients.with(token(0), |conn| {
                conn.lane.sending.in_flight = 0;
                clients.mark_sent(&mut conn.lane);
            });
            clients.check_invariants();
            let mut seen = Vec::new();
            clients.each_dirty(|conn| seen.push(conn.lane.token));
            assert_eq!(seen, if asks { vec![token(0)] } else { vec![] }, "no slice, so no room");
            clients.begin_slice();
            clients.each_dirty(|conn| seen.push(conn.lane.token));
            assert_eq!(seen.len(), 2, "asks {asks}");
        }
    }

    #[test] // Pushes keep their order; replies are not limited.
    fn a_slice_sends_pushes_to_a_limited_number_of_clients() {
        const MANY: usize = PUSHED_AT_ONCE + 10;
        let clients = Clients::default();
        clients.begin_slice();
        let token = |at: usize| Token { index: at as u32, generation: 1 };
        for at in 0..MANY {
            clients.add(conn(token(at), at as u64 + 1));
            clients.with(token(at), |conn| {
                conn.lane.out.copy(b"message");
                clients.mark_pushed(&mut conn.lane);
                clients.mark_pushed(&mut conn.lane);
            });
        }
        let slice = || {
            let mut sent = Vec::new();
            for _ in 0..2 {
                clients.each_dirty(|conn| {
                    conn.lane.sending.in_flight = conn.lane.out.len();
                    drop(conn.lane.out.take());
                    sent.push(conn.lane.token.index as usize);
                });
            }
            clients.check_invariants();
            clients.begin_slice();
            sent
        };
        clients.with(token(MANY - 1), |conn| clients.mark_dirty(&mut conn.lane));
        clients.check_invariants();
        let first: Vec<usize> = (0..PUSHED_AT_ONCE).chain([MANY - 1]).collect();
        assert_eq!(slice(), first);
        assert!(clients.are_dirty());
        assert_eq!(slice(), (PUSHED_AT_ONCE..MANY).collect::<Vec<_>>());
        assert!(!clients.are_dirty() && slice().is_empty());
    }
}

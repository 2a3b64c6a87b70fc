//! Completions from the kernel, turned into events for the caller.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Instant;

use io_uring::cqueue;
use rustix::io::Errno;

use super::Uring;
use super::conn::{Conn, Receive, Shut};
use super::word::{self, Kind};
use crate::net::event::{Event, Token, Wait};
use crate::net::listen;

impl Uring {
    /// Takes the kernel's completions, up to the queue's capacity.
    pub(super) fn reap(&mut self) {
        let arrived = self.ring.completion();
        let parts = arrived.map(|entry| (entry.user_data(), entry.result(), entry.flags()));
        self.completions.extend(parts);
    }

    pub(super) fn on_completion(
        &mut self,
        word: u64,
        result: i32,
        flags: u32,
        handler: &mut dyn FnMut(Event<'_>),
    ) {
        self.count_back(word, flags);
        match word::kind(word) {
            Kind::Cancel => {}
            Kind::Receive => self.on_receive(word, result, flags, handler),
            Kind::Send => self.on_send(word, result),
            Kind::Accept => self.on_accept(word::index(word) as usize, result, flags, handler),
            Kind::Wake => {
                assert!(self.wake_armed, "woken by a read that nobody started");
                self.wake_armed = false;
                handler(Event::Woken);
            }
            Kind::Watch => self.watch_ended(self.token_of(word), result),
        }
    }

    /// Counts an operation as over if this was its last completion (I2).
    fn count_back(&mut self, word: u64, flags: u32) {
        if word::kind(word) != Kind::Cancel && !cqueue::more(flags) {
            assert!(self.operations > 0, "I2: a completion of {word:#x}, which nobody started");
            self.operations -= 1;
        }
    }

    /// Consumes a completion without reporting it.
    pub(super) fn forget_operation(&mut self, word: u64, result: i32, flags: u32) {
        self.count_back(word, flags);
        if word::kind(word) == Kind::Accept && result >= 0 {
            // SAFETY: the kernel made this descriptor for this completion; no one else has it.
            drop(unsafe { OwnedFd::from_raw_fd(result) });
        }
    }

    fn on_receive(
        &mut self,
        word: u64,
        result: i32,
        flags: u32,
        handler: &mut dyn FnMut(Event<'_>),
    ) {
        let token = self.token_of(word);
        let Some(conn) = self.lent.conns.get_mut(token) else {
            unreachable!("I1: {token:?} is alive while it receives");
        };
        assert!(conn.receive != Receive::Idle, "I1: {token:?} receives without an operation");
        let silent = conn.closing || conn.eof;
        let ends = result == 0 && !silent && !conn.releasing;
        if let Some(id) = cqueue::buffer_select(flags) {
            if result > 0 && !silent {
                self.received_bytes += result as usize;
                // SAFETY: the buffer and its length are from this completion, and it is put back
                // below.
                let bytes = unsafe { self.lent.buffers.bytes(id, result as usize) };
                handler(Event::Received { conn: token, bytes });
            }
            self.lent.buffers.put_back(id);
        }
        if ends {
            handler(Event::Eof { conn: token });
        }
        if !cqueue::more(flags) {
            self.receive_ended(token, result);
        }
    }

    /// Handles the end of a receive: either there are no more, or the receive is armed again.
    fn receive_ended(&mut self, token: Token, result: i32) {
        let Some(conn) = self.lent.conns.get_mut(token) else { return };
        conn.receive = Receive::Idle;
        if conn.closing {
            return self.close_if_free(token);
        }
        match result {
            0.. if conn.releasing => self.release_if_free(token),
            0 => {
                conn.eof = true;
                if conn.shut == Shut::Done || conn.is_over() {
                    self.finish(token, None);
                }
            }
            // The buffers ran out (they are back by now), the receive was paused, the client's end
            // is near, or the kernel wants a new receive.
            1.. => self.arming.push(token),
            _ => match -result {
                libc::ENOBUFS | libc::ECANCELED | libc::EINTR | libc::EAGAIN => {
                    self.arming.push(token);
                    self.release_if_free(token);
                }
                errno => self.finish(token, Some(io::Error::from_raw_os_error(errno))),
            },
        }
    }

    fn on_send(&mut self, word: u64, result: i32) {
        let token = self.token_of(word);
        let Some(conn) = self.lent.conns.get_mut(token) else {
            unreachable!("I1: {token:?} is alive while it sends");
        };
        assert!(conn.with_kernel, "a send of {token:?} came back twice");
        conn.with_kernel = false;
        if conn.closing {
            return self.close_if_free(token);
        }
        let Some(sending) = &mut conn.sending else {
            unreachable!("a send of {token:?} came back, and none was out");
        };
        match result {
            0.. => sending.advance(result as usize),
            _ if matches!(-result, libc::EAGAIN | libc::EINTR) => {}
            _ => return self.finish(token, Some(io::Error::from_raw_os_error(-result))),
        }
        if sending.is_done() { self.sent(token) } else { self.queued.push(token) }
    }

    fn on_accept(
        &mut self,
        id: usize,
        result: i32,
        flags: u32,
        handler: &mut dyn FnMut(Event<'_>),
    ) {
        if result >= 0 {
            // SAFETY: the kernel made this descriptor for this completion; no one else has it.
            let socket = unsafe { OwnedFd::from_raw_fd(result) };
            self.accepted(id, socket, handler);
        }
        let Some(Some(listener)) = self.listeners.get_mut(id) else { return };
        if cqueue::more(flags) {
            return;
        }
        if result >= 0 || listen::concerns_one_client(Errno::from_raw_os_error(-result)) {
            // If the queue cannot be entered, the next poll reports it.
            let _ = self.arm_listener(id);
            return;
        }
        listener.rests_until = Some(Instant::now() + listen::REST);
        self.resting = true;
    }

    fn accepted(&mut self, id: usize, socket: OwnedFd, handler: &mut dyn FnMut(Event<'_>)) {
        // The socket is dropped if the listener has stopped or the client has gone.
        let Some(Some(listener)) = self.listeners.get(id) else { return };
        let Ok(peer) = listen::peer_of(&socket, &listener.address) else { return };
        let conn = self.insert(Conn::new(socket, Some(Box::new((id, peer.clone())))));
        handler(Event::Accepted { listener: id, conn, peer });
    }

    pub(super) fn rouse(&mut self, wait: Wait) -> io::Result<Wait> {
        let roused = listen::rouse(&mut self.listeners, wait);
        self.resting = roused.others_rest;
        for id in roused.ids {
            self.arm_listener(id)?;
        }
        Ok(roused.wait)
    }

    /// The connection's current token. By I1 no other connection has used its place in the table
    /// since.
    fn token_of(&self, word: u64) -> Token {
        self.lent.conns.tenant(word::index(word))
    }
}

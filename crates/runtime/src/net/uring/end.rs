//! The ends of a send, of the sending side, and of a connection.

use std::io;

use rustix::net::Shutdown;

use super::Uring;
use super::conn::{Far, Shut};
use super::word::{self, Kind};
use crate::net::event::Token;
use crate::net::pending::Pending;

impl Uring {
    pub(super) fn sent(&mut self, token: Token) {
        let Some(conn) = self.lent.conns.get_mut(token) else { return };
        if let Some(sending) = conn.sending.take() {
            self.pending.push(Pending::Sent(token, sending.into_buffer(), None));
        }
        self.shut_if_sent(token);
    }

    pub(super) fn shut_if_sent(&mut self, token: Token) {
        let Some(conn) = self.lent.conns.get_mut(token) else { return };
        if conn.shut != Shut::AfterSend || conn.sending.is_some() || conn.closing {
            return;
        }
        conn.shut = Shut::Done;
        // This fails if the client has already gone. Then there is nothing to shut down.
        let _ = rustix::net::shutdown(&conn.socket, Shutdown::Write);
        if conn.eof {
            self.finish(token, None);
        }
    }

    /// Begins the end of a connection: the kernel releases its operations on it.
    pub(super) fn finish(&mut self, token: Token, error: Option<io::Error>) {
        let Some(conn) = self.lent.conns.get_mut(token) else { return };
        if conn.closing {
            return;
        }
        conn.closing = true;
        conn.error = error;
        self.take_back(token);
        self.close_if_free(token);
    }

    /// Cancels all operations that the kernel holds of a connection.
    pub(super) fn take_back(&mut self, token: Token) {
        let Some(conn) = self.lent.conns.get_mut(token) else { return };
        let with_kernel = [
            (conn.receive.is_armed(), Kind::Receive),
            (conn.with_kernel, Kind::Send),
            (conn.watched, Kind::Watch),
        ];
        for (_, kind) in with_kernel.into_iter().filter(|(is_there, _)| *is_there) {
            self.cancel(word::of(kind, token));
        }
    }

    /// Ends a connection that is known to be over, with its socket's error as the reason.
    pub(super) fn finish_broken(&mut self, token: Token) {
        let Some(conn) = self.lent.conns.get_mut(token) else { return };
        let error = rustix::net::sockopt::socket_error(&conn.socket);
        self.finish(token, error.ok().and_then(Result::err).map(io::Error::from));
    }

    /// Handles the watch's report of the client's end.
    pub(super) fn watch_ended(&mut self, token: Token, result: i32) {
        let Some(conn) = self.lent.conns.get_mut(token) else { return };
        conn.watched = false;
        if conn.closing {
            return self.close_if_free(token);
        }
        if conn.releasing {
            return self.release_if_free(token); // The next owner watches it, too.
        }
        // A negative result, which is the poll's own failure, has both bits.
        conn.far = match i32::from(libc::POLLERR) & result {
            0 if i32::from(libc::POLLHUP) & result == 0 => Far::Shut,
            0 => Far::Gone,
            _ => Far::Broken,
        };
        if conn.is_over() { self.finish_broken(token) } else { self.arming.push(token) }
    }

    /// Ends the connection if the kernel holds nothing more of it (I1).
    pub(super) fn close_if_free(&mut self, token: Token) {
        let Some(conn) = self.lent.conns.get_mut(token) else { return };
        if !conn.is_free() {
            return;
        }
        let Some(conn) = self.lent.conns.leave(token) else { return };
        if let Some(sending) = conn.sending {
            let reason = conn.error.as_ref().map(io::Error::kind);
            let reason = reason.unwrap_or(io::ErrorKind::ConnectionAborted);
            self.pending.push(Pending::Sent(token, sending.into_buffer(), Some(reason)));
        }
        self.pending.push(Pending::Closed(token, conn.error));
    }

    /// Hands out the socket of a connection that is being released, if the kernel holds nothing
    /// more of it (I1).
    pub(super) fn release_if_free(&mut self, token: Token) {
        let Some(conn) = self.lent.conns.get_mut(token) else { return };
        if !conn.releasing || !conn.is_free() {
            return;
        }
        let Some(conn) = self.lent.conns.leave(token) else { return };
        self.pending.push(Pending::Released(token, conn.socket));
    }
}

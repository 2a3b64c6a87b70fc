//! The ends: of a send, of the sending side, of a connection.

use std::io;

use rustix::net::Shutdown;

use super::Uring;
use super::conn::{Receive, Shut};
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
        // A client that has gone already refuses, and then there is nothing to shut.
        let _ = rustix::net::shutdown(&conn.socket, Shutdown::Write);
        if conn.eof {
            self.finish(token, None);
        }
    }

    /// Begins the end of a connection: the kernel gives up what it holds of it.
    pub(super) fn finish(&mut self, token: Token, error: Option<io::Error>) {
        let Some(conn) = self.lent.conns.get_mut(token) else { return };
        if conn.closing {
            return;
        }
        conn.closing = true;
        conn.error = error;
        let (receiving, sending) = (conn.receive == Receive::Armed, conn.with_kernel);
        if receiving {
            self.cancel(word::of(Kind::Receive, token));
        }
        if sending {
            self.cancel(word::of(Kind::Send, token));
        }
        self.close_if_free(token);
    }

    /// Ends it when the kernel holds nothing more of it (I1).
    pub(super) fn close_if_free(&mut self, token: Token) {
        let Some(conn) = self.lent.conns.get_mut(token) else { return };
        if conn.receive != Receive::Idle || conn.with_kernel {
            return;
        }
        let Some(conn) = self.lent.conns.remove(token) else { return };
        if let Some(sending) = conn.sending {
            let reason = conn.error.as_ref().map(io::Error::kind);
            let reason = reason.unwrap_or(io::ErrorKind::ConnectionAborted);
            self.pending.push(Pending::Sent(token, sending.into_buffer(), Some(reason)));
        }
        self.pending.push(Pending::Closed(token, conn.error));
    }
}

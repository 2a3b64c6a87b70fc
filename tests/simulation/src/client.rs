//! A client of a run: the replies it waits for, and how it misbehaves.

use crate::ops::Op;
use crate::value::Value;
use std::collections::VecDeque;

/// A command that awaits its reply.
pub(crate) struct Pending {
    pub(crate) op: Op,
    /// The database selected when it was sent.
    pub(crate) db: usize,
    /// The step at which it was sent.
    pub(crate) called: u64,
    /// That moment, in Unix milliseconds.
    pub(crate) called_ms: u64,
    /// The length on the wire.
    pub(crate) bytes: usize,
}

/// Why a client sends no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// The client still sends.
    No,
    /// The client has half-closed its connection, and waits for the outstanding replies and the
    /// close.
    HalfClosed,
    /// The client has reset its connection.
    Reset,
    /// The client has sent so much of one request that it must be closed. Holds the time at which
    /// all of that had reached its core, in Unix milliseconds.
    Hoards(Option<u64>),
}

/// The most that lies between a client's act and its core's notice of it, in milliseconds.
pub(crate) const JUST_NOW_MS: u64 = 20;

/// One client and the state of its connection.
pub(crate) struct Client {
    /// The number of connections it had before this one.
    pub(crate) connection: usize,
    pub(crate) waiting: VecDeque<Pending>,
    /// The first replies of the command that is being answered, if it has several.
    pub(crate) partial: Vec<Value>,
    /// The database it last selected.
    pub(crate) db: usize,
    pub(crate) leaves: Leaves,
    /// Until when it does not read, in Unix milliseconds.
    pub(crate) stalled_until_ms: Option<u64>,
    /// Since when its output has exceeded the limit, in Unix milliseconds.
    pub(crate) over_since_ms: Option<u64>,
    /// Bytes sent of a request that will never be complete.
    pub(crate) cut_bytes: usize,
    /// When it last sent something, took a reply or resumed reading; then the silence that ended
    /// just now: its length and its end.
    active_ms: u64,
    silent_ms: u64,
    silent_until_ms: u64,
}

impl Client {
    /// A client that has just connected.
    pub(crate) fn new(connection: usize, now_ms: u64) -> Self {
        Self {
            connection,
            waiting: VecDeque::new(),
            partial: Vec::new(),
            db: 0,
            leaves: Leaves::No,
            stalled_until_ms: None,
            over_since_ms: None,
            cut_bytes: 0,
            active_ms: now_ms,
            silent_ms: 0,
            silent_until_ms: now_ms,
        }
    }

    pub(crate) fn sends(&mut self, pending: Pending) {
        self.acts(pending.called_ms);
        self.waiting.push_back(pending);
    }

    /// Keeps a reply, if the command that it answers has more.
    pub(crate) fn awaits_more(&mut self, reply: &Value) -> bool {
        let awaits = self
            .waiting
            .front()
            .is_some_and(|pending| self.partial.len() + 1 < pending.op.replies());
        if awaits {
            self.partial.push(reply.clone());
        }
        awaits
    }

    /// Takes note of a reply, and returns the command it answers.
    pub(crate) fn receives(&mut self, now_ms: u64) -> Option<Pending> {
        self.acts(now_ms);
        self.waiting.pop_front()
    }

    /// The client reads again.
    pub(crate) fn reads_on(&mut self, now_ms: u64) {
        (self.stalled_until_ms, self.over_since_ms) = (None, None);
        self.acts(now_ms);
    }

    /// Notes activity, and keeps the longest of the silences that ended just now.
    fn acts(&mut self, now_ms: u64) {
        let silent_ms = now_ms - self.active_ms;
        if silent_ms > self.silent_ms || now_ms - self.silent_until_ms > JUST_NOW_MS {
            (self.silent_ms, self.silent_until_ms) = (silent_ms, now_ms);
        }
        self.active_ms = now_ms;
    }

    /// How long it has been idle. Activity of the last moments may not have reached its core in
    /// time, so the silence before it counts too.
    pub(crate) fn idle_ms(&self, now_ms: u64) -> u64 {
        let is_recent = now_ms - self.silent_until_ms <= JUST_NOW_MS;
        let silent_ms = if is_recent { self.silent_ms } else { 0 };
        silent_ms.max(now_ms - self.active_ms)
    }

    /// True when it has sent more of a request than allowed.
    pub(crate) fn hoards(&self) -> bool {
        matches!(self.leaves, Leaves::Hoards(_))
    }

    /// True when a reply, or the close of its connection, must come without delay.
    pub(crate) fn is_owed(&self) -> bool {
        let ends = matches!(self.leaves, Leaves::HalfClosed | Leaves::Reset);
        let is_awaited = !self.waiting.is_empty() || ends;
        is_awaited && self.stalled_until_ms.is_none()
    }

    /// Drops commands that have not completely reached their core, given the number of bytes in
    /// transit.
    pub(crate) fn forget_unsent(&mut self, bytes: usize) {
        let mut unsent = self.cut_bytes;
        while unsent < bytes
            && let Some(last) = self.waiting.pop_back()
        {
            unsent += last.bytes;
        }
    }
}

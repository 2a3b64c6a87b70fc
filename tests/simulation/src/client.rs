//! A client of a run: what it waits for, and what it is up to.

use crate::ops::Op;
use std::collections::VecDeque;

/// What a client waits for.
pub(crate) struct Pending {
    pub(crate) op: Op,
    /// The database that was selected.
    pub(crate) db: usize,
    /// The step at which it was sent.
    pub(crate) called: u64,
    /// The same, in Unix milliseconds.
    pub(crate) called_ms: u64,
    /// Its bytes on the wire.
    pub(crate) bytes: usize,
}

/// Why a client sends no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// It does not leave.
    No,
    /// It has said so, and waits for its replies, then for the end.
    Ends,
    /// It is gone.
    Gone,
    /// It has sent so much of a request that it is to be closed: since when all of that has come to
    /// its core, in Unix milliseconds.
    Hoards(Option<u64>),
}

/// Between what a client does and what its core sees of it, in milliseconds.
pub(crate) const JUST_NOW_MS: u64 = 20;

/// See the module.
pub(crate) struct Client {
    /// How many connections it had before this one.
    pub(crate) connection: usize,
    pub(crate) waiting: VecDeque<Pending>,
    /// The database that it has selected last.
    pub(crate) db: usize,
    pub(crate) leaves: Leaves,
    /// Until when it does not read, in Unix milliseconds.
    pub(crate) rests_until_ms: Option<u64>,
    /// Since when its output has been beyond the limit.
    pub(crate) over_since_ms: Option<u64>,
    /// Bytes that it has sent of a request that will never be whole.
    pub(crate) cut_bytes: usize,
    /// When it last sent something, took a reply or read on; and the silence that ended just now.
    active_ms: u64,
    silent_ms: u64,
    silent_until_ms: u64,
}

impl Client {
    /// One that has just connected.
    pub(crate) fn new(connection: usize, now_ms: u64) -> Self {
        Self {
            connection,
            waiting: VecDeque::new(),
            db: 0,
            leaves: Leaves::No,
            rests_until_ms: None,
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

    /// A reply has come.
    pub(crate) fn receives(&mut self, now_ms: u64) -> Option<Pending> {
        self.acts(now_ms);
        self.waiting.pop_front()
    }

    /// It has rested.
    pub(crate) fn reads_on(&mut self, now_ms: u64) {
        (self.rests_until_ms, self.over_since_ms) = (None, None);
        self.acts(now_ms);
    }

    /// The longest silence of those that have ended just now.
    fn acts(&mut self, now_ms: u64) {
        let silent_ms = now_ms - self.active_ms;
        if silent_ms > self.silent_ms || now_ms - self.silent_until_ms > JUST_NOW_MS {
            (self.silent_ms, self.silent_until_ms) = (silent_ms, now_ms);
        }
        self.active_ms = now_ms;
    }

    /// How long it has done nothing. What it did just now may have come too late.
    pub(crate) fn idle_ms(&self, now_ms: u64) -> u64 {
        let is_recent = now_ms - self.silent_until_ms <= JUST_NOW_MS;
        let silent_ms = if is_recent { self.silent_ms } else { 0 };
        silent_ms.max(now_ms - self.active_ms)
    }

    /// It has sent more than it may.
    pub(crate) fn hoards(&self) -> bool {
        matches!(self.leaves, Leaves::Hoards(_))
    }

    /// Something is to come to it at once: a reply, or its end.
    pub(crate) fn is_owed(&self) -> bool {
        let ends = matches!(self.leaves, Leaves::Ends | Leaves::Gone);
        let is_awaited = !self.waiting.is_empty() || ends;
        is_awaited && self.rests_until_ms.is_none()
    }

    /// Forgets the commands that have not come to their core whole: the last `bytes` have not.
    pub(crate) fn forget_unsent(&mut self, bytes: usize) {
        let mut unsent = self.cut_bytes;
        while unsent < bytes
            && let Some(last) = self.waiting.pop_back()
        {
            unsent += last.bytes;
        }
    }
}

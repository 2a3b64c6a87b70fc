//! The events on the connections of a run besides commands, drawn from its seed.
//!
//! - Clients half-close in the middle of a request or after one: every complete request is
//!   answered, then the connection is closed.
//! - Clients reset: what they had sent may have taken effect; their connections are cleaned up.
//! - Clients stop reading for a while. Beyond `client-output-buffer-limit` they are closed in time.
//! - Clients send more of a request than `client-query-buffer-limit` or `maxmemory-clients` allows:
//!   they are closed in time. Under the first limit no other client is closed.
//! - Clients work in several databases, some with high numbers.
//! - Clients idle for longer than `timeout`: only they are closed.
//! - CLIENT PAUSE: nothing it holds back is answered before it ends, and then all of it is.

use crate::ops::Op;
use darter_base::Prng;

/// The faults of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Clients half-close or reset.
    pub(crate) leaves: bool,
    /// Clients send CLIENT PAUSE.
    pub(crate) pauses: bool,
    /// `timeout`, in seconds; 0 for none.
    pub(crate) timeout_s: u64,
    /// The hard output limit, in bytes; 0 for none. With one, clients stop reading at times.
    pub(crate) output_max: usize,
    /// Limits on a single incomplete request, and on the memory of all clients. With either, some
    /// clients hoard: they send an oversized request.
    pub(crate) query_limit: bool,
    pub(crate) all_limit: bool,
    /// Clients switch databases.
    pub(crate) databases: bool,
}

/// Either limit, in bytes: the lowest allowed for a single client.
const LIMIT_BYTES: usize = 1 << 20;

impl Faults {
    pub(crate) fn draw(prng: &mut Prng) -> Self {
        Self {
            leaves: prng.chance(25),
            pauses: prng.chance(25),
            timeout_s: if prng.chance(25) { 1 } else { 0 },
            output_max: if prng.chance(25) { 4_000 } else { 0 },
            query_limit: prng.chance(10),
            all_limit: prng.chance(10),
            databases: prng.chance(30),
        }
    }

    /// The commands that configure it.
    pub(crate) fn settings(&self) -> Vec<Op> {
        let set = |name: &str, value: String| Op::Config(name.to_owned(), value);
        let timeout = (self.timeout_s > 0).then(|| set("timeout", self.timeout_s.to_string()));
        let class = format!("normal {} 0 0", self.output_max);
        let limit = (self.output_max > 0).then(|| set("client-output-buffer-limit", class));
        let bytes = || LIMIT_BYTES.to_string();
        let query = self.query_limit.then(|| set("client-query-buffer-limit", bytes()));
        let all = self.all_limit.then(|| set("maxmemory-clients", bytes()));
        timeout.into_iter().chain(limit).chain(query).chain(all).collect()
    }

    /// True when input is limited.
    pub(crate) fn limits_input(&self) -> bool {
        self.query_limit || self.all_limit
    }
}

/// Part of a request, larger than either limit.
pub(crate) fn hoard() -> Vec<u8> {
    let header = format!("*3\r\n$3\r\nSET\r\n$2\r\nk1\r\n${}\r\n", 2 * LIMIT_BYTES);
    [header.as_bytes(), &vec![b'h'; LIMIT_BYTES + LIMIT_BYTES / 8]].concat()
}

/// The known state of CLIENT PAUSE. Only one request is outstanding at a time, so that it is known.
/// If two pauses overlap, the later end and the stricter mode apply. Times are in Unix
/// milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pause {
    /// The step of its reply: the pause certainly holds since then.
    known: Option<u64>,
    /// The pause holds back reads as well, CLIENT UNPAUSE included.
    reads: bool,
    /// The earliest time at which it may end.
    ends_first_ms: u64,
    /// The latest time at which it may end.
    ends_last_ms: u64,
    /// An outstanding PAUSE or UNPAUSE: its client, and the pause's length in milliseconds.
    asked: Option<(usize, u64)>,
}

impl Pause {
    pub(crate) fn draw(prng: &mut Prng) -> Op {
        if prng.chance(25) {
            return Op::Unpause;
        }
        let most_ms = if prng.chance(30) { 3_000 } else { 20 }; // Longer than `timeout`, or brief.
        Op::Pause { ms: 1 + prng.below(most_ms), reads: prng.chance(50) }
    }

    /// True when no request is outstanding.
    pub(crate) fn may_ask(&self) -> bool {
        self.asked.is_none()
    }

    /// A client sends PAUSE, which may begin at any moment, or UNPAUSE, which may take effect at
    /// any moment unless reads are held back too.
    pub(crate) fn ask(&mut self, client: usize, op: &Op) {
        if matches!(op, Op::Unpause) && !self.reads {
            self.known = None;
        }
        self.asked = Some((client, if let Op::Pause { ms, .. } = op { *ms } else { 0 }));
    }

    /// Its reply arrived at this step.
    pub(crate) fn begin(&mut self, op: &Op, step: u64, called_ms: u64, now_ms: u64) {
        self.asked = None;
        let Op::Pause { ms, reads } = op else {
            *self = Self::default();
            return;
        };
        let goes_on = self.known.is_some() && now_ms < self.ends_first_ms;
        if !goes_on {
            (self.known, self.reads, self.ends_first_ms) = (Some(step), *reads, 0);
        } else if *reads && !self.reads {
            (self.known, self.reads) = (Some(step), true);
        }
        self.ends_first_ms = self.ends_first_ms.max(called_ms + ms);
        self.ends_last_ms = self.ends_last_ms.max(now_ms + ms);
    }

    /// A client is gone: if its request was outstanding, it may or may not have taken effect.
    pub(crate) fn lose(&mut self, client: usize, now_ms: u64) {
        /// Time for a task that had begun to finish.
        const GRACE_MS: u64 = 100;
        if let Some((_, ms)) = self.asked.take_if(|(asker, _)| *asker == client) {
            self.ends_last_ms = self.ends_last_ms.max(now_ms + ms + GRACE_MS);
        }
    }

    /// The latest end of a pause that clients may still be waiting for.
    pub(crate) fn ends_last_ms(&self, now_ms: u64) -> Option<u64> {
        let asked = self.asked.map_or(0, |(_, ms)| now_ms + ms);
        let last = self.ends_last_ms.max(asked);
        (now_ms <= last).then_some(last)
    }

    /// True when a command sent at this step must not have been answered yet.
    pub(crate) fn holds(&self, op: &Op, sent: u64, now_ms: u64) -> bool {
        let is_held = self.reads || op.is_write();
        is_held && self.known.is_some_and(|known| sent > known) && now_ms < self.ends_first_ms
    }
}

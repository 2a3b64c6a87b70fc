//! What happens to the connections of a run beside their commands, drawn from its seed.
//!
//! - Clients send no more and read on, in the middle of a request or after one: all that was
//!   complete is answered, then the connection is closed.
//! - Clients are gone: what they had sent may have taken effect, and nothing of them stays.
//! - Clients do not read for a while. Beyond `client-output-buffer-limit` they are closed, in time.
//! - Clients send more of a request than `client-query-buffer-limit` or `maxmemory-clients` allows:
//!   they are closed, in time; by the first, no one else is.
//! - Clients work in several databases, some of them far ones.
//! - Clients are silent for longer than `timeout`: they are closed, and no one else is.
//! - CLIENT PAUSE: nothing that it holds back is answered before its end, and all of it is then.

use crate::ops::Op;
use darter_base::Prng;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Clients end, or are gone.
    pub(crate) leaves: bool,
    /// Clients pause all.
    pub(crate) pauses: bool,
    /// `timeout`, in seconds; 0 for none.
    pub(crate) timeout_s: u64,
    /// The hard limit of output, in bytes; 0 for none. With one, clients do not read at times.
    pub(crate) output_max: usize,
    /// A request that is not whole is limited; what all clients hold is. Either way some hoard.
    pub(crate) query_limit: bool,
    pub(crate) all_limit: bool,
    /// Clients change databases.
    pub(crate) databases: bool,
}

/// Either limit, in bytes: the least that can be set for one client.
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

    /// The commands that set it up.
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

    /// What clients send of a request is limited.
    pub(crate) fn limits_input(&self) -> bool {
        self.query_limit || self.all_limit
    }
}

/// A part of a request, which is beyond either limit.
pub(crate) fn hoard() -> Vec<u8> {
    let header = format!("*3\r\n$3\r\nSET\r\n$2\r\nk1\r\n${}\r\n", 2 * LIMIT_BYTES);
    [header.as_bytes(), &vec![b'h'; LIMIT_BYTES + LIMIT_BYTES / 8]].concat()
}

/// What is known of CLIENT PAUSE: one at a time is asked for, so that it is known well. Of two that
/// overlap, the later end and the stricter mode stay. Moments are in Unix milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pause {
    /// Since the step at which its reply came, what it holds back is held back.
    known: Option<u64>,
    /// All is held back, its end too.
    reads: bool,
    /// It does not end before this moment.
    ends_first_ms: u64,
    /// Nor after this one.
    ends_last_ms: u64,
    /// One is asked for, or its end: by which client, and how long it is to be.
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

    /// One may be asked for: none is at the moment.
    pub(crate) fn may_ask(&self) -> bool {
        self.asked.is_none()
    }

    /// A client asks for it: it begins at any moment. Its end, while all is held back, does not.
    pub(crate) fn ask(&mut self, client: usize, op: &Op) {
        if matches!(op, Op::Unpause) && !self.reads {
            self.known = None;
        }
        self.asked = Some((client, if let Op::Pause { ms, .. } = op { *ms } else { 0 }));
    }

    /// Its reply has come, at a step.
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

    /// A client is gone: if it had asked, perhaps it began, perhaps not.
    pub(crate) fn lose(&mut self, client: usize, now_ms: u64) {
        /// Until then a task that had begun has ended.
        const GRACE_MS: u64 = 100;
        if let Some((_, ms)) = self.asked.take_if(|(asker, _)| *asker == client) {
            self.ends_last_ms = self.ends_last_ms.max(now_ms + ms + GRACE_MS);
        }
    }

    /// When there is no pause any more, if clients may be waiting for that.
    pub(crate) fn ends_last_ms(&self, now_ms: u64) -> Option<u64> {
        let asked = self.asked.map_or(0, |(_, ms)| now_ms + ms);
        let last = self.ends_last_ms.max(asked);
        (now_ms <= last).then_some(last)
    }

    /// True when a command that was sent at a step may not be answered yet.
    pub(crate) fn holds(&self, op: &Op, sent: u64, now_ms: u64) -> bool {
        let is_held = self.reads || op.is_write();
        is_held && self.known.is_some_and(|known| sent > known) && now_ms < self.ends_first_ms
    }
}

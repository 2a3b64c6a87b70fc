//! One core's copy of the settings that the hot path reads.

use std::sync::Arc;

/// The settings that the hot path reads. Every core has its own copy, which CONFIG SET updates.
#[derive(Clone, Debug)]
pub struct Hot {
    /// `requirepass`, if it is set: new connections must authenticate first.
    pub password: Option<Arc<str>>,
    /// `proto-max-bulk-len`.
    pub bulk_max: usize,
    /// `slowlog-log-slower-than`, in nanoseconds; `None` to log nothing.
    pub slow_ns: Option<u64>,
    /// `maxmemory`, in bytes; 0 for no limit.
    pub maxmemory: usize,
    /// `timeout`, in milliseconds; 0 for none.
    pub timeout_ms: u64,
    /// This core's share of `maxclients`.
    pub clients_max: usize,
    /// `protected-mode` without a password: only clients on this machine are accepted.
    pub protected: bool,
    /// True while the server is loading: only commands with the flag LOADING may run.
    pub loading: bool,
    /// The current CLIENT PAUSE: its end in Unix milliseconds, and whether it holds all commands
    /// (true) or only writes.
    pub pause: Option<(u64, bool)>,
    /// False after DEBUG SET-ACTIVE-EXPIRE 0.
    pub active_expire: bool,
    /// True if scripts may not call commands with the flag `noscript`. DEBUG
    /// SET-DISABLE-DENY-SCRIPTS changes it.
    pub noscript: bool,
    /// Messages that scripts pass to `redis.log` below this level are not logged.
    pub script_log_level: u8,
    /// The limits of clients' memory.
    pub client_limits: ClientLimits,
    /// `busy-reply-threshold`, in milliseconds; 0 for none. When a script has run for longer,
    /// commands on its keys get BUSY.
    pub busy_reply_ms: u64,
}

/// Limits of clients' memory, in bytes. A client above a limit is closed; 0 means no limit.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// `client-query-buffer-limit`.
    pub query: usize,
    /// `client-output-buffer-limit` of the class `normal`.
    pub normal: OutputLimit,
    /// `client-output-buffer-limit` of the class `pubsub`.
    pub pubsub: OutputLimit,
    /// `maxmemory-clients`: the limit of the sum over all clients of all cores.
    pub all: usize,
}

/// The limits of a client's output, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// A client with more output is closed at once.
    pub hard: usize,
    /// A client with more output for longer than `soft_ms` is closed.
    pub soft: usize,
    /// Milliseconds for which the output may exceed `soft`.
    pub soft_ms: u64,
}

impl OutputLimit {
    /// True if there is a hard or a soft limit.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.hard > 0 || self.soft > 0
    }
}

impl ClientLimits {
    /// True if clients must be scanned periodically. The limits of subscribers need no scan,
    /// because they are checked when a message is sent to them.
    #[must_use]
    pub fn are_set(&self) -> bool {
        self.normal.is_set() || self.all > 0
    }
}

impl Default for ClientLimits {
    fn default() -> Self {
        let pubsub = OutputLimit { hard: 32 << 20, soft: 8 << 20, soft_ms: 60_000 };
        Self { query: 1 << 30, normal: OutputLimit::default(), pubsub, all: 0 }
    }
}

impl Default for Hot {
    fn default() -> Self {
        Self {
            password: None,
            bulk_max: 512 << 20,
            slow_ns: Some(10_000_000),
            maxmemory: 0,
            timeout_ms: 0,
            clients_max: 10_000,
            protected: true,
            loading: false,
            pause: None,
            active_expire: true,
            noscript: true,
            script_log_level: 2,
            client_limits: ClientLimits::default(),
            busy_reply_ms: 5_000,
        }
    }
}

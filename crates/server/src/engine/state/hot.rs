//! One core's copy of the settings that the hot path reads.

use std::sync::Arc;

/// Settings that the hot path reads; the settings table keeps them up to date on every core.
#[derive(Clone, Debug)]
pub struct Hot {
    /// `requirepass` is set, so new connections start unauthenticated.
    pub password: Option<Arc<str>>,
    /// `proto-max-bulk-len`.
    pub bulk_max: usize,
    /// `slowlog-log-slower-than`, in nanoseconds; `None`: never.
    pub slow_ns: Option<u64>,
    /// `maxmemory`; 0: no limit.
    pub maxmemory: usize,
    /// `timeout`, in milliseconds; 0: never.
    pub timeout_ms: u64,
    /// `maxclients`, for this core.
    pub clients_max: usize,
    /// `protected-mode`, with no password: only local clients.
    pub protected: bool,
    /// The server is loading: only commands with the flag LOADING.
    pub loading: bool,
    /// CLIENT PAUSE: its end in Unix milliseconds, and whether it holds all commands or only
    /// writes.
    pub pause: Option<(u64, bool)>,
    /// DEBUG SET-ACTIVE-EXPIRE.
    pub active_expire: bool,
    /// The flag `noscript` forbids a command in scripts: DEBUG SET-DISABLE-DENY-SCRIPTS.
    pub noscript: bool,
    /// The lowest level of `redis.log` that is logged.
    pub script_log_level: u8,
    /// The memory limits of clients.
    pub client_limits: ClientLimits,
    /// `busy-reply-threshold`: the time after which other clients get BUSY for a script's keys; 0:
    /// never.
    pub busy_reply_ms: u64,
}

/// Bytes that clients may hold before they are closed; 0 for no limit.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// `client-query-buffer-limit`.
    pub query: usize,
    /// `client-output-buffer-limit` of the class `normal`.
    pub normal: OutputLimit,
    /// `client-output-buffer-limit` of the class `pubsub`.
    pub pubsub: OutputLimit,
    /// `maxmemory-clients`: the limit for all clients of all cores together.
    pub all: usize,
}

/// The limits of a client's output buffer, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// The client is closed at once beyond this.
    pub hard: usize,
    /// The client is closed if it exceeds this for longer than `soft_ms`.
    pub soft: usize,
    /// Milliseconds beyond `soft` before the client is closed.
    pub soft_ms: u64,
}

impl OutputLimit {
    /// True if there is a limit.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.hard > 0 || self.soft > 0
    }
}

impl ClientLimits {
    /// True if the clients must be scanned from time to time. Subscribers are checked when messages
    /// are sent to them.
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

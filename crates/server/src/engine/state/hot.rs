//! The settings that the hot path reads, as one core has them.

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
    /// CLIENT PAUSE: until when, in Unix milliseconds, and whether all commands pause, not only those
    /// that write.
    pub pause: Option<(u64, bool)>,
    /// DEBUG SET-ACTIVE-EXPIRE.
    pub active_expire: bool,
    /// What a client may hold.
    pub client_limits: ClientLimits,
}

/// What clients may hold before they are closed, in bytes; 0 for no limit.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// `client-query-buffer-limit`.
    pub query: usize,
    /// `client-output-buffer-limit` of the class `normal`: beyond it a client is closed at once.
    pub output_hard: usize,
    /// The same, if exceeded for longer than `output_soft_ms`.
    pub output_soft: usize,
    /// See there.
    pub output_soft_ms: u64,
    /// `maxmemory-clients`: all clients of all cores together.
    pub all: usize,
}

impl ClientLimits {
    /// True when the clients must be scanned from time to time.
    #[must_use]
    pub fn are_set(&self) -> bool {
        self.output_hard > 0 || self.output_soft > 0 || self.all > 0
    }
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self { query: 1 << 30, output_hard: 0, output_soft: 0, output_soft_ms: 0, all: 0 }
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
            client_limits: ClientLimits::default(),
        }
    }
}

//! The state that administration commands have on one core.

use super::changes::Changes;
use super::latency::{Complaints, Events};
use super::slowlog::Slowlog;
use crate::engine::slices::{Cause, Slice};
use crate::engine::stats::Pace;
use crate::settings::Settings;
use crate::shared::Shared;
use darter_base::limits::{SLICE_MAX_NS, SPARE_BYTES};
use std::cell::RefCell;
use std::sync::Arc;

/// The state that administration commands have on one core.
pub struct Local {
    /// The state that all cores share.
    pub shared: Arc<Shared>,
    pub(crate) settings: RefCell<Arc<Settings>>,
    /// Queued CONFIG SETs. Core 0 only.
    pub(crate) changes: RefCell<Changes>,
    buffer: RefCell<Vec<u8>>,
    pub(crate) slowlog: RefCell<Slowlog>,
    pub(crate) latency: RefCell<Events>,
    pub(crate) complaints: RefCell<Complaints>,
    pub(crate) pace: RefCell<Pace>,
}

impl Local {
    /// Creates the state of a new core.
    #[must_use]
    pub fn new(shared: Arc<Shared>, settings: Arc<Settings>) -> Self {
        Self {
            shared,
            settings: RefCell::new(settings),
            changes: RefCell::default(),
            buffer: RefCell::default(),
            slowlog: RefCell::default(),
            latency: RefCell::default(),
            complaints: RefCell::default(),
            pace: RefCell::default(),
        }
    }

    /// Takes the buffer that is reused for encoding replies. [`Local::keep_buffer`] returns it.
    pub fn take_buffer(&self) -> Vec<u8> {
        self.buffer.take()
    }

    /// Returns the buffer for reuse, unless a long reply has made it large.
    pub fn keep_buffer(&self, buffer: Vec<u8>) {
        if buffer.capacity() <= SPARE_BYTES {
            self.buffer.replace(buffer);
        }
    }

    /// Logs a slice if it is too long, and keeps it if it exceeds LATENCY's threshold. `command` is
    /// the one to which it is attributed.
    pub(crate) fn note_slice(&self, slice: Slice, command: Option<&'static str>, now_ns: u64) {
        let Slice { core, unix_ms, ns, cause } = slice;
        if ns > SLICE_MAX_NS
            && let Some(left_out) = self.complaints.borrow_mut().admit(now_ns)
        {
            tracing::warn!(
                "slice of {} us, limit {} us: cause {}, command {}, core {core}; \
                 {left_out} more since the last log line",
                ns / 1_000,
                SLICE_MAX_NS / 1_000,
                cause.name(),
                command.unwrap_or("-"),
            );
        }
        let threshold = self.settings.borrow().size("latency-monitor-threshold") as u64;
        let ms = ns / 1_000_000;
        if threshold > 0 && ms >= threshold {
            let name = match cause {
                Cause::Command(_) => command.unwrap_or_default(),
                other => other.name(),
            };
            self.latency.borrow_mut().add(name, unix_ms / 1_000, ms);
        }
    }

    /// Commands per second since the last call.
    pub(crate) fn commands_per_s(&self, now_ms: u64, commands: u64) -> u64 {
        self.pace.borrow_mut().per_s(now_ms, commands, self.shared.started_ms)
    }

    /// The settings that this core uses.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.borrow())
    }
}

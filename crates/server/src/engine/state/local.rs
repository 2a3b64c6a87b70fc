//! The state that administration commands have on one core.

use super::changes::Changes;
use super::latency::{Complaints, Events};
use super::slowlog::Slowlog;
use crate::engine::stats::Pace;
use crate::settings::Settings;
use crate::shared::Shared;
use darter_base::limits::SPARE_BYTES;
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

    /// The settings that this core uses.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.borrow())
    }
}

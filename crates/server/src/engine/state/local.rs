//! What a core keeps for administration commands.

use super::changes::Changes;
use super::latency::{Complaints, Events};
use super::slowlog::Slowlog;
use crate::engine::stats::Pace;
use crate::settings::Settings;
use crate::shared::Shared;
use darter_base::limits::SPARE_BYTES;
use std::cell::RefCell;
use std::sync::Arc;

/// What a core keeps for administration commands.
pub struct Local {
    /// Facts of the process.
    pub shared: Arc<Shared>,
    pub(crate) settings: RefCell<Arc<Settings>>,
    /// Changes of the settings, until they are decided. Core 0 only.
    pub(crate) changes: RefCell<Changes>,
    buffer: RefCell<Vec<u8>>,
    pub(crate) slowlog: RefCell<Slowlog>,
    pub(crate) latency: RefCell<Events>,
    pub(crate) complaints: RefCell<Complaints>,
    pub(crate) pace: RefCell<Pace>,
}

impl Local {
    /// Nothing yet.
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

    /// A buffer for replies that are copied on: see [`Local::keep_buffer`].
    pub fn take_buffer(&self) -> Vec<u8> {
        self.buffer.take()
    }

    /// Keeps it for its capacity, unless a long reply was in it.
    pub fn keep_buffer(&self, buffer: Vec<u8>) {
        if buffer.capacity() <= SPARE_BYTES {
            self.buffer.replace(buffer);
        }
    }

    /// The settings of this core.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.borrow())
    }
}

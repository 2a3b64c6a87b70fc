//! The observers of a database's changes: readers of records, and watchers of keys, which need only
//! events.

use crate::log::Log;
use crate::log::ring::Wants;
use crate::{Db, Effect, Events, Record};

impl Db {
    /// Starts or stops recording changes, for a database outside a shard. (For others:
    /// [`Shard::join`](crate::Shard::join).)
    pub fn listen(&mut self, listening: bool) {
        self.log = listening.then(Box::default);
        self.log.iter_mut().for_each(|log| _ = log.join(Wants::CHANGES));
    }

    /// True if changes are recorded.
    #[must_use]
    pub fn is_listening(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.is_read())
    }

    /// True if effects are recorded, too.
    pub(crate) fn wants_effects(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.wants_effects())
    }

    /// True if changes are observed, recorded or not.
    pub(crate) fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Takes the records, for the only reader.
    #[must_use]
    pub fn take_records(&mut self) -> Vec<Record> {
        self.log.as_mut().map_or_else(Vec::new, |log| log.take())
    }

    /// The log, for moving or inspecting it.
    pub(crate) fn log(&mut self) -> &mut Option<Box<Log>> {
        &mut self.log
    }

    /// Records an event of a key and its effect, if there is an observer.
    #[inline]
    pub(crate) fn tell(
        &mut self,
        key: &[u8],
        told: impl FnOnce() -> Events,
        effect: impl FnOnce() -> Effect,
    ) {
        if let Some(log) = &mut self.log {
            match log.wants_effects() {
                true => log.push_key(key, effect(), told()),
                false => log.push_touch(key, told()),
            }
        }
    }

    /// [`Db::tell`] if no reader wants effects.
    pub(crate) fn tell_touch(&mut self, key: &[u8], told: impl FnOnce() -> Events) {
        if let Some(log) = &mut self.log {
            log.push_touch(key, told());
        }
    }
}

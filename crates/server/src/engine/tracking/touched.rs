//! Runs on the core that owns the keys: finds the clients that must be notified of touched keys.
//!
//! Touched keys are taken from the shard after each command and after each step of a task. So the
//! invalidations leave together with the turn's other messages, and before the replies of the
//! clients that have touched the keys.

use super::super::core::Core;
use super::super::state::tracking::broadcasts::Broadcast;
use super::super::state::tracking::deliveries::To;
use super::super::state::tracking::message::Invalidation;
use darter_keyspace::{Hears, Readers, Touched};
use std::rc::Rc;
use std::sync::Arc;

/// Readers of one key that are notified in one step: a few microseconds.
const READERS_AT_ONCE: usize = 64;
/// Steps of matching keys with prefixes after a command: about 10 us.
const STEPS_AT_ONCE: usize = 64;
/// Messages for prefixes that are made in one step.
const BROADCASTS_AT_ONCE: usize = 16;
/// Tracked keys that are evicted in one step while there are more than the limit.
const DROPPED_AT_ONCE: usize = 32;

impl Core {
    /// Handles the keys touched since the last call: notifies their readers, and gathers the keys
    /// for matching prefixes.
    pub(crate) fn hear_touched(self: &Rc<Self>) {
        let touched = {
            let shard = &mut self.tx.home().shard;
            let touched = shard.take_touched();
            self.is_logged.set(shard.is_read());
            touched
        };
        let mut is_matched = true;
        for touched in touched {
            match touched {
                Touched::Read { name, mut readers, author } => {
                    let message = Invalidation::of(name, author);
                    if !self.send_to_readers(&message, &mut readers) {
                        self.tracking.fans.borrow_mut().push_back((message, readers));
                    }
                }
                Touched::Any { name, author } => {
                    self.tracking.broadcasts.borrow_mut().touch((Arc::new(name), author));
                    is_matched = false;
                }
                Touched::All => {
                    let mut deliveries = self.tracking.deliveries.borrow_mut();
                    deliveries.push(Arc::new(Invalidation::All), To::All { after: 0 });
                }
            }
        }
        if !is_matched {
            self.tracking.broadcasts.borrow_mut().match_some(STEPS_AT_ONCE);
        }
    }

    /// Notifies a portion of the clients that have read a key, through their cores. Returns true if
    /// no client is left.
    fn send_to_readers(
        self: &Rc<Self>,
        message: &Arc<Invalidation>,
        readers: &mut Readers,
    ) -> bool {
        let mut some = readers.take(READERS_AT_ONCE);
        while let Some(first) = some.first() {
            let core = self.core_of_client(*first);
            let is_there = |client: &mut u64| self.core_of_client(*client) == core;
            let there: Vec<u64> = some.extract_if(.., is_there).collect();
            let message = Arc::clone(message);
            self.tell(core, move |home| {
                home.tracking.deliveries.borrow_mut().push(message, To::Readers(there));
            });
        }
        readers.is_empty()
    }

    /// Sets which touches the shard reports. That depends on whether there are tracking clients and
    /// prefixes.
    pub(super) fn hear_for_trackers(&self) {
        let flushes = self.tracking.trackers.borrow().len() > 0;
        let all = !self.tracking.broadcasts.borrow().is_empty();
        let shard = &mut self.tx.home().shard;
        shard.hear_for(Hears { flushes, all });
        self.is_logged.set(shard.is_read());
    }

    /// Sets the limit of tracked keys.
    pub(crate) fn limit_tracked(&self, keys_max: usize) {
        self.tracking.most.set(keys_max.div_ceil(self.tx.cores()));
        self.tracking.is_over.set(true);
    }

    /// Sends the keys gathered for prefixes, at the end of a turn. Keys wait while earlier messages
    /// are not delivered.
    pub(crate) fn send_broadcasts(self: &Rc<Self>) {
        let all = self.tracking.broadcasts.borrow_mut().take(BROADCASTS_AT_ONCE);
        let from = self.id();
        for Broadcast { prefix, cores, message } in all {
            for core in cores {
                let (prefix, message) = (prefix.clone(), Arc::clone(&message));
                let to = To::Prefix { prefix, after: 0, from };
                self.tell(core, move |home| {
                    home.tracking.deliveries.borrow_mut().push(message, to);
                });
            }
        }
    }

    /// Runs a portion of the waiting work of client tracking.
    pub(crate) fn work_on_tracking(self: &Rc<Self>) {
        let fan = self.tracking.fans.borrow_mut().pop_front();
        if let Some((message, mut readers)) = fan
            && !self.send_to_readers(&message, &mut readers)
        {
            self.tracking.fans.borrow_mut().push_back((message, readers));
        }
        if self.tracking.is_over.get() {
            let most = self.tracking.most.get();
            let is_over = self.tx.home().shard.forget_some(most, DROPPED_AT_ONCE);
            self.tracking.is_over.set(is_over);
            self.hear_touched();
        }
        self.tracking.broadcasts.borrow_mut().match_some(STEPS_AT_ONCE);
        self.push_invalidations(None);
    }
}

//! Begins, changes and ends the tracking of a client.
//!
//! All cores know all prefixes. One message to each other core is enough to add a prefix: every
//! request that reaches that core after the reply to CLIENT TRACKING also arrives after the message
//! (docs/design/0011-pipeline-order.md).

use super::super::core::Core;
use super::super::state::tracking::Prefix;
use super::super::state::tracking::mode::Mode;
use super::super::state::tracking::trackers::{Prefixes, held_bytes};
use std::rc::Rc;

/// Prefixes added or removed in one step: about 20 us.
const AT_ONCE: usize = 32;

/// A client that is beginning to track.
pub(crate) struct Tracks {
    core: Rc<Core>,
    client: u64,
}

impl Tracks {
    /// Begins to track for a client in this mode; `None` if the client has gone.
    pub(crate) fn begin(core: &Rc<Core>, client: u64, mode: Mode) -> Option<Self> {
        core.with_client(client, |conn| {
            let before = conn.lane.session.tracking;
            let (is_excepted, prefix_bytes) = (before.is_excepted, before.prefix_bytes);
            conn.lane.session.tracking = Mode { is_excepted, prefix_bytes, ..mode };
        })?;
        core.tracking.trackers.borrow_mut().enter(client);
        core.hear_for_trackers();
        Some(Self { core: Rc::clone(core), client })
    }

    /// Adds prefixes to those that the client tracks.
    pub(crate) async fn add(&self, prefixes: &[Prefix]) {
        for some in prefixes.chunks(AT_ONCE) {
            let core = &self.core;
            let added = core.with_client(self.client, |conn| {
                let (mut trackers, mut firsts) = (core.tracking.trackers.borrow_mut(), Vec::new());
                for prefix in some {
                    let (is_new, is_first) = trackers.add(self.client, prefix);
                    let bytes = if is_new { held_bytes(prefix) } else { 0 };
                    conn.lane.session.tracking.prefix_bytes += bytes;
                    firsts.extend(is_first.then(|| prefix.clone()));
                }
                firsts
            });
            // The client has gone, and its prefixes with it.
            let Some(firsts) = added else { return };
            core.announce_prefixes(firsts, true);
            core.tx.pause().await;
        }
    }
}

impl Core {
    /// Notifies all cores of prefixes of which this core now has its first client (`is_new`), or
    /// had its last.
    fn announce_prefixes(self: &Rc<Self>, prefixes: Vec<Prefix>, is_new: bool) {
        if prefixes.is_empty() {
            return;
        }
        let from = self.id();
        for core in 0..self.tx.cores() {
            let prefixes = prefixes.clone();
            self.tell(core, move |home| {
                let mut broadcasts = home.tracking.broadcasts.borrow_mut();
                for prefix in &prefixes {
                    match is_new {
                        true => broadcasts.add(prefix, from),
                        false => broadcasts.remove(prefix, from),
                    }
                }
                drop(broadcasts);
                home.hear_for_trackers();
            });
        }
    }

    /// Ends the tracking of a client that had this mode. The record that it has read a key is
    /// removed when the key is next touched. Its prefixes are removed in portions.
    pub(crate) fn stop_tracking(self: &Rc<Self>, client: u64, mode: Mode) {
        if !mode.is_on {
            return;
        }
        let mut prefixes = self.tracking.trackers.borrow_mut().leave(client);
        self.hear_for_trackers();
        if self.give_up_prefixes(client, &mut prefixes) {
            self.spawn_on_self(|core| async move {
                while core.give_up_prefixes(client, &mut prefixes) {
                    core.tx.pause().await;
                }
            });
        }
    }

    /// Removes a portion of the client's prefixes. Returns true if some are left.
    fn give_up_prefixes(self: &Rc<Self>, client: u64, prefixes: &mut Prefixes) -> bool {
        let unused = self.tracking.trackers.borrow_mut().remove_some(client, prefixes, AT_ONCE);
        self.announce_prefixes(unused, false);
        !prefixes.is_empty()
    }
}

//! Beginning, changing and ending the tracking of a client.
//!
//! All cores know all prefixes. One message to another core suffices: every request that reaches
//! that core after the reply to CLIENT TRACKING comes after the message
//! (docs/design/0011-pipeline-order.md).

use super::super::core::Core;
use super::super::state::tracking::Prefix;
use super::super::state::tracking::mode::Mode;
use super::super::state::tracking::trackers::{Prefixes, held_bytes};
use std::rc::Rc;

/// Prefixes added or removed at once: about 20 us.
const AT_ONCE: usize = 32;

/// A client that begins to track.
pub(crate) struct Tracks {
    core: Rc<Core>,
    client: u64,
}

impl Tracks {
    /// Begins tracking in this mode; `None` if the client is gone.
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

    /// Adds prefixes to the client.
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
            let Some(firsts) = added else { return }; // The client is gone, with its prefixes.
            core.announce_prefixes(firsts, true);
            core.tx.pause().await;
        }
    }
}

impl Core {
    /// Reports prefixes to all cores: this core has their first client, or had their last.
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

    /// Ends the tracking of a client that was in this mode. Its reads are removed when the keys are
    /// touched, and its prefixes in portions.
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

    /// Removes a portion of the prefixes. True if there are more.
    fn give_up_prefixes(self: &Rc<Self>, client: u64, prefixes: &mut Prefixes) -> bool {
        let unused = self.tracking.trackers.borrow_mut().remove_some(client, prefixes, AT_ONCE);
        self.announce_prefixes(unused, false);
        !prefixes.is_empty()
    }
}

//! The end of a unit (a command, an EXEC or a script): its changes are final and visible.

use super::super::core::Core;
use std::rc::Rc;

/// Publishes the events of a unit, sends its invalidations, and serves clients that wait for the
/// `written` keys.
#[inline(always)]
pub(crate) fn settle_changes(core: &Rc<Core>, written: impl Iterator<Item = u64>) {
    core.publish_unit();
    if !core.waits.borrow().is_empty() {
        core.serve_names(written);
        core.publish_unit();
    }
}

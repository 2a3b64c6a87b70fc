//! The end of a unit: a command, an EXEC, a script. Its changes are final, and others learn of them.

use super::super::core::Core;
use std::rc::Rc;

/// Publishes the events of a unit, invalidates what others have read, and serves clients that wait for
/// `written` keys.
#[inline(always)]
pub(crate) fn settle_changes(core: &Rc<Core>, written: impl Iterator<Item = u64>) {
    core.publish_unit();
    if !core.waits.borrow().is_empty() {
        core.serve_names(written);
        core.publish_unit();
    }
}

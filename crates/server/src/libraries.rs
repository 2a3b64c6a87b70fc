//! The function libraries, which all cores share.
//!
//! The libraries are one immutable map. A change builds a new map from the current one and installs
//! it only if that is still current.

use darter_script::Registry;
use std::sync::{Arc, Mutex};

/// See the module.
#[derive(Default)]
pub(crate) struct Libraries {
    current: Mutex<Arc<Registry>>,
}

impl Libraries {
    /// The current map.
    pub(crate) fn current(&self) -> Arc<Registry> {
        Arc::clone(&self.current.lock().expect("no holder panics"))
    }

    /// Replaces `base` by `next`. False if `base` is not current any more.
    pub(crate) fn replace(&self, base: &Arc<Registry>, next: Arc<Registry>) -> bool {
        let mut current = self.current.lock().expect("no holder panics");
        let is_current = Arc::ptr_eq(&current, base);
        let old = if is_current { std::mem::replace(&mut *current, next) } else { next };
        drop(current);
        drop(old); // Dropping the last reference may free much memory.
        is_current
    }
}

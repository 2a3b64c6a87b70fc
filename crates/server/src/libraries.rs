//! The function libraries, which all cores share.
//!
//! The libraries are one immutable map. A change builds a new map from the current one. The new map
//! is installed only if the current one has not been replaced in the meantime.

use darter_script::Registry;
use std::sync::{Arc, Mutex};

/// The current map of libraries.
#[derive(Default)]
pub(crate) struct Libraries {
    current: Mutex<Arc<Registry>>,
}

impl Libraries {
    /// Returns the current map.
    pub(crate) fn current(&self) -> Arc<Registry> {
        Arc::clone(&self.current.lock().expect("no holder panics"))
    }

    /// Replaces the map `base` by `next`. Returns false if `base` is not current any more.
    pub(crate) fn replace(&self, base: &Arc<Registry>, next: Arc<Registry>) -> bool {
        let mut current = self.current.lock().expect("no holder panics");
        let is_current = Arc::ptr_eq(&current, base);
        let old = if is_current { std::mem::replace(&mut *current, next) } else { next };
        drop(current);
        drop(old); // Dropping the last reference may free much memory.
        is_current
    }
}

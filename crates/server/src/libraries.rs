//! The libraries of functions, which all cores share.
//!
//! They are one immutable map; a change puts another one in its place, if nobody has done so since
//! the map was read that it was made from.

use darter_script::Registry;
use std::sync::{Arc, Mutex};

/// See the module.
#[derive(Default)]
pub(crate) struct Libraries {
    current: Mutex<Arc<Registry>>,
}

impl Libraries {
    /// All of them, as they are now.
    pub(crate) fn current(&self) -> Arc<Registry> {
        Arc::clone(&self.current.lock().expect("no holder panics"))
    }

    /// Puts `next` in the place of `base`; false if that is not the current one any more.
    pub(crate) fn replace(&self, base: &Arc<Registry>, next: Arc<Registry>) -> bool {
        let mut current = self.current.lock().expect("no holder panics");
        let is_current = Arc::ptr_eq(&current, base);
        let old = if is_current { std::mem::replace(&mut *current, next) } else { next };
        drop(current);
        drop(old); // It may be the last that refers to much.
        is_current
    }
}

//! The function libraries, which all cores share.
//!
//! The libraries are one immutable map. A change builds a new map from the current one. The new map
//! is installed only if the current one has not been replaced in the meantime.

use darter_keyspace::{Commands, ServerAct};
use darter_script::{Registry, Source};
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

/// A change of the function libraries, as it is recorded in the log: its steps, in order.
#[derive(Debug)]
pub(crate) struct LibrariesChange(pub(crate) Vec<LibraryStep>);

/// One step of a [`LibrariesChange`].
#[derive(Debug)]
pub(crate) enum LibraryStep {
    Flush,
    Delete(Box<str>),
    Load(Arc<Source>),
}

impl ServerAct for LibrariesChange {
    fn held_bytes(&self) -> usize {
        let bytes = |step: &LibraryStep| match step {
            LibraryStep::Flush => 0,
            LibraryStep::Delete(name) => name.len(),
            LibraryStep::Load(source) => source.text.len(),
        };
        self.0.iter().map(|step| size_of::<LibraryStep>() + bytes(step)).sum()
    }

    fn is_of_all(&self) -> bool {
        true
    }
}

impl LibrariesChange {
    /// Writes the commands of the steps.
    pub(crate) fn encode(&self, to: &mut Commands) {
        for step in &self.0 {
            match step {
                LibraryStep::Flush => to.command(&[b"FUNCTION", b"FLUSH"]),
                LibraryStep::Delete(name) => to.command(&[b"FUNCTION", b"DELETE", name.as_bytes()]),
                LibraryStep::Load(source) => {
                    to.command(&[b"FUNCTION", b"LOAD", b"REPLACE", &source.text]);
                }
            }
        }
    }
}

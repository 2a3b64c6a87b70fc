//! Whether a large value is still there, as who reads a cut of it wants to know.
//!
//! All that hold a part of a value share one small block: its versions (itself, its cuts, its copies),
//! who reads it for long, and what waits to be freed. The block counts the versions. When none is left
//! the value is gone, and what readers still hold of it nobody else has; when nobody else has the
//! block, what is freed comes back. docs/design/0008-memory-told.md.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Watches a value that somebody reads for long. It holds nothing of it but the count of its versions:
/// so the value counts as shared while it is watched.
#[derive(Debug, Default)]
pub struct Watch {
    owner: Owner,
    bytes: usize,
}

impl Watch {
    /// Of a value that takes so many bytes.
    pub(crate) fn new(owner: &Owner, bytes: usize) -> Self {
        Self { owner: owner.reader(), bytes }
    }

    /// Which value it is: the same for all versions of one. None of what is too small to be told.
    ///
    /// It is no other value's as long as the watch is there.
    #[must_use]
    pub fn value(&self) -> Option<usize> {
        self.owner.versions.as_ref().map(|versions| Arc::as_ptr(versions).addr())
    }

    /// What it took, once it is gone; 0 while it is there.
    #[must_use]
    pub fn pinned_bytes(&self) -> usize {
        if self.owner.is_gone() { self.bytes } else { 0 }
    }
}

/// The share of one holder; none of what is too small to have owners.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    versions: Option<Arc<AtomicUsize>>,
    is_version: bool,
}

impl Owner {
    /// That of a new value.
    pub(crate) fn new() -> Self {
        Self { versions: Some(Arc::new(AtomicUsize::new(1))), is_version: true }
    }

    /// That of somebody who does not keep the value there.
    pub(crate) fn reader(&self) -> Self {
        Self { versions: self.versions.clone(), is_version: false }
    }

    /// This one's, for what is left of a version that goes.
    pub(crate) fn retire(&mut self) -> Self {
        self.leave();
        Self { versions: self.versions.take(), is_version: false }
    }

    /// True when no version is left. None comes back.
    pub(crate) fn is_gone(&self) -> bool {
        // Nothing is reached by it: a number to tell.
        self.versions.as_ref().is_some_and(|versions| versions.load(Ordering::Relaxed) == 0)
    }

    /// True when somebody else holds a part of the value.
    pub(crate) fn is_shared(&self) -> bool {
        self.versions.as_ref().is_some_and(|versions| Arc::strong_count(versions) > 1)
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.is_version)
            && let Some(versions) = &self.versions
        {
            versions.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Clone for Owner {
    fn clone(&self) -> Self {
        if self.is_version
            && let Some(versions) = &self.versions
        {
            versions.fetch_add(1, Ordering::Relaxed);
        }
        Self { versions: self.versions.clone(), is_version: self.is_version }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.leave();
    }
}

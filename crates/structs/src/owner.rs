//! Whether a large value still exists, for the readers of its cuts.
//!
//! All holders of a part of a value share one small block: its versions (itself, its cuts, its
//! copies), long-lived readers, and what waits to be freed. The block counts the versions. When
//! none is left the value is gone, and only readers still hold parts of it; when the block has one
//! holder, what that frees goes back to the allocator. docs/design/0008-reported-memory.md.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Watches a value on behalf of a long-lived reader. It holds nothing of it but the count of its
/// versions, so the value counts as shared while it is watched.
#[derive(Debug, Default)]
pub struct Watch {
    owner: Owner,
    bytes: usize,
}

impl Watch {
    /// Of a value of `bytes`.
    pub(crate) fn new(owner: &Owner, bytes: usize) -> Self {
        Self { owner: owner.reader(), bytes }
    }

    /// The value's identity: the same for all versions of one; none for what is too small to be
    /// counted.
    ///
    /// No other value has it as long as the watch exists.
    #[must_use]
    pub fn value(&self) -> Option<usize> {
        self.owner.versions.as_ref().map(|versions| Arc::as_ptr(versions).addr())
    }

    /// The value's bytes, once it is gone; 0 while it exists.
    #[must_use]
    pub fn pinned_bytes(&self) -> usize {
        if self.owner.is_gone() { self.bytes } else { 0 }
    }
}

/// One holder's share; empty for what is too small to have owners.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    versions: Option<Arc<AtomicUsize>>,
    is_version: bool,
}

impl Owner {
    /// The share of a new value.
    pub(crate) fn new() -> Self {
        Self { versions: Some(Arc::new(AtomicUsize::new(1))), is_version: true }
    }

    /// False for the empty share.
    pub(crate) fn exists(&self) -> bool {
        self.versions.is_some()
    }

    /// The share of a reader, which does not keep the value in existence.
    pub(crate) fn reader(&self) -> Self {
        Self { versions: self.versions.clone(), is_version: false }
    }

    /// Takes this share, for the rest of a version that is being freed.
    pub(crate) fn retire(&mut self) -> Self {
        self.leave();
        Self { versions: self.versions.take(), is_version: false }
    }

    /// The share of a part that is freed while the holder remains: none once only readers are left,
    /// as what is not counted for the value any more is given back.
    pub(crate) fn of_part(&self) -> Self {
        if self.is_gone() { Self::default() } else { self.reader() }
    }

    /// True when no version is left. None comes back.
    pub(crate) fn is_gone(&self) -> bool {
        // Orders nothing: a number to report.
        self.versions.as_ref().is_some_and(|versions| versions.load(Ordering::Relaxed) == 0)
    }

    /// True when there is another holder.
    pub(crate) fn is_shared(&self) -> bool {
        self.versions.as_ref().is_some_and(|versions| Arc::strong_count(versions) > 1)
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.is_version)
            && let Some(versions) = &self.versions
        {
            let before = versions.fetch_sub(1, Ordering::Relaxed);
            assert!(before > 0, "a version leaves twice");
        }
    }
}

impl Clone for Owner {
    fn clone(&self) -> Self {
        if self.is_version
            && let Some(versions) = &self.versions
        {
            let before = versions.fetch_add(1, Ordering::Relaxed);
            assert!(before > 0, "a version of what is gone");
        }
        Self { versions: self.versions.clone(), is_version: self.is_version }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.leave();
    }
}

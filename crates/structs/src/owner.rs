//! Tells the readers of a value's cuts whether the value still exists.
//!
//! All holders of a part of a value share one small block: its versions (itself, its cuts, its
//! copies), long-lived readers, and rests waiting to be freed. The block counts the versions. When
//! none is left, the value is gone, and only readers still hold parts of it. When the block has a
//! single holder, everything that holder frees returns to the allocator. See
//! docs/design/0008-reported-memory.md.
//!
//! The block also counts the bytes that versions have copied because others held them, too, so a
//! reader knows how much it alone keeps alive. See docs/design/0017-saving.md.

use crate::kept;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Watches a value on behalf of a long-lived reader. It holds only the count of versions, so the
/// value counts as shared while it is watched.
#[derive(Debug, Default)]
pub struct Watch {
    owner: Owner,
    bytes: usize,
}

impl Watch {
    /// A reader of a value of `bytes`.
    pub(crate) fn new(owner: &Owner, bytes: usize) -> Self {
        Self { owner: owner.reader(), bytes }
    }

    /// The value's identity: equal for all versions of a value; `None` for a value too small to be
    /// counted.
    ///
    /// No other value has the same identity while the watch exists.
    #[must_use]
    pub fn value(&self) -> Option<usize> {
        self.owner.block.as_ref().map(|block| Arc::as_ptr(block).addr())
    }

    /// The value's bytes, once it is gone; 0 while it exists.
    #[must_use]
    pub fn pinned_bytes(&self) -> usize {
        if self.owner.is_gone() { self.bytes } else { 0 }
    }
}

/// The block shared by all holders.
#[derive(Debug, Default)]
struct Block {
    versions: AtomicU32,
    /// KiB that versions have copied because others held them; the number wraps.
    copied_kib: AtomicU32,
    /// The snapshot during which something was last copied, and the KiB copied before that snapshot
    /// started.
    snapshot: AtomicU32,
    before_snapshot_kib: AtomicU32,
}

/// A holder's handle; empty for a value too small to have owners.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    block: Option<Arc<Block>>,
    is_version: bool,
    /// For a reader, or a cut that will become one: KiB that had been copied when it was taken.
    copied_before_kib: u32,
}

impl Owner {
    /// The handle of a new value.
    pub(crate) fn new() -> Self {
        let block = Block { versions: AtomicU32::new(1), ..Block::default() };
        Self { block: Some(Arc::new(block)), is_version: true, copied_before_kib: 0 }
    }

    /// False for the empty handle.
    pub(crate) fn exists(&self) -> bool {
        self.block.is_some()
    }

    /// The handle of a reader, which does not keep the value in existence.
    pub(crate) fn reader(&self) -> Self {
        let copied_before_kib = self.all_copied_kib();
        Self { block: self.block.clone(), is_version: false, copied_before_kib }
    }

    /// The handle of a reader that takes over from this cut; copies since the cut count.
    pub(crate) fn cut_reader(&self) -> Self {
        let copied_before_kib = self.copied_before_kib;
        Self { block: self.block.clone(), is_version: false, copied_before_kib }
    }

    /// Counts copies from the start of this thread's last snapshot on.
    pub(crate) fn count_since_snapshot(&mut self) {
        self.copied_before_kib = self.before_snapshot_kib();
    }

    /// KiB that versions have copied since this thread's last snapshot began.
    pub(crate) fn copied_since_snapshot_kib(&self) -> u32 {
        self.all_copied_kib().wrapping_sub(self.before_snapshot_kib())
    }

    fn before_snapshot_kib(&self) -> u32 {
        self.block.as_ref().map_or(0, |block| {
            let is_copied = block.snapshot.load(Ordering::Relaxed) == kept::snapshot();
            let before = if is_copied { &block.before_snapshot_kib } else { &block.copied_kib };
            before.load(Ordering::Relaxed)
        })
    }

    /// Takes this handle, for the rest of a version that is being freed.
    pub(crate) fn retire(&mut self) -> Self {
        self.leave();
        let block = self.block.take();
        Self { block, is_version: false, copied_before_kib: self.copied_before_kib }
    }

    /// Records that a version has copied `bytes` because others held them, too.
    pub(crate) fn note_copied(&self, bytes: usize) {
        if let Some(block) = &self.block {
            let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
            // Only compared, so the order of accesses does not matter.
            let before = block.copied_kib.fetch_add(kib, Ordering::Relaxed);
            if block.snapshot.swap(kept::snapshot(), Ordering::Relaxed) != kept::snapshot() {
                block.before_snapshot_kib.store(before, Ordering::Relaxed);
            }
        }
    }

    /// KiB copied by versions since this reader was created.
    pub(crate) fn copied_kib(&self) -> u32 {
        self.all_copied_kib().wrapping_sub(self.copied_before_kib)
    }

    fn all_copied_kib(&self) -> u32 {
        self.block.as_ref().map_or(0, |block| block.copied_kib.load(Ordering::Relaxed))
    }

    /// The handle for a part that is freed while its holder remains; empty if only readers are
    /// left, because the part then no longer counts for the value.
    pub(crate) fn of_part(&self) -> Self {
        if self.is_gone() { Self::default() } else { self.reader() }
    }

    /// True if no version is left; none can appear again.
    pub(crate) fn is_gone(&self) -> bool {
        // A relaxed read: the result is only reported.
        self.block.as_ref().is_some_and(|block| block.versions.load(Ordering::Relaxed) == 0)
    }

    /// True if there is another holder.
    pub(crate) fn is_shared(&self) -> bool {
        self.block.as_ref().is_some_and(|block| Arc::strong_count(block) > 1)
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.is_version)
            && let Some(block) = &self.block
        {
            let before = block.versions.fetch_sub(1, Ordering::Relaxed);
            assert!(before > 0, "a version leaves twice");
        }
    }
}

impl Clone for Owner {
    fn clone(&self) -> Self {
        if self.is_version
            && let Some(block) = &self.block
        {
            let before = block.versions.fetch_add(1, Ordering::Relaxed);
            assert!(before > 0, "a version of what is gone");
        }
        let copied_before_kib =
            if self.is_version { self.all_copied_kib() } else { self.copied_before_kib };
        Self { block: self.block.clone(), is_version: self.is_version, copied_before_kib }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.leave();
    }
}

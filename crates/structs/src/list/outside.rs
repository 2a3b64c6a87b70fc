//! The long elements of one chunk, by number.
//!
//! When a shared chunk is copied, every blob in it is counted, at a cache miss each: so a chunk has at
//! most [`BLOBS_MAX`] of them.

use crate::blob::Blob;
use crate::lazyfree::{self, Dismantle};

/// Blobs of a chunk: counting as many takes some 10 us.
pub(super) const BLOBS_MAX: usize = 128;
/// Blobs that are freed at once.
const FREED_AT_ONCE: usize = 8;

/// See the module. Numbers of blobs that are gone are given again.
#[derive(Clone, Default)]
pub(super) struct Outside {
    blobs: Vec<Option<Blob>>,
    free: Vec<u16>,
    /// Memory of the blobs.
    bytes: usize,
}

impl Outside {
    /// Blobs that are there.
    pub(super) fn len(&self) -> usize {
        self.blobs.len() - self.free.len()
    }

    /// Takes over a blob, and returns its number.
    pub(super) fn add(&mut self, blob: Blob) -> u16 {
        assert!(self.len() < BLOBS_MAX, "{} blobs", self.len());
        self.bytes += blob.memory_bytes();
        if let Some(number) = self.free.pop() {
            let old = self.blobs[usize::from(number)].replace(blob);
            assert!(old.is_none(), "number {number} is free");
            return number;
        }
        self.blobs.push(Some(blob));
        (self.blobs.len() - 1) as u16
    }

    /// The blob with this number.
    pub(super) fn get(&self, number: u16) -> &Blob {
        self.blobs[usize::from(number)].as_ref().expect("a blob for every element that names it")
    }

    /// Lets go of a blob.
    pub(super) fn remove(&mut self, number: u16) {
        let blob = self.blobs[usize::from(number)].take();
        self.bytes -= blob.expect("a blob for every element that names it").memory_bytes();
        self.free.push(number);
    }

    /// Bytes of memory, from the numbers that were given, whatever is allocated for them.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.blobs.len() * size_of::<Option<Blob>>() + self.bytes
    }

    /// Panics when the sums are not those of the blobs.
    pub(super) fn check(&self) {
        let there = self.blobs.iter().flatten();
        assert_eq!(there.clone().count(), self.len());
        assert_eq!(there.map(Blob::memory_bytes).sum::<usize>(), self.bytes);
        assert!(self.len() <= BLOBS_MAX, "{} blobs", self.len());
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if self.len() > FREED_AT_ONCE {
            lazyfree::defer(Box::new(Remains(std::mem::take(&mut self.blobs), self.bytes)));
        }
    }
}

/// The blobs of a chunk that is gone, and their bytes.
struct Remains(Vec<Option<Blob>>, usize);

impl Dismantle for Remains {
    fn dismantle(&mut self) -> bool {
        let left = self.0.len().saturating_sub(FREED_AT_ONCE);
        for blob in self.0.drain(left..).flatten() {
            self.1 -= blob.memory_bytes();
        }
        left > 0
    }

    fn bytes(&self) -> usize {
        self.1
    }
}

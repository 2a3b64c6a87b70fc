//! Copying ahead of a change what cuts hold of its entries' places.

use crate::Touch;
use darter_base::{Preempt, hash};
use darter_structs::table::{OutOfLine, Table};

/// Names that are looked up together.
const BATCH: usize = 16;

/// Makes the places of those of `names` that are touched the table's own. Returns the index of the
/// name after which the slice was over.
pub(crate) fn unshare<X: OutOfLine>(
    table: &mut Table<X>,
    names: &[&[u8]],
    touch: Touch,
    preempt: &dyn Preempt,
) -> Option<usize> {
    for (batch, names) in names.chunks(BATCH).enumerate() {
        let mut hashes = [0; BATCH];
        for (hash, name) in hashes.iter_mut().zip(names) {
            *hash = hash::of(name);
        }
        let hashes = &hashes[..names.len()];
        hashes.iter().for_each(|hash| table.prefetch(*hash));
        hashes.iter().for_each(|hash| table.prefetch_entry(*hash));
        for (at, (hash, name)) in hashes.iter().zip(names).enumerate() {
            let wanted = touch == Touch::All || touch.wants(table.contains(*hash, name));
            if wanted && table.unshare(*hash) && preempt.must_yield() {
                return Some(batch * BATCH + at);
            }
        }
    }
    None
}

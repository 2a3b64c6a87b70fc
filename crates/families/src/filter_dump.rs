//! Dumps of filters in pieces, from one Darter to another: runs of pages, numbered across all
//! layers.
//!
//! The first piece of a dump is the outline, with number 1. The runs follow, from number 2 on; runs
//! of zeros are omitted.

use crate::text::pieces;
use darter_keyspace::Fresh;
use darter_structs::pages::{PAGE_BYTES, Pages};

/// Pages of a run: 128 KiB.
const RUN_PAGES: usize = 32;
pub(crate) const RUN_BYTES: usize = RUN_PAGES * PAGE_BYTES;
/// The number of the outline.
pub(crate) const OUTLINE: i64 = 1;

fn runs(bits: &Pages) -> usize {
    bits.pages().div_ceil(RUN_PAGES)
}

/// The next run after this piece that is not all zeros, and its number.
pub(crate) fn run_after<'a>(
    layers: impl Iterator<Item = &'a Pages>,
    piece: usize,
) -> Option<(i64, Vec<u8>)> {
    let (mut before, from) = (0, piece - OUTLINE as usize);
    for bits in layers {
        let first = from.saturating_sub(before).checked_mul(RUN_PAGES)?;
        if let Some(page) = bits.next_held(first) {
            let run = page / RUN_PAGES;
            let number = i64::try_from(before + run).ok()? + OUTLINE + 1;
            return Some((number, bytes_of(bits, run)));
        }
        before += runs(bits);
    }
    None
}

fn bytes_of(bits: &Pages, run: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(RUN_BYTES);
    for page in run * RUN_PAGES..bits.pages().min((run + 1) * RUN_PAGES) {
        match bits.page(page) {
            Some(page) => bytes.extend_from_slice(page),
            None => bytes.resize(bytes.len() + PAGE_BYTES, 0),
        }
    }
    bytes.truncate(bits.len() - run * RUN_BYTES);
    bytes
}

/// The bytes of a received piece; `None` if it is longer than any valid piece.
pub(crate) fn gathered(value: Fresh<'_>) -> Option<Vec<u8>> {
    (value.len() <= RUN_BYTES).then(|| pieces(value).flatten().copied().collect())
}

/// The place of a piece with this number and length: its layer, and its first page.
pub(crate) fn place_of<'a>(
    layers: impl Iterator<Item = &'a Pages>,
    (piece, len): (i64, usize),
) -> Option<(usize, usize)> {
    let mut run = usize::try_from(piece.checked_sub(OUTLINE + 1)?).ok()?;
    for (layer, bits) in layers.enumerate() {
        if run < runs(bits) {
            let is_whole = len == RUN_BYTES.min(bits.len() - run * RUN_BYTES);
            return is_whole.then_some((layer, run * RUN_PAGES));
        }
        run -= runs(bits);
    }
    None
}

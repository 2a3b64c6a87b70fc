//! Tests of Count-Min sketches: counts are never too low, and are too high only as rarely as the
//! shape promises.

use super::{of_parts, parts, survives_damage};
use darter_base::hash::digest;
use darter_base::{Prng, number};
use darter_families::cms::{Cms, CmsShape};
use darter_keyspace::{Collection, Fresh, Value};
use darter_structs::pages::PAGE_BYTES;
use std::collections::HashMap;

/// A sketch and exact counts of the same items. A few items have most of the counts.
fn counted(seed: u64, shape: CmsShape, times: usize) -> (Cms, HashMap<u64, u32>) {
    let (mut prng, mut exact) = (Prng::from_seed(seed), HashMap::new());
    let mut sketch = Cms::new(shape).unwrap();
    for _ in 0..times {
        let kinds = 1 << prng.below(13);
        let (item, by) = (prng.below(kinds), prng.below(9) as u32);
        let count = exact.entry(item).or_insert(0);
        *count += by;
        let bytes = item.to_le_bytes();
        let hash = digest(&bytes);
        let least = sketch.edit_aside(0).add(Fresh::Bytes(&bytes), hash, i64::from(by));
        assert!(least >= *count, "{seed}: {least} of {count}");
    }
    (sketch, exact)
}

#[test] // Within e / width of all increments, except for one item in 2^depth.
fn counts_exceed_the_error_bound_as_rarely_as_documented() {
    for (seed, width, depth) in [(1, 200, 1), (2, 200, 3), (3, 1_000, 5), (4, 37, 4), (5, 1, 1)] {
        let (sketch, exact) = counted(seed, CmsShape { width, depth }, 40_000);
        let all: u64 = exact.values().map(|count| u64::from(*count)).sum();
        assert_eq!(sketch.count(), all.cast_signed());
        let bound = 2 * all / width;
        let mut beyond = 0;
        for (item, count) in &exact {
            let least = sketch.least(digest(&item.to_le_bytes()), 0..depth);
            assert!(least >= *count, "{seed}: {least} of {count}");
            beyond += u64::from(u64::from(least - count) > bound);
        }
        let most = (exact.len() as u64 >> depth) + 1;
        assert!(beyond <= most, "{seed}: {beyond} of {}, {most} at most", exact.len());
    }
}

#[test]
fn counting_rows_in_portions_gives_the_same_counts() {
    let shape = CmsShape { width: 100, depth: 10 };
    let (mut whole, mut parts) = (Cms::new(shape).unwrap(), Cms::new(shape).unwrap());
    let mut prng = Prng::from_seed(6);
    for item in 0..1_000_u32 {
        let bytes = item.to_le_bytes();
        let (hash, item) = (digest(&bytes), Fresh::Bytes(&bytes));
        let (by, at) = (prng.below(1 << 32).cast_signed(), prng.below(11));
        let least = whole.edit_aside(0).add(item, hash, by);
        let mut edit = parts.edit_aside(0);
        let both = edit.add_in(hash, by, 0..at).min(edit.add_in(hash, by, at..10));
        edit.end_add(item, hash, by);
        assert_eq!(both, least, "{item:?}");
    }
    assert!(super::parts(&whole) == super::parts(&parts));
}

#[test]
fn damaged_sketches_are_refused_or_loaded() {
    survives_damage(&counted(7, CmsShape { width: 700, depth: 5 }, 3_000).0, 2_000);
    survives_damage(&counted(8, CmsShape { width: 3, depth: 1 }, 10).0, 500);
}

#[test] // They are freed in portions. Memory grows with the counters used.
fn cuts_of_large_sketches_share_memory_and_do_not_change() {
    let mut sketch = Cms::new(CmsShape { width: 1 << 20, depth: 16 }).unwrap();
    assert!(sketch.content_bytes() < 1_000, "{} before it has counted", sketch.content_bytes());
    let cut = sketch.clone();
    for item in 0..100 {
        let mut text = Vec::new();
        number::write_i64(&mut text, item);
        sketch.edit_aside(0).add(Fresh::Bytes(&text), digest(&text), 1);
    }
    assert_eq!((sketch.count(), cut.count()), (100, 0));
    let pages = sketch.content_bytes() / 4096;
    assert!((1_500..3_000).contains(&pages), "{pages} of 1 600 counters and what leads to them");
    assert!(cut.content_bytes() < 1_000, "{} of the cut", cut.content_bytes());
    assert_eq!(cut.least(digest(b"5"), 0..16), 0);
    drop((sketch, cut));
    assert!(!darter_keyspace::lazyfree::is_empty());
    while darter_keyspace::lazyfree::run(&darter_base::preempt::Never) {}
}

#[test] // Pieces of zeros are not written to files, and take no memory when they are loaded.
fn pieces_of_zeros_take_no_memory() {
    let sketch = Cms::new(CmsShape { width: 100_000, depth: 2 }).unwrap();
    let mut parts = parts(&sketch);
    parts.push([&3_u64.to_le_bytes()[..], &[0; PAGE_BYTES]].concat());
    let taken = of_parts::<Cms>(&parts).unwrap();
    assert_eq!(taken.content_bytes(), sketch.content_bytes());
    parts.last_mut().unwrap()[100] = 1;
    let taken = of_parts::<Cms>(&parts).unwrap();
    assert!(taken.content_bytes() > sketch.content_bytes() + PAGE_BYTES);
}

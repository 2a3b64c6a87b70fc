//! The databases that hold keys, over all cores, for who goes through all of them.
//!
//! There may be a hundred thousand, so they are told of in portions: each core a few, from one on.

use crate::engine::Core;
use darter_keyspace::Shard;
use darter_tx::Home;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Databases of one core that are looked at between two looks at the clock: about 10 us.
const DATABASES_AT_ONCE: usize = 128;

/// What all cores hold of one database.
#[derive(Clone, Copy, Default)]
pub(super) struct Size {
    pub(super) keys: usize,
    /// Those with a deadline.
    pub(super) mortal: usize,
}

/// What one core tells: those with keys among a few, and where it goes on.
struct Told {
    sizes: Vec<(usize, Size)>,
    next: Option<usize>,
}

impl Told {
    fn from(first: usize, shard: &Shard) -> Self {
        let mut rest = shard.iter_from(first);
        let few = rest.by_ref().take(DATABASES_AT_ONCE).filter(|(_, db)| !db.is_empty());
        let sizes = few.map(|(at, db)| (at, Size { keys: db.len(), mortal: db.mortal_len() }));
        let sizes = sizes.collect();
        Self { sizes, next: rest.next().map(|(at, _)| at) }
    }
}

/// The next databases with keys on some core from `first` on, in order, and where to go on. Cost: a
/// portion of work on each core.
pub(super) async fn in_use_from(
    core: &Rc<Core>,
    first: usize,
) -> (BTreeMap<usize, Size>, Option<usize>) {
    let cores = 0..core.tx.cores();
    let told =
        core.tx.on_each(cores, |_| move |home: &mut Home| Told::from(first, &home.shard)).await;
    // Behind this, some core has not told of all.
    let next = told.iter().filter_map(|told| told.next).min();
    let mut sizes: BTreeMap<usize, Size> = BTreeMap::new();
    for (at, size) in told.into_iter().flat_map(|told| told.sizes) {
        if next.is_none_or(|next| at < next) {
            let sum = sizes.entry(at).or_default();
            *sum = Size { keys: sum.keys + size.keys, mortal: sum.mortal + size.mortal };
        }
    }
    core.tx.pause().await;
    (sizes, next)
}

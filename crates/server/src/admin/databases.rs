//! The databases that hold keys, over all cores, for walking all of them.
//!
//! There may be a hundred thousand, so they are reported in portions: each core a few, from one on.

use crate::engine::Core;
use darter_keyspace::Shard;
use darter_tx::{Home, Tx};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::Poll;

/// Databases of one core visited between two reads of the clock: about 10 us.
const DATABASES_AT_ONCE: usize = 128;

/// What all cores hold of one database.
#[derive(Clone, Copy, Default)]
pub(super) struct Size {
    pub(super) keys: usize,
    /// Those with a deadline.
    pub(super) expires: usize,
}

/// One core's report: those with keys among a few, and where it continues.
struct Told {
    sizes: Vec<(usize, Size)>,
    next: Option<usize>,
}

impl Told {
    fn from(first: usize, shard: &Shard) -> Self {
        let mut rest = shard.iter_from(first);
        let few = rest.by_ref().take(DATABASES_AT_ONCE).filter(|(_, db)| !db.is_empty());
        let sizes = few.map(|(at, db)| (at, Size { keys: db.len(), expires: db.expires_len() }));
        let sizes = sizes.collect();
        Self { sizes, next: rest.next().map(|(at, _)| at) }
    }
}

/// The next databases with keys on some core from `first` on, in order, and where to continue.
/// Cost: a portion of work on each core.
pub(super) async fn in_use_from(
    core: &Rc<Core>,
    first: usize,
) -> (BTreeMap<usize, Size>, Option<usize>) {
    let cores = 0..core.tx.cores();
    let told =
        core.tx.on_each(cores, |_| move |home: &mut Home| Told::from(first, &home.shard)).await;
    // Beyond this some core has not reported all.
    let next = told.iter().filter_map(|told| told.next).min();
    let mut sizes: BTreeMap<usize, Size> = BTreeMap::new();
    for (at, size) in told.into_iter().flat_map(|told| told.sizes) {
        if next.is_none_or(|next| at < next) {
            let sum = sizes.entry(at).or_default();
            *sum = Size { keys: sum.keys + size.keys, expires: sum.expires + size.expires };
        }
    }
    core.tx.pause().await;
    (sizes, next)
}

/// All databases in use, some at a time, for work on each core that owns some of their keys. It ends
/// with this.
pub(super) struct Portions<'a> {
    core: &'a Rc<Core>,
    next: Option<usize>,
    asker: Arc<()>,
}

impl<'a> Portions<'a> {
    pub(super) fn new(core: &'a Rc<Core>) -> Self {
        Self { core, next: Some(0), asker: Arc::default() }
    }

    /// Runs a task on each core for the next ones, which it is given in order, in slices of that
    /// core. Returns the tasks' results, core by core; none when all databases were visited.
    pub(super) async fn on_each_core<R, T>(
        &mut self,
        task: fn(Tx, Vec<usize>) -> T,
    ) -> Option<Vec<R>>
    where
        R: Send + 'static,
        T: Future<Output = R> + 'static,
    {
        let (sizes, next) = in_use_from(self.core, self.next?).await;
        self.next = next;
        let tx = &self.core.tx;
        let start = |_| {
            let (some, asker) = (sizes.keys().copied().collect(), Arc::downgrade(&self.asker));
            move |tx| while_asked(asker, task(tx, some))
        };
        let results = tx.drive_each(0..tx.cores(), start).await;
        Some(results.into_iter().flatten().collect()) // All of them: this asks.
    }
}

/// Runs a task to its end, or until nobody asks for its result any more.
async fn while_asked<R>(asker: Weak<()>, task: impl Future<Output = R>) -> Option<R> {
    let mut task = pin!(task);
    poll_fn(|cx| match asker.strong_count() {
        0 => Poll::Ready(None),
        _ => task.as_mut().poll(cx).map(Some),
    })
    .await
}

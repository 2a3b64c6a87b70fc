//! Visits all databases that have keys, on all cores.
//!
//! There may be 100 000 databases, so the cores report them in portions.

use crate::engine::Core;
use darter_keyspace::Shard;
use darter_tx::{Home, Tx};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::Poll;

/// Databases visited between two reads of the clock: about 10 us.
const DATABASES_AT_ONCE: usize = 128;

/// The size of a database over all cores.
#[derive(Clone, Copy, Default)]
pub(super) struct Size {
    pub(super) keys: usize,
    /// The number of keys with a deadline.
    pub(super) expires: usize,
}

/// One core's report: the databases with keys in a range, and the start of the next range.
struct SizesReport {
    sizes: Vec<(usize, Size)>,
    next: Option<usize>,
}

impl SizesReport {
    fn from(first: usize, shard: &Shard) -> Self {
        let mut rest = shard.iter_from(first);
        let few = rest.by_ref().take(DATABASES_AT_ONCE).filter(|(_, db)| !db.is_empty());
        let sizes = few.map(|(at, db)| (at, Size { keys: db.len(), expires: db.expires_len() }));
        let sizes = sizes.collect();
        Self { sizes, next: rest.next().map(|(at, _)| at) }
    }
}

/// Returns the next databases that have keys on any core, in order and from `first` on, and the
/// database at which to continue. Cost: one portion of work on each core.
pub(super) async fn in_use_from(
    core: &Rc<Core>,
    first: usize,
) -> (BTreeMap<usize, Size>, Option<usize>) {
    let cores = 0..core.tx.cores();
    let reports = core
        .tx
        .on_each(cores, |_| move |home: &mut Home| SizesReport::from(first, &home.shard))
        .await;
    // Some core has not reported databases from here on.
    let next = reports.iter().filter_map(|reports| reports.next).min();
    let mut sizes: BTreeMap<usize, Size> = BTreeMap::new();
    for (at, size) in reports.into_iter().flat_map(|reports| reports.sizes) {
        if next.is_none_or(|next| at < next) {
            let sum = sizes.entry(at).or_default();
            *sum = Size { keys: sum.keys + size.keys, expires: sum.expires + size.expires };
        }
    }
    core.tx.pause().await;
    (sizes, next)
}

/// Runs tasks over all databases in use, on every core, a few databases at a time. Dropping this
/// value stops the running tasks.
pub(super) struct Portions<'a> {
    core: &'a Rc<Core>,
    next: Option<usize>,
    caller: Arc<()>,
}

impl<'a> Portions<'a> {
    pub(super) fn new(core: &'a Rc<Core>) -> Self {
        Self { core, next: Some(0), caller: Arc::default() }
    }

    /// Runs a task over the next databases on each core, in slices. Returns the results by core, or
    /// `None` when all databases were visited.
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
            let (some, caller) = (sizes.keys().copied().collect(), Arc::downgrade(&self.caller));
            move |tx| while_awaited(caller, task(tx, some))
        };
        let results = tx.drive_each(0..tx.cores(), start).await;
        // Every core has a result, because this call keeps their tasks running.
        Some(results.into_iter().flatten().collect())
    }
}

/// Runs a task to its end, or until the caller of [`Portions::on_each_core`] has gone.
async fn while_awaited<R>(caller: Weak<()>, task: impl Future<Output = R>) -> Option<R> {
    let mut task = pin!(task);
    poll_fn(|cx| match caller.strong_count() {
        0 => Poll::Ready(None),
        _ => task.as_mut().poll(cx).map(Some),
    })
    .await
}

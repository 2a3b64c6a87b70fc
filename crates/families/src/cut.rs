//! Cuts of one database on all cores, taken at one instant.

use darter_command::Call;
use darter_keyspace::{Db, Found, Key, Object};
use darter_structs::table::Table;
use darter_tx::{Access, Home};
use std::ops::Range;

/// Keys looked up together, so that their cache misses overlap.
pub(crate) const KEYS_AT_ONCE: usize = 32;

/// A cut of the keys of one core, with the time at which it was taken.
pub(crate) struct Cut {
    pub(crate) keys: Table<Object>,
    /// Bytes of the keys and their values.
    pub(crate) bytes: usize,
    pub(crate) now: u64,
    /// No entry was expired: every entry is visible.
    pub(crate) is_whole: bool,
}

impl Cut {
    fn of(db: &Db) -> Self {
        let is_whole = db.next_death().is_none_or(|at| at > db.now());
        Self { keys: db.keys().reader(), bytes: db.memory_bytes(), now: db.now(), is_whole }
    }

    /// The value at `key`.
    pub(crate) fn get(&self, key: &Key<'_>) -> Option<Found<'_>> {
        self.keys.get(key.hash, key.bytes).and_then(|entry| Found::alive(entry, self.now))
    }
}

/// Cuts of all cores, in their order.
pub(crate) struct Cuts(pub(crate) Vec<Cut>);

impl Cuts {
    /// Takes cuts of the call's database on all cores at one instant.
    pub(crate) async fn take(call: &Call) -> Self {
        let locked = call.lock_all(Access::Cut).await;
        let cuts = Self::take_locked(call).await;
        drop(locked);
        cuts
    }

    /// Takes cuts of the call's database on all cores, consistent for the keys that the call has
    /// locked.
    pub(crate) async fn take_locked(call: &Call) -> Self {
        let db = call.db;
        let cut = |_| move |home: &mut Home| Cut::of(home.shard.db(db));
        Self(call.tx.on_each(0..call.tx.cores(), cut).await)
    }

    /// Bytes that only these cuts keep alive, because the databases have been flushed.
    pub(crate) fn pinned_bytes(&self) -> usize {
        let flushed = self.0.iter().filter(|cut| cut.keys.is_pinned());
        flushed.map(|cut| cut.bytes).sum()
    }

    /// The keys at `positions` of the request, each with its core's cut. They are prefetched
    /// together.
    pub(crate) fn keys<'a>(
        &'a self,
        args: darter_resp::Args<'a>,
        positions: Range<usize>,
    ) -> Vec<(&'a Cut, Key<'a>)> {
        let keys: Vec<_> = positions
            .map(|at| {
                let key = args.get(at);
                (&self.0[args.owner(at, self.0.len())], Key::new(key))
            })
            .collect();
        keys.iter().for_each(|(cut, key)| cut.keys.prefetch(key.hash));
        keys.iter().for_each(|(cut, key)| cut.keys.prefetch_entry(key.hash));
        keys
    }
}

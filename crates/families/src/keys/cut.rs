//! The keyspace of one database on one core, as of one instant.

use darter_command::Call;
use darter_keyspace::{Db, Found, Key, Object};
use darter_structs::table::Table;
use darter_tx::Access;
use std::sync::Arc;

/// A cut of the keys, with the time at which it was taken.
pub(super) struct Cut {
    pub(super) keys: Table<Arc<Object>>,
    pub(super) now: u64,
    /// Nothing in it was dead: every entry is to be seen.
    pub(super) is_whole: bool,
}

impl Cut {
    fn of(db: &Db) -> Self {
        let is_whole = db.next_death().is_none_or(|at| at > db.now());
        Self { keys: db.keys().clone(), now: db.now(), is_whole }
    }

    /// True when `key` was there.
    pub(super) fn contains(&self, key: &Key<'_>) -> bool {
        self.keys
            .get(key.hash, key.bytes)
            .is_some_and(|entry| Found::alive(entry, self.now).is_some())
    }
}

/// Cuts of the call's database on all cores, as of one instant, in the order of the cores.
pub(super) async fn take_all(call: &Call) -> Vec<Cut> {
    let locked = call.lock_all(Access::Shared).await;
    let db = call.db;
    let cuts = call.tx.on_each(0..call.tx.cores(), |_| {
        move |home: &mut darter_tx::Home| Cut::of(home.shard.db(db))
    });
    let cuts = cuts.await;
    drop(locked);
    cuts
}

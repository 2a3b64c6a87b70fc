//! The locks of an EXEC: on all keys that its commands name, and on the watched keys.
//!
//! Keys that are only read are claimed for `Update`, not for `Shared`. A shared claim would be
//! granted while another transaction holds `Update` and is building a new value. That value could
//! then be installed between two reads of this transaction.

use super::super::core::Core;
use super::super::entry::Runner;
use super::queued::{Portion, Queued, Watched};
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_base::number;
use darter_command::Flags;
use darter_resp::Args;
use darter_tx::{Access, Claim, CoreId, KeyList, lock_key};
use std::cmp::Reverse;
use std::sync::Arc;

/// The claims of the commands in `queued`, the first of which runs in database `db`.
pub(super) async fn claims(
    core: &Core,
    mut db: usize,
    queued: &Queued,
    watched: &Watched,
) -> Vec<(CoreId, Claim)> {
    let mut wanted = Wanted::new(core.tx.cores(), queued.args + watched.len());
    for (at, (core_id, key)) in watched.iter().enumerate() {
        wanted.add(core_id, key, Access::Update);
        if at % ENTRIES_AT_ONCE == ENTRIES_AT_ONCE - 1 {
            core.tx.pause().await;
        }
    }
    for (index, args) in queued.portions().flat_map(Portion::iter) {
        let entry = &core.table.entries()[index];
        let row = &entry.row;
        // A script may use keys that it does not declare.
        let is_script = matches!(entry.run, Runner::Script(_));
        let may_write = row.is_write() || is_script && !row.flags.has(Flags::READONLY);
        let access = if may_write { Access::Exclusive } else { Access::Update };
        if row.flags.has(Flags::SELECTS) {
            db = selected(core, args).unwrap_or(db);
        }
        if row.locks_all() || is_script {
            wanted.all = wanted.all.max(Some(access));
        }
        for (done, at) in row.keys.positions(args).enumerate() {
            wanted.add(args.owner(at, core.tx.cores()), lock_key(db, args.hash(at)), access);
            if done % ENTRIES_AT_ONCE == ENTRIES_AT_ONCE - 1 {
                core.tx.pause().await;
            }
        }
        core.tx.pause().await;
    }
    wanted.into_claims()
}

/// The claim of a short transaction on this core that uses only database `db`. It is never a list,
/// because lists conflict with each other even without a common key.
pub(super) fn claim_here(core: &Core, db: usize, queued: &Queued) -> Claim {
    let mut keys = Vec::new();
    for (_, index, args) in queued.placed().filter(|(owner, ..)| *owner == Some(core.id())) {
        let row = &core.table.entries()[index].row;
        let access = if row.is_write() { Access::Exclusive } else { Access::Update };
        keys.extend(row.keys.positions(args).map(|at| (lock_key(db, args.hash(at)), access)));
    }
    keys.sort_unstable_by_key(|(key, access)| (*key, Reverse(*access)));
    keys.dedup_by_key(|(key, _)| *key);
    Claim::Keys(keys)
}

/// The database that this SELECT selects; `None` if it will fail.
fn selected(core: &Core, args: Args<'_>) -> Option<usize> {
    let index = number::parse_i64(args.head(1)).and_then(|index| usize::try_from(index).ok());
    index.filter(|index| *index < core.tx.home().shard.databases())
}

/// The claimed keys of one core: a few, or a list.
struct Keys {
    few: Vec<(u64, Access)>,
    list: Option<KeyList>,
}

/// The claims of a transaction, while they are gathered.
pub(crate) struct Wanted {
    /// The claimed keys, by core.
    keys: Vec<Keys>,
    /// The access to all keys of all cores, if a command needs all keys.
    all: Option<Access>,
    /// The strongest access that any command needs to any key.
    access: Access,
    /// An upper bound of the number of keys.
    most: usize,
}

impl Wanted {
    pub(crate) fn new(cores: usize, most: usize) -> Self {
        let keys = (0..cores).map(|_| Keys { few: Vec::new(), list: None }).collect();
        Self { keys, all: None, access: Access::Update, most }
    }

    pub(crate) fn add(&mut self, core: CoreId, key: u64, access: Access) {
        /// Up to this number, keys are searched linearly.
        const FEW: usize = 64;
        self.access = self.access.max(access);
        let Keys { few, list } = &mut self.keys[core];
        if let Some(list) = list {
            return list.push(key);
        }
        match few.iter().position(|(other, _)| *other == key) {
            Some(at) => few[at].1 = access.max(few[at].1),
            None if few.len() < FEW => few.push((key, access)),
            None => {
                let list = list.insert(KeyList::with_capacity(self.most));
                few.drain(..).for_each(|(key, _)| list.push(key));
                list.push(key);
            }
        }
    }

    pub(crate) fn into_claims(self) -> Vec<(CoreId, Claim)> {
        if let Some(access) = self.all {
            let access = access.max(self.access);
            return (0..self.keys.len()).map(|core| (core, Claim::All(access))).collect();
        }
        let mut claims = Vec::new();
        for (core, Keys { few, list }) in self.keys.into_iter().enumerate() {
            match list {
                Some(list) => claims.push((core, Claim::List(Arc::new(list), self.access))),
                None if few.is_empty() => {}
                None => claims.push((core, Claim::Keys(few))),
            }
        }
        claims
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Many keys become a list.
    fn each_key_of_a_transaction_is_claimed_once_with_the_strongest_access() {
        let mut wanted = Wanted::new(3, 10);
        for (key, access) in [(1, Access::Update), (1, Access::Exclusive), (2, Access::Update)] {
            wanted.add(1, key, access);
        }
        let claims = wanted.into_claims();
        let [(1, Claim::Keys(keys))] = &claims[..] else { panic!("{claims:?}") };
        assert_eq!(keys[..], [(1, Access::Exclusive), (2, Access::Update)]);

        let mut wanted = Wanted::new(2, 1_000);
        let hash = |key: u64| darter_base::hash::of(&key.to_le_bytes());
        (0..1_000).for_each(|key| wanted.add(0, hash(key), Access::Update));
        let claims = wanted.into_claims();
        let [(0, Claim::List(list, Access::Update))] = &claims[..] else { panic!("{claims:?}") };
        assert!((0..1_000).all(|key| list.contains(hash(key))));

        let mut wanted = Wanted::new(2, 1_000);
        wanted.add(0, 1, Access::Exclusive);
        wanted.all = Some(Access::Update);
        let claims = wanted.into_claims();
        let [(0, Claim::All(Access::Exclusive)), (1, Claim::All(Access::Exclusive))] = claims[..]
        else {
            panic!("{claims:?}")
        };
    }
}

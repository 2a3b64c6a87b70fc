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
use darter_tx::{Access, Claim, ClaimSet, CoreId, lock_key};
use std::cmp::Reverse;

/// The claims of the commands in `queued`, the first of which runs in database `db`.
pub(super) async fn claims(
    core: &Core,
    mut db: usize,
    queued: &Queued,
    watched: &Watched,
) -> Vec<(CoreId, Claim)> {
    let mut wanted = ClaimSet::new(core.tx.cores(), queued.args + watched.len());
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
            wanted.add_all(access);
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

//! RM: a SCAN that removes the keys it finds.

use super::scan::{KEYS_AT_ONCE, Plan, join, split, visit};
use crate::cursor;
use darter_command::{Answer, Call, Refusal};
use darter_keyspace::{Db, Key};
use darter_tx::{Access, Claim, Home, lock_key};
use std::sync::Arc;

/// `RM cursor [MATCH pattern] [COUNT count] [TYPE type]`: examines about `count` keys after the
/// cursor, and removes those that match.
///
/// Reply: the next cursor, and the number of removed keys. Refusals: as SCAN. Each key is removed
/// on its own; if a long command holds a key, RM waits for it. Cost: O(count), in slices.
/// Source: <https://www.dragonflydb.io/docs/command-reference/generic/rm>.
pub(super) async fn rm(call: Call) -> Result<Answer, Refusal> {
    let mut args = call.args();
    let cursor = cursor::parse(args.bytes()?)?;
    let plan = Arc::new(Plan::parse(args)?);
    let (mut cursor, mut visited, mut removed) = (Some(cursor), 0, 0);
    while let Some((core, at)) = cursor.and_then(|cursor| split(cursor, call.tx.cores()))
        && visited < plan.count()
    {
        let (plan_there, db) = (Arc::clone(&plan), call.db);
        let most = (plan.count() - visited).min(KEYS_AT_ONCE);
        let remove = move |home: &mut Home| remove_portion(home, db, &plan_there, (at, most));
        let portion = call.tx.on(core, remove).await;
        visited += portion.visited;
        removed += portion.removed;
        for key in portion.held {
            removed += usize::from(remove_held(&call, &plan, key).await);
        }
        cursor = join(core, portion.cursor, call.tx.cores());
        call.tx.pause().await;
    }
    let cursor = cursor.filter(|cursor| split(*cursor, call.tx.cores()).is_some()).unwrap_or(0);
    Ok(call.answer(|reply| {
        reply.array(2);
        reply.bulk(cursor.to_string().as_bytes());
        reply.count(removed);
    }))
}

/// The result of one portion.
struct Portion {
    /// The table's next cursor; 0 at the end of the core.
    cursor: u64,
    visited: usize,
    removed: usize,
    /// Matching keys that other commands hold locked.
    held: Vec<Vec<u8>>,
}

/// Examines about `most` keys from `cursor` on, and removes those that match and are not locked.
fn remove_portion(home: &mut Home, db: usize, plan: &Plan, from: (u64, usize)) -> Portion {
    let (mut found, mut held, mut removed) = (Vec::new(), Vec::new(), 0);
    let (cursor, visited) =
        visit(home.shard.db(db), plan, from, &mut |key| found.push(key.to_vec()));
    for name in found {
        let key = Key::new(&name);
        if home.locks.blocks_point(lock_key(db, key.hash), true) {
            held.push(name);
        } else {
            removed += usize::from(home.shard.db_mut(db).remove(&key));
        }
    }
    Portion { cursor, visited, removed, held }
}

/// Waits for a locked key, and removes it if it still matches.
async fn remove_held(call: &Call, plan: &Arc<Plan>, name: Vec<u8>) -> bool {
    let (plan, db, core) = (Arc::clone(plan), call.db, call.tx.core_of(&name));
    let claim = vec![(lock_key(db, Key::new(&name).hash), Access::Exclusive)];
    let locked = call.tx.lock(vec![(core, Claim::Keys(claim))]).await;
    let remove = move |home: &mut Home| {
        let db: &mut Db = home.shard.db_mut(db);
        let key = Key::new(&name);
        db.get(&key).is_some_and(|found| plan.wants(&found)) && db.remove(&key)
    };
    let removed = call.tx.on(core, remove).await;
    drop(locked);
    removed
}

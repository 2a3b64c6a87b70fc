//! DEL and UNLINK. Both are the same here: a value is detached at once, and freed in slices.

use crate::keys_by_core::{KeysByCore, Layout, PORTION_KEYS, Portion};
use darter_command::{Answer, Args, Call, Cx, Flow, Refusal};
use darter_keyspace::Db;
use darter_tx::{Home, Tx};

/// The fewest keys of a core that are removed loosely, provided they are a large part of all its
/// keys. Settling the whole table afterwards then costs less than a check after each removal.
const LOOSELY_MIN: usize = 4_096;
const LOOSELY_PART: usize = 8;

/// `DEL key [key ...]`, `UNLINK key [key ...]`: removes the keys.
///
/// Reply: the number of keys that existed. Refusals: none. Cost: O(keys), whatever they hold; in
/// slices if there are many keys. Source: <https://redis.io/commands/del> (1.0.0),
/// <https://redis.io/commands/unlink> (4.0.0).
pub(super) fn here(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let mut removed = 0;
    while args.left() > 0 {
        removed += usize::from(cx.db.remove(&args.key()?));
    }
    cx.reply.count(removed);
    Ok(Flow::Done)
}

/// DEL for keys on several cores, or for very many: they stay locked until the last is removed.
pub(super) async fn anywhere(call: Call) -> Result<Answer, Refusal> {
    let spread = KeysByCore::of(&call, Layout::all(&call)).await;
    let db = call.db;
    let remove = move |home: &mut Home, keys: &Portion, removed: &mut Removed| {
        let db = home.shard.db_mut(db);
        removed.add(db, keys);
        true
    };
    let removed = spread.change(&call, |_| PORTION_KEYS, remove).await;
    if removed.iter().any(|removed| removed.loosely) {
        settle(&call).await;
    }
    Ok(call.answer(|reply| reply.count(removed.iter().map(|removed| removed.count).sum())))
}

/// The removals of one core.
#[derive(Default)]
struct Removed {
    count: usize,
    /// Some keys were removed loosely: the table must be settled.
    loosely: bool,
}

impl Removed {
    fn add(&mut self, db: &mut Db, portion: &Portion) {
        let keys = portion.keys(db);
        let is_much = portion.of_all() >= LOOSELY_MIN.max(db.len() / LOOSELY_PART);
        if is_much {
            self.loosely = true;
            self.count += keys.iter().filter(|key| db.remove_loosely(key)).count();
        } else {
            self.count += keys.iter().filter(|key| db.remove(key)).count();
        }
    }
}

/// Settles the tables of all cores, each in its own slices.
async fn settle(call: &Call) {
    let db = call.db;
    let settle = |_| {
        async move |tx: Tx| {
            let mut next = Some(0);
            while let Some(hash) = next {
                next = tx.home().shard.db_mut(db).settle(hash);
                tx.pause().await;
            }
        }
    };
    call.tx.drive_each(0..call.tx.cores(), settle).await;
}

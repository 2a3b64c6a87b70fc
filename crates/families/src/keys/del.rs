//! DEL and UNLINK. One and the same here: a value is detached at once, and freed in slices.

use crate::spread::{Layout, PORTION_KEYS, Portion, Spread};
use darter_command::{Answer, Args, Call, Cx, Flow, Refusal};
use darter_tx::{Access, Home};

/// `DEL key [key ...]`, `UNLINK key [key ...]`: removes the keys.
///
/// Reply: how many were there. Refusals: none. Cost: O(keys), whatever they hold; in slices when
/// they are many. Source: <https://redis.io/commands/del> (1.0.0),
/// <https://redis.io/commands/unlink> (4.0.0).
pub(super) fn here(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let mut removed = 0;
    while args.left() > 0 {
        removed += usize::from(cx.db.remove(&args.key()?));
    }
    cx.reply.count(removed);
    Ok(Flow::Done)
}

/// The same for keys of several cores, or very many: they are locked until the last is gone.
pub(super) async fn anywhere(call: Call) -> Result<Answer, Refusal> {
    let spread = Spread::of(&call, Layout::all(&call)).await;
    let locked = spread.lock(&call, Access::Exclusive).await;
    let db = call.db;
    let remove = move |home: &mut Home, keys: &Portion, removed: &mut usize| {
        let db = home.shard.db_mut(db);
        *removed += keys.keys(db).iter().filter(|(_, key)| db.remove(key)).count();
        true
    };
    let counts = spread.work(&call, |_| PORTION_KEYS, remove).await;
    drop(locked);
    Ok(call.answer(|reply| reply.count(counts.into_iter().sum())))
}

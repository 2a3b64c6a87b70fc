//! DEL and UNLINK. One and the same here: a value is detached at once, and freed in slices.

use crate::spread::{Layout, Spread};
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
    let (db, mut removed) = (call.db, 0);
    for round in 0..spread.rounds() {
        let remove = |core| {
            let portion = spread.portion(&call, core, round);
            move |home: &mut Home| {
                let db = home.shard.db_mut(db);
                portion.keys(db).iter().filter(|(_, key)| db.remove(key)).count()
            }
        };
        let counts = call.tx.on_each(spread.busy(round), remove).await;
        removed += counts.into_iter().sum::<usize>();
        call.tx.pause().await;
    }
    drop(locked);
    Ok(call.answer(|reply| reply.count(removed)))
}

//! EXISTS and TOUCH. As times of access are not kept, TOUCH only counts.

use super::cut;
use crate::spread::{Layout, Spread, breathe};
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Answer, Args, Call, Cx, Flow, Refusal};
use darter_keyspace::Key;
use darter_tx::{Access, Home};

/// `EXISTS key [key ...]`, `TOUCH key [key ...]`: counts the keys that are there, one named twice
/// twice.
///
/// Reply: integer. Refusals: none. Cost: O(keys), in slices when they are many.
/// Source: <https://redis.io/commands/exists> (1.0.0), <https://redis.io/commands/touch> (3.2.1).
pub(super) fn here(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let mut count = 0;
    while args.left() > 0 {
        let key = args.key()?;
        count += usize::from(cx.find(&key).is_some());
    }
    cx.reply.count(count);
    Ok(Flow::Done)
}

/// The same for keys of several cores, or very many.
pub(super) async fn anywhere(call: Call) -> Result<Answer, Refusal> {
    let keys = call.len() - call.first;
    let count =
        if keys > ENTRIES_AT_ONCE { count_in_cuts(&call).await } else { count_locked(&call).await };
    let stats = &mut call.tx.home().shard.stats;
    stats.hits += count as u64;
    stats.misses += (keys - count) as u64;
    Ok(call.answer(|reply| reply.count(count)))
}

/// Few keys: they are locked for a hop.
async fn count_locked(call: &Call) -> usize {
    let spread = Spread::of(call, Layout::all(call)).await;
    let locked = spread.lock(call, Access::Shared).await;
    let (db, mut count) = (call.db, 0);
    for round in 0..spread.rounds() {
        let look = |core| {
            let portion = spread.portion(call, core, round);
            move |home: &mut Home| {
                let db = home.shard.db(db);
                portion.keys(db).iter().filter(|(_, key)| db.exists(key)).count()
            }
        };
        count += call.tx.on_each(spread.busy(round), look).await.into_iter().sum::<usize>();
    }
    drop(locked);
    count
}

/// Very many: they are looked for in cuts, so that nobody waits meanwhile.
async fn count_in_cuts(call: &Call) -> usize {
    let cuts = cut::take_all(call).await;
    let mut count = 0;
    for at in call.first..call.len() {
        let key = Key::new(call.arg(at));
        count += usize::from(cuts[call.tx.core_of(key.bytes)].contains(&key));
        breathe(call, at).await;
    }
    count
}

//! EXISTS and TOUCH. Both count keys, and TOUCH also counts as an access.

use crate::cut::{Cuts, KEYS_AT_ONCE};
use crate::keys_by_core::{KeysByCore, Layout, PORTION_KEYS, Portion};
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_base::slot::owner_of;
use darter_command::{Answer, Args, Call, Cx, Flow, Refusal};
use darter_keyspace::{Db, Key};
use darter_resp as resp;
use darter_tx::{Access, CoreId, Home};
use std::sync::Arc;

/// `EXISTS key [key ...]`: counts the existing keys; a key that is named twice counts twice.
///
/// Reply: integer. Refusals: none. Cost: O(keys), in slices when they are many.
/// Source: <https://redis.io/commands/exists> (1.0.0).
pub(super) fn exists_here(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let mut count = 0;
    while args.left() > 0 {
        let key = args.key()?;
        count += usize::from(cx.peek(&key).is_some());
    }
    cx.reply.count(count);
    Ok(Flow::Done)
}

/// `TOUCH key [key ...]`: EXISTS, and an access to each key, even by a client with NO-TOUCH.
///
/// Reply, cost: as EXISTS. Source: <https://redis.io/commands/touch> (3.2.1).
pub(super) fn touch_here(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let mut count = 0;
    while args.left() > 0 {
        let there = cx.db.find_touched(&args.key()?).is_some();
        cx.stats.count(there);
        count += usize::from(there);
    }
    cx.reply.count(count);
    Ok(Flow::Done)
}

/// EXISTS for keys on several cores, or for very many.
pub(super) async fn exists_anywhere(call: Call) -> Result<Answer, Refusal> {
    let count = if is_long(&call) {
        count_in_cuts(&call).await
    } else {
        count_locked(&call, |db, key| db.peek(key).is_some()).await
    };
    Ok(answer(&call, count))
}

/// TOUCH for keys on several cores, or for very many. Keys are touched first and then counted,
/// because a cut would preserve their old access times. No lock is needed: an access time is not
/// data.
pub(super) async fn touch_anywhere(call: Call) -> Result<Answer, Refusal> {
    let count = if is_long(&call) {
        let spread = KeysByCore::of(&call, Layout::all(&call)).await;
        count_found(&call, &spread, |db, key| db.touch(key).is_some()).await;
        count_in_cuts(&call).await
    } else {
        count_locked(&call, |db, key| db.find_touched(key).is_some()).await
    };
    Ok(answer(&call, count))
}

/// True if there are more keys than may be counted while they are locked.
fn is_long(call: &Call) -> bool {
    call.len() - call.first > ENTRIES_AT_ONCE
}

fn answer(call: &Call, count: usize) -> Answer {
    let stats = &mut call.tx.home().shard.stats;
    stats.hits += count as u64;
    stats.misses += (call.len() - call.first - count) as u64;
    call.answer(|reply| reply.count(count))
}

/// The number of keys for which `look` is true. The keys are locked during the few slices that this
/// takes.
async fn count_locked(call: &Call, look: fn(&mut Db, &Key<'_>) -> bool) -> usize {
    let spread = KeysByCore::of(call, Layout::all(call)).await;
    let locked = spread.lock(call, Access::Shared).await;
    let count = count_found(call, &spread, look).await;
    drop(locked);
    count
}

/// The number of keys for which `look` is true; each core looks when it gets to them.
async fn count_found(
    call: &Call,
    spread: &KeysByCore,
    look: fn(&mut Db, &Key<'_>) -> bool,
) -> usize {
    let db = call.db;
    let step = move |home: &mut Home, keys: &Portion, count: &mut usize| {
        let db = home.shard.db_mut(db);
        *count += keys.keys(db).iter().filter(|key| look(db, key)).count();
        true
    };
    spread.work(call, |_| PORTION_KEYS, step).await.into_iter().sum()
}

/// The number of existing keys among very many: looked up in cuts, so that no client waits.
async fn count_in_cuts(call: &Call) -> usize {
    let cuts = Cuts::take(call).await;
    let (mut count, args) = (0, resp::Args::owned(&call.request));
    for from in (call.first..call.len()).step_by(KEYS_AT_ONCE) {
        let portion = from..call.len().min(from + KEYS_AT_ONCE);
        let keys = portion.clone().zip(cuts.keys(args, portion));
        let mut missed = Vec::new();
        for (at, (cut, key)) in keys {
            match cut.get(&key) {
                Some(_) => count += 1,
                None => missed.push(at),
            }
        }
        tell_missed(call, missed).await;
        call.tx.pause().await;
    }
    count
}

/// Records misses for the keys at these indexes, each on its own core, if there is a subscriber.
async fn tell_missed(call: &Call, missed: Vec<usize>) {
    if missed.is_empty() || !call.tx.home().shard.hears_misses() {
        return;
    }
    let (db, missed) = (call.db, Arc::new(missed));
    let tell = |core: CoreId| {
        let (request, missed) = (Arc::clone(&call.request), Arc::clone(&missed));
        let cores = call.tx.cores();
        move |home: &mut Home| {
            let args = resp::Args::owned(&request);
            let keys = missed.iter().map(|at| args.get(*at));
            home.shard.db_mut(db).tell_missed(keys.filter(|key| owner_of(key, cores) == core));
        }
    };
    call.tx.on_each(0..call.tx.cores(), tell).await;
}

//! The inputs of a command over several collections: cuts taken at one instant, in a queue with one
//! for each key.
//!
//! If all keys are on this core, taking the cuts only counts references. Otherwise the keys are
//! locked, the cuts are sent here by pointer, and the locks are released before the computation:
//! readers never hold a lock while they work. Freeing a hundred thousand collections takes
//! milliseconds, so a dropped queue of many is freed through `lazyfree`.

use crate::lookup::find;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Args, Call, Refusal};
use darter_keyspace::lazyfree;
use darter_keyspace::{Db, Found, Key, Shard, ShardStats, WrongType};
use darter_resp as resp;
use darter_tx::{Access, ClaimSet, CoreId, Home, Locked, TxId, lock_key};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

/// The collections at several keys, in order; `None` for an absent key.
pub(crate) type InputCuts<I> = Vec<Option<I>>;

/// The way in which a command holds its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// As a reader's cut.
    Reader,
    /// As a value, whose memory the result may share.
    Value,
}

/// A collection that can be an input of such a command.
pub(crate) trait Input: Sized + Send + 'static {
    /// A cut of the value.
    fn cut(found: &Found<'_>, hold: Hold) -> Result<Self, WrongType>;
}

/// The collections at the next `count` keys, all on this shard, for a reader.
pub(crate) fn here<I: Input>(
    db: &mut Db,
    stats: &mut ShardStats,
    mut args: Args<'_>,
    count: usize,
) -> Result<InputCuts<I>, Refusal> {
    let mut cuts = Vec::with_capacity(count);
    for _ in 0..count {
        cuts.push(cut(db, stats, args.bytes()?, Hold::Reader)?);
    }
    Ok(cuts)
}

fn cut<I: Input>(
    db: &mut Db,
    stats: &mut ShardStats,
    key: &[u8],
    hold: Hold,
) -> Result<Option<I>, WrongType> {
    find(db, stats, &Key::new(key)).map(|found| I::cut(&found, hold)).transpose()
}

/// The collections at the keys given by `keys`, on any core, for a reader.
pub(crate) async fn anywhere<I: Input>(
    call: &Call,
    keys: Range<usize>,
) -> Result<InputCuts<I>, Refusal> {
    let parts = split(call, keys.clone()).await;
    let locked = lock(call, &parts, None).await;
    let cuts = take(call, &parts, keys, (Hold::Reader, None)).await;
    drop(locked);
    cuts
}

/// The collections at the keys given by `keys`, as sources of a build. The destination at `target`
/// stays locked until the guard is dropped, even for readers. Otherwise a reader could see the
/// destination's old value after a source has changed, which no single order of commands would
/// explain. Only cuts of all keys see the old value, and only while no source has changed.
pub(crate) async fn for_target<I: Input>(
    call: &Call,
    keys: Range<usize>,
    target: usize,
) -> Result<(InputCuts<I>, Locked), Refusal> {
    let parts = split(call, keys.clone()).await;
    let mut locked = lock(call, &parts, Some(target)).await;
    let cuts = take(call, &parts, keys, (Hold::Value, locked.build())).await?;
    let key = lock_key(call.db, Key::new(call.arg(target)).hash);
    locked.keep_build(call.owner(target), key);
    Ok((cuts, locked))
}

/// The indexes of keys, for each core that owns any.
type Parts = Vec<(CoreId, Arc<Vec<usize>>)>;

async fn split(call: &Call, keys: Range<usize>) -> Parts {
    let mut lists: Vec<Vec<usize>> = vec![Vec::new(); call.tx.cores()];
    for at in keys {
        lists[call.owner(at)].push(at);
        pause_now_and_then(call, at).await;
    }
    let owned = lists.into_iter().enumerate().filter(|(_, list)| !list.is_empty());
    owned.map(|(core, list)| (core, Arc::new(list))).collect()
}

/// Locks the keys for reading, and the key at `target` for writing.
async fn lock(call: &Call, parts: &Parts, target: Option<usize>) -> Locked {
    let few = parts.iter().map(|(_, list)| list.len()).sum::<usize>() <= ENTRIES_AT_ONCE;
    if few {
        let sources = parts.iter().flat_map(|(_, list)| list.iter());
        let sources = sources.map(|at| (*at, Access::Shared));
        let target = target.map(|at| (at, Access::Exclusive));
        return call.lock_keys(target.into_iter().chain(sources)).await;
    }
    let count = parts.iter().map(|(_, list)| list.len()).max().unwrap_or(0) + 1;
    let mut claims = ClaimSet::new(call.tx.cores(), count);
    let lock = |at| lock_key(call.db, Key::new(call.arg(at)).hash);
    for (core, list) in parts {
        for (done, at) in list.iter().enumerate() {
            claims.add(*core, lock(*at), Access::Shared);
            pause_now_and_then(call, done).await;
        }
    }
    if let Some(at) = target {
        claims.add(call.owner(at), lock(at), Access::Exclusive);
    }
    call.tx.lock(claims.into_claims()).await
}

/// Takes the collections at the keys, which are locked, and registers them as sources of the build,
/// if there is one.
async fn take<I: Input>(
    call: &Call,
    parts: &Parts,
    keys: Range<usize>,
    (hold, build): (Hold, Option<TxId>),
) -> Result<InputCuts<I>, Refusal> {
    let mut cuts = InputCuts::with_capacity(keys.len());
    for done in 0..keys.len() {
        cuts.push(None);
        pause_now_and_then(call, done).await;
    }
    let rounds = parts.iter().map(|(_, list)| list.len().div_ceil(ENTRIES_AT_ONCE)).max();
    for round in 0..rounds.unwrap_or(0) {
        let from = round * ENTRIES_AT_ONCE;
        let busy: Vec<_> = parts.iter().filter(|(_, list)| from < list.len()).collect();
        let read = |core: CoreId| {
            let list = busy.iter().find(|(owner, _)| *owner == core);
            let list = list.map(|(_, list)| Arc::clone(list)).unwrap_or_default();
            let (request, db) = (Arc::clone(&call.request), (call.db, call.no_touch));
            move |home: &mut Home| {
                let to = (from + ENTRIES_AT_ONCE).min(list.len());
                let keys = (&request, &list[from..to]);
                if let Some(build) = build {
                    watch_portion(&mut home.shard, db.0, keys, build);
                }
                take_portion(&mut home.shard, db, keys, hold)
            }
        };
        let portions = call.tx.on_each(busy.iter().map(|(core, _)| *core), read).await;
        for ((_, list), portion) in busy.iter().zip(portions) {
            for (at, cut) in list[from..].iter().zip(portion?) {
                cuts[at - keys.start] = cut;
            }
        }
        call.tx.pause().await;
    }
    Ok(cuts)
}

fn take_portion<I: Input>(
    shard: &mut Shard,
    (db, no_touch): (usize, bool),
    (request, positions): (&Arc<resp::Request>, &[usize]),
    hold: Hold,
) -> Result<InputCuts<I>, WrongType> {
    let args = resp::Args::owned(request);
    let (db, _, stats) = shard.parts_for(db, no_touch);
    positions.iter().map(|at| cut(db, stats, args.get(*at), hold)).collect()
}

fn watch_portion(
    shard: &mut Shard,
    db: usize,
    (request, positions): (&Arc<resp::Request>, &[usize]),
    build: TxId,
) {
    let args = resp::Args::owned(request);
    positions.iter().for_each(|at| shard.watch_source(build, db, &Key::new(args.get(*at))));
}

/// Yields if the slice is over; checked once in a portion.
pub(crate) async fn pause_now_and_then(call: &Call, done: usize) {
    if done % ENTRIES_AT_ONCE == ENTRIES_AT_ONCE - 1 {
        call.tx.pause().await;
    }
}

/// Collections freed in one step.
pub(crate) const FREED_AT_ONCE: usize = 128;

/// A queue of inputs. When dropped, at most this many are freed in one step.
#[derive(Clone, Debug)]
pub(crate) struct Queue<I: Send + 'static, const FREED: usize = FREED_AT_ONCE>(VecDeque<I>);

impl<I: Send, const FREED: usize> Default for Queue<I, FREED> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<I: Send, const FREED: usize> Deref for Queue<I, FREED> {
    type Target = VecDeque<I>;

    fn deref(&self) -> &VecDeque<I> {
        &self.0
    }
}

impl<I: Send, const FREED: usize> DerefMut for Queue<I, FREED> {
    fn deref_mut(&mut self) -> &mut VecDeque<I> {
        &mut self.0
    }
}

impl<I: Send, const FREED: usize> FromIterator<I> for Queue<I, FREED> {
    fn from_iter<T: IntoIterator<Item = I>>(inputs: T) -> Self {
        Self(inputs.into_iter().collect())
    }
}

impl<I: Send + 'static, const FREED: usize> Drop for Queue<I, FREED> {
    fn drop(&mut self) {
        // The queue itself: the inputs' contents may be the keyspace's.
        lazyfree::defer_long(std::mem::take(&mut self.0), FREED, size_of::<I>());
    }
}

//! The keys of a request over very many of them, split by the cores that own them.
//!
//! A million keys take longer to hash than a slice, and a list of a million locks takes longer to
//! grant. So the split is made in portions, the locks of a core are one list that is built aside,
//! and each core works in portions on its own keys ([`KeysByCore::work`]): on a single portion at once,
//! when the message arrives, on more as a task, in slices. Results that must be merged as they are
//! found (MGET) come in rounds instead, in each of which every core gets the next of its keys.

use darter_base::lazyfree::{self, Dismantle};
use darter_command::Call;
use darter_keyspace::{Db, Key};
use darter_resp::{self as resp, Request};
use darter_tx::{Access, Claim, CoreId, Home, KeyList, Locked, Tx, lock_key};
use std::ops::Range;
use std::sync::Arc;

/// Up to this many keys of a core are locked one by one; more, as a list.
const LOCKED_SINGLY_MAX: usize = 64;
/// Keys that a core works on before it yields. Fewer would make tasks of smaller requests, and
/// rounds of MGET, a hop each.
pub(crate) const PORTION_KEYS: usize = 64;
/// Keys that are split or locked between two reads of the clock.
const BREATH_KEYS: usize = 16;

/// Positions in a request, in order. One vector of a million would move as it grows, and be freed
/// at once; so they are in chunks.
#[derive(Default)]
struct Positions {
    /// All but the last hold [`Positions::PER_CHUNK`].
    chunks: Vec<Vec<u32>>,
}

impl Positions {
    /// 64 KiB of them.
    const PER_CHUNK: usize = 16 * 1024;

    fn push(&mut self, position: usize) {
        let position = u32::try_from(position).expect("a request has at most 2^31 arguments");
        match self.chunks.last_mut().filter(|last| last.len() < Self::PER_CHUNK) {
            Some(last) => last.push(position),
            None => self.chunks.push(vec![position]),
        }
    }

    fn len(&self) -> usize {
        let full = self.chunks.len().saturating_sub(1) * Self::PER_CHUNK;
        full + self.chunks.last().map_or(0, Vec::len)
    }

    fn get(&self, index: usize) -> usize {
        self.chunks[index / Self::PER_CHUNK][index % Self::PER_CHUNK] as usize
    }
}

/// Chunks of positions freed at once.
const CHUNKS_FREED_AT_ONCE: usize = 4;

impl Drop for Positions {
    fn drop(&mut self) {
        if self.chunks.len() > CHUNKS_FREED_AT_ONCE {
            lazyfree::defer(Box::new(FreedSplit(std::mem::take(&mut self.chunks))));
        }
    }
}

/// The chunks of positions that are no longer used.
struct FreedSplit(Vec<Vec<u32>>);

impl Dismantle for FreedSplit {
    fn dismantle(&mut self) -> bool {
        self.0.truncate(self.0.len().saturating_sub(CHUNKS_FREED_AT_ONCE));
        !self.0.is_empty()
    }

    fn bytes(&self) -> usize {
        self.0.iter().take(1).map(Vec::capacity).sum::<usize>() * self.0.len() * size_of::<u32>()
    }
}

/// The places of the keys in a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// The argument that is the first key.
    pub(crate) first: usize,
    /// The distance of one key from the next: 2 where there are values in between.
    pub(crate) step: usize,
    /// How many there are.
    pub(crate) count: usize,
}

impl Layout {
    /// Every argument after the name is a key.
    pub(crate) fn all(call: &Call) -> Self {
        Self { first: call.first, step: 1, count: call.len() - call.first }
    }
}

/// See the module.
pub(crate) struct KeysByCore {
    /// For each core, the positions of its keys in the request.
    cores: Vec<Arc<Positions>>,
}

/// A core's result, its time, and the first deadline in it, by the core's clock.
struct Timed<R> {
    result: R,
    dies: Option<u64>,
    now: u64,
}

/// Some keys of one core; cheap to send there.
pub(crate) struct Portion {
    request: Arc<Request>,
    positions: Arc<Positions>,
    range: Range<usize>,
}

impl Portion {
    /// Splits off the next keys, at most `most`. `None` when there are no more.
    fn next(&mut self, most: usize) -> Option<Self> {
        let Range { start, end } = self.range;
        let middle = end.min(start + most);
        self.range.start = middle;
        let (request, positions) = (Arc::clone(&self.request), Arc::clone(&self.positions));
        (start < middle).then_some(Self { request, positions, range: start..middle })
    }

    /// How many keys there are.
    pub(crate) fn len(&self) -> usize {
        self.range.len()
    }

    /// How many keys the core has in all.
    pub(crate) fn of_all(&self) -> usize {
        self.positions.len()
    }

    /// The indexes of the keys in the request.
    pub(crate) fn positions(&self) -> impl Iterator<Item = usize> + '_ {
        self.range.clone().map(|index| self.positions.get(index))
    }

    /// The request's arguments.
    pub(crate) fn args(&self) -> resp::Args<'_> {
        resp::Args::owned(&self.request)
    }

    /// The keys, in the order of [`Portion::positions`]. They are prefetched first, together.
    pub(crate) fn keys(&self, db: &Db) -> Vec<Key<'_>> {
        let args = self.args();
        let keys: Vec<_> = self.positions().map(|at| Key::new(args.get(at))).collect();
        db.prefetch(&keys);
        keys
    }
}

impl KeysByCore {
    /// Splits the keys.
    pub(crate) async fn of(call: &Call, layout: Layout) -> Self {
        let mut cores: Vec<Positions> = Vec::new();
        cores.resize_with(call.tx.cores(), Positions::default);
        for done in 0..layout.count {
            let at = layout.first + done * layout.step;
            let core = if cores.len() == 1 { 0 } else { call.owner(at) };
            cores[core].push(at);
            breathe(call, done).await;
        }
        Self { cores: cores.into_iter().map(Arc::new).collect() }
    }

    /// Locks all the keys.
    pub(crate) async fn lock(&self, call: &Call, access: Access) -> Locked {
        call.tx.lock(self.claims(call, access).await).await
    }

    async fn claims(&self, call: &Call, access: Access) -> Vec<(CoreId, Claim)> {
        let mut claims = Vec::new();
        for core in self.owners() {
            let positions = &self.cores[core];
            let lock = |at| lock_key(call.db, Key::new(call.arg(positions.get(at))).hash);
            if positions.len() <= LOCKED_SINGLY_MAX {
                let keys = (0..positions.len()).map(|at| (lock(at), access)).collect();
                claims.push((core, Claim::Keys(keys)));
                continue;
            }
            let mut list = KeyList::with_capacity(positions.len());
            for done in 0..positions.len() {
                list.push(lock(done));
                breathe(call, done).await;
            }
            claims.push((core, Claim::List(Arc::new(list), access)));
        }
        claims
    }

    /// Works on all the keys, each core on its own; returns the result of each owner.
    ///
    /// `step` gets up to `most` of the remaining keys, and adds to the core's result; false ends
    /// the core's work. If no core has more than one portion, it is done as the message arrives: a
    /// task would be a turn later.
    pub(crate) async fn work<R, S>(
        &self,
        call: &Call,
        most: fn(&Portion) -> usize,
        step: S,
    ) -> Vec<R>
    where
        R: Default + Send + 'static,
        S: Fn(&mut Home, &Portion, &mut R) -> bool + Clone + Send + 'static,
    {
        if self.is_small(call, most) {
            let at_once = |core| self.at_once(call, core, step.clone());
            return call.tx.on_each(self.owners(), at_once).await;
        }
        let in_slices = |core| {
            let (mut keys, step) = (self.all(call, core), step.clone());
            async move |tx: Tx| {
                let mut sum = R::default();
                while let Some(portion) = keys.next(most(&keys)) {
                    let goes_on = step(&mut tx.home(), &portion, &mut sum);
                    if !goes_on {
                        break;
                    }
                    tx.pause().await;
                }
                sum
            }
        };
        call.tx.drive_each(self.owners(), in_slices).await
    }

    /// [`KeysByCore::work`] that changes the keys, with locks of all of them.
    pub(crate) async fn change<R, S>(
        &self,
        call: &Call,
        most: fn(&Portion) -> usize,
        step: S,
    ) -> Vec<R>
    where
        R: Default + Send + 'static,
        S: Fn(&mut Home, &Portion, &mut R) -> bool + Clone + Send + 'static,
    {
        let claims = self.claims(call, Access::Exclusive).await;
        if self.is_small(call, most) {
            let at_once = |core| self.at_once(call, core, step.clone());
            return call.tx.change(claims, at_once).await;
        }
        let locked = call.tx.lock(claims).await;
        let results = self.work(call, most, step).await;
        drop(locked);
        results
    }

    /// Reads the keys of each owner as of one instant, where there are at most [`PORTION_KEYS`] of
    /// each; otherwise `None`. `step` also returns the first deadline among the values read.
    pub(crate) async fn read<R, F>(&self, call: &Call, step: F) -> Option<Vec<R>>
    where
        R: Send + 'static,
        F: Fn(&mut Home, &Portion) -> (R, Option<u64>) + Clone + Send + 'static,
    {
        if self.rounds() > 1 {
            return None;
        }
        let claims = self.claims(call, Access::Shared).await;
        let at_once = |core| {
            let (keys, step) = (self.all(call, core), step.clone());
            let db = call.db;
            move |home: &mut Home| {
                let (result, dies) = step(home, &keys);
                Timed { result, dies, now: home.shard.db_mut(db).now() }
            }
        };
        // A core whose clock has passed the deadline may have reported the value as gone.
        let agrees = |reads: &[Timed<R>]| {
            let last = reads.iter().map(|read| read.now).max();
            reads.iter().all(|read| read.dies.is_none_or(|dies| Some(dies) > last))
        };
        let reads = call.tx.read(claims, at_once, agrees).await;
        Some(reads.into_iter().map(|read| read.result).collect())
    }

    /// True when no core has more than one portion.
    fn is_small(&self, call: &Call, most: fn(&Portion) -> usize) -> bool {
        let is_small = |keys: Portion| most(&keys) >= keys.len();
        self.owners().all(|core| is_small(self.all(call, core)))
    }

    /// Runs the only portion of `core` as the message arrives.
    fn at_once<R, S>(
        &self,
        call: &Call,
        core: CoreId,
        step: S,
    ) -> impl FnOnce(&mut Home) -> R + Send + 'static + use<R, S>
    where
        R: Default + Send + 'static,
        S: Fn(&mut Home, &Portion, &mut R) -> bool + Send + 'static,
    {
        let keys = self.all(call, core);
        move |home| {
            let mut sum = R::default();
            step(home, &keys, &mut sum);
            sum
        }
    }

    /// The number of rounds until every core is done with its keys.
    pub(crate) fn rounds(&self) -> usize {
        self.cores.iter().map(|list| list.len().div_ceil(PORTION_KEYS)).max().unwrap_or(0)
    }

    /// The cores that have keys to work on in this round.
    pub(crate) fn busy(&self, round: usize) -> impl Iterator<Item = CoreId> + '_ {
        (0..self.cores.len()).filter(move |core| round * PORTION_KEYS < self.cores[*core].len())
    }

    /// The keys of `core` in this round.
    pub(crate) fn portion(&self, call: &Call, core: CoreId, round: usize) -> Portion {
        let len = self.len_of(core);
        let from = (round * PORTION_KEYS).min(len);
        self.range(call, core, from..(from + PORTION_KEYS).min(len))
    }

    /// All keys of `core`.
    fn all(&self, call: &Call, core: CoreId) -> Portion {
        self.range(call, core, 0..self.len_of(core))
    }

    fn range(&self, call: &Call, core: CoreId, range: Range<usize>) -> Portion {
        let positions = Arc::clone(&self.cores[core]);
        Portion { request: Arc::clone(&call.request), positions, range }
    }

    fn len_of(&self, core: CoreId) -> usize {
        self.cores[core].len()
    }

    /// The cores that own a key.
    pub(crate) fn owners(&self) -> impl Iterator<Item = CoreId> + '_ {
        self.busy(0)
    }
}

/// Ends the slice if it is over, now and then.
async fn breathe(call: &Call, done: usize) {
    if done % BREATH_KEYS == BREATH_KEYS - 1 {
        call.tx.pause().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::preempt::Never;

    #[test] // Every position is found again, and very many are freed in portions.
    fn positions_are_kept_in_order() {
        for count in [0, 1, 16_384, 16_385, 200_000] {
            let mut positions = Positions::default();
            (0..count).for_each(|at| positions.push(at * 3));
            assert_eq!(positions.len(), count);
            assert!((0..count).all(|index| positions.get(index) == index * 3));
            drop(positions);
            assert_eq!(lazyfree::is_empty(), count < 200_000, "{count}");
            while lazyfree::run(&Never) {}
        }
    }
}

//! The keys of a request over very many of them, split by the cores that own them.
//!
//! A million keys take longer to hash than a slice, and a list of a million locks takes longer to
//! grant. So the keys are split in portions, and each core's locks are built as one list. Each core
//! then works on its own keys in portions ([`KeysByCore::work`]): a single portion at once, when
//! the message arrives; more as a task, in slices. Results that must be merged in order (MGET) come
//! in rounds instead: in each round, every core gets its next keys.

use darter_base::lazyfree;
use darter_command::Call;
use darter_keyspace::{Db, Key};
use darter_resp::{self as resp, Request};
use darter_tx::{Access, Claim, CoreId, Home, KeyList, Locked, Tx, lock_key};
use std::ops::Range;
use std::sync::Arc;

/// With more keys on a core, they are locked as one list instead of one by one.
const LOCKED_SINGLY_MAX: usize = 64;
/// Keys that a core processes before it yields. A smaller number would turn smaller requests into
/// tasks, and each round of MGET into a message.
pub(crate) const PORTION_KEYS: usize = 64;
/// Keys that are split or locked between two checks of the slice.
const BREATH_KEYS: usize = 16;

/// Positions in a request, in order. They are stored in chunks, because one vector of a million
/// would move when it grows, and would be freed in one step.
#[derive(Default)]
struct Positions {
    /// All chunks but the last hold [`Positions::PER_CHUNK`] positions.
    chunks: Vec<Vec<u32>>,
}

impl Positions {
    /// 64 KiB of positions.
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

/// Chunks of positions freed in one step.
const CHUNKS_FREED_AT_ONCE: usize = 4;

impl Drop for Positions {
    fn drop(&mut self) {
        let chunk_bytes = Self::PER_CHUNK * size_of::<u32>();
        lazyfree::defer_long(std::mem::take(&mut self.chunks), CHUNKS_FREED_AT_ONCE, chunk_bytes);
    }
}

/// The places of the keys in a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// The index of the first key.
    pub(crate) first: usize,
    /// The distance between two keys: 2 if each is followed by a value.
    pub(crate) step: usize,
    /// The number of keys.
    pub(crate) count: usize,
}

impl Layout {
    /// The layout if every argument after the name is a key.
    pub(crate) fn all(call: &Call) -> Self {
        Self { first: call.first, step: 1, count: call.len() - call.first }
    }
}

/// The keys of a request, split by core; see the module's documentation.
pub(crate) struct KeysByCore {
    /// For each core, the positions of its keys in the request.
    cores: Vec<Arc<Positions>>,
}

/// A core's result, the time of its clock, and the first deadline among the values read.
struct Timed<R> {
    result: R,
    dies: Option<u64>,
    now: u64,
}

/// Some keys of one core; cheap to send to that core.
pub(crate) struct Portion {
    request: Arc<Request>,
    positions: Arc<Positions>,
    range: Range<usize>,
}

impl Portion {
    /// Splits off at most `most` of the next keys. `None` when there are no more.
    fn next(&mut self, most: usize) -> Option<Self> {
        let Range { start, end } = self.range;
        let middle = end.min(start + most);
        self.range.start = middle;
        let (request, positions) = (Arc::clone(&self.request), Arc::clone(&self.positions));
        (start < middle).then_some(Self { request, positions, range: start..middle })
    }

    /// The number of keys in the portion.
    pub(crate) fn len(&self) -> usize {
        self.range.len()
    }

    /// The number of all keys of the core.
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
    /// Splits the keys of a request by core.
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
    /// `step` gets up to `most` of the remaining keys, and adds to the core's result; if it returns
    /// false, the core is done. If no core has more than one portion, the work is done when the
    /// message arrives, because a task would start a turn later.
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

    /// [`KeysByCore::work`] for changes, with all keys locked.
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

    /// Reads the keys of each owner at one instant; `None` if an owner has more than
    /// [`PORTION_KEYS`]. `step` also returns the first deadline among the values read.
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
        // A core whose clock has passed the deadline may have treated the value as expired.
        let agrees = |reads: &[Timed<R>]| {
            let last = reads.iter().map(|read| read.now).max();
            reads.iter().all(|read| read.dies.is_none_or(|dies| Some(dies) > last))
        };
        let reads = call.tx.read(claims, at_once, agrees).await;
        Some(reads.into_iter().map(|read| read.result).collect())
    }

    /// True if no core has more than one portion.
    fn is_small(&self, call: &Call, most: fn(&Portion) -> usize) -> bool {
        let is_small = |keys: Portion| most(&keys) >= keys.len();
        self.owners().all(|core| is_small(self.all(call, core)))
    }

    /// Processes the only portion of `core` when the message arrives.
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

    /// The number of rounds until every core has processed its keys.
    pub(crate) fn rounds(&self) -> usize {
        self.cores.iter().map(|list| list.len().div_ceil(PORTION_KEYS)).max().unwrap_or(0)
    }

    /// The cores that have keys in this round.
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

/// Yields if the slice is over; checked from time to time.
async fn breathe(call: &Call, done: usize) {
    if done % BREATH_KEYS == BREATH_KEYS - 1 {
        call.tx.pause().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::preempt::Never;

    #[test] // And very many are freed in portions.
    fn positions_in_chunks_keep_their_order() {
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

//! The keys of a request over very many of them, split by the cores that own them.
//!
//! A million keys take longer to hash than a slice, and a list of a million locks takes longer to
//! grant. So the split is made in portions, the locks of a core are one set that is built aside,
//! and the work goes in rounds: in each, every core gets the next portion of its keys.

use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::Call;
use darter_keyspace::Key;
use darter_resp::{self as resp, Request};
use darter_tx::{Access, Claim, CoreId, KeySet, Locked, lock_key};
use std::sync::Arc;

/// Up to so many keys of a core are locked one by one; more, as a set.
const LOCKED_SINGLY_MAX: usize = 64;
/// Keys that a core works on before it looks at others. As removals they take 25 us, and 110 us
/// once in a thousand times, where segments merge (2 M keys, measured).
pub(super) const PORTION_KEYS: usize = ENTRIES_AT_ONCE / 4;

/// See the module.
pub(super) struct Spread {
    /// For each core, the positions of its keys in the request.
    cores: Vec<Arc<Vec<u32>>>,
}

/// Some keys of one core.
pub(super) struct Portion {
    request: Arc<Request>,
    positions: Arc<Vec<u32>>,
    from: usize,
    to: usize,
}

impl Portion {
    /// The keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key<'_>> {
        let args = resp::Args::owned(&self.request);
        self.positions[self.from..self.to].iter().map(move |at| Key::new(args.get(*at as usize)))
    }
}

impl Spread {
    /// Splits the arguments behind the name, all of which are keys.
    pub(super) async fn of(call: &Call) -> Self {
        let mut counts = vec![0_usize; call.tx.cores()];
        if let [count] = &mut counts[..] {
            *count = call.len() - call.first;
        } else {
            for at in call.first..call.len() {
                counts[call.tx.core_of(call.arg(at))] += 1;
                breathe(call, at).await;
            }
        }
        // Made to measure: growing one of a million would copy it at once.
        let mut lists: Vec<Vec<u32>> = counts.into_iter().map(Vec::with_capacity).collect();
        for at in call.first..call.len() {
            let position = u32::try_from(at).expect("a request has at most 2^31 arguments");
            lists[call.tx.core_of(call.arg(at))].push(position);
            breathe(call, at).await;
        }
        Self { cores: lists.into_iter().map(Arc::new).collect() }
    }

    /// Locks all the keys.
    pub(super) async fn lock(&self, call: &Call, access: Access) -> Locked {
        let mut claims = Vec::new();
        for core in self.owners() {
            let positions = &self.cores[core];
            let mut set = KeySet::with_capacity(positions.len());
            for (done, at) in positions.iter().enumerate() {
                set.insert(lock_key(call.db, Key::new(call.arg(*at as usize)).hash));
                breathe(call, done).await;
            }
            let claim = if set.len() <= LOCKED_SINGLY_MAX {
                Claim::Keys(set.iter().map(|key| (key, access)).collect())
            } else {
                Claim::Set(Arc::new(set), access)
            };
            claims.push((core, claim));
        }
        call.tx.lock(claims).await
    }

    /// Rounds in which every core is done with its keys.
    pub(super) fn rounds(&self) -> usize {
        self.cores.iter().map(|list| list.len().div_ceil(PORTION_KEYS)).max().unwrap_or(0)
    }

    /// The cores that have keys to work on in this round.
    pub(super) fn busy(&self, round: usize) -> impl Iterator<Item = CoreId> + '_ {
        self.owners().filter(move |core| round * PORTION_KEYS < self.cores[*core].len())
    }

    /// What `core` has to do in this round.
    pub(super) fn portion(&self, call: &Call, core: CoreId, round: usize) -> Portion {
        let positions = Arc::clone(&self.cores[core]);
        let from = (round * PORTION_KEYS).min(positions.len());
        let to = (from + PORTION_KEYS).min(positions.len());
        Portion { request: Arc::clone(&call.request), positions, from, to }
    }

    fn owners(&self) -> impl Iterator<Item = CoreId> + '_ {
        (0..self.cores.len()).filter(|core| !self.cores[*core].is_empty())
    }
}

/// Ends the slice if it is over, now and then.
pub(super) async fn breathe(call: &Call, done: usize) {
    if done % PORTION_KEYS == PORTION_KEYS - 1 {
        call.tx.pause().await;
    }
}

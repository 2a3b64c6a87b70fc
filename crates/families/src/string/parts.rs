//! The keys of one large request, split by the cores that own them.
//!
//! A million keys take longer to hash than a slice, and locking them one by one would too. So they
//! are split in portions, and locked as a set that was built aside; what is done with them goes in
//! rounds: in each, every core gets the next portion of its own.

use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::Call;
use darter_keyspace::Key;
use darter_tx::{Access, Claim, KeySet, Locked, lock_key};
use std::ops::Range;
use std::sync::Arc;

/// Up to so many keys a core are locked one by one; more, as a set.
const KEYS_LOCKED_SINGLY: usize = 64;

/// See the module.
pub(super) struct Parts {
    cores: Vec<Arc<Vec<u32>>>,
}

/// Some positions of one core's part; cheap to send there.
pub(super) struct Portion {
    positions: Arc<Vec<u32>>,
    range: Range<usize>,
}

impl Portion {
    /// Indexes of arguments.
    pub(super) fn as_slice(&self) -> &[u32] {
        &self.positions[self.range.clone()]
    }
}

/// Splits `count` keys, of which the first stands at `first` and each next `step` further.
pub(super) async fn split(call: &Call, first: usize, step: usize, count: usize) -> Parts {
    let cores = call.tx.cores();
    let positions = (first..).step_by(step).take(count);
    let mut counts = vec![count; 1];
    if cores > 1 {
        counts = vec![0_usize; cores];
        for (done, at) in positions.clone().enumerate() {
            counts[call.tx.core_of(call.arg(at))] += 1;
            pause_now_and_then(call, done).await;
        }
    }
    let mut lists: Vec<Vec<u32>> = counts.into_iter().map(Vec::with_capacity).collect();
    for (done, at) in positions.enumerate() {
        let position = u32::try_from(at).expect("a request has at most 2^31 arguments");
        lists[call.tx.core_of(call.arg(at))].push(position);
        pause_now_and_then(call, done).await;
    }
    Parts { cores: lists.into_iter().map(Arc::new).collect() }
}

async fn pause_now_and_then(call: &Call, done: usize) {
    if done % ENTRIES_AT_ONCE == ENTRIES_AT_ONCE - 1 {
        call.tx.pause().await;
    }
}

impl Parts {
    /// Locks all the keys for `access`.
    pub(super) async fn lock(&self, call: &Call, access: Access) -> Locked {
        let mut claims = Vec::new();
        for (core, positions) in self.cores.iter().enumerate().filter(|(_, list)| !list.is_empty())
        {
            let mut set = KeySet::with_capacity(positions.len());
            for (done, at) in positions.iter().enumerate() {
                set.insert(lock_key(call.db, Key::new(call.arg(*at as usize)).hash));
                pause_now_and_then(call, done).await;
            }
            let claim = if set.len() <= KEYS_LOCKED_SINGLY {
                Claim::Keys(set.iter().map(|key| (key, access)).collect())
            } else {
                Claim::Set(Arc::new(set), access)
            };
            claims.push((core, claim));
        }
        call.tx.lock(claims).await
    }

    /// Rounds in which every core is done, when each takes `portion` keys a round.
    pub(super) fn rounds(&self, portion: usize) -> usize {
        self.cores.iter().map(|list| list.len().div_ceil(portion)).max().unwrap_or(0)
    }

    /// The cores that have something to do in this round.
    pub(super) fn cores_of_round(
        &self,
        round: usize,
        portion: usize,
    ) -> impl Iterator<Item = usize> {
        let busy = move |list: &Arc<Vec<u32>>| round * portion < list.len();
        self.cores.iter().enumerate().filter(move |(_, list)| busy(list)).map(|(core, _)| core)
    }

    /// The cores that own at least one key.
    pub(super) fn owners(&self) -> impl Iterator<Item = usize> {
        self.cores_of_round(0, 1)
    }

    /// All positions of a core.
    pub(super) fn of(&self, core: usize) -> &[u32] {
        &self.cores[core]
    }

    /// What `core` has to do in this round.
    pub(super) fn portion(&self, core: usize, round: usize, portion: usize) -> Portion {
        let len = self.cores[core].len();
        let from = (round * portion).min(len);
        self.range(core, from..(from + portion).min(len))
    }

    /// Some positions of a core.
    pub(super) fn range(&self, core: usize, range: Range<usize>) -> Portion {
        Portion { positions: Arc::clone(&self.cores[core]), range }
    }
}

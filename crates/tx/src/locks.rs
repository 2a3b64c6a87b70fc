//! The intent locks of one shard, per key. Only commands that span slices or cores hold locks.
//!
//! Point commands run to completion and hold nothing: they only check whether their key is locked.
//! So `held` is empty most of the time, and the check costs one branch.
//!
//! ```text
//! asked \ held   Cut, Shared   Update   Build    Exclusive
//! Read (point)     -             -       waits    waits      Update: a value is being rebuilt aside;
//! Write (point)  waits         waits     waits    waits      readers see the one before it, which is
//! Cut              -             -         -      waits      a legal order until it is installed.
//! Shared           -             -       waits    waits
//! Update         waits         waits     waits    waits      Build: see `Access`.
//! Exclusive      waits         waits     waits    waits
//! ```
//! Shared passes a held Update, but Update waits for a held Shared: a rebuild that started before
//! all of a reader's locks were held is concurrent with the reader; a later one must follow it.
//!
//! Invariants (`check_invariants` asserts them, except for I3, which the model test in
//! `tests/locks.rs` does: a table does not know the order of arrival):
//! - I1: a claim is granted whole or not at all.
//! - I2: a waiting claim conflicts with a held one, or with one that waits before it.
//! - I3: claims are granted in the order of their arrival, unless they do not conflict; except that
//!   a claim for serving blocked calls ([`LockTable::hand_over`]) precedes all others, and that a
//!   cut passes claims that wait for a build.
//! - I4: of two held claims, one may be granted while the other is held.
//! - I5: a waiter holds nothing here, and waits once.
//!
//! For additional claims of a running transaction, see `late`; for claims that take too long,
//! `busy`; for waiting without a claim, `watch`.

mod busy;
mod late;
mod watch;

use crate::{CoreId, KeyList};
use darter_base::hash;
use darter_base::hash::IdentityMap;
use darter_keyspace::{Act, Record};
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) use late::Late;
use watch::Watch;

/// A transaction: the core that coordinates it, and its number there.
pub type TxId = u64;

/// The name under which a key is locked. If two keys share a name, they merely wait for each other.
#[must_use]
pub fn lock_key(db: usize, hash: u64) -> u64 {
    hash.wrapping_add((db as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The intention of a claim, from the weakest to the strongest. See the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Reads all keys at one instant. Only for claims of all keys.
    Cut,
    /// Reads several keys at one instant.
    Shared,
    /// Rebuilds a value in a copy, and installs it.
    Update,
    /// Builds a value from cuts of other keys, its *sources*, and installs it. The sources are not
    /// locked, so a reader of the previous value may have seen a later value of a source. Only
    /// `Cut` may read it, because it sees the sources, too, and only while none of them has
    /// changed: see `darter_keyspace::watch`.
    Build,
    /// Changes several keys at one instant.
    Exclusive,
}

impl Access {
    fn is_read(self) -> bool {
        self <= Self::Shared
    }
}

/// The keys of one shard that a transaction locks.
#[derive(Clone, Debug)]
pub enum Claim {
    /// Some keys, each with its access.
    Keys(Vec<(u64, Access)>),
    /// Very many keys. The list was built in slices before. Granted in O(1).
    List(Arc<KeyList>, Access),
    /// The whole shard.
    All(Access),
}

impl Claim {
    /// True if the claim covers `key` with `access` or a stronger one.
    pub(crate) fn covers(&self, key: u64, access: Access) -> bool {
        self.access(key).is_some_and(|held| held >= access)
    }

    /// The access to a key, if it is claimed.
    fn access(&self, key: u64) -> Option<Access> {
        match self {
            Self::Keys(keys) => {
                let named = keys.iter().filter(|(one, _)| *one == key);
                named.map(|(_, access)| *access).max()
            }
            Self::List(list, held) => list.contains(key).then_some(*held),
            Self::All(held) => Some(*held),
        }
    }

    /// True if the claim covers lists with this access. Two lists are not compared, which would
    /// take milliseconds.
    pub(crate) fn covers_list(&self, access: Access) -> bool {
        match self {
            Self::Keys(_) => false,
            Self::List(_, held) | Self::All(held) => *held >= access,
        }
    }

    /// True if the claim permits the change of `record`.
    fn allows(&self, record: &Record) -> bool {
        match &record.act {
            Act::Key(key, _) | Act::Touched(key) => {
                self.covers(lock_key(record.database, hash::of(key)), Access::Update)
            }
            Act::Flush | Act::FlushAll | Act::Swap(_) => {
                matches!(self, Self::All(Access::Exclusive))
            }
            Act::Server(act) => !act.is_of_all() || matches!(self, Self::All(Access::Exclusive)),
            Act::Miss(_) | Act::Read(..) | Act::EndOfPart => true,
        }
    }

    /// True if the claim permits changes.
    #[must_use]
    pub fn is_write(&self) -> bool {
        match self {
            Self::Keys(keys) => keys.iter().any(|(_, access)| !access.is_read()),
            Self::List(_, access) | Self::All(access) => !access.is_read(),
        }
    }

    /// True if no other transaction may read or change any of its keys.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        match self {
            Self::Keys(keys) => keys.iter().all(|(_, access)| *access == Access::Exclusive),
            Self::List(_, access) | Self::All(access) => *access == Access::Exclusive,
        }
    }

    /// True if the claim passes builds.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        matches!(self, Self::All(Access::Cut))
    }

    /// True if changing its keys may take more than one turn.
    fn is_wide(&self) -> bool {
        !matches!(self, Self::Keys(_))
    }
}

/// The cores that take part in the transaction recorded for `claims`. Empty if nothing needs
/// grouping: a change on one core in one turn is atomic by itself.
pub(crate) fn writers(claims: &[(CoreId, Claim)]) -> Vec<CoreId> {
    let writes = || claims.iter().filter(|(_, claim)| claim.is_write());
    let spans = writes().count() > 1 || writes().any(|(_, claim)| claim.is_wide());
    if spans { writes().map(|(core, _)| *core).collect() } else { Vec::new() }
}

/// The holders of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Holders {
    shared: u32,
    update: u32,
    build: u32,
    exclusive: u32,
}

impl Holders {
    fn slot(&mut self, access: Access) -> &mut u32 {
        match access {
            Access::Cut | Access::Shared => &mut self.shared,
            Access::Update => &mut self.update,
            Access::Build => &mut self.build,
            Access::Exclusive => &mut self.exclusive,
        }
    }

    fn blocks(&self, asked: Access) -> bool {
        let held = [
            (self.shared, Access::Shared),
            (self.update, Access::Update),
            (self.build, Access::Build),
            (self.exclusive, Access::Exclusive),
        ];
        held.into_iter().any(|(count, held)| count > 0 && blocks(held, asked))
    }

    fn is_free(&self) -> bool {
        *self == Self::default()
    }
}

fn blocks(held: Access, asked: Access) -> bool {
    match asked {
        Access::Cut => held == Access::Exclusive,
        Access::Shared => held >= Access::Build,
        Access::Update | Access::Build | Access::Exclusive => true,
    }
}

/// The receiver of a grant: a core, and a ticket there.
pub(crate) type Notify = (usize, u64);

/// A waiting claim, and the ticket to complete when it is granted.
struct Waiting {
    tx: TxId,
    claim: Claim,
    notify: Notify,
}

/// The intent locks of one shard, and the claims that wait for them.
#[derive(Default)]
pub struct LockTable {
    keys: IdentityMap<Holders>,
    /// Claims of lists and of the whole shard; there are few at any time.
    wide: Vec<(TxId, Claim)>,
    granted: IdentityMap<Claim>,
    waiting: VecDeque<Waiting>,
    /// Locks of transactions besides the claims they started with.
    late: IdentityMap<Late>,
    /// Among them, the transactions with very many keys.
    many: Vec<TxId>,
    /// Transactions for which no claim may wait, with the error line for such claims.
    busy: Vec<(TxId, &'static str)>,
    watches: Vec<Watch>,
}

impl LockTable {
    /// True when nothing is held and nothing waits; then commands need not check.
    #[inline]
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.granted.is_empty() && self.waiting.is_empty()
    }

    /// True if `tx` holds the claim that it started with.
    pub(crate) fn has_granted(&self, tx: TxId) -> bool {
        self.granted.contains_key(&tx)
    }

    /// True if a point command on `key` must wait.
    #[must_use]
    pub fn blocks_point(&self, key: u64, write: bool) -> bool {
        let access = if write { Access::Update } else { Access::Shared };
        self.is_held_against(key, access)
    }

    /// Grants `claim` to `tx`, unless it conflicts with a held or waiting claim.
    pub fn try_acquire(&mut self, tx: TxId, claim: &Claim) -> bool {
        let free = self.is_obtainable(claim);
        if free {
            self.grant(tx, claim.clone());
            self.check_if_few();
        }
        free
    }

    /// True if `claim` conflicts with no held or waiting claim.
    fn is_obtainable(&self, claim: &Claim) -> bool {
        self.is_free()
            || !self.conflicts_with_held(claim)
                && !self.waiting.iter().any(|waiting| self.precedes(&waiting.claim, claim))
    }

    /// True if `claim` must wait for this waiting claim. A cut passes claims that wait for a build,
    /// because it delays none of them.
    fn precedes(&self, waiting: &Claim, claim: &Claim) -> bool {
        overlap(waiting, claim) && !(claim.is_cut() && self.is_behind_build(waiting))
    }

    fn is_behind_build(&self, waiting: &Claim) -> bool {
        let Claim::Keys(keys) = waiting else { return false };
        keys.iter().any(|(key, _)| self.keys.get(key).is_some_and(|held| held.build > 0))
    }

    /// Grants the read claim `claim`, unless it conflicts or one of its values is being rebuilt. So
    /// the data read does not change while the claim is held.
    pub fn try_acquire_still(&mut self, tx: TxId, claim: &Claim) -> bool {
        !self.is_being_rebuilt(claim) && self.try_acquire(tx, claim)
    }

    /// True if a value of `claim` may be replaced by one that is being built.
    fn is_being_rebuilt(&self, claim: &Claim) -> bool {
        let is_rebuilt = |key: &u64| self.keys.get(key).is_some_and(|held| held.update > 0);
        let singly = match claim {
            Claim::Keys(keys) => keys.iter().any(|(key, _)| is_rebuilt(key)),
            Claim::List(..) | Claim::All(_) => self.keys.values().any(|held| held.update > 0),
        };
        let rebuilds = |(_, held): &(TxId, Claim)| match held {
            Claim::Keys(_) => false,
            Claim::List(_, access) | Claim::All(access) => *access == Access::Update,
        };
        singly || self.wide.iter().any(rebuilds) || self.are_late_rebuilt(claim)
    }

    /// Grants `claim` to `tx` before all waiting claims, unless it conflicts with a held one. For a
    /// run that has already worked on these keys in this turn.
    pub(crate) fn take_first(&mut self, tx: TxId, claim: Claim) -> bool {
        let is_free = !self.conflicts_with_held(&claim);
        if is_free {
            self.grant(tx, claim);
            self.check_if_few();
        }
        is_free
    }

    /// Queues `claim`; [`LockTable::release`] returns `notify` when it is granted. Returns true if
    /// it was granted at once.
    pub fn acquire(&mut self, tx: TxId, claim: Claim, notify: (usize, u64)) -> bool {
        debug_assert!(!claim.is_cut(), "{tx}: a cut does not queue");
        if self.try_acquire(tx, &claim) {
            return true;
        }
        self.waiting.push_back(Waiting { tx, claim, notify });
        self.check_if_few();
        false
    }

    /// Releases the locks of `tx`. Returns the receivers of the claims that are granted now.
    pub fn release(&mut self, tx: TxId) -> Vec<(usize, u64)> {
        self.give_all(tx);
        self.note_ended(tx);
        self.grant_waiting()
    }

    /// Releases the locks of `tx`, and grants `claims` of them before all waiting claims. Returns
    /// which of them were granted at once, the receiver `notify` for the others, and the receivers
    /// of other granted claims.
    pub(crate) fn hand_over(
        &mut self,
        tx: TxId,
        claims: Vec<(TxId, Claim, Notify)>,
    ) -> (Vec<bool>, Vec<Notify>) {
        let is_write = self.granted.get(&tx).is_some_and(Claim::is_write) || self.writes_late(tx);
        assert!(is_write, "{tx} could change nothing that somebody waits for");
        assert!(!claims.is_empty(), "nothing of {tx} is handed over");
        self.give_all(tx);
        self.note_ended(tx);
        let mut are_granted = Vec::with_capacity(claims.len());
        for (next, claim, notify) in claims {
            assert_ne!(tx, next, "a claim is handed to another transaction");
            are_granted.push(self.put_first(next, claim, notify));
        }
        (are_granted, self.grant_waiting())
    }

    /// [`LockTable::acquire`] before all waiting claims.
    pub(crate) fn acquire_first(&mut self, tx: TxId, claim: Claim, notify: Notify) -> bool {
        let is_granted = self.put_first(tx, claim, notify);
        self.check_if_few();
        is_granted
    }

    fn put_first(&mut self, tx: TxId, claim: Claim, notify: Notify) -> bool {
        let is_free = !self.conflicts_with_held(&claim);
        if is_free {
            self.grant(tx, claim);
        } else {
            self.waiting.push_front(Waiting { tx, claim, notify });
        }
        is_free
    }

    /// Makes `next` the holder of the locks of `tx`.
    pub(crate) fn rename(&mut self, tx: TxId, next: TxId) {
        let claim = self.give_all(tx);
        self.grant(next, claim);
        self.note_renamed(tx, next);
    }

    /// Releases the locks that `tx` holds or waits for, if any. Returns the receiver of its own
    /// waiting claim, and the receivers of granted claims, as `release` does.
    pub(crate) fn withdraw(&mut self, tx: TxId) -> (Option<Notify>, Vec<Notify>) {
        let place = self.waiting.iter().position(|waiting| waiting.tx == tx);
        let waited = place.and_then(|place| self.waiting.remove(place));
        let waited = waited.map(|waiting| waiting.notify).or_else(|| self.drop_watch(tx));
        let is_held = self.granted.contains_key(&tx);
        assert!(!is_held || waited.is_none(), "I5: {tx} waits for what it holds");
        if is_held {
            self.give_all(tx);
        }
        self.note_ended(tx);
        (waited, self.grant_waiting())
    }

    /// Releases the locks of `tx` except `key`, which it keeps for `access`: that of its claim, or
    /// a weaker one. Returns the receivers of granted claims, as `release` does.
    pub fn narrow(&mut self, tx: TxId, key: u64, access: Access) -> Vec<(usize, u64)> {
        let claim = self.give_all(tx);
        assert!(claim.covers(key, access), "transaction {tx} does not hold {key} for {access:?}");
        self.grant(tx, Claim::Keys(vec![(key, access)]));
        self.note_narrowed(tx, access);
        self.grant_waiting()
    }

    /// Releases the locks of `tx`, but `tx` itself only later. Returns the receivers of granted
    /// claims, as `release` does.
    pub fn empty(&mut self, tx: TxId) -> Vec<(usize, u64)> {
        self.give_all(tx);
        self.grant(tx, Claim::Keys(Vec::new()));
        self.note_ended(tx);
        self.grant_waiting()
    }

    /// Asserts that `tx`, which made these records, holds the changed keys; debug builds check key
    /// by key.
    pub(crate) fn check_records<'a>(&self, tx: TxId, records: impl Iterator<Item = &'a Record>) {
        let mut records = records.filter(|record| record.part.is_some()).peekable();
        if records.peek().is_none() {
            return;
        }
        let claim = self.granted.get(&tx).expect("who records for a transaction holds a claim");
        assert!(claim.is_write() || self.writes_late(tx), "{tx} holds nothing to change");
        if cfg!(debug_assertions) {
            let stray =
                records.find(|record| !claim.allows(record) && !self.allows_late(tx, record));
            assert!(stray.is_none(), "transaction {tx} changed what it does not hold: {stray:?}");
        }
    }

    fn give_all(&mut self, tx: TxId) -> Claim {
        self.give_late(tx);
        self.forget_busy(tx);
        let claim = self.granted.remove(&tx).expect("released once, by the holder");
        match &claim {
            Claim::Keys(keys) => keys.iter().for_each(|(key, access)| self.give(*key, *access)),
            Claim::List(..) | Claim::All(_) => self.wide.retain(|(holder, _)| *holder != tx),
        }
        claim
    }

    /// The numbers of held and of waiting claims.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.granted.len(), self.waiting.len())
    }

    fn grant(&mut self, tx: TxId, claim: Claim) {
        match &claim {
            Claim::Keys(keys) => {
                for (key, access) in keys {
                    *self.keys.entry(*key).or_default().slot(*access) += 1;
                }
            }
            wide => self.wide.push((tx, wide.clone())),
        }
        let old = self.granted.insert(tx, claim);
        assert!(old.is_none(), "a transaction holds one claim a shard");
    }

    fn give(&mut self, key: u64, access: Access) {
        let holders = self.keys.get_mut(&key).expect("a held key has holders");
        let count = holders.slot(access);
        // Otherwise the key would be held forever.
        assert!(*count > 0, "nobody holds {key} for {access:?}");
        *count -= 1;
        if holders.is_free() {
            self.keys.remove(&key);
        }
    }

    /// Grants, in order, all claims that conflict with no held and no earlier claim. Returns their
    /// receivers, after those of completed watches.
    fn grant_waiting(&mut self) -> Vec<(usize, u64)> {
        let mut granted = self.take_ended_watches();
        let mut still: VecDeque<Waiting> = VecDeque::new();
        for waiting in std::mem::take(&mut self.waiting) {
            let before = still.iter().any(|earlier| overlap(&earlier.claim, &waiting.claim));
            if before || self.conflicts_with_held(&waiting.claim) {
                still.push_back(waiting);
            } else {
                self.grant(waiting.tx, waiting.claim);
                granted.push(waiting.notify);
            }
        }
        self.waiting = still;
        self.check_if_few();
        granted
    }

    fn is_held_against(&self, key: u64, asked: Access) -> bool {
        self.keys.get(&key).is_some_and(|holders| holders.blocks(asked))
            || self.wide.iter().any(|(_, claim)| match claim {
                Claim::Keys(_) => false,
                Claim::List(list, held) => blocks(*held, asked) && list.contains(key),
                Claim::All(held) => blocks(*held, asked),
            })
            || self.is_late_against(key, asked)
    }

    fn conflicts_with_held(&self, claim: &Claim) -> bool {
        match claim {
            Claim::Keys(keys) => {
                keys.iter().any(|(key, access)| self.is_held_against(*key, *access))
            }
            Claim::List(list, asked) => {
                self.keys.iter().any(|(key, held)| held.blocks(*asked) && list.contains(*key))
                    || self.wide.iter().any(|(_, held)| wide_conflict(held, claim))
                    || self.are_late_against(*asked)
            }
            Claim::All(asked) => {
                self.keys.values().any(|held| held.blocks(*asked))
                    || self.wide.iter().any(|(_, held)| wide_conflict(held, claim))
                    || self.are_late_against(*asked)
            }
        }
    }

    /// Checks the invariants after every change in debug builds, while that is cheap.
    fn check_if_few(&self) {
        const CLAIMS: usize = 8;
        const KEYS: usize = 64;
        let asked = || self.waiting.iter().map(|waiting| singles(&waiting.claim)).sum::<usize>();
        let claims = self.granted.len() + self.waiting.len();
        let is_few = claims <= CLAIMS && self.many.is_empty() && self.keys.len() + asked() <= KEYS;
        if cfg!(debug_assertions) && is_few {
            self.check_invariants();
        }
    }

    /// Asserts the invariants, except for I3. Cost: each pair of claims is compared key by key.
    pub fn check_invariants(&self) {
        self.check_held();
        self.check_waiting();
        self.check_busy();
        self.check_watches();
    }

    /// Checks I1 and I4.
    fn check_held(&self) {
        let mut keys = IdentityMap::<Holders>::default();
        let mut wide = 0;
        for (tx, claim) in &self.granted {
            if let Claim::Keys(list) = claim {
                for (key, access) in list {
                    *keys.entry(*key).or_default().slot(*access) += 1;
                }
            } else {
                wide += 1;
                let is_held = self.wide.iter().any(|(holder, _)| holder == tx);
                assert!(is_held, "I1: {tx} was granted what it does not hold");
            }
            let others = self.granted.iter().filter(|(other, _)| *other < tx);
            for (other, held) in others {
                assert!(!meet(held, claim, excludes), "I4: {other} and {tx} exclude each other");
            }
        }
        wide += self.check_late(&mut keys);
        assert_eq!((&keys, wide), (&self.keys, self.wide.len()), "I1: what is held was granted");
    }

    /// Checks I2 and I5.
    fn check_waiting(&self) {
        for (at, Waiting { tx, claim, .. }) in self.waiting.iter().enumerate() {
            let mut before = self.waiting.range(..at);
            let is_free =
                !self.conflicts_with_held(claim) && !before.any(|one| overlap(&one.claim, claim));
            assert!(!is_free, "I2: nothing is against {tx}, which waits");
            let is_twice = self.waiting.range(..at).any(|earlier| earlier.tx == *tx);
            assert!(!is_twice && !self.granted.contains_key(tx), "I5: {tx} waits");
        }
    }
}

/// The number of keys that a claim names individually.
fn singles(claim: &Claim) -> usize {
    if let Claim::Keys(keys) = claim { keys.len() } else { 0 }
}

/// True if a held wide claim conflicts with a requested one.
fn wide_conflict(held: &Claim, asked: &Claim) -> bool {
    match (held, asked) {
        (Claim::Keys(_), _) | (_, Claim::Keys(_)) => false, // These are checked key by key.
        (Claim::All(held), Claim::All(asked) | Claim::List(_, asked))
        | (Claim::List(_, held), Claim::All(asked)) => blocks(*held, *asked),
        (Claim::List(one, held), Claim::List(other, asked)) => {
            // Intersecting millions of locks here would stall, so two long lists always count as
            // conflicting.
            let _ = (one, other);
            blocks(*held, *asked)
        }
    }
}

/// True if one of two claims must wait for the other, whichever came first.
fn overlap(one: &Claim, other: &Claim) -> bool {
    meet(one, other, |a, b| blocks(a, b) || blocks(b, a))
}

/// True if neither access may be granted while the other is held.
fn excludes(one: Access, other: Access) -> bool {
    blocks(one, other) && blocks(other, one)
}

/// True if two claims share a key for which `clash` holds, given both accesses. Two lists count as
/// sharing one.
fn meet(one: &Claim, other: &Claim, clash: impl Fn(Access, Access) -> bool) -> bool {
    match (one, other) {
        (Claim::Keys(one), Claim::Keys(other)) => {
            one.iter().any(|(key, a)| other.iter().any(|(other, b)| key == other && clash(*a, *b)))
        }
        (Claim::Keys(keys), wide) => {
            keys.iter().any(|(key, a)| wide.access(*key).is_some_and(|b| clash(*a, b)))
        }
        (wide, Claim::Keys(keys)) => {
            keys.iter().any(|(key, b)| wide.access(*key).is_some_and(|a| clash(a, *b)))
        }
        (Claim::List(_, a) | Claim::All(a), Claim::List(_, b) | Claim::All(b)) => clash(*a, *b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(list: &[(u64, Access)]) -> Claim {
        Claim::Keys(list.to_vec())
    }

    fn list_of(count: usize) -> KeyList {
        let mut list = KeyList::with_capacity(count);
        (0..count as u64).for_each(|key| list.push(key));
        list
    }

    #[test]
    fn readers_pass_an_update_and_writers_wait() {
        let mut locks = LockTable::default();
        assert!(locks.is_free());
        assert!(locks.try_acquire(1, &keys(&[(7, Access::Update)])));
        assert!(!locks.blocks_point(7, false), "a read sees the value before the update");
        assert!(locks.blocks_point(7, true));
        assert!(!locks.blocks_point(8, true));
        assert!(locks.try_acquire(2, &keys(&[(7, Access::Shared)])));
        assert!(!locks.try_acquire(3, &keys(&[(7, Access::Update)])));
        assert_eq!(locks.release(1), []);
        assert!(!locks.try_acquire(3, &keys(&[(7, Access::Update)])), "a Shared is held");
        assert_eq!(locks.release(2), []);
        assert!(locks.is_free());
    }

    #[test] // A stream of readers cannot starve a writer.
    fn claims_are_granted_in_order_of_arrival() {
        let mut locks = LockTable::default();
        assert!(locks.try_acquire(1, &keys(&[(1, Access::Shared)])));
        assert!(!locks.acquire(2, keys(&[(1, Access::Exclusive), (2, Access::Exclusive)]), (0, 2)));
        assert!(!locks.acquire(3, keys(&[(1, Access::Shared)]), (0, 3)), "after the writer");
        assert!(!locks.acquire(4, keys(&[(2, Access::Shared)]), (0, 4)));
        assert!(locks.acquire(5, keys(&[(3, Access::Exclusive)]), (0, 5)), "touches nobody");
        assert_eq!(locks.release(1), [(0, 2)]);
        assert_eq!(locks.release(2), [(0, 3), (0, 4)]);
    }

    #[test] // The remaining lock still blocks others.
    fn a_narrowed_claim_releases_its_other_locks() {
        let mut locks = LockTable::default();
        assert!(locks.try_acquire(1, &keys(&[(1, Access::Exclusive), (2, Access::Shared)])));
        assert!(!locks.acquire(2, keys(&[(2, Access::Exclusive)]), (0, 2)));
        assert!(!locks.acquire(3, keys(&[(1, Access::Shared)]), (0, 3)));
        assert_eq!(locks.narrow(1, 1, Access::Exclusive), [(0, 2)]);
        assert!(locks.blocks_point(1, false));
        assert_eq!(locks.release(1), [(0, 3)]);
        let many = list_of(100);
        assert_eq!(locks.release(2), []);
        assert_eq!(locks.release(3), []);
        assert!(locks.try_acquire(4, &Claim::List(Arc::new(many), Access::Exclusive)));
        assert_eq!(locks.narrow(4, 7, Access::Exclusive), []);
        assert!(!locks.blocks_point(8, true));
        assert!(locks.blocks_point(7, true));
        assert_eq!(locks.release(4), []);
        assert!(locks.is_free());
    }

    #[test]
    fn claims_of_all_keys_conflict_with_single_locks() {
        let mut locks = LockTable::default();
        let many = list_of(1_000);
        assert!(locks.try_acquire(1, &keys(&[(5, Access::Shared)])));
        assert!(!locks.try_acquire(2, &Claim::List(Arc::new(many.clone()), Access::Exclusive)));
        assert_eq!(locks.release(1), []);
        assert!(locks.try_acquire(2, &Claim::List(Arc::new(many), Access::Exclusive)));
        assert!(locks.blocks_point(5, false));
        assert!(!locks.blocks_point(5_000, true));
        assert!(!locks.acquire(3, Claim::All(Access::Exclusive), (1, 9)));
        assert_eq!(locks.release(2), [(1, 9)]);
        assert!(locks.blocks_point(5_000, true));
    }

    /// Returns the invariant that `check_invariants` finds violated after `spoil` has modified a
    /// table. Transaction 1 holds two keys, 2 an empty list, and 3 waits for 1.
    fn broken(spoil: impl FnOnce(&mut LockTable)) -> Option<&'static str> {
        let mut locks = LockTable::default();
        assert!(locks.try_acquire(1, &keys(&[(1, Access::Exclusive), (2, Access::Update)])));
        assert!(locks.try_acquire(2, &Claim::List(Arc::new(list_of(0)), Access::Shared)));
        assert!(!locks.acquire(3, keys(&[(1, Access::Shared)]), (0, 3)));
        spoil(&mut locks);
        let look = std::panic::AssertUnwindSafe(|| locks.check_invariants());
        let why = std::panic::catch_unwind(look).err()?;
        let why = why.downcast_ref::<String>()?;
        ["I1", "I2", "I4", "I5"].into_iter().find(|name| why.contains(name))
    }

    #[test]
    fn a_corrupted_lock_table_is_detected() {
        let shared = || keys(&[(1, Access::Shared)]);
        let waits = |tx| Waiting { tx, claim: shared(), notify: (0, 9) };
        assert_eq!(broken(|_| {}), None);
        assert_eq!(broken(|locks| _ = locks.keys.remove(&2)), Some("I1"), "half of a claim");
        assert_eq!(broken(|locks| locks.give(2, Access::Update)), Some("I1"), "the same");
        assert_eq!(broken(|locks| locks.wide.clear()), Some("I1"), "a list");
        assert_eq!(broken(|locks| _ = locks.give_all(1)), Some("I2"), "a waiter not granted");
        assert_eq!(broken(|locks| locks.grant(4, shared())), Some("I4"));
        assert_eq!(broken(|locks| locks.waiting.push_back(waits(1))), Some("I5"), "it holds it");
        assert_eq!(broken(|locks| locks.waiting.push_back(waits(3))), Some("I5"), "twice");
    }

    #[test]
    #[should_panic(expected = "does not hold")]
    fn narrowing_a_claim_to_other_keys_panics() {
        let mut locks = LockTable::default();
        assert!(locks.try_acquire(1, &keys(&[(1, Access::Update), (2, Access::Exclusive)])));
        locks.narrow(1, 1, Access::Exclusive);
    }
}

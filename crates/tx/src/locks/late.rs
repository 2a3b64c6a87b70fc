//! Keys that a transaction locks as it comes to them (late keys).
//!
//! It never waits for one, wherever that key is in the order of docs/design/0002-order.md. If
//! another transaction holds the lock, it is refused, and the transaction must end. So it waits for
//! no other claim, and nothing deadlocks. Locks for which others only wait are refused, too, unless
//! they wait for this transaction: they cannot be granted before it ends.
//!
//! A late `Shared` is refused while the value is being rebuilt (`Update`): otherwise two reads of
//! one transaction could see the value before and after.
//!
//! A few late keys are in the table of all keys. If they are very many, they stay in the
//! transaction's own map, where others look them up. The map is released as a whole, like the list
//! of a wide claim.
//!
//! Invariants (`check_invariants`, with those of the table):
//! - L1: late keys are in the table of keys, unless their transaction is among `many`.
//! - L2: a transaction with late keys was granted a claim, which may be empty.

use super::{Access, Claim, Holders, LockTable, TxId, blocks, meet, overlap};
use crate::waited::Waited;
use crate::{KeyList, lock_key};
use darter_base::hash;
use darter_base::hashtree::HashTree;
use darter_keyspace::{Act, Record};
use std::sync::Arc;

/// With more late keys, they are looked up in the map of their transaction. Up to this many move
/// there in one step.
const FEW: usize = 128;

/// The locks of a transaction on a core besides the claim that it started with.
#[derive(Debug, Default)]
pub(crate) struct Late {
    keys: HashTree<Access>,
    /// Claims of lists, and of all keys.
    wide: Vec<Claim>,
    /// The strongest access to any key.
    strongest: Option<Access>,
}

impl Late {
    /// True if the locks cover `key` with `access` or a stronger one.
    pub(crate) fn covers(&self, key: u64, access: Access) -> bool {
        self.access(key).is_some_and(|held| held >= access)
    }

    /// The access to a key.
    fn access(&self, key: u64) -> Option<Access> {
        let wide = self.wide.iter().filter_map(|claim| claim.access(key));
        wide.chain(self.keys.get(key).copied()).max()
    }

    /// True if lists with this access may be covered, key by key or as a whole; they are not
    /// compared.
    pub(crate) fn covers_list(&self, access: Access) -> bool {
        let is_wide = self.wide.iter().any(|claim| claim.covers_list(access));
        is_wide || self.strongest >= Some(access)
    }

    /// True when all keys are held.
    pub(crate) fn covers_all(&self, access: Access) -> bool {
        self.wide.iter().any(|claim| matches!(claim, Claim::All(held) if *held >= access))
    }

    /// Adds a granted claim.
    pub(crate) fn add(&mut self, claim: Claim) {
        match claim {
            Claim::Keys(keys) => {
                keys.into_iter().for_each(|(key, access)| _ = self.add_key(key, access))
            }
            wide => self.wide.push(wide),
        }
    }

    /// Adds a key. Returns the previous access to it.
    fn add_key(&mut self, key: u64, access: Access) -> Option<Access> {
        self.strongest = self.strongest.max(Some(access));
        self.keys.insert(key, access)
    }

    /// A portion of the keys that were locked one by one, and where to continue.
    pub(crate) fn some_keys(&self, path: u32) -> (Vec<(u64, Access)>, Option<u32>) {
        let (leaf, next) = self.keys.leaf(path);
        (leaf.iter().map(|(key, access)| (*key, *access)).collect(), next)
    }

    /// The claims of lists, and of all keys.
    pub(crate) fn wide(&self) -> &[Claim] {
        &self.wide
    }

    /// The number of keys that were locked one by one.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    fn is_write(&self) -> bool {
        self.strongest > Some(Access::Shared) || self.wide.iter().any(Claim::is_write)
    }

    fn allows(&self, record: &Record) -> bool {
        let is_key = match &record.act {
            Act::Key(key, _) | Act::Touched(key) => {
                let held = self.keys.get(lock_key(record.database, hash::of(key)));
                held.is_some_and(|held| *held >= Access::Update)
            }
            _ => false,
        };
        is_key || self.wide.iter().any(|claim| claim.allows(record))
    }
}

impl LockTable {
    /// Grants the part of `claim` that `tx` does not hold, without waiting. Returns false, without
    /// a change, if others hold some of it, or wait for it (except those that wait for `tx`). `tx`
    /// may hold nothing yet.
    ///
    /// Cost: a lookup for each key, and for each waiting claim.
    pub fn widen(&mut self, tx: TxId, claim: &Claim) -> bool {
        match claim {
            Claim::Keys(keys) => {
                let is_free = |(key, access): &(u64, Access)| {
                    self.holds(tx, *key, *access) || self.is_free_for(tx, *key, *access)
                };
                let all_free = keys.iter().all(is_free);
                if all_free {
                    keys.iter().for_each(|(key, access)| self.take_late(tx, *key, *access));
                }
                all_free
            }
            wide => self.widen_by_many(tx, wide),
        }
    }

    /// [`LockTable::widen`] for one key.
    pub fn widen_by(&mut self, tx: TxId, key: u64, access: Access) -> bool {
        if self.holds(tx, key, access) {
            return true;
        }
        let is_free = self.is_free_for(tx, key, access);
        if is_free {
            self.take_late(tx, key, access);
        }
        is_free
    }

    fn widen_by_many(&mut self, tx: TxId, claim: &Claim) -> bool {
        debug_assert!(claim.is_wide(), "keys are taken one by one");
        let is_waited = || {
            let mut waiting = self.waiting.iter().map(|waiting| &waiting.claim);
            waiting.any(|waiting| overlap(waiting, claim) && !self.waits_for(tx, waiting))
        };
        let is_free = !self.others_hold_some(tx, claim) && !is_waited();
        if is_free {
            self.granted.entry(tx).or_insert_with(|| Claim::Keys(Vec::new()));
            self.late.entry(tx).or_default().wide.push(claim.clone());
            self.wide.push((tx, claim.clone()));
            self.check_if_few();
        }
        is_free
    }

    /// True if `tx` holds `key` for `access` or a stronger one.
    #[must_use]
    pub fn holds(&self, tx: TxId, key: u64, access: Access) -> bool {
        self.own_access(tx, key).is_some_and(|held| held >= access)
    }

    /// The locks that `tx` took after its start.
    pub(crate) fn late(&self, tx: TxId) -> Option<&Late> {
        self.late.get(&tx)
    }

    fn own_access(&self, tx: TxId, key: u64) -> Option<Access> {
        let late = self.late.get(&tx).and_then(|late| late.access(key));
        late.max(self.granted.get(&tx).and_then(|claim| claim.access(key)))
    }

    /// True if no other transaction prevents `tx` from locking a key.
    fn is_free_for(&self, tx: TxId, key: u64, asked: Access) -> bool {
        if self.others(tx, key).excludes_late(asked) {
            return false;
        }
        let wide = self.wide.iter().filter(|(holder, _)| *holder != tx);
        if wide.filter_map(|(_, claim)| claim.access(key)).any(|held| excludes_late(held, asked)) {
            return false;
        }
        let many = self.many.iter().filter(|holder| **holder != tx);
        if many
            .filter_map(|holder| self.late[holder].access(key))
            .any(|held| excludes_late(held, asked))
        {
            return false;
        }
        let late = |waiting: &Claim| {
            let access = waiting.access(key);
            access.is_some_and(|waits| blocks(waits, asked) || blocks(asked, waits))
        };
        let mut waiting = self.waiting.iter().map(|waiting| &waiting.claim);
        !waiting.any(|waiting| late(waiting) && !self.waits_for(tx, waiting))
    }

    /// The holders of a key in the table, except `tx`.
    fn others(&self, tx: TxId, key: u64) -> Holders {
        let mut holders = self.keys.get(&key).copied().unwrap_or_default();
        if holders.is_free() {
            return holders;
        }
        if let Some(Claim::Keys(own)) = self.granted.get(&tx) {
            let own = own.iter().filter(|(one, _)| *one == key);
            own.for_each(|(_, access)| holders.leave(key, *access));
        }
        if !self.many.contains(&tx)
            && let Some(access) = self.late.get(&tx).and_then(|late| late.keys.get(key))
        {
            holders.leave(key, *access);
        }
        holders
    }

    /// True if others hold some of a list or of all keys. Two lists always count as conflicting.
    fn others_hold_some(&self, tx: TxId, claim: &Claim) -> bool {
        let (asked, is_in): (_, &dyn Fn(u64) -> bool) = match claim {
            Claim::Keys(_) => unreachable!("keys are asked for one by one"),
            Claim::List(list, asked) => (*asked, &|key| list.contains(key)),
            Claim::All(asked) => (*asked, &|_| true),
        };
        let mut singly = self.keys.keys().filter(|key| is_in(**key));
        let mut wide = self.wide.iter().filter(|(holder, _)| *holder != tx);
        let mut many = self.many.iter().filter(|holder| **holder != tx);
        singly.any(|key| self.others(tx, *key).excludes_late(asked))
            || wide.any(|(_, held)| meet(held, claim, excludes_late))
            || many.any(|holder| {
                self.late[holder].strongest.is_some_and(|held| excludes_late(held, asked))
            })
    }

    /// True if a waiting claim conflicts with locks of `tx`: it cannot be granted before `tx` ends.
    pub(super) fn waits_for(&self, tx: TxId, waiting: &Claim) -> bool {
        let own = self.granted.get(&tx);
        if own.is_some_and(|own| meet(own, waiting, blocks)) {
            return true;
        }
        let Some(late) = self.late.get(&tx) else { return false };
        let wide = late.wide.iter().any(|own| meet(own, waiting, blocks));
        wide || match waiting {
            Claim::Keys(keys) => {
                let held = |key| late.keys.get(key).copied();
                keys.iter().any(|(key, asked)| held(*key).is_some_and(|held| blocks(held, *asked)))
            }
            // Very many late keys count as conflicting with each list, like other lists.
            Claim::List(_, asked) if self.many.contains(&tx) => {
                late.strongest.is_some_and(|held| blocks(held, *asked))
            }
            Claim::List(list, asked) => {
                late.few().any(|(key, held)| blocks(held, *asked) && list.contains(key))
            }
            Claim::All(asked) => late.strongest.is_some_and(|held| blocks(held, *asked)),
        }
    }

    fn take_late(&mut self, tx: TxId, key: u64, access: Access) {
        if self.holds(tx, key, access) {
            return;
        }
        self.granted.entry(tx).or_insert_with(|| Claim::Keys(Vec::new()));
        debug_assert!(self.waiting.iter().all(|waiting| waiting.tx != tx), "I5: {tx} waits");
        let late = self.late.entry(tx).or_default();
        let before = late.add_key(key, access);
        assert!(before.is_none_or(|before| before < access), "{key} was held for {before:?}");
        let count = late.keys.len();
        if self.many.contains(&tx) {
            return;
        }
        if let Some(before) = before {
            self.give(key, before);
        }
        *self.keys.entry(key).or_default().slot(access) += 1;
        if count > FEW {
            self.give_late_keys(tx);
            self.many.push(tx);
            debug_assert!(self.holds(tx, key, access), "L1: {key} is lost on the way");
        }
        self.check_if_few();
    }

    /// Removes the late keys of `tx` from the table of keys.
    fn give_late_keys(&mut self, tx: TxId) {
        let keys: Vec<_> = self.late.get(&tx).map(|late| late.few().collect()).unwrap_or_default();
        keys.into_iter().for_each(|(key, access)| self.give(key, access));
    }

    /// Releases the late keys of `tx`.
    pub(super) fn give_late(&mut self, tx: TxId) {
        if !self.late.contains_key(&tx) {
            return;
        }
        if let Some(at) = self.many.iter().position(|holder| *holder == tx) {
            self.many.swap_remove(at);
        } else {
            self.give_late_keys(tx);
        }
        self.late.remove(&tx);
        self.wide.retain(|(holder, _)| *holder != tx);
        assert!(!self.many.contains(&tx), "L1: {tx} would be asked for ever");
    }

    /// True if a transaction with very many late keys prevents taking a key.
    pub(super) fn is_late_against(&self, key: u64, asked: Access) -> bool {
        let held = |holder| self.late[holder].keys.get(key).copied();
        self.many.iter().filter_map(held).any(|held| blocks(held, asked))
    }

    /// [`LockTable::is_late_against`] for a list or all keys: very many late keys always count as
    /// conflicting.
    pub(super) fn are_late_against(&self, asked: Access) -> bool {
        let mut strongest = self.many.iter().filter_map(|holder| self.late[holder].strongest);
        strongest.any(|held| blocks(held, asked))
    }

    /// True if a transaction with very many late keys may rebuild a value of `claim`.
    pub(super) fn are_late_rebuilt(&self, claim: &Claim) -> bool {
        let rebuilds = |late: &Late| match claim {
            Claim::Keys(keys) => {
                keys.iter().any(|(key, _)| late.keys.get(*key) == Some(&Access::Update))
            }
            Claim::List(..) | Claim::All(_) => late.strongest > Some(Access::Shared),
        };
        self.many.iter().any(|holder| rebuilds(&self.late[holder]))
    }

    /// The claims that `tx` hands over to blocked calls when it is released: one for each way in
    /// which it holds some of their keys.
    pub(crate) fn touched(&mut self, tx: TxId, waited: &Waited) -> Vec<Claim> {
        if waited.is_empty() {
            return Vec::new();
        }
        let own = self.granted.get(&tx).and_then(|claim| waited.touched_by(claim));
        let mut claims: Vec<Claim> = own.into_iter().collect();
        let Some(late) = self.late.get_mut(&tx) else { return claims };
        claims.extend(late.wide.iter().filter_map(|claim| waited.touched_by(claim)));
        if !self.many.contains(&tx) {
            let few = Claim::Keys(late.few().collect());
            match (waited.touched_by(&few), claims.first_mut()) {
                (Some(Claim::Keys(more)), Some(Claim::Keys(keys))) => {
                    keys.extend(more);
                    keys.sort_unstable();
                    keys.dedup();
                }
                (touched, _) => claims.extend(touched),
            }
        } else if late.strongest > Some(Access::Shared) {
            let list = KeyList::of(std::mem::take(&mut late.keys));
            claims.push(Claim::List(Arc::new(list), Access::Exclusive));
        }
        claims
    }

    /// True if `tx` holds late keys, or all keys, in order to change them.
    pub(super) fn writes_late(&self, tx: TxId) -> bool {
        self.late.get(&tx).is_some_and(Late::is_write)
    }

    /// True if the late locks of `tx` permit the change of `record`.
    pub(super) fn allows_late(&self, tx: TxId, record: &Record) -> bool {
        self.late.get(&tx).is_some_and(|late| late.allows(record))
    }

    /// Checks L1, L2, and the exclusion of late keys. Adds the late keys in the table to `keys`.
    pub(super) fn check_late(&self, keys: &mut hash::IdentityMap<Holders>) -> usize {
        assert!(self.many.iter().all(|tx| self.late.contains_key(tx)), "L1: {:?}", self.many);
        for (tx, late) in &self.late {
            assert!(self.granted.contains_key(tx), "L2: {tx}");
            for (key, access) in late.keys.iter() {
                if !self.many.contains(tx) {
                    *keys.entry(key).or_default().slot(*access) += 1;
                }
                let others = self.granted.keys().filter(|other| *other != tx);
                let held = others.filter_map(|other| self.own_access(*other, key));
                let excluded = held.filter(|held| blocks(*held, *access) && blocks(*access, *held));
                assert_eq!(excluded.count(), 0, "I4: the late {key} of {tx}");
            }
        }
        self.late.values().map(|late| late.wide.len()).sum()
    }
}

impl Late {
    /// The keys that were locked one by one, if they are few.
    fn few(&self) -> impl Iterator<Item = (u64, Access)> {
        self.keys.iter().map(|(key, access)| (key, *access))
    }
}

impl Holders {
    /// Removes one holder from the count.
    fn leave(&mut self, key: u64, access: Access) {
        let count = self.slot(access);
        assert!(*count > 0, "L1: nobody holds {key} for {access:?}");
        *count -= 1;
    }

    fn excludes_late(self, asked: Access) -> bool {
        let changed = self.exclusive + self.build + self.update;
        changed > 0 || (!asked.is_read() && self.shared > 0)
    }
}

/// True if a late key may not be locked for `asked` while another transaction holds it for `held`.
fn excludes_late(held: Access, asked: Access) -> bool {
    !(held.is_read() && asked.is_read())
}

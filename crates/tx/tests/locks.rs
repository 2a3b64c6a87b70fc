//! The lock table compared with a plain list of claims and the literal table of the module.

use darter_base::Prng;
use darter_tx::{Access, Claim, KeyList, KeySet, LockTable, TxId, lock_key};
use std::sync::Arc;

/// Keys that claims choose from.
const KEYS: u64 = 6;
const ACCESSES: [Access; 3] = [Access::Shared, Access::Update, Access::Exclusive];

/// True if `asked` waits while `held` is held, by the rows of the table.
fn waits(asked: Access, held: Access) -> bool {
    match (asked, held) {
        (Access::Cut, held) => held == Access::Exclusive,
        (Access::Shared, Access::Cut | Access::Shared | Access::Update) => false,
        (Access::Shared, Access::Build | Access::Exclusive) => true,
        (Access::Update | Access::Build | Access::Exclusive, _) => true,
    }
}

/// The access of a claim to `key`.
fn access_of(claim: &Claim, key: u64) -> Option<Access> {
    match claim {
        Claim::Keys(keys) => keys.iter().find(|(one, _)| *one == key).map(|(_, access)| *access),
        Claim::List(list, access) => list.contains(key).then_some(*access),
        Claim::All(access) => Some(*access),
    }
}

/// True if one of two claims waits, by a rule for single keys. Two lists count as conflicting.
fn meet(one: &Claim, other: &Claim, rule: impl Fn(Access, Access) -> bool) -> bool {
    if let (Claim::List(_, one), Claim::List(_, other)) = (one, other) {
        return rule(*one, *other);
    }
    (0..KEYS).any(|key| match (access_of(one, key), access_of(other, key)) {
        (Some(one), Some(other)) => rule(one, other),
        _ => false,
    })
}

#[derive(Default)]
struct Model {
    held: Vec<(TxId, Claim)>,
    waiting: Vec<(TxId, Claim)>,
    /// Watches: each with its access, and the transactions it waits for.
    watches: Vec<(TxId, Access, Vec<TxId>)>,
}

impl Model {
    fn must_wait(&self, claim: &Claim, before: usize) -> bool {
        let either = |one, other| waits(one, other) || waits(other, one);
        self.held.iter().any(|(_, held)| meet(claim, held, waits))
            || self.waiting[..before]
                .iter()
                .any(|(_, earlier)| meet(claim, earlier, either) && !self.may_pass(claim, earlier))
    }

    /// A cut passes claims that wait for a build.
    fn may_pass(&self, claim: &Claim, earlier: &Claim) -> bool {
        let Claim::Keys(keys) = earlier else { return false };
        let is_built = |(_, held): &(TxId, Claim)| match held {
            Claim::Keys(held) => held.iter().any(|(key, access)| {
                *access == Access::Build && keys.iter().any(|(other, _)| other == key)
            }),
            _ => false,
        };
        matches!(claim, Claim::All(Access::Cut)) && self.held.iter().any(is_built)
    }

    fn try_acquire(&mut self, tx: TxId, claim: &Claim) -> bool {
        let granted = !self.must_wait(claim, self.waiting.len());
        if granted {
            self.held.push((tx, claim.clone()));
        }
        granted
    }

    /// Waits for all claims that now conflict with all keys. Returns true if there are none.
    fn watch(&mut self, tx: TxId, asked: Access) -> bool {
        let claim = Claim::All(asked);
        let either = |one, other| waits(one, other) || waits(other, one);
        let held = self.held.iter().filter(|(_, held)| meet(&claim, held, waits));
        let queued = self
            .waiting
            .iter()
            .filter(|(_, queued)| meet(&claim, queued, either) && !self.may_pass(&claim, queued));
        let ahead: Vec<TxId> = held.chain(queued).map(|(tx, _)| *tx).collect();
        let is_free = ahead.is_empty();
        if !is_free {
            self.watches.push((tx, asked, ahead));
        }
        is_free
    }

    /// Ends the watches that wait only for `tx`, and grants the claims that can be granted, in
    /// order.
    fn grant_after(&mut self, tx: TxId) -> Vec<(usize, u64)> {
        self.watches.iter_mut().for_each(|(_, _, ahead)| ahead.retain(|one| *one != tx));
        self.grant()
    }

    /// Grants all claims that can be granted, in order.
    fn grant(&mut self) -> Vec<(usize, u64)> {
        let over = self.watches.extract_if(.., |(_, _, ahead)| ahead.is_empty());
        let (mut granted, mut at) = (over.map(|(tx, ..)| notify(tx)).collect::<Vec<_>>(), 0);
        while at < self.waiting.len() {
            if self.must_wait(&self.waiting[at].1, at) {
                at += 1;
            } else {
                let (tx, claim) = self.waiting.remove(at);
                self.held.push((tx, claim));
                granted.push(notify(tx));
            }
        }
        granted
    }

    /// Transactions are numbered by arrival. Checks that none has overtaken one that it must wait
    /// for, except for cuts.
    fn check_order(&self, seed: u64, now: TxId) {
        let either = |one, other| waits(one, other) || waits(other, one);
        for (tx, claim) in &self.waiting {
            let overtaking = self
                .held
                .iter()
                .find(|(other, held)| other > tx && meet(claim, held, either) && !held.is_cut());
            assert!(overtaking.is_none(), "seed {seed} tx {now}: {overtaking:?} before {tx}");
        }
    }

    /// Takes out a random holder.
    fn take_holder(&mut self, prng: &mut Prng) -> Option<(TxId, Claim)> {
        let at = usize::try_from(prng.below(self.held.len() as u64)).unwrap();
        (at < self.held.len()).then(|| self.held.remove(at))
    }
}

/// The receiver of a grant.
fn notify(tx: TxId) -> (usize, u64) {
    (usize::try_from(tx % 3).unwrap(), tx * 10)
}

fn access(prng: &mut Prng) -> Access {
    ACCESSES[usize::try_from(prng.below(3)).unwrap()]
}

fn claim(prng: &mut Prng) -> Claim {
    let some: Vec<u64> = (0..KEYS).filter(|_| prng.chance(30)).collect();
    match prng.below(10) {
        0 => Claim::All(access(prng)),
        1 | 2 => {
            let mut list = KeyList::with_capacity(10);
            some.iter().for_each(|key| list.push(*key));
            // Lists are made of a request's arguments, so they are never empty.
            list.push(prng.below(KEYS));
            Claim::List(Arc::new(list), access(prng))
        }
        _ => Claim::Keys(some.into_iter().map(|key| (key, access(prng))).collect()),
    }
}

#[test] // Every grant, refusal and wait, in order of arrival.
fn random_locks_agree_with_a_model() {
    for seed in 0..400 {
        let mut prng = Prng::from_seed(seed);
        let (mut locks, mut model) = (LockTable::default(), Model::default());
        for tx in 0..60 {
            step(&mut prng, &mut locks, &mut model, tx, seed);
            check(&locks, &model, seed, tx);
        }
        while let Some((tx, _)) = model.take_holder(&mut prng) {
            assert_eq!(locks.release(tx), model.grant_after(tx), "seed {seed}: release {tx}");
        }
        assert!(locks.is_free() && model.waiting.is_empty(), "seed {seed}");
        assert!(model.watches.is_empty(), "seed {seed}");
    }
}

fn step(prng: &mut Prng, locks: &mut LockTable, model: &mut Model, tx: TxId, seed: u64) {
    let claim = claim(prng);
    match prng.below(12) {
        11 => {
            let cut = Claim::All(Access::Cut);
            let expected = model.try_acquire(tx, &cut);
            assert_eq!(locks.try_acquire(tx, &cut), expected, "seed {seed}");
        }
        10 => {
            let asked = if prng.chance(50) { Access::Cut } else { access(prng) };
            let expected = model.watch(tx, asked);
            let is_free = locks.watch(tx, &Claim::All(asked), notify(tx));
            assert_eq!(is_free, expected, "seed {seed}: {asked:?}");
        }
        0..=2 => {
            let expected = model.try_acquire(tx, &claim);
            assert_eq!(locks.try_acquire(tx, &claim), expected, "seed {seed}: {claim:?}");
        }
        3..=6 => {
            let expected = model.try_acquire(tx, &claim);
            if !expected {
                model.waiting.push((tx, claim.clone()));
            }
            let granted = locks.acquire(tx, claim.clone(), notify(tx));
            assert_eq!(granted, expected, "seed {seed}: {claim:?}");
        }
        7 | 8 => {
            if let Some((holder, _)) = model.take_holder(prng) {
                let expected = model.grant_after(holder);
                assert_eq!(locks.release(holder), expected, "seed {seed}: {holder}");
            }
        }
        _ => narrow(prng, locks, model, seed),
    }
}

/// Narrows a random holder's claim to one of its keys, with the same or a weaker access, or to
/// none.
fn narrow(prng: &mut Prng, locks: &mut LockTable, model: &mut Model, seed: u64) {
    let Some((holder, claim)) = model.take_holder(prng) else { return };
    let Some((key, held)) = (0..KEYS).find_map(|key| Some((key, access_of(&claim, key)?))) else {
        return model.held.push((holder, claim));
    };
    if prng.chance(20) {
        model.held.push((holder, Claim::Keys(Vec::new())));
        return assert_eq!(locks.empty(holder), model.grant_after(holder), "seed {seed}: {holder}");
    }
    let kept = match held {
        Access::Exclusive if prng.chance(50) => Access::Build,
        Access::Exclusive => access(prng),
        Access::Cut => return model.held.push((holder, claim)),
        weaker => weaker,
    };
    model.held.push((holder, Claim::Keys(vec![(key, kept)])));
    for (_, asked, ahead) in &mut model.watches {
        ahead.retain(|one| *one != holder || waits(*asked, kept));
    }
    assert_eq!(locks.narrow(holder, key, kept), model.grant(), "seed {seed}: {holder}");
}

fn check(locks: &LockTable, model: &Model, seed: u64, tx: TxId) {
    locks.check_invariants();
    model.check_order(seed, tx);
    for key in 0..KEYS {
        for (write, access) in [(false, Access::Shared), (true, Access::Update)] {
            let point = Claim::Keys(vec![(key, access)]);
            let expected = model.held.iter().any(|(_, held)| meet(&point, held, waits));
            assert_eq!(locks.blocks_point(key, write), expected, "seed {seed} tx {tx} key {key}");
        }
    }
    assert_eq!(locks.counts(), (model.held.len(), model.waiting.len()), "seed {seed} tx {tx}");
    assert_eq!(locks.is_free(), model.held.is_empty() && model.waiting.is_empty(), "seed {seed}");
}

#[test]
fn lock_names_differ_by_database_and_key() {
    let mut names = KeySet::with_capacity(0);
    assert!(names.is_empty());
    for db in 0..16 {
        for hash in [0, 1, 2, 1 << 32, u64::MAX] {
            assert!(names.insert(lock_key(db, hash)), "{db} {hash}");
        }
    }
    assert_eq!((names.len(), names.is_empty()), (80, false));
}

//! Late keys of transactions: compared with the literal rules, over messages, and with random
//! transactions that must all end.

use darter_base::preempt::Never;
use darter_base::{Prng, hash};
use darter_keyspace::{Deadline, Fresh, Key, Part, Shard, Wants};
use darter_tx::{
    Access, Claim, CoreId, Home, KeyList, LockTable, Message, Transaction, Tx, TxId, lock_key,
};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

const KEYS: u64 = 6;
const ACCESSES: [Access; 3] = [Access::Shared, Access::Update, Access::Exclusive];

fn keys(list: &[(u64, Access)]) -> Claim {
    Claim::Keys(list.to_vec())
}

fn exclusive(key: u64) -> Claim {
    keys(&[(key, Access::Exclusive)])
}

fn list(of: impl IntoIterator<Item = u64>, access: Access) -> Claim {
    let mut list = KeyList::with_capacity(10);
    of.into_iter().for_each(|key| list.push(key));
    Claim::List(Arc::new(list), access)
}

/// True if `asked` waits while `held` is held.
fn waits(asked: Access, held: Access) -> bool {
    held == Access::Exclusive || asked != Access::Shared
}

/// True if a late `asked` is refused while `held` is held: only readers share.
fn refuses(asked: Access, held: Access) -> bool {
    (asked, held) != (Access::Shared, Access::Shared)
}

fn access_of(claim: &Claim, key: u64) -> Option<Access> {
    match claim {
        Claim::Keys(keys) => {
            keys.iter().filter(|(one, _)| *one == key).map(|(_, held)| *held).max()
        }
        Claim::List(list, access) => list.contains(key).then_some(*access),
        Claim::All(access) => Some(*access),
    }
}

/// True if two claims conflict by a rule for single keys. Two lists count as conflicting.
fn meet(one: &Claim, other: &Claim, rule: impl Fn(Access, Access) -> bool) -> bool {
    if let (Claim::List(_, one), Claim::List(_, other)) = (one, other) {
        return rule(*one, *other);
    }
    (0..KEYS).any(|key| match (access_of(one, key), access_of(other, key)) {
        (Some(one), Some(other)) => rule(one, other),
        _ => false,
    })
}

/// The held claims, one by one, and the waiting ones.
#[derive(Default)]
struct Model {
    held: Vec<(TxId, Claim)>,
    waiting: Vec<(TxId, Claim)>,
}

impl Model {
    fn holds(&self, tx: TxId, key: u64, access: Access) -> bool {
        let mut own = self.held.iter().filter(|(holder, _)| *holder == tx);
        own.any(|(_, claim)| access_of(claim, key) >= Some(access))
    }

    fn must_wait(&self, claim: &Claim, before: usize) -> bool {
        let either = |one, other| waits(one, other) || waits(other, one);
        self.held.iter().any(|(_, held)| meet(claim, held, waits))
            || self.waiting[..before].iter().any(|(_, earlier)| meet(claim, earlier, either))
    }

    /// True if `tx` gets the claim, too.
    fn widens(&self, tx: TxId, claim: &Claim) -> bool {
        let missing = match claim {
            Claim::Keys(keys) => {
                let is_held = |(key, access): &&(u64, Access)| !self.holds(tx, *key, *access);
                keys_of(keys.iter().filter(is_held))
            }
            wide => wide.clone(),
        };
        let either = |one, other| waits(one, other) || waits(other, one);
        let mut others = self.held.iter().filter(|(holder, _)| *holder != tx);
        let waits_for_it = |waiting: &Claim| {
            let mut own = self.held.iter().filter(|(holder, _)| *holder == tx);
            own.any(|(_, held)| meet(waiting, held, waits))
        };
        let mut waiting = self.waiting.iter().map(|(_, claim)| claim);
        !others.any(|(_, held)| meet(&missing, held, refuses))
            && !waiting.any(|waiting| meet(&missing, waiting, either) && !waits_for_it(waiting))
    }

    fn grant(&mut self) -> Vec<(usize, u64)> {
        let (mut granted, mut at) = (Vec::new(), 0);
        while at < self.waiting.len() {
            if self.must_wait(&self.waiting[at].1, at) {
                at += 1;
            } else {
                let (tx, claim) = self.waiting.remove(at);
                self.held.push((tx, claim));
                granted.push((0, tx));
            }
        }
        granted
    }

    fn holders(&self) -> Vec<TxId> {
        let mut holders: Vec<_> = self.held.iter().map(|(holder, _)| *holder).collect();
        holders.sort_unstable();
        holders.dedup();
        holders
    }
}

fn keys_of<'a>(keys: impl Iterator<Item = &'a (u64, Access)>) -> Claim {
    Claim::Keys(keys.copied().collect())
}

fn claim(prng: &mut Prng) -> Claim {
    let access = |prng: &mut Prng| ACCESSES[usize::try_from(prng.below(3)).unwrap()];
    let some: Vec<u64> = (0..KEYS).filter(|_| prng.chance(25)).collect();
    match prng.below(12) {
        0 => Claim::All(access(prng)),
        1 => list(some.into_iter().chain([prng.below(KEYS)]), access(prng)),
        _ => Claim::Keys(some.into_iter().map(|key| (key, access(prng))).collect()),
    }
}

#[test] // Every grant and refusal; the table stays valid.
fn random_late_locks_agree_with_the_rules() {
    let (mut granted, mut refused) = (0, 0);
    for seed in 0..600 {
        let mut prng = Prng::from_seed(seed);
        let (mut locks, mut model) = (LockTable::default(), Model::default());
        for tx in 0..60 {
            let (claim, holders) = (claim(&mut prng), model.holders());
            let at = usize::try_from(prng.below(1 + holders.len() as u64)).unwrap();
            match (prng.below(10), holders.get(at)) {
                (0..=2, _) | (_, None) => {
                    let is_free = !model.must_wait(&claim, model.waiting.len());
                    let list = if is_free { &mut model.held } else { &mut model.waiting };
                    list.push((tx, claim.clone()));
                    assert_eq!(locks.acquire(tx, claim, (0, tx)), is_free, "{seed} {tx}");
                }
                (3..=7, Some(holder)) => {
                    let widens = model.widens(*holder, &claim);
                    assert_eq!(locks.widen(*holder, &claim), widens, "{seed} {tx}: {claim:?}");
                    *(if widens { &mut granted } else { &mut refused }) += 1;
                    model.held.extend(widens.then_some((*holder, claim)));
                }
                (_, Some(holder)) => {
                    model.held.retain(|(other, _)| other != holder);
                    assert_eq!(locks.release(*holder), model.grant(), "{seed} {tx}: {holder}");
                }
            }
            check(&locks, &model, seed);
        }
    }
    assert!(granted > 2_000 && refused > 2_000, "{granted} {refused}");
}

fn check(locks: &LockTable, model: &Model, seed: u64) {
    locks.check_invariants();
    for key in 0..KEYS {
        for (write, access) in [(false, Access::Shared), (true, Access::Update)] {
            let point = keys(&[(key, access)]);
            let expected = model.held.iter().any(|(_, held)| meet(&point, held, waits));
            assert_eq!(locks.blocks_point(key, write), expected, "seed {seed} key {key}");
        }
        for holder in model.holders() {
            let is_held = |access: &Access| model.holds(holder, key, *access);
            let expected = ACCESSES.iter().filter(|access| is_held(access)).count();
            let held = |access: &&Access| locks.holds(holder, key, **access);
            assert_eq!(ACCESSES.iter().filter(held).count(), expected, "seed {seed} {holder}");
        }
    }
    assert_eq!(locks.counts(), (model.holders().len(), model.waiting.len()), "seed {seed}");
}

/// A number with mixed bits, as locks have.
fn lock(number: u64) -> u64 {
    hash::of(&number.to_le_bytes())
}

#[test]
fn very_many_late_keys_conflict_and_are_released_together() {
    const MANY: u64 = 50_000;
    let mut locks = LockTable::default();
    assert!(locks.acquire(1, exclusive(lock(0)), (0, 1)));
    for number in 0..MANY {
        let access = ACCESSES[usize::try_from(number % 3).unwrap()];
        assert!(locks.widen_by(1, lock(number), access), "{number}");
        assert!(locks.holds(1, lock(number), access));
    }
    locks.check_invariants();
    for number in [3, 300, 30_000] {
        assert!(!locks.blocks_point(lock(number), false) && locks.blocks_point(lock(number), true));
        assert!(locks.widen_by(2, lock(number), Access::Shared), "{number}: readers share");
        assert!(!locks.widen_by(1, lock(number), Access::Exclusive), "{number}: another reads");
        assert!(!locks.widen_by(2, lock(number + 1), Access::Shared), "{number}: it is rebuilt");
        assert!(locks.blocks_point(lock(number + 2), false));
        assert!(!locks.try_acquire_still(3, &keys(&[(lock(number + 1), Access::Shared)])));
        assert!(!locks.try_acquire(3, &exclusive(lock(number))));
    }
    assert!(locks.widen_by(1, lock(6), Access::Exclusive), "nobody else reads it");
    assert!(locks.blocks_point(lock(6), false));
    assert!(!locks.try_acquire(3, &list([lock(MANY)], Access::Shared)), "lists meet very many");
    assert!(!locks.widen(2, &list([lock(MANY)], Access::Shared)));
    assert!(!locks.acquire(3, Claim::All(Access::Shared), (0, 3)));
    locks.check_invariants();
    assert_eq!(locks.release(1), [(0, 3)]);
    assert_eq!((locks.release(2), locks.release(3)), (vec![], vec![]));
    assert!(locks.is_free());
}

// A late claim passes claims that wait for its own transaction, but not others.
#[test]
fn late_claims_pass_waiters_for_the_same_transaction() {
    let mut locks = LockTable::default();
    assert!(locks.try_acquire(1, &exclusive(1)));
    assert!(!locks.acquire(2, keys(&[(1, Access::Exclusive), (2, Access::Exclusive)]), (0, 2)));
    assert!(locks.widen_by(1, 2, Access::Exclusive), "2 cannot have it before 1 ends");
    assert!(locks.try_acquire(3, &exclusive(3)));
    assert!(!locks.acquire(4, keys(&[(3, Access::Exclusive), (4, Access::Exclusive)]), (0, 4)));
    assert!(!locks.widen_by(1, 4, Access::Shared), "4 was first, and does not wait for 1");
    assert_eq!(locks.release(1), [(0, 2)]);
    assert_eq!(locks.release(3), [(0, 4)]);
}

fn cores(count: usize) -> Vec<Tx> {
    (0..count).map(|id| Tx::new(id, count, Shard::new(1, 1), Rc::new(Never))).collect()
}

/// Delivers messages and polls tasks until nothing is left to do. Returns the number of messages.
fn settle(cores: &[Tx]) -> usize {
    let (mut carried, mut mail) = (0, Vec::new());
    loop {
        let before = carried;
        let mut ran = false;
        for tx in cores {
            ran |= tx.run_one();
            tx.drain_outbox(&mut mail);
            for (to, message) in mail.drain(..) {
                cores[to].deliver(message);
                carried += 1;
            }
        }
        if !ran && carried == before {
            return carried;
        }
    }
}

fn finish<R: 'static, F>(cores: &[Tx], on: CoreId, task: impl FnOnce(Tx) -> F) -> (R, usize)
where
    F: Future<Output = R> + 'static,
{
    let result = Rc::new(RefCell::new(None));
    let (into, task) = (Rc::clone(&result), task(cores[on].clone()));
    cores[on].spawn(async move { *into.borrow_mut() = Some(task.await) });
    let carried = settle(cores);
    let result = result.borrow_mut().take().expect("the task ended");
    (result, carried)
}

fn counts(cores: &[Tx]) -> Vec<(usize, usize)> {
    cores.iter().map(|tx| tx.home().locks.counts()).collect()
}

#[test] // Keys that are already held cost none.
fn a_late_key_on_another_core_costs_two_messages() {
    let all = cores(3);
    let begun = async |tx: Tx| tx.begin_open(vec![(1, exclusive(1))]).await;
    let (transaction, messages) = finish(&all, 1, begun);
    assert_eq!(messages, 0);
    let transaction = Rc::new(transaction);
    let widen = |claims: Vec<(CoreId, Claim)>| {
        let transaction = Rc::clone(&transaction);
        finish(&all, 1, async move |_| transaction.widen(claims).await)
    };
    assert_eq!(widen(vec![(1, exclusive(1))]), (true, 0));
    assert_eq!(widen(vec![(1, exclusive(2))]), (true, 0));
    let update = keys(&[(7, Access::Update)]);
    assert_eq!(widen(vec![(0, update.clone()), (2, update.clone())]), (true, 4));
    assert_eq!(widen(vec![(0, update.clone()), (2, update)]), (true, 0), "they are held");
    assert_eq!(widen(vec![(0, exclusive(7))]), (true, 2), "a stronger access");
    assert!(
        transaction.widen_here(3, Access::Shared) && transaction.holds(0, 7, Access::Exclusive)
    );
    assert!(
        !transaction.holds(2, 7, Access::Exclusive) && !transaction.holds(2, 8, Access::Shared)
    );
    let tx = transaction.tx().clone();
    let lock = async move |_: Tx| {
        drop(tx.lock(vec![(0, exclusive(7)), (1, keys(&[(3, Access::Shared)]))]).await);
        let there =
            async move |tx: Tx| drop(tx.lock(vec![(2, keys(&[(7, Access::Update)]))]).await);
        tx.drive_each([2], |_| there).await;
    };
    assert_eq!(finish(&all, 1, lock).1, 2, "the task there");
    assert_eq!(
        widen((0..3).map(|core| (core, Claim::All(Access::Exclusive))).collect()),
        (true, 4)
    );
    assert_eq!(widen(vec![(2, list([9], Access::Exclusive)), (0, exclusive(5))]), (true, 0));
    assert_eq!(counts(&all), [(1, 0); 3]);
    drop(transaction);
    assert_eq!((settle(&all), counts(&all)), (2, vec![(0, 0); 3]));
}

#[test]
#[should_panic(expected = "which is not held")]
fn keys_that_were_not_requested_stay_unlocked() {
    let all = cores(2);
    let wants_more = async |tx: Tx| {
        let transaction = tx.begin_open(vec![(0, exclusive(1))]).await;
        assert!(transaction.widen(vec![(1, exclusive(2))]).await);
        drop(transaction.tx().lock(vec![(1, exclusive(3))]).await);
    };
    finish(&all, 0, wants_more);
}

#[test] // Locks that it held stay.
fn a_refused_transaction_restarts_with_all_keys_seen_so_far() {
    let all = cores(3);
    let other = all[2].try_lock_here(7, Access::Shared).unwrap();
    let met = async |tx: Tx| {
        let transaction = tx.begin_open(vec![(0, keys(&[(1, Access::Update)]))]).await;
        assert!(transaction.widen(vec![(1, exclusive(2))]).await);
        assert!(transaction.widen_here(1, Access::Exclusive));
        let more = vec![(0, exclusive(3)), (1, exclusive(4)), (2, exclusive(7))];
        assert!(!transaction.widen(more.clone()).await);
        transaction.claims(more).await
    };
    let (claims, _) = finish(&all, 0, met);
    let met: Vec<_> = claims.iter().map(|(core, claim)| (*core, format!("{claim:?}"))).collect();
    let expected = [
        "[(1, Exclusive), (3, Exclusive)]",
        "[(4, Exclusive), (2, Exclusive)]",
        "[(7, Exclusive)]",
    ];
    let expected: Vec<_> =
        expected.iter().map(|keys| format!("Keys({keys})")).enumerate().collect();
    assert_eq!(met, expected);
    assert_eq!(counts(&all), [(0, 0), (0, 0), (1, 0)], "all is given back");
    drop(other);
    let again = async |tx: Tx| drop(tx.begin_open(claims).await);
    finish(&all, 0, again);
}

#[test] // With the keys of earlier lists.
fn thousands_of_late_keys_become_one_list() {
    let all = cores(2);
    let met = async |tx: Tx| {
        let begun = vec![(0, list((0..100).map(lock), Access::Update))];
        let transaction = tx.begin_open(begun).await;
        for number in 100..5_000 {
            assert!(transaction.widen_here(lock(number), Access::Exclusive));
        }
        for number in 0..1_000 {
            assert!(transaction.widen(vec![(1, exclusive(lock(number)))]).await);
        }
        transaction.claims(vec![(1, list([lock(9_999)], Access::Shared))]).await
    };
    let (claims, _) = finish(&all, 0, met);
    let [(0, Claim::List(here, Access::Exclusive)), (1, Claim::List(there, Access::Exclusive))] =
        &claims[..]
    else {
        panic!("{claims:?}")
    };
    assert!((0..5_000).all(|number| here.contains(lock(number))) && !here.contains(lock(5_000)));
    assert!((0..1_000).chain([9_999]).all(|number| there.contains(lock(number))));
    assert!(!there.contains(lock(1_000)));
}

// A call blocked on one of few or very many late keys is served before all other claims on the key.
#[test]
fn released_late_keys_are_granted_to_their_waiters() {
    for count in [1, 10, 10_000] {
        let all = cores(2);
        all[0].home().waited.add(lock(0));
        let begun = async |tx: Tx| tx.begin_open(Vec::new()).await;
        let (transaction, _) = finish(&all, 0, begun);
        (0..count).for_each(|at| assert!(transaction.widen_here(lock(at), Access::Exclusive)));
        (0..3).for_each(|at| assert!(transaction.widen_here(lock(at + 20_000), Access::Update)));
        let (is_granted, other) = (Rc::new(Cell::new(false)), all[1].clone());
        let flag = Rc::clone(&is_granted);
        all[1].spawn(async move {
            drop(other.lock(vec![(0, exclusive(lock(0)))]).await);
            flag.set(true);
        });
        settle(&all);
        drop(transaction);
        all[0].home().waited.remove(lock(0));
        let mut served = 0;
        while let Some(serving) = all[0].next_serving() {
            all[0].home().locks.check_invariants();
            let is_served = serving.is_granted() && serving.covers(lock(0));
            settle(&all);
            assert!(!(is_served && is_granted.get()), "it was not served first");
            served += usize::from(is_served);
        }
        settle(&all);
        assert!(is_granted.get() && served > 0, "{served} servings of {count} keys");
        assert_eq!(counts(&all), [(0, 0); 2]);
    }
}

#[test] // At whatever point it stops.
fn a_stopped_task_releases_its_late_keys() {
    for steps in 0..12 {
        let all = cores(3);
        let is_over = Rc::new(Cell::new(false));
        let (flag, tx) = (Rc::clone(&is_over), all[1].clone());
        let work = async move {
            let transaction = tx.begin_open(vec![(0, exclusive(1))]).await;
            for core in [2, 0, 1] {
                let all = [(core, exclusive(2)), ((core + 1) % 3, exclusive(3))];
                assert!(transaction.widen(all.to_vec()).await);
            }
        };
        let mut work = Box::pin(work);
        let task = std::future::poll_fn(move |cx| {
            if flag.get() { std::task::Poll::Ready(()) } else { work.as_mut().poll(cx) }
        });
        let id = all[1].spawn(task);
        let mut mail = VecDeque::new();
        for _ in 0..steps {
            step(&all, &mut mail);
        }
        is_over.set(true);
        all[1].wake(id);
        while step(&all, &mut mail) {}
        assert_eq!(counts(&all), [(0, 0); 3], "after {steps} steps");
        assert!(all.iter().all(|tx| tx.tasks_len() == 0));
    }
}

/// Polls each core once, and delivers one message. Returns false when nothing is left to do.
fn step(cores: &[Tx], mail: &mut VecDeque<(CoreId, Message)>) -> bool {
    let mut moved = false;
    for tx in cores {
        moved |= tx.run_one();
        let mut sent = Vec::new();
        tx.drain_outbox(&mut sent);
        mail.extend(sent);
    }
    if let Some((to, message)) = mail.pop_front() {
        cores[to].deliver(message);
        moved = true;
    }
    moved
}

/// A transaction that does not know its keys. When it is refused, it restarts with all keys seen so
/// far; from the third time on, with all keys.
async fn meet_keys(tx: Tx, seed: u64, refused: Rc<Cell<usize>>) {
    let mut prng = Prng::from_seed(seed);
    let cores = tx.cores();
    let wanted: Vec<(CoreId, u64, Access)> = (0..1 + prng.below(5))
        .map(|_| {
            let core = usize::try_from(prng.below(cores as u64)).unwrap();
            (core, prng.below(KEYS), ACCESSES[1 + usize::try_from(prng.below(2)).unwrap()])
        })
        .collect();
    let mut claims = Vec::new();
    for run in 0.. {
        if run >= 2 {
            claims = (0..cores).map(|core| (core, Claim::All(Access::Exclusive))).collect();
        }
        let transaction = tx.begin_open(std::mem::take(&mut claims)).await;
        match meet_all(&tx, &transaction, &wanted).await {
            None => return,
            Some(more) => claims = transaction.claims(vec![more]).await,
        }
        assert!(run < 3, "all keys were held");
        refused.set(refused.get() + 1);
    }
}

/// Locks the keys one after another. Returns the refused ones.
async fn meet_all(
    tx: &Tx,
    transaction: &Transaction,
    wanted: &[(CoreId, u64, Access)],
) -> Option<(CoreId, Claim)> {
    for (core, key, access) in wanted {
        let claim = keys(&[(*key, *access)]);
        if !transaction.widen(vec![(*core, claim.clone())]).await {
            return Some((*core, claim));
        }
        tx.yield_now().await;
    }
    None
}

/// A transaction that knows its keys, and locks them in order.
async fn lock_in_order(tx: Tx, seed: u64) {
    let mut prng = Prng::from_seed(seed);
    let cores = 0..tx.cores();
    let claims: Vec<_> = cores.map(|core| (core, claim(&mut prng))).collect();
    let locked = tx.lock(claims).await;
    (0..prng.below(4)).for_each(|_| ());
    tx.yield_now().await;
    drop(locked);
}

#[test] // In any order of messages; nothing stays locked.
fn random_transactions_all_end() {
    let refused = Rc::new(Cell::new(0));
    for seed in 0..300 {
        let mut prng = Prng::from_seed(seed);
        let all = cores(usize::try_from(1 + prng.below(4)).unwrap());
        for task in 0..12 {
            let at = usize::try_from(prng.below(all.len() as u64)).unwrap();
            let (tx, refused) = (all[at].clone(), Rc::clone(&refused));
            if prng.chance(70) {
                all[at].spawn(meet_keys(tx, seed * 100 + task, refused));
            } else {
                all[at].spawn(lock_in_order(tx, seed * 100 + task));
            }
        }
        run_at_random(&all, &mut prng);
        let left: Vec<_> = all.iter().map(Tx::tasks_len).collect();
        assert!(left.iter().all(|tasks| *tasks == 0), "seed {seed}: {left:?} tasks do not end");
        assert!(counts(&all).iter().all(|counts| *counts == (0, 0)), "seed {seed}");
    }
    assert!(refused.get() > 300, "{} were refused", refused.get());
}

/// Polls cores and delivers messages in random order, but in order between any two cores.
fn run_at_random(all: &[Tx], prng: &mut Prng) {
    let count = all.len();
    let mut mail: Vec<VecDeque<Message>> = (0..count * count).map(|_| VecDeque::new()).collect();
    loop {
        let at = usize::try_from(prng.below(count as u64)).unwrap();
        if prng.chance(50) {
            all[at].run_one();
        }
        for (from, tx) in all.iter().enumerate() {
            let mut sent = Vec::new();
            tx.drain_outbox(&mut sent);
            sent.into_iter().for_each(|(to, message)| mail[from * count + to].push_back(message));
        }
        let full: Vec<_> = (0..mail.len()).filter(|queue| !mail[*queue].is_empty()).collect();
        if let Some(queue) = full.get(usize::try_from(prng.below(1 + full.len() as u64)).unwrap()) {
            let message = mail[*queue].pop_front().expect("it is not empty");
            all[queue % count].deliver(message);
        }
        if full.is_empty() && !all.iter().any(Tx::has_ready) {
            return;
        }
    }
}

/// Sets a key of each core to a value, in several steps.
async fn set_on_each(tx: &Tx, value: &'static [u8]) {
    for name in [&b"one"[..], b"two"] {
        let set = |_| {
            move |home: &mut Home| {
                let db = home.shard.db_mut(0);
                db.set_text(&Key::new(name), Fresh::Bytes(value), Deadline::Clear);
            }
        };
        tx.on_each(0..tx.cores(), set).await;
        tx.yield_now().await;
    }
}

/// The values that all cores hold, and the marks of their records.
type Told = (Vec<Vec<u8>>, Vec<(CoreId, Option<Part>)>);

fn told(all: &[Tx]) -> Told {
    let (mut values, mut records) = (Vec::new(), Vec::new());
    for (core, tx) in all.iter().enumerate() {
        let mut home = tx.home();
        for name in [&b"one"[..], b"two"] {
            let text = home.shard.db(0).text(&Key::new(name)).unwrap();
            values.extend(text.map(|text| text.to_vec()));
        }
        records.extend(home.shard.take_records().iter().map(|record| (core, record.part)));
    }
    (values, records)
}

// On all cores, undone changes are not observed, and all committed ones are one transaction.
#[test]
fn changes_on_several_cores_are_undone_or_published() {
    let all = cores(3);
    all.iter().for_each(|tx| _ = tx.home().shard.join(Wants::CHANGES));
    let claims = || (0..3).map(|core| (core, Claim::All(Access::Exclusive))).collect();
    let run = |is_undone: bool| {
        finish(&all, 1, async move |tx: Tx| {
            let transaction = tx.begin_open(claims()).await;
            set_on_each(transaction.tx(), b"value").await;
            assert!(!transaction.tx().is_unchanged());
            if is_undone {
                transaction.undo().await
            } else {
                transaction.commit().await
            }
            tx.is_unchanged()
        })
    };
    assert!(run(true).0, "what was undone has changed nothing");
    assert_eq!((told(&all), counts(&all)), ((vec![], vec![]), vec![(0, 0); 3]));
    assert!(!run(false).0);
    let (values, records) = told(&all);
    assert_eq!(values, vec![b"value".to_vec(); 6]);
    let part = records[0].1;
    assert!(part.is_some_and(|part| part.parts == 3), "{part:?}");
    let expected: Vec<_> = (0..3).flat_map(|core| [(core, part); 3]).collect();
    assert_eq!((records, counts(&all)), (expected, vec![(0, 0); 3]));
    assert!(all.iter().all(|tx| tx.home().shard.lasting_changes() == 2));
}

#[test]
fn changes_by_others_between_steps_are_not_undone() {
    let all = cores(1);
    all[0].home().shard.join(Wants::CHANGES);
    let tx = all[0].clone();
    let is_undone = Rc::new(Cell::new(false));
    let flag = Rc::clone(&is_undone);
    all[0].spawn(async move {
        let transaction = tx.begin_open(Vec::new()).await;
        assert!(transaction.widen_here(lock_key(0, Key::new(b"one").hash), Access::Exclusive));
        assert!(transaction.widen_here(lock_key(0, Key::new(b"two").hash), Access::Exclusive));
        set_on_each(transaction.tx(), b"value").await;
        transaction.undo().await;
        flag.set(true);
    });
    all[0].run_one();
    let other = || Key::new(b"other");
    let mut home = all[0].home();
    home.shard.db_mut(0).set_text(&other(), Fresh::Bytes(b"here"), Deadline::Clear);
    drop(home);
    let records = all[0].home().shard.take_records();
    assert!(records.len() == 1 && records[0].number == 1 && records[0].part.is_none());
    settle(&all);
    assert!(is_undone.get() && all[0].home().shard.db(0).exists(&other()));
    assert_eq!(told(&all), (vec![], vec![]));
    assert_eq!(all[0].home().shard.keys(), 1);
}

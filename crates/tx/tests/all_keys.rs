//! Claims of all keys and other claims: neither waits long for the other.

use crate::link::{cores, counts, keys, settle};
use darter_keyspace::{Deadline, Fresh, Key};
use darter_tx::{Access, Claim, CoreId, Locked, Tx};
use std::cell::RefCell;
use std::rc::Rc;

/// The locks of a task that has ended; `None` while they are not granted.
type Held = Rc<RefCell<Option<Locked>>>;

/// Requests locks as a task, and runs it as far as possible.
fn lock(all: &[Tx], on: CoreId, claims: Vec<(CoreId, Claim)>) -> Held {
    let held = Held::default();
    let (into, tx) = (Rc::clone(&held), all[on].clone());
    all[on].spawn(async move {
        let locked = tx.lock(claims).await;
        *into.borrow_mut() = Some(locked);
    });
    settle(all);
    held
}

fn is_granted(held: &Held) -> bool {
    held.borrow().is_some()
}

fn release(all: &[Tx], held: &Held) {
    drop(held.borrow_mut().take().expect("it is granted"));
    settle(all);
}

fn all_keys(count: CoreId, access: Access) -> Vec<(CoreId, Claim)> {
    (0..count).map(|core| (core, Claim::All(access))).collect()
}

fn one_key(core: CoreId, key: u64) -> Vec<(CoreId, Claim)> {
    vec![(core, keys(&[(key, Access::Exclusive)]))]
}

fn pass_time(all: &[Tx], now: u64) {
    for tx in all {
        tx.home().shard.set_now(now);
        tx.ring_alarms(now);
    }
    settle(all);
}

#[test] // A long-held key stops neither point commands nor claims of other keys.
fn claims_of_free_keys_pass_a_waiting_claim_of_all_keys() {
    for count in [1, 2, 3] {
        for (held_on, access) in [(0, Access::Shared), (count - 1, Access::Exclusive)] {
            let all = cores(count);
            let long = lock(&all, 0, one_key(held_on, 1));
            let whole = lock(&all, count - 1, all_keys(count, access));
            assert!(is_granted(&long) && !is_granted(&whole));
            for core in 0..count {
                let is_blocked = all[core].home().locks.blocks_point(2, true);
                assert!(!is_blocked, "a write on core {core} of {count} waits");
                let claims = (0..count).map(|at| (at, keys(&[(2, Access::Exclusive)]))).collect();
                let other = lock(&all, core, claims);
                assert!(is_granted(&other), "a claim from core {core} of {count} waits");
                release(&all, &other);
            }
            release(&all, &long);
            assert!(is_granted(&whole), "{access:?} of {count}");
            release(&all, &whole);
            assert_eq!(counts(&all), vec![(0, 0); count]);
        }
    }
}

/// Returns a claim of all keys that has been refused four times, because keys of core 1 were held
/// one after another, and the last of these locks.
fn refused(all: &[Tx]) -> (Held, Held) {
    let mut held = lock(all, 0, one_key(1, 0));
    let whole = lock(all, 1, all_keys(2, Access::Exclusive));
    for key in 1..4 {
        let next = lock(all, 1, one_key(1, key));
        assert!(is_granted(&next), "claim {key} waits");
        release(all, &held);
        assert!(!is_granted(&whole), "all keys are granted beside {key}");
        held = next;
    }
    (whole, held)
}

#[test] // So overlapping short claims cannot starve it.
fn a_repeatedly_refused_claim_of_all_keys_joins_the_queues() {
    let all = cores(2);
    let (whole, held) = refused(&all);
    let next = lock(&all, 0, one_key(0, 9));
    assert!(!is_granted(&next), "it passes a claim that has been refused four times");
    release(&all, &held);
    assert!(is_granted(&whole) && !is_granted(&next));
    release(&all, &whole);
    release(&all, &next);
    assert_eq!(counts(&all), [(0, 0), (0, 0)]);
    pass_time(&all, 10);
    assert_eq!((all[0].next_alarm(), all[1].next_alarm()), (None, None));
}

#[test]
fn a_claim_of_all_keys_leaves_its_queues_after_10_ms() {
    let all = cores(2);
    let (whole, held) = refused(&all);
    let next = lock(&all, 0, one_key(0, 9));
    assert_eq!(all[1].next_alarm(), Some(10));
    pass_time(&all, 9);
    assert!(!is_granted(&next), "too early");
    pass_time(&all, 10);
    assert!(is_granted(&next) && !is_granted(&whole));
    release(&all, &next);
    release(&all, &held);
    assert!(is_granted(&whole));
    release(&all, &whole);
    assert_eq!(counts(&all), [(0, 0), (0, 0)]);
}

fn write(all: &[Tx], core: CoreId, name: &[u8]) {
    let mut home = all[core].home();
    home.shard.db_mut(0).set_text(&Key::new(name), Fresh::Bytes(b"v"), Deadline::Clear);
}

/// A build of key 1 on core 0, from a source on core 1.
fn build(all: &[Tx]) -> Held {
    let mut claims = one_key(0, 1);
    claims.push((1, keys(&[(2, Access::Shared)])));
    let held = lock(all, 0, claims);
    let number = held.borrow().as_ref().and_then(Locked::build).expect("no transaction");
    all[1].home().shard.watch_source(number, 0, &Key::new(b"source"));
    held.borrow_mut().as_mut().expect("it is granted").keep_build(0, 1);
    settle(all);
    held
}

#[test] // Nor for claims that wait for the build. Other claims wait.
fn a_cut_of_all_keys_does_not_wait_for_a_build() {
    let all = cores(2);
    let built = build(&all);
    let reader = lock(&all, 1, vec![(0, keys(&[(1, Access::Shared)]))]);
    assert!(!is_granted(&reader), "it sees the value before, and perhaps a later source");
    for core in [0, 1] {
        let cut = lock(&all, core, all_keys(2, Access::Cut));
        assert!(is_granted(&cut), "from core {core}");
        assert!(all[0].home().locks.blocks_point(3, true), "a write changes the cut");
        release(&all, &cut);
    }
    let shared = lock(&all, 1, all_keys(2, Access::Shared));
    assert!(!is_granted(&shared));
    release(&all, &built);
    assert!(is_granted(&reader) && is_granted(&shared));
    release(&all, &reader);
    release(&all, &shared);
    assert_eq!(counts(&all), [(0, 0), (0, 0)]);
    assert!(!all[1].home().shard.is_watched());
}

#[test]
fn a_cut_waits_for_a_build_after_its_source_changed() {
    for core in [0, 1] {
        let all = cores(2);
        let built = build(&all);
        write(&all, 1, b"another");
        let cut = lock(&all, core, all_keys(2, Access::Cut));
        assert!(is_granted(&cut), "another key has changed");
        release(&all, &cut);
        write(&all, 1, b"source");
        let cut = lock(&all, core, all_keys(2, Access::Cut));
        assert!(!is_granted(&cut), "from core {core}");
        assert!(!all[0].home().locks.blocks_point(3, true));
        release(&all, &built);
        assert!(is_granted(&cut));
        release(&all, &cut);
        assert_eq!(counts(&all), [(0, 0), (0, 0)]);
        assert!(!all[1].home().shard.is_watched());
    }
}

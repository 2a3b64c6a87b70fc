//! Several cores in one thread: hops, tasks and locks, and the number of messages they take.

use darter_base::preempt::{Countdown, Never};
use darter_keyspace::{Act, Deadline, Fresh, Key, Shard, Wants};
use darter_tx::{Access, Claim, CoreId, Home, Locked, Message, Tx, When, lock_key};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// `count` cores, none of which ends a slice by itself.
pub(crate) fn cores(count: usize) -> Vec<Tx> {
    (0..count).map(|id| Tx::new(id, count, Shard::new(1, 1), Rc::new(Never))).collect()
}

/// Delivers messages and polls tasks until nothing is left to do. Returns the number of messages.
pub(crate) fn settle(cores: &[Tx]) -> usize {
    let (mut carried, mut mail) = (0, Vec::new());
    loop {
        let before = carried;
        let mut ran = false;
        for tx in cores {
            let was_ready = tx.has_ready();
            // A wake of a task that has ended is discarded.
            let one_ran = tx.run_one();
            assert!(if one_ran { was_ready } else { !tx.has_ready() });
            ran |= one_ran;
            let has_mail = tx.has_mail();
            tx.drain_outbox(&mut mail);
            assert_eq!(has_mail, !mail.is_empty());
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

/// Runs a task on a core to completion. Returns its result, and the number of messages it took.
fn finish<R: 'static, F>(cores: &[Tx], on: CoreId, task: impl FnOnce(Tx) -> F) -> (R, usize)
where
    F: Future<Output = R> + 'static,
{
    let result = Rc::new(RefCell::new(None));
    let (into, task) = (Rc::clone(&result), task(cores[on].clone()));
    cores[on].spawn(async move { *into.borrow_mut() = Some(task.await) });
    let carried = settle(cores);
    let result = result.borrow_mut().take().expect("the task ended");
    assert!(cores.iter().all(|tx| tx.tasks_len() == 0 && !tx.has_ready()));
    (result, carried)
}

pub(crate) fn keys(list: &[(u64, Access)]) -> Claim {
    Claim::Keys(list.to_vec())
}

/// The numbers of held and of waiting claims on each core.
pub(crate) fn counts(cores: &[Tx]) -> Vec<(usize, usize)> {
    cores.iter().map(|tx| tx.home().locks.counts()).collect()
}

#[test] // On the same core a hop is a call.
fn a_hop_costs_two_messages() {
    let all = cores(3);
    for (to, messages) in [(1, 0), (0, 2), (2, 2)] {
        let hop = async move |tx: Tx| {
            tx.on(to, |home| {
                home.shard.stats.hits += 1;
                home.shard.stats.hits
            })
            .await
        };
        assert_eq!(finish(&all, 1, hop), (1, messages), "to {to}");
        assert_eq!(all[to].home().shard.stats.hits, 1);
    }
    let each = async |tx: Tx| {
        tx.on_each([2, 1, 0], |core| {
            move |home: &mut darter_tx::Home| (core, home.shard.stats.hits)
        })
        .await
    };
    assert_eq!(finish(&all, 1, each), (vec![(2, 1), (1, 1), (0, 1)], 4));
    let others = async |tx: Tx| tx.on_each([0], |core| move |_: &mut darter_tx::Home| core).await;
    assert_eq!(finish(&all, 1, others), (vec![0], 2));
}

#[test] // Cores know their own number, the number of cores, and a key's owner.
fn every_key_has_one_core() {
    for count in [1, 2, 5] {
        let all = cores(count);
        let mut owned = vec![0; count];
        for number in 0..500 {
            let key = format!("key:{number}");
            let owner = all[0].core_of(key.as_bytes());
            assert!(all.iter().all(|tx| tx.core_of(key.as_bytes()) == owner));
            owned[owner] += 1;
        }
        assert!(owned.iter().all(|keys| *keys > 50), "{owned:?}");
        for (id, tx) in all.iter().enumerate() {
            assert_eq!((tx.core(), tx.cores()), (id, count));
        }
    }
}

#[test] // Free locks take one request to each core; otherwise cores are locked in order.
fn locks_are_taken_on_all_cores_or_in_order() {
    let all = cores(3);
    let exclusive = |key| keys(&[(key, Access::Exclusive)]);
    let claims = move || vec![(2, exclusive(7)), (0, exclusive(7)), (1, exclusive(7))];
    let lock = move |claims: Vec<(CoreId, Claim)>| async move |tx: Tx| tx.lock(claims).await;

    // No lock is held by others: two requests, two replies, and two releases.
    let (held, messages) = finish(&all, 1, lock(claims()));
    assert_eq!((messages, counts(&all)), (4, vec![(1, 0); 3]));
    assert!(all[1].try_lock_here(7, Access::Shared).is_none());
    assert!(all[1].try_lock_here(8, Access::Shared).is_some());
    drop(held);
    assert_eq!((settle(&all), counts(&all)), (2, vec![(0, 0); 3]));

    // A single core is not asked twice.
    let (held, messages) = finish(&all, 1, lock(vec![(1, exclusive(7))]));
    assert_eq!((messages, counts(&all)), (0, vec![(0, 0), (1, 0), (0, 0)]));
    drop(held);
    let (held, messages) = finish(&all, 1, lock(vec![(2, exclusive(7))]));
    assert_eq!((messages, counts(&all)), (2, vec![(0, 0), (0, 0), (1, 0)]));

    // Core 2 refuses, so everything is released, and the cores are waited for one by one.
    let done = Rc::new(Cell::new(false));
    let (flag, claims) = (Rc::clone(&done), claims());
    let tx = all[0].clone();
    all[0].spawn(async move {
        let held = tx.lock(claims).await;
        flag.set(true);
        drop(held);
    });
    settle(&all);
    assert_eq!((done.get(), counts(&all)), (false, vec![(1, 0), (1, 0), (1, 1)]));
    drop(held);
    settle(&all);
    assert_eq!((done.get(), counts(&all)), (true, vec![(0, 0); 3]));
}

/// Sets `key` on each of `cores` by [`Tx::change`]; returns the cores in the order of the results.
async fn change_on_each(tx: Tx, cores: Vec<CoreId>, key: &'static [u8]) -> Vec<CoreId> {
    let name = lock_key(0, Key::new(key).hash);
    let claims = cores.iter().map(|core| (*core, keys(&[(name, Access::Exclusive)])));
    let set = |core| {
        move |home: &mut Home| {
            home.shard.db_mut(0).set_text(&Key::new(key), Fresh::Bytes(b"v"), Deadline::Clear);
            core
        }
    };
    tx.change(claims.collect(), set).await
}

// A step on one other core takes one message; on more cores, locks are requested, used and
// released.
#[test]
fn a_change_over_two_cores_costs_few_messages() {
    let cases: [(&[CoreId], usize); 5] =
        [(&[1], 0), (&[0], 2), (&[2, 1], 2), (&[1, 0], 2), (&[2, 0, 1], 10)];
    for (asked, messages) in cases {
        let all = cores(3);
        all.iter().for_each(|tx| _ = tx.home().shard.join(Wants::CHANGES));
        let mut sorted = asked.to_vec();
        sorted.sort_unstable();
        let change = finish(&all, 1, |tx| change_on_each(tx, asked.to_vec(), b"k"));
        assert_eq!(change, (sorted, messages), "{asked:?}");
        assert_eq!(counts(&all), [(0, 0); 3]);
        let parts = (asked.len() > 1).then_some(asked.len());
        for (core, tx) in all.iter().enumerate() {
            let mut wanted = vec![("k".to_owned(), parts)];
            wanted.extend(parts.map(|_| ("EndOfPart".to_owned(), parts)));
            let wanted = if asked.contains(&core) { wanted } else { vec![] };
            assert_eq!(recorded(tx), wanted, "core {core} of {asked:?}");
        }
    }
}

#[test] // Local locks are held until the other core has changed its keys.
fn readers_see_changes_over_cores_completely() {
    let all = cores(2);
    all[0].spawn({
        let tx = all[0].clone();
        async move { drop(change_on_each(tx, vec![0, 1], b"k").await) }
    });
    assert!(all[0].run_one());
    let has_key = |core: CoreId| !all[core].home().shard.db_mut(0).is_empty();
    let is_locked =
        |core: CoreId| all[core].home().locks.blocks_point(lock_key(0, Key::new(b"k").hash), false);
    assert_eq!(([has_key(0), has_key(1)], is_locked(0)), ([false; 2], true));
    let mut mail = Vec::new();
    all[0].drain_outbox(&mut mail);
    mail.into_iter().for_each(|(core, message)| all[core].deliver(message));
    assert_eq!(
        ([has_key(0), has_key(1)], is_locked(0), is_locked(1)),
        ([false, true], true, false)
    );
    settle(&all);
    assert_eq!(([has_key(0), has_key(1)], counts(&all)), ([true; 2], vec![(0, 0); 2]));
}

#[test] // On either core.
fn a_change_of_a_held_key_waits_without_holding_others() {
    for held_on in 0..2 {
        let all = cores(2);
        all.iter().for_each(|tx| _ = tx.home().shard.join(Wants::CHANGES));
        let name = lock_key(0, Key::new(b"k").hash);
        let held = all[held_on].try_lock_here(name, Access::Shared).expect("nobody holds it");
        all[0].spawn({
            let tx = all[0].clone();
            async move { drop(change_on_each(tx, vec![0, 1], b"k").await) }
        });
        settle(&all);
        let waits = if held_on == 0 { [(1, 1), (0, 0)] } else { [(1, 0), (1, 1)] };
        assert_eq!(counts(&all), waits, "{held_on}");
        assert!(all.iter().all(|tx| recorded(tx).is_empty()), "{held_on}");
        drop(held);
        settle(&all);
        assert_eq!((counts(&all), all[0].tasks_len()), (vec![(0, 0); 2], 0));
        let wanted = ["k", "EndOfPart"].map(|what| (what.to_owned(), Some(2)));
        assert!(all.iter().all(|tx| recorded(tx) == wanted), "{held_on}");
    }
}

#[test]
#[should_panic(expected = "readers pass")]
fn a_change_excludes_readers_and_writers() {
    let change = async |tx: Tx| {
        let claims = vec![(0, keys(&[(1, Access::Shared)])), (1, keys(&[(1, Access::Exclusive)]))];
        tx.change(claims, |core| move |_: &mut Home| core).await
    };
    finish(&cores(2), 0, change);
}

/// Reads the number of claims on each core, under shared locks of key 7.
async fn read_on_each(tx: Tx, cores: Vec<CoreId>) -> Vec<(CoreId, usize)> {
    let claims = cores.into_iter().map(|core| (core, keys(&[(7, Access::Shared)])));
    let count = |core| move |home: &mut Home| (core, home.locks.counts().0);
    tx.read(claims.collect(), count, |_| true).await
}

#[test] // Locks come with the values, and no task waits for their release.
fn a_read_across_cores_costs_few_messages() {
    let cases: [(&[CoreId], usize); 5] =
        [(&[1], 0), (&[0], 3), (&[2, 1], 3), (&[1, 0], 3), (&[2, 0, 1], 6)];
    for (asked, messages) in cases {
        let all = cores(3);
        let mut wanted: Vec<_> = asked.iter().map(|core| (*core, 1)).collect();
        wanted.sort_unstable();
        let read = finish(&all, 1, |tx| read_on_each(tx, asked.to_vec()));
        assert_eq!(read, (wanted, messages), "{asked:?}");
        assert_eq!(counts(&all), [(0, 0); 3]);
    }
}

#[test]
fn an_inconsistent_read_is_repeated_under_locks() {
    let all = cores(2);
    let read = async |tx: Tx| {
        let claims = [0, 1].map(|core| (core, keys(&[(7, Access::Shared)])));
        let home = |_| |home: &mut Home| home.locks.counts().0;
        tx.read(claims.into(), home, |read| *read != [1, 1]).await
    };
    assert_eq!(finish(&all, 0, read), (vec![1, 1], 3 + 5));
    assert_eq!(counts(&all), [(0, 0); 2]);
}

#[test] // A value that is being rebuilt on either core could change between two locks, so the read
// takes all locks first. Other readers do not matter.
fn a_read_locks_all_keys_during_a_rebuild() {
    for held_on in 0..2 {
        for (access, messages) in [(Access::Shared, 3), (Access::Update, 7)] {
            for claim in [keys(&[(7, access)]), Claim::All(access)] {
                let all = cores(2);
                let claims = vec![(held_on, claim.clone())];
                let hold = async move |tx: Tx| tx.try_lock(claims).await;
                let held = finish(&all, held_on, hold).0.expect("nobody holds it");
                let (read, carried) = finish(&all, 0, |tx| read_on_each(tx, vec![0, 1]));
                let claims = |core| 1 + usize::from(core == held_on);
                assert_eq!(read, [(0, claims(0)), (1, claims(1))], "{held_on}: {access:?}");
                let at_home = if held_on == 0 && access == Access::Update { 2 } else { 0 };
                assert_eq!(carried, messages - at_home, "{held_on}: {access:?}");
                drop(held);
                assert_eq!(counts(&all), [(0, 0); 2]);
            }
        }
    }
}

#[test]
fn no_change_comes_between_the_reads_of_several_cores() {
    let all = cores(3);
    all[0].spawn({
        let tx = all[0].clone();
        async move { drop(read_on_each(tx, vec![1, 2]).await) }
    });
    assert!(all[0].run_one());
    let mut mail = Vec::new();
    all[0].drain_outbox(&mut mail);
    let (to, message) = mail.remove(0);
    all[to].deliver(message);
    let blocks = |core: CoreId, write| all[core].home().locks.blocks_point(7, write);
    assert_eq!((blocks(to, true), blocks(to, false)), (true, false), "it was read there");
    assert!(all[to].try_lock_here(7, Access::Update).is_none());
    mail.into_iter().for_each(|(core, message)| all[core].deliver(message));
    settle(&all);
    assert_eq!(counts(&all), [(0, 0); 3]);
}

#[test] // Without waiting for replies; a claim of one core may wait.
fn claims_of_several_cores_are_sent_at_once() {
    let all = cores(3);
    let (at_once, granted) = (When::AtOnce, When::Granted);
    for (asked, answered) in [(&[0, 1, 2][..], at_once), (&[0, 2], at_once), (&[2], granted)] {
        let (tx, exclusive) = (all[1].clone(), keys(&[(7, Access::Exclusive)]));
        let claims = asked.iter().map(|core| (*core, exclusive.clone())).collect();
        all[1].spawn(async move { drop(tx.lock(claims).await) });
        assert!(all[1].run_one());
        let mut mail = Vec::new();
        all[1].drain_outbox(&mut mail);
        let mut reached: Vec<CoreId> = mail.iter().map(|(core, _)| *core).collect();
        reached.push(1);
        let is_asked = |core: &&CoreId| reached.contains(core);
        assert_eq!(asked.iter().filter(is_asked).count(), asked.len(), "{asked:?}: {reached:?}");
        let is_right =
            |message: &Message| matches!(message, Message::Lock { when, .. } if *when == answered);
        assert!(mail.iter().all(|(_, message)| is_right(message)), "{asked:?}");
        mail.into_iter().for_each(|(core, message)| all[core].deliver(message));
        settle(&all);
        assert_eq!(counts(&all), [(0, 0); 3]);
    }
}

#[test]
#[should_panic(expected = "completed twice")]
fn completing_a_ticket_twice_panics() {
    let tx = cores(1).remove(0);
    let (ticket, _answer) = tx.ticket::<i32>();
    tx.complete(ticket, Box::new(1));
    tx.complete(ticket, Box::new(2));
}

#[test] // On the same core and on another.
fn waiting_tasks_are_notified() {
    let all = cores(2);
    let exclusive = keys(&[(7, Access::Exclusive)]);
    let held = all[0].try_lock_here(7, Access::Exclusive).expect("nobody holds it");
    let order = Rc::new(RefCell::new(Vec::new()));
    for (name, on) in [("near", 0), ("far", 1), ("last", 0)] {
        let (tx, order, claims) =
            (all[on].clone(), Rc::clone(&order), vec![(0, exclusive.clone())]);
        all[on].spawn(async move {
            let held = tx.lock(claims).await;
            order.borrow_mut().push(name);
            tx.yield_now().await;
            drop(held);
        });
        settle(&all);
    }
    assert_eq!((counts(&all)[0], order.borrow().len()), ((1, 3), 0));
    drop(held);
    settle(&all);
    assert_eq!(*order.borrow(), ["near", "far", "last"]);
    assert_eq!(counts(&all), [(0, 0); 2]);
}

#[test] // A local or a remote one.
fn keep_only_releases_all_locks_but_those_of_one_key() {
    for kept in 0..3 {
        let all = cores(3);
        let claims: Vec<(CoreId, Claim)> = (0..3)
            .map(|core| (core, keys(&[(1, Access::Exclusive), (2, Access::Exclusive)])))
            .collect();
        let lock = async move |tx: Tx| tx.lock(claims).await;
        let (mut held, _): (Locked, usize) = finish(&all, 1, lock);
        held.keep_only(kept, 2, Access::Update);
        settle(&all);
        for (core, tx) in all.iter().enumerate() {
            let blocks = |key, write| tx.home().locks.blocks_point(key, write);
            let is_kept = core == kept;
            assert_eq!((blocks(1, true), blocks(2, true)), (false, is_kept), "{core} of {kept}");
            assert!(!blocks(2, false), "an Update lets readers pass");
        }
        drop(held);
        settle(&all);
        assert_eq!(counts(&all), [(0, 0); 3]);
    }
}

#[test] // Otherwise one would release another's locks.
fn transaction_numbers_are_distinct_over_all_cores() {
    let all = cores(3);
    let mut held = Vec::new();
    for round in 0..5 {
        for on in 0..3 {
            let key = lock_key(0, round * 3 + on as u64);
            let claims = vec![(0, keys(&[(key, Access::Exclusive)]))];
            held.push(finish(&all, on, async move |tx: Tx| tx.lock(claims).await).0);
        }
    }
    assert_eq!(counts(&all)[0], (15, 0));
    for left in (0..15).rev() {
        drop(held.swap_remove(left / 2));
        settle(&all);
        assert_eq!(counts(&all)[0], (left, 0));
    }
}

#[test] // Before or after it starts to wait.
fn a_task_sleeps_until_its_ticket_is_completed() {
    let all = cores(1);
    let sum = Rc::new(Cell::new(0));
    let (tx, into) = (all[0].clone(), Rc::clone(&sum));
    let tickets = Rc::new(RefCell::new(Vec::new()));
    let opened = Rc::clone(&tickets);
    all[0].spawn(async move {
        let (first, early) = tx.ticket::<i32>();
        let (second, late) = tx.ticket::<i32>();
        opened.borrow_mut().extend([first, second]);
        into.set(into.get() + late.await);
        into.set(into.get() + early.await);
    });
    settle(&all);
    assert_eq!((sum.get(), all[0].tasks_len(), all[0].has_ready()), (0, 1, false));
    let numbers = tickets.borrow().clone();
    all[0].complete(numbers[0], Box::new(30));
    settle(&all);
    assert_eq!((sum.get(), all[0].tasks_len()), (0, 1));
    all[0].deliver(Message::Return { ticket: numbers[1], value: Box::new(4), changed: false });
    settle(&all);
    assert_eq!((sum.get(), all[0].tasks_len()), (34, 0));
}

#[test]
fn a_pause_yields_only_after_the_slice_is_over() {
    for (allowed, runs) in [(0, 4), (1, 3), (3, 1)] {
        let tx = Tx::new(0, 1, Shard::new(1, 1), Rc::new(Countdown::new(allowed)));
        let task = tx.clone();
        tx.spawn(async move {
            for _ in 0..3 {
                task.pause().await;
            }
        });
        let mut polls = 0;
        while tx.run_one() {
            polls += 1;
        }
        assert_eq!((polls, tx.tasks_len()), (runs, 0), "{allowed}");
    }
    let tx = cores(1).remove(0);
    let order = Rc::new(RefCell::new(Vec::new()));
    for name in ["a", "b"] {
        let (tx, order) = (tx.clone(), Rc::clone(&order));
        let task = tx.clone();
        tx.spawn(async move {
            for step in 0..2 {
                order.borrow_mut().push((name, step));
                task.yield_now().await;
            }
        });
    }
    settle(&[tx]);
    assert_eq!(*order.borrow(), [("a", 0), ("b", 0), ("a", 1), ("b", 1)]);
}

/// Locks `key` on each of `cores`.
async fn lock_on_each(tx: &Tx, cores: &[CoreId], key: &[u8]) -> Locked {
    let name = lock_key(0, Key::new(key).hash);
    let claim = |core: &CoreId| (*core, keys(&[(name, Access::Exclusive)]));
    tx.lock(cores.iter().map(claim).collect()).await
}

/// Sets `key` on each of `cores`, under locks of them all, and then another key without.
async fn set_on_each(tx: Tx, cores: Vec<CoreId>, key: &'static [u8]) {
    let set = |key: &'static [u8]| {
        move |_: CoreId| {
            move |home: &mut Home| {
                home.shard.db_mut(0).set_text(&Key::new(key), Fresh::Bytes(b"v"), Deadline::Clear);
            }
        }
    };
    let locked = lock_on_each(&tx, &cores, key).await;
    tx.on_each(cores.clone(), set(key)).await;
    drop(locked);
    tx.on_each(cores, set(b"alone")).await;
}

/// The records of a core: the key or the end, and the number of parts of the transaction.
fn recorded(tx: &Tx) -> Vec<(String, Option<usize>)> {
    let records = tx.home().shard.take_records().into_iter().map(|record| {
        let what = match record.act {
            Act::Key(key, _) => format!("{key:?}"),
            act => format!("{act:?}"),
        };
        (what, record.part.map(|part| part.parts))
    });
    records.collect()
}

#[test] // Each core ends its own part.
fn changes_of_several_cores_are_one_transaction() {
    let all = cores(3);
    all.iter().for_each(|tx| _ = tx.home().shard.join(Wants::CHANGES));
    let record = |key: &str, parts| (key.to_owned(), parts);
    finish(&all, 1, |tx| set_on_each(tx, vec![0, 1], b"k"));
    for core in [0, 1] {
        let wanted = [record("k", Some(2)), record("EndOfPart", Some(2)), record("alone", None)];
        assert_eq!(recorded(&all[core]), wanted, "core {core}");
    }
    assert!(recorded(&all[2]).is_empty());
    finish(&all, 1, |tx| set_on_each(tx, vec![2], b"k"));
    assert_eq!(recorded(&all[2]), [record("k", None), record("alone", None)], "whole by itself");
}

fn set_here(tx: &Tx, key: &[u8]) {
    let mut home = tx.home();
    home.shard.db_mut(0).set_text(&Key::new(key), Fresh::Bytes(b"v"), Deadline::Clear);
}

#[test] // On one core or several, including tasks elsewhere.
fn work_in_slices_is_one_transaction() {
    let all = cores(2);
    all.iter().for_each(|tx| _ = tx.home().shard.join(Wants::CHANGES));
    let work = async |tx: Tx| {
        let locked = tx.lock(vec![(1, Claim::All(Access::Exclusive))]).await;
        let set = |_: CoreId| {
            async move |tx: Tx| {
                for key in [&b"a"[..], b"b"] {
                    set_here(&tx, key);
                    tx.yield_now().await;
                }
            }
        };
        tx.drive_each([1], set).await;
        drop(locked);
    };
    finish(&all, 0, work);
    let record = |what: &str| (what.to_owned(), Some(1));
    assert_eq!(recorded(&all[1]), [record("a"), record("b"), record("EndOfPart")]);
    let reads = async |tx: Tx| drop(tx.lock(vec![(1, Claim::All(Access::Shared))]).await);
    finish(&all, 0, reads);
    assert!(recorded(&all[1]).is_empty(), "who only reads tells nothing");
}

/// Locks `locked` on cores 0 and 1 of three, and sets `key` on `core`.
fn set_outside(locked: &'static [u8], core: CoreId, key: &'static [u8]) {
    let all = cores(3);
    all.iter().for_each(|tx| _ = tx.home().shard.join(Wants::CHANGES));
    let work = async move |tx: Tx| {
        let locked = lock_on_each(&tx, &[0, 1], locked).await;
        let set = move |home: &mut Home| {
            home.shard.db_mut(0).set_text(&Key::new(key), Fresh::Bytes(b"v"), Deadline::Clear);
        };
        tx.on(core, set).await;
        drop(locked);
    };
    finish(&all, 0, work);
}

#[test] // That core's part of the transaction would never end.
#[should_panic(expected = "holds a claim")]
fn a_change_on_an_unclaimed_core_panics() {
    set_outside(b"k", 2, b"k");
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "what it does not hold")]
fn a_change_of_an_unclaimed_key_panics() {
    set_outside(b"k", 1, b"other");
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "what it does not hold")]
fn changes_without_any_claim_panic() {
    set_outside(b"k", 0, b"other");
}

/// Locks of two keys on each of two cores, to change them.
fn claims_of_two() -> Vec<(CoreId, Claim)> {
    let claim =
        |core: u64| keys(&[(core * 10, Access::Exclusive), (core * 10 + 1, Access::Update)]);
    vec![(0, claim(0)), (1, claim(1))]
}

// Commands of a transaction take no locks, wait for no other, and release nothing before it ends.
#[test]
fn commands_of_a_transaction_take_no_locks() {
    let all = cores(2);
    let held = Rc::new(RefCell::new(Vec::new()));
    let (into, watched) = (Rc::clone(&held), all.clone());
    let run = async move |tx: Tx| {
        let transaction = tx.begin(claims_of_two()).await;
        let tx = transaction.tx();
        let mut locked = tx.lock(vec![(1, keys(&[(11, Access::Shared)]))]).await;
        locked.keep_only(1, 11, Access::Shared);
        into.borrow_mut().push(counts(&watched));
        drop(locked);
        let own = || vec![(0, keys(&[(0, Access::Exclusive)]))];
        assert!(tx.try_lock(own()).await.is_some());
        let changed = tx.change(own(), |core| move |_: &mut Home| core).await;
        into.borrow_mut().push(counts(&watched));
        changed
    };
    let (changed, messages) = finish(&all, 0, run);
    assert_eq!((changed, messages), (vec![0], 3), "one lock there and back, and its release");
    assert_eq!(*held.borrow(), vec![vec![(1, 0), (1, 0)]; 2]);
    assert_eq!(counts(&all), [(0, 0), (0, 0)]);
}

#[test] // Tasks on other cores work under its locks, too.
fn tasks_of_a_transaction_take_no_locks() {
    let all = cores(2);
    let run = async |tx: Tx| {
        let transaction = tx.begin(claims_of_two()).await;
        let work = |core: CoreId| {
            async move |tx: Tx| {
                let key = core as u64 * 10;
                let claims = vec![(core, keys(&[(key, Access::Exclusive)]))];
                drop(tx.lock(claims).await);
                tx.try_lock_here(key, Access::Update).is_some()
            }
        };
        transaction.tx().drive_each([1, 0], work).await
    };
    let (granted, messages) = finish(&all, 0, run);
    assert_eq!((granted, messages), (vec![true, true], 5), "locks, the task, and the release");
    assert_eq!(counts(&all), [(0, 0), (0, 0)]);
}

#[test] // If a lock is refused, the work does not start.
fn locks_of_two_cores_and_work_on_the_other_take_one_round_trip() {
    for holder in [None, Some(0), Some(1)] {
        let all = cores(2);
        let claim = |core: CoreId| keys(&[(core as u64 * 10 + 1, Access::Shared)]);
        let held = holder.map(|core| finish(&all, core, |tx| lock_of(tx, claim(core))).0);
        let (result, tx) = (Rc::new(RefCell::new(None)), all[0].clone());
        let into = Rc::clone(&result);
        all[0].spawn(async move {
            let work = async |tx: Tx| {
                assert_eq!(tx.home().locks.counts(), (1, 0));
                drop(tx.lock(vec![(1, keys(&[(10, Access::Exclusive)]))]).await);
                tx.core()
            };
            let begun = tx.begin_with(claims_of_two(), 1, work).await;
            let done = match begun {
                Some((transaction, done)) => Some((transaction, done.await)),
                None => None,
            };
            *into.borrow_mut() = Some(done.map(|(_, core)| core));
        });
        let mut mail = Vec::new();
        for (from, to) in [(0, 1), (1, 0)] {
            while all[from].run_one() {}
            all[from].drain_outbox(&mut mail);
            mail.drain(..).for_each(|(_, message)| all[to].deliver(message));
        }
        while all[0].run_one() {}
        assert_eq!(*result.borrow(), Some(holder.is_none().then_some(1)), "held on {holder:?}");
        drop(held);
        settle(&all);
        assert_eq!(counts(&all), [(0, 0), (0, 0)]);
    }
}

async fn lock_of(tx: Tx, claim: Claim) -> Locked {
    let core = tx.core();
    tx.lock(vec![(core, claim)]).await
}

#[test]
#[should_panic(expected = "which is not held")]
fn a_transaction_holds_the_keys_of_all_its_commands() {
    let all = cores(2);
    let run = async |tx: Tx| {
        let transaction = tx.begin(claims_of_two()).await;
        drop(transaction.tx().lock(vec![(1, keys(&[(11, Access::Exclusive)]))]).await);
    };
    finish(&all, 0, run);
}

#[test] // A single command that changes one key is not.
fn several_commands_on_one_core_are_recorded_as_a_transaction() {
    let all = cores(1);
    all[0].home().shard.join(Wants::CHANGES);
    let set = |name: &'static [u8]| {
        move |home: &mut Home| {
            home.shard.db_mut(0).set_text(&Key::new(name), Fresh::Bytes(b"v"), Deadline::Clear);
        }
    };
    let claim = || keys(&[(lock_key(0, Key::new(b"k").hash), Access::Exclusive)]);
    let alone = async move |tx: Tx| {
        let locked = tx.lock(vec![(0, claim())]).await;
        tx.on(0, set(b"k")).await;
        drop(locked);
    };
    finish(&all, 0, alone);
    let both = async move |tx: Tx| {
        let transaction = tx.begin(vec![(0, claim())]).await;
        transaction.tx().on(0, set(b"k")).await;
        transaction.tx().yield_now().await;
        transaction.tx().on(0, set(b"k")).await;
    };
    finish(&all, 0, both);
    let records = all[0].home().shard.take_records();
    let parts: Vec<_> = records.iter().map(|record| record.part.map(|part| part.parts)).collect();
    assert_eq!(parts, [None, Some(1), Some(1), Some(1)]);
    assert!(matches!(records[3].act, Act::EndOfPart));
}

/// Drops a task's future at its next step once `is_over` is true.
async fn until<R>(is_over: Rc<Cell<bool>>, task: impl Future<Output = R>) -> Option<R> {
    let mut task = Box::pin(task);
    std::future::poll_fn(move |cx| match is_over.get() {
        true => std::task::Poll::Ready(None),
        false => task.as_mut().poll(cx).map(Some),
    })
    .await
}

#[test] // Replies to a stopped task's requests are released on arrival.
fn stopped_tasks_leave_no_locks() {
    let all_of = |core| (core, Claim::All(Access::Exclusive));
    for core in [0, 1] {
        let all = cores(2);
        let holder = Rc::new(RefCell::new(None));
        let (into, tx) = (Rc::clone(&holder), all[core].clone());
        all[core].spawn(async move {
            *into.borrow_mut() = Some(tx.lock(vec![(core, keys(&[(1, Access::Update)]))]).await);
        });
        settle(&all);
        let (stops, tx) = (Rc::new(Cell::new(false)), all[0].clone());
        let waiting = until(Rc::clone(&stops), async move {
            let locked = tx.lock(vec![all_of(0), all_of(1)]).await;
            drop(locked);
        });
        let task = all[0].spawn(async move { assert!(waiting.await.is_none()) });
        settle(&all);
        let waits = (all[0].tasks_len(), counts(&all)[core]);
        assert_eq!(waits, (1, (1, 0)), "it waits for core {core}, and no claim for it");
        stops.set(true);
        all[0].wake(task);
        settle(&all);
        assert_eq!(counts(&all)[core], (1, 0), "it waits no more");
        assert_eq!(all[0].tasks_len(), 0);
        drop(holder);
        settle(&all);
        assert_eq!(counts(&all), [(0, 0), (0, 0)]);
    }
    // During a hop, and during the first round of locks, whose replies are on the way.
    let all = cores(3);
    for (at, hops) in [(0, true), (0, false), (1, false)] {
        let (stops, tx) = (Rc::new(Cell::new(false)), all[at].clone());
        let work = until(Rc::clone(&stops), async move {
            if hops {
                tx.on_each([1, 2], |core| move |_: &mut Home| core).await;
            } else {
                drop(tx.lock(vec![all_of(0), all_of(1), all_of(2)]).await);
            }
        });
        let task = all[at].spawn(async move { assert!(work.await.is_none()) });
        all[at].run_one();
        stops.set(true);
        all[at].wake(task);
        settle(&all);
        assert_eq!((counts(&all), all[at].tasks_len()), (vec![(0, 0); 3], 0), "{at} {hops}");
    }
}

#[test] // Also changes that may still be in progress.
fn has_changed_includes_changes_on_other_cores() {
    fn set(home: &mut Home) {
        home.shard.db_mut(0).set_text(&Key::new(b"k"), Fresh::Bytes(b"v"), Deadline::Clear);
    }
    let all = cores(2);
    let reads = async |tx: Tx| {
        tx.on(1, |home| home.shard.keys()).await;
        tx.yield_now().await;
        tx.is_unchanged()
    };
    assert!(finish(&all, 0, reads).0);
    for core in [0, 1] {
        let writes = async move |tx: Tx| {
            tx.on(core, set).await;
            tx.yield_now().await;
            tx.is_unchanged()
        };
        assert!(!finish(&all, 0, writes).0, "on core {core}");
    }
    let asks = async |tx: Tx| {
        let pending = std::pin::pin!(tx.on(1, set));
        let mut pending = Some(pending);
        std::future::poll_fn(move |cx| {
            let _ = pending.take().map(|pending| pending.poll(cx));
            std::task::Poll::Ready(())
        })
        .await;
        tx.is_unchanged()
    };
    let before = finish(&all, 0, asks).0;
    assert!(!before, "a change is under way");
    let idle = async |tx: Tx| tx.is_unchanged();
    assert!(finish(&all, 0, idle).0, "of another task nothing stays");
}

/// A claim of one key of database 0, to change it.
fn exclusive(key: &[u8]) -> Claim {
    keys(&[(lock_key(0, Key::new(key).hash), Access::Exclusive)])
}

// A run that started without locks is one transaction with the task that it becomes, and holds all
// its keys.
#[test]
fn a_run_continued_as_a_task_stays_one_transaction() {
    let all = cores(1);
    let tx = &all[0];
    tx.home().shard.join(Wants::CHANGES);
    set_here(tx, b"before");
    let begun = tx.begin_at_once();
    set_here(tx, b"k");
    let is_unchanged = Rc::new(Cell::new(true));
    let seen = Rc::clone(&is_unchanged);
    let own = tx.clone();
    tx.go_on(begun, exclusive(b"k"), async move |transaction| {
        seen.set(own.is_unchanged());
        transaction.tx().yield_now().await;
        set_here(transaction.tx(), b"k");
    });
    assert!(tx.home().locks.blocks_point(lock_key(0, Key::new(b"k").hash), false));
    set_here(tx, b"between");
    settle(&all);
    assert!(!is_unchanged.get(), "it cannot be dropped: it has changed something before");
    assert_eq!((counts(&all), tx.tasks_len()), (vec![(0, 0)], 0));
    let record = |what: &str, parts| (what.to_owned(), parts);
    let wanted = [
        record("before", None),
        record("k", Some(1)),
        record("between", None),
        record("k", Some(1)),
        record("EndOfPart", Some(1)),
    ];
    assert_eq!(recorded(tx), wanted);
}

#[test] // As with point commands.
fn locks_of_a_continued_run_precede_waiting_claims() {
    let all = cores(1);
    let order = Rc::new(RefCell::new(Vec::new()));
    let both = keys(&[(1, Access::Exclusive), (2, Access::Exclusive)]);
    let held = all[0].try_lock_here(1, Access::Exclusive);
    let (tx, into) = (all[0].clone(), Rc::clone(&order));
    all[0].spawn(async move {
        let locked = tx.lock(vec![(0, both)]).await;
        into.borrow_mut().push("waited");
        drop(locked);
    });
    settle(&all);
    assert_eq!(counts(&all), [(1, 1)]);
    let (begun, into) = (all[0].begin_at_once(), Rc::clone(&order));
    all[0].go_on(begun, keys(&[(2, Access::Exclusive)]), async move |transaction| {
        transaction.tx().yield_now().await;
        into.borrow_mut().push("went on");
    });
    drop(held);
    settle(&all);
    assert_eq!(*order.borrow(), ["went on", "waited"]);
    assert_eq!(counts(&all), [(0, 0)]);
}

#[test]
#[should_panic(expected = "somebody holds")]
fn a_run_that_touched_a_held_key_panics() {
    let all = cores(1);
    let _held = all[0].try_lock_here(1, Access::Update);
    let begun = all[0].begin_at_once();
    all[0].go_on(begun, keys(&[(1, Access::Update)]), async |_| ());
}

#[test]
fn an_open_run_that_ends_in_its_turn_leaves_no_mark() {
    let all = cores(1);
    let tx = &all[0];
    tx.home().shard.join(Wants::CHANGES);
    set_here(tx, b"before");
    let open = tx.open_at_once();
    set_here(tx, b"k");
    tx.commit_at_once(open);
    let open = tx.open_at_once();
    set_here(tx, b"k");
    set_here(tx, b"new");
    tx.undo_at_once(open);
    set_here(tx, b"after");
    assert_eq!((counts(&all), tx.home().shard.keys()), (vec![(0, 0)], 3));
    tx.home().shard.check_kept();
    let record = |what: &str| (what.to_owned(), None);
    assert_eq!(recorded(tx), [record("before"), record("k"), record("after")]);
}

#[test] // It keeps its locks.
fn a_continued_open_run_is_committed_or_undone_completely() {
    for is_undone in [false, true] {
        let all = cores(1);
        let tx = &all[0];
        tx.home().shard.join(Wants::CHANGES);
        let open = tx.open_at_once();
        set_here(tx, b"k");
        let touched = vec![(lock_key(0, Key::new(b"k").hash), Access::Exclusive)];
        let own = tx.clone();
        let task = tx.go_on_open(Some(open), touched, async move |transaction| {
            assert!(!own.is_unchanged(), "it cannot be dropped");
            transaction.tx().yield_now().await;
            assert!(transaction.widen_here(lock_key(0, Key::new(b"late").hash), Access::Exclusive));
            set_here(transaction.tx(), b"late");
            if is_undone { transaction.undo().await } else { transaction.commit().await }
        });
        tx.wake(task);
        assert!(tx.home().locks.blocks_point(lock_key(0, Key::new(b"k").hash), false));
        set_here(tx, b"between");
        settle(&all);
        assert_eq!((counts(&all), tx.tasks_len()), (vec![(0, 0)], 0));
        let wanted: &[&str] = if is_undone { &["between"] } else { &["between", "k", "late"] };
        let records: Vec<String> = recorded(tx).into_iter().map(|(what, _)| what).collect();
        assert_eq!(
            (records, tx.home().shard.keys()),
            (wanted.iter().map(|what| (*what).into()).collect(), wanted.len())
        );
    }
}

#[test]
#[should_panic(expected = "somebody holds")]
fn an_open_run_that_touched_a_held_key_panics() {
    let all = cores(1);
    let _held = all[0].try_lock_here(1, Access::Update);
    all[0].go_on_open(None, vec![(1, Access::Update)], async |_| ());
}

//! Open transactions of a shard. After an undo, everything is as before; after a commit, as if the
//! transaction had been an ordinary one.

use crate::heap::Heap;
use crate::roll::{ROLL, Roll, RollEdit};
use darter_base::Prng;
use darter_base::preempt::Never;
use darter_keyspace::{
    Act, Deadline, Effect, Found, Fresh, Key, Object, Part, Record, Seen, Shard, Touch, Usage,
    Wants, Work, apply, lazyfree,
};
use darter_rdb::Item;

const NOW: u64 = 1_900_000_000_000;
const DATABASES: usize = 200;
/// The databases used: with low numbers and a high one.
const USED: [usize; 3] = [0, 1, 150];

fn shard() -> Shard {
    let mut shard = Shard::new(DATABASES, 1);
    shard.set_now(NOW);
    shard
}

/// A key's value and its form.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    value: Vec<(Vec<u8>, Option<u64>)>,
    kind: &'static str,
    encoding: &'static str,
    deadline: Option<u64>,
    stamp: u32,
}

fn entry(found: &Found<'_>) -> Entry {
    let mut value = Vec::new();
    if let Ok(heap) = found.value::<Heap>() {
        value.extend(heap.0.iter().map(|number| (number.to_le_bytes().to_vec(), None)));
    } else if let Ok(text) = found.text() {
        value.push((text.to_vec(), None));
    } else {
        let mut items = found.items(0);
        while let Some(item) = items.next() {
            let Item::Single { name, deadline_ms } = item else { panic!("{item:?} of a roll") };
            value.push((name.to_vec(), deadline_ms));
        }
        value.sort();
    }
    let (kind, encoding) = (found.kind().name, found.encoding());
    let (deadline, stamp) = (found.deadline(), found.entry().stamp());
    Entry { value, kind, encoding, deadline, stamp }
}

/// All contents, and all totals that do not depend on the layout of tables.
type Contents = (Vec<(usize, Vec<u8>, Entry)>, Vec<(usize, usize, Usage)>, [u64; 4], Option<u64>);

fn contents(shard: &Shard) -> Contents {
    let (mut all, mut accounts) = (Vec::new(), Vec::new());
    for (at, db) in shard.iter() {
        db.keys().for_each(&mut |found| {
            let found = Found::alive(found, 0).unwrap();
            all.push((at, found.entry().key().to_vec(), entry(&found)));
        });
        if !db.is_empty() {
            accounts.push((db.len(), db.expires_len(), *db.usage()));
        }
    }
    all.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    let counts =
        [shard.lasting_changes(), shard.expired_count(), shard.stats.hits, shard.keys() as u64];
    (all, accounts, counts, shard.next_field_death())
}

/// Makes one random change or read, of a key or of whole databases.
fn change(shard: &mut Shard, prng: &mut Prng, prefix: &str) {
    let db = USED[usize::try_from(prng.below(3)).unwrap()];
    let other = USED[usize::try_from(prng.below(3)).unwrap()];
    let name = |prng: &mut Prng| format!("{prefix} {}", prng.below(12)).into_bytes();
    let (name, to) = (name(prng), name(prng));
    let (key, to) = (Key::new(&name), Key::new(&to));
    let at = shard.now() + prng.below(2_000);
    let deadline = match prng.below(3) {
        0 => Deadline::At(at),
        1 => Deadline::Keep,
        _ => Deadline::Clear,
    };
    let member = format!("member {}", prng.below(80)).into_bytes();
    let many = prng.below(400);
    let db_mut = shard.db_mut(db);
    match prng.below(24) {
        0 => db_mut.set_text(&key, Fresh::Bytes(&prng.bytes(0..=300)), deadline),
        1 => db_mut.set_text(&key, Fresh::Bytes(many.to_string().as_bytes()), deadline),
        2 => {
            let add = |text: darter_keyspace::Str<'_>| {
                let number =
                    std::str::from_utf8(&text.to_vec()).ok().and_then(|text| text.parse().ok());
                number.map(|number: i64| number + 1).ok_or(darter_keyspace::WrongType)
            };
            let _ = db_mut.update_int(&key, add);
        }
        3 => _ = db_mut.edit_text(&key, |edit| edit.write(7, Fresh::Bytes(&member), &[])),
        4..=6 => {
            let enter = |edit: &mut RollEdit<'_>| edit.enter(&member, deadline);
            let _ = db_mut.edit::<Roll, _>(&key, true, enter);
        }
        7 => {
            let enter = |edit: &mut RollEdit<'_>| {
                for at in 0..many {
                    edit.enter(format!("member {at}").as_bytes(), Deadline::Clear);
                }
            };
            let _ = db_mut.edit::<Roll, _>(&key, true, enter);
        }
        8 | 9 => _ = db_mut.edit::<Roll, _>(&key, false, |edit| edit.strike(&member)),
        10 => {
            let strike = |edit: &mut RollEdit<'_>| {
                (0..80).for_each(|at| _ = edit.strike(format!("member {at}").as_bytes()));
            };
            let _ = db_mut.edit::<Roll, _>(&key, false, strike);
        }
        11 => _ = db_mut.edit::<Heap, _>(&key, true, |edit| edit.push(many)),
        12 => _ = db_mut.edit::<Heap, _>(&key, false, |edit| edit.pop()),
        13 => {
            if let Ok(mut draft) = db_mut.draft::<Heap>(&key) {
                (0..many).for_each(|number| draft.edit(at).push(number));
                db_mut.install_draft(&key, draft);
            }
        }
        14 => {
            db_mut.install(&key, Object::new(Heap(vec![many; 3])), deadline, &[]);
        }
        15 => _ = db_mut.remove(&key),
        16 => _ = db_mut.remove_loosely(&key),
        17 => _ = db_mut.set_deadline(&key, deadline.resolve(None)),
        18 => db_mut.set_idle(&key, many),
        19..=21 => move_or_look(shard, many, (db, &key), (other, &to)),
        _ => whole(shard, prng, (db, other), prefix),
    }
}

/// Moves a value to another key, copies one, or reads.
fn move_or_look(shard: &mut Shard, how: u64, from: (usize, &Key<'_>), to: (usize, &Key<'_>)) {
    let ((db, key), (other, to)) = (from, to);
    let db = shard.db_mut(db);
    match how % 3 {
        0 => {
            if let Some(held) = db.take(key, &[]) {
                shard.db_mut(other).put_taken(to, held, &[]);
            }
        }
        1 => {
            if let Some(held) = db.get(key).map(|found| found.hold_copy()) {
                shard.db_mut(other).put(to, held, &[]);
            }
        }
        _ => {
            _ = db.unshare(key, (&ROLL, Touch::All), &[b"member 3"], &Never);
            let is_hit = db.peek(key).is_some();
            shard.stats.count(is_hit);
        }
    }
}

/// Occasionally changes all keys; not while others use the shard.
fn whole(shard: &mut Shard, prng: &mut Prng, (db, other): (usize, usize), prefix: &str) {
    match prng.below(20) {
        0 if prefix == "own" => shard.flush(),
        1 if prefix == "own" => shard.db_mut(db).flush(),
        2..=4 if prefix == "own" => shard.swap(db, other),
        _ => {}
    }
}

fn in_step(shard: &mut Shard, work: Work, act: impl FnOnce(&mut Shard)) {
    shard.work_for(work);
    act(shard);
    shard.work_for(Work::Alone);
    shard.check_kept();
}

/// A shard with some history, and no open transaction.
fn filled(prng: &mut Prng, prefixes: &[&str]) -> Shard {
    let mut shard = shard();
    for _ in 0..prng.below(300) {
        for prefix in prefixes {
            change(&mut shard, prng, prefix);
        }
        shard.set_now(shard.now() + prng.below(10));
    }
    while shard.reap(100) {}
    shard
}

// An undone transaction leaves everything as before, apart from changes of other keys by others.
#[test]
fn an_undone_transaction_leaves_no_trace() {
    for seed in 0..400 {
        let mut prng = Prng::from_seed(seed);
        let is_shared = prng.chance(50);
        let prefix = if is_shared { "guest" } else { "own" };
        let mut shard = filled(&mut prng, &[prefix, "visitor"]);
        let (reads, misses) = (prng.chance(50), prng.chance(50));
        if reads {
            shard.join(Wants { misses, ..Wants::CHANGES });
        }
        let before = contents(&shard);
        let mut others = Prng::from_seed(seed);
        for _ in 0..prng.below(30) {
            in_step(&mut shard, Work::Open(9), |shard| {
                (0..prng.below(9)).for_each(|_| change(shard, &mut prng, prefix));
            });
            shard.set_now(shard.now() + prng.below(300));
            if is_shared {
                change(&mut shard, &mut others, "visitor");
            } else {
                assert!(shard.take_records().is_empty(), "{seed}: a record has left");
                assert_eq!(shard.lasting_changes(), before.2[0], "{seed}");
            }
        }
        while shard.undo(9, 1 + usize::try_from(prng.below(20)).unwrap()) {
            shard.check_kept();
        }
        shard.check_invariants();
        if !is_shared {
            let after = contents(&shard);
            let pairs = after.0.iter().zip(&before.0);
            pairs.for_each(|(after, before)| assert_eq!(after, before, "{seed}"));
            let accounts = |all: &Contents| (all.1.clone(), all.2, all.3);
            assert_eq!(accounts(&after), accounts(&before), "{seed}");
            assert_eq!(after.0.len(), before.0.len(), "{seed}");
            assert!(shard.take_records().is_empty(), "{seed}: a record has left");
        }
        let left = contents(&shard).0;
        let own = |all: Vec<(usize, Vec<u8>, Entry)>| -> Vec<_> {
            all.into_iter().filter(|(_, name, _)| !name.starts_with(b"visitor")).collect()
        };
        assert_eq!(own(left), own(before.0), "{seed}");
        assert!(!shard.commit(9, 1) && !shard.undo(9, 1), "nothing is left of it");
        while lazyfree::run(&Never) {}
    }
}

/// The text of a record, without its number and its mark.
fn told(record: &Record) -> String {
    let mut act = format!("{:?}", record.act);
    if matches!(record.act, Act::Key(_, Effect::Install { .. })) {
        act.truncate(act.find(" at ").unwrap()); // Cuts the address off.
    }
    format!("{} {act} {:?}", record.database, record.events)
}

// At the commit, records are published as they would have been at once, as one transaction; a
// replica becomes equal.
#[test]
fn a_committed_undoable_transaction_equals_an_ordinary_one() {
    for seed in 0..200 {
        let mut prng = Prng::from_seed(seed);
        let (steps, parts) = (prng.below(30), 1 + usize::try_from(prng.below(2)).unwrap());
        let run = |work: Work| {
            let mut prng = Prng::from_seed(seed + 1_000);
            let mut shard = shard();
            shard.join(Wants::ALL);
            for _ in 0..steps {
                in_step(&mut shard, work, |shard| {
                    (0..prng.below(20)).for_each(|_| change(shard, &mut prng, "own"));
                });
                shard.set_now(shard.now() + prng.below(300));
            }
            shard
        };
        let (mut alone, mut open) = (run(Work::Alone), run(Work::Open(7)));
        assert!(open.take_records().is_empty(), "{seed}: a record has left");
        assert_eq!(open.lasting_changes(), 0);
        while open.commit(7, parts) {}
        let (all, expected) = (contents(&open), contents(&alone));
        assert_eq!((all.2, all.3), (expected.2, expected.3), "{seed}");
        assert!(all.0 == expected.0, "{seed}");
        let (expected, records) = (alone.take_records(), open.take_records());
        assert!(records.iter().map(|record| record.number).eq(1..=records.len() as u64));
        let is_marked = records.last().is_some_and(|last| matches!(last.act, Act::EndOfPart));
        assert!(is_marked || parts == 1, "{seed}: nobody knows when it ends");
        let part = is_marked.then_some(Part { transaction: 7, parts });
        for record in &records {
            let mark = if matches!(record.act, Act::Miss(_)) { None } else { part };
            assert_eq!(record.part, mark, "{seed}: {record:?}");
        }
        let own = &records[..records.len() - usize::from(is_marked)];
        own.iter().zip(&expected).for_each(|(own, other)| assert_eq!(told(own), told(other)));
        assert_eq!(own.len(), expected.len(), "{seed}");
        let mut copy = Shard::new(DATABASES, 2);
        own.iter().for_each(|record| apply(&mut copy, record).unwrap());
        let values = |shard: &Shard| -> Vec<_> {
            let all = contents(shard).0.into_iter();
            all.map(|(db, name, entry)| (db, name, entry.value, entry.deadline)).collect()
        };
        assert_eq!(values(&copy), values(&open), "{seed}");
        while lazyfree::run(&Never) {}
    }
}

fn put(shard: &mut Shard, name: &[u8], deadline: Deadline) {
    shard.db_mut(0).set_text(&Key::new(name), Fresh::Bytes(b"value"), deadline);
}

// Watches see the changes at the commit; they see an undone transaction only if they saw one of its
// states.
#[test]
fn undoable_transactions_touch_watches_at_their_end() {
    let mut shard = shard();
    put(&mut shard, b"there", Deadline::Clear);
    shard.watch(1, 0, &Key::new(b"there"));
    shard.watch(2, 0, &Key::new(b"absent"));
    for is_undone in [true, false] {
        in_step(&mut shard, Work::Open(5), |shard| {
            put(shard, b"there", Deadline::Clear);
            put(shard, b"absent", Deadline::Clear);
        });
        assert_eq!([1, 2].map(|client| shard.ask_watches(client)), [Seen::Clean; 2]);
        shard.watch(3, 0, &Key::new(b"there"));
        shard.watch(4, 0, &Key::new(b"absent"));
        if is_undone {
            while shard.undo(5, 1) {}
            let seen = [1, 2, 3].map(|client| shard.ask_watches(client));
            assert_eq!(seen, [Seen::Clean; 3]);
            assert_eq!(shard.ask_watches(4), Seen::Touched, "it saw what is no more");
            _ = shard.unwatch(4);
        } else {
            while shard.commit(5, 1) {}
            let seen = [1, 2].map(|client| shard.ask_watches(client));
            assert_eq!(seen, [Seen::Touched; 2]);
        }
        shard.check_watches();
    }
}

#[test] // FLUSHALL and SWAPDB.
fn flushes_in_undoable_transactions_touch_watches_at_their_end() {
    for (at, is_undone) in [(0, true), (0, false), (1, true), (1, false), (2, true), (2, false)] {
        let mut shard = shard();
        put(&mut shard, b"there", Deadline::Clear);
        shard.watch(1, 0, &Key::new(b"there"));
        shard.watch(2, 1, &Key::new(b"there"));
        in_step(&mut shard, Work::Open(5), |shard| match at {
            0 => shard.flush(),
            1 => shard.db_mut(0).flush(),
            _ => shard.swap(0, 1),
        });
        assert_eq!([1, 2].map(|client| shard.ask_watches(client)), [Seen::Clean; 2]);
        while is_undone && shard.undo(5, 1) {}
        while shard.commit(5, 1) {}
        let expected = match (is_undone, at) {
            (true, _) => [Seen::Clean; 2],
            (false, 2) => [Seen::Touched; 2],
            (false, _) => [Seen::Touched, Seen::Clean],
        };
        assert_eq!([1, 2].map(|client| shard.ask_watches(client)), expected, "{at}");
    }
}

// A new value does not expire while it may be undone. An expired value that is restored by an undo
// is then reaped.
#[test]
fn no_key_expires_during_an_undoable_step() {
    for is_undone in [true, false] {
        let mut shard = shard();
        shard.join(Wants::CHANGES);
        put(&mut shard, b"dead", Deadline::At(NOW + 10));
        shard.set_now(NOW + 20);
        in_step(&mut shard, Work::Open(5), |shard| {
            put(shard, b"dead", Deadline::At(NOW + 30));
            put(shard, b"new", Deadline::At(NOW + 40));
        });
        shard.set_now(NOW + 100);
        assert!(shard.next_key_death().is_none() && !shard.reap(10));
        assert_eq!((shard.keys(), shard.take_records().len()), (2, 1));
        if is_undone {
            while shard.undo(5, 1) {}
        } else {
            while shard.commit(5, 1) {}
        }
        assert!(shard.next_key_death().is_some_and(|at| at <= NOW + 30));
        while shard.reap(10) {}
        let records = shard.take_records();
        let deleted = if is_undone { 1 } else { 4 };
        assert_eq!((shard.keys(), records.len()), (0, deleted), "{is_undone}: {records:?}");
        assert_eq!(shard.expired_count(), if is_undone { 1 } else { 2 });
    }
}

#[test] // A million keys, and a value of very many entries.
fn very_many_changes_are_undone_in_portions() {
    const KEYS: usize = 100_000;
    let mut shard = shard();
    let big = Key::new(b"big");
    let enter = |edit: &mut RollEdit<'_>| {
        (0..KEYS).for_each(|at| _ = edit.enter(format!("member {at}").as_bytes(), Deadline::Clear));
    };
    shard.db_mut(0).edit::<Roll, _>(&big, true, enter).unwrap();
    let before = contents(&shard);
    let copied = darter_structs::kept::wholes();
    in_step(&mut shard, Work::Open(5), |shard| {
        shard.db_mut(0).edit::<Roll, _>(&big, true, |edit| edit.strike(b"member 7")).unwrap();
        for at in 0..KEYS {
            put(shard, format!("key {at}").as_bytes(), Deadline::Clear);
        }
    });
    let object = shard.db(0).get(&big).and_then(|found| found.object().cloned()).unwrap();
    assert_eq!(object.count(), 2, "this one, and the database's: it was copied on the way");
    assert_eq!(darter_structs::kept::wholes(), copied, "and not as a whole");
    drop(object);
    let mut portions = 0;
    while shard.undo(5, 64) {
        portions += 1;
    }
    assert!(portions >= KEYS / 64, "{portions}");
    let after = contents(&shard);
    assert!(after == before, "{} keys", after.0.len());
    shard.check_invariants();
}

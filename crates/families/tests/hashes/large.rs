//! Large hashes, large requests and large values: exact, and in portions.

use crate::common::engine::Engine;
use crate::common::value::Value;
use darter_base::preempt::{Countdown, Never};
use darter_families::hash::{Hash, value_of};
use darter_families::set::{Set, SetEdit};
use darter_keyspace::{Deadline, Key, Lent};
use std::collections::BTreeSet;

const FIELDS: usize = 40_000;

fn filled(resp3: bool) -> Engine {
    let mut engine = Engine::new(1_000_000, 3);
    engine.resp3 = resp3;
    let words: Vec<String> =
        (0..FIELDS).flat_map(|n| [format!("field:{n}"), format!("{n}")]).collect();
    let mut request: Vec<&[u8]> = vec![b"HSET", b"h"];
    request.extend(words.iter().map(String::as_bytes));
    assert_eq!(engine.run(&request), format!(":{FIELDS}\r\n").as_bytes());
    assert!(engine.portions > FIELDS / 128, "the change was sliced: {}", engine.portions);
    engine
}

#[test]
fn hgetall_of_a_large_hash_is_streamed() {
    let mut engine = filled(true);
    let before = engine.portions;
    let reply = engine.run(&[b"HGETALL", b"h"]);
    assert!(reply.starts_with(format!("%{FIELDS}\r\n").as_bytes()));
    assert!(engine.portions - before > FIELDS / 512);
    assert!(engine.portion_bytes <= 96 * 1024, "{}", engine.portion_bytes);
    let Value::Map(list) = Value::read(&reply) else { panic!("a map") };
    let pairs: BTreeSet<_> = list.chunks(2).map(<[Value]>::to_vec).collect();
    assert_eq!(pairs.len(), FIELDS);
}

#[test] // Half of the fields expire; counts are exact before and after their removal.
fn expired_fields_are_not_counted_in_headers() {
    let mut engine = filled(false);
    let words: Vec<String> = (0..FIELDS).step_by(2).map(|n| format!("field:{n}")).collect();
    let count = words.len().to_string();
    let mut request: Vec<&[u8]> = vec![b"HPEXPIRE", b"h", b"5", b"FIELDS", count.as_bytes()];
    request.extend(words.iter().map(String::as_bytes));
    let codes = Value::read(&engine.run(&request)).list();
    assert!(codes.len() == FIELDS / 2 && codes.iter().all(|code| *code == Value::Int(1)));
    engine.tick(5);
    let left = FIELDS / 2;
    for _ in 0..3 {
        assert_eq!(engine.line("HLEN h"), format!(":{left}\r\n"));
        assert_eq!(Value::read(&engine.run(&[b"HGETALL", b"h"])).list().len(), FIELDS);
        assert_eq!(Value::read(&engine.run(&[b"HVALS", b"h"])).list().len(), left);
        let sample = Value::read(&engine.run(&[b"HRANDFIELD", b"h", b"15000"])).list();
        let distinct: BTreeSet<_> = sample.into_iter().collect();
        assert_eq!(distinct.len(), 15_000);
        engine.db.reap(5_000);
    }
    engine.db.check_invariants();
}

#[test]
fn hrandfield_with_a_huge_count_replies_in_portions() {
    let mut engine = filled(false);
    let mut scan =
        Value::read(&engine.run(&[b"HSCAN", b"h", b"0", b"COUNT", b"1000000000"])).list();
    assert_eq!(scan.pop().unwrap().list().len(), 2 * FIELDS);
    assert_eq!(scan.pop().unwrap(), Value::Bulk(b"0".to_vec()));
    let samples = Value::read(&engine.run(&[b"HRANDFIELD", b"h", b"-100000"])).list();
    assert_eq!(samples.len(), 100_000);
    assert!(engine.portion_bytes <= 96 * 1024, "{}", engine.portion_bytes);
    let words: Vec<String> = (0..2 * FIELDS).map(|n| format!("field:{n}")).collect();
    let mut request: Vec<&[u8]> = vec![b"HMGET", b"h"];
    request.extend(words.iter().map(String::as_bytes));
    let values = Value::read(&engine.run(&request)).list();
    assert_eq!(values.iter().filter(|value| **value == Value::Null).count(), FIELDS);
    request[0] = b"HDEL";
    assert_eq!(engine.run(&request), format!(":{FIELDS}\r\n").as_bytes());
    assert!(engine.db.is_empty());
}

#[test] // Each segment is copied once, and the cut does not change.
fn changes_under_a_cut_copy_segments_in_slices() {
    let mut engine = filled(false);
    let names: Vec<String> = (0..100).map(|n| format!("field:{}", n * 397)).collect();
    let changes = [
        ("HSET h", "new", ":0\r\n"),
        ("HPEXPIRE h 100 FIELDS 100", "", "*100\r\n:1\r\n"),
        ("HDEL h", "", ":100\r\n"),
    ];
    for (head, value, reply) in changes {
        let key = Key::new(b"h");
        let cut = engine.db.value::<Hash>(&key).unwrap().unwrap().clone();
        let before: Vec<_> = names.iter().map(|name| text_of(&cut, name)).collect();
        let mut request: Vec<&[u8]> = head.split(' ').map(str::as_bytes).collect();
        for name in &names {
            request.push(name.as_bytes());
            request.extend((!value.is_empty()).then_some(value.as_bytes()));
        }
        engine.preempt = Box::new(Countdown::new(0));
        let portions = engine.portions;
        assert!(engine.run(&request).starts_with(reply.as_bytes()), "{reply}");
        assert!(engine.portions - portions > 10, "{}", engine.portions - portions);
        let portions = engine.portions;
        engine.run(&request);
        assert_eq!(engine.portions, portions, "{reply}: nothing is shared any more");
        engine.preempt = Box::new(Never);
        let after: Vec<_> = names.iter().map(|name| text_of(&cut, name)).collect();
        assert_eq!(before, after);
        engine.db.check_invariants();
    }
    assert_eq!(engine.line("HLEN h"), format!(":{}\r\n", FIELDS - 100));
}

#[test] // If preparing them has used up one slice.
fn very_many_changes_start_in_a_new_slice() {
    for (count, portions) in [(128, 0), (129, 1)] {
        let mut engine = filled(false);
        let names: Vec<String> = (0..count).map(|n| format!("field:{n}")).collect();
        let mut request: Vec<&[u8]> = vec![b"HDEL", b"h"];
        request.extend(names.iter().map(String::as_bytes));
        engine.preempt = Box::new(Countdown::new(0));
        let before = engine.portions;
        assert_eq!(engine.run(&request), format!(":{count}\r\n").as_bytes());
        assert_eq!(engine.portions - before, portions, "{count}");
        engine.db.check_invariants();
    }
}

#[test] // A portion has fewer entries than without deadlines, because they cost more.
fn many_deadlines_are_set_in_portions() {
    let heads = ["SADDEX s 100", "SADDEX s KEEPTTL 100", "FIELDEXPIRE s 100", "FIELDEXPIRE h 100"];
    for (head, count) in heads.into_iter().flat_map(|head| [(head, 128), (head, 250)]) {
        let mut engine = filled(false);
        let names: Vec<String> = (0..count).map(|n| format!("field:{n}")).collect();
        let mut add: Vec<&[u8]> = vec![b"SADD", b"s"];
        add.extend(names.iter().step_by(2).map(String::as_bytes));
        engine.run(&add);
        let mut request: Vec<&[u8]> = head.split(' ').map(str::as_bytes).collect();
        request.extend(names.iter().map(String::as_bytes));
        engine.preempt = Box::new(Countdown::new(0));
        let before = engine.portions;
        let reply = engine.run(&request);
        let portions = engine.portions - before;
        let expected = if count > 128 { count / 32..=count } else { 0..=0 };
        assert!(expected.contains(&portions), "{head}: {portions} portions of {count}");
        if head.starts_with("SADDEX") {
            assert_eq!(reply, format!(":{}\r\n", count / 2).as_bytes(), "{head}");
            assert_eq!(engine.line("SCARD s"), format!(":{count}\r\n"));
        }
        engine.db.check_invariants();
    }
}

#[test] // For existing members, too.
fn deadlines_of_members_under_a_cut_copy_segments_in_slices() {
    let mut engine = Engine::new(1_000_000, 3);
    let names: Vec<String> = (0..FIELDS).map(|n| format!("member:{n}")).collect();
    let mut request: Vec<&[u8]> = vec![b"SADD", b"s"];
    request.extend(names.iter().map(String::as_bytes));
    engine.run(&request);
    let names: Vec<&String> = names.iter().step_by(397).take(100).collect();
    let cut = engine.db.value::<Set>(&Key::new(b"s")).unwrap().unwrap().clone();
    let mut request: Vec<&[u8]> = vec![b"SADDEX", b"s", b"100"];
    request.extend(names.iter().map(|name| name.as_bytes()));
    engine.preempt = Box::new(Countdown::new(0));
    for expected in [10..=100, 0..=0] {
        let portions = engine.portions;
        assert_eq!(engine.run(&request), b":0\r\n");
        let portions = engine.portions - portions;
        assert!(expected.contains(&portions), "{portions}: copied ahead, and once");
    }
    assert_eq!(cut.members().earliest_deadline(), None);
    engine.db.check_invariants();
}

#[test]
fn a_key_that_expires_during_copying_still_gets_a_complete_reply() {
    #[rustfmt::skip] // A table.
    let changes = [
        ("FIELDEXPIRE s 100",            "*100\r\n:-2\r\n"),
        ("FIELDEXPIRE h 100",            "*100\r\n:-2\r\n"),
        ("HPEXPIRE h 100 FIELDS 100",    "*100\r\n:-2\r\n"),
        ("HGETDEL h FIELDS 100",         "*100\r\n$-1\r\n"),
        ("HDEL h",                       ":0\r\n"),
    ];
    for (head, reply) in changes {
        let mut engine = filled(false);
        let names: Vec<String> = (0..100).map(|n| format!("field:{}", n * 397)).collect();
        let set = Key::new(b"s");
        let add = |edit: &mut SetEdit<'_>| {
            for n in 0..FIELDS {
                edit.add(format!("field:{n}").as_bytes(), Deadline::Clear);
            }
        };
        engine.db.edit::<Set, _>(&set, true, add).unwrap();
        let cuts = (
            engine.db.value::<Set>(&set).unwrap().map(Lent::into_cut),
            engine.db.value::<Hash>(&Key::new(b"h")).unwrap().map(Lent::into_cut),
        );
        for key in [b"s", b"h"] {
            engine.db.set_deadline(&Key::new(key), Some(engine.now + 5));
        }
        let mut request: Vec<&[u8]> = head.split(' ').map(str::as_bytes).collect();
        request.extend(names.iter().map(String::as_bytes));
        (engine.preempt, engine.portion_ms) = (Box::new(Countdown::new(0)), 1);
        let got = String::from_utf8(engine.run(&request)).unwrap();
        assert!(got.starts_with(reply), "{head}: {got:?}");
        let items = if reply.starts_with('*') { 101 } else { 1 };
        assert_eq!(got.matches("\r\n").count(), items, "{head}: {got:?}");
        drop(cuts);
        engine.db.check_invariants();
    }
}

fn text_of(hash: &Hash, field: &str) -> (Option<Vec<u8>>, Option<u64>) {
    let entry = hash.get(field.as_bytes(), 0);
    (entry.map(|entry| value_of(&entry).to_vec()), entry.and_then(|entry| entry.deadline()))
}

#[test] // Values of megabytes are sent chunk by chunk, in place among the others.
fn long_values_keep_their_order() {
    let mut engine = Engine::new(1, 1);
    let long: Vec<Vec<u8>> = (0..4).map(|n| vec![b'a' + n; 300_000 + usize::from(n)]).collect();
    for (n, value) in long.iter().enumerate() {
        engine.run(&[b"HSET", b"h", format!("long:{n}").as_bytes(), value]);
        engine.run(&[b"HSET", b"h", format!("short:{n}").as_bytes(), b"s"]);
    }
    let bulk = |bytes: &[u8]| Value::Bulk(bytes.to_vec());
    let short = || bulk(b"s");
    let reply = engine.run(&[
        b"HMGET", b"h", b"short:0", b"long:1", b"none", b"short:1", b"long:0", b"long:3", b"none",
    ]);
    let expected = vec![
        short(),
        bulk(&long[1]),
        Value::Null,
        short(),
        bulk(&long[0]),
        bulk(&long[3]),
        Value::Null,
    ];
    assert_eq!(Value::read(&reply), Value::Array(expected));
    assert!(engine.portion_bytes <= 96 * 1024, "{}", engine.portion_bytes);
    for resp3 in [false, true] {
        engine.resp3 = resp3;
        let all = Value::read(&engine.run(&[b"HGETALL", b"h"])).list();
        let pairs: BTreeSet<_> = all.chunks(2).map(<[Value]>::to_vec).collect();
        let sample = Value::read(&engine.run(&[b"HRANDFIELD", b"h", b"7", b"WITHVALUES"])).list();
        assert_eq!(pairs.len(), 8);
        for (n, value) in long.iter().enumerate() {
            assert!(pairs.contains(&vec![bulk(format!("long:{n}").as_bytes()), bulk(value)]));
        }
        let sample: BTreeSet<_> = match resp3 {
            true => sample.into_iter().map(Value::list).collect(),
            false => sample.chunks(2).map(<[Value]>::to_vec).collect(),
        };
        assert!(sample.len() == 7 && sample.is_subset(&pairs));
    }
    let taken =
        Value::read(&engine.run(&[b"HGETDEL", b"h", b"FIELDS", b"2", b"long:2", b"long:2"]));
    assert_eq!(taken, Value::Array(vec![bulk(&long[2]), Value::Null]));
    engine.db.check_invariants();
}

#[test]
fn deadlines_of_thousands_of_members_are_set_in_slices() {
    let mut engine = Engine::new(1_000_000, 1);
    let names: Vec<String> = (0..6_000).map(|n| format!("member:{n}")).collect();
    let key = Key::new(b"s");
    let add = |set: &mut SetEdit<'_>| {
        names[..3_000].iter().filter(|name| set.add(name.as_bytes(), Deadline::Clear)).count()
    };
    assert_eq!(engine.db.edit::<Set, _>(&key, true, add), Ok(Some(3_000)));
    let mut request: Vec<&[u8]> = vec![b"FIELDEXPIRE", b"s", b"2"];
    request.extend(names.iter().map(String::as_bytes));
    let codes = Value::read(&engine.run(&request)).list();
    assert!(engine.portions > 6_000 / 96);
    assert!(codes[..3_000].iter().all(|code| *code == Value::Int(1)));
    assert!(codes[3_000..].iter().all(|code| *code == Value::Int(-2)));
    assert_eq!(engine.line("FIELDTTL s member:2999"), ":2\r\n");
    engine.tick(2_000);
    assert_eq!(engine.line("FIELDTTL s member:2999"), ":-2\r\n");
    while engine.db.reap(100) {}
    assert!(engine.db.is_empty());
    engine.db.check_invariants();
}

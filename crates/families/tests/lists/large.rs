//! Tests of long lists and long elements: replies are exact, work is done in portions, and elements
//! are not copied.

use crate::common::engine::Engine;
use crate::common::value::Value;
use darter_base::preempt::Countdown;
use darter_families::list::List;
use darter_keyspace::Key;
use darter_resp::{Output, Part, Reply};

const ELEMENTS: usize = 40_000;

/// A database with a list `l` of `ELEMENTS` elements, pushed by one command.
fn filled() -> Engine {
    let mut engine = Engine::new(1_000_000, 3);
    engine.preempt = Box::new(Countdown::new(0));
    assert_eq!(push(&mut engine, b"RPUSH", 0..ELEMENTS), format!(":{ELEMENTS}\r\n").as_bytes());
    assert!(engine.portions >= ELEMENTS / 512, "the push was sliced: {}", engine.portions);
    engine
}

fn names(numbers: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    numbers.map(|number| format!("element:{number}").into_bytes()).collect()
}

fn push(engine: &mut Engine, name: &[u8], numbers: std::ops::Range<usize>) -> Vec<u8> {
    let names = names(numbers);
    let words = [name, b"l"].into_iter().chain(names.iter().map(Vec::as_slice));
    engine.run(&words.collect::<Vec<_>>())
}

fn len(engine: &Engine) -> usize {
    let list = engine.db.value::<List>(&Key::new(b"l")).unwrap();
    list.map_or(0, |list| list.elements().len())
}

#[test]
fn lrange_of_a_large_list_is_streamed() {
    let mut engine = filled();
    let before = engine.portions;
    let reply = Value::read(&engine.run(&[b"LRANGE", b"l", b"100", b"-101"]));
    assert!(reply.bulks() == names(100..ELEMENTS - 100));
    assert!(engine.portions - before >= ELEMENTS / 1_024);
    assert!(engine.portion_bytes <= 64 * 1024, "{}", engine.portion_bytes);
}

#[test]
fn changes_during_an_lrange_reply_are_not_seen() {
    let mut engine = filled();
    let mut stream = engine.begin("LRANGE l 0 -1");
    let mut out = Output::default();
    let mut rounds = 0;
    while stream.pump(&mut Reply::new(&mut out, false)) {
        engine.line("LPOP l");
        engine.line("LSET l 7 other");
        engine.line("RPUSH l more");
        rounds += 1;
    }
    assert!(rounds > 50, "{rounds}");
    let mut reply = format!("*{ELEMENTS}\r\n").into_bytes();
    reply.extend(out.flatten());
    // The first portion was sent with the header, to another output.
    let text = String::from_utf8(reply).unwrap();
    assert!(text.ends_with(&format!("element:{}\r\n", ELEMENTS - 1)) && !text.contains("other"));
    engine.db.check_invariants();
}

#[test] // Many elements are removed from either end at once, and sent in portions.
fn many_elements_are_popped_at_once() {
    let mut engine = filled();
    let before = engine.portions;
    let reply = Value::read(&engine.run(&[b"LPOP", b"l", b"10000"]));
    assert!(reply.bulks() == names(0..10_000));
    let reply = Value::read(&engine.run(&[b"RPOP", b"l", b"10000"]));
    assert!(reply.bulks().into_iter().rev().eq(names(30_000..ELEMENTS)));
    assert!(engine.portions - before >= 20);
    assert_eq!(len(&engine), 20_000);
    let stream = engine.begin("LPOP l 15000");
    assert_eq!(len(&engine), 5_000, "they are gone before they are sent");
    assert!(stream.pinned_bytes() > 100_000, "{}", stream.pinned_bytes());
    drop(stream);
    let reply = Value::read(&engine.run(&[b"RPOP", b"l", b"9223372036854775807"]));
    assert_eq!(reply.bulks().len(), 5_000);
    assert!(engine.db.is_empty());
}

#[test] // A refused one changes nothing.
fn a_long_push_is_atomic() {
    let mut engine = filled();
    assert_eq!(push(&mut engine, b"LPUSH", 0..5_000), b":45000\r\n");
    assert_eq!(engine.line("LINDEX l 0"), "$12\r\nelement:4999\r\n");
    engine.line("SET text x");
    let names = names(0..1_000);
    for (name, key, reply) in [
        (&b"LPUSHX"[..], &b"none"[..], &b":0\r\n"[..]),
        (
            b"RPUSH",
            b"text",
            b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
        ),
    ] {
        let words = [name, key].into_iter().chain(names.iter().map(Vec::as_slice));
        assert_eq!(engine.run(&words.collect::<Vec<_>>()), reply);
    }
    assert_eq!(engine.db.len(), 2);
}

#[test]
fn a_long_lpos_is_sliced_and_sees_the_list_at_its_start() {
    let mut engine = filled();
    engine.run(&[b"RPUSH", b"l", b"last"]);
    for line in ["LPOS l last", "LPOS l none", "LPOS l none COUNT 0", "LREM l 0 none"] {
        let before = engine.portions;
        engine.line(line);
        assert!(engine.portions - before >= 3, "{line}: {}", engine.portions - before);
    }
    let mut stream = engine.begin("LPOS l last");
    engine.line("LPOP l");
    let mut out = Output::default();
    while stream.pump(&mut Reply::new(&mut out, false)) {}
    assert_eq!(out.flatten(), format!(":{ELEMENTS}\r\n").as_bytes());
    let before = engine.portions;
    assert_eq!(engine.line("LINSERT l BEFORE last new"), format!(":{}\r\n", ELEMENTS + 1));
    assert!(engine.portions - before >= 3);
    assert_eq!(engine.line("LINSERT l BEFORE none new"), ":-1\r\n");
    assert_eq!(engine.line("LINDEX l -2"), "$3\r\nnew\r\n");
}

#[test]
fn very_many_matches_are_reported_and_removed_in_portions() {
    let mut engine = filled();
    for _ in 0..20 {
        let words = [&b"RPUSH"[..], b"l"].into_iter().chain((0..1_000).map(|_| &b"7"[..]));
        engine.run(&words.collect::<Vec<_>>());
    }
    let reply = Value::read(&engine.run(&[b"LPOS", b"l", b"7", b"COUNT", b"0"]));
    let places = (ELEMENTS..ELEMENTS + 20_000).map(|at| Value::Int(at as i64));
    assert!(reply.list().into_iter().eq(places));
    assert!(engine.portion_bytes <= 68 * 1024, "{}", engine.portion_bytes);
    assert_eq!(engine.line("LREM l -5 7"), ":5\r\n");
    let before = engine.portions;
    assert_eq!(engine.line("LREM l 0 7"), ":19995\r\n");
    assert!(engine.portions - before >= 10);
    let reply = Value::read(&engine.run(&[b"LRANGE", b"l", b"0", b"-1"]));
    assert!(reply.bulks() == names(0..ELEMENTS));
    engine.db.check_invariants();
}

/// Returns how many bytes of a reply are shared with the list, and how many were copied.
fn parts(out: Output) -> (usize, usize) {
    let (mut shared, mut copied) = (0, 0);
    let mut out = out;
    for part in out.take() {
        match part {
            Part::Bytes(bytes) => copied += bytes.len(),
            Part::Shared(_, range) => shared += range.len(),
        }
    }
    (shared, copied)
}

#[test] // Single ones, and among others.
fn long_elements_are_sent_without_copying() {
    const LONG: usize = 300_000;
    let mut engine = Engine::new(1_000_000, 3);
    let long = vec![b'x'; LONG];
    for _ in 0..3 {
        engine.run(&[b"RPUSH", b"l", b"short", &long]);
    }
    for line in ["LINDEX l 1", "LRANGE l 0 -1", "RPOP l", "LPOP l 4"] {
        let (mut out, mut portions) = (Output::default(), 0);
        let mut stream = engine.begin(line);
        while stream.pump(&mut Reply::new(&mut out, false)) {
            portions += 1;
        }
        let (shared, copied) = parts(out);
        assert!(
            shared >= LONG * 3 / 5 && copied < 100 && portions >= 4,
            "{line}: {shared} {copied}"
        );
    }
    assert_eq!(engine.line("LRANGE l 0 -1"), "*1\r\n$5\r\nshort\r\n");
    engine.db.check_invariants();
}

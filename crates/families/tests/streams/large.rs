//! Tests of long streams and long entries: replies are exact, sent in portions, and as of one
//! instant.

use crate::common::engine::Engine;
use crate::common::value::Value;
use darter_base::preempt::Countdown;
use darter_families::stream::Stream;
use darter_keyspace::Key;
use darter_resp::{Output, Reply};

const ENTRIES: usize = 20_000;

/// A stream `x` of many entries, with the IDs 1-0, 2-0 ...
fn filled() -> Engine {
    let mut engine = Engine::new(1_000_000, 3);
    engine.preempt = Box::new(Countdown::new(0));
    for number in 1..=ENTRIES {
        engine.line(&format!("XADD x {number} field value:{number}"));
    }
    engine
}

fn len(engine: &Engine) -> usize {
    let stream = engine.db.value::<Stream>(&Key::new(b"x")).unwrap();
    stream.map_or(0, |stream| stream.entries().len())
}

/// The IDs of the entries of a reply.
fn ids(reply: Value) -> Vec<String> {
    let id = |entry: Value| entry.list().into_iter().next().map(Value::bulk).unwrap();
    reply.list().into_iter().map(|entry| String::from_utf8(id(entry)).unwrap()).collect()
}

fn numbered(numbers: impl Iterator<Item = usize>) -> Vec<String> {
    numbers.map(|number| format!("{number}-0")).collect()
}

#[test]
fn xrange_of_a_large_stream_is_streamed() {
    let mut engine = filled();
    let before = engine.portions;
    let reply = Value::read(&engine.run(&[b"XRANGE", b"x", b"101", b"19900"]));
    assert!(ids(reply) == numbered(101..19_901));
    let reply = Value::read(&engine.run(&[b"XREVRANGE", b"x", b"+", b"-", b"COUNT", b"5000"]));
    assert!(ids(reply) == numbered((15_001..=ENTRIES).rev()));
    assert!(engine.portions - before >= ENTRIES / 512);
    assert!(engine.portion_bytes <= 64 * 1024, "{}", engine.portion_bytes);
    engine.line("XADD y 7 a b");
    let reply = engine.line("XREAD STREAMS x y none 0 0 0");
    assert!(reply.starts_with("*2\r\n*2\r\n$1\r\nx\r\n*20000\r\n*2\r\n$3\r\n1-0\r\n"));
    assert!(
        reply.ends_with("*2\r\n$1\r\ny\r\n*1\r\n*2\r\n$3\r\n7-0\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n")
    );
}

#[test]
fn changes_during_an_xrange_reply_are_not_seen() {
    let mut engine = filled();
    let mut stream = engine.begin("XRANGE x - +");
    let (mut out, mut rounds) = (Output::default(), 0);
    while stream.pump(&mut Reply::new(&mut out, false)) {
        engine.line("XTRIM x MINID 5000");
        engine.line("XDEL x 19999 15000");
        engine.line("XADD x * other new");
        rounds += 1;
    }
    assert!(rounds > 50, "{rounds}");
    // The first portion was sent with the header, to another output.
    let text = String::from_utf8(out.flatten()).unwrap();
    assert!(text.ends_with("value:20000\r\n") && !text.contains("other"));
    for number in ["4999", "15000", "19999"] {
        assert!(text.contains(&format!("value:{number}\r\n")), "{number}");
    }
    engine.db.check_invariants();
}

#[test]
fn xtrim_removes_half_a_stream_at_once_and_xdel_many_ids_in_portions() {
    let mut engine = filled();
    let before = engine.portions;
    assert_eq!(engine.line("XTRIM x MAXLEN 10000"), ":10000\r\n");
    assert_eq!((engine.portions - before, len(&engine)), (0, 10_000));
    let names: Vec<_> = (10_001..=ENTRIES).step_by(2).map(|one| one.to_string()).collect();
    let words = [&b"XDEL"[..], b"x"].into_iter().chain(names.iter().map(|name| name.as_bytes()));
    let words: Vec<_> = words.collect();
    assert_eq!(engine.run(&words), b":5000\r\n");
    assert!(engine.portions - before >= 5_000 / 512);
    let reply = Value::read(&engine.run(&[b"XRANGE", b"x", b"-", b"+"]));
    assert!(ids(reply) == numbered((10_002..=ENTRIES).step_by(2)));
    let wrong: Vec<_> = words.into_iter().chain([&b"x"[..]]).collect();
    assert!(engine.run(&wrong).starts_with(b"-ERR Invalid stream ID"));
    assert_eq!(len(&engine), 5_000);
    engine.db.check_invariants();
}

#[test]
fn entries_with_many_or_long_fields_are_added_and_sent_in_portions() {
    let mut engine = Engine::new(1_000_000, 3);
    engine.preempt = Box::new(Countdown::new(0));
    let fields: Vec<_> = (0..40_000).map(|at| format!("field {at}").into_bytes()).collect();
    let words = [&b"XADD"[..], b"x", b"1"].into_iter().chain(fields.iter().map(Vec::as_slice));
    assert_eq!(engine.run(&words.collect::<Vec<_>>()), b"$3\r\n1-0\r\n");
    assert!(engine.portions >= 40_000 / 512, "{}", engine.portions);
    let long = vec![b'v'; 300_000];
    assert_eq!(engine.run(&[b"XADD", b"x", b"2", b"f", &long]), b"$3\r\n2-0\r\n");
    let before = engine.portions;
    for line in ["XRANGE x - +", "XREVRANGE x + -", "XREAD STREAMS x 0", "XINFO STREAM x"] {
        let reply = engine.run(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        let count = |text: &[u8]| reply.windows(text.len()).filter(|part| *part == text).count();
        assert_eq!((count(b"*80000\r\n"), count(b"*40000\r\n")), (0, 1), "{line}");
        assert_eq!((count(b"field 39999\r\n"), count(&long)), (1, 1), "{line}");
        assert!(engine.portion_bytes <= 68 * 1024, "{line}: {}", engine.portion_bytes);
    }
    assert!(engine.portions - before >= 4 * 40_000 / 1_024);
    assert_eq!(engine.line("XDEL x 1"), ":1\r\n");
    engine.db.check_invariants();
}

#[test]
fn xpending_with_long_consumer_names_replies_in_portions() {
    let mut engine = filled();
    engine.line("XGROUP CREATE x g 0");
    let name = vec![b'c'; 16_000];
    engine.run(&[b"XREADGROUP", b"GROUP", b"g", &name, b"COUNT", b"500", b"STREAMS", b"x", b">"]);
    engine.portion_bytes = 0;
    let reply = engine.run(&[b"XPENDING", b"x", b"g", b"-", b"+", b"500"]);
    assert!(reply.len() > 500 * name.len());
    assert!(engine.portion_bytes <= 256 * 1024, "{}", engine.portion_bytes);
}

#[test]
fn xinfo_with_long_group_and_consumer_names_replies_in_portions() {
    let mut engine = filled();
    let name = |at: usize| format!("{at:0>16000}").into_bytes();
    for at in 0..100 {
        engine.run(&[b"XGROUP", b"CREATE", b"x", &name(at), b"0"]);
        let consumer = name(at);
        let words = [&b"XREADGROUP"[..], b"GROUP", &name(0), &consumer, b"COUNT", b"1"];
        engine.run(&[&words[..], &[b"STREAMS", b"x", b">"]].concat());
    }
    engine.tick(1);
    let first = name(0);
    for words in [
        &[&b"XINFO"[..], b"GROUPS", b"x"][..],
        &[b"XINFO", b"CONSUMERS", b"x", &first],
        &[b"XINFO", b"STREAM", b"x", b"FULL", b"COUNT", b"0"],
        &[b"XPENDING", b"x", &first],
        &[b"XPENDING", b"x", &first, b"IDLE", b"1", b"-", b"+", b"100"],
    ] {
        engine.portion_bytes = 0;
        let reply = engine.run(words);
        let is_name = |part: &&[u8]| part.starts_with(b"$16000\r\n");
        let names = reply.windows(8).filter(is_name).count();
        let command = String::from_utf8_lossy(words[1]);
        assert!(names >= 100, "{command}: {names}");
        assert!(engine.portion_bytes <= 300 * 1024, "{command}: {}", engine.portion_bytes);
    }
}

#[test] // And create no stream.
fn refused_stream_commands_change_nothing() {
    let mut engine = Engine::new(1_000_000, 3);
    let fields = vec![&b"f"[..]; 5_001];
    for (id, count) in [(&b"0-0"[..], 5_000), (b"x", 5_000), (b"1-1", 5_001)] {
        let words = [&b"XADD"[..], b"x", id].into_iter().chain(fields[..count].iter().copied());
        assert!(engine.run(&words.collect::<Vec<_>>()).starts_with(b"-ERR "));
    }
    assert!(engine.db.is_empty());
    engine.line("XADD x 5 a b");
    let words = [&b"XADD"[..], b"x", b"5"].into_iter().chain(fields[..5_000].iter().copied());
    assert!(engine.run(&words.collect::<Vec<_>>()).starts_with(b"-ERR The ID specified in XADD"));
    assert_eq!(engine.line("XINFO STREAM x").matches("entries-added\r\n:1\r\n").count(), 1);
}

/// The ID that a reply holds.
fn id(reply: &[u8]) -> String {
    String::from_utf8(reply.to_vec()).unwrap()
}

#[test] // Messages of any length, while their IDs are remembered.
fn idempotent_messages_are_added_once() {
    let mut engine = Engine::new(1_000_000, 3);
    engine.preempt = Box::new(Countdown::new(0));
    let long = vec![b'v'; 300_000];
    let fields: Vec<_> = (0..2_000).map(|at| format!("field {at}").into_bytes()).collect();
    let mut words = vec![&b"XADD"[..], b"x", b"IDMPAUTO", b"p", b"*", b"long", &long];
    words.extend(fields.iter().map(Vec::as_slice));
    let before = engine.portions;
    let first = id(&engine.run(&words));
    assert!(engine.portions - before > 300_000 / 16_384, "{}", engine.portions - before);
    // The pairs in another order.
    let (pair, rest) = words.split_at(7);
    let other: Vec<_> = pair[..5].iter().chain(rest).chain(&pair[5..]).copied().collect();
    engine.tick(5);
    assert_eq!(id(&engine.run(&other)), first);
    let mut changed = long.clone();
    changed[299_999] = b'w';
    words[6] = &changed;
    assert_ne!(id(&engine.run(&words)), first);
    assert_eq!(len(&engine), 2);

    let first = engine.line("XADD x IDMP p name * f v");
    engine.tick(99_999);
    assert_eq!(engine.line("XADD x IDMP p name * f v"), first);
    engine.tick(2);
    assert_ne!(engine.line("XADD x IDMP p name * f v"), first);
    engine.line("XCFGSET x IDMP-MAXSIZE 2 IDMP-DURATION 1");
    for producer in 0..1_000 {
        for message in [1, 2, 1, 2, 3, 1] {
            engine.line(&format!("XADD x IDMP {producer} {message} * f v"));
        }
        engine.tick(100);
    }
    assert_eq!(len(&engine), 4 + 4 * 1_000);
    engine.db.check_invariants();
    let bytes = |engine: &Engine| {
        let stream = engine.db.value::<Stream>(&Key::new(b"x")).unwrap().unwrap();
        darter_keyspace::Value::content_bytes(&*stream) - stream.entries().memory_bytes()
    };
    // The records of producers that send no more are removed.
    assert!(bytes(&engine) < 40 * 1_024, "{}", bytes(&engine));
}

#[test]
fn remembered_messages_age_even_if_ids_are_ahead_of_the_clock() {
    let mut engine = Engine::new(1_000_000, 3);
    engine.line("XADD x 99999999999 f v");
    let mut before = String::new();
    for _ in 0..3 {
        let first = engine.line("XADD x IDMP p name * f v");
        assert_ne!(first, before);
        engine.tick(99_999);
        assert_eq!(engine.line("XADD x IDMP p name * f v"), first);
        engine.tick(2);
        before = first;
    }
    for producer in 0..1_000 {
        engine.line(&format!("XADD x IDMP {producer} m * f v"));
        engine.tick(100_001);
    }
    let stream = engine.db.value::<Stream>(&Key::new(b"x")).unwrap().unwrap();
    let bytes = darter_keyspace::Value::content_bytes(&*stream) - stream.entries().memory_bytes();
    assert!(bytes < 8 * 1_024, "{bytes}");
}

#[test] // With the same error everywhere.
fn too_long_group_and_consumer_names_are_refused() {
    let mut engine = Engine::new(1_000_000, 3);
    engine.line("XADD x 1 f v");
    engine.line("XGROUP CREATE x g 0");
    let (long, most) = ("n".repeat(16_385), "n".repeat(16_384));
    for line in [
        "XGROUP CREATE x LONG 0",
        "XGROUP SETID x LONG 0",
        "XGROUP DESTROY x LONG",
        "XGROUP CREATECONSUMER x g LONG",
        "XGROUP DELCONSUMER x g LONG",
        "XREADGROUP GROUP LONG c STREAMS x >",
        "XREADGROUP GROUP g LONG STREAMS x >",
        "XCLAIM x g LONG 0 1-0",
        "XAUTOCLAIM x LONG c 0 0",
        "XACK x LONG 1-0",
        "XACKDEL x LONG IDS 1 1-0",
        "XNACK x LONG FAIL IDS 1 1-0",
        "XPENDING x LONG",
        "XPENDING x g - + 5 LONG",
        "XINFO CONSUMERS x LONG",
    ] {
        let refusal = "-ERR Names of groups and consumers have at most 16384 bytes\r\n";
        assert_eq!(engine.line(&line.replace("LONG", &long)), refusal, "{line}");
        assert_ne!(engine.line(&line.replace("LONG", &most)), refusal, "{line}");
    }
}

#[test]
fn too_long_names_are_refused_without_copying_them() {
    let mut engine = Engine::new(1_000_000, 3);
    engine.line("XADD x 1 f v");
    engine.line("XGROUP CREATE x g 0");
    let huge = "n".repeat(4 << 20);
    for line in [
        "XADD x IDMP HUGE m * f v",
        "XADD x IDMP p HUGE * f v",
        "XADD x IDMPAUTO HUGE * f v",
        "XADD x HUGE f v",
        "XGROUP CREATE x HUGE 0",
        "XREADGROUP GROUP HUGE HUGE STREAMS x >",
        "XCLAIM x g HUGE HUGE HUGE",
        "XRANGE x HUGE HUGE COUNT HUGE",
    ] {
        let reply = engine.line(&line.replace("HUGE", &huge));
        assert!(reply.starts_with("-ERR ") && engine.copied == 0, "{line}: {}", engine.copied);
    }
}

#[test] // A million of them would take a slice each.
fn repeated_options_beyond_the_limit_are_refused() {
    let mut engine = Engine::new(1_000_000, 3);
    engine.line("XADD x 1 f v");
    engine.line("XGROUP CREATE x g 0");
    for (before, option, after) in [
        ("XADD x", "NOMKSTREAM", "2 f v"),
        ("XADD x MAXLEN ~ 9", "LIMIT 5", "3 f v"),
        ("XTRIM x MAXLEN ~ 9", "LIMIT 5", ""),
        ("XNACK x g FAIL IDS 1 0-1", "FORCE", ""),
        ("XCFGSET x", "IDMP-MAXSIZE 5", ""),
        ("XAUTOCLAIM x g c 0 0", "JUSTID", ""),
        ("XSETID x 9", "ENTRIESADDED 9", ""),
        ("XGROUP CREATE x other 0", "MKSTREAM", ""),
        ("XGROUP SETID x g 0", "ENTRIESREAD 1", ""),
        ("XRANGE x - +", "COUNT 1", ""),
        ("XREVRANGE x + -", "COUNT 1", ""),
        ("XREAD", "COUNT 1", "STREAMS x 0"),
        ("XREADGROUP GROUP g c", "NOACK", "STREAMS x >"),
    ] {
        let line = |times| {
            let options = format!(" {option}").repeat(times);
            format!("{before}{options} {after}").trim_end().to_string()
        };
        assert_eq!(engine.line(&line(65)), "-ERR syntax error\r\n", "{before}");
        let few = engine.line(&line(63));
        assert!(!few.starts_with('-'), "{before}: {few}");
    }
}

//! Tests of commands that Redis 7.0 does not have, and of long strings: their replies and portions.

use crate::common::engine::Engine;

const NOW: u64 = 1_700_000_000_000;

fn text(engine: &mut Engine, words: &str) -> String {
    let words: Vec<&[u8]> = words
        .split_whitespace()
        .map(|word| if word == "''" { b"" } else { word.as_bytes() })
        .collect();
    String::from_utf8_lossy(&engine.run(&words)).replace("\r\n", " ").trim_end().to_owned()
}

fn expect(engine: &mut Engine, cases: &[(&str, &str)]) {
    for (words, expected) in cases {
        assert_eq!(text(engine, words), *expected, "{words}");
    }
}

#[test] // From the documentation of Redis 8.4 and its own tests.
fn set_and_delex_obey_conditions_on_values() {
    let mut engine = Engine::new(NOW, 1);
    engine.add_set(b"s");
    #[rustfmt::skip] // A table.
    expect(&mut engine, &[
        ("SET k v IFEQ x", "$-1"), ("SET k v IFNE x", "+OK"), ("SET k w IFEQ v", "+OK"),
        ("SET k w IFNE w", "$-1"), ("SET k z IFEQ no GET", "$1 w"), ("SET k z IFEQ w GET", "$1 w"),
        ("SET new v IFDEQ 1234567890", "$-1"), ("SET k v IFDEQ 12", "-ERR must be exactly 16 hexadecimal characters"),
        ("SET s v IFEQ m", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("SET s v IFDNE 12", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("SET k v IFEQ", "-ERR syntax error"), ("SET k v IFEQ a NX", "-ERR syntax error"),
        ("SET h Hello", "+OK"), ("DIGEST nothing", "$-1"),
        ("DIGEST s", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("DELEX nothing", ":0"), ("DELEX nothing IFNE a", ":0"),
        ("DELEX nothing IFEQ", "-ERR wrong number of arguments for 'delex' command"),
        ("DELEX h IFEQ a b", "-ERR wrong number of arguments for 'delex' command"),
        ("DELEX h IF a", "-ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"),
        ("DELEX h NX a", "-ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"),
        ("DELEX s IFEQ m", "-ERR Key should be of string type if conditions are specified"),
        ("DELEX h IFEQ hello", ":0"), ("DELEX h IFNE Hello", ":0"), ("DELEX h IFNE x", ":1"),
        ("DELEX s", ":1"), ("STRLEN h", ":0"),
    ]);
    let digest = text(&mut engine, "DIGEST k");
    let digest = digest.split(' ').nth(1).unwrap().to_uppercase();
    assert_eq!(text(&mut engine, &format!("SET k v IFDNE {digest}")), "$-1");
    assert_eq!(text(&mut engine, &format!("DELEX k IFDNE {digest}")), ":0");
    assert_eq!(text(&mut engine, &format!("DELEX k IFDEQ {digest}")), ":1");
}

#[test] // From the documentation of Redis 8.8 and its own tests.
fn increx_obeys_its_bounds() {
    let mut engine = Engine::new(NOW, 1);
    #[rustfmt::skip] // A table.
    expect(&mut engine, &[
        ("INCREX k", "*2 :1 :1"), ("INCREX k BYINT -3", "*2 :-2 :-3"),
        ("INCREX k BYINT 100 UBOUND 80 SATURATE", "*2 :80 :82"),
        ("INCREX k BYINT 1 UBOUND 80", "*2 :80 :0"), ("INCREX k BYINT 1 UBOUND 30", "*2 :80 :0"),
        ("INCREX k UBOUND 30 SATURATE", "*2 :30 :-50"), ("INCREX k BYINT -9 LBOUND 25", "*2 :30 :0"),
        ("SET k 9223372036854775800", "+OK"),
        ("INCREX k BYINT 9223372036854775800", "*2 :9223372036854775800 :0"),
        ("INCREX k BYINT 1 SATURATE UBOUND -9223372036854775808", "-ERR applied increment would overflow"),
        ("INCREX k BYINT 9223372036854775800 SATURATE", "*2 :9223372036854775807 :7"),
        ("INCREX new BYINT 15 UBOUND 10", "*2 :0 :0"), ("STRLEN new", ":0"),
        ("SET k 1.5", "+OK"), ("INCREX k BYFLOAT 0.25", "*2 $4 1.75 $4 0.25"),
        ("INCREX k", "-ERR value is not an integer or out of range"),
        ("INCREX k BYFLOAT 100 UBOUND 42.5 SATURATE", "*2 $4 42.5 $5 40.75"),
        ("INCREX k BYFLOAT 1 UBOUND 42.5", "*2 $4 42.5 $1 0"),
        ("INCREX k BYFLOAT inf", "-ERR BYFLOAT increment cannot be Infinity"),
        ("SET k inf", "+OK"), ("INCREX k BYFLOAT 1", "-ERR value cannot be Infinity"),
        ("SET k hello", "+OK"), ("INCREX k BYFLOAT 1", "-ERR value is not a valid float"),
        ("INCREX k BYINT 1 BYINT 2", "-ERR syntax error"), ("INCREX k BYINT 1 BYFLOAT 2", "-ERR syntax error"),
        ("INCREX k EX 5 PX 5", "-ERR syntax error"), ("INCREX k PERSIST EX 5", "-ERR syntax error"),
        ("INCREX k SATURATE SATURATE", "-ERR syntax error"), ("INCREX k PERSIST ENX", "-ERR syntax error"),
        ("INCREX k LBOUND", "-ERR syntax error"), ("INCREX k FOO", "-ERR syntax error"),
        ("INCREX k ENX", "-ERR ENX flag requires an expiration"),
        ("INCREX k BYINT 1.5", "-ERR Increment is not an integer or out of range"),
        ("INCREX k BYFLOAT abc", "-ERR Increment is not a valid float"),
        ("INCREX k LBOUND 1.5", "-ERR LBOUND is not an integer or out of range"),
        ("INCREX k BYFLOAT 1 UBOUND abc", "-ERR UBOUND is not a valid float"),
        ("INCREX k LBOUND 10 UBOUND 5", "-ERR LBOUND can't be greater than UBOUND"),
        ("INCREX k EX 0", "-ERR invalid expire time in 'increx' command"),
    ]);
    engine.resp3 = true;
    assert_eq!(text(&mut engine, "INCREX float BYFLOAT 1.5"), "*2 ,1.5 ,1.5");
}

/// The deadline of the key.
fn deadline(engine: &Engine, key: &str) -> Option<u64> {
    engine.db.get(&darter_keyspace::Key::new(key.as_bytes())).and_then(|found| found.deadline())
}

#[test]
fn set_and_getex_options_determine_the_deadline() {
    let mut engine = Engine::new(NOW, 1);
    let mut check = |words: &str, expected: Option<u64>| {
        text(&mut engine, words);
        assert_eq!(deadline(&engine, "k"), expected, "{words}");
    };
    check("SET k 1 EX 10", Some(NOW + 10_000));
    check("SET k 1 KEEPTTL", Some(NOW + 10_000));
    check("SET k 2 XX", None);
    check("SETEX k 5 1", Some(NOW + 5_000));
    check("INCR k", Some(NOW + 5_000));
    check("INCRBYFLOAT k 1.5", Some(NOW + 5_000));
    check("APPEND k 1", Some(NOW + 5_000));
    check("SETRANGE k 100000 1", Some(NOW + 5_000));
    check("APPEND k 1", Some(NOW + 5_000));
    check("GETEX k", Some(NOW + 5_000));
    check("GETEX k PERSIST", None);
    check("GETEX k PX 7", Some(NOW + 7));
    check("GETSET k 5", None);
    check("INCREX k EX 9", Some(NOW + 9_000));
    check("INCREX k EX 3 ENX", Some(NOW + 9_000));
    check("INCREX k", Some(NOW + 9_000));
    check("INCREX k UBOUND 0 PERSIST", Some(NOW + 9_000));
    check("INCREX k PERSIST", None);
    check("INCREX k EX 3 ENX", Some(NOW + 3_000));
    check("MSETEX 1 k 5 KEEPTTL", Some(NOW + 3_000));
    check("MSETEX 2 k 5 l 6 EX 4", Some(NOW + 4_000));
    check("MSET k 1", None);
    assert_eq!(text(&mut engine, "INCREX k EXAT 1"), "*2 :2 :1");
    assert_eq!(text(&mut engine, "STRLEN k"), ":0");
    text(&mut engine, "SET k 1 PXAT 1");
    assert_eq!(text(&mut engine, "GET k"), "$-1");
    text(&mut engine, "SET k 1");
    assert_eq!(text(&mut engine, "GETEX k EXAT 1"), "$1 1");
    assert_eq!(text(&mut engine, "GET k"), "$-1");
    engine.db.check_invariants();
}

#[test]
fn msetex_sets_several_keys_on_a_condition() {
    let mut engine = Engine::new(NOW, 1);
    #[rustfmt::skip] // A table.
    expect(&mut engine, &[
        ("MSETEX x k v", "-ERR invalid numkeys value"), ("MSETEX 0 k v", "-ERR invalid numkeys value"),
        ("MSETEX 2147483648 k v", "-ERR invalid numkeys value"),
        ("MSETEX 2147483647 k v", "-ERR wrong number of key-value pairs"),
        ("MSETEX 2 a 1 b", "-ERR wrong number of key-value pairs"),
        ("MSETEX 1 a 1 what", "-ERR syntax error"), ("MSETEX 1 a 1 NX XX", "-ERR syntax error"),
        ("MSETEX 1 a 1 IFEQ 1", "-ERR syntax error"), ("MSETEX 1 a 1 GET", "-ERR syntax error"),
        ("MSETEX 1 a 1 EX 0", "-ERR invalid expire time in 'msetex' command"),
        ("MSETEX 2 a 1 b 2 XX", ":0"), ("MSETEX 2 a 1 b 2 nx EX 10", ":1"),
        ("MSETEX 2 a 3 c 3 NX", ":0"), ("MSETEX 2 a 3 c 3 XX", ":0"), ("MGET a b c", "*3 $1 1 $1 2 $-1"),
        ("MSETNX c 1 c 2", ":1"), ("MSETNX d 1 c 3", ":0"), ("MGET c d", "*2 $1 2 $-1"),
    ]);
}

#[test] // A gap of 512 MiB takes no memory; replies, comparisons and edits run in portions.
fn the_longest_string_is_handled_in_portions() {
    const LEN: usize = 512 * 1024 * 1024;
    let mut engine = Engine::new(NOW, 1);
    assert_eq!(text(&mut engine, &format!("SETRANGE k {} xy", LEN - 2)), format!(":{LEN}"));
    assert_eq!(engine.portions, 0, "a gap is no work");
    let too_long = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    assert_eq!(text(&mut engine, "APPEND k z"), too_long);
    assert_eq!(text(&mut engine, &format!("SETRANGE new {} xyz", LEN - 2)), too_long);
    assert_eq!(text(&mut engine, &format!("GETRANGE k {} -1", LEN - 3)), "$3 \0xy");
    assert_eq!(engine.portions, 0);
    let part = engine.run(&[b"GETRANGE", b"k", b"-1000000", b"-1"]);
    assert!(part.starts_with(b"$1000000\r\n\0\0") && part.ends_with(b"xy\r\n"));
    assert!(engine.portions >= 16, "{}", engine.portions);
    engine.portions = 0;
    assert_eq!(text(&mut engine, "SET k v IFDEQ 0000000000000000"), "$-1");
    assert!(engine.portions >= 4_000, "{}", engine.portions);
    assert_eq!(text(&mut engine, "DELEX k IFNE short"), ":1");
    engine.db.check_invariants();
}

#[test] // It has more chunks than are shared in one step.
fn a_huge_value_is_set_in_portions() {
    let mut engine = Engine::new(NOW, 1);
    let huge: Vec<u8> = (0..70_000_000_u32).map(|at| (at / 999).to_le_bytes()[0]).collect();
    assert_eq!(engine.run(&[b"SET", b"k", &huge]), b"+OK\r\n");
    assert_eq!(engine.portions, 4);
    assert_eq!(text(&mut engine, "STRLEN k"), ":70000000");
    for from in [0, 33_554_432 - 10, 69_999_990] {
        let reply = engine.run(&[
            b"GETRANGE",
            b"k",
            from.to_string().as_bytes(),
            (from + 19).to_string().as_bytes(),
        ]);
        let part = &huge[from..huge.len().min(from + 20)];
        assert_eq!(reply, [format!("${}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat());
    }
    assert!(
        engine.run(&[b"GETSET", b"k", b"v"]) == [b"$70000000\r\n", &huge[..], b"\r\n"].concat()
    );
    engine.db.check_invariants();
}

#[test]
fn long_values_are_compared_and_edited_in_portions() {
    let mut engine = Engine::new(NOW, 1);
    let long: Vec<u8> = (0..1_000_000_u32).map(|at| (at / 7).to_le_bytes()[0]).collect();
    let mut other = long.clone();
    other[999_999] ^= 1;
    engine.run(&[b"SET", b"k", &long, b"EX", b"10"]);
    // The new value, the condition, its operand, and the reply.
    type Case<'a> = (&'a [u8], &'a str, &'a [u8], &'a [u8]);
    let cases: [Case<'_>; 4] = [
        (b"x", "IFEQ", &other, b"$-1\r\n"),
        (b"x", "IFNE", &long, b"$-1\r\n"),
        (&long, "IFNE", &other, b"+OK\r\n"),
        (&long, "IFEQ", &long, b"+OK\r\n"),
    ];
    for (new, test, operand, expected) in cases {
        let before = engine.portions;
        assert_eq!(engine.run(&[b"SET", b"k", new, test.as_bytes(), operand]), expected);
        assert!(engine.portions >= before + 8, "{}", engine.portions - before);
    }
    engine.run(&[b"GETEX", b"k", b"EX", b"10"]);
    assert_eq!(engine.run(&[b"APPEND", b"k", &other]), b":2000000\r\n");
    assert_eq!(deadline(&engine, "k"), Some(NOW + 10_000));
    assert_eq!(engine.run(&[b"SETRANGE", b"k", b"500000", &other]), b":2000000\r\n");
    let mut expected = b"$2000000\r\n".to_vec();
    expected.extend([&long[..500_000], &other, &other[500_000..], b"\r\n"].concat());
    assert!(engine.run(&[b"GET", b"k"]) == expected);
    assert_eq!(engine.run(&[b"MSET", b"k", &long, b"l", &other, b"m", b"1"]), b"+OK\r\n");
    let bulk = |bytes: &[u8]| [b"$1000000\r\n", bytes, b"\r\n"].concat();
    let expected =
        [b"*3\r\n".to_vec(), bulk(&other), b"$1\r\n1\r\n".to_vec(), bulk(&long)].concat();
    assert!(engine.run(&[b"MGET", b"l", b"m", b"k"]) == expected);
    engine.db.check_invariants();
}

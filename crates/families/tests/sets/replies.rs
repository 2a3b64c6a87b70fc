//! Tests of errors and their texts.

use super::{run, world};
use crate::common::value::Value;
use darter_command::Refusal;
use darter_keyspace::{Deadline, Fresh, Key};

#[test] // And change nothing.
fn set_commands_refuse_keys_of_other_types() {
    let mut world = world(2, 7);
    world.edit(b"text", |db| db.set_text(&Key::new(b"text"), Fresh::Bytes(b"x"), Deadline::Clear));
    run(&mut world, &[b"sadd", b"a", b"1", b"2"]);
    #[rustfmt::skip] // A table.
    let refused: &[&[&str]] = &[
        &["sadd", "text", "1"], &["srem", "text", "1"], &["saddex", "text", "10", "1"],
        &["scard", "text"], &["smembers", "text"], &["sismember", "text", "1"],
        &["smismember", "text", "1"], &["sinter", "nothing", "text"], &["sinter", "a", "text"],
        &["sunion", "a", "text"], &["sdiff", "nothing", "text"], &["sintercard", "2", "a", "text"],
        &["sunionstore", "a", "a", "text"], &["smove", "a", "text", "1"],
        &["smove", "a", "text", "9"], &["smove", "text", "a", "1"], &["spop", "text"],
        &["spop", "text", "0"], &["srandmember", "text", "0"], &["sscan", "text", "0", "x", "y"],
    ];
    for args in refused {
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        let error =
            Value::Error(String::from_utf8(Refusal::WrongType.text().into_owned()).unwrap());
        assert_eq!(run(&mut world, &args), error, "{args:?}");
    }
    assert_eq!(run(&mut world, &[b"smove", b"nothing", b"text", b"1"]), Value::Int(0));
    assert_eq!(run(&mut world, &[b"scard", b"a"]), Value::Int(2));
    assert_eq!(
        run(&mut world, &[b"sinterstore", b"text", b"a", b"a"]),
        Value::Int(2),
        "it goes over"
    );
}

#[test]
fn set_commands_refuse_invalid_arguments() {
    let mut world = world(1, 1);
    run(&mut world, &[b"sadd", b"a", b"1", b"2", b"x"]);
    let numkeys = "ERR numkeys should be greater than 0";
    let too_many = "ERR Number of keys can't be greater than number of args";
    let (limit, syntax) = ("ERR LIMIT can't be negative", "ERR syntax error");
    let integer = "ERR value is not an integer or out of range";
    let positive = "ERR value is out of range, must be positive";
    #[rustfmt::skip] // A table.
    let cases: &[(&[&str], &str)] = &[
        (&["sintercard", "0", "a"], numkeys),          (&["sintercard", "x", "a"], numkeys),
        (&["sunioncard", "-1", "a"], numkeys),         (&["sintercard", "2", "a"], too_many),
        (&["sdiffcard", "1", "a", "LIMIT"], syntax),   (&["sdiffcard", "1", "a", "APPROX"], syntax),
        (&["sintercard", "1", "a", "LIMIT", "-1"], limit), (&["sintercard", "1", "a", "LIMIT", "x"], limit),
        (&["sintercard", "1", "a", "b"], syntax),      (&["spop", "a", "-1"], positive),
        (&["spop", "a", "x"], positive),               (&["spop", "a", "1", "2"], syntax),
        (&["srandmember", "a", "x"], integer),         (&["srandmember", "a", "1", "2"], syntax),
        (&["sscan", "a", "x"], "ERR invalid cursor"),  (&["sscan", "a", "0", "count", "0"], syntax),
        (&["sscan", "a", "0", "count", "x"], integer), (&["sscan", "a", "0", "match"], syntax),
        (&["sscan", "a", "0", "count", "5", "x"], syntax), (&["saddex", "a", "0", "x"], integer),
        (&["saddex", "a", "268435456", "x"], integer), (&["saddex", "a", "1.5", "x"], integer),
        (&["saddex", "a", "KEEPTTL", "10"], "ERR wrong number of arguments for 'saddex' command"),
    ];
    for (args, error) in cases {
        let bytes: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        assert_eq!(run(&mut world, &bytes), Value::Error((*error).to_owned()), "{args:?}");
    }
    let nothing = run(&mut world, &[b"sscan", b"none", b"0", b"count", b"x"]).list();
    assert_eq!(nothing[1], Value::Array(Vec::new()));
}

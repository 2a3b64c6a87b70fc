//! Commands newer than redis-server 7.0.15: deadlines of fields, by tables of lines and replies.
//! The time is 1 000 000 ms at the beginning of each.

use crate::common::engine::Engine;
use darter_families::set::Set;
use darter_keyspace::{Deadline, Fresh, Key};

/// A shorter notation: `:1`, `"text"`, `nil`, `(...)`, `!error`.
fn short(reply: &str) -> String {
    let (text, rest) = next(reply);
    assert!(rest.is_empty(), "left over: {rest}");
    text
}

fn next(reply: &str) -> (String, &str) {
    let (line, rest) = reply.split_once("\r\n").expect("a line");
    match line.split_at(1) {
        (":", _) => (line.to_owned(), rest),
        ("-", text) => (format!("!{}", text.trim_start_matches("ERR ")), rest),
        ("$", "-1") => ("nil".to_owned(), rest),
        ("$", len) => {
            let len = len.parse().unwrap();
            (format!("\"{}\"", &rest[..len]), &rest[len + 2..])
        }
        ("*", len) => {
            let (mut parts, mut rest) = (Vec::new(), rest);
            for _ in 0..len.parse().unwrap() {
                let (part, after) = next(rest);
                parts.push(part);
                rest = after;
            }
            (format!("({})", parts.join(" ")), rest)
        }
        (other, _) => panic!("{other}"),
    }
}

fn check(lines: &[(&str, &str)]) {
    let mut engine = Engine::new(1_000_000, 1);
    engine.db.set_text(&Key::new(b"text"), Fresh::Bytes(b"x"), Deadline::Clear);
    engine
        .db
        .edit::<Set, _>(&Key::new(b"set"), true, |set| set.add(b"m", Deadline::Clear))
        .unwrap();
    for (line, expected) in lines {
        if let Some(ms) = line.strip_prefix("wait ") {
            engine.tick(ms.parse().unwrap());
            continue;
        }
        assert_eq!(short(&engine.line(line)), *expected, "{line}");
    }
    engine.db.check_invariants();
}

#[test]
fn fields_expire_at_their_deadlines() {
    #[rustfmt::skip] // A table.
    check(&[
        ("HSET h a 1 b 2 c 3 d 4 e 5", ":5"),
        ("HEXPIRE h 10 FIELDS 2 a nothing", "(:1 :-2)"),
        ("HPEXPIRE h 500 FIELDS 1 b", "(:1)"),
        ("HEXPIREAT h 1010 FIELDS 1 c", "(:1)"),
        ("HPEXPIREAT h 1000001 FIELDS 1 d", "(:1)"),
        ("HTTL h FIELDS 6 a b c d e f", "(:10 :1 :10 :1 :-1 :-2)"),
        ("HPTTL h FIELDS 4 a b c d", "(:10000 :500 :10000 :1)"),
        ("HEXPIRETIME h FIELDS 3 a b e", "(:1010 :1001 :-1)"),
        ("HPEXPIRETIME h FIELDS 3 a b e", "(:1010000 :1000500 :-1)"),
        ("wait 1", ""),
        ("HLEN h", ":4"),
        ("HEXISTS h d", ":0"),
        ("HGET h d", "nil"),
        ("HTTL h FIELDS 1 d", "(:-2)"),
        ("HMGET h a d e", "(\"1\" nil \"5\")"),
        ("HDEL h d", ":0"),
        ("HPERSIST h FIELDS 4 a b e nothing", "(:1 :1 :-1 :-2)"),
        ("HTTL h FIELDS 2 a b", "(:-1 :-1)"),
        ("HEXPIRE h 0 FIELDS 2 a a", "(:2 :-2)"),
        ("HEXPIREAT h 1 FIELDS 1 b", "(:2)"),
        ("HLEN h", ":2"),
        ("HSET h c 6", ":0"),
        ("HTTL h FIELDS 1 c", "(:-1)"),
        ("HEXPIRE h 100 FIELDS 1 c", "(:1)"),
        ("HINCRBY h c 1", ":7"),
        ("HTTL h FIELDS 1 c", "(:100)"),
        ("HINCRBYFLOAT h c 0.5", "\"7.5\""),
        ("HTTL h FIELDS 1 c", "(:100)"),
        ("HPEXPIRE h 0 FIELDS 2 c e", "(:2 :2)"),
        ("HLEN h", ":0"),
        ("HTTL h FIELDS 1 c", "(:-2)"),
        ("HEXPIRE h 5 FIELDS 2 a b", "(:-2 :-2)"),
        ("HPERSIST h FIELDS 1 a", "(:-2)"),
    ]);
}

#[test]
fn deadlines_change_only_if_nx_xx_gt_and_lt_allow_it() {
    #[rustfmt::skip] // A table.
    check(&[
        ("HSET h timed 1 other 2", ":2"),
        ("HEXPIRE h 100 XX FIELDS 1 timed", "(:0)"),
        ("HEXPIRE h 100 GT FIELDS 1 timed", "(:0)"),
        ("HEXPIRE h 100 NX FIELDS 1 timed", "(:1)"),
        ("HEXPIRE h 200 nx FIELDS 1 timed", "(:0)"),
        ("HEXPIRE h 100 GT FIELDS 1 timed", "(:0)"),
        ("HEXPIRE h 100 LT FIELDS 1 timed", "(:0)"),
        ("HEXPIRE h 101 GT FIELDS 1 timed", "(:1)"),
        ("HEXPIRE h 50 LT FIELDS 2 timed other", "(:1 :1)"),
        ("HEXPIRE h 60 XX FIELDS 3 timed other nothing", "(:1 :1 :-2)"),
        ("HEXPIRE h 0 GT FIELDS 1 timed", "(:0)"),
        ("HEXPIRE h 0 LT FIELDS 1 timed", "(:2)"),
    ]);
}

#[test]
fn invalid_arguments_of_field_expiry_are_refused() {
    const FIELDS: &str = "!Mandatory argument FIELDS is missing or not at the right position";
    const MATCH: &str = "!The `numfields` parameter must match the number of arguments";
    const NUM: &str = "!Parameter `numFields` should be greater than 0";
    const COUNT: &str = "!Number of fields must be a positive integer";
    const WRONG: &str = "!WRONGTYPE Operation against a key holding the wrong kind of value";
    const RANGE: &str = "!value is not an integer or out of range";
    const NEGATIVE: &str = "!invalid expire time, must be >= 0";
    #[rustfmt::skip] // A table.
    check(&[
        ("HEXPIRE text x FIELDS 1 a", WRONG),
        ("HEXPIRE h x FIELDS 1 a", RANGE),
        ("HEXPIRE h -1 FIELDS 1 a", NEGATIVE),
        ("HEXPIRE h 99999999999999 FIELDS 1 a", "!invalid expire time in 'hexpire' command"),
        ("HPEXPIREAT h 70368744177664 FIELDS 1 a", "!invalid expire time in 'hpexpireat' command"),
        ("HEXPIRE h 1 FIELD 1 a", FIELDS),
        ("HEXPIRE h 1 NX XX FIELDS 1 a", FIELDS),
        ("HEXPIRE h 1 FIELDS 0 a", NUM),
        ("HEXPIRE h 1 FIELDS x a", NUM),
        ("HEXPIRE h 1 FIELDS 2 a", MATCH),
        ("HEXPIRE h 1 FIELDS 1 a b", MATCH),
        ("HEXPIRE h 1 FIELDS 1", "!wrong number of arguments for 'hexpire' command"),
        ("HTTL text FIELD 1 a", WRONG),
        ("HTTL h FIELD 1 a", FIELDS),
        ("HTTL h FIELDS 0 a", COUNT),
        ("HPERSIST h FIELDS x a", COUNT),
        ("HPERSIST h FIELDS 2 a", MATCH),
        ("HPERSIST set FIELDS 1 a", WRONG),
        ("HGETDEL text FIELDS 1 a", WRONG),
        ("HGETDEL h FIELDS 0 a", COUNT),
        ("HGETDEL h FIELDS 3 a b", MATCH),
        ("HGETEX h EX FIELDS 1 a", RANGE),
        ("HGETEX h EX -1 FIELDS 1 a", NEGATIVE),
        ("HGETEX h EX 1 PX 1 FIELDS 1 a", FIELDS),
        ("HGETEX h PERSIST EX 1 FIELDS 1 a", FIELDS),
        ("HGETEX h FIELDS 9 a", MATCH),
        ("HGETEX text FIELDS 1 a", WRONG),
        ("HSETEX text FIELDS 1 a b", WRONG),
        ("HSETEX h FIELDS 0 a b", "!invalid number of fields"),
        ("HSETEX h FIELDS 2 a b", "!wrong number of arguments for 'hsetex' command"),
        ("HSETEX h FIELDS 1 a b c", "!wrong number of arguments for 'hsetex' command"),
        ("HSETEX h EX -1 FIELDS 1 a b", NEGATIVE),
        ("HSETEX h EX x FIELDS 1 a b", RANGE),
        ("HSETEX h PXAT 70368744177664 FIELDS 1 a b", "!invalid expire time in 'hsetex' command"),
        ("HSETEX h FNX FXX FIELDS 1 a b", "!Only one of FXX or FNX arguments can be specified"),
        ("HSETEX h EX 1 KEEPTTL FIELDS 1 a b", "!Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified"),
        ("HSETEX h EX 1 a b", "!syntax error"),
        ("HSETEX h FNX FXX 1 a b", "!syntax error"),
        ("HSETEX h NX FNX 1 a b", "!syntax error"),
        ("HSETEX h KEEPTTL KEEPTTL 1 a b", "!syntax error"),
        ("HSETEX h FNX a b", RANGE),
        ("HSETEX h 0 a b", RANGE),
        ("HSETEX h 268435456 a b", RANGE),
        ("HSETEX h 10 a b c", "!wrong number of arguments for 'hsetex' command"),
        ("HSETEX h NX KEEPTTL 10", "!wrong number of arguments for 'hsetex' command"),
        ("HSETEX text 10 a b", WRONG),
        ("FIELDTTL text a", WRONG),
        ("FIELDEXPIRE h 0 a", RANGE),
        ("FIELDEXPIRE h 268435456 a", RANGE),
        ("HLEN h", ":0"),
    ]);
}

#[test]
fn hgetex_and_hgetdel_return_and_change_fields() {
    #[rustfmt::skip] // A table.
    check(&[
        ("HSET h a 1 b 2 c 3", ":3"),
        ("HGETEX h FIELDS 2 a nothing", "(\"1\" nil)"),
        ("HGETEX h EX 10 FIELDS 2 a nothing", "(\"1\" nil)"),
        ("HGETEX h PXAT 1000777 FIELDS 1 b", "(\"2\")"),
        ("HPTTL h FIELDS 3 a b c", "(:10000 :777 :-1)"),
        ("HGETEX h PERSIST FIELDS 2 a c", "(\"1\" \"3\")"),
        ("HTTL h FIELDS 1 a", "(:-1)"),
        ("HGETEX h EXAT 0 FIELDS 2 a a", "(\"1\" nil)"),
        ("HGETDEL h FIELDS 3 b b nothing", "(\"2\" nil nil)"),
        ("HGETDEL h FIELDS 1 c", "(\"3\")"),
        ("HGETDEL h FIELDS 2 c a", "(nil nil)"),
        ("HLEN h", ":0"),
        ("HGETEX h EX 10 FIELDS 2 c a", "(nil nil)"),
    ]);
}

#[test]
fn hsetex_follows_redis_dialect() {
    #[rustfmt::skip] // A table.
    check(&[
        ("HSETEX h FXX FIELDS 1 a 1", ":0"),
        ("HSETEX h XX FIELDS 1 a 1", ":0"),
        ("HSETEX h NX EX 10 FIELDS 2 a 1 b 2", ":1"),
        ("HSETEX h NX EX 10 FIELDS 1 a 2", ":0"),
        ("HTTL h FIELDS 2 a b", "(:10 :10)"),
        ("HSETEX h KEEPTTL FIELDS 2 a 3 c 4", ":1"),
        ("HTTL h FIELDS 2 a c", "(:10 :-1)"),
        ("HSETEX h FNX FIELDS 2 new 1 a 2", ":0"),
        ("HSETEX h FXX FIELDS 2 new 1 a 2", ":0"),
        ("HMGET h new a", "(nil \"3\")"),
        ("HSETEX h fxx PX 5 FIELDS 1 a 5", ":1"),
        ("HPTTL h FIELDS 1 a", "(:5)"),
        ("HSETEX h FIELDS 1 a 6", ":1"),
        ("HPTTL h FIELDS 1 a", "(:-1)"),
        ("HSETEX h EXAT 1 FIELDS 2 a 7 new 8", ":1"),
        ("HMGET h a new b", "(nil nil \"2\")"),
        ("HSETEX h EX 0 FIELDS 2 b 1 c 1", ":1"),
        ("HLEN h", ":0"),
        ("HSETEX h EX 0 FIELDS 1 b 1", ":1"),
        ("HLEN h", ":0"),
    ]);
}

#[test]
fn hsetex_follows_dragonflys_dialect() {
    #[rustfmt::skip] // A table.
    check(&[
        ("HSETEX h 10 a 1 b 2", ":2"),
        ("HSETEX h 20 a 3 c 4", ":1"),
        ("HTTL h FIELDS 3 a b c", "(:20 :10 :20)"),
        ("HSETEX h NX 30 a 9 d 5", ":1"),
        ("HMGET h a d", "(\"3\" \"5\")"),
        ("HTTL h FIELDS 2 a d", "(:20 :30)"),
        ("HSET h e 1", ":1"),
        ("HSETEX h KEEPTTL 40 a 6 e 7 f 8", ":1"),
        ("HTTL h FIELDS 3 a e f", "(:20 :40 :40)"),
        ("HSETEX h FNX 50 a 1 g 2", ":0"),
        ("HSETEX h FNX 50 g 2", ":1"),
        ("HSETEX h FXX 50 a 1 x 2", ":0"),
        ("HSETEX h FXX KEEPTTL 60 a 1 g 2", ":0"),
        ("HTTL h FIELDS 2 a g", "(:20 :50)"),
        ("HSETEX h fxx 60 a 1 g 2", ":0"),
        ("HTTL h FIELDS 2 a g", "(:60 :60)"),
        ("wait 60000", ""),
        ("HLEN h", ":0"),
        ("HSETEX h FXX 5 a 1", ":0"),
    ]);
}

#[test]
fn fieldttl_and_fieldexpire_work_on_hashes_and_sets() {
    #[rustfmt::skip] // A table.
    check(&[
        ("HSET h a 1", ":1"),
        ("FIELDTTL h a", ":-1"),
        ("FIELDTTL h b", ":-3"),
        ("FIELDTTL nothing a", ":-2"),
        ("FIELDEXPIRE h 10 a b", "(:1 :-2)"),
        ("FIELDTTL h a", ":10"),
        ("FIELDEXPIRE h 5 a", "(:1)"),
        ("wait 1", ""),
        ("FIELDTTL h a", ":5"),
        ("FIELDTTL set m", ":-1"),
        ("FIELDTTL set n", ":-3"),
        ("FIELDEXPIRE set 3 n m", "(:-2 :1)"),
        ("FIELDTTL set m", ":3"),
        ("FIELDEXPIRE text 3 n m", "(:-2 :-2)"),
        ("FIELDEXPIRE nothing 3 n", "(:-2)"),
        ("wait 5000", ""),
        ("FIELDTTL set m", ":-2"),
        ("FIELDTTL h a", ":-2"),
    ]);
}

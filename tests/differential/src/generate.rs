//! Random commands of each family: usually well formed, on few keys, occasionally on a key of
//! another type, with an invalid number, or malformed in another way (`odd`).

use crate::vocabulary::{Command, Words};
use crate::{scripts, transactions};
use darter_base::Prng;
use darter_testkit::compare::Match;

/// A family: its name, and the generator of its next command.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    make: fn(&mut Words<'_>) -> Command,
}

/// All families; `mixed` draws from the others.
pub(crate) const FAMILIES: &[Family] = &[
    Family { name: "strings", make: string },
    Family { name: "bitmaps", make: bitmap },
    Family { name: "hyperloglogs", make: hyperloglog },
    Family { name: "lists", make: list },
    Family { name: "hashes", make: hash },
    Family { name: "sets", make: set },
    Family { name: "zsets", make: zset },
    Family { name: "geo", make: geo },
    Family { name: "sorting", make: sorting },
    Family { name: "streams", make: stream },
    Family { name: "keys", make: keys },
    Family { name: "mixed", make: mixed },
    Family { name: TRANSACTIONS, make: mixed },
    Family { name: SCRIPTS, make: any },
];

/// The families whose commands are wrapped: see `transactions` and `scripts`.
const TRANSACTIONS: &str = "transactions";
const SCRIPTS: &str = "scripts";

/// `steps` commands of one family. Other families prepare its keys: the first few commands come
/// from all of them.
pub(crate) fn sequence(family: &Family, prng: &mut Prng, steps: usize) -> Vec<Command> {
    let mut words = Words { prng, deadlines: 0, pending: None };
    let commands = (0..steps)
        .map(|step| {
            if let Some(pending) = words.pending.take() {
                return words.perhaps_odd(pending);
            }
            let made = if step < 5 { mixed(&mut words) } else { (family.make)(&mut words) };
            if words.pending.is_some() { made } else { words.perhaps_odd(made) }
        })
        .collect();
    match family.name {
        TRANSACTIONS => transactions::wrapped(prng, commands),
        SCRIPTS if prng.chance(50) => scripts::wrapped(prng, commands),
        SCRIPTS => {
            let commands = transactions::wrapped(prng, commands);
            scripts::wrapped(prng, commands)
        }
        _ => commands,
    }
}

/// A command of any family. SORT leaves encodings unchanged (docs/compat.md), so they are not
/// compared.
fn any(words: &mut Words<'_>) -> Command {
    let made = match words.prng.below(11) {
        0 => hyperloglog(words),
        1 => geo(words),
        2 => sorting(words),
        _ => mixed(words),
    };
    if made.words[1..].first().is_some_and(|word| word == b"ENCODING") {
        return compared(made, Match::Kind);
    }
    made
}

fn mixed(words: &mut Words<'_>) -> Command {
    match words.prng.below(8) {
        0 => string(words),
        1 => hash(words),
        2 => set(words),
        3 => bitmap(words),
        4 => list(words),
        5 => zset(words),
        6 => stream(words),
        _ => keys(words),
    }
}

/// A command from its name and its arguments.
fn command(name: &str, args: Vec<Vec<u8>>) -> Command {
    let mut all = vec![name.as_bytes().to_vec()];
    all.extend(args);
    Command::new(all)
}

fn compared(mut command: Command, how: Match) -> Command {
    command.how = how;
    command
}

fn text(word: impl ToString) -> Vec<u8> {
    word.to_string().into_bytes()
}

fn string(words: &mut Words<'_>) -> Command {
    let key = words.key();
    match words.prng.below(24) {
        0..=3 => set_with_options(words),
        4 => command("GET", vec![key]),
        5 => command("GETSET", vec![key, words.value()]),
        6 => command("GETDEL", vec![key]),
        7 => getex(words),
        8 => command("APPEND", vec![key, words.value()]),
        9 => command("STRLEN", vec![key]),
        10 => command(numeric(words, &["INCR", "DECR"]), vec![key]),
        11 | 12 => command(numeric(words, &["INCRBY", "DECRBY"]), vec![key, words.number()]),
        13 => command("INCRBYFLOAT", vec![key, words.float()]),
        14 => command("GETRANGE", vec![key, words.number(), words.number()]),
        15 => command("SETRANGE", vec![key, text(words.index(40)), words.value()]),
        16 => command("MGET", words.many(5, Words::key)),
        17 => {
            let pairs = words.many(4, Words::key);
            let flat = pairs.into_iter().flat_map(|key| [key, words.value()]).collect();
            command(numeric(words, &["MSET", "MSET", "MSETNX"]), flat)
        }
        18 => command("SETNX", vec![key, words.value()]),
        19 => command("SETEX", vec![key, text(words.seconds()), words.value()]),
        20 => command("PSETEX", vec![key, text(words.seconds() * 1000), words.value()]),
        21 => command("LCS", vec![key, words.key()]),
        22 => command("LCS", vec![key, words.key(), text("LEN")]),
        _ => command("SUBSTR", vec![key, words.number(), words.number()]),
    }
}

/// One of several names that take the same arguments.
fn numeric(words: &mut Words<'_>, names: &[&'static str]) -> &'static str {
    names[words.index(names.len())]
}

fn set_with_options(words: &mut Words<'_>) -> Command {
    let mut args = vec![words.key(), words.value()];
    match words.prng.below(8) {
        0 => args.extend([text("EX"), text(words.seconds())]),
        1 => args.extend([text("PX"), text(words.seconds() * 1000)]),
        2 => args.push(text("KEEPTTL")),
        3 => args.extend([text("PXAT"), text(1)]),
        4 => args.extend([text("EX"), words.pick(&["0", "-1", "abc"])]),
        _ => {}
    }
    match words.prng.below(5) {
        0 => args.push(text("NX")),
        1 => args.push(text("XX")),
        _ => {}
    }
    if words.prng.chance(25) {
        args.push(text("GET"));
    }
    command("SET", args)
}

fn getex(words: &mut Words<'_>) -> Command {
    let mut args = vec![words.key()];
    match words.prng.below(4) {
        0 => args.extend([text("EX"), text(words.seconds())]),
        1 => args.push(text("PERSIST")),
        2 => args.extend([text("PXAT"), text(1)]),
        _ => {}
    }
    command("GETEX", args)
}

fn bitmap(words: &mut Words<'_>) -> Command {
    let key = words.key();
    match words.prng.below(20) {
        0..=3 => command("SETBIT", vec![key, words.bit(), text(words.index(2))]),
        4 => command("GETBIT", vec![key, words.bit()]),
        5..=7 => {
            let count = words.index(5);
            command("BITCOUNT", with(key, range(words, count)))
        }
        8..=10 => {
            let count = words.index(5);
            let bit = text(words.index(2));
            command("BITPOS", with(key, with(bit, range(words, count))))
        }
        11..=13 => {
            let name = words.pick(&["AND", "OR", "XOR", "NOT", "and"]);
            let sources = words.many(if name == b"NOT" { 1 } else { 4 }, Words::key);
            command("BITOP", with(name, with(key, sources)))
        }
        14..=16 => bitfield(words, key),
        17 => command("SET", vec![key, words.value()]),
        18 => command("OBJECT", vec![text("ENCODING"), key]),
        _ => command("GET", vec![key]),
    }
}

/// `start end unit`, or only the first of them.
fn range(words: &mut Words<'_>, count: usize) -> Vec<Vec<u8>> {
    let unit = words.pick(&["BIT", "BYTE", "bit"]);
    let mut args = vec![words.number(), words.number(), unit];
    args.truncate(count);
    args
}

fn bitfield(words: &mut Words<'_>, key: Vec<u8>) -> Command {
    const KINDS: &[&str] = &["u1", "u4", "u8", "i8", "i5", "u31", "u63", "i64", "i1", "u64"];
    let mut args = vec![key];
    for _ in 0..=words.index(4) {
        if words.prng.chance(30) {
            args.extend([text("OVERFLOW"), words.pick(&["WRAP", "SAT", "FAIL"])]);
        }
        let name = numeric(words, &["GET", "SET", "INCRBY"]);
        let offset =
            if words.prng.chance(30) { words.pick(&["#0", "#1", "#7"]) } else { words.bit() };
        args.extend([text(name), words.pick(KINDS), offset]);
        if name != "GET" {
            let large = ["255", "300", "-129", "4611686018427387904", "-9223372036854775808"];
            args.push(if words.prng.chance(30) { words.pick(&large) } else { words.number() });
        }
    }
    command(numeric(words, &["BITFIELD", "BITFIELD", "BITFIELD_RO"]), args)
}

fn list(words: &mut Words<'_>) -> Command {
    let key = words.key();
    match words.prng.below(28) {
        20 | 21 => command("LREM", vec![key, words.number(), words.value()]),
        22 => command(
            "LINSERT",
            vec![key, words.pick(&["BEFORE", "AFTER"]), words.value(), words.value()],
        ),
        23 => command("LPOS", vec![key, words.value()]),
        24 => {
            let options = [
                text("RANK"),
                words.pick(&["1", "-1", "2"]),
                text("COUNT"),
                words.pick(&["0", "2"]),
            ];
            command("LPOS", [vec![key, words.value()], options.to_vec()].concat())
        }
        25 => {
            let ends = [words.pick(&["LEFT", "RIGHT"]), words.pick(&["LEFT", "RIGHT"])];
            command("LMOVE", [vec![key, words.key()], ends.to_vec()].concat())
        }
        26 => command("RPOPLPUSH", vec![key, words.key()]),
        27 => {
            let rest = [
                words.key(),
                words.pick(&["LEFT", "RIGHT"]),
                text("COUNT"),
                words.pick(&["1", "3"]),
            ];
            command("LMPOP", [vec![text(2), key], rest.to_vec()].concat())
        }
        0..=5 => {
            let name = numeric(words, &["LPUSH", "RPUSH", "LPUSHX", "RPUSHX"]);
            command(name, with(key, words.many(6, Words::value)))
        }
        6 => many_elements(words, key),
        7 | 8 => command(numeric(words, &["LPOP", "RPOP"]), vec![key]),
        9 | 10 => {
            let count =
                *words.prng.weighted(&[(3, "1"), (3, "3"), (1, "0"), (1, "300"), (1, "-1")]);
            command(numeric(words, &["LPOP", "RPOP"]), vec![key, text(count)])
        }
        11 => command("LLEN", vec![key]),
        12 | 13 => command("LINDEX", vec![key, words.number()]),
        14 | 15 => command("LRANGE", vec![key, words.number(), words.number()]),
        16 => command("LRANGE", vec![key, text(0), text(-1)]),
        17 => command("LSET", vec![key, text(words.index(6)), words.value()]),
        18 => command("LSET", vec![key, words.number(), words.value()]),
        _ => {
            let ends = [("0", "-1"), ("1", "-2"), ("-5", "-1"), ("2", "1"), ("-100", "50")];
            let (start, stop) = ends[words.index(ends.len())];
            command("LTRIM", vec![key, text(start), text(stop)])
        }
    }
}

/// Enough elements for a list that is pushed in slices.
fn many_elements(words: &mut Words<'_>, key: Vec<u8>) -> Command {
    let from = words.index(1_000);
    let elements = (from..from + 400).map(|at| text(format!("element:{}", at % 90)));
    command(numeric(words, &["LPUSH", "RPUSH"]), with(key, elements.collect()))
}

fn hyperloglog(words: &mut Words<'_>) -> Command {
    let key = words.key();
    match words.prng.below(20) {
        0..=4 => command("PFADD", with(key, words.many(4, Words::field))),
        5 | 6 => {
            let (first, count) = (words.prng.below(5_000), words.prng.below(1_500));
            command("PFADD", with(key, (first..first + count).map(text).collect()))
        }
        7..=9 => command("PFCOUNT", words.many(4, Words::key)),
        10..=12 => command("PFMERGE", with(key, words.many(4, Words::key))),
        13 => command("PFADD", vec![key]),
        14 => {
            let word = words.pick(&["GETREG", "DECODE", "ENCODING", "TODENSE"]);
            command("PFDEBUG", vec![word, key])
        }
        // Changes the cardinality in the header.
        15 => {
            let byte = words.pick(&["\u{0}", "x", "\u{1}"]);
            command("SETRANGE", vec![key, text(8 + words.index(8)), byte])
        }
        16 => command("DEL", vec![key]),
        17 => command("OBJECT", vec![text("ENCODING"), key]),
        _ => command("GET", vec![key]),
    }
}

fn hash(words: &mut Words<'_>) -> Command {
    let key = words.key();
    match words.prng.below(22) {
        0..=4 => {
            let fields = words.many(6, Words::field);
            let pairs = fields.into_iter().flat_map(|field| [field, words.value()]);
            command("HSET", std::iter::once(key).chain(pairs.collect::<Vec<_>>()).collect())
        }
        5 => many_fields(words, key),
        6 => command("HGET", vec![key, words.field()]),
        7 => command("HMGET", with(key, words.many(5, Words::field))),
        8..=10 => command("HDEL", with(key, words.many(4, Words::field))),
        11 => command("HLEN", vec![key]),
        12 => compared(command("HGETALL", vec![key]), Match::SortedPairs),
        13 => compared(command("HKEYS", vec![key]), Match::Sorted),
        14 => compared(command("HVALS", vec![key]), Match::Sorted),
        15 => command("HEXISTS", vec![key, words.field()]),
        16 => command("HSTRLEN", vec![key, words.field()]),
        17 => command("HINCRBY", vec![key, words.field(), words.number()]),
        18 => command("HINCRBYFLOAT", vec![key, words.field(), words.float()]),
        19 => command("HSETNX", vec![key, words.field(), words.value()]),
        20 => compared(command("HRANDFIELD", vec![key, text(100_000)]), Match::Sorted),
        _ => compared(command("HRANDFIELD", vec![key, text(-5)]), Match::Shape),
    }
}

fn with(first: Vec<u8>, rest: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    std::iter::once(first).chain(rest).collect()
}

/// Enough fields to leave every small encoding.
fn many_fields(words: &mut Words<'_>, key: Vec<u8>) -> Command {
    let first = words.prng.below(200);
    let value = words.value();
    let pairs = (first..first + 150).flat_map(|i| [text(format!("many:{i}")), value.clone()]);
    command("HSET", std::iter::once(key).chain(pairs).collect())
}

fn set(words: &mut Words<'_>) -> Command {
    let key = words.key();
    match words.prng.below(24) {
        0..=4 => command("SADD", with(key, words.many(6, Words::field))),
        5 => {
            let first = words.prng.below(500);
            command("SADD", with(key, (first..first + 300).map(text).collect()))
        }
        6..=8 => command("SREM", with(key, words.many(4, Words::field))),
        9 => command("SCARD", vec![key]),
        10 => command("SISMEMBER", vec![key, words.field()]),
        11 => command("SMISMEMBER", with(key, words.many(5, Words::field))),
        12 => compared(command("SMEMBERS", vec![key]), Match::Sorted),
        13 | 14 => command("SMOVE", vec![key, words.key(), words.field()]),
        15..=17 => {
            let name = numeric(words, &["SINTER", "SUNION", "SDIFF"]);
            compared(command(name, words.many(4, Words::key)), Match::Sorted)
        }
        18..=20 => {
            let name = numeric(words, &["SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"]);
            command(name, with(key, words.many(4, Words::key)))
        }
        21 => {
            let keys = words.many(4, Words::key);
            let mut args = with(text(keys.len()), keys);
            if words.prng.chance(50) {
                args.extend([text("LIMIT"), text(words.index(5))]);
            }
            command("SINTERCARD", args)
        }
        22 => compared(command("SRANDMEMBER", vec![key, text(100_000)]), Match::Sorted),
        _ => compared(command("SPOP", vec![key, text(100_000)]), Match::Sorted),
    }
}

/// A sorted set command. Ranges by member are left out, because they are defined only if all scores
/// are equal.
fn zset(words: &mut Words<'_>) -> Command {
    sorted_set(words, |at| at % 40)
}

/// A sorted set command; if many members are added together, their scores are `score` of their
/// numbers.
fn sorted_set(words: &mut Words<'_>, score: fn(u64) -> u64) -> Command {
    let key = words.key();
    match words.prng.below(34) {
        0..=5 => zadd(words, key),
        6 => {
            let first = words.prng.below(200);
            let pairs =
                (first..first + 150).flat_map(|i| [text(score(i)), text(format!("many:{i}"))]);
            command("ZADD", with(key, pairs.collect()))
        }
        7 | 8 => command("ZINCRBY", vec![key, words.score(), words.field()]),
        9 | 10 => command("ZREM", with(key, words.many(4, Words::field))),
        11 => command("ZSCORE", vec![key, words.field()]),
        12 => command("ZMSCORE", with(key, words.many(4, Words::field))),
        13 => command(numeric(words, &["ZRANK", "ZREVRANK"]), vec![key, words.field()]),
        14 => command("ZCARD", vec![key]),
        15 => command("ZCOUNT", vec![key, words.bound(), words.bound()]),
        16..=18 => zrange(words, vec![key]),
        19 => {
            let name = numeric(words, &["ZRANGEBYSCORE", "ZREVRANGEBYSCORE"]);
            let mut args = vec![key, words.bound(), words.bound()];
            limit(words, &mut args);
            command(name, args)
        }
        20 => command("ZREVRANGE", vec![key, words.number(), words.number(), text("WITHSCORES")]),
        21 => {
            let source = words.key();
            let mut made = zrange(words, vec![key, source]);
            made.words[0] = text("ZRANGESTORE");
            made.words.retain(|word| word != b"WITHSCORES");
            made
        }
        22 => command("ZREMRANGEBYRANK", vec![key, words.number(), words.number()]),
        23 => command("ZREMRANGEBYSCORE", vec![key, words.bound(), words.bound()]),
        24 | 25 => {
            let mut args = vec![key];
            if words.prng.chance(50) {
                args.push(words.number());
            }
            command(numeric(words, &["ZPOPMIN", "ZPOPMAX"]), args)
        }
        26 => {
            let mut args = counted(words);
            args.push(words.pick(&["MIN", "MAX", "min", "MID"]));
            if words.prng.chance(50) {
                args.extend([text("COUNT"), words.number()]);
            }
            command("ZMPOP", args)
        }
        27 => command("ZSCAN", vec![text("missing"), words.odd()]),
        28 => compared(command("ZRANDMEMBER", vec![key, text(100_000)]), Match::Sorted),
        29 => command("ZDIFF", with_scores(counted(words))),
        30 => command(numeric(words, &["ZUNION", "ZINTER"]), with_scores(weighted(words))),
        31 => {
            let name = numeric(words, &["ZUNIONSTORE", "ZINTERSTORE"]);
            command(name, with(key, weighted(words)))
        }
        32 => command("ZDIFFSTORE", with(key, counted(words))),
        _ => {
            let mut args = counted(words);
            if words.prng.chance(50) {
                args.extend([text("LIMIT"), words.number()]);
            }
            command("ZINTERCARD", args)
        }
    }
}

fn zadd(words: &mut Words<'_>, key: Vec<u8>) -> Command {
    let mut args = vec![key];
    for _ in 0..words.index(3) {
        args.push(words.pick(&["NX", "XX", "GT", "LT", "CH", "INCR", "ch"]));
    }
    let members = words.many(3, Words::field);
    args.extend(members.into_iter().flat_map(|member| [words.score(), member]));
    command("ZADD", args)
}

/// `key start stop` with options, after other keys.
fn zrange(words: &mut Words<'_>, mut args: Vec<Vec<u8>>) -> Command {
    if words.prng.chance(50) {
        args.extend([words.bound(), words.bound(), text("BYSCORE")]);
        limit(words, &mut args);
    } else {
        args.extend([words.number(), words.number()]);
    }
    for option in ["REV", "WITHSCORES"] {
        if words.prng.chance(40) {
            args.push(text(option));
        }
    }
    command("ZRANGE", args)
}

fn limit(words: &mut Words<'_>, args: &mut Vec<Vec<u8>>) {
    if words.prng.chance(30) {
        args.extend([text("LIMIT"), words.number(), words.number()]);
    }
}

/// A number of keys, and the keys.
fn counted(words: &mut Words<'_>) -> Vec<Vec<u8>> {
    let keys = words.many(4, Words::key);
    with(text(keys.len()), keys)
}

/// [`counted`] with weights and an aggregation. Negative and zero weights are excluded, because
/// they turn some scores to -0, a difference in docs/compat.md.
fn weighted(words: &mut Words<'_>) -> Vec<Vec<u8>> {
    let mut args = counted(words);
    if words.prng.chance(40) {
        let weights = args.len() - 1;
        args.push(text("WEIGHTS"));
        let weight = |_| words.pick(&["1", "2", "0.5", "1e10", "inf", "nan", "abc", "+3", "0x2"]);
        args.extend((0..weights).map(weight).collect::<Vec<_>>());
    }
    if words.prng.chance(40) {
        args.extend([text("AGGREGATE"), words.pick(&["SUM", "MIN", "MAX", "max", "AVG"])]);
    }
    args
}

fn with_scores(mut args: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    args.push(text("WITHSCORES"));
    args
}

/// Stores elements or members, some of which are names of keys, and sorts them.
fn sorting(words: &mut Words<'_>) -> Command {
    const ELEMENTS: &[&str] = &["a", "b", "{t}c", "123", "c", "d", "1", "2", "10", "1.0", "-3"];
    let key = words.key();
    let elements = |words: &mut Words<'_>| words.many(6, |words| words.pick(ELEMENTS));
    match words.prng.below(20) {
        0 | 1 => command(numeric(words, &["RPUSH", "LPUSH"]), with(key, elements(words))),
        2 => command("SADD", with(key, elements(words))),
        3 => {
            let pairs = elements(words).into_iter().flat_map(|one| [words.score(), one]).collect();
            command("ZADD", with(key, pairs))
        }
        4 => command("SET", vec![key, words.value()]),
        5 => command("HSET", vec![key, words.pick(&["f1", "7"]), words.value()]),
        6 => command("LRANGE", vec![key, text(0), text(-1)]),
        7 => mixed_write(words),
        8 => integers(words, key),
        _ => sort(words),
    }
}

/// Adds integers around powers of two and ten, where sorting them as doubles or as text differs from
/// sorting them as numbers. Some other values are mixed in.
fn integers(words: &mut Words<'_>, key: Vec<u8>) -> Command {
    const CENTERS: &[i64] = &[0, 1 << 53, 10_i64.pow(16), 10_i64.pow(17), 10_i64.pow(18), i64::MAX];
    let center = CENTERS[words.index(CENTERS.len())];
    let center = if words.prng.chance(30) { -center } else { center };
    let width = 1_u64 << (1 + words.prng.below(12));
    let mut all: Vec<_> = (0..=words.prng.below(1_500))
        .map(|_| {
            text(
                center
                    .saturating_add_unsigned(words.prng.below(width))
                    .saturating_sub_unsigned(width / 2),
            )
        })
        .collect();
    if words.prng.chance(20) {
        all.push(words.pick(&["0.5", "1e16", "-1e18", "007", "+1", "inf", "x"]));
    }
    command(numeric(words, &["RPUSH", "SADD"]), with(key, all))
}

/// SORT after a command that makes Redis forget an earlier out-of-range number; otherwise it would
/// refuse any number (docs/compat.md).
fn sort(words: &mut Words<'_>) -> Command {
    words.pending = Some(sort_itself(words));
    command("HSCAN", vec![text("missing"), text(0)])
}

/// If the result depends on a set's order, it is compared without regard to the order, which
/// differs.
fn sort_itself(words: &mut Words<'_>) -> Command {
    const PATTERNS: &[&str] = &["*", "{t}*", "*->f1", "{t}*->7", "#", "none", "*->", "w*"];
    let mut args = vec![words.key()];
    let is_alpha = words.prng.chance(50);
    let by = words.prng.chance(50).then(|| words.pick(PATTERNS));
    let sorts = by.as_ref().is_none_or(|by| by.contains(&b'*'));
    let is_stored = words.prng.chance(25) && (!is_alpha || by.is_none());
    let is_ordered = is_stored || if by.is_some() { sorts && !is_alpha } else { true };
    args.extend(is_alpha.then(|| text("ALPHA")));
    args.extend(by.into_iter().flat_map(|by| [text("BY"), by]));
    if words.prng.chance(50) {
        args.push(words.pick(&["ASC", "DESC"]));
    }
    if words.prng.chance(40) && sorts && is_ordered {
        args.extend([text("LIMIT"), words.number(), words.number()]);
    }
    for _ in 0..words.index(4) {
        args.extend([text("GET"), words.pick(PATTERNS)]);
    }
    if is_stored && sorts {
        args.extend([text("STORE"), words.key()]);
        return command("SORT", args);
    }
    let made = command(numeric(words, &["SORT", "SORT_RO"]), args);
    if is_ordered && sorts { made } else { compared(made, Match::Sorted) }
}

/// A geo command. Members at equal distance are rare, because which of seven or more COUNT keeps is
/// specific to Redis (docs/compat.md). So many members added together are spread over the world.
fn geo(words: &mut Words<'_>) -> Command {
    let key = words.key();
    match words.prng.below(16) {
        0..=4 => {
            let mut args = vec![key];
            for _ in 0..words.index(3) {
                args.push(words.pick(&["NX", "XX", "CH", "ch"]));
            }
            let members = words.many(6, Words::field);
            args.extend(members.into_iter().flat_map(|member| {
                let [longitude, latitude] = words.place();
                [longitude, latitude, member]
            }));
            command("GEOADD", args)
        }
        5 => command("GEOPOS", with(key, words.many(4, Words::field))),
        6 => command("GEOHASH", with(key, words.many(4, Words::field))),
        7 => {
            let mut args = vec![key, words.field(), words.field()];
            if words.prng.chance(50) {
                args.push(words.unit());
            }
            command("GEODIST", args)
        }
        8..=11 => command("GEOSEARCH", with(key, searched(words, true))),
        12 => {
            let mut args = with(words.key(), with(key, searched(words, false)));
            if words.prng.chance(30) {
                args.push(text("STOREDIST"));
            }
            command("GEOSEARCHSTORE", args)
        }
        13 => {
            let [longitude, latitude] = words.place();
            let args = vec![key, longitude, latitude, words.radius(), words.unit()];
            let name = numeric(words, &["GEORADIUS", "GEORADIUS_RO"]);
            command(name, stored(words, args))
        }
        14 => {
            let args = vec![key, words.field(), words.radius(), words.unit()];
            let name = numeric(words, &["GEORADIUSBYMEMBER", "GEORADIUSBYMEMBER_RO"]);
            command(name, stored(words, args))
        }
        _ => sorted_set(words, |at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12),
    }
}

/// The center, the shape and the options of a search.
fn searched(words: &mut Words<'_>, is_shown: bool) -> Vec<Vec<u8>> {
    let mut args = Vec::new();
    if words.prng.chance(50) {
        args.extend([text("FROMMEMBER"), words.field()]);
    } else {
        args.push(text("FROMLONLAT"));
        args.extend(words.place());
    }
    if words.prng.chance(50) {
        args.extend([text("BYRADIUS"), words.radius(), words.unit()]);
    } else {
        args.extend([text("BYBOX"), words.radius(), words.radius(), words.unit()]);
    }
    shown(words, &mut args, is_shown);
    args
}

/// Options of a search, and where it is stored.
fn stored(words: &mut Words<'_>, mut args: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let is_stored = words.prng.chance(30);
    shown(words, &mut args, !is_stored);
    if is_stored {
        args.extend([words.pick(&["STORE", "STOREDIST", "store"]), words.key()]);
    }
    args
}

fn shown(words: &mut Words<'_>, args: &mut Vec<Vec<u8>>, is_shown: bool) {
    if words.prng.chance(50) {
        args.push(words.pick(&["ASC", "DESC", "asc"]));
    }
    if words.prng.chance(40) {
        args.extend([text("COUNT"), text(1 + words.index(5))]);
        if words.prng.chance(40) {
            args.push(text("ANY"));
        }
    }
    for option in ["WITHCOORD", "WITHDIST", "WITHHASH"] {
        if is_shown && words.prng.chance(30) {
            args.push(text(option));
        }
    }
}

/// A stream command, without `*`, because the clocks differ, and without trimming by `~`, a
/// difference in docs/compat.md.
fn stream(words: &mut Words<'_>) -> Command {
    let key = words.key();
    match words.prng.below(48) {
        24.. => consumer_group(words, key),
        0..=7 => xadd(words, key),
        8 => {
            let first = words.prng.below(200);
            let names = (first..first + 300).map(|at| text(format!("many:{at}")));
            let fields = names.flat_map(|name| [name.clone(), name]).collect::<Vec<_>>();
            command("XADD", with(key, with(text(format!("{first}-*")), fields)))
        }
        9 => command("XLEN", vec![key]),
        10..=12 => {
            let mut args = vec![key, range_end(words), range_end(words)];
            if words.prng.chance(40) {
                args.extend([text("COUNT"), words.number()]);
            }
            command(numeric(words, &["XRANGE", "XREVRANGE"]), args)
        }
        13..=15 => {
            let mut args = Vec::new();
            if words.prng.chance(40) {
                args.extend([text("COUNT"), words.number()]);
            }
            let keys = words.many(3, Words::key);
            let ids = keys.iter().map(|_| after(words)).collect::<Vec<_>>();
            args.push(text("STREAMS"));
            command("XREAD", args.into_iter().chain(keys).chain(ids).collect())
        }
        16..=18 => command("XDEL", with(key, words.many(4, id))),
        19 => command(
            "XDEL",
            with(key, (0..300).map(|at| text(format!("{at}-{}", at % 3))).collect()),
        ),
        20 => command("XTRIM", with(key, trimming(words))),
        21 => {
            let mut args = vec![key, id(words)];
            if words.prng.chance(30) {
                args.extend([text("ENTRIESADDED"), words.number()]);
            }
            if words.prng.chance(30) {
                args.extend([text("MAXDELETEDID"), id(words)]);
            }
            command("XSETID", args)
        }
        // The shape of the radix tree is not compared.
        22 => compared(command("XINFO", vec![text("STREAM"), key]), Match::Shape),
        _ => command("TYPE", vec![key]),
    }
}

/// A command on consumer groups. Idle times are not requested, because the clocks differ.
fn consumer_group(words: &mut Words<'_>, key: Vec<u8>) -> Command {
    let (group, consumer) = (words.pick(&["g", "h", "none"]), words.pick(&["c", "d", "e"]));
    match words.prng.below(24) {
        0..=2 => {
            let mut args = vec![text("CREATE"), key, group, words.pick(&["0", "$", "50", "x"])];
            if words.prng.chance(70) {
                args.push(text("MKSTREAM"));
            }
            if words.prng.chance(20) {
                args.extend([text("ENTRIESREAD"), words.number()]);
            }
            command("XGROUP", args)
        }
        3 => command("XGROUP", vec![text("DESTROY"), key, group]),
        4 => {
            let what = words.pick(&["CREATECONSUMER", "DELCONSUMER"]);
            command("XGROUP", vec![what, key, group, consumer])
        }
        5 => command("XGROUP", vec![text("SETID"), key, group, id(words)]),
        6..=11 => reading(words, group, consumer),
        12..=13 => command("XACK", with(key, with(group, words.many(5, id)))),
        14 => command("XPENDING", vec![key, group]),
        15 => {
            let mut args = vec![key, group, range_end(words), range_end(words), words.number()];
            if words.prng.chance(50) {
                args.push(consumer);
            }
            compared(command("XPENDING", args), Match::Near(20_000))
        }
        16..=18 => {
            let mut args = vec![key, group, consumer, text("0")];
            args.extend(words.many(5, id));
            for option in ["FORCE", "JUSTID", "RETRYCOUNT 3", "LASTID 20-1", "TIME 5000", "ODD"] {
                if words.prng.chance(15) {
                    args.extend(option.split(' ').map(text));
                }
            }
            command("XCLAIM", args)
        }
        19..=20 => {
            let start = range_end(words);
            let mut args = vec![key, group, consumer, text("0"), start];
            if words.prng.chance(60) {
                args.extend([text("COUNT"), words.number()]);
            }
            if words.prng.chance(30) {
                args.push(text("JUSTID"));
            }
            command("XAUTOCLAIM", args)
        }
        21..=22 => command("XINFO", vec![text("GROUPS"), key]),
        _ => {
            let consumers = command("XINFO", vec![text("CONSUMERS"), key, group]);
            compared(consumers, Match::Near(20_000))
        }
    }
}

fn reading(words: &mut Words<'_>, group: Vec<u8>, consumer: Vec<u8>) -> Command {
    let mut args = vec![text("GROUP"), group, consumer];
    if words.prng.chance(40) {
        args.extend([text("COUNT"), words.number()]);
    }
    if words.prng.chance(15) {
        args.push(text("NOACK"));
    }
    let keys = words.many(2, Words::key);
    let ids: Vec<_> =
        keys.iter().map(|_| if words.prng.chance(70) { text(">") } else { after(words) }).collect();
    args.push(text("STREAMS"));
    command("XREADGROUP", args.into_iter().chain(keys).chain(ids).collect())
}

fn xadd(words: &mut Words<'_>, key: Vec<u8>) -> Command {
    let mut args = vec![key];
    if words.prng.chance(10) {
        args.push(text("NOMKSTREAM"));
    }
    if words.prng.chance(20) {
        args.extend(trimming(words));
    }
    args.push(if words.prng.chance(20) { id(words) } else { next_id(words) });
    for _ in 0..=words.index(3) {
        args.extend([words.field(), words.value()]);
    }
    command("XADD", args)
}

/// An ID that is probably not above all others.
fn id(words: &mut Words<'_>) -> Vec<u8> {
    let ms = words.prng.below(300);
    match words.prng.below(8) {
        0 => text(ms),
        1 => words.odd(),
        2 => words.pick(&["0-0", "18446744073709551615-18446744073709551615", "-", "+", "007-+1"]),
        _ => text(format!("{ms}-{}", words.prng.below(3))),
    }
}

/// An ID that is probably above all others, after some hundred of them.
fn next_id(words: &mut Words<'_>) -> Vec<u8> {
    let ms = words.prng.below(300) + 1;
    text(format!("{ms}-*"))
}

/// An end of a range of IDs.
fn range_end(words: &mut Words<'_>) -> Vec<u8> {
    match words.prng.below(6) {
        0 => text("-"),
        1 => text("+"),
        2 => [b"(".to_vec(), id(words)].concat(),
        _ => id(words),
    }
}

/// An ID for XREAD.
fn after(words: &mut Words<'_>) -> Vec<u8> {
    match words.prng.below(6) {
        0 => text("$"),
        1 => words.pick(&[">", "(1", "x", "*"]),
        _ => match id(words) {
            // Only Redis 7.4 and later have this ID.
            plus if plus == b"+" => text("0"),
            id => id,
        },
    }
}

fn trimming(words: &mut Words<'_>) -> Vec<Vec<u8>> {
    let strategy = words.pick(&["MAXLEN", "MINID", "maxlen"]);
    let mut args = vec![strategy];
    if words.prng.chance(30) {
        args.push(text("="));
    }
    args.push(if words.prng.chance(50) { words.number() } else { id(words) });
    if words.prng.chance(10) {
        args.extend([text("LIMIT"), words.number()]);
    }
    args
}

/// A command on keys, except DBSIZE: Redis counts expired keys until it finds them
/// (docs/compat.md). It is compared at the end, after all keys have been read.
fn keys(words: &mut Words<'_>) -> Command {
    let key = words.key();
    match words.prng.below(30) {
        0..=4 => mixed_write(words),
        5 => command("DEL", words.many(3, Words::key)),
        6 => command("UNLINK", words.many(2, Words::key)),
        7 => command(numeric(words, &["EXISTS", "TOUCH"]), words.many(5, Words::key)),
        8 => command("TYPE", vec![key]),
        9 | 10 => command("RENAME", vec![key, words.key()]),
        11 => command("RENAMENX", vec![key, words.key()]),
        12 | 13 => command("COPY", vec![key, words.key(), text("REPLACE")]),
        14 => command("COPY", vec![key, words.key()]),
        15..=18 => expire(words),
        19 => command("PERSIST", vec![key]),
        20 => compared(command("TTL", vec![key]), Match::Near(3)),
        21 => compared(command("PTTL", vec![key]), Match::Near(3000)),
        22 => {
            compared(command("KEYS", vec![words.pick(&["*", "?", "{t}*", "[ab]"])]), Match::Sorted)
        }
        23 => command("OBJECT", vec![text("ENCODING"), key]),
        24 => command("MOVE", vec![key, text(words.index(3))]),
        25 => command("OBJECT", vec![text("REFCOUNT"), key]),
        26 => command("HSCAN", vec![text("missing"), words.odd()]),
        27 => {
            let args = [text("GETKEYS"), text("SINTERCARD"), words.odd()];
            command("COMMAND", args.into_iter().chain(words.many(4, Words::key)).collect())
        }
        28 => command("SWAPDB", vec![text(0), text(words.index(3))]),
        _ => command("SELECT", vec![text(words.index(2))]),
    }
}

fn mixed_write(words: &mut Words<'_>) -> Command {
    match words.prng.below(4) {
        0 => set_with_options(words),
        1 => command("HSET", vec![words.key(), words.field(), words.value()]),
        2 => command("ZADD", vec![words.key(), words.score(), words.field()]),
        _ => command("SADD", with(words.key(), words.many(4, Words::field))),
    }
}

fn expire(words: &mut Words<'_>) -> Command {
    let key = words.key();
    let seconds = words.seconds();
    let mut made = match words.prng.below(4) {
        0 | 1 => command("EXPIRE", vec![key, text(seconds)]),
        2 => command("PEXPIRE", vec![key, text(seconds * 1000)]),
        _ => command("PEXPIREAT", vec![key, text(1)]),
    };
    if words.prng.chance(60) {
        made.words.push(words.pick(&["NX", "XX", "GT", "LT"]));
    }
    made
}

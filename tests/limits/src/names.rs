//! Names (keys, fields, members) of 256 KiB are handled within a slice; longer names take a longer
//! slice. The limit is `name-max-bytes`.
//!
//! A slice's time is the core's own CPU time, which a loaded machine sometimes prolongs; so each
//! command is tried several times, and the try with the shortest maximum counts.

use crate::{Asks, Check, Stage, ensure, text};
use darter_testkit::notation::show;
use darter_testkit::{Client, Reply};

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("names of 256 KiB stay within a slice",         Asks::More, slices),
    ("names beyond name-max-bytes are refused",      Asks::More, too_long),
    ("replies of long members leave in portions",    Asks::More, replies),
    ("long names are restored within a slice",       Asks::More, restores),
];

const BYTES: usize = 256 * 1024;
/// Four times the limit of a slice, because the tests' build is slower.
const SLICE_MAX_US: u64 = 2_000;
const TRIES: usize = 6;

/// A command, in which `A` to `D` stand for long names, and its reply. `A` and `D` have a common
/// prefix.
type Case = (&'static str, &'static str);

#[rustfmt::skip] // A table.
const CASES: &[Case] = &[
    ("SET A 1",                          "+OK"),
    ("GET A",                            "$1\r\n1"),
    ("EXISTS A B",                       ":1"),
    ("RENAME A A",                       "+OK"),
    ("RENAME A B",                       "+OK"),
    ("COPY B A REPLACE",                 ":1"),
    ("MSET A 1 B 2",                     "+OK"),
    ("DEL A B",                          ":2"),
    ("HSET h A 1",                       ":1"),
    ("HGET h A",                         "$1\r\n1"),
    ("HSETEX h EX 1000 FIELDS 2 A 1 B 2", ":1"),
    ("HPEXPIRE h 1000000 FIELDS 1 A",    "*1\r\n:1"),
    ("HDEL h A B",                       ":2"),
    ("SADD s A B",                       ":2"),
    ("SISMEMBER s A",                    ":1"),
    ("SMOVE s t A",                      ":1"),
    ("SINTERCARD 2 s s",                 ":1"),
    ("SREM s B",                         ":1"),
    ("HSET C A 1",                       ":1"),
    ("HPEXPIRE C 1000000 FIELDS 1 A",    "*1\r\n:1"),
    ("DEL C s t h",                      ":2"),
    ("HSET A f 1",                       ":1"),
    ("HSET D f 1",                       ":1"),
    ("HPEXPIREAT A 9999999999999 FIELDS 1 f", "*1\r\n:1"),
    ("HPEXPIREAT D 9999999999999 FIELDS 1 f", "*1\r\n:1"),
    ("DEL A D",                          ":2"),
];

fn slices(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    let names = names();
    let mut longest = vec![u64::MAX; CASES.len()];
    for _ in 0..TRIES {
        for (longest, (line, wanted)) in longest.iter_mut().zip(CASES) {
            *longest = slice_max(&mut client, line, wanted, &names)?.min(*longest);
        }
        if longest.iter().all(|us| *us < SLICE_MAX_US) {
            return Ok(());
        }
    }
    let line = |(us, case): (&u64, &Case)| format!("{}: {us} us", case.0);
    Err(longest.iter().zip(CASES).map(line).collect::<Vec<_>>().join(", "))
}

fn names() -> [String; 4] {
    let [a, b, c] = ["a", "b", "c"].map(|letter| letter.repeat(BYTES));
    let d = format!("{}d", &a[1..]);
    [a, b, c, d]
}

/// Too long names are refused in every place and context; a value of that length is accepted.
fn too_long(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    client.words("CONFIG SET name-max-bytes 1mb").map_err(text)?;
    let long = "n".repeat((1 << 20) + 1);
    let script = "return redis.pcall('HSET', 'h', ARGV[1], '1')";
    #[rustfmt::skip] // A table.
    let refused: &[&[&str]] = &[
        &["GET", &long], &["SET", &long, "v"], &["HSET", "h", &long, "v"], &["SADD", "s", &long],
        &["ZADD", "z", "1", &long], &["DEL", "k", &long], &["EVAL", script, "0", &long],
    ];
    for words in refused {
        let reply = client.command(words).map_err(text)?;
        let is_refused = show(&reply, 200).contains("is longer than name-max-bytes (1048576)");
        ensure(is_refused, || format!("{}: {}", words[0], show(&reply, 200)))?;
    }
    for words in [["SET", "k", long.as_str()], ["LPUSH", "l", &long], ["APPEND", "k", &long]] {
        let reply = client.command(&words).map_err(text)?;
        ensure(!reply.is_error(), || format!("{}: {}", words[0], show(&reply, 200)))?;
    }
    let most = &long[1..];
    let reply = client.command(&["SET", most, "v"]).map_err(text)?;
    ensure(reply.text() == Some(b"OK"), || show(&reply, 200))
}

/// Members of a collection, and their length; 1 MiB in all.
const MEMBERS: &[u8] = b"abcdefgh";
const MEMBER_BYTES: usize = 128 * 1024;

/// Commands over collections of all the members, and how many members each replies with.
#[rustfmt::skip] // A table.
const READS: &[(&str, usize)] = &[
    ("SMEMBERS s",               8),
    ("SINTER s s",               8),
    ("SUNION s one",             8),
    ("SDIFF s one",              7),
    ("SRANDMEMBER s",            1),
    ("SRANDMEMBER s 5",          5),
    ("SRANDMEMBER s -9",         9),
    ("SSCAN s 0",                8),
    ("SUNIONSTORE t s",          0),
    ("SPOP t",                   1),
    ("SPOP t 5",                 5),
    ("SPOP t 9",                 2),
    ("HGETALL h",                8),
    ("HKEYS h",                  8),
    ("HRANDFIELD h",             1),
    ("HRANDFIELD h 5",           5),
    ("HSCAN h 0",                8),
    ("ZRANGE z 0 -1 WITHSCORES", 8),
    ("ZRANDMEMBER z",            1),
    ("ZRANDMEMBER z 5",          5),
    ("ZSCAN z 0",                8),
    ("ZUNION 1 z",               8),
    ("ZUNIONSTORE y 1 z",        0),
    ("ZPOPMIN y 3",              3),
    ("ZPOPMAX y",                1),
    ("GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 1 km WITHCOORD", 8),
    ("KEYS *",                   8),
    ("SORT s ALPHA",             8),
    ("SORT s BY w:*",            8),
    ("SORT s BY nosort GET * GET #", 8),
    ("SORT s BY * GET # STORE t", 0),
];

fn replies(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    for byte in MEMBERS {
        let member = vec![*byte; MEMBER_BYTES];
        let adds: [&[&[u8]]; 5] = [
            &[b"SADD", b"s", &member],
            &[b"HSET", b"h", &member, b"1"],
            &[b"ZADD", b"z", b"1", &member],
            &[b"GEOADD", b"g", b"1", b"1", &member],
            &[b"SET", &member, b"1"],
        ];
        for add in adds {
            let reply = client.command(add).map_err(text)?;
            ensure(!reply.is_error(), || show(&reply, 200))?;
        }
    }
    client.command(&[&b"SADD"[..], b"one", &vec![b'a'; MEMBER_BYTES]]).map_err(text)?;
    let mut longest = vec![u64::MAX; READS.len()];
    for _ in 0..TRIES {
        for (longest, (line, members)) in longest.iter_mut().zip(READS) {
            *longest = read_slice_max(&mut client, line, *members)?.min(*longest);
        }
        if longest.iter().all(|us| *us < SLICE_MAX_US) {
            return Ok(());
        }
    }
    let line = |(us, case): (&u64, &(&str, usize))| format!("{}: {us} us", case.0);
    Err(longest.iter().zip(READS).map(line).collect::<Vec<_>>().join(", "))
}

fn restores(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    let member = vec![b'm'; MEMBER_BYTES];
    let adds: [&[&[u8]]; 4] = [
        &[b"SADD", b"s", &member, b"other"],
        &[b"HSET", b"h", &member, b"1", b"other", &member],
        &[b"ZADD", b"z", b"1", &member, b"2", b"other"],
        &[b"RPUSH", b"l", &member, b"other"],
    ];
    let mut payloads = Vec::new();
    for add in adds {
        client.command(add).map_err(text)?;
        let dump = client.command(&[b"DUMP", add[1]]).map_err(text)?;
        payloads.push(dump.text().ok_or("nothing was dumped")?.to_vec());
    }
    let mut longest = vec![u64::MAX; payloads.len()];
    for _ in 0..TRIES {
        for (longest, payload) in longest.iter_mut().zip(&payloads) {
            client.words("CONFIG RESETSTAT").map_err(text)?;
            let restore = [&b"RESTORE"[..], b"r", b"0", payload, b"REPLACE"];
            let reply = client.command(&restore).map_err(text)?;
            ensure(reply.text() == Some(b"OK"), || show(&reply, 200))?;
            while number(&mut client, "INFO memory", "lazyfree_pending_objects:")? > 0 {}
            *longest = number(&mut client, "INFO slices", "slice_max_us:")?.min(*longest);
            let dump = client.words("DUMP r").map_err(text)?;
            ensure(dump.text() == Some(payload), || "another value".to_owned())?;
        }
    }
    ensure(longest.iter().all(|us| *us < SLICE_MAX_US), || format!("{longest:?} us"))
}

/// Runs a command that replies with this many members. Returns its longest slice.
fn read_slice_max(client: &mut Client, line: &str, members: usize) -> Result<u64, String> {
    client.words("CONFIG RESETSTAT").map_err(text)?;
    let reply = client.words(line).map_err(text)?;
    let (mut found, mut waiting) = (0, vec![&reply]);
    while let Some(reply) = waiting.pop() {
        waiting.extend(reply.items().unwrap_or_default());
        let Some(member) = reply.text().filter(|text| text.len() == MEMBER_BYTES) else { continue };
        found += usize::from(member.iter().all(|byte| *byte == member[0]));
    }
    ensure(found == members, || format!("{line}: {found} members"))?;
    while number(client, "INFO memory", "lazyfree_pending_objects:")? > 0 {}
    number(client, "INFO slices", "slice_max_us:")
}

/// Runs a command. Returns its longest slice in microseconds, including deferred frees.
fn slice_max(
    client: &mut Client,
    line: &str,
    wanted: &str,
    names: &[String; 4],
) -> Result<u64, String> {
    let spelled = |word| match word {
        "A" => &names[0],
        "B" => &names[1],
        "C" => &names[2],
        "D" => &names[3],
        word => word,
    };
    let words: Vec<&str> = line.split(' ').map(spelled).collect();
    client.words("CONFIG RESETSTAT").map_err(text)?;
    let reply = client.command(&words).map_err(text)?;
    let encoded = reply.encode();
    let is_right = encoded.strip_suffix(b"\r\n") == Some(wanted.as_bytes());
    ensure(is_right, || format!("{line}: {}", show(&reply, 200)))?;
    while number(client, "INFO memory", "lazyfree_pending_objects:")? > 0 {}
    number(client, "INFO slices", "slice_max_us:")
}

fn number(client: &mut Client, command: &str, field: &str) -> Result<u64, String> {
    let info: Reply = client.words(command).map_err(text)?;
    let info = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
    let value = info.lines().find_map(|line| line.strip_prefix(field));
    value.and_then(|value| value.trim().parse().ok()).ok_or_else(|| format!("no {field} in {info}"))
}

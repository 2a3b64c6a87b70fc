//! Function libraries: in files exchanged with redis-server; and libraries that are very large,
//! very many, or never finish loading.

use crate::{Asks, Check, Stage, ensure, text};
use darter_testkit::{Client, Reply, Server};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("redis-server loads saved libraries, and the other way round", Asks::AsRedis, both_ways),
    ("a file with a library that cannot be loaded is refused",      Asks::More,    refused),
    ("an endless library blocks no client",                         Asks::More,    endless),
    ("a library of ten megabytes",                                  Asks::AsRedis, large),
    ("ten thousand functions, and as many libraries",               Asks::AsRedis, many),
];

/// The longest wait for a reply, on a busy machine.
const SOON: Duration = Duration::from_millis(400);

fn say(client: &mut Client, words: &[&[u8]]) -> Result<Reply, String> {
    let reply = client.command(words).map_err(text)?;
    ensure(!matches!(reply, Reply::Error(_)), || format!("{:?}: {reply:?}", words[0]))?;
    Ok(reply)
}

fn load(client: &mut Client, code: &str) -> Result<Reply, String> {
    say(client, &[b"FUNCTION", b"LOAD", code.as_bytes()])
}

/// Libraries with compressed and uncompressed texts, several functions, and zero bytes.
fn fill(client: &mut Client) -> Result<(), String> {
    for at in 0..40 {
        let body = ["x", "abcdefghij", "\u{1}\u{2}"][at % 3].repeat(at * at * 20);
        let code = format!(
            "#!lua name=lib{at}\nlocal text = '{body}'\nredis.register_function{{function_name = \
             'len{at}', callback = function() return #text end, flags = {{'no-writes'}}, \
             description = 'of {at}'}}\nredis.register_function('name{at}', function(keys, args) \
             return redis.call('SET', keys[1], args[1]) end)"
        );
        load(client, &code)?;
    }
    say(client, &[b"SET", b"k", b"v"]).map(drop)
}

/// The libraries, in order, and the replies of some of their functions.
fn told(client: &mut Client) -> Result<Vec<Reply>, String> {
    let Reply::Array(mut all) = say(client, &[b"FUNCTION", b"LIST", b"WITHCODE"])? else {
        return Err("FUNCTION LIST is no array".into());
    };
    for library in &mut all {
        if let Reply::Array(fields) = library
            && let Some(Reply::Array(functions)) = fields.get_mut(5)
        {
            functions.sort();
        }
    }
    all.sort();
    for at in 0..40 {
        all.push(say(client, &[b"FCALL_RO", format!("LEN{at}").as_bytes(), b"0"])?);
        let name = format!("name{at}");
        all.push(say(client, &[b"FCALL", name.as_bytes(), b"1", b"k", b"v"])?);
    }
    Ok(all)
}

fn start_on(stage: &Stage, folder: &Path) -> Result<Server, String> {
    let place = |new: &Path| fs::copy(folder.join("dump.rdb"), new.join("dump.rdb")).map(|_| ());
    Server::subject_in(stage.shape, &[], place).map_err(text)
}

fn both_ways(stage: &Stage) -> Result<(), String> {
    let here = stage.server_with(&[])?;
    let mut client = here.client().map_err(text)?;
    fill(&mut client)?;
    say(&mut client, &[b"SAVE"])?;
    let ours = told(&mut client)?;
    let there = Server::oracle().map_err(text)?;
    let mut oracle = there.client().map_err(text)?;
    fs::copy(here.folder().join("dump.rdb"), there.folder().join("dump.rdb")).map_err(text)?;
    say(&mut oracle, &[b"DEBUG", b"RELOAD", b"NOSAVE", b"NOFLUSH", b"MERGE"])?;
    let same = |what: &str, theirs: &[Reply]| {
        ensure(ours == theirs, || format!("{what}: {} libraries differ", theirs.len()))
    };
    same("loaded by redis-server", &told(&mut oracle)?)?;
    say(&mut oracle, &[b"SAVE"])?;
    for (what, folder) in [("loaded here", here.folder()), ("saved there", there.folder())] {
        let again = start_on(stage, folder)?;
        same(what, &told(&mut again.client().map_err(text)?)?)?;
    }
    // Functions also arrive in payloads.
    let Reply::Bulk(payload) = say(&mut oracle, &[b"FUNCTION", b"DUMP"])? else {
        return Err("FUNCTION DUMP is no bulk".into());
    };
    say(&mut client, &[b"FUNCTION", b"RESTORE", &payload, b"FLUSH"])?;
    same("restored here", &told(&mut client)?)?;
    let Reply::Bulk(payload) = say(&mut client, &[b"FUNCTION", b"DUMP"])? else {
        return Err("FUNCTION DUMP is no bulk".into());
    };
    say(&mut oracle, &[b"FUNCTION", b"RESTORE", &payload, b"FLUSH"])?;
    same("restored by redis-server", &told(&mut oracle)?)
}

/// The library's text is damaged. The error must name the file's offset, because the library has no
/// checksum.
fn refused(stage: &Stage) -> Result<(), String> {
    let code = b"#!lua name=a\nredis.call('GET', 'x')";
    let mut file = b"REDIS0010\xf5".to_vec();
    file.push(u8::try_from(code.len()).map_err(text)?);
    file.extend_from_slice(code);
    file.extend_from_slice(b"\xff\0\0\0\0\0\0\0\0");
    let place = |new: &Path| fs::write(new.join("dump.rdb"), &file);
    let started = Server::subject_in(stage.shape, &[], place);
    ensure(started.is_err(), || "it has started".to_owned())
}

fn endless(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let (mut client, mut other) = (server.client().map_err(text)?, server.client().map_err(text)?);
    let code = b"#!lua name=a\nwhile true do end";
    let words: [&[u8]; 3] = [b"FUNCTION", b"LOAD", code];
    client.send(&darter_testkit::client::encode(&words)).map_err(text)?;
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    while begun.elapsed() < Duration::from_millis(300) {
        let asked = Instant::now();
        say(&mut other, &[b"SET", b"k", b"v"])?;
        longest = longest.max(asked.elapsed());
    }
    ensure(longest < SOON, || format!("somebody waited for {longest:?}"))?;
    let reply = client.receive().map_err(text)?.encode();
    let wanted = b"-ERR Error registering functions: ERR FUNCTION LOAD timeout\r\n";
    ensure(reply == wanted, || reply.escape_ascii().to_string())
}

fn large(stage: &Stage) -> Result<(), String> {
    const BYTES: usize = 10 << 20;
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    let body = "x".repeat(BYTES);
    let register = "redis.register_function('len', function() return #s end)";
    load(&mut client, &format!("#!lua name=large\nlocal s = '{body}' {register}"))?;
    for _ in 0..3 {
        let len = say(&mut client, &[b"FCALL", b"len", b"0"])?;
        ensure(len == Reply::Int(BYTES as i64), || format!("{len:?}"))?;
    }
    let Reply::Bulk(payload) = say(&mut client, &[b"FUNCTION", b"DUMP"])? else {
        return Err("FUNCTION DUMP is no bulk".into());
    };
    say(&mut client, &[b"FUNCTION", b"RESTORE", &payload, b"REPLACE"])?;
    let listed = say(&mut client, &[b"FUNCTION", b"LIST", b"WITHCODE"])?.encode();
    ensure(listed.len() > BYTES, || format!("{} bytes", listed.len()))?;
    say(&mut client, &[b"FUNCTION", b"DELETE", b"large"]).map(drop)
}

fn many(stage: &Stage) -> Result<(), String> {
    const COUNT: usize = 10_000;
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    let body = "redis.register_function('f' .. i, function() return i end)";
    load(&mut client, &format!("#!lua name=many\nfor i = 1, {COUNT} do {body} end"))?;
    let last = say(&mut client, &[b"FCALL", format!("F{COUNT}").as_bytes(), b"0"])?;
    ensure(last == Reply::Int(COUNT as i64), || format!("{last:?}"))?;
    for at in 0..COUNT {
        let body = format!("redis.register_function('g{at}', function() return {at} end)");
        load(&mut client, &format!("#!lua name=lib{at}\n{body}"))?;
    }
    let middle = say(&mut client, &[b"FCALL", b"g5000", b"0"])?;
    ensure(middle == Reply::Int(5_000), || format!("{middle:?}"))?;
    let stats = say(&mut client, &[b"FUNCTION", b"STATS"])?.encode();
    let counts = format!(":{}\r\n$15\r\nfunctions_count\r\n:{}\r\n", COUNT + 1, 2 * COUNT);
    ensure(stats.ends_with(counts.as_bytes()), || stats.escape_ascii().to_string())?;
    let taken =
        [&b"FUNCTION"[..], b"LOAD", b"#!lua name=x\nredis.register_function('F7', redis.log)"];
    let taken = client.command(&taken).map_err(text)?.encode();
    ensure(taken == b"-ERR Function F7 already exists\r\n", || taken.escape_ascii().to_string())?;
    say(&mut client, &[b"FUNCTION", b"FLUSH"])?;
    let gone = client.words("FCALL g1 0").map_err(text)?;
    ensure(gone.is_error(), || format!("{gone:?}"))
}

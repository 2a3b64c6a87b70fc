//! Input: headers that announce too much, endless lines, single bytes, pipelines longer than
//! memory.

use crate::{Asks, Check, Stage, ensure, text};
use darter_testkit::client::encode;
use darter_testkit::notation::show;
use darter_testkit::{Client, Server};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("a header of a billion elements allocates nothing",     Asks::AsRedis, billion_elements),
    ("a header of 512 MiB allocates nothing",                Asks::AsRedis, large_bulk),
    ("a header of 2 GiB is refused",                         Asks::AsRedis, too_large_bulk),
    ("an inline line without end is refused",                Asks::AsRedis, endless_inline),
    ("a header line without end is refused",                 Asks::AsRedis, endless_header),
    ("a client that sends a byte at a time delays no other", Asks::AsRedis, slow_sender),
    ("random bytes are survived",                            Asks::AsRedis, random_bytes),
    ("a pipeline longer than memory",                        Asks::More,    endless_pipeline),
    ("a million arguments in one command",                   Asks::AsRedis, million_arguments),
    ("huge unknown words are refused by their first bytes",  Asks::More,    huge_words),
    ("requests that would exceed maxmemory are refused",     Asks::More,    beyond_maxmemory),
    ("a gap longer than memory is refused",                  Asks::More,    endless_gap),
    ("settings are text",                                    Asks::More,    settings_are_text),
];

fn growth(server: &Server, before: u64) -> u64 {
    server.process().resident_bytes().saturating_sub(before)
}

fn must_answer(server: &Server) -> Result<(), String> {
    let pong = server.client().map_err(text)?.words("PING").map_err(text)?;
    ensure(pong.text() == Some(b"PONG"), || format!("PING: {pong:?}"))
}

/// Opens connections that each send `bytes`. Returns the growth of the server's memory.
fn growth_by(stage: &Stage, bytes: &[u8], connections: usize) -> Result<u64, String> {
    let server = stage.server()?;
    let mut clients = Vec::new();
    for _ in 0..connections {
        clients.push(server.client().map_err(text)?);
    }
    let before = server.process().resident_bytes();
    for client in &mut clients {
        client.send(bytes).map_err(text)?;
    }
    must_answer(&server)?; // A turn after all of it was read.
    must_answer(&server)?;
    Ok(growth(&server, before))
}

fn billion_elements(stage: &Stage) -> Result<(), String> {
    let grown = growth_by(stage, b"*1000000000\r\n$3\r\nDEL\r\n", 20)?;
    ensure(grown < 8 * MIB, || format!("20 such headers took {grown} bytes"))
}

fn large_bulk(stage: &Stage) -> Result<(), String> {
    let bytes = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nfirst bytes";
    let grown = growth_by(stage, bytes, 20)?;
    ensure(grown < 8 * MIB, || format!("20 such headers took {grown} bytes"))
}

fn too_large_bulk(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    client.send(b"*2\r\n$3\r\nGET\r\n$2147483648\r\n").map_err(text)?;
    let answer = client.read_to_end().map_err(text)?;
    let wanted: &[u8] = b"-ERR Protocol error: invalid bulk length\r\n";
    ensure(answer == wanted, || format!("{:?}", String::from_utf8_lossy(&answer)))
}

fn refuses_endless(stage: &Stage, filler: &[u8], wanted: &[u8]) -> Result<(), String> {
    let server = stage.server()?;
    let before = server.process().resident_bytes();
    let mut client = server.client().map_err(text)?;
    let mut sent = 0;
    for _ in 0..2_000 {
        if client.send(filler).is_err() {
            break; // The server has closed.
        }
        sent += filler.len();
    }
    ensure(sent < 100 * 1024 * 1024, || "it was never refused".to_owned())?;
    let grown = growth(&server, before);
    ensure(grown < 16 * MIB, || format!("it took {grown} bytes"))?;
    must_answer(&server)?;
    // Slightly more than the first 64 KiB, so that the reply is not lost in a reset.
    let mut client = server.client().map_err(text)?;
    let fill = filler.iter().copied().cycle().take(66 * 1024).collect::<Vec<u8>>();
    client.send(&fill).map_err(text)?;
    let answer = client.read_to_end().map_err(text)?;
    ensure(answer == wanted || answer.is_empty(), || {
        format!("{:?}", String::from_utf8_lossy(&answer))
    })
}

fn endless_inline(stage: &Stage) -> Result<(), String> {
    let wanted = b"-ERR Protocol error: too big inline request\r\n";
    refuses_endless(stage, &[b'a'; 64 * 1024], wanted)
}

fn endless_header(stage: &Stage) -> Result<(), String> {
    let wanted = b"-ERR Protocol error: too big mbulk count string\r\n";
    let mut first = vec![b'*'];
    first.extend_from_slice(&[b'1'; 64 * 1024 - 1]);
    refuses_endless(stage, &first, wanted)
}

fn slow_sender(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let mut slow = server.client().map_err(text)?;
    let mut other = server.client().map_err(text)?;
    let command = encode(&["SET", "slow", "value"]);
    let mut longest = Duration::ZERO;
    for byte in &command {
        slow.send(&[*byte]).map_err(text)?;
        let start = Instant::now();
        for _ in 0..5 {
            other.words("PING").map_err(text)?;
        }
        longest = longest.max(start.elapsed() / 5);
    }
    let reply = slow.receive().map_err(text)?;
    ensure(reply.text() == Some(b"OK"), || format!("{reply:?}"))?;
    ensure(longest < Duration::from_millis(100), || format!("another waited {longest:?}"))
}

fn random_bytes(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..300 {
        let mut bytes = Vec::new();
        for _ in 0..(round * 7 % 500 + 1) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
            // Mostly bytes with a meaning in the protocol.
            let alphabet = b"*$+-:\r\n0123456789 \"'GETSPINGx\x00\xff";
            let index = usize::try_from(state >> 33).unwrap_or(0) % alphabet.len();
            bytes.push(alphabet[index]);
        }
        let mut client = server.client().map_err(text)?;
        client.set_patience(Duration::from_millis(1)).map_err(text)?;
        let _ = client.send(&bytes);
        let _ = client.socket().read(&mut [0; 1024]);
    }
    must_answer(&server)
}

/// Sends for as long as the server receives, without reading. The server must stop at
/// `client-query-buffer-limit`, on the core of the key and on another.
fn endless_pipeline(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    server
        .client()
        .and_then(|mut client| client.command(&["SET", "k", &"v".repeat(10_000)]))
        .map_err(text)?;
    let mut admin = server.client().map_err(text)?;
    admin.words("CONFIG SET client-query-buffer-limit 4mb").map_err(text)?;
    let batch = encode(&["GET", "k"]).repeat(1_000);
    let mut silent = Vec::new();
    for _ in 0..2 {
        let client = server.client().map_err(text)?;
        let before = server.process().resident_bytes();
        let mut writer = client.socket();
        writer.set_write_timeout(Some(Duration::from_millis(500))).map_err(text)?;
        let mut batches = 0;
        while batches < 1_000 && writer.write_all(&batch).is_ok() {
            batches += 1;
        }
        ensure(batches < 1_000, || {
            "it took 20 MB of commands whose replies none reads".to_owned()
        })?;
        let grown = growth(&server, before);
        ensure(grown < 16 * MIB, || format!("it grew by {grown} bytes"))?;
        silent.push(client);
    }
    must_answer(&server)
}

fn million_arguments(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    let names: Vec<String> = (0..1_000_000).map(|i| format!("m{i}")).collect();
    let mut words = vec!["SADD", "s"];
    words.extend(names.iter().map(String::as_str));
    let added = client.command(&words).map_err(text)?;
    ensure(added.int() == Some(1_000_000), || format!("SADD: {}", show(&added, 200)))?;
    let count = Client::words(&mut client, "SCARD s").map_err(text)?;
    ensure(count.int() == Some(1_000_000), || format!("SCARD: {count:?}"))
}

/// Words of 128 MiB in place of names. None may be gathered, which would take another 128 MiB, and
/// tens of milliseconds in one slice.
fn huge_words(stage: &Stage) -> Result<(), String> {
    const BYTES: u64 = 128 * MIB;
    let huge = "x".repeat(BYTES as usize);
    #[rustfmt::skip] // A table.
    let cases: &[(&[&str], &str)] = &[
        (&[&huge],                              "-ERR unknown command 'xxx"),
        (&["FOO", &huge],                       "-ERR unknown command 'FOO', with args beginning with: 'xxx"),
        (&["OBJECT", &huge, "k"],               "-ERR unknown subcommand 'xxx"),
        (&["DEBUG", &huge, "k"],                "-ERR unknown subcommand or wrong number of arguments for 'xxx"),
        (&["CLIENT", "SETINFO", &huge, "v"],    "-ERR Unrecognized option 'xxx"),
        (&["CLIENT", "LIST", "TYPE", &huge],    "-ERR Unknown client type 'xxx"),
        (&["CLIENT", "NO-EVICT", &huge],        "-ERR syntax error"),
        (&["HELLO", "3", &huge],                "-ERR Syntax error in HELLO option 'xxx"),
        (&["CONFIG", "SET", &huge, "v"],        "-ERR Unknown option or number of arguments for CONFIG SET - 'xxx"),
        (&["LATENCY", "GRAPH", &huge],          "-ERR No samples available for event 'xxx"),
        (&["COMMAND", "INFO", &huge],           "*1\r\n$-1\r\n"),
        (&["COMMAND", "DOCS", &huge],           "*0\r\n"),
        (&["COMMAND", "GETKEYS", &huge, "k"],   "-ERR Invalid command specified"),
        (&["SET", "k", "v", &huge],             "-ERR syntax error"),
        (&["EXPIRE", "k", "1", &huge],          "-ERR Unsupported option xxx"),
        (&["INCRBY", "k", &huge],               "-ERR value is not an integer"),
    ];
    for (words, wanted) in cases {
        let server = stage.server()?;
        let name = || words[..words.len().min(2)].join(" ").chars().take(20).collect::<String>();
        let mut client = server.client().map_err(text)?;
        let before = server.process().resident_bytes();
        let reply = client.command(words).map_err(text)?;
        let encoded = reply.encode();
        let begins = encoded.starts_with(wanted.as_bytes()) && encoded.len() < 5_000;
        ensure(begins, || format!("{}: {}", name(), show(&reply, 200)))?;
        let peak = server.process().peak_bytes().saturating_sub(before);
        ensure(peak < BYTES * 3 / 2, || format!("{}: it took {peak} bytes", name()))?;
    }
    Ok(())
}

/// The length of a string is bounded: SETRANGE must not create a gap of any size.
fn endless_gap(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    client.words("CONFIG SET proto-max-bulk-len 9223372036854775807").map_err(text)?;
    let before = server.process().resident_bytes();
    for offset in ["9223372036854775806", "1099511627776", "4294967296"] {
        let reply = client.command(&["SETRANGE", "gap", offset, "x"]).map_err(text)?;
        let wanted: &[u8] = b"-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n";
        ensure(reply.encode() == wanted, || format!("{offset}: {reply:?}"))?;
    }
    let len = client.words("SETRANGE gap 4294967295 x").map_err(text)?;
    ensure(len.int() == Some(1 << 32), || format!("the longest gap: {len:?}"))?;
    let grown = growth(&server, before);
    ensure(grown < 8 * MIB, || format!("it took {grown} bytes"))?;
    let longer = client.words("APPEND gap x").map_err(text)?;
    ensure(longer.is_error(), || format!("APPEND: {longer:?}"))
}

/// Above `maxmemory`, commands that may grow data are refused, alone and in a pipeline, on all
/// cores; reads and deletes still work, and make room.
fn beyond_maxmemory(stage: &Stage) -> Result<(), String> {
    const OOM: &[u8] = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    let server = stage.server_with(&["--maxmemory", "24mb"])?;
    let mut client = server.client().map_err(text)?;
    let value = "v".repeat(300);
    let mut set = |at: usize| client.command(&["SET", &format!("key:{at}"), &value]).map_err(text);
    let full = (0..100_000).find_map(|at| match set(at) {
        Ok(reply) if reply.is_error() => Some(Ok(reply)),
        Ok(_) => None,
        Err(why) => Some(Err(why)),
    });
    let refusal = full.ok_or("24 MB were never full")??;
    ensure(refusal.encode() == OOM, || format!("{refusal:?}"))?;
    let growing = ["SET a b", "MSET a b c d", "APPEND key:1 x", "HSET h f v", "SADD s m", "INCR n"];
    let bytes: Vec<u8> =
        growing.iter().flat_map(|line| encode(&line.split(' ').collect::<Vec<&str>>())).collect();
    client.send(&bytes).map_err(text)?;
    for line in growing {
        let reply = client.receive().map_err(text)?;
        ensure(reply.encode() == OOM, || format!("{line}: {reply:?}"))?;
    }
    let read = client.words("GET key:1").map_err(text)?;
    ensure(read.text() == Some(value.as_bytes()), || format!("GET: {}", show(&read, 100)))?;
    let kept = client.words("RENAME key:1 moved").map_err(text)?;
    ensure(kept.text() == Some(b"OK"), || format!("RENAME: {kept:?}"))?;
    let gone = client.words("FLUSHALL").map_err(text)?;
    ensure(gone.text() == Some(b"OK"), || format!("FLUSHALL: {gone:?}"))?;
    let start = Instant::now();
    while client.words("SET a b").map_err(text)?.is_error() {
        ensure(start.elapsed() < Duration::from_secs(5), || "no room after FLUSHALL".to_owned())?;
    }
    Ok(())
}

/// A password that is not UTF-8 is refused: it would never match the argument of AUTH, and lock out
/// all clients.
fn settings_are_text(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    let words: [&[u8]; 6] = [b"CONFIG", b"SET", b"timeout", b"7", b"requirepass", b"p\xff"];
    let reply = client.command(&words).map_err(text)?.encode();
    let wanted = b"-ERR CONFIG SET failed (possibly related to argument 'requirepass')";
    ensure(reply.starts_with(wanted), || format!("{}", reply.escape_ascii()))?;
    let timeout = client.words("CONFIG GET timeout").map_err(text)?.encode();
    ensure(timeout.ends_with(b"$1\r\n0\r\n"), || format!("{}", timeout.escape_ascii()))?;
    must_answer(&server)
}

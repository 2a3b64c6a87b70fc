//! Pipelines longer than the receive buffers, over several cores, and with a change of protocol in
//! the middle; and the client of each command in the slow log.
//!
//! Always with two cores: a single core has no order to keep.

use crate::memory::reported;
use crate::{Asks, Check, Stage, ensure, text};
use darter_testkit::client::encode;
use darter_testkit::notation::show;
use darter_testkit::{Client, Reply, Server, Shape};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("a pipeline is answered when its client reads late",    Asks::AsRedis, late_reader),
    ("a pipeline may be written whole before it is read",    Asks::AsRedis, written_whole),
    ("a backlog goes with its client",                       Asks::More,    backlog_goes),
    ("the first long replies of other cores are bounded",    Asks::More,    first_long_replies),
    ("suspended work continues after its client has gone",   Asks::More,    rest_of_the_gone),
    ("requests for a core that sleeps are bounded",          Asks::More,    sleeping_core),
    ("a request longer than the receive buffers",            Asks::AsRedis, long_request),
    ("HELLO in a pipeline over two cores",                   Asks::AsRedis, hello_midway),
    ("SIGTERM answers what two cores received",              Asks::AsRedis, sigterm),
    ("CLIENT PAUSE holds a pipeline and keeps its order",    Asks::AsRedis, pause),
    ("of two CLIENT PAUSEs the stricter and the later stay", Asks::AsRedis, pauses),
    ("others are answered during floods over two cores",     Asks::AsRedis, flood),
    ("a pipeline over two cores is seen in its order",       Asks::AsRedis, seen_in_order),
    ("SLOWLOG tells the client, however a command ran",      Asks::AsRedis, slowlog_clients),
    ("SLOWLOG counts what a job takes, once",                Asks::More,    slowlog_job),
];

fn two_cores(stage: &Stage) -> Result<Server, String> {
    Server::subject(Shape { cores: 2, ..stage.shape }).map_err(text)
}

/// Fifty keys, so that no core has all of them.
fn key(at: usize) -> String {
    format!("key:{}", at % 50)
}

/// Sends `bytes` from another thread, because the server may stop receiving; meanwhile runs `then`.
fn while_sending(
    mut socket: TcpStream,
    bytes: &[u8],
    then: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    std::thread::scope(|scope| {
        let closer = socket.try_clone().map_err(text)?;
        let sender = scope.spawn(move || socket.write_all(bytes));
        let outcome = then();
        if outcome.is_err() {
            let _ = closer.shutdown(Shutdown::Both); // Makes the other thread end.
        }
        let sent = sender.join().map_err(|_| "the sender panicked".to_owned())?;
        outcome.and_then(|()| sent.map_err(text))
    })
}

/// Lets the server run some turns in which `client`'s replies are not read.
fn let_turn(server: &Server) -> Result<(), String> {
    let mut other = server.client().map_err(text)?;
    for _ in 0..200 {
        other.words("PING").map_err(text)?;
    }
    Ok(())
}

/// 20 MB of replies are requested by 1 MB of requests before the first reply is read: the server
/// stops receiving, and must resume.
fn late_reader(stage: &Stage) -> Result<(), String> {
    const COUNT: usize = 20_000;
    let server = two_cores(stage)?;
    let mut client = server.client().map_err(text)?;
    let (value, padding) = ("v".repeat(1_000), "p".repeat(30));
    let name = |at: usize| format!("{padding}{}", key(at));
    for at in 0..50 {
        client.command(&["SET", &name(at), &value]).map_err(text)?;
    }
    let bytes: Vec<u8> = (0..COUNT).flat_map(|at| encode(&["GET", &name(at)])).collect();
    let socket = client.socket().try_clone().map_err(text)?;
    while_sending(socket, &bytes, || {
        let_turn(&server)?;
        for at in 0..COUNT {
            let reply = client.receive().map_err(|error| format!("reply {at}: {error}"))?;
            ensure(reply.text() == Some(value.as_bytes()), || format!("reply {at}: {reply:?}"))?;
        }
        Ok(())
    })
}

/// Requests in [`long_pipeline`].
const WRITTEN: usize = 400_000;

/// A pipeline whose requests (37 MB) and replies (83 MB) both exceed all socket buffers.
fn long_pipeline(server: &Server) -> Result<(Client, Vec<u8>), String> {
    let name = |at: usize| format!("{}{}", "p".repeat(60), key(at));
    let mut client = server.client().map_err(text)?;
    for at in 0..50 {
        client.command(&["SET", &name(at), &"v".repeat(200)]).map_err(text)?;
    }
    client.socket().set_write_timeout(Some(Duration::from_secs(30))).map_err(text)?;
    Ok((client, (0..WRITTEN).flat_map(|at| encode(&["GET", &name(at)])).collect()))
}

/// As redis-py's `pipeline` and Jedis do: one thread writes everything, and then reads.
fn written_whole(stage: &Stage) -> Result<(), String> {
    let server = two_cores(stage)?;
    let (mut client, pipeline) = long_pipeline(&server)?;
    client.send(&pipeline).map_err(|error| format!("writing: {error}"))?;
    for at in 0..WRITTEN {
        let reply = client.receive().map_err(|error| format!("reply {at}: {error}"))?;
        ensure(reply.text().is_some_and(|text| text.len() == 200), || format!("reply {at}"))?;
    }
    let held = reported(&mut client, "memory", "used_memory")?;
    ensure(held < 64 << 20, || format!("{held} bytes are still held"))
}

/// A client that disconnects during a long pipeline leaves no memory behind.
fn backlog_goes(stage: &Stage) -> Result<(), String> {
    let server = two_cores(stage)?;
    let mut other = server.client().map_err(text)?;
    let mut used = || reported(&mut other, "memory", "used_memory");
    let before = used()?;
    let (mut client, pipeline) = long_pipeline(&server)?;
    client.send(&pipeline).map_err(|error| format!("writing: {error}"))?;
    let held = used()?.saturating_sub(before);
    ensure(held > 1 << 20, || format!("only {held} bytes are held: nothing is behind"))?;
    drop(client);
    let until = Instant::now() + Duration::from_secs(10);
    while used()?.saturating_sub(before) > 1 << 20 {
        ensure(Instant::now() < until, || "it is still held after 10 s".to_owned())?;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Clients whose replies were short so far request long ones, and read none. The server must not
/// have learnt from the short ones to prepare 20 MB for each. Read later, all of it arrives.
fn first_long_replies(stage: &Stage) -> Result<(), String> {
    const CLIENTS: usize = 8;
    const SHORT: usize = 4_000;
    const ROUNDS: usize = 4;
    const LONG: usize = 2_000;
    const BOUND_BYTES: u64 = 30 << 20;
    let server = two_cores(stage)?;
    let mut one = server.client().map_err(text)?;
    let value = "v".repeat(10_000);
    for at in 0..50 {
        one.command(&["SET", &key(at), &value]).map_err(text)?;
    }
    let pipeline = |name: &str, count: usize| -> Vec<u8> {
        (0..count).flat_map(|at| encode(&[name, &key(at)])).collect()
    };
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = server.client().map_err(text)?;
        for _ in 0..ROUNDS {
            client.send(&pipeline("STRLEN", SHORT)).map_err(text)?;
            for _ in 0..SHORT {
                client.receive().map_err(text)?;
            }
        }
        clients.push(client);
    }
    let before = server.process().resident_bytes();
    for client in &mut clients {
        client.send(&pipeline("GET", LONG)).map_err(text)?;
    }
    let_turn(&server)?;
    let grown = server.process().resident_bytes().saturating_sub(before);
    ensure(grown < BOUND_BYTES, || format!("{CLIENTS} clients who do not read: {grown} bytes"))?;
    drop(clients.pop()); // Disconnects without having read anything.
    for client in &mut clients {
        for at in 0..LONG {
            let reply = client.receive().map_err(|error| format!("reply {at}: {error}"))?;
            ensure(reply.text() == Some(value.as_bytes()), || format!("reply {at}"))?;
        }
    }
    Ok(())
}

/// Two clients, one on each core, request 2 MB of one core's values and then set a key, in one
/// send, and disconnect without reading. Requests already sent to the other core still run;
/// requests that their own core has not started do not.
fn rest_of_the_gone(stage: &Stage) -> Result<(), String> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let server = two_cores(stage)?;
    let mut other = server.client().map_err(text)?;
    other.command(&["SET", "{k}", &"v".repeat(60_000)]).map_err(text)?;
    let mut clients = [server.client().map_err(text)?, server.client().map_err(text)?];
    for (client, name) in clients.iter_mut().zip(["{k}:0", "{k}:1"]) {
        let mut bytes = encode(&["GET", "{k}"]).repeat(30);
        bytes.extend(encode(&["SET", name, "done"]));
        client.send(&bytes).map_err(text)?;
    }
    let_turn(&server)?;
    drop(clients);
    let start = Instant::now();
    loop {
        let done = other.words("EXISTS {k}:0 {k}:1").map_err(text)?;
        if done.int() >= Some(1) {
            return Ok(());
        }
        ensure(start.elapsed() < PATIENCE, || "what rested never went on".to_owned())?;
    }
}

/// One core is blocked for two seconds while clients send 40 MB each, half of it for that core. Its
/// requests are received up to `client-query-buffer-limit` before it can run them.
fn sleeping_core(stage: &Stage) -> Result<(), String> {
    const CLIENTS: usize = 8;
    const SETS: usize = 100;
    const BOUND_BYTES: u64 = 60 << 20; // The clients send 320 MB.
    let shape = Shape { cores: 2, ..stage.shape };
    let server = Server::subject_with(shape, &["--enable-debug-command", "yes"]).map_err(text)?;
    let value = "v".repeat(400_000);
    let sets: Vec<u8> = (0..SETS).flat_map(|at| encode(&["SET", &key(at), &value])).collect();
    let mut one = server.client().map_err(text)?;
    one.send(&sets[..sets.len() / 2]).map_err(text)?;
    (0..SETS / 2).try_for_each(|_| one.receive().map(drop)).map_err(text)?;
    one.words("CONFIG SET client-query-buffer-limit 2mb").map_err(text)?;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(server.client().map_err(text)?);
    }
    let before = server.process().resident_bytes();
    one.send(&encode(&["DEBUG", "SLEEP", "2"])).map_err(text)?;
    let mut grown = 0;
    std::thread::scope(|scope| {
        for client in &clients {
            let (mut socket, sets) = (client.socket(), &sets);
            scope.spawn(move || socket.write_all(sets));
        }
        std::thread::sleep(Duration::from_millis(1_500));
        grown = server.process().resident_bytes().saturating_sub(before);
    });
    for client in &mut clients {
        for at in 0..SETS {
            let reply = client.receive().map_err(|error| format!("reply {at}: {error}"))?;
            ensure(reply.text() == Some(b"OK"), || format!("reply {at}: {reply:?}"))?;
        }
    }
    ensure(grown < BOUND_BYTES, || format!("{CLIENTS} clients took {grown} bytes"))
}

/// Unread replies are followed by a request of 3 MB, in many arguments, then one in a single
/// argument: neither is complete when receiving pauses, and nothing else will resume it.
fn long_request(stage: &Stage) -> Result<(), String> {
    let server = two_cores(stage)?;
    let mut client = server.client().map_err(text)?;
    let big = "x".repeat(2_000_000);
    client.command(&["SET", "big", &big]).map_err(text)?;
    let members: Vec<String> = (0..150_000).map(|at| format!("member:{at:07}")).collect();
    let mut words = vec!["SADD", "set"];
    words.extend(members.iter().map(String::as_str));
    let mut bytes = encode(&["GET", "big"]).repeat(2);
    bytes.extend(encode(&words));
    bytes.extend(encode(&["GET", "big"]));
    bytes.extend(encode(&["SET", "other", &"y".repeat(3_000_000)]));
    bytes.extend(encode(&["STRLEN", "other"]));
    let socket = client.socket().try_clone().map_err(text)?;
    while_sending(socket, &bytes, || {
        let_turn(&server)?;
        let lens = [2_000_000, 2_000_000, 0, 2_000_000].map(Some);
        for (at, wanted) in lens.into_iter().enumerate() {
            let reply = client.receive().map_err(|error| format!("reply {at}: {error}"))?;
            let len = reply.int().map_or_else(|| reply.text().map(<[u8]>::len), |_| Some(0));
            ensure(len == wanted, || format!("reply {at}: {}", show(&reply, 200)))?;
            ensure(len != Some(0) || reply.int() == Some(150_000), || format!("{reply:?}"))?;
        }
        let set = client.receive().map_err(text)?;
        ensure(set.text() == Some(b"OK"), || format!("SET: {set:?}"))?;
        let len = client.receive().map_err(text)?;
        ensure(len.int() == Some(3_000_000), || format!("STRLEN: {len:?}"))
    })
}

/// One send: hashes are written and read in RESP2, in RESP3, and in RESP2 again.
fn hello_midway(stage: &Stage) -> Result<(), String> {
    let server = two_cores(stage)?;
    let mut client = server.client().map_err(text)?;
    let reads: Vec<u8> = (0..50).flat_map(|at| encode(&["HGETALL", &key(at)])).collect();
    let mut bytes: Vec<u8> =
        (0..50).flat_map(|at| encode(&["HSET", &key(at), "at", &at.to_string()])).collect();
    for hello in ["3", "2"] {
        bytes.extend(&reads);
        bytes.extend(encode(&["HELLO", hello]));
    }
    bytes.extend(&reads);
    client.send(&bytes).map_err(text)?;
    for at in 0..50 {
        let added = client.receive().map_err(text)?;
        ensure(added.int() == Some(1), || format!("HSET {at}: {added:?}"))?;
    }
    let word = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
    for (round, is_map) in [false, true, false].into_iter().enumerate() {
        for at in 0..50 {
            let reply = client.receive().map_err(text)?;
            let (field, value) = (word("at"), word(&at.to_string()));
            let pair = vec![field, value];
            let wanted = if is_map { Reply::Map(pair) } else { Reply::Array(pair) };
            ensure(reply == wanted, || format!("round {round}, {at}: {reply:?}"))?;
        }
        if round < 2 {
            let hello = client.receive().map_err(text)?;
            let is_right = matches!(hello, Reply::Map(_)) == (round == 0);
            ensure(is_right, || format!("HELLO of round {round}: {}", show(&hello, 200)))?;
        }
    }
    Ok(())
}

/// Commands for one key, for a key of another core, and for keys of both, then the signal:
/// everything received is answered in order, and the server exits with 0.
fn sigterm(stage: &Stage) -> Result<(), String> {
    const ROUNDS: usize = 200;
    let mut server = two_cores(stage)?;
    let mut client = server.client().map_err(text)?;
    let mut bytes = Vec::new();
    for at in 0..ROUNDS {
        bytes.extend(encode(&["INCR", &key(at)]));
        bytes.extend(encode(&["MSET", "a", &at.to_string(), "b", "2", "c", "3", "d", "4"]));
        bytes.extend(encode(&["GET", "a"]));
    }
    client.send(&bytes).map_err(text)?;
    let first = client.receive_raw().map_err(text)?;
    server.signal(Signal::TERM).map_err(text)?;
    let mut answer = first;
    answer.extend(client.read_to_end().map_err(text)?);
    let mut wanted = Vec::new();
    for at in 0..ROUNDS {
        let value = at.to_string();
        let line = format!(":{}\r\n+OK\r\n${}\r\n{value}\r\n", at / 50 + 1, value.len());
        wanted.extend(line.into_bytes());
    }
    ensure(answer == wanted, || {
        let same = answer.iter().zip(&wanted).take_while(|(one, other)| one == other).count();
        let rest = &answer[same..answer.len().min(same + 80)];
        format!("{} of {} bytes, then {:?}", same, wanted.len(), String::from_utf8_lossy(rest))
    })?;
    let status = server.wait_for_exit(Duration::from_secs(5)).map_err(text)?;
    let status = status.ok_or("it runs on")?;
    ensure(status.code() == Some(0), || format!("{status}; its log:\n{}", server.log()))
}

/// Writes wait for the end of the pause, and so do later commands of the same client; reads by
/// others do not.
fn pause(stage: &Stage) -> Result<(), String> {
    let server = two_cores(stage)?;
    let (mut client, mut other) = (server.client().map_err(text)?, server.client().map_err(text)?);
    let mut bytes = Vec::new();
    for at in 0..100 {
        bytes.extend(encode(&["INCR", &key(at)]));
        bytes.extend(encode(&["GET", &key(at)]));
    }
    other.words("CLIENT PAUSE 100000 WRITE").map_err(text)?;
    client.send(&bytes).map_err(text)?;
    for at in 0..50 {
        let value = other.command(&["GET", &key(at)]).map_err(text)?;
        ensure(value == Reply::NullBulk, || format!("{at}: {value:?}"))?;
    }
    other.words("CLIENT UNPAUSE").map_err(text)?;
    for at in 0..100 {
        let wanted: i64 = if at < 50 { 1 } else { 2 };
        let count = client.receive().map_err(|error| format!("INCR {at}: {error}"))?;
        ensure(count.int() == Some(wanted), || format!("INCR {at}: {count:?}"))?;
        let value = client.receive().map_err(|error| format!("GET {at}: {error}"))?;
        let wanted = wanted.to_string();
        ensure(value.text() == Some(wanted.as_bytes()), || format!("GET {at}: {value:?}"))?;
    }
    Ok(())
}

/// During a pause of all commands nothing is answered, not even the command that ends it. The
/// longest of several pauses applies.
fn pauses(stage: &Stage) -> Result<(), String> {
    const LONG: Duration = Duration::from_millis(600);
    let server = two_cores(stage)?;
    let (mut client, mut other) = (server.client().map_err(text)?, server.client().map_err(text)?);
    for words in ["GET k", "CONFIG GET port", "CLIENT UNPAUSE"] {
        let begun = Instant::now();
        client.words(&format!("CLIENT PAUSE {} WRITE", LONG.as_millis())).map_err(text)?;
        client.words("CLIENT PAUSE 1 ALL").map_err(text)?;
        other.words(words).map_err(text)?;
        // The server counts whole milliseconds.
        let waited = begun.elapsed() + Duration::from_millis(2);
        ensure(waited >= LONG, || format!("{words}: {waited:?}"))?;
    }
    Ok(())
}

/// The rows of the slow log, oldest first, without the newest: the SET of the limit itself.
fn slow_rows(client: &mut Client) -> Result<Vec<Vec<Reply>>, String> {
    let log = client.words("SLOWLOG GET -1").map_err(text)?;
    let rows = log.items().ok_or_else(|| format!("SLOWLOG GET: {log:?}"))?;
    let rows = rows.iter().filter_map(Reply::items).map(<[Reply]>::to_vec);
    Ok(rows.rev().collect())
}

fn slowlog_clients(stage: &Stage) -> Result<(), String> {
    let server = two_cores(stage)?;
    let mut client = server.client().map_err(text)?;
    client.words("CLIENT SETNAME teller").map_err(text)?;
    client.words("CONFIG SET slowlog-log-slower-than 0").map_err(text)?;
    client.words("SLOWLOG RESET").map_err(text)?;
    let lines = ["SET a 1", "SET b 1", "SET c 1", "SET d 1", "MSET a 1 b 1 c 1 d 1", "PING"];
    for line in lines {
        client.words(line).map_err(text)?;
    }
    client.words("CONFIG SET slowlog-log-slower-than -1").map_err(text)?;
    let rows = slow_rows(&mut client)?;
    let own = client.socket().local_addr().map_err(text)?.to_string();
    for line in lines {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let is_it = |row: &&Vec<Reply>| {
            let args: Option<Vec<&[u8]>> =
                row[3].items().map(|args| args.iter().filter_map(Reply::text).collect());
            args.as_ref() == Some(&words)
        };
        let found: Vec<&Vec<Reply>> = rows.iter().filter(is_it).collect();
        ensure(found.len() == 1, || format!("{line}: {} entries", found.len()))?;
        let (peer, name) = (found[0][4].text(), found[0][5].text());
        ensure(peer == Some(own.as_bytes()), || format!("{line} came from {peer:?}, not {own}"))?;
        ensure(name == Some(b"teller"), || format!("{line} was sent by {name:?}"))?;
    }
    Ok(())
}

/// A long SADD is one entry with its total time, which commandstats also reports.
fn slowlog_job(stage: &Stage) -> Result<(), String> {
    let server = two_cores(stage)?;
    let mut client = server.client().map_err(text)?;
    client.words("CONFIG SET slowlog-log-slower-than 0").map_err(text)?;
    for set in ["{a}", "{b}", "{c}", "{d}"] {
        client.words("SLOWLOG RESET").map_err(text)?;
        client.words("CONFIG RESETSTAT").map_err(text)?;
        let members: Vec<String> = (0..20_000).map(|at| at.to_string()).collect();
        let mut words = vec!["SADD", set];
        words.extend(members.iter().map(String::as_str));
        client.command(&words).map_err(text)?;
        let rows = slow_rows(&mut client)?;
        let is_it =
            |row: &&Vec<Reply>| row[3].items().is_some_and(|args| args[0].text() == Some(b"SADD"));
        let found: Vec<i64> = rows.iter().filter(is_it).filter_map(|row| row[2].int()).collect();
        ensure(found.len() == 1 && found[0] >= 500, || format!("{set}: {found:?} us"))?;
        let info = client.words("INFO commandstats").map_err(text)?;
        let info = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
        let line = info.lines().find(|line| line.starts_with("cmdstat_sadd:")).unwrap_or_default();
        let usec = line.split("usec=").nth(1).and_then(|rest| rest.split(',').next());
        let usec: i64 = usec.and_then(|text| text.parse().ok()).unwrap_or(0);
        ensure(usec >= found[0], || format!("{} us in the log, but {line}", found[0]))?;
    }
    Ok(())
}

/// Four clients keep both cores busy with work for each other, until all requests of two other
/// clients are answered.
fn flood(stage: &Stage) -> Result<(), String> {
    const CLIENTS: usize = 4;
    const ASKED: usize = 300;
    let server = two_cores(stage)?;
    let clients: Result<Vec<Client>, String> =
        (0..CLIENTS).map(|_| server.client().map_err(text)).collect();
    let clients = clients?;
    let socket = |client: &Client| client.socket().try_clone().map_err(text);
    let writers: Vec<TcpStream> = clients.iter().map(socket).collect::<Result<_, _>>()?;
    let readers: Vec<TcpStream> = clients.iter().map(socket).collect::<Result<_, _>>()?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (at, (writer, reader)) in writers.into_iter().zip(readers).enumerate() {
            let over = &over;
            scope.spawn(move || drain(reader));
            scope.spawn(move || pour(writer, at, over));
        }
        let outcome = ask_often(&server, ASKED);
        over.store(true, Ordering::SeqCst); // Ends the floods, and thus their readers.
        outcome
    })
}

fn ask_often(server: &Server, times: usize) -> Result<(), String> {
    let mut clients = [server.client().map_err(text)?, server.client().map_err(text)?];
    for at in 0..times {
        for (number, client) in clients.iter_mut().enumerate() {
            let value = format!("{number}:{at}");
            let set = client.command(&["SET", &key(at), &value]).map_err(text)?;
            ensure(set.text() == Some(b"OK"), || format!("{at}: {set:?}"))?;
            let got = client.command(&["GET", &key(at)]).map_err(text)?;
            ensure(got.text() == Some(value.as_bytes()), || format!("{at}: {got:?}"))?;
        }
    }
    Ok(())
}

/// Sends HSETs of a hundred fields, on one key after another, until `over`.
fn pour(mut socket: TcpStream, client: usize, over: &AtomicBool) {
    let mut number = 0;
    while !over.load(Ordering::SeqCst) {
        let key = format!("flood:{client}:{}", number % 8);
        let fields: Vec<String> = (0..200).map(|at| format!("{}", (number + at) % 5_000)).collect();
        let mut words = vec!["HSET", &key];
        words.extend(fields.iter().map(String::as_str));
        if socket.write_all(&encode(&words)).is_err() {
            break;
        }
        number += 1;
    }
    let _ = socket.shutdown(Shutdown::Both);
}

fn drain(mut socket: TcpStream) {
    let mut bytes = [0; 4_096];
    while socket.read(&mut bytes).is_ok_and(|read| read > 0) {}
}

/// One client pipelines numbers, each to a key on one core and then to a key on the other. Eight
/// observers read the later key, then the earlier one, which must have that number as well.
fn seen_in_order(stage: &Stage) -> Result<(), String> {
    const WATCHERS: usize = 8;
    let server = two_cores(stage)?;
    let pairs = [[of_core(0), of_core(1)], [of_core(1), of_core(0)]].map(|pair| {
        let [earlier, later] = pair;
        [format!("earlier:{{{earlier}}}:{later}"), format!("later:{{{later}}}:{earlier}")]
    });
    let until = Instant::now() + stage.soak.max(Duration::from_secs(2));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = || {
            let mut looks = (0_u64, 0_u64);
            let mut client = server.client().map_err(text)?;
            while !is_over.load(Ordering::Relaxed) {
                for [earlier, later] in &pairs {
                    let seen = number(&mut client, later)?;
                    looks.0 += 1;
                    looks.1 += u64::from(number(&mut client, earlier)? < seen);
                }
            }
            Ok::<_, String>(looks)
        };
        let mut writer = server.client().map_err(text)?;
        let watchers: Vec<_> = (0..WATCHERS).map(|_| scope.spawn(watch)).collect();
        let written = write_pairs(&mut writer, &pairs, until);
        is_over.store(true, Ordering::Relaxed);
        let (mut looks, mut wrong) = (0, 0);
        for watcher in watchers {
            let (all, out_of_order) =
                watcher.join().map_err(|_| "a watcher panicked".to_owned())??;
            looks += all;
            wrong += out_of_order;
        }
        written?;
        ensure(looks > 1_000, || format!("only {looks} looks"))?;
        ensure(wrong == 0, || format!("{wrong} of {looks} looks out of order"))
    })
}

/// A name whose slot belongs to this core (of two).
fn of_core(core: usize) -> String {
    let mut names = (0..).map(|at| format!("name:{at}"));
    names.find(|name| darter_base::slot::owner_of(name.as_bytes(), 2) == core).unwrap_or_default()
}

fn number(client: &mut Client, key: &str) -> Result<u64, String> {
    let reply = client.words(&format!("GET {key}")).map_err(text)?;
    let digits = reply.text().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    Ok(digits.and_then(|digits| digits.parse().ok()).unwrap_or(0))
}

/// Writes numbers to pairs of keys, in pipelines of a few hundred commands.
fn write_pairs(client: &mut Client, pairs: &[[String; 2]], until: Instant) -> Result<(), String> {
    const NUMBERS: u64 = 100;
    let mut first = 1;
    while Instant::now() < until {
        let keys = |at: u64| pairs.iter().flatten().map(move |key| (key, at.to_string()));
        let sets = (first..first + NUMBERS).flat_map(keys);
        let bytes: Vec<u8> = sets.flat_map(|(key, at)| encode(&["SET", key, &at])).collect();
        client.send(&bytes).map_err(text)?;
        for _ in 0..NUMBERS * 4 {
            let reply = client.receive().map_err(text)?;
            ensure(!reply.is_error(), || format!("{reply:?}"))?;
        }
        first += NUMBERS;
    }
    Ok(())
}

//! Endless scripts, scripts with many commands, many scripts, and scripts with many arguments: no
//! other client waits, they can be killed at any time, and their memory is released.

use crate::subscribers::number_of;
use crate::{Asks, Check, Stage, ensure, slices, text};
use darter_testkit::client::encode;
use darter_testkit::{Client, Reply, Server};
use std::ops::Range;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// The longest delay until memory is freed, or a script ends.
const PATIENCE: Duration = Duration::from_secs(20);

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("an endless script blocks no client",           Asks::More,    endless),
    ("a killed script has changed nothing",          Asks::More,    undone),
    ("a script ends with its client",                Asks::More,    gone),
    ("a busy script keeps its keys, and no others",  Asks::More,    busy),
    ("SHUTDOWN NOSAVE ends an endless script",       Asks::AsRedis, shutdown),
    ("a script of many calls blocks no client",      Asks::More,    many_calls),
    ("very many scripts are given back",             Asks::AsRedis, flood),
    ("a script has very many keys and a huge reply", Asks::AsRedis, huge),
    ("large values of scripts make no long slice",   Asks::AsRedis, large_values),
    ("the memory of scripts is reported",            Asks::More,    told),
    ("the stacks of scripts are reported",           Asks::More,    stacks),
];

fn client(server: &Server) -> Result<Client, String> {
    let client = server.client().map_err(text)?;
    client.set_patience(Duration::from_secs(60)).map_err(text)?;
    Ok(client)
}

fn is(reply: &Reply, wanted: &str) -> Result<(), String> {
    ensure(reply.text() == Some(wanted.as_bytes()), || format!("{reply:?}, and not {wanted}"))
}

fn begins(reply: &Reply, wanted: &str) -> Result<(), String> {
    let line = reply.encode();
    ensure(line.starts_with(wanted.as_bytes()), || format!("{reply:?}, and not {wanted}"))
}

/// Repeats a command until its reply begins with this text.
fn until(client: &mut Client, line: &str, wanted: &str) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let reply = client.words(line).map_err(text)?;
        if reply.encode().starts_with(wanted.as_bytes()) {
            return Ok(());
        }
        ensure(begun.elapsed() < PATIENCE, || format!("{line}: {reply:?}, and not {wanted}"))?;
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a request whose reply is read later.
fn start(client: &mut Client, words: &[&str]) -> Result<(), String> {
    client.send(&encode(words)).map_err(text)
}

/// Checks that commands on other keys are served on all cores.
fn others_are_served(client: &mut Client) -> Result<(), String> {
    for at in 0..200 {
        let begun = Instant::now();
        is(&client.words(&format!("SET other:{at} v")).map_err(text)?, "OK")?;
        is(&client.words(&format!("GET other:{at}")).map_err(text)?, "v")?;
        let waited = begun.elapsed();
        ensure(waited < Duration::from_secs(1), || format!("two commands took {waited:?}"))?;
    }
    Ok(())
}

/// Three scripts at a time, killed one after another.
fn endless(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let mut other = client(&server)?;
    other.words("CONFIG RESETSTAT").map_err(text)?;
    let mut runs = Vec::new();
    for at in 0..3 {
        let mut run = client(&server)?;
        let body = "while true do pcall(function() redis.call('get', KEYS[1]) end) end";
        start(&mut run, &["EVAL", body, "1", &format!("key:{at}")])?;
        runs.push(run);
    }
    others_are_served(&mut other)?;
    for _ in &runs {
        until(&mut other, "SCRIPT KILL", "+OK")?;
    }
    for run in &mut runs {
        begins(&run.receive().map_err(text)?, "-ERR Script killed by user with SCRIPT KILL...")?;
        is(&run.words("PING").map_err(text)?, "PONG")?;
    }
    begins(&other.words("SCRIPT KILL").map_err(text)?, "-NOTBUSY")?;
    slices::are_short(&mut other)
}

fn undone(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let (mut run, mut other) = (client(&server)?, client(&server)?);
    for at in 0..20 {
        is(&other.words(&format!("SET key:{at} old")).map_err(text)?, "OK")?;
    }
    let body = "for i = 0, 19 do redis.call('set', 'key:' .. i, 'new') end
        redis.call('rpush', 'list', 'a') while true do end";
    start(&mut run, &["EVAL", body, "0"])?;
    until(&mut other, "SCRIPT KILL", "+OK")?;
    begins(&run.receive().map_err(text)?, "-ERR Script killed by user with SCRIPT KILL...")?;
    for at in 0..20 {
        is(&other.words(&format!("GET key:{at}")).map_err(text)?, "old")?;
    }
    let exists = other.words("EXISTS list").map_err(text)?;
    ensure(exists.int() == Some(0), || "the list has stayed".to_owned())
}

/// A script that only reads ends some time after its client half-closes. One that may write ends if
/// it has changed nothing and the connection is reset, which happens if a reply is unread.
fn gone(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let mut other = client(&server)?;
    for (command, body) in [
        ("EVAL_RO", "while true do end"),
        ("EVAL_RO", "while true do redis.call('get', 'key') end"),
        ("EVAL", "while true do end"),
        ("EVAL", "while true do redis.call('get', 'key') end"),
    ] {
        let mut run = client(&server)?;
        if command == "EVAL" {
            start(&mut run, &["PING"])?;
        }
        start(&mut run, &[command, body, "0"])?;
        others_are_served(&mut other)?;
        drop(run);
        let begun = Instant::now();
        while number_of(&mut other, "running_scripts")? > 0 {
            ensure(begun.elapsed() < PATIENCE, || format!("it still runs: {command} {body}"))?;
        }
    }
    begins(&other.words("SCRIPT KILL").map_err(text)?, "-NOTBUSY")
}

/// Clients waiting for a script's keys get BUSY when the time is over, and later ones at once.
/// Users of other keys do not, even if a save point is reached meanwhile.
fn busy(stage: &Stage) -> Result<(), String> {
    const WAITING: usize = 100;
    let server = stage.server_with(&["--busy-reply-threshold", "500", "--save", "1 1"])?;
    let (mut runs, mut other) = ([client(&server)?, client(&server)?], client(&server)?);
    let plain = "redis.call('set', KEYS[1], 1) redis.call('set', 'late', 1) while true do end";
    let calls = "while true do redis.call('incr', KEYS[1]) end";
    start(&mut runs[0], &["EVAL", plain, "1", "plain"])?;
    start(&mut runs[1], &["EVAL", calls, "1", "calls"])?;
    for called in ["cmdstat_set:calls=2", "cmdstat_incr:"] {
        let has = |reply: Reply| String::from_utf8_lossy(&reply.encode()).contains(called);
        while !has(other.words("INFO commandstats").map_err(text)?) {}
    }
    is(&other.words("SET change v").map_err(text)?, "OK")?;
    let lines: [&[&str]; 5] = [
        &["GET", "plain"],
        &["SET", "late", "v"],
        &["MSET", "a", "v", "late", "v", "b", "v"],
        &["EVAL", "return redis.call('get', 'calls')", "0"],
        &["BLMOVE", "calls", "a", "LEFT", "LEFT", "0"],
    ];
    let mut waiting = Vec::new();
    for at in 0..WAITING {
        let mut one = client(&server)?;
        start(&mut one, lines[at % lines.len()])?;
        waiting.push(one);
    }
    for (at, one) in waiting.iter_mut().enumerate() {
        let reply = one.receive().map_err(|error| format!("{at}: {error}"))?;
        begins(&reply, "-BUSY Redis is busy running a script.")?;
        is(&one.words("PING").map_err(text)?, "PONG")?;
    }
    for line in lines {
        begins(&other.command(line).map_err(text)?, "-BUSY Redis is busy running a script.")?;
    }
    ensure(server.logs(" changes in 1 seconds", PATIENCE), || server.log())?;
    others_are_served(&mut other)?;
    for at in 0..50 {
        is(&other.words(&format!("MSET one:{at} v two:{at} v three:{at} v")).map_err(text)?, "OK")?;
        is(&other.command(&["EVAL", "return ARGV[1]", "0", "v"]).map_err(text)?, "v")?;
    }
    for _ in &runs {
        until(&mut other, "SCRIPT KILL", "+OK")?;
    }
    for run in &mut runs {
        begins(&run.receive().map_err(text)?, "-ERR Script killed by user with SCRIPT KILL...")?;
    }
    is(&other.words("MSET plain v late v calls v").map_err(text)?, "OK")
}

fn shutdown(stage: &Stage) -> Result<(), String> {
    let mut server = stage.server_with(&["--busy-reply-threshold", "100"])?;
    let (mut run, mut other) = (client(&server)?, client(&server)?);
    let body = "redis.call('set', KEYS[1], 1) while true do end";
    start(&mut run, &["EVAL", body, "1", "key"])?;
    until(&mut other, "GET key", "-BUSY")?;
    begins(&other.words("SHUTDOWN").map_err(text)?, "-BUSY")?;
    start(&mut other, &["SHUTDOWN", "NOSAVE"])?;
    ensure(server.wait_for_exit(PATIENCE).map_err(text)?.is_some(), || "it runs on".into())
}

fn many_calls(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let (mut run, mut other) = (client(&server)?, client(&server)?);
    other.words("CONFIG RESETSTAT").map_err(text)?;
    let body =
        "for i = 1, 20000 do redis.call('incr', KEYS[1]) end return redis.call('get', KEYS[1])";
    start(&mut run, &["EVAL", body, "1", "key"])?;
    others_are_served(&mut other)?;
    is(&run.receive().map_err(text)?, "20000")?;
    is(&other.words("GET key").map_err(text)?, "20000")?;
    slices::are_short(&mut other)
}

fn flood(stage: &Stage) -> Result<(), String> {
    const COUNT: usize = 50_000;
    const AT_ONCE: usize = 1_000;
    let server = stage.server()?;
    let mut client = client(&server)?;
    let before = number_of(&mut client, "used_memory")?;
    for first in (0..COUNT).step_by(AT_ONCE) {
        let all = first..first + AT_ONCE;
        let line = |at| encode(&["EVAL", &format!("return {at}"), "0"]);
        client.send(&all.clone().flat_map(line).collect::<Vec<u8>>()).map_err(text)?;
        for at in all {
            let reply = client.receive().map_err(text)?;
            ensure(reply.int() == Some(at as i64), || format!("{reply:?}, and not {at}"))?;
        }
    }
    let known = number_of(&mut client, "number_of_cached_scripts")?;
    ensure(known == COUNT as u64, || format!("{known} scripts are known"))?;
    is(&client.words("SCRIPT FLUSH").map_err(text)?, "OK")?;
    let begun = Instant::now();
    loop {
        let used = number_of(&mut client, "used_memory")?;
        if used <= before + 24 * MIB {
            return Ok(());
        }
        ensure(begun.elapsed() < PATIENCE, || format!("{used} bytes stay of {before}"))?;
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn huge(stage: &Stage) -> Result<(), String> {
    const KEYS: usize = 200_000;
    let server = stage.server()?;
    let mut client = client(&server)?;
    let count = KEYS.to_string();
    let mut words = vec!["EVAL".to_owned(), "return KEYS".to_owned(), count];
    words.extend((0..KEYS).map(|at| format!("key:{at}")));
    let reply = client.command(&words).map_err(text)?;
    let keys = reply.items().ok_or("no array")?;
    ensure(keys.len() == KEYS, || format!("{} keys", keys.len()))?;
    is(&keys[KEYS - 1], &format!("key:{}", KEYS - 1))?;
    let body = "return string.rep('x', 50000000)";
    let reply = client.command(&["EVAL", body, "0"]).map_err(text)?;
    let length = reply.text().map_or(0, <[u8]>::len);
    ensure(length == 50_000_000, || format!("{length} bytes"))
}

/// Tables, strings and texts of many megabytes grow in portions, and are freed in portions.
fn large_values(stage: &Stage) -> Result<(), String> {
    const BODIES: &[&str] = &[
        "local t = {} for i = 1, 9000000 do t[i] = i end return #t",
        "local t = {} for i = 1, 1200000 do t[i + 0.5] = i end return 1",
        "local t = {} for i = 1, 5000000 do t[i] = 'abcdef' end return #table.concat(t)",
        "local t = {} for i = 1, 2000000 do t[i] = i end return #cjson.encode(t) + #cmsgpack.pack(t)",
    ];
    let server = stage.server()?;
    let mut client = client(&server)?;
    for body in BODIES {
        client.words("CONFIG RESETSTAT").map_err(text)?;
        let reply = client.command(&["EVAL", body, "0"]).map_err(text)?;
        ensure(reply.int() > Some(0), || format!("{body}: {reply:?}"))?;
        reaches(&mut client, "used_memory_vm_eval", 0..8 * MIB)?;
        slices::are_short(&mut client).map_err(|why| format!("{why} ({body})"))?;
    }
    Ok(())
}

/// Memory of machines (running, loading a library, idle) and of libraries is reported.
fn told(stage: &Stage) -> Result<(), String> {
    const FILL: &str = "local t = {} for i = 1, 16 do t[i] = ('x'):rep(1048576) .. i end";
    const FILLED: u64 = 16 * MIB;
    let server = stage.server()?;
    let (mut run, mut other) = (client(&server)?, client(&server)?);
    let before = number_of(&mut other, "used_memory")?;
    start(&mut run, &["EVAL", &format!("{FILL} while true do end"), "0"])?;
    reaches(&mut other, "used_memory_vm_eval", FILLED..2 * FILLED)?;
    let [used, resident] =
        ["used_memory", "used_memory_rss"].map(|name| number_of(&mut other, name));
    ensure(used? > before + FILLED && resident? > FILLED, || "less is used".into())?;
    reaches(&mut other, "used_memory_vm_functions", 0..MIB)?;
    until(&mut other, "SCRIPT KILL", "+OK")?;
    begins(&run.receive().map_err(text)?, "-ERR Script killed by user")?;
    reaches(&mut other, "used_memory_vm_eval", 0..8 * MIB)?;

    let library = format!("#!lua name=a\n{FILL} while true do end");
    start(&mut run, &["FUNCTION", "LOAD", &library])?;
    reaches(&mut other, "used_memory_vm_functions", FILLED..2 * FILLED)?;
    begins(&run.receive().map_err(text)?, "-ERR Error registering functions")?;

    let padding = "-".repeat(1 << 20);
    let library = format!("#!lua name=a\nredis.register_function('f', redis.log) --{padding}");
    is(&run.command(&["FUNCTION", "LOAD", &library]).map_err(text)?, "a")?;
    reaches(&mut other, "used_memory_functions", MIB..MIB + 4096)?;
    is(&run.words("FUNCTION FLUSH").map_err(text)?, "OK")?;
    reaches(&mut other, "used_memory_functions", 0..1)
}

/// Each running script has its own stack, of which it touches little; some stacks of ended scripts
/// are kept.
fn stacks(stage: &Stage) -> Result<(), String> {
    const RUNS: u64 = 200;
    /// The number of machines that a core keeps for later scripts.
    const KEPT: u64 = 16;
    let server = stage.server()?;
    let mut other = client(&server)?;
    reaches(&mut other, "script_stacks", 0..1)?;
    let before = number_of(&mut other, "used_memory_rss")?;
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let mut run = client(&server)?;
        start(&mut run, &["PING"])?; // Left unread, so that its end is a reset.
        start(&mut run, &["EVAL_RO", "while true do end", "0"])?;
        runs.push(run);
    }
    reaches(&mut other, "running_scripts", RUNS..RUNS + 1)?;
    reaches(&mut other, "script_stacks", RUNS..RUNS + KEPT)?;
    let mapped = number_of(&mut other, "script_stacks_mapped_bytes")?;
    ensure((RUNS * MIB..(RUNS + KEPT) * MIB).contains(&mapped), || format!("{mapped} bytes"))?;
    let resident = number_of(&mut other, "used_memory_rss")?.saturating_sub(before);
    ensure(resident < mapped / 2, || format!("{resident} of {mapped} bytes are resident"))?;
    drop(runs);
    let cores = stage.shape.cores as u64;
    reaches(&mut other, "running_scripts", 0..1)?;
    reaches(&mut other, "script_stacks", 1..KEPT * cores + 1)
}

/// Waits until a number of INFO is in this range.
fn reaches(client: &mut Client, name: &str, wanted: Range<u64>) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let number = number_of(client, name)?;
        if wanted.contains(&number) {
            return Ok(());
        }
        ensure(begun.elapsed() < PATIENCE, || format!("{name} is {number}, not in {wanted:?}"))?;
    }
}

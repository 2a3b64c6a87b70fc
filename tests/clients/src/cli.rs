//! redis-cli in its special modes, and redis-benchmark.

use crate::run::{program, run};
use crate::{Check, ensure, text};
use darter_testkit::Server;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("redis-cli plain commands",         plain),
    ("redis-cli help by COMMAND DOCS",   help),
    ("redis-cli --scan",                 scan),
    ("redis-cli --bigkeys",              bigkeys),
    ("redis-cli --memkeys",              memkeys),
    ("redis-cli --pipe",                 pipe),
    ("redis-cli --latency",              latency),
    ("redis-cli -3 --json",              json),
    ("redis-benchmark",                  benchmark),
    ("redis-benchmark with pipelines",   benchmark_pipelines),
    ("redis-benchmark with random keys", benchmark_random),
];

fn cli(server: &Server, args: &[&str], input: &[u8]) -> Result<String, String> {
    let port = server.port().to_string();
    run(program("redis-cli").args(["-p", &port]).args(args), input, LIMIT)
}

fn expect(output: &str, wanted: &str) -> Result<(), String> {
    ensure(output.contains(wanted), || format!("`{wanted}` is not in\n{output}"))
}

/// Stores a few thousand keys of each type, one of them largest.
fn fill(server: &Server) -> Result<(), String> {
    let mut client = server.client().map_err(text)?;
    for i in 0..2_000 {
        client.command(&["SET", &format!("string:{i}"), "v"]).map_err(text)?;
        client.command(&["HSET", &format!("hash:{i}"), "f", "v"]).map_err(text)?;
        client.command(&["SADD", &format!("set:{i}"), "m"]).map_err(text)?;
    }
    client.command(&["SET", "largest:string", &"x".repeat(12_345)]).map_err(text)?;
    for i in 0..700 {
        client.command(&["HSET", "largest:hash", &i.to_string(), "v"]).map_err(text)?;
        client.command(&["SADD", "largest:set", &format!("m{i}")]).map_err(text)?;
    }
    Ok(())
}

fn plain(server: &Server) -> Result<(), String> {
    ensure(cli(server, &["SET", "k", "v"], b"")? == "OK\n", || "SET".to_owned())?;
    ensure(cli(server, &["GET", "k"], b"")? == "v\n", || "GET".to_owned())?;
    let output = cli(server, &[], b"HSET h f v g w\nHGETALL h\nBOGUS\nSELECT 3\nPING\n")?;
    for wanted in ["2\n", "f\nv\n", "ERR unknown command 'BOGUS'", "OK\n", "PONG\n"] {
        expect(&output, wanted)?;
    }
    let repeated = cli(server, &["-r", "5", "INCR", "n"], b"")?;
    ensure(repeated == "1\n2\n3\n4\n5\n", || repeated.clone())
}

/// At a terminal redis-cli requests COMMAND DOCS, and builds its help and hints from that, even for
/// commands that it does not know.
fn help(server: &Server) -> Result<(), String> {
    let inner = format!("redis-cli -p {}", server.port());
    let mut terminal = program("script");
    terminal.args(["-qec", &inner, "/dev/null"]).env("TERM", "dumb");
    let output = run(&mut terminal, b"help hexpire\nhelp copy\nquit\n", LIMIT)?;
    for wanted in [
        "key seconds [NX|XX|GT|LT] FIELDS numfields field [field ...]",
        "source destination [DB destination-db] [REPLACE]",
    ] {
        expect(&output, wanted)?;
    }
    Ok(())
}

fn scan(server: &Server) -> Result<(), String> {
    fill(server)?;
    let all = cli(server, &["--scan"], b"")?;
    let mut names: Vec<&str> = all.lines().collect();
    names.sort_unstable();
    names.dedup();
    ensure(names.len() == 6_003, || format!("{} names", names.len()))?;
    let some = cli(server, &["--scan", "--pattern", "hash:1??"], b"")?;
    let mut names: Vec<&str> = some.lines().collect();
    names.sort_unstable();
    names.dedup();
    ensure(names.len() == 100, || format!("{} names match", names.len()))
}

fn bigkeys(server: &Server) -> Result<(), String> {
    fill(server)?;
    let output = cli(server, &["--bigkeys"], b"")?;
    for wanted in [
        "Sampled 6003 keys in the keyspace!",
        "Biggest string found '\"largest:string\"' has 12345 bytes",
        "Biggest   hash found '\"largest:hash\"' has 700 fields",
        "Biggest    set found '\"largest:set\"' has 700 members",
    ] {
        expect(&output, wanted)?;
    }
    Ok(())
}

fn memkeys(server: &Server) -> Result<(), String> {
    fill(server)?;
    let output = cli(server, &["--memkeys"], b"")?;
    for wanted in
        ["Sampled 6003 keys in the keyspace!", "Biggest string found '\"largest:string\"'"]
    {
        expect(&output, wanted)?;
    }
    Ok(())
}

fn pipe(server: &Server) -> Result<(), String> {
    let mut input = Vec::new();
    for i in 0..50_000 {
        input.extend(darter_testkit::client::encode(&["SET", &format!("k{i}"), "v"]));
    }
    input.extend_from_slice(b"*1\r\n$5\r\nBOGUS\r\n");
    let port = server.port().to_string();
    let mut command = program("redis-cli");
    // The program exits with 1 because of the one error, as it should.
    let outcome = run(command.args(["-p", &port, "--pipe"]), &input, LIMIT);
    let output = outcome.unwrap_or_else(|shown| shown);
    expect(&output, "errors: 1, replies: 50001")?;
    let count = server.client().and_then(|mut client| client.words("DBSIZE")).map_err(text)?;
    ensure(count.int() == Some(50_000), || format!("{count:?}"))
}

fn latency(server: &Server) -> Result<(), String> {
    let output = cli(server, &["--latency", "--raw"], b"")?;
    let numbers: Vec<f64> =
        output.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
    ensure(numbers.len() == 4, || format!("it printed {output}"))?;
    ensure(numbers[3] > 10.0, || format!("{} samples", numbers[3]))
}

fn json(server: &Server) -> Result<(), String> {
    cli(server, &["HSET", "h", "f", "v"], b"")?;
    let output = cli(server, &["-3", "--json", "HGETALL", "h"], b"")?;
    ensure(output.trim() == "{\"f\":\"v\"}", || output.clone())
}

fn bench(server: &Server, args: &[&str], tests: &str) -> Result<(), String> {
    let port = server.port().to_string();
    let mut command = program("redis-benchmark");
    command.args(["-p", &port, "--csv", "-t", tests]).args(args);
    let output = run(&mut command, b"", LIMIT)?;
    let rows = output.lines().filter(|line| line.starts_with('"')).count();
    let wanted = tests.split(',').count() + 1; // And the headings.
    ensure(rows >= wanted, || format!("{rows} rows of {wanted}:\n{output}"))
}

const TESTS: &str = "ping_inline,ping_mbulk,set,get,incr,sadd,hset,spop,mset";

fn benchmark(server: &Server) -> Result<(), String> {
    bench(server, &["-n", "10000"], TESTS)
}

fn benchmark_pipelines(server: &Server) -> Result<(), String> {
    bench(server, &["-n", "50000", "-P", "64", "-c", "20"], TESTS)
}

fn benchmark_random(server: &Server) -> Result<(), String> {
    bench(server, &["-n", "20000", "-P", "16", "-r", "5000", "-d", "500"], "set,get,incr,sadd,hset")
}

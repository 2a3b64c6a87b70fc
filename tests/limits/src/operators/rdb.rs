//! `darter rdb`, with files of redis-server and of Darter.

use super::{Scratch, darter, darter_good, shown};
use crate::saving::{digest, expect, fill, say};
use crate::{Stage, ensure, text};
use darter_base::Prng;
use darter_testkit::{Client, Server};
use std::fs;
use std::path::{Path, PathBuf};

/// Adds collections in their small and their large encodings.
fn fill_collections(client: &mut Client) -> Result<(), String> {
    for (at, items) in [3, 33, 400, 2_000].into_iter().enumerate() {
        for item in 0..items {
            say(client, &format!("RPUSH list-{at} element-{item}"))?;
            say(client, &format!("ZADD zset-{at} {item}.25 member-{item}"))?;
            say(client, &format!("SADD set-{at} member-{item}"))?;
            say(client, &format!("HSET hash-{at} field-{item} value-{item}"))?;
            say(client, &format!("XADD stream-{at} {}-1 name {item}", item + 1))?;
        }
        say(client, &format!("SADD ints-{at} 1 2 {at}"))?;
    }
    say(client, "ZADD infinite inf a -inf b 1e300 c 0.1 d")?;
    say(client, "XGROUP CREATE stream-1 group 0")?;
    say(client, "XREADGROUP GROUP group consumer COUNT 5 STREAMS stream-1 >")?;
    client
        .command(&[&b"RPUSH"[..], b"binary\xff\r\n", b"\x00\xff", b"", b"\xc3\xa9"])
        .map_err(text)?;
    client.command(&[&b"RPUSH"[..], b"long", &[b'x'; 20_000], b"y"]).map_err(text)?;
    let library = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    client.command(&["FUNCTION", "LOAD", library]).map_err(text)?;
    Ok(())
}

/// The RDB file of redis-server with all types, and the digest of its data.
fn file_of_redis(scratch: &Scratch) -> Result<(PathBuf, String), String> {
    let there = Server::oracle().map_err(text)?;
    let mut client = there.client().map_err(text)?;
    fill(&mut client, &mut Prng::from_seed(11))?;
    expect(&mut client, "SELECT 0", "OK")?;
    fill_collections(&mut client)?;
    expect(&mut client, "SAVE", "OK")?;
    let path = scratch.path("redis.rdb");
    fs::copy(there.folder().join("dump.rdb"), &path).map_err(text)?;
    Ok((path, digest(&mut client)?))
}

/// The digest and the number of libraries of a server that loads the file.
fn loaded(stage: Option<&Stage>, file: &Path) -> Result<(String, usize), String> {
    let is_rdb = shown(file).ends_with(".rdb");
    let name = if is_rdb { "dump.rdb" } else { "appendonly.aof" };
    let more: &[&str] = if is_rdb { &[] } else { &["--appendonly", "yes"] };
    let place = |folder: &Path| fs::copy(file, folder.join(name)).map(drop);
    let server = match stage {
        Some(stage) => Server::subject_in(stage.shape, more, place),
        None => Server::oracle_in(more, place),
    };
    let server = server.map_err(text)?;
    let mut client = server.client().map_err(text)?;
    let list = client.words("FUNCTION LIST").map_err(text)?;
    Ok((digest(&mut client)?, list.items().map_or(0, <[_]>::len)))
}

/// Converts `from` to the file `name`, whose end names the format.
fn converted(scratch: &Scratch, from: &[&Path], name: &str) -> Result<PathBuf, String> {
    let path = scratch.path(name);
    let format = if name.ends_with("jsonl") { "json" } else { &name[name.len() - 3..] };
    let mut words = vec!["rdb", "convert", "--to", format, "--output", shown(&path)];
    words.extend(from.iter().map(|path| shown(path)));
    darter_good(&words)?;
    Ok(path)
}

pub(super) fn round_trips(_: &Stage) -> Result<(), String> {
    let scratch = Scratch::new("rdb-trips")?;
    let (file, wanted) = file_of_redis(&scratch)?;
    let copy = converted(&scratch, &[&file], "copy.rdb")?;
    let commands = converted(&scratch, &[&file], "commands.aof")?;
    let lines = converted(&scratch, &[&file], "lines.jsonl")?;
    let from_lines = converted(&scratch, &[&lines], "lines.rdb")?;
    let lines_as_commands = converted(&scratch, &[&lines], "lines.aof")?;
    let prefix = scratch.path("part");
    darter_good(&["rdb", "split", "--parts", "3", "--output", shown(&prefix), shown(&file)])?;
    let parts = [0, 1, 2].map(|part| scratch.path(&format!("part.{part}.rdb")));
    let merged = converted(&scratch, &[&parts[0], &parts[1], &parts[2]], "merged.rdb")?;
    for path in [&copy, &commands, &from_lines, &lines_as_commands, &merged] {
        let (found, libraries) = loaded(None, path)?;
        ensure(found == wanted, || format!("{}: {found}, not {wanted}", path.display()))?;
        ensure(libraries == 1, || format!("{}: {libraries} libraries", path.display()))?;
    }
    let twice = scratch.path("twice.rdb");
    let words = ["rdb", "convert", "--to", "rdb", "-o", shown(&twice), shown(&file), shown(&file)];
    let ran = darter(&words)?;
    let is_refused = ran.code == Some(1) && ran.output.contains("written before");
    ensure(is_refused && !twice.exists(), || format!("{ran:?}"))
}

pub(super) fn own_types(stage: &Stage) -> Result<(), String> {
    let scratch = Scratch::new("rdb-own")?;
    let here = Server::subject(stage.shape).map_err(text)?;
    let mut client = here.client().map_err(text)?;
    fill(&mut client, &mut Prng::from_seed(12))?;
    expect(&mut client, "SELECT 0", "OK")?;
    for line in [
        "JSON.SET doc $ {\"a\":[1,2.5,\"x\"]}",
        "BF.ADD bloom a",
        "CF.ADD cuckoo a",
        "CMS.INITBYDIM sketch 100 5",
        "TOPK.RESERVE top 3",
        "TDIGEST.CREATE digest",
        "HSET fields a 1 b 2",
        "HPEXPIREAT fields 1900000000000 FIELDS 1 a",
    ] {
        let reply = client.words(line).map_err(text)?;
        ensure(!reply.is_error(), || format!("{line}: {reply:?}"))?;
    }
    fill_collections(&mut client)?;
    expect(&mut client, "SAVE", "OK")?;
    let wanted = digest(&mut client)?;
    let file = here.folder().join("dump.rdb");
    let lines = converted(&scratch, &[&file], "lines.jsonl")?;
    for path in [
        converted(&scratch, &[&file], "copy.rdb")?,
        converted(&scratch, &[&file], "commands.aof")?,
        converted(&scratch, &[&lines], "lines.rdb")?,
        converted(&scratch, &[&lines], "lines.aof")?,
    ] {
        let found = loaded(Some(stage), &path)?.0;
        ensure(found == wanted, || format!("{}: {found}, not {wanted}", path.display()))?;
    }
    Ok(())
}

/// A row of the table of keys.
struct Row {
    key: String,
    encoding: String,
    redis_bytes: f64,
    darter_bytes: f64,
}

fn rows(file: &Path) -> Result<Vec<Row>, String> {
    let output = darter_good(&["rdb", "--csv", shown(file)])?;
    let rows = output.lines().skip(1).filter(|line| line.starts_with("0,"));
    let rows: Option<Vec<Row>> = rows
        .filter(|line| !line.contains(['\\', '"']))
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            Some(Row {
                key: (*cells.get(2)?).to_owned(),
                redis_bytes: cells.get(3)?.parse().ok()?,
                encoding: (*cells.get(4)?).to_owned(),
                darter_bytes: cells.get(8)?.parse().ok()?,
            })
        })
        .collect();
    rows.ok_or_else(|| format!("no table of keys:\n{output}"))
}

/// The sizes of the keys are those of MEMORY USAGE in servers that have loaded the file.
/// Servers over which the sizes in Darter are averaged.
const SEEDS: usize = 5;

pub(super) fn sizes(stage: &Stage) -> Result<(), String> {
    let scratch = Scratch::new("rdb-sizes")?;
    let (file, _) = file_of_redis(&scratch)?;
    let place = |folder: &Path| fs::copy(&file, folder.join("dump.rdb")).map(drop);
    let there = Server::oracle_in(&[], place).map_err(text)?;
    // The size of a hash table depends on the random seed of the server.
    let here: Vec<Server> = (0..SEEDS)
        .map(|_| Server::subject_in(stage.shape, &[], place))
        .collect::<Result<_, _>>()
        .map_err(text)?;
    let mut there = there.client().map_err(text)?;
    let mut here: Vec<Client> =
        here.iter().map(Server::client).collect::<Result<_, _>>().map_err(text)?;
    let rows = rows(&file)?;
    ensure(rows.len() > 400, || format!("{} rows", rows.len()))?;
    for Row { key, encoding, redis_bytes, darter_bytes } in &rows {
        let usage = |client: &mut Client| -> Result<f64, String> {
            let words = ["MEMORY", "USAGE", key, "SAMPLES", "0"];
            let found = client.command(&words).map_err(text)?.int();
            found.map(|bytes| bytes as f64).ok_or_else(|| format!("{key}: no size"))
        };
        let redis = usage(&mut there)?;
        let darter = here.iter_mut().map(usage).sum::<Result<f64, _>>()? / SEEDS as f64;
        let allowed = match encoding.as_str() {
            "stream" => 0.25,
            "skiplist" | "quicklist" => 0.02,
            // Redis may still have the smaller table, which has half of the slots.
            "hashtable" => 0.2,
            _ => 0.0,
        };
        let error = (redis_bytes - redis).abs() / redis;
        ensure(error <= allowed, || format!("{key} ({encoding}): {redis_bytes}, Redis: {redis}"))?;
        let error = (darter_bytes - darter).abs() / darter;
        ensure(error <= 0.1, || format!("{key} ({encoding}): {darter_bytes}, Darter: {darter}"))?;
    }
    Ok(())
}

pub(super) fn filters(_: &Stage) -> Result<(), String> {
    let scratch = Scratch::new("rdb-filters")?;
    let (file, _) = file_of_redis(&scratch)?;
    for (name, words, wanted) in [
        ("type", &["--type", "zset", "--key", "zset-*"][..], 4),
        ("size", &["--key", "long", "--bytes-min", "100"], 1),
        ("none", &["--key", "long", "--bytes-min", "100000"], 0),
        ("database", &["--database", "0", "--key", "hash-?"], 4),
    ] {
        let path = scratch.path(&format!("{name}.rdb"));
        let base = ["rdb", "convert", "--to", "rdb", "-o", shown(&path), shown(&file)];
        let output = darter_good(&[&base[..], words].concat())?;
        ensure(output.starts_with(&format!("{wanted} keys")), || format!("{name}: {output}"))?;
        let report = darter_good(&["rdb", shown(&path)])?;
        ensure(report.starts_with(&format!("{wanted} keys,")), || format!("{name}: {report}"))?;
    }
    let shifted = scratch.path("shifted.rdb");
    let words = ["rdb", "convert", "--to", "rdb", "--deadlines", "drop"];
    darter_good(&[&words[..], &["-o", shown(&shifted), shown(&file)]].concat())?;
    let report = darter_good(&["rdb", "--json", "--expires", "yes", shown(&shifted)])?;
    ensure(report.contains("\"keys\": 0"), || report)
}

pub(super) fn damage(_: &Stage) -> Result<(), String> {
    let scratch = Scratch::new("rdb-damage")?;
    let (file, _) = file_of_redis(&scratch)?;
    let bytes = fs::read(&file).map_err(text)?;
    let damaged = scratch.path("damaged.rdb");
    let half = bytes.len() / 2;
    let mut flipped = bytes.clone();
    flipped[half] ^= 0x40;
    for (name, bytes) in [("cut", &bytes[..half]), ("flipped", &flipped), ("short", &bytes[..7])] {
        fs::write(&damaged, bytes).map_err(text)?;
        let output = scratch.path("output.rdb");
        let convert = ["rdb", "convert", "--to", "rdb", "-o", shown(&output), shown(&damaged)];
        for words in [&["rdb", shown(&damaged)][..], &convert] {
            let ran = darter(words)?;
            let is_told =
                ran.output.contains("damaged.rdb: ") && ran.output.contains(" at offset ");
            ensure(ran.code == Some(1) && is_told, || format!("{name}: {ran:?}"))?;
        }
        let left = fs::read_dir(&scratch.0).map_err(text)?.flatten();
        let names: Vec<_> = left.map(|entry| entry.file_name()).collect();
        ensure(names.len() == 2, || format!("{name}: a part of the output stays: {names:?}"))?;
    }
    Ok(())
}

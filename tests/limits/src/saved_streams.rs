//! Streams with consumer groups in snapshots. A digest does not include the state of groups, so the
//! replies of XINFO are compared as well.

use crate::{Asks, Check, Stage, ensure, text};
use darter_base::Prng;
use darter_testkit::{Client, Reply, Server};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("redis-server loads saved streams with their groups, and the other way round", Asks::AsRedis, both_ways),
    ("entries without a consumer are saved",                                        Asks::More,    given_back),
];

const STREAMS: u64 = 30;

fn say(client: &mut Client, words: &str) -> Result<Reply, String> {
    let reply = client.words(words).map_err(text)?;
    ensure(!matches!(reply, Reply::Error(_)), || format!("{words}: {reply:?}"))?;
    Ok(reply)
}

/// IDs of some of the first entries.
fn ids(prng: &mut Prng, entries: u64) -> String {
    (0..=prng.below(20)).fold(String::new(), |mut ids, _| {
        let _ = write!(ids, " {}", 1 + prng.below(entries));
        ids
    })
}

/// A stream whose entries are of several kinds, some of them deleted, some trimmed.
fn fill(client: &mut Client, key: &str, entries: u64, prng: &mut Prng) -> Result<(), String> {
    for entry in 1..=entries {
        let mut line = format!("XADD {key} {entry}");
        for field in 0..=prng.below(4) {
            let value = match prng.below(4) {
                0 => prng.next_u64().to_string(),
                1 => "v".repeat(prng.below(if entry % 50 == 0 { 9_000 } else { 200 }) as usize + 1),
                _ => format!("value:{entry}"),
            };
            let _ = write!(line, " field:{field} {value}");
        }
        say(client, &line)?;
    }
    for group in 0..prng.below(4) {
        fill_group(client, key, &format!("group:{group}"), entries, prng)?;
    }
    say(client, &format!("XDEL {key}{}", ids(prng, entries)))?;
    if prng.chance(30) {
        say(client, &format!("XTRIM {key} MINID {}", prng.below(entries)))?;
    }
    if prng.chance(10) {
        say(client, &format!("XTRIM {key} MAXLEN 0"))?;
    }
    if prng.chance(30) {
        let last = entries + prng.below(1 << 40);
        say(client, &format!("XSETID {key} {last} ENTRIESADDED {last} MAXDELETEDID {entries}"))?;
    }
    Ok(())
}

/// A group whose consumers have pending entries: delivered, redelivered, and claimed ones.
fn fill_group(
    client: &mut Client,
    key: &str,
    group: &str,
    entries: u64,
    prng: &mut Prng,
) -> Result<(), String> {
    let start = prng.below(entries);
    say(client, &format!("XGROUP CREATE {key} {group} {start}"))?;
    say(client, &format!("XGROUP CREATECONSUMER {key} {group} idle"))?;
    for _ in 0..prng.below(6) {
        let (name, count) = (prng.below(5), 1 + prng.below(entries));
        let read = format!("XREADGROUP GROUP {group} {name} COUNT {count} STREAMS {key}");
        say(client, &format!("{read} >"))?;
        say(client, &format!("{read} {}", prng.below(entries)))?;
        say(client, &format!("XACK {key} {group}{}", ids(prng, entries)))?;
        let claimed = ids(prng, entries);
        say(client, &format!("XCLAIM {key} {group} thief 0{claimed} TIME 1700000000000 FORCE"))?;
    }
    if prng.chance(20) {
        say(client, &format!("XGROUP SETID {key} {group} {start} ENTRIESREAD {start}"))?;
    }
    Ok(())
}

/// The digest, and the XINFO reply of each stream without the shape of Redis's tree.
fn told(client: &mut Client) -> Result<Vec<Reply>, String> {
    let mut told = vec![say(client, "DEBUG DIGEST")?];
    for key in 0..STREAMS {
        let Reply::Array(all) = say(client, &format!("XINFO STREAM s{key} FULL COUNT 0"))? else {
            return Err("XINFO is no array".into());
        };
        told.extend([&all[..2], &all[6..]].concat());
    }
    Ok(told)
}

fn compare(what: &str, wanted: &[Reply], found: &[Reply]) -> Result<(), String> {
    let at = wanted.iter().zip(found).position(|(one, other)| one != other);
    ensure(at.is_none() && wanted.len() == found.len(), || {
        let at = at.unwrap_or_default();
        format!("{what}, {at}: {:?}, not {:?}", found.get(at), wanted.get(at))
    })
}

fn start_on(stage: &Stage, folder: &Path) -> Result<Server, String> {
    let place = |new: &Path| fs::copy(folder.join("dump.rdb"), new.join("dump.rdb")).map(|_| ());
    Server::subject_in(stage.shape, &[], place).map_err(text)
}

fn both_ways(stage: &Stage) -> Result<(), String> {
    let here = stage.server_with(&[])?;
    let mut client = here.client().map_err(text)?;
    let mut prng = Prng::from_seed(8);
    for key in 0..STREAMS {
        let entries = [1, 3, 40, 150, 700][prng.below(5) as usize];
        fill(&mut client, &format!("s{key}"), entries, &mut prng)?;
    }
    say(&mut client, "SAVE")?;
    let ours = told(&mut client)?;
    let there = Server::oracle().map_err(text)?;
    let mut oracle = there.client().map_err(text)?;
    fs::copy(here.folder().join("dump.rdb"), there.folder().join("dump.rdb")).map_err(text)?;
    say(&mut oracle, "DEBUG RELOAD NOSAVE NOFLUSH MERGE")?;
    compare("loaded by redis-server", &ours, &told(&mut oracle)?)?;
    say(&mut oracle, "SAVE")?;
    for (what, folder) in [("loaded here", here.folder()), ("saved there", there.folder())] {
        let again = start_on(stage, folder)?;
        compare(what, &ours, &told(&mut again.client().map_err(text)?)?)?;
    }
    Ok(())
}

/// Entries returned to the group are loaded as such here, and by redis-server as entries of a
/// consumer without a name.
fn given_back(stage: &Stage) -> Result<(), String> {
    let here = stage.server_with(&[])?;
    let mut client = here.client().map_err(text)?;
    for entry in 1..=300 {
        say(&mut client, &format!("XADD s {entry} f v"))?;
    }
    for (group, name) in [("g", "a"), ("h", "")] {
        say(&mut client, &format!("XGROUP CREATE s {group} 0"))?;
        let read = ["XREADGROUP", "GROUP", group, name, "STREAMS", "s", ">"];
        client.command(&read).map_err(text)?;
        let count = "1 2 3 200 299";
        say(&mut client, &format!("XNACK s {group} FAIL IDS 5 {count}"))?;
    }
    say(&mut client, "SAVE")?;
    let asked = ["XPENDING s g", "XPENDING s h", "XPENDING s g - + 3", "XPENDING s h 200 200 1"];
    let mut ours = Vec::new();
    for words in asked {
        ours.push(say(&mut client, words)?);
    }
    let again = start_on(stage, here.folder())?;
    let (mut client, mut found) = (again.client().map_err(text)?, Vec::new());
    for words in asked {
        found.push(say(&mut client, words)?);
    }
    compare("loaded here", &ours, &found)?;
    let there = Server::oracle().map_err(text)?;
    let mut oracle = there.client().map_err(text)?;
    fs::copy(here.folder().join("dump.rdb"), there.folder().join("dump.rdb")).map_err(text)?;
    say(&mut oracle, "DEBUG RELOAD NOSAVE NOFLUSH MERGE")?;
    for (group, names) in [("g", "*2\r\n$0\r\n\r\n$1\r\n5"), ("h", "*2\r\n$0\r\n\r\n$3\r\n300")] {
        let told = say(&mut oracle, &format!("XPENDING s {group}"))?.encode();
        let told = String::from_utf8_lossy(&told).into_owned();
        ensure(told.contains(names), || format!("{group}: {told}"))?;
        let acknowledged = say(&mut oracle, &format!("XACK s {group} 1 200 299"))?;
        ensure(acknowledged == Reply::Int(3), || format!("{acknowledged:?}"))?;
    }
    Ok(())
}

//! Tests of access times: which commands set the time, for which clients, and the access time of a
//! new value.

use crate::common::world::World;
use darter_base::limits::ENTRIES_AT_ONCE;

const NOW: u64 = 1_800_000_000_000;
/// How long the keys have not been used when a command comes.
const IDLE_MS: u64 = 100_000;

/// The commands that fill the keys, one command after them, and whether that command counts as an
/// access to `k`. The expected results are those of redis-server 7.0.15, found key by key after a
/// restore with IDLETIME.
#[rustfmt::skip] // A table.
const CASES: &[(&str, &str, bool)] = &[
    ("SET k v", "GET k", true), ("SET k v", "MGET k none", true), ("SET k v", "STRLEN k", true),
    ("SET k v", "GETRANGE k 0 1", true), ("SET k v", "LCS k k", true), ("SET k v", "GETEX k", true),
    ("SET k v", "SET k v NX", true), ("SET k v", "SETNX k v", true), ("SET k v", "SET k w", true),
    ("SET k v", "MSETNX k v m w", true), ("SET k v", "APPEND k x", true), ("SET k v", "INCR k", true),
    ("SET k 1", "INCR k", true), ("SET k v", "INCRBYFLOAT k 1", true), ("SET k v", "HGET k f", true),
    ("SET k v", "SETRANGE k 0 x", true), ("SET k v", "SETRANGE k 0 ", true),
    ("SET k v", "EXPIRE k 1000", true), ("SET k v", "EXPIRE k 1000 XX", true),
    // Commands of Redis 8.4: expected by the rule, because 7.0.15 does not have them.
    ("SET k v", "DELEX k IFEQ w", true), ("SET k v", "DELEX k IFDEQ 0000000000000000", true),
    ("SET k v", "PERSIST k", true), ("SET k v", "TOUCH k", true), ("SET k v", "TOUCH none k", true),
    ("SET k v", "COPY k other", true), ("MSET k v src w", "COPY src k", true),
    ("MSET k v other w", "RENAMENX k other", true), ("MSET k v other w", "RENAMENX other k", true),
    ("HSET k f v", "HGET k f", true), ("HSET k f v", "HGETALL k", true), ("HSET k f v", "HLEN k", true),
    ("HSET k f v", "HSET k f w", true), ("HSET k f v", "HDEL k g", true), ("HSET k f v", "GET k", true),
    ("HSET k f v", "HSCAN k 0", true), ("HSET k f v", "HINCRBYFLOAT k f 1", true),
    ("SADD k a b", "SMEMBERS k", true), ("SADD k a b", "SCARD k", true), ("SADD k a b", "SREM k z", true),
    ("SADD k a b", "SSCAN k 0", true), ("SADD k a b", "SRANDMEMBER k", true),
    ("SADD k a b", "SINTER k none", true), ("SADD k a b", "SINTERCARD 1 k", true),
    ("SADD k a b", "SUNIONSTORE d k", true), ("SADD k a b", "SMOVE k d a", true),
    ("SADD k a b", "SMOVE k d z", true), ("SADD k a b", "SISMEMBER k a", true),
    ("SET k v", "TYPE k", false), ("SET k v", "TTL k", false), ("SET k v", "PTTL k", false),
    ("SET k v", "EXPIRETIME k", false), ("SET k v", "PEXPIRETIME k", false),
    ("SET k v", "EXISTS k", false), ("SET k v", "EXISTS k none k", false),
    ("SET k v", "OBJECT ENCODING k", false), ("SET k v", "OBJECT REFCOUNT k", false),
    ("SET k v", "OBJECT FREQ k", false), ("SET k v", "MEMORY USAGE k", false),
    ("SET k v", "KEYS *", false), ("SET k v", "SCAN 0", false), ("SET k v", "SCAN 0 TYPE string", false),
    ("SET k v", "RANDOMKEY", false), ("SET k v", "DBSIZE", false), ("SET k v", "GET other", false),
];

fn words(line: &str) -> Vec<&[u8]> {
    line.split(' ').map(str::as_bytes).collect()
}

fn run(world: &mut World, line: &str) -> Vec<u8> {
    world.run(&words(line))
}

/// The idle time of `key`, in seconds.
fn idle(world: &mut World, key: &str) -> Option<u64> {
    let reply = String::from_utf8(run(world, &format!("OBJECT IDLETIME {key}"))).unwrap();
    let number = reply.strip_prefix(':').map(|rest| rest.trim_end().parse().unwrap());
    assert!(number.is_some() || reply == "$-1\r\n", "{reply}");
    number
}

/// Idle times are rounded down, and may be up to two seconds too low.
fn is_near(told: Option<u64>, ms: u64) -> bool {
    told.is_some_and(|told| told * 1_000 <= ms && ms < told * 1_000 + 2_000)
}

#[test] // On one core and several, for short and long requests.
fn each_command_resets_idle_times_as_in_redis() {
    for (seed, &(fill, command, is_access)) in (0..).zip(CASES).flat_map(|case| [case; 2]) {
        for cores in [1, 3] {
            let mut world = World::new(cores, NOW, seed);
            run(&mut world, fill);
            assert_eq!(idle(&mut world, "k"), Some(0), "{fill}: just set");
            world.set_now(NOW + IDLE_MS);
            run(&mut world, command);
            let told = idle(&mut world, "k");
            let expected = if is_access { 0 } else { IDLE_MS };
            assert!(is_near(told, expected), "{fill}, then {command}: {told:?}");
        }
    }
}

#[test] // Except by TOUCH, and by new values.
fn no_touch_clients_do_not_reset_idle_times() {
    /// These commands give the key a new value.
    const FRESH: [&str; 3] = ["SET k w", "APPEND k x", "SETRANGE k 0 x"];
    for (seed, &(fill, command, _)) in (0..).zip(CASES) {
        for cores in [1, 3] {
            let mut world = World::new(cores, NOW, seed);
            run(&mut world, fill);
            world.set_now(NOW + IDLE_MS);
            world.no_touch = true;
            run(&mut world, command);
            let told = idle(&mut world, "k");
            let is_fresh = FRESH.contains(&command) || command.starts_with("TOUCH");
            let expected = if is_fresh { 0 } else { IDLE_MS };
            assert!(is_near(told, expected), "{fill}, then {command}: {told:?}");
        }
    }
}

#[test] // After RENAME and MOVE; a copy starts at 0.
fn moved_values_keep_their_idle_time() {
    for cores in [1, 3] {
        let mut world = World::new(cores, NOW, 5);
        for key in ["a", "b", "c"] {
            run(&mut world, &format!("SET {key} value"));
            run(&mut world, &format!("HSET hash-{key} f v"));
        }
        world.set_now(NOW + IDLE_MS);
        world.no_touch = true;
        for kind in ["", "hash-"] {
            assert_eq!(run(&mut world, &format!("RENAME {kind}a {kind}renamed")), b"+OK\r\n");
            assert_eq!(run(&mut world, &format!("COPY {kind}b {kind}copied")), b":1\r\n");
            assert_eq!(run(&mut world, &format!("MOVE {kind}c 1")), b":1\r\n");
            assert!(is_near(idle(&mut world, &format!("{kind}renamed")), IDLE_MS));
            assert!(is_near(idle(&mut world, &format!("{kind}b")), IDLE_MS));
            assert_eq!(idle(&mut world, &format!("{kind}copied")), Some(0));
            world.db = 1;
            assert!(is_near(idle(&mut world, &format!("{kind}c")), IDLE_MS));
            world.db = 0;
        }
        world.no_touch = false;
        run(&mut world, "RENAME renamed again");
        assert_eq!(idle(&mut world, "again"), Some(0), "to rename it is to use it");
        assert_eq!(idle(&mut world, "renamed"), None);
    }
}

#[test] // On several cores; EXISTS resets none.
fn touch_of_very_many_keys_resets_each_idle_time() {
    let mut world = World::new(3, NOW, 6);
    let names: Vec<String> =
        (0..ENTRIES_AT_ONCE * 20).map(|number| format!("key:{number}")).collect();
    names.iter().for_each(|name| drop(run(&mut world, &format!("SET {name} v"))));
    world.set_now(NOW + IDLE_MS);
    for (command, expected) in [("EXISTS", IDLE_MS), ("TOUCH", 0)] {
        let mut line = vec![command.as_bytes()];
        line.extend(names.iter().map(String::as_bytes));
        line.push(b"none");
        let reply = world.run(&line);
        assert_eq!(reply, format!(":{}\r\n", names.len()).into_bytes());
        for name in &names {
            assert!(is_near(idle(&mut world, name), expected), "{command} {name}");
        }
    }
}

#[test] // With a condition DELEX counts one lookup, a hit or a miss; DEL counts none.
fn delex_counts_hits_and_misses() {
    let mut world = World::new(1, NOW, 8);
    let (long, other) = ("x".repeat(1_000_000), "y".repeat(1_000_000));
    run(&mut world, &format!("MSET k v long {long}"));
    let mut counted = |line: &str| {
        world.cores[0].home().shard.stats = Default::default();
        run(&mut world, line);
        let stats = &world.cores[0].home().shard.stats;
        (stats.hits, stats.misses)
    };
    assert_eq!(counted("DELEX k IFEQ w"), (1, 0));
    assert_eq!(counted("DELEX none IFEQ w"), (0, 1));
    assert_eq!(counted(&format!("DELEX long IFEQ {other}")), (1, 0));
    assert_eq!(counted(&format!("SET long {other} IFEQ {other} GET")), (1, 0));
    assert_eq!(counted("DELEX k"), (0, 0));
    assert_eq!(counted("DELEX none"), (0, 0));
}

#[test]
fn reading_keys_under_a_cut_updates_no_time_and_copies_nothing() {
    let mut world = World::new(1, NOW, 7);
    for number in 0..1_000 {
        run(&mut world, &format!("SET key:{number} v"));
    }
    world.set_now(NOW + IDLE_MS);
    let cut = world.cores[0].home().shard.db(0).keys().clone();
    assert_eq!(run(&mut world, "GET key:7"), b"$1\r\nv\r\n");
    assert!(is_near(idle(&mut world, "key:7"), IDLE_MS));
    drop(cut);
    while darter_base::lazyfree::run(&darter_base::preempt::Never) {}
    run(&mut world, "GET key:7");
    assert_eq!(idle(&mut world, "key:7"), Some(0));
}

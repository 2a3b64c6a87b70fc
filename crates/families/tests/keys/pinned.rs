//! Tests of the memory that an unread reply keeps of values that have been deleted.

use crate::common::engine::Engine;
use darter_base::preempt::Never;
use darter_keyspace::lazyfree;
use darter_resp::{Output, Reply};

/// The data of a database: values of several segments or chunks, some kilobytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    /// Twelve long strings.
    Strings,
    /// A hash of many fields.
    Hash,
    /// A hash of a few fields, each with a long string.
    Few,
    /// Two sets that share half of their members.
    Sets,
}

impl Data {
    fn fill(self, engine: &mut Engine) {
        let long = "v".repeat(300_000);
        match self {
            Self::Strings => (0..12).for_each(|at| _ = engine.line(&format!("SET s{at} {long}"))),
            Self::Few => (0..12).for_each(|at| _ = engine.line(&format!("HSET h f{at} {long}"))),
            Self::Hash => {
                for at in 0..20_000 {
                    engine.line(&format!("HSET h f{at} {at:060}"));
                }
            }
            Self::Sets => {
                for at in 0..20_000 {
                    engine.line(&format!("SADD a member:{at}"));
                    engine.line(&format!("SADD b member:{}", at + 10_000));
                }
            }
        }
    }

    fn keys(self) -> Vec<String> {
        match self {
            Self::Strings => (0..12).map(|at| format!("s{at}")).collect(),
            Self::Hash | Self::Few => vec!["h".to_owned()],
            Self::Sets => vec!["a".to_owned(), "b".to_owned()],
        }
    }
}

/// `word0 word1 ...`.
fn many(word: &str, count: usize) -> String {
    (0..count).map(|at| format!(" {word}{at}")).collect()
}

fn free_all() {
    while lazyfree::run(&Never) {}
}

#[test] // Then each reader pins all of its value, and never more.
fn replies_pin_values_only_after_their_deletion() {
    let cases = [
        (Data::Strings, format!("MGET{}", many("s", 12))),
        (Data::Hash, "HGETALL h".to_owned()),
        (Data::Few, "HGETALL h".to_owned()),
        (Data::Hash, format!("HMGET h{}", many("f", 300))),
        (Data::Few, format!("HMGET h{}", many("f", 12))),
        (Data::Hash, format!("HTTL h FIELDS 300{}", many("f", 300))),
        (Data::Hash, "HRANDFIELD h -1000000".to_owned()),
        (Data::Hash, "HRANDFIELD h -1000000 WITHVALUES".to_owned()),
        (Data::Hash, "HRANDFIELD h 1000".to_owned()),
        (Data::Hash, "HRANDFIELD h 15000 WITHVALUES".to_owned()),
        (Data::Hash, "HRANDFIELD h 1000000".to_owned()),
        (Data::Sets, "SRANDMEMBER a -1000000".to_owned()),
        (Data::Sets, "SRANDMEMBER a 1000".to_owned()),
        (Data::Sets, "SRANDMEMBER a 15000".to_owned()),
        (Data::Sets, "SMEMBERS a".to_owned()),
        (Data::Sets, format!("SMISMEMBER a{}", many("m", 300))),
        (Data::Sets, "SUNION a b".to_owned()),
        (Data::Sets, "SUNION a b a b a b".to_owned()),
        (Data::Sets, "SINTER a b".to_owned()),
        (Data::Sets, "SDIFF a b".to_owned()),
        (Data::Sets, "SUNIONCARD 2 a b".to_owned()),
    ];
    for (data, line) in cases {
        let mut engine = Engine::new(1_000, 7);
        data.fill(&mut engine);
        let keys = data.keys(); // A key that is named three times is counted once.
        let read = keys.iter().filter(|key| line.split(' ').any(|name| name == key.as_str()));
        let bytes: usize = read.map(|key| usage(&mut engine, key)).sum();
        let (first, mut second) = (engine.begin(&line), engine.begin(&line));
        assert!(first.pinned_bytes() < bytes / 10, "{line}: {}", first.pinned_bytes());
        engine.line(&format!("DEL {}", keys.join(" ")));
        free_all();
        let held = bytes - bytes / 10..bytes + bytes / 10;
        // A small hash is counted only for its last reader.
        let each = if data == Data::Few { vec![] } else { vec![first.pinned_bytes()] };
        drop(first);
        for pinned in each.into_iter().chain([second.pinned_bytes()]) {
            assert!(held.contains(&pinned), "{line}: {pinned} of {bytes}");
        }
        let mut out = Output::default();
        while second.pump(&mut Reply::new(&mut out, false)) {
            out = Output::default();
            let pinned = second.pinned_bytes();
            assert!(pinned < bytes * 3, "{line}: {pinned} of {bytes} while it is sent");
        }
        free_all();
    }
}

/// The reply of MEMORY USAGE, as a number.
fn usage(engine: &mut Engine, key: &str) -> usize {
    let reply = engine.line(&format!("MEMORY USAGE {key}"));
    reply.trim_end().trim_start_matches(':').parse().unwrap_or_else(|_| panic!("{reply}"))
}

#[test]
fn values_made_for_a_reply_are_pinned_at_once() {
    let mut engine = Engine::new(1_000, 7);
    Data::Sets.fill(&mut engine);
    let bytes = usage(&mut engine, "a");
    let mut union = engine.begin("SUNION a b a b a b");
    let mut out = Output::default();
    while out.is_empty() {
        assert!(union.pump(&mut Reply::new(&mut out, false)));
    }
    let pinned = union.pinned_bytes();
    assert!(pinned > bytes && pinned < bytes * 2, "{pinned} made of {bytes}");
    engine.line("HSET h dead 1");
    for at in 0..20_000 {
        engine.line(&format!("HSET h f{at} {at:060}"));
    }
    engine.line("HPEXPIRE h 1 FIELDS 1 dead");
    // The members have expired but are still in the set: the other members are copied, and drawn
    // from the copy.
    engine.now += 10;
    let bytes = usage(&mut engine, "h");
    let mut drawn = engine.begin("HRANDFIELD h -1000000");
    let mut out = Output::default();
    while out.is_empty() {
        assert!(drawn.pump(&mut Reply::new(&mut out, false)));
    }
    let pinned = drawn.pinned_bytes();
    assert!(pinned > bytes / 2 && pinned < bytes * 2, "{pinned} copied of {bytes}");
    drop((union, drawn, engine));
    free_all();
}

//! The log of a core, as its readers see it: units, turns, and changes that the server makes.

use super::*;
use crate::engine::state::pubsub::name::Message;
use crate::libraries::{LibrariesChange, LibraryStep};
use darter_keyspace::{Act, Read, Reader, Record, Wants};
use std::any::Any;
use std::sync::Arc;

impl Bench {
    fn join(&self) -> Vec<Reader> {
        self.cores.iter().map(|core| core.join_log(Wants::CHANGES)).collect()
    }

    /// Reads the records that core `at` has made.
    fn read<R>(&self, at: usize, reader: Reader, look: impl Fn(&Record) -> R) -> Vec<R> {
        let shard = &mut self.cores[at].tx.home().shard;
        let mut all = Vec::new();
        while let Read::Next(record) = shard.read(reader) {
            all.push(look(record));
        }
        all
    }
}

fn key(record: &Record) -> String {
    match &record.act {
        Act::Key(key, _) => String::from_utf8_lossy(key).into_owned(),
        act => format!("{act:?}"),
    }
}

#[test] // A command, an EXEC and a script are units.
fn the_first_record_of_each_unit_is_marked() {
    let bench = Bench::new(1);
    let reader = bench.join()[0];
    let lines = [
        "SET a 1",
        "MSET b 1 c 1",
        "MULTI",
        "SET d 1",
        "GET d",
        "RPUSH e 1",
        "EXEC",
        "EVAL \"redis.call('SET','f',1) redis.call('SET','g',1)\" 0",
        "DEL a",
    ];
    bench.send(0, &lines.join("\r\n"));
    bench.settle();
    let all = bench.read(0, reader, |record| (key(record), record.begins, record.stamp));
    let begins: Vec<_> = all.iter().map(|(key, begins, _)| (key.as_str(), *begins)).collect();
    let expected = [
        ("a", true),
        ("b", true),
        ("c", false),
        ("d", true),
        ("e", false),
        ("f", true),
        ("g", false),
        ("a", true),
    ];
    assert_eq!(begins, expected);
    let is_one_turn = |two: &[(String, bool, u64)]| two[0].2 == two[1].2;
    let is_later = |two: &[(String, bool, u64)]| two[1].1 && two[0].2 < two[1].2;
    assert!(all.windows(2).all(|two| is_one_turn(two) || is_later(two)), "{all:?}");
}

#[test] // Each command is sent after the reply to the previous one.
fn a_later_command_of_a_client_has_a_later_stamp_on_any_core() {
    const CORES: usize = 3;
    let bench = Bench::new(CORES);
    let readers = bench.join();
    let names: Vec<String> = (0..60).map(|at| format!("key:{at}")).collect();
    for (at, name) in names.iter().enumerate() {
        assert_eq!(bench.ask(at % CORES, &format!("SET {name} v")), "+OK\r\n");
    }
    let mut all: Vec<_> = (0..CORES)
        .flat_map(|core| {
            bench.read(core, readers[core], |record| (record.stamp, core, key(record)))
        })
        .collect();
    all.sort();
    assert!(all.iter().map(|(.., key)| key).eq(&names), "{all:?}");
}

#[test] // A change of libraries is one record, made while all keys are locked.
fn publish_and_function_changes_are_recorded_in_the_log() {
    for cores in [1, 2] {
        let bench = Bench::new(cores);
        let readers = bench.join();
        let code = "#!lua name=lib\\nredis.register_function('f', function() return 1 end)";
        let lines = [
            "PUBLISH news hello",
            &format!("FUNCTION LOAD \"{code}\""),
            "FUNCTION DELETE lib",
            "FUNCTION FLUSH",
        ];
        lines.iter().for_each(|line| assert!(!bench.ask(0, line).starts_with('-'), "{line}"));
        let acts = (0..cores).flat_map(|core| {
            bench.read(core, readers[core], |record| match &record.act {
                Act::Server(act) => Some((Arc::clone(act), record.part)),
                _ => None,
            })
        });
        let (mut messages, mut changes) = (Vec::new(), Vec::new());
        for (act, part) in acts.flatten() {
            let act: Arc<dyn Any + Send + Sync> = act;
            match act.downcast::<Message>() {
                Ok(message) => {
                    assert_eq!(part, None);
                    messages
                        .push((message.channel.bytes().to_vec(), message.payload.bytes().to_vec()));
                }
                Err(act) => {
                    assert_eq!(part.map(|part| part.parts), Some(cores));
                    let change = act.downcast::<LibrariesChange>().unwrap();
                    changes.extend(change.0.iter().map(|step| match step {
                        LibraryStep::Flush => "flush".to_owned(),
                        LibraryStep::Delete(name) => format!("delete {name}"),
                        LibraryStep::Load(source) => format!("load {}", source.name),
                    }));
                }
            }
        }
        assert_eq!(messages, [(b"news".to_vec(), b"hello".to_vec())]);
        assert_eq!(changes, ["load lib", "delete lib", "flush"]);
    }
}

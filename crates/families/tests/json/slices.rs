//! Long work is done in portions, and endless work is refused.

use super::{NOW, run, text};
use crate::common::value::Value;
use crate::common::world::World;
use crate::common::{encode, row};
use darter_base::preempt::Never;
use darter_base::{Preempt, lazyfree};
use darter_command::{Args, Cx, Flow, Run, Step};
use darter_keyspace::Key;
use darter_resp::{self as resp, Output, Parser, Reply, Request};
use darter_tx::lock_key;

/// A budget that ends every slice at once.
struct Always;

impl Preempt for Always {
    fn must_yield(&self) -> bool {
        true
    }
}

/// Runs a command of one key. Returns how many portions it took.
fn portions(world: &mut World, words: &[&[u8]]) -> usize {
    let (row, first) = row(words).unwrap();
    let Run::Point(run) = row.run else { panic!("no command of one key") };
    let request = Request::from_args(words.iter().copied()).into();
    let mut home = world.cores[0].home();
    let (db, prng, stats) = home.shard.parts_for(0, false);
    let mut out = Output::default();
    let (now, reply) = (db.now(), Reply::new(&mut out, false));
    let mut cx = Cx { db, reply, now, prng, stats, preempt: &Always };
    let mut flow = run(&mut cx, Args::new(resp::Args::owned(&request), first)).unwrap();
    let mut portions = 1;
    while let Flow::Job(mut job) = flow {
        portions += 1;
        flow = match job.step(&mut cx) {
            Ok(Step::More) => Flow::Job(job),
            Ok(Step::Done(flow)) => flow,
            Err(refusal) => panic!("{refusal:?}"),
        };
    }
    if let Flow::Stream(mut stream) = flow {
        portions += 1;
        while stream.pump(&mut cx.reply) {
            portions += 1;
        }
    }
    portions
}

fn world(document: &str) -> World {
    let mut world = World::new(1, NOW, 3);
    run(&mut world, &[b"JSON.SET", b"k", b"$", document.as_bytes()]);
    world
}

fn numbers(count: usize) -> String {
    let numbers: Vec<_> = (0..count).map(|number| number.to_string()).collect();
    format!("[{}]", numbers.join(","))
}

#[test] // A test may search the whole document, and compare texts of any length.
fn tests_in_paths_run_in_portions() {
    let mut all = world(&format!(r#"{{"a":[1],"b":{}}}"#, numbers(5_000)));
    let words = [&b"JSON.GET"[..], b"k", b"$.a[?(!($..x == 1) && @ == $.b[1])]"];
    assert!(portions(&mut all, &words) >= 5_000 / 256);
    assert_eq!(text(&mut all, words[2]), "[1]");
    assert_eq!(text(&mut all, b"$.a[?($..x || $..b[?(@ == 4999)] && !($.b[?(@ > 4999)]))]"), "[1]");

    let long = "x".repeat(1 << 20);
    let mut texts =
        world(&format!(r#"[{{"a":"{long}","b":"{long}"}},{{"a":"{long}","b":"{long}y"}}]"#));
    let words = [&b"JSON.TYPE"[..], b"k", b"$[?(@.a == @.b)]"];
    assert!(portions(&mut texts, &words) >= 6);
    assert_eq!(run(&mut texts, &words), Value::Array(vec![Value::Bulk(b"object".to_vec())]));
    let words = [&b"JSON.TYPE"[..], b"k", b"$[?(@.a < @.b)]"];
    assert_eq!(run(&mut texts, &words), Value::Array(vec![Value::Bulk(b"object".to_vec())]));
}

#[test]
fn a_path_that_doubles_its_matches_is_refused() {
    let document = ["[".repeat(60), "]".repeat(60)].concat();
    let mut world = world(&document);
    for end in ["", ".x", "[0"] {
        let path = ["$", &"[0,0]".repeat(50), end, if end == "[0" { "]" } else { "" }].concat();
        for words in [&[&b"JSON.GET"[..], b"k"][..], &[b"JSON.TYPE", b"k"], &[b"JSON.DEL", b"k"]] {
            let words = [words, &[path.as_bytes()]].concat();
            let Value::Error(error) = run(&mut world, &words) else { panic!("{path}") };
            assert!(error.ends_with("path finds too many values"), "{error:?}");
        }
    }
    assert_eq!(text(&mut world, b"."), document);
}

#[test]
fn additions_at_many_places_run_in_portions() {
    let objects = format!("[{}]", vec!["{}"; 3_000].join(","));
    let mut all = world(&objects);
    assert!(portions(&mut all, &[b"JSON.SET", b"k", b"$[*].b", b"1"]) >= 3_000 / 8);
    assert_eq!(text(&mut all, b"."), objects.replace("{}", r#"{"b":1}"#));
}

#[test]
fn a_patch_that_creates_a_document_is_applied_in_portions() {
    let members: Vec<_> = (0..4_000).map(|at| format!(r#""m{at}":{at}"#)).collect();
    let patch = format!("{{{}}}", members.join(","));
    let nested = format!(r#"{{"a":{patch}}}"#);
    for (path, patch) in [(&b"$"[..], &patch), (b"$", &nested), (b"$.new", &patch)] {
        let mut world = world("{}");
        if path == b"$" {
            run(&mut world, &[b"JSON.DEL", b"k"]);
        }
        assert!(portions(&mut world, &[b"JSON.MERGE", b"k", path, patch.as_bytes()]) >= 4_000 / 16);
        assert_eq!(text(&mut world, path), format!("[{patch}]"));
    }
}

#[test]
fn places_to_remove_are_sorted_in_portions() {
    let level = |inner: &str| format!(r#"{{"l":[{inner}],"x":{{"a":1}},"a":2}}"#);
    let document = (0..7).fold("0".to_owned(), |inner, _| level(&[&inner[..]; 3].join(",")));
    let mut world = world(&document);
    let found = 1 + portions(&mut world, &[b"JSON.TYPE", b"k", b"$..a"]);
    let removed = portions(&mut world, &[b"JSON.DEL", b"k", b"$..a"]);
    // One portion removes four places, or sorts or merges 64.
    assert!(removed >= found + 2_186 / 4 + 3 * 2_186 / 64, "{removed} of {found}");
    let rest = document.replace(r#","a":2"#, "").replace(r#"{"a":1}"#, "{}");
    assert_eq!(text(&mut world, b"."), rest);
}

#[test]
fn a_long_text_is_appended_in_portions() {
    let mut world = world(r#"["a"]"#);
    let more = format!(r#""{}""#, "x".repeat(1 << 20));
    let words = [&b"JSON.STRAPPEND"[..], b"k", b"$[0]", more.as_bytes()];
    // A portion parses 2 KiB.
    assert!(portions(&mut world, &words) >= (1 << 20) / 2048 + 16);
    let len = run(&mut world, &[b"JSON.STRLEN", b"k", b"$[0]"]);
    assert_eq!(len, Value::Array(vec![Value::Int(1 + (1 << 20))]));
}

#[test]
fn too_long_paths_and_formats_are_refused() {
    let mut world = world(&["[".repeat(100), "]".repeat(100)].concat());
    let mut refused = |words: &[&[u8]]| {
        let words = [&[&b"JSON.GET"[..], b"k"], words].concat();
        matches!(run(&mut world, &words), Value::Error(_))
    };
    assert!(refused(&[b"INDENT", &[b' '; 60_000]]));
    assert!(refused(&[&b"$"[..]; 2_000]));
    let paths: Vec<_> = (0..1_000).map(|at| format!("$.{at:040}").into_bytes()).collect();
    let paths: Vec<_> = paths.iter().map(Vec::as_slice).collect();
    assert!(refused(&paths));
    assert!(!refused(&paths[..300]));
    assert!(!refused(&[b"INDENT", &[b' '; 64], b"NEWLINE", b"\n"]));
}

#[test] // A copy would take longer than a portion.
fn too_long_values_are_refused_without_copying_them() {
    let world = world("[1]");
    let long = vec![b'a'; 200_000];
    let long = &long[..];
    let commands: [&[&[u8]]; 14] = [
        &[b"JSON.SET", b"k", long, b"1"],
        &[b"JSON.MERGE", b"k", long, b"1"],
        &[b"JSON.DEL", b"k", long],
        &[b"JSON.STRAPPEND", b"k", long, b"1"],
        &[b"JSON.ARRAPPEND", b"k", long, b"1"],
        &[b"JSON.ARRINSERT", b"k", long, b"0", b"1"],
        &[b"JSON.ARRPOP", b"k", long],
        &[b"JSON.ARRTRIM", b"k", long, b"0", b"1"],
        &[b"JSON.GET", b"k", long],
        &[b"JSON.GET", b"k", b"$", long],
        &[b"JSON.MGET", b"k", long],
        &[b"JSON.TYPE", b"k", long],
        &[b"JSON.ARRINDEX", b"k", long, b"1"],
        &[b"JSON.ARRINDEX", b"k", b"$", long],
    ];
    for words in commands {
        let (row, first) = row(words).unwrap();
        let (Run::Point(run) | Run::Multi { here: Some(run), .. }) = row.run else { panic!() };
        let mut parser = Parser::new(1 << 20, true);
        parser.feed(&encode(words));
        let args = parser.next_request().unwrap().expect("the request is whole");
        let held = args.held_bytes();
        let mut home = world.cores[0].home();
        let (db, prng, stats) = home.shard.parts_for(0, false);
        let mut out = Output::default();
        let (now, reply) = (db.now(), Reply::new(&mut out, false));
        let mut cx = Cx { db, reply, now, prng, stats, preempt: &Always };
        let refused = run(&mut cx, Args::new(args, first)).map(|_| ()).unwrap_err();
        assert!(refused.text().ends_with(b"is too long"), "{refused:?}");
        assert_eq!(args.held_bytes(), held, "{}", row.name);
    }
}

#[test] // Each match stores its path, so matches in a deep document may exceed it in size.
fn matches_that_take_too_much_memory_are_refused() {
    let ones = |count| format!("[{}]", vec!["1"; count].join(","));
    let document = ["[".repeat(126), ones(40_000), "]".repeat(126)].concat();
    let mut deep = world(&document);
    for words in [&[&b"JSON.GET"[..], b"k", b"$..*"][..], &[b"JSON.TYPE", b"k", b"$..*"]] {
        let Value::Error(error) = run(&mut deep, words) else { panic!("{words:?}") };
        assert!(error.ends_with("path finds too many values"), "{error:?}");
    }
    let mut flat = world(&ones(40_000));
    assert_eq!(text(&mut flat, b"$..*"), ones(40_000));
    // Each of these commands is within the bounds, but all of them together are not.
    let mut middle = world(&["[".repeat(126), ones(5_000), "]".repeat(126)].concat());
    let paths: Vec<_> = (1..10).map(|more| format!("$..[0:{}]", 5_000 + more)).collect();
    let mut words = vec![&b"JSON.GET"[..], b"k"];
    assert!(matches!(run(&mut middle, &[&words[..], &[b"$..*"]].concat()), Value::Bulk(_)));
    words.extend(paths.iter().map(|path| path.as_bytes()));
    let Value::Error(error) = run(&mut middle, &words) else { panic!("all are found") };
    assert!(error.ends_with("path finds too many values"), "{error:?}");
}

#[test] // The patch is short, but its merges together are not.
fn a_patch_applied_at_several_places_runs_in_portions() {
    let members: Vec<_> = (0..200).map(|at| format!(r#""m{at}":{at}"#)).collect();
    let patch = format!("{{{}}}", members.join(","));
    let mut all = world(&format!("[{}]", ["{}"; 16].join(",")));
    let words = [&b"JSON.MERGE"[..], b"k", b"$[*]", patch.as_bytes()];
    assert!(portions(&mut all, &words) >= 16 * (200 / 16));
    assert_eq!(text(&mut all, b"."), format!("[{}]", vec![&patch[..]; 16].join(",")));
    let few = portions(&mut all, &[b"JSON.MERGE", b"k", b"$[*]", br#"{"m1":2}"#]);
    assert_eq!(few, 1, "at once");
}

#[test]
fn bytes_read_for_short_answers_count_as_work() {
    let arrays = format!("[{}]", vec![numbers(64); 256].join(","));
    let mut all = world(&arrays);
    let words = [&b"JSON.ARRINDEX"[..], b"k", b"$[*]", b"64"];
    assert!(portions(&mut all, &words) >= 256 * 64 / 512);
    assert!(portions(&mut all, &[b"JSON.RESP", b"k", b"$[*]"]) >= 256 * 64 / 512);
    assert!(portions(&mut all, &[b"JSON.GET", b"k", b"$[*]"]) >= 256 * 64 / 512);
    assert_eq!(text(&mut all, b"$[*]"), arrays);
    let object: Vec<_> = (0..64).map(|at| format!(r#""m{at}":1"#)).collect();
    let object = format!("{{{}}}", object.join(","));
    let mut all = world(&format!("[{}]", vec![&object[..]; 256].join(",")));
    assert!(portions(&mut all, &[b"JSON.OBJKEYS", b"k", b"$[*]"]) >= 256 * 64 / 512);
}

#[test] // Even if the reply is never read.
fn popped_elements_are_freed_in_portions() {
    let document = format!("[{}]", vec!["[1,2]"; 3_000].join(","));
    let mut all = world(&document);
    while lazyfree::run(&Never) {}
    assert!(portions(&mut all, &[b"JSON.ARRPOP", b"k", b"[*]"]) >= 3_000 / 4);
    assert!(!lazyfree::is_empty());
    assert!(portions(&mut all, &[b"JSON.ARRPOP", b"k", b"$[*]"]) >= 3_000 / 4 + 3_000 / 64);
    assert_eq!(text(&mut all, b"."), document.replace("1,2", ""));
    while lazyfree::run(&Never) {}
}

#[test] // A portion has a few texts of some kilobytes each.
fn many_texts_are_sent_in_portions() {
    let text = format!("[{}]", vec!["1"; 200].join(","));
    let document = format!("[{}]", vec![format!("[{text}]"); 128].join(","));
    let mut all = world(&document);
    let Value::Array(popped) = run(&mut all, &[b"JSON.ARRPOP", b"k", b"$[*]"]) else { panic!() };
    assert_eq!(popped, vec![Value::Bulk(text.clone().into_bytes()); 128]);
    let mut all = world(&document);
    let changes = 1 + 128 / 4;
    let sent = text.len() * 128 / (2 * 1024 + 512);
    assert!(portions(&mut all, &[b"JSON.ARRPOP", b"k", b"$[*]"]) >= changes + sent);
}

#[test] // However many keys it names.
fn json_mset_locks_only_its_keys() {
    for cores in [1, 3] {
        let mut world = World::new(cores, NOW, 3);
        let keys: Vec<_> = (0..300).map(|at| format!("k{at}")).collect();
        let triples = keys.iter().flat_map(|key| [key.as_bytes(), b"$", b"{}"]);
        let words: Vec<_> = [&b"JSON.MSET"[..]].into_iter().chain(triples).collect();
        let slot = world.start(0, &words);
        let blocks = |world: &World, key: &[u8]| {
            let tx = &world.cores[world.cores[0].core_of(key)];
            tx.home().locks.blocks_point(lock_key(0, Key::new(key).hash), true)
        };
        let mut was_locked = false;
        while world.step() {
            was_locked |= blocks(&world, b"k7");
            assert!(!blocks(&world, b"other"), "it is not named");
        }
        assert!(was_locked);
        assert_eq!(Value::read(&world.reply(&slot)), Value::Simple("OK".to_owned()));
        world.check();
    }
}

#[test] // Each key is named several times.
fn json_mset_sets_many_documents_in_request_order() {
    for cores in [1, 3] {
        let mut world = World::new(cores, NOW, 3);
        let keys: Vec<_> = (0..3_000).map(|at| format!("k{}", at % 1_000)).collect();
        let values: Vec<_> = (0..3_000).map(|at| format!("[{at}]")).collect();
        let triples = keys
            .iter()
            .zip(&values)
            .flat_map(|(key, value)| [key.as_bytes(), b"$", value.as_bytes()]);
        let words: Vec<_> = [&b"JSON.MSET"[..]].into_iter().chain(triples).collect();
        assert_eq!(run(&mut world, &words), Value::Simple("OK".to_owned()));
        for at in 0..1_000 {
            let key = format!("k{at}");
            let text = run(&mut world, &[b"JSON.GET", key.as_bytes(), b"."]);
            assert_eq!(text, Value::Bulk(format!("[{}]", at + 2_000).into_bytes()));
        }
        let refused = [&words[..], &[b"k5", b"$[", b"1"]].concat();
        assert!(matches!(run(&mut world, &refused), Value::Error(_)));
        world.check();
    }
}

#[test] // All names of an object are compared.
fn long_member_names_are_compared_in_portions() {
    let name = |at: usize| format!("{}{at:02}", "n".repeat(1_000));
    let members: Vec<_> = (0..64).map(|at| format!(r#""{}":{at}"#, name(at))).collect();
    let object = format!("{{{}}}", members.join(","));
    let mut all = world(&format!("[{}]", vec![&object[..]; 200].join(",")));
    let sought = 200 * 64 * 1_000 / 2_048 / 256;
    let here = format!("$[*].{}", name(63));
    assert!(portions(&mut all, &[b"JSON.TYPE", b"k", here.as_bytes()]) >= sought);
    let test = format!("$[?(@.{} == 7)]", name(63));
    assert!(portions(&mut all, &[b"JSON.TYPE", b"k", test.as_bytes()]) >= sought);
    let patch: Vec<_> = (0..32).map(|at| format!(r#""{}":1"#, name(at).repeat(8))).collect();
    let patch = format!("{{{}}}", patch.join(","));
    let parsed = patch.len() / 2_048;
    assert!(portions(&mut all, &[b"JSON.MERGE", b"k", b"$[0]", patch.as_bytes()]) >= parsed + 14);
}

#[test] // Descending to a place counts.
fn changes_of_deep_places_run_in_portions() {
    let document = ["[".repeat(120), vec![r#"{"x":1}"#; 16].join(","), "]".repeat(120)].concat();
    let mut deep = world(&document);
    assert!(portions(&mut deep, &[b"JSON.NUMINCRBY", b"k", b"$..x", b"1"]) >= 8);
    assert_eq!(text(&mut deep, b"."), document.replace('1', "2"));
}

//! Documents that commands have changed are read back from files.

mod slices;

use crate::common::value::Value;
use crate::common::world::World;
use darter_families::json::Json;
use darter_keyspace::{Key, NewItem, Value as _};

const NOW: u64 = 1_000_000;

fn run(world: &mut World, words: &[&[u8]]) -> Value {
    Value::read(&world.run(words))
}

/// The document at `k`, as it is read from a file.
fn read_back(world: &mut World) -> Json {
    world.edit(b"k", |db| {
        let mut items = db.value::<Json>(&Key::new(b"k")).unwrap().unwrap().items(NOW);
        let mut copy = Json::default();
        while let Some(item) = items.next() {
            assert!(copy.take_in(NewItem::of(item).unwrap()), "{item:?}");
        }
        copy
    })
}

#[test]
fn the_deepest_document_is_saved_and_loaded() {
    let mut world = World::new(1, NOW, 3);
    let nested = |levels: usize| ["[".repeat(levels), "]".repeat(levels)].concat();
    run(&mut world, &[b"JSON.SET", b"k", b"$", nested(127).as_bytes()]);
    let mut levels = 127;
    for more in [127, 127, 4, 127] {
        let (path, value) = (["$", &"[0]".repeat(levels - 1)].concat(), nested(more));
        let words = [&b"JSON.ARRAPPEND"[..], b"k", path.as_bytes(), value.as_bytes()];
        assert!(matches!(run(&mut world, &words), Value::Array(_)), "{levels} and {more} levels");
        levels += more;
        assert!(!read_back(&mut world).is_empty(), "{levels} levels");
    }
    assert_eq!(levels, 512);
    let path = ["$", &"[0]".repeat(385)].concat();
    let words = [&b"JSON.ARRAPPEND"[..], b"k", path.as_bytes(), b"1"];
    assert!(matches!(run(&mut world, &words), Value::Error(_)));
}

#[test] // After some tokens all levels are looked up again, which costs as much as tokens do.
fn descending_to_deep_values_counts_as_work() {
    let mut world = World::new(1, NOW, 3);
    let numbers = vec!["0"; 10_000].join(",");
    let document = ["[".repeat(127), numbers, "]".repeat(127)].concat();
    run(&mut world, &[b"JSON.SET", b"k", b"$", document.as_bytes()]);
    let (mut portions, mut tokens) = (0, 0);
    world.edit(b"k", |db| {
        let mut items = db.value::<Json>(&Key::new(b"k")).unwrap().unwrap().items(NOW);
        let mut is_over = false;
        while !is_over {
            let mut looks = 256;
            while looks > 0 && !is_over && items.find(&mut looks) {
                looks = looks.saturating_sub(1);
                is_over = items.next().is_none();
                tokens += usize::from(!is_over);
            }
            portions += 1;
        }
    });
    assert_eq!(tokens, 10_000 + 2 * 127);
    assert!(portions > 150, "{portions}");
}

/// Makes a document of these tokens. Returns it, and whether it accepted all of them.
fn taken(tokens: &[&[u8]]) -> (Json, bool) {
    let mut json = Json::default();
    let mut tokens = tokens.iter().map(|name| NewItem::Single { name, deadline: None });
    let is_taken = tokens.all(|token| json.take_in(token));
    (json, is_taken)
}

#[test] // A text with bytes after the end of the document is refused, and so is NaN as a number.
fn invalid_documents_are_refused() {
    let token = |token: &[u8]| {
        let (json, is_taken) = taken(&[token]);
        (is_taken, json.is_empty())
    };
    assert_eq!(token(b"["), (true, true));
    assert_eq!(token(&[&b"d"[..], &1.5_f64.to_le_bytes()].concat()), (true, false));
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(token(&[&b"d"[..], &value.to_le_bytes()].concat()), (false, true));
    }
    let unsigned = |value: u64| token(&[&b"u"[..], &value.to_le_bytes()].concat()).0;
    assert!(unsigned(1 << 63), "above all signed ones");
    assert!(!unsigned((1 << 63) - 1), "it would be another value than the same number");
    assert!(!token(b"s\xff").0, "no UTF-8");
    assert!(!taken(&[b"{", b"k\xc3"]).1, "nor in a name");
}

#[test] // Characters may be split between parts. Invalid UTF-8 and very long names are refused.
fn long_json_texts_are_loaded_in_parts() {
    let (json, is_taken) = taken(&[b"S", b"p\xf0\x9f", b"p\x98", b"p\x80!", b"e"]);
    assert!(is_taken && !json.is_empty());
    for parts in [&[&b"S"[..], b"p\xf0\x9f", b"p!"][..], &[b"S", b"p\xc3", b"e"]] {
        assert!(!taken(parts).1, "{parts:?}");
    }
    let part = [&b"p"[..], &[b'n'; 10_000]].concat();
    assert!(taken(&[b"{", b"K", &part, b"e", b"n", b"c"]).1);
    assert!(!taken(&[b"{", b"K", &part, &part]).1, "too long a name");
}

#[test]
fn memory_of_a_document_is_counted_while_it_is_loaded() {
    let part = [&b"p"[..], &[b'x'; 50_000]].concat();
    let (json, _) = taken(&[b"[", b"S", &part, &part, &part]);
    assert!(json.content_bytes() >= 150_000, "{}", json.content_bytes());
}

fn text(world: &mut World, path: &[u8]) -> String {
    match run(world, &[b"JSON.GET", b"k", path]) {
        Value::Bulk(text) => String::from_utf8(text).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test] // JSON.MSET sets all of its keys or none.
fn json_mset_sets_all_or_nothing() {
    for seed in 0..8 {
        let mut world = World::new(2, NOW, seed);
        run(&mut world, &[b"JSON.SET", b"k", b"$", b"[1]"]);
        run(&mut world, &[b"JSON.SET", b"q", b"$", b"{}"]);
        for (key, path) in [(b"q", &b"$[7]"[..]), (b"q", b"$..a"), (b"r", b"$.a")] {
            let words = [&b"JSON.MSET"[..], b"k", b"$", b"2", key, path, b"3"];
            assert!(matches!(run(&mut world, &words), Value::Error(_)), "{path:?}");
            assert_eq!(text(&mut world, b"$"), "[[1]]");
        }
        let words =
            [&b"JSON.MSET"[..], b"k", b"$[0]", b"2", b"q", b"$.a", b"3", b"k", b"$[*]", b"4"];
        run(&mut world, &words);
        assert_eq!(text(&mut world, b"$"), "[[4]]");
        world.check();
    }
}

#[test] // Some of the places are too deep for the change: then no place is changed.
fn a_change_that_is_refused_changes_nothing() {
    let mut world = World::new(1, NOW, 3);
    let nested =
        |levels: usize| ["[".repeat(levels), r#"{"a":1}"#.into(), "]".repeat(levels)].concat();
    run(
        &mut world,
        &[b"JSON.SET", b"k", b"$", format!(r#"{{"a":1,"b":{}}}"#, nested(120)).as_bytes()],
    );
    for times in 1..4 {
        let path = ["$.b", &"[0]".repeat(120 * times)].concat();
        let words = [&b"JSON.SET"[..], b"k", path.as_bytes(), &nested(120).into_bytes()];
        assert!(!matches!(run(&mut world, &words), Value::Error(_)));
    }
    for command in [&b"JSON.SET"[..], b"JSON.MSET"] {
        let words = [command, b"k", b"$..a", b"2"];
        assert!(matches!(run(&mut world, &words), Value::Error(_)));
        assert_eq!(text(&mut world, b"$.a"), "[1]");
    }
}

#[test] // However its objects are nested.
fn merging_a_patch_in_portions_gives_the_same_result() {
    let mut world = World::new(1, NOW, 3);
    let inner = |from: usize| {
        let members: Vec<_> = (from..from + 100).map(|at| format!(r#""m{at}":[{at}]"#)).collect();
        members.join(",")
    };
    let patch = format!(r#"{{"a":{{"n":null,"b":{{{},"n":null}}}},"gone":null,"c":7}}"#, inner(50));
    // A new document, the place of a number, a new member, and an existing value.
    run(&mut world, &[b"JSON.MERGE", b"k", b"$", patch.as_bytes()]);
    let whole = format!(r#"{{"a":{{"b":{{{}}}}},"c":7}}"#, inner(50));
    assert_eq!(text(&mut world, b"."), whole);
    run(&mut world, &[b"JSON.SET", b"k", b"$", br#"{"x":1,"y":{"a":{"b":5},"gone":1}}"#]);
    for path in [&b"$.x"[..], b"$.y", b"$.z"] {
        run(&mut world, &[b"JSON.MERGE", b"k", path, patch.as_bytes()]);
        assert_eq!(text(&mut world, path), format!("[{whole}]"));
    }
    let more = format!(r#"{{"a":{{"b":{{{},"m50":null}}}}}}"#, inner(51));
    run(&mut world, &[b"JSON.MERGE", b"k", b"$.x", more.as_bytes()]);
    let keys = run(&mut world, &[b"JSON.OBJLEN", b"k", b"$.x.a.b"]);
    assert_eq!(keys, Value::Array(vec![Value::Int(100)]));
}

//! Documents: what commands make of them is read back from files.

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

#[test] // However deep a document has become, it can be read again.
fn the_deepest_document_is_read_back() {
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

#[test] // What is not at its end is no document, and no number is none.
fn what_no_text_says_is_refused() {
    let token = |token: &[u8]| {
        let mut json = Json::default();
        (json.take_in(NewItem::Single { name: token, deadline: None }), json.is_empty())
    };
    assert_eq!(token(b"["), (true, true));
    assert_eq!(token(&[&b"d"[..], &1.5_f64.to_le_bytes()].concat()), (true, false));
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(token(&[&b"d"[..], &value.to_le_bytes()].concat()), (false, true));
    }
}

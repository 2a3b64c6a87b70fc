//! HyperLogLogs: many, long elements, and clients' strings that resemble one.

use crate::common::unix_millis;
use crate::common::world::World;
use crate::common::{Bytes, oracle::Oracle};
use darter_base::Prng;

#[test] // On several cores, in slices, with long elements.
fn pfcount_and_pfmerge_of_thousands_of_keys_agree_with_redis() {
    let mut oracle = Oracle::start("hyperloglogs");
    let mut world = World::new(3, unix_millis(), 4);
    let mut both = |words: &[&[u8]]| {
        let (found, wanted) = (world.run(words), oracle.run(words));
        let name = String::from_utf8_lossy(words[0]).into_owned();
        assert!(found == wanted, "{name} {}: {:?}", words.len(), String::from_utf8_lossy(&found));
    };
    let keys: Vec<Bytes> = (0..700).map(|at| format!("key:{at}").into_bytes()).collect();
    for (at, key) in keys.iter().enumerate().skip(20) {
        let elements: Vec<Bytes> =
            (at..at * 3).map(|element| element.to_string().into_bytes()).collect();
        let mut words: Vec<&[u8]> = vec![b"PFADD", key];
        words.extend(elements.iter().map(|element| &element[..]));
        both(&words);
    }
    for count in [3, 100, 700] {
        for head in [&[&b"PFCOUNT"[..]][..], &[b"PFMERGE", b"sum"]] {
            let keys = keys[..count].iter().map(|key| &key[..]);
            both(&head.iter().copied().chain(keys).collect::<Vec<_>>());
        }
        both(&[b"GET", b"sum"]);
    }
    let long = vec![b'x'; 1_000_003];
    both(&[b"PFADD", b"long", &long, b"short", &long[1..]]);
    both(&[b"PFADD", b"long", &long]);
    both(&[b"GET", b"long"]);
    world.check();
}

#[test]
fn hyperloglog_commands_survive_any_string() {
    let mut world = World::new(1, unix_millis(), 4);
    let mut prng = Prng::from_seed(6);
    for round in 0..4_000 {
        let mut text = b"HYLL".to_vec();
        text.push(u8::try_from(prng.below(3)).unwrap());
        text.extend(prng.bytes(11..=11));
        match prng.below(10) {
            0 => text.extend(prng.bytes(12_288..=12_288)),
            1 => text.extend(prng.bytes(0..=3_500)),
            2 => text.resize(80_000, 0x7f),
            3 => text.truncate(usize::try_from(prng.below(17)).unwrap()),
            _ => text.extend(prng.bytes(0..=20)),
        }
        world.run(&[b"SET", b"k", &text]);
        let element = prng.bytes(0..=9);
        for words in [
            &[&b"PFADD"[..], b"k", &element][..],
            &[b"PFCOUNT", b"k"],
            &[b"PFCOUNT", b"k", b"k"],
            &[b"PFMERGE", b"d", b"k"],
            &[b"PFDEBUG", b"DECODE", b"k"],
            &[b"PFDEBUG", b"GETREG", b"k"],
            &[b"PFADD", b"k", &element],
        ] {
            assert!(!world.run(words).is_empty(), "{round}");
        }
    }
    world.check();
}

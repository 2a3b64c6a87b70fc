//! Tests that run random commands on strings and on a map of vectors. The strings cross the sizes
//! at which their storage changes: 512 bytes, 4 KiB, a chunk, two chunks.

use crate::common::engine::Engine;
use darter_base::Prng;
use std::collections::BTreeMap;

const NOW: u64 = 1_700_000_000_000;

fn below(prng: &mut Prng, bound: usize) -> usize {
    usize::try_from(prng.below(bound as u64)).unwrap()
}

/// A value, often of a length at which the storage changes.
fn value(prng: &mut Prng) -> Vec<u8> {
    let most = *prng.weighted(&[(60, 30), (15, 700), (10, 6_000), (10, 70_000), (5, 300_000)]);
    let len = below(prng, most);
    let byte = prng.below(256).to_le_bytes()[0];
    (0..len).map(|at| byte.wrapping_add(at.to_le_bytes()[0])).collect()
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

fn int(value: usize) -> Vec<u8> {
    format!(":{value}\r\n").into_bytes()
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn step(engine: &mut Engine, model: &mut Model, prng: &mut Prng, key: &[u8]) {
    let old = model.get(key).cloned();
    match prng.below(8) {
        0 => {
            let new = value(prng);
            assert_eq!(engine.run(&[b"SET", key, &new]), b"+OK\r\n");
            model.insert(key.to_vec(), new);
        }
        1 => {
            let new = value(prng);
            let all = [old.unwrap_or_default(), new.clone()].concat();
            assert_eq!(engine.run(&[b"APPEND", key, &new]), int(all.len()));
            model.insert(key.to_vec(), all);
        }
        2 => set_range(engine, model, prng, key),
        3 => {
            let (from, to) = (below(prng, 90_000), below(prng, 300_000));
            let old = old.unwrap_or_default();
            let part = old.get(from..old.len().min(to + 1)).unwrap_or_default();
            let (from, to) = (from.to_string(), to.to_string());
            let reply = engine.run(&[b"GETRANGE", key, from.as_bytes(), to.as_bytes()]);
            assert!(reply == bulk(part), "GETRANGE {from} {to}");
        }
        4 => assert_eq!(engine.run(&[b"STRLEN", key]), int(old.map_or(0, |old| old.len()))),
        5 if prng.chance(30) => {
            let expected = old.map_or(b"$-1\r\n".to_vec(), |old| bulk(&old));
            assert!(engine.run(&[b"GETDEL", key]) == expected, "GETDEL");
            model.remove(key);
        }
        6 => {
            let (one, other) = (value(prng), value(prng));
            engine.run(&[b"MSET", b"a", &one, b"b", b"x", b"a", &other]);
            model.insert(b"a".to_vec(), other);
            model.insert(b"b".to_vec(), b"x".to_vec());
        }
        _ => {
            let keys: [&[u8]; 3] = [key, b"a", b"nothing"];
            let mut expected = b"*3\r\n".to_vec();
            for key in keys {
                let value = model.get(key).map_or(b"$-1\r\n".to_vec(), |value| bulk(value));
                expected.extend_from_slice(&value);
            }
            assert!(engine.run(&[b"MGET", key, b"a", b"nothing"]) == expected, "MGET");
        }
    }
}

fn set_range(engine: &mut Engine, model: &mut Model, prng: &mut Prng, key: &[u8]) {
    let (offset, new) = (below(prng, 200_000), value(prng));
    let mut all = model.get(key).cloned().unwrap_or_default();
    if !new.is_empty() {
        all.resize(all.len().max(offset + new.len()), 0);
        all[offset..offset + new.len()].copy_from_slice(&new);
        model.insert(key.to_vec(), all.clone());
    }
    let reply = engine.run(&[b"SETRANGE", key, offset.to_string().as_bytes(), &new]);
    assert_eq!(reply, int(all.len()), "SETRANGE {offset} {}", new.len());
}

#[test] // Values, lengths and memory totals at every step; cuts do not change.
fn random_string_commands_agree_with_a_map() {
    for seed in 0..12 {
        let mut prng = Prng::from_seed(seed);
        let (mut engine, mut model) = (Engine::new(NOW, 1), Model::new());
        let mut cuts = Vec::new();
        for _ in 0..150 {
            let key = [b"a", b"b", b"c"][below(&mut prng, 3)].to_vec();
            step(&mut engine, &mut model, &mut prng, &key);
            let expected = model.get(&key).map_or(b"$-1\r\n".to_vec(), |value| bulk(value));
            assert!(engine.run(&[b"GET", &key]) == expected, "seed {seed}");
            engine.db.check_invariants();
            if prng.chance(20) {
                let text =
                    engine.db.get(&darter_keyspace::Key::new(&key)).map(|found| found.hold());
                cuts.extend(text.map(|held| (held, model[&key].clone())));
            }
        }
        for (held, expected) in cuts {
            let text = held.as_text().expect("a string");
            let mut bytes = Vec::new();
            match text.fresh() {
                darter_keyspace::Fresh::Blob(blob) => bytes = blob.to_vec(),
                darter_keyspace::Fresh::Bytes(short) => bytes.extend_from_slice(short),
                darter_keyspace::Fresh::Chunks(_) => unreachable!("never read back as chunks"),
            }
            assert!(bytes == expected, "a cut has changed, seed {seed}");
        }
    }
}

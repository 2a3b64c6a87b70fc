//! Long bitmaps: the same replies as redis-server's, in portions, as of one instant.

use crate::common::engine::Engine;
use crate::common::oracle::Oracle;
use crate::common::unix_millis;
use crate::common::world::World;
use darter_base::Prng;

const KEYS: [&str; 5] = ["a", "b", "c", "d", "none"];

/// A random command on strings of several chunks.
fn command(prng: &mut Prng) -> Vec<Vec<u8>> {
    let index = |prng: &mut Prng, len: usize| usize::try_from(prng.below(len as u64)).unwrap();
    let key = |prng: &mut Prng| KEYS[index(prng, KEYS.len())].to_owned();
    let bit = |prng: &mut Prng| match prng.below(3) {
        0 => prng.below(100),
        1 => 524_100 + prng.below(200),
        _ => prng.below(2_500_000),
    };
    let end = |prng: &mut Prng| if prng.chance(30) { -1 } else { bit(prng).cast_signed() };
    let line = match prng.below(12) {
        0 | 1 => format!("SETBIT {} {} {}", key(prng), bit(prng), prng.below(2)),
        2 => format!("GETBIT {} {}", key(prng), bit(prng)),
        3 => format!("BITCOUNT {}", key(prng)),
        4 => format!("BITCOUNT {} {} {} BIT", key(prng), bit(prng), end(prng)),
        5 => format!("BITPOS {} {} {}", key(prng), prng.below(2), bit(prng) / 8),
        6 => format!("BITPOS {} {} {} {} BIT", key(prng), prng.below(2), bit(prng), end(prng)),
        7 => format!("BITOP NOT {} {}", key(prng), key(prng)),
        8 | 9 => {
            let act = ["AND", "OR", "XOR"][index(prng, 3)];
            let sources: Vec<_> = (0..=prng.below(4)).map(|_| key(prng)).collect();
            format!("BITOP {act} {} {}", key(prng), sources.join(" "))
        }
        10 => {
            let repeat = if prng.chance(20) { 300 } else { 3 };
            let name = if prng.chance(20) { "GET" } else { "INCRBY" };
            let by = if name == "GET" { "" } else { " 77" };
            let fields: String =
                (0..repeat).map(|_| format!(" {name} i37 {}{by}", bit(prng))).collect();
            format!("BITFIELD {}{fields} OVERFLOW FAIL SET u2 0 9", key(prng))
        }
        _ => {
            let bytes = prng.bytes(0..=200_000);
            let offset = (bit(prng) / 8).to_string().into_bytes();
            return vec![b"SETRANGE".to_vec(), key(prng).into_bytes(), offset, bytes];
        }
    };
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

#[test]
fn long_bitmaps_agree_with_redis() {
    for cores in [1, 3] {
        let mut oracle = Oracle::start(&format!("bitmaps-{cores}"));
        let mut world = World::new(cores, unix_millis(), 8);
        let mut prng = Prng::from_seed(cores as u64);
        for step in 0..600 {
            let words = command(&mut prng);
            let words: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
            let shown =
                String::from_utf8_lossy(&words[..3.min(words.len())].join(&b" "[..])).into_owned();
            assert!(world.run(&words) == oracle.run(&words), "{step}: {shown}");
            for key in KEYS {
                let get: [&[u8]; 2] = [b"GET", key.as_bytes()];
                if step % 5 == 0 {
                    assert!(world.run(&get) == oracle.run(&get), "{step}: {shown}: {key}");
                }
            }
        }
        world.check();
    }
}

#[test] // The read works on a cut, in portions.
fn writes_during_a_long_bitmap_read_are_not_seen() {
    let mut engine = Engine::new(1_700_000_000_000, 1);
    engine.line("SETBIT k 79999999 1"); // 10 MB.
    for (line, wanted) in [("BITCOUNT k", ":1\r\n"), ("BITPOS k 1", ":79999999\r\n")] {
        let mut stream = engine.begin(line);
        let mut out = darter_resp::Output::default();
        engine.line("SETBIT k 40000000 1");
        let mut portions = 1;
        while stream.pump(&mut darter_resp::Reply::new(&mut out, false)) {
            assert!(out.is_empty());
            portions += 1;
        }
        assert_eq!(String::from_utf8(out.flatten()).unwrap(), wanted);
        assert!(portions > 70, "{portions}");
        engine.line("SETBIT k 40000000 0");
    }
}

#[test]
fn bitop_combines_thousands_of_sources_on_several_cores() {
    let mut world = World::new(3, unix_millis(), 5);
    let keys: Vec<String> = (0..3_000).map(|at| format!("key:{at}")).collect();
    for (at, key) in keys.iter().enumerate().skip(10) {
        world.run(&[b"SETBIT", key.as_bytes(), at.to_string().as_bytes(), b"1"]);
    }
    let mut words: Vec<&[u8]> = vec![b"BITOP", b"ONE", b"sum"];
    words.extend(keys.iter().map(|key| key.as_bytes()));
    assert_eq!(world.run(&words), b":375\r\n");
    assert_eq!(world.run(&[b"BITCOUNT", b"sum"]), b":2990\r\n");
    assert_eq!(world.run(&[b"BITPOS", b"sum", b"1"]), b":10\r\n");
    words[1] = b"AND";
    assert_eq!(world.run(&words), b":375\r\n");
    assert_eq!(world.run(&[b"BITCOUNT", b"sum"]), b":0\r\n");
    world.check();
}

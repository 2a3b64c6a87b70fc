//! Payloads of sorted sets against the real server: the same bytes as its own, and values that survive
//! the way there and back; and what no server writes any more.

use crate::common::{Bytes, Oracle};
use darter_base::{Prng, score};
use darter_families::TYPES;
use darter_families::zset::ZSet;
use darter_keyspace::{Collection, NewItem, Typed, Value};
use darter_rdb::{Event, Limits, dump};

type Entries = Vec<(Bytes, f64)>;

fn number(prng: &mut Prng) -> f64 {
    match prng.below(6) {
        0 => f64::from_bits(prng.next_u64() >> 3),
        1 => -(prng.below(1 << 33) as f64),
        2 => (prng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64,
        3 => [0.0, f64::INFINITY, f64::NEG_INFINITY, 0.5, 4096.0, 1e16][prng.below(6) as usize],
        _ => prng.below(30) as f64,
    }
}

/// Members of at most `longest` bytes.
fn entries(prng: &mut Prng, count: u64, longest: usize) -> Entries {
    let member = |n: u64, prng: &mut Prng| match n % 3 {
        0 => n.to_string().into_bytes(),
        1 => format!("member:{n}").into_bytes(),
        _ => [n.to_string().as_bytes(), &prng.bytes(longest / 2..=longest - 5)].concat(),
    };
    (0..count).map(|n| (member(n, prng), number(prng))).collect()
}

fn value_of(entries: &Entries) -> ZSet {
    let mut value = ZSet::new();
    for (member, score) in entries {
        assert_eq!(value.edit_aside(0).insert(member, *score), None);
    }
    value
}

fn payload_of(entries: &Entries) -> Bytes {
    dump::write(value_of(entries).items(0), ZSet::TYPE.rdb)
}

/// The entries of a payload, ascending; `None` if it is refused.
fn read(payload: &[u8], chunk: usize) -> Option<Entries> {
    let mut reader = dump::reader(payload, TYPES.kinds(), Limits::default()).ok()?;
    let mut value = ZSet::new();
    let mut pieces = payload.chunks(chunk);
    loop {
        match reader.next() {
            Ok(Some(Event::Item(item))) => {
                if !value.take_in(NewItem::of(item)?) {
                    return None;
                }
            }
            Ok(Some(Event::Eof { .. })) => break,
            Ok(Some(_)) => {}
            Ok(None) => match pieces.next() {
                Some(piece) => reader.push(piece),
                None => reader.finish(),
            },
            Err(_) => return None,
        }
    }
    value.entries().check_invariants();
    let all = value.entries().range(0..value.len());
    Some(all.map(|entry| (entry.member().to_vec(), entry.score())).collect())
}

fn add(oracle: &mut Oracle, key: &[u8], entries: &Entries) {
    for (member, score) in entries {
        oracle.must(&[b"ZADD", key, score::Text::new(*score).as_bytes(), member]);
    }
}

fn ascending(entries: &Entries) -> Entries {
    let mut all = entries.clone();
    all.sort_by(|one, other| {
        one.1.partial_cmp(&other.1).expect("numbers").then_with(|| one.0.cmp(&other.0))
    });
    all
}

#[test] // Both formats of 7.0; redis-server loads ours.
fn sorted_set_payloads_equal_those_of_redis_byte_for_byte() {
    let mut oracle = Oracle::start(&["--rdbcompression", "no"]);
    let mut prng = Prng::from_seed(21);
    for (count, longest, encoding) in
        [(1, 20, 17), (5, 64, 17), (128, 64, 17), (129, 64, 5), (700, 20, 5), (200, 5_000, 5)]
    {
        for round in 0..4 {
            let key = format!("zset:{count}:{longest}:{round}").into_bytes();
            let entries = entries(&mut prng, count, longest);
            add(&mut oracle, &key, &entries);
            let (ours, theirs) = (payload_of(&entries), oracle.must(&[b"DUMP", &key]).bulk());
            assert_eq!((ours[0], theirs[0]), (encoding, encoding), "{count} {longest}");
            assert!(ours == theirs, "{count} {longest}");
            for chunk in [7, 4_096, theirs.len()] {
                assert!(read(&theirs, chunk) == Some(ascending(&entries)), "{count} {longest}");
            }
            oracle.must(&[b"RESTORE", b"copy", b"0", &ours, b"REPLACE"]);
            assert_eq!(oracle.must(&[b"DUMP", b"copy"]).bulk(), theirs, "{count} {longest}");
        }
    }
}

/// `body` as a payload.
fn payload(body: &[u8]) -> Bytes {
    let mut payload = [body, &10_u16.to_le_bytes()].concat();
    let sum = darter_rdb::crc64::of(&payload);
    payload.extend_from_slice(&sum.to_le_bytes());
    payload
}

#[test] // Valid ones include scores as texts in any order, and -0.
fn invalid_scores_and_duplicate_members_are_refused() {
    let texts = payload(b"\x03\x03\x01a\x03 1\x30\x01b\xfe\x01c\x05-2.25");
    assert_eq!(read(&texts, 100), None, "a blank");
    let texts = payload(b"\x03\x03\x01a\x0210\x01b\xfe\x01c\x05-2.25");
    let wanted = [(&b"c"[..], -2.25), (b"a", 10.0), (b"b", f64::INFINITY)];
    let wanted: Entries = wanted.map(|(member, score)| (member.to_vec(), score)).into();
    assert_eq!(read(&texts, 1), Some(wanted));
    let number = |score: f64| [&b"\x05\x01\x01m"[..], &score.to_le_bytes()].concat();
    assert_eq!(read(&payload(&number(1.5)), 3), Some(vec![(b"m".to_vec(), 1.5)]));
    assert_eq!(read(&payload(&number(f64::NAN)), 3), None);
    assert_eq!(read(&payload(b"\x03\x01\x01m\xfd"), 3), None, "NaN in a text");
    let twice = [&b"\x05\x02\x01m\0\0\0\0\0\0\0\0\x01m"[..], &1.0_f64.to_le_bytes()].concat();
    assert_eq!(read(&payload(&twice), 3), None);
}

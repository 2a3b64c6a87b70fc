//! Files that a real redis-server writes, in every encoding it has, read back as it holds them.

use crate::common::{File, INTEGERS, Oracle, Record, Value, read};
use crate::rdb_target::fuzz_rdb;
use darter_base::Prng;

fn fill_strings(oracle: &mut Oracle, prng: &mut Prng) {
    for text in INTEGERS {
        oracle.must(&[b"SET", format!("text:{text}").as_bytes(), text.as_bytes()]);
        oracle.must(&[b"SET", text.as_bytes(), b"as a key"]);
    }
    oracle.must(&[b"SET", b"empty", b""]);
    oracle.must(&[b"SET", b"", b"the empty key"]);
    oracle.must(&[b"SET", b"binary\x00\xff\r\n", &[0, 255, 13, 10]]);
    oracle.must(&[b"SET", &b"long key ".repeat(40), b"packed key"]);
    for len in [20, 21, 63, 64, 200, 16_383, 16_384, 65_536, 65_537, 300_000] {
        oracle.must(&[b"SET", format!("same:{len}").as_bytes(), &vec![b'x'; len]]);
        let random = prng.bytes(len..=len);
        oracle.must(&[b"SET", format!("random:{len}").as_bytes(), &random]);
        let words: Vec<u8> = random.iter().map(|byte| b"abcd"[usize::from(byte & 3)]).collect();
        oracle.must(&[b"SET", format!("words:{len}").as_bytes(), &words]);
    }
}

fn fill_collections(oracle: &mut Oracle, prng: &mut Prng) {
    for text in INTEGERS {
        oracle.must(&[b"HSET", b"hash:integers", text.as_bytes(), text.as_bytes()]);
        oracle.must(&[b"SADD", b"set:texts", text.as_bytes()]);
    }
    for (name, text) in [("set:16", "32767"), ("set:32", "-70000"), ("set:64", "5000000000")] {
        oracle.must(&[b"SADD", name.as_bytes(), b"-5", b"7", text.as_bytes()]);
    }
    for count in [1_u64, 64, 130, 600, 3000] {
        let (hash, set) = (format!("hash:{count}"), format!("set:{count}"));
        let numbers = format!("set:numbers:{count}");
        for index in 0..count {
            let field = format!("field {index}");
            let value = prng.bytes(0..=40);
            oracle.must(&[b"HSET", hash.as_bytes(), field.as_bytes(), &value]);
            oracle.must(&[b"SADD", set.as_bytes(), &value]);
            let number = (index * index * 1000).to_string();
            oracle.must(&[b"SADD", numbers.as_bytes(), number.as_bytes()]);
        }
    }
    for len in [63, 64, 65, 1000, 70_000, 200_000] {
        let value = prng.bytes(len..=len);
        oracle.must(&[b"HSET", b"hash:long", len.to_string().as_bytes(), &value]);
        oracle.must(&[b"HSET", b"hash:same", &vec![b'f'; len], &vec![b'v'; len]]);
        oracle.must(&[b"HSET", format!("hash:{len}:one").as_bytes(), b"f", &value]);
        oracle.must(&[b"SADD", b"set:same", &vec![b'm'; len]]);
        oracle.must(&[b"LPUSH", b"list:long", &value, b"short", &vec![b'e'; len]]);
    }
    for text in INTEGERS {
        oracle.must(&[b"LPUSH", b"list:integers", text.as_bytes()]);
    }
    for index in 0..5_000_u64 {
        oracle.must(&[b"RPUSH", b"list:many", format!("element:{index}").as_bytes()]);
        oracle.must(&[b"LPUSH", b"list:numbers", (index * index).to_string().as_bytes()]);
    }
}

fn fill_deadlines(oracle: &mut Oracle) {
    for database in [b"1", b"7"] {
        oracle.must(&[b"SELECT", database]);
        oracle.must(&[b"SET", b"later", b"v", b"PXAT", b"33333333333333"]);
        oracle.must(&[b"HSET", b"hash", b"f", b"v"]);
        oracle.must(&[b"PEXPIREAT", b"hash", b"4102444800123"]);
        oracle.must(&[b"SADD", b"set", b"1"]);
        oracle.must(&[b"SADD", b"forever", b"1", b"two"]);
        oracle.must(&[b"EXPIRE", b"set", b"100000"]);
    }
    oracle.must(&[b"SELECT", b"0"]);
}

#[test]
fn redis_files_in_every_encoding_are_read() {
    let settings: &[&[&str]] = &[
        &[],
        &["--rdbcompression", "no", "--rdbchecksum", "no"],
        &["--hash-max-listpack-entries", "0", "--set-max-intset-entries", "0"],
        &["--maxmemory-policy", "allkeys-lru", "--hash-max-listpack-entries", "5000"],
        &["--list-max-listpack-size", "7", "--list-compress-depth", "1"],
        &["--maxmemory-policy", "allkeys-lfu", "--hash-max-listpack-value", "1000000"],
    ];
    let mut encodings = std::collections::BTreeSet::new();
    let (mut idle, mut frequency) = (0, 0);
    for (seed, settings) in settings.iter().enumerate() {
        let mut oracle = Oracle::start(settings);
        let mut prng = Prng::from_seed(seed as u64);
        fill_strings(&mut oracle, &mut prng);
        fill_collections(&mut oracle, &mut prng);
        fill_deadlines(&mut oracle);
        let lua = b"#!lua name=lib\nredis.register_function('f', function() return 1 end)";
        oracle.must(&[b"FUNCTION", b"LOAD", lua]);

        let bytes = oracle.save();
        let expected = oracle.records(8);
        for chunk in [bytes.len(), 65_536, 4099] {
            let file = read(&bytes, chunk, false).unwrap_or_else(|broken| panic!("{}", broken.0));
            assert_eq!(file.keys.len(), expected.len(), "{settings:?}");
            for (key, record) in &expected {
                assert!(file.keys.get(key) == Some(record), "{settings:?} {key:?}");
            }
            assert_eq!(file.aux[&b"redis-ver".to_vec()], b"7.0.15", "{settings:?}");
            assert_eq!(file.functions, [lua.to_vec()], "{settings:?}");
            encodings.extend(file.encodings);
            (idle, frequency) = (idle + file.idle, frequency + file.frequency);
        }
    }
    let all = [0, 2, 4, 11, 16, 18];
    assert_eq!(encodings.into_iter().collect::<Vec<_>>(), all);
    assert!(idle > 0 && frequency > 0, "{idle} {frequency}");
}

#[test]
fn a_redis_file_with_a_stream_is_read() {
    let mut oracle = Oracle::start(&[]);
    oracle.must(&[b"XADD", b"key", b"1-1", b"a", b"b"]);
    oracle.must(&[b"XGROUP", b"CREATE", b"key", b"group", b"0"]);
    let file = read(&oracle.save(), 100, false).unwrap_or_else(|broken| panic!("{}", broken.0));
    assert_eq!(file.encodings, [19].into());
    let (_, record) = file.keys.first_key_value().expect("the key");
    let Value::Items(items) = &record.value else { panic!("{record:?}") };
    let begins = |start: &str| items.iter().filter(|item| item.starts_with(start)).count();
    // The name is that of the node's first entry.
    assert_eq!((begins("Piece(Names"), begins("Piece(Same")), (1, 1), "{items:?}");
    assert_eq!((begins("Single"), begins("Piece(Group")), (2, 1), "{items:?}");
}

/// A file of a few kilobytes that holds a bit of everything.
fn small_file() -> (Vec<u8>, File) {
    let mut oracle = Oracle::start(&["--hash-max-listpack-entries", "8"]);
    for index in 0..12_u32 {
        let text = index.to_string();
        let text = text.as_bytes();
        oracle.must(&[b"SET", &[b"key:", text].concat(), &vec![b'a'; index as usize * 9]]);
        oracle.must(&[b"HSET", b"large", text, &vec![b'v'; index as usize * 4]]);
        oracle.must(&[b"HSET", &[b"hash:", text].concat(), b"f", text, text, b"v"]);
        oracle.must(&[b"SADD", b"integers", text]);
        oracle.must(&[b"SADD", b"texts", text, &[b"m", text].concat()]);
        oracle.must(&[b"PEXPIREAT", &[b"key:", text].concat(), b"33333333333333"]);
    }
    let bytes = oracle.save();
    let file = read(&bytes, bytes.len(), true).unwrap_or_else(|broken| panic!("{}", broken.0));
    assert_eq!(file.keys, oracle.records(1));
    (bytes, file)
}

#[test]
fn chunks_of_any_size_give_the_same_events() {
    let (bytes, whole) = small_file();
    for chunk in (1..40).chain([100, 1000]) {
        assert!(read(&bytes, chunk, true).as_ref() == Ok(&whole), "{chunk}");
    }
}

#[test]
fn truncation_at_any_offset_is_reported_at_that_offset() {
    let (bytes, whole) = small_file();
    for cut in 0..bytes.len() {
        let (error, part) = *read(&bytes[..cut], 64, true).expect_err("a refusal");
        assert_eq!(error.offset, cut as u64, "{error}");
        assert!(error.to_string().starts_with("unexpected end of data ("), "{error}");
        assert!(whole.log.starts_with(&part.log), "{cut}");
        assert!(!part.done);
    }
}

#[test] // By the structure, or at last by the checksum.
fn a_flipped_bit_is_always_detected() {
    let (mut bytes, whole) = small_file();
    let mut early = 0;
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        match read(&bytes, 512, false) {
            Err(broken) => {
                let error = broken.0;
                assert!(error.offset <= bytes.len() as u64, "{bit}: {error}");
                early += usize::from(error.offset < bytes.len() as u64 - 8);
            }
            // From version 10 to 11 and so on: only the checksum differs, and it is checked.
            Ok(file) => panic!("bit {bit} went unnoticed: {}", file == whole),
        }
        if bit % 5 == 0 {
            // Without the checksum the structure alone must survive the damage.
            let body = bytes.len() - 8;
            fuzz_rdb(&[&bytes[..body], &[0; 8]].concat());
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(early > bytes.len(), "{early}");
}

#[test]
fn a_large_value_needs_little_memory() {
    let mut oracle = Oracle::start(&[]);
    let packed: Vec<u8> = (0..8_000_000_u32).map(|at| (at / 50) as u8).collect();
    oracle.must(&[b"SET", b"packed", &packed]);
    oracle.must(&[b"SET", b"plain", &Prng::from_seed(1).bytes(3_000_000..=3_000_000)]);
    let bytes = oracle.save();
    let file = read(&bytes, 10_000, true).unwrap_or_else(|broken| panic!("{}", broken.0));
    let packed_key = (0, b"packed".to_vec());
    let expected = Record { value: Value::String(packed), expiry_ms: None };
    assert!(file.keys[&packed_key] == expected);
    assert!(file.keys == oracle.records(1));
    let longest = file.log.iter().filter(|line| line.starts_with("Item(Chunk")).count();
    assert!(longest > 150, "{longest} chunks"); // 11 MB in pieces of 64 KiB.
}

//! Encodings that redis-server 7.0 does not write, older and newer ones, from hand-made bytes, and
//! files that contradict themselves.

use crate::common::{File, Record, Value, feed, read};
use darter_families::TYPES;
use darter_rdb::{Crc, Event, Limits, Product, Reader};
use darter_rdb::{crc64, dump};
use std::collections::BTreeMap;

/// A file: the magic, `body`, the end mark and its checksum.
fn file(magic: &[u8], body: &[u8]) -> Vec<u8> {
    let mut bytes = [magic, body, &[0xff]].concat();
    let crc = crc64::of(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// A string of less than 64 bytes.
fn short(bytes: &[u8]) -> Vec<u8> {
    [&[bytes.len() as u8], bytes].concat()
}

/// One key `k` with a value of type `encoding`, read in two ways.
fn one(magic: &[u8], encoding: u8, value: &[u8]) -> Result<File, String> {
    let bytes = file(magic, &[&[encoding, 1, b'k'], value].concat());
    let whole = read(&bytes, bytes.len(), true).map_err(|broken| broken.0.to_string());
    let pieces = read(&bytes, 1, true).map_err(|broken| broken.0.to_string());
    assert_eq!(whole, pieces);
    whole
}

fn hash(fields: &[(&str, &str, Option<u64>)]) -> Value {
    let fields = fields.iter().map(|&(field, value, deadline)| {
        (field.as_bytes().to_vec(), (value.as_bytes().to_vec(), deadline))
    });
    Value::Hash(fields.collect())
}

fn set(members: &[&str]) -> Value {
    Value::Set(members.iter().map(|member| member.as_bytes().to_vec()).collect())
}

fn only(file: File) -> Value {
    assert_eq!(file.keys.len(), 1);
    file.keys[&(0, b"k".to_vec())].value.clone()
}

/// A listpack with `entries` already coded, and `count` of them announced.
fn listpack(entries: &[&[u8]], count: u16) -> Vec<u8> {
    let body = entries.concat();
    let size = (body.len() + 7) as u32;
    [&size.to_le_bytes()[..], &count.to_le_bytes(), &body, &[0xff]].concat()
}

const LP_A: &[u8] = &[0x81, b'a', 2]; // "a"
const LP_B: &[u8] = &[0x81, b'b', 2]; // "b"
const LP_7: &[u8] = &[0x07, 1]; // 7
const LP_MINUS_1: &[u8] = &[0xdf, 0xff, 2]; // -1 in 13 bits
const LP_0: &[u8] = &[0x00, 1];
/// 1 700 000 000 000 in 64 bits.
const LP_DEADLINE: &[u8] = &[0xf4, 0x00, 0x68, 0xe5, 0xcf, 0x8b, 0x01, 0, 0, 9];
const DEADLINE: u64 = 1_700_000_000_000;

#[test] // They have no checksum.
fn files_of_the_oldest_versions_are_read() {
    for version in 1..=4 {
        let bytes = format!("REDIS000{version}\u{0}\u{1}k\u{1}v").into_bytes();
        let bytes = [&bytes[..], b"\xff"].concat();
        for step in [bytes.len(), 1] {
            let file = read(&bytes, step, true).map_err(|broken| broken.0.to_string()).unwrap();
            assert_eq!(only(file), Value::String(b"v".to_vec()), "{version}");
        }
        let cut = read(&bytes[..bytes.len() - 1], 1, true).map_err(|broken| broken.0.to_string());
        assert!(cut.unwrap_err().contains("end"), "{version}");
    }
}

#[test]
fn zipmaps_are_read() {
    let zipmap = [
        &[2_u8, 1][..],
        b"f",
        &[2, 3],
        b"v1",
        b"...", // Three bytes of room.
        &[0xfe, 2, 0, 0, 0],
        b"f2",
        &[0, 0],
        &[0xff], // A long length; an empty value.
    ]
    .concat();
    let file = one(b"REDIS0005", 9, &short(&zipmap)).unwrap();
    assert_eq!(only(file), hash(&[("f", "v1", None), ("f2", "", None)]));
    for cut in 1..zipmap.len() {
        let text = one(b"REDIS0005", 9, &short(&zipmap[..cut])).unwrap_err();
        assert!(text.starts_with("zipmap: "), "{cut}: {text}");
    }
}

#[test]
fn ziplists_with_every_entry_encoding_are_read() {
    let entries: &[(&[u8], &str)] = &[
        (b"\x01a", "a"),
        (b"\x40\x03abc", "abc"),
        (b"\x80\0\0\0\x02xy", "xy"),
        (&[0xfe, 0x80], "-128"),
        (&[0xc0, 0x00, 0x80], "-32768"),
        (&[0xf0, 0xff, 0xff, 0x7f], "8388607"),
        (&[0xd0, 0, 0, 0, 0x80], "-2147483648"),
        (&[0xe0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], "9223372036854775807"),
        (&[0xf1], "0"),
        (&[0xfd], "12"),
    ];
    let (mut body, mut previous, mut tail) = (Vec::new(), 0, 0);
    for (index, (coded, _)) in entries.iter().enumerate() {
        tail = 10 + body.len();
        let start = body.len();
        match index {
            3 => body.extend_from_slice(&[0xfe, previous, 0, 0, 0]), // The long form is legal.
            _ => body.push(previous),
        }
        body.extend_from_slice(coded);
        previous = (body.len() - start) as u8;
    }
    let head = [(body.len() + 11) as u32, tail as u32];
    let bytes: Vec<u8> = head.iter().flat_map(|number| number.to_le_bytes()).collect();
    let ziplist = [&bytes[..], &10_u16.to_le_bytes(), &body, &[0xff]].concat();
    let value = [&[0x40, ziplist.len() as u8], &ziplist[..]].concat();
    let expected: Vec<_> = entries.chunks(2).map(|pair| (pair[0].1, pair[1].1, None)).collect();
    assert_eq!(only(one(b"REDIS0006", 13, &value).unwrap()), hash(&expected));
    // The size, the tail, the count, a coding; lengths of the previous entry: of none, the second.
    for at in [0, 4, 8, 11, 10, 10 + 1 + entries[0].0.len()] {
        let mut wrong = ziplist.clone();
        wrong[at] ^= if at == 4 { 1 } else { 0xbe };
        let text = one(b"REDIS0006", 13, &[&[0x40, wrong.len() as u8], &wrong[..]].concat());
        assert!(text.unwrap_err().starts_with("ziplist: "), "{at}");
    }
}

/// A ziplist of short texts.
fn ziplist(texts: &[&str]) -> Vec<u8> {
    let (mut body, mut previous, mut tail) = (Vec::new(), 0, 0);
    for text in texts {
        tail = 10 + body.len();
        body.extend_from_slice(&[previous, text.len() as u8]);
        body.extend_from_slice(text.as_bytes());
        previous = text.len() as u8 + 2;
    }
    let (size, count) = ((body.len() + 11) as u32, texts.len() as u16);
    let head = [&size.to_le_bytes()[..], &(tail as u32).to_le_bytes(), &count.to_le_bytes()];
    [&head.concat()[..], &body, &[0xff]].concat()
}

fn list(elements: &[&str]) -> Value {
    Value::List(elements.iter().map(|element| element.as_bytes().to_vec()).collect())
}

#[test] // Redis 2 and 3, 3.2 to 6.2, and all kinds of nodes of 7.0.
fn lists_in_every_format_are_read() {
    let plain = [&[2][..], &short(b"a"), &short(b"12")].concat();
    assert_eq!(only(one(b"REDIS0006", 1, &plain).unwrap()), list(&["a", "12"]));
    let packed = short(&ziplist(&["a", "bc", "12"]));
    assert_eq!(only(one(b"REDIS0006", 10, &packed).unwrap()), list(&["a", "bc", "12"]));
    let nodes = [&[2][..], &short(&ziplist(&["a", "b"])), &short(&ziplist(&["c"]))].concat();
    assert_eq!(only(one(b"REDIS0009", 14, &nodes).unwrap()), list(&["a", "b", "c"]));
    let nodes = [
        &[5][..],
        &[2],
        &short(&listpack(&[LP_A, LP_7], 2)),
        &[1],
        &short(b"plain"),
        &[1, 0xc0, 0x0c], // 12, as an integer.
        &[2],
        &short(&listpack(&[], 0)),
        &[2],
        &short(&listpack(&[LP_MINUS_1], u16::MAX)),
    ]
    .concat();
    assert_eq!(
        only(one(b"REDIS0010", 18, &nodes).unwrap()),
        list(&["a", "7", "plain", "12", "-1"])
    );
    for (nodes, fault) in [
        (vec![1, 3, 1, b'a'], "node of a list: neither one element nor a block of them"),
        (vec![1, 0, 1, b'a'], "node of a list: neither one element nor a block of them"),
        (vec![1, 1, 0], "node of a list: an element without bytes in a node of its own"),
        ([&[1, 2][..], &short(&listpack(&[LP_A], 2))].concat(), "listpack: its count differs"),
    ] {
        let text = one(b"REDIS0010", 18, &nodes).unwrap_err();
        assert!(text.starts_with(fault), "{text}");
    }
}

#[test]
fn sets_as_listpacks_and_intsets_are_read() {
    let value = short(&listpack(&[LP_A, LP_7, LP_MINUS_1], 3));
    assert_eq!(only(one(b"REDIS0011", 20, &value).unwrap()), set(&["a", "7", "-1"]));
    let uncounted = short(&listpack(&[LP_A], u16::MAX));
    assert_eq!(only(one(b"REDIS0011", 20, &uncounted).unwrap()), set(&["a"]));
    let intset = [&4_u32.to_le_bytes()[..], &[2, 0, 0, 0], &[0xff; 4], &[1, 0, 0, 0]].concat();
    assert_eq!(only(one(b"REDIS0005", 11, &short(&intset)).unwrap()), set(&["-1", "1"]));
}

#[test]
fn field_deadlines_in_all_five_formats_are_read() {
    let expected = hash(&[("a", "b", Some(DEADLINE)), ("b", "7", None)]);
    let triples = listpack(&[LP_A, LP_B, LP_DEADLINE, LP_B, LP_7, LP_0], 6);
    let origin = (DEADLINE - 9).to_le_bytes();
    let absolute = [&[2, 0x81], &DEADLINE.to_be_bytes()[..], b"\x01a\x01b\0\x01b\xc0\x07"].concat();
    let relative = [&origin[..], b"\x02\x0a\x01a\x01b\0\x01b\xc0\x07"].concat();
    let behind = [&b"\x02\x01a\x01b"[..], &DEADLINE.to_le_bytes(), b"\x01b\x017", &[0xff; 8]];
    let cases: &[(&[u8], u8, Vec<u8>)] = &[
        (b"REDIS0012", 22, absolute),
        (b"REDIS0012", 23, short(&triples)),
        (b"REDIS0012", 24, relative),
        (b"REDIS0012", 25, [&origin[..], &short(&triples)].concat()),
        (b"VALKEY080", 22, behind.concat()),
    ];
    for (magic, encoding, value) in cases {
        let file = one(magic, *encoding, value).unwrap_or_else(|text| panic!("{encoding}: {text}"));
        assert_eq!(only(file), expected, "{encoding}");
    }
}

#[test]
fn field_deadlines_out_of_range_are_refused() {
    let far = [&u64::MAX.to_le_bytes()[..], b"\x01\x02\x01a\x01b"].concat();
    assert!(one(b"REDIS0012", 24, &far).unwrap_err().starts_with("field deadline out of range"));
    let triple = short(&listpack(&[LP_A, LP_B, LP_MINUS_1], 3));
    assert!(one(b"REDIS0012", 23, &triple).unwrap_err().contains("a deadline out of range"));
    let text = one(b"REDIS0012", 23, &short(&listpack(&[LP_A, LP_B], 2))).unwrap_err();
    assert!(text.contains("a field without a deadline"), "{text}");
}

#[test]
fn inconsistent_packed_collections_are_refused() {
    let cases: &[(u8, Vec<u8>, &str)] = &[
        (16, listpack(&[LP_A], 1), "a field without a value"),
        (16, listpack(&[LP_A, LP_B], 4), "its count differs from its entries"),
        (16, listpack(&[LP_A, &[0x81, b'b', 3]], 2), "an entry's length behind it is wrong"),
        (16, listpack(&[&[0xf0, 0xff, 0xff, 0xff, 0xff]], 1), "an entry reaches past the end"),
        (16, listpack(&[&[0xbf, b'a']], 1), "an entry reaches past the end"),
        (16, listpack(&[&[0xf5]], 1), "an entry's coding is unknown"),
        (16, listpack(&[&[0xff], LP_A], 1), "bytes behind the end mark"),
        (16, vec![7, 0, 0, 0, 0, 0], "too short, or no end mark"),
        (16, vec![9, 0, 0, 0, 0, 0, 0xff], "its size differs from the string's"),
        (11, vec![3, 0, 0, 0, 0, 0, 0, 0], "integers are neither 2, 4 nor 8 bytes wide"),
        (11, vec![2, 0, 0, 0, 1, 0, 0, 0], "its count differs from the string's length"),
        (11, vec![2, 0], "an entry reaches past the end"),
    ];
    for (encoding, block, fault) in cases {
        let text = one(b"REDIS0010", *encoding, &short(block)).unwrap_err();
        assert!(text.contains(fault), "{encoding} {block:?}: {text}");
    }
}

#[test]
fn lzf_strings_with_wrong_lengths_are_refused() {
    let cases: &[(&[u8], &str)] = &[
        (b"\xc3\x02\x7f\xff\x00a", "LZF string: 2 bytes cannot become 16383"),
        (b"\xc3\x02\x02\x00a", "LZF string: the announced length is wrong"),
        (b"\xc3\x02\x02\x01a", "LZF string: the last operation is cut off"),
        (b"\xc3\x02\x03\x20\x00", "LZF string: a copy reaches before the first byte"),
        (b"\xc3\x04\x01\x00a\x00b", "LZF string: the announced length is wrong"),
        (b"\xc3\x03\x02\x02abc", "LZF string: "),
    ];
    for (value, text) in cases {
        for (encoding, lead) in [(0, &b""[..]), (2, b"\x01")] {
            let error = one(b"REDIS0010", encoding, &[lead, value].concat()).unwrap_err();
            assert!(error.starts_with(text), "{encoding} {value:?}: {error}");
        }
    }
}

#[test]
fn every_opcode_is_accepted() {
    let module_id = 0_u64; // "AAAAAAAAA", version 0.
    let body = [
        &b"\xfa\x09redis-ver\x057.4.0"[..],
        b"\xf5\x08#!lua ..",
        &[&[0xf7, 0x81], &module_id.to_be_bytes()[..], b"\x02\x01"].concat(),
        b"\x01\x05\x02\x06\x03....\x04........\x05\x04skip\x05\xc0\x01\x00",
        b"\xfe\x03\xfb\x02\x01\xf4\x05\x02\x01",
        b"\xfd\x10\x00\x00\x00\x00\x01a\x01v",
        b"\xfc\xff\xff\xff\xff\xff\xff\xff\xff\xf8\x07\x00\x01b\x01v",
        b"\xfc\xfe\xff\xff\xff\xff\xff\xff\xff\xf9\x09\x00\x01c\x01v",
        b"\xfe\xc0", // A database number must be a plain length.
    ];
    let good = file(b"REDIS0012", &body[..8].concat());
    let whole = read(&good, good.len(), true).unwrap_or_else(|broken| panic!("{}", broken.0));
    assert_eq!(read(&good, 1, true).as_ref(), Ok(&whole));
    let record = |expiry_ms| Record { value: Value::String(b"v".to_vec()), expiry_ms };
    let expected = BTreeMap::from([
        ((3, b"a".to_vec()), record(Some(16_000))),
        ((3, b"b".to_vec()), record(None)),
        ((3, b"c".to_vec()), record(Some(0))),
    ]);
    assert_eq!(whole.keys, expected);
    assert_eq!((whole.idle, whole.frequency), (1, 1));
    assert_eq!(whole.functions, [b"#!lua ..".to_vec()]);
    let skipped = format!("{:?}", Event::ModuleSkipped { module: *b"AAAAAAAAA" });
    assert!(whole.log.contains(&skipped), "{:?}", whole.log);
    let (error, _) = *read(&file(b"REDIS0012", &body.concat()), 9, false).unwrap_err();
    assert!(error.to_string().starts_with("invalid string encoding 0 at offset "), "{error}");
}

#[test]
fn invalid_headers_and_trailers_are_refused() {
    let cases: &[(&[u8], &str)] = &[
        (b"RODIS0011\xff", "neither REDIS nor VALKEY: not an RDB file at offset 0"),
        (b"REDIS00x1\xff", "neither REDIS nor VALKEY: not an RDB file at offset 0"),
        (b"REDIS0000\xff", "RDB version 0 is not read"),
        (b"REDIS0013\xff", "RDB version 13 is not read"),
        (b"VALKEY079\xff", "RDB version 79 is not read"),
        (b"REDIS0010\xf6", "functions of a Redis 7.0 release candidate are not read at offset 9"),
        (b"REDIS0010\xc8", "unknown opcode or value type 200 at offset 9"),
        (b"REDIS0010\x08", "unknown opcode or value type 8 at offset 9"),
        (b"REDIS0010\x07", "unsupported value type 'module' (module value, 7) at offset 9"),
        (b"REDIS0010\x1a", "unsupported value type 'stream' (listpacks4, 26) at offset 9"),
        (b"VALKEY080\x1a", "unknown opcode or value type 26 at offset 9"),
        (b"VALKEY080\x19", "unknown opcode or value type 25 at offset 9"),
        (b"REDIS0010\xfe\x81\0\0\0\x01\0\0\0\0", "database number 4294967296 out of range"),
        (b"REDIS0010\xff12345678", "wrong checksum: the bytes give "),
        (b"REDIS0010\0\x80\x7f\xff\xff\xff", "string of 2147483647 bytes exceeds the limit"),
    ];
    for (bytes, text) in cases {
        let (error, _) = *read(bytes, 3, false).unwrap_err();
        assert!(error.to_string().starts_with(text), "{error}");
    }
    let mut reader = Reader::new(TYPES.kinds(), Limits::default());
    reader.push(b"REDIS0005\xff\0\0\0\0\0\0\0\0");
    let start = Event::Start { product: Product::Redis, version: 5 };
    assert_eq!(reader.next(), Ok(Some(start)));
    assert_eq!(reader.next(), Ok(Some(Event::Eof { crc: Crc::Off })));
    assert_eq!(reader.next(), Ok(None));
    reader.push(b"behind the end");
    assert_eq!(reader.next(), Ok(None));
    let mut reader = Reader::new(TYPES.kinds(), Limits::default()).verifying(false);
    reader.push(b"REDIS0005\xff12345678");
    assert_eq!(reader.next(), Ok(Some(start)));
    assert_eq!(reader.next(), Ok(Some(Event::Eof { crc: Crc::Off })));
}

#[test]
fn a_header_announcing_a_billion_elements_allocates_nothing() {
    let heads: &[&[u8]] = &[
        b"\x04\x01k\x80\x3b\x9a\xca\x00", // A hash of a billion fields.
        b"\x02\x01k\x81\xff\xff\xff\xff\xff\xff\xff\xff", // A set of 2^64 - 1 members.
        b"\x00\x01k\x80\x1f\xff\xff\xff", // A string of 512 MiB.
        b"\x10\x01k\x80\x1f\xff\xff\xff", // A listpack of as much.
        b"\x00\x80\x1f\xff\xff\xff",      // A key.
        b"\x00\x01k\xc3\x80\x01\x00\x00\x00\x80\x1f\xff\xff\xff", // Packed.
        b"\xfb\x81\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00",
    ];
    for head in heads {
        let mut reader = Reader::new(TYPES.kinds(), Limits::default());
        reader.push(&[b"REDIS0010", *head, b"\x01a\x01b"].concat());
        while let Ok(Some(_)) = reader.next() {}
        assert!(reader.memory_bytes() < 1024, "{head:?}: {}", reader.memory_bytes());
        assert_eq!(reader.next(), Ok(None), "{head:?}: more may come");
        reader.finish();
        let error = reader.next().unwrap_err();
        assert!(error.to_string().starts_with("unexpected end of data"), "{error}");
    }
}

#[test]
fn payloads_with_a_wrong_trailer_or_length_are_refused() {
    let payload = |version: u16, value: &[u8]| {
        let mut bytes = [value, &version.to_le_bytes()].concat();
        let crc = crc64::of(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    };
    let reads = |bytes: &[u8]| {
        let run = |chunk| {
            let reader = dump::reader(bytes, TYPES.kinds(), Limits::default())
                .expect("a version that is read");
            let read = feed(reader, bytes, chunk, true).map_err(|broken| broken.0.to_string());
            read.map(|file| file.keys[&(0, Vec::new())].value.clone())
        };
        assert_eq!(run(1), run(bytes.len()));
        run(bytes.len())
    };
    let good = payload(10, b"\x00\x01v");
    assert_eq!(reads(&good), Ok(Value::String(b"v".to_vec())));
    assert_eq!(dump::verify(&good), Ok(10));
    let surplus = payload(10, b"\x00\x01v+");
    assert!(reads(&surplus).unwrap_err().starts_with("bytes behind the end of the value"));
    let mut wrong = good.clone();
    wrong[2] ^= 1;
    assert_eq!(dump::verify(&wrong), Err(dump::Invalid::Checksum));
    assert!(reads(&wrong).unwrap_err().starts_with("wrong checksum"));
    let valkey = payload(80, &[&b"\x16\x01\x01a\x01b"[..], &DEADLINE.to_le_bytes()].concat());
    assert_eq!(reads(&valkey), Ok(hash(&[("a", "b", Some(DEADLINE))])));
    assert_eq!(dump::verify(&payload(13, b"\x00\x01v")), Err(dump::Invalid::Version(13)));
    assert_eq!(dump::verify(b"123456789"), Err(dump::Invalid::Short));
    let mut steps = dump::Verifier::new();
    let results: Vec<_> = (0..4).map(|_| steps.step(&good, 2)).collect();
    assert_eq!(results, [None, None, Some(Ok(10)), Some(Ok(10))]);
}

#[test]
fn memory_of_a_large_field_is_freed_after_it_is_read() {
    let len = 20_000_000_u32;
    let large = [&b"\x01f\x80"[..], &len.to_be_bytes(), &vec![7; len as usize]].concat();
    let mut reader = Reader::new(TYPES.kinds(), Limits::default());
    reader.push(b"REDIS0010\x04\x01k\x81\0\0\0\0\0\x01\0\0");
    let (mut most, mut fields) = (0, 0);
    let mut feed = |bytes: &[u8]| {
        for piece in bytes.chunks(100_000) {
            reader.push(piece);
            while let Some(event) = reader.next().unwrap() {
                fields += u32::from(matches!(event, Event::Item(_)));
            }
            most = most.max(reader.memory_bytes());
        }
    };
    feed(&large);
    feed(&b"\x01a\x01b".repeat(60_000));
    assert_eq!(fields, 60_001);
    assert!(most >= len as usize && most <= 3 * len as usize, "{most}");
    assert!(reader.memory_bytes() < 1_000_000, "{}", reader.memory_bytes());
}

//! Seeded fuzzing: damaged files and payloads never break a promise of the reader. The target
//! itself checks them; here are the seeds, and a count that shows that the damage goes deep.

use crate::common::{Fields, feed, kind, read};
use crate::rdb_target::fuzz_rdb;
use darter_base::Prng;
use darter_families::TYPES;
use darter_rdb::crc64;
use darter_rdb::dump;
use darter_rdb::{Limits, Source, Survey, Writer};

fn fields(prng: &mut Prng) -> Fields {
    let count = prng.below(12);
    let deadlines = prng.chance(50);
    let fields = (0..count).map(|index| {
        let value = if prng.chance(50) {
            prng.next_u64().to_string().into_bytes()
        } else {
            prng.bytes(0..=90)
        };
        let deadline = (deadlines && prng.chance(50)).then(|| 1 + prng.below(1 << 40));
        (format!("field {index}").into_bytes(), value, deadline)
    });
    Fields(fields.collect(), 0)
}

/// A file with hashes in every encoding that the writer has, and hand-made pieces between.
fn seed_file(prng: &mut Prng) -> Vec<u8> {
    let (mut writer, mut out) = (Writer::new(), Vec::new());
    writer.start(12, &mut out);
    writer.aux(b"redis-ver", b"7.4.0", &mut out);
    writer.select_db(3, &mut out);
    writer.resize_db(4, 1, &mut out);
    for index in 0..4 {
        let mut source = fields(prng);
        let mut survey = Survey::new(kind("hash"));
        while let Some(item) = source.next() {
            survey.item(item);
        }
        source.rewind();
        let expiry = prng.chance(30).then_some(77);
        writer.key(format!("key {index}").as_bytes(), expiry, survey.plan(), &mut out);
        while let Some(item) = source.next() {
            writer.item(item, &mut out);
        }
        writer.end_of_key(&mut out);
    }
    // Pieces that the writer never makes: LZF, intset, zipmap, module data, a function.
    out.extend_from_slice(b"\x00\x01l\xc3\x05\x40\x50\x00a\xe0\x46\x00");
    out.extend_from_slice(b"\x0b\x01i\x0c\x02\0\0\0\x02\0\0\0\x01\0\x02\0");
    out.extend_from_slice(b"\x09\x01z\x09\x01\x01f\x02\x01vv.\xff");
    out.extend_from_slice(b"\xf7\x01\x02\x01\x05\x02ab\x00\xf5\x03lua");
    out.extend_from_slice(b"\x00\x01r\x40\x50");
    out.extend(prng.bytes(80..=80));
    out.push(0xff);
    let crc = crc64::of(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

fn damage(bytes: &mut Vec<u8>, prng: &mut Prng) {
    for _ in 0..=prng.below(4) {
        let at = prng.below(bytes.len() as u64) as usize;
        match prng.below(6) {
            0 => bytes[at] ^= 1 << prng.below(8),
            1 => bytes[at] = prng.next_u64() as u8,
            2 => bytes.truncate(at.max(10)),
            3 => drop(bytes.splice(at..at, prng.bytes(1..=9))),
            4 => drop(bytes.drain(at..(at + 5).min(bytes.len()))),
            _ => bytes[at] = [0x80, 0x81, 0xc3, 0xff, 0xfe, 0x00][prng.below(6) as usize],
        }
        if bytes.is_empty() {
            return;
        }
    }
}

#[test]
fn damaged_files_are_refused_or_read_within_the_limits() {
    let (mut parsed, mut refused) = (0, 0);
    for seed in 0..6000 {
        let mut prng = Prng::from_seed(seed);
        let mut bytes = seed_file(&mut prng);
        if seed % 50 == 0 {
            read(&bytes, 7, false).unwrap_or_else(|broken| panic!("{seed}: {}", broken.0));
        }
        damage(&mut bytes, &mut prng);
        if bytes.len() > 20 && prng.chance(50) {
            let at = bytes.len() - 8; // Without a checksum, so that the parser meets the damage.
            bytes[at..].fill(0);
        }
        fuzz_rdb(&bytes);
        match read(&bytes, 33, false) {
            Ok(_) => parsed += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(parsed > 200 && refused > 2000, "{parsed} {refused}");
}

#[test]
fn damaged_payloads_are_refused_or_read_within_the_limits() {
    let mut survivors = 0;
    for seed in 0..4000 {
        let mut prng = Prng::from_seed(seed);
        let mut bytes = dump::write(fields(&mut prng), kind("hash"));
        fuzz_rdb(&bytes);
        bytes.truncate(bytes.len() - dump::TRAILER_BYTES);
        damage(&mut bytes, &mut prng);
        bytes.extend_from_slice(&[if prng.chance(20) { 80 } else { 12 }, 0]);
        let crc = crc64::of(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        fuzz_rdb(&bytes);
        let reader = dump::reader(&bytes, TYPES.kinds(), Limits::default()).unwrap();
        survivors += u32::from(feed(reader, &bytes, 50, false).is_ok());
    }
    assert!(survivors > 200, "{survivors}");
}

#[test]
fn random_bytes_are_refused() {
    for seed in 0..3000 {
        let mut prng = Prng::from_seed(seed);
        let mut bytes = prng.bytes(0..=400);
        fuzz_rdb(&bytes);
        bytes.splice(0..0, *b"REDIS0012");
        fuzz_rdb(&bytes);
        assert!(read(&bytes, 64, false).is_err(), "{seed}");
    }
}

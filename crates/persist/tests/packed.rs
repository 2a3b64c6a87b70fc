//! Packed collections, built here from the descriptions of their formats, with entries at both
//! sides of every limit between two codings; and blocks that are wrong by one.

use crate::common::{Value, read};
use darter_rdb::crc64;
use std::collections::BTreeMap;

const SET_INTSET: u8 = 11;
const HASH_ZIPMAP: u8 = 9;
const HASH_ZIPLIST: u8 = 13;
const SET_LISTPACK: u8 = 20;

/// The value of the one key of a file that holds `block` as a value of type `encoding`; or the
/// error. Read at once and in small pieces.
fn value_of(encoding: u8, block: &[u8]) -> Result<Value, String> {
    let len = (block.len() as u32).to_be_bytes();
    let mut file = [&b"REDIS0011"[..], &[encoding, 1, b'k', 0x80], &len, block, &[0xff]].concat();
    file.extend_from_slice(&crc64::of(&file).to_le_bytes());
    let run = |chunk| match read(&file, chunk, false) {
        Ok(file) => Ok(file.keys[&(0, b"k".to_vec())].value.clone()),
        Err(broken) => Err(broken.0.to_string()),
    };
    let whole = run(file.len());
    assert_eq!(run(997), whole, "in pieces");
    whole
}

/// A block with one changed byte is refused, or has another meaning; it never passes.
fn every_byte_counts(encoding: u8, block: &[u8], value: &Value) {
    for at in 0..block.len() {
        let mut wrong = block.to_vec();
        wrong[at] ^= 0x01;
        assert_ne!(value_of(encoding, &wrong).as_ref(), Ok(value), "byte {at}");
    }
}

/// Texts at the limits of lengths, and integers at the limits of widths.
fn entries() -> Vec<Vec<u8>> {
    let lens = [
        0, 1, 63, 64, 124, 125, 126, 127, 128, 253, 254, 255, 4_095, 4_096, 16_376, 16_377, 16_378,
        16_379, 16_380, 16_383, 16_384, 70_000, 2_097_140, 2_097_146,
    ];
    let texts = lens.iter().map(|len| (0..*len).map(|at| b'a' + (at % 26) as u8).collect());
    let mut bounds: Vec<i64> = vec![0, 1, 12, 13, 127, 128, -1, -2, i64::MIN, i64::MAX];
    for bits in [7, 12, 15, 23, 31] {
        let bound = 1_i64 << bits;
        bounds.extend([bound - 1, bound, bound + 1, -bound - 1, -bound, -bound + 1]);
    }
    let mut all: Vec<Vec<u8>> =
        texts.chain(bounds.iter().map(|number| number.to_string().into_bytes())).collect();
    all.sort();
    all.dedup();
    all
}

/// The entry as a number, if Redis would keep it as one.
fn number(entry: &[u8]) -> Option<i64> {
    let value: i64 = std::str::from_utf8(entry).ok()?.parse().ok()?;
    (value.to_string().as_bytes() == entry).then_some(value)
}

fn fits(value: i64, bits: u32) -> bool {
    (-(1_i64 << (bits - 1))..1_i64 << (bits - 1)).contains(&value)
}

/// An entry of a listpack without the length after it.
fn listpack_coding(entry: &[u8]) -> Vec<u8> {
    let bytes = |value: i64, count: usize| value.to_le_bytes()[..count].to_vec();
    match number(entry) {
        Some(value) if (0..128).contains(&value) => bytes(value, 1),
        Some(value) if fits(value, 13) => {
            let raw = (value & 0x1fff) as u16;
            vec![0xc0 | (raw >> 8) as u8, raw as u8]
        }
        Some(value) if fits(value, 16) => [&[0xf1], &bytes(value, 2)[..]].concat(),
        Some(value) if fits(value, 24) => [&[0xf2], &bytes(value, 3)[..]].concat(),
        Some(value) if fits(value, 32) => [&[0xf3], &bytes(value, 4)[..]].concat(),
        Some(value) => [&[0xf4], &bytes(value, 8)[..]].concat(),
        None => match entry.len() {
            len @ 0..64 => [&[0x80 | len as u8], entry].concat(),
            len @ 64..4_096 => [&[0xe0 | (len >> 8) as u8, len as u8], entry].concat(),
            len => [&[0xf0], &(len as u32).to_le_bytes()[..], entry].concat(),
        },
    }
}

/// The length after an entry of a listpack: 7 bits a byte, from the end, as Redis reads it.
fn back_length(len: usize) -> Vec<u8> {
    let width = match len {
        0..128 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        _ => 4,
    };
    (0..width)
        .rev()
        .map(|at| (len >> (7 * at)) as u8 & 0x7f | if at + 1 == width { 0 } else { 0x80 })
        .collect()
}

fn listpack(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut body = Vec::new();
    for entry in entries {
        let coding = listpack_coding(entry);
        body.extend_from_slice(&coding);
        body.extend_from_slice(&back_length(coding.len()));
    }
    let size = (body.len() + 7) as u32;
    [&size.to_le_bytes()[..], &(entries.len() as u16).to_le_bytes(), &body, &[0xff]].concat()
}

#[test]
fn listpacks_with_every_entry_encoding_are_read() {
    let all = entries();
    let expected = Value::Set(all.iter().cloned().collect());
    assert_eq!(value_of(SET_LISTPACK, &listpack(&all)), Ok(expected));
    for entry in &all {
        let expected = Value::Set([entry.clone()].into());
        assert!(
            value_of(SET_LISTPACK, &listpack(std::slice::from_ref(entry))) == Ok(expected),
            "{}",
            entry.len()
        );
    }
    let few: Vec<Vec<u8>> =
        ["", "a", "12", "-1", "4095", "-300", "70000", "1e3"].map(|text| text.into()).into();
    every_byte_counts(SET_LISTPACK, &listpack(&few), &Value::Set(few.iter().cloned().collect()));
}

/// An entry of a ziplist without the length of the one before it.
fn ziplist_coding(entry: &[u8]) -> Vec<u8> {
    let bytes = |value: i64, count: usize| value.to_le_bytes()[..count].to_vec();
    match number(entry) {
        Some(value) if (0..=12).contains(&value) => vec![0xf1 + value as u8],
        Some(value) if fits(value, 8) => [&[0xfe], &bytes(value, 1)[..]].concat(),
        Some(value) if fits(value, 16) => [&[0xc0], &bytes(value, 2)[..]].concat(),
        Some(value) if fits(value, 24) => [&[0xf0], &bytes(value, 3)[..]].concat(),
        Some(value) if fits(value, 32) => [&[0xd0], &bytes(value, 4)[..]].concat(),
        Some(value) => [&[0xe0], &bytes(value, 8)[..]].concat(),
        None => match entry.len() {
            len @ 0..64 => [&[len as u8], entry].concat(),
            len @ 64..16_384 => [&[0x40 | (len >> 8) as u8, len as u8], entry].concat(),
            len => [&[0x80], &(len as u32).to_be_bytes()[..], entry].concat(),
        },
    }
}

fn ziplist(entries: &[Vec<u8>], count: u16) -> Vec<u8> {
    let (mut body, mut previous, mut tail) = (Vec::new(), 0_usize, 10);
    for entry in entries {
        let start = body.len();
        tail = 10 + start;
        match u8::try_from(previous) {
            Ok(short @ 0..254) => body.push(short),
            _ => body.extend_from_slice(&[&[0xfe], &(previous as u32).to_le_bytes()[..]].concat()),
        }
        body.extend_from_slice(&ziplist_coding(entry));
        previous = body.len() - start;
    }
    let size = (body.len() + 11) as u32;
    let head =
        [&size.to_le_bytes()[..], &(tail as u32).to_le_bytes(), &count.to_le_bytes()].concat();
    [&head[..], &body, &[0xff]].concat()
}

/// Entries as the fields and values of a hash.
fn hash(entries: &[Vec<u8>]) -> Value {
    let pairs = entries.chunks(2).map(|pair| (pair[0].clone(), (pair[1].clone(), None)));
    Value::Hash(pairs.collect::<BTreeMap<_, _>>())
}

#[test]
fn ziplists_are_read_and_wrong_tails_and_counts_are_refused() {
    let mut all = entries();
    all.truncate(all.len() / 2 * 2);
    assert_eq!(value_of(HASH_ZIPLIST, &ziplist(&all, all.len() as u16)), Ok(hash(&all)));
    assert_eq!(value_of(HASH_ZIPLIST, &ziplist(&all, u16::MAX)), Ok(hash(&all)), "not counted");
    for pair in all.chunks(2) {
        assert!(value_of(HASH_ZIPLIST, &ziplist(pair, 2)) == Ok(hash(pair)), "{}", pair[0].len());
    }
    let few: Vec<Vec<u8>> = ["f", "v"].map(|text| text.into()).into();
    let good = ziplist(&few, 2);
    // The tail is where the last entry begins.
    for (tail, is_good) in [(9, false), (10, false), (13, true), (good.len() - 1, false)] {
        let mut block = good.clone();
        block[4..8].copy_from_slice(&(tail as u32).to_le_bytes());
        assert_eq!(value_of(HASH_ZIPLIST, &block).is_ok(), is_good, "{tail}");
    }
    for (entries, count) in [(&few[..1], 1), (&few[..], 1), (&few[..], 3)] {
        assert!(value_of(HASH_ZIPLIST, &ziplist(entries, count)).is_err(), "{count}");
    }
}

/// A length of a zipmap.
fn zipmap_length(len: usize) -> Vec<u8> {
    match u8::try_from(len) {
        Ok(short @ 0..254) => vec![short],
        _ => [&[0xfe], &(len as u32).to_le_bytes()[..]].concat(),
    }
}

fn zipmap(pairs: &[(Vec<u8>, Vec<u8>)], free: u8) -> Vec<u8> {
    let mut block = vec![pairs.len().min(254) as u8];
    for (field, value) in pairs {
        block.extend_from_slice(&[&zipmap_length(field.len())[..], field].concat());
        block.extend_from_slice(&[&zipmap_length(value.len())[..], &[free], value].concat());
        block.extend(vec![b'.'; usize::from(free)]);
    }
    block.push(0xff);
    block
}

#[test]
fn zipmaps_of_every_size_are_read() {
    for (count, len, free) in [
        (0, 0, 0),
        (1, 0, 0),
        (1, 253, 0),
        (1, 254, 3),
        (2, 300, 255),
        (253, 1, 0),
        (254, 1, 1),
        (400, 5, 4),
    ] {
        let pairs: Vec<(Vec<u8>, Vec<u8>)> =
            (0..count).map(|at| (format!("field {at}").into_bytes(), vec![b'v'; len])).collect();
        let expected = pairs.iter().cloned().map(|(field, value)| (field, (value, None)));
        let block = zipmap(&pairs, free);
        assert_eq!(value_of(HASH_ZIPMAP, &block), Ok(Value::Hash(expected.collect())), "{count}");
        // One byte less, before the end mark or with it.
        assert!(value_of(HASH_ZIPMAP, &block[..block.len() - 1]).is_err(), "{count}");
        if count > 0 {
            let cut = [&block[..block.len() - 2], &[0xff]].concat();
            assert!(value_of(HASH_ZIPMAP, &cut).is_err(), "{count}");
        }
        if (1..254).contains(&count) {
            let mut miscounted = block.clone();
            miscounted[0] += 1;
            assert!(value_of(HASH_ZIPMAP, &miscounted).is_err() || count == 253, "{count}");
        }
    }
}

#[test]
fn intsets_of_every_width_are_read_and_unordered_ones_are_refused() {
    for (width, bits) in [(2_u32, 16), (4, 32), (8, 63)] {
        let bound = 1_i64 << (bits - 1);
        let numbers = [-bound, -300, -1, 0, 1, 300, bound - 1];
        let mut block = [width.to_le_bytes(), 7_u32.to_le_bytes()].concat();
        for value in numbers {
            block.extend_from_slice(&value.to_le_bytes()[..width as usize]);
        }
        let members = numbers.iter().map(|value| value.to_string().into_bytes());
        let expected = Value::Set(members.collect());
        assert_eq!(value_of(SET_INTSET, &block), Ok(expected.clone()), "{width}");
        every_byte_counts(SET_INTSET, &block, &expected);
        for wrong in [&block[..block.len() - 1], &[&block[..], &[0]].concat(), &block[..7]] {
            assert!(value_of(SET_INTSET, wrong).is_err(), "{width}");
        }
        let (width, last) = (width as usize, block.len() - width as usize);
        for from in [last - width, 8] {
            block.copy_within(from..from + width, last); // As large as the one before it, or the least.
            assert!(value_of(SET_INTSET, &block).is_err(), "{width}");
        }
    }
}

//! The worked example of docs/formats/rdb.md, taken from the document itself.

use crate::common::{Bytes, Oracle, Record, Value, kind, read};
use darter_rdb::{Item, Source, Survey, Writer, dump};
use std::collections::{BTreeMap, BTreeSet};

const DOCUMENT: &str = include_str!("../../../docs/formats/rdb.md");

/// The lines of the code block that begins with "```name".
fn block(name: &str) -> Vec<&'static str> {
    let fence = format!("```{name}");
    let lines = DOCUMENT.lines().skip_while(|line| *line != fence).skip(1);
    lines.take_while(|line| *line != "```").collect()
}

fn bytes_of(text: &str) -> Bytes {
    text.split(' ').map(|hex| u8::from_str_radix(hex, 16).expect("two hex digits")).collect()
}

/// The bytes of the example; each line's offset must be right.
fn example() -> Bytes {
    let mut bytes = Bytes::new();
    for line in block("rdb") {
        let (offset, rest) = line.split_once("  ").expect("an offset, then bytes");
        assert_eq!(usize::from_str_radix(offset, 16), Ok(bytes.len()), "{line}");
        let (hex, meaning) = rest.split_once("  ").expect("bytes, then their meaning");
        assert!(!meaning.trim().is_empty(), "{line}");
        bytes.extend(bytes_of(hex));
    }
    bytes
}

fn expected() -> BTreeMap<(u32, Bytes), Record> {
    let record = |value, expiry_ms| Record { value, expiry_ms };
    let set = BTreeSet::from([b"-5".to_vec(), b"7".to_vec()]);
    let hash = BTreeMap::from([
        (b"f".to_vec(), (b"v1".to_vec(), None)),
        (b"n".to_vec(), (b"7".to_vec(), None)),
    ]);
    BTreeMap::from([
        ((0, b"s".to_vec()), record(Value::String(b"12345".to_vec()), Some(1_893_456_000_123))),
        ((0, b"i".to_vec()), record(Value::Set(set), None)),
        ((0, b"h".to_vec()), record(Value::Hash(hash), None)),
    ])
}

/// The example as the writer makes it.
fn written() -> Bytes {
    let field = |name, value| Item::Pair { name, value, deadline_ms: None };
    let member = |name| Item::Single { name, deadline_ms: None };
    let keys = [
        (&b"s"[..], Some(1_893_456_000_123), kind("string"), vec![Item::Chunk(b"12345")]),
        (&b"i"[..], None, kind("set"), vec![member(b"7"), member(b"-5")]),
        (&b"h"[..], None, kind("hash"), vec![field(b"f", b"v1"), field(b"n", b"7")]),
    ];
    let (mut writer, mut out) = (Writer::new(), Bytes::new());
    writer.start(10, &mut out);
    writer.aux(b"redis-ver", b"7.0.15", &mut out);
    writer.select_db(0, &mut out);
    writer.resize_db(3, 1, &mut out);
    for (key, expiry_ms, kind, items) in keys {
        let mut survey = Survey::new(kind);
        items.iter().for_each(|item| survey.item(*item));
        writer.key(key, expiry_ms, survey.plan(), &mut out);
        items.iter().for_each(|item| writer.item(*item, &mut out));
        writer.end_of_key(&mut out);
    }
    writer.eof(&mut out);
    out
}

#[test]
fn the_documented_file_is_written_byte_for_byte() {
    let bytes = example();
    let file = read(&bytes, 1, false).unwrap_or_else(|broken| panic!("{}", broken.0));
    assert_eq!(file.keys, expected());
    assert_eq!(file.aux[&b"redis-ver".to_vec()], b"7.0.15");
    assert_eq!(written(), bytes);
    assert_eq!(Oracle::start_with_file(&bytes).records(1), expected());
}

/// A string in one chunk.
struct Text(&'static [u8], bool);

impl Source for Text {
    fn next(&mut self) -> Option<Item<'_>> {
        (!std::mem::replace(&mut self.1, true)).then_some(Item::Chunk(self.0))
    }

    fn rewind(&mut self) {
        self.1 = false;
    }
}

#[test]
fn the_documented_payload_is_written_byte_for_byte() {
    let lines = block("dump");
    let bytes = bytes_of(lines[0]);
    assert_eq!(dump::write(Text(b"12345", false), kind("string")), bytes);
    let mut oracle = Oracle::start(&[]);
    oracle.must(&[b"SET", b"s", b"12345"]);
    assert_eq!(oracle.must(&[b"DUMP", b"s"]).bulk(), bytes);
}

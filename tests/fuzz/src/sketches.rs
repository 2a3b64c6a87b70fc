//! The target of filters and sketches. Any parts of a payload are refused, or make a value that
//! takes no more memory than the parts, keeps its invariants, can be used, and is read back from
//! its own parts.

use darter_families::bloom::BloomFilter;
use darter_families::cms::Cms;
use darter_families::cuckoo::CuckooFilter;
use darter_families::tdigest::TDigest;
use darter_families::topk::TopK;
use darter_keyspace::{Fresh, NewItem, Value};
use darter_rdb::Item;

/// Items in each value of the corpus: some thousand bytes of parts.
const ITEMS: u32 = 300;
/// Memory allowed besides the parts: roots of pages (for at most 16 GiB), and layers.
const MEMORY_BASE: usize = 1 << 18;

/// The kind of a value, by the first byte of an input.
const KINDS: [fn(&[u8]); 5] =
    [fuzz::<BloomFilter>, fuzz::<CuckooFilter>, fuzz::<Cms>, fuzz::<TopK>, fuzz::<TDigest>];

/// Adds an item in some way.
fn add(value: &mut dyn Value, number: u32) {
    let (name, value_bytes) = (format!("item {number}"), number.to_string());
    let text = Fresh::Bytes(value_bytes.as_bytes());
    value.take_in(NewItem::Pair { name: name.as_bytes(), value: text, deadline: None });
}

/// The parts of a value, each after its length.
fn parts_of(value: &dyn Value) -> Vec<u8> {
    let (mut all, mut items) = (Vec::new(), value.items(0));
    let mut push = |part: &[u8]| {
        let len = u16::try_from(part.len()).expect("long items come in parts");
        all.extend_from_slice(&len.to_le_bytes());
        all.extend_from_slice(part);
    };
    let mut long = Vec::new();
    let mut missing = 0;
    while let Some(item) = items.next() {
        match item {
            Item::Single { name, .. } => push(name),
            Item::LongSingle { len, .. } => missing = len as usize,
            Item::Part(part) => {
                long.extend_from_slice(part);
                if long.len() == missing {
                    push(&std::mem::take(&mut long));
                }
            }
            other => panic!("{other:?} of a sketch"),
        }
    }
    all
}

fn made<V: Value + Default>() -> Vec<u8> {
    let mut value = V::default();
    (0..ITEMS).for_each(|number| add(&mut value, number));
    parts_of(&value)
}

/// Parts of one value of each kind, after the byte of the kind.
#[allow(clippy::unnecessary_wraps, reason = "every corpus has one face, and others can fail")]
pub(crate) fn corpus() -> Result<Vec<Vec<u8>>, String> {
    let all = [
        made::<BloomFilter>(),
        made::<CuckooFilter>(),
        made::<Cms>(),
        made::<TopK>(),
        made::<TDigest>(),
    ];
    let long = [&b"l\x07\0\0\0"[..], &[b'x'; 5_000]];
    let mut topk = all[3].clone();
    for part in long {
        topk.extend_from_slice(&u16::try_from(part.len()).unwrap_or_default().to_le_bytes());
        topk.extend_from_slice(part);
    }
    let kinds = (0_u8..).zip(all).chain([(3, topk)]);
    Ok(kinds.map(|(kind, parts)| [&[kind], &parts[..]].concat()).collect())
}

/// The value with these parts, if they are valid.
fn of_parts<V: Value + Default>(mut input: &[u8]) -> Option<V> {
    let mut value = V::default();
    while let Some((len, rest)) = input.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes(*len)).min(rest.len());
        let (part, rest) = rest.split_at(len);
        if !value.take_in(NewItem::Single { name: part, deadline: None }) {
            return None;
        }
        input = rest;
    }
    (value.is_complete() && !value.is_empty()).then_some(value)
}

fn fuzz<V: Value + Default>(input: &[u8]) {
    let Some(mut value) = of_parts::<V>(input) else { return };
    value.check_invariants();
    let bound = 4 * input.len() + MEMORY_BASE;
    assert!(value.content_bytes() <= bound, "{} of {}", value.content_bytes(), input.len());
    let parts = parts_of(&value);
    let again: V = of_parts(&parts).expect("its own parts");
    assert!(parts_of(&again) == parts, "it is the same");
    (0..3).for_each(|number| add(&mut value, number));
    value.check_invariants();
}

/// The target; see the module's documentation.
pub(crate) fn fuzz_sketches(input: &[u8]) {
    let Some((kind, parts)) = input.split_first() else { return };
    KINDS[usize::from(*kind) % KINDS.len()](parts);
}

/// Strings that are HyperLogLogs: empty, of few and many runs, and dense.
#[allow(clippy::unnecessary_wraps, reason = "every corpus has one face, and others can fail")]
pub(crate) fn strings() -> Result<Vec<Vec<u8>>, String> {
    let head = |encoding: u8| [&b"HYLL"[..], &[encoding], &[0; 11]].concat();
    let runs = |all: &[&[u8]]| [&head(1)[..], &all.concat()].concat();
    let zeros = |count: usize| {
        let [high, low] = u16::try_from(count - 1).unwrap_or_default().to_be_bytes();
        [0x40 | high, low]
    };
    Ok(vec![
        runs(&[&zeros(16_384)]),
        runs(&[&zeros(100), &[0x84], &zeros(16_283)]),
        runs(&[&[0x87; 50], &zeros(16_184)]),
        runs(&[&[0xff, 0x3b].repeat(256)]),
        [&head(0)[..], &[0x41; 12_288]].concat(),
        [&head(0)[..], &[0; 12_288]].concat(),
    ])
}

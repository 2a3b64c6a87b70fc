//! The data sets of `bigkey`: the contents of each, and its RDB file.
//!
//! All sizes follow from one number, the elements of the big key, so that a small run has the shape
//! of the large one. Every set also holds the small keys that the stream of GETs reads.

use std::ops::Range;
use std::path::Path;

use crate::fault::Outcome;
use crate::prng::{Prng, uuid};
use crate::rdb::Writer;

/// The key of the big value.
pub(crate) const BIG: &str = "blocked_user_ids";
/// The key of the second value of [`Data::TwoSets`] and [`Data::TwoScores`].
pub(crate) const OTHER: &str = "other_user_ids";
/// The seed of the UUIDs.
pub(crate) const SEED: u64 = 0xda27e2;
/// The number of small keys in every set.
pub(crate) const SMALL_KEYS: u64 = 100_000;
/// The keys of [`Data::Article`].
pub(crate) const ARTICLE_HASH: &str = "hset";
pub(crate) const ARTICLE_LIST: &str = "list";
pub(crate) const ARTICLE_SETS: [&str; 3] = ["set", "set:2", "set:3"];
/// The value of every tenth element of [`Data::Repeats`].
pub(crate) const FREQUENT: &str = "frequent";
/// Bytes of a reason in the hash.
const REASON_BYTES: usize = 12;
/// The parts of [`Data::Everything`].
const EVERYTHING: &[Data] = &[
    Data::Hash,
    Data::Uuids,
    Data::Integers,
    Data::Numbers,
    Data::Ids,
    Data::Scores,
    Data::Text,
    Data::Keys,
    Data::Sketches,
];

/// The size of the data sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// The number of fields of the hash, members of each set, or elements of a list.
    pub(crate) elements: u64,
}

impl Scale {
    /// Keys of [`Data::Keys`]: a million for ten million elements.
    pub(crate) fn keys(&self) -> u64 {
        (self.elements / 10).max(1)
    }

    /// Bytes of [`Data::Text`]: 400 MB for ten million elements.
    pub(crate) fn text_bytes(&self) -> u64 {
        self.elements * 40
    }

    /// Keys of [`Data::Sketches`]: a thousand for ten million elements.
    pub(crate) fn sketches(&self) -> u64 {
        (self.elements / 10_000).max(2)
    }

    /// Bytes of a long name: 1 MB, up to which names are handled within a slice.
    pub(crate) fn name_bytes(&self) -> u64 {
        1_000_000
    }

    /// Bytes that a subscriber may leave unread: 30 MB for ten million elements.
    pub(crate) fn unread_bytes(&self) -> u64 {
        self.elements * 3
    }

    /// Keys of [`Data::Populated`]: twenty million for ten million elements.
    pub(crate) fn populated(&self) -> u64 {
        self.elements * 2
    }
}

/// The data of a server before an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// Only the small keys.
    Small,
    /// A hash of UUID v4 → 12-byte reason.
    Hash,
    /// A set of UUID v4.
    Uuids,
    /// A set of the decimal integers from 0.
    Integers,
    /// Two sets of `member:N` that share one member.
    TwoSets,
    /// A list of the decimal integers from 0.
    Numbers,
    /// A list of UUID v4.
    Ids,
    /// A list of integers, with [`FREQUENT`] as every tenth element.
    Repeats,
    /// A sorted set of `member:N` with random scores.
    Scores,
    /// Two such sorted sets that share half of their members.
    TwoScores,
    /// A stream of entries of two fields.
    Entries,
    /// Many string keys `key:N`.
    Keys,
    /// One string of text.
    Text,
    /// Many HyperLogLogs, dense.
    Sketches,
    /// A value of each kind, each as large as in its own data set.
    Everything,
    /// A hash, a list and three sets of integers.
    Article,
    /// The small keys, and keys made by DEBUG POPULATE.
    Populated,
}

impl Data {
    /// The name in tables.
    pub(crate) fn name(self, scale: &Scale) -> String {
        let elements = count_text(scale.elements);
        match self {
            Data::Small => "small keys only".to_owned(),
            Data::Hash => format!("hash, {elements} UUID → 12 bytes"),
            Data::Uuids => format!("set, {elements} UUIDs"),
            Data::Integers => format!("set, {elements} integers"),
            Data::TwoSets => format!("2 sets, {elements} strings each"),
            Data::Numbers => format!("list, {elements} integers"),
            Data::Ids => format!("list, {elements} UUIDs"),
            Data::Repeats => format!("list, {elements} elements, a tenth the same"),
            Data::Scores => format!("sorted set, {elements} members"),
            Data::TwoScores => format!("2 sorted sets, {elements} members each"),
            Data::Entries => format!("stream, {elements} entries of two fields"),
            Data::Keys => format!("{} string keys", count_text(scale.keys())),
            Data::Text => format!("string of {}B", count_text(scale.text_bytes())),
            Data::Sketches => format!("{} HyperLogLogs", count_text(scale.sketches())),
            Data::Article => format!("hash, list and 3 sets, {elements} integers each"),
            Data::Everything => format!("every type, {elements} elements each"),
            Data::Populated => format!("DEBUG POPULATE {}", count_text(scale.populated())),
        }
    }

    /// The number of elements in the file, without the small keys.
    pub(crate) fn elements(self, scale: &Scale) -> u64 {
        match self {
            Data::Small | Data::Populated => 0,
            Data::Hash | Data::Uuids | Data::Integers | Data::Scores => scale.elements,
            Data::Numbers | Data::Ids | Data::Repeats | Data::Entries => scale.elements,
            Data::TwoSets | Data::TwoScores => scale.elements * 2,
            Data::Article => scale.elements * 5,
            Data::Keys => scale.keys(),
            Data::Text => 1,
            Data::Sketches => scale.sketches(),
            Data::Everything => EVERYTHING.iter().map(|part| part.elements(scale)).sum(),
        }
    }

    /// The number of keys in the file, without the small ones.
    fn keys(self, scale: &Scale) -> u64 {
        match self {
            Data::Small | Data::Populated => 0,
            Data::TwoSets | Data::TwoScores => 2,
            Data::Article => 5,
            Data::Keys => scale.keys(),
            Data::Sketches => scale.sketches(),
            Data::Everything => EVERYTHING.iter().map(|part| part.keys(scale)).sum(),
            _ => 1,
        }
    }

    /// Writes the RDB file.
    pub(crate) fn write(self, scale: &Scale, path: &Path) -> Outcome<()> {
        let mut file = Writer::create(path, SMALL_KEYS + self.keys(scale))?;
        for number in 0..SMALL_KEYS {
            file.string(&small_key(number), &[b'v'; 16])?;
        }
        self.write_own(scale, BIG, &mut file)?;
        file.finish()
    }

    /// Writes the large values; a single one under the name `key`.
    fn write_own(self, scale: &Scale, key: &str, file: &mut Writer) -> Outcome<()> {
        let all = 0..scale.elements;
        match self {
            Data::Small | Data::Populated => Ok(()),
            Data::Hash => write_hash(file, key, all),
            Data::Uuids => write_set(file, key, all.map(|n| uuid(SEED, n)), scale.elements),
            Data::Integers => write_set(file, key, all.map(|n| n.to_string()), scale.elements),
            Data::TwoSets => {
                // The last member of the first set is the first of the second.
                let second = scale.elements - 1..scale.elements * 2 - 1;
                write_set(file, key, all.map(member), scale.elements)?;
                write_set(file, OTHER, second.map(member), scale.elements)
            }
            Data::Numbers => write_list(file, key, all.map(|n| n.to_string()), scale.elements),
            Data::Ids => write_list(file, key, all.map(|n| uuid(SEED, n)), scale.elements),
            Data::Repeats => write_list(file, key, all.map(repeat), scale.elements),
            Data::Scores => write_scores(file, key, all),
            Data::TwoScores => {
                let half = scale.elements / 2;
                write_scores(file, key, all)?;
                write_scores(file, OTHER, half..half + scale.elements)
            }
            Data::Entries => file.stream(key.as_bytes(), scale.elements, entry),
            Data::Keys => (0..scale.keys())
                .try_for_each(|number| file.string(own_key(number).as_bytes(), &[b'v'; 16])),
            Data::Text => file.string(key.as_bytes(), &text(scale.text_bytes() as usize)),
            Data::Sketches => (0..scale.sketches())
                .try_for_each(|number| file.string(sketch_key(number).as_bytes(), &sketch(number))),
            Data::Article => write_article(file, scale.elements),
            Data::Everything => {
                EVERYTHING.iter().try_for_each(|part| part.write_own(scale, &part.own_name(), file))
            }
        }
    }

    /// The key of a single value in [`Data::Everything`].
    pub(crate) fn own_name(self) -> String {
        format!("{BIG}:{self:?}")
    }
}

fn write_hash(file: &mut Writer, key: &str, numbers: Range<u64>) -> Outcome<()> {
    file.hash(key.as_bytes(), numbers.end - numbers.start)?;
    for number in numbers {
        file.bytes(&uuid(SEED, number))?;
        file.bytes(&reason(number))?;
    }
    Ok(())
}

/// Writes the data that the article's script makes of the numbers from 1: HSET, LPUSH, SADD.
fn write_article(file: &mut Writer, elements: u64) -> Outcome<()> {
    file.hash(ARTICLE_HASH.as_bytes(), elements)?;
    for number in 1..=elements {
        let text = number.to_string();
        file.bytes(text.as_bytes())?;
        file.bytes(text.as_bytes())?;
    }
    let numbers = || (1..=elements).map(|number| number.to_string());
    write_list(file, ARTICLE_LIST, numbers().rev(), elements)?;
    ARTICLE_SETS.iter().try_for_each(|set| write_set(file, set, numbers(), elements))
}

fn write_set<T: AsRef<[u8]>>(
    file: &mut Writer,
    key: &str,
    mut members: impl Iterator<Item = T>,
    count: u64,
) -> Outcome<()> {
    file.set(key.as_bytes(), count)?;
    members.try_for_each(|member| file.bytes(member.as_ref()))
}

fn write_list<T: AsRef<[u8]>>(
    file: &mut Writer,
    key: &str,
    mut elements: impl Iterator<Item = T>,
    count: u64,
) -> Outcome<()> {
    file.list(key.as_bytes(), count)?;
    elements.try_for_each(|element| file.bytes(element.as_ref()))
}

fn write_scores(file: &mut Writer, key: &str, numbers: Range<u64>) -> Outcome<()> {
    file.zset(key.as_bytes(), numbers.end - numbers.start)?;
    for number in numbers {
        file.bytes(member(number).as_bytes())?;
        file.score(fraction(number));
    }
    Ok(())
}

/// `small:000042`.
pub(crate) fn small_key(number: u64) -> Vec<u8> {
    format!("small:{number:06}").into_bytes()
}

/// The milliseconds of entry `number` of [`Data::Entries`] (counted from 0), and the values of its
/// fields `sensor` and `value`.
fn entry(number: u64) -> (u64, [u32; 2]) {
    let value = Prng::from_seed(number).next() % 1_000_000;
    (entry_ms(number), [(number % 100) as u32, value as u32])
}

/// The milliseconds of the ID of entry `number`.
pub(crate) fn entry_ms(number: u64) -> u64 {
    1 + number * 17
}

/// A key of [`Data::Keys`].
pub(crate) fn own_key(number: u64) -> String {
    format!("key:{number}")
}

/// A key of [`Data::Sketches`].
pub(crate) fn sketch_key(number: u64) -> String {
    format!("sketch:{number}")
}

/// A member of the sorted sets, and of the sets whose members are neither UUIDs nor integers.
pub(crate) fn member(number: u64) -> String {
    format!("member:{number}")
}

/// A score from 0 to 1, with all its digits.
fn fraction(number: u64) -> f64 {
    (Prng::from_seed(number).next() >> 11) as f64 / (1_u64 << 53) as f64
}

/// The score of member `number`, as a client sends it.
pub(crate) fn score(number: u64) -> String {
    fraction(number).to_string()
}

/// The reason of field `number`: 12 letters.
pub(crate) fn reason(number: u64) -> [u8; REASON_BYTES] {
    let mut bits = Prng::from_seed(number).next();
    let mut reason = [0; REASON_BYTES];
    for byte in &mut reason {
        *byte = b'a' + (bits % 26) as u8;
        bits /= 26;
    }
    reason
}

/// An element of [`Data::Repeats`].
fn repeat(number: u64) -> String {
    if number.is_multiple_of(10) { FREQUENT.to_owned() } else { number.to_string() }
}

/// A dense HyperLogLog, with the ranks of many elements and no count kept.
///
/// ```text
/// "HYLL" | encoding: 1 (0) | unused: 3 | count: 8, the top bit says "not kept" | 16 384 ranks of 6 bits
/// ```
fn sketch(number: u64) -> Vec<u8> {
    const REGISTERS: usize = 16_384;
    let mut prng = Prng::from_seed(number);
    let mut bytes = b"HYLL\0\0\0\0\0\0\0\0\0\0\0\x80".to_vec();
    for _ in 0..REGISTERS / 4 {
        let ranks = [(); 4].map(|()| prng.next().trailing_zeros().min(40) + 8);
        let bits = ranks.iter().rev().fold(0, |bits, rank| bits << 6 | rank);
        bytes.extend_from_slice(&bits.to_le_bytes()[..3]);
    }
    bytes
}

fn text(bytes: usize) -> Vec<u8> {
    let mut prng = Prng::from_seed(SEED);
    let mut text = Vec::with_capacity(bytes + 8);
    while text.len() < bytes {
        text.extend(prng.next().to_le_bytes().map(|byte| b' ' + byte % 95));
    }
    text.truncate(bytes);
    text
}

/// `10 M`, `200 k`, `42`.
pub(crate) fn count_text(count: u64) -> String {
    match count {
        count if count >= 1_000_000 && count % 100_000 == 0 => format!("{} M", count as f64 / 1e6),
        count if count >= 1_000 && count % 100 == 0 => format!("{} k", count as f64 / 1e3),
        _ => count.to_string(),
    }
}

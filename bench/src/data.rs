//! The data sets of `bigkey`: what each holds, and its RDB file.
//!
//! All sizes follow from one number, the elements of the big key, so that a small run has the shape
//! of the large one. Every set also holds the small keys that the stream of GETs reads.

use std::path::Path;

use crate::fault::Outcome;
use crate::prng::{Prng, uuid};
use crate::rdb::Writer;

/// The key of the big hash, set or string.
pub(crate) const BIG: &str = "blocked_user_ids";
/// The second set of [`Data::TwoSets`].
pub(crate) const OTHER: &str = "other_user_ids";
/// The seed of the UUIDs.
pub(crate) const SEED: u64 = 0xda27e2;
/// How many small keys there are besides.
pub(crate) const SMALL_KEYS: u64 = 100_000;
/// Bytes of a reason in the hash.
const REASON_BYTES: usize = 12;

/// How large everything is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Fields of the hash, members of each set.
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

    /// Bytes of a long name: 200 MB for ten million elements.
    pub(crate) fn name_bytes(&self) -> u64 {
        self.elements * 20
    }

    /// Keys of [`Data::Populated`]: twenty million for ten million elements.
    pub(crate) fn populated(&self) -> u64 {
        self.elements * 2
    }
}

/// What a server holds before an experiment.
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
    /// A sorted set of `member:N` with random scores.
    Scores,
    /// Many string keys `key:N`.
    Keys,
    /// One string of text.
    Text,
    /// The small keys, and what DEBUG POPULATE makes.
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
            Data::Scores => format!("sorted set, {elements} members"),
            Data::Keys => format!("{} string keys", count_text(scale.keys())),
            Data::Text => format!("string of {}B", count_text(scale.text_bytes())),
            Data::Populated => format!("DEBUG POPULATE {}", count_text(scale.populated())),
        }
    }

    /// Elements in the file, besides the small keys.
    pub(crate) fn elements(self, scale: &Scale) -> u64 {
        match self {
            Data::Small | Data::Populated => 0,
            Data::Hash | Data::Uuids | Data::Integers | Data::Scores => scale.elements,
            Data::TwoSets => scale.elements * 2,
            Data::Keys => scale.keys(),
            Data::Text => 1,
        }
    }

    /// Writes the RDB file.
    pub(crate) fn write(self, scale: &Scale, path: &Path) -> Outcome<()> {
        let own = match self {
            Data::Small | Data::Populated => 0,
            Data::TwoSets => 2,
            Data::Keys => scale.keys(),
            _ => 1,
        };
        let mut file = Writer::create(path, SMALL_KEYS + own)?;
        for number in 0..SMALL_KEYS {
            file.string(&small_key(number), &[b'v'; 16])?;
        }
        self.write_own(scale, &mut file)?;
        file.finish()
    }

    fn write_own(self, scale: &Scale, file: &mut Writer) -> Outcome<()> {
        let elements = scale.elements;
        match self {
            Data::Small | Data::Populated => {}
            Data::Hash => {
                file.hash(BIG.as_bytes(), elements)?;
                for number in 0..elements {
                    file.bytes(&uuid(SEED, number))?;
                    file.bytes(&reason(number))?;
                }
            }
            Data::Uuids => write_set(file, BIG, (0..elements).map(|n| uuid(SEED, n)), elements)?,
            Data::Integers => write_set(file, BIG, (0..elements).map(|n| n.to_string()), elements)?,
            Data::TwoSets => {
                // The last member of the first is the first of the second.
                write_set(file, BIG, (0..elements).map(member), elements)?;
                write_set(file, OTHER, (elements - 1..elements * 2 - 1).map(member), elements)?;
            }
            Data::Scores => {
                file.zset(BIG.as_bytes(), elements)?;
                for number in 0..elements {
                    file.bytes(member(number).as_bytes())?;
                    file.score(fraction(number));
                }
            }
            Data::Keys => {
                for number in 0..scale.keys() {
                    file.string(own_key(number).as_bytes(), &[b'v'; 16])?;
                }
            }
            Data::Text => file.string(BIG.as_bytes(), &text(scale.text_bytes() as usize))?,
        }
        Ok(())
    }
}

fn write_set<T: AsRef<[u8]>>(
    file: &mut Writer,
    key: &str,
    members: impl Iterator<Item = T>,
    count: u64,
) -> Outcome<()> {
    file.set(key.as_bytes(), count)?;
    for member in members {
        file.bytes(member.as_ref())?;
    }
    Ok(())
}

/// `small:000042`.
pub(crate) fn small_key(number: u64) -> Vec<u8> {
    format!("small:{number:06}").into_bytes()
}

/// A key of [`Data::Keys`].
pub(crate) fn own_key(number: u64) -> String {
    format!("key:{number}")
}

/// A member of [`Data::TwoSets`] and [`Data::Scores`].
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

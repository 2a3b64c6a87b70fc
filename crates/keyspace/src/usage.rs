//! Memory totals: keys and bytes by type.

use crate::object::kind;
use crate::object::{self, Object, Type};
use crate::packed;

/// Slots for types.
const TYPES: usize = Type::NUMBERS;

/// The memory of one database's values, by type. The table of keys, with its short strings and
/// small collections, counts its own memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    keys: [usize; TYPES],
    bytes: [usize; TYPES],
}

impl Usage {
    /// The number of keys with a value of this type.
    #[must_use]
    pub fn keys(&self, kind: &Type) -> usize {
        self.keys[kind.number]
    }

    /// Out-of-line bytes of values of this type.
    #[must_use]
    pub fn bytes(&self, kind: &Type) -> usize {
        self.bytes[kind.number]
    }

    /// Out-of-line bytes of all types.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.bytes.iter().sum()
    }

    /// Adds the totals of another database or shard.
    pub fn merge(&mut self, other: &Self) {
        for number in 0..TYPES {
            self.keys[number] += other.keys[number];
            self.bytes[number] += other.bytes[number];
        }
    }

    /// Replaces one addend of these totals, `before`, by `after`.
    pub(crate) fn replace(&mut self, before: &Self, after: &Self) {
        for kind in 0..TYPES {
            self.keys[kind] = exchange(self.keys[kind], before.keys[kind], after.keys[kind]);
            self.bytes[kind] = exchange(self.bytes[kind], before.bytes[kind], after.bytes[kind]);
        }
    }

    /// Counts an added key. `object` is its out-of-line value, `note` the note of its pack, if any.
    pub(crate) fn add(&mut self, object: Option<&Object>, note: Option<u8>) {
        let (number, bytes) = measure(object, note);
        debug_assert!(object.is_none() || note.is_none(), "a value in the entry and out of it");
        self.keys[number] += 1;
        self.bytes[number] += bytes;
    }

    /// Counts a removed key.
    pub(crate) fn remove(&mut self, object: Option<&Object>, note: Option<u8>) {
        let (number, bytes) = measure(object, note);
        self.keys[number] = exchange(self.keys[number], 1, 0);
        self.bytes[number] = exchange(self.bytes[number], bytes, 0);
    }

    /// Counts a change in size of an out-of-line value.
    pub(crate) fn resize(&mut self, kind: &Type, before: usize, after: usize) {
        let bytes = &mut self.bytes[kind.number];
        *bytes = exchange(*bytes, before, after);
    }
}

/// Replaces the addend `before` in a sum by `after`. Panics if the sum would become negative,
/// because a wrapped sum would be believed.
#[inline]
pub(crate) fn exchange(sum: usize, before: usize, after: usize) -> usize {
    assert!(before <= sum, "{before} is to leave a sum of {sum}");
    sum - before + after
}

/// The number of a value's type, and its out-of-line bytes.
fn measure(object: Option<&Object>, note: Option<u8>) -> (usize, usize) {
    match (object, note) {
        (None, Some(note)) => (packed::number(note), 0),
        _ => (kind(object).number, object.map_or(0, object::memory_bytes)),
    }
}

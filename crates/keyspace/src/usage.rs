//! Memory accounts: keys and bytes by type.

use crate::{Kind, Object};

/// Number of types.
const KINDS: usize = 3;

/// What the values of one database take, by type. The table of keys, where short strings lie, is
/// accounted by the table itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    keys: [usize; KINDS],
    bytes: [usize; KINDS],
}

impl Usage {
    /// Keys that hold a value of this type.
    #[must_use]
    pub fn keys(&self, kind: Kind) -> usize {
        self.keys[kind as usize]
    }

    /// Bytes out of line that values of this type take.
    #[must_use]
    pub fn bytes(&self, kind: Kind) -> usize {
        self.bytes[kind as usize]
    }

    /// Bytes out of line of all types.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.bytes.iter().sum()
    }

    /// Adds the account of another database or shard.
    pub fn merge(&mut self, other: &Self) {
        for kind in 0..KINDS {
            self.keys[kind] += other.keys[kind];
            self.bytes[kind] += other.bytes[kind];
        }
    }

    /// A key was added: `object` is its value when that lies out of line.
    pub(crate) fn add(&mut self, object: Option<&Object>) {
        let (kind, bytes) = measure(object);
        self.keys[kind as usize] += 1;
        self.bytes[kind as usize] += bytes;
    }

    /// A key was removed.
    pub(crate) fn remove(&mut self, object: Option<&Object>) {
        let (kind, bytes) = measure(object);
        self.keys[kind as usize] -= 1;
        self.bytes[kind as usize] -= bytes;
    }

    /// A value out of line changed its size.
    pub(crate) fn resize(&mut self, kind: Kind, before: usize, after: usize) {
        let bytes = &mut self.bytes[kind as usize];
        *bytes = *bytes + after - before;
    }
}

fn measure(object: Option<&Object>) -> (Kind, usize) {
    object.map_or((Kind::Text, 0), |object| (object.kind(), object.memory_bytes()))
}

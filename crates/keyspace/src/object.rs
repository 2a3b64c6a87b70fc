//! A value that lies out of line.

use crate::clocks::Clock;
use crate::hash::Hash;
use crate::set::Set;
use crate::{Kind, Touch};
use darter_base::Preempt;
use darter_structs::blob::Blob;
use darter_structs::table::Target;

/// A value behind a reference count. Cloning one is a cut.
///
/// A new type is a variant here, a file beside this one, and its family of commands.
#[derive(Clone)]
pub enum Object {
    /// A long string.
    Text(Blob),
    /// Fields and values.
    Hash(Hash),
    /// Members.
    Set(Set),
}

impl Target for Object {
    /// The keyspace keeps times of access.
    const STAMPED: bool = true;
}

/// The two reference counts in front of an object.
const COUNTS_BYTES: usize = 16;

impl Object {
    /// A value of this type with nothing in it.
    pub(crate) fn empty(kind: Kind) -> Self {
        match kind {
            Kind::Text => Self::Text(Blob::from(&[][..])),
            Kind::Hash => Self::Hash(Hash::new()),
            Kind::Set => Self::Set(Set::new()),
        }
    }

    /// The type, as TYPE names it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Text(_) => Kind::Text,
            Self::Hash(_) => Kind::Hash,
            Self::Set(_) => Kind::Set,
        }
    }

    /// Bytes of memory held, this header included. Cost: O(1).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let content = match self {
            Self::Text(blob) => blob.memory_bytes(),
            Self::Hash(hash) => hash.memory_bytes(),
            Self::Set(set) => set.memory_bytes(),
        };
        content + size_of::<Self>() + COUNTS_BYTES
    }

    /// The earliest deadline of a field or member, or a bound below it.
    #[must_use]
    pub fn earliest_deadline(&self) -> Option<u64> {
        match self {
            Self::Text(_) => None,
            Self::Hash(hash) => hash.fields().earliest_deadline(),
            Self::Set(set) => set.members().earliest_deadline(),
        }
    }

    /// Under which moment the database has it in order.
    pub(crate) fn clock(&self) -> Clock {
        match self {
            Self::Text(_) => Clock::default(),
            Self::Hash(hash) => hash.clock,
            Self::Set(set) => set.clock,
        }
    }

    pub(crate) fn set_clock(&mut self, clock: Clock) {
        match self {
            Self::Text(_) => debug_assert!(clock.at().is_none(), "a string has no fields"),
            Self::Hash(hash) => hash.clock = clock,
            Self::Set(set) => set.clock = clock,
        }
    }

    /// Removes fields or members that are dead at `now`, at most `most`. True while more are left.
    pub fn reap(&mut self, now: u64, most: usize) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Hash(hash) => hash.reap(now, most),
            Self::Set(set) => set.reap(now, most),
        }
    }

    /// True when nothing is left: then the key goes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Hash(hash) => hash.fields().is_empty(),
            Self::Set(set) => set.members().is_empty(),
        }
    }

    /// Asks the memory for the index line of the field or member of this hash.
    pub fn prefetch(&self, hash: u64) {
        match self {
            Self::Text(_) => {}
            Self::Hash(fields) => fields.fields().prefetch(hash),
            Self::Set(set) => set.members().prefetch(hash),
        }
    }

    /// Asks the memory for that field or member, whose index line was asked for before.
    pub fn prefetch_entry(&self, hash: u64) {
        match self {
            Self::Text(_) => {}
            Self::Hash(fields) => fields.fields().prefetch_entry(hash),
            Self::Set(set) => set.members().prefetch_entry(hash),
        }
    }

    /// Makes the places of fields or members the value's own: see `Db::unshare`.
    pub(crate) fn unshare(
        &mut self,
        names: &[&[u8]],
        touch: Touch,
        preempt: &dyn Preempt,
    ) -> Option<usize> {
        match self {
            Self::Text(_) => None,
            Self::Hash(fields) => fields.unshare(names, touch, preempt),
            Self::Set(set) => set.unshare(names, touch, preempt),
        }
    }

    /// The hash, if it is one.
    #[must_use]
    pub fn as_hash(&self) -> Option<&Hash> {
        if let Self::Hash(hash) = self { Some(hash) } else { None }
    }

    /// The set, if it is one.
    #[must_use]
    pub fn as_set(&self) -> Option<&Set> {
        if let Self::Set(set) = self { Some(set) } else { None }
    }
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {} bytes", self.kind(), self.memory_bytes())
    }
}

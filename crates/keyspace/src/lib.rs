//! One shard's data: databases of keys, values of every type, deadlines, memory accounts, effects.
//!
//! - [`Db`] maps keys to values. Reads do not see expired keys, and change nothing but the access
//!   time; writes update the memory totals and record their [`Effect`]s. Nothing else changes data.
//! - [`Object`] is a value that does not fit a table's page. It is reference-counted, and cloning
//!   one is a cut: a clone reads that instant, whatever is written later. For types of values, see
//!   `object`. Strings are the only type in this crate (`text`), because short ones are stored in
//!   the table of keys.
//! - [`Shard`] is what one core owns.
//!
//! Not here: the other types, replies, commands, other shards, the source of time (`now` is set
//! every turn).

#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as darter_keyspace; // For the toy types of the tests.

mod access;
mod build;
mod check;
mod clocks;
mod compaction;
mod databases;
mod db;
mod draft;
mod effect;
mod encoding;
pub mod event;
mod found;
mod held;
mod items;
mod log;
mod named;
mod object;
mod packed;
mod shard;
mod telling;
mod text;
mod tracked;
mod usage;
mod watch;

pub use build::{Build, Building, Twice};
pub use check::Checker;
pub use clocks::{Clock, Name, Pair};
pub use db::{Db, Deadline, WrongType, is_dead};
pub use draft::Draft;
pub use effect::commands::{self, Commands};
pub use effect::rebuild;
pub use effect::{
    Act, Change, Changes, Effect, Part, Place, Record, ServerAct, Source, Work, apply, apply_to_db,
};
pub use encoding::Bound;
pub use event::{Event, Events, Tells};
pub use found::Found;
pub use held::{Held, HeldValue};
pub use items::{NewItem, WriteValue, is_long, of_table};
pub use log::Recorder;
pub use log::ring::{BYTES_MAX, RECORDS_MAX, Read, Reader, Wants};
pub use named::Touch;
pub use object::{
    Ahead, Collection, Named, Object, Tabular, Type, Typed, Types, Value, Values, memory_bytes,
};
pub use packed::Lent;
pub use shard::{Shard, ShardStats};
pub use text::{Fresh, HLL_SPARSE_MAX_BYTES, Str, StrPieces, TextChange, TextEdit};
pub use tracked::{BY_SCRIPT, Hears, Readers, Touched};
pub use usage::Usage;
pub use watch::Seen;

/// File formats of values, which are a part of a type's row.
pub use darter_rdb::Kind;
/// Deferred freeing of large values, in slices.
pub use darter_structs::lazyfree;

/// A key with its hash, computed once for the lock table and the keyspace.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The key.
    pub bytes: &'a [u8],
    /// `darter_base::hash::of(bytes)`.
    pub hash: u64,
}

impl<'a> Key<'a> {
    /// Hashes `bytes`.
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self::hashed(bytes, darter_base::hash::of(bytes))
    }

    /// A key whose hash is known.
    #[inline]
    #[must_use]
    pub fn hashed(bytes: &'a [u8], hash: u64) -> Self {
        debug_assert_eq!(hash, darter_base::hash::of(bytes), "the hash of another key");
        Self { bytes, hash }
    }
}

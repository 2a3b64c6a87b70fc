//! The events of a reader, piece by piece.

use crate::block::Block;
use crate::items::Item;
use crate::kind::Kind;
use darter_base::UnixMillis;

/// The product that wrote the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// Redis, or a Valkey before 9, or another that writes Redis's format.
    Redis,
    /// Valkey 9 or later.
    Valkey,
}

/// The result of the checksum at the end. A wrong one is an error, not an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crc {
    /// The checksum matches.
    Verified,
    /// The checksum was not compared: the writer had disabled it, so it is zero, or the reader was
    /// set not to.
    Off,
}

/// One piece of a file. Slices live until the reader is used again.
///
/// Order: `Start`, then any of the others; a `Key` is followed by its items and an `EndOfKey`;
/// `Eof` is last. A payload of `DUMP` has `Key` (with an empty key) to `Eof` only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// The header was read.
    Start {
        /// The product of the magic.
        product: Product,
        /// The version.
        version: u16,
    },
    /// Metadata, such as `redis-ver`, `ctime`, `used-mem`.
    Aux {
        /// The name.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// The keys that follow belong to this database. Until the first such event it is 0.
    SelectDb(u32),
    /// How many keys the database will have. Untrusted: allocate nothing by it.
    ResizeDb {
        /// Keys.
        keys: u64,
        /// Keys with a deadline.
        expires: u64,
    },
    /// As above, for one slot.
    SlotInfo {
        /// The slot.
        slot: u64,
        /// Keys.
        keys: u64,
        /// Keys with a deadline.
        expires: u64,
    },
    /// The source of a library of functions. A caller that cannot run it should warn.
    Function {
        /// The text, with its `#!lua name=..` line.
        code: &'a [u8],
    },
    /// Data of a module was skipped. A caller that cares should warn.
    ModuleSkipped {
        /// The module's type name, 9 characters.
        module: [u8; 9],
    },
    /// A key; its value follows.
    Key {
        /// The key; empty in a payload of `DUMP`.
        key: &'a [u8],
        /// The type of its value.
        kind: &'static Kind,
        /// The type number in the file.
        encoding: u8,
        /// The deadline. A past one is for the caller to judge; one before 1970 reads as 0.
        expiry_ms: Option<UnixMillis>,
        /// Seconds since it was used.
        idle_s: Option<u64>,
        /// How often it was used, as Redis's logarithm.
        frequency: Option<u8>,
        /// Bytes of a string, items otherwise, where known in advance; no more items than the file has
        /// bytes left, where its size is known. Untrusted: allocate by it no more than for an empty
        /// value. Redis never keeps an empty collection: 0 items mean that
        /// the key is to be skipped.
        len_hint: Option<u64>,
    },
    /// The next piece of the value, whole. Chunks of a string have
    /// [`CHUNK_BYTES`](darter_base::limits::CHUNK_BYTES), but for the last; an empty string has
    /// none. Duplicate names are for the caller to find: the file is damaged.
    Item(Item<'a>),
    /// The next items at once, if the reader was asked for blocks.
    Block(Block<'a>),
    /// This many bytes of a long packed text were unpacked: its event follows once it is whole.
    Unpacked(usize),
    /// The value is complete.
    EndOfKey,
    /// The file or payload is complete.
    Eof {
        /// The result of its checksum.
        crc: Crc,
    },
}

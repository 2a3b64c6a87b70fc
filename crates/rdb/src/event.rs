//! The events of a reader, piece by piece.

use crate::block::Block;
use crate::items::Item;
use crate::kind::Kind;
use darter_base::UnixMillis;

/// The product that wrote the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// Redis, Valkey before version 9, or other software that writes Redis's format.
    Redis,
    /// Valkey 9 or later.
    Valkey,
}

/// The result of the checksum at the end. A wrong one is an error, not an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crc {
    /// The checksum matches.
    Verified,
    /// The checksum was not compared: it is zero because the writer had disabled it, or the reader
    /// was set not to verify.
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
    /// The announced size of the database. Untrusted: allocate nothing by it.
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
        /// The deadline. The caller must check for past ones; a deadline before 1970 reads as 0.
        expiry_ms: Option<UnixMillis>,
        /// Seconds since it was used.
        idle_s: Option<u64>,
        /// How often the key was used, as Redis's logarithm.
        frequency: Option<u8>,
        /// Bytes of a string or items of a collection, where known in advance; never more items
        /// than bytes left in a file of known size. Untrusted: allocate no more than for an empty
        /// value. Redis never keeps an empty collection: 0 items mean that the key is to be
        /// skipped.
        len_hint: Option<u64>,
    },
    /// The next piece of the value, whole. Chunks of a string have
    /// [`CHUNK_BYTES`](darter_base::limits::CHUNK_BYTES), except the last; an empty string has
    /// none. The caller must find duplicate names: they mean that the file is damaged.
    Item(Item<'a>),
    /// The next items as one block, if the reader was asked for blocks.
    Block(Block<'a>),
    /// This many bytes of a long packed text were unpacked; the text's event follows at its end.
    Unpacked(usize),
    /// The value is complete.
    EndOfKey,
    /// The file or payload is complete.
    Eof {
        /// The result of its checksum.
        crc: Crc,
    },
}

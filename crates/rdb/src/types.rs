//! The numbers of the format that belong to no type, and the names of unsupported value types.
//!
//! Source: `rdb.h` of Redis 7.0 to 8.0 and of Valkey 9, the documentation of each release.

/// Sizes of one slot (7.4, cluster mode).
pub const OP_SLOT_INFO: u8 = 244;
/// The source of a library of functions (7.0).
pub const OP_FUNCTION2: u8 = 245;
/// The source of a library, as written by release candidates of 7.0.
pub const OP_FUNCTION_PRE_GA: u8 = 246;
/// Data of a module that belongs to no key.
pub const OP_MODULE_AUX: u8 = 247;
/// Seconds since the next key was used.
pub const OP_IDLE: u8 = 248;
/// The logarithm of how often the next key was used.
pub const OP_FREQ: u8 = 249;
/// A named metadata entry.
pub const OP_AUX: u8 = 250;
/// The number of keys and of deadlines in the database.
pub const OP_RESIZE_DB: u8 = 251;
/// The deadline of the next key, in milliseconds.
pub const OP_EXPIRE_MS: u8 = 252;
/// The deadline of the next key, in seconds.
pub const OP_EXPIRE_S: u8 = 253;
/// The database of the keys that follow.
pub const OP_SELECT_DB: u8 = 254;
/// The end; from version 5 on a checksum follows.
pub const OP_EOF: u8 = 255;

/// Oldest version that is read.
pub const VERSION_MIN: u16 = 1;
/// Oldest version with a checksum after the end.
pub const VERSION_CHECKSUM: u16 = 5;
/// Newest version of Redis's that is read.
pub const VERSION_MAX: u16 = 12;
/// Oldest version of Valkey's own (older Valkeys write Redis's version 11).
pub const VALKEY_VERSION_MIN: u16 = 80;
/// Newest version of Valkey's own that is read.
pub const VALKEY_VERSION_MAX: u16 = 81;
/// The version that Redis 7.0 writes, and the newest that it loads.
pub const VERSION_WRITTEN: u16 = 10;

/// Added to a layout's type number if other software uses that number for another type; such
/// numbers are Darter's own.
pub const PRIVATE: u8 = 200;

const _: () = assert!(PRIVATE + LAST_OF_VERSION_12 < OP_SLOT_INFO, "no opcode is taken");

/// The last type number in version 10.
const LAST_OF_VERSION_10: u8 = 19;
const LAST_OF_VERSION_11: u8 = 21;
const LAST_OF_VERSION_12: u8 = 26;

/// The first version of the format with a type number.
pub(crate) fn version_of(number: u8) -> u16 {
    match number % PRIVATE {
        number if number <= LAST_OF_VERSION_10 => VERSION_WRITTEN,
        number if number <= LAST_OF_VERSION_11 => 11,
        _ => 12,
    }
}

/// Marks a list's node as a single element, not a block of them.
pub(crate) const NODE_PLAIN: u64 = 1;
pub(crate) const NODE_PACKED: u64 = 2;

/// Latest field deadline that Redis accepts: 2^48 - 2 ms.
pub const DEADLINE_MAX_MS: u64 = (1 << 48) - 2;

/// The common names of an unsupported value's type and encoding.
pub(crate) fn refused(number: u8) -> Option<(&'static str, &'static str)> {
    REFUSED.iter().find(|row| row.0 == number).map(|row| (row.1, row.2))
}

#[rustfmt::skip] // A table: number, type, encoding.
const REFUSED: &[(u8, &str, &str)] = &[
    ( 6, "module", "module value, pre-release"),
    ( 7, "module", "module value"),
    (26, "stream", "listpacks4"),
];

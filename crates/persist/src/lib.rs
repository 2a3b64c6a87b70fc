//! Values as bytes that outlive a connection: of any type, read and built item by item.
//!
//! - [`aof`]: the files of an append-only folder.
//! - [`commands`]: `DUMP` and `RESTORE`.
//! - [`digest`]: DEBUG DIGEST of a value.
//! - [`snapshot`]: the keys of a core as a part of a file.
//!
//! Everything here is sans-IO, like the format itself, which is in `rdb`.
//!
//! Not here: mapping files to the keyspace, opening them, progress on the log. See `server`.

#![forbid(unsafe_code)]

pub mod aof;
pub mod commands;
pub mod digest;
pub mod snapshot;

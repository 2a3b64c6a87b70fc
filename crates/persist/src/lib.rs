//! What leaves and enters the process as bytes that live longer than a connection.
//!
//! - [`rdb`]: Redis's snapshot format, read as a stream of events and written piece by piece.
//! - [`dump`]: one value as `DUMP` writes it and `RESTORE` reads it.
//! - [`commands`]: those two commands.
//! - [`lzf`], [`crc64`]: what both stand on.
//!
//! Everything here is sans-IO: bytes come in as slices and go out into vectors. No file, socket,
//! thread or clock is touched, so the simulator and the fuzzer run the very code of the server.
//!
//! Not here: mapping files to the keyspace, opening them, progress on the log. See `server`.

#![forbid(unsafe_code)]

pub mod commands;
pub mod crc64;
pub mod dump;
pub mod fuzz;
pub mod lzf;
pub mod rdb;

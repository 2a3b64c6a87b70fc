//! What leaves and enters the process as bytes that live longer than a connection: values of any
//! type, which are walked through and built item by item.
//!
//! - [`commands`]: `DUMP` and `RESTORE`.
//! - [`digest`]: what DEBUG DIGEST says of a value.
//! - [`fuzz`]: the fuzz target of all that reads.
//!
//! Everything here is sans-IO, as the format itself, which is in `rdb`.
//!
//! Not here: mapping files to the keyspace, opening them, progress on the log. See `server`.

#![forbid(unsafe_code)]

pub mod commands;
pub mod digest;
pub mod fuzz;

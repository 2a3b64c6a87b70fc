//! The commands over data, one file each and one row each.
//!
//! A family is a folder: its files hold the functions, its `mod.rs` the table of rows. A command
//! sees a database of one shard, its arguments and a reply; it knows no sockets, files, threads,
//! nor the privates of other families.

#![forbid(unsafe_code)]

mod ahead;
mod choice;
mod cursor;
mod expiry;
pub mod hash;
pub mod keys;
mod living;
mod scan;
pub mod set;
mod spread;
pub mod string;

use darter_command::Command;

/// The tables of all families.
pub const TABLES: &[&[Command]] = &[string::TABLE, hash::TABLE, set::TABLE, keys::TABLE];

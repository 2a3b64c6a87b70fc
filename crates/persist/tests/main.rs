//! Payloads, files and snapshots: beside redis-server 7.0.15, against hand-made bytes, and against
//! themselves.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking, helpers included")]

mod commands;
mod common;
mod example;
mod formats;
mod fuzz;
#[path = "../../keyspace/tests/heap/mod.rs"]
mod heap;
mod oracle_dump;
mod oracle_files;
mod oracle_scores;
mod oracle_streams;
mod packed;
#[path = "../../../tests/fuzz/src/rdb.rs"]
mod rdb_target;
mod snapshot;
mod toy;

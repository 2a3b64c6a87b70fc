//! Databases and shards compared with naive models, with two types unknown to the keyspace.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking, helpers included")]

mod databases;
mod heap;
mod idle;
mod roll;
mod shard;
mod toy;
mod undo;

//! The shared parts of Count-Min sketches and Top-K: rows of counters, and the hashes of items.

pub(crate) mod cells;
pub(crate) mod hashed;

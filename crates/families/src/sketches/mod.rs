//! Code shared by Count-Min sketches and Top-K: rows of counters, and hashes of items.

pub(crate) mod cells;
pub(crate) mod hashed;

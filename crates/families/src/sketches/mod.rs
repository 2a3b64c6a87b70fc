//! What Count-Min sketches and Top-K share: rows of counters, and the hashes of what is counted.

pub(crate) mod cells;
pub(crate) mod hashed;

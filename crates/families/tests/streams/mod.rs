//! The family of streams, by what it keeps to in slices. Beside redis-server it is compared by
//! tests/conformance and tests/differential, and against a naive model in crates/structs.

mod groups;
mod large;

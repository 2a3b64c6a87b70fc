//! Tests of the slices of stream commands. The comparison with redis-server is in tests/conformance
//! and tests/differential, that with a naive model in crates/structs.

mod groups;
mod large;

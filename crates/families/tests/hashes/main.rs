//! The family of hashes: beside redis-server 7.0.15, against a naive model, and by tables for what is
//! newer than that server.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod dialects;
mod engine;
mod large;
mod model;
mod oracle;

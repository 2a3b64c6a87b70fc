//! The string family, driven without sockets: against a naive model, against a real redis-server,
//! and over several cores.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod anywhere;
mod engine;
mod model;
mod oracle;
mod slices;

//! The family of keys, driven without sockets on one to four cores: against a real redis-server,
//! and against models where Redis leaves the order open.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod large;
mod oracle;
mod replies;
mod scan;
mod world;

//! Shared parts of tests that talk to a server from outside: servers that start on free ports and
//! die with their handle, and a client that returns replies both as bytes and as values.
//!
//! It shares no code with the server's own protocol crates on purpose: a bug in their parser must
//! not be able to hide itself here.
//!
//! Shape: [`server::Server`] (a child process), [`client::Client`] (one socket), [`reply::Reply`]
//! (a value), [`notation`] (how tests write it), [`compare`] (when two agree), [`process`] (a child
//! in `/proc`), [`tally::Tally`] (the count that closes each run), [`over_threads`].
//!
//! Not here: what is tested. See `tests/conformance`, `tests/limits`, `tests/clients`.

#![forbid(unsafe_code)]

pub mod client;
pub mod compare;
pub mod notation;
pub mod process;
pub mod reply;
pub mod server;
pub mod tally;
pub mod threads;

pub use client::{Client, Protocol};
pub use reply::Reply;
pub use server::{Io, Server, Shape};
pub use tally::Tally;
pub use threads::over_threads;

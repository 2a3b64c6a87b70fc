//! The families, driven without sockets: beside redis-server 7.0.15, against naive models, on one
//! to four cores, and by tables for what is newer than that server.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bitmaps;
mod blooms;
mod common;
mod cuckoos;
mod effects;
mod events;
mod geo;
mod hashes;
mod hyperloglogs;
mod json;
mod keys;
mod lists;
mod sets;
mod sketches;
mod sorting;
mod streams;
mod strings;
mod types;
mod zsets;

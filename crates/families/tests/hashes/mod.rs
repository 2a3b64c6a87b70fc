//! The family of hashes: beside redis-server 7.0.15, against a naive model, and by tables for what
//! is newer than that server.

mod dialects;
mod large;
mod model;
mod oracle;

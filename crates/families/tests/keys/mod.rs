//! The family of keys, on one to four cores: beside redis-server 7.0.15, and against models where
//! Redis leaves the order open.

mod idle;
mod large;
mod pinned;
mod replies;
mod scan;

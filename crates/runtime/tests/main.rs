//! The network interface, on both backends, against real sockets; and files, on all backends.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking, helpers included")]

mod echo;
mod fallback;
mod files;
mod moves;
mod news;
mod resets;
mod support;

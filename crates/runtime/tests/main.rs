//! The network interface, on both backends, against real sockets.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking, helpers included")]

mod echo;
mod fallback;
mod moves;
mod news;
mod resets;
mod support;

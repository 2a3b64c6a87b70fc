//! Locks, messages and tasks of several cores in one thread.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking, helpers included")]

mod all_keys;
mod late;
mod link;
mod locks;

//! The machine under a core: network, files, clocks, threads, signals, and rings between cores.
//!
//! This crate knows nothing of Redis. A core owns one [`net::Net`] and drives it: output is queued
//! and sent in one call, arrivals are passed as [`net::Event`]s. There are two backends, io_uring
//! and epoll, behind one interface shaped like completions, because both can implement that shape
//! honestly.
//!
//! ```text
//! core:   Net (Uring | Epoll) --events--> turn --sends--> Net
//!         Mailbox <== rings of one producer and one consumer ==> other cores' Mailboxes
//! ```
//! Not here: protocol, keyspace, the order of a turn. See `server`. The simulator does not use this
//! crate but replaces it.

pub mod clock;
pub mod disk;
pub mod fs;
pub mod heap;
pub mod limits;
pub mod mailbox;
pub mod net;
pub mod ring;
pub mod signal;
pub mod supervise;
pub mod timer;
pub mod topology;

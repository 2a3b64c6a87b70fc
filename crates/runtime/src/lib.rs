//! The machine under a core: network, clocks, threads, signals, and rings between cores.
//!
//! It knows nothing of Redis. A core owns one [`net::Net`] and turns it: what the core sends is
//! queued and leaves in one go, what arrived is handed over as [`net::Event`]s. Two backs do the
//! work, io_uring and epoll, behind one face shaped like completions, because that is the shape
//! both can have without a lie.
//!
//! ```text
//! core:   Net (Uring | Epoll) --events--> turn --sends--> Net
//!         Mailbox <== rings of one producer and one consumer ==> other cores' Mailboxes
//! ```
//! Not here: protocol, keyspace, the order of a turn. See `server`. The simulator replaces this
//! crate, it does not use it.

pub mod clock;
pub mod heap;
pub mod limits;
pub mod mailbox;
pub mod net;
pub mod ring;
pub mod signal;
pub mod supervise;
pub mod timer;
pub mod topology;

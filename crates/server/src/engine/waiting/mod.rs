//! Commands that wait: BLPOP and its kin.
//!
//! ```text
//! core of the client                            core of a key
//! begin:  the call, and its keys  ──────────►   looks; nothing there: a place in the key's queue
//! end:    "may I?"  ◄───────────────────────    serve: the key has changed
//!         yes, if it still waits  ──────────►   takes what is wanted
//!         the reply  ◄──────────────────────    next in the queue
//! ```
//! Only the core of the client decides whether it still waits: so an element is never taken for one
//! that has gone, whose time was over, or who got another. Between the change of a key and the end of
//! the serving the key is locked. docs/design/0027-blocking.md has the reasons.
//!
//! Not here: what is wanted, and how it is taken. See `Want` in `command`.

mod begin;
mod end;
mod serve;

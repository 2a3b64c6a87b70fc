//! Blocking commands, such as BLPOP.
//!
//! ```text
//! core of the client                            core of a key
//! begin:  sends the call  ──────────────────►   checks the key; if it is empty, queues the call
//! end:    gets the reply  ◄─────────────────    serve: the key has changed; takes an element
//! ```
//! A word that these cores share (`Fate`) decides between two outcomes: either the core of a key
//! serves the call, or the core of the client ends it. So no element is taken for a client that has
//! gone, has timed out, or has received another element. If a call is not served in the same step
//! as the change of the key, the key is locked until it is served. docs/design/0027-blocking.md
//! explains the design.
//!
//! Not here: the condition on which a call waits, and how it takes an element. See `Want` in
//! `command`.

mod begin;
mod end;
mod serve;

//! Commands that wait: BLPOP and its kin.
//!
//! ```text
//! core of the client                            core of a key
//! begin:  the call, and its keys  ──────────►   looks; nothing there: a place in the key's queue
//! end:    the reply  ◄──────────────────────    serve: the key has changed; takes what is wanted
//! ```
//! A call's fate is decided once, by a word that these cores share (`Fate`): the core of a key takes
//! for it, or that of the client ends it. So an element is never taken for one that has gone, whose
//! time was over, or who got another. Who is not served in the step of the change is served under
//! the lock of the key. docs/design/0027-blocking.md has the reasons.
//!
//! Not here: what is wanted, and how it is taken. See `Want` in `command`.

mod begin;
mod end;
mod serve;

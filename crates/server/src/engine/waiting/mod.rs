//! Blocking commands, such as BLPOP.
//!
//! ```text
//! core of the client                            core of a key
//! begin:  the call, and its keys  ──────────►   looks; nothing there: a place in the key's queue
//! end:    the reply  ◄──────────────────────    serve: the key has changed; takes what is wanted
//! ```
//! One word that these cores share (`Fate`) decides once: either the core of a key serves the call,
//! or the core of the client ends it. So no element is taken for a client that has gone, timed out,
//! or got another element. A call that is not served in the step of the change is served under the
//! lock of the key. docs/design/0027-blocking.md has the reasons.
//!
//! Not here: the condition of a call, and taking the element. See `Want` in `command`.

mod begin;
mod end;
mod serve;

//! One core, sans-IO.
//!
//! ```text
//! received bytes -> Parser -> Entry (row) -> Point: here, or in a batch to the core that owns it
//!                                            Multi: a task that coordinates
//!                                            Server: the session, or a task
//! replies -> Output -> Action::Send           streams are pumped as the socket drains
//! ```
//! Not here: what any command does.

mod batch;
mod conn;
mod core;
mod entry;
pub(crate) mod monitor;
mod owed;
mod prefetch;
mod release;
mod serve;
mod sleep;
mod slices;
mod stats;
#[cfg(test)]
mod tests;
mod turn;

pub use batch::Batch;
pub use conn::{Conn, Lane, Peer, ReplyMode, Session, Sizes};
pub use core::{Action, ClientLimits, Clock, Core, Hot, Mail, SliceClock, World};
pub use darter_runtime::net::Token;
pub use entry::{Entry, Runner, ServerCall, ServerFuture, SessionCx, Table};
pub use sleep::Wait;
pub(crate) use slices::BUCKETS;
pub use slices::{Cause, Slice, Slices};
pub use stats::{CommandStats, CoreStats, Recent};

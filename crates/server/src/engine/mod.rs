//! One core as a sans-IO engine: it does no input or output of its own.
//!
//! ```text
//! received bytes -> Parser -> Entry (row) -> Point: here, or in a batch to the core that owns it
//!                                            Multi: a task that coordinates
//!                                            Server: the session, or a task
//! replies -> Output -> Action::Send           streams are pumped as the socket drains
//! ```
//! Not here: the functions of data commands.

mod batch;
mod census;
pub(crate) mod client_line;
mod conn;
mod core;
mod entry;
pub(crate) mod journal;
mod lifecycle;
pub(crate) mod monitor;
pub(crate) mod moving;
mod owed;
mod point;
mod prefetch;
mod presence;
pub(crate) mod pubsub;
mod queue;
pub(crate) mod replay;
pub(crate) mod saving;
pub(crate) mod scripts;
mod serve;
mod sleep;
mod slices;
pub(crate) mod state;
mod stats;
#[cfg(test)]
mod tests;
pub(crate) mod tracking;
mod transaction;
mod turn;
mod unit;
mod upkeep;
mod waiting;
mod wanted;
mod writers;

pub use conn::{Conn, Lane, Peer, ReplyMode, Session, Sizes};
pub use core::{Core, Mail};
pub use darter_runtime::net::Token;
pub(crate) use entry::unknown_subcommand;
pub use entry::{Entry, Runner, Scripted, ServerCall, ServerFuture, SessionCx, Table};
pub use moving::Moving;
pub use moving::policy::Policy;
pub use sleep::Wait;
pub(crate) use slices::BUCKETS;
pub use slices::{Cause, Slice, Slices};
pub use state::batches::Batch;
pub(crate) use state::clients::REPLAY;
pub use state::clock::{Clock, SliceClock, World};
pub use state::hot::{ClientLimits, Hot, OutputLimit};
pub use state::local::Local;
pub use state::outgoing::Action;
pub use stats::{CommandStats, CoreStats, RecentMax};
pub use transaction::queued::{QueuedSizes, Verb};
pub(crate) use unit::admit::LOADING;

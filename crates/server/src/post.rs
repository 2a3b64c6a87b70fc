//! The messages between threads.

use crate::engine::{Mail, Moving};
use darter_runtime::net::Parcel;
use std::os::fd::OwnedFd;

/// A message between threads.
pub(crate) enum Post {
    /// A message of the engine.
    Mail(Mail),
    /// A connection that core 0 has accepted for the receiving core.
    Adopt(Parcel),
    /// A connection that moves to the core of its keys: the socket and the state.
    Move(OwnedFd, Box<Moving>),
}

//! Messages between threads.

use crate::engine::{Mail, Moving};
use darter_runtime::net::Parcel;
use std::os::fd::OwnedFd;

/// A message between threads.
pub(crate) enum Post {
    /// A message of the engine.
    Mail(Mail),
    /// A connection that another core accepted for this one.
    Adopt(Parcel),
    /// A connection in use that moves to the core of its keys.
    Move(OwnedFd, Box<Moving>),
}

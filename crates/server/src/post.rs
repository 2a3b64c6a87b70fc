//! What threads send each other.

use crate::engine::{Mail, Moving};
use darter_runtime::net::Parcel;
use std::os::fd::OwnedFd;

/// What threads send each other.
pub(crate) enum Post {
    /// The engine's own.
    Mail(Mail),
    /// A connection that another core accepted for this one.
    Adopt(Parcel),
    /// One in use, which moves to the core of its keys.
    Move(OwnedFd, Box<Moving>),
}

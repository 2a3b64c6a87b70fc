//! What goes from thread to thread.

use crate::engine::Mail;
use darter_runtime::net::Parcel;

/// What goes from thread to thread.
pub(crate) enum Post {
    /// The engine's own.
    Mail(Mail),
    /// A connection that another core accepted, for this one.
    Adopt(Parcel),
}

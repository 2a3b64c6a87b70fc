//! What threads send each other.

use crate::engine::Mail;
use darter_runtime::net::Parcel;

/// What threads send each other.
pub(crate) enum Post {
    /// The engine's own.
    Mail(Mail),
    /// A connection that another core accepted for this one.
    Adopt(Parcel),
}

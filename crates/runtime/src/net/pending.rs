//! Events that a backend could not deliver yet.

use std::io;
use std::os::fd::OwnedFd;

use super::buffer::SendBuffer;
use super::event::{Event, Token};

/// An event that owns its contents.
#[derive(Debug)]
pub(super) enum Pending {
    /// A send is over; with the reason when it failed.
    Sent(Token, SendBuffer, Option<io::ErrorKind>),
    /// A connection is gone.
    Closed(Token, Option<io::Error>),
    /// A connection was given away.
    Released(Token, OwnedFd),
}

impl Pending {
    /// The connection whose last event this is.
    pub(super) fn ended(&self) -> Option<Token> {
        match self {
            Self::Sent(..) => None,
            Self::Closed(conn, _) | Self::Released(conn, _) => Some(*conn),
        }
    }

    pub(super) fn into_event(self) -> Event<'static> {
        match self {
            Self::Sent(conn, buffer, reason) => {
                let result = reason.map_or(Ok(()), |kind| Err(kind.into()));
                Event::Sent { conn, buffer, result }
            }
            Self::Closed(conn, error) => Event::Closed { conn, error },
            Self::Released(conn, socket) => Event::Released { conn, socket },
        }
    }
}

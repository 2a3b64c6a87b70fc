//! The reasons why a measurement could not be made.
//!
//! A fault ends one row of a table, never the run: the row shows its text. So only the faults that
//! a runner distinguishes have variants of their own, and every other fault is a text.

use std::fmt;
use std::io;

/// The result of every fallible step of the tool.
pub(crate) type Outcome<T> = Result<T, Fault>;

/// The reason why a measurement could not be made.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The server took longer than the step's limit.
    TimedOut,
    /// The server closed the connection, or is gone.
    Gone,
    /// The server answered with an error line (without `-` and CRLF).
    Refused(String),
    /// The environment is at fault: a binary is missing, a file cannot be written.
    Setup(String),
    /// Any other failure of a socket or file.
    Io(io::Error),
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::TimedOut => out.write_str("timed out"),
            Fault::Gone => out.write_str("server gone"),
            Fault::Refused(line) => write!(out, "error: {line}"),
            Fault::Setup(text) => out.write_str(text),
            Fault::Io(error) => write!(out, "{error}"),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        use io::ErrorKind::{
            BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof, WouldBlock,
        };
        match error.kind() {
            // A blocking socket with a read timeout reports its end as `WouldBlock`.
            WouldBlock | TimedOut => Fault::TimedOut,
            BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof => Fault::Gone,
            _ => Fault::Io(error),
        }
    }
}

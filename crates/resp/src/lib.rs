//! The Redis serialisation protocol, without sockets: bytes in, requests out; values in, bytes out.
//!
//! - [`Parser`] cuts requests out of received bytes: RESP arrays and inline commands.
//! - [`Args`] is one request as its arguments, borrowed if possible.
//! - [`Output`] collects bytes to send; [`Reply`] encodes into it, in RESP2 or RESP3.
//!
//! Nothing here allocates by a number that a client announced: memory follows the bytes received.
//!
//! Not here: commands, data, connections.

#![forbid(unsafe_code)]

mod args;
mod backlog;
mod inline;
mod lookahead;
mod output;
mod parser;
mod reply;
mod whole;

pub use args::{Arg, Args, Block, Note, Request, Span};
pub use inline::split_words;
pub use lookahead::{LOOKAHEAD_MAX, plain};
pub use output::{Output, Part};
pub use parser::{Parsed, Parser, ProtocolError};
pub use reply::Reply;
pub use whole::Whole;

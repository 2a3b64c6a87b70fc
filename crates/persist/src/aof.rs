//! An append-only folder as bytes, in Redis's format: docs/formats/aof.md.
//!
//! ```text
//! manifest:   base RDB or AOF | increment | increment | …
//! increment:  #DJ1 … line | commands | #DJ1 … line | commands | … | zeros
//!             `────── a batch ──────´
//! ```
//! - [`manifest`]: the list of files.
//! - [`annotation`]: the line that begins each batch of Darter's increments.
//! - [`reader`]: splits a file into commands and lines.
//! - [`check`]: verifies a file, and says where it may be cut.
//!
//! Not here: opening files, and running their commands. See `server`.

pub mod annotation;
pub mod check;
pub mod manifest;
pub mod reader;

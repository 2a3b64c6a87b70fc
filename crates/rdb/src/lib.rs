//! RDB, Redis's snapshot format: read versions 1 to 12 and Valkey's, write what Redis 7.0 loads.
//!
//! [`Reader`] turns bytes that arrive in chunks of any size into [`Event`]s and never needs a
//! whole value; [`Writer`] is its counterpart. The bytes are drawn in docs/formats/rdb.md.
//!
//! ```text
//! bytes -> Reader -> Start  (Aux | SelectDb | ResizeDb | ..)*  Key item* EndOfKey  ..  Eof
//! ```
//!
//! - `wire`: lengths, strings and numbers, parsed from bytes that may not all have arrived.
//! - `blob`: the packed forms of small collections (intset, listpack, ziplist, zipmap).
//! - `block`: such a collection as a whole, to be taken apart elsewhere.
//! - `kind`: the part of a type's row about the format: the numbers under which its values are
//!   stored.
//! - `items`: the parts of every value.
//! - `value`, `encode`: writing: survey, plan, and the bytes of each item; `nodes`: of lists;
//!   `entries`: of streams.
//! - `types`: the numbers of the format, and the names of unsupported types.
//! - [`dump`]: one value as `DUMP` writes it and `RESTORE` reads it.
//! - [`functions`]: libraries, in files and in the payload of `FUNCTION DUMP`.
//! - [`lzf`], [`crc64`]: common to both directions.
//!
//! Everything here is sans-IO: bytes come in as slices and go out into vectors. No file, socket,
//! thread or clock is touched, so the simulator and the fuzzer run the server's very code.
//!
//! Not here: the keyspace, commands, files.

#![forbid(unsafe_code)]

mod blob;
mod block;
pub mod crc64;
pub mod dump;
mod encode;
mod entries;
mod error;
mod event;
pub mod functions;
mod items;
mod kind;
pub mod lzf;
mod nodes;
mod reader;
pub mod types;
mod value;
mod wire;
mod writer;

pub use blob::Form;
pub use block::{Block, BlockHead, BlockPlace, IntTexts};
pub use error::{Error, Reason};
pub use event::{Crc, Event, Product};
pub use items::{Item, Items, Piece, Source};
pub use kind::{Bounds, Encoding, Generation, Kind, Layout, Origin};
pub use reader::{Limits, Reader};
pub use value::{Encoder, Plan, Survey};
pub use writer::{Writer, write_key, write_text};

/// True for the first bytes of an RDB file, at least six of them.
#[must_use]
pub fn begins_file(head: &[u8]) -> bool {
    head.starts_with(b"REDIS") || head.starts_with(b"VALKEY")
}

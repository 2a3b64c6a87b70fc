//! The data structures: the segment-packed table of which keyspace, hashes and sets are made,
//! lists, sorted sets, streams with their consumer groups, JSON documents, filters, and long strings.
//!
//! All of them clone in constant or nearly constant time: a clone is a *cut*, and a writer of
//! either copy copies only the parts it touches.
//!
//! Not here: types, expiry policy, replies. See `keyspace`.

pub mod blob;
mod chunk;
pub use darter_base::lazyfree;
pub mod filter;
pub mod groups;
pub mod json;
pub mod kept;
pub mod list;
mod owner;
pub use owner::Watch;
pub mod pages;
mod runs;
pub mod shared;
pub mod sorted;
pub mod stream;
pub mod table;
mod tree;

//! The data structures: the segment-packed table that keyspace, hashes and sets are made of, long
//! strings, and where large values go to be freed.
//!
//! All of them clone in constant or nearly constant time: a clone is a *cut*, and whoever changes
//! either copy copies only what it touches.
//!
//! Not here: types, expiry policy, replies. See `keyspace`.

pub mod blob;
pub use darter_base::lazyfree;
mod owner;
pub use owner::Watch;
pub mod shared;
pub mod table;

//! Filters: whether an item was added, in some bits an item; sometimes it seems so when it was not,
//! never the other way round.
//!
//! | file     | holds                                                             |
//! |----------|-------------------------------------------------------------------|
//! | `probe`  | the hash of an item, and the places that it leads to              |
//! | `shape`  | how large one Bloom filter is, and how many bits an item sets     |
//! | `bloom`  | chains of Bloom filters, each larger and stricter than the last   |
//! | `cuckoo` | cuckoo filters, from which items can be removed                   |
//!
//! The places are our own (docs/design/0022-filters.md). In a Bloom filter all bits of an item are
//! in one block of a few pages, so that a change copies a page or two, and a query misses the TLB
//! once.
//!
//! Not here: commands, and how filters are laid out in files.

mod bloom;
mod cuckoo;
mod probe;
mod shape;

pub use bloom::{Added, Bloom, LAYERS_MAX, Layer, Plan};
pub use cuckoo::{CUCKOO_LAYERS_MAX, Cuckoo, CuckooPlan, Moving, Put};
pub use probe::{Hashing, Probe};
pub use shape::{BYTES_MAX, ERROR_MIN, Shape};

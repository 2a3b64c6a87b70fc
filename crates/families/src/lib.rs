//! The types of values, and the commands over them, one file each and one row each.
//!
//! A family is a folder: its `value.rs` holds the type, where it has one of its own, its other
//! files the functions, its `mod.rs` the table of rows. A command sees a database of one shard, its
//! arguments and a reply; it knows no sockets, files, threads, nor the privates of other families.
//!
//! What several families share is next to them:
//!
//! | files                          | what                                                        |
//! |--------------------------------|-------------------------------------------------------------|
//! | `lookup`, `prefetch`           | finding a key for a reader; prefetching entries             |
//! | `word`, `expiry`, `cursor`     | arguments: options, expire times, cursors                   |
//! | `living`, `gathered`, `scan`   | long replies: exact counts, what is counted last, cursors   |
//! | `unsent`                       | long values among others in a reply                         |
//! | `codes`                        | replies of what became of each entry                        |
//! | `probes`                       | the items of a request as filters see them                  |
//! | `runs`                         | filters in pieces                                           |
//! | `random`, `choice`             | entries at random                                           |
//! | `unshare`, `aside`             | changes of several entries; of more than a slice can change |
//! | `inputs`                       | cuts of the values at several keys                          |
//! | `spread`, `cut`                | very many keys, over several cores                          |
//! | `waiting`                      | timeouts, and what waits where nobody may wait               |
//! | `text`                         | strings, piece by piece                                     |
//! | `hashed`, `cells`              | sketches: hashes of items, arrays of counters               |
//! | `rows`                         | what the tables of rows say in the same words               |

#![forbid(unsafe_code)]

mod aside;
mod bitmap;
pub mod bloom;
mod choice;
mod chunks;
pub mod cms;
mod codes;
pub mod cuckoo;
mod cursor;
mod cut;
mod expiry;
mod gathered;
mod geo;
pub mod hash;
mod hyperloglog;
mod inputs;
pub mod json;
pub mod keys;
pub mod list;
mod living;
mod lookup;
mod pieces;
mod prefetch;
mod probes;
mod random;
mod rows;
mod runs;
mod scan;
pub mod set;
mod sketches;
mod sort;
mod spread;
pub mod stream;
pub mod string;
mod tally;
pub mod tdigest;
mod text;
pub mod topk;
mod unsent;
mod unshare;
mod waiting;
mod word;
pub mod zset;

pub use bitmap::fuzz_bitfield;
pub use hyperloglog::fuzz_hyperloglog;

use darter_base::UnixMillis;
use darter_command::{Args, Command, Cx, Flow, Refusal};
use darter_keyspace::{Key, Type, Typed, Types, types};
use darter_structs::blob::Blob;

/// All types of value.
pub static TYPES: Types = types![
    Blob::TYPE,
    list::List::TYPE,
    hash::Hash::TYPE,
    set::Set::TYPE,
    zset::ZSet::TYPE,
    stream::Stream::TYPE,
    json::Json::TYPE,
    bloom::BloomFilter::TYPE,
    cuckoo::CuckooFilter::TYPE,
    cms::Cms::TYPE,
    topk::TopK::TYPE,
    tdigest::TDigest::TYPE,
];

/// What gives entries of the value at a key a deadline, and replies as FIELDEXPIRE does.
type Expire = fn(&mut Cx<'_>, &Key<'_>, Args<'_>, UnixMillis) -> Result<Flow, Refusal>;

/// The types whose entries die by themselves, and what gives them a deadline.
static EXPIRE_ENTRIES: &[(&Type, Expire)] =
    &[(hash::Hash::TYPE, hash::expire), (set::Set::TYPE, set::expire)];

/// The tables of all families.
pub const TABLES: &[&[Command]] = &[
    string::TABLE,
    bitmap::TABLE,
    hyperloglog::TABLE,
    list::TABLE,
    hash::TABLE,
    set::TABLE,
    zset::TABLE,
    geo::TABLE,
    stream::TABLE,
    json::TABLE,
    bloom::TABLE,
    cuckoo::TABLE,
    cms::TABLE,
    topk::TABLE,
    tdigest::TABLE,
    keys::TABLE,
    sort::TABLE,
    waiting::TABLE,
];

//! The value types and their commands: one file and one row for each command.
//!
//! A family is a folder: `value.rs` holds its type (if it has its own), `mod.rs` the table of rows,
//! the other files the functions. A command sees one shard's database, its arguments and a reply.
//! It knows no sockets, files or threads, and nothing private to other families.
//!
//! Files that several families share are next to them:
//!
//! | files                                    | contents                                          |
//! |------------------------------------------|---------------------------------------------------|
//! | `lookup`, `prefetch`                     | finding a key for a reader; prefetching entries   |
//! | `option_names`, `expiry`, `cursor`       | arguments: options, expire times, cursors         |
//! | `live_entries`, `counted_reply`, `scan`  | long replies: exact counts, late counts, cursors  |
//! | `pending_values`, `pinned_values`        | long values in a reply; memory that they pin      |
//! | `code_replies`                           | replies with one result code per entry            |
//! | `filter_hashes`                          | hashes of a request's items, for filters          |
//! | `filter_dump`, `page_items`              | filters and sketches as pieces of dumps and files |
//! | `random`, `reservoir`                    | random entries                                    |
//! | `unshare`, `bulk_edit`                   | changes of several entries, and of very many      |
//! | `multi_input`                            | cuts of the values at several keys                |
//! | `keys_by_core`, `cut`                    | very many keys, over several cores                |
//! | `waiting`                                | timeouts, and blocking commands that may not wait |
//! | `text`                                   | strings, piece by piece                           |
//! | `sketches`                               | hashes of items, arrays of counters               |
//! | `rows`                                   | words that the tables of rows share               |

#![forbid(unsafe_code)]

mod bitmap;
pub mod bloom;
mod bulk_edit;
mod chunks;
pub mod cms;
mod code_replies;
mod counted_reply;
pub mod cuckoo;
mod cursor;
mod cut;
mod expiry;
mod filter_dump;
mod filter_hashes;
mod geo;
pub mod hash;
mod hyperloglog;
pub mod json;
pub mod keys;
mod keys_by_core;
pub mod list;
mod live_entries;
mod lookup;
mod multi_input;
mod option_names;
mod page_items;
mod pending_values;
mod pinned_values;
mod prefetch;
mod random;
mod reservoir;
mod rows;
mod scan;
pub mod set;
mod sketches;
mod sort;
pub mod stream;
pub mod string;
pub mod tdigest;
mod text;
pub mod topk;
mod unshare;
mod waiting;
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

/// Sets the deadline of entries of the value at a key, and replies as FIELDEXPIRE does.
type Expire = fn(&mut Cx<'_>, &Key<'_>, Args<'_>, UnixMillis) -> Result<Flow, Refusal>;

/// The types whose entries have deadlines, and the functions that set these.
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

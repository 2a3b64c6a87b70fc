//! Hashes: fields and values, each field with an optional deadline.
//!
//! A command on more fields than fit a slice works on a cut: long replies are streamed from the
//! cut, and a large change edits the cut and then installs it. Headers and counts are exact:
//! expired fields are neither counted nor shown, even before they are removed.
//!
//! | file       | holds                                                                |
//! |------------|----------------------------------------------------------------------|
//! | `value`    | the type: its row, its values, its editor                            |
//! | `field`    | HGET, HMGET, HEXISTS, HSTRLEN, HLEN                                  |
//! | `whole`    | HGETALL, HKEYS, HVALS                                                |
//! | `set`      | HSET, HMSET, HSETNX, HDEL; `incr`: HINCRBY, HINCRBYFLOAT             |
//! | `random`   | HRANDFIELD; `scan`: HSCAN                                            |
//! | `deadline` | HEXPIRE and relatives, HPERSIST; `ttl`: HTTL and relatives           |
//! | `getex`    | HGETEX, HGETDEL; `setex`: HSETEX in two dialects                     |
//! | `member`   | FIELDTTL, FIELDEXPIRE: of sets, too                                  |
//! | `edit`     | the engine of all changes of fields                              |

mod deadline;
mod edit;
mod field;
mod getex;
mod incr;
mod member;
mod random;
mod scan;
mod set;
mod setex;
mod ttl;
mod value;
mod whole;

use crate::rows::{
    GROW_FAST, O_SCAN, O1, RANDOM, READ, READ_FAST, UNORDERED, WRITE_FAST, in_group, point as row,
};
use darter_command::{Command, Group, specs};

pub(crate) use member::expire;
pub use value::{Hash, HashChange, HashEdit, value_of};

const GROUP: Group = Group::Type { name: "hash", category: "@hash" };

const O_ALL: &str = "O(N) where N is the size of the hash.";
const O_ASKED: &str = "O(N) where N is the number of fields being requested.";
const O_DEL: &str = "O(N) where N is the number of fields to be removed.";
const O_NAMED: &str = "O(N) where N is the number of specified fields";
const O_MSET: &str = "O(N) where N is the number of fields being set.";
const O_SET: &str = "O(1) for each field/value pair added, so O(N) to add N field/value pairs when the command is called with multiple field/value pairs.";
const O_RANDOM: &str = "O(N) where N is the number of fields returned";

/// The rows of this family.
#[rustfmt::skip] // A table: one row a command, columns aligned.
pub const TABLE: &[Command] = &in_group(GROUP, [
    //  name            since  args flags       keys                         run
    row("fieldexpire",  "1.0.0", -4, GROW_FAST,  specs::ONE_RW_UPDATE,        member::fieldexpire).doc("Set the time to live of fields of a hash, or of members of a set, in seconds", O_NAMED).elements_from(3).syntax("key seconds:integer field..."),
    row("fieldttl",     "1.0.0",  3, READ_FAST,  specs::ONE_RO_ACCESS,        member::fieldttl).doc("Get the time to live of a field of a hash, or of a member of a set, in seconds", O1).tips(RANDOM).elements().syntax("key field"),
    row("hdel",         "2.0.0", -3, WRITE_FAST, specs::ONE_RW_DELETE,        set::hdel).doc("Delete one or more hash fields", O_DEL).elements().syntax("key field...").history(&[("2.4.0", "Accepts multiple `field` arguments.")]),
    row("hexists",      "2.0.0",  3, READ_FAST,  specs::ONE_RO,               field::hexists).doc("Determine if a hash field exists", O1).elements().syntax("key field"),
    row("hexpire",      "7.4.0", -6, GROW_FAST,  specs::ONE_RW_UPDATE,        deadline::hexpire).doc("Set expiry for hash field using relative time to expire (seconds)", O_NAMED).syntax("key seconds:integer [condition: NX | XX | GT | LT] FIELDS(fields: numfields:integer field...)"),
    row("hexpireat",    "7.4.0", -6, GROW_FAST,  specs::ONE_RW_UPDATE,        deadline::hexpireat).doc("Set expiry for hash field using an absolute Unix timestamp (seconds)", O_NAMED).syntax("key unix-time-seconds:unix-time [condition: NX | XX | GT | LT] FIELDS(fields: numfields:integer field...)"),
    row("hexpiretime",  "7.4.0", -5, READ_FAST,  specs::ONE_RO_ACCESS,        ttl::hexpiretime).doc("Returns the expiration time of a hash field as a Unix timestamp, in seconds.", O_NAMED).syntax("key FIELDS(fields: numfields:integer field...)"),
    row("hget",         "2.0.0",  3, READ_FAST,  specs::ONE_RO_ACCESS,        field::hget).doc("Get the value of a hash field", O1).elements().syntax("key field"),
    row("hgetall",      "2.0.0",  2, READ,       specs::ONE_RO_ACCESS,        whole::hgetall).doc("Get all the fields and values in a hash", O_ALL).tips(UNORDERED).syntax("key"),
    row("hgetdel",      "8.0.0", -5, WRITE_FAST, specs::ONE_RW_ACCESS_DELETE, getex::hgetdel).doc("Returns the value of a field and deletes it from the hash.", O_NAMED).syntax("key FIELDS(fields: numfields:integer field...)"),
    row("hgetex",       "8.0.0", -5, WRITE_FAST, specs::ONE_RW_ACCESS_UPDATE, getex::hgetex).doc("Get the value of one or more fields of a given hash key, and optionally set their expiration.", O_NAMED).syntax("key [expiration: EX seconds:integer | PX milliseconds:integer | EXAT unix-time-seconds:unix-time | PXAT unix-time-milliseconds:unix-time | PERSIST] FIELDS(fields: numfields:integer field...)"),
    row("hincrby",      "2.0.0",  4, GROW_FAST,  specs::ONE_RW_ACCESS_UPDATE, incr::hincrby).doc("Increment the integer value of a hash field by the given number", O1).elements().syntax("key field increment:integer"),
    row("hincrbyfloat", "2.6.0",  4, GROW_FAST,  specs::ONE_RW_ACCESS_UPDATE, incr::hincrbyfloat).doc("Increment the float value of a hash field by the given amount", O1).elements().syntax("key field increment:double"),
    row("hkeys",        "2.0.0",  2, READ,       specs::ONE_RO_ACCESS,        whole::hkeys).doc("Get all the fields in a hash", O_ALL).tips(UNORDERED).syntax("key"),
    row("hlen",         "2.0.0",  2, READ_FAST,  specs::ONE_RO,               field::hlen).doc("Get the number of fields in a hash", O1).syntax("key"),
    row("hmget",        "2.0.0", -3, READ_FAST,  specs::ONE_RO_ACCESS,        field::hmget).doc("Get the values of all the given hash fields", O_ASKED).elements().syntax("key field..."),
    row("hmset",        "2.0.0", -4, GROW_FAST,  specs::ONE_RW_UPDATE,        set::hmset).doc("Set multiple hash fields to multiple values", O_MSET).deprecated("4.0.0", "`HSET` with multiple field-value pairs").elements().syntax("key (field_value: field value)..."),
    row("hpersist",     "7.4.0", -5, WRITE_FAST, specs::ONE_RW_UPDATE,        deadline::hpersist).doc("Removes the expiration time for each specified field", O_NAMED).syntax("key FIELDS(fields: numfields:integer field...)"),
    row("hpexpire",     "7.4.0", -6, GROW_FAST,  specs::ONE_RW_UPDATE,        deadline::hpexpire).doc("Set expiry for hash field using relative time to expire (milliseconds)", O_NAMED).syntax("key milliseconds:integer [condition: NX | XX | GT | LT] FIELDS(fields: numfields:integer field...)"),
    row("hpexpireat",   "7.4.0", -6, GROW_FAST,  specs::ONE_RW_UPDATE,        deadline::hpexpireat).doc("Set expiry for hash field using an absolute Unix timestamp (milliseconds)", O_NAMED).syntax("key unix-time-milliseconds:unix-time [condition: NX | XX | GT | LT] FIELDS(fields: numfields:integer field...)"),
    row("hpexpiretime", "7.4.0", -5, READ_FAST,  specs::ONE_RO_ACCESS,        ttl::hpexpiretime).doc("Returns the expiration time of a hash field as a Unix timestamp, in msec.", O_NAMED).syntax("key FIELDS(fields: numfields:integer field...)"),
    row("hpttl",        "7.4.0", -5, READ_FAST,  specs::ONE_RO_ACCESS,        ttl::hpttl).doc("Returns the TTL in milliseconds of a hash field.", O_NAMED).tips(RANDOM).syntax("key FIELDS(fields: numfields:integer field...)"),
    row("hrandfield",   "6.2.0", -2, READ,       specs::ONE_RO_ACCESS,        random::hrandfield).doc("Get one or multiple random fields from a hash", O_RANDOM).tips(RANDOM).syntax("key [options: count:integer [WITHVALUES]]"),
    row("hscan",        "2.8.0", -3, READ,       specs::ONE_RO_ACCESS,        scan::hscan).doc("Incrementally iterate hash fields and associated values", O_SCAN).tips(RANDOM).syntax("key cursor:integer [MATCH pattern:pattern] [COUNT count:integer]"),
    row("hset",         "2.0.0", -4, GROW_FAST,  specs::ONE_RW_UPDATE,        set::hset).doc("Set the string value of a hash field", O_SET).elements().syntax("key (field_value: field value)...").history(&[("4.0.0", "Accepts multiple `field` and `value` arguments.")]),
    row("hsetex",       "8.0.0", -5, GROW_FAST,  specs::ONE_RW_UPDATE,        setex::hsetex).doc("Set the value of one or more fields of a given hash key, and optionally set their expiration.", O_MSET).syntax("key [condition: FNX | FXX] [expiration: EX seconds:integer | PX milliseconds:integer | EXAT unix-time-seconds:unix-time | PXAT unix-time-milliseconds:unix-time | KEEPTTL] FIELDS(fields: numfields:integer (data: field value)...)"),
    row("hsetnx",       "2.0.0",  4, GROW_FAST,  specs::ONE_RW_INSERT,        set::hsetnx).doc("Set the value of a hash field, only if the field does not exist", O1).elements().syntax("key field value"),
    row("hstrlen",      "3.2.0",  3, READ_FAST,  specs::ONE_RO,               field::hstrlen).doc("Get the length of the value of a hash field", O1).elements().syntax("key field"),
    row("httl",         "7.4.0", -5, READ_FAST,  specs::ONE_RO_ACCESS,        ttl::httl).doc("Returns the TTL in seconds of a hash field.", O_NAMED).tips(RANDOM).syntax("key FIELDS(fields: numfields:integer field...)"),
    row("hvals",        "2.0.0",  2, READ,       specs::ONE_RO_ACCESS,        whole::hvals).doc("Get all the values in a hash", O_ALL).tips(UNORDERED).syntax("key"),
]);

//! Commands on keys of any type: their names, deadlines and databases.
//!
//! Nothing here depends on the size of a value. Removing detaches it, renaming and moving pass it
//! by pointer, copying shares it. Commands over all keys read cuts taken at one instant or, like
//! SCAN, short portions. Commands that name very many keys process them in portions.
//!
//! | file     | holds                                                                     |
//! |----------|---------------------------------------------------------------------------|
//! | `exists` | EXISTS, TOUCH; `del`: DEL, UNLINK; `rename`: RENAME, RENAMENX             |
//! | `copy`   | COPY, MOVE; `whole`: DBSIZE, FLUSHDB, FLUSHALL, SWAPDB                    |
//! | `expire` | EXPIRE and relatives; `ttl`: TTL and relatives, PERSIST                   |
//! | `object` | TYPE, OBJECT; `memory`: MEMORY USAGE                                      |
//! | `list`   | KEYS; `scan`: SCAN; `random`: RANDOMKEY; `cut`: the cuts that they read   |
//! | `rm`     | RM                                                                        |

mod copy;
mod del;
mod exists;
mod expire;
mod list;
mod memory;
mod object;
mod random;
mod rename;
mod rm;
mod scan;
mod ttl;
mod whole;

pub use memory::memory_bytes;
pub use object::shown_count;

use crate::rows::{O1, RANDOM, READ, READ_FAST, WRITE_FAST, both, range, row, task};
use darter_command::{Command, Flags, Group, KeyFlags, KeySpec, Keys, Run, specs};

const fn at(index: usize, flags: KeyFlags) -> KeySpec {
    range(index, index as isize, flags)
}

const RENAME_KEYS: Keys = Keys(&[at(1, KeyFlags::RW_ACCESS_DELETE), at(2, KeyFlags::OW_UPDATE)]);
const RENAMENX_KEYS: Keys = Keys(&[at(1, KeyFlags::RW_ACCESS_DELETE), at(2, KeyFlags::OW_INSERT)]);
const COPY_KEYS: Keys = Keys(&[at(1, KeyFlags::RO_ACCESS), at(2, KeyFlags::OW_UPDATE)]);
/// The one key of a subcommand.
const SUB_RO: Keys = Keys(&[at(2, KeyFlags::RO)]);

const WRITE: Flags = Flags::WRITE;
const HELP: Flags = Flags::LOADING.and(Flags::STALE);

/// A command over whole databases: it has no keys, and is in Redis's group `server`.
const fn whole(
    name: &'static str,
    since: &'static str,
    arity: i32,
    flags: Flags,
    run: Run,
) -> Command {
    Command::new(name, since, arity, flags, Keys::NONE, Group::Server, run)
}

const DEL: Run = both(del::here, |call| Box::pin(del::anywhere(call)));
const EXISTS: Run = both(exists::exists_here, |call| Box::pin(exists::exists_anywhere(call)));
const TOUCH: Run = both(exists::touch_here, |call| Box::pin(exists::touch_anywhere(call)));
const RENAME: Run = both(rename::rename_here, |call| Box::pin(rename::rename_anywhere(call)));
const RENAMENX: Run = both(rename::renamenx_here, |call| Box::pin(rename::renamenx_anywhere(call)));
// Commands that may reach another database are tasks even if all their keys are on one core.
const COPY: Run = task(|call| Box::pin(copy::copy(call)));
const MOVE: Run = task(|call| Box::pin(copy::relocate(call)));
const KEYS: Run = task(|call| Box::pin(list::keys(call)));
const RM: Run = task(|call| Box::pin(rm::rm(call)));
const SCAN: Run = task(|call| Box::pin(scan::scan(call)));
const RANDOMKEY: Run = task(|call| Box::pin(random::randomkey(call)));
const DBSIZE: Run = task(|call| Box::pin(whole::dbsize(call)));
const FLUSHDB: Run = task(|call| Box::pin(whole::flushdb(call)));
const FLUSHALL: Run = task(|call| Box::pin(whole::flushall(call)));
const SWAPDB: Run = task(|call| Box::pin(whole::swapdb(call)));

const SUM: &[&str] = &["request_policy:multi_shard", "response_policy:agg_sum"];
const FLUSH: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];
const KEYSPACE: &[&str] = &["@keyspace"];
const DANGEROUS: &[&str] = &["@dangerous"];
const KEYSPACE_DANGEROUS: &[&str] = &["@keyspace", "@dangerous"];

const O_DEL: &str = "O(N) where N is the number of keys that will be removed. When a key to remove holds a value other than a string, the individual complexity for this key is O(M) where M is the number of elements in the list, set, sorted set or hash. Removing a single key that holds a string value is O(1).";
const O_UNLINK: &str = "O(1) for each key removed regardless of its size. Then the command does O(N) work in a different thread in order to reclaim memory, where N is the number of allocations the deleted objects where composed of.";
const O_EXISTS: &str = "O(N) where N is the number of keys to check.";
const O_TOUCH: &str = "O(N) where N is the number of keys that will be touched.";
const O_KEYS: &str = "O(N) with N being the number of keys in the database, under the assumption that the key names in the database and the given pattern have limited length.";
const O_SCAN: &str = "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection.";
const O_COPY: &str = "O(N) worst case for collections, where N is the number of nested items. O(1) for string values.";
const O_FLUSHDB: &str = "O(N) where N is the number of keys in the selected database";
const O_FLUSHALL: &str = "O(N) where N is the total number of keys in all databases";
const O_SWAPDB: &str =
    "O(N) where N is the count of clients watching or blocking on keys from both databases.";
const O_USAGE: &str = "O(N) where N is the number of samples.";

/// The rows of this family.
#[rustfmt::skip] // A table: one row a command, columns aligned.
pub const TABLE: &[Command] = &[
    //  name               since   args flags       keys                  run
    row("copy",            "6.2.0", -3, WRITE.and(Flags::DENYOOM), COPY_KEYS, COPY).doc("Copy a key", O_COPY).leaves_database().syntax("source:key destination:key [DB destination-db:integer] [REPLACE]"),
    row("del",             "1.0.0", -2, WRITE,      specs::ALL_RM_DELETE, DEL).doc("Delete a key", O_DEL).tips(SUM).syntax("key..."),
    row("exists",          "1.0.0", -2, READ_FAST,  specs::ALL_RO,        EXISTS).doc("Determine if a key exists", O_EXISTS).tips(SUM).syntax("key...").history(&[("3.0.3", "Accepts multiple `key` arguments.")]),
    row("expire",          "1.0.0", -3, WRITE_FAST, specs::ONE_RW_UPDATE, Run::Point(expire::expire)).doc("Set a key's time to live in seconds", O1).syntax("key seconds:integer [condition: NX | XX | GT | LT]@7.0.0").history(&[("7.0.0", "Added options: `NX`, `XX`, `GT` and `LT`.")]),
    row("expireat",        "1.2.0", -3, WRITE_FAST, specs::ONE_RW_UPDATE, Run::Point(expire::expireat)).doc("Set the expiration for a key as a UNIX timestamp", O1).syntax("key unix-time-seconds:unix-time [condition: NX | XX | GT | LT]@7.0.0").history(&[("7.0.0", "Added options: `NX`, `XX`, `GT` and `LT`.")]),
    row("expiretime",      "7.0.0",  2, READ_FAST,  specs::ONE_RO_ACCESS, Run::Point(ttl::expiretime)).doc("Get the expiration Unix timestamp for a key", O1).syntax("key"),
    row("keys",            "1.0.0",  2, READ,       Keys::NONE,           KEYS).doc("Find all keys matching the given pattern", O_KEYS).tips(&["request_policy:all_shards", "nondeterministic_output_order"]).categories(DANGEROUS).syntax("pattern:pattern").elements_from(1),
    row("move",            "1.0.0",  3, WRITE_FAST, specs::ONE_RW_ACCESS_UPDATE, MOVE).doc("Move a key to another database", O1).leaves_database().syntax("key db:integer"),
    row("object",          "2.2.3", -2, Flags::NONE, Keys::NONE,          Run::Server).doc("A container for object introspection commands", "Depends on subcommand."),
    row("object|encoding", "2.2.3",  3, READ,       SUB_RO,               Run::Point(object::encoding)).doc("Inspect the internal encoding of a Redis object", O1).tips(RANDOM).syntax("key"),
    row("object|freq",     "4.0.0",  3, READ,       SUB_RO,               Run::Point(object::freq)).doc("Get the logarithmic access frequency counter of a Redis object", O1).tips(RANDOM).syntax("key"),
    row("object|help",     "6.2.0",  2, HELP,       Keys::NONE,           Run::Point(object::help)).doc("Show helpful text about the different subcommands", O1),
    row("object|idletime", "2.2.3",  3, READ,       SUB_RO,               Run::Point(object::idletime)).doc("Get the time since a Redis object was last accessed", O1).tips(RANDOM).syntax("key"),
    row("object|refcount", "2.2.3",  3, READ,       SUB_RO,               Run::Point(object::refcount)).doc("Get the number of references to the value of the key", O1).tips(RANDOM).syntax("key"),
    row("persist",         "2.2.0",  2, WRITE_FAST, specs::ONE_RW_UPDATE, Run::Point(ttl::persist)).doc("Remove the expiration from a key", O1).syntax("key"),
    row("pexpire",         "2.6.0", -3, WRITE_FAST, specs::ONE_RW_UPDATE, Run::Point(expire::pexpire)).doc("Set a key's time to live in milliseconds", O1).syntax("key milliseconds:integer [condition: NX | XX | GT | LT]@7.0.0").history(&[("7.0.0", "Added options: `NX`, `XX`, `GT` and `LT`.")]),
    row("pexpireat",       "2.6.0", -3, WRITE_FAST, specs::ONE_RW_UPDATE, Run::Point(expire::pexpireat)).doc("Set the expiration for a key as a UNIX timestamp specified in milliseconds", O1).syntax("key unix-time-milliseconds:unix-time [condition: NX | XX | GT | LT]@7.0.0").history(&[("7.0.0", "Added options: `NX`, `XX`, `GT` and `LT`.")]),
    row("pexpiretime",     "7.0.0",  2, READ_FAST,  specs::ONE_RO_ACCESS, Run::Point(ttl::pexpiretime)).doc("Get the expiration Unix timestamp for a key in milliseconds", O1).syntax("key"),
    row("pttl",            "2.6.0",  2, READ_FAST,  specs::ONE_RO_ACCESS, Run::Point(ttl::pttl)).doc("Get the time to live for a key in milliseconds", O1).tips(RANDOM).syntax("key").history(&[("2.8.0", "Added the -2 reply.")]),
    row("randomkey",       "1.0.0",  1, READ,       Keys::NONE,           RANDOMKEY).doc("Return a random key from the keyspace", O1).tips(&["request_policy:all_shards", "nondeterministic_output"]),
    row("rename",          "1.0.0",  3, WRITE,      RENAME_KEYS,          RENAME).doc("Rename a key", O1).syntax("key newkey:key"),
    row("renamenx",        "1.0.0",  3, WRITE_FAST, RENAMENX_KEYS,        RENAMENX).doc("Rename a key, only if the new key does not exist", O1).syntax("key newkey:key").history(&[("3.2.0", "The command no longer returns an error when source and destination names are the same.")]),
    row("rm",              "1.0.0", -2, WRITE,      Keys::NONE,           RM).doc("Iterate the keys and remove them", O_SCAN).tips(&["nondeterministic_output", "request_policy:special"]).categories(DANGEROUS).syntax("cursor:integer [MATCH pattern:pattern] [COUNT count:integer] [TYPE type]"),
    row("scan",            "2.8.0", -2, READ,       Keys::NONE,           SCAN).doc("Incrementally iterate the keys space", O_SCAN).tips(&["nondeterministic_output", "request_policy:special"]).syntax("cursor:integer [MATCH pattern:pattern] [COUNT count:integer] [TYPE type]@6.0.0").history(&[("6.0.0", "Added the `TYPE` subcommand.")]),
    row("touch",           "3.2.1", -2, READ_FAST,  specs::ALL_RO,        TOUCH).doc("Alters the last access time of a key(s). Returns the number of existing keys specified.", O_TOUCH).tips(SUM).syntax("key..."),
    row("ttl",             "1.0.0",  2, READ_FAST,  specs::ONE_RO_ACCESS, Run::Point(ttl::ttl)).doc("Get the time to live for a key in seconds", O1).tips(RANDOM).syntax("key").history(&[("2.8.0", "Added the -2 reply.")]),
    row("type",            "1.0.0",  2, READ_FAST,  specs::ONE_RO,        Run::Point(object::kind)).doc("Determine the type stored at key", O1).syntax("key"),
    row("unlink",          "4.0.0", -2, WRITE_FAST, specs::ALL_RM_DELETE, DEL).doc("Delete a key asynchronously in another thread. Otherwise it is just as DEL, but non blocking.", O_UNLINK).tips(SUM).syntax("key..."),
    whole("dbsize",        "1.0.0",  1, READ_FAST,  DBSIZE).doc("Return the number of keys in the selected database", O1).tips(&["request_policy:all_shards", "response_policy:agg_sum"]).categories(KEYSPACE),
    whole("flushall",      "1.0.0", -1, WRITE,      FLUSHALL).doc("Remove all keys from all databases", O_FLUSHALL).tips(FLUSH).categories(KEYSPACE_DANGEROUS).syntax("[async: ASYNC@4.0.0 | SYNC@6.2.0]").history(&[("4.0.0", "Added the `ASYNC` flushing mode modifier."), ("6.2.0", "Added the `SYNC` flushing mode modifier.")]),
    whole("flushdb",       "1.0.0", -1, WRITE,      FLUSHDB).doc("Remove all keys from the current database", O_FLUSHDB).tips(FLUSH).categories(KEYSPACE_DANGEROUS).syntax("[async: ASYNC@4.0.0 | SYNC@6.2.0]").history(&[("4.0.0", "Added the `ASYNC` flushing mode modifier."), ("6.2.0", "Added the `SYNC` flushing mode modifier.")]),
    whole("swapdb",        "4.0.0",  3, WRITE_FAST, SWAPDB).doc("Swaps two Redis databases", O_SWAPDB).categories(KEYSPACE_DANGEROUS).syntax("index1:integer index2:integer"),
    Command::new("memory|usage", "4.0.0", -3, READ, SUB_RO, Group::Server, Run::Point(memory::usage)).doc("Estimate the memory usage of a key", O_USAGE).syntax("key [SAMPLES count:integer]"),
];

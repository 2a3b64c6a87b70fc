//! Strings: text, bytes, counters; up to 512 MiB each.
//!
//! Short ones are stored with their key in the table; long ones are blobs of shared chunks. No
//! command copies a long string as a whole, and none blocks its core for longer than a slice:
//! replies are streamed, comparisons and large edits are jobs.
//!
//! | file    | holds                                                                      |
//! |---------|----------------------------------------------------------------------------|
//! | `read`  | GET, STRLEN, GETRANGE, SUBSTR, GETDEL, DIGEST; `mget`: MGET                |
//! | `set`   | SET, SETNX, SETEX, PSETEX, GETSET, GETEX, DELEX; `options`: their options  |
//! | `mset`  | MSET, MSETNX, MSETEX; `guard`: conditions on a value                       |
//! | `incr`  | INCR and relatives, INCRBYFLOAT; `increx`: INCREX                          |
//! | `edit`  | APPEND, SETRANGE; `prepend`: PREPEND; `lcs`: LCS                           |
//! | `throttle` | CL.THROTTLE                                                             |
//! | `value` | replies of several values                                                |

mod edit;
mod guard;
mod incr;
mod increx;
mod lcs;
mod mget;
mod mset;
mod options;
mod prepend;
mod read;
mod set;
mod throttle;
mod value;

use crate::rows::{GROW, GROW_FAST, O1, READ, READ_FAST, WRITE_FAST, both, in_group, range, row};
use darter_command::{Command, Flags, Group, KeyFlags, KeySpec, Keys, Place, Run, specs};

/// Keys with their values: `key value key value ...`.
const fn pairs(flags: KeyFlags) -> KeySpec {
    KeySpec::new(Place::Range { first: 1, last: -1, step: 2 }, flags)
}

const ANY_OW_UPDATE: Keys = Keys(&[pairs(KeyFlags::OW_UPDATE)]);
const ANY_OW_INSERT: Keys = Keys(&[pairs(KeyFlags::OW_INSERT)]);
const COUNTED_OW_UPDATE: Keys =
    Keys(&[KeySpec::new(Place::CountedPairs { count: 1 }, KeyFlags::OW_UPDATE)]);
const TWO_RO_ACCESS: Keys = Keys(&[range(1, 2, KeyFlags::RO_ACCESS)]);
/// SET: whether it reads the key depends on its options.
const ONE_SET: Keys = Keys(&[range(1, 1, KeyFlags(&["RW", "access", "update", "variable_flags"]))
    .notes("RW and ACCESS due to the optional `GET` argument")]);
/// GETEX changes only the deadline.
const ONE_GETEX: Keys = Keys(&[
    range(1, 1, KeyFlags::RW_ACCESS_UPDATE).notes("RW and UPDATE because it changes the TTL")
]);
/// DELEX: whether it reads the key depends on its options.
const ONE_DELEX: Keys = Keys(&[range(1, 1, KeyFlags(&["RW", "delete", "variable_flags"]))]);

/// The key flags of a SET or a DELEX: it reads the old value only with certain options.
fn flags_of(args: darter_resp::Args<'_>) -> KeyFlags {
    /// Options follow the name, the key and the value.
    const OPTIONS: usize = 3;
    let reads = args.iter().skip(OPTIONS).any(|word| word.eq_ignore_ascii_case(b"GET"));
    if reads { KeyFlags::RW_ACCESS_UPDATE } else { KeyFlags::OW_UPDATE }
}

const GROUP: Group = Group::Type { name: "string", category: "@string" };

const O_RANGE: &str = "O(N) where N is the length of the returned string. The complexity is ultimately determined by the returned length, but because creating a substring from an existing string is very cheap, it can be considered O(1) for small strings.";
const O_APPEND: &str = "O(1). The amortized time complexity is O(1) assuming the appended value is small and the already present value is of any size, since the dynamic string library used by Redis will double the free space available on every reallocation.";
const O_PREPEND: &str = "O(N) where N is the length of the resulting string.";
const O_SETRANGE: &str = "O(1), not counting the time taken to copy the new string in place. Usually, this string is very small so the amortized complexity is O(1). Otherwise, complexity is O(M) with M being the length of the value argument.";
const O_MGET: &str = "O(N) where N is the number of keys to retrieve.";
const O_MSET: &str = "O(N) where N is the number of keys to set.";
const O_LCS: &str = "O(N*M) where N and M are the lengths of s1 and s2, respectively";
const O_DELEX: &str =
    "O(1) for IFEQ/IFNE, O(N) for IFDEQ/IFDNE where N is the length of the string value.";
const O_DIGEST: &str = "O(N) where N is the length of the string value.";

const LCS: Run = both(lcs::lcs, |call| Box::pin(lcs::anywhere(call)));
const MGET: Run = both(mget::here, |call| Box::pin(mget::anywhere(call)));
const MSET: Run = both(mset::mset_here, |call| Box::pin(mset::mset_anywhere(call)));
const MSETNX: Run = both(mset::msetnx_here, |call| Box::pin(mset::msetnx_anywhere(call)));
const MSETEX: Run = both(mset::msetex_here, |call| Box::pin(mset::msetex_anywhere(call)));

/// The rows of this family.
#[rustfmt::skip] // A table: one row a command, columns aligned.
pub const TABLE: &[Command] = &in_group(GROUP, [
    //  name           since    args flags       keys                         run
    row("append",      "2.0.0",  3, GROW_FAST,  specs::ONE_RW_INSERT,        Run::Point(edit::append)).doc("Append a value to a key", O_APPEND).syntax("key value"),
    row("cl.throttle", "1.0.0", -5, GROW_FAST,  specs::ONE_RW_ACCESS_UPDATE, Run::Point(throttle::throttle)).doc("Limit the rate of actions by the generic cell rate algorithm", O1).syntax("key max-burst:integer count:integer period:integer [quantity:integer]"),
    row("decr",        "1.0.0",  2, GROW_FAST,  specs::ONE_RW_ACCESS_UPDATE, Run::Point(incr::decr)).doc("Decrement the integer value of a key by one", O1).syntax("key"),
    row("decrby",      "1.0.0",  3, GROW_FAST,  specs::ONE_RW_ACCESS_UPDATE, Run::Point(incr::decrby)).doc("Decrement the integer value of a key by the given number", O1).syntax("key decrement:integer"),
    row("delex",       "8.4.0", -2, WRITE_FAST, ONE_DELEX,                   Run::Point(set::delex)).doc("Conditionally removes the specified key based on value or hash digest comparison.", O_DELEX).key_flags(flags_of).syntax("key [condition: IFEQ ifeq-value | IFNE ifne-value | IFDEQ ifdeq-digest | IFDNE ifdne-digest]"),
    row("digest",      "8.4.0",  2, READ_FAST,  specs::ONE_RO_ACCESS,        Run::Point(read::digest)).doc("Returns the hash digest of a string value as a hexadecimal string.", O_DIGEST).syntax("key"),
    row("get",         "1.0.0",  2, READ_FAST,  specs::ONE_RO_ACCESS,        Run::Point(read::get)).doc("Get the value of a key", O1).syntax("key"),
    row("getdel",      "6.2.0",  2, WRITE_FAST, specs::ONE_RW_ACCESS_DELETE, Run::Point(read::getdel)).doc("Get the value of a key and delete the key", O1).syntax("key"),
    row("getex",       "6.2.0", -2, WRITE_FAST, ONE_GETEX,                   Run::Point(set::getex)).doc("Get the value of a key and optionally set its expiration", O1).syntax("key [expiration: EX seconds:integer | PX milliseconds:integer | EXAT unix-time-seconds:unix-time | PXAT unix-time-milliseconds:unix-time | PERSIST]"),
    row("getrange",    "2.4.0",  4, READ,       specs::ONE_RO_ACCESS,        Run::Point(read::getrange)).doc("Get a substring of the string stored at a key", O_RANGE).syntax("key start:integer end:integer"),
    row("getset",      "1.0.0",  3, GROW_FAST,  specs::ONE_RW_ACCESS_UPDATE, Run::Point(set::getset)).doc("Set the string value of a key and return its old value", O1).deprecated("6.2.0", "`SET` with the `!GET` argument").syntax("key value"),
    row("incr",        "1.0.0",  2, GROW_FAST,  specs::ONE_RW_ACCESS_UPDATE, Run::Point(incr::incr)).doc("Increment the integer value of a key by one", O1).syntax("key"),
    row("incrby",      "1.0.0",  3, GROW_FAST,  specs::ONE_RW_ACCESS_UPDATE, Run::Point(incr::incrby)).doc("Increment the integer value of a key by the given amount", O1).syntax("key increment:integer"),
    row("incrbyfloat", "2.6.0",  3, GROW_FAST,  specs::ONE_RW_ACCESS_UPDATE, Run::Point(incr::incrbyfloat)).doc("Increment the float value of a key by the given amount", O1).syntax("key increment:double"),
    row("increx",      "8.8.0", -2, GROW_FAST,  specs::ONE_RW_ACCESS_UPDATE, Run::Point(increx::increx)).doc("Increments the numeric value of a key by a number and sets its expiration time. Uses 0 as initial value if the key doesn't exist.", O1).syntax("key [increment: BYFLOAT float:double | BYINT integer:integer] [LBOUND lowerbound:double] [UBOUND upperbound:double] [SATURATE] [expiration: EX seconds:integer | PX milliseconds:integer | EXAT unix-time-seconds:unix-time | PXAT unix-time-milliseconds:unix-time | PERSIST] [ENX]"),
    row("lcs",         "7.0.0", -3, READ,       TWO_RO_ACCESS,               LCS).doc("Find longest common substring", O_LCS).syntax("key1:key key2:key [LEN] [IDX] [MINMATCHLEN len:integer] [WITHMATCHLEN]"),
    row("mget",        "1.0.0", -2, READ_FAST,  specs::ALL_RO_ACCESS,        MGET).doc("Get the values of all the given keys", O_MGET).tips(&["request_policy:multi_shard"]).syntax("key..."),
    row("mset",        "1.0.1", -3, GROW,       ANY_OW_UPDATE,               MSET).doc("Set multiple keys to multiple values", O_MSET).tips(&["request_policy:multi_shard", "response_policy:all_succeeded"]).syntax("(key_value: key value)..."),
    row("msetex",      "8.4.0", -4, GROW.and(Flags::MOVABLEKEYS), COUNTED_OW_UPDATE, MSETEX).doc("Atomically sets multiple string keys with a shared expiration in a single operation. Supports flexible argument parsing where condition and expiration flags can appear in any order.", O_MSET).tips(&["request_policy:multi_shard", "response_policy:all_succeeded"]).syntax("numkeys:integer (data: key value)... [condition: NX | XX] [expiration: EX seconds:integer | PX milliseconds:integer | EXAT unix-time-seconds:unix-time | PXAT unix-time-milliseconds:unix-time | KEEPTTL]"),
    row("msetnx",      "1.0.1", -3, GROW,       ANY_OW_INSERT,               MSETNX).doc("Set multiple keys to multiple values, only if none of the keys exist", O_MSET).tips(&["request_policy:multi_shard", "response_policy:agg_min"]).syntax("(key_value: key value)..."),
    row("prepend",     "1.0.0",  3, GROW_FAST,  specs::ONE_RW_INSERT,        Run::Point(prepend::prepend)).doc("Prepend a value to a key", O_PREPEND).syntax("key value"),
    row("psetex",      "2.6.0",  4, GROW,       specs::ONE_OW_UPDATE,        Run::Point(set::psetex)).doc("Set the value and expiration in milliseconds of a key", O1).syntax("key milliseconds:integer value"),
    row("set",         "1.0.0", -3, GROW,       ONE_SET,                     Run::Point(set::set)).doc("Set the string value of a key", O1).key_flags(flags_of).syntax("key value [condition: NX | XX]@2.6.12 [GET]@6.2.0 [expiration: EX seconds:integer@2.6.12 | PX milliseconds:integer@2.6.12 | EXAT unix-time-seconds:unix-time@6.2.0 | PXAT unix-time-milliseconds:unix-time@6.2.0 | KEEPTTL@6.0.0]").history(&[("2.6.12", "Added the `EX`, `PX`, `NX` and `XX` options."), ("6.0.0", "Added the `KEEPTTL` option."), ("6.2.0", "Added the `GET`, `EXAT` and `PXAT` option."), ("7.0.0", "Allowed the `NX` and `GET` options to be used together.")]),
    row("setex",       "2.0.0",  4, GROW,       specs::ONE_OW_UPDATE,        Run::Point(set::setex)).doc("Set the value and expiration of a key", O1).syntax("key seconds:integer value"),
    row("setnx",       "1.0.0",  3, GROW_FAST,  specs::ONE_OW_INSERT,        Run::Point(set::setnx)).doc("Set the value of a key, only if the key does not exist", O1).syntax("key value"),
    row("setrange",    "2.2.0",  4, GROW,       specs::ONE_RW_UPDATE,        Run::Point(edit::setrange)).doc("Overwrite part of a string at key starting at the specified offset", O_SETRANGE).syntax("key offset:integer value"),
    row("strlen",      "2.2.0",  2, READ_FAST,  specs::ONE_RO,               Run::Point(read::strlen)).doc("Get the length of the value stored in a key", O1).syntax("key"),
    row("substr",      "1.0.0",  4, READ,       specs::ONE_RO_ACCESS,        Run::Point(read::getrange)).doc("Get a substring of the string stored at a key", O_RANGE).deprecated("2.0.0", "`GETRANGE`").syntax("key start:integer end:integer"),
]);

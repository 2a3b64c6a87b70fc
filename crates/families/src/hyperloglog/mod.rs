//! HyperLogLogs: estimates of the number of distinct elements, in 12 KiB at most.
//!
//! They are stored as strings. After the same commands, the bytes are the same as in Redis. A new
//! HyperLogLog is sparse: runs of equal registers. It becomes dense when the runs would take more
//! than `hll-sparse-max-bytes`.
//!
//! | file       | holds                                                                     |
//! |------------|---------------------------------------------------------------------------|
//! | `add`      | PFADD; `count`: PFCOUNT; `merge`: PFMERGE; `debug`: PFDEBUG, PFSELFTEST   |
//! | `format`   | the bytes, and their header; `dense`, `sparse`: the registers             |
//! | `sketch`   | a working copy of a HyperLogLog                                           |
//! | `fuzz`     | the fuzz target of strings from outside                                   |
//! | `hash`     | which register an element raises; `estimate`: the count from registers    |

mod add;
mod count;
mod debug;
mod dense;
mod estimate;
mod format;
mod fuzz;
mod hash;
mod merge;
mod sketch;
mod sparse;

pub use fuzz::fuzz_hyperloglog;

use crate::rows::{GROW, GROW_FAST, READ, both, in_group, range, row, task};
use darter_command::{Command, Flags, Group, KeyFlags, Keys, Run, specs};

/// PFCOUNT counts as writing, because it caches its result in the value.
const COUNT_KEYS: Keys = Keys(&[range(1, -1, KeyFlags(&["RW", "access"])).notes(
    "RW because it may change the internal representation of the key, and propagate to replicas",
)]);
const MERGE_KEYS: Keys =
    Keys(&[range(1, 1, KeyFlags(&["RW", "access", "insert"])), range(2, -1, KeyFlags::RO_ACCESS)]);
const DEBUG_KEYS: Keys = Keys(&[range(2, 2, KeyFlags(&["RW", "access"]))]);

const GROUP: Group = Group::Type { name: "hyperloglog", category: "@hyperloglog" };

const O_ADD: &str = "O(1) to add every element.";
const O_COUNT: &str = "O(1) with a very small average constant time when called with a single key. O(N) with N being the number of keys, and much bigger constant times, when called with multiple keys.";
const O_MERGE: &str = "O(N) to merge N HyperLogLogs, but with high constant times.";

const COUNT: Run = both(count::here, |call| Box::pin(count::anywhere(call)));
/// Never run as a point command: that would keep the sources locked during the merge.
const MERGE: Run = task(|call| Box::pin(merge::pfmerge(call)));

/// The rows of this family.
#[rustfmt::skip] // A table: one row a command, columns aligned.
pub(crate) const TABLE: &[Command] = &in_group(GROUP, [
    //  name          since    args flags                    keys                  run
    row("pfadd",      "2.8.9", -2, GROW_FAST,                specs::ONE_RW_INSERT, Run::Point(add::pfadd)).doc("Adds the specified elements to the specified HyperLogLog.", O_ADD).syntax("key [element]..."),
    row("pfcount",    "2.8.9", -2, READ.and(Flags::MAY_REPLICATE), COUNT_KEYS,           COUNT).doc("Return the approximated cardinality of the set(s) observed by the HyperLogLog at key(s).", O_COUNT).syntax("key..."),
    row("pfdebug",    "2.8.9",  3, GROW.and(Flags::ADMIN),   DEBUG_KEYS,           Run::Point(debug::pfdebug)).doc("Internal commands for debugging HyperLogLog values", "N/A").system().syntax("subcommand key"),
    row("pfmerge",    "2.8.9", -2, GROW,                     MERGE_KEYS,           MERGE).doc("Merge N different HyperLogLogs into a single one.", O_MERGE).syntax("destkey:key sourcekey:key..."),
    row("pfselftest", "2.8.9",  1, Flags::ADMIN,             Keys::NONE,           Run::Point(debug::pfselftest)).doc("An internal command for testing HyperLogLog values", "N/A").system(),
]);

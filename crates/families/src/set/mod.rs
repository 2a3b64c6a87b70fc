//! Sets: members without order, each with an optional deadline.
//!
//! Integers and UUIDs are packed by the table. A command on more members than fit a slice works on
//! a cut: long replies are streamed from it, and large changes edit the cut and then install it.
//! The algebra reads cuts of all its inputs from any core, and copies none of them.
//!
//! | file       | holds                                                        |
//! |------------|--------------------------------------------------------------|
//! | `value`    | the type: its row, its values, its editor                    |
//! | `member`   | SISMEMBER, SMISMEMBER, SCARD, SMEMBERS                       |
//! | `edit`     | SADD, SADDEX, SREM                                           |
//! | `random`   | SRANDMEMBER; `pop`: SPOP; `smove`: SMOVE; `scan`: SSCAN      |
//! | `algebra`  | SINTER, SUNION, SDIFF; `card`: their counts; `store`: their STORE forms |
//! | `plan`     | the order in which the inputs are read                       |
//! | `deadline` | FIELDEXPIRE for members                                      |
//! | `walk`     | the inner loop; `build`: builds a set for STORE              |
//! | `reply`    | long replies; `estimate`: HyperLogLog                        |

mod algebra;
mod build;
mod card;
mod deadline;
mod edit;
mod estimate;
mod member;
mod plan;
mod pop;
mod random;
mod reply;
mod scan;
mod sets;
mod smove;
mod store;
mod value;
mod walk;

use crate::rows::{
    GROW, GROW_FAST, O_SCAN, O1, RANDOM, READ, READ_FAST, UNORDERED, WRITE_FAST, both, in_group,
    range, row, task as store,
};
use darter_command::{Command, Flags, Group, KeyFlags, KeySpec, Keys, Place, Run, specs};
use plan::Act;

pub(crate) use deadline::expire;
pub use value::{Set, SetChange, SetEdit};

const SOURCES: KeySpec = range(2, -1, KeyFlags::RO_ACCESS);
const STORE_OW: Keys = Keys(&[range(1, 1, KeyFlags::OW_UPDATE), SOURCES]);
const STORE_RW: Keys = Keys(&[range(1, 1, KeyFlags::RW_UPDATE), SOURCES]);
const MOVE: Keys =
    Keys(&[range(1, 1, KeyFlags::RW_ACCESS_DELETE), range(2, 2, KeyFlags::RW_INSERT)]);
const COUNTED: Keys = Keys(&[KeySpec::new(Place::Counted { count: 1 }, KeyFlags::RO_ACCESS)]);

const READ_COUNTED: Flags = Flags::READONLY.and(Flags::MOVABLEKEYS);

const GROUP: Group = Group::Type { name: "set", category: "@set" };

const O_ADD: &str = "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.";
const O_ALL: &str = "O(N) where N is the total number of elements in all given sets.";
const O_INTER: &str =
    "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.";
const O_MEMBERS: &str = "O(N) where N is the set cardinality.";
const O_ASKED: &str = "O(N) where N is the number of elements being checked for membership";
const O_POP: &str =
    "Without the count argument O(1), otherwise O(N) where N is the value of the passed count.";
const O_RANDOM: &str = "Without the count argument O(1), otherwise O(N) where N is the absolute value of the passed count.";
const O_REM: &str = "O(N) where N is the number of members to be removed.";

const SDIFF: Run = both(algebra::sdiff_here, |call| Box::pin(algebra::anywhere(call, Act::Diff)));
const SINTER: Run =
    both(algebra::sinter_here, |call| Box::pin(algebra::anywhere(call, Act::Inter)));
const SUNION: Run =
    both(algebra::sunion_here, |call| Box::pin(algebra::anywhere(call, Act::Union)));
const SDIFFCARD: Run = both(card::sdiffcard_here, |call| Box::pin(card::anywhere(call, Act::Diff)));
const SINTERCARD: Run =
    both(card::sintercard_here, |call| Box::pin(card::anywhere(call, Act::Inter)));
const SUNIONCARD: Run =
    both(card::sunioncard_here, |call| Box::pin(card::anywhere(call, Act::Union)));
const SDIFFSTORE: Run = store(|call| Box::pin(store::store(call, Act::Diff)));
const SINTERSTORE: Run = store(|call| Box::pin(store::store(call, Act::Inter)));
const SUNIONSTORE: Run = store(|call| Box::pin(store::store(call, Act::Union)));
const SMOVE: Run = both(smove::here, |call| Box::pin(smove::anywhere(call)));

/// The rows of this family.
#[rustfmt::skip] // A table: one row a command, columns aligned.
pub const TABLE: &[Command] = &in_group(GROUP, [
    //  name           since   args flags         keys                         run
    row("sadd",        "1.0.0",  -3, GROW_FAST,    specs::ONE_RW_INSERT,        Run::Point(edit::sadd)).doc("Add one or more members to a set", O_ADD).elements().syntax("key member...").history(&[("2.4.0", "Accepts multiple `member` arguments.")]),
    row("saddex",      "1.0.0",  -4, GROW_FAST,    specs::ONE_RW_INSERT,        Run::Point(edit::saddex)).doc("Add members that expire to a set", O_ADD).elements_from(3).syntax("key (expiration: seconds:integer | KEEPTTL seconds:integer | PXAT unix-time-milliseconds:unix-time | PERSIST) member..."),
    row("scard",       "1.0.0",   2, READ_FAST,    specs::ONE_RO,               Run::Point(member::scard)).doc("Get the number of members in a set", O1).syntax("key"),
    row("sdiff",       "1.0.0",  -2, READ,         specs::ALL_RO_ACCESS,        SDIFF).doc("Subtract multiple sets", O_ALL).tips(UNORDERED).syntax("key..."),
    row("sdiffcard",   "8.10.0", -3, READ_COUNTED, COUNTED,                     SDIFFCARD).doc("Returns the number of members of the difference of multiple sets.", O_ALL).syntax("numkeys:integer key... [LIMIT limit:integer]"),
    row("sdiffstore",  "1.0.0",  -3, GROW,         STORE_OW,                    SDIFFSTORE).doc("Subtract multiple sets and store the resulting set in a key", O_ALL).syntax("destination:key key..."),
    row("sinter",      "1.0.0",  -2, READ,         specs::ALL_RO_ACCESS,        SINTER).doc("Intersect multiple sets", O_INTER).tips(UNORDERED).syntax("key..."),
    row("sintercard",  "7.0.0",  -3, READ_COUNTED, COUNTED,                     SINTERCARD).doc("Intersect multiple sets and return the cardinality of the result", O_INTER).syntax("numkeys:integer key... [LIMIT limit:integer]"),
    row("sinterstore", "1.0.0",  -3, GROW,         STORE_RW,                    SINTERSTORE).doc("Intersect multiple sets and store the resulting set in a key", O_INTER).syntax("destination:key key..."),
    row("sismember",   "1.0.0",   3, READ_FAST,    specs::ONE_RO,               Run::Point(member::sismember)).doc("Determine if a given value is a member of a set", O1).elements().syntax("key member"),
    row("smembers",    "1.0.0",   2, READ,         specs::ONE_RO_ACCESS,        Run::Point(member::smembers)).doc("Get all the members in a set", O_MEMBERS).tips(UNORDERED).syntax("key"),
    row("smismember",  "6.2.0",  -3, READ_FAST,    specs::ONE_RO_ACCESS,        Run::Point(member::smismember)).doc("Returns the membership associated with the given elements for a set", O_ASKED).elements().syntax("key member..."),
    row("smove",       "1.0.0",   4, WRITE_FAST,   MOVE,                        SMOVE).doc("Move a member from one set to another", O1).elements_from(3).syntax("source:key destination:key member"),
    row("spop",        "1.0.0",  -2, WRITE_FAST,   specs::ONE_RW_ACCESS_DELETE, Run::Point(pop::spop)).doc("Remove and return one or multiple random members from a set", O_POP).tips(RANDOM).syntax("key [count:integer]@3.2.0").history(&[("3.2.0", "Added the `count` argument.")]),
    row("srandmember", "1.0.0",  -2, READ,         specs::ONE_RO_ACCESS,        Run::Point(random::srandmember)).doc("Get one or multiple random members from a set", O_RANDOM).tips(RANDOM).syntax("key [count:integer]@2.6.0").history(&[("2.6.0", "Added the optional `count` argument.")]),
    row("srem",        "1.0.0",  -3, WRITE_FAST,   specs::ONE_RW_DELETE,        Run::Point(edit::srem)).doc("Remove one or more members from a set", O_REM).elements().syntax("key member...").history(&[("2.4.0", "Accepts multiple `member` arguments.")]),
    row("sscan",       "2.8.0",  -3, READ,         specs::ONE_RO_ACCESS,        Run::Point(scan::sscan)).doc("Incrementally iterate Set elements", O_SCAN).tips(RANDOM).syntax("key cursor:integer [MATCH pattern:pattern] [COUNT count:integer]"),
    row("sunion",      "1.0.0",  -2, READ,         specs::ALL_RO_ACCESS,        SUNION).doc("Add multiple sets", O_ALL).tips(UNORDERED).syntax("key..."),
    row("sunioncard",  "8.10.0", -3, READ_COUNTED, COUNTED,                     SUNIONCARD).doc("Returns the number of members of the union of multiple sets.", O_ALL).syntax("numkeys:integer key... [LIMIT limit:integer]"),
    row("sunionstore", "1.0.0",  -3, GROW,         STORE_OW,                    SUNIONSTORE).doc("Add multiple sets and store the resulting set in a key", O_ALL).syntax("destination:key key..."),
]);

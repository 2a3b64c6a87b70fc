//! Lists: elements in order.
//!
//! | file    | holds                                                 |
//! |---------|-------------------------------------------------------|
//! | `value` | the type: its row, its values, how they are changed   |
//! | `ends`  | LPUSH, RPUSH, LPUSHX, RPUSHX, LPOP, RPOP              |
//! | `read`  | LLEN, LINDEX, LRANGE                                  |
//! | `place` | LSET, LTRIM                                           |

mod ends;
mod place;
mod read;
mod value;

use crate::rows::{GROW, GROW_FAST, O1, READ, READ_FAST, WRITE_FAST};
use darter_command::{Command, Flags, Group, Keys, Run, specs};

pub use value::{List, ListChange, ListEdit};

/// What versions changed.
type History = &'static [(&'static str, &'static str)];

const GROUP: Group = Group::Type { name: "list", category: "@list" };

const fn row(
    name: &'static str,
    since: &'static str,
    arity: i32,
    flags: Flags,
    keys: Keys,
    run: Run,
) -> Command {
    Command::new(name, since, arity, flags, keys, GROUP, run)
}

const O_PUSH: &str = "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.";
const O_POP: &str = "O(N) where N is the number of elements returned";
const O_INDEX: &str = "O(N) where N is the number of elements to traverse to get to the element at index. This makes asking for the first or the last element of the list O(1).";
const O_RANGE: &str = "O(S+N) where S is the distance of start offset from HEAD for small lists, from nearest end (HEAD or TAIL) for large lists; and N is the number of elements in the specified range.";
const O_SET: &str = "O(N) where N is the length of the list. Setting either the first or the last element of the list is O(1).";
const O_TRIM: &str = "O(N) where N is the number of elements to be removed by the operation.";

const PUSH_HISTORY: History = &[("2.4.0", "Accepts multiple `element` arguments.")];
const PUSHX_HISTORY: History = &[("4.0.0", "Accepts multiple `element` arguments.")];
const POP_HISTORY: History = &[("6.2.0", "Added the `count` argument.")];

/// The rows of this family.
#[rustfmt::skip] // A table: one row a command, columns aligned.
pub const TABLE: &[Command] = &[
    //  name      since    args flags       keys                         run
    row("lindex", "1.0.0",   3, READ,       specs::ONE_RO_ACCESS,        Run::Point(read::lindex)).doc("Get an element from a list by its index", O_INDEX).syntax("key index:integer"),
    row("llen",   "1.0.0",   2, READ_FAST,  specs::ONE_RO,               Run::Point(read::llen)).doc("Get the length of a list", O1).syntax("key"),
    row("lpop",   "1.0.0",  -2, WRITE_FAST, specs::ONE_RW_ACCESS_DELETE, Run::Point(ends::lpop)).doc("Remove and get the first elements in a list", O_POP).syntax("key [count:integer]@6.2.0").history(POP_HISTORY),
    row("lpush",  "1.0.0",  -3, GROW_FAST,  specs::ONE_RW_INSERT,        Run::Point(ends::lpush)).doc("Prepend one or multiple elements to a list", O_PUSH).syntax("key element:string...").history(PUSH_HISTORY),
    row("lpushx", "2.2.0",  -3, GROW_FAST,  specs::ONE_RW_INSERT,        Run::Point(ends::lpushx)).doc("Prepend an element to a list, only if the list exists", O_PUSH).syntax("key element:string...").history(PUSHX_HISTORY),
    row("lrange", "1.0.0",   4, READ,       specs::ONE_RO_ACCESS,        Run::Point(read::lrange)).doc("Get a range of elements from a list", O_RANGE).syntax("key start:integer stop:integer"),
    row("lset",   "1.0.0",   4, GROW,       specs::ONE_RW_INSERT,        Run::Point(place::lset)).doc("Set the value of an element in a list by its index", O_SET).syntax("key index:integer element:string"),
    row("ltrim",  "1.0.0",   4, Flags::WRITE, specs::ONE_RW_DELETE,      Run::Point(place::ltrim)).doc("Trim a list to the specified range", O_TRIM).syntax("key start:integer stop:integer"),
    row("rpop",   "1.0.0",  -2, WRITE_FAST, specs::ONE_RW_ACCESS_DELETE, Run::Point(ends::rpop)).doc("Remove and get the last elements in a list", O_POP).syntax("key [count:integer]@6.2.0").history(POP_HISTORY),
    row("rpush",  "1.0.0",  -3, GROW_FAST,  specs::ONE_RW_INSERT,        Run::Point(ends::rpush)).doc("Append one or multiple elements to a list", O_PUSH).syntax("key element:string...").history(PUSH_HISTORY),
    row("rpushx", "2.2.0",  -3, GROW_FAST,  specs::ONE_RW_INSERT,        Run::Point(ends::rpushx)).doc("Append an element to a list, only if the list exists", O_PUSH).syntax("key element:string...").history(PUSHX_HISTORY),
];

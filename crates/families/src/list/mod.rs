//! Lists: elements in order.
//!
//! | file    | holds                                                 |
//! |---------|-------------------------------------------------------|
//! | `value` | the type: its row, its values, its editor            |
//! | `ends`  | LPUSH, RPUSH, LPUSHX, RPUSHX, LPOP, RPOP              |
//! | `read`  | LLEN, LINDEX, LRANGE                                  |
//! | `place` | LSET, LTRIM                                           |
//! | `search`   | LPOS, LREM, LINSERT                                |
//! | `transfer` | LMOVE, RPOPLPUSH; `mpop`: LMPOP; `movem`: LMOVEM   |
//! | `blocking` | BLPOP, BRPOP, BLMPOP, BLMOVE, BRPOPLPUSH, BLMOVEM  |

mod blocking;
mod ends;
mod movem;
mod mpop;
mod place;
mod read;
mod search;
mod transfer;
mod value;

use crate::rows::{
    BLOCKING, GROW, GROW_FAST, O1, READ, READ_FAST, WRITE_FAST, both, in_group, range, row, task,
};
use crate::waiting::run_waiting;
use darter_command::{Command, Flags, Group, KeyFlags, KeySpec, Keys, Place, Run, specs};

pub use value::{List, ListChange, ListEdit};

/// A command's history: versions, and their changes.
type History = &'static [(&'static str, &'static str)];

const GROUP: Group = Group::Type { name: "list", category: "@list" };

const MOVE: Keys =
    Keys(&[range(1, 1, KeyFlags::RW_ACCESS_DELETE), range(2, 2, KeyFlags::RW_INSERT)]);
const COUNTED: Keys =
    Keys(&[KeySpec::new(Place::Counted { count: 1 }, KeyFlags::RW_ACCESS_DELETE)]);

const WAITS_COUNTED: Keys =
    Keys(&[KeySpec::new(Place::Counted { count: 2 }, KeyFlags::RW_ACCESS_DELETE)]);
const WAITS: Keys = Keys(&[range(1, -2, KeyFlags::RW_ACCESS_DELETE)]);

const WRITE_COUNTED: Flags = Flags::WRITE.and(Flags::MOVABLEKEYS);

const LMOVE: Run = both(transfer::lmove_here, |call| Box::pin(transfer::lmove(call)));
const LMOVEM: Run = task(|call| Box::pin(movem::lmovem(call)));
const RPOPLPUSH: Run = both(transfer::rpoplpush_here, |call| Box::pin(transfer::rpoplpush(call)));
const LMPOP: Run = both(mpop::here, |call| Box::pin(mpop::anywhere(call)));
const BLPOP: Run = run_waiting!(blocking::blpop);
const BRPOP: Run = run_waiting!(blocking::brpop);
const BLMPOP: Run = run_waiting!(blocking::blmpop);
const BLMOVE: Run = both(blocking::blmove_here, |call| Box::pin(blocking::blmove_anywhere(call)));
const BRPOPLPUSH: Run =
    both(blocking::brpoplpush_here, |call| Box::pin(blocking::brpoplpush_anywhere(call)));
const BLMOVEM: Run = task(|call| Box::pin(movem::blmovem(call)));

const O_BPOP: &str = "O(N) where N is the number of provided keys.";
const O_PUSH: &str = "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.";
const O_POP: &str = "O(N) where N is the number of elements returned";
const O_INDEX: &str = "O(N) where N is the number of elements to traverse to get to the element at index. This makes asking for the first or the last element of the list O(1).";
const O_RANGE: &str = "O(S+N) where S is the distance of start offset from HEAD for small lists, from nearest end (HEAD or TAIL) for large lists; and N is the number of elements in the specified range.";
const O_SET: &str = "O(N) where N is the length of the list. Setting either the first or the last element of the list is O(1).";
const O_INSERT: &str = "O(N) where N is the number of elements to traverse before seeing the value pivot. This means that inserting somewhere on the left end on the list (head) can be considered O(1) and inserting somewhere on the right end (tail) is O(N).";
const O_MOVEM: &str = "O(N) where N is the number of elements moved.";
const O_MPOP: &str =
    "O(N+M) where N is the number of provided keys and M is the number of elements returned.";
const O_POS: &str = "O(N) where N is the number of elements in the list, for the average case. When searching for elements near the head or the tail of the list, or when the MAXLEN option is provided, the command may run in constant time.";
const O_REM: &str =
    "O(N+M) where N is the length of the list and M is the number of elements removed.";
const O_TRIM: &str = "O(N) where N is the number of elements to be removed by the operation.";

const PUSH_HISTORY: History = &[("2.4.0", "Accepts multiple `element` arguments.")];
const PUSHX_HISTORY: History = &[("4.0.0", "Accepts multiple `element` arguments.")];
const TIMEOUT_HISTORY: History =
    &[("6.0.0", "`timeout` is interpreted as a double instead of an integer.")];
const POP_HISTORY: History = &[("6.2.0", "Added the `count` argument.")];

/// The rows of this family.
#[rustfmt::skip] // A table: one row a command, columns aligned.
pub const TABLE: &[Command] = &in_group(GROUP, [
    //  name      since    args flags       keys                         run
    row("blmove", "6.2.0",   6, BLOCKING.and(GROW), MOVE,                BLMOVE).doc("Pop an element from a list, push it to another list and return it; or block until one is available", O1).syntax("source:key destination:key (wherefrom: LEFT | RIGHT) (whereto: LEFT | RIGHT) timeout:double").waits(blocking::blmove),
    row("blmovem", "8.10.0", -6, GROW.and(Flags::BLOCKING), MOVE,         BLMOVEM).doc("Moves up to (or exactly) a number of elements from one list to another and returns them. Blocks until the elements are available otherwise. Deletes the source list if it becomes empty.", O_MOVEM).syntax("source:key destination:key (wherefrom: LEFT | RIGHT) (whereto: LEFT | RIGHT) timeout:double [how-many: (selector: COUNT count:integer | EXACTLY exactly:integer) (ordering: OBO | BULK)]").waits(blocking::blmovem),
    row("blmpop", "7.0.0",  -5, WRITE_COUNTED.and(Flags::BLOCKING), WAITS_COUNTED, BLMPOP).doc("Pop elements from a list, or block until one is available", O_MPOP).syntax("timeout:double numkeys:integer key... (where: LEFT | RIGHT) [COUNT count:integer]").waits(blocking::blmpop),
    row("blpop",  "2.0.0",  -3, BLOCKING,   WAITS,                       BLPOP).doc("Remove and get the first element in a list, or block until one is available", O_BPOP).syntax("key... timeout:double").history(TIMEOUT_HISTORY).waits(blocking::blpop),
    row("brpop",  "2.0.0",  -3, BLOCKING,   WAITS,                       BRPOP).doc("Remove and get the last element in a list, or block until one is available", O_BPOP).syntax("key... timeout:double").history(TIMEOUT_HISTORY).waits(blocking::brpop),
    row("brpoplpush", "2.2.0", 4, BLOCKING.and(GROW), MOVE,              BRPOPLPUSH).doc("Pop an element from a list, push it to another list and return it; or block until one is available", O1).deprecated("6.2.0", "`BLMOVE` with the `RIGHT` and `LEFT` arguments").syntax("source:key destination:key timeout:double").history(TIMEOUT_HISTORY).waits(blocking::brpoplpush),
    row("lindex", "1.0.0",   3, READ,       specs::ONE_RO_ACCESS,        Run::Point(read::lindex)).doc("Get an element from a list by its index", O_INDEX).syntax("key index:integer"),
    row("linsert","2.2.0",   5, GROW,       specs::ONE_RW_INSERT,        Run::Point(search::linsert)).doc("Insert an element before or after another element in a list", O_INSERT).syntax("key (where: BEFORE | AFTER) pivot element"),
    row("llen",   "1.0.0",   2, READ_FAST,  specs::ONE_RO,               Run::Point(read::llen)).doc("Get the length of a list", O1).syntax("key"),
    row("lmove",  "6.2.0",   5, GROW,       MOVE,                        LMOVE).doc("Pop an element from a list, push it to another list and return it", O1).syntax("source:key destination:key (wherefrom: LEFT | RIGHT) (whereto: LEFT | RIGHT)"),
    row("lmovem", "8.10.0", -5, GROW,       MOVE,                        LMOVEM).doc("Moves up to (or exactly) a number of elements from one list to another and returns them. Deletes the source list if it becomes empty.", O_MOVEM).syntax("source:key destination:key (wherefrom: LEFT | RIGHT) (whereto: LEFT | RIGHT) [how-many: (selector: COUNT count:integer | EXACTLY exactly:integer) (ordering: OBO | BULK)]"),
    row("lmpop",  "7.0.0",  -4, WRITE_COUNTED, COUNTED,                  LMPOP).doc("Pop elements from a list", O_MPOP).syntax("numkeys:integer key... (where: LEFT | RIGHT) [COUNT count:integer]"),
    row("lpop",   "1.0.0",  -2, WRITE_FAST, specs::ONE_RW_ACCESS_DELETE, Run::Point(ends::lpop)).doc("Remove and get the first elements in a list", O_POP).syntax("key [count:integer]@6.2.0").history(POP_HISTORY),
    row("lpos",   "6.0.6",  -3, READ,       specs::ONE_RO_ACCESS,        Run::Point(search::lpos)).doc("Return the index of matching elements on a list", O_POS).syntax("key element [RANK rank:integer] [COUNT num-matches:integer] [MAXLEN len:integer]"),
    row("lpush",  "1.0.0",  -3, GROW_FAST,  specs::ONE_RW_INSERT,        Run::Point(ends::lpush)).doc("Prepend one or multiple elements to a list", O_PUSH).syntax("key element:string...").history(PUSH_HISTORY),
    row("lpushx", "2.2.0",  -3, GROW_FAST,  specs::ONE_RW_INSERT,        Run::Point(ends::lpushx)).doc("Prepend an element to a list, only if the list exists", O_PUSH).syntax("key element:string...").history(PUSHX_HISTORY),
    row("lrange", "1.0.0",   4, READ,       specs::ONE_RO_ACCESS,        Run::Point(read::lrange)).doc("Get a range of elements from a list", O_RANGE).syntax("key start:integer stop:integer"),
    row("lrem",   "1.0.0",   4, Flags::WRITE, specs::ONE_RW_DELETE,      Run::Point(search::lrem)).doc("Remove elements from a list", O_REM).syntax("key count:integer element"),
    row("lset",   "1.0.0",   4, GROW,       specs::ONE_RW_INSERT,        Run::Point(place::lset)).doc("Set the value of an element in a list by its index", O_SET).syntax("key index:integer element:string"),
    row("ltrim",  "1.0.0",   4, Flags::WRITE, specs::ONE_RW_DELETE,      Run::Point(place::ltrim)).doc("Trim a list to the specified range", O_TRIM).syntax("key start:integer stop:integer"),
    row("rpop",   "1.0.0",  -2, WRITE_FAST, specs::ONE_RW_ACCESS_DELETE, Run::Point(ends::rpop)).doc("Remove and get the last elements in a list", O_POP).syntax("key [count:integer]@6.2.0").history(POP_HISTORY),
    row("rpoplpush", "1.2.0", 3, GROW,      MOVE,                        RPOPLPUSH).doc("Remove the last element in a list, prepend it to another list and return it", O1).deprecated("6.2.0", "`LMOVE` with the `RIGHT` and `LEFT` arguments").syntax("source:key destination:key"),
    row("rpush",  "1.0.0",  -3, GROW_FAST,  specs::ONE_RW_INSERT,        Run::Point(ends::rpush)).doc("Append one or multiple elements to a list", O_PUSH).syntax("key element:string...").history(PUSH_HISTORY),
    row("rpushx", "2.2.0",  -3, GROW_FAST,  specs::ONE_RW_INSERT,        Run::Point(ends::rpushx)).doc("Append an element to a list, only if the list exists", O_PUSH).syntax("key element:string...").history(PUSHX_HISTORY),
]);

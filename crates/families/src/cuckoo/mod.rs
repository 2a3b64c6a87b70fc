//! Cuckoo filters: RedisBloom's commands that begin with CF.
//!
//! | file    | holds                                                       |
//! |---------|-------------------------------------------------------------|
//! | `value` | the type: its row, its values, its editor                    |
//! | `items` | the parts of a filter in files, and the outline of a dump   |
//! | `make`  | CF.RESERVE, and the options of CF.INSERT                    |
//! | `add`   | CF.ADD, CF.ADDNX, CF.INSERT, CF.INSERTNX                    |
//! | `look`  | CF.EXISTS, CF.MEXISTS, CF.COUNT, CF.DEL, CF.INFO            |
//! | `dump`  | CF.SCANDUMP, CF.LOADCHUNK                                   |

mod add;
mod dump;
mod items;
mod look;
mod make;
mod value;

use crate::rows::{GROW, GROW_FAST, O1, READ, READ_FAST, WRITE_FAST, in_group, row};
use darter_command::{Command, Group, Run, specs};

pub use value::{CuckooChange, CuckooEdit, CuckooFilter};

const GROUP: Group = Group::Type { name: "cf", category: "@cuckoo" };

const O_LOOK: &str = "O(k), where k is the number of sub-filters";
const O_LOOKS: &str = "O(k * n), where k is the number of sub-filters and n is the number of items";
const O_ADD: &str = "O(k + i), where k is the number of sub-filters and i is maxIterations";
const O_ADDS: &str = "O(n * (k + i)), where n is the number of items, k is the number of sub-filters and i is maxIterations";
const O_PIECE: &str = "O(n), where n is the size of a piece";

/// The rows of this family.
#[rustfmt::skip] // A table: one row a command, columns aligned.
pub const TABLE: &[Command] = &in_group(GROUP, [
    //  name            since    args flags      keys                         run
    row("cf.add",       "1.0.0",  3, GROW_FAST,  specs::ONE_RW_INSERT,        Run::Point(add::add)).doc("Add an item to a cuckoo filter", O_ADD).syntax("key item"),
    row("cf.addnx",     "1.0.0",  3, GROW_FAST,  specs::ONE_RW_INSERT,        Run::Point(add::addnx)).doc("Add an item to a cuckoo filter unless it seems to be there", O_ADD).syntax("key item"),
    row("cf.count",     "1.0.0",  3, READ_FAST,  specs::ONE_RO_ACCESS,        Run::Point(look::count)).doc("Report how often an item seems to be in a cuckoo filter", O_LOOK).syntax("key item"),
    row("cf.del",       "1.0.0",  3, WRITE_FAST, specs::ONE_RW_ACCESS_DELETE, Run::Point(look::del)).doc("Remove an item once from a cuckoo filter", O_LOOK).syntax("key item"),
    row("cf.exists",    "1.0.0",  3, READ_FAST,  specs::ONE_RO_ACCESS,        Run::Point(look::exists)).doc("Report whether an item seems to be in a cuckoo filter", O_LOOK).syntax("key item"),
    row("cf.info",      "1.0.0",  2, READ_FAST,  specs::ONE_RO_ACCESS,        Run::Point(look::info)).doc("Report facts about a cuckoo filter", O1).syntax("key"),
    row("cf.insert",    "1.0.0", -4, GROW,       specs::ONE_RW_INSERT,        Run::Point(add::cf_insert)).doc("Add one or more items to a cuckoo filter, which is created as the options say", O_ADDS).syntax("key [CAPACITY capacity:integer] [NOCREATE] ITEMS item..."),
    row("cf.insertnx",  "1.0.0", -4, GROW,       specs::ONE_RW_INSERT,        Run::Point(add::insertnx)).doc("Add items to a cuckoo filter unless they seem to be there", O_ADDS).syntax("key [CAPACITY capacity:integer] [NOCREATE] ITEMS item..."),
    row("cf.loadchunk", "1.0.0",  4, GROW,       specs::ONE_RW_INSERT,        Run::Point(dump::loadchunk)).doc("Load a piece of a dumped cuckoo filter", O_PIECE).syntax("key iterator:integer data"),
    row("cf.mexists",   "1.0.0", -3, READ,       specs::ONE_RO_ACCESS,        Run::Point(look::mexists)).doc("Report whether items seem to be in a cuckoo filter", O_LOOKS).syntax("key item..."),
    row("cf.reserve",   "1.0.0", -3, GROW_FAST,  specs::ONE_RW_INSERT,        Run::Point(make::reserve)).doc("Create an empty cuckoo filter", O1).syntax("key capacity:integer [BUCKETSIZE bucketsize:integer] [MAXITERATIONS maxiterations:integer] [EXPANSION expansion:integer]"),
    row("cf.scandump",  "1.0.0",  3, READ,       specs::ONE_RO_ACCESS,        Run::Point(dump::scandump)).doc("Dump a piece of a cuckoo filter", O_PIECE).syntax("key iterator:integer"),
]);

//! JSON documents: RedisJSON's commands.
//!
//! | file       | holds                                                             |
//! |------------|-------------------------------------------------------------------|
//! | `value`    | the type: its row, its values, its editor                         |
//! | `path`, `test` | the language of paths, and of the tests in them               |
//! | `select`   | following a path, in slices                                       |
//! | `places`   | the places that a path finds, in order                            |
//! | `found`    | a path and its search; errors                                     |
//! | `get`      | JSON.GET, JSON.MGET                                               |
//! | `probe`    | JSON.TYPE, STRLEN, ARRLEN, OBJLEN, OBJKEYS, ARRINDEX, RESP, DEBUG |
//! | `commands` | the commands that change a document                               |
//! | `write`    | their steps: parse, search, change each place, reply              |
//! | `acts`     | the change at one place                                           |
//! | `mset`     | JSON.MSET                                                         |
//! | `waiting`  | values whose texts are still to be sent                           |

mod acts;
mod commands;
mod found;
mod get;
mod mset;
mod path;
mod places;
mod probe;
mod select;
mod test;
mod value;
mod waiting;
mod write;

use crate::rows::{GROW, READ, both, in_group, range, row, task};
use darter_command::{Command, Flags, Group, KeyFlags, KeySpec, Keys, Place, Run, specs};

pub use path::Path;
pub use value::{Json, JsonChange, JsonEdit};

const GROUP: Group = Group::Type { name: "json", category: "@json" };

const ALL_BUT_LAST: Keys = Keys(&[range(1, -2, KeyFlags::RO_ACCESS)]);
const SUB_RO: Keys = Keys(&[range(2, 2, KeyFlags::RO_ACCESS)]);
/// Every third argument is a key.
const TRIPLES: Keys =
    Keys(&[KeySpec::new(Place::Range { first: 1, last: -1, step: 3 }, KeyFlags::RW_INSERT)]);
const HELP: Flags = Flags::LOADING.and(Flags::STALE);

const MSET: Run = task(|call| Box::pin(mset::mset(call)));
const MGET: Run = both(get::mget_here, |call| Box::pin(get::mget_anywhere(call)));

const O_DOC: &str = "O(N) when the path finds one value, where N is its size, or the size of the document when it finds several";
const O_FOUND: &str = "O(1) when the path finds one value, O(N) when it finds several, where N is the size of the document";
const O_SET: &str = "O(M+N) where M is the size of the original value and N that of the new one, or M that of the document when the path finds several values";

/// The rows of this family.
#[rustfmt::skip] // A table: one row a command, columns aligned.
pub const TABLE: &[Command] = &in_group(GROUP, [
    //  name             since     args flags          keys                         run
    row("json.arrappend", "1.0.0",  -4, GROW,          specs::ONE_RW_INSERT,        Run::Point(commands::arrappend)).doc("Append one or more values into arrays", O_FOUND).syntax("key path value:string..."),
    row("json.arrindex",  "1.0.0",  -4, READ,          specs::ONE_RO_ACCESS,        Run::Point(probe::arrindex)).doc("Search for the first occurrence of a value in arrays", O_DOC).syntax("key path value:string [start:integer] [stop:integer]"),
    row("json.arrinsert", "1.0.0",  -5, GROW,          specs::ONE_RW_INSERT,        Run::Point(commands::arrinsert)).doc("Insert values into arrays before an index", O_FOUND).syntax("key path index:integer value:string..."),
    row("json.arrlen",    "1.0.0",  -2, READ,          specs::ONE_RO_ACCESS,        Run::Point(probe::arrlen)).doc("Report the length of arrays", O_FOUND).syntax("key [path]"),
    row("json.arrpop",    "1.0.0",  -2, Flags::WRITE,  specs::ONE_RW_ACCESS_DELETE, Run::Point(commands::arrpop)).doc("Remove and return an element from arrays", O_FOUND).syntax("key [path] [index:integer]"),
    row("json.arrtrim",   "1.0.0",   5, Flags::WRITE,  specs::ONE_RW_DELETE,        Run::Point(commands::arrtrim)).doc("Trim arrays to a range of indices", O_FOUND).syntax("key path start:integer stop:integer"),
    row("json.clear",     "2.0.0",  -2, Flags::WRITE,  specs::ONE_RW_DELETE,        Run::Point(commands::clear)).doc("Empty arrays and objects, and set numbers to 0", O_FOUND).syntax("key [path]"),
    row("json.debug",     "1.0.0",  -2, Flags::NONE,   Keys::NONE,                  Run::Server).doc("A container for JSON debugging commands", "Depends on subcommand."),
    row("json.debug|help",   "1.0.0", 2, HELP,         Keys::NONE,                  Run::Point(probe::help)).doc("Show helpful text about the different subcommands", "O(1)"),
    row("json.debug|memory", "1.0.0", -3, READ,        SUB_RO,                      Run::Point(probe::memory_usage)).doc("Report the memory of values in bytes", O_FOUND).syntax("key [path]"),
    row("json.del",       "1.0.0",  -2, Flags::WRITE,  specs::ONE_RW_DELETE,        Run::Point(commands::del)).doc("Delete values", O_FOUND).syntax("key [path]"),
    row("json.forget",    "1.0.0",  -2, Flags::WRITE,  specs::ONE_RW_DELETE,        Run::Point(commands::del)).doc("Delete values", O_FOUND).syntax("key [path]"),
    row("json.get",       "1.0.0",  -2, READ,          specs::ONE_RO_ACCESS,        Run::Point(get::get)).doc("Get the values of one or more paths as JSON text", O_DOC).syntax("key [INDENT indent:string] [NEWLINE newline:string] [SPACE space:string] [path...]"),
    row("json.merge",     "2.6.0",   4, GROW,          specs::ONE_RW_INSERT,        Run::Point(commands::merge)).doc("Merge a JSON value into those of a path", O_SET).syntax("key path value:string"),
    row("json.mget",      "1.0.0",  -3, READ,          ALL_BUT_LAST,                MGET).doc("Get the values of a path from one or more keys", O_DOC).syntax("key... path"),
    row("json.mset",      "2.6.0",  -4, GROW,          TRIPLES,                     MSET).doc("Set the values of one or more keys and paths", O_SET).syntax("(triplet: key path value:string)..."),
    row("json.numincrby", "1.0.0",   4, GROW,          specs::ONE_RW_ACCESS_UPDATE, Run::Point(commands::numincrby)).doc("Increment numbers by a value", O_FOUND).syntax("key path value:double"),
    row("json.nummultby", "1.0.0",   4, GROW,          specs::ONE_RW_ACCESS_UPDATE, Run::Point(commands::nummultby)).doc("Multiply numbers by a value", O_FOUND).syntax("key path value:double"),
    row("json.objkeys",   "1.0.0",  -2, READ,          specs::ONE_RO_ACCESS,        Run::Point(probe::objkeys)).doc("Return the names of the members of objects", O_DOC).syntax("key [path]"),
    row("json.objlen",    "1.0.0",  -2, READ,          specs::ONE_RO_ACCESS,        Run::Point(probe::objlen)).doc("Report the number of members of objects", O_FOUND).syntax("key [path]"),
    row("json.resp",      "1.0.0",  -2, READ,          specs::ONE_RO_ACCESS,        Run::Point(probe::resp)).doc("Return values in the form of the serialization protocol", O_DOC).syntax("key [path]"),
    row("json.set",       "1.0.0",  -4, GROW,          specs::ONE_RW_INSERT,        Run::Point(commands::set)).doc("Set or update the values of a path", O_SET).syntax("key path value:string [condition: NX | XX]"),
    row("json.strappend", "1.0.0",  -3, GROW,          specs::ONE_RW_INSERT,        Run::Point(commands::strappend)).doc("Append a string to the strings of a path", O_FOUND).syntax("key [path] value:string"),
    row("json.strlen",    "1.0.0",  -2, READ,          specs::ONE_RO_ACCESS,        Run::Point(probe::strlen)).doc("Report the length of strings", O_FOUND).syntax("key [path]"),
    row("json.toggle",    "2.0.0",  -2, GROW,          specs::ONE_RW_INSERT,        Run::Point(commands::toggle)).doc("Toggle boolean values", O_FOUND).syntax("key [path]"),
    row("json.type",      "1.0.0",  -2, READ,          specs::ONE_RO_ACCESS,        Run::Point(probe::r#type)).doc("Return the types of values", O_FOUND).syntax("key [path]"),
]);

//! Count-Min sketches: estimates of how often items were counted, never too low, in rows of
//! counters.
//!
//! | file     | holds                                             |
//! |----------|---------------------------------------------------|
//! | `value`  | the type: its row, its values, its editor          |
//! | `create` | CMS.INITBYDIM, CMS.INITBYPROB, CMS.INFO           |
//! | `count`  | CMS.INCRBY, CMS.QUERY                             |
//! | `merge`  | CMS.MERGE                                         |

mod count;
mod create;
mod merge;
mod value;

use crate::rows::{GROW, O1, READ, READ_FAST, range, task};
use darter_command::{Command, Flags, Group, KeyFlags, KeySpec, Keys, Place, Refusal, Run, specs};

pub use value::{Cms, CmsChange, CmsEdit, CmsShape};

const GROUP: Group = Group::Type { name: "cms", category: "@cms" };

const fn row(name: &'static str, arity: i32, flags: Flags, keys: Keys, run: Run) -> Command {
    Command::new(name, "2.0.0", arity, flags, keys, GROUP, run)
}

/// The error for an absent key.
const MISSING: &str = "CMS: key does not exist";

/// A refusal in RedisBloom's words, whose lines have their own error code.
fn refuse(line: &'static str) -> Refusal {
    Refusal::line(line)
}

const MERGE_KEYS: Keys = Keys(&[
    range(1, 1, KeyFlags::RW_ACCESS_UPDATE),
    KeySpec::new(Place::Counted { count: 2 }, KeyFlags::RO_ACCESS),
]);
const GROW_COUNTED: Flags = GROW.and(Flags::MOVABLEKEYS);
/// Never run as a point command: that would keep the sources locked during the merge.
const MERGE: Run = task(|call| Box::pin(merge::merge(call)));

const O_ITEMS: &str = "O(n) where n is the number of items";
const O_SKETCHES: &str = "O(n) where n is the number of sketches";

/// The rows of this family.
#[rustfmt::skip] // A table: one row a command, columns aligned.
pub(crate) const TABLE: &[Command] = &[
    //  name            args flags         keys                         run
    row("cms.incrby",     -4, GROW,         specs::ONE_RW_ACCESS_UPDATE, Run::Point(count::incrby)).doc("Increases the count of one or more items by increment", O_ITEMS).syntax("key (items: item:string increment:integer)..."),
    row("cms.info",        2, READ_FAST,    specs::ONE_RO_ACCESS,        Run::Point(create::info)).doc("Returns information about a sketch", O1).syntax("key"),
    row("cms.initbydim",   4, GROW,         specs::ONE_RW_INSERT,        Run::Point(create::initbydim)).doc("Initializes a Count-Min Sketch to dimensions specified by user", O1).syntax("key width:integer depth:integer"),
    row("cms.initbyprob",  4, GROW,         specs::ONE_RW_INSERT,        Run::Point(create::initbyprob)).doc("Initializes a Count-Min Sketch to accommodate requested tolerances.", O1).syntax("key error:double probability:double"),
    row("cms.merge",      -4, GROW_COUNTED, MERGE_KEYS,                  MERGE).doc("Merges several sketches into one sketch", O_SKETCHES).syntax("destination:key numkeys:integer source:key... [weights: WEIGHTS weight:double...]"),
    row("cms.query",      -3, READ,         specs::ONE_RO_ACCESS,        Run::Point(count::query)).doc("Returns the count for one or more items in a sketch", O_ITEMS).syntax("key item:string..."),
];

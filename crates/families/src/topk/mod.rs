//! Top-K: the items that come most often, in a list, counted by HeavyKeeper.
//!
//! | file     | holds                                               |
//! |----------|-----------------------------------------------------|
//! | `value`  | the type: its row, its values, how they are changed |
//! | `parts`  | a sketch as items, for files                        |
//! | `create` | TOPK.RESERVE, TOPK.INFO                             |
//! | `long`   | items of megabytes, piece by piece                  |
//! | `add`    | TOPK.ADD, TOPK.INCRBY                               |
//! | `query`  | TOPK.QUERY, TOPK.COUNT, TOPK.LIST                   |
//! | `replay` | TOPK.REPLAY                                         |

mod add;
mod create;
mod long;
mod parts;
mod query;
mod replay;
mod value;

use crate::rows::{GROW, O1, READ, READ_FAST};
use darter_command::{Command, Flags, Group, Keys, PointFn, Refusal, Run, specs};

pub use long::LongItem;
pub use value::{Expelled, TopK, TopKChange, TopKEdit, TopKShape};

const GROUP: Group = Group::Type { name: "topk", category: "@topk" };

const fn row(name: &'static str, arity: i32, flags: Flags, keys: Keys, run: PointFn) -> Command {
    Command::new(name, "2.0.0", arity, flags, keys, GROUP, Run::Point(run))
}

/// Said of a key that is not there.
const MISSING: &str = "TopK: key does not exist";

/// A refusal in RedisBloom's words, which have a code of their own.
fn refuse(line: &'static str) -> Refusal {
    Refusal::line(line)
}

const O_ADD: &str = "O(n * k) where n is the number of items and k is the depth";
const O_INCR: &str =
    "O(n * k * incr) where n is the number of items, k is the depth and incr is the increment";
const O_ITEMS: &str = "O(n) where n is the number of items";
const O_K: &str = "O(k) where k is the value of top-k";

/// The rows of this family.
#[rustfmt::skip] // A table: one row a command, columns aligned.
pub(crate) const TABLE: &[Command] = &[
    //  name          args flags      keys                         run
    row("topk.add",     -3, GROW,      specs::ONE_RW_ACCESS_UPDATE, add::add).doc("Increases the count of one or more items by increment", O_ADD).syntax("key item:string...").elements(),
    row("topk.count",   -3, READ,      specs::ONE_RO_ACCESS,        query::count).doc("Return the count for one or more items are in a sketch", O_ITEMS).syntax("key item:string...").elements(),
    row("topk.incrby",  -4, GROW,      specs::ONE_RW_ACCESS_UPDATE, add::incrby).doc("Increases the count of one or more items by increment", O_INCR).syntax("key (items: item:string increment:integer)...").elements(),
    row("topk.info",     2, READ_FAST, specs::ONE_RO_ACCESS,        create::info).doc("Returns information about a sketch", O1).syntax("key"),
    row("topk.list",    -2, READ,      specs::ONE_RO_ACCESS,        query::list).doc("Return full list of items in Top K list", O_K).syntax("key [WITHCOUNT]"),
    row("topk.query",   -3, READ,      specs::ONE_RO_ACCESS,        query::query).doc("Checks whether one or more items are in a sketch", O_ITEMS).syntax("key item:string...").elements(),
    row("topk.replay",  -3, GROW,      specs::ONE_RW_ACCESS_UPDATE, replay::replay).doc("Repeats recorded changes of a sketch; for files only", O_ITEMS).syntax("key change:string..."),
    row("topk.reserve", -3, GROW,      specs::ONE_RW_INSERT,        create::reserve).doc("Initializes a TopK with specified parameters", O1).syntax("key topk:integer [params: width:integer depth:integer decay:double]"),
];

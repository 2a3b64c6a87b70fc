//! Bloom filters: RedisBloom's commands that begin with BF.
//!
//! | file    | holds                                                       |
//! |---------|-------------------------------------------------------------|
//! | `value` | the type: its row, its values, its editor                    |
//! | `items` | the parts of a filter in files, and the outline of a dump   |
//! | `make`  | BF.RESERVE, and the options of BF.INSERT                    |
//! | `add`   | BF.ADD, BF.MADD, BF.INSERT                                  |
//! | `look`  | BF.EXISTS, BF.MEXISTS, BF.CARD, BF.INFO                     |
//! | `dump`  | BF.SCANDUMP, BF.LOADCHUNK                                   |

mod add;
mod dump;
mod items;
mod look;
mod make;
mod value;

use crate::rows::{GROW, GROW_FAST, O1, READ, READ_FAST, in_group, row};
use darter_command::{Command, Group, Run, specs};

pub use value::{BloomChange, BloomEdit, BloomFilter};

const GROUP: Group = Group::Type { name: "bf", category: "@bloom" };

const O_ITEM: &str = "O(k), where k is the number of hash functions used by the last sub-filter";
const O_ITEMS: &str =
    "O(k * n), where k is the number of hash functions and n is the number of items";
const O_PIECE: &str = "O(n), where n is the size of a piece";

/// The rows of this family.
#[rustfmt::skip] // A table: one row a command, columns aligned.
pub const TABLE: &[Command] = &in_group(GROUP, [
    //  name            since    args flags      keys                 run
    row("bf.add",       "1.0.0",  3, GROW_FAST, specs::ONE_RW_INSERT, Run::Point(add::add)).doc("Add an item to a Bloom filter", O_ITEM).syntax("key item"),
    row("bf.card",      "2.4.4",  2, READ_FAST, specs::ONE_RO_ACCESS, Run::Point(look::card)).doc("Report how many items were added to a Bloom filter", O1).syntax("key"),
    row("bf.exists",    "1.0.0",  3, READ_FAST, specs::ONE_RO_ACCESS, Run::Point(look::exists)).doc("Report whether an item seems to be in a Bloom filter", O_ITEM).syntax("key item"),
    row("bf.info",      "1.0.0", -2, READ_FAST, specs::ONE_RO_ACCESS, Run::Point(look::info)).doc("Report facts about a Bloom filter", O1).syntax("key [single_value: CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION]"),
    row("bf.insert",    "1.0.0", -4, GROW,      specs::ONE_RW_INSERT, Run::Point(add::bf_insert)).doc("Add one or more items to a Bloom filter, which is created as the options say", O_ITEMS).syntax("key [CAPACITY capacity:integer] [ERROR error:double] [EXPANSION expansion:integer] [NOCREATE] [NONSCALING] ITEMS item..."),
    row("bf.loadchunk", "1.0.0",  4, GROW,      specs::ONE_RW_INSERT, Run::Point(dump::loadchunk)).doc("Load a piece of a dumped Bloom filter", O_PIECE).syntax("key iterator:integer data"),
    row("bf.madd",      "1.0.0", -3, GROW,      specs::ONE_RW_INSERT, Run::Point(add::madd)).doc("Add one or more items to a Bloom filter", O_ITEMS).syntax("key item..."),
    row("bf.mexists",   "1.0.0", -3, READ,      specs::ONE_RO_ACCESS, Run::Point(look::mexists)).doc("Report whether items seem to be in a Bloom filter", O_ITEMS).syntax("key item..."),
    row("bf.reserve",   "1.0.0", -4, GROW_FAST, specs::ONE_RW_INSERT, Run::Point(make::reserve)).doc("Create an empty Bloom filter", O1).syntax("key error_rate:double capacity:integer [EXPANSION expansion:integer] [NONSCALING]"),
    row("bf.scandump",  "1.0.0",  3, READ,      specs::ONE_RO_ACCESS, Run::Point(dump::scandump)).doc("Dump a piece of a Bloom filter", O_PIECE).syntax("key iterator:integer"),
]);

//! SORT: the elements of a list, a set or a sorted set in the order of their values, or of the
//! values at other keys.
//!
//! The elements are read from a cut, sorted in slices, and streamed, or stored in one step. The
//! keys that BY and GET construct from elements are read in cuts of all keys, taken at the same
//! instant: see docs/design/0021-sort.md.
//!
//! | file      | holds                                                                   |
//! |-----------|-------------------------------------------------------------------------|
//! | `command` | SORT, SORT_RO: from the request to the reply                            |
//! | `options` | the parsed request; `pattern`: BY and GET; `name`: a long key           |
//! | `source`  | the sorted key; `gather`: reading its elements                          |
//! | `order`   | the comparison; `sorter`: sorting in portions; `numbers`: integers      |
//! | `texts`   | the elements' texts during the sort                                     |
//! | `show`    | the result                                                              |

mod command;
mod gather;
mod numbers;
mod options;
mod order;
mod pattern;
mod show;
mod sorter;
mod source;
mod texts;

use crate::rows::{GROW, READ, range, task};
use darter_command::{Command, Flags, Group, KeyFlags, KeySpec, Keys, Place, Run};

/// Redis puts SORT in the generic group, but not in that group's ACL category.
const GROUP: Group = Group::Type { name: "generic", category: "" };

const PATTERNS: KeySpec = KeySpec::new(Place::Unnamed, KeyFlags::RO_ACCESS).notes("For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort");
const DESTINATION: KeySpec = KeySpec::new(Place::After { word: "STORE", skips: &[("LIMIT", 2), ("GET", 1), ("BY", 1)] }, KeyFlags::OW_UPDATE).notes("For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in the argument array");
const SOURCE: KeySpec = range(1, 1, KeyFlags::RO_ACCESS);

const SORT_KEYS: Keys = Keys(&[SOURCE, PATTERNS, DESTINATION]);
const SORT_RO_KEYS: Keys = Keys(&[SOURCE, PATTERNS]);

const CATEGORIES: &[&str] = &["@set", "@sortedset", "@list", "@dangerous"];

const O_SORT: &str = "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N).";

const SORT: Run = task(|call| Box::pin(command::sort(call)));
const SORT_RO: Run = task(|call| Box::pin(command::sort_ro(call)));

const fn row(
    name: &'static str,
    since: &'static str,
    flags: Flags,
    keys: Keys,
    run: Run,
) -> Command {
    let flags = flags.and(Flags::MOVABLEKEYS);
    Command::new(name, since, -2, flags, keys, GROUP, run).categories(CATEGORIES)
}

/// The rows of this family.
#[rustfmt::skip] // A table: one row a command, columns aligned.
pub(crate) const TABLE: &[Command] = &[
    //  name       since    flags keys          run
    row("sort",    "1.0.0", GROW, SORT_KEYS,    SORT).doc("Sort the elements in a list, set or sorted set", O_SORT).syntax("key [BY pattern:pattern#1] [LIMIT(offset_count: offset:integer count:integer)] [GET pattern:pattern#1...*] [order: ASC | DESC] [ALPHA=sorting] [STORE destination:key#2]"),
    row("sort_ro", "7.0.0", READ, SORT_RO_KEYS, SORT_RO).doc("Sort the elements in a list, set or sorted set. Read-only variant of SORT.", O_SORT).syntax("key [BY pattern:pattern#1] [LIMIT(offset_count: offset:integer count:integer)] [GET pattern:pattern#1...*] [order: ASC | DESC] [ALPHA=sorting]"),
];

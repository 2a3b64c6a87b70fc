//! Streams: entries in the order of their IDs, added behind all others.
//!
//! | file    | holds                                                             |
//! |---------|-------------------------------------------------------------------|
//! | `value` | the type: its row, its values, how they are changed               |
//! | `items` | its entries as items; `group_items`: its consumer groups          |
//! | `id`    | IDs as arguments and in replies                                   |
//! | `add`   | XADD; `trim`: XTRIM; `edit`: XDEL, XSETID                         |
//! | `read`  | XLEN, XRANGE, XREVRANGE; `xread`: XREAD                           |
//! | `info`  | XINFO                                                             |
//! | `reply` | how entries are shown, in slices if there are many, or long ones  |

mod add;
mod edit;
mod group_items;
mod id;
mod info;
mod items;
mod read;
mod reply;
mod trim;
mod value;
mod xread;

pub use value::{State, Stream, StreamChange, StreamEdit};

use crate::rows::{GROW_FAST, O1, RANDOM, READ, READ_FAST, WRITE_FAST, range};
use darter_command::{Command, Flags, Group, KeyFlags, KeySpec, Keys, Place, Run, specs};

const GROUP: Group = Group::Type { name: "stream", category: "@stream" };

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

const HELP: Flags = Flags::LOADING.and(Flags::STALE);
const READ_MANY: Flags = READ.and(Flags::BLOCKING).and(Flags::MOVABLEKEYS);

const XADD_KEYS: Keys = Keys(&[range(1, 1, KeyFlags::RW_UPDATE)
    .notes("UPDATE instead of INSERT because of the optional trimming feature")]);
const STREAMS: Keys =
    Keys(&[KeySpec::new(Place::HalfAfter { word: "STREAMS", from: 1 }, KeyFlags::RO_ACCESS)]);
const SUB_RO_ACCESS: Keys = Keys(&[range(2, 2, KeyFlags::RO_ACCESS)]);

const XREAD: Run =
    Run::Multi { here: Some(xread::here), anywhere: |call| Box::pin(xread::anywhere(call)) };

const O_ADD: &str =
    "O(1) when adding a new entry, O(N) when trimming where N being the number of entries evicted.";
const O_DEL: &str =
    "O(1) for each single item to delete in the stream, regardless of the stream size.";
const O_RANGE: &str = "O(N) with N being the number of elements being returned. If N is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1).";
const O_REVRANGE: &str = "O(N) with N being the number of elements returned. If N is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1).";
const O_READ: &str = "For each stream mentioned: O(N) with N being the number of elements being returned, it means that XREAD-ing with a fixed COUNT is O(1). Note that when the BLOCK option is used, XADD will pay O(M) time in order to serve the M clients blocked on the stream getting new data.";
const O_TRIM: &str = "O(N), with N being the number of evicted entries. Constant times are very small however, since entries are organized in macro nodes containing multiple entries that can be released with a single deallocation.";

/// The rows of this family.
#[rustfmt::skip] // A table: one row a command, columns aligned.
pub const TABLE: &[Command] = &[
    //  name         since   args flags       keys                  run
    row("xadd",      "5.0.0", -5, GROW_FAST,  XADD_KEYS,            Run::Point(add::xadd)).doc("Appends a new entry to a stream", O_ADD).tips(RANDOM).syntax("key [NOMKSTREAM]@6.2.0 [trim: (strategy: MAXLEN | MINID@6.2.0) [operator: ==equal | ~=approximately] threshold [LIMIT count:integer]@6.2.0] (id_or_auto: *=auto_id | id) (field_value: field value)...").history(&[("6.2.0", "Added the `NOMKSTREAM` option, `MINID` trimming strategy and the `LIMIT` option."), ("7.0.0", "Added support for the `<ms>-*` explicit ID form.")]),
    row("xdel",      "5.0.0", -3, WRITE_FAST, specs::ONE_RW_DELETE, Run::Point(edit::xdel)).doc("Removes the specified entries from the stream. Returns the number of items actually deleted, that may be different from the number of IDs passed in case certain IDs do not exist.", O_DEL).syntax("key id..."),
    row("xinfo",     "5.0.0", -2, Flags::NONE, Keys::NONE,          Run::Server).doc("A container for stream introspection commands", "Depends on subcommand."),
    row("xinfo|help", "5.0.0", 2, HELP,       Keys::NONE,           Run::Point(info::help)).doc("Show helpful text about the different subcommands", O1),
    row("xinfo|stream", "5.0.0", -3, READ,    SUB_RO_ACCESS,        Run::Point(info::stream)).doc("Get information about a stream", O1).syntax("key [FULL(full: [COUNT count:integer])]").history(&[("6.0.0", "Added the `FULL` modifier."), ("7.0.0", "Added the `max-deleted-entry-id`, `entries-added`, `recorded-first-entry-id`, `entries-read` and `lag` fields")]),
    row("xlen",      "5.0.0",  2, READ_FAST,  specs::ONE_RO,        Run::Point(read::xlen)).doc("Return the number of entries in a stream", O1).syntax("key"),
    row("xrange",    "5.0.0", -4, READ,       specs::ONE_RO_ACCESS, Run::Point(read::xrange)).doc("Return a range of elements in a stream, with IDs matching the specified IDs interval", O_RANGE).syntax("key start end [COUNT count:integer]").history(&[("6.2.0", "Added exclusive ranges.")]),
    row("xread",     "5.0.0", -4, READ_MANY,  STREAMS,              XREAD).doc("Return never seen elements in multiple streams, with IDs greater than the ones reported by the caller for each stream. Can block.", O_READ).syntax("[COUNT count:integer] [BLOCK milliseconds:integer] STREAMS(streams: key... id...)"),
    row("xrevrange", "5.0.0", -4, READ,       specs::ONE_RO_ACCESS, Run::Point(read::xrevrange)).doc("Return a range of elements in a stream, with IDs matching the specified IDs interval, in reverse order (from greater to smaller IDs) compared to XRANGE", O_REVRANGE).syntax("key end start [COUNT count:integer]").history(&[("6.2.0", "Added exclusive ranges.")]),
    row("xsetid",    "5.0.0", -3, GROW_FAST,  specs::ONE_RW_UPDATE, Run::Point(edit::xsetid)).doc("An internal command for replicating stream values", O1).syntax("key last-id [ENTRIESADDED entries_added:integer]@7.0.0 [MAXDELETEDID max_deleted_entry_id]@7.0.0").history(&[("7.0.0", "Added the `entries_added` and `max_deleted_entry_id` arguments.")]),
    row("xtrim",     "5.0.0", -4, Flags::WRITE, specs::ONE_RW_DELETE, Run::Point(trim::xtrim)).doc("Trims the stream to (approximately if '~' is passed) a certain size", O_TRIM).tips(RANDOM).syntax("key (trim: (strategy: MAXLEN | MINID@6.2.0) [operator: ==equal | ~=approximately] threshold [LIMIT count:integer]@6.2.0)").history(&[("6.2.0", "Added the `MINID` trimming strategy and the `LIMIT` option.")]),
];

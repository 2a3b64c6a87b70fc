//! Streams: entries in the order of their IDs, appended at the end.
//!
//! | file    | holds                                                             |
//! |---------|-------------------------------------------------------------------|
//! | `value` | the type: its row, its values, its editor                         |
//! | `items` | its entries as items; `group_items`: its consumer groups          |
//! | `id`    | IDs as arguments and in replies, names of groups as arguments      |
//! | `add`   | XADD; `trim`: XTRIM; `edit`: XDEL, XSETID                         |
//! | `idempotent` | IDMP and IDMPAUTO of XADD; XCFGSET                           |
//! | `read`  | XLEN, XRANGE, XREVRANGE; `xread`: XREAD                           |
//! | `info`  | XINFO STREAM; `group_info`: XINFO GROUPS and CONSUMERS, and FULL  |
//! | `group_edit` | changes of groups; `work`: changes longer than a slice            |
//! | `xgroup` | XGROUP; `progress`: counts of read and unread entries            |
//! | `xreadgroup` | XREADGROUP; `rows`: entries by ID in replies                 |
//! | `xack`, `xpending`, `xclaim` | XACK, XNACK; XPENDING; XCLAIM, XAUTOCLAIM    |
//! | `delete` | XDELEX, XACKDEL; `refs`: pending references to deleted entries    |
//! | `reply` | replies of entries, in slices if they are many or long            |

mod add;
mod delete;
mod edit;
mod group_edit;
mod group_info;
mod group_items;
mod id;
mod idempotent;
mod info;
mod items;
mod progress;
mod read;
mod refs;
mod reply;
mod rows;
mod trim;
mod value;
mod work;
mod xack;
mod xclaim;
mod xgroup;
mod xpending;
mod xread;
mod xreadgroup;

pub use group_edit::GroupChange;
pub use idempotent::{Limits, Message};
pub use value::{State, Stream, StreamChange, StreamEdit};

use crate::rows::{
    GROW, GROW_FAST, O1, RANDOM, READ, READ_FAST, WRITE_FAST, both, in_group, range, row,
};
use darter_command::{Command, Flags, Group, KeyFlags, KeySpec, Keys, Place, Run, specs};

const GROUP: Group = Group::Type { name: "stream", category: "@stream" };

const HELP: Flags = Flags::LOADING.and(Flags::STALE);
const READ_MANY: Flags = READ.and(Flags::BLOCKING).and(Flags::MOVABLEKEYS);

const XADD_KEYS: Keys = Keys(&[range(1, 1, KeyFlags::RW_UPDATE)
    .notes("UPDATE instead of INSERT because of the optional trimming feature")]);
const STREAMS: Keys =
    Keys(&[KeySpec::new(Place::HalfAfter { word: "STREAMS", from: 1 }, KeyFlags::RO_ACCESS)]);
const SUB_RO_ACCESS: Keys = Keys(&[range(2, 2, KeyFlags::RO_ACCESS)]);

const XREAD: Run = both(xread::here, |call| Box::pin(xread::anywhere(call)));

const SUB_RW_DELETE: Keys = Keys(&[range(2, 2, KeyFlags::RW_DELETE)]);
const SUB_RW_INSERT: Keys = Keys(&[range(2, 2, KeyFlags::RW_INSERT)]);
const SUB_RW_UPDATE: Keys = Keys(&[range(2, 2, KeyFlags::RW_UPDATE)]);
const GROUP_STREAMS: Keys =
    Keys(&[KeySpec::new(Place::HalfAfter { word: "STREAMS", from: 4 }, KeyFlags::RO_ACCESS)]);
const READ_GROUP: Flags = Flags::WRITE.and(Flags::BLOCKING).and(Flags::MOVABLEKEYS);

const XREADGROUP: Run = both(xreadgroup::here, |call| Box::pin(xreadgroup::anywhere(call)));

const O_ACK: &str = "O(1) for each message ID processed.";
const O_AUTOCLAIM: &str = "O(1) if COUNT is small.";
const O_CLAIM: &str =
    "O(log N) with N being the number of messages in the PEL of the consumer group.";
const O_DESTROY: &str =
    "O(N) where N is the number of entries in the group's pending entries list (PEL).";
const O_PENDING: &str = "O(N) with N being the number of elements returned, so asking for a small fixed number of entries per call is O(1). O(M), where M is the total number of entries scanned when used with the IDLE filter. When the command returns just the summary and the list of consumers is small, it runs in O(1) time; otherwise, an additional O(N) time for iterating every consumer.";
const O_READGROUP: &str = "For each stream mentioned: O(M) with M being the number of elements returned. If M is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1). On the other side when XREADGROUP blocks, XADD will pay the O(N) time in order to serve the N clients blocked on the stream getting new data.";
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
pub const TABLE: &[Command] = &in_group(GROUP, [
    //  name         since   args flags       keys                  run
    row("xack",      "5.0.0", -4, WRITE_FAST, specs::ONE_RW_UPDATE, Run::Point(xack::xack)).doc("Marks a pending message as correctly processed, effectively removing it from the pending entries list of the consumer group. Return value of the command is the number of messages successfully acknowledged, that is, the IDs we were actually able to resolve in the PEL.", O_ACK).syntax("key group id..."),
    row("xackdel",   "8.2.0", -6, WRITE_FAST, specs::ONE_RW_UPDATE_DELETE, Run::Point(delete::xackdel)).doc("Acknowledges and conditionally deletes entries for a consumer group.", O_ACK).syntax("key group [condition: KEEPREF | DELREF | ACKED] IDS(ids: numids:integer id...)"),
    row("xadd",      "5.0.0", -5, GROW_FAST,  XADD_KEYS,            Run::Point(add::xadd)).doc("Appends a new entry to a stream", O_ADD).tips(RANDOM).syntax("key [NOMKSTREAM]@6.2.0 [trim: (strategy: MAXLEN | MINID@6.2.0) [operator: ==equal | ~=approximately] threshold [LIMIT count:integer]@6.2.0] (id_or_auto: *=auto_id | id) (field_value: field value)...").history(&[("6.2.0", "Added the `NOMKSTREAM` option, `MINID` trimming strategy and the `LIMIT` option."), ("7.0.0", "Added support for the `<ms>-*` explicit ID form.")]),
    row("xautoclaim", "6.2.0", -6, WRITE_FAST, specs::ONE_RW_DELETE, Run::Point(xclaim::xautoclaim)).doc("Changes (or acquires) ownership of messages in a consumer group, as if the messages were delivered to the specified consumer.", O_AUTOCLAIM).tips(RANDOM).syntax("key group consumer min-idle-time start [COUNT count:integer] [JUSTID]").history(&[("7.0.0", "Added an element to the reply array, containing deleted entries the command cleared from the PEL")]),
    row("xcfgset",   "8.6.0", -2, WRITE_FAST, specs::ONE_RW_UPDATE, Run::Point(idempotent::xcfgset)).doc("Sets how long a stream remembers its producers' messages, and how many of each.", O1).syntax("key [IDMP-DURATION duration:integer] [IDMP-MAXSIZE maxsize:integer]"),
    row("xclaim",    "5.0.0", -6, WRITE_FAST, specs::ONE_RW_UPDATE, Run::Point(xclaim::xclaim)).doc("Changes (or acquires) ownership of a message in a consumer group, as if the message was delivered to the specified consumer.", O_CLAIM).tips(RANDOM).syntax("key group consumer min-idle-time id... [IDLE ms:integer] [TIME unix-time-milliseconds:unix-time] [RETRYCOUNT count:integer] [FORCE] [JUSTID] [LASTID id]"),
    row("xdel",      "5.0.0", -3, WRITE_FAST, specs::ONE_RW_DELETE, Run::Point(edit::xdel)).doc("Removes the specified entries from the stream. Returns the number of items actually deleted, that may be different from the number of IDs passed in case certain IDs do not exist.", O_DEL).syntax("key id..."),
    row("xdelex",    "8.2.0", -5, WRITE_FAST, specs::ONE_RW_DELETE, Run::Point(delete::xdelex)).doc("Deletes entries from the stream, and says what becomes of what is pending of them.", O_DEL).syntax("key [condition: KEEPREF | DELREF | ACKED] IDS(ids: numids:integer id...)"),
    row("xgroup",    "5.0.0", -2, Flags::NONE, Keys::NONE,          Run::Server).doc("A container for consumer groups commands", "Depends on subcommand."),
    row("xgroup|create", "5.0.0", -5, GROW,   SUB_RW_INSERT,        Run::Point(xgroup::create)).doc("Create a consumer group.", O1).syntax("key groupname (id: id | $=new_id) [MKSTREAM] [ENTRIESREAD entries_read:integer]").history(&[("7.0.0", "Added the `entries_read` named argument.")]),
    row("xgroup|createconsumer", "6.2.0", 5, GROW, SUB_RW_INSERT,   Run::Point(xgroup::create_consumer)).doc("Create a consumer in a consumer group.", O1).syntax("key groupname consumername"),
    row("xgroup|delconsumer", "5.0.0", 5, Flags::WRITE, SUB_RW_DELETE, Run::Point(xgroup::delete_consumer)).doc("Delete a consumer from a consumer group.", O1).syntax("key groupname consumername"),
    row("xgroup|destroy", "5.0.0", 4, Flags::WRITE, SUB_RW_DELETE,  Run::Point(xgroup::destroy)).doc("Destroy a consumer group.", O_DESTROY).syntax("key groupname"),
    row("xgroup|help", "5.0.0", 2, HELP,      Keys::NONE,           Run::Point(xgroup::help)).doc("Show helpful text about the different subcommands", O1),
    row("xgroup|setid", "5.0.0", -5, Flags::WRITE, SUB_RW_UPDATE,   Run::Point(xgroup::set_id)).doc("Set a consumer group to an arbitrary last delivered ID value.", O1).syntax("key groupname (id: id | $=new_id) [ENTRIESREAD entries_read:integer]").history(&[("7.0.0", "Added the optional `entries_read` argument.")]),
    row("xinfo",     "5.0.0", -2, Flags::NONE, Keys::NONE,          Run::Server).doc("A container for stream introspection commands", "Depends on subcommand."),
    row("xinfo|consumers", "5.0.0", 4, READ,  SUB_RO_ACCESS,        Run::Point(group_info::consumers)).doc("List the consumers in a consumer group", O1).tips(RANDOM).syntax("key groupname"),
    row("xinfo|groups", "5.0.0", 3, READ,     SUB_RO_ACCESS,        Run::Point(group_info::groups)).doc("List the consumer groups of a stream", O1).syntax("key").history(&[("7.0.0", "Added the `entries-read` and `lag` fields")]),
    row("xinfo|help", "5.0.0", 2, HELP,       Keys::NONE,           Run::Point(info::help)).doc("Show helpful text about the different subcommands", O1),
    row("xinfo|stream", "5.0.0", -3, READ,    SUB_RO_ACCESS,        Run::Point(info::stream)).doc("Get information about a stream", O1).syntax("key [FULL(full: [COUNT count:integer])]").history(&[("6.0.0", "Added the `FULL` modifier."), ("7.0.0", "Added the `max-deleted-entry-id`, `entries-added`, `recorded-first-entry-id`, `entries-read` and `lag` fields")]),
    row("xlen",      "5.0.0",  2, READ_FAST,  specs::ONE_RO,        Run::Point(read::xlen)).doc("Return the number of entries in a stream", O1).syntax("key"),
    row("xnack",     "8.8.0", -7, WRITE_FAST, specs::ONE_RW_UPDATE, Run::Point(xack::xnack)).doc("Releases pending entries, so that other consumers can claim them at once.", O_ACK).syntax("key group (mode: SILENT | FAIL | FATAL) IDS(ids: numids:integer id...) [RETRYCOUNT count:integer] [FORCE]"),
    row("xpending",  "5.0.0", -3, READ,       specs::ONE_RO_ACCESS, Run::Point(xpending::xpending)).doc("Return information and entries from a stream consumer group pending entries list, that are messages fetched but never acknowledged.", O_PENDING).tips(RANDOM).syntax("key group [filters: [IDLE min-idle-time:integer]@6.2.0 start end count:integer [consumer]]").history(&[("6.2.0", "Added the `IDLE` option and exclusive range intervals.")]),
    row("xrange",    "5.0.0", -4, READ,       specs::ONE_RO_ACCESS, Run::Point(read::xrange)).doc("Return a range of elements in a stream, with IDs matching the specified IDs interval", O_RANGE).syntax("key start end [COUNT count:integer]").history(&[("6.2.0", "Added exclusive ranges.")]),
    row("xread",     "5.0.0", -4, READ_MANY,  STREAMS,              XREAD).doc("Return never seen elements in multiple streams, with IDs greater than the ones reported by the caller for each stream. Can block.", O_READ).syntax("[COUNT count:integer] [BLOCK milliseconds:integer] STREAMS(streams: key... id...)").waits(xread::wait),
    row("xreadgroup", "5.0.0", -7, READ_GROUP, GROUP_STREAMS,       XREADGROUP).doc("Return new entries from a stream using a consumer group, or access the history of the pending entries for a given consumer. Can block.", O_READGROUP).syntax("GROUP(group_consumer: group consumer) [COUNT count:integer] [BLOCK milliseconds:integer] [NOACK] STREAMS(streams: key... id...)").waits(xreadgroup::wait),
    row("xrevrange", "5.0.0", -4, READ,       specs::ONE_RO_ACCESS, Run::Point(read::xrevrange)).doc("Return a range of elements in a stream, with IDs matching the specified IDs interval, in reverse order (from greater to smaller IDs) compared to XRANGE", O_REVRANGE).syntax("key end start [COUNT count:integer]").history(&[("6.2.0", "Added exclusive ranges.")]),
    row("xsetid",    "5.0.0", -3, GROW_FAST,  specs::ONE_RW_UPDATE, Run::Point(edit::xsetid)).doc("An internal command for replicating stream values", O1).syntax("key last-id [ENTRIESADDED entries_added:integer]@7.0.0 [MAXDELETEDID max_deleted_entry_id]@7.0.0").history(&[("7.0.0", "Added the `entries_added` and `max_deleted_entry_id` arguments.")]),
    row("xtrim",     "5.0.0", -4, Flags::WRITE, specs::ONE_RW_DELETE, Run::Point(trim::xtrim)).doc("Trims the stream to (approximately if '~' is passed) a certain size", O_TRIM).tips(RANDOM).syntax("key (trim: (strategy: MAXLEN | MINID@6.2.0) [operator: ==equal | ~=approximately] threshold [LIMIT count:integer]@6.2.0)").history(&[("6.2.0", "Added the `MINID` trimming strategy and the `LIMIT` option.")]),
]);

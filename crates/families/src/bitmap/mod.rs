//! Bitmaps: strings as bits, and as integers of up to 64 bits anywhere among them.
//!
//! They have no type of their own: a bitmap is a string, in chunks when it is long. A command that
//! looks at a whole bitmap is a stream from a cut; one that combines several builds the result in
//! chunks, on all cores.
//!
//! | file       | holds                                                                  |
//! |------------|------------------------------------------------------------------------|
//! | `bit`      | SETBIT, GETBIT; `edit`: changes in place                               |
//! | `count`    | BITCOUNT; `position`: BITPOS; `range`: the bits that these look at     |
//! | `combine`  | BITOP; `build`: its result, in chunks                                  |
//! | `field`    | BITFIELD, BITFIELD_RO; `integer`: one integer, and what does not fit   |
//! | `fuzz`     | the fuzz target of BITFIELD                                            |

mod bit;
mod build;
mod combine;
mod count;
mod edit;
mod field;
mod fuzz;
mod integer;
mod position;
mod range;

pub use fuzz::fuzz_bitfield;

use crate::rows::{GROW, O1, READ, READ_FAST, in_group, range, row, task};
use darter_command::{Command, Group, KeyFlags, Keys, Run, specs};

/// BITOP: the destination, and the sources.
const BITOP_KEYS: Keys =
    Keys(&[range(2, 2, KeyFlags::OW_UPDATE), range(3, -1, KeyFlags::RO_ACCESS)]);
/// BITFIELD: its use of the key depends on its operations.
const BITFIELD_KEYS: Keys =
    Keys(&[range(1, 1, KeyFlags(&["RW", "access", "update", "variable_flags"]))
        .notes("This command allows both access and modification of the key")]);

const GROUP: Group = Group::Type { name: "bitmap", category: "@bitmap" };

const O_N: &str = "O(N)";
const O_FIELD: &str = "O(1) for each subcommand specified";
const UNITS: &[(&str, &str)] = &[("7.0.0", "Added the `BYTE|BIT` option.")];

/// Never run as a point command: that would keep the sources locked during the build.
const BITOP: Run = task(|call| Box::pin(combine::bitop(call)));

/// The rows of this family.
#[rustfmt::skip] // A table: one row a command, columns aligned.
pub(crate) const TABLE: &[Command] = &in_group(GROUP, [
    //  name           since    args flags      keys                         run
    row("bitcount",    "2.6.0", -2, READ,       specs::ONE_RO_ACCESS,        Run::Point(count::bitcount)).doc("Count set bits in a string", O_N).syntax("key [index: start:integer end:integer [index_unit: BYTE | BIT]@7.0.0]").history(UNITS),
    row("bitfield",    "3.2.0", -2, GROW,       BITFIELD_KEYS,               Run::Point(field::bitfield)).doc("Perform arbitrary bitfield integer operations on strings", O_FIELD).key_flags(field::flags_of).syntax("key [operation: GET(encoding_offset: encoding offset:integer) | (write: [OVERFLOW(wrap_sat_fail: WRAP | SAT | FAIL)] (write_operation: SET(encoding_offset_value: encoding offset:integer value:integer) | INCRBY(encoding_offset_increment: encoding offset:integer increment:integer)))]..."),
    row("bitfield_ro", "6.0.0", -2, READ_FAST,  specs::ONE_RO_ACCESS,        Run::Point(field::bitfield_ro)).doc("Perform arbitrary bitfield integer operations on strings. Read-only variant of BITFIELD", O_FIELD).syntax("key [GET(encoding_offset: encoding offset:integer)]...*"),
    row("bitop",       "2.6.0", -4, GROW,       BITOP_KEYS,                  BITOP).doc("Perform bitwise operations between strings", O_N).syntax("operation destkey:key key..."),
    row("bitpos",      "2.8.7", -3, READ,       specs::ONE_RO_ACCESS,        Run::Point(position::bitpos)).doc("Find first bit set or clear in a string", O_N).syntax("key bit:integer [index: start:integer [end_index: end:integer [index_unit: BYTE | BIT]@7.0.0]]").history(UNITS),
    row("getbit",      "2.2.0",  3, READ_FAST,  specs::ONE_RO_ACCESS,        Run::Point(bit::getbit)).doc("Returns the bit value at offset in the string value stored at key", O1).syntax("key offset:integer"),
    row("setbit",      "2.2.0",  4, GROW,       specs::ONE_RW_ACCESS_UPDATE, Run::Point(bit::setbit)).doc("Sets or clears the bit at offset in the string value stored at key", O1).syntax("key offset:integer value:integer"),
]);

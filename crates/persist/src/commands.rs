//! `DUMP` and `RESTORE`: the commands whose bytes are payloads.

mod dump;
mod restore;

pub use dump::{Sizer, dump, sizer};
pub use restore::restore_as;

use darter_command::{Command, Flags, Group, Run, specs};

/// The command table rows of `DUMP` and `RESTORE`.
#[rustfmt::skip] // A table.
pub const TABLE: &[Command] = &[
    Command::new("dump", "2.6.0", 2, Flags::READONLY, specs::ONE_RO_ACCESS, Group::Generic, Run::Point(dump::dump))
        .tips(&["nondeterministic_output"])
        .syntax("key")
        .doc("Return a serialized version of the value stored at the specified key.",
             "O(1) to access the key and additional O(N*M) to serialize it, where N is the number of Redis objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1)."),
    Command::new("restore", "2.6.0", -4, Flags::WRITE.and(Flags::DENYOOM), specs::ONE_OW_UPDATE, Group::Generic, Run::Point(restore::restore))
        .categories(&["@dangerous"])
        .syntax("key ttl:integer serialized-value [REPLACE]@3.0.0 [ABSTTL]@5.0.0 [IDLETIME seconds:integer]@5.0.0 [FREQ frequency:integer]@5.0.0")
        .history(&[("3.0.0", "Added the `REPLACE` modifier."), ("5.0.0", "Added the `ABSTTL` modifier."), ("5.0.0", "Added the `IDLETIME` and `FREQ` options.")])
        .doc("Create a key using the provided serialized value, previously obtained using DUMP.",
             "O(1) to create the new key and additional O(N*M) to reconstruct the serialized value, where N is the number of Redis objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1). However for sorted set values the complexity is O(N*M*log(N)) because inserting values into sorted sets is O(log(N))."),
];

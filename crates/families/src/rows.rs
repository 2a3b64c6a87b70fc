//! Shared vocabulary of the tables of commands.

use darter_command::{Flags, KeyFlags, KeySpec, Place};

pub(crate) const READ: Flags = Flags::READONLY;
pub(crate) const READ_FAST: Flags = READ.and(Flags::FAST);
pub(crate) const WRITE_FAST: Flags = Flags::WRITE.and(Flags::FAST);
/// Blocking writes, which scripts may not call.
pub(crate) const BLOCKING: Flags = Flags::WRITE.and(Flags::NOSCRIPT).and(Flags::BLOCKING);
/// Writes that need memory: refused beyond `maxmemory`.
pub(crate) const GROW: Flags = Flags::WRITE.and(Flags::DENYOOM);
pub(crate) const GROW_FAST: Flags = GROW.and(Flags::FAST);

/// Tips of `COMMAND INFO`: the order of the reply is unspecified; or the reply is random.
pub(crate) const UNORDERED: &[&str] = &["nondeterministic_output_order"];
pub(crate) const RANDOM: &[&str] = &["nondeterministic_output"];

pub(crate) const O1: &str = "O(1)";
/// The complexity of HSCAN and SSCAN, including Redis's doubled full stop.
pub(crate) const O_SCAN: &str = "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection..";

/// The keys in arguments `first` to `last`; a negative `last` counts from the end.
pub(crate) const fn range(first: usize, last: isize, flags: KeyFlags) -> KeySpec {
    KeySpec::new(Place::Range { first, last, step: 1 }, flags)
}

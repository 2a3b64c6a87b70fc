//! Shared vocabulary of the tables of commands.

use darter_command::{
    Command, Flags, Group, KeyFlags, KeySpec, Keys, MultiFn, Place, PointFn, Run,
};

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

/// A row of a table. Its group is "generic" until [`in_group`] sets it.
pub(crate) const fn row(
    name: &'static str,
    since: &'static str,
    arity: i32,
    flags: Flags,
    keys: Keys,
    run: Run,
) -> Command {
    Command::new(name, since, arity, flags, keys, Group::Generic, run)
}

/// A row of a command that runs on the core of its key.
pub(crate) const fn point(
    name: &'static str,
    since: &'static str,
    arity: i32,
    flags: Flags,
    keys: Keys,
    run: PointFn,
) -> Command {
    row(name, since, arity, flags, keys, Run::Point(run))
}

/// A command over several keys: run by `here` if one core holds them all, by `anywhere` otherwise.
pub(crate) const fn both(here: PointFn, anywhere: MultiFn) -> Run {
    Run::Multi { here: Some(here), anywhere }
}

/// A command that is always a task: a point command would keep its sources locked during the build of
/// its result, and could not use keys that the request does not name.
pub(crate) const fn task(anywhere: MultiFn) -> Run {
    Run::Multi { here: None, anywhere }
}

/// The rows of a group's table.
pub(crate) const fn in_group<const N: usize>(group: Group, mut rows: [Command; N]) -> [Command; N] {
    let mut at = 0;
    while at < N {
        rows[at].group = group;
        at += 1;
    }
    rows
}

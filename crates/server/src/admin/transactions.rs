//! The rows of MULTI, EXEC, DISCARD, WATCH and UNWATCH. Their functions are in
//! `engine::transaction`.

use super::syntax;
use crate::engine::{Runner, Verb};
use darter_command::{Command, Flags, Group, Keys, Run, specs};

const OPEN: Flags = Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE).and(Flags::AT_ONCE);
const QUICK: Flags = OPEN.and(Flags::FAST).and(Flags::ALLOW_BUSY);
/// Flags of commands that MULTI queues, and that have no effect in EXEC.
const QUEUED: Flags =
    Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE).and(Flags::FAST).and(Flags::ALLOW_BUSY);

const fn row(
    (name, since, arity): (&'static str, &'static str, i32),
    flags: Flags,
    keys: Keys,
    verb: Verb,
    doc: (&'static str, &'static str),
) -> (Command, Runner) {
    let row = Command::new(name, since, arity, flags, keys, Group::Transactions, Run::Server);
    (row.doc(doc.0, doc.1), Runner::Transaction(verb))
}

#[rustfmt::skip] // A table.
pub(super) const TABLE: &[(Command, Runner)] = &[
    row(("multi",   "1.2.0", 1), QUICK, Keys::NONE, Verb::Multi, ("Mark the start of a transaction block", "O(1)")),
    row(("exec",    "1.2.0", 1), OPEN.and(Flags::SKIP_SLOWLOG), Keys::NONE, Verb::Exec, ("Execute all commands issued after MULTI", "Depends on commands in the transaction")),
    row(("discard", "2.0.0", 1), QUICK, Keys::NONE, Verb::Discard, ("Discard all commands issued after MULTI", "O(N), when N is the number of queued commands")),
    syntax(row(("watch", "2.2.0", -2), QUICK, specs::ALL_RO, Verb::Watch, ("Watch the given keys to determine execution of the MULTI/EXEC block", "O(1) for every key.")), "key..."),
    row(("unwatch", "2.2.0", 1), QUEUED, Keys::NONE, Verb::Unwatch, ("Forget about all watched keys", "O(1)")),
];

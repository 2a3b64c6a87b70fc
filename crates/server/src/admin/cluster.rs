//! CLUSTER, ASKING, READONLY and READWRITE: refused with the error of a redis-server without
//! cluster mode, because clients recognize that text.

use super::now;
use crate::engine::{Runner, SessionCx, unknown_subcommand};
use darter_command::{Args, Command, Flags, Group, Refusal};

const QUICK: Flags = Flags::LOADING.and(Flags::STALE).and(Flags::FAST);

#[rustfmt::skip] // A table.
pub(super) const TABLE: &[(Command, Runner)] = &[
    now("cluster",   "3.0.0", -2, Flags::NONE, Group::Cluster, cluster, ("A container for cluster commands", "Depends on subcommand.")),
    now("asking",    "3.0.0", 1,  Flags::FAST, Group::Cluster, refuse,  ("Sent by cluster clients after an -ASK redirect", "O(1)")),
    now("readonly",  "3.0.0", 1,  QUICK,       Group::Cluster, refuse,  ("Enables read queries for a connection to a cluster replica node", "O(1)")),
    now("readwrite", "3.0.0", 1,  QUICK,       Group::Cluster, refuse,  ("Disables read queries for a connection to a cluster replica node", "O(1)")),
];

#[rustfmt::skip] // A table.
const SUBCOMMANDS: &[&[u8]] = &[
    b"addslots", b"addslotsrange", b"bumpepoch", b"count-failure-reports", b"countkeysinslot",
    b"delslots", b"delslotsrange", b"failover", b"flushslots", b"forget", b"getkeysinslot", b"help",
    b"info", b"keyslot", b"links", b"meet", b"myid", b"nodes", b"replicas", b"replicate", b"reset",
    b"saveconfig", b"set-config-epoch", b"setslot", b"shards", b"slaves", b"slots",
];

fn cluster(cx: &mut SessionCx<'_>, mut args: Args<'_>) -> Result<(), Refusal> {
    let word = args.word()?;
    if SUBCOMMANDS.iter().any(|known| known.eq_ignore_ascii_case(word)) {
        return refuse(cx, args);
    }
    Err(unknown_subcommand("cluster", word))
}

fn refuse(_: &mut SessionCx<'_>, _: Args<'_>) -> Result<(), Refusal> {
    Err(Refusal::line("ERR This instance has cluster support disabled"))
}

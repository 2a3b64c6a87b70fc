//! The core that owns the keys of a request, and the flags of a request.

use super::super::core::Core;
use super::super::entry::{Entry, Runner, Scripted};
use super::super::point::Owner;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::Flags;
use darter_resp::Args;
use darter_script::Flags as Said;
use darter_tx::Tx;

/// The core, or the cores, that own the keys of a request.
pub(crate) fn owner_of(tx: &Tx, entry: &Entry, args: Args<'_>) -> Owner {
    let mut home = Owner::None;
    let mut count = 0;
    for at in entry.row.keys.positions(args) {
        count += 1;
        if count > ENTRIES_AT_ONCE {
            return Owner::Many;
        }
        let core = args.owner(at, tx.cores());
        match home {
            Owner::One(other) if other != core => return Owner::Many,
            _ => home = Owner::One(core),
        }
    }
    // A malformed request without keys can run on any core: its function refuses it.
    match home {
        Owner::None if !entry.row.keys.0.is_empty() => Owner::One(tx.core()),
        home => home,
    }
}

/// The flags of a request. For a script, they include those that the script declares.
pub(crate) fn own_flags(core: &Core, entry: &Entry, args: Args<'_>) -> Flags {
    match entry.run {
        Runner::Script(script) if entry.row.accepts(args.len()) => {
            script_flags(core, entry.row.flags, script, args)
        }
        _ => entry.row.flags,
    }
}

/// The flags of a request that runs a script: the flags that the script declares replace those of
/// the command.
fn script_flags(core: &Core, own: Flags, script: Scripted, args: Args<'_>) -> Flags {
    let Some(declared) = (script.declared)(core, args) else { return own };
    let own = own.without(Flags::STALE | Flags::DENYOOM | Flags::WRITE | Flags::MAY_REPLICATE);
    let writes = !declared.has(Said::NO_WRITES);
    let with = |is: bool, flag| if is { flag } else { Flags::NONE };
    own | with(writes, Flags::WRITE)
        | with(writes && !declared.has(Said::ALLOW_OOM), Flags::DENYOOM)
        | with(declared.has(Said::ALLOW_STALE), Flags::STALE)
}

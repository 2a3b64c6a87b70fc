//! Scripts that run for longer than `busy-reply-threshold`: commands of other clients on their keys
//! get the error `BUSY`.
//!
//! In Redis all clients get `BUSY` then. Here only commands that wait for keys of the script get
//! it, whether they wait already or not: single commands, EXEC, other scripts and snapshots.

use super::super::core::Core;
use super::machines::{Current, Kind};
use darter_command::Refusal;
use darter_tx::{CoreId, Tx};
use std::rc::Rc;

const NS_PER_MS: u64 = 1_000_000;

const SCRIPT: &str =
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
const FUNCTION: &str =
    "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.";

/// The cores that answer `BUSY` to commands on the keys of a run.
#[derive(Default)]
pub(super) struct Refusing {
    /// The cores that were told to answer `BUSY`.
    refused: Vec<CoreId>,
}

impl Refusing {
    /// Checks how long the run has lasted. After the threshold, makes the cores answer `BUSY` for
    /// its keys. Called repeatedly, because a run may lock more keys.
    pub(super) fn look(&mut self, core: &Core, tx: &Tx, run: &Current) {
        let ran_ms = core.meter.now_ns().saturating_sub(run.begun_ns) / NS_PER_MS;
        let threshold_ms = core.hot.borrow().busy_reply_ms;
        if threshold_ms == 0 || ran_ms < threshold_ms {
            return;
        }
        if !run.is_busy.replace(true) {
            let (name, line) = (&run.name, line(run.kind));
            tracing::warn!("{name} has run for {ran_ms} ms; commands on its keys now get: {line}");
        }
        tx.refuse_others(line(run.kind), &mut self.refused);
    }
}

/// The error text for commands on the keys of a run of this kind.
fn line(kind: Kind) -> &'static str {
    match kind {
        Kind::Script => SCRIPT,
        Kind::Function => FUNCTION,
    }
}

/// Refuses a command that needs all keys and must not wait, if a slow run holds keys.
pub(crate) async fn check(core: &Rc<Core>) -> Result<(), Refusal> {
    let busy = |there: &Rc<Core>| there.machines.busy();
    match core.ask_all(|| busy).await.into_iter().flatten().next() {
        Some(kind) => Err(Refusal::line(line(kind))),
        None => Ok(()),
    }
}

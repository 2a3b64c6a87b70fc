//! A script that has run for longer than `busy-reply-threshold`: nobody waits for its keys any more.
//!
//! Redis answers `BUSY` to everybody meanwhile. Here those hear it who would wait for its keys, or do
//! already: commands, EXEC, other scripts, snapshots. All others are served as always.

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

/// Whom a run has refused its keys to.
#[derive(Default)]
pub(super) struct Refusing {
    /// The cores that know of it.
    told: Vec<CoreId>,
}

impl Refusing {
    /// Looks at the time: whether others wait for its keys from now on. To be called again and
    /// again, as a run takes more keys.
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
        tx.refuse_others(line(run.kind), &mut self.told);
    }
}

/// What those hear who want the keys of a run.
fn line(kind: Kind) -> &'static str {
    match kind {
        Kind::Script => SCRIPT,
        Kind::Function => FUNCTION,
    }
}

/// Refuses what needs all keys, and may not wait for them, if some run keeps others from its own.
pub(crate) async fn check(core: &Rc<Core>) -> Result<(), Refusal> {
    let busy = |there: &Rc<Core>| there.machines.busy();
    match core.ask_all(|| busy).await.into_iter().flatten().next() {
        Some(kind) => Err(Refusal::line(line(kind))),
        None => Ok(()),
    }
}

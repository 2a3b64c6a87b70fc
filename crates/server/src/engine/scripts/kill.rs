//! SCRIPT KILL and FUNCTION KILL: kill the longest-running script or function on any core.

use super::super::core::Core;
use super::machines::Kind;
use darter_command::Refusal;
use std::rc::Rc;

const NOT_BUSY: &str = "NOTBUSY No scripts in execution right now.";
const UNKILLABLE: &str = "UNKILLABLE Sorry the script already executed write commands against the \
    dataset. You can either wait the script termination or kill the server in a hard way using \
    the SHUTDOWN NOSAVE command.";

/// Makes the oldest run of this kind end at its next step, and undoes its writes.
pub(crate) async fn kill(core: &Rc<Core>, kind: Kind) -> Result<(), Refusal> {
    loop {
        let oldest = move |there: &Rc<Core>| {
            there.machines.oldest(kind).map(|run| (run.begun_ns, run.client, there.id()))
        };
        let runs = core.ask_all(|| oldest).await;
        let Some((_, client, at)) = runs.into_iter().flatten().min() else {
            return Err(Refusal::line(NOT_BUSY));
        };
        let kill = move |there: &Rc<Core>| {
            let run = there.machines.of_client(client)?;
            let may_end = run.is_undoable || !run.has_written.get();
            run.is_killed.set(run.is_killed.get() || may_end);
            Some(may_end)
        };
        match core.ask(at, kill).await {
            Some(true) => return Ok(()),
            Some(false) => return Err(Refusal::line(UNKILLABLE)),
            // The run has ended meanwhile, so another one is searched for.
            None => core.tx.pause().await,
        }
    }
}

//! FCALL and FCALL_RO: parsing the request; and loading libraries into machines.

use super::super::core::Core;
use super::super::entry::ServerCall;
use super::super::unit::admit::{OOM, is_full};
use super::command::key_count;
use super::evaluation::{Callee, Evaluation};
use super::lend::Lent;
use super::machines::Kind;
use super::run::evaluate;
use darter_command::{Answer, Refusal};
use darter_resp as resp;
use darter_script::{Flags, Functions, Source, Stop};
use std::rc::Rc;
use std::sync::Arc;

const UNKNOWN: &str = "ERR Function not found";
const BAD_COUNT: &str = "ERR Bad number of keys provided";

/// The limit of the CPU time for loading a library, as in Redis.
const LOADING_NS: u64 = 500_000_000;

/// The index of the function's name in the request.
const FUNCTION: usize = 1;
const COUNT: usize = 2;

/// `FCALL function numkeys [key ...] [arg ...]` and `FCALL_RO`.
///
/// Reply: the result of the function. Refusals: the function does not exist, or must not run now;
/// errors of the function itself. Source: <https://redis.io/commands/fcall> (7.0.0).
pub(crate) async fn fcall(call: ServerCall, is_read: bool) -> Result<Answer, Refusal> {
    let args = resp::Args::owned(&call.request);
    let evaluation = evaluation(&call.core, args, is_read)?;
    evaluate(&call, evaluation).await
}

/// The evaluation that a request asks for, if its function exists.
pub(crate) fn find(core: &Core, args: resp::Args<'_>, is_read: bool) -> Option<Evaluation> {
    evaluation(core, args, is_read).ok()
}

fn evaluation(core: &Core, args: resp::Args<'_>, is_read: bool) -> Result<Evaluation, Refusal> {
    let all = Arc::clone(&core.admin.shared.libraries);
    let libraries = all.current();
    let name: Box<[u8]> = args.get(FUNCTION).into();
    let found = libraries.function(&name).ok_or_else(|| Refusal::line(UNKNOWN))?;
    let (library, index) = (Arc::clone(found.0), found.1);
    let function = library.functions.get(index).expect("the libraries have it");
    let keys = key_count(args, COUNT).map_err(|refusal| match refusal {
        Refusal::NotAnInteger => Refusal::line(BAD_COUNT),
        other => other,
    })?;
    let (shown, flags) = (Arc::clone(&function.name), function.flags);
    Ok(Evaluation {
        callee: Callee::Function { all, name, library, index },
        name: shown,
        flags,
        is_read,
        first_key: COUNT + 1,
        keys,
        to_keep: None,
    })
}

/// The flags that a function declares; they decide whether it may run. `None` if the function does
/// not exist.
pub(crate) fn declared(core: &Core, args: resp::Args<'_>) -> Option<Flags> {
    let libraries = core.admin.shared.libraries.current();
    let (library, index) = libraries.function(args.get(FUNCTION))?;
    library.functions.get(index).map(|function| function.flags)
}

/// Runs the text of a library. Returns the functions that it registers.
pub(crate) async fn load(core: &Rc<Core>, source: &Arc<Source>) -> Result<Functions, Refusal> {
    let mut lent = Lent::new(core, Kind::Function)?;
    let machine = lent.machine();
    machine.begin_load(Arc::clone(source));
    let (was_full, mut ran_ns) = (is_full(core), 0);
    loop {
        let begun = core.clock.monotonic_ns();
        if machine.resume(core.tx.preempt()) == Stop::Ended {
            break;
        }
        ran_ns += core.clock.monotonic_ns().saturating_sub(begun);
        if ran_ns > LOADING_NS {
            let text = "ERR Error registering functions: ERR FUNCTION LOAD timeout";
            return Err(Refusal::line(text));
        }
        if !was_full && is_full(core) {
            // Several libraries may be loading at the same time, so memory is checked again.
            return Err(Refusal::line(OOM));
        }
        core.tx.yield_now().await;
    }
    for (level, line) in machine.take_log() {
        crate::log::of_script(level, &line);
    }
    machine.take_loaded().map_err(|text| Refusal::Line([b"ERR ", &*text].concat().into()))
}

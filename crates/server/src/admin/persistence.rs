//! SAVE, BGSAVE, BGREWRITEAOF, LASTSAVE, SHUTDOWN.

use super::{categories, history, now, syntax, task, tips};
use crate::engine::saving::rewriting::{NotBegun, begin_rewrite};
use crate::engine::saving::{begin_in_background, cancel, make, make_last};
use crate::engine::scripts::busy;
use crate::engine::{Core, Runner, ServerCall, SessionCx};
use crate::journal::JournalState;
use crate::saving::{Busy, Outcome, Purpose, Words};
use darter_command::{Answer, Args, Command, Flags, Group, Refusal};
use std::rc::Rc;
use std::sync::atomic::Ordering;

const QUICK: Flags = Flags::LOADING.and(Flags::STALE).and(Flags::FAST);
const ADMIN: Flags = Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE);
const SAVES: Flags = Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::NO_ASYNC_LOADING);

#[rustfmt::skip] // A table.
pub(super) const TABLE: &[(Command, Runner)] = &[
    task("save", "1.0.0", 1, SAVES.and(Flags::NO_MULTI), Group::Server, |call| Box::pin(save(call)), ("Synchronously save the dataset to disk", "O(N) where N is the total number of keys in all databases")),
    history(syntax(task("bgsave", "1.0.0", -1, SAVES, Group::Server, |call| Box::pin(bgsave(call)), ("Asynchronously save the dataset to disk", "O(1)")), "[SCHEDULE]@3.2.2"), &[("3.2.2", "Added the `SCHEDULE` option.")]),
    task("bgrewriteaof", "1.0.0", 1, SAVES, Group::Server, |call| Box::pin(bgrewriteaof(call)), ("Asynchronously rewrite the append-only file to disk", "O(1)")),
    categories(tips(now("lastsave", "1.0.0", 1, QUICK, Group::Server, lastsave, ("Get the UNIX time stamp of the last successful save to disk", "O(1)")), &["nondeterministic_output"]), &["@admin", "@dangerous"]),
    history(syntax(task("shutdown", "1.0.0", -1, ADMIN.and(Flags::NO_MULTI).and(Flags::ALLOW_BUSY), Group::Server, |call| Box::pin(shutdown(call)), ("Synchronously save the dataset to disk and then shut down the server", "O(N) when saving, where N is the total number of keys in all databases when saving data, otherwise O(1)")), "[nosave_save: NOSAVE | SAVE] [NOW]@7.0.0 [FORCE]@7.0.0 [ABORT]@7.0.0"), &[("7.0.0", "Added the `NOW`, `FORCE` and `ABORT` modifiers.")]),
];

const ACTIVE: &str = "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE \
     SCHEDULE in order to schedule a BGSAVE whenever possible.";
const FAILED: &str = "ERR Errors trying to SHUTDOWN. Check logs.";
const BUSY: &str = "ERR Background save already in progress";

/// `SAVE`: makes a snapshot, and replies when it is on the disk. In the meantime other clients are
/// served.
///
/// Reply: `OK`. Refusals: another snapshot is being made; a slow script holds keys; saving failed,
/// for the reason that is logged. Source: <https://redis.io/commands/save> (1.0.0).
async fn save(call: ServerCall) -> Result<Answer, Refusal> {
    save_now(&call.core).await?;
    Ok(call.answer(|reply| reply.ok()))
}

/// Makes a snapshot, and returns when it is on the disk.
pub(super) async fn save_now(core: &Rc<Core>) -> Result<(), Refusal> {
    match core.run_on(0, make).await {
        Ok(Outcome::Saved { .. }) => Ok(()),
        Ok(Outcome::Failed(_) | Outcome::Cancelled) => Err(Refusal::line("ERR")),
        Err(busy) => Err(refusal(busy)),
    }
}

/// `BGSAVE [SCHEDULE | CANCEL]`: makes a snapshot of the data at the time of the reply. With
/// CANCEL, as in Valkey, stops the current snapshot.
///
/// Reply: a status. Refusals: another snapshot is being made; a slow script holds keys; CANCEL
/// without a current snapshot. Source: <https://redis.io/commands/bgsave> (1.0.0), Valkey 8.1.
async fn bgsave(call: ServerCall) -> Result<Answer, Refusal> {
    let mut args = call.args();
    if args.left() > 1 {
        return Err(Refusal::Syntax);
    }
    if args.option("CANCEL") {
        if !cancel(&call.core) {
            return Err(Refusal::line(
                "ERR Background saving is currently not in progress or scheduled",
            ));
        }
        tracing::info!("BGSAVE CANCEL: the running snapshot is aborted");
        return Ok(call.answer(|reply| reply.simple("Background saving cancelled")));
    }
    if !args.option("SCHEDULE") && args.left() > 0 {
        return Err(Refusal::Syntax);
    }
    if call.is_inside() {
        return schedule(&call);
    }
    if is_rewriting(&call.core) {
        if !args.option("SCHEDULE") {
            return Err(Refusal::line(ACTIVE));
        }
        call.core.tell(0, |core| core.saving.schedule());
        return Ok(call.answer(|reply| reply.simple("Background saving scheduled")));
    }
    match call.core.run_on(0, begin_in_background).await {
        Ok(()) => Ok(call.answer(|reply| reply.simple("Background saving started"))),
        Err(busy) => Err(refusal(busy)),
    }
}

fn refusal(busy: Busy) -> Refusal {
    Refusal::line(match busy {
        Busy::Saving => BUSY,
        Busy::Script(line) => line,
    })
}

/// Makes the snapshot after the calling transaction has ended, as Redis does. During the
/// transaction, the snapshot would wait for the transaction's own locks.
fn schedule(call: &ServerCall) -> Result<Answer, Refusal> {
    if call.core.admin.shared.saves.is_under_way() {
        return Err(Refusal::line(BUSY));
    }
    call.core.tell(0, |core| {
        core.spawn_on_self(|core| async move {
            // If another snapshot has begun by then, it serves as well, so a refusal is ignored.
            let _ = begin_in_background(core).await;
        });
    });
    Ok(call.answer(|reply| reply.simple("Background saving scheduled")))
}

/// True while a base of the append-only file is being made.
fn is_rewriting(core: &Core) -> bool {
    core.admin.shared.journal.rewrites().is_begun
}

/// `BGREWRITEAOF`: makes a new base of the append-only file from the data.
///
/// Reply: a status. If a snapshot is being made, or inside a transaction, the rewrite begins after
/// that. Refusals: a rewrite is being made; a file could not be created. Source:
/// <https://redis.io/commands/bgrewriteaof> (1.0.0).
async fn bgrewriteaof(call: ServerCall) -> Result<Answer, Refusal> {
    const STARTED: &str = "Background append only file rewriting started";
    const SCHEDULED: &str = "Background append only file rewriting scheduled";
    if is_rewriting(&call.core) {
        let text = "ERR Background append only file rewriting already in progress";
        return Err(Refusal::line(text));
    }
    if call.is_inside() || call.core.admin.shared.saves.is_made_for(Purpose::Dump) {
        call.core.tell(0, |core| core.admin.shared.journal.schedule_rewrite(true));
        return Ok(call.answer(|reply| reply.simple(SCHEDULED)));
    }
    match call.core.run_on(0, begin_rewrite).await {
        Ok(()) => Ok(call.answer(|reply| reply.simple(STARTED))),
        Err(NotBegun::Scheduled) => Ok(call.answer(|reply| reply.simple(SCHEDULED))),
        Err(NotBegun::Failed) => Err(Refusal::line(
            "ERR Can't execute an AOF background rewriting. Please check the server logs for more \
             information.",
        )),
    }
}

/// `LASTSAVE`: replies with the Unix time of the last successful snapshot, in seconds. As in Redis,
/// the start of the server counts as a snapshot.
fn lastsave(cx: &mut SessionCx<'_>, _args: Args<'_>) -> Result<(), Refusal> {
    let seconds = cx.core.admin.shared.saves.saved_s();
    cx.reply.int(i64::try_from(seconds).unwrap_or(i64::MAX));
    Ok(())
}

/// The parsed arguments of SHUTDOWN.
#[derive(Default)]
struct ShutdownArgs {
    end: Words,
    now: bool,
    abort: bool,
}

impl ShutdownArgs {
    fn read(mut args: Args<'_>) -> Result<Self, Refusal> {
        let mut words = Self::default();
        while let Some(word) = args.next() {
            match word.to_ascii_uppercase().as_slice() {
                b"SAVE" => words.end.save = true,
                b"NOSAVE" => words.end.nosave = true,
                b"FORCE" => words.end.force = true,
                // NOW has no effect, because there are no replicas to wait for.
                b"NOW" => words.now = true,
                b"ABORT" => words.abort = true,
                _ => return Err(Refusal::Syntax),
            }
        }
        let Self { end: Words { save, nosave, force }, now, abort } = words;
        let is_wrong = (save && nosave) || (abort && (save || nosave || now || force));
        if is_wrong { Err(Refusal::Syntax) } else { Ok(words) }
    }
}

/// `SHUTDOWN [NOSAVE | SAVE] [NOW] [FORCE] [ABORT]`: ends the server. If there are save points, or
/// with `SAVE`, a snapshot is made first. After the snapshot no data changes, and no command is
/// answered.
///
/// Reply: none; the connection is closed. Refusals: the snapshot failed (unless `FORCE`); a slow
/// script runs (unless `NOSAVE`); ABORT without a shutdown in progress. Source:
/// <https://redis.io/commands/shutdown> (1.0.0).
async fn shutdown(call: ServerCall) -> Result<Answer, Refusal> {
    let words = ShutdownArgs::read(call.args())?;
    let shared = &call.core.admin.shared;
    if words.abort {
        return abort(&call);
    }
    if !words.end.nosave {
        busy::check(&call.core).await?;
    }
    if shared.journal.state() == JournalState::Starting && !words.end.force {
        tracing::error!("Writing initial AOF, can't exit.");
        return Err(Refusal::line(FAILED));
    }
    let is_loaded = !call.core.hot.borrow().loading;
    if is_loaded && shared.saves.saves_at_end(words.end) {
        let is_saved = call.core.run_on(0, make_last).await;
        if !is_saved && !words.end.force {
            return Err(Refusal::line(FAILED));
        }
    }
    stop(&call.core);
    // As in Redis, there is no reply: the connection is closed when the process ends.
    Ok(Answer::Done(darter_resp::Output::default()))
}

fn stop(core: &Rc<Core>) {
    let shared = &core.admin.shared;
    shared.stop.store(true, Ordering::SeqCst);
    (shared.stopper)();
}

/// `SHUTDOWN ABORT`: stops a shutdown during its snapshot.
fn abort(call: &ServerCall) -> Result<Answer, Refusal> {
    let saves = &call.core.admin.shared.saves;
    if !saves.is_last() || !cancel(&call.core) {
        return Err(Refusal::line("ERR No shutdown in progress."));
    }
    // The snapshot cancelled above may be an earlier one that the shutdown waits for, so the
    // shutdown itself is aborted, too.
    saves.abort_last();
    Ok(call.answer(|reply| reply.ok()))
}

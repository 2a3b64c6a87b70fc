//! Rewrites of the journal: a snapshot becomes its new base. Core 0 coordinates them.
//!
//! The steps are in `crate::journal::collector`. Each core adds a cut to its blocks in the step in
//! which it takes its part of the snapshot; all keys are locked meanwhile. So the base and what
//! follows the cut make up the data, whatever the journal's state was before: a rewrite also turns
//! the journal on, and makes it good again after a failure.

use super::super::core::Core;
use super::super::journal;
use super::{BusyKeys, Running, Target, begin};
use crate::journal::{JournalOrder, JournalOutcome, JournalState};
use crate::saving::Outcome as Saved;
use darter_tx::Access;
use std::rc::Rc;

/// Why no rewrite was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotBegun {
    /// Another snapshot is being made, or a slow script holds keys: it begins after that.
    Scheduled,
    /// A file could not be made. The log says why.
    Failed,
}

/// Starts a rewrite. Returns when the cut was taken. Core 0 only.
pub(crate) async fn begin_rewrite(core: Rc<Core>) -> Result<(), NotBegun> {
    begin_unless(core, BusyKeys::GiveUp).await
}

async fn begin_unless(core: Rc<Core>, busy_keys: BusyKeys) -> Result<(), NotBegun> {
    let shared = &core.admin.shared;
    let journal = &*shared.journal;
    if shared.saves.is_under_way() || journal.rewrites().is_begun {
        journal.schedule_rewrite(true);
        return Err(NotBegun::Scheduled);
    }
    journal.schedule_rewrite(false);
    let number = journal.begin_rewrite(core.now_ms());
    let begun = cut(&core, number, busy_keys).await;
    let running = match begun {
        Ok(running) => running,
        Err(why) => {
            carry_out(&core, JournalOrder::GiveUp).await.ok();
            journal.end_rewrite(false, core.clock.unix_ms());
            journal.schedule_rewrite(why == NotBegun::Scheduled);
            return Err(why);
        }
    };
    tracing::info!("Background append only file rewriting started");
    core.spawn_on_self(move |core| async move { finish(&core, running).await });
    Ok(())
}

async fn cut(
    core: &Rc<Core>,
    number: u64,
    busy_keys: BusyKeys,
) -> Result<(Running, JournalOrder), NotBegun> {
    let place = match carry_out(core, JournalOrder::Prepare(number)).await {
        Ok(place) => place.expect("it names the base"),
        Err(why) => {
            tracing::error!("Can't execute an AOF background rewriting: {why}");
            return Err(NotBegun::Failed);
        }
    };
    let commit = JournalOrder::Commit(place.file.clone(), number);
    let target = Target::Base(place, number);
    let running = begin(core, Access::Cut, busy_keys, target).await;
    running.map(|running| (running, commit)).map_err(|_| NotBegun::Scheduled)
}

/// Waits for the base, and completes the rewrite.
async fn finish(
    core: &Rc<Core>,
    (Running { outcome, locked, .. }, commit): (Running, JournalOrder),
) {
    drop(locked);
    let shared = &core.admin.shared;
    let is_done = match outcome.await {
        Saved::Saved { .. } => match carry_out(core, commit).await {
            Ok(_) => true,
            Err(why) => {
                tracing::error!("Background AOF rewrite failed: {why}");
                false
            }
        },
        Saved::Failed(_) | Saved::Cancelled => {
            tracing::error!("Background AOF rewrite terminated with error");
            carry_out(core, JournalOrder::GiveUp).await.ok();
            false
        }
    };
    let now_ms = core.clock.unix_ms();
    shared.saves.end_base(now_ms);
    shared.journal.end_rewrite(is_done, now_ms);
    core.saving.complete_ended(&core.tx);
    if is_done {
        tracing::info!("Background AOF rewrite finished successfully");
    }
}

/// Gives the journal's thread an order, and waits for its outcome.
async fn carry_out(core: &Rc<Core>, order: JournalOrder) -> JournalOutcome {
    let (ticket, outcome) = core.tx.ticket();
    core.admin.shared.journal.order(order, ticket);
    outcome.await
}

/// Turns the journal on: its first base is made from the data. Core 0 only.
///
/// Returns false if a file could not be made.
pub(crate) async fn turn_on(core: Rc<Core>) -> bool {
    let journal = &core.admin.shared.journal;
    if journal.state() != JournalState::Off {
        return true;
    }
    journal.start();
    let begun = begin_rewrite(Rc::clone(&core)).await;
    if begun == Err(NotBegun::Failed) {
        journal.stop();
    }
    begun != Err(NotBegun::Failed)
}

/// Turns the journal off: what was handed over is written and synced, and its file is closed. Core 0
/// only.
pub(crate) async fn turn_off(core: Rc<Core>) {
    if core.admin.shared.journal.state() != JournalState::Off {
        core.ask_all(|| |core: &Rc<Core>| journal::end(core)).await;
        carry_out(&core, JournalOrder::Stop).await.ok();
    }
}

/// Passes the outcomes of orders on, and begins a rewrite that is wanted. Core 0 only.
pub(crate) fn handle_news(core: &Core) {
    if !has_news(core) {
        return;
    }
    let shared = &core.admin.shared;
    if shared.journal.has_news() {
        for (ticket, outcome) in shared.journal.take_news() {
            core.tx.complete(ticket, Box::new(outcome));
        }
    }
    if may_begin(core) {
        core.spawn_on_self(|core| async move {
            // It waits for slow scripts: otherwise each turn of such a script would make files. The
            // log says what has failed.
            let _ = begin_unless(core, BusyKeys::Wait).await;
        });
    }
}

/// True if [`handle_news`] has something to do.
pub(crate) fn has_news(core: &Core) -> bool {
    core.id() == 0 && (core.admin.shared.journal.has_news() || may_begin(core))
}

/// True if a rewrite is scheduled, and nothing is in its way.
fn may_begin(core: &Core) -> bool {
    let shared = &core.admin.shared;
    shared.journal.is_rewrite_scheduled()
        && !shared.journal.rewrites().is_begun
        && !shared.saves.is_under_way()
}

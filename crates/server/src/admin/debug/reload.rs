//! `DEBUG RELOAD`: saves a snapshot, removes all data, and loads the file as at the start of the
//! server.
//!
//! All keys are locked while the file is loaded, so no client sees a part of it.

use super::super::persistence;
use crate::engine::{Core, ServerCall};
use crate::load::{self, Data, Inbox, Onto};
use darter_command::{Answer, Args, Refusal};
use darter_keyspace::Shard;
use darter_runtime::net::Waker;
use darter_tx::{Access, Claim, Home, Tx};
use std::rc::Rc;
use std::sync::Arc;

const OPTIONS: &str = "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.";
const FAILED: &str = "ERR Error trying to load the RDB dump, check server logs.";

/// `DEBUG RELOAD [NOSAVE] [NOFLUSH]`: with NOSAVE, loads the existing file; with NOFLUSH, keeps the
/// current data.
///
/// Reply: `OK`. Refusals: other options; those of SAVE; a file that cannot be opened. If the file
/// is damaged, or has a key that exists already, the part before that stays loaded.
pub(super) async fn reload(call: &ServerCall, mut args: Args<'_>) -> Result<Answer, Refusal> {
    let (mut saves, mut flushes) = (true, true);
    while args.left() > 0 {
        if args.option("NOSAVE") {
            saves = false;
        } else if args.option("NOFLUSH") {
            flushes = false;
        } else if args.option("MERGE") {
            return Err(Refusal::line("ERR DEBUG RELOAD MERGE is not supported."));
        } else {
            return Err(Refusal::line(OPTIONS));
        }
    }
    if call.is_inside() {
        return Err(Refusal::line("ERR DEBUG RELOAD is not allowed in transactions and scripts"));
    }
    if saves {
        persistence::save_now(&call.core).await?;
    }
    let (core, tx) = (&call.core, &call.core.tx);
    let claims = (0..tx.cores()).map(|id| (id, Claim::All(Access::Exclusive))).collect();
    let locked = tx.lock(claims).await;
    let (inboxes, opened) = open(call).map_err(|why| failed(&why))?;
    if flushes {
        tx.on_each(0..tx.cores(), |_| |home: &mut Home| Shard::flush(&mut home.shard)).await;
    }
    let loader = opened.begin(None).map_err(|why| failed(&why))?;
    let mut inboxes = inboxes.into_iter();
    let fill_next = |_| {
        let inbox = inboxes.next().expect("each core has an inbox");
        move |tx| fill(tx, inbox)
    };
    tx.drive_each(0..tx.cores(), fill_next).await;
    let loaded = loader.join();
    core.ask_all(|| note_saved).await;
    drop(locked);
    let (summary, _) = loaded.map_err(|why| failed(&why))?;
    tracing::info!("{summary}");
    Ok(call.answer(|reply| reply.ok()))
}

/// Records that the file has all changes of this core.
fn note_saved(core: &Rc<Core>) {
    core.saving.set_saved_changes(core.tx.home().shard.lasting_changes());
}

fn failed(why: &dyn std::fmt::Display) -> Refusal {
    tracing::warn!("DEBUG RELOAD: {why}");
    Refusal::line(FAILED)
}

fn open(call: &ServerCall) -> std::io::Result<(Vec<Inbox>, load::Opened)> {
    let (settings, shared) = (call.core.admin.settings(), &call.core.admin.shared);
    // Needed by the loader, but not used: the tasks that fill the shards poll their inboxes.
    let wakers = (0..call.core.tx.cores()).map(|_| Waker::new()).collect::<Result<_, _>>()?;
    let onto = Onto {
        fs: Arc::clone(&shared.fs),
        databases: settings.size("databases"),
        verifies: settings.flag("rdbchecksum"),
        progress: Arc::clone(&shared.load),
        libraries: Arc::clone(&shared.libraries),
    };
    let data = Data::Rdb(settings.text("dbfilename").into());
    let (inboxes, opened) = load::open(data, wakers, onto)?;
    Ok((inboxes.cores, opened))
}

/// Inserts this core's part of the file.
async fn fill(tx: Tx, mut inbox: Inbox) {
    while inbox.is_open() {
        inbox.step(&mut tx.home().shard, tx.preempt());
        tx.yield_now().await;
    }
}

//! TIME, LASTSAVE, LOLWUT, MONITOR, SHUTDOWN.

use super::{categories, history, now, syntax, task, tips};
use crate::engine::{Runner, ServerCall, ServerFuture, SessionCx};
use darter_command::{Answer, Args, Command, Flags, Group, Refusal};
use std::sync::atomic::Ordering;

const QUICK: Flags = Flags::LOADING.and(Flags::STALE).and(Flags::FAST);
const ADMIN: Flags = Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE);

/// Every reply may differ.
const VARIES: &[&str] = &["nondeterministic_output"];

#[rustfmt::skip] // A table.
pub(super) const TABLE: &[(Command, Runner)] = &[
    tips(now("time", "2.6.0", 1, QUICK, Group::Server, time, ("Return the current server time", "O(1)")), VARIES),
    categories(tips(now("lastsave", "1.0.0", 1, QUICK, Group::Server, lastsave, ("Get the UNIX time stamp of the last successful save to disk", "O(1)")), VARIES), &["@admin", "@dangerous"]),
    syntax(now("lolwut", "5.0.0", -1, Flags::READONLY.and(Flags::FAST), Group::Server, lolwut, ("Display some computer art and the Redis version", "")), "[VERSION version:integer]"),
    task("monitor", "1.0.0", 1, ADMIN, Group::Server, |call| Box::pin(monitor(call)), ("Listen for all requests received by the server in real time", "")),
    history(syntax(task("shutdown", "1.0.0", -1, ADMIN.and(Flags::NO_MULTI).and(Flags::ALLOW_BUSY), Group::Server, shutdown_task, ("Synchronously save the dataset to disk and then shut down the server", "O(N) when saving, where N is the total number of keys in all databases when saving data, otherwise O(1)")), "[nosave_save: NOSAVE | SAVE] [NOW]@7.0.0 [FORCE]@7.0.0 [ABORT]@7.0.0"), &[("7.0.0", "Added the `NOW`, `FORCE` and `ABORT` modifiers.")]),
];

/// `TIME`: seconds and microseconds.
fn time(cx: &mut SessionCx<'_>, _args: Args<'_>) -> Result<(), Refusal> {
    let us = cx.core.clock.unix_us();
    cx.reply.array(2);
    cx.reply.bulk((us / 1_000_000).to_string().as_bytes());
    cx.reply.bulk((us % 1_000_000).to_string().as_bytes());
    Ok(())
}

/// `LASTSAVE`: nothing has been saved since the start, which counts as a save, as in Redis.
fn lastsave(cx: &mut SessionCx<'_>, _args: Args<'_>) -> Result<(), Refusal> {
    let seconds = cx.core.admin.shared.started_ms / 1_000;
    cx.reply.int(i64::try_from(seconds).unwrap_or(i64::MAX));
    Ok(())
}

/// `LOLWUT [VERSION n] [...]`: a darter over the water, and the version.
fn lolwut(cx: &mut SessionCx<'_>, mut args: Args<'_>) -> Result<(), Refusal> {
    if args.left() > 1 && args.option("VERSION") {
        args.int()?; // There is one picture only.
    }
    let mut picture = String::new();
    for row in 0..6_u32 {
        for column in 0..48_u32 {
            let height = (f64::from(column) / 5.0 + f64::from(row)).sin();
            picture.push(if height > 0.6 { '~' } else { ' ' });
        }
        picture.push('\n');
    }
    picture.push_str(concat!("   >=<o)>  Darter ver. ", env!("CARGO_PKG_VERSION"), "\n"));
    cx.reply.verbatim(*b"txt", picture.as_bytes());
    Ok(())
}

/// `MONITOR`.
async fn monitor(call: ServerCall) -> Result<Answer, Refusal> {
    let id = call.session.id;
    let begun =
        call.core.with_client(id, |conn| !std::mem::replace(&mut conn.lane.session.monitor, true));
    if begun == Some(true) {
        call.core.monitors_changed(1).await;
        call.core.watch(id); // Only now, so that no line precedes the reply.
    }
    Ok(call.answer(|reply| reply.ok()))
}

/// `SHUTDOWN [NOSAVE | SAVE] [NOW] [FORCE] [ABORT]`.
fn shutdown_task(call: ServerCall) -> ServerFuture {
    Box::pin(async move {
        let mut args = call.args();
        let (mut save, mut abort, mut nosave, mut others) = (false, false, false, false);
        while let Some(word) = args.next() {
            match word.to_ascii_uppercase().as_slice() {
                b"NOSAVE" => nosave = true,
                b"NOW" | b"FORCE" => others = true,
                b"SAVE" => save = true,
                b"ABORT" => abort = true,
                _ => return Err(Refusal::Syntax),
            }
        }
        if (save && nosave) || (abort && (save || nosave || others)) {
            return Err(Refusal::Syntax);
        }
        if abort {
            return Err(Refusal::line("ERR No shutdown in progress."));
        }
        if save {
            return Err(Refusal::line("ERR SHUTDOWN SAVE is not supported yet: no snapshots"));
        }
        let shared = &call.core.admin.shared;
        shared.stop.store(true, Ordering::SeqCst);
        (shared.stopper)();
        // Redis does not reply; the connection is closed by the end of the process.
        Ok(Answer::Done(darter_resp::Output::default()))
    })
}

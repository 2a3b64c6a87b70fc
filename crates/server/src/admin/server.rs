//! TIME, LOLWUT and MONITOR.

use super::{now, syntax, task, tips};
use crate::engine::{Runner, ServerCall, SessionCx, monitor};
use darter_command::{Answer, Args, Command, Flags, Group, Refusal};

const QUICK: Flags = Flags::LOADING.and(Flags::STALE).and(Flags::FAST);
const ADMIN: Flags = Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE);

/// The tips of commands whose replies differ each time.
const VARIES: &[&str] = &["nondeterministic_output"];

#[rustfmt::skip] // A table.
pub(super) const TABLE: &[(Command, Runner)] = &[
    tips(now("time", "2.6.0", 1, QUICK, Group::Server, time, ("Return the current server time", "O(1)")), VARIES),
    syntax(now("lolwut", "5.0.0", -1, Flags::READONLY.and(Flags::FAST), Group::Server, lolwut, ("Display some computer art and the Redis version", "")), "[VERSION version:integer]"),
    task("monitor", "1.0.0", 1, ADMIN, Group::Server, |call| Box::pin(watch(call)), ("Listen for all requests received by the server in real time", "")),
];

/// `TIME`: replies with the Unix time, as seconds and microseconds.
fn time(cx: &mut SessionCx<'_>, _args: Args<'_>) -> Result<(), Refusal> {
    let us = cx.core.clock.unix_us();
    cx.reply.array(2);
    cx.reply.bulk((us / 1_000_000).to_string().as_bytes());
    cx.reply.bulk((us % 1_000_000).to_string().as_bytes());
    Ok(())
}

/// `LOLWUT [VERSION n] [...]`: draws a darter (a fish) under waves, with the version.
fn lolwut(cx: &mut SessionCx<'_>, mut args: Args<'_>) -> Result<(), Refusal> {
    if args.left() > 1 && args.option("VERSION") {
        args.int()?; // The number must be valid, but is ignored: there is only one picture.
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
async fn watch(call: ServerCall) -> Result<Answer, Refusal> {
    if call.is_inside() {
        return Err(Refusal::line("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    let id = call.session.handle;
    let begun =
        call.core.with_client(id, |conn| !std::mem::replace(&mut conn.lane.session.monitor, true));
    if begun == Some(true) {
        monitor::begin(&call.core, id).await;
    }
    Ok(call.answer(|reply| reply.ok()))
}

//! The CLIENT commands: ID, INFO, LIST, KILL, SETNAME, GETNAME, SETINFO, NO-EVICT, NO-TOUCH, REPLY,
//! PAUSE, UNPAUSE, UNBLOCK and HELP. The functions of the tracking commands are in `tracking`.

use super::client_list::{self, Filter, Line, ListQuery, line};
use super::long_text::LongText;
use super::{container, history, now, syntax, task, tips, tracking};
use crate::engine::{Core, ReplyMode, Runner, ServerCall, SessionCx};
use darter_base::number;
use darter_command::{Answer, Args, Command, Flags, Group, Refusal};
use std::collections::BTreeMap;
use std::rc::Rc;

const OPEN: Flags = Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE).and(Flags::KEEPS_CACHING);
const ADMIN: Flags = OPEN.and(Flags::ADMIN);
const C: Group = Group::Connection;

#[rustfmt::skip] // A table.
pub(super) const TABLE: &[(Command, Runner)] = &[
    container("client", "2.4.0", Flags::NONE, C, "A container for client connection commands"),
    now("client|id", "5.0.0", 2, OPEN, C, id, ("Returns the client ID for the current connection", "O(1)")),
    tips(task("client|info", "6.2.0", 2, OPEN, C, |call| Box::pin(info(call)), ("Returns information about the current client connection.", "O(1)")), &["nondeterministic_output"]),
    history(syntax(tips(task("client|list", "2.4.0", -2, ADMIN, C, |call| Box::pin(list(call)), ("Get the list of client connections", "O(N) where N is the number of client connections")), &["nondeterministic_output"]), "[TYPE(normal_master_replica_pubsub: NORMAL | MASTER | REPLICA | PUBSUB)]@5.0.0 [ID(id: client-id:integer...)]@6.2.0"), &[("2.8.12", "Added unique client `id` field."), ("5.0.0", "Added optional `TYPE` filter."), ("6.0.0", "Added `user` field."), ("6.2.0", "Added `argv-mem`, `tot-mem`, `laddr` and `redir` fields and the optional `ID` filter."), ("7.0.0", "Added `resp`, `multi-mem`, `rbs` and `rbp` fields."), ("7.0.3", "Added `ssub` field.")]),
    history(syntax(task("client|kill", "2.4.0", -3, ADMIN, C, |call| Box::pin(kill(call)), ("Kill the connection of a client", "O(N) where N is the number of client connections")), "(filter: ip:port!2.8.12 | (new-format: [ID client-id:integer]@2.8.12 | [TYPE(normal_master_slave_pubsub: NORMAL | MASTER@3.2.0 | SLAVE | REPLICA@5.0.0 | PUBSUB)]@2.8.12 | [USER username] | [ADDR ip:port] | [LADDR ip:port]@6.2.0 | [SKIPME yes/no])...)"), &[("2.8.12", "Added new filter format."), ("2.8.12", "`ID` option."), ("3.2.0", "Added `master` type in for `TYPE` option."), ("5.0.0", "Replaced `slave` `TYPE` with `replica`. `slave` still supported for backward compatibility."), ("6.2.0", "`LADDR` option.")]),
    syntax(now("client|setname", "2.6.9", 3, OPEN, C, setname, ("Set the current connection name", "O(1)")), "connection-name"),
    now("client|getname", "2.6.9", 2, OPEN, C, getname, ("Get the current connection name", "O(1)")),
    syntax(now("client|setinfo", "7.2.0", 4, OPEN, C, setinfo, ("Set client or connection specific info", "O(1)")), "(attr: LIB-NAME libname | LIB-VER libver)"),
    syntax(now("client|no-evict", "7.0.0", 3, ADMIN, C, no_evict, ("Set client eviction mode for the current connection", "O(1)")), "(enabled: ON | OFF)"),
    syntax(now("client|no-touch", "7.2.0", 3, OPEN, C, no_touch, ("Controls whether commands sent by the client will alter the LRU/LFU of the keys they access.", "O(1)")), "(enabled: ON | OFF)"),
    syntax(now("client|reply", "3.2.0", 3, OPEN, C, reply, ("Instruct the server whether to reply to commands", "O(1)")), "(on_off_skip: ON | OFF | SKIP)"),
    syntax(task("client|tracking", "6.0.0", -3, OPEN, C, |call| Box::pin(tracking::tracking(call)), ("Enable or disable server assisted client side caching support", "O(1). Some options may introduce additional complexity.")), "(status: ON | OFF) [REDIRECT client-id:integer] [PREFIX prefix]... [BCAST] [OPTIN] [OPTOUT] [NOLOOP]"),
    syntax(now("client|caching", "6.0.0", 3, OPEN, C, tracking::caching, ("Instruct the server about tracking or not keys in the next request", "O(1)")), "(mode: YES | NO)"),
    task("client|trackinginfo", "6.2.0", 2, OPEN, C, |call| Box::pin(tracking::trackinginfo(call)), ("Return information about server assisted client side caching for the current connection", "O(1)")),
    now("client|getredir", "6.0.0", 2, OPEN, C, tracking::getredir, ("Get tracking notifications redirection client ID if any", "O(1)")),
    history(syntax(task("client|pause", "2.9.50", -3, ADMIN, C, |call| Box::pin(pause(call)), ("Stop processing commands from clients for some time", "O(1)")), "timeout:integer [mode: WRITE | ALL]@6.2.0"), &[("6.2.0", "`CLIENT PAUSE WRITE` mode added along with the `mode` option.")]),
    task("client|unpause", "6.2.0", 2, ADMIN, C, |call| Box::pin(unpause(call)), ("Resume processing of clients that were paused", "O(N) Where N is the number of paused clients")),
    syntax(task("client|unblock", "5.0.0", -3, ADMIN, C, |call| Box::pin(unblock(call)), ("Unblock a client blocked in a blocking command from a different connection", "O(log N) where N is the number of client connections")), "client-id:integer [timeout_error: TIMEOUT | ERROR]"),
    now("client|help", "5.0.0", 2, Flags::LOADING.and(Flags::STALE).and(Flags::KEEPS_CACHING), C, help, ("Show helpful text about the different subcommands", "O(1)")),
];

fn id(cx: &mut SessionCx<'_>, _args: Args<'_>) -> Result<(), Refusal> {
    cx.reply.int(i64::try_from(cx.session.id).unwrap_or(i64::MAX));
    Ok(())
}

/// Refuses a name with blanks or unprintable bytes, because it would break the format of CLIENT
/// LIST.
pub(super) fn check_name(name: &[u8], what: &str) -> Result<(), Refusal> {
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Ok(());
    }
    Err(Refusal::line(format!("ERR {what} cannot contain spaces, newlines or special characters.")))
}

fn setname(cx: &mut SessionCx<'_>, mut args: Args<'_>) -> Result<(), Refusal> {
    let name = args.bytes()?;
    check_name(name, "Client names")?;
    cx.session.name = name.to_vec();
    cx.reply.ok();
    Ok(())
}

fn getname(cx: &mut SessionCx<'_>, _args: Args<'_>) -> Result<(), Refusal> {
    if cx.session.name.is_empty() {
        cx.reply.null()
    } else {
        cx.reply.bulk(&cx.session.name)
    }
    Ok(())
}

/// `CLIENT SETINFO LIB-NAME name | LIB-VER version`.
fn setinfo(cx: &mut SessionCx<'_>, mut args: Args<'_>) -> Result<(), Refusal> {
    let attribute = args.word()?;
    let slot = match attribute.to_ascii_lowercase().as_slice() {
        b"lib-name" => &mut cx.session.lib_name,
        b"lib-ver" => &mut cx.session.lib_version,
        _ => {
            return Err(Refusal::quoting("ERR Unrecognized option '", attribute, "'"));
        }
    };
    let attribute = String::from_utf8_lossy(attribute).to_ascii_lowercase();
    let value = args.bytes()?;
    check_name(value, &attribute)?;
    *slot = value.to_vec();
    cx.reply.ok();
    Ok(())
}

fn on_off(args: &mut Args<'_>) -> Result<bool, Refusal> {
    match args.word()?.to_ascii_lowercase().as_slice() {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => Err(Refusal::Syntax),
    }
}

fn no_evict(cx: &mut SessionCx<'_>, mut args: Args<'_>) -> Result<(), Refusal> {
    cx.session.no_evict = on_off(&mut args)?;
    cx.reply.ok();
    Ok(())
}

fn no_touch(cx: &mut SessionCx<'_>, mut args: Args<'_>) -> Result<(), Refusal> {
    cx.session.no_touch = on_off(&mut args)?;
    cx.reply.ok();
    Ok(())
}

/// `CLIENT REPLY ON | OFF | SKIP`: only ON gets a reply.
fn reply(cx: &mut SessionCx<'_>, mut args: Args<'_>) -> Result<(), Refusal> {
    match args.word()?.to_ascii_lowercase().as_slice() {
        b"on" => {
            cx.session.reply_mode = ReplyMode::On;
            cx.reply.ok();
        }
        b"off" => cx.session.reply_mode = ReplyMode::Off,
        b"skip" => {
            if cx.session.reply_mode != ReplyMode::Off {
                cx.session.reply_mode = ReplyMode::SkipNext;
            }
        }
        _ => return Err(Refusal::Syntax),
    }
    Ok(())
}

async fn info(call: ServerCall) -> Result<Answer, Refusal> {
    let id = call.session.handle;
    let core = &call.core;
    let text = core.with_client(id, |conn| line(core, &conn.lane.session, Some(conn)).text);
    Ok(call.answer(|reply| reply.verbatim(*b"txt", text.unwrap_or_default().as_bytes())))
}

/// `CLIENT LIST [TYPE type] [ID id [id ...]]`: lists clients in the order of their ids. With ID,
/// the clients are listed in the order of the request, and a repeated id is listed again.
async fn list(call: ServerCall) -> Result<Answer, Refusal> {
    let query = ListQuery::read(&call).await?;
    let held = call.core.hold_moves().await;
    let gathered = call.core.run_on_all(|| {
        let query = query.clone();
        move |core: Rc<Core>| async move { lines(&core, &query).await }
    });
    let gathered = gathered.await;
    drop(held);
    let mut by_id = BTreeMap::new();
    for line in gathered.into_iter().flatten() {
        by_id.insert(line.id, line.text);
        call.core.tx.pause().await;
    }
    let mut text = LongText::default();
    if query.has_ids() {
        let mut ids = call.args();
        ids.next(); // Skips the word ID.
        while let Some(id) = ids.next() {
            // Parsed a second time, because a stored list of ids would have to be freed in
            // portions, too.
            let line = client_list::id(id).and_then(|id| by_id.get(&id));
            text.tail.push_str(line.map_or("", String::as_str));
            text.settle();
            call.core.tx.pause().await;
        }
    }
    while let Some((_, line)) = by_id.pop_first() {
        if !query.has_ids() {
            text.tail.push_str(&line);
            text.settle();
        }
        call.core.tx.pause().await;
    }
    Ok(text.into_answer(&call))
}

/// The CLIENT LIST lines of this core's connections that match `query`.
async fn lines(core: &Core, query: &ListQuery) -> Vec<Line> {
    let mut lines = Vec::new();
    core.each_conn(|conn| {
        let session = &conn.lane.session;
        if query.fits(session) {
            lines.push(line(core, session, Some(conn)));
        }
    })
    .await;
    lines
}

/// `CLIENT KILL addr` replies OK or an error; with filters, the number of killed clients.
async fn kill(call: ServerCall) -> Result<Answer, Refusal> {
    let mut args = call.args();
    let old_form = args.left() == 1;
    let filter = if old_form { Filter::of_addr(args.bytes()?) } else { Filter::parse(&mut args)? };
    let me = call.session.id;
    let held = call.core.hold_moves().await;
    let killed = call.core.run_on_all(|| {
        let filter = filter.clone();
        move |core: Rc<Core>| async move { kill_here(&core, &filter, me).await }
    });
    let killed = killed.await.into_iter().sum();
    drop(held);
    if old_form {
        if killed == 0 {
            return Err(Refusal::line("ERR No such client"));
        }
        return Ok(call.answer(|reply| reply.ok()));
    }
    Ok(call.answer(|reply| reply.count(killed)))
}

/// Kills the matching clients of this core, and returns their number. If the caller (client `me`)
/// matches, it is closed after it has received its reply.
async fn kill_here(core: &Core, filter: &Filter, me: u64) -> usize {
    let (now, mut killed) = (core.now_ms(), 0);
    core.each_conn(|conn| {
        let lane = &mut conn.lane;
        let spared = filter.skip_me && lane.session.id == me;
        if !spared && !lane.session.is_killed() && filter.fits(&lane.session, now) {
            killed += 1;
            if lane.session.id == me {
                lane.session.close_after_reply(); // The caller still gets its reply.
            } else {
                core.kill(lane);
            }
        }
    })
    .await;
    killed
}

/// `CLIENT PAUSE timeout [WRITE | ALL]`. If two pauses overlap, the later end and the stricter mode
/// apply, as in Redis. ALL also holds CLIENT UNPAUSE.
async fn pause(call: ServerCall) -> Result<Answer, Refusal> {
    let mut args = call.args();
    let timeout = args.bytes()?;
    if args.left() > 1 {
        return Err(super::wrong_subcommand(args));
    }
    let reads = match args.next().map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"all") => true,
        Some(b"write") => false,
        Some(_) => return Err(Refusal::line("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let timeout = number::parse_i64(timeout)
        .ok_or_else(|| Refusal::line("ERR timeout is not an integer or out of range"))?;
    let timeout = u64::try_from(timeout).map_err(|_| Refusal::line("ERR timeout is negative"))?;
    let until = call.core.now_ms().saturating_add(timeout);
    // As in Redis, an end time out of range counts as past, so nothing is paused.
    if i64::try_from(until).is_ok() {
        set_pause(&call.core, Some((until, reads))).await;
    }
    Ok(call.answer(|reply| reply.ok()))
}

async fn unpause(call: ServerCall) -> Result<Answer, Refusal> {
    set_pause(&call.core, None).await;
    Ok(call.answer(|reply| reply.ok()))
}

/// `CLIENT UNBLOCK id [TIMEOUT | ERROR]`: ends the wait of a blocked client as if it had timed out,
/// or with an error. Replies 1, or 0 if the client is not blocked.
async fn unblock(call: ServerCall) -> Result<Answer, Refusal> {
    let mut args = call.args();
    let id = args.bytes()?;
    let with_error = match args.next().map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"timeout") => false,
        Some(b"error") => true,
        Some(_) => {
            let text = "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR";
            return Err(Refusal::line(text));
        }
    };
    if args.left() > 0 {
        return Err(super::wrong_subcommand(call.args()));
    }
    let id = number::parse_i64(id).ok_or(Refusal::NotAnInteger)?;
    let done = match u64::try_from(id) {
        Ok(id) if id > 0 => {
            // A client that is moving between two cores cannot be blocked, so a miss during a move
            // is correct.
            let unblock = || move |core: &Rc<Core>| core.unblock(id, with_error);
            call.core.ask_all(unblock).await.contains(&true)
        }
        _ => false,
    };
    Ok(call.answer(|reply| reply.int(i64::from(done))))
}

/// Sets the pause on all cores. Core 0 merges concurrent pauses one by one and sends the result, so
/// that all cores end with the same pause.
async fn set_pause(core: &Rc<Core>, pause: Option<(u64, bool)>) {
    let decide = move |core: Rc<Core>| async move {
        let before = core.hot.borrow().pause;
        let pause = pause.map(|pause| merged(before, pause, core.now_ms()));
        core.ask_all(|| move |core: &Rc<Core>| core.hot.borrow_mut().pause = pause).await;
    };
    core.run_on(0, decide).await;
}

/// Merges a pause with the previous one, unless the previous one is over.
fn merged(before: Option<(u64, bool)>, pause: (u64, bool), now_ms: u64) -> (u64, bool) {
    let before = before.filter(|(until, _)| *until > now_ms);
    before.map_or(pause, |(until, reads)| (pause.0.max(until), pause.1 || reads))
}

fn help(cx: &mut SessionCx<'_>, _args: Args<'_>) -> Result<(), Refusal> {
    super::help(
        cx,
        "CLIENT",
        &[
            "CACHING (YES|NO)",
            "    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
            "GETREDIR",
            "    Return the client ID we are redirecting to when tracking is enabled.",
            "GETNAME",
            "    Return the name of the current connection.",
            "ID",
            "    Return the ID of the current connection.",
            "INFO",
            "    Return information about the current client connection.",
            "KILL <ip:port>",
            "    Kill connection made from <ip:port>.",
            "KILL <option> <value> [<option> <value> [...]]",
            "    Kill connections. Options are:",
            "    * ADDR (<ip:port>|<unixsocket>:0)",
            "      Kill connections made from the specified address",
            "    * LADDR (<ip:port>|<unixsocket>:0)",
            "      Kill connections made to specified local address",
            "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
            "      Kill connections by type.",
            "    * USER <username>",
            "      Kill connections authenticated by <username>.",
            "    * SKIPME (YES|NO)",
            "      Skip killing current connection (default: yes).",
            "    * MAXAGE <seconds>",
            "      Kill connections that are at least so old.",
            "LIST [options ...]",
            "    Return information about client connections. Options:",
            "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
            "      Return clients of specified type.",
            "UNBLOCK <clientid> [TIMEOUT|ERROR]",
            "    Unblock the specified blocked client.",
            "UNPAUSE",
            "    Stop the current client pause, resuming traffic.",
            "PAUSE <timeout> [WRITE|ALL]",
            "    Suspend all, or just write, clients for <timeout> milliseconds.",
            "REPLY (ON|OFF|SKIP)",
            "    Control the replies sent to the current connection.",
            "SETINFO <option> <value>",
            "    Set client meta attr. Options are LIB-NAME and LIB-VER.",
            "SETNAME <name>",
            "    Assign the name <name> to the current connection.",
            "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
            "         [OPTIN] [OPTOUT] [NOLOOP]",
            "    Control server assisted client side caching.",
            "TRACKINGINFO",
            "    Report tracking status for the current connection.",
            "NO-EVICT (ON|OFF)",
            "    Protect current client connection from eviction.",
            "NO-TOUCH (ON|OFF)",
            "    Will not touch LRU/LFU stats when this mode is on.",
        ],
    );
    Ok(())
}

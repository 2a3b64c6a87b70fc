//! PING, ECHO, HELLO, AUTH, SELECT, QUIT, RESET.

use super::{history, now, secret, syntax, tips};
use crate::engine::{ReplyMode, Runner, SessionCx, monitor};
use darter_base::number;
use darter_command::{Args, Command, Flags, Group, Refusal, Secret};
use darter_resp::{Arg, Reply};
use std::hint::black_box;

const FAST: Flags = Flags::FAST;
const OPEN: Flags = Flags::NOSCRIPT
    .and(Flags::LOADING)
    .and(Flags::STALE)
    .and(Flags::FAST)
    .and(Flags::NO_AUTH)
    .and(Flags::ALLOW_BUSY);

#[rustfmt::skip] // A table.
pub(super) const TABLE: &[(Command, Runner)] = &[
    syntax(tips(now("ping",   "1.0.0", -1, FAST.and(Flags::TELLS_OF_DISK).and(Flags::WHILE_SUBSCRIBED), Group::Connection, ping, ("Ping the server", "O(1)")), &["request_policy:all_shards", "response_policy:all_succeeded"]), "[message]"),
    syntax(now("echo",   "1.0.0", 2, FAST.and(Flags::LOADING).and(Flags::STALE), Group::Connection, echo, ("Echo the given string", "O(1)")), "message"),
    history(syntax(secret(now("hello", "6.0.0", -1, OPEN, Group::Connection, hello, ("Handshake with Redis", "O(1)")), Secret::After { word: "AUTH", count: 2 }), "[arguments: protover:integer [AUTH(username_password: username password)] [SETNAME clientname]]"), &[("6.2.0", "`protover` made optional; when called without arguments the command reports the current connection's context.")]),
    history(syntax(secret(now("auth", "1.0.0", -2, OPEN, Group::Connection, auth, ("Authenticate to the server", "O(N) where N is the number of passwords defined for the user")), Secret::All), "[username]@6.0.0 password"), &[("6.0.0", "Added ACL style (username and password).")]),
    syntax(now("select", "1.0.0", 2, FAST.and(Flags::LOADING).and(Flags::STALE).and(Flags::SELECTS), Group::Connection, select, ("Change the selected database for the current connection", "O(1)")), "index:integer"),
    now("quit",   "1.0.0", -1, OPEN.and(Flags::AT_ONCE).and(Flags::WHILE_SUBSCRIBED), Group::Connection, quit, ("Close the connection", "O(1)")),
    now("reset",  "6.2.0", 1, OPEN.and(Flags::AT_ONCE).and(Flags::WHILE_SUBSCRIBED), Group::Connection, reset, ("Reset the connection", "O(1)")),
];

/// `PING [message]`. A subscribed RESP2 client gets an array, because it expects only pushes.
fn ping(cx: &mut SessionCx<'_>, args: Args<'_>) -> Result<(), Refusal> {
    let is_subscribed = cx.session.subscribed.is_any() && !cx.session.resp3;
    match args.left() {
        0 | 1 if is_subscribed => {
            cx.reply.array(2);
            cx.reply.bulk(b"pong");
            match args.left() {
                0 => cx.reply.bulk(b""),
                _ => send_back(&mut cx.reply, args),
            }
        }
        0 => cx.reply.simple("PONG"),
        1 => send_back(&mut cx.reply, args),
        _ => return Err(Refusal::Arity("ping".into())),
    }
    Ok(())
}

/// `ECHO message`.
fn echo(cx: &mut SessionCx<'_>, args: Args<'_>) -> Result<(), Refusal> {
    send_back(&mut cx.reply, args);
    Ok(())
}

/// Replies with the next argument. A large argument is shared with the request, not copied.
fn send_back(reply: &mut Reply<'_>, args: Args<'_>) {
    let message = args.all().arg(args.position());
    let Arg::Chunks { chunks, .. } = message else { return reply.bulk(message.bytes()) };
    reply.bulk_header(message.len());
    for chunk in chunks {
        reply.out.share(chunk, 0..chunk.len());
    }
    reply.crlf();
}

/// `SELECT index`.
fn select(cx: &mut SessionCx<'_>, mut args: Args<'_>) -> Result<(), Refusal> {
    let index = args.int()?;
    if i32::try_from(index).is_err() {
        return Err(Refusal::line(
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        ));
    }
    let databases = cx.core.tx.home().shard.databases();
    let index = usize::try_from(index).ok().filter(|index| *index < databases);
    cx.session.db = index.ok_or_else(|| Refusal::line("ERR DB index is out of range"))?;
    cx.reply.ok();
    Ok(())
}

/// `QUIT`.
fn quit(cx: &mut SessionCx<'_>, _args: Args<'_>) -> Result<(), Refusal> {
    cx.reply.ok();
    cx.session.close_after_reply();
    Ok(())
}

/// `RESET`: returns the connection to its state right after it was accepted.
fn reset(cx: &mut SessionCx<'_>, _args: Args<'_>) -> Result<(), Refusal> {
    let session = &mut *cx.session;
    if session.monitor {
        session.monitor = false;
        monitor::end(cx.core, session.handle);
    }
    let subscribed = std::mem::take(&mut session.subscribed);
    if subscribed.id > 0 {
        cx.core.subscriber_left(subscribed.id);
    }
    cx.core.stop_tracking(session.handle, std::mem::take(&mut session.tracking));
    session.db = 0;
    session.resp3 = false;
    session.name.clear();
    // The command after CLIENT REPLY SKIP gets no reply, even RESET.
    if session.reply_mode != ReplyMode::Skip {
        session.reply_mode = ReplyMode::On;
    }
    session.no_evict = false;
    session.no_touch = false;
    session.authenticated = cx.core.hot.borrow().password.is_none();
    cx.reply.simple("RESET");
    Ok(())
}

/// `AUTH [username] password`.
fn auth(cx: &mut SessionCx<'_>, mut args: Args<'_>) -> Result<(), Refusal> {
    if args.left() > 2 {
        return Err(Refusal::Syntax);
    }
    if args.left() == 1 && cx.core.hot.borrow().password.is_none() {
        return Err(Refusal::line(
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        ));
    }
    let user = if args.left() == 2 { args.bytes()? } else { b"default" };
    authenticate(cx, user, args.bytes()?)?;
    cx.reply.ok();
    Ok(())
}

fn authenticate(cx: &mut SessionCx<'_>, user: &[u8], password: &[u8]) -> Result<(), Refusal> {
    let expected = cx.core.hot.borrow().password.clone();
    // If no password is set, the default user is authenticated by any password.
    let right = expected.is_none_or(|expected| same(expected.as_bytes(), password));
    if user != b"default" || !right {
        return Err(Refusal::line("WRONGPASS invalid username-password pair or user is disabled."));
    }
    cx.session.authenticated = true;
    Ok(())
}

/// Compares two byte strings in constant time, so that timing reveals nothing about the password.
fn same(expected: &[u8], given: &[u8]) -> bool {
    let mut different = expected.len() ^ given.len();
    for (at, byte) in given.iter().enumerate() {
        let other = expected.get(at % expected.len().max(1)).copied().unwrap_or(0);
        different |= black_box(usize::from(byte ^ other));
    }
    different == 0
}

/// `HELLO [protover [AUTH username password] [SETNAME name]]`.
fn hello(cx: &mut SessionCx<'_>, mut args: Args<'_>) -> Result<(), Refusal> {
    let mut resp3 = None;
    if let Some(version) = args.next() {
        let version = number::parse_i64(version).ok_or_else(|| {
            Refusal::line("ERR Protocol version is not an integer or out of range")
        })?;
        if !(2..=3).contains(&version) {
            return Err(Refusal::line("NOPROTO unsupported protocol version"));
        }
        resp3 = Some(version == 3);
    }
    let mut name = None;
    while let Ok(option) = args.word() {
        if option.eq_ignore_ascii_case(b"AUTH") && args.left() >= 2 {
            let user = args.bytes()?;
            authenticate(cx, user, args.bytes()?)?;
        } else if option.eq_ignore_ascii_case(b"SETNAME") && args.left() >= 1 {
            let new = args.bytes()?;
            super::client::check_name(new, "Client names")?;
            name = Some(new);
        } else {
            return Err(Refusal::quoting("ERR Syntax error in HELLO option '", option, "'"));
        }
    }
    if !cx.session.authenticated {
        return Err(Refusal::line(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO AUTH <user> <pass> option can be used to authenticate the client and select \
             the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        cx.session.name = name.to_vec();
    }
    cx.session.resp3 = resp3.unwrap_or(cx.session.resp3);
    let mut reply = darter_resp::Reply::new(cx.reply.out, cx.session.resp3);
    reply.map(7);
    reply.bulk(b"server");
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(super::info::REDIS_VERSION.as_bytes());
    reply.bulk(b"proto");
    reply.int(if cx.session.resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.int(i64::try_from(cx.session.id).unwrap_or(i64::MAX));
    reply.bulk(b"mode");
    reply.bulk(b"standalone");
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}

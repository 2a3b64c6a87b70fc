//! The DEBUG commands, for tests, benchmarks and debugging.

use super::{system, task};
use crate::engine::{Core, Runner, ServerCall};
use darter_base::number;
use darter_command::{Answer, Args, Command, Flags, Group, Refusal};
use darter_families::TYPES;
use darter_resp::Reply;
use std::rc::Rc;
use std::time::Duration;

mod populate;
mod reload;
mod report;

const ADMIN: Flags = Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE);

#[rustfmt::skip] // A table.
pub(super) const TABLE: &[(Command, Runner)] = &[
    system(task("debug", "1.0.0", -2, ADMIN, Group::Server, |call| Box::pin(debug(call)), ("A container for debugging commands", "Depends on subcommand."))),
];

/// `DEBUG subcommand ...`.
async fn debug(call: ServerCall) -> Result<Answer, Refusal> {
    let settings = call.core.admin.settings();
    let allowed = match settings.text("enable-debug-command") {
        "yes" => true,
        "local" => call.session.peer.is_local,
        _ => false,
    };
    if !allowed {
        return Err(Refusal::line(
            "ERR DEBUG command not allowed. If the enable-debug-command option is set to \
             \"local\", you can run it from a local connection, otherwise you need to set this \
             option in the configuration file, and then restart the server.",
        ));
    }
    let whole = call.args();
    let mut args = whole;
    let word = args.word()?.to_ascii_lowercase();
    match word.as_slice() {
        _ if !takes(&word, args.left()) => Err(super::wrong_subcommand(whole)),
        b"sleep" => sleep(&call, args),
        b"set-active-expire" => set_active_expire(&call, args).await,
        b"set-disable-deny-scripts" => set_disable_deny_scripts(&call, args).await,
        b"protocol" => protocol(&call, args),
        b"log" => log(&call, args),
        b"quicklist-packed-threshold" => quicklist_packed_threshold(&call, args),
        b"change-repl-id" | b"pause-cron" | b"replicate" | b"replybuffer" | b"aof-flush-sleep" => {
            Ok(call.answer(|reply| reply.ok())) // Accepted without effect.
        }
        b"reload" => reload::reload(&call, args).await,
        b"populate" => populate::populate(&call, args).await,
        b"object" => call.while_there(report::object(&call, args)).await,
        b"digest" => call.while_there(report::digest(&call)).await,
        b"digest-value" => call.while_there(report::digest_value(&call, args)).await,
        b"table" => call.while_there(report::table(&call)).await,
        b"check" => call.while_there(report::check(&call)).await,
        b"error" => error(args),
        b"help" => Ok(help(&call)),
        _ => Err(super::wrong_subcommand(whole)),
    }
}

/// True if the subcommand `word` takes `args` arguments.
fn takes(word: &[u8], args: usize) -> bool {
    match word {
        b"sleep"
        | b"set-active-expire"
        | b"object"
        | b"error"
        | b"log"
        | b"protocol"
        | b"set-disable-deny-scripts"
        | b"quicklist-packed-threshold"
        | b"pause-cron"
        | b"aof-flush-sleep" => args == 1,
        b"populate" | b"replicate" => args >= 1,
        b"replybuffer" => args == 2,
        b"digest" | b"table" | b"check" | b"help" | b"change-repl-id" => args == 0,
        _ => true,
    }
}

/// `DEBUG SLEEP seconds`: blocks this core, to demonstrate a stall.
///
/// As in Redis, the core does not sleep if the argument begins with no number, or is not a valid
/// time.
fn sleep(call: &ServerCall, mut args: Args<'_>) -> Result<Answer, Refusal> {
    let seconds = leading_number(args.word()?);
    let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let end = call.core.clock.monotonic_ns().saturating_add(ns);
    while call.core.clock.monotonic_ns() < end {
        std::hint::spin_loop();
    }
    Ok(call.answer(|reply| reply.ok()))
}

/// Parses the decimal number at the start of `text`; 0 if there is none. Cost: one pass.
fn leading_number(text: &[u8]) -> f64 {
    let sign_at = |at: usize| usize::from(matches!(text.get(at), Some(b'+' | b'-')));
    let digits = |at: usize| text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut end = sign_at(0) + digits(sign_at(0));
    if text.get(end) == Some(&b'.') {
        end += 1 + digits(end + 1);
    }
    if let Some(b'e' | b'E') = text.get(end) {
        let power = end + 1 + sign_at(end + 1);
        let length = digits(power);
        end = if length > 0 { power + length } else { end };
    }
    let number = std::str::from_utf8(&text[..end]).unwrap_or_default();
    number.parse().unwrap_or_default()
}

/// `DEBUG SET-ACTIVE-EXPIRE 0 | 1`.
async fn set_active_expire(call: &ServerCall, mut args: Args<'_>) -> Result<Answer, Refusal> {
    // As in Redis, an argument that is not a number counts as 0.
    let on = number::leading_i32(args.bytes()?) != 0;
    call.core.ask_all(|| move |core: &Rc<Core>| core.hot.borrow_mut().active_expire = on).await;
    Ok(call.answer(|reply| reply.ok()))
}

/// `DEBUG SET-DISABLE-DENY-SCRIPTS 0 | 1`: with 1, scripts may also call commands that have the
/// flag `noscript`.
async fn set_disable_deny_scripts(
    call: &ServerCall,
    mut args: Args<'_>,
) -> Result<Answer, Refusal> {
    let allowed = number::leading_i32(args.bytes()?) != 0;
    call.core.ask_all(|| move |core: &Rc<Core>| core.hot.borrow_mut().noscript = !allowed).await;
    Ok(call.answer(|reply| reply.ok()))
}

/// `DEBUG LOG text`.
fn log(call: &ServerCall, mut args: Args<'_>) -> Result<Answer, Refusal> {
    /// The number of bytes of the text that are logged.
    const SHOWN: usize = 1_024;
    let text = args.bytes()?;
    tracing::warn!("DEBUG LOG: {}", text[..text.len().min(SHOWN)].escape_ascii());
    Ok(call.answer(|reply| reply.ok()))
}

/// `DEBUG QUICKLIST-PACKED-THRESHOLD bytes`: the argument is checked as in Redis, but has no
/// effect, because lists here have no such threshold.
fn quicklist_packed_threshold(call: &ServerCall, mut args: Args<'_>) -> Result<Answer, Refusal> {
    /// 4 GiB minus the reserve that Redis subtracts.
    const MOST: u64 = (1 << 32) - (1 << 20);
    let text = std::str::from_utf8(args.bytes()?).ok();
    match text.and_then(crate::settings::bytes) {
        Some(0..=MOST) => Ok(call.answer(|reply| reply.ok())),
        _ => {
            let why = "ERR argument must be a memory value bigger than 1 and smaller than 4gb";
            Err(Refusal::line(why))
        }
    }
}

/// `DEBUG PROTOCOL type`: replies with a sample of a reply type, for tests of clients.
fn protocol(call: &ServerCall, mut args: Args<'_>) -> Result<Answer, Refusal> {
    const WRONG: &str = "ERR Wrong protocol type name. Please use one of the following: \
        string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false";
    let word = args.word()?.to_ascii_lowercase();
    let write: fn(&mut Reply<'_>) = match word.as_slice() {
        b"string" => |reply| reply.bulk(b"Hello World"),
        b"integer" => |reply| reply.int(12_345),
        b"double" => |reply| reply.double_text("3.141"),
        b"bignum" => |reply| reply.big_number("1234567999999999999999999999999999999"),
        b"null" => |reply| reply.null(),
        b"array" => |reply| {
            reply.array(3);
            (0..3).for_each(|number| reply.int(number));
        },
        b"set" => |reply| {
            reply.set(3);
            (0..3).for_each(|number| reply.int(number));
        },
        b"map" => |reply| {
            reply.map(3);
            for number in 0..3 {
                reply.int(number);
                reply.boolean(number == 1);
            }
        },
        b"attrib" => |reply| {
            if reply.is_resp3() {
                reply.attributes(1);
                reply.bulk(b"key-popularity");
                reply.array(2);
                reply.bulk(b"key:123");
                reply.int(90);
            }
            reply.bulk(b"Some real reply following the attribute");
        },
        b"push" if !call.session.resp3 => {
            return Err(Refusal::line("ERR RESP2 is not supported by this command"));
        }
        b"push" => |reply| {
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.int(42);
            reply.bulk(b"Some real reply following the push reply");
        },
        b"verbatim" => |reply| reply.verbatim(*b"txt", b"This is a verbatim\nstring"),
        b"true" => |reply| reply.boolean(true),
        b"false" => |reply| reply.boolean(false),
        _ => return Err(Refusal::line(WRONG)),
    };
    Ok(call.answer(write))
}

/// `DEBUG ERROR text`: replies with the text as an error, for tests of clients.
fn error(mut args: Args<'_>) -> Result<Answer, Refusal> {
    Err(Refusal::Line(args.bytes()?.to_vec().into()))
}

fn help(call: &ServerCall) -> Answer {
    let types: Vec<&str> = TYPES.iter().map(|kind| kind.name).collect();
    let types = types.join("|");
    let populate =
        format!("POPULATE <count> [<prefix>] [<size>] [RAND] [TYPE {types}] [ELEMENTS <n>]");
    let lines = [
        "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CHECK",
        "    Assert the invariants of all tables.",
        "DIGEST",
        "    Output a hex signature representing the current DB content.",
        "DIGEST-VALUE <key> [<key> ...]",
        "    Output a hex signature of the values of all the specified keys.",
        "CHANGE-REPL-ID, PAUSE-CRON, REPLICATE, REPLYBUFFER, AOF-FLUSH-SLEEP,",
        "QUICKLIST-PACKED-THRESHOLD",
        "    Accepted for tests of other servers, without effect.",
        "ERROR <string>",
        "    Return a Redis protocol error with <string> as message. Useful for clients",
        "    unit tests to simulate Redis errors.",
        "LOG <message>",
        "    Write <message> to the server log.",
        "OBJECT <key>",
        "    Show low level info about `key` and associated value.",
        &populate,
        "    Create <count> keys named key:<num>. If <prefix> is specified then it",
        "    is used instead of the 'key' prefix.",
        "PROTOCOL <type>",
        "    Reply with a test value of the specified type.",
        "RELOAD [NOSAVE] [NOFLUSH]",
        "    Save the RDB on disk and reload it back to memory.",
        "SET-ACTIVE-EXPIRE <0|1>",
        "    Setting it to 0 disables expiring keys in background.",
        "SET-DISABLE-DENY-SCRIPTS <0|1>",
        "    Setting it to 1 lets scripts call commands with the flag noscript.",
        "SLEEP <seconds>",
        "    Stop one core for <seconds>. Decimals allowed.",
        "TABLE",
        "    Report how full the tables of keys are.",
        "HELP",
        "    Prints this help.",
    ];
    call.answer(|reply| {
        reply.array(lines.len());
        lines.iter().for_each(|line| reply.simple(line));
    })
}

#[cfg(test)]
mod tests {
    use super::leading_number;

    #[test] // Parsing takes one pass; otherwise a long text would take minutes.
    fn debug_sleep_parses_the_number_at_the_start_of_its_argument() {
        #[rustfmt::skip] // A table.
        let cases: &[(&str, f64)] = &[
            ("", 0.0), ("x", 0.0), ("1", 1.0), ("0.5", 0.5), (".5", 0.5), ("1.", 1.0), (".", 0.0),
            ("1.5x", 1.5), ("-2", -2.0), ("+2", 2.0), ("-", 0.0), ("1e2", 100.0), ("1e", 1.0),
            ("1e-", 1.0), ("1e-1s", 0.1), ("1E+1", 10.0), ("1.2.3", 1.2), (".e5", 0.0), ("e5", 0.0),
        ];
        for (text, expected) in cases {
            assert_eq!(leading_number(text.as_bytes()), *expected, "{text:?}");
        }
        let long = "1".repeat(1_000_000) + &"x".repeat(1_000_000);
        assert_eq!(leading_number(long.as_bytes()), f64::INFINITY);
        assert_eq!(leading_number(&[b'1', 0xff]), 1.0);
    }
}

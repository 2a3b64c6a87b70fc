//! CONFIG GET, SET, REWRITE, RESETSTAT, HELP.

use super::{container, history, now, secret, syntax, task, tips};
use crate::engine::saving::rewriting;
use crate::engine::state::changes::{Change, Pairs};
use crate::engine::state::pubsub::events::EventClasses;
use crate::engine::{ClientLimits, Core, LOADING, OutputLimit, Runner, ServerCall, SessionCx};
use crate::files;
use crate::journal::{Growth, Sync};
use crate::saving::{Point, Rules, Words};
use crate::settings::{ROWS, SettingKind, Settings, Wrong, file};
use darter_base::glob::{self, Case};
use darter_base::limits;
use darter_command::{Answer, Args, Command, Flags, Group, Refusal, Secret};
use darter_families::TYPES;
use std::rc::Rc;
use std::sync::Arc;

const ADMIN: Flags = Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE);

#[rustfmt::skip] // A table.
pub(super) const TABLE: &[(Command, Runner)] = &[
    container("config", "2.0.0", Flags::NONE, Group::Server, "A container for server configuration commands"),
    history(syntax(now("config|get", "2.0.0", -3, ADMIN, Group::Server, get, ("Get the values of configuration parameters", "O(N) when N is the number of configuration parameters provided")), "(parameter: parameter)..."), &[("7.0.0", "Added the ability to pass multiple pattern parameters in one call")]),
    history(syntax(secret(tips(task("config|set", "2.0.0", -4, ADMIN, Group::Server, |call| Box::pin(set(call)), ("Set configuration parameters to the given values", "O(N) when N is the number of configuration parameters provided")), &["request_policy:all_nodes", "response_policy:all_succeeded"]), Secret::After { word: "requirepass", count: 1 }), "(parameter_value: parameter value)..."), &[("7.0.0", "Added the ability to set multiple parameters in one call.")]),
    task("config|rewrite", "2.8.0", 2, ADMIN, Group::Server, |call| Box::pin(rewrite(call)), ("Rewrite the configuration file with the in memory configuration", "O(1)")),
    task("config|resetstat", "2.0.0", 2, ADMIN, Group::Server, |call| Box::pin(resetstat(call)), ("Reset the stats returned by INFO", "O(1)")),
    now("config|help", "5.0.0", 2, Flags::LOADING.and(Flags::STALE), Group::Server, help, ("Show helpful text about the different subcommands", "O(1)")),
];

/// `CONFIG GET pattern [pattern ...]`.
fn get(cx: &mut SessionCx<'_>, args: Args<'_>) -> Result<(), Refusal> {
    let settings = cx.core.admin.settings();
    let patterns: Vec<&[u8]> = args.all().iter().skip(args.position()).collect();
    let mut wanted: Vec<(&[u8], &str)> = Vec::new();
    for pattern in patterns {
        let is_glob = pattern.iter().any(|byte| b"[*?".contains(byte));
        for (name, value, is_shown) in settings.names() {
            let name = name.as_bytes();
            if (is_glob && !is_shown)
                || !glob::matches_case(pattern, name, Case::Insensitive)
                || wanted.iter().any(|(other, _)| other.eq_ignore_ascii_case(name))
            {
                continue;
            }
            // As in Redis, a name is returned in the letter case in which it was requested.
            wanted.push((if is_glob { name } else { pattern }, value));
        }
    }
    cx.reply.map(wanted.len());
    for (name, value) in wanted {
        cx.reply.bulk(name);
        cx.reply.bulk(value.as_bytes());
    }
    Ok(())
}

/// `CONFIG SET name value [name value ...]`: sets all values, or none if one is refused.
async fn set(call: ServerCall) -> Result<Answer, Refusal> {
    let mut args = call.args();
    if !args.left().is_multiple_of(2) {
        return Err(Refusal::Syntax);
    }
    let (mut pairs, mut stray) = (Vec::new(), None);
    while let (Ok(name), Some(value)) = (args.word(), args.next()) {
        may_set(&call, name, &pairs)?;
        pairs.push((text(name), text(value)));
        if std::str::from_utf8(value).is_err() {
            stray.get_or_insert_with(|| text(name));
        }
    }
    if let Some(name) = stray {
        return Err(failed(&refuse_stray(&call.core.admin.settings(), &name, &pairs)));
    }
    decide(&call.core, pairs).await.map_err(|why| failed(&why))?;
    Ok(call.answer(|reply| reply.ok()))
}

fn failed(why: &str) -> Refusal {
    Refusal::line(format!("ERR CONFIG SET failed (possibly related to argument {why}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the error for a value of `name` that is not UTF-8. Settings are stored as UTF-8 text, as
/// in the settings file, so a password with other bytes could never match. Errors of other values
/// take precedence.
fn refuse_stray(settings: &Settings, name: &str, pairs: &Pairs) -> String {
    let mut settings = Settings::clone(settings);
    let wrong = pairs.iter().find_map(|(name, value)| settings.set(name, value).err());
    wrong.map_or_else(|| format!("'{name}') - argument must be UTF-8"), |wrong| in_words(&wrong))
}

/// Checks that this client may set `name`, and that `before` does not have it yet. As in Redis, all
/// names are checked before any value.
fn may_set(call: &ServerCall, name: &[u8], before: &[(String, String)]) -> Result<(), Refusal> {
    let word = text(name);
    match call.core.admin.settings().may_set(&word, call.session.peer.is_local) {
        Err(Wrong::Unknown(_)) => {
            let why = "ERR Unknown option or number of arguments for CONFIG SET - '";
            Err(Refusal::quoting(why, name, "'"))
        }
        Err(wrong) => Err(failed(&in_words(&wrong))),
        Ok(()) if is_held_while_loading(&word) && call.core.hot.borrow().loading => {
            Err(Refusal::line(LOADING))
        }
        Ok(()) if before.iter().any(|(other, _)| other.eq_ignore_ascii_case(&word)) => {
            Err(failed(&format!("'{word}') - duplicate parameter")))
        }
        Ok(()) => Ok(()),
    }
}

/// True if loading depends on the setting `name`, so that it cannot be changed before loading has
/// ended.
fn is_held_while_loading(name: &str) -> bool {
    ["dir", "appendonly"].iter().any(|held| held.eq_ignore_ascii_case(name))
}

/// Sends a change of settings to core 0. Core 0 applies changes one by one: it begins the next when
/// all cores have applied the last. So all cores end with the same settings.
async fn decide(core: &Rc<Core>, pairs: Pairs) -> Result<(), String> {
    let (ticket, decided) = core.tx.ticket();
    let wanted = Change { pairs, from: core.id(), ticket };
    core.tell(0, move |there| {
        if there.admin.changes.borrow_mut().push(wanted) {
            there.spawn_on_self(make_changes);
        }
    });
    decided.await
}

/// Applies the queued changes one by one, until none is left.
async fn make_changes(core: Rc<Core>) {
    loop {
        let next = core.admin.changes.borrow_mut().next();
        let Some(Change { pairs, from, ticket }) = next else { return };
        let changed = change(&core, &pairs).await;
        core.return_to(from, ticket, Box::new(changed));
    }
}

/// Applies `pairs` on all cores. On an error nothing has changed.
async fn change(core: &Rc<Core>, pairs: &Pairs) -> Result<(), String> {
    let mut settings = Settings::clone(&core.admin.settings());
    for (name, value) in pairs {
        settings.set(name, value).map_err(|wrong| in_words(&wrong))?;
    }
    make_room(core, &settings)?;
    let changes_folder = pairs.iter().any(|(name, _)| name.eq_ignore_ascii_case("dir"));
    if changes_folder {
        settings.enter_folder().map_err(|error| format!("'dir') - {error}"))?;
    }
    let settings = Arc::new(settings);
    if let Err(why) = listen(core, pairs, &settings).await {
        if changes_folder {
            // Returns to the previous folder, if it still exists.
            let _ = Settings::clone(&core.admin.settings()).enter_folder();
        }
        return Err(why);
    }
    if let Err(why) = switch_journal(core, &settings).await {
        return Err(why.to_owned());
    }
    crate::log::follow(&settings);
    core.ask_all(|| {
        let settings = Arc::clone(&settings);
        move |core: &Rc<Core>| apply(core, settings)
    })
    .await;
    Ok(())
}

/// Turns the journal on or off, if the settings say so.
async fn switch_journal(core: &Rc<Core>, settings: &Settings) -> Result<(), &'static str> {
    let (is_on, was_on) = (settings.flag("appendonly"), core.admin.settings().flag("appendonly"));
    if is_on && !was_on && !rewriting::turn_on(Rc::clone(core)).await {
        return Err("'appendonly') - Unable to turn on AOF. Check server logs.");
    }
    if was_on && !is_on {
        rewriting::turn_off(Rc::clone(core)).await;
    }
    Ok(())
}

/// Refuses a value of `maxclients` above the limit of open files.
fn make_room(core: &Core, settings: &Settings) -> Result<(), String> {
    let clients = settings.size("maxclients");
    if clients <= core.admin.settings().size("maxclients") {
        return Ok(());
    }
    let machine = &*core.admin.shared.machine;
    files::make_room(machine, clients, core.tx.cores()).map_err(|fitting| {
        let why = "The operating system is not able to handle the specified number of clients";
        format!("'maxclients') - {why}, try with {fitting}")
    })
}

/// The error text in Redis's form: first the setting, then the reason.
fn in_words(wrong: &Wrong) -> String {
    wrong.to_string().replacen("' - ", "') - ", 1)
}

/// Applies changes of `port`, `bind` and `tcp-keepalive` to the listeners. On an error, no listener
/// has changed.
async fn listen(core: &Core, pairs: &Pairs, settings: &Arc<Settings>) -> Result<(), String> {
    let before = core.admin.settings();
    for (name, why) in [
        ("port", "Unable to listen on this port. Check server logs."),
        ("bind", "Failed to bind to specified addresses."),
        ("tcp-keepalive", "Failed to bind to specified addresses."),
    ] {
        let is_changed = pairs.iter().any(|(changed, _)| changed.eq_ignore_ascii_case(name));
        if is_changed && settings.text(name) != before.text(name) {
            let listens = core.listen(Arc::clone(settings)).await;
            return if listens { Ok(()) } else { Err(format!("'{name}') - {why}")) };
        }
    }
    Ok(())
}

/// Makes a core use `settings`.
pub fn apply(core: &Rc<Core>, settings: Arc<Settings>) {
    let mut hot = core.hot.borrow_mut();
    let password = settings.text("requirepass");
    hot.password = (!password.is_empty()).then(|| Arc::from(password));
    limits::set_string_max(settings.size("proto-max-bulk-len"));
    hot.bulk_max = limits::string_max_bytes();
    limits::set_name_max(settings.size("name-max-bytes"));
    hot.slow_ns = u64::try_from(settings.int("slowlog-log-slower-than"))
        .ok()
        .map(|us| us.saturating_mul(1_000));
    let bounds = TYPES.iter().flat_map(|row| row.bounds);
    bounds.for_each(|bound| bound.set(settings.size(bound.name)));
    hot.maxmemory = settings.size("maxmemory");
    hot.timeout_ms = settings.size("timeout") as u64 * 1_000;
    hot.clients_max = settings.size("maxclients").div_ceil(core.tx.cores());
    hot.protected = settings.flag("protected-mode");
    hot.script_log_level = crate::log::level_of_scripts(&settings);
    hot.client_limits = client_limits(&settings);
    hot.busy_reply_ms = settings.int("busy-reply-threshold").unsigned_abs();
    drop(hot);
    core.limits_changed();
    core.limit_tracked(settings.size("tracking-table-max-keys"));
    core.notify(EventClasses::parse(settings.text("notify-keyspace-events")));
    if core.id() == 0 {
        let points = Point::all(settings.text("save"));
        let stops_writes = settings.flag("stop-writes-on-bgsave-error");
        let on_term = Words::read(settings.text("shutdown-on-sigterm"));
        let on_int = Words::read(settings.text("shutdown-on-sigint"));
        let rules = Rules { points, stops_writes, on_term, on_int };
        core.admin.shared.saves.set_rules(rules);
        core.admin.shared.journal.set_sync(Sync::read(settings.text("appendfsync")));
        core.admin.shared.journal.set_timestamps(settings.flag("aof-timestamp-enabled"));
        core.admin.shared.journal.set_kept(settings.size("snapshot-keep"));
        core.admin.shared.journal.set_growth(Growth {
            percent: settings.size("auto-aof-rewrite-percentage") as u64,
            least_bytes: settings.size("auto-aof-rewrite-min-size") as u64,
        });
    }
    *core.admin.settings.borrow_mut() = settings;
}

fn client_limits(settings: &Settings) -> ClientLimits {
    let output = |class| {
        let [hard, soft, soft_s] = settings.output_limits(class);
        OutputLimit { hard, soft, soft_ms: soft_s as u64 * 1_000 }
    };
    ClientLimits {
        query: settings.size("client-query-buffer-limit"),
        normal: output("normal"),
        pubsub: output("pubsub"),
        all: settings.part("maxmemory-clients", settings.size("maxmemory")),
    }
}

/// `CONFIG REWRITE`.
async fn rewrite(call: ServerCall) -> Result<Answer, Refusal> {
    if call.core.admin.settings().file.is_none() {
        return Err(Refusal::line("ERR The server is running without a config file"));
    }
    let pause = async || call.core.tx.pause().await;
    file::rewrite(|| call.core.admin.settings(), call.session.id, pause)
        .await
        .map_err(|refused| Refusal::line(format!("ERR Rewriting config file: {refused}")))?;
    Ok(call.answer(|reply| reply.ok()))
}

/// `CONFIG RESETSTAT`.
async fn resetstat(call: ServerCall) -> Result<Answer, Refusal> {
    call.core
        .ask_all(|| {
            |core: &Rc<Core>| {
                core.stats.borrow_mut().reset();
                *core.slices.borrow_mut() = Default::default();
                core.tx.home().shard.stats = Default::default();
            }
        })
        .await;
    Ok(call.answer(|reply| reply.ok()))
}

fn help(cx: &mut SessionCx<'_>, _args: Args<'_>) -> Result<(), Refusal> {
    debug_assert!(ROWS.iter().any(|row| matches!(row.kind, SettingKind::Bool)));
    super::help(
        cx,
        "CONFIG",
        &[
            "GET <pattern>",
            "    Return parameters matching the glob-like <pattern> and their values.",
            "SET <directive> <value>",
            "    Set the configuration <directive> to <value>.",
            "RESETSTAT",
            "    Reset statistics reported by the INFO command.",
            "REWRITE",
            "    Rewrite the configuration file.",
        ],
    );
    Ok(())
}

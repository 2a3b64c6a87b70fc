//! COMMAND and its subcommands. All replies are built from the rows of the command table.

use super::{categories as in_categories, command_docs, command_keys, history, now, syntax, tips};
use crate::engine::{Entry, Runner, SessionCx};
use darter_base::glob::{self, Case};
use darter_command::{Args, Command, Flags, Group, KeySpec, Place, Refusal};
use darter_resp::Reply;

const INFO: Flags = Flags::LOADING.and(Flags::STALE);

/// ACL categories of COMMAND in addition to those that follow from its flags.
const CONNECTION: &[&str] = &["@connection"];
/// Tips: the order of the reply's rows is unspecified.
const UNORDERED: &[&str] = &["nondeterministic_output_order"];

const fn sub(
    name: &'static str,
    since: &'static str,
    arity: i32,
    run: super::SessionFn,
    doc: (&'static str, &'static str),
) -> (Command, Runner) {
    in_categories(now(name, since, arity, INFO, Group::Server, run, doc), CONNECTION)
}

#[rustfmt::skip] // A table.
pub(super) const TABLE: &[(Command, Runner)] = &[
    tips(sub("command", "2.8.13", -1, all, ("Get array of Redis command details", "O(N) where N is the total number of Redis commands")), UNORDERED),
    sub("command|count", "2.8.13", 2, count, ("Get total number of Redis commands", "O(1)")),
    history(syntax(tips(sub("command|info", "2.8.13", -2, info, ("Get array of specific Redis command details, or all when no argument is given.", "O(N) where N is the number of commands to look up")), UNORDERED), "[command-name]..."), &[("7.0.0", "Allowed to be called with no argument to get info on all commands.")]),
    syntax(tips(sub("command|list", "7.0.0", -2, list, ("Get an array of Redis command names", "O(N) where N is the total number of Redis commands")), UNORDERED), "[FILTERBY(filterby: MODULE module-name | ACLCAT category | PATTERN pattern:pattern)]"),
    syntax(tips(sub("command|docs", "7.0.0", -2, command_docs::docs, ("Get array of specific Redis command documentation", "O(N) where N is the number of commands to look up")), UNORDERED), "[command-name]..."),
    sub("command|getkeys", "2.8.13", -4, getkeys, ("Extract keys given a full Redis command", "O(N) where N is the number of arguments to the command")),
    sub("command|getkeysandflags", "7.0.0", -4, getkeysandflags, ("Extract keys and access flags given a full Redis command", "O(N) where N is the number of arguments to the command")),
    sub("command|help", "5.0.0", 2, help, ("Show helpful text about the different subcommands", "O(1)")),
];

/// ACL categories, in the order in which Redis prints them.
#[rustfmt::skip] // A table.
const CATEGORIES: &[&str] = &[
    "@keyspace", "@read", "@write", "@set", "@sortedset", "@list", "@hash", "@string", "@bitmap",
    "@hyperloglog", "@geo", "@stream", "@pubsub", "@admin", "@fast", "@slow", "@blocking",
    "@dangerous", "@connection", "@transaction", "@scripting",
];

pub(super) fn top_level<'a>(cx: &SessionCx<'a>) -> impl Iterator<Item = &'a Entry> + use<'a> {
    cx.core.table.entries().iter().filter(|entry| !entry.row.name.contains('|'))
}

/// `COMMAND`: describes all commands. (A request with a subcommand runs the subcommand's own row.)
fn all(cx: &mut SessionCx<'_>, args: Args<'_>) -> Result<(), Refusal> {
    if let Some(word) = args.peek_word() {
        return Err(Refusal::quoting("ERR unknown subcommand '", word, "'. Try COMMAND HELP."));
    }
    let entries: Vec<&Entry> = top_level(cx).collect();
    cx.reply.array(entries.len());
    for entry in entries {
        write_entry(cx, entry);
    }
    Ok(())
}

fn count(cx: &mut SessionCx<'_>, _args: Args<'_>) -> Result<(), Refusal> {
    let count = top_level(cx).count();
    cx.reply.count(count);
    Ok(())
}

/// `COMMAND INFO [name ...]`: describes the named commands, with a null for each unknown name.
fn info(cx: &mut SessionCx<'_>, mut args: Args<'_>) -> Result<(), Refusal> {
    if args.left() == 0 {
        return all(cx, args);
    }
    cx.reply.array(args.left());
    while let Ok(name) = args.word() {
        let core = cx.core;
        match core.table.find(name) {
            Some(entry) => write_entry(cx, entry),
            None => cx.reply.null(),
        }
    }
    Ok(())
}

pub(super) fn subcommands<'a>(cx: &SessionCx<'a>, entry: &Entry) -> Vec<&'a Entry> {
    let prefix = format!("{}|", entry.row.name);
    cx.core.table.entries().iter().filter(|sub| sub.row.name.starts_with(&prefix)).collect()
}

fn write_entry(cx: &mut SessionCx<'_>, entry: &Entry) {
    let row = &entry.row;
    let subs = subcommands(cx, entry);
    let reply = &mut cx.reply;
    reply.array(10);
    reply.bulk(row.name.as_bytes());
    reply.int(i64::from(row.arity));
    let flags: Vec<_> = Flags::NAMES.iter().filter(|(flag, _)| row.flags.has(*flag)).collect();
    reply.set(flags.len());
    flags.iter().for_each(|(_, name)| reply.simple(name));
    let (first, last, step) = legacy_range(row);
    reply.int(first);
    reply.int(last);
    reply.int(step);
    let categories = categories(row, matches!(entry.run, Runner::Container));
    reply.set(categories.len());
    categories.iter().for_each(|name| reply.simple(name));
    reply.set(row.tips.len());
    row.tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    reply.set(row.keys.0.len());
    row.keys.0.iter().for_each(|spec| write_spec(reply, spec));
    // As in Redis, a command without subcommands gets an empty set instead of an array.
    if subs.is_empty() {
        reply.set(0)
    } else {
        reply.array(subs.len())
    }
    for sub in subs {
        write_entry(cx, sub);
    }
}

/// The first key, the last key and the step between keys: the form that COMMAND used before key
/// specs.
fn legacy_range(row: &Command) -> (i64, i64, i64) {
    let ranges = row.keys.0.iter().map_while(|spec| match spec.place {
        Place::Range { first, last, step } => Some((first, last, step)),
        _ => None,
    });
    let narrow = |value: usize| i64::try_from(value).unwrap_or(0);
    // As in Redis, consecutive ranges are joined into one. If the last key of a range is counted
    // from the end, it is the last key of all.
    ranges
        .map(|(first, last, step)| (narrow(first), i64::try_from(last).unwrap_or(0), narrow(step)))
        .reduce(|one, next| {
            let last = if one.1 < 0 || next.1 < 0 { -1 } else { one.1.max(next.1) };
            (one.0, last, one.2)
        })
        .unwrap_or((0, 0, 0))
}

fn categories(row: &Command, container: bool) -> Vec<&'static str> {
    let mut own: Vec<&str> = row.categories.to_vec();
    let of_flags = [
        (Flags::WRITE, "@write"),
        (Flags::READONLY, "@read"),
        (Flags::ADMIN, "@admin"),
        (Flags::ADMIN, "@dangerous"),
        (Flags::PUBSUB, "@pubsub"),
        (Flags::BLOCKING, "@blocking"),
    ];
    let is_shown =
        |name: &str| row.group != Group::Scripting || !matches!(name, "@read" | "@write");
    let of_flags = of_flags.iter().filter(|(flag, name)| row.flags.has(*flag) && is_shown(name));
    own.extend(of_flags.map(|(_, name)| *name));
    own.push(if row.flags.has(Flags::FAST) { "@fast" } else { "@slow" });
    if !container {
        own.push(row.group.category());
    }
    CATEGORIES.iter().copied().filter(|name| own.contains(name)).collect()
}

fn write_spec(reply: &mut Reply<'_>, spec: &KeySpec) {
    reply.map(3 + usize::from(spec.notes.is_some()));
    if let Some(notes) = spec.notes {
        reply.bulk(b"notes");
        reply.bulk(notes.as_bytes());
    }
    reply.bulk(b"flags");
    reply.set(spec.flags.0.len());
    spec.flags.0.iter().for_each(|flag| reply.simple(flag));
    let (begin, find): (Begin, &[(&str, i64)]) = match spec.place {
        Place::After { .. } | Place::Unnamed => {
            write_unknown(reply);
            return;
        }
        Place::Range { first, last, step } => {
            let last = i64::try_from(last).unwrap_or(0);
            let first_i = i64::try_from(first).unwrap_or(0);
            // In a spec, a last key of 0 or more is an offset from the first key; a negative one
            // counts from the end of the arguments.
            let last = if last >= 0 { last - first_i } else { last };
            let step = i64::try_from(step).unwrap_or(1);
            (Begin::Index(first), &[("lastkey", last), ("keystep", step), ("limit", 0)])
        }
        Place::Counted { count } => {
            (Begin::Index(count), &[("keynumidx", 0), ("firstkey", 1), ("keystep", 1)])
        }
        Place::CountedPairs { count } => {
            (Begin::Index(count), &[("keynumidx", 0), ("firstkey", 1), ("keystep", 2)])
        }
        Place::Keyword { word, from } => {
            (Begin::Keyword(word, from), &[("lastkey", 0), ("keystep", 1), ("limit", 0)])
        }
        Place::HalfAfter { word, from } => {
            (Begin::Keyword(word, from), &[("lastkey", -1), ("keystep", 1), ("limit", 2)])
        }
    };
    begin.write(reply);
    reply.bulk(b"find_keys");
    reply.map(2);
    reply.bulk(b"type");
    let is_counted = matches!(spec.place, Place::Counted { .. } | Place::CountedPairs { .. });
    reply.bulk(if is_counted { b"keynum" } else { b"range" });
    reply.bulk(b"spec");
    reply.map(find.len());
    for (name, value) in find {
        reply.bulk(name.as_bytes());
        reply.int(*value);
    }
}

/// Writes "unknown" for both parts of a key spec, as Redis does if a spec cannot describe the keys.
fn write_unknown(reply: &mut Reply<'_>) {
    for part in ["begin_search", "find_keys"] {
        reply.bulk(part.as_bytes());
        reply.map(2);
        reply.bulk(b"type");
        reply.bulk(b"unknown");
        reply.bulk(b"spec");
        reply.map(0);
    }
}

/// The argument at which the search for the keys of a spec begins.
enum Begin {
    Index(usize),
    Keyword(&'static str, usize),
}

impl Begin {
    fn write(&self, reply: &mut Reply<'_>) {
        reply.bulk(b"begin_search");
        reply.map(2);
        reply.bulk(b"type");
        match self {
            Self::Index(at) => {
                reply.bulk(b"index");
                reply.bulk(b"spec");
                reply.map(1);
                reply.bulk(b"index");
                reply.count(*at);
            }
            Self::Keyword(word, from) => {
                reply.bulk(b"keyword");
                reply.bulk(b"spec");
                reply.map(2);
                reply.bulk(b"keyword");
                reply.bulk(word.as_bytes());
                reply.bulk(b"startfrom");
                reply.count(*from);
            }
        }
    }
}

/// `COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]`.
fn list(cx: &mut SessionCx<'_>, mut args: Args<'_>) -> Result<(), Refusal> {
    let mut entries: Vec<&Entry> = cx.core.table.entries().iter().collect();
    if args.left() > 0 {
        if !args.option("FILTERBY") || args.left() != 2 {
            return Err(Refusal::Syntax);
        }
        let (kind, value) = (args.word()?, args.bytes()?);
        match kind.to_ascii_lowercase().as_slice() {
            b"module" => entries.clear(),
            b"pattern" => entries.retain(|entry| {
                glob::matches_case(value, entry.row.name.as_bytes(), Case::Insensitive)
            }),
            b"aclcat" => {
                let category = format!("@{}", String::from_utf8_lossy(value).to_ascii_lowercase());
                entries.retain(|entry| {
                    let container = matches!(entry.run, Runner::Container);
                    categories(&entry.row, container).contains(&category.as_str())
                });
            }
            _ => return Err(Refusal::Syntax),
        }
    }
    cx.reply.array(entries.len());
    entries.iter().for_each(|entry| cx.reply.bulk(entry.row.name.as_bytes()));
    Ok(())
}

fn getkeys(cx: &mut SessionCx<'_>, args: Args<'_>) -> Result<(), Refusal> {
    let keys = command_keys::of_request(cx.core, &args.all().to_request(), args.position())?;
    cx.reply.array(keys.len());
    keys.iter().for_each(|(key, _)| cx.reply.bulk(key));
    Ok(())
}

fn getkeysandflags(cx: &mut SessionCx<'_>, args: Args<'_>) -> Result<(), Refusal> {
    let keys = command_keys::of_request(cx.core, &args.all().to_request(), args.position())?;
    cx.reply.array(keys.len());
    for (key, flags) in &keys {
        cx.reply.array(2);
        cx.reply.bulk(key);
        cx.reply.set(flags.0.len());
        flags.0.iter().for_each(|flag| cx.reply.simple(flag));
    }
    Ok(())
}

fn help(cx: &mut SessionCx<'_>, _args: Args<'_>) -> Result<(), Refusal> {
    super::help(
        cx,
        "COMMAND",
        &[
            "(no subcommand)",
            "    Return details about all Redis commands.",
            "COUNT",
            "    Return the total number of commands in this Redis server.",
            "LIST",
            "    Return a list of all commands in this Redis server.",
            "INFO [<command-name> ...]",
            "    Return details about multiple Redis commands.",
            "    If no command names are given, documentation details for all",
            "    commands are returned.",
            "DOCS [<command-name> ...]",
            "    Return documentation details about multiple Redis commands.",
            "    If no command names are given, documentation details for all",
            "    commands are returned.",
            "GETKEYS <full-command>",
            "    Return the keys from a full Redis command.",
            "GETKEYSANDFLAGS <full-command>",
            "    Return the keys and the access flags from a full Redis command.",
        ],
    );
    Ok(())
}

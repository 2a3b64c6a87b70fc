//! COMMAND DOCS: the documentation of commands, built from the rows of the command table.

use super::command::{subcommands, top_level};
use crate::engine::{Entry, SessionCx};
use darter_command::syntax::Argument;
use darter_command::{Args, Refusal};
use darter_resp::Reply;

/// `COMMAND DOCS [name ...]`: documents the named commands, or all. Unknown names are skipped.
pub(super) fn docs(cx: &mut SessionCx<'_>, mut args: Args<'_>) -> Result<(), Refusal> {
    let mut entries: Vec<&Entry> = Vec::new();
    if args.left() == 0 {
        entries.extend(top_level(cx));
    }
    while let Ok(name) = args.word() {
        entries.extend(cx.core.table.find(name));
    }
    cx.reply.map(entries.len());
    for entry in entries {
        write_entry(cx, entry);
    }
    Ok(())
}

fn write_entry(cx: &mut SessionCx<'_>, entry: &Entry) {
    let subs = subcommands(cx, entry);
    let row = &entry.row;
    let reply = &mut cx.reply;
    reply.bulk(row.name.as_bytes());
    reply.map(
        3 + usize::from(!row.complexity.is_empty())
            + usize::from(!row.doc_flags.is_empty())
            + 2 * usize::from(row.deprecated.is_some())
            + usize::from(!row.history.is_empty())
            + usize::from(!entry.arguments.is_empty())
            + usize::from(!subs.is_empty()),
    );
    field(reply, "summary", row.summary);
    field(reply, "since", row.since);
    field(reply, "group", row.group.name());
    if !row.complexity.is_empty() {
        field(reply, "complexity", row.complexity);
    }
    if !row.doc_flags.is_empty() {
        flags(reply, "doc_flags", row.doc_flags);
    }
    if let Some((since, instead)) = row.deprecated {
        field(reply, "deprecated_since", since);
        field(reply, "replaced_by", instead);
    }
    if !row.history.is_empty() {
        write_history(reply, row.history);
    }
    if !entry.arguments.is_empty() {
        write_arguments(reply, &entry.arguments);
    }
    if !subs.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(subs.len());
        for sub in subs {
            write_entry(cx, sub);
        }
    }
}

fn write_history(reply: &mut Reply<'_>, history: &[(&str, &str)]) {
    reply.bulk(b"history");
    reply.set(history.len());
    for (version, change) in history {
        reply.array(2);
        reply.bulk(version.as_bytes());
        reply.bulk(change.as_bytes());
    }
}

fn write_arguments(reply: &mut Reply<'_>, arguments: &[Argument]) {
    reply.bulk(b"arguments");
    reply.array(arguments.len());
    for argument in arguments {
        write_argument(reply, argument);
    }
}

fn write_argument(reply: &mut Reply<'_>, argument: &Argument) {
    let marks = [
        (argument.optional, "optional"),
        (argument.multiple, "multiple"),
        (argument.repeats_token, "multiple_token"),
    ];
    let marks: Vec<_> = marks.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
    let texts = [
        ("token", argument.token),
        ("since", argument.since),
        ("deprecated_since", argument.deprecated),
    ];
    reply.map(
        2 + usize::from(argument.key_spec.is_some())
            + texts.iter().filter(|(_, text)| text.is_some()).count()
            + usize::from(!marks.is_empty())
            + usize::from(!argument.arguments.is_empty()),
    );
    field(reply, "name", &argument.name);
    field(reply, "type", argument.kind.name());
    if let Some(index) = argument.key_spec {
        reply.bulk(b"key_spec_index");
        reply.count(index);
    }
    for (name, text) in texts {
        if let Some(text) = text {
            field(reply, name, text);
        }
    }
    if !marks.is_empty() {
        flags(reply, "flags", &marks);
    }
    if !argument.arguments.is_empty() {
        write_arguments(reply, &argument.arguments);
    }
}

fn field(reply: &mut Reply<'_>, name: &str, text: &str) {
    reply.bulk(name.as_bytes());
    reply.bulk(text.as_bytes());
}

fn flags(reply: &mut Reply<'_>, name: &str, flags: &[&str]) {
    reply.bulk(name.as_bytes());
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.simple(flag));
}

//! XINFO STREAM, XINFO HELP.

use super::reply::{Head, Showing, ShownEntries};
use super::value::{NODE_ENTRIES, Stream};
use super::xgroup::subcommand_syntax;
use super::{group_info, id};
use crate::lookup::find_value;
use crate::pending_values::flow;
use darter_command::{Args, Cx, Flow, Refusal};
use darter_structs::stream::{End, StreamId};

/// `XINFO STREAM key`: the counters of the stream, and its first and last entry.
///
/// There is no radix tree here; the reported numbers are those of a tree with one node per
/// `stream-node-max-entries` entries. Reply: map. Refusals: `NoSuchKey`, `WrongType`, further
/// arguments. Cost: O(log n). Source: <https://redis.io/commands/xinfo-stream> (5.0.0).
pub(super) fn stream(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let Some(stream) = find_value::<Stream>(cx.db, cx.stats, &key)? else {
        return Err(Refusal::NoSuchKey);
    };
    let full = full_count(args)?;
    let (entries, state) = (stream.entries(), stream.state());
    let nodes = entries.len().div_ceil(NODE_ENTRIES.get().max(1));
    let reply = &mut cx.reply;
    reply.map(if full.is_some() { 9 } else { 10 });
    for (name, number) in
        [("length", entries.len()), ("radix-tree-keys", nodes), ("radix-tree-nodes", nodes + 1)]
    {
        reply.bulk(name.as_bytes());
        reply.count(number);
    }
    for (name, id) in
        [("last-generated-id", state.last), ("max-deleted-entry-id", state.max_deleted)]
    {
        reply.bulk(name.as_bytes());
        id::encode(reply, id);
    }
    reply.bulk(b"entries-added");
    reply.int(state.added.cast_signed()); // The number wraps, as in Redis.
    reply.bulk(b"recorded-first-entry-id");
    id::encode(reply, entries.first().unwrap_or(StreamId::MIN));
    if let Some(count) = full {
        return Ok(group_info::full(reply, &stream, count));
    }
    reply.bulk(b"groups");
    reply.count(stream.groups().len());
    let (mut showing, len) = (Showing::default(), entries.len());
    for (name, rank) in [("first-entry", Some(0)), ("last-entry", len.checked_sub(1))] {
        match rank.filter(|rank| *rank < len) {
            Some(rank) => showing.push(ShownEntries {
                head: Head::Field(name),
                entries: entries.reader(),
                ranks: rank..rank + 1,
                from: End::Front,
            }),
            None => {
                reply.bulk(name.as_bytes());
                reply.null();
            }
        }
    }
    Ok(flow(reply, showing))
}

/// The count in `FULL [COUNT n]`, if given.
fn full_count(mut args: Args<'_>) -> Result<Option<usize>, Refusal> {
    /// The number shown by default, and for a negative count.
    const DEFAULT: usize = 10;
    let refusal = subcommand_syntax(args, "XINFO");
    match args.left() {
        0 => return Ok(None),
        1 | 3 if args.option("FULL") => {}
        _ => return Err(refusal),
    }
    if args.left() == 0 {
        return Ok(Some(DEFAULT));
    }
    if !args.option("COUNT") {
        return Err(refusal);
    }
    Ok(Some(usize::try_from(args.int()?).unwrap_or(DEFAULT)))
}

/// `XINFO HELP`: the subcommands. Source: <https://redis.io/commands/xinfo-help> (5.0.0).
pub(super) fn help(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Flow, Refusal> {
    #[rustfmt::skip] // A table.
    const LINES: &[&str] = &[
        "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CONSUMERS <key> <groupname>",
        "    Show consumers of <groupname>.",
        "GROUPS <key>",
        "    Show the stream consumer groups.",
        "STREAM <key> [FULL [COUNT <count>]",
        "    Show information about the stream.",
        "HELP",
        "    Prints this help.",
    ];
    cx.reply.array(LINES.len());
    LINES.iter().for_each(|line| cx.reply.simple(line));
    Ok(Flow::Done)
}

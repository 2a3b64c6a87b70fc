//! XGROUP: creating and removing groups and consumers.

use super::id;
use super::value::{Stream, StreamEdit};
use super::work::{self, CHANGED_AT_ONCE, StreamJob};
use crate::option_names;
use darter_command::{Args, Cx, Flow, Refusal, until_nul};
use darter_keyspace::Key;
use darter_resp::{self as resp, Reply};
use darter_structs::stream::StreamId;

/// Index of the key in a subcommand.
const KEY: usize = 2;

/// The refusal of invalid options of a subcommand.
pub(super) fn subcommand_syntax(args: Args<'_>, command: &str) -> Refusal {
    Refusal::quoting(
        "ERR unknown subcommand or wrong number of arguments for '",
        args.all().head(1),
        &format!("'. Try {command} HELP."),
    )
}

fn no_key() -> Refusal {
    Refusal::line(
        "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to \
         use the MKSTREAM option to create an empty stream automatically.",
    )
}

/// An error that quotes two words, each up to a NUL or 4 KiB.
pub(super) fn quoting_two(texts: [&str; 3], words: [&[u8]; 2]) -> Refusal {
    const QUOTED_BYTES: usize = 4_096;
    let quoted = |word: &[u8]| until_nul(&word[..word.len().min(QUOTED_BYTES)]).to_vec();
    let [one, two] = words.map(quoted);
    let [before, between, after] = texts.map(str::as_bytes);
    Refusal::Line([before, &one, between, &two, after].concat().into())
}

/// The refusal if there is no such group.
pub(super) fn no_group(group: &[u8], key: &Key<'_>) -> Refusal {
    quoting_two(["NOGROUP No such consumer group '", "' for key name '", "'"], [group, key.bytes])
}

/// Options of CREATE and SETID.
#[derive(Default)]
struct Options {
    makes_stream: bool,
    read: Option<u64>,
}

impl Options {
    fn parse(mut args: Args<'_>, is_create: bool) -> Result<Self, Refusal> {
        let mut said = option_names::Count::default();
        let mut options = Self::default();
        while args.left() > 0 {
            said.add()?;
            if is_create && args.option("MKSTREAM") {
                options.makes_stream = true;
            } else if args.left() > 1 && args.option("ENTRIESREAD") {
                options.read = match args.int()? {
                    -1 => None,
                    read => Some(u64::try_from(read).map_err(|_| {
                        Refusal::line("ERR value for ENTRIESREAD must be positive or -1")
                    })?),
                };
            } else {
                return Err(subcommand_syntax(args, "XGROUP"));
            }
        }
        Ok(options)
    }
}

/// `XGROUP CREATE key group id|$ [MKSTREAM] [ENTRIESREAD n]`: creates a group positioned after this
/// ID.
///
/// Reply: OK. Refusals: options, `WrongType`, a missing key without MKSTREAM, an invalid ID, a
/// group that exists. Cost: O(log groups). Source: <https://redis.io/commands/xgroup-create>
/// (5.0.0).
pub(super) fn create(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, group, wanted) = (args.key()?, id::name(&mut args)?, args.word()?);
    let options = Options::parse(args, true)?;
    let state = cx.db.read_value::<Stream>(&key)?.map(|stream| stream.state());
    if state.is_none() && !options.makes_stream {
        return Err(no_key());
    }
    let last = match wanted {
        b"$" => state.map_or(StreamId::MIN, |state| state.last),
        id => id::parse(id, 0)?,
    };
    let create = |edit: &mut StreamEdit<'_>| edit.create_group(group, last, options.read);
    if cx.db.edit::<Stream, _>(&key, true, create)? == Some(true) {
        cx.reply.ok();
        return Ok(Flow::Done);
    }
    Err(Refusal::line("BUSYGROUP Consumer Group name already exists"))
}

/// The stream's last ID. Refuses a missing group.
fn look(cx: &mut Cx<'_>, key: &Key<'_>, group: &[u8]) -> Result<StreamId, Refusal> {
    let stream = cx.db.read_value::<Stream>(key)?.ok_or_else(no_key)?;
    stream.groups().get(group).ok_or_else(|| no_group(group, key))?;
    Ok(stream.state().last)
}

/// `XGROUP SETID key group id|$ [ENTRIESREAD n]`: moves the group's position: it continues with the
/// entries after this ID.
///
/// Reply: OK. Refusals: options, `WrongType`, a missing key or group, an invalid ID.
/// Cost: O(log groups). Source: <https://redis.io/commands/xgroup-setid> (5.0.0).
pub(super) fn set_id(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, group, wanted) = (args.key()?, id::name(&mut args)?, args.word()?);
    let options = Options::parse(args, false)?;
    let last = look(cx, &key, group)?;
    let last = match wanted {
        b"$" => last,
        b"-" => StreamId::MIN,
        b"+" => StreamId::MAX,
        id => id::parse(id, 0)?,
    };
    cx.db.edit::<Stream, _>(&key, false, |edit| edit.set_position(group, last, options.read))?;
    cx.reply.ok();
    Ok(Flow::Done)
}

/// `XGROUP DESTROY key group`: removes a group and its pending entries.
///
/// Reply: 1, or 0 if there is none. Refusals: `WrongType`, a missing key. Cost: O(log groups); memory
/// is freed in slices. Source: <https://redis.io/commands/xgroup-destroy> (5.0.0).
pub(super) fn destroy(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, group) = (args.key()?, id::name(&mut args)?);
    cx.db.read_value::<Stream>(&key)?.ok_or_else(no_key)?;
    let was_there = cx.db.edit::<Stream, _>(&key, false, |edit| edit.destroy_group(group))?;
    cx.reply.int(i64::from(was_there == Some(true)));
    Ok(Flow::Done)
}

/// `XGROUP CREATECONSUMER key group consumer`: creates a consumer.
///
/// Reply: 1, or 0 if there is one with this name. Refusals: `WrongType`, a missing key or group.
/// Cost: O(log consumers). Source: <https://redis.io/commands/xgroup-createconsumer> (6.2.0).
pub(super) fn create_consumer(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, group, name) = (args.key()?, id::name(&mut args)?, id::name(&mut args)?);
    look(cx, &key, group)?;
    let now = cx.now;
    let create = |edit: &mut StreamEdit<'_>| edit.create_consumer(group, name, now).is_some();
    let is_new = cx.db.edit::<Stream, _>(&key, false, create)?;
    cx.reply.int(i64::from(is_new == Some(true)));
    Ok(Flow::Done)
}

/// `XGROUP DELCONSUMER key group consumer`: removes a consumer and its pending entries.
///
/// Reply: the number of pending entries removed. Refusals: `WrongType`, a missing key or group.
/// Cost: O(log n) for each, in portions if there are many.
/// Source: <https://redis.io/commands/xgroup-delconsumer> (5.0.0).
pub(super) fn delete_consumer(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, group, name) = (args.key()?, id::name(&mut args)?, id::name(&mut args)?);
    look(cx, &key, group)?;
    let stream = cx.db.read_value::<Stream>(&key)?;
    let found = stream.as_ref().and_then(|stream| stream.groups().get(group)?.consumer(name));
    let Some((number, pending)) = found.map(|found| (found.number(), found.pending_len())) else {
        cx.reply.int(0);
        return Ok(Flow::Done);
    };
    let work = Removal { group: group.to_vec(), number, pending };
    work::run(cx, args, KEY, pending > CHANGED_AT_ONCE, work)
}

/// A consumer that is being removed.
struct Removal {
    group: Vec<u8>,
    number: u64,
    pending: usize,
}

impl StreamJob for Removal {
    fn step(&mut self, edit: &mut StreamEdit<'_>, _: resp::Args<'_>, _: u64) -> bool {
        edit.remove_consumer(&self.group, self.number)
    }

    fn reply(&mut self, reply: &mut Reply<'_>, _: &Stream) -> Flow {
        reply.count(self.pending);
        Flow::Done
    }
}

/// `XGROUP HELP`: the subcommands. Source: <https://redis.io/commands/xgroup-help> (5.0.0).
pub(super) fn help(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Flow, Refusal> {
    #[rustfmt::skip] // A table.
    const LINES: &[&str] = &[
        "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CREATE <key> <groupname> <id|$> [option]",
        "    Create a new consumer group. Options are:",
        "    * MKSTREAM",
        "      Create the empty stream if it does not exist.",
        "    * ENTRIESREAD entries_read",
        "      Set the group's entries_read counter (internal use).",
        "CREATECONSUMER <key> <groupname> <consumer>",
        "    Create a new consumer in the specified group.",
        "DELCONSUMER <key> <groupname> <consumer>",
        "    Remove the specified consumer.",
        "DESTROY <key> <groupname>",
        "    Remove the specified group.",
        "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
        "    Set the current group ID and entries_read counter.",
        "HELP",
        "    Prints this help.",
    ];
    cx.reply.array(LINES.len());
    LINES.iter().for_each(|line| cx.reply.simple(line));
    Ok(Flow::Done)
}

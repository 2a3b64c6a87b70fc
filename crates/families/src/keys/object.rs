//! TYPE and OBJECT: a value's type and representation.

use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::Found;

/// Redis shares the objects of these integers among all keys, and OBJECT REFCOUNT shows that.
const SHARED_INTEGERS: std::ops::Range<i64> = 0..10_000;
const SHARED_COUNT: i64 = i32::MAX as i64;

/// `TYPE key`: the type of the value at `key`.
///
/// Reply: simple string, `none` when the key is absent. Refusals: none. Cost: O(1).
/// Source: <https://redis.io/commands/type> (1.0.0).
pub(super) fn kind(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    args.end()?;

    let name = cx.peek(&key).map_or("none", |found| found.kind().name);
    cx.reply.simple(name);
    Ok(Flow::Done)
}

/// `OBJECT ENCODING key`: the name that Redis 7.0 would give to the value's encoding.
///
/// Reply: bulk, null when the key is absent. Refusals: none. Cost: O(1).
/// Source: <https://redis.io/commands/object-encoding> (2.2.3).
pub(super) fn encoding(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    if let Some(name) = inspect(cx, args, |found| Ok(found.encoding()))? {
        cx.reply.bulk(name.as_bytes());
    }
    Ok(Flow::Done)
}

/// `OBJECT REFCOUNT key`: 1, or Redis's count for its shared integers. Copies are not counted.
///
/// Reply: integer, null when the key is absent. Refusals: none. Cost: O(1).
/// Source: <https://redis.io/commands/object-refcount> (2.2.3).
pub(super) fn refcount(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    if let Some(count) = inspect(cx, args, |found| Ok(shown_count(found)))? {
        cx.reply.int(count);
    }
    Ok(Flow::Done)
}

/// The reference count that Redis would show.
#[must_use]
pub fn shown_count(found: &Found<'_>) -> i64 {
    let value = found.text().ok().filter(|_| found.is_int()).and_then(|text| text.as_int());
    let is_shared = value.is_some_and(|value| SHARED_INTEGERS.contains(&value));
    if is_shared && !found.is_copied_int() { SHARED_COUNT } else { 1 }
}

/// `OBJECT FREQ key`: refused, as by a Redis without an LFU policy, because there is no LFU policy
/// here.
///
/// Reply: null when the key is absent. Source: <https://redis.io/commands/object-freq> (4.0.0).
pub(super) fn freq(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    let refuse = |_: &Found<'_>| {
        Err(Refusal::line(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please \
             note that when switching between policies at runtime LRU and LFU data will take some \
             time to adjust.",
        ))
    };
    inspect::<()>(cx, args, refuse)?;
    Ok(Flow::Done)
}

/// `OBJECT IDLETIME key`: the seconds since the key was last used, rounded down.
///
/// Reply: integer, null when the key is absent. Refusals: none. Cost: O(1).
/// Source: <https://redis.io/commands/object-idletime> (2.2.3).
pub(super) fn idletime(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    let now = cx.now;
    if let Some(seconds) = inspect(cx, args, |found| Ok(found.idle_seconds(now)))? {
        cx.reply.int(i64::try_from(seconds).unwrap_or(i64::MAX));
    }
    Ok(Flow::Done)
}

/// `OBJECT HELP`: the subcommands. Source: <https://redis.io/commands/object-help> (6.2.0).
pub(super) fn help(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Flow, Refusal> {
    #[rustfmt::skip] // A table.
    const LINES: &[&str] = &[
        "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "ENCODING <key>",
        "    Return the kind of internal representation used in order to store the value",
        "    associated with a <key>.",
        "FREQ <key>",
        "    Return the access frequency index of the <key>. The returned integer is",
        "    proportional to the logarithm of the recent access frequency of the key.",
        "IDLETIME <key>",
        "    Return the idle time of the <key>, that is the approximated number of",
        "    seconds elapsed since the last access to the key.",
        "REFCOUNT <key>",
        "    Return the number of references of the value associated with the specified",
        "    <key>.",
        "HELP",
        "    Prints this help.",
    ];
    cx.reply.array(LINES.len());
    LINES.iter().for_each(|line| cx.reply.simple(line));
    Ok(Flow::Done)
}

/// Replies with the result of `look` on the entry of the key in `args`, or null if the key is
/// absent.
fn inspect<R>(
    cx: &mut Cx<'_>,
    mut args: Args<'_>,
    look: impl FnOnce(&Found<'_>) -> Result<R, Refusal>,
) -> Result<Option<R>, Refusal> {
    let key = args.key()?;
    args.end()?;

    match cx.inspect(&key) {
        Some(found) => look(&found).map(Some),
        None => {
            cx.reply.null();
            Ok(None)
        }
    }
}

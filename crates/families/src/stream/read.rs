//! XLEN, XRANGE, XREVRANGE.

use super::value::Stream;
use super::{id, reply};
use crate::lookup::find_value;
use crate::option_names;
use darter_command::{Args, Cx, Flow, Refusal};
use darter_structs::stream::{End, Entries, StreamId};
use std::ops::Range;

/// `XLEN key`: the number of entries.
///
/// Reply: integer. Refusals: `WrongType`. Cost: O(1).
/// Source: <https://redis.io/commands/xlen> (5.0.0).
pub(super) fn xlen(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let stream = find_value::<Stream>(cx.db, cx.stats, &key)?;
    cx.reply.count(stream.map_or(0, |stream| stream.entries().len()));
    Ok(Flow::Done)
}

/// `XRANGE key start end [COUNT count]`: the entries from `start` to `end`, in order. `-` and `+`
/// are the smallest and the largest ID; an ID after `(` is excluded.
///
/// Reply: array of entries, each an array of its ID and an array of names and values; a null array
/// for a count of 0 or less. Streamed from a cut when long. Refusals: invalid IDs, `Syntax`,
/// `NotAnInteger`, `WrongType`. Cost: O(log n + entries shown).
/// Source: <https://redis.io/commands/xrange> (5.0.0; `(` 6.2.0).
pub(super) fn xrange(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    range(cx, args, End::Front)
}

/// `XREVRANGE key end start [COUNT count]`: as XRANGE, in reverse.
/// Source: <https://redis.io/commands/xrevrange> (5.0.0; `(` 6.2.0).
pub(super) fn xrevrange(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    range(cx, args, End::Back)
}

fn range(cx: &mut Cx<'_>, mut args: Args<'_>, from: End) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let ends = args.position();
    // The start is parsed first, in either command.
    let [start, end] = if from == End::Front { [ends, ends + 1] } else { [ends + 1, ends] };
    args.seek(start);
    let first = id::first(&mut args)?;
    args.seek(end);
    let last = id::last(&mut args)?;
    args.seek(ends + 2);
    let mut said = option_names::Count::default();
    let mut count = None;
    while args.left() > 0 {
        said.add()?;
        if args.left() < 2 || !args.option("COUNT") {
            return Err(Refusal::Syntax);
        }
        count = Some(usize::try_from(args.int()?).unwrap_or(0));
    }
    let Some(stream) = find_value::<Stream>(cx.db, cx.stats, &key)? else {
        cx.reply.array(0);
        return Ok(Flow::Done);
    };
    if count == Some(0) {
        cx.reply.null_array();
        return Ok(Flow::Done);
    }
    let entries = stream.entries();
    let ranks = limited(between(entries, first, last), count, from);
    Ok(reply::entries(&mut cx.reply, entries, ranks, from))
}

/// The ranks of the entries between two IDs.
pub(super) fn between(entries: &Entries, first: StreamId, last: StreamId) -> Range<usize> {
    let start = entries.rank_of(first);
    let end = last.next().map_or(entries.len(), |behind| entries.rank_of(behind));
    start..end.max(start)
}

/// The first `count` of these ranks, from one end.
fn limited(ranks: Range<usize>, count: Option<usize>, from: End) -> Range<usize> {
    let len = count.unwrap_or(usize::MAX).min(ranks.len());
    match from {
        End::Front => ranks.start..ranks.start + len,
        End::Back => ranks.end - len..ranks.end,
    }
}

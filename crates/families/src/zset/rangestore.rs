//! ZRANGESTORE: a range of a sorted set, stored at a key.
//!
//! The shape *Build*, across cores. If most of the source is in the range, the result begins as a
//! cut of it, from which the ends are removed: both take no time to speak of. Otherwise the range is
//! copied, in slices.

use super::algebra::install;
use super::build::{Bulk, in_portion};
use super::range::{Dialect, Query};
use super::value::ZSet;
use crate::multi_input;
use darter_command::{Answer, Call, Refusal};
use darter_keyspace::{Collection, Event};
use darter_structs::sorted::{End, SortedReader};
use darter_structs::table::Scratch;

/// Results up to this size are built from scratch: they are cheap, and their encoding follows from
/// their contents, as in Redis.
const NEW_MAX: usize = 512;
/// Members copied in one portion.
const COPIED: usize = 24;

const ZRANGESTORE: &Event = &Event::new("zrangestore", b'z');

/// `ZRANGESTORE dst src min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]`: puts the entries that
/// ZRANGE would show at `dst`, whatever that held; without any, `dst` is removed. Both may be the
/// same.
///
/// Reply: integer, entries stored. Refusals: as those of ZRANGE. Cost: O(log(members) + entries
/// stored), in slices. Source: <https://redis.io/commands/zrangestore> (6.2.0).
pub(super) async fn zrangestore(call: Call) -> Result<Answer, Refusal> {
    let (mut args, target) = (call.args(), call.first);
    let source = target + 1;
    args.seek(source + 1);
    let query = Query::parse(args, Dialect::STORE)?;
    let (mut cuts, locked) =
        multi_input::for_target::<ZSet>(&call, source..source + 1, target).await?;
    let set = cuts.pop().flatten().unwrap_or_default();
    let ranks = query.ranks(set.entries());
    let result = if ranks.len() > NEW_MAX && ranks.len() > set.len() / 2 {
        let mut result = set;
        let mut edit = result.edit_aside(0);
        let len = edit.zset().len();
        edit.remove_range(ranks.end..len);
        edit.remove_range(0..ranks.start);
        result
    } else {
        let reader = SortedReader::new(set.entries().clone(), ranks, End::Front);
        drop(set);
        copy(&call, reader).await
    };
    let count = install(&call, target, result, (ZRANGESTORE, 1)).await;
    drop(locked);
    Ok(call.answer(|reply| reply.count(count)))
}

/// A sorted set of the entries of `reader`.
async fn copy(call: &Call, mut reader: SortedReader) -> ZSet {
    let mut result = ZSet::new();
    let Some(mut bulk) = Bulk::new(reader.left()) else {
        while reader.left() > 0 {
            let mut edit = result.edit_aside(0);
            reader.next_slice(COPIED, &mut |entry| {
                edit.insert(entry.member().bytes(&mut Scratch::new()), entry.score());
            });
            call.tx.pause().await;
        }
        return result;
    };
    while reader.left() > 0 {
        in_portion(|most, bytes| {
            reader.next_slice(most, &mut |entry| {
                *bytes += entry.member().len();
                bulk.push(entry.member().bytes(&mut Scratch::new()), entry.score());
            })
        });
        call.tx.pause().await;
    }
    while bulk.sort(&|score, _| score) {
        call.tx.pause().await; // None came twice.
    }
    bulk.finish()
}

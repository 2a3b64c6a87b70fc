//! PFCOUNT: estimates the number of distinct elements.
//!
//! As in Redis, the result for one key is cached in the string's header until an element changes a
//! register, so that GET returns the same bytes. So this read command writes; it publishes no
//! event, and does not update the key's modification time.

use super::add::{copy_of, put_back};
use super::estimate::{Registers, count_of};
use super::format::{CARDINALITY, Encoding, cardinality, read};
use super::merge::{Source, Sources, merge};
use crate::lookup::find_text;
use crate::multi_input;
use darter_command::{Answer, Args, Call, Cx, Flow, Refusal, Stream};
use darter_keyspace::{Db, Fresh, Key, ShardStats, TextEdit};
use darter_resp::Reply;
use darter_structs::table::Scratch;
use darter_tx::Home;
use std::sync::Arc;

/// Sources that are merged at once, or in one portion.
const PORTION: usize = 4;

/// `PFCOUNT key [key ...]`: estimates the number of distinct elements in the union of the
/// HyperLogLogs at the keys, with a standard error of 0.81 percent.
///
/// Reply: integer; absent keys are empty. Refusals: a key that is not a string or not a
/// HyperLogLog, or is corrupt. Cost: for one key O(1), or a pass over the registers after a change;
/// otherwise O(keys), in slices. Source: <https://redis.io/commands/pfcount> (2.8.9).
pub(super) fn here(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    if args.left() == 1 {
        let count = count_one(cx.db, cx.stats, &args.key()?)?;
        cx.reply.int(count.cast_signed());
        return Ok(Flow::Done);
    }
    let sources = multi_input::here::<Source>(cx.db, cx.stats, args, args.left())?;
    let few = sources.len() <= PORTION;
    let (sources, merged) = (sources.into_iter().collect(), Registers::default());
    let mut counting = Counting { sources, merged, refusal: None };
    if few {
        while counting.step()? {}
        counting.reply(&mut cx.reply);
        return Ok(Flow::Done);
    }
    Ok(Flow::Stream(Box::new(counting)))
}

/// PFCOUNT for keys on several cores, or for very many.
pub(super) async fn anywhere(call: Call) -> Result<Answer, Refusal> {
    if call.len() == call.first + 1 {
        let (request, db, no_touch) = (Arc::clone(&call.request), call.db, call.no_touch);
        let (at, core) = (call.first, call.owner(call.first));
        let count = move |home: &mut Home| {
            let (db, _, stats) = home.shard.parts_for(db, no_touch);
            count_one(db, stats, &Key::new(darter_resp::Args::owned(&request).get(at)))
        };
        let count = call.tx.on(core, count).await?;
        return Ok(call.answer(|reply| reply.int(count.cast_signed())));
    }
    let sources = multi_input::anywhere::<Source>(&call, call.first..call.len()).await?;
    let sources: Arc<Sources> = Arc::new(sources.into_iter().collect());
    let count = merge(&call, sources).await?.registers.count();
    Ok(call.answer(|reply| reply.int(count.cast_signed())))
}

/// Counts one key, and caches the result in the header.
fn count_one(db: &mut Db, stats: &mut ShardStats, key: &Key<'_>) -> Result<u64, Refusal> {
    let Some(text) = find_text(db, stats, key)? else { return Ok(0) };
    let mut scratch = Scratch::default();
    let (bytes, encoding) = read(&text, &mut scratch)?;
    if let Some(count) = cardinality(bytes) {
        return Ok(count);
    }
    let count = count_of(bytes, encoding)?;
    let known = count.to_le_bytes();
    let keep = |text: &mut TextEdit<'_>| {
        text.write(CARDINALITY.start, Fresh::Bytes(&known), &[]);
    };
    if db.edit_text(key, keep).is_none()
        && let Some((mut sketch, _)) = copy_of(db, key)?
    {
        debug_assert_eq!(sketch.encoding(), Encoding::Sparse, "a short one");
        sketch.set_cardinality(count);
        put_back(db, key, &sketch, &[]);
    }
    Ok(count)
}

/// A PFCOUNT of several keys in progress.
struct Counting {
    sources: Sources,
    merged: Registers,
    refusal: Option<Refusal>,
}

impl Counting {
    /// Merges some sources. Returns true while more are left.
    fn step(&mut self) -> Result<bool, Refusal> {
        for _ in 0..PORTION {
            match self.sources.pop_front() {
                Some(Some(source)) => _ = source.merge_into(&mut self.merged)?,
                Some(None) => {}
                None => break,
            }
        }
        Ok(!self.sources.is_empty())
    }

    fn reply(&self, reply: &mut Reply<'_>) {
        reply.int(self.merged.count().cast_signed());
    }
}

impl Stream for Counting {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        match self.step() {
            Ok(true) => return true,
            Ok(false) => self.reply(reply),
            Err(refusal) => {
                reply.error(&refusal.text());
                self.refusal = Some(refusal);
            }
        }
        false
    }

    fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }
}

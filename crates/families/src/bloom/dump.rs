//! BF.SCANDUMP and BF.LOADCHUNK: dumping and loading filters in pieces. See `filter_dump`.

use super::items::{of_outline, outline};
use super::value::{BloomEdit, BloomFilter};
use crate::filter_dump::{OUTLINE, gathered, run_after};
use crate::lookup::find_value;
use darter_base::number;
use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::Event;
use darter_structs::filter::{Bloom, Layer};
use darter_structs::pages::Pages;

/// The keyspace event of a loaded piece.
const LOAD: &Event = &Event::new("bf.loadchunk", b'd');

fn not_found() -> Refusal {
    Refusal::line("ERR not found")
}

fn bad_data() -> Refusal {
    Refusal::line("ERR received bad data")
}

/// `BF.SCANDUMP key iterator`: the next piece of a dump of the filter at `key`; the first iterator
/// is 0.
///
/// Reply: the next iterator and the piece; after the last piece, 0 and an empty bulk. Refusals: an
/// absent key, an iterator that is not a number, `WrongType`. Cost: O(bytes of a piece).
/// Source: <https://redis.io/commands/bf.scandump> (RedisBloom 1.0.0).
pub(super) fn scandump(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let filter = find_value::<BloomFilter>(cx.db, cx.stats, &key)?.ok_or_else(not_found)?;
    let after = number::parse_i64(args.word()?);
    let after = after.ok_or(Refusal::line("Second argument must be numeric"))?;
    let (next, piece) = match usize::try_from(after) {
        Ok(0) => (OUTLINE, outline(filter.chain())),
        Ok(after) => run_after(bits(filter.chain()), after).unwrap_or_default(),
        Err(_) => (0, Vec::new()),
    };
    cx.reply.array(2);
    cx.reply.int(next);
    cx.reply.bulk(&piece);
    Ok(Flow::Done)
}

fn bits(chain: &Bloom) -> impl Iterator<Item = &Pages> {
    chain.layers().iter().map(Layer::bits)
}

/// `BF.LOADCHUNK key iterator data`: loads a piece of a dump; the first one replaces the value at
/// `key`.
///
/// Reply: `OK`. Refusals: an absent key except for the first piece; a piece of another filter or
/// another server; `WrongType`. Cost: O(bytes). Source: <https://redis.io/commands/bf.loadchunk>
/// (RedisBloom 1.0.0).
pub(super) fn loadchunk(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let place = number::parse_i64(args.word()?);
    let place = place.ok_or(Refusal::line("ERR Second argument must be numeric"))?;
    let bytes = gathered(args.value()?);
    let is_there = cx.db.read_value::<BloomFilter>(&key)?.is_some();
    if !is_there && place != OUTLINE {
        return Err(not_found());
    }
    let bytes = bytes.ok_or_else(bad_data)?;
    if place == OUTLINE {
        let chain = of_outline(&bytes).ok_or_else(bad_data)?;
        cx.db.edit::<BloomFilter, _>(&key, true, |edit| edit.assign(LOAD, chain))?;
    } else {
        let load = |edit: &mut BloomEdit<'_>| edit.load(LOAD, place, &bytes);
        if cx.db.edit::<BloomFilter, _>(&key, false, load)? != Some(true) {
            return Err(bad_data());
        }
    }
    cx.reply.ok();
    Ok(Flow::Done)
}

//! TOPK.RESERVE, TOPK.INFO.

use super::value::{TopK, TopKEdit, TopKShape};
use super::{MISSING, refuse};
use crate::lookup::find_value;
use darter_base::{number, score};
use darter_command::{Args, Cx, Flow, Refusal};

/// `TOPK.RESERVE key k [width depth decay]`: makes a sketch with a list of `k` items, and `depth` rows
/// of `width` buckets: 7 of 8, if that is not said, and a decay of 0.9.
///
/// Reply: `OK`. Refusals: a key that is there, whatever it holds; numbers that are invalid, below
/// 1, or above 4 294 967 295; a decay that is not between 0 and 1; buckets of more than 4 GiB.
/// Cost: O(1); memory is taken as buckets are written to. Source:
/// <https://redis.io/commands/topk.reserve> (RedisBloom 2.0.0).
pub(super) fn reserve(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    if !matches!(args.left(), 2 | 5) {
        return Err(Refusal::Arity("topk.reserve".into()));
    }
    let key = args.key()?;
    if cx.db.read(&key).is_some() {
        return Err(refuse("TopK: key already exists"));
    }
    let mut shape = TopKShape::usual(size(args.word()?).ok_or_else(|| refuse("TopK: invalid k"))?);
    if args.left() > 0 {
        shape.width = size(args.word()?).ok_or_else(|| refuse("TopK: invalid width"))?;
        shape.depth = size(args.word()?).ok_or_else(|| refuse("TopK: invalid depth"))?;
        let decay = score::parse(args.word()?).filter(|decay| *decay > 0.0 && *decay <= 1.0);
        let refusal = || refuse("TopK: invalid decay value. must be '<= 1' & '> 0'");
        shape.decay = decay.ok_or_else(refusal)?;
    }
    let create = |edit: &mut TopKEdit<'_>| edit.create(shape);
    if cx.db.edit::<TopK, _>(&key, true, create)? != Some(true) {
        return Err(refuse("ERR Insufficient memory to create topk data structure"));
    }
    cx.reply.ok();
    Ok(Flow::Done)
}

fn size(word: &[u8]) -> Option<u32> {
    let number = number::parse_i64(word).and_then(|number| u32::try_from(number).ok());
    number.filter(|number| *number > 0)
}

/// `TOPK.INFO key`: the parameters of the sketch.
///
/// Reply: map. Refusals: an absent key, `WrongType`. Cost: O(1).
/// Source: <https://redis.io/commands/topk.info> (RedisBloom 2.0.0).
pub(super) fn info(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let found = find_value::<TopK>(cx.db, cx.stats, &key)?;
    let TopKShape { k, width, depth, decay } = found.ok_or_else(|| refuse(MISSING))?.shape();
    cx.reply.map(4);
    for (name, value) in [("k", k), ("width", width), ("depth", depth)] {
        cx.reply.simple(name);
        cx.reply.int(value.into());
    }
    cx.reply.simple("decay");
    cx.reply.double_text(score::Text::new(decay).as_str());
    Ok(Flow::Done)
}

//! CMS.INITBYDIM, CMS.INITBYPROB, CMS.INFO.

use super::value::{Cms, CmsEdit, CmsShape, INITBYDIM, INITBYPROB};
use super::{MISSING, refuse};
use crate::lookup::find_value;
use darter_base::{number, score};
use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::{Event, Key};

/// `CMS.INITBYDIM key width depth`: makes a sketch of `depth` rows of `width` counters. Memory is
/// allocated as counters are written.
///
/// Reply: `OK`. Refusals: an existing key of any type; dimensions that are not positive integers,
/// or that need more than 4 GiB. Cost: O(1).
/// Source: <https://redis.io/commands/cms.initbydim> (RedisBloom 2.0.0).
pub(super) fn initbydim(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = absent(cx, &mut args)?;
    let width = positive(args.word()?).ok_or_else(|| refuse("CMS: invalid width"))?;
    let depth = positive(args.word()?).ok_or_else(|| refuse("CMS: invalid depth"))?;
    create(cx, &key, INITBYDIM, CmsShape { width, depth })
}

/// `CMS.INITBYPROB key error probability`: makes a sketch whose counts exceed the true count by
/// more than `error` of the total, with at most this probability. It has 2 / error counters a row,
/// and one row for each halving of the probability.
///
/// Reply and refusals as of CMS.INITBYDIM, and numbers that are not between 0 and 1.
/// Source: <https://redis.io/commands/cms.initbyprob> (RedisBloom 2.0.0).
pub(super) fn initbyprob(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = absent(cx, &mut args)?;
    let error = fraction(args.word()?);
    let error = error.ok_or_else(|| refuse("CMS: invalid overestimation value"))?;
    let probability = fraction(args.word()?);
    let probability = probability.ok_or_else(|| refuse("CMS: invalid prob value"))?;
    let width = (2.0 / error).ceil();
    // In single precision, numbers close to 1 become 1.
    let depth = ((probability as f32).log10() / 0.5_f32.log10()).ceil();
    if width >= i64::MAX as f64 || !depth.is_finite() || depth < 1.0 {
        return Err(refuse("CMS: invalid init arguments"));
    }
    create(cx, &key, INITBYPROB, CmsShape { width: width as u64, depth: depth as u64 })
}

/// `CMS.INFO key`: the dimensions of the sketch, and the sum of all increments.
///
/// Reply: map. Refusals: an absent key, `WrongType`. Cost: O(1).
/// Source: <https://redis.io/commands/cms.info> (RedisBloom 2.0.0).
pub(super) fn info(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let found = find_value::<Cms>(cx.db, cx.stats, &key)?;
    let found = found.ok_or_else(|| refuse(MISSING))?;
    let CmsShape { width, depth } = found.shape();
    cx.reply.map(3);
    for (name, value) in
        [("width", width.cast_signed()), ("depth", depth.cast_signed()), ("count", found.count())]
    {
        cx.reply.simple(name);
        cx.reply.int(value);
    }
    Ok(Flow::Done)
}

/// The key of a new sketch; refused if it exists.
fn absent<'a>(cx: &mut Cx<'_>, args: &mut Args<'a>) -> Result<Key<'a>, Refusal> {
    let key = args.key()?;
    if cx.db.read(&key).is_some() {
        return Err(refuse("CMS: key already exists"));
    }
    Ok(key)
}

fn create(
    cx: &mut Cx<'_>,
    key: &Key<'_>,
    event: &'static Event,
    shape: CmsShape,
) -> Result<Flow, Refusal> {
    if shape.width.checked_mul(shape.depth).is_none() {
        return Err(refuse("CMS: invalid init arguments"));
    }
    let create = |edit: &mut CmsEdit<'_>| edit.create(event, shape);
    if cx.db.edit::<Cms, _>(key, true, create)? != Some(true) {
        return Err(refuse("CMS: Insufficient memory to create the key"));
    }
    cx.reply.ok();
    Ok(Flow::Done)
}

fn positive(word: &[u8]) -> Option<u64> {
    number::parse_i64(word).filter(|number| *number > 0).map(i64::cast_unsigned)
}

fn fraction(word: &[u8]) -> Option<f64> {
    score::parse(word).filter(|number| *number > 0.0 && *number < 1.0)
}

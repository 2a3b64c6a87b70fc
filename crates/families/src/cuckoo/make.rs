//! CF.RESERVE, and the options of CF.INSERT: the parameters of a new filter.

use super::value::{CuckooFilter, DEFAULT};
use darter_base::number;
use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::Event;
use darter_structs::filter::{Cuckoo, CuckooPlan};
use std::ops::RangeInclusive;

/// The keyspace event of a filter's creation.
pub(super) const RESERVE: &Event = &Event::new("cf.reserve", b'd');

/// The refusal of a filter that would be too large.
pub(super) fn not_created() -> Refusal {
    Refusal::line("Couldn't create Cuckoo Filter")
}

/// `CF.RESERVE key capacity [BUCKETSIZE size] [MAXITERATIONS times] [EXPANSION factor]`: creates an
/// empty filter. The number of buckets is a power of two, and so is the factor; a factor of 0 means
/// that the filter does not grow.
///
/// Reply: `OK`. Refusals: a key that exists; numbers out of range. Unknown options are ignored, as
/// in Redis. Cost: O(1): places take no memory before they are used. Source:
/// <https://redis.io/commands/cf.reserve> (RedisBloom 1.0.0).
pub(super) fn reserve(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    if args.left().is_multiple_of(2) {
        return Err(Refusal::Arity("cf.reserve".into())); // Each option has a value.
    }
    let capacity = number::parse_i64(args.word()?).ok_or(Refusal::line("Bad capacity"))?;
    let plan = plan(args, capacity)?;
    if cx.db.read_value::<CuckooFilter>(&key)?.is_some() {
        return Err(Refusal::line("ERR item exists"));
    }
    let cuckoo = Cuckoo::new(plan).ok_or_else(not_created)?;
    cx.db.edit::<CuckooFilter, _>(&key, true, |edit| edit.assign(RESERVE, cuckoo))?;
    cx.reply.ok();
    Ok(Flow::Done)
}

/// Reads the options. The first one of each name counts.
fn plan(args: Args<'_>, capacity: i64) -> Result<CuckooPlan, Refusal> {
    let number = |name: &'static str, range: RangeInclusive<i64>| -> Result<Option<i64>, Refusal> {
        let Some(word) = value_of(args, name) else { return Ok(None) };
        let number = number::parse_i64(word);
        let number = number.ok_or_else(|| Refusal::line(format!("Couldn't parse {name}")))?;
        if !range.contains(&number) {
            let (low, high) = range.into_inner();
            let text =
                format!("{name}: value must be an integer between {low} and {high}, inclusive.");
            return Err(Refusal::line(text));
        }
        Ok(Some(number))
    };
    let kicks = number("MAXITERATIONS", 1..=65_535)?;
    let width = number("BUCKETSIZE", 1..=255)?;
    let growth = number("EXPANSION", 0..=32_768)?;
    let width = width.map_or(DEFAULT.width, |width| u8::try_from(width).unwrap_or(u8::MAX));
    if capacity < 2 * i64::from(width) {
        return Err(Refusal::line("Capacity must be at least (BucketSize * 2)"));
    }
    let growth = growth.map_or(DEFAULT.growth, |factor| match u32::try_from(factor) {
        Ok(factor) if factor > 0 => factor.next_power_of_two(),
        _ => 0,
    });
    let kicks = kicks.map_or(DEFAULT.kicks, |kicks| u16::try_from(kicks).unwrap_or(u16::MAX));
    Ok(CuckooPlan { width, kicks, growth, ..sized(capacity.unsigned_abs(), width) })
}

/// The plan of a filter for this capacity.
fn sized(capacity: u64, width: u8) -> CuckooPlan {
    let buckets = capacity.div_ceil(u64::from(width)).checked_next_power_of_two();
    CuckooPlan { buckets: buckets.unwrap_or(0).max(2), width, ..DEFAULT }
}

/// The value of an option.
fn value_of<'a>(mut args: Args<'a>, name: &str) -> Option<&'a [u8]> {
    while args.left() > 0 {
        if args.option(name) {
            return args.word().ok();
        }
        args.word().ok()?;
    }
    None
}

/// Reads the options of CF.INSERT and CF.INSERTNX up to their items. Returns the plan of a new
/// filter, if one may be created.
pub(super) fn options(
    args: &mut Args<'_>,
    command: &'static str,
) -> Result<Option<CuckooPlan>, Refusal> {
    let (mut plan, mut may_create) = (DEFAULT, true);
    let arity = || Refusal::Arity(command.into());
    loop {
        match () {
            () if args.left() == 0 => return Err(arity()),
            () if args.option("ITEMS") => break,
            () if args.option("NOCREATE") => may_create = false,
            () if args.option("CAPACITY") => {
                let capacity = number::parse_i64(args.word().map_err(|_| arity())?);
                let capacity = capacity.filter(|capacity| *capacity > 0);
                let capacity = capacity.ok_or(Refusal::line("Bad capacity"))?;
                if capacity < 2 * i64::from(DEFAULT.width) {
                    return Err(Refusal::line("Capacity must be at least (BucketSize * 2)"));
                }
                plan = sized(capacity.unsigned_abs(), DEFAULT.width);
            }
            () => return Err(Refusal::line("Unknown argument received")),
        }
    }
    if args.left() == 0 {
        return Err(arity());
    }
    Ok(may_create.then_some(plan))
}

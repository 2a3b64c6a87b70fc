//! BF.RESERVE, and the options of BF.INSERT: the parameters of a new filter.

use super::value::{BloomFilter, DEFAULT};
use darter_base::{number, score};
use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::Event;
use darter_structs::filter::{Bloom, ERROR_MIN, Plan};

/// The keyspace event of a filter's creation.
pub(super) const RESERVE: &Event = &Event::new("bf.reserve", b'd');

const CAPACITY_MAX: i64 = 1 << 30;
const GROWTH_MAX: i64 = 32_768;

/// The refusal of a filter that would be too large, or too strict.
pub(super) fn not_created() -> Refusal {
    Refusal::line("ERR could not create filter")
}

/// `BF.RESERVE key error_rate capacity [EXPANSION expansion] [NONSCALING]`: creates an empty filter.
///
/// Reply: `OK`. Refusals: a key that exists; numbers out of range; both options. Unknown options
/// are ignored, as in Redis. Cost: O(1): bits take no memory before they are set. Source:
/// <https://redis.io/commands/bf.reserve> (RedisBloom 1.0.0).
pub(super) fn reserve(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let refuse = |text: &'static str| Err(Refusal::line(text));
    let Some(error) = score::parse(args.word()?) else { return refuse("ERR bad error rate") };
    if !is_error(error) {
        return refuse("ERR error rate must be in the range (0.000000, 1.000000)");
    }
    let Some(capacity) = number::parse_i64(args.word()?) else { return refuse("ERR bad capacity") };
    if !(1..=CAPACITY_MAX).contains(&capacity) {
        return refuse("ERR capacity must be in the range [1, 1073741824]");
    }
    let growth = growth(args)?;
    match cx.db.read_value::<BloomFilter>(&key) {
        Ok(None) => {}
        Ok(Some(_)) => return refuse("ERR item exists"),
        Err(wrong) => return Err(wrong.into()),
    }
    let plan = Plan { error, capacity: capacity.unsigned_abs(), growth };
    let chain = Bloom::new(plan).ok_or_else(not_created)?;
    cx.db.edit::<BloomFilter, _>(&key, true, |edit| edit.assign(RESERVE, chain))?;
    cx.reply.ok();
    Ok(Flow::Done)
}

fn is_error(error: f64) -> bool {
    (ERROR_MIN..1.0).contains(&error)
}

/// The growth factor of a reserved filter: the first EXPANSION counts.
fn growth(mut args: Args<'_>) -> Result<Option<u32>, Refusal> {
    const ARGUMENTS_MAX: usize = 7;
    if args.all().len() > ARGUMENTS_MAX {
        return Err(Refusal::Arity("bf.reserve".into()));
    }
    let (mut expansion, mut is_fixed) = (None, false);
    while args.left() > 0 {
        if args.option("EXPANSION") && expansion.is_none() {
            let word = args.word().map_err(|_| Refusal::line("ERR no expansion"))?;
            let number = number::parse_i64(word).ok_or(Refusal::line("ERR bad expansion"))?;
            expansion = Some(number);
        } else if args.option("NONSCALING") {
            is_fixed = true;
        } else if args.left() > 0 {
            args.word()?;
        }
    }
    match expansion {
        Some(1..) if is_fixed => Err(Refusal::line("Nonscaling filters cannot expand")),
        Some(number) if !(0..=GROWTH_MAX).contains(&number) => {
            Err(Refusal::line("ERR expansion must be in the range [0, 32768]"))
        }
        expansion => Ok(if is_fixed { None } else { grown(expansion) }),
    }
}

/// The factor of growth; 0 means that the filter does not grow.
fn grown(expansion: Option<i64>) -> Option<u32> {
    match expansion {
        Some(number) => u32::try_from(number).ok().filter(|number| *number > 0),
        None => DEFAULT.growth,
    }
}

/// Reads the options of BF.INSERT up to its items. Returns the plan of a new filter, if one may be
/// created.
pub(super) fn options(args: &mut Args<'_>) -> Result<Option<Plan>, Refusal> {
    let (mut plan, mut may_create, mut is_fixed) = (DEFAULT, true, false);
    let arity = || Refusal::Arity("bf.insert".into());
    let refuse = |text: &'static str| Refusal::line(text);
    loop {
        match () {
            () if args.left() == 0 => return Err(arity()),
            () if args.option("ITEMS") => break,
            () if args.option("NOCREATE") => may_create = false,
            () if args.option("NONSCALING") => is_fixed = true,
            () if args.option("CAPACITY") => {
                let capacity = number::parse_i64(args.word().map_err(|_| arity())?);
                let capacity = capacity.filter(|number| (1..=CAPACITY_MAX).contains(number));
                plan.capacity = capacity.ok_or(refuse("Bad capacity"))?.unsigned_abs();
            }
            () if args.option("ERROR") => {
                let error = score::parse(args.word().map_err(|_| arity())?);
                let error = error.filter(|error| is_error(*error));
                plan.error = error.ok_or(refuse("Bad error rate"))?;
            }
            () if args.option("EXPANSION") => {
                let number = number::parse_i64(args.word().map_err(|_| arity())?);
                let number = number.filter(|number| (0..=GROWTH_MAX).contains(number));
                plan.growth = grown(Some(number.ok_or(refuse("Bad expansion"))?));
            }
            () => return Err(refuse("Unknown argument received")),
        }
    }
    if args.left() == 0 {
        return Err(arity());
    }
    plan.growth = plan.growth.filter(|_| !is_fixed);
    Ok(may_create.then_some(plan))
}

//! SINTERCARD, SUNIONCARD, SDIFFCARD: the number of members of a combination of several sets.
//!
//! The sets are walked as for the members themselves, but only up to the limit. A union of many sets is
//! built in order to count it. `APPROX` estimates a union in 16 KiB, whatever the inputs.

use super::build::Build;
use super::estimate::Estimate;
use super::plan::{Act, Inputs};
use super::reply::flow;
use super::sets::Turns;
use super::walk::Walk;
use crate::multi_input;
use crate::pinned_values::PinnedValues;
use darter_base::number;
use darter_command::{Answer, Args, Call, Cx, Flow, Refusal, Stream};
use darter_resp::{Output, Reply};
use darter_structs::Watch;
use std::collections::VecDeque;

/// Lookups and decisions in one portion.
const PORTION: usize = 400;

/// `SINTERCARD numkeys key [key ...] [LIMIT limit]`: the size of the intersection; counting ends at
/// `limit`, unless that is 0.
///
/// Reply: integer; counted in slices when large. Refusals: numbers out of range, `Syntax`,
/// `WrongType` of any key. Cost: O(smallest set * sets).
/// Source: <https://redis.io/commands/sintercard> (7.0.0).
pub(super) fn sintercard_here(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    here(cx, args, Act::Inter)
}

/// `SUNIONCARD numkeys key [key ...] [APPROX] [LIMIT limit]`: the size of the union; with `APPROX`
/// an estimate, usually within 1 percent.
///
/// Otherwise as SINTERCARD. Cost: O(members of all sets).
/// Source: <https://redis.io/commands/sunioncard> (8.10.0).
pub(super) fn sunioncard_here(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    here(cx, args, Act::Union)
}

/// `SDIFFCARD numkeys key [key ...] [LIMIT limit]`: the number of members of the first set that are
/// in no other.
///
/// Otherwise as SINTERCARD. Cost: O(members of all sets).
/// Source: <https://redis.io/commands/sdiffcard> (8.10.0).
pub(super) fn sdiffcard_here(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    here(cx, args, Act::Diff)
}

/// A parsed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Options {
    /// The number of keys that follow.
    keys: usize,
    /// The number at which counting stops.
    limit: usize,
    approx: bool,
}

impl Options {
    /// Parses the arguments; leaves `args` at the first key.
    fn parse(args: &mut Args<'_>, act: Act) -> Result<Self, Refusal> {
        let keys = number::parse_i64(args.bytes()?)
            .and_then(|keys| usize::try_from(keys).ok())
            .filter(|keys| *keys > 0)
            .ok_or(Refusal::line("ERR numkeys should be greater than 0"))?;
        if keys > args.left() {
            return Err(Refusal::line("ERR Number of keys can't be greater than number of args"));
        }
        let mut options = Self { keys, limit: usize::MAX, approx: false };
        let mut rest = *args;
        rest.seek(args.position() + keys);
        while rest.left() > 0 {
            if rest.left() > 1 && rest.option("LIMIT") {
                options.limit = number::parse_i64(rest.bytes()?)
                    .and_then(|limit| usize::try_from(limit).ok())
                    .ok_or(Refusal::line("ERR LIMIT can't be negative"))?;
                if options.limit == 0 {
                    options.limit = usize::MAX;
                }
            } else if act == Act::Union && rest.option("APPROX") {
                options.approx = true;
            } else {
                return Err(Refusal::Syntax);
            }
        }
        Ok(options)
    }
}

fn here(cx: &mut Cx<'_>, mut args: Args<'_>, act: Act) -> Result<Flow, Refusal> {
    let options = Options::parse(&mut args, act)?;
    let cuts = multi_input::here(cx.db, cx.stats, args, options.keys)?;
    let inputs = Inputs::here(act, cuts);
    let small = inputs.is_small();
    let counting = Counting::new(inputs, options, cx.now);
    Ok(flow(cx, small, counting))
}

/// The count for sets on several cores, or for very many.
pub(super) async fn anywhere(call: Call, act: Act) -> Result<Answer, Refusal> {
    let mut args = call.args();
    let options = Options::parse(&mut args, act)?;
    let first = args.position();
    let cuts = multi_input::anywhere(&call, first..first + options.keys).await?;
    let now = call.tx.home().shard.now();
    let counting = Counting::new(Inputs::anywhere(&call, act, cuts).await, options, now);
    Ok(Answer::Stream(Output::default(), Box::new(counting)))
}

/// A count in progress.
struct Counting {
    way: Way,
    inputs: PinnedValues<Watch>,
    count: usize,
    limit: usize,
}

enum Way {
    Exact(VecDeque<Walk>),
    Built(Build),
    Estimated(Turns, Box<Estimate>),
}

impl Counting {
    fn new(mut inputs: Inputs, options: Options, now: u64) -> Self {
        let watched = inputs.watch();
        let way = if options.approx {
            Way::Estimated(Turns::new(inputs.sets, now), Box::default())
        } else if inputs.is_built() {
            Way::Built(Build::new(inputs, now))
        } else {
            Way::Exact(inputs.legs().iter_mut().map(|leg| leg.walk(now)).collect())
        };
        Self { way, inputs: watched, count: 0, limit: options.limit }
    }

    /// Continues counting. Returns true while it is unfinished.
    fn step(&mut self) -> bool {
        let count = &mut self.count;
        match &mut self.way {
            Way::Exact(walks) => walk(walks, &mut |_, kept| *count += usize::from(kept)),
            Way::Built(build) => {
                let more = build.step();
                // While members are still being removed, the size is not yet meaningful.
                if !more || build.grows() {
                    *count = build.len();
                }
                more
            }
            Way::Estimated(turns, estimate) => {
                let more = turns.step(PORTION, &mut |member, _| estimate.add(member));
                // Reading the estimate costs as much as a portion, so it is read once, at the end.
                if !more {
                    *count = estimate.count();
                }
                more
            }
        }
    }
}

fn walk(walks: &mut VecDeque<Walk>, sink: &mut dyn FnMut(&[u8], bool)) -> bool {
    let Some(first) = walks.front_mut() else { return false };
    if !first.step(PORTION, sink) {
        walks.pop_front();
    }
    !walks.is_empty()
}

impl Stream for Counting {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let more = self.step() && self.count < self.limit;
        if !more {
            reply.count(self.count.min(self.limit));
        }
        more
    }

    fn pinned_bytes(&self) -> usize {
        let own = if let Way::Built(build) = &self.way { build.own_bytes() } else { 0 };
        self.inputs.pinned_bytes() + own
    }
}

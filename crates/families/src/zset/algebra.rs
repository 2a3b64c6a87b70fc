//! ZUNION, ZINTER, ZDIFF, ZINTERCARD, and the STORE forms: combinations of several sorted sets and
//! sets.
//!
//! The inputs are cuts, taken at one instant wherever the keys live (`multi_input`). The result is
//! built aside first, in slices: its members have an order, and its header a count. A STORE form
//! keeps its destination locked, and installs the result in one step.

use super::build::Build;
use super::operand::Operand;
use super::options::{self, Dialect, Options, Yields, weight};
use super::plan::{Act, Aggregate, Inputs};
use super::reply::{Entries, Form, flow};
use super::value::ZSet;
use super::walk::Walk;
use crate::multi_input::{self, InputCuts, pause_now_and_then};
use crate::pinned_values::PinnedValues;
use darter_command::{Answer, Args, Call, Cx, Flow, Refusal, Stream};
use darter_keyspace::{Deadline, Event, Key, Object};
use darter_resp::{Output, Reply};
use darter_structs::Watch;
use darter_structs::sorted::End;
use darter_tx::Home;
use std::sync::Arc;

/// Lookups in one portion of a count.
const COUNTED: usize = 32;

/// `ZUNION numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX | COUNT]
/// [WITHSCORES]`: the members that any of the sorted sets has; a member of several has the sum of
/// its scores, or the least, or the greatest, each times the weight of its key; or with `COUNT` the
/// sum of the weights of the keys that have it. The members of a set have the score 1. An absent key
/// is an empty one.
///
/// Reply: as ZRANGE; built in slices and streamed when large, from cuts of all inputs. Refusals:
/// `NotAnInteger`, a number of keys below 1, `Syntax`; `WrongType` of any key; then the options.
/// Cost: O(members of all * log(result)). Source: <https://redis.io/commands/zunion> (6.2.0).
pub(super) const ZUNION: Dialect =
    Dialect { name: "zunion", act: Act::Union, yields: Yields::Members };

/// `ZINTER numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX | COUNT]
/// [WITHSCORES]`: the members that all the sorted sets have.
///
/// Otherwise as ZUNION. Cost: O(smallest * inputs + result * log(result)).
/// Source: <https://redis.io/commands/zinter> (6.2.0).
pub(super) const ZINTER: Dialect =
    Dialect { name: "zinter", act: Act::Inter, yields: Yields::Members };

/// `ZDIFF numkeys key [key ...] [WITHSCORES]`: the members of the first sorted set that no other
/// has, with their scores there.
///
/// Otherwise as ZUNION. Cost: O(first * inputs + result * log(result)).
/// Source: <https://redis.io/commands/zdiff> (6.2.0).
pub(super) const ZDIFF: Dialect =
    Dialect { name: "zdiff", act: Act::Diff, yields: Yields::Members };

/// `ZINTERCARD numkeys key [key ...] [LIMIT limit]`: how many members all the sorted sets have;
/// counting ends at `limit`, unless that is 0.
///
/// Reply: integer; counted in slices when large. Refusals as those of ZUNION. Cost: O(smallest *
/// inputs). Source: <https://redis.io/commands/zintercard> (7.0.0).
pub(super) const ZINTERCARD: Dialect =
    Dialect { name: "zintercard", act: Act::Inter, yields: Yields::Count };

/// `ZUNIONSTORE destination numkeys key [key ...] [WEIGHTS ...] [AGGREGATE ...]`: puts the result of
/// ZUNION at `destination`, whatever that held; an empty one removes it. The destination may be one
/// of the sources.
///
/// Reply: integer, members of the result. Refusals and cost as those of ZUNION; in slices. Source:
/// <https://redis.io/commands/zunionstore> (2.0.0).
pub(super) const ZUNIONSTORE: Dialect =
    Dialect { name: "zunionstore", act: Act::Union, yields: Yields::Value };

/// `ZINTERSTORE destination numkeys key [key ...] [WEIGHTS ...] [AGGREGATE ...]`: as ZUNIONSTORE for
/// ZINTER. Source: <https://redis.io/commands/zinterstore> (2.0.0).
pub(super) const ZINTERSTORE: Dialect =
    Dialect { name: "zinterstore", act: Act::Inter, yields: Yields::Value };

/// `ZDIFFSTORE destination numkeys key [key ...]`: as ZUNIONSTORE for ZDIFF.
/// Source: <https://redis.io/commands/zdiffstore> (6.2.0).
pub(super) const ZDIFFSTORE: Dialect =
    Dialect { name: "zdiffstore", act: Act::Diff, yields: Yields::Value };

/// A command whose keys are all here, and few.
pub(super) fn here(cx: &mut Cx<'_>, mut args: Args<'_>, dialect: Dialect) -> Result<Flow, Refusal> {
    let keys = options::keys(&mut args, dialect)?;
    let cuts = multi_input::here(cx.db, cx.stats, args, keys)?;
    let first = args.position();
    args.seek(first + keys);
    let options = Options::parse(args, keys, dialect);
    let mut weights = Vec::new();
    for from in &options.weights {
        let read = (*from..from + keys).map(|at| weight(args.all(), at));
        weights = read.collect::<Result<_, _>>()?;
    }
    if let Some(refusal) = options.refusal {
        return Err(refusal);
    }
    let inputs = Inputs::here(dialect.act, cuts, &weights);
    let small = inputs.is_small();
    Ok(match dialect.yields {
        Yields::Count => {
            let count = Count::new(inputs, options.limit, cx.now);
            flow(cx, small, count)
        }
        Yields::Members | Yields::Value => {
            let show = Show::new(inputs, (options.aggregate, options.form), cx.now);
            flow(cx, small, show)
        }
    })
}

/// A command whose keys are on several cores, or very many.
pub(super) async fn anywhere(call: Call, dialect: Dialect) -> Result<Answer, Refusal> {
    let mut args = call.args();
    let keys = options::keys(&mut args, dialect)?;
    let first = args.position();
    let cuts = multi_input::anywhere(&call, first..first + keys).await?;
    args.seek(first + keys);
    let (inputs, options) = combine(&call, args, (keys, cuts), dialect).await?;
    let now = call.tx.home().shard.now();
    let stream: Box<dyn Stream> = match dialect.yields {
        Yields::Count => Box::new(Count::new(inputs, options.limit, now)),
        Yields::Members | Yields::Value => {
            Box::new(Show::new(inputs, (options.aggregate, options.form), now))
        }
    };
    Ok(Answer::Stream(Output::default(), stream))
}

/// Reads the options that follow the keys, and the weights in portions.
async fn combine(
    call: &Call,
    args: Args<'_>,
    (keys, cuts): (usize, InputCuts<Operand>),
    dialect: Dialect,
) -> Result<(Inputs, Options), Refusal> {
    let mut options = Options::parse(args, keys, dialect);
    let mut weights = Vec::new();
    for from in &options.weights {
        weights.clear();
        weights.reserve_exact(keys); // The vector never moves.
        for done in 0..keys {
            weights.push(weight(args.all(), from + done)?);
            pause_now_and_then(call, done).await;
        }
    }
    match options.refusal.take() {
        Some(refusal) => Err(refusal),
        None => Ok((Inputs::anywhere(call, dialect.act, cuts, &weights).await, options)),
    }
}

/// A STORE form.
pub(super) async fn store(call: Call, dialect: Dialect) -> Result<Answer, Refusal> {
    let (mut args, target) = (call.args(), call.first);
    args.seek(target + 1);
    let keys = options::keys(&mut args, dialect)?;
    let first = args.position();
    let (cuts, locked) = multi_input::for_target(&call, first..first + keys, target).await?;
    args.seek(first + keys);
    let (inputs, options) = combine(&call, args, (keys, cuts), dialect).await?;
    let now = call.tx.home().shard.now();
    let mut build = Build::new(inputs, options.aggregate, now);
    while build.step() {
        call.tx.pause().await;
    }
    let count = install(&call, target, build.take_set(), (event(dialect.act), 1)).await;
    drop(locked);
    Ok(call.answer(|reply| reply.count(count)))
}

/// Puts `set` at the locked key at `target`, and counts `changes` changes. Returns the number of
/// members.
pub(crate) async fn install(
    call: &Call,
    target: usize,
    set: ZSet,
    (event, changes): (&'static Event, usize),
) -> usize {
    let count = set.len();
    let (request, db) = (Arc::clone(&call.request), call.db);
    let install = move |home: &mut Home| {
        let key = Key::new(darter_resp::Args::owned(&request).get(target));
        let db = home.shard.db_mut(db);
        db.install(&key, Object::new(set), Deadline::Clear, &[event]);
        db.count_more(changes.saturating_sub(1));
    };
    call.tx.on(call.owner(target), install).await;
    count
}

fn event(act: Act) -> &'static Event {
    const ZUNIONSTORE: &Event = &Event::new("zunionstore", b'z');
    const ZINTERSTORE: &Event = &Event::new("zinterstore", b'z');
    const ZDIFFSTORE: &Event = &Event::new("zdiffstore", b'z');
    match act {
        Act::Union => ZUNIONSTORE,
        Act::Inter => ZINTERSTORE,
        Act::Diff => ZDIFFSTORE,
    }
}

/// A result being built, then shown.
struct Show {
    stage: ZSetAlgebraStage,
    form: Form,
    /// The inputs, until the result is built.
    inputs: PinnedValues<Watch>,
}

enum ZSetAlgebraStage {
    Building(Box<Build>),
    Showing(Entries),
}

impl Show {
    fn new(mut inputs: Inputs, (aggregate, form): (Aggregate, Form), now: u64) -> Self {
        let watched = inputs.watch();
        let build = Box::new(Build::new(inputs, aggregate, now));
        Self { stage: ZSetAlgebraStage::Building(build), form, inputs: watched }
    }
}

impl Stream for Show {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let build = match &mut self.stage {
            ZSetAlgebraStage::Showing(entries) => return entries.pump(reply),
            ZSetAlgebraStage::Building(build) => build,
        };
        if build.step() {
            return true;
        }
        let set = build.take_set();
        self.form.header(reply, set.len());
        let entries = Entries::new(set.entries().reader(), 0..set.len(), (End::Front, self.form));
        (self.stage, self.inputs) = (ZSetAlgebraStage::Showing(entries), PinnedValues::new([]));
        true
    }

    fn pinned_bytes(&self) -> usize {
        let own = match &self.stage {
            ZSetAlgebraStage::Building(build) => build.memory_bytes(),
            ZSetAlgebraStage::Showing(entries) => entries.pinned_bytes(),
        };
        self.inputs.pinned_bytes() + own
    }
}

/// A result being counted.
struct Count {
    walk: Option<Walk>,
    count: usize,
    limit: usize,
    inputs: PinnedValues<Watch>,
}

impl Count {
    fn new(mut inputs: Inputs, limit: usize, now: u64) -> Self {
        let watched = inputs.watch();
        let (operands, act) = (std::mem::take(&mut inputs.operands), inputs.act);
        let walk = Build::filter(operands, (act, Aggregate::Sum), now);
        Self { walk, count: 0, limit, inputs: watched }
    }
}

impl Stream for Count {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let count = &mut self.count;
        let walk = self.walk.as_mut();
        let more = walk.is_some_and(|walk| walk.step(COUNTED, &mut |_, _| *count += 1));
        if more && self.count < self.limit {
            return true;
        }
        reply.count(self.count.min(self.limit));
        false
    }

    fn pinned_bytes(&self) -> usize {
        self.inputs.pinned_bytes()
    }
}

//! The commands that query a digest: for values by shares and ranks, and for shares and ranks by
//! values.
//!
//! A query reads each node, so replies are sent in portions. Very many arguments are checked in
//! portions, too, before the first reply.

use super::digest::View;
use super::value::TDigest;
use super::{MISSING, double, refuse};
use crate::lookup::find_value;
use crate::pending_values::flow;
use darter_base::{number, score};
use darter_command::{Args, Cx, Flow, Job, Refusal, Step, Stream};
use darter_resp::{self as resp, Reply, Request};
use std::sync::Arc;

/// The number of questions checked at once.
const CHECKED: usize = 256;
/// Nodes that are looked at in a portion of a reply; and the further cost of an answer, in nodes.
const NODES: usize = 8_192;
const ANSWER: usize = 64;

/// A question to a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// `TDIGEST.QUANTILE key quantile [quantile ...]`: the values before which these shares of the
    /// observations lie. Source: <https://redis.io/commands/tdigest.quantile> (RedisBloom 2.4.0).
    Quantile,
    /// `TDIGEST.CDF key value [value ...]`: the shares of observations that are smaller than these
    /// values, with half of those that are equal.
    /// Source: <https://redis.io/commands/tdigest.cdf> (RedisBloom 2.4.0).
    Cdf,
    /// `TDIGEST.RANK key value [value ...]`: how many observations are smaller, with half of those
    /// that are equal, rounded down; -1 before the first, -2 if there are none.
    /// Source: <https://redis.io/commands/tdigest.rank> (RedisBloom 2.4.0).
    Rank,
    /// `TDIGEST.REVRANK key value [value ...]`: like RANK, counted from the greatest observation.
    /// Source: <https://redis.io/commands/tdigest.revrank> (RedisBloom 2.4.0).
    RevRank,
    /// `TDIGEST.BYRANK key rank [rank ...]`: the values of observations with these ranks; infinite
    /// beyond the last. Source: <https://redis.io/commands/tdigest.byrank> (RedisBloom 2.4.0).
    ByRank,
    /// `TDIGEST.BYREVRANK key rank [rank ...]`: like BYRANK, counted from the greatest observation.
    /// Source: <https://redis.io/commands/tdigest.byrevrank> (RedisBloom 2.4.0).
    ByRevRank,
}

impl Ask {
    /// Parses the argument of a question.
    fn parse(self, word: &[u8]) -> Result<f64, Refusal> {
        let parse = |why| score::parse(word).ok_or_else(|| refuse(why));
        match self {
            Self::Quantile => {
                let share = parse("ERR T-Digest: error parsing quantile")?;
                if !(0.0..=1.0).contains(&share) {
                    return Err(refuse("ERR T-Digest: quantile should be in [0,1]"));
                }
                Ok(share)
            }
            Self::Cdf => parse("ERR T-Digest: error parsing cdf"),
            Self::Rank | Self::RevRank => parse("ERR T-Digest: error parsing value"),
            Self::ByRank | Self::ByRevRank => {
                let rank = number::parse_i64(word);
                let rank = rank.ok_or_else(|| refuse("ERR T-Digest: error parsing rank"))?;
                if rank < 0 {
                    return Err(refuse("ERR T-Digest: rank needs to be non negative"));
                }
                Ok(rank as f64)
            }
        }
    }

    fn answer(self, reply: &mut Reply<'_>, view: &View, asked: f64) {
        let weight = view.weight();
        match self {
            Self::Quantile => double(reply, view.quantile(asked)),
            Self::Cdf => double(reply, view.share_below(asked)),
            Self::ByRank => double(reply, view.by_rank(asked)),
            Self::ByRevRank if asked >= weight && weight > 0.0 => double(reply, -f64::INFINITY),
            Self::ByRevRank => double(reply, view.by_rank(weight - 1.0 - asked)),
            Self::Rank | Self::RevRank if view.is_empty() => reply.int(-2),
            Self::Rank => reply.int(view.below(asked).floor() as i64),
            Self::RevRank => match view.below(asked) {
                before if before < 0.0 => reply.int(weight as i64),
                _ if asked > view.max() => reply.int(-1),
                before => reply.int((weight - before).floor() as i64),
            },
        }
    }
}

/// Answers each question.
///
/// Reply: array of doubles or integers; streamed if there are many. Refusals: an absent key,
/// `WrongType`, questions that are no numbers, or out of range. Cost: O(questions * nodes).
pub(super) fn ask(cx: &mut Cx<'_>, mut args: Args<'_>, ask: Ask) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let found = find_value::<TDigest>(cx.db, cx.stats, &key)?;
    let view = found.ok_or_else(|| refuse(MISSING))?.digest().view();
    let (request, next) = (args.all().to_request(), args.position());
    let asking = Asking { view, request, next, ask };
    if args.left() > CHECKED {
        return Ok(Flow::Job(Box::new(Checking { checked: next, asking: Some(asking) })));
    }
    asking.check(next..args.all().len())?;
    cx.reply.array(args.left());
    Ok(flow(&mut cx.reply, asking))
}

/// The questions that have no answer yet.
struct Asking {
    view: View,
    request: Arc<Request>,
    /// The index of the next question.
    next: usize,
    ask: Ask,
}

impl Asking {
    fn check(&self, mut questions: std::ops::Range<usize>) -> Result<(), Refusal> {
        let all = resp::Args::owned(&self.request);
        questions.try_for_each(|at| self.ask.parse(all.head(at)).map(drop))
    }
}

impl Stream for Asking {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let (all, mut left) = (resp::Args::owned(&self.request), NODES);
        while left > 0 && self.next < all.len() {
            let asked = self.ask.parse(all.head(self.next)).unwrap_or(f64::NAN);
            self.ask.answer(reply, &self.view, asked);
            self.next += 1;
            left = left.saturating_sub(self.view.nodes().len() + ANSWER);
        }
        self.next < all.len()
    }

    fn pinned_bytes(&self) -> usize {
        size_of_val(self.view.nodes())
    }
}

/// A request of very many questions, which are checked first.
struct Checking {
    checked: usize,
    asking: Option<Asking>,
}

impl Job for Checking {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let asking = self.asking.take().expect("it is there until it is sent");
        let len = asking.request.len();
        while self.checked < len {
            let end = len.min(self.checked + CHECKED);
            asking.check(self.checked..end)?;
            self.checked = end;
            if cx.preempt.must_yield() {
                self.asking = Some(asking);
                return Ok(Step::More);
            }
        }
        cx.reply.array(len - asking.next);
        Ok(Step::Done(flow(&mut cx.reply, asking)))
    }
}

/// `TDIGEST.MIN key`: the smallest observation.
///
/// Reply: double, NaN if there are none. Refusals: an absent key, `WrongType`. Cost: O(1).
/// Source: <https://redis.io/commands/tdigest.min> (RedisBloom 2.4.0).
pub(super) fn min(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    end(cx, args, |(min, _)| min)
}

/// `TDIGEST.MAX key`: the greatest observation. As TDIGEST.MIN.
/// Source: <https://redis.io/commands/tdigest.max> (RedisBloom 2.4.0).
pub(super) fn max(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    end(cx, args, |(_, max)| max)
}

fn end(cx: &mut Cx<'_>, mut args: Args<'_>, which: fn((f64, f64)) -> f64) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let found = find_value::<TDigest>(cx.db, cx.stats, &key)?;
    let ends = found.ok_or_else(|| refuse(MISSING))?.digest().ends();
    double(&mut cx.reply, ends.map_or(f64::NAN, which));
    Ok(Flow::Done)
}

/// `TDIGEST.TRIMMED_MEAN key low_cut_quantile high_cut_quantile`: the mean of the observations from
/// one share of them to another.
///
/// Reply: double, NaN if there are none. Refusals: an absent key, `WrongType`, shares that are no
/// numbers, out of range, or not in order. Cost: O(nodes).
/// Source: <https://redis.io/commands/tdigest.trimmed_mean> (RedisBloom 2.4.0).
pub(super) fn trimmed_mean(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let found = find_value::<TDigest>(cx.db, cx.stats, &key)?;
    let found = found.ok_or_else(|| refuse(MISSING))?;
    let mut share = |why| score::parse(args.word()?).ok_or_else(|| refuse(why));
    let low = share("ERR T-Digest: error parsing low_cut_percentile")?;
    let high = share("ERR T-Digest: error parsing high_cut_percentile")?;
    if ![low, high].iter().all(|share| (0.0..=1.0).contains(share)) {
        return Err(refuse(
            "ERR T-Digest: low_cut_percentile and high_cut_percentile should be in [0,1]",
        ));
    }
    if low >= high {
        return Err(refuse(
            "ERR T-Digest: low_cut_percentile should be lower than high_cut_percentile",
        ));
    }
    double(&mut cx.reply, found.digest().view().trimmed_mean(low, high));
    Ok(Flow::Done)
}

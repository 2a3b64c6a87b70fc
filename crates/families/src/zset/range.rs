//! Ranges: ZRANGE and the commands that it replaces, ZCOUNT, ZLEXCOUNT.

use super::bounds::Bounds;
use super::options::OPTIONS_MAX;
use super::reply::{Form, entries};
use super::value::ZSet;
use crate::lookup::find_value;
use darter_command::{Args, Cx, Flow, Refusal};
use darter_structs::sorted::{End, Sorted};
use std::ops::Range;

/// The kind of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Rank,
    Score,
    Member,
}

/// The options that the name of a command implies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    by: Option<By>,
    from: Option<End>,
    can_show_scores: bool,
}

impl Dialect {
    /// ZRANGESTORE: as ZRANGE, but nothing is shown.
    pub(super) const STORE: Self = Self { by: None, from: None, can_show_scores: false };

    const ZRANGE: Self = Self { by: None, from: None, can_show_scores: true };

    const fn of(by: By, from: End) -> Self {
        Self { by: Some(by), from: Some(from), can_show_scores: true }
    }
}

/// The range that a request asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query<'a> {
    bounds: Bounds<'a>,
    /// The end from which it is counted, and shown.
    from: End,
    /// Entries that are left out at that end.
    offset: usize,
    /// The most that are shown.
    count: usize,
    form: Form,
}

/// The options of a request.
struct Options {
    by: By,
    from: End,
    /// Offset and count.
    limit: (i64, i64),
    with_scores: bool,
}

impl Options {
    fn parse(mut args: Args<'_>, dialect: Dialect) -> Result<Self, Refusal> {
        let (mut by, mut from) = (dialect.by, dialect.from);
        let (mut limit, mut with_scores, mut count) = ((0, -1), false, 0);
        while args.left() > 0 {
            count += 1;
            if count > OPTIONS_MAX {
                return Err(Refusal::Syntax);
            }
            if dialect.can_show_scores && args.option("WITHSCORES") {
                with_scores = true;
            } else if args.left() > 2 && args.option("LIMIT") {
                limit = (args.int()?, args.int()?);
            } else if from.is_none() && args.option("REV") {
                from = Some(End::Back);
            } else if by.is_none() && args.option("BYLEX") {
                by = Some(By::Member);
            } else if by.is_none() && args.option("BYSCORE") {
                by = Some(By::Score);
            } else {
                return Err(Refusal::Syntax);
            }
        }
        let (by, from) = (by.unwrap_or(By::Rank), from.unwrap_or(End::Front));
        // In Redis a count of -1 counts as no limit.
        if limit.1 != -1 && by == By::Rank {
            return Err(Refusal::line(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or \
                 BYLEX",
            ));
        }
        if with_scores && by == By::Member {
            return Err(Refusal::line(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        Ok(Self { by, from, limit, with_scores })
    }
}

impl<'a> Query<'a> {
    /// Reads the two ends of the range, then the options.
    pub(super) fn parse(mut args: Args<'a>, dialect: Dialect) -> Result<Self, Refusal> {
        let mut ends = args;
        args.seek(args.position() + 2);
        let Options { by, from, limit, with_scores } = Options::parse(args, dialect)?;
        let bounds = match by {
            By::Rank => Bounds::Ranks(ends.int()?, ends.int()?),
            By::Score | By::Member => {
                let (first, last) = (ends.bytes()?, ends.bytes()?);
                let (min, max) = if from == End::Back { (last, first) } else { (first, last) };
                if by == By::Score { Bounds::scores(min, max) } else { Bounds::members(min, max) }?
            }
        };
        // A negative offset leaves out all, a negative count nothing. Those by rank have no limit.
        let (offset, count) = if by == By::Rank { (0, -1) } else { limit };
        let [offset, count] = [offset, count].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        Ok(Self { bounds, from, offset, count, form: Form::of(with_scores) })
    }

    /// The ranks of the range.
    pub(super) fn ranks(&self, set: &Sorted) -> Range<usize> {
        let Range { start, end } = self.bounds.ranks(set, self.from == End::Back);
        match self.from {
            End::Front => {
                let start = start.saturating_add(self.offset).min(end);
                start..end.min(start.saturating_add(self.count))
            }
            End::Back => {
                let end = end.saturating_sub(self.offset).max(start);
                start.max(end.saturating_sub(self.count))..end
            }
        }
    }
}

/// `ZRANGE key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]`: the members
/// in a range of ranks, scores, or members, ascending; with `REV` descending, and the ends of a
/// range of scores or members come in that order too.
///
/// Reply: array of members; with scores flat in RESP2, pairs in RESP3. Streamed from a cut when
/// long. Refusals: `Syntax` and its like, `NotAnInteger`, invalid bounds, `WrongType`, in this
/// order. Cost: O(log(members) + entries shown). Source: <https://redis.io/commands/zrange> (1.2.0;
/// options 6.2.0).
pub(super) fn zrange(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    range(cx, args, Dialect::ZRANGE)
}

/// `ZREVRANGE key start stop [WITHSCORES]`: as ZRANGE with `REV`.
///
/// Source: <https://redis.io/commands/zrevrange> (1.2.0).
pub(super) fn zrevrange(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    range(cx, args, Dialect::of(By::Rank, End::Back))
}

/// `ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count]`: as ZRANGE with `BYSCORE`.
///
/// Source: <https://redis.io/commands/zrangebyscore> (1.0.5).
pub(super) fn zrangebyscore(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    range(cx, args, Dialect::of(By::Score, End::Front))
}

/// `ZREVRANGEBYSCORE key max min [WITHSCORES] [LIMIT offset count]`: as ZRANGE with `BYSCORE REV`.
///
/// Source: <https://redis.io/commands/zrevrangebyscore> (2.2.0).
pub(super) fn zrevrangebyscore(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    range(cx, args, Dialect::of(By::Score, End::Back))
}

/// `ZRANGEBYLEX key min max [LIMIT offset count]`: as ZRANGE with `BYLEX`.
///
/// Source: <https://redis.io/commands/zrangebylex> (2.8.9).
pub(super) fn zrangebylex(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    range(cx, args, Dialect::of(By::Member, End::Front))
}

/// `ZREVRANGEBYLEX key max min [LIMIT offset count]`: as ZRANGE with `BYLEX REV`.
///
/// Source: <https://redis.io/commands/zrevrangebylex> (2.8.9).
pub(super) fn zrevrangebylex(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    range(cx, args, Dialect::of(By::Member, End::Back))
}

fn range(cx: &mut Cx<'_>, mut args: Args<'_>, dialect: Dialect) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let query = Query::parse(args, dialect)?;
    let Some(set) = find_value::<ZSet>(cx.db, cx.stats, &key)? else {
        cx.reply.array(0);
        return Ok(Flow::Done);
    };
    let ranks = query.ranks(set.entries());
    Ok(entries(&mut cx.reply, set.entries(), ranks, (query.from, query.form)))
}

/// `ZCOUNT key min max`: how many members have a score in the range.
///
/// Reply: integer. Refusals: invalid bounds, `WrongType`. Cost: O(log(members)). Source:
/// <https://redis.io/commands/zcount> (2.0.0).
pub(super) fn zcount(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, min, max) = (args.key()?, args.bytes()?, args.bytes()?);
    count(cx, &key, Bounds::scores(min, max)?)
}

/// `ZLEXCOUNT key min max`: how many members are in the range, all having the same score.
///
/// Reply: integer. Refusals: invalid bounds, `WrongType`. Cost: O(log(members)). Source:
/// <https://redis.io/commands/zlexcount> (2.8.9).
pub(super) fn zlexcount(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, min, max) = (args.key()?, args.bytes()?, args.bytes()?);
    count(cx, &key, Bounds::members(min, max)?)
}

fn count(
    cx: &mut Cx<'_>,
    key: &darter_keyspace::Key<'_>,
    bounds: Bounds<'_>,
) -> Result<Flow, Refusal> {
    let set = find_value::<ZSet>(cx.db, cx.stats, key)?;
    cx.reply.count(set.map_or(0, |set| bounds.ranks(set.entries(), false).len()));
    Ok(Flow::Done)
}

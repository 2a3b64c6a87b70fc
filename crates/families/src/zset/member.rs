//! Members one by one: ZSCORE, ZMSCORE, ZCARD, ZRANK, ZREVRANK.

use super::reply::double;
use super::value::ZSet;
use crate::lookup::find_value;
use crate::prefetch::prefetch;
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_keyspace::Value;
use darter_resp::{self as resp, Reply, Request};
use std::sync::Arc;

/// Members that are looked up at once, and in one portion of a long ZMSCORE.
const ASKED_AT_ONCE: usize = 32;

/// `ZSCORE key member`: its score.
///
/// Reply: double (bulk in RESP2), or null. Refusals: `WrongType`. Cost: O(log(members)).
/// Source: <https://redis.io/commands/zscore> (1.2.0).
pub(super) fn zscore(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, member) = (args.key()?, args.bytes()?);
    let set = find_value::<ZSet>(cx.db, cx.stats, &key)?;
    score_or_null(&mut cx.reply, set.and_then(|set| set.score(member)));
    Ok(Flow::Done)
}

fn score_or_null(reply: &mut Reply<'_>, score: Option<f64>) {
    match score {
        Some(score) => double(reply, score),
        None => reply.null(),
    }
}

/// `ZMSCORE key member [member ...]`: their scores.
///
/// Reply: array of doubles and nulls. Refusals: `WrongType`. Cost: O(members asked for *
/// log(members)); beyond 32 the reply is streamed from a cut.
/// Source: <https://redis.io/commands/zmscore> (6.2.0).
pub(super) fn zmscore(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let set = find_value::<ZSet>(cx.db, cx.stats, &key)?;
    let empty = ZSet::new();
    let set = set.as_deref().unwrap_or(&empty);
    cx.reply.array(args.left());
    if args.left() <= ASKED_AT_ONCE {
        ask(&mut cx.reply, set, args, args.left());
        return Ok(Flow::Done);
    }
    let (request, next) = (args.all().to_request(), args.position());
    Ok(Flow::Stream(Box::new(Asking { request, next, set: set.reader() })))
}

/// Replies for the next `count` members.
fn ask(reply: &mut Reply<'_>, set: &ZSet, mut args: Args<'_>, count: usize) {
    for done in 0..count {
        if let Some(ahead) = set.ahead() {
            prefetch(done, ahead, args, 1);
        }
        let Some(member) = args.next() else { break };
        score_or_null(reply, set.score(member));
    }
}

/// A long ZMSCORE.
struct Asking {
    request: Arc<Request>,
    next: usize,
    set: ZSet,
}

impl Stream for Asking {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let args = Args::new(resp::Args::owned(&self.request), self.next);
        ask(reply, &self.set, args, ASKED_AT_ONCE);
        self.next += ASKED_AT_ONCE;
        self.next < self.request.len()
    }

    fn pinned_bytes(&self) -> usize {
        self.set.pinned_bytes()
    }
}

/// `ZCARD key`: how many members the sorted set has.
///
/// Reply: integer. Refusals: `WrongType`. Cost: O(1).
/// Source: <https://redis.io/commands/zcard> (1.2.0).
pub(super) fn zcard(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let set = find_value::<ZSet>(cx.db, cx.stats, &key)?;
    cx.reply.count(set.map_or(0, |set| set.len()));
    Ok(Flow::Done)
}

/// `ZRANK key member [WITHSCORE]`: how many members come before it, in the order of their scores.
///
/// Reply: integer, or null; with `WITHSCORE` an array of it and the score, or a null array.
/// Refusals: the number of arguments, `WrongType`. Cost: O(log(members)).
/// Source: <https://redis.io/commands/zrank> (2.0.0; WITHSCORE 7.2.0).
pub(super) fn zrank(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    rank(cx, args, "zrank", |rank, _| rank)
}

/// `ZREVRANK key member [WITHSCORE]`: the number of members after it.
///
/// Otherwise as ZRANK. Source: <https://redis.io/commands/zrevrank> (2.0.0; WITHSCORE 7.2.0).
pub(super) fn zrevrank(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    rank(cx, args, "zrevrank", |rank, len| len - 1 - rank)
}

fn rank(
    cx: &mut Cx<'_>,
    mut args: Args<'_>,
    name: &'static str,
    shown: fn(usize, usize) -> usize,
) -> Result<Flow, Refusal> {
    let (key, member) = (args.key()?, args.bytes()?);
    let with_score = args.option("WITHSCORE");
    if args.left() > 0 {
        return Err(Refusal::Arity(name.into())); // As in Redis 7.0, which has no option.
    }
    let set = find_value::<ZSet>(cx.db, cx.stats, &key)?;
    let found = set.and_then(|set| Some((set.rank(member)?, set.len())));
    let reply = &mut cx.reply;
    match found {
        None if with_score => reply.null_array(),
        None => reply.null(),
        Some(((rank, score), len)) => {
            if with_score {
                reply.array(2);
            }
            reply.count(shown(rank, len));
            if with_score {
                double(reply, score);
            }
        }
    }
    Ok(Flow::Done)
}

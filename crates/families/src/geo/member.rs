//! Queries of members: GEOPOS, GEOHASH, GEODIST.

use super::cell::{point_of, text_of};
use super::earth::distance;
use super::options::unit;
use super::reply::coordinates;
use super::text;
use crate::lookup::find_value;
use crate::zset::ZSet;
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_resp::{self as resp, Reply, Request};
use std::sync::Arc;

/// Members that are looked up at once, or in one portion of a long list.
const ASKED_AT_ONCE: usize = 32;

/// Writes the reply for a member with this score.
type Answer = fn(&mut Reply<'_>, Option<f64>);

/// `GEOPOS key [member ...]`: the coordinates of members.
///
/// Reply: array of pairs of doubles (bulks in RESP2), longitude and latitude, and of null arrays.
/// Refusals: `WrongType`. Cost: O(members asked for * log(members)); beyond 32 the reply is streamed
/// from a cut. Source: <https://redis.io/commands/geopos> (3.2.0).
pub(super) fn geopos(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    ask(cx, args, |reply, score| match score {
        Some(score) => coordinates(reply, point_of(score)),
        None => reply.null_array(),
    })
}

/// `GEOHASH key [member ...]`: the geohashes of members.
///
/// Reply: array of bulks of eleven characters, and of nulls. Otherwise as GEOPOS.
/// Source: <https://redis.io/commands/geohash> (3.2.0).
pub(super) fn geohash(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    ask(cx, args, |reply, score| match score {
        Some(score) => reply.bulk(&text_of(score)),
        None => reply.null(),
    })
}

/// `GEODIST key member member [M | KM | FT | MI]`: the distance between two members.
///
/// Reply: bulk, with four digits after the point, or null. Refusals: an unknown unit, `Syntax`,
/// `WrongType`. Cost: O(log(members)). Source: <https://redis.io/commands/geodist> (3.2.0).
pub(super) fn geodist(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, from, to) = (args.key()?, args.bytes()?, args.bytes()?);
    let unit = match args.left() {
        0 => 1.0,
        1 => unit(&mut args)?,
        _ => return Err(Refusal::Syntax),
    };
    let set = find_value::<ZSet>(cx.db, cx.stats, &key)?;
    let places = set.and_then(|set| Some((set.score(from)?, set.score(to)?)));
    match places {
        Some((from, to)) => {
            let metres = distance(point_of(from), point_of(to));
            cx.reply.bulk(text::distance(metres / unit).as_bytes());
        }
        None => cx.reply.null(),
    }
    Ok(Flow::Done)
}

fn ask(cx: &mut Cx<'_>, mut args: Args<'_>, answer: Answer) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let set = match cx.find(&key) {
        Some(found) => found.value::<ZSet>()?.into_cut(),
        None => ZSet::new(),
    };
    cx.reply.array(args.left());
    if args.left() <= ASKED_AT_ONCE {
        show(&mut cx.reply, &set, args, answer);
        return Ok(Flow::Done);
    }
    let (request, next) = (args.all().to_request(), args.position());
    Ok(Flow::Stream(Box::new(Asking { request, next, set: set.reader(), answer })))
}

/// Replies for the next members.
fn show(reply: &mut Reply<'_>, set: &ZSet, mut args: Args<'_>, answer: Answer) {
    for _ in 0..ASKED_AT_ONCE {
        let Some(member) = args.next() else { break };
        answer(reply, set.score(member));
    }
}

/// A reply for a long list of members, from a cut.
struct Asking {
    request: Arc<Request>,
    next: usize,
    set: ZSet,
    answer: Answer,
}

impl Stream for Asking {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let args = Args::new(resp::Args::owned(&self.request), self.next);
        show(reply, &self.set, args, self.answer);
        self.next += ASKED_AT_ONCE;
        self.next < self.request.len()
    }

    fn pinned_bytes(&self) -> usize {
        self.set.pinned_bytes()
    }
}

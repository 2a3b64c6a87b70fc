//! GEOSEARCHSTORE, and GEORADIUS and GEORADIUSBYMEMBER, which can store by an option.

use super::hits::{Hits, Shown};
use super::options::{Center, Dialect, Query, Stores};
use super::search::{Search, Shows, Walk, anywhere};
use crate::multi_input;
use crate::zset::{Bulk, ZSet, install};
use darter_command::{Answer, Call, Refusal};
use darter_keyspace::{Collection, Event};

/// Members added in one portion.
const ADDED: usize = 12;
/// Members gathered in one portion, if there are very many.
const GATHERED: usize = 16;

const GEOSEARCHSTORE: &Event = &Event::new("geosearchstore", b'z');
const GEORADIUSSTORE: &Event = &Event::new("georadiusstore", b'z');

const SEARCH: Dialect = Dialect { center: Center::Option, stores: Stores::Always };

/// `GEORADIUS key longitude latitude radius unit [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count
/// [ANY]] [ASC | DESC] [STORE key | STOREDIST key]`: GEORADIUS_RO; with STORE or STOREDIST, like
/// GEOSEARCHSTORE.
///
/// Source: <https://redis.io/commands/georadius> (3.2.0).
pub(super) const GEORADIUS: Dialect =
    Dialect { center: Center::Coordinates, stores: Stores::ByOption };

/// `GEORADIUSBYMEMBER key member radius unit [...]`: as GEORADIUS around a member.
///
/// Source: <https://redis.io/commands/georadiusbymember> (3.2.0).
pub(super) const GEORADIUSBYMEMBER: Dialect =
    Dialect { center: Center::Member, stores: Stores::ByOption };

/// `GEOSEARCHSTORE destination source ... [STOREDIST]`: stores the result of GEOSEARCH in `source`
/// at `destination`, replacing any value there. Members keep their scores, or get their distances
/// in the shape's unit. An empty result removes `destination`. Both keys may be the same.
///
/// Reply: integer, the number of members found. Refusals and cost as those of GEOSEARCH, in slices.
/// Source: <https://redis.io/commands/geosearchstore> (6.2.0).
pub(super) async fn geosearchstore(call: Call) -> Result<Answer, Refusal> {
    store(&call, (call.first + 1, call.first), SEARCH).await
}

/// GEORADIUS or GEORADIUSBYMEMBER.
pub(super) async fn georadius(call: Call, dialect: Dialect) -> Result<Answer, Refusal> {
    let mut args = call.args();
    let source = call.first;
    args.seek(source + 1);
    // The destination does not depend on the source. Invalid arguments are refused only after the
    // source has been looked up.
    match Query::parse(args, dialect, None).ok().and_then(|query| query.target) {
        Some(target) => store(&call, (source, target), dialect).await,
        None => anywhere(&call, source, dialect).await,
    }
}

async fn store(
    call: &Call,
    (source, target): (usize, usize),
    dialect: Dialect,
) -> Result<Answer, Refusal> {
    let (mut cuts, locked) =
        multi_input::for_target::<ZSet>(call, source..source + 1, target).await?;
    let (set, mut args) = (cuts.pop().flatten(), call.args());
    args.seek(source + 1);
    let query = Query::parse(args, dialect, set.as_ref())?;
    let shows = if query.stores_distances { Shows::Distances } else { Shows::Scores };
    let (unit, mut result, mut count) = (query.form.unit, ZSet::new(), 0);
    let score = |hit: &Shown<'_>| match shows {
        Shows::Distances => hit.distance / unit,
        Shows::Hits | Shows::Scores => hit.score,
    };
    if let Some((set, search)) = set.zip(Search::new(query, shows)) {
        let mut walk = Walk::new(search, set);
        while walk.step() {
            call.tx.pause().await;
        }
        let mut hits = walk.finish();
        count = hits.len();
        if let Some(mut bulk) = Bulk::new(count) {
            while hits.next_slice(GATHERED, &mut |hit| bulk.push(hit.member, score(hit))) {
                call.tx.pause().await;
            }
            while bulk.sort(&|score, _| score) {
                call.tx.pause().await; // No member occurs twice.
            }
            result = bulk.finish();
        } else {
            while add(&mut result, &mut hits, &score) {
                call.tx.pause().await;
            }
        }
    }
    let event = if dialect == SEARCH { GEOSEARCHSTORE } else { GEORADIUSSTORE };
    install(call, target, result, (event, count)).await; // Like Redis, reports the number of hits.
    drop(locked);
    Ok(call.answer(|reply| reply.count(count)))
}

/// Adds some of the hits. Returns true while some are left.
fn add(result: &mut ZSet, hits: &mut Hits, score: &dyn Fn(&Shown<'_>) -> f64) -> bool {
    let mut edit = result.edit_aside(0);
    hits.next_slice(ADDED, &mut |hit| _ = edit.insert(hit.member, score(hit)))
}

//! Waiting for members: BZPOPMIN, BZPOPMAX, BZMPOP.

use super::pop::{self, Wish};
use super::reply::Form;
use super::value::ZSet;
use crate::waiting::seconds;
use darter_command::{Args, Condition, Flow, Look, Looking, Refusal, Taking, Wait, Want, When};
use darter_keyspace::Key;
use darter_resp::Reply;
use darter_structs::sorted::End;

/// Whether there is a sorted set at a key. A client that waits already keeps waiting while the key
/// holds another type.
fn look(call: &Looking<'_>) -> Look {
    match call.db.value::<ZSet>(&call.key) {
        Ok(Some(_)) => Look::There,
        Err(_) if call.when == When::Called => Look::Refused(Refusal::WrongType),
        Ok(None) | Err(_) => Look::Nothing,
    }
}

/// One member at an end.
struct Member(End);

impl Want for Member {
    fn look(&self, call: &Looking<'_>) -> Look {
        look(call)
    }

    fn condition(&self) -> Option<Condition> {
        Some(Condition("zset", 0, Box::default()))
    }

    fn take(&self, call: &mut Taking<'_>, at: usize) -> Result<Flow, Refusal> {
        let Taking { db, args, reply, .. } = call;
        let key = Key::hashed(args.get(at), args.hash(at));
        let head = |reply: &mut Reply<'_>| {
            reply.array(3);
            reply.bulk(key.bytes);
        };
        let popped = pop::take(db, &key, (1, self.0), (reply, Form::Bare, head))?;
        Ok(popped.unwrap_or(Flow::Done))
    }
}

fn member(args: Args<'_>, end: End) -> Result<Wait, Refusal> {
    let (first, last) = (args.position(), args.all().len() - 1);
    let patience = seconds(args.all().head(last))?;
    Ok(Wait { keys: first..last, patience, want: Box::new(Member(end)) })
}

/// `BZPOPMIN key [key ...] timeout`: removes the member with the lowest score of the first sorted set
/// that is there; waits for one until the timeout, in seconds.
///
/// Reply: array of the key, the member and its score, or a null array. Refusals: of the timeout,
/// `WrongType` of a key before the first sorted set. Cost: O(keys + log(members)).
/// Source: <https://redis.io/commands/bzpopmin> (5.0.0).
pub(super) fn bzpopmin(args: Args<'_>) -> Result<Wait, Refusal> {
    member(args, End::Front)
}

/// `BZPOPMAX key [key ...] timeout`: as BZPOPMIN, the highest score.
/// Source: <https://redis.io/commands/bzpopmax> (5.0.0).
pub(super) fn bzpopmax(args: Args<'_>) -> Result<Wait, Refusal> {
    member(args, End::Back)
}

/// Some members at an end.
struct Members(Wish);

impl Want for Members {
    fn look(&self, call: &Looking<'_>) -> Look {
        look(call)
    }

    fn condition(&self) -> Option<Condition> {
        Some(Condition("zset", 0, Box::default()))
    }

    fn take(&self, call: &mut Taking<'_>, at: usize) -> Result<Flow, Refusal> {
        let Taking { db, args, reply, .. } = call;
        let key = Key::hashed(args.get(at), args.hash(at));
        Ok(self.0.take(db, &key, reply)?.unwrap_or(Flow::Done))
    }
}

/// `BZMPOP timeout numkeys key [key ...] MIN | MAX [COUNT count]`: ZMPOP that waits.
///
/// Source: <https://redis.io/commands/bzmpop> (7.0.0).
pub(super) fn bzmpop(mut args: Args<'_>) -> Result<Wait, Refusal> {
    let timeout = args.word()?;
    let wish = Wish::parse(&mut args)?;
    let (patience, first) = (seconds(timeout)?, args.position());
    Ok(Wait { keys: first..first + wish.keys, patience, want: Box::new(Members(wish)) })
}

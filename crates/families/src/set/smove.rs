//! SMOVE: moves a member between two sets, perhaps on two cores.

use super::value::Set;
use darter_command::{Answer, Args, Call, Cx, Flow, Refusal};
use darter_keyspace::{Db, Deadline, Key, WrongType};
use darter_resp as resp;
use darter_tx::Access;
use std::sync::Arc;

/// `SMOVE source destination member`: moves the member, with its deadline. If the destination
/// already has the member, it keeps its own deadline.
///
/// Reply: 1, or 0 when the source has no such member. Refusals: `WrongType` of the source, or of
/// the destination if the source exists. Cost: O(1), plus three messages between cores if the keys
/// are on different cores. Source: <https://redis.io/commands/smove> (1.0.0).
pub(super) fn here(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (from, to, member) = (args.key()?, args.key()?, args.bytes()?);
    let moved = match source_of(cx.db, &from, member)? {
        Source::Absent => false,
        Source::There { member: found } => {
            check(cx.db, &to)?;
            if from.bytes != to.bytes
                && let Some(deadline) = found
            {
                remove(cx.db, &from, member);
                add(cx.db, &to, member, deadline);
            }
            found.is_some()
        }
    };
    cx.reply.int(i64::from(moved));
    Ok(Flow::Done)
}

/// The result of looking up the source.
enum Source {
    /// The source key is absent.
    Absent,
    /// The source is a set; the outer `Option` is `None` if it lacks the member, the inner one is
    /// the deadline.
    There { member: Option<Option<u64>> },
}

fn source_of(db: &mut Db, key: &Key<'_>, member: &[u8]) -> Result<Source, WrongType> {
    let now = db.now();
    let Some(set) = db.read_value::<Set>(key)? else { return Ok(Source::Absent) };
    Ok(Source::There { member: set.get(member, now).map(|entry| entry.deadline()) })
}

fn check(db: &mut Db, key: &Key<'_>) -> Result<(), WrongType> {
    db.read_value::<Set>(key).map(|_| ())
}

fn remove(db: &mut Db, key: &Key<'_>, member: &[u8]) {
    let removed = db.edit::<Set, _>(key, false, |edit| edit.remove(member));
    // The member may have expired since.
    debug_assert!(removed.is_ok(), "its type was just checked");
}

fn add(db: &mut Db, key: &Key<'_>, member: &[u8], deadline: Option<u64>) {
    let now = db.now();
    let added = db.edit::<Set, _>(key, true, |edit| {
        if !edit.set().contains(member, now) {
            edit.add(member, Deadline::from(deadline));
        }
    });
    debug_assert!(added.is_ok(), "its type was just checked");
}

/// SMOVE between cores. Both keys are locked, so the member found does not change before the move.
pub(super) async fn anywhere(call: Call) -> Result<Answer, Refusal> {
    let (from, to) = (call.first, call.first + 1);
    let keys = [from, to].map(|at| (at, Access::Exclusive));
    let _locked = call.lock_keys(keys).await;
    let request = Arc::clone(&call.request);
    let look = move |db: &mut Db, key: &Key<'_>| source_of(db, key, member(&request, from));
    let Source::There { member: found } = call.on_key(from, look).await? else {
        return Ok(call.answer(|reply| reply.int(0)));
    };
    let moves = found.is_some() && call.arg(from) != call.arg(to);
    let request = Arc::clone(&call.request);
    let add_it = move |db: &mut Db, key: &Key<'_>| {
        check(db, key)?;
        if let Some(deadline) = found.filter(|_| moves) {
            add(db, key, member(&request, from), deadline);
        }
        Ok::<(), WrongType>(())
    };
    call.on_key(to, add_it).await?;
    if moves {
        let request = Arc::clone(&call.request);
        call.on_key(from, move |db, key| remove(db, key, member(&request, from))).await;
    }
    Ok(call.answer(|reply| reply.int(i64::from(found.is_some()))))
}

/// The member, which follows the two keys.
fn member(request: &Arc<resp::Request>, from: usize) -> &[u8] {
    resp::Args::owned(request).get(from + 2)
}

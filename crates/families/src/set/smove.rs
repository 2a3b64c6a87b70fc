//! SMOVE: a member from one set to another, perhaps on another core.

use super::value::Set;
use darter_base::long::same;
use darter_command::{Answer, Args, Call, Cx, Flow, Refusal};
use darter_keyspace::{Db, Deadline, Key, WrongType};
use darter_resp as resp;
use darter_tx::{Access, Home};
use std::sync::Arc;

/// `SMOVE source destination member`: moves the member, with its deadline. A destination that has
/// it already keeps its own.
///
/// Reply: 1, or 0 when the source has no such member. Refusals: `WrongType` of the source, or of
/// the destination if the source is there. Cost: O(1), and three hops when the keys live on
/// different cores. Source: <https://redis.io/commands/smove> (1.0.0).
pub(super) fn here(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (from, to, member) = (args.key()?, args.key()?, args.bytes()?);
    let moved = match source_of(cx.db, &from, member)? {
        Source::Absent => false,
        Source::There { member: found } => {
            check(cx.db, &to)?;
            if !same(from.bytes, to.bytes)
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

/// The source, as found.
enum Source {
    /// No key.
    Absent,
    /// A set, which has the member, with this deadline, or not.
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
    debug_assert!(removed.is_ok(), "its type was just checked"); // It may have died meanwhile.
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

/// SMOVE between cores: both keys are locked, so what was found does not change until it is done.
pub(super) async fn anywhere(call: Call) -> Result<Answer, Refusal> {
    let (from, to) = (call.first, call.first + 1);
    let keys = [from, to].map(|at| (call.arg(at), Access::Exclusive));
    let _locked = call.lock_keys(keys).await;
    let (db, no_touch) = (call.db, call.no_touch);
    let at_source = call.tx.core_of(call.arg(from));
    let at_target = call.tx.core_of(call.arg(to));

    let args = Arguments::of(&call);
    let source = call
        .tx
        .on(at_source, move |home| {
            source_of(home.shard.db_for(db, no_touch), &args.key(0), args.member())
        })
        .await?;
    let Source::There { member } = source else { return Ok(call.answer(|reply| reply.int(0))) };
    let moves = member.is_some() && !same(call.arg(from), call.arg(to));
    let args = Arguments::of(&call);
    let add_it = move |home: &mut Home| {
        let db = home.shard.db_for(db, no_touch);
        check(db, &args.key(1))?;
        if let Some(deadline) = member.filter(|_| moves) {
            add(db, &args.key(1), args.member(), deadline);
        }
        Ok::<(), WrongType>(())
    };
    call.tx.on(at_target, add_it).await?;
    if moves {
        let args = Arguments::of(&call);
        let remove_it = move |home: &mut Home| {
            remove(home.shard.db_for(db, no_touch), &args.key(0), args.member())
        };
        call.tx.on(at_source, remove_it).await;
    }
    Ok(call.answer(|reply| reply.int(i64::from(member.is_some()))))
}

/// The arguments, for sending to another core.
struct Arguments {
    request: Arc<resp::Request>,
    first: usize,
}

impl Arguments {
    fn of(call: &Call) -> Self {
        Self { request: Arc::clone(&call.request), first: call.first }
    }

    fn key(&self, index: usize) -> Key<'_> {
        Key::new(resp::Args::owned(&self.request).get(self.first + index))
    }

    fn member(&self) -> &[u8] {
        resp::Args::owned(&self.request).get(self.first + 2)
    }
}

//! Deadlines of whatever a collection holds, fields and members alike: FIELDTTL, FIELDEXPIRE.

use super::edit::{ABSENT, Answer, Change, DONE, NO_DEADLINE, Plan, reply_absent, reply_codes};
use super::value::Hash;
use crate::aside::{self, Aside, args_at_once};
use crate::expiry::{Conditions, seconds};
use crate::set::{Set, SetEdit};
use crate::unshare;
use darter_base::UnixMillis;
use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::{Key, Touch, Type, Typed};

/// `FIELDTTL key field`: seconds that a field of a hash, or a member of a set, has left.
///
/// Reply: integer, rounded up; -1 it has no deadline, -2 no such key, -3 no such field. Refusals:
/// `WrongType`. Cost: O(1). Source: Dragonfly, <https://www.dragonflydb.io/docs/command-reference>.
pub(super) fn fieldttl(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    const NO_KEY: i64 = -2;
    const NO_FIELD: i64 = -3;
    let (key, field, now) = (args.key()?, args.bytes()?, cx.now);
    let Some(found) = cx.find(&key) else {
        cx.reply.int(NO_KEY);
        return Ok(Flow::Done);
    };
    let deadline = found.deadline_of(field, now)?;
    let left = |at: UnixMillis| i64::try_from((at - now).div_ceil(1_000)).unwrap_or(i64::MAX);
    cx.reply.int(match deadline {
        None => NO_FIELD,
        Some(deadline) => deadline.map_or(i64::from(NO_DEADLINE), left),
    });
    Ok(Flow::Done)
}

/// `FIELDEXPIRE key seconds field [field ...]`: fields of a hash, or members of a set, die in so
/// many seconds, whatever deadline they had.
///
/// Reply: array of 1 done, -2 no such field, or no such key, or a key of another type. Refusals:
/// `NotAnInteger` for a time that is none or does not fit. Cost: O(fields named), in slices when
/// they are many. Source: Dragonfly, <https://www.dragonflydb.io/docs/command-reference>.
pub(super) fn fieldexpire(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let at = seconds(args.bytes()?, cx.now)?;
    let found = cx.db.read(&key);
    let kind = found.map(|found| found.kind());
    if kind == Some(Hash::TYPE) {
        Plan::new(Change::Expire(at, Conditions::NONE), Answer::Codes).run(cx, &key, args)
    } else if kind != Some(Set::TYPE) {
        Ok(reply_absent(&mut cx.reply, args.left()))
    } else if args.left() > args_at_once(true) {
        aside(cx, &key, args, at)
    } else {
        unshare::run(cx, &key, args, Expire(at))
    }
}

/// A new deadline for members of a set.
#[derive(Clone, Copy)]
struct Expire(UnixMillis);

impl unshare::Edit for Expire {
    fn width(self) -> usize {
        1
    }

    fn touches(self) -> (&'static Type, Touch) {
        (Set::TYPE, Touch::Present)
    }

    fn run(self, cx: &mut Cx<'_>, key: &Key<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
        let (reply, left) = (&mut cx.reply, args.left());
        let done = cx.db.edit::<Set, _>(key, false, |edit| {
            reply.array(left);
            while let Some(member) = args.next() {
                reply.int(i64::from(expire(edit, member, self.0)));
            }
        })?;
        // The key may have died since the copies for its members were begun.
        Ok(done.map_or_else(|| reply_absent(reply, left), |()| Flow::Done))
    }
}

fn expire(edit: &mut SetEdit<'_>, member: &[u8], at: UnixMillis) -> i8 {
    if edit.set_deadline(member, Some(at)) { DONE } else { ABSENT }
}

fn aside(cx: &mut Cx<'_>, key: &Key<'_>, args: Args<'_>, at: UnixMillis) -> Result<Flow, Refusal> {
    let draft = cx.db.draft::<Set>(key)?;
    if draft.is_new() {
        return Ok(reply_absent(&mut cx.reply, args.left()));
    }
    let codes = Vec::with_capacity(args.left());
    Ok(Aside::start(args, draft, Coded { at, codes }))
}

/// A new deadline for many members of a set, and what became of each.
struct Coded {
    at: UnixMillis,
    codes: Vec<i8>,
}

impl aside::Change for Coded {
    type Value = Set;

    fn apply(&mut self, edit: &mut SetEdit<'_>, member: &[u8], _: UnixMillis) {
        self.codes.push(expire(edit, member, self.at));
    }

    fn has_changed(&self) -> bool {
        self.codes.contains(&DONE)
    }

    fn reply(&mut self, cx: &mut Cx<'_>) -> Flow {
        reply_codes(&mut cx.reply, std::mem::take(&mut self.codes))
    }
}

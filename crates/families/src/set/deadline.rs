//! Deadlines of members: for FIELDEXPIRE.

use super::value::{Set, SetEdit};
use crate::bulk_edit::{self, BulkEdit, args_at_once};
use crate::code_replies::{ABSENT, DONE, reply_absent, reply_codes};
use crate::unshare;
use darter_base::UnixMillis;
use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::{Key, Touch, Type, Typed};

/// Sets members of a set to expire at `at`.
///
/// Reply: array with a code for each, as of HEXPIRE: [`DONE`] or [`ABSENT`]. Cost: O(members
/// named), in slices if they are many.
pub(crate) fn expire(
    cx: &mut Cx<'_>,
    key: &Key<'_>,
    args: Args<'_>,
    at: UnixMillis,
) -> Result<Flow, Refusal> {
    if args.left() > args_at_once(true) {
        aside(cx, key, args, at)
    } else {
        unshare::run(cx, key, args, Expire(at))
    }
}

/// Sets a new deadline of members.
#[derive(Clone, Copy)]
struct Expire(UnixMillis);

impl unshare::EntryEdit for Expire {
    fn touches(self) -> (&'static Type, Touch) {
        (Set::TYPE, Touch::Present)
    }

    fn run(self, cx: &mut Cx<'_>, key: &Key<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
        let (reply, left) = (&mut cx.reply, args.left());
        let done = cx.db.edit::<Set, _>(key, false, |edit| {
            reply.array(left);
            while let Some(member) = args.next() {
                reply.int(i64::from(apply(edit, member, self.0)));
            }
        })?;
        // The key may have expired since the copying of its members started.
        Ok(done.map_or_else(|| reply_absent(reply, left), |()| Flow::Done))
    }
}

fn apply(edit: &mut SetEdit<'_>, member: &[u8], at: UnixMillis) -> i8 {
    if edit.set_deadline(member, Some(at)) { DONE } else { ABSENT }
}

fn aside(cx: &mut Cx<'_>, key: &Key<'_>, args: Args<'_>, at: UnixMillis) -> Result<Flow, Refusal> {
    let draft = cx.db.draft::<Set>(key)?;
    if draft.is_new() {
        return Ok(reply_absent(&mut cx.reply, args.left()));
    }
    let codes = Vec::with_capacity(args.left());
    Ok(BulkEdit::start(args, draft, Coded { at, codes }))
}

/// A new deadline for many members of a set, with a result for each.
struct Coded {
    at: UnixMillis,
    codes: Vec<i8>,
}

impl bulk_edit::Change for Coded {
    type Value = Set;

    fn apply(&mut self, edit: &mut SetEdit<'_>, member: &[u8], _: UnixMillis) {
        self.codes.push(apply(edit, member, self.at));
    }

    fn has_changed(&self) -> bool {
        self.codes.contains(&DONE)
    }

    fn reply(&mut self, cx: &mut Cx<'_>) -> Flow {
        reply_codes(&mut cx.reply, std::mem::take(&mut self.codes))
    }
}

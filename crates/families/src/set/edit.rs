//! Adding and removing members: SADD, SADDEX, SREM.
//!
//! A few members are changed at once, after copying the parts that they share with cuts
//! (`unshare`). More than a slice can change are a bulk edit (`bulk_edit`).

use super::value::{Set, SetEdit};
use crate::bulk_edit::{self, BulkEdit, args_at_once, is_long};
use crate::expiry::{Unit, positive_deadline, seconds};
use crate::prefetch::prefetch;
use crate::unshare;
use darter_base::UnixMillis;
use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::{Deadline, Key, Touch, Type, Typed};

/// With more bytes of members, the change is a bulk edit, too: hashing and copying take time.
const BYTES_AT_ONCE: usize = 64 * 1024;

/// The action on the named members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Add,
    /// Add until this time; existing members get the deadline, too.
    AddUntil(UnixMillis),
    /// Add until this time; existing members keep their deadlines.
    AddNewUntil(UnixMillis),
    /// Add without a deadline; existing members lose theirs.
    AddForGood,
    Remove,
}

impl Change {
    /// Changes one member. Returns true if the reply counts it.
    fn apply(self, edit: &mut SetEdit<'_>, member: &Key<'_>, now: UnixMillis) -> bool {
        match self {
            Self::Add => edit.put(member, Deadline::Keep),
            Self::AddUntil(at) => edit.put(member, Deadline::At(at)),
            Self::AddNewUntil(at) => {
                !edit.set().contains(member.bytes, now) && edit.put(member, Deadline::At(at))
            }
            Self::AddForGood => edit.put(member, Deadline::Clear),
            Self::Remove => edit.remove(member.bytes),
        }
    }

    /// Changes all remaining members. Returns the number that the reply counts.
    fn apply_to(self, edit: &mut SetEdit<'_>, mut args: Args<'_>, now: UnixMillis) -> usize {
        let mut changed = 0;
        for index in 0..args.left() {
            prefetch(index, edit.set().members(), args, 1);
            let Ok(member) = args.key() else { break };
            changed += usize::from(self.apply(edit, &member, now));
        }
        changed
    }

    /// True if members get a deadline.
    fn gives_deadlines(self) -> bool {
        matches!(self, Self::AddUntil(_) | Self::AddNewUntil(_))
    }

    /// True if members may change even though the reply does not count them.
    fn is_silent(self) -> bool {
        matches!(self, Self::AddUntil(_) | Self::AddForGood)
    }
}

/// `SADD key member [member ...]`: adds members. An existing member keeps its deadline.
///
/// Reply: integer, the number of new members. Refusals: `WrongType`. Cost: O(members named), in
/// slices if they are many. Source: <https://redis.io/commands/sadd> (1.0.0).
pub(super) fn sadd(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    change(cx, &key, args, Change::Add)
}

/// `SREM key member [member ...]`: removes members.
///
/// Reply: integer, the number of removed members. Otherwise as SADD.
/// Source: <https://redis.io/commands/srem> (1.0.0).
pub(super) fn srem(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    change(cx, &key, args, Change::Remove)
}

/// `SADDEX key [KEEPTTL] seconds member [member ...]`: adds members that expire after `seconds`. An
/// existing member gets the new deadline, or with `KEEPTTL` keeps its own. Darter also has
/// `SADDEX key PXAT unix-time-ms member [member ...]`, and `SADDEX key PERSIST member [member ...]`,
/// which adds members that do not expire.
///
/// Reply: integer, the number of new members. Refusals: `WrongType`, `NotAnInteger` for a time that
/// is invalid or out of range, the number of arguments. Otherwise as SADD.
/// Source: <https://www.dragonflydb.io/docs/command-reference/sets/saddex>.
pub(super) fn saddex(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let what = if args.option("PERSIST") {
        Change::AddForGood
    } else if args.option("PXAT") {
        Change::AddUntil(positive_deadline(Unit::UnixMillis, args.word()?, cx.now, "saddex")?)
    } else if args.option("KEEPTTL") {
        Change::AddNewUntil(seconds(args.bytes()?, cx.now)?)
    } else {
        Change::AddUntil(seconds(args.bytes()?, cx.now)?)
    };
    if args.left() == 0 {
        return Err(Refusal::Arity("saddex".into()));
    }
    change(cx, &key, args, what)
}

fn change(cx: &mut Cx<'_>, key: &Key<'_>, args: Args<'_>, what: Change) -> Result<Flow, Refusal> {
    if is_long(args, args_at_once(what.gives_deadlines()), BYTES_AT_ONCE) {
        aside(cx, key, args, what)
    } else {
        unshare::run(cx, key, args, what)
    }
}

impl unshare::EntryEdit for Change {
    fn touches(self) -> (&'static Type, Touch) {
        let touch = match self {
            Self::Add | Self::AddNewUntil(_) => Touch::Absent,
            Self::AddUntil(_) | Self::AddForGood => Touch::All,
            Self::Remove => Touch::Present,
        };
        (Set::TYPE, touch)
    }

    fn run(self, cx: &mut Cx<'_>, key: &Key<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
        let (create, now) = (self != Self::Remove, cx.now);
        let apply = |edit: &mut SetEdit<'_>| self.apply_to(edit, args, now);
        let changed = cx.db.edit::<Set, _>(key, create, apply)?.unwrap_or(0);
        cx.reply.count(changed);
        Ok(Flow::Done)
    }
}

fn aside(cx: &mut Cx<'_>, key: &Key<'_>, args: Args<'_>, what: Change) -> Result<Flow, Refusal> {
    let draft = cx.db.draft::<Set>(key)?;
    if draft.is_new() && what == Change::Remove {
        cx.reply.int(0);
        return Ok(Flow::Done);
    }
    Ok(BulkEdit::start(args, draft, Counted { what, changed: 0 }))
}

/// A change of many members, and the number that the reply counts.
struct Counted {
    what: Change,
    changed: usize,
}

impl bulk_edit::Change for Counted {
    type Value = Set;

    fn apply(&mut self, edit: &mut SetEdit<'_>, member: &[u8], now: UnixMillis) {
        self.changed += usize::from(self.what.apply(edit, &Key::new(member), now));
    }

    fn has_changed(&self) -> bool {
        self.changed > 0 || self.what.is_silent()
    }

    fn reply(&mut self, cx: &mut Cx<'_>) -> Flow {
        cx.reply.count(self.changed);
        Flow::Done
    }
}

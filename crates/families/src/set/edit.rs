//! Adding and removing members: SADD, SADDEX, SREM.
//!
//! A few are changed at once. More than a slice can change is the shape *Edit*: a cut of the set is
//! edited aside in portions and installed at the end; writers of the key wait, readers are answered
//! from the set before it.

use super::member::{begins_batch, in_batches, prefetch};
use crate::ahead;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_base::{UnixMillis, number};
use darter_command::{Args, Cx, Flow, Job, Refusal, Step};
use darter_keyspace::{Deadline, Key, Kind, Object, Set, SetEdit, Touch};
use darter_resp::{self as resp, Request};
use std::sync::Arc;

/// Changes in one portion, at most: about 25 us, once the segments they meet are our own.
const PORTION: usize = 96;
/// Bytes of members beyond which the work is done aside too: hashing and copying take time.
const BYTES_AT_ONCE: usize = 64 * 1024;
/// Longest time to live of SADDEX, in seconds: Dragonfly's bound.
const TTL_MAX: i64 = (1 << 28) - 1;

/// What is done with the members that are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Add,
    /// Add until then; members that are there already get the deadline too.
    AddUntil(UnixMillis),
    /// Add until then; members that are there already keep what they have.
    AddNewUntil(UnixMillis),
    Remove,
}

impl Change {
    /// Changes one member. Returns true when it counts.
    fn apply(self, edit: &mut SetEdit<'_>, member: &[u8], now: UnixMillis) -> bool {
        match self {
            Self::Add => edit.add(member, Deadline::Keep),
            Self::AddUntil(at) => edit.add(member, Deadline::At(at)),
            Self::AddNewUntil(at) => {
                !edit.set().contains(member, now) && edit.add(member, Deadline::At(at))
            }
            Self::Remove => edit.remove(member),
        }
    }

    /// Changes the next `count` members. Returns how many of them count.
    fn apply_to(
        self,
        edit: &mut SetEdit<'_>,
        args: Args<'_>,
        count: usize,
        now: UnixMillis,
    ) -> usize {
        let mut changed = 0;
        in_batches(args, count, |member, rest| match member {
            None => prefetch(edit.set().members(), rest),
            Some(member) => changed += usize::from(self.apply(edit, member, now)),
        });
        changed
    }

    /// True when members that do not count may have changed nevertheless.
    fn is_silent(self) -> bool {
        matches!(self, Self::AddUntil(_))
    }
}

/// `SADD key member [member ...]`: adds members. One that is there keeps its deadline.
///
/// Reply: integer, members that are new. Refusals: `WrongType`. Cost: O(members named), in slices
/// when they are many. Source: <https://redis.io/commands/sadd> (1.0.0).
pub(super) fn sadd(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    change(cx, &key, args, Change::Add)
}

/// `SREM key member [member ...]`: removes members.
///
/// Reply: integer, members that were there. Otherwise as SADD.
/// Source: <https://redis.io/commands/srem> (1.0.0).
pub(super) fn srem(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    change(cx, &key, args, Change::Remove)
}

/// `SADDEX key [KEEPTTL] seconds member [member ...]`: adds members that live for so long. One that
/// is there gets the new deadline, or with `KEEPTTL` keeps what it has.
///
/// Reply: integer, members that are new. Refusals: `WrongType`, `NotAnInteger` for a time that is
/// none or does not fit, the number of arguments. Otherwise as SADD.
/// Source: <https://www.dragonflydb.io/docs/command-reference/sets/saddex>.
pub(super) fn saddex(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let keep = args.option("KEEPTTL");
    let seconds = number::parse_i64(args.bytes()?)
        .filter(|seconds| (1..=TTL_MAX).contains(seconds))
        .ok_or(Refusal::NotAnInteger)?;
    if args.left() == 0 {
        return Err(Refusal::Arity("saddex".into()));
    }
    let at = cx.now.saturating_add(seconds.unsigned_abs() * 1_000);
    let what = if keep { Change::AddNewUntil(at) } else { Change::AddUntil(at) };
    change(cx, &key, args, what)
}

fn change(cx: &mut Cx<'_>, key: &Key<'_>, args: Args<'_>, what: Change) -> Result<Flow, Refusal> {
    if is_long(args) { aside(cx, key, args, what) } else { ahead::run(cx, key, args, what) }
}

impl ahead::Edit for Change {
    fn width(self) -> usize {
        1
    }

    fn touches(self) -> (Kind, Touch) {
        (Kind::Set, if self == Self::Remove { Touch::Present } else { Touch::Absent })
    }

    fn run(self, cx: &mut Cx<'_>, key: &Key<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
        let (create, now) = (self != Self::Remove, cx.now);
        let apply = |edit: &mut SetEdit<'_>| self.apply_to(edit, args, args.left(), now);
        let changed = cx.db.edit_set(key, create, apply)?.unwrap_or(0);
        cx.reply.count(changed);
        Ok(Flow::Done)
    }
}

/// True when the members named take more than a slice.
fn is_long(args: Args<'_>) -> bool {
    if args.left() > ENTRIES_AT_ONCE {
        return true;
    }
    let mut bytes = 0;
    (args.position()..args.all().len()).any(|at| {
        bytes += args.all().arg(at).len();
        bytes > BYTES_AT_ONCE
    })
}

fn aside(cx: &mut Cx<'_>, key: &Key<'_>, args: Args<'_>, what: Change) -> Result<Flow, Refusal> {
    let found = cx.db.get(key);
    let deadline = found.and_then(|found| found.deadline());
    let set = found.map(|found| found.set().cloned()).transpose()?;
    if set.is_none() && what == Change::Remove {
        cx.reply.int(0);
        return Ok(Flow::Done);
    }
    Ok(Flow::Job(Box::new(Aside {
        request: args.all().to_request(),
        next: args.position(),
        set: set.unwrap_or_default(),
        deadline,
        what,
        changed: 0,
    })))
}

/// A change of many members.
struct Aside {
    request: Arc<Request>,
    /// Index of the next member.
    next: usize,
    /// The set as it will be.
    set: Set,
    /// The key's.
    deadline: Option<UnixMillis>,
    what: Change,
    changed: usize,
}

/// Where the key stands in all these commands.
const KEY: usize = 1;

impl Aside {
    /// Changes the next members, while the slice is not over: each may copy a segment. True while
    /// there are more.
    fn portion(&mut self, all: resp::Args<'_>, cx: &Cx<'_>) -> bool {
        let mut edit = self.set.edit_aside(cx.now);
        let mut args = Args::new(all, self.next);
        for done in 0..PORTION {
            if begins_batch(done) {
                prefetch(edit.set().members(), args);
            }
            let Some(member) = args.next() else { break };
            self.changed += usize::from(self.what.apply(&mut edit, member, cx.now));
            if cx.preempt.must_yield() {
                break;
            }
        }
        self.next = args.position();
        self.next < all.len()
    }
}

impl Job for Aside {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let request = Arc::clone(&self.request);
        let all = resp::Args::owned(&request);
        if self.portion(all, cx) {
            return Ok(Step::More);
        }
        if self.changed > 0 || self.what.is_silent() {
            let object = Arc::new(Object::Set(std::mem::take(&mut self.set)));
            // If the key has died meanwhile, so has what is installed: the change came before.
            cx.db.install(&Key::new(all.get(KEY)), object, Deadline::from(self.deadline));
        }
        cx.reply.count(self.changed);
        Ok(Step::Done(Flow::Done))
    }
}

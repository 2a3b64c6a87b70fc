//! Changes of fields: one engine for HSET, HDEL, HEXPIRE and the like.
//!
//! A command is an action on each field that it names ([`Change`]) and a reply ([`Answer`]). A few
//! fields are changed at once. More than a slice can change take the shape *Edit*: a cut of the
//! hash is edited in portions, and replaces the stored hash at the end. Until then, other writers
//! of the key wait and readers see the previous hash.

use super::field::Values;
use super::value::{Hash, HashEdit, value_of};
use crate::bulk_edit::{args_at_once, is_long};
use crate::code_replies::{
    ABSENT, DONE, GONE, NO_DEADLINE, UNCHANGED, reply_absent, reply_codes, reply_nulls,
};
use crate::expiry::Conditions;
use crate::pending_values::{PORTION_BYTES, PendingValues, flow};
use crate::prefetch::{BATCH, prefetch};
use crate::unshare::{self, KEY};
use darter_base::{Preempt, UnixMillis};
use darter_command::{Args, Cx, Flow, Job, Refusal, Step};
use darter_keyspace::{Deadline, Draft, Key, Touch, Type, Typed};
use darter_resp::{self as resp, Reply, Request};
use std::sync::Arc;

/// Fields whose guard is checked in one portion.
const CHECKED: usize = 96;
/// The most batches of changes in one portion.
const BATCHES_MAX: usize = 6;
/// With more bytes of arguments, fields are changed in portions, too: hashing and copying take
/// time.
const BYTES_AT_ONCE: usize = 128 * 1024;

/// An action on each named field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Set the field to the value that follows it. A deadline in the past removes the field.
    Set(Deadline),
    /// Set the field, with this deadline, if it is absent.
    SetAbsent(UnixMillis),
    /// Set the field. If it has no deadline, give it this one.
    SetKeeping(UnixMillis),
    /// Remove the field.
    Remove,
    /// Change the field's deadline. A deadline in the past removes the field.
    Expire(UnixMillis, Conditions),
    /// Remove the field's deadline.
    Persist,
}

impl Change {
    /// Arguments for each field.
    fn width(self) -> usize {
        match self {
            Self::Set(_) | Self::SetAbsent(_) | Self::SetKeeping(_) => 2,
            Self::Remove | Self::Expire(..) | Self::Persist => 1,
        }
    }

    /// True when a missing hash is created.
    fn creates(self) -> bool {
        self.width() == 2
    }

    /// True if fields get a deadline. Setting a field takes two arguments, so with a deadline no
    /// fewer are set at once.
    fn gives_deadlines(self) -> bool {
        matches!(self, Self::Expire(..))
    }

    /// Changes the next field. Returns one of the codes above.
    fn apply(self, edit: &mut HashEdit<'_>, args: &mut Args<'_>, now: UnixMillis) -> i8 {
        let Some(field) = args.next() else { return ABSENT };
        match self {
            Self::Set(_) | Self::SetAbsent(_) | Self::SetKeeping(_) => {
                self.set(edit, field, args, now)
            }
            Self::Remove => {
                if edit.remove(field) {
                    DONE
                } else {
                    ABSENT
                }
            }
            Self::Expire(at, conditions) => expire(edit, field, now, at, conditions),
            Self::Persist => match edit.hash().get(field, now).map(|entry| entry.deadline()) {
                None => ABSENT,
                Some(None) => NO_DEADLINE,
                Some(Some(_)) => {
                    edit.set_deadline(field, None);
                    DONE
                }
            },
        }
    }

    fn set(
        self,
        edit: &mut HashEdit<'_>,
        field: &[u8],
        args: &mut Args<'_>,
        now: UnixMillis,
    ) -> i8 {
        let Ok(value) = args.value() else { return ABSENT };
        let deadline = match self {
            Self::Set(Deadline::At(at)) if at <= now => {
                edit.remove(field);
                return UNCHANGED;
            }
            Self::Set(deadline) => deadline,
            Self::SetAbsent(_) if edit.hash().get(field, now).is_some() => return UNCHANGED,
            Self::SetKeeping(at) => {
                let old = edit.hash().get(field, now).and_then(|entry| entry.deadline());
                Deadline::At(old.unwrap_or(at))
            }
            Self::SetAbsent(at) | Self::Expire(at, _) => Deadline::At(at),
            Self::Remove | Self::Persist => Deadline::Keep,
        };
        if edit.set(field, value, deadline) { DONE } else { UNCHANGED }
    }

    /// True if this code means that the field may have changed.
    fn has_changed(self, code: i8) -> bool {
        match self {
            Self::Set(_) | Self::SetKeeping(_) => true,
            _ => code >= DONE,
        }
    }
}

fn expire(
    edit: &mut HashEdit<'_>,
    field: &[u8],
    now: UnixMillis,
    at: UnixMillis,
    conditions: Conditions,
) -> i8 {
    let Some(old) = edit.hash().get(field, now).map(|entry| entry.deadline()) else {
        return ABSENT;
    };
    if !conditions.allow(old, at) {
        return UNCHANGED;
    }
    if at <= now {
        edit.remove(field);
        return GONE;
    }
    edit.set_deadline(field, Some(at));
    DONE
}

/// A condition on all named fields. If it does not hold, nothing is done and the reply is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// All fields exist.
    AllPresent,
    /// No field exists.
    AllAbsent,
}

impl Guard {
    /// True if the condition holds for the next `count` fields.
    fn holds(self, hash: &Hash, mut args: Args<'_>, count: usize, now: UnixMillis) -> bool {
        (0..count).all(|index| {
            prefetch(index, hash.fields(), args, 2);
            let Some(field) = args.next() else { return true };
            args.seek(args.position() + 1);
            hash.get(field, now).is_some() == (self == Self::AllPresent)
        })
    }
}

/// The reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The number of [`DONE`] codes.
    Count,
    /// `OK`.
    Ok,
    /// 1.
    One,
    /// The codes of all fields.
    Codes,
    /// The previous values.
    Values,
}

impl Answer {
    /// The reply if nothing was done, because there is no hash or the guard does not hold.
    fn nothing(self, reply: &mut Reply<'_>, fields: usize) -> Flow {
        match self {
            Self::Count | Self::One | Self::Ok => reply.int(0),
            Self::Codes => return reply_absent(reply, fields),
            Self::Values => return reply_nulls(reply, fields),
        }
        Flow::Done
    }
}

/// A parsed command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// The action on each field.
    pub(super) change: Change,
    /// The condition on all fields, if any.
    pub(super) guard: Option<Guard>,
    /// The reply.
    pub(super) answer: Answer,
}

impl Plan {
    /// A plan with `change`, without a condition.
    pub(super) fn new(change: Change, answer: Answer) -> Self {
        Self { change, guard: None, answer }
    }

    /// Runs the command for all remaining arguments: fields, or fields and values.
    pub(super) fn run(
        self,
        cx: &mut Cx<'_>,
        key: &Key<'_>,
        args: Args<'_>,
    ) -> Result<Flow, Refusal> {
        let width = self.change.width();
        debug_assert!(args.left().is_multiple_of(width), "left={}", args.left());
        if is_long(args, args_at_once(self.change.gives_deadlines()), BYTES_AT_ONCE) {
            self.aside(cx, key, args)
        } else {
            unshare::run(cx, key, args, self)
        }
    }

    fn at_once(
        self,
        edit: &mut HashEdit<'_>,
        reply: &mut Reply<'_>,
        mut args: Args<'_>,
        now: UnixMillis,
    ) -> Flow {
        let (mut unsent, width) = (PendingValues::default(), self.change.width());
        if matches!(self.answer, Answer::Codes | Answer::Values) {
            reply.array(args.left() / width);
        }
        let (mut done, mut index) = (0, 0);
        while args.left() > 0 {
            prefetch(index, edit.hash().fields(), args, width);
            if self.answer == Answer::Values {
                match args.peek().and_then(|field| edit.hash().get(field, now)) {
                    Some(entry) => _ = unsent.value(reply, &value_of(&entry)),
                    None => unsent.null(reply),
                }
            }
            let code = self.change.apply(edit, &mut args, now);
            if self.answer == Answer::Codes {
                reply.int(i64::from(code));
            }
            done += usize::from(code == DONE);
            index += 1;
        }
        self.conclude(reply, done);
        unsent.into_flow()
    }

    /// The replies of a single value.
    pub(super) fn conclude(self, reply: &mut Reply<'_>, done: usize) {
        match self.answer {
            Answer::Count => reply.count(done),
            Answer::Ok => reply.ok(),
            Answer::One => reply.int(1),
            Answer::Codes | Answer::Values => {}
        }
    }

    fn aside(self, cx: &mut Cx<'_>, key: &Key<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
        let draft = cx.db.draft::<Hash>(key)?;
        let fields = args.left() / self.change.width();
        if draft.is_new() && !self.change.creates() {
            return Ok(self.answer.nothing(&mut cx.reply, fields));
        }
        let before = (self.answer == Answer::Values).then(|| draft.value().clone());
        let codes = matches!(self.answer, Answer::Codes | Answer::Values);
        Ok(Flow::Job(Box::new(BulkEdit {
            plan: self,
            request: args.all().to_request(),
            first: args.position(),
            next: args.position(),
            checked: self.guard.is_none(),
            now: cx.now,
            draft,
            before,
            done: 0,
            changed: false,
            codes: codes.then(|| Vec::with_capacity(fields)),
        })))
    }
}

impl unshare::EntryEdit for Plan {
    fn width(self) -> usize {
        self.change.width()
    }

    fn touches(self) -> (&'static Type, Touch) {
        let touch = match self.change {
            Change::Set(_) | Change::SetKeeping(_) => Touch::All,
            Change::SetAbsent(_) => Touch::Absent,
            Change::Remove | Change::Expire(..) | Change::Persist => Touch::Present,
        };
        (Hash::TYPE, touch)
    }

    fn run(self, cx: &mut Cx<'_>, key: &Key<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
        let (now, reply) = (cx.now, &mut cx.reply);
        let fields = args.left() / self.change.width();
        let flow = cx.db.edit::<Hash, _>(key, self.change.creates(), |edit| match self.guard {
            Some(guard) if !guard.holds(edit.hash(), args, fields, now) => None,
            _ => Some(self.at_once(edit, reply, args, now)),
        })?;
        Ok(flow.flatten().unwrap_or_else(|| self.answer.nothing(reply, fields)))
    }
}

/// A change of many fields in progress.
struct BulkEdit {
    plan: Plan,
    request: Arc<Request>,
    first: usize,
    /// Index of the next field.
    next: usize,
    /// The guard holds for all fields, or there is no guard.
    checked: bool,
    /// The time by which fields count as alive: the start of the command.
    now: UnixMillis,
    /// The new hash.
    draft: Draft<Hash>,
    /// The previous hash, if the reply is made of its values.
    before: Option<Hash>,
    done: usize,
    changed: bool,
    codes: Option<Vec<i8>>,
}

impl BulkEdit {
    /// The number of the next fields, at most `most`, whose bytes make up a portion.
    fn portion(&self, all: resp::Args<'_>, most: usize) -> usize {
        let width = self.plan.change.width();
        let (mut count, mut bytes, mut at) = (0, 0, self.next);
        while at + width <= all.len() && count < most && bytes < PORTION_BYTES {
            bytes += (at..at + width).map(|at| all.arg(at).len()).sum::<usize>();
            at += width;
            count += 1;
        }
        count
    }

    /// Checks the guard for a portion of the fields. Returns false if it does not hold.
    fn check(&mut self, all: resp::Args<'_>) -> bool {
        let count = self.portion(all, CHECKED);
        let args = Args::new(all, self.next);
        let guard = self.plan.guard;
        let hash = self.draft.value();
        let holds = guard.is_none_or(|guard| guard.holds(hash, args, count, self.now));
        self.next += count * self.plan.change.width();
        if self.next >= all.len() {
            (self.checked, self.next) = (true, self.first);
        }
        holds
    }

    /// Changes the next fields until the slice is over, because each may copy a segment.
    fn change(&mut self, all: resp::Args<'_>, preempt: &dyn Preempt) {
        let (count, change) = (self.portion(all, BATCH), self.plan.change);
        let mut args = Args::new(all, self.next);
        let mut edit = self.draft.edit(self.now);
        for index in 0..count {
            prefetch(index, edit.hash().fields(), args, change.width());
            let code = change.apply(&mut edit, &mut args, self.now);
            self.done += usize::from(code == DONE);
            self.changed |= change.has_changed(code);
            if let Some(codes) = &mut self.codes {
                codes.push(code);
            }
            if preempt.must_yield() {
                break;
            }
        }
        self.next = args.position();
    }

    /// Installs the hash, and replies.
    fn finish(&mut self, cx: &mut Cx<'_>, all: resp::Args<'_>) -> Flow {
        if self.changed {
            cx.db.install_draft(&Key::new(all.get(KEY)), std::mem::take(&mut self.draft));
        }
        self.plan.conclude(&mut cx.reply, self.done);
        let Some(codes) = self.codes.take() else { return Flow::Done };
        let Some(before) = self.before.take() else { return reply_codes(&mut cx.reply, codes) };
        cx.reply.array(codes.len());
        let args = Args::new(all, self.first);
        flow(&mut cx.reply, Values::new(&before, args, self.now, Some(codes)))
    }
}

impl Job for BulkEdit {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let request = Arc::clone(&self.request);
        let all = resp::Args::owned(&request);
        if !self.checked {
            if self.check(all) {
                return Ok(Step::More);
            }
            return Ok(Step::Done(self.plan.answer.nothing(&mut cx.reply, 0)));
        }
        for _ in 0..BATCHES_MAX {
            self.change(all, cx.preempt);
            if self.next == all.len() {
                return Ok(Step::Done(self.finish(cx, all)));
            }
            if cx.preempt.must_yield() {
                break;
            }
        }
        Ok(Step::More)
    }
}

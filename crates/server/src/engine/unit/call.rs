//! Runs a point command of a client on the core of its keys. It runs at once if the keys are free;
//! otherwise a task waits for them. A task also runs the job of a long command.

use super::super::core::Core;
use super::super::entry::{Entry, Runner};
use super::super::point::{Begun, Ran, View, Work};
use super::super::pubsub::Published;
use super::super::slices::{Cause, named};
use super::super::state::pubsub::name::{Message, Name, Text};
use super::changes::settle_changes;
use super::settle::Caller;
use super::steps::answer_of;
use darter_command::{Answer, Flow, Job, Refusal};
use darter_resp::{self as resp, Output, Reply, Request};
use darter_tx::{Access, Claim, Home, Locked, lock_key};
use std::rc::Rc;
use std::sync::Arc;

impl Core {
    /// Runs a point command on this core's shard, if its keys are free.
    #[inline(always)]
    pub(crate) fn call_unless_locked(
        self: &Rc<Self>,
        entry: &Entry,
        args: resp::Args<'_>,
        view: View,
        reply: &mut Reply<'_>,
        caller: Caller<'_>,
    ) -> Ran {
        let Some(run) = entry.point() else { return self.call_publish(entry, args, reply, caller) };
        let begun = self.begun(entry, args);
        let (tracker, mut home) = (view.tracker, self.tx.home());
        if is_blocked(&home, entry, args, view.db) {
            return Ran::Waits(Work::Blocked);
        }
        if !tracker.is_none() {
            home.shard.set_author(tracker.author());
        }
        let result = self.call_point(home, (entry, run), args, view, reply);
        if !tracker.is_none() {
            self.tx.home().shard.set_author(0);
        }
        let written = entry.row.keys.positions(args).take_while(|_| entry.row.is_write());
        settle_changes(self, written.map(|at| lock_key(view.db, args.hash(at))));
        let done = match result {
            Ok(Flow::Done) => Ok(None),
            Ok(Flow::Stream(stream)) => Ok(Some(named(entry.index, stream))),
            Ok(Flow::Job(job)) => return self.begin_job(entry, begun, job, args, view.db),
            Err(refusal) => Err(refusal),
        };
        self.settle(entry, begun, done.as_ref().err(), args, caller);
        match done {
            Ok(stream) => Ran::Done(stream),
            Err(refusal) => {
                reply.error(&refusal.text());
                Ran::Done(None)
            }
        }
    }

    /// Runs PUBLISH on the home of its channel.
    #[inline(never)]
    fn call_publish(
        self: &Rc<Self>,
        entry: &Entry,
        args: resp::Args<'_>,
        reply: &mut Reply<'_>,
        caller: Caller<'_>,
    ) -> Ran {
        let Runner::Publish(kind) = entry.run else {
            unreachable!("only point commands and PUBLISH come here")
        };
        let begun = self.begun(entry, args);
        let message = Message::new(kind, Name::of(args, 1), Text::of(args, 2));
        let published = self.publish(message);
        self.settle(entry, begun, None, args, caller);
        match published {
            Published::To(count) => {
                reply.count(count);
                Ran::Done(None)
            }
            Published::Later(count) => Ran::Waits(Work::Count(count)),
        }
    }

    /// Begins the job of a point command that takes longer than a slice, and locks its key. The
    /// command is counted when the job ends.
    #[cold]
    fn begin_job(
        &self,
        entry: &Entry,
        begun: Begun,
        job: Box<dyn Job>,
        args: resp::Args<'_>,
        db: usize,
    ) -> Ran {
        let Some(locked) = self.lock_for_job(entry, args, db) else {
            // The command runs again, and is counted then, when its keys are locked.
            return Ran::Waits(Work::Blocked);
        };
        Ran::Waits(Work::Job(job, locked, Begun::at(begun.ns)))
    }

    fn claim_of(&self, entry: &Entry, args: resp::Args<'_>, db: usize) -> Claim {
        let access = match entry.row.is_write() {
            true if self.is_waited(entry, args, db) => Access::Exclusive,
            true => Access::Update,
            false => Access::Shared,
        };
        let mut keys: Vec<(u64, Access)> = Vec::new();
        for at in entry.row.keys.positions(args) {
            let key = lock_key(db, args.hash(at));
            if !keys.iter().any(|(other, _)| *other == key) {
                keys.push((key, access));
            }
        }
        Claim::Keys(keys)
    }

    fn lock_for_job(&self, entry: &Entry, args: resp::Args<'_>, db: usize) -> Option<Locked> {
        match self.claim_of(entry, args, db) {
            Claim::Keys(keys) if keys.len() == 1 => self.tx.try_lock_here(keys[0].0, keys[0].1),
            _ => None,
        }
    }

    /// Completes a point command that could not finish at once.
    pub(crate) async fn finish_waiting(
        self: Rc<Self>,
        index: usize,
        request: Arc<Request>,
        view: View,
        resp3: bool,
        work: Work,
        caller: Caller<'static>,
    ) -> Result<Answer, Refusal> {
        self.meter.blame(Cause::Command(index));
        let entry = &self.table.entries()[index];
        let args = resp::Args::owned(&request);
        let (job, locked, begun) = match work {
            Work::Job(job, locked, begun) => (job, locked, begun),
            Work::Count(count) => {
                let count = count.await;
                return Ok(Answer::encode(resp3, |reply| reply.count(count)));
            }
            Work::Blocked => {
                let claim = self.claim_of(entry, args, view.db);
                let mut locked = self.tx.lock(vec![(self.id(), claim.clone())]).await;
                if entry.row.is_write()
                    && !claim.is_exclusive()
                    && self.is_waited(entry, args, view.db)
                {
                    // Released first: while a shared lock is held, readers could see an element
                    // that a waiting client is about to get.
                    drop(locked);
                    let claim = self.claim_of(entry, args, view.db);
                    locked = self.tx.lock(vec![(self.id(), claim)]).await;
                }
                let mut out = Output::default();
                let seen = (view, resp3);
                let rest = self.run_point(entry, args, seen, &mut out, caller).await;
                drop(locked);
                return rest.map(|rest| answer_of(out, rest));
            }
        };
        let mut out = Output::default();
        let rest = self.drive(index, Flow::Job(job), (view, resp3), &mut out).await;
        drop(locked);
        self.settle(entry, begun, rest.as_ref().err(), args, caller);
        rest.map(|rest| answer_of(out, rest))
    }
}

/// True if a point command must wait because its keys are locked.
#[inline(always)]
pub(crate) fn is_blocked(home: &Home, entry: &Entry, args: resp::Args<'_>, db: usize) -> bool {
    !home.locks.is_free() && is_held(home, entry, args, db)
}

/// True if a key of a point command is locked for another transaction.
#[inline(never)]
fn is_held(home: &Home, entry: &Entry, args: resp::Args<'_>, db: usize) -> bool {
    let write = entry.row.is_write();
    let mut keys = entry.row.keys.positions(args);
    keys.any(|at| home.locks.blocks_point(lock_key(db, args.hash(at)), write))
}

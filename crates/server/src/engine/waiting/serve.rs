//! Serves the clients that wait for a changed key, on the core that owns the key.
//!
//! After a command that has run at once, a few clients are served at once as well. In all other
//! cases, a task locks the key and serves them.

use super::super::core::Core;
use super::super::entry::{Entry, Runner};
use super::super::slices::{Cause, named};
use super::super::state::waits::{Next, WaitingCall};
use super::super::unit::steps::answer_of;
use super::end::TIMED_OUT_AT_ONCE;
use darter_command::{Answer, Call, Flow, Look, Looking, Refusal, Since, Taking, When};
use darter_resp::{self as resp, Output, Reply};
use darter_tx::{Access, Claim, Locked, Serving, Tx, lock_key};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// Clients that are served at once after a command or an EXEC.
const SERVED_AT_ONCE: usize = 8;
/// Calls that are checked between two reads of the clock: about 5 us.
const ASKED_AT_ONCE: usize = 32;
/// Places of ended calls that are removed in one step.
const REMOVED_AT_ONCE: usize = 32;

/// The answer for a client, and the job that is left of its command, if any.
struct Taken {
    out: Output,
    flow: Flow,
}

impl Taken {
    fn answer(self, entry: usize) -> Answer {
        match self.flow {
            Flow::Done => Answer::Done(self.out),
            Flow::Stream(rest) => Answer::Stream(self.out, named(entry, rest)),
            Flow::Job(_) => unreachable!("a job is done in steps"),
        }
    }
}

/// The outcome of serving a client.
enum Outcome {
    /// The client was served, or has gone.
    Done,
    /// The key cannot serve the client any more, which stays in the queue.
    Missed,
    /// The destination is locked. The client is served when it is free.
    Later,
}

impl Core {
    /// True if a call waits for a key of this request.
    pub(crate) fn is_waited(&self, entry: &Entry, args: resp::Args<'_>, db: usize) -> bool {
        let waits = self.waits.borrow();
        let mut keys = entry.row.keys.positions(args);
        !waits.is_empty() && keys.any(|at| waits.has(lock_key(db, args.hash(at))))
    }

    /// Serves clients that wait for keys which may have changed. The keys are given by name.
    #[cold]
    pub(crate) fn serve_names(self: &Rc<Self>, changed: impl Iterator<Item = u64>) {
        let mut names: VecDeque<u64> = VecDeque::new();
        for name in changed {
            if !names.contains(&name) && self.waits.borrow().has(name) {
                names.push_back(name);
            }
        }
        let (mut rest, mut left) = (Vec::new(), SERVED_AT_ONCE);
        while let Some(name) = names.pop_front() {
            if !self.serve_at_once(name, &mut names, &mut left) {
                rest.push(name);
            }
        }
        rest.sort_unstable();
        rest.dedup();
        if !rest.is_empty() {
            self.tx.serve_keys(&rest);
        }
    }

    /// Serves calls that wait for a key, as long as that is possible at once. The key is not
    /// locked. Other keys that the calls change are appended to `names`. Returns false if some
    /// calls could not be served.
    fn serve_at_once(
        self: &Rc<Self>,
        name: u64,
        names: &mut VecDeque<u64>,
        left: &mut usize,
    ) -> bool {
        let mut place = 0;
        loop {
            let next = match self.next_to_serve(name, place) {
                Ok(Some(next)) => next,
                Ok(None) => return true,
                Err(_) => return false,
            };
            let call = &next.call;
            let second = call.wait.want.second().map(|at| self.name_of(call, at));
            let is_free = |second: u64| !self.tx.home().locks.blocks_point(second, true);
            let is_here = second.is_none_or(|(core, second)| core == self.id() && is_free(second))
                && self.table.entries()[call.entry].point().is_some();
            if !is_here || next.look == Look::Much || *left == 0 {
                return false;
            }
            *left -= 1;
            place = next.place;
            if self.may_take(call) {
                let begun = self.begun_alone();
                let taken = self.take_for(&next);
                self.settle_served(call, begun, taken.as_ref().err());
                self.send_served(call, taken.map(|taken| taken.answer(call.entry)));
                let second = second.map(|(_, second)| second);
                names.extend(second.filter(|second| self.waits.borrow().has(*second)));
            }
            self.waits.borrow_mut().remove(call.number);
        }
    }

    /// Claims a call, to serve it in the same step. Returns false if it is not waiting any more. A
    /// call that only reads is always answered, because nothing is lost if its client has gone.
    fn may_take(&self, call: &WaitingCall) -> bool {
        !self.table.entries()[call.entry].row.is_write() || call.fate.take()
    }

    /// Sends the answer of a blocked call to the core of its client.
    pub(super) fn send_served(
        self: &Rc<Self>,
        call: &WaitingCall,
        answer: Result<Answer, Refusal>,
    ) {
        let (client, number, from) = (call.client, call.number, self.id());
        self.tell(call.core, move |there| there.served(client, number, from, answer));
    }

    /// The core and the name of the key at index `at`.
    fn name_of(&self, call: &WaitingCall, at: usize) -> (usize, u64) {
        let args = resp::Args::owned(&call.request);
        (args.owner(at, self.tx.cores()), lock_key(call.view.db, args.hash(at)))
    }

    /// The first call after position `place` that the key can serve now.
    fn next_to_serve(&self, name: u64, place: u64) -> Result<Option<Next>, u64> {
        let home = self.tx.home();
        let mut due_ms: Option<u64> = None;
        let mut look = |call: &WaitingCall, at: usize, since: Since| {
            let db = home.shard.db(call.view.db);
            let args = resp::Args::owned(&call.request);
            let looking = Looking::new(db, args, at, When::Waiting(since));
            let look = call.wait.want.look(&looking);
            if look == Look::Nothing {
                let due = call.wait.want.due_ms(&looking);
                due_ms = due_ms.into_iter().chain(due).min();
            }
            look
        };
        let next = self.waits.borrow().next(name, place, ASKED_AT_ONCE, &mut look);
        if let Some(at_ms) = due_ms {
            self.waits.borrow_mut().note_due(name, at_ms);
        }
        next
    }

    /// Takes an element from a key for a call, or returns the refusal.
    fn take_for(&self, next: &Next) -> Result<Taken, Refusal> {
        let call = &next.call;
        let args = resp::Args::owned(&call.request);
        let mut home = self.tx.home();
        let db = home.shard.db_for(call.view.db, call.view.no_touch);
        let when = When::Waiting(next.since);
        if let Look::Refused(refusal) = call.wait.want.look(&Looking::new(db, args, next.at, when))
        {
            return Err(refusal);
        }
        let mut out = Output::default();
        let reply = Reply::new(&mut out, call.resp3);
        let flow = call.wait.want.take(&mut Taking { db, args, reply, when }, next.at)?;
        drop(home);
        if !call.view.tracker.is_none() {
            self.remember(&self.table.entries()[call.entry], args, call.view.tracker);
        }
        Ok(Taken { out, flow })
    }

    /// Starts the tasks that serve changed keys. A task ends at once if no call needs it.
    pub(crate) fn begin_servings(self: &Rc<Self>) {
        while let Some(serving) = self.tx.next_serving() {
            let is_idle = serving.is_granted()
                && serving
                    .single()
                    .is_some_and(|name| matches!(self.next_to_serve(name, 0), Ok(None)));
            if !is_idle {
                self.spawn_on_self(move |core| core.serve_all_of(serving));
            }
        }
    }

    async fn serve_all_of(self: Rc<Self>, mut serving: Serving) {
        serving.granted().await;
        self.meter.blame(Cause::Task);
        let (mut last, mut changed) = (None, VecDeque::new());
        loop {
            let next = serving.next(&self.tx.home().waited, last);
            last = next.or(last);
            let Some(name) = next.or_else(|| changed.pop_front()) else { return };
            if serving.covers(name) {
                self.serve_key(name, &mut serving, &mut changed).await;
            }
            self.tx.pause().await;
        }
    }

    /// Serves all calls that a locked key can serve. If this changes other keys that are locked as
    /// well, they are appended to `changed`, because only the holder of their locks can serve their
    /// calls.
    async fn serve_key(
        self: &Rc<Self>,
        name: u64,
        serving: &mut Serving,
        changed: &mut VecDeque<u64>,
    ) {
        let mut place = 0;
        loop {
            match self.next_to_serve(name, place) {
                Ok(None) => return,
                Err(behind) => place = behind,
                Ok(Some(next)) => {
                    place = next.place;
                    match self.serve_one(name, &next, serving).await {
                        Outcome::Done => {
                            self.waits.borrow_mut().remove(next.call.number);
                            changed.extend(self.changed_besides(name, &next, serving, changed));
                        }
                        Outcome::Missed => {}
                        Outcome::Later => return,
                    }
                }
            }
            self.tx.pause().await;
        }
    }

    /// The destination of a call, if it is locked for this serving and calls wait for it.
    fn changed_besides(
        &self,
        name: u64,
        next: &Next,
        serving: &Serving,
        changed: &VecDeque<u64>,
    ) -> Option<u64> {
        let (core, second) = self.name_of(&next.call, next.call.wait.want.second()?);
        let is_other = second != name && changed.back() != Some(&second);
        let is_covered = core == self.id() && serving.covers(second);
        (is_other && is_covered && self.waits.borrow().has(second)).then_some(second)
    }

    /// Serves one call, if it is still waiting.
    async fn serve_one(self: &Rc<Self>, name: u64, next: &Next, serving: &mut Serving) -> Outcome {
        let call = &next.call;
        let second = call.wait.want.second().map(|at| self.name_of(call, at));
        let mut locked: Option<Locked> = None;
        serving.part_unless(second);
        if let Some((core, second)) = second
            && second != name
            && !(core == self.id() && serving.covers(second))
        {
            let is_locked = if core == self.id() {
                locked = self.tx.try_lock_here(second, Access::Exclusive);
                locked.is_some()
            } else {
                serving.join(core, second).await
            };
            if !is_locked {
                self.serve_when_free(name, (core, second));
                return Outcome::Later;
            }
        }
        let outcome = self.hand_over(name, next, (serving, second)).await;
        serving.part();
        drop(locked);
        outcome
    }

    /// Takes an element for a call, if it is still waiting.
    async fn hand_over(
        self: &Rc<Self>,
        name: u64,
        next: &Next,
        (serving, second): (&Serving, Option<(usize, u64)>),
    ) -> Outcome {
        let call = &next.call;
        // The key is locked, but may have expired while its destination was locked.
        if matches!(self.look_again(next), Look::Nothing) {
            return Outcome::Missed;
        }
        if !self.may_take(call) {
            return Outcome::Done;
        }
        let is_here = second.is_none_or(|(core, _)| core == self.id());
        let is_point = self.table.entries()[call.entry].point().is_some();
        let begun = self.begun_alone();
        let answer = if is_here && is_point {
            self.take_in_steps(next).await
        } else {
            let tx = serving.tx(name, second);
            self.run_under(call, tx, When::Waiting(next.since)).await
        };
        self.settle_served(call, begun, answer.as_ref().err());
        self.send_served(call, answer);
        Outcome::Done
    }

    fn look_again(&self, next: &Next) -> Look {
        let (call, home) = (&next.call, self.tx.home());
        let (db, args) = (home.shard.db(call.view.db), resp::Args::owned(&call.request));
        call.wait.want.look(&Looking::new(db, args, next.at, When::Waiting(next.since)))
    }

    /// Like [`Core::take_for`], followed by the job that it may leave. The key is locked.
    async fn take_in_steps(self: &Rc<Self>, next: &Next) -> Result<Answer, Refusal> {
        let call = &next.call;
        let Taken { mut out, flow } = self.take_for(next)?;
        let rest = self.drive(call.entry, flow, (call.view, call.resp3), &mut out).await?;
        Ok(answer_of(out, rest))
    }

    /// Locks a key of this core and a destination together, and serves the calls on the key. The
    /// lock is queued, so other holders cannot take the destination again and again. Only one task
    /// waits for the two, however often the key changes.
    fn serve_when_free(&self, name: u64, other: (usize, u64)) {
        if !self.waits.borrow_mut().begin_retry(name, other) {
            return;
        }
        let is_here = other.0 == self.id();
        let lock = |name| (name, Access::Exclusive);
        let here = [name, other.1].map(lock).into_iter().take(1 + usize::from(is_here));
        let here = Claim::Keys(here.collect());
        let there = (!is_here).then(|| (other.0, Claim::Keys(vec![lock(other.1)])));
        let claims = [(self.id(), here.clone())].into_iter().chain(there).collect();
        self.spawn_on_self(move |core| async move {
            let locked = core.tx.lock(claims).await;
            core.waits.borrow_mut().end_retry(name, other);
            let serving = core.tx.serve_under(locked, here, other);
            core.serve_all_of(serving).await;
        });
    }

    /// Serves the calls on a key as if it had changed.
    pub(super) fn serve_again(&self, name: u64) {
        if self.waits.borrow().has(name) {
            self.tx.serve_keys(&[name]);
        }
    }

    /// Removes a few places of ended calls. Returns false if there were none.
    pub(crate) fn clear_queues(&self) -> bool {
        let mut waits = self.waits.borrow_mut();
        if !waits.has_left() {
            return false;
        }
        for name in waits.remove_some(REMOVED_AT_ONCE) {
            self.tx.home().waited.remove(name);
        }
        true
    }

    /// Runs a call while the locks of its keys are held.
    pub(super) async fn run_under(
        self: &Rc<Self>,
        call: &WaitingCall,
        held: Tx,
        when: When,
    ) -> Result<Answer, Refusal> {
        let entry = &self.table.entries()[call.entry];
        if !call.view.tracker.is_none() {
            self.remember_anywhere(entry, &call.request, call.view.tracker).await;
        }
        let Runner::Multi(_, anywhere) = entry.run else {
            unreachable!("what waits can run over several keys")
        };
        let make = |tx| Call {
            tx,
            request: Arc::clone(&call.request),
            db: call.view.db,
            no_touch: call.view.no_touch,
            resp3: call.resp3,
            is_script: false,
            first: entry.first,
        };
        let served = match when {
            When::Waiting(_) => call.wait.want.take_across(make(held.clone())),
            When::Called => None,
        };
        let run = served.unwrap_or_else(|| anywhere(make(held)));
        Ok(match run.await? {
            Answer::Stream(out, rest) => Answer::Stream(out, named(call.entry, rest)),
            done @ Answer::Done(_) => done,
        })
    }

    /// Serves keys whose check is due: streams with pending entries that have been idle for long
    /// enough, and streams that have expired.
    pub(crate) fn serve_due(&self) {
        for _ in 0..TIMED_OUT_AT_ONCE {
            let due = self.waits.borrow_mut().take_due(self.now_ms());
            let Some(name) = due else { return };
            self.serve_again(name);
        }
    }
}

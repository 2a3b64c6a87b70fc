//! The beginning of a blocking command (a *call*): either it runs, or it gets a place in the queues
//! of its keys.

use super::super::conn::{Lane, Next};
use super::super::core::{Core, Mail};
use super::super::entry::Entry;
use super::super::point::{Owner, Ran};
use super::super::slices::Cause;
use super::super::state::waits::{Blocked, Fate, Stage, WaitingCall};
use super::super::unit::call::is_blocked;
use super::super::unit::place::owner_of;
use super::super::unit::settle::Caller;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Answer, Look, Looking, Refusal, Wait, When};
use darter_resp::{self as resp, Output, Reply};
use darter_tx::{Access, Claim, ClaimSet, CoreId, lock_key};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Keys that are checked, or added to queues, between two pauses: about 20 us.
const KEYS_AT_ONCE: usize = 64;

impl Core {
    /// Runs a blocking call, or makes it wait. Any earlier replies that are pending must be ones
    /// that [`Core::may_follow`] permits. Returns false if the call must run like any other
    /// command, because its keys are on this core and can serve or refuse it.
    pub(crate) fn call_or_wait(
        self: &Rc<Self>,
        lane: &mut Lane,
        entry: &Entry,
        args: resp::Args<'_>,
        wait: Wait,
    ) -> bool {
        let begun = self.begun_alone();
        let call = WaitingCall {
            number: self.unique(self.waits.borrow_mut().next_call()),
            core: self.id(),
            client: lane.session.handle,
            entry: entry.index,
            request: args.to_request(),
            view: lane.session.view(),
            resp3: lane.session.resp3,
            wait,
            fate: Fate::default(),
            has_left: AtomicBool::new(false),
        };
        let owner = owner_of(&self.tx, entry, args);
        let is_one = matches!(owner, Owner::One(core) if core == self.id());
        let is_here = (is_one || call.wait.keys.is_empty())
            && entry.point().is_some()
            && call.wait.keys.len() <= ENTRIES_AT_ONCE
            && !is_blocked(&self.tx.home(), entry, args, call.view.db);
        if is_here {
            lane.location.trail.stays();
            let call = Arc::new(call);
            if self.look_at(&call, call.wait.keys.clone()).is_some() {
                return false;
            }
            self.take_places(&call, call.wait.keys.clone());
            self.settle_wait(entry, begun);
            lane.next = Next::Waits;
            lane.blocked =
                Some(Box::new(Blocked::new(call, vec![self.id()], self.clock.unix_ms())));
            self.now_waits(lane);
            return true;
        }
        self.begin_elsewhere(lane, entry, call, owner);
        true
    }

    /// Sends the call to the core that owns its keys, or starts a task that runs the call or makes
    /// it wait.
    fn begin_elsewhere(
        self: &Rc<Self>,
        lane: &mut Lane,
        entry: &Entry,
        call: WaitingCall,
        owner: Owner,
    ) {
        let cores = match owner {
            Owner::One(core) => vec![core],
            _ if call.wait.keys.len() > ENTRIES_AT_ONCE => (0..self.tx.cores()).collect(),
            Owner::None | Owner::Many => self.cores_of(&call),
        };
        if let Owner::One(there) = owner
            && self.is_sent(entry, owner)
        {
            let call = Arc::new(WaitingCall { fate: Fate::asks(lane.input.eof), ..call });
            return self.send_call(lane, call, there);
        }
        assert!(lane.is_settled(), "a task would answer before what is owed");
        lane.location.trail.stays();
        self.begin_task(lane, Box::new(Blocked::new(Arc::new(call), cores, self.clock.unix_ms())));
    }

    /// True if a blocking call is sent to the core that owns its keys.
    fn is_sent(&self, entry: &Entry, owner: Owner) -> bool {
        entry.point().is_some() && matches!(owner, Owner::One(core) if core != self.id())
    }

    /// True if a blocking call may be sent while earlier replies are pending. All of them must be
    /// pending on the core that owns its keys, because that core runs a connection's requests in
    /// order.
    pub(crate) fn may_follow(&self, lane: &Lane, entry: &Entry, args: resp::Args<'_>) -> bool {
        let owner = owner_of(&self.tx, entry, args);
        let is_next = |core| lane.stream.is_none() && lane.is_owed_only_by(core);
        self.is_sent(entry, owner) && matches!(owner, Owner::One(core) if is_next(core))
    }

    /// Sends a call to the core that owns its keys. The client counts as blocked until the answer
    /// arrives.
    fn send_call(&self, lane: &mut Lane, call: Arc<WaitingCall>, there: CoreId) {
        if let Some(batch) = lane.away.batches[there].take() {
            // The connection's earlier requests must arrive first.
            self.post(there, Mail::Batch(batch));
        }
        lane.next = Next::Waits;
        lane.location.trail.goes(there, self.now_ms());
        let blocked = Blocked::new(Arc::clone(&call), vec![there], self.clock.unix_ms());
        lane.blocked = Some(Box::new(blocked));
        self.count_blocked(lane);
        self.tell_later(there, move |there| there.begin_here(&call));
    }

    /// Starts a task for a call that the core of its keys has neither run nor made wait, as soon as
    /// no earlier reply is pending.
    pub(super) fn begin_again(self: &Rc<Self>, client: u64, number: u64) {
        self.with_blocked(client, number, |_, conn| {
            let lane = &mut conn.lane;
            if lane.session.is_killed() {
                return;
            }
            let Some(mut blocked) = lane.blocked.take() else { return };
            self.count_unblocked(client, &blocked);
            lane.next = Next::Parsed;
            if lane.is_settled() {
                blocked.stage = Stage::Begins;
                blocked.call.fate.renew(lane.input.eof);
                self.begin_task(lane, blocked);
            } else {
                lane.hold(Arc::clone(&blocked.call.request));
            }
        });
    }

    /// Starts the task that runs a call, or makes it wait.
    fn begin_task(self: &Rc<Self>, lane: &mut Lane, blocked: Box<Blocked>) {
        let (call, cores) = (Arc::clone(&blocked.call), blocked.cores.clone());
        lane.blocked = Some(blocked);
        let core = Rc::clone(self);
        self.await_task(lane, |_, presence| {
            self.tx.spawn(async move {
                let entry = &core.table.entries()[call.entry];
                let mut registered = Registered { core: &core, call: &call, cores, stays: false };
                let work = core.run_locked_or_wait(&call, &mut registered);
                match core.while_wanted(!entry.row.is_write(), &presence, work).await {
                    Ok(Some(answer)) => core.finish(call.client, answer),
                    Ok(None) => core.has_begun_to_wait(&call),
                    Err(stopped) => core.stopped(call.client, entry, stopped),
                }
            })
        });
    }

    fn cores_of(&self, call: &WaitingCall) -> Vec<CoreId> {
        let args = resp::Args::owned(&call.request);
        let mut cores: Vec<_> =
            call.wait.keys.clone().map(|at| args.owner(at, self.tx.cores())).collect();
        cores.sort_unstable();
        cores.dedup();
        cores
    }

    /// Runs on the core that owns all keys: runs a call at once, or makes it wait.
    fn begin_here(self: &Rc<Self>, call: &Arc<WaitingCall>) {
        let entry = &self.table.entries()[call.entry];
        let args = resp::Args::owned(&call.request);
        let (client, number) = (call.client, call.number);
        let is_behind = self.batches.borrow().are_held(client);
        if is_behind || is_blocked(&self.tx.home(), entry, args, call.view.db) {
            return self.tell(call.core, move |there| there.begin_again(client, number));
        }
        let begun = self.begun_alone();
        if self.look_at(call, call.wait.keys.clone()).is_none() {
            if call.fate.wait() {
                self.take_places(call, call.wait.keys.clone());
                self.settle_wait(entry, begun);
            } else {
                self.tell(call.core, move |there| there.end_unserved(client, number));
            }
            return;
        }
        if !call.fate.answer() {
            return;
        }
        let mut out = Output::default();
        let mut reply = Reply::new(&mut out, call.resp3);
        let caller = Caller::Client(call.core, client);
        match self.call_unless_locked(entry, args, call.view, &mut reply, caller) {
            Ran::Done(None) => self.send_served(call, Ok(Answer::Done(out))),
            Ran::Done(Some(rest)) => self.send_served(call, Ok(Answer::Stream(out, rest))),
            // The command would be a job, which has not begun.
            Ran::Waits(_) => self.tell(call.core, move |there| there.begin_again(client, number)),
        }
    }

    /// Makes a call wait if no key can serve it. Otherwise locks all keys, checks again, and runs
    /// the call.
    async fn run_locked_or_wait(
        self: &Rc<Self>,
        call: &Arc<WaitingCall>,
        registered: &mut Registered<'_>,
    ) -> Option<Result<Answer, Refusal>> {
        self.meter.blame(Cause::Command(call.entry));
        let cores = &registered.cores.clone()[..];
        // A check without locks. Its result may be out of date at once.
        if self.look_on(call, cores).await.is_none()
            && self.begins_under_shared_locks(call, cores).await
        {
            registered.stays = true;
            return None;
        }
        let claims = self.claims_of_call(call, Access::Exclusive).await;
        let locked = self.tx.lock(claims.clone()).await;
        let held = self.tx.holding(claims);
        let entry = &self.table.entries()[call.entry];
        let begun = self.begun_alone();
        let found = loop {
            if let Some((_, found)) = self.look_on(call, cores).await {
                break found;
            }
            if self.get_places(call, cores).await {
                registered.stays = true;
                drop(locked);
                return None;
            }
            // A locked key may still expire.
        };
        let answer = match found {
            Look::Refused(refusal) => Err(refusal),
            Look::There | Look::Much | Look::Nothing => {
                self.run_under(call, held, When::Called).await
            }
        };
        let (args, caller) =
            (resp::Args::owned(&call.request), Caller::Client(self.id(), call.client));
        self.settle(entry, begun, answer.as_ref().err(), args, caller);
        Some(answer)
    }

    /// The first key on these cores that can serve or refuse the call.
    async fn look_on(
        self: &Rc<Self>,
        call: &Arc<WaitingCall>,
        cores: &[CoreId],
    ) -> Option<(usize, Look)> {
        let look = |_| {
            let call = Arc::clone(call);
            move |there: Rc<Self>| async move { there.look_in_slices(&call).await }
        };
        let found = self.run_on_each(cores, look).await;
        found.into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// Makes a call wait, while its keys have shared locks: the keys cannot change, but other calls
    /// may begin to wait at the same time. Returns false if a key can serve the call after all;
    /// then the call is in no queue.
    async fn begins_under_shared_locks(
        self: &Rc<Self>,
        call: &Arc<WaitingCall>,
        cores: &[CoreId],
    ) -> bool {
        let claims = self.claims_of_call(call, Access::Shared).await;
        let locked = self.tx.lock(claims).await;
        let begins = self.get_places(call, cores).await;
        drop(locked);
        begins
    }

    /// Adds a call to the queues on these cores, whose keys are locked. Returns false if a key can
    /// serve the call; then it is in no queue, and its own task runs it.
    async fn get_places(self: &Rc<Self>, call: &Arc<WaitingCall>, cores: &[CoreId]) -> bool {
        let begun = self.begun_alone();
        let register = |_| {
            let call = Arc::clone(call);
            move |there: Rc<Self>| async move { there.take_places_in_slices(&call).await }
        };
        let begins = self.run_on_each(cores, register).await.into_iter().all(|begins| begins);
        if begins {
            self.settle_wait(&self.table.entries()[call.entry], begun);
            return true;
        }
        let leave = |_| {
            let number = call.number;
            move |there: Rc<Self>| async move { there.waits.borrow_mut().remove(number) }
        };
        self.run_on_each(cores, leave).await;
        false
    }

    /// The claims on the keys for which a call waits, and on its destination.
    async fn claims_of_call(&self, call: &WaitingCall, access: Access) -> Vec<(CoreId, Claim)> {
        let args = resp::Args::owned(&call.request);
        let all = call.wait.keys.clone().chain(call.wait.want.second());
        let mut wanted = ClaimSet::new(self.tx.cores(), call.wait.keys.len());
        for (done, at) in all.enumerate() {
            let name = lock_key(call.view.db, args.hash(at));
            wanted.add(args.owner(at, self.tx.cores()), name, access);
            if done % KEYS_AT_ONCE == KEYS_AT_ONCE - 1 {
                self.tx.pause().await;
            }
        }
        wanted.into_claims()
    }

    // ---- on the core of the keys ----

    /// The first of the keys in this range that can serve or refuse the call.
    fn look_at(&self, call: &WaitingCall, keys: Range<usize>) -> Option<(usize, Look)> {
        let args = resp::Args::owned(&call.request);
        let mut home = self.tx.home();
        let db = home.shard.db_for(call.view.db, call.view.no_touch);
        let (cores, here) = (self.tx.cores(), self.id());
        for at in keys {
            if cores > 1 && args.owner(at, cores) != here {
                continue;
            }
            let found = call.wait.want.look(&Looking::new(db, args, at, When::Called));
            if found != Look::Nothing {
                return Some((at, found));
            }
        }
        None
    }

    /// Adds the call to the queues of those keys in this range that are on this core.
    fn take_places(&self, call: &Arc<WaitingCall>, keys: Range<usize>) {
        let args = resp::Args::owned(&call.request);
        let (cores, here, db) = (self.tx.cores(), self.id(), call.view.db);
        let (mut waits, mut home) = (self.waits.borrow_mut(), self.tx.home());
        let (home, want) = (&mut *home, &call.wait.want);
        for at in keys {
            let key = args.get(at);
            if cores == 1 || darter_base::slot::owner_of(key, cores) == here {
                let name = lock_key(db, args.hash(at));
                let shard = home.shard.db(db);
                let since = want.since(&Looking::new(shard, args, at, When::Called));
                let due_ms = want.due_ms(&Looking::new(shard, args, at, When::Waiting(since)));
                if waits.add(call, (name, db), (key, at, since)) {
                    home.waited.add(name);
                }
                if let Some(at_ms) = due_ms {
                    waits.note_due(name, at_ms);
                }
            }
        }
    }

    async fn look_in_slices(&self, call: &WaitingCall) -> Option<(usize, Look)> {
        for some in portions(&call.wait.keys) {
            let found = self.look_at(call, some);
            if found.is_some() {
                return found;
            }
            self.tx.pause().await;
        }
        None
    }

    /// Adds a call to the queues of this core, in slices. A rebuild may change a key under a shared
    /// lock, so each key is checked in the same step. Returns false if a key can serve the call, or
    /// the call has ended; then it is in some of the queues only.
    async fn take_places_in_slices(&self, call: &Arc<WaitingCall>) -> bool {
        for some in portions(&call.wait.keys) {
            if call.has_left.load(Ordering::Acquire) {
                return false;
            }
            if self.look_at(call, some.clone()).is_some() {
                return false;
            }
            self.take_places(call, some);
            self.tx.pause().await;
        }
        true
    }
}

fn portions(keys: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
    let end = keys.end;
    keys.clone().step_by(KEYS_AT_ONCE).map(move |from| from..end.min(from + KEYS_AT_ONCE))
}

/// A call that is being added to queues. Dropping this value removes the call from all of them,
/// unless the call stays.
struct Registered<'a> {
    core: &'a Rc<Core>,
    call: &'a WaitingCall,
    cores: Vec<CoreId>,
    stays: bool,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if !self.stays {
            // Set before the messages are sent: a core that has removed the call must not add it
            // again.
            self.call.has_left.store(true, Ordering::Release);
            self.core.leave_queues(self.call.number, &self.cores);
        }
    }
}

//! A task's handle to its surroundings: hops to shards, locks, slices.

use crate::CoreId;
use crate::executor::{self, TaskId, Tasks};
use crate::locks::{self, Access, Claim, Late, LockTable, TxId};
use crate::transaction::Scope;
use crate::waited::{Serving, Waited};
use darter_base::{Preempt, hash::IdentityMap, spare};
use darter_keyspace::{BY_SCRIPT, Part, Shard, Work};
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::Poll;
use tickets::{AwaitedEvent, Pending, Ticket};

mod acquire;
mod at_once;
mod busy;
mod late;
mod locked;
mod message;
mod serving;
mod tickets;

pub use at_once::{AtOnce, OpenAtOnce};
pub use locked::Locked;
pub use message::{Locking, Message, When};
use message::{Refused, Then};

/// The state of one core that tasks of any core can reach by a message (a hop).
pub struct Home {
    /// The data.
    pub shard: Shard,
    /// The locks and their holders.
    pub locks: LockTable,
    /// The keys that blocked calls wait for.
    pub waited: Waited,
}

impl Home {
    /// Attributes the following changes to this task or transaction.
    fn work_for(&mut self, work: Work) {
        self.compare_part();
        self.shard.work_for(work);
    }

    /// Asserts that the transaction's claims cover its records. A record outside them would carry
    /// the number of a transaction that never ends on this shard, and readers of the log would drop
    /// it.
    fn compare_part(&mut self) {
        if let Some((part, records)) = self.shard.compare_part() {
            self.locks.check_records(part.transaction, records);
        }
    }
}

type Value = Box<dyn Any + Send>;
type Run = Box<dyn FnOnce(&mut Home) -> Value + Send>;
type Body = Pin<Box<dyn Future<Output = Value>>>;
type Start = Box<dyn FnOnce(Tx) -> Body + Send>;

struct Link {
    core: CoreId,
    cores: usize,
    home: RefCell<Home>,
    preempt: Rc<dyn Preempt>,
    tasks: RefCell<Tasks>,
    running: Cell<TaskId>,
    /// The transaction of each task, to which the task's changes belong.
    works: RefCell<IdentityMap<Work>>,
    /// The authors of tasks that have one.
    authors: RefCell<IdentityMap<u64>>,
    /// Tasks that have changed data, here or elsewhere.
    changed: RefCell<IdentityMap<()>>,
    tickets: RefCell<IdentityMap<Ticket>>,
    next_ticket: Cell<u64>,
    next_tx: Cell<u64>,
    outbox: RefCell<Vec<(CoreId, Message)>>,
    /// The keys whose blocked calls are to be served.
    servings: RefCell<VecDeque<Serving>>,
    /// Locks that transactions of this core took on other cores after their start.
    late: RefCell<IdentityMap<IdentityMap<Late>>>,
    /// Claims that queue for a limited time: since when, and the ticket that ends the wait.
    alarms: RefCell<VecDeque<(u64, u64)>>,
    /// Tasks that wait for a busy transaction: the ticket, and the error that ends the wait.
    stuck: RefCell<IdentityMap<(u64, &'static str)>>,
    /// The owner of this end: see [`Tx::host`].
    host: OnceCell<Weak<dyn Any>>,
}

/// One core's end of the fabric. Cheap to clone; stays on its core. A handle also records whether
/// its holder takes its own locks: see `transaction`.
#[derive(Clone)]
pub struct Tx(Rc<Link>, Scope);

impl Tx {
    /// The end of the fabric for core `core` of `cores`, which owns `shard`.
    #[must_use]
    pub fn new(core: CoreId, cores: usize, shard: Shard, preempt: Rc<dyn Preempt>) -> Self {
        assert!(core < cores, "core={core} cores={cores}");
        let link = Link {
            core,
            cores,
            home: RefCell::new(Home {
                shard,
                locks: LockTable::default(),
                waited: Waited::default(),
            }),
            preempt,
            tasks: RefCell::default(),
            running: Cell::new(0),
            works: RefCell::default(),
            authors: RefCell::default(),
            changed: RefCell::default(),
            tickets: RefCell::default(),
            next_ticket: Cell::new(0),
            next_tx: Cell::new(0),
            outbox: RefCell::default(),
            servings: RefCell::default(),
            late: RefCell::default(),
            alarms: RefCell::default(),
            stuck: RefCell::default(),
            host: OnceCell::new(),
        };
        Self(Rc::new(link), Scope::default())
    }

    /// Sets the owner of this end, for tasks that need more of their core than its shard.
    #[must_use]
    pub fn hosted_by(self, host: Weak<dyn Any>) -> Self {
        assert!(self.0.host.set(host).is_ok(), "core {} has a host", self.0.core);
        self
    }

    /// The owner of this end, if it is a `T`. A task that another core started finds the core's own
    /// state by it.
    #[must_use]
    pub fn host<T: 'static>(&self) -> Option<Rc<T>> {
        self.0.host.get()?.upgrade()?.downcast().ok()
    }

    /// The locks under which the holder works.
    pub(crate) fn scope(&self) -> &Scope {
        &self.1
    }

    /// A handle for work under the locks of a transaction.
    pub(crate) fn within(&self, scope: Scope) -> Self {
        Self(Rc::clone(&self.0), scope)
    }

    /// This core.
    #[must_use]
    pub fn core(&self) -> CoreId {
        self.0.core
    }

    /// Number of cores.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.0.cores
    }

    /// The core that owns `key`.
    #[must_use]
    pub fn core_of(&self, key: &[u8]) -> CoreId {
        darter_base::slot::owner_of(key, self.0.cores)
    }

    /// This core's data and locks. The borrow must end before any await.
    #[must_use]
    pub fn home(&self) -> std::cell::RefMut<'_, Home> {
        self.0.home.borrow_mut()
    }

    // ---- for tasks ----

    /// Runs `run` on the shard of `core`, and returns its result.
    ///
    /// Cost: none for this core; two messages for another.
    pub async fn on<R: Send + 'static>(
        &self,
        core: CoreId,
        run: impl FnOnce(&mut Home) -> R + Send + 'static,
    ) -> R {
        if core == self.0.core {
            return run(&mut self.0.home.borrow_mut());
        }
        downcast(self.call(core, run).await)
    }

    /// Runs a closure on each of `cores` in parallel. Returns the results in that order.
    pub async fn on_each<R: Send + 'static, F>(
        &self,
        cores: impl IntoIterator<Item = CoreId>,
        mut make: impl FnMut(CoreId) -> F,
    ) -> Vec<R>
    where
        F: FnOnce(&mut Home) -> R + Send + 'static,
    {
        let mut pending = Vec::new();
        let mut local = None;
        for core in cores {
            let run = make(core);
            if core == self.0.core {
                assert!(local.is_none(), "core {core} is asked twice");
                local = Some((pending.len(), run));
                pending.push(None);
            } else {
                pending.push(Some(self.call(core, run)));
            }
        }
        let mut local = local.map(|(at, run)| (at, run(&mut self.0.home.borrow_mut())));
        let mut results = Vec::with_capacity(pending.len());
        for result in pending {
            match result {
                Some(result) => results.push(downcast(result.await)),
                None => results.extend(local.take().map(|(_, result)| result)),
            }
        }
        results
    }

    /// Runs a task on each of `cores` in parallel, each in slices of its own core. Returns the
    /// results in that order. For work of many portions, because a hop for each portion would cost
    /// a turn of two cores.
    pub async fn drive_each<R, F, T>(
        &self,
        cores: impl IntoIterator<Item = CoreId>,
        mut make: impl FnMut(CoreId) -> F,
    ) -> Vec<R>
    where
        R: Send + 'static,
        F: FnOnce(Tx) -> T + Send + 'static,
        T: Future<Output = R> + 'static,
    {
        let mut pending = Vec::new();
        let mut local = None;
        for core in cores {
            let start = make(core);
            if core == self.0.core {
                assert!(local.is_none(), "core {core} is asked twice");
                local = Some(start);
                pending.push(None);
            } else {
                pending.push(Some(self.start(core, start)));
            }
        }
        let mut local = match local {
            Some(start) => Some(start(self.clone()).await),
            None => None,
        };
        let mut results = Vec::with_capacity(pending.len());
        for result in pending {
            match result {
                Some(result) => results.push(downcast(result.await)),
                None => results.extend(local.take()),
            }
        }
        results
    }

    /// Takes the locks in `claims` (at most one claim a core), waiting for them. Inside a
    /// transaction they are held already, and this does nothing.
    pub async fn lock(&self, claims: Vec<(CoreId, Claim)>) -> Locked {
        if self.is_held(&claims) {
            return Locked::of_transaction(self);
        }
        let writers = locks::writers(&claims);
        self.lock_for(claims, writers).await
    }

    /// Takes locks; all changes under them are recorded as one transaction.
    pub(crate) async fn lock_framed(&self, claims: Vec<(CoreId, Claim)>) -> Locked {
        let writes = claims.iter().filter(|(_, claim)| claim.is_write());
        let writers = writes.map(|(core, _)| *core).collect();
        self.lock_for(claims, writers).await
    }

    async fn lock_for(&self, mut claims: Vec<(CoreId, Claim)>, writers: Vec<CoreId>) -> Locked {
        claims.sort_by_key(|(core, _)| *core);
        assert_one_a_core(&claims);
        let mut locked = Locked::new(self, writers);
        self.acquire(&mut locked, &mut claims).await;
        locked.begin();
        locked
    }

    /// [`Tx::lock`] without waiting: `None` on a conflict.
    pub async fn try_lock(&self, claims: Vec<(CoreId, Claim)>) -> Option<Locked> {
        if self.is_held(&claims) {
            return Some(Locked::of_transaction(self));
        }
        assert_one_a_core(&claims);
        let mut locked = Locked::new(self, locks::writers(&claims));
        let granted = self.try_all(&mut locked, &claims).await;
        granted.then(|| {
            locked.begin();
            locked
        })
    }

    /// Locks one key of this core without waiting; `None` on a conflict.
    #[must_use]
    pub fn try_lock_here(&self, key: u64, access: Access) -> Option<Locked> {
        let claims = [(self.0.core, Claim::Keys(vec![(key, access)]))];
        if self.is_held(&claims) {
            return Some(Locked::of_transaction(self));
        }
        let mut locked = Locked::new(self, locks::writers(&claims));
        let granted = self.0.home.borrow_mut().locks.try_acquire(locked.id, &claims[0].1);
        granted.then(|| {
            locked.cores.push(self.0.core);
            locked
        })
    }

    /// Takes the locks in `claims` (at most one claim a core), runs a closure on each of their
    /// cores, and releases the locks. Returns the results in ascending order of cores.
    ///
    /// For changes that take one step on each core. Cost, if nothing conflicts: two messages if the
    /// keys are on one other core, otherwise five for each core.
    pub async fn change<R: Send + 'static, F>(
        &self,
        mut claims: Vec<(CoreId, Claim)>,
        mut make: impl FnMut(CoreId) -> F,
    ) -> Vec<R>
    where
        F: FnOnce(&mut Home) -> R + Send + 'static,
    {
        claims.sort_by_key(|(core, _)| *core);
        assert_one_a_core(&claims);
        assert!(claims.iter().all(|(_, claim)| claim.is_exclusive()), "readers pass what is held");
        if !self.is_held(&claims)
            && let Some(results) = self.try_change(&claims, &mut make).await
        {
            return results;
        }
        self.run_locked(claims, make).await
    }

    /// [`Tx::change`] with one message: while this core's locks are held, a single other core needs
    /// to hold its locks only while the closure runs. `None` if some locks are not free, or if
    /// there are more cores.
    async fn try_change<R: Send + 'static, F>(
        &self,
        claims: &[(CoreId, Claim)],
        make: &mut impl FnMut(CoreId) -> F,
    ) -> Option<Vec<R>>
    where
        F: FnOnce(&mut Home) -> R + Send + 'static,
    {
        let mut others = claims.iter().filter(|(core, _)| *core != self.0.core);
        let (Some((other, claim)), None) = (others.next(), others.next()) else { return None };
        let here = claims.iter().find(|(core, _)| *core == self.0.core);
        let mut locked = Locked::new(self, locks::writers(claims));
        if let Some((core, claim)) = here {
            if !self.0.home.borrow_mut().locks.try_acquire(locked.id, claim) {
                return None;
            }
            locked.cores.push(*core);
        }
        let then = Then::Release(locked.whole());
        let there = self.ask_step(&locked, *other, claim.clone(), then, make(*other)).await;
        if there.is::<Refused>() {
            return None;
        }
        locked.begin();
        let mut results = vec![downcast(there)];
        if let Some((core, _)) = here {
            let result = make(*core)(&mut self.0.home.borrow_mut());
            results.insert(usize::from(other < core), result);
        }
        assert_eq!(results.len(), claims.len(), "a result for each core");
        Some(results)
    }

    /// Takes the read locks in `claims` (at most one claim a core), runs a closure on each of their
    /// cores, all at one instant, and releases the locks. Returns the results in ascending order of
    /// cores.
    ///
    /// Locks do not stop the clock: `agrees` decides whether everything read was still live at the
    /// last read. If not, it is read again after all locks are held.
    ///
    /// For reads that take one step on each core. Cost, if nothing conflicts: three messages for
    /// each other core, one of them without an awaited reply; otherwise seven.
    pub async fn read<R: Send + 'static, F>(
        &self,
        mut claims: Vec<(CoreId, Claim)>,
        mut make: impl FnMut(CoreId) -> F,
        agrees: impl FnOnce(&[R]) -> bool,
    ) -> Vec<R>
    where
        F: FnOnce(&mut Home) -> R + Send + 'static,
    {
        claims.sort_by_key(|(core, _)| *core);
        assert_one_a_core(&claims);
        assert!(claims.iter().all(|(_, claim)| !claim.is_write()), "it changes nothing");
        if !self.is_held(&claims)
            && let Some(results) = self.try_read(&claims, &mut make).await
            && agrees(&results)
        {
            return results;
        }
        self.run_locked(claims, make).await
    }

    /// Runs a closure on each core of `claims`, in order, once all of them are held.
    async fn run_locked<R: Send + 'static, F>(
        &self,
        claims: Vec<(CoreId, Claim)>,
        make: impl FnMut(CoreId) -> F,
    ) -> Vec<R>
    where
        F: FnOnce(&mut Home) -> R + Send + 'static,
    {
        let cores: Vec<CoreId> = claims.iter().map(|(core, _)| *core).collect();
        let locked = self.lock(claims).await;
        let results = self.on_each(cores, make).await;
        drop(locked);
        results
    }

    /// [`Tx::read`] while the locks are being granted. A value that another task is rebuilding
    /// could change between its lock and the last lock; `None` if there is one, or if locks are not
    /// free.
    async fn try_read<R: Send + 'static, F>(
        &self,
        claims: &[(CoreId, Claim)],
        make: &mut impl FnMut(CoreId) -> F,
    ) -> Option<Vec<R>>
    where
        F: FnOnce(&mut Home) -> R + Send + 'static,
    {
        let mut locked = Locked::new(self, Vec::new());
        let is_here = |(core, _): &&(CoreId, Claim)| *core == self.0.core;
        if let Some((core, claim)) = claims.iter().find(is_here) {
            if !self.0.home.borrow_mut().locks.try_acquire_still(locked.id, claim) {
                return None;
            }
            locked.cores.push(*core);
        }
        let others = claims.iter().filter(|one| !is_here(one));
        let mut asked = Vec::with_capacity(claims.len());
        for (core, claim) in others {
            locked.asked.push(*core);
            let answer = self.ask_step(&locked, *core, claim.clone(), Then::Keep, make(*core));
            asked.push((*core, answer));
        }
        let mut answers = Vec::with_capacity(claims.len());
        for (core, answer) in asked {
            let value = answer.await;
            locked.asked.retain(|asked| *asked != core);
            if !value.is::<Refused>() {
                locked.cores.push(core);
                answers.push(value);
            }
        }
        let here = claims.iter().position(|one| is_here(&one));
        if answers.len() + usize::from(here.is_some()) < claims.len() {
            return None;
        }
        let mut results: Vec<R> = answers.into_iter().map(downcast).collect();
        if let Some(at) = here {
            results.insert(at, make(self.0.core)(&mut self.0.home.borrow_mut()));
        }
        assert_eq!(results.len(), claims.len(), "a result for each core");
        Some(results)
    }

    /// Says whether the slice is over.
    #[must_use]
    pub fn preempt(&self) -> &dyn Preempt {
        &*self.0.preempt
    }

    /// Ends the slice when it is over; continues at once when it is not. For loops of tasks.
    pub async fn pause(&self) {
        if self.0.preempt.must_yield() {
            self.yield_now().await;
        }
    }

    /// Ends the slice, even if it is not over.
    pub async fn yield_now(&self) {
        let mut yielded = false;
        poll_fn(|_| {
            if yielded {
                return Poll::Ready(());
            }
            yielded = true;
            self.0.tasks.borrow_mut().wake(self.0.running.get());
            Poll::Pending
        })
        .await;
    }

    /// A new ticket, and a future that waits until [`Tx::complete`] or a `Return` message completes
    /// it. For questions to other cores that do not concern their shard.
    pub fn ticket<R: Send + 'static>(&self) -> (u64, impl Future<Output = R> + use<R>) {
        let pending = self.open_ticket(AwaitedEvent::Work);
        (pending.ticket, async move { downcast(pending.await) })
    }

    /// Completes a ticket of this core. Call this once.
    pub fn complete(&self, ticket: u64, value: Value) {
        let mut tickets = self.0.tickets.borrow_mut();
        match tickets.insert(ticket, Ticket::Done(value)) {
            Some(Ticket::Waiting(task, _)) => self.0.tasks.borrow_mut().wake(task),
            Some(Ticket::Abandoned) => {
                let unwanted = tickets.remove(&ticket);
                drop(tickets);
                drop(unwanted);
            }
            Some(Ticket::Done(_)) => panic!("ticket {ticket} is completed twice"),
            None => panic!("nobody waits for ticket {ticket}"),
        }
    }

    // ---- for the loop ----

    /// Starts a task. It first runs at the next [`Tx::run_one`].
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) -> TaskId {
        self.0.tasks.borrow_mut().spawn(Box::pin(task))
    }

    /// Polls one runnable task. Returns false when there is none.
    pub fn run_one(&self) -> bool {
        let next = self.0.tasks.borrow_mut().take_ready();
        let Some((id, mut body)) = next else { return false };
        self.0.running.set(id);
        let work = self.work_of(id);
        if work != Work::Alone {
            self.work_for(work);
        }
        let author = self.author_of(id);
        if author > 0 {
            self.write_as(author);
        }
        let before = self.changes();
        let done = executor::poll(&mut body);
        if self.changes() != before {
            self.0.changed.borrow_mut().insert(id, ());
        }
        if author > 0 {
            self.write_as(0);
        }
        if work != Work::Alone || !self.0.works.borrow().is_empty() {
            self.work_for(Work::Alone);
        }
        if done {
            self.0.works.borrow_mut().remove(&id);
            self.0.authors.borrow_mut().remove(&id);
            self.0.changed.borrow_mut().remove(&id);
            self.0.stuck.borrow_mut().remove(&id);
            self.0.tasks.borrow_mut().forget(id);
        } else {
            self.0.tasks.borrow_mut().put_back(id, body);
        }
        true
    }

    fn changes(&self) -> u64 {
        self.0.home.borrow().shard.changes()
    }

    /// Runs a task again, whatever it waits for, to check whether it stops.
    pub fn wake(&self, task: TaskId) {
        self.0.tasks.borrow_mut().wake(task);
    }

    /// True if the running task has changed nothing and has requested no change. Then it can be
    /// dropped, with its locks, as if it had never started. Cost: O(open tickets).
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        let task = self.0.running.get();
        let asks = |ticket: &Ticket| matches!(ticket, Ticket::Waiting(by, AwaitedEvent::Work) if *by == task);
        !self.0.changed.borrow().contains_key(&task) && !self.0.tickets.borrow().values().any(asks)
    }

    /// Records that the running task has had an effect other than a change of data.
    pub fn note_effect(&self) {
        self.0.changed.borrow_mut().insert(self.0.running.get(), ());
    }

    /// Attributes the task's changes, on all cores, to a client that ignores its own changes: see
    /// [`Shard::set_author`]; 0 for none.
    pub fn note_author(&self, task: TaskId, author: u64) {
        if author > 0 {
            self.0.authors.borrow_mut().insert(task, author);
        }
    }

    /// Marks the following changes of the running task as made by a script, or ends that.
    pub fn set_by_script(&self, is_script: bool) {
        let task = self.0.running.get();
        let author = self.author_of(task) & !BY_SCRIPT;
        if author > 0 {
            let author = if is_script { author | BY_SCRIPT } else { author };
            self.note_author(task, author);
            self.write_as(author);
        }
    }

    /// True when a task is runnable.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        self.0.tasks.borrow().has_ready()
    }

    /// The number of unfinished tasks.
    #[must_use]
    pub fn tasks_len(&self) -> usize {
        self.0.tasks.borrow().len()
    }

    /// True when there are messages to send.
    #[must_use]
    pub fn has_mail(&self) -> bool {
        !self.0.outbox.borrow().is_empty()
    }

    /// Moves the messages to send into `into`.
    pub fn drain_outbox(&self, into: &mut Vec<(CoreId, Message)>) {
        let mut outbox = self.0.outbox.borrow_mut();
        into.append(&mut outbox);
        spare::release(&mut outbox);
    }

    /// Handles a message from another core.
    pub fn deliver(&self, message: Message) {
        match message {
            Message::Call { from, ticket, work, author, run } => {
                self.work_for(work);
                self.write_as(author);
                let before = self.changes();
                let value = run(&mut self.0.home.borrow_mut());
                self.write_as(0);
                self.work_for(Work::Alone);
                let changed = self.changes() != before;
                self.post(from, Message::Return { ticket, value, changed });
            }
            Message::Task { from, ticket, work, author, scope, start } => {
                let tx = self.within(scope);
                let task = self.spawn(async move {
                    let before = tx.changes();
                    let value = start(tx.clone()).await;
                    let changed = tx.has_changed() || tx.changes() != before;
                    tx.post(from, Message::Return { ticket, value, changed });
                });
                if work != Work::Alone {
                    self.0.works.borrow_mut().insert(task, work);
                }
                self.note_author(task, author);
            }
            Message::Step(step) => {
                let (from, ticket) = (step.from, step.ticket);
                self.write_as(step.author);
                let before = self.changes();
                let value = self.step_here(*step);
                self.write_as(0);
                let changed = self.changes() != before;
                self.post(from, Message::Return { ticket, value, changed });
            }
            Message::Return { ticket, value, changed } => {
                if changed {
                    self.note_change(ticket);
                }
                self.complete(ticket, value);
            }
            Message::Lock { from, ticket, tx, claim, when } => {
                let granted = self.lock_here(tx, claim, (from, ticket), when);
                if granted || when == When::AtOnce {
                    self.answer_lock(from, ticket, granted);
                } else {
                    self.tell_if_stuck(tx, (from, ticket));
                }
            }
            Message::Widen { from, ticket, tx, claim } => {
                let is_granted = self.0.home.borrow_mut().locks.widen(tx, &claim);
                self.answer_lock(from, ticket, is_granted);
            }
            Message::Unlock { tx, part } => self.release_here(tx, part),
            Message::Withdraw { tx } => self.withdraw_here(tx),
            Message::Narrow { tx, kept } => self.narrow_here(tx, kept),
            Message::Busy { tx, line } => self.note_busy_here(tx, line),
            Message::Stuck { ticket, line } => self.note_stuck(ticket, line),
        }
    }

    fn answer_lock(&self, to: CoreId, ticket: u64, granted: bool) {
        let (value, changed) = (Box::new(granted), false);
        self.post(to, Message::Return { ticket, value, changed });
    }

    fn ask_step<R: Send + 'static>(
        &self,
        locked: &Locked,
        core: CoreId,
        claim: Claim,
        then: Then,
        run: impl FnOnce(&mut Home) -> R + Send + 'static,
    ) -> Pending {
        let pending = self.open_ticket(AwaitedEvent::Work);
        let run: Run = Box::new(move |home| Box::new(run(home)));
        let (from, ticket, tx) = (self.0.core, pending.ticket, locked.id);
        let author = self.author_of(self.0.running.get());
        let step = Locking { from, ticket, tx, claim, then, author, run };
        self.post(core, Message::Step(Box::new(step)));
        pending
    }

    fn step_here(&self, step: Locking) -> Value {
        let Locking { tx, claim, then, run, .. } = step;
        let mut home = self.0.home.borrow_mut();
        let part = match then {
            Then::Release(part) => part,
            Then::Keep => {
                let is_granted = home.locks.try_acquire_still(tx, &claim);
                return if is_granted { run(&mut home) } else { Box::new(Refused) };
            }
        };
        assert!(part.is_none_or(|part| part.transaction == tx), "a part of another transaction");
        if !home.locks.try_acquire(tx, &claim) {
            return Box::new(Refused);
        }
        home.work_for(part.map_or(Work::Alone, Work::Part));
        let value = run(&mut home);
        home.work_for(Work::Alone);
        drop(home);
        self.release_here(tx, part);
        value
    }

    fn call<R: Send + 'static>(
        &self,
        core: CoreId,
        run: impl FnOnce(&mut Home) -> R + Send + 'static,
    ) -> Pending {
        let pending = self.open_ticket(AwaitedEvent::Work);
        let run: Run = Box::new(move |home| Box::new(run(home)));
        let (from, ticket) = (self.0.core, pending.ticket);
        let running = self.0.running.get();
        let (work, author) = (self.work_of(running), self.author_of(running));
        self.post(core, Message::Call { from, ticket, work, author, run });
        pending
    }

    fn start<R, F, T>(&self, core: CoreId, start: F) -> Pending
    where
        R: Send + 'static,
        F: FnOnce(Tx) -> T + Send + 'static,
        T: Future<Output = R> + 'static,
    {
        self.start_for(self.work_of(self.0.running.get()), core, start)
    }

    /// Starts a task on another core. Its changes belong to this task or transaction.
    fn start_for<R, F, T>(&self, work: Work, core: CoreId, start: F) -> Pending
    where
        R: Send + 'static,
        F: FnOnce(Tx) -> T + Send + 'static,
        T: Future<Output = R> + 'static,
    {
        let pending = self.open_ticket(AwaitedEvent::Work);
        let start: Start =
            Box::new(move |tx| Box::pin(async move { Box::new(start(tx).await) as Value }));
        let (from, ticket) = (self.0.core, pending.ticket);
        let author = self.author_of(self.0.running.get());
        self.post(core, Message::Task { from, ticket, work, author, scope: self.1.clone(), start });
        pending
    }

    fn post(&self, core: CoreId, message: Message) {
        assert!(core < self.0.cores && core != self.0.core, "core={core} of {}", self.0.cores);
        self.0.outbox.borrow_mut().push((core, message));
    }

    fn open_ticket(&self, asked: AwaitedEvent) -> Pending {
        let ticket = self.0.next_ticket.get();
        self.0.next_ticket.set(ticket + 1);
        let waiting = Ticket::Waiting(self.0.running.get(), asked);
        let old = self.0.tickets.borrow_mut().insert(ticket, waiting);
        assert!(old.is_none(), "ticket {ticket} is open");
        Pending { link: Rc::clone(&self.0), ticket, is_taken: false }
    }

    /// Records that work requested by the task of this ticket has changed data.
    fn note_change(&self, ticket: u64) {
        if let Some(Ticket::Waiting(task, _)) = self.0.tickets.borrow().get(&ticket) {
            self.0.changed.borrow_mut().insert(*task, ());
        }
    }

    /// True if the running task has changed data in an earlier step.
    fn has_changed(&self) -> bool {
        self.0.changed.borrow().contains_key(&self.0.running.get())
    }

    fn next_tx(&self) -> TxId {
        let number = self.0.next_tx.get();
        self.0.next_tx.set(number + 1);
        number * self.0.cores as u64 + self.0.core as u64
    }

    /// The transaction of a task's changes.
    fn work_of(&self, task: TaskId) -> Work {
        self.0.works.borrow().get(&task).copied().unwrap_or_default()
    }

    fn author_of(&self, task: TaskId) -> u64 {
        let authors = self.0.authors.borrow();
        if authors.is_empty() { 0 } else { authors.get(&task).copied().unwrap_or(0) }
    }

    fn write_as(&self, author: u64) {
        self.0.home.borrow_mut().shard.set_author(author);
    }

    /// Attributes the following work on this core to this task or transaction.
    fn work_for(&self, work: Work) {
        self.0.home.borrow_mut().work_for(work);
    }

    fn release_here(&self, tx: TxId, part: Option<Part>) {
        let mut home = self.0.home.borrow_mut();
        home.compare_part();
        home.shard.forget(tx);
        if let Some(part) = part {
            home.shard.end_part(part);
        }
        let Home { locks, waited, .. } = &mut *home;
        let touched = locks.touched(tx, waited);
        if !touched.is_empty() {
            drop(home);
            return self.hand_over(tx, touched);
        }
        let granted = home.locks.release(tx);
        drop(home);
        self.notify(granted, true);
    }

    fn withdraw_here(&self, tx: TxId) {
        let (waited, granted) = self.0.home.borrow_mut().locks.withdraw(tx);
        self.notify(waited, false); // The reply closes the ticket.
        self.notify(granted, true);
    }

    fn narrow_here(&self, tx: TxId, kept: Option<(u64, Access)>) {
        let mut home = self.0.home.borrow_mut();
        home.compare_part();
        let granted = match kept {
            Some((key, access)) => home.locks.narrow(tx, key, access),
            None => home.locks.empty(tx),
        };
        drop(home);
        self.notify(granted, true);
    }

    fn notify(&self, waiters: impl IntoIterator<Item = (CoreId, u64)>, granted: bool) {
        for (core, ticket) in waiters {
            if core == self.0.core {
                self.complete(ticket, Box::new(granted));
            } else {
                self.answer_lock(core, ticket, granted);
            }
        }
    }
}

/// Asserts one claim a core: two claims of one transaction would be two locks, of which one would
/// never be released.
fn assert_one_a_core(claims: &[(CoreId, Claim)]) {
    let is_sorted = claims.windows(2).all(|two| two[0].0 < two[1].0);
    assert!(is_sorted, "claims are for one core each, in ascending order");
}

fn downcast<R: 'static>(value: Value) -> R {
    *value.downcast().expect("a ticket is completed by what was asked of it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::preempt::Countdown;

    /// Delivers messages and polls tasks until nothing is left to do. Returns the number of
    /// messages.
    fn settle(cores: &[Tx]) -> usize {
        let (mut carried, mut mail) = (0, Vec::new());
        loop {
            let before = carried;
            let mut ran = false;
            for tx in cores {
                ran |= tx.run_one();
                tx.drain_outbox(&mut mail);
                for (to, message) in mail.drain(..) {
                    cores[to].deliver(message);
                    carried += 1;
                }
            }
            if !ran && carried == before {
                return carried;
            }
        }
    }

    #[test] // The results come in order.
    fn sliced_work_on_several_cores_takes_one_hop_each() {
        let core = |id| Tx::new(id, 3, Shard::new(1, 1), Rc::new(Countdown::new(0)));
        let cores = [core(0), core(1), core(2)];
        let (done, result) = (Rc::new(Cell::new(false)), Rc::new(RefCell::new(Vec::new())));
        let (tx, flag, into) = (cores[1].clone(), Rc::clone(&done), Rc::clone(&result));
        cores[1].spawn(async move {
            let work = |core: CoreId| {
                async move |tx: Tx| {
                    for _ in 0..100 {
                        tx.home().shard.stats.hits += 1;
                        tx.pause().await;
                    }
                    (core, tx.core())
                }
            };
            *into.borrow_mut() = tx.drive_each([2, 1, 0], work).await;
            flag.set(true);
        });
        assert_eq!(settle(&cores), 4, "there and back, of two cores");
        assert!(done.get());
        assert_eq!(*result.borrow(), [(2, 2), (1, 1), (0, 0)]);
        assert!(cores.iter().all(|tx| tx.home().shard.stats.hits == 100 && tx.tasks_len() == 0));
    }
}

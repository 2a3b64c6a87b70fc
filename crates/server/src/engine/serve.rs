//! From a request to its reply: admission, the way to run it, and the order of replies.
//!
//! The functions on the way of every request are `inline(always)`: as separate functions they spent
//! 5 % of a GET's instructions on passing the same arguments.

use super::conn::{AWAY_AT_ONCE, Conn, Lane, ReplyMode};
use super::core::Core;
use super::entry::{Entry, Runner, Scripted, ServerCall, ServerFuture, SessionCx};
use super::owed::Owed;
use super::point::{Begun, Owner, Ran, View, Work};
use super::presence::Presence;
use super::pubsub::Published;
use super::slices::{Cause, named};
use super::state::pubsub::name::{Message, Name, Text, home};
use super::tracking::served::end_tracked;
use super::transaction::queued::Verb;
use super::unit::admit::{State, flags_in};
use super::unit::settle::Caller;
use super::unit::steps::answer_of;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Answer, Args, Call, Flags, Flow, Job, Patience, Refusal, Stream};
use darter_resp::{self as resp, Output, Parsed, Reply, Request};
use darter_runtime::net::Token;
use darter_script::Flags as ScriptFlags;
use darter_tx::{Access, Claim, CoreId, Home, Locked, lock_key};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

impl Core {
    /// Serves the requests of a connection until its input, its credit or the slice is used up.
    pub(super) fn serve(self: &Rc<Self>, token: Token) {
        let Some(mut conn) = self.clients.take(token) else { return };
        conn.lane.queued = false;
        if self.leaves(&mut conn) {
            self.mark_dirty(&mut conn.lane); // The connection may have been killed.
            return self.clients.put(conn);
        }
        self.parse_and_run(&mut conn);
        self.check_query(&mut conn);
        self.send_batches(&mut conn.lane);
        self.mark_streaming(&mut conn.lane);
        self.mark_dirty(&mut conn.lane);
        self.adjust_receiving(&mut conn);
        self.clients.put(conn);
    }

    fn parse_and_run(self: &Rc<Self>, conn: &mut Conn) {
        /// Arguments of one request parsed between two reads of the clock: about 25 us.
        const PARSED_AT_ONCE: usize = 1_024;
        self.meter.blame_receiving();
        let Conn { parser, lane } = conn;
        self.run_held(lane);
        while lane.may_parse() {
            if self.slice.is_over(self.meter.now_ns()) || lane.away_now >= AWAY_AT_ONCE {
                self.mark_ready(lane);
                return;
            }
            if parser.parse_ahead() > 1 {
                let db = lane.session.db;
                self.prefetch(parser.lookahead().map(|request| (request, db)));
            }
            match parser.next_portion(PARSED_AT_ONCE) {
                Ok(Parsed::Request(args)) => {
                    let is_owned = args.is_owned();
                    self.dispatch(lane, args);
                    end_tracked(self, lane, args);
                    if is_owned && !lane.awaits_task() {
                        parser.release_request(); // An idle client must not keep a long argument.
                    }
                }
                Ok(Parsed::Portion) => _ = self.read_clock(),
                Ok(Parsed::Empty) => {
                    // As in Redis, CLIENT REPLY SKIP counts this as the skipped command.
                    if lane.session.reply_mode == ReplyMode::SkipNext {
                        lane.session.reply_mode = ReplyMode::On;
                    }
                    self.read_clock();
                }
                Ok(Parsed::Wanting) => {
                    lane.wanting = true;
                    self.resume_receiving(lane); // The pending bytes are not a complete request.
                    if lane.eof && lane.is_settled() {
                        lane.session.close_after_reply = true;
                    }
                    return;
                }
                Err(error) => {
                    let line = error.line();
                    self.stats.borrow_mut().count_error(&line);
                    self.reply_in_turn(lane, |reply| reply.error(&line));
                    lane.session.close_after_reply = true;
                    return;
                }
            }
            let (authenticated, bulk_max) =
                (lane.session.authenticated, self.hot.borrow().bulk_max);
            parser.set_authenticated(authenticated);
            parser.set_bulk_max(bulk_max);
        }
    }

    fn run_held(self: &Rc<Self>, lane: &mut Lane) {
        if !lane.owed.is_empty() || lane.stream.is_some() {
            return;
        }
        if let Some(request) = lane.take_held() {
            let args = resp::Args::owned(&request);
            self.dispatch(lane, args);
            end_tracked(self, lane, args);
        }
    }

    /// Admits a request, and runs it.
    fn dispatch(self: &Rc<Self>, lane: &mut Lane, args: resp::Args<'_>) {
        if let ReplyMode::SkipNext = lane.session.reply_mode {
            lane.session.reply_mode = ReplyMode::Skip;
        }
        let found = self.table.resolve_likely(args, self.last_entry.get());
        let (entry, flags) = match found.and_then(|entry| self.admit(lane, entry, args)) {
            Ok(admitted) => admitted,
            Err(_) if is_http(args) => {
                tracing::warn!(peer = lane.session.peer.remote, "closed a client that sent HTTP");
                self.kill(lane); // Replies to earlier requests are dropped, too.
                return;
            }
            Err(refusal) => {
                let refusal = self.abort(lane, args, refusal);
                self.refuse(lane, args, &refusal);
                return;
            }
        };
        if self.is_paused(flags) {
            lane.hold(args.to_request());
            self.clients.pause(lane);
            return;
        }
        let may_wait = flags.has(Flags::WRITE) || self.pubsub.hears_misses.get();
        if may_wait && self.holds_writer(lane, entry, args) {
            return;
        }
        lane.session.active_ms = self.now_ms();
        if lane.is_queueing(entry) {
            lane.session.last_command = Some(entry.index);
            match self.enqueue(lane, entry, args) {
                Ok(()) => self.reply_in_turn(lane, |reply| reply.simple("QUEUED")),
                Err(refusal) => self.refuse(lane, args, &refusal),
            }
            return;
        }
        lane.session.last_command = Some(entry.index);
        self.last_entry.set(entry.index);
        self.run_by_shape(lane, entry, args);
    }

    /// Runs a request by the kind of its row, and shows it to the watchers.
    #[inline(always)]
    fn run_by_shape(self: &Rc<Self>, lane: &mut Lane, entry: &Entry, args: resp::Args<'_>) {
        let watched = self.watchers.borrow().are_any();
        if matches!(entry.run, Runner::Point(_)) && self.tx.cores() == 1 && !watched {
            // The fast path of nearly all requests on one core.
            self.run_in_turn(lane, entry, args);
            return;
        }
        let is_exec = matches!(entry.run, Runner::Transaction(Verb::Exec));
        if self.waits_for_script(lane, entry, args) {
            return;
        }
        if is_exec && !watched && self.exec_at_once(lane, entry, args) {
            return;
        }
        if let Runner::Script(script) = entry.run
            && !watched
            && self.script_at_once(lane, entry, script, args)
        {
            return;
        }
        if entry.row.waits.is_some() && self.may_wait(lane, entry, args, watched) {
            return;
        }
        let owner = match entry.run {
            Runner::Point(_) | Runner::Multi(Some(_), _) => self.owner_of(entry, args),
            Runner::Publish(_) => Owner::One(home(args.get(1), args.hash(1), self.tx.cores())),
            _ => Owner::None,
        };
        let is_task = match entry.run {
            Runner::Multi(here, _) => here.is_none() || !matches!(owner, Owner::One(_)),
            Runner::Task(_) | Runner::Script(_) => true,
            Runner::Transaction(verb) => lane.is_task(verb, args),
            _ => false,
        };
        let comes_after_all = match entry.run {
            Runner::Publish(_) => self.would_overtake(lane, &owner),
            Runner::Transaction(Verb::Watch) => true,
            _ => is_task,
        };
        if comes_after_all && !lane.is_settled() {
            lane.hold(args.to_request()); // Retried when no reply before it is pending.
            return;
        }
        // As in Redis, a session command is shown with its changed session (SELECT in its new
        // database), and EXEC after its commands.
        let is_session = matches!(entry.run, Runner::Session(_));
        if watched && !is_session && !(is_task && is_exec) {
            super::monitor::feed(self, &lane.session, entry, args);
        }
        match (entry.run, owner) {
            _ if is_task && is_exec => self.start_exec(lane, entry, args),
            _ if is_task => self.start_task(lane, entry, args),
            (Runner::Session(run), _) => {
                self.run_session(lane, entry, run, args);
                if watched {
                    super::monitor::feed(self, &lane.session, entry, args);
                }
            }
            (Runner::Transaction(verb), _) => {
                let begun = self.begun(entry, args);
                let result = self.run_verb(lane, verb, args);
                let caller = Caller::Served(&lane.session);
                self.settle(entry, begun, result.as_ref().err(), args, caller);
                self.reply_in_turn(lane, |reply| match result {
                    Ok(()) => reply.ok(),
                    Err(refusal) => reply.error(&refusal.text()),
                });
            }
            (Runner::Container, _) => {
                self.refuse(lane, args, &Refusal::Arity(entry.row.name.into()));
            }
            (_, Owner::One(core)) if core != self.id() => self.send_away(lane, entry, core, args),
            _ => self.run_in_turn(lane, entry, args),
        }
    }

    /// Whether a PUBLISH could overtake the client's last one, to a channel of another home that
    /// has not replied yet.
    fn would_overtake(&self, lane: &mut Lane, owner: &Owner) -> bool {
        let Owner::One(home) = *owner else { return false };
        if lane.published_at.is_some_and(|last| last != home) && !lane.is_settled() {
            return true;
        }
        lane.published_at = (home != self.id()).then_some(home);
        false
    }

    /// Runs a command that may have to wait. True if it waits, or runs elsewhere.
    #[cold]
    fn may_wait(
        self: &Rc<Self>,
        lane: &mut Lane,
        entry: &Entry,
        args: resp::Args<'_>,
        watched: bool,
    ) -> bool {
        let Some(Ok(wait)) = entry.row.waits.map(|read| read(Args::new(args, entry.first))) else {
            return false;
        };
        if wait.patience == Patience::None {
            return false;
        }
        // A call that the core of its keys does not take is held, and would be shown to watchers
        // twice.
        if !lane.is_settled() && (watched || !self.may_follow(lane, entry, args)) {
            lane.hold(args.to_request()); // Retried when no reply before it is pending.
            return true;
        }
        let waits = self.call_or_wait(lane, entry, args, wait);
        if waits && watched {
            super::monitor::feed(self, &lane.session, entry, args);
        }
        waits
    }

    /// Admits a request. Returns its entry and flags.
    fn admit<'e>(
        &self,
        lane: &Lane,
        entry: &'e Entry,
        args: resp::Args<'_>,
    ) -> Result<(&'e Entry, Flags), Refusal> {
        let flags = flags_in(lane, entry, self.own_flags(entry, args));
        let hot = self.hot.borrow();
        let state = State { hot: &hot, shared: &self.admin.shared };
        state.admit(lane, entry, flags, args).map(|()| (entry, flags))
    }

    /// The flags of a request on any core. The flags that a script declares count.
    pub(super) fn own_flags(&self, entry: &Entry, args: resp::Args<'_>) -> Flags {
        match entry.run {
            Runner::Script(script) if entry.row.accepts(args.len()) => {
                script_flags(self, entry.row.flags, script, args)
            }
            _ => entry.row.flags,
        }
    }

    /// True if `maxmemory` is reached.
    pub(super) fn is_full(&self) -> bool {
        State { hot: &self.hot.borrow(), shared: &self.admin.shared }.is_full()
    }

    pub(super) fn is_paused(&self, flags: Flags) -> bool {
        let state = State { hot: &self.hot.borrow(), shared: &self.admin.shared };
        state.is_paused(flags, self.now_ms())
    }

    pub(super) fn owner_of(&self, entry: &Entry, args: resp::Args<'_>) -> Owner {
        let mut home = Owner::None;
        let mut count = 0;
        for at in entry.row.keys.positions(args) {
            count += 1;
            if count > ENTRIES_AT_ONCE {
                return Owner::Many;
            }
            let core = args.owner(at, self.tx.cores());
            match home {
                Owner::One(other) if other != core => return Owner::Many,
                _ => home = Owner::One(core),
            }
        }
        // A malformed request without keys is refused by its function, on any core.
        match home {
            Owner::None if !entry.row.keys.0.is_empty() => Owner::One(self.id()),
            home => home,
        }
    }

    fn refuse(&self, lane: &mut Lane, args: resp::Args<'_>, refusal: &Refusal) {
        let line = refusal.text();
        {
            let mut stats = self.stats.borrow_mut();
            stats.count_error(&line);
            match self.table.resolve(args) {
                Ok(entry) => stats.by_command[entry.index].rejected += 1,
                Err(_) => self.admin.shared.absent.asked_for(args.head(0)),
            }
        }
        self.reply_in_turn(lane, |reply| reply.error(&line));
    }

    /// Encodes a reply after all pending ones.
    fn reply_in_turn(&self, lane: &mut Lane, write: impl FnOnce(&mut Reply<'_>)) {
        let resp3 = lane.session.resp3;
        if lane.owed.is_empty() && lane.stream.is_none() && lane.session.reply_mode == ReplyMode::On
        {
            write(&mut Reply::new(&mut lane.out, resp3));
            return;
        }
        let mut out = Output::with_buffer(self.admin.take_buffer());
        write(&mut Reply::new(&mut out, resp3));
        if lane.session.reply_mode != ReplyMode::On {
            return self.owe(lane, out, None);
        }
        match out.take_flat(Vec::new()) {
            Some(flat) => {
                lane.owe_flat(&flat);
                self.admin.keep_buffer(flat);
            }
            None => lane.owe(out, None),
        }
    }

    /// Appends a reply after all pending ones, unless the client has replies off.
    pub(super) fn owe(&self, lane: &mut Lane, out: Output, stream: Option<Box<dyn Stream>>) {
        if lane.session.reply_mode != ReplyMode::On {
            if lane.session.reply_mode == ReplyMode::Skip {
                lane.session.reply_mode = ReplyMode::On;
            }
            return;
        }
        lane.owe(out, stream);
    }

    fn run_session(
        self: &Rc<Self>,
        lane: &mut Lane,
        entry: &Entry,
        run: fn(&mut SessionCx<'_>, Args<'_>) -> Result<(), Refusal>,
        args: resp::Args<'_>,
    ) {
        let mut out = Output::default();
        let resp3 = lane.session.resp3;
        let begun = self.begun(entry, args);
        let reply = Reply::new(&mut out, resp3);
        let mut cx = SessionCx { core: self, session: &mut lane.session, reply };
        let result = run(&mut cx, Args::new(args, entry.first));
        let caller = Caller::Served(&lane.session);
        self.settle(entry, begun, result.as_ref().err(), args, caller);
        if let Err(refusal) = result {
            out = Output::default();
            Reply::new(&mut out, resp3).error(&refusal.text());
        }
        if entry.row.flags.has(Flags::AT_ONCE) {
            self.discard(lane); // QUIT, RESET.
        }
        // Encoded before: the reply of HELLO or CLIENT REPLY depends on the changed session.
        self.owe(lane, out, None);
    }

    #[inline(always)]
    fn run_in_turn(self: &Rc<Self>, lane: &mut Lane, entry: &Entry, args: resp::Args<'_>) {
        lane.trail.stays();
        let in_turn = lane.owed.is_empty()
            && lane.stream.is_none()
            && lane.session.reply_mode == ReplyMode::On;
        if !in_turn {
            self.run_out_of_turn(lane, entry, args);
            return;
        }
        let view = lane.session.view();
        let mut reply = Reply::new(&mut lane.out, lane.session.resp3);
        match self.call_unless_locked(entry, args, view, &mut reply, Caller::Served(&lane.session))
        {
            Ran::Done(None) => {}
            Ran::Done(stream) => lane.stream = stream,
            Ran::Waits(work) => self.await_work(lane, entry, args, work),
        }
    }

    /// [`Core::run_in_turn`] after pending replies, or for a client with replies off.
    #[inline(never)]
    fn run_out_of_turn(self: &Rc<Self>, lane: &mut Lane, entry: &Entry, args: resp::Args<'_>) {
        let mut out = Output::with_buffer(self.admin.take_buffer());
        let view = lane.session.view();
        let mut reply = Reply::new(&mut out, lane.session.resp3);
        match self.call_unless_locked(entry, args, view, &mut reply, Caller::Served(&lane.session))
        {
            Ran::Done(None) if lane.session.reply_mode == ReplyMode::On => {
                match out.take_flat(Vec::new()) {
                    Some(flat) => {
                        lane.owe_flat(&flat);
                        self.admin.keep_buffer(flat);
                    }
                    None => lane.owe(out, None),
                }
            }
            Ran::Done(stream) => self.owe(lane, out, stream),
            Ran::Waits(work) => self.await_work(lane, entry, args, work),
        }
    }

    /// Starts the task that completes a point command of this connection.
    #[cold]
    fn await_work(
        self: &Rc<Self>,
        lane: &mut Lane,
        entry: &Entry,
        args: resp::Args<'_>,
        work: Work,
    ) {
        lane.await_task();
        let (core, client, index) = (Rc::clone(self), lane.session.handle, entry.index);
        let (view, resp3) = (lane.session.view(), lane.session.resp3);
        let (request, caller) = (args.to_request(), Caller::Client(self.id(), client));
        let presence = Presence::new(lane.gone());
        let seen = Rc::clone(&presence);
        let task = self.tx.spawn(async move {
            let entry = &core.table.entries()[index];
            let answer = core.finish_waiting(index, request, view, resp3, work, caller);
            match core.while_wanted(!entry.row.is_write(), &seen, answer).await {
                Ok(answer) => core.finish(client, answer),
                Err(stopped) => core.stopped(client, entry, stopped),
            }
        });
        self.tx.note_author(task, view.tracker.author());
        self.await_answer(lane, task, presence);
    }

    /// Runs a point command on this core's shard, if its keys are free.
    #[inline(always)]
    pub(super) fn call_unless_locked(
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
        self.settle_changes(written.map(|at| lock_key(view.db, args.hash(at))));
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

    /// Runs PUBLISH at the home of its channel.
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

    /// Begins the job of a point command that takes more than a slice, and locks its key. The
    /// command is settled when the job ends.
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
            // The command runs again, and counts then, when its keys are locked.
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
    pub(super) async fn finish_waiting(
        self: &Rc<Self>,
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
                    // With a shared lock, readers could see an element that a waiting client is
                    // about to get.
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

    /// Starts the task of a command. No reply before it is pending.
    fn start_task(self: &Rc<Self>, lane: &mut Lane, entry: &Entry, args: resp::Args<'_>) {
        lane.await_task();
        lane.trail.stays();
        let (core, client, index) = (Rc::clone(self), lane.session.handle, entry.index);
        let (first, request) = (entry.first, args.to_request());
        let tracker = lane.session.view().tracker;
        let presence = Presence::new(lane.gone());
        if let Runner::Script(_) = entry.run {
            super::monitor::feed_script(self, &lane.session, entry, args);
        }
        let future = match entry.run {
            Runner::Multi(_, anywhere) => anywhere(Call {
                tx: self.tx.clone(),
                request: Arc::clone(&request),
                db: lane.session.db,
                no_touch: lane.session.no_touch,
                resp3: lane.session.resp3,
                is_script: false,
                first,
            }),
            Runner::Task(run) | Runner::Script(Scripted { run, .. }) => run(ServerCall {
                core: Rc::clone(self),
                session: lane.session.clone(),
                request: Arc::clone(&request),
                first,
                within: None,
                presence: Rc::clone(&presence),
            }),
            Runner::Transaction(_) => {
                let of = (lane.session.db, lane.session.resp3);
                self.watch_many(client, of, Arc::clone(&request))
            }
            _ => unreachable!("only tasks come here"),
        };
        let (row, seen) = (index, Rc::clone(&presence));
        let task = self.tx.spawn(async move {
            let begun = core.begun_alone();
            if !tracker.is_none() {
                core.remember_anywhere(&core.table.entries()[row], &request, tracker).await;
            }
            let answering = Answering { client, row, request, presence: seen, begun };
            core.answer(answering, future).await;
        });
        self.tx.note_author(task, tracker.author());
        if !matches!(entry.run, Runner::Transaction(_)) {
            self.await_answer(lane, task, presence);
        }
    }

    /// Runs the task of a connection's command, counts it, and sends its answer. The task may stop
    /// early if the client is gone.
    pub(super) async fn answer(self: Rc<Self>, of: Answering, work: ServerFuture) {
        let Answering { client, row, request, presence, begun } = of;
        let entry = &self.table.entries()[row];
        let work = blaming(&self, row, work);
        let answer = match entry.run {
            Runner::Multi(..) => self.while_wanted(!entry.row.is_write(), &presence, work).await,
            Runner::Script(_) => {
                let is_read = entry.row.flags.has(Flags::READONLY);
                self.while_wanted(is_read, &presence, work).await
            }
            _ => Ok(work.await), // Administration: SAVE continues even if its client is gone.
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(stopped) => return self.stopped(client, entry, stopped),
        };
        let caller = Caller::Client(self.id(), client);
        let args = resp::Args::owned(&request);
        self.settle(entry, begun, answer.as_ref().err(), args, caller);
        self.finish(client, answer);
    }

    /// Sends a task's answer to its connection.
    pub(super) fn finish(&self, client: u64, answer: Result<Answer, Refusal>) {
        let Some(token) = self.clients.token_of(client) else { return };
        self.with_conn(token, |conn| {
            conn.parser.release_request();
            let lane = &mut conn.lane;
            lane.task_done();
            let (out, stream) = self.encode_answer(answer, lane.session.resp3);
            self.owe(lane, out, stream);
            lane.send_late();
            if conn.parser.pending_bytes() > 0 {
                self.cork(lane);
            }
            self.after_settling(lane);
        });
    }

    pub(super) fn encode_answer(
        &self,
        answer: Result<Answer, Refusal>,
        resp3: bool,
    ) -> (Output, Option<Box<dyn Stream>>) {
        match answer {
            Ok(Answer::Done(out)) => (out, None),
            Ok(Answer::Stream(out, stream)) => (out, Some(stream)),
            Err(refusal) => {
                let mut out = Output::default();
                Reply::new(&mut out, resp3).error(&refusal.text());
                (out, None)
            }
        }
    }

    /// Continues a connection after its replies have advanced. It has waited for the server, so it
    /// was not idle.
    pub(super) fn after_settling(&self, lane: &mut Lane) {
        lane.session.active_ms = self.now_ms();
        lane.settle();
        self.mark_streaming(lane);
        self.mark_dirty(lane);
        self.mark_ready(lane);
    }

    pub(super) fn send_away(
        &self,
        lane: &mut Lane,
        entry: &Entry,
        core: CoreId,
        args: resp::Args<'_>,
    ) {
        let (from, client, resp3) = (self.id(), lane.session.handle, lane.session.resp3);
        lane.trail.goes(core, self.now_ms());
        let slot = &mut lane.batches[core];
        if let Some(old) = slot.take_if(|batch| batch.is_resp3() != resp3) {
            // HELLO or RESET has changed the protocol.
            self.post(core, super::core::Mail::Batch(old));
        }
        let fresh = || self.batches.borrow_mut().fresh(from, client, resp3);
        let batch = slot.get_or_insert_with(fresh);
        let bytes = batch.push(entry.index, lane.session.view(), args);
        lane.away_bytes += bytes;
        lane.away_now += bytes;
        let owed = match lane.session.reply_mode {
            ReplyMode::On => Owed::Remote(core),
            ReplyMode::Skip => {
                lane.session.reply_mode = ReplyMode::On;
                Owed::Silent(core)
            }
            ReplyMode::Off | ReplyMode::SkipNext => Owed::Silent(core),
        };
        lane.owed.push_back(owed);
    }

    fn send_batches(&self, lane: &mut Lane) {
        if self.tx.cores() == 1 {
            return;
        }
        lane.away_now = 0;
        for (core, batch) in lane.batches.iter_mut().enumerate() {
            if let Some(batch) = batch.take() {
                self.post(core, super::core::Mail::Batch(batch));
            }
        }
    }
}

/// A connection's command that runs as a task.
pub(super) struct Answering {
    pub(super) client: u64,
    pub(super) row: usize,
    pub(super) request: Arc<Request>,
    pub(super) presence: Rc<Presence>,
    pub(super) begun: Begun,
}

/// True if a point command must wait for the holder of its keys.
#[inline(always)]
pub(super) fn is_blocked(home: &Home, entry: &Entry, args: resp::Args<'_>, db: usize) -> bool {
    !home.locks.is_free() && is_held(home, entry, args, db)
}

/// True if a key of a point command is locked against it.
#[inline(never)]
fn is_held(home: &Home, entry: &Entry, args: resp::Args<'_>, db: usize) -> bool {
    let write = entry.row.is_write();
    let mut keys = entry.row.keys.positions(args);
    keys.any(|at| home.locks.blocks_point(lock_key(db, args.hash(at)), write))
}

/// The flags of a script call: those that the script declares replace those of its command.
fn script_flags(core: &Core, own: Flags, script: Scripted, args: resp::Args<'_>) -> Flags {
    let Some(declared) = (script.declared)(core, args) else { return own };
    let own = own.without(Flags::STALE | Flags::DENYOOM | Flags::WRITE | Flags::MAY_REPLICATE);
    let writes = !declared.has(ScriptFlags::NO_WRITES);
    let with = |is: bool, flag| if is { flag } else { Flags::NONE };
    own | with(writes, Flags::WRITE)
        | with(writes && !declared.has(ScriptFlags::ALLOW_OOM), Flags::DENYOOM)
        | with(declared.has(ScriptFlags::ALLOW_STALE), Flags::STALE)
}

/// True for HTTP, from a browser that a page tricks into sending commands: nothing of it may run.
fn is_http(args: resp::Args<'_>) -> bool {
    let name = args.head(0);
    name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"Host:")
}

/// Runs a task of command `row`, so that the slices of its steps, and of its streamed reply, are
/// attributed to the command.
pub(super) async fn blaming(
    core: &Core,
    row: usize,
    mut task: Pin<Box<dyn Future<Output = Result<Answer, Refusal>>>>,
) -> Result<Answer, Refusal> {
    let answer = poll_fn(|cx| {
        core.meter.blame(Cause::Command(row));
        task.as_mut().poll(cx)
    });
    match answer.await? {
        Answer::Stream(out, stream) => Ok(Answer::Stream(out, named(row, stream))),
        done @ Answer::Done(_) => Ok(done),
    }
}

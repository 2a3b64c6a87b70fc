//! One command of a transaction, under locks that are held: how it runs on whatever core, and what it
//! sees of its session.

use super::super::account::Caller;
use super::super::conn::{Peer, ReplyMode, Session};
use super::super::core::Core;
use super::super::entry::{Entry, Runner, Scripted, ServerCall, SessionCx, SessionFn};
use super::super::monitor;
use super::super::point::{Owner, View};
use super::super::slices::{Cause, named};
use super::super::state::pubsub::Kind as Channels;
use super::super::state::pubsub::name::{Message, Name, Text};
use super::super::state::pubsub::outbox::Outbox;
use super::replies::{Part, Replies};
use darter_command::{Answer, Args, Call, Cx, Flow, MultiFn, PointFn, Refusal, Step};
use darter_resp::{self as resp, Output, Reply, Request};
use darter_tx::{CoreId, Tx};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// What the commands of a transaction see of their session. The connection may be gone.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub(super) view: View,
    pub(super) resp3: bool,
    pub(super) reply_mode: ReplyMode,
}

impl Seen {
    fn of(session: &Session) -> Self {
        let (view, resp3, reply_mode) = (session.view(), session.resp3, session.reply_mode);
        Self { view, resp3, reply_mode }
    }

    /// Whether a command's reply is sent. One that asks for silence has none.
    fn is_answered(self, before: Self) -> bool {
        match self.reply_mode {
            ReplyMode::On => true,
            ReplyMode::SkipNext => before.reply_mode == ReplyMode::SkipNext,
            ReplyMode::Off | ReplyMode::Skip => false,
        }
    }
}

/// A session whose commands run within a transaction.
pub(crate) struct Inner {
    core: Rc<Core>,
    client: u64,
    seen: Cell<Seen>,
    /// That of a script, which is not its client's.
    script: Option<RefCell<Session>>,
    /// What a script has published that may be undone.
    outbox: Option<RefCell<Outbox>>,
}

impl Inner {
    /// Of a connection of this core.
    pub(super) fn of(core: &Rc<Core>, session: &Session) -> Self {
        let (core, client) = (Rc::clone(core), session.handle);
        Self { core, client, seen: Cell::new(Seen::of(session)), script: None, outbox: None }
    }

    /// Of a script that a connection of this core calls. If it may be undone, what it publishes is
    /// kept in an outbox.
    pub(crate) fn of_script(core: &Rc<Core>, caller: &Session, outbox: Option<Outbox>) -> Self {
        let peer = Peer { remote: "lua".into(), ..Peer::default() }; // As MONITOR shows it.
        let &Session { id, handle, db, no_touch, tracking, .. } = caller;
        let session = Session {
            id,
            handle,
            db,
            no_touch,
            tracking,
            authenticated: true,
            peer,
            ..Session::default()
        };
        let (core, seen) = (Rc::clone(core), Cell::new(Seen::of(&session)));
        let (script, outbox) = (Some(RefCell::new(session)), outbox.map(RefCell::new));
        Self { core, client: handle, seen, script, outbox }
    }

    /// The database in which the next command works.
    pub(crate) fn db(&self) -> usize {
        self.seen.get().view.db
    }

    /// The next command of a script replies in this protocol.
    pub(crate) fn set_resp3(&self, resp3: bool) {
        self.seen.set(Seen { resp3, ..self.seen.get() });
    }

    /// What the next command sees.
    pub(super) fn seen(&self) -> Seen {
        self.seen.get()
    }

    /// Runs a command, counts it, and shows it to those who watch all commands. Returns the refusal,
    /// if its reply is one.
    pub(crate) async fn run(
        &self,
        index: usize,
        args: resp::Args<'_>,
        tx: &Tx,
        replies: &mut Replies,
    ) -> Option<Refusal> {
        let (core, before) = (&self.core, self.seen.get());
        let entry = &core.table.entries()[index];
        if entry.row.is_write() {
            core.events_caught_up().await;
        }
        core.meter.blame(Cause::Command(index));
        let begun = core.clock.monotonic_ns();
        if before.view.tracker.reader().is_some() {
            core.remember_anywhere(entry, &args.to_request(), before.view.tracker).await;
        }
        let mut unwanted = Replies::default();
        let into = if before.is_answered(before) { &mut *replies } else { &mut unwanted };
        let result = match (entry.run, entry.point()) {
            (Runner::Session(run), _) => {
                let result = self.run_session(entry, run, args);
                let into =
                    if self.seen.get().is_answered(before) { replies } else { &mut unwanted };
                self.encode(result, into)
            }
            (Runner::Task(run) | Runner::Script(Scripted { run, .. }), _) => {
                let call = self.server_call(entry, args, tx);
                if let Runner::Script(_) = entry.run {
                    monitor::feed_script(core, &call.session, entry, args);
                }
                let result = run(call).await;
                if self.script.is_none() {
                    let see = |session: &Session| self.seen.set(Seen::of(session));
                    core.with_client(self.client, |conn| see(&conn.lane.session));
                }
                self.note_effect();
                self.encode(result, into)
            }
            (Runner::Point(_) | Runner::Multi(..), Some(run)) => match core.owner_of(entry, args) {
                Owner::Many if let Runner::Multi(_, anywhere) = entry.run => {
                    self.encode(self.run_multi(entry, anywhere, args, tx).await, into)
                }
                Owner::One(owner) if owner != core.id() => {
                    let call = PointCall::new(entry, before).expect("it is a point command");
                    self.encode(call.run_on(owner, index, args.to_request(), tx).await, into)
                }
                _ => self.run_here(entry, run, args, into).await,
            },
            (Runner::Publish(kind), _) => self.encode(self.publish(kind, args).await, into),
            (Runner::Multi(_, anywhere), _) => {
                self.encode(self.run_multi(entry, anywhere, args, tx).await, into)
            }
            // UNWATCH: what EXEC began with is watched no more.
            (Runner::Transaction(_) | Runner::Container | Runner::Point(_), _) => {
                Reply::new(&mut into.out, before.resp3).ok();
                None
            }
        };
        let ns = core.clock.monotonic_ns().saturating_sub(begun);
        self.note(entry, args, ns, result.as_ref());
        result
    }

    /// A command has run on another core.
    pub(super) fn take(
        &self,
        index: usize,
        args: resp::Args<'_>,
        called: Called,
        ns: u64,
        replies: &mut Replies,
    ) {
        let result = self.encode(called.answer(index), replies);
        self.note(&self.core.table.entries()[index], args, ns, result.as_ref());
    }

    /// Counts a command that has run, and shows it to those who watch all commands.
    fn note(&self, entry: &Entry, args: resp::Args<'_>, ns: u64, refusal: Option<&Refusal>) {
        let core = &self.core;
        core.count_inner(entry, ns, refusal);
        if core.is_slow(entry, ns) {
            let caller = match self.script {
                Some(_) => Caller::Script,
                None => Caller::Client(core.core_of_client(self.client), self.client),
            };
            core.slow_command(ns, entry, args, caller);
        }
        self.show(entry, args);
    }

    /// A point command whose keys are all on this core.
    async fn run_here(
        &self,
        entry: &Entry,
        run: PointFn,
        args: resp::Args<'_>,
        into: &mut Replies,
    ) -> Option<Refusal> {
        let (core, Seen { view, resp3, .. }) = (&self.core, self.seen.get());
        let mark = into.out.mark();
        let call = |cx: &mut Cx<'_>| run(cx, Args::new(args, entry.first));
        let reply = &mut Reply::new(&mut into.out, resp3);
        let result = core.with_cx(&mut core.tx.home(), view, reply, call);
        let result = match result {
            Ok(Flow::Done) => {
                into.settle();
                return None;
            }
            Ok(Flow::Stream(stream)) => {
                into.stream(named(entry.index, stream));
                return None;
            }
            Ok(Flow::Job(job)) => {
                into.out.truncate(mark);
                core.drive_job(entry.index, job, view, resp3).await
            }
            Err(refusal) => {
                into.out.truncate(mark);
                Err(refusal)
            }
        };
        self.encode(result, into)
    }

    /// A command whose keys are on several cores.
    async fn run_multi(
        &self,
        entry: &Entry,
        anywhere: MultiFn,
        args: resp::Args<'_>,
        tx: &Tx,
    ) -> Result<Answer, Refusal> {
        let Seen { view: View { db, no_touch, .. }, resp3, .. } = self.seen.get();
        let (tx, request) = (tx.clone(), args.to_request());
        let (is_script, first) = (self.script.is_some(), entry.first);
        match anywhere(Call { tx, request, db, no_touch, resp3, is_script, first }).await? {
            Answer::Stream(out, stream) => Ok(Answer::Stream(out, named(entry.index, stream))),
            done @ Answer::Done(_) => Ok(done),
        }
    }

    /// Publishes a message, or keeps it until the script has ended.
    async fn publish(&self, kind: Channels, args: resp::Args<'_>) -> Result<Answer, Refusal> {
        let core = &self.core;
        let message = Message::new(kind, Name::of(args, 1), Text::of(args, 2));
        let count = match &self.outbox {
            None => core.publish_anywhere(message).await,
            Some(outbox) => {
                let count = core.count_receivers(kind, message.channel.clone()).await;
                let owed_max = core.hot.borrow().client_limits.pubsub.hard;
                if count > 0 && outbox.borrow_mut().keep(message, owed_max).is_err() {
                    return Err(Refusal::line("ERR not enough memory for another message"));
                }
                count
            }
        };
        if self.outbox.is_none() {
            self.note_effect();
        }
        let mut out = Output::default();
        Reply::new(&mut out, self.seen.get().resp3).count(count);
        Ok(Answer::Done(out))
    }

    /// What was kept.
    pub(crate) fn into_outbox(self) -> Option<Outbox> {
        self.outbox.map(RefCell::into_inner)
    }

    /// A command of the connection itself. Where that is gone, what follows sees what it has changed
    /// nevertheless.
    fn run_session(
        &self,
        entry: &Entry,
        run: SessionFn,
        args: resp::Args<'_>,
    ) -> Result<Answer, Refusal> {
        let core = &self.core;
        let mut out = Output::default();
        let mut run_in = |session: &mut Session| {
            let reply = Reply::new(&mut out, session.resp3);
            let result = run(&mut SessionCx { core, session, reply }, Args::new(args, entry.first));
            self.seen.set(Seen::of(session));
            result
        };
        if let Some(session) = &self.script {
            let mut session = session.borrow_mut();
            session.resp3 = self.seen.get().resp3;
            let result = run_in(&mut session);
            return result.map(|()| Answer::Done(out));
        }
        let token = core.clients.token_of(self.client);
        let result = match token.and_then(|token| core.clients.take(token)) {
            Some(mut conn) => {
                let result = run_in(&mut conn.lane.session);
                core.clients.put(conn);
                result
            }
            None => run_in(&mut self.session_of_gone()),
        };
        self.note_effect();
        result.map(|()| Answer::Done(out))
    }

    fn server_call(&self, entry: &Entry, args: resp::Args<'_>, tx: &Tx) -> ServerCall {
        let session = self.session().unwrap_or_else(|| self.session_of_gone());
        let (core, request) = (Rc::clone(&self.core), args.to_request());
        let (first, within, presence) = (entry.first, Some(tx.clone()), Rc::default());
        ServerCall { core, session, request, first, within, presence }
    }

    /// A copy of the session, if its connection is still there.
    fn session(&self) -> Option<Session> {
        let Some(session) = &self.script else {
            return self.core.with_client(self.client, |conn| conn.lane.session.clone());
        };
        Some(Session { resp3: self.seen.get().resp3, ..session.borrow().clone() })
    }

    fn session_of_gone(&self) -> Session {
        let Seen { view: View { db, no_touch, .. }, resp3, reply_mode } = self.seen.get();
        let authenticated = true;
        let handle = self.client;
        Session { handle, db, no_touch, resp3, reply_mode, authenticated, ..Session::default() }
    }

    /// What has happened is no change of data, and yet done: the rest is, too.
    fn note_effect(&self) {
        self.core.tx.note_effect();
    }

    /// Appends a reply. Returns the refusal, if it is one.
    fn encode(&self, result: Result<Answer, Refusal>, into: &mut Replies) -> Option<Refusal> {
        match result {
            Ok(Answer::Done(out)) => into.out.append(out),
            Ok(Answer::Stream(out, stream)) => {
                into.out.append(out);
                into.stream(stream);
            }
            Err(refusal) => {
                Reply::new(&mut into.out, self.seen.get().resp3).error(&refusal.text());
                into.settle();
                return Some(refusal);
            }
        }
        into.settle();
        None
    }

    /// Shows a command to those who watch all: after it ran, as Redis does.
    pub(super) fn show(&self, entry: &Entry, args: resp::Args<'_>) {
        if self.core.watchers.borrow().are_any()
            && let Some(session) = self.session()
        {
            monitor::feed(&self.core, &session, entry, args);
        }
    }
}

/// A point command for another core, where its keys are locked.
#[derive(Clone, Copy)]
pub(super) struct PointCall {
    run: PointFn,
    first: usize,
    view: View,
    resp3: bool,
}

/// What it came to.
pub(super) struct Called {
    result: Result<Part, Refusal>,
    /// How many steps its job took; none if it was no job.
    pub(super) steps: u64,
}

impl Called {
    /// The answer of a command of this row.
    pub(super) fn answer(self, row: usize) -> Result<Answer, Refusal> {
        let (out, stream) = self.result?;
        Ok(match stream {
            Some(stream) => Answer::Stream(out, named(row, stream)),
            None => Answer::Done(out),
        })
    }
}

impl PointCall {
    /// None for a command that is no such one.
    pub(super) fn new(entry: &Entry, seen: Seen) -> Option<Self> {
        let run = entry.point()?;
        Some(Self { run, first: entry.first, view: seen.view, resp3: seen.resp3 })
    }

    async fn run_on(
        self,
        core: CoreId,
        row: usize,
        request: Arc<Request>,
        tx: &Tx,
    ) -> Result<Answer, Refusal> {
        let mut request = Some(request);
        let start = |_| {
            let request = request.take().expect("one core");
            async move |tx: Tx| self.run(resp::Args::owned(&request), &tx).await
        };
        tx.drive_each([core], start).await.pop().expect("of one core").answer(row)
    }

    /// Runs it to its end, in slices.
    pub(super) async fn run(&self, args: resp::Args<'_>, tx: &Tx) -> Called {
        let (mut out, mut steps) = (Output::default(), 0);
        let run = |cx: &mut Cx<'_>| (self.run)(cx, Args::new(args, self.first));
        let mut flow = self.call(tx, &mut out, run);
        let result = loop {
            match flow {
                Err(refusal) => break Err(refusal),
                Ok(Flow::Done) => break Ok((out, None)),
                Ok(Flow::Stream(stream)) => break Ok((out, Some(stream))),
                Ok(Flow::Job(mut job)) => {
                    flow = loop {
                        tx.pause().await;
                        out = Output::default();
                        steps += 1;
                        match self.call(tx, &mut out, |cx| job.step(cx)) {
                            Ok(Step::Done(next)) => break Ok(next),
                            Ok(Step::More) => {}
                            Err(refusal) => break Err(refusal),
                        }
                    };
                }
            }
        };
        Called { result, steps }
    }

    fn call<R>(&self, tx: &Tx, out: &mut Output, act: impl FnOnce(&mut Cx<'_>) -> R) -> R {
        let mut home = tx.home();
        let (db, prng, stats) = home.shard.parts_for(self.view.db, self.view.no_touch);
        let (now, reply) = (db.now(), Reply::new(out, self.resp3));
        act(&mut Cx { now, db, reply, prng, stats, preempt: tx.preempt() })
    }
}

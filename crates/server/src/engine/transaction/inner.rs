//! Runs a single command of a transaction or script, on any core, while its locks are held.

use super::super::conn::{Peer, ReplyMode, Session};
use super::super::core::Core;
use super::super::entry::{Entry, Runner, Scripted, ServerCall, SessionCx, SessionFn};
use super::super::monitor;
use super::super::point::{Owner, View};
use super::super::slices::{Cause, named};
use super::super::state::pubsub::SubscriptionKind as Channels;
use super::super::state::pubsub::name::{Message, Name, Text};
use super::super::state::pubsub::outbox::Outbox;
use super::super::unit::place::owner_of;
use super::super::unit::settle::Caller;
use super::super::unit::steps::answer_of;
use super::replies::{Part, Replies};
use darter_command::{Answer, Args, Call, MultiFn, Refusal};
use darter_resp::{self as resp, Output, Reply};
use darter_tx::{CoreId, Tx};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The part of the session that the commands of a transaction see and change. The connection itself
/// may have gone.
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

    /// True if the reply of a command is sent. CLIENT REPLY OFF and SKIP have no reply.
    fn is_answered(self, before: Self) -> bool {
        match self.reply_mode {
            ReplyMode::On => true,
            ReplyMode::SkipNext => before.reply_mode == ReplyMode::SkipNext,
            ReplyMode::Off | ReplyMode::Skip => false,
        }
    }
}

/// The session under which the commands of a transaction or script run.
pub(crate) struct Inner {
    core: Rc<Core>,
    client: u64,
    seen: Cell<Seen>,
    /// The session of a script, which differs from that of its client.
    script: Option<RefCell<Session>>,
    /// The messages published by a script that can be undone.
    outbox: Option<RefCell<Outbox>>,
}

impl Inner {
    /// For the transaction of a connection of this core.
    pub(super) fn of(core: &Rc<Core>, session: &Session) -> Self {
        let (core, client) = (Rc::clone(core), session.handle);
        Self { core, client, seen: Cell::new(Seen::of(session)), script: None, outbox: None }
    }

    /// For a script that a connection of this core calls. If there is an outbox, the messages of
    /// the script are kept there until it has ended.
    pub(crate) fn of_script(core: &Rc<Core>, caller: &Session, outbox: Option<Outbox>) -> Self {
        // The address that MONITOR shows for commands of scripts.
        let peer = Peer { remote: "lua".into(), ..Peer::default() };
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

    /// The database in which the next command runs.
    pub(crate) fn db(&self) -> usize {
        self.seen.get().view.db
    }

    /// Sets the protocol for the reply of the next command.
    pub(crate) fn set_resp3(&self, resp3: bool) {
        self.seen.set(Seen { resp3, ..self.seen.get() });
    }

    /// The state of the session for the next command.
    pub(super) fn seen(&self) -> Seen {
        self.seen.get()
    }

    /// Runs a command, counts it, and shows it to MONITOR. If the reply is an error, returns it as
    /// well.
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
        let mut unwanted = Replies::default();
        let into = if before.is_answered(before) { &mut *replies } else { &mut unwanted };
        let owner = match owner_of(&core.tx, entry, args) {
            _ if entry.point().is_none() => None,
            Owner::None => Some(core.id()),
            Owner::One(owner) => Some(owner),
            Owner::Many => None,
        };
        if let Some(owner) = owner {
            let refusal = self.run_on(owner, entry, args, tx, into).await;
            self.show(entry, args);
            return refusal;
        }
        let begun = core.begun_alone();
        if before.view.tracker.reader().is_some() {
            core.remember_anywhere(entry, &args.to_request(), before.view.tracker).await;
        }
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
            (Runner::Publish(kind), _) => self.encode(self.publish(kind, args).await, into),
            (Runner::Multi(_, anywhere), _) => {
                self.encode(self.run_multi(entry, anywhere, args, tx).await, into)
            }
            // UNWATCH does nothing here, because EXEC has ended all watches.
            (Runner::Transaction(_) | Runner::Container | Runner::Point(_), _) => {
                Reply::new(&mut into.out, before.resp3).ok();
                None
            }
        };
        core.settle(entry, begun, result.as_ref(), args, self.caller());
        self.show(entry, args);
        result
    }

    /// Takes the reply of a command that another core has run and counted.
    pub(super) fn take(
        &self,
        index: usize,
        args: resp::Args<'_>,
        called: Called,
        replies: &mut Replies,
    ) {
        self.encode(called.map(|(out, rest)| answer_of(out, rest)), replies);
        self.show(&self.core.table.entries()[index], args);
    }

    /// The client for whom the commands are counted.
    pub(super) fn caller(&self) -> Caller<'static> {
        match self.script {
            Some(_) => Caller::Script,
            None => Caller::Client(self.core.core_of_client(self.client), self.client),
        }
    }

    /// Runs a point command whose keys are on one core.
    async fn run_on(
        &self,
        owner: CoreId,
        entry: &Entry,
        args: resp::Args<'_>,
        tx: &Tx,
        into: &mut Replies,
    ) -> Option<Refusal> {
        let (core, seen) = (&self.core, self.seen.get());
        let result = if owner == core.id() {
            let of = (seen.view, seen.resp3);
            match core.run_point(entry, args, of, &mut into.out, self.caller()).await {
                Ok(None) => {
                    into.settle();
                    return None;
                }
                Ok(Some(rest)) => {
                    into.stream(rest);
                    return None;
                }
                Err(refusal) => Err(refusal),
            }
        } else {
            let (call, request) = (PointCall::new(entry, seen, self.caller()), args.to_request());
            let mut start =
                Some(async move |tx: Tx| call.run(resp::Args::owned(&request), &tx).await);
            let start = |_| start.take().expect("one core");
            let called = tx.drive_each([owner], start).await.pop().expect("of one core");
            called.map(|(out, rest)| answer_of(out, rest))
        };
        self.encode(result, into)
    }

    /// Runs a command whose keys are on several cores.
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

    /// Publishes a message, or keeps it in the outbox.
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

    /// The messages that were kept.
    pub(crate) fn into_outbox(self) -> Option<Outbox> {
        self.outbox.map(RefCell::into_inner)
    }

    /// Runs a session command. Its changes of the session apply to later commands, even if the
    /// connection has gone.
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

    /// A copy of the session, if the connection still exists.
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

    /// Records an effect that does not change data, but after which the transaction must run to its
    /// end.
    fn note_effect(&self) {
        self.core.tx.note_effect();
    }

    /// Appends a reply. If it is an error, returns the error.
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

    /// Shows a command to MONITOR after it has run, as in Redis.
    pub(super) fn show(&self, entry: &Entry, args: resp::Args<'_>) {
        if self.core.watchers.borrow().are_any()
            && let Some(session) = self.session()
        {
            monitor::feed(&self.core, &session, entry, args);
        }
    }
}

/// A point command to run on another core, on which its keys are locked.
#[derive(Clone, Copy)]
pub(super) struct PointCall {
    row: usize,
    view: View,
    resp3: bool,
    caller: Caller<'static>,
}

/// The reply of a point command that has run on another core.
pub(super) type Called = Result<Part, Refusal>;

impl PointCall {
    pub(super) fn new(entry: &Entry, seen: Seen, caller: Caller<'static>) -> Self {
        Self { row: entry.index, view: seen.view, resp3: seen.resp3, caller }
    }

    /// Runs the command to its end on this core, in slices, and counts it.
    pub(super) async fn run(&self, args: resp::Args<'_>, tx: &Tx) -> Called {
        let core = tx.host::<Core>().expect("a core runs its own tasks");
        let (entry, mut out) = (&core.table.entries()[self.row], Output::default());
        let of = (self.view, self.resp3);
        let rest = core.run_point(entry, args, of, &mut out, self.caller).await?;
        Ok((out, rest))
    }
}

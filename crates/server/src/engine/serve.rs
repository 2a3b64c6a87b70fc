//! From a request to its reply: checks whether the request may run, chooses how it runs, and keeps
//! the order of replies.
//!
//! The functions that every request passes are `inline(always)`: as separate functions, they spent
//! 5 % of a GET's instructions on passing the same arguments.

use super::conn::outbound::{send_away, send_batches};
use super::conn::{AWAY_AT_ONCE, Conn, Lane, ReplyMode, Session};
use super::core::Core;
use super::entry::{Entry, Runner, Scripted, ServerCall, ServerFuture, SessionCx};
use super::journal;
use super::point::{Owner, Ran, Work};
use super::prefetch::prefetch;
use super::presence::Presence;
use super::state::pubsub::name::home;
use super::tracking::served::end_tracked;
use super::transaction::queued::Verb;
use super::unit::admit::{State, flags_in, is_paused};
use super::unit::place::{own_flags, owner_of};
use super::unit::settle::Caller;
use super::wanted::{Answering, To};
use darter_command::{Args, Call, Flags, Patience, Refusal};
use darter_resp::{self as resp, Output, Parsed, Reply, Request};
use darter_runtime::net::Token;
use std::rc::Rc;
use std::sync::Arc;

impl Core {
    /// Runs the requests of a connection, until its input or the slice is used up, or it may have
    /// no more replies pending.
    pub(super) fn serve(self: &Rc<Self>, token: Token) {
        let Some(mut conn) = self.clients.take(token) else { return };
        conn.lane.lists.ready = false;
        if self.leaves(&mut conn) {
            self.mark_dirty(&mut conn.lane); // If the connection was killed, this closes it.
            return self.clients.put(conn);
        }
        self.parse_and_run(&mut conn);
        self.check_query(&mut conn);
        send_batches(self, &mut conn.lane);
        self.mark_streaming(&mut conn.lane);
        self.mark_dirty(&mut conn.lane);
        self.adjust_receiving(&mut conn);
        self.clients.put(conn);
    }

    fn parse_and_run(self: &Rc<Self>, conn: &mut Conn) {
        /// Arguments of one request that are parsed between two reads of the clock: about 25 us.
        const PARSED_AT_ONCE: usize = 1_024;
        self.meter.blame_receiving();
        let Conn { parser, lane } = conn;
        self.run_held(lane);
        while lane.may_parse() {
            if self.slice.is_over(self.meter.now_ns()) || lane.away.turn_bytes >= AWAY_AT_ONCE {
                self.mark_ready(lane);
                return;
            }
            if parser.parse_ahead() > 1 {
                let db = lane.session.db;
                prefetch(self, parser.lookahead().map(|request| (request, db)));
            }
            match parser.next_portion(PARSED_AT_ONCE) {
                Ok(Parsed::Request(args)) => {
                    let is_owned = args.is_owned();
                    self.dispatch(lane, args);
                    end_tracked(self, lane, args);
                    if is_owned && !lane.awaits_task() {
                        // An idle client must not occupy memory with a long argument.
                        parser.release_request();
                    }
                }
                Ok(Parsed::Portion) => _ = self.read_clock(),
                Ok(Parsed::Empty) => {
                    // As in Redis, this request counts as the one that CLIENT REPLY SKIP skips.
                    if lane.session.reply_mode == ReplyMode::SkipNext {
                        lane.session.reply_mode = ReplyMode::On;
                    }
                    self.read_clock();
                }
                Ok(Parsed::Wanting) => {
                    lane.input.is_partial = true;
                    self.resume_receiving(lane); // The remaining bytes are not a complete request.
                    if lane.input.eof && lane.is_settled() {
                        lane.session.close_after_reply();
                    }
                    return;
                }
                Err(error) => {
                    let line = error.line();
                    self.stats.borrow_mut().count_error(&line);
                    self.reply_in_turn(lane, |reply| reply.error(&line));
                    lane.session.close_after_reply();
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

    /// Checks whether a request may run, and runs it.
    fn dispatch(self: &Rc<Self>, lane: &mut Lane, args: resp::Args<'_>) {
        if let ReplyMode::SkipNext = lane.session.reply_mode {
            lane.session.reply_mode = ReplyMode::Skip;
        }
        let found = self.table.resolve_likely(args, self.last_entry.get());
        let (entry, flags) = match found.and_then(|entry| self.admit(lane, entry, args)) {
            Ok(admitted) => admitted,
            Err(_) if is_http(args) => {
                tracing::warn!(peer = lane.session.peer.remote, "closed a client that sent HTTP");
                self.kill(lane); // The replies to earlier requests are dropped, too.
                return;
            }
            Err(refusal) => {
                let refusal = self.abort(lane, args, refusal);
                self.refuse(lane, args, &refusal);
                return;
            }
        };
        if is_paused(self, flags) && !lane.session.is_replay {
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
        journal::note_shown(self, lane, entry);
        self.run_by_shape(lane, entry, args);
    }

    /// Runs a request in the way that its row names, and sends a line for it to the watchers of
    /// MONITOR.
    #[inline(always)]
    fn run_by_shape(self: &Rc<Self>, lane: &mut Lane, entry: &Entry, args: resp::Args<'_>) {
        let watched = self.watchers.borrow().are_any();
        if matches!(entry.run, Runner::Point(_)) && self.tx.cores() == 1 && !watched {
            // The fast path: nearly all requests on a single core.
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
            Runner::Point(_) | Runner::Multi(Some(_), _) => owner_of(&self.tx, entry, args),
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
            // The request is tried again when no earlier reply is pending.
            lane.hold(args.to_request());
            return;
        }
        // As in Redis, MONITOR shows a session command after it has changed the session (SELECT
        // with its new database), and EXEC after its commands.
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
            (_, Owner::One(core)) if core != self.id() => send_away(self, lane, entry, core, args),
            _ => self.run_in_turn(lane, entry, args),
        }
    }

    /// True if a PUBLISH could overtake the client's last PUBLISH, because that has a different
    /// home and was not answered yet.
    fn would_overtake(&self, lane: &mut Lane, owner: &Owner) -> bool {
        let Owner::One(home) = *owner else { return false };
        if lane.away.published_at.is_some_and(|last| last != home) && !lane.is_settled() {
            return true;
        }
        lane.away.published_at = (home != self.id()).then_some(home);
        false
    }

    /// Runs a command that may have to wait. Returns true if it waits or runs elsewhere.
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
        let is_vain = wait.want.waits_for_disk() && journal::is_off(self);
        if wait.patience == Patience::None || is_vain {
            return false;
        }
        // If the core that owns the keys cannot run the call now, the request is held and
        // dispatched again. It would then be shown to the watchers twice.
        if !lane.is_settled() && (watched || !self.may_follow(lane, entry, args)) {
            // The request is tried again when no earlier reply is pending.
            lane.hold(args.to_request());
            return true;
        }
        let waits = self.call_or_wait(lane, entry, args, wait);
        if waits && watched {
            super::monitor::feed(self, &lane.session, entry, args);
        }
        waits
    }

    /// Checks whether a request may run. Returns its entry and its flags.
    fn admit<'e>(
        &self,
        lane: &Lane,
        entry: &'e Entry,
        args: resp::Args<'_>,
    ) -> Result<(&'e Entry, Flags), Refusal> {
        let flags = flags_in(lane, entry, own_flags(self, entry, args));
        let hot = self.hot.borrow();
        let state = State { hot: &hot, shared: &self.admin.shared };
        state.admit(lane, entry, flags, args).map(|()| (entry, flags))
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

    /// Encodes a reply, to be sent after all pending replies.
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
            self.discard(lane); // Drops the transaction: QUIT and RESET.
        }
        // After the command, because CLIENT REPLY decides whether its own reply is sent.
        self.owe(lane, out, None);
    }

    #[inline(always)]
    fn run_in_turn(self: &Rc<Self>, lane: &mut Lane, entry: &Entry, args: resp::Args<'_>) {
        lane.location.trail.stays();
        let in_turn = lane.owed.is_empty()
            && lane.stream.is_none()
            && lane.session.reply_mode == ReplyMode::On;
        if !in_turn {
            self.run_out_of_turn(lane, entry, args);
            return;
        }
        let view = lane.session.view();
        lane.sending.gated |= journal::shows_unsafe(self, entry, args, view.db);
        let mut reply = Reply::new(&mut lane.out, lane.session.resp3);
        match self.call_unless_locked(entry, args, view, &mut reply, Caller::Served(&lane.session))
        {
            Ran::Done(None) => {}
            Ran::Done(stream) => lane.stream = stream,
            Ran::Waits(work) => self.await_work(lane, entry, args, work),
        }
    }

    /// Like [`Core::run_in_turn`], for a client with pending replies or with replies off.
    #[inline(never)]
    fn run_out_of_turn(self: &Rc<Self>, lane: &mut Lane, entry: &Entry, args: resp::Args<'_>) {
        let mut out = Output::with_buffer(self.admin.take_buffer());
        let view = lane.session.view();
        lane.sending.gated |= journal::shows_unsafe(self, entry, args, view.db);
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
        journal::note_task_shown(self, lane, entry);
        let (client, row) = (lane.session.handle, entry.index);
        let (view, resp3) = (lane.session.view(), lane.session.resp3);
        let (request, caller) = (args.to_request(), Caller::Client(self.id(), client));
        self.await_task(lane, |_, presence| {
            let core = Rc::clone(self);
            let work = core.finish_waiting(row, Arc::clone(&request), view, resp3, work, caller);
            let of = Answering { to: To::Conn(client), row, request, presence, begun: None };
            self.tx.spawn(Rc::clone(self).answer(of, Box::pin(work)))
        });
    }

    /// Starts a command as a task. No earlier reply is pending.
    fn start_task(self: &Rc<Self>, lane: &mut Lane, entry: &Entry, args: resp::Args<'_>) {
        journal::note_task_shown(self, lane, entry);
        lane.location.trail.stays();
        if let Runner::Script(_) = entry.run {
            super::monitor::feed_script(self, &lane.session, entry, args);
        }
        let (to, row, request) = (To::Conn(lane.session.handle), entry.index, args.to_request());
        let tracker = lane.session.view().tracker;
        self.await_task(lane, |lane, presence| {
            let work = self.work_of(&lane.session, entry, &request, &presence);
            let core = Rc::clone(self);
            self.tx.spawn(async move {
                let begun = Some(core.begun_alone());
                if !tracker.is_none() {
                    core.remember_anywhere(&core.table.entries()[row], &request, tracker).await;
                }
                core.answer(Answering { to, row, request, presence, begun }, work).await;
            })
        });
    }

    /// The future of a command that runs as a task.
    fn work_of(
        self: &Rc<Self>,
        session: &Session,
        entry: &Entry,
        request: &Arc<Request>,
        presence: &Rc<Presence>,
    ) -> ServerFuture {
        let (request, first) = (Arc::clone(request), entry.first);
        let &Session { db, no_touch, resp3, .. } = session;
        match entry.run {
            Runner::Multi(_, anywhere) => {
                let (tx, is_script) = (self.tx.clone(), false);
                anywhere(Call { tx, request, db, no_touch, resp3, is_script, first })
            }
            Runner::Task(run) | Runner::Script(Scripted { run, .. }) => run(ServerCall {
                core: Rc::clone(self),
                session: session.clone(),
                request,
                first,
                within: None,
                presence: Rc::clone(presence),
            }),
            Runner::Transaction(_) => self.watch_many(session.handle, (db, resp3), request),
            _ => unreachable!("only tasks come here"),
        }
    }
}

/// True for an HTTP request: a web page may have tricked a browser into sending commands. None of
/// them may run.
fn is_http(args: resp::Args<'_>) -> bool {
    let name = args.head(0);
    name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"Host:")
}

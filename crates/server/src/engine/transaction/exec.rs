//! EXEC of a connection: decides where it runs, and runs it as a task, or the rest of it, under all
//! its locks.

use super::super::conn::{Lane, ReplyMode};
use super::super::core::Core;
use super::super::entry::Entry;
use super::super::presence::Presence;
use super::super::slices::Cause;
use super::super::unit::settle::Caller;
use super::super::wanted::{Stopped, To};
use super::at_once::For;
use super::claims::{claim_here, claims};
use super::inner::Inner;
use super::queued::{Places, Portion, Queued, Watched};
use super::replies::Replies;
use super::verbs::discarded;
use super::watching;
use darter_command::Refusal;
use darter_resp::{self as resp, Reply, Request};
use darter_tx::{AtOnce, CoreId, TaskId, Transaction};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

/// An EXEC that runs as a task.
pub(super) struct Exec {
    pub(super) core: Rc<Core>,
    pub(super) client: u64,
    /// The index of the command EXEC, and its request.
    pub(super) row: usize,
    pub(super) request: Arc<Request>,
    pub(super) inner: Inner,
    pub(super) queued: Box<Queued>,
    pub(super) watched: Rc<Watched>,
    pub(super) presence: Rc<Presence>,
}

/// The rest of an EXEC that began at once: see `at_once`.
pub(super) struct Rest {
    pub(super) begun: AtOnce,
    /// The index of the next command.
    pub(super) next: usize,
    /// The replies of the commands that have run.
    pub(super) replies: Replies,
}

/// An EXEC whose locks are held: the index of its next command, and the replies so far.
pub(super) struct Begun {
    pub(super) transaction: Transaction,
    pub(super) next: usize,
    pub(super) replies: Replies,
}

/// Where and how a transaction runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// On this core, at once.
    Here,
    /// On another core, at once.
    There(CoreId),
    /// As a task, over all cores.
    Anywhere,
}

impl Core {
    /// Starts an EXEC as a task. No earlier reply is pending.
    pub(crate) fn start_exec(
        self: &Rc<Self>,
        lane: &mut Lane,
        entry: &Entry,
        args: resp::Args<'_>,
    ) {
        let queued = lane.transaction.queued.take().unwrap_or_default();
        self.exec_as_task(lane, entry, args, queued, None);
    }

    /// Starts an EXEC as a task, or the rest of an EXEC that began at once in this turn.
    fn exec_as_task(
        self: &Rc<Self>,
        lane: &mut Lane,
        entry: &Entry,
        args: resp::Args<'_>,
        queued: Box<Queued>,
        rest: Option<Box<Rest>>,
    ) {
        self.await_task(lane, |lane, presence| {
            let exec = Exec::new(self, lane, entry, args, queued, presence);
            exec.spawn(To::Conn(lane.session.handle), rest)
        });
    }

    /// Ends an EXEC, and sends its replies.
    fn finish_exec(&self, client: u64, replies: Replies) {
        let Some(token) = self.clients.token_of(client) else { return };
        self.with_conn(token, |conn| {
            conn.parser.release_request();
            let lane = &mut conn.lane;
            lane.task_done();
            self.discard(lane);
            lane.session.tracking.is_excepted = false;
            if lane.session.reply_mode == ReplyMode::Skip {
                lane.session.reply_mode = ReplyMode::On;
            }
            let (out, stream) = replies.into_part();
            if !out.is_empty() || stream.is_some() {
                lane.owe(out, stream);
            }
            self.send_early(conn);
            conn.lane.send_late();
            self.after_settling(&mut conn.lane);
        });
    }

    /// Runs an EXEC at once. Returns false if it must run as a task.
    pub(crate) fn exec_at_once(
        self: &Rc<Self>,
        lane: &mut Lane,
        entry: &Entry,
        args: resp::Args<'_>,
    ) -> bool {
        let Some(queued) = lane.transaction.queued.take() else { return false };
        let place = self.place_of(lane, &queued);
        let queued = match place {
            Place::Here => queued,
            Place::There(core) => {
                self.send_exec_away(lane, entry, core, args, queued);
                return true;
            }
            Place::Anywhere => queued,
        };
        lane.location.trail.stays();
        if place != Place::Here {
            lane.transaction.queued = Some(queued);
            return false;
        }
        let (db, client) = (lane.session.db, lane.session.handle);
        let watched = lane.transaction.watched.as_deref();
        let Some(is_touched) = self.may_run_at_once(&queued, db, watched, client) else {
            lane.transaction.queued = Some(queued);
            return false;
        };
        let whose = For {
            view: lane.session.view(),
            resp3: lane.session.resp3,
            caller: Caller::Served(&lane.session),
        };
        match self.run_exec(entry, args, &queued, is_touched, whose) {
            Ok(replies) => {
                self.spare_queued.keep(queued);
                self.discard(lane);
                self.owe_replies(lane, replies);
            }
            Err(rest) => self.exec_as_task(lane, entry, args, queued, Some(rest)),
        }
        true
    }

    /// Decides where a transaction runs. It can run at once only if it is short, all its keys and
    /// watched keys are on one core, and its client has neither replies off nor tracking on.
    fn place_of(&self, lane: &Lane, queued: &Queued) -> Place {
        let session = &lane.session;
        let is_answered = session.reply_mode == ReplyMode::On;
        let tracks = !session.view().tracker.is_none() || session.tracking.is_excepted;
        if !queued.is_short() || !is_answered || tracks {
            return Place::Anywhere;
        }
        let watched = lane.transaction.watched.iter().flat_map(|watched| watched.cores());
        match watched.fold(queued.places, Places::and) {
            Places::Many => Place::Anywhere,
            Places::One(core) if core != self.id() => Place::There(core),
            Places::None | Places::One(_) => Place::Here,
        }
    }

    fn owe_replies(&self, lane: &mut Lane, replies: Replies) {
        match replies.into_flat() {
            Ok(flat) => {
                lane.owe_flat(&flat);
                self.admin.keep_buffer(flat);
            }
            Err(replies) => {
                let (out, stream) = replies.into_part();
                lane.owe(out, stream);
            }
        }
    }
}

/// Runs an EXEC, and sends the replies.
async fn finish(exec: Exec, to: To, begun: Option<Begun>) {
    let replies = exec.replies(begun).await;
    match (to, replies) {
        (To::Conn(client), Some(replies)) => exec.core.finish_exec(client, replies),
        (To::Conn(client), None) => {
            let entry = &exec.core.table.entries()[exec.row];
            exec.core.stopped(client, entry, Stopped::Unwanted);
        }
        (To::Batch(held), replies) => {
            if exec.watched.len() > 0 {
                exec.core.tx.home().shard.unwatch(exec.client);
            }
            let (out, stream) = replies.map_or_else(Default::default, Replies::into_part);
            held.reply(out, stream);
        }
    }
}

impl Exec {
    fn new(
        core: &Rc<Core>,
        lane: &mut Lane,
        entry: &Entry,
        args: resp::Args<'_>,
        queued: Box<Queued>,
        presence: Rc<Presence>,
    ) -> Self {
        Self {
            core: Rc::clone(core),
            client: lane.session.handle,
            row: entry.index,
            request: args.to_request(),
            inner: Inner::of(core, &lane.session),
            queued,
            watched: Rc::clone(lane.transaction.watched.get_or_insert_default()),
            presence,
        }
    }

    /// Starts the EXEC as a task, or its rest if it began at once in this turn. `to` gets the
    /// answer.
    pub(super) fn spawn(self, to: To, rest: Option<Box<Rest>>) -> TaskId {
        let core = Rc::clone(&self.core);
        let Some(rest) = rest else { return core.tx.spawn(finish(self, to, None)) };
        let Rest { begun, next, replies } = *rest;
        let claim = claim_here(&core, self.inner.db(), &self.queued);
        let rest = |transaction| Begun { transaction, next, replies };
        core.tx.go_on(begun, claim, |locks| finish(self, to, Some(rest(locks))))
    }

    /// Runs the EXEC, counts it, and shows it to MONITOR. Returns `None` if it was stopped because
    /// its client has gone.
    pub(super) async fn replies(&self, begun: Option<Begun>) -> Option<Replies> {
        let core = &self.core;
        let begun_call = core.begun_alone();
        let mut work = pin!(self.run(begun));
        let work = poll_fn(|cx| {
            core.meter.blame(Cause::Command(self.row));
            work.as_mut().poll(cx)
        });
        let entry = &core.table.entries()[self.row];
        let replies = match core.while_wanted(self.queued.is_read, &self.presence, work).await {
            Ok(replies) => replies,
            Err(Stopped::Unwanted) => return None,
            Err(Stopped::Busy(line)) => return Some(self.refused(entry, Refusal::line(line))),
        };
        let args = resp::Args::owned(&self.request);
        core.settle(entry, begun_call, None, args, self.inner.caller());
        self.inner.show(entry, args);
        Some(replies)
    }

    /// The reply of an EXEC that was refused.
    fn refused(&self, entry: &Entry, refusal: Refusal) -> Replies {
        let line = discarded(&refusal).text().into_owned();
        self.core.count_refused(Some(entry), &line);
        let (seen, mut replies) = (self.inner.seen(), Replies::default());
        if seen.reply_mode == ReplyMode::On {
            Reply::new(&mut replies.out, seen.resp3).error(&line);
        }
        replies
    }

    /// Runs the commands. If a watched key was touched, returns the null reply instead.
    async fn run(&self, begun: Option<Begun>) -> Replies {
        if begun.is_none()
            && self.watched.len() == 0
            && self.is_of_parts()
            && let Some(replies) = self.run_with_other().await
        {
            return replies;
        }
        let begun = match begun {
            Some(begun) => Ok(begun),
            None => self.begin().await,
        };
        let Begun { transaction, next, mut replies } = match begun {
            Ok(begun) => begun,
            Err(replies) => return replies,
        };
        if next == 0 && self.is_of_parts() {
            self.run_parts(&transaction, &mut replies).await;
            return replies;
        }
        for (index, args) in self.queued.portions().flat_map(Portion::iter).skip(next) {
            self.inner.run(index, args, transaction.tx(), &mut replies).await;
            self.core.tx.pause().await;
        }
        replies
    }

    /// Takes the locks, and begins the reply. If a watched key was touched, `Err` has the complete
    /// reply.
    async fn begin(&self) -> Result<Begun, Replies> {
        let (core, first) = (&self.core, self.inner.seen());
        let claims = claims(core, first.view.db, &self.queued, &self.watched).await;
        let transaction = core.tx.begin(claims).await;
        let is_touched = watching::is_touched(&transaction, self.client, &self.watched).await;
        let mut replies = Replies::default();
        if first.reply_mode == ReplyMode::On {
            let mut reply = Reply::new(&mut replies.out, first.resp3);
            match is_touched {
                true => reply.null_array(),
                false => reply.array(self.queued.sizes.count),
            }
        }
        if is_touched { Err(replies) } else { Ok(Begun { transaction, next: 0, replies }) }
    }
}

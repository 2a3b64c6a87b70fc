//! EXEC: a task that runs what was queued, under the locks of all of it.

use super::super::conn::{Lane, ReplyMode};
use super::super::core::Core;
use super::super::entry::Entry;
use super::super::presence::Presence;
use super::super::slices::Cause;
use super::claims::claims;
use super::inner::Inner;
use super::queued::{Portion, Queued, Watched};
use super::replies::Replies;
use super::watching;
use darter_resp::{self as resp, Reply};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;

/// An EXEC that runs.
struct Exec {
    core: Rc<Core>,
    client: u64,
    inner: Inner,
    watched: Rc<Watched>,
}

impl Core {
    /// Starts an EXEC: nothing is owed before it.
    pub(crate) fn start_exec(
        self: &Rc<Self>,
        lane: &mut Lane,
        entry: &Entry,
        args: resp::Args<'_>,
    ) {
        lane.await_task();
        let (core, client, index) = (Rc::clone(self), lane.session.id, entry.index);
        let queued = lane.queued_commands.take().map(|queued| *queued).unwrap_or_default();
        let watched = Rc::clone(lane.watched.get_or_insert_default());
        let (is_read, request) = (queued.is_read, args.to_request());
        let inner = Inner::of(self, &lane.session);
        let presence = Presence::new(lane.gone());
        let still = Rc::clone(&presence);
        let task = self.tx.spawn(async move {
            let begun = core.clock.monotonic_ns();
            let exec = Exec { core: Rc::clone(&core), client, inner, watched };
            let mut work = pin!(exec.run(&queued));
            let work = poll_fn(|cx| {
                core.meter.blame(Cause::Command(index));
                work.as_mut().poll(cx)
            });
            let Some(replies) = core.while_wanted(is_read, &still, work).await else {
                return core.stopped(client);
            };
            let entry = &core.table.entries()[index];
            let ns = core.clock.monotonic_ns().saturating_sub(begun);
            core.count_inner(entry, ns, None);
            exec.inner.show(entry, resp::Args::owned(&request));
            core.finish_exec(client, replies);
        });
        self.tx.note_author(task, lane.session.view().tracker.author());
        self.await_answer(lane, task, presence);
    }

    /// An EXEC has ended, and with it what MULTI began.
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
            self.let_out_early(conn);
            conn.lane.let_out_late();
            self.after_settling(&mut conn.lane);
        });
    }
}

impl Exec {
    /// Runs it: null if a watched key was touched, else the replies.
    async fn run(&self, queued: &Queued) -> Replies {
        let (core, first) = (&self.core, self.inner.seen());
        let claims = claims(core, first.view.db, queued, &self.watched).await;
        let transaction = core.tx.begin(claims).await;
        let mut replies = Replies::default();
        let is_answered = first.reply_mode == ReplyMode::On;
        if watching::is_touched(&transaction, self.client, &self.watched).await {
            if is_answered {
                Reply::new(&mut replies.out, first.resp3).null_array();
            }
            return replies;
        }
        if is_answered {
            Reply::new(&mut replies.out, first.resp3).array(queued.sizes.count);
        }
        for (index, args) in queued.portions().flat_map(Portion::iter) {
            self.inner.run(index, args, transaction.tx(), &mut replies).await;
            core.tx.pause().await;
        }
        replies
    }
}

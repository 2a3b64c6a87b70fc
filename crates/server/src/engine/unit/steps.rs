//! Runs the steps of a point command: the call of its function, and then the steps of its job, in
//! slices.
//!
//! The keys are locked: by the command itself, by its EXEC or script, or by the task that serves a
//! blocked client.

use super::super::core::Core;
use super::super::entry::Entry;
use super::super::point::{Begun, View};
use super::super::slices::{Cause, named};
use super::settle::Caller;
use darter_command::{Answer, Args as Words, Cx, Flow, PointFn, Refusal, Step, Stream};
use darter_resp::{Args, Output, Reply};
use darter_tx::Home;
use std::rc::Rc;

/// A stream with the rest of a reply, if any.
pub(crate) type Rest = Option<Box<dyn Stream>>;

/// Converts a reply into the answer of a task.
pub(crate) fn answer_of(out: Output, rest: Rest) -> Answer {
    match rest {
        Some(rest) => Answer::Stream(out, rest),
        None => Answer::Done(out),
    }
}

impl Core {
    /// Calls `act` with the context of a point command.
    #[inline(always)]
    pub(crate) fn with_cx<R>(
        &self,
        home: &mut Home,
        view: View,
        reply: &mut Reply<'_>,
        act: impl FnOnce(&mut Cx<'_>) -> R,
    ) -> R {
        let (db, prng, stats) = home.shard.parts_for(view.db, view.no_touch);
        let resp3 = reply.is_resp3();
        act(&mut Cx {
            now: db.now(),
            db,
            reply: Reply::new(reply.out, resp3),
            prng,
            stats,
            preempt: &*self.slice,
        })
    }

    /// Calls a point function on this core's shard. This is the only place that does so. If the
    /// client tracks, its reads are recorded. A refusal, or a job that has only begun, has no
    /// reply.
    #[inline(always)]
    pub(crate) fn call_point(
        &self,
        mut home: std::cell::RefMut<'_, Home>,
        (entry, run): (&Entry, PointFn),
        args: Args<'_>,
        view: View,
        reply: &mut Reply<'_>,
    ) -> Result<Flow, Refusal> {
        let mark = reply.out.mark();
        let call = |cx: &mut Cx<'_>| run(cx, Words::new(args, entry.first));
        let result = self.with_cx(&mut home, view, reply, call);
        drop(home);
        if !view.tracker.is_none() {
            self.remember(entry, args, view.tracker);
        }
        if !matches!(result, Ok(Flow::Done | Flow::Stream(_))) {
            reply.out.truncate(mark);
        }
        result
    }

    /// Runs a point command at once, and counts it. Encodes the reply, also if it is a refusal.
    /// Returns `None` if the command would be a job; then it has changed nothing, and must run
    /// again.
    #[inline]
    pub(crate) fn run_at_once(
        self: &Rc<Self>,
        entry: &Entry,
        begun: Begun,
        args: Args<'_>,
        view: View,
        reply: &mut Reply<'_>,
        caller: Caller<'_>,
    ) -> Option<Rest> {
        let run = entry.point().expect("only point commands run at once");
        let (rest, refusal) = match self.call_point(self.tx.home(), (entry, run), args, view, reply)
        {
            Ok(Flow::Done) => (None, None),
            Ok(Flow::Stream(stream)) => (Some(named(entry.index, stream)), None),
            Ok(Flow::Job(_)) => return None,
            Err(refusal) => (None, Some(refusal)),
        };
        self.settle(entry, begun, refusal.as_ref(), args, caller);
        if let Some(refusal) = refusal {
            reply.error(&refusal.text());
        }
        Some(rest)
    }

    /// Runs a point command to its end while its keys are locked, and counts it. Appends the reply
    /// to `out`, or returns the refusal.
    pub(crate) async fn run_point(
        self: &Rc<Self>,
        entry: &Entry,
        args: Args<'_>,
        (view, resp3): (View, bool),
        out: &mut Output,
        caller: Caller<'_>,
    ) -> Result<Rest, Refusal> {
        let run = entry.point().expect("only point commands come here");
        self.meter.blame(Cause::Command(entry.index));
        let begun = self.begun_alone();
        let reply = &mut Reply::new(out, resp3);
        let result = match self.call_point(self.tx.home(), (entry, run), args, view, reply) {
            Ok(flow) => self.drive(entry.index, flow, (view, resp3), out).await,
            Err(refusal) => Err(refusal),
        };
        self.settle(entry, begun, result.as_ref().err(), args, caller);
        result
    }

    /// Runs a job to its end, if there is one. This is the only place that does so. Appends the
    /// reply of the job to `out`.
    pub(crate) async fn drive(
        &self,
        row: usize,
        mut flow: Flow,
        (view, resp3): (View, bool),
        out: &mut Output,
    ) -> Result<Rest, Refusal> {
        loop {
            let mut job = match flow {
                Flow::Done => return Ok(None),
                Flow::Stream(stream) => return Ok(Some(named(row, stream))),
                Flow::Job(job) => job,
            };
            flow = loop {
                self.tx.pause().await;
                self.meter.blame(Cause::Command(row));
                let mut step_out = Output::default();
                let reply = &mut Reply::new(&mut step_out, resp3);
                let step = self.with_cx(&mut self.tx.home(), view, reply, |cx| job.step(cx));
                if let Step::Done(next) = step? {
                    out.append(step_out);
                    break next;
                }
            };
        }
    }
}

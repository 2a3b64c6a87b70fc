//! Scripts that run at once: this core owns all keys that they use, and no other command has locked
//! any of them.
//!
//! As with EXEC (`transaction::at_once`), such a run needs neither locks nor a task, because
//! nothing else runs during it. But a script may use keys that the request does not name, so its
//! changes can be undone, and the keys that it has used are recorded:
//!
//! ```text
//! begin ─► resume ─► Wait: gates ─► its keys are free ─► the command ─► feed ─┐
//!            ▲ │                                                              │
//!            │ ├──► Ended: commit, serve, reply                     │
//!            │ │                                                              │
//!            │ └──► the slice is over, or a command cannot run at once: locks all keys
//!            │      used so far, and a task runs the rest (`run`)             │
//!            └────────────────────────────────────────────────────────────────┘
//! ```
//! If replies of other cores to earlier requests are pending, a task could overtake those requests.
//! In that case the script is undone, and its request waits for the replies.
//!
//! If another core owns the keys that the request names, the script runs there in the same way: see
//! `away`.

use super::super::conn::{Lane, ReplyMode};
use super::super::core::Core;
use super::super::entry::{Entry, Scripted, ServerCall, ServerFuture};
use super::super::point::{Begun as BegunCall, Owner, View};
use super::super::transaction::at_once::For;
use super::super::transaction::replies::{Part, Replies};
use super::super::unit::admit::{ScriptGate, is_full};
use super::super::unit::changes::settle_changes;
use super::super::unit::place::owner_of;
use super::super::unit::settle::Caller;
use super::super::wanted::{Answering, To};
use super::evaluation::Evaluation;
use super::feed::Feed;
use super::lend::Lent;
use super::run::{self, Begun, Running, Try, evaluate_rest};
use darter_resp::{self as resp, Output, Reply};
use darter_script::{Protocol, Random, Stop, Wanted};
use darter_tx::{Access, OpenAtOnce, TaskId, lock_key};
use std::rc::Rc;
use std::sync::Arc;

/// The maximal number of keys that a run at once may use. The list of keys is searched linearly.
const KEYS_MAX: usize = 64;

/// A script that is running at once.
pub(super) struct AtOnce<'a> {
    work: Work<'a>,
    lent: Lent,
    /// The state of the generator for `math.random` when the run began.
    random: Random,
    feed: Feed,
}

/// The state of the commands that the script calls.
struct Work<'a> {
    core: &'a Rc<Core>,
    gate: ScriptGate,
    view: View,
    /// The keys that the script's commands have used so far, by the names of their locks. At the
    /// start, these are the keys that the request names.
    touched: Vec<(u64, Access)>,
    /// True if a command of the script may have used a key that the request does not name.
    is_beyond_named: bool,
    /// The undoable part of the run, which begins at the first write.
    open: Option<OpenAtOnce>,
}

/// The state of a run when its turn ends.
pub(super) enum End {
    /// The script has ended, and its reply is ready.
    Replied,
    /// The script takes longer. If `is_called`, it has called a command that has not run.
    GoesOn { is_called: bool },
}

impl Core {
    /// Runs a script at once, on this core or on the core of its keys. Returns false if it must run
    /// as a task of this core from the beginning.
    pub(crate) fn script_at_once(
        self: &Rc<Self>,
        lane: &mut Lane,
        entry: &Entry,
        script: Scripted,
        args: resp::Args<'_>,
    ) -> bool {
        let session = &lane.session;
        let tracks = !session.view().tracker.is_none() || session.tracking.is_excepted;
        if tracks || session.reply_mode != ReplyMode::On {
            return false;
        }
        if self.tx.cores() > 1 {
            match owner_of(&self.tx, entry, args) {
                Owner::One(core) if core == self.id() => {}
                Owner::One(core) => {
                    return self.send_script_away(lane, (entry, script), core, args);
                }
                Owner::None | Owner::Many => return false,
            }
        }
        lane.location.trail.stays();
        self.script_here(lane, entry, script, args)
    }

    /// Runs a script at once, with keys that this core owns.
    fn script_here(
        self: &Rc<Self>,
        lane: &mut Lane,
        entry: &Entry,
        script: Scripted,
        args: resp::Args<'_>,
    ) -> bool {
        let Some(evaluation) = script.find_short(self, args) else { return false };
        let begun = self.begun(entry, args);
        let (view, resp3) = (lane.session.view(), lane.session.resp3);
        let Some(mut run) = AtOnce::begin(self, view, resp3, args, &evaluation) else {
            return false;
        };
        match run.drive(&evaluation) {
            End::Replied => {
                let caller = Caller::Served(&lane.session);
                match run.finish(entry, args, begun, For { view, resp3, caller }) {
                    Some((out, stream)) => lane.owe(out, stream),
                    None => lane.owe_flat(run.reply()),
                }
            }
            End::GoesOn { is_called } if self.tx.cores() == 1 || lane.is_settled() => {
                self.go_on_with_script(lane, entry, args, (run, evaluation, begun), is_called);
            }
            End::GoesOn { .. } => {
                run.undo();
                // The request is tried again when no earlier reply is pending.
                lane.hold(args.to_request());
            }
        }
        true
    }

    /// Continues the script as a task, for whose answer the connection waits.
    fn go_on_with_script(
        self: &Rc<Self>,
        lane: &mut Lane,
        entry: &Entry,
        args: resp::Args<'_>,
        (run, evaluation, begun): (AtOnce<'_>, Evaluation, BegunCall),
        is_called: bool,
    ) {
        let (session, request) = (lane.session.clone(), args.to_request());
        let (to, row) = (To::Conn(session.handle), entry.index);
        self.await_task(lane, |_, presence| {
            let call = ServerCall {
                core: Rc::clone(self),
                session,
                request: Arc::clone(&request),
                first: entry.first,
                within: None,
                presence: Rc::clone(&presence),
            };
            let of = Answering { to, row, request, presence, begun: Some(begun) };
            let answer = |work| Rc::clone(self).answer(of, work);
            run.go_on(call, evaluation, is_called, answer)
        });
    }
}

impl<'a> AtOnce<'a> {
    /// Begins a run. Returns `None` unless this core owns the keys that the request names, and none
    /// of them is locked.
    pub(super) fn begin(
        core: &'a Rc<Core>,
        view: View,
        resp3: bool,
        args: resp::Args<'_>,
        evaluation: &Evaluation,
    ) -> Option<Self> {
        let gate = ScriptGate::of(evaluation, is_full(core)).ok()?;
        let named = evaluation.first_key..evaluation.first_key + evaluation.keys;
        let (touched, open) = (Vec::new(), None);
        let mut work = Work { core, gate, view, touched, open, is_beyond_named: false };
        if !named.clone().all(|at| work.touch(args, at, evaluation.access())) {
            return None;
        }
        work.is_beyond_named = false;
        let mut lent = Lent::new(core, evaluation.kind()).ok()?;
        let machine = lent.machine();
        let random = *machine.random();
        machine.set_log_level(core.hot.borrow().script_log_level);
        let client = if resp3 { Protocol::Three } else { Protocol::Two };
        evaluation.begin_short(machine, args, client);
        Some(Self { work, lent, random, feed: Feed::default() })
    }

    /// Resumes the script until it ends or the slice is over. Records whether it has used only
    /// named keys.
    pub(super) fn drive(&mut self, evaluation: &Evaluation) -> End {
        let end = self.resume();
        match evaluation.reach() {
            Some(reach) if self.work.is_beyond_named => reach.note_beyond(),
            Some(reach) if matches!(end, End::Replied) => reach.note_within(),
            _ => {}
        }
        end
    }

    fn resume(&mut self) -> End {
        /// The number of commands that run even if the slice is over. Most scripts end within
        /// these, and undoing the run or continuing as a task would take longer.
        const COMMANDS_MIN: usize = 4;
        let mut commands = 0;
        let (core, machine) = (self.work.core, self.lent.machine());
        loop {
            match machine.resume(core.tx.preempt()) {
                Stop::Slice => return End::GoesOn { is_called: false },
                Stop::Ended => return End::Replied,
                Stop::Wait(Wanted::Reply) => {
                    commands += 1;
                    let resp3 = machine.protocol() == Protocol::Three;
                    match self.work.run(machine.command().args(), resp3) {
                        Some((out, stream)) => {
                            let spare = self.feed.begin(out, stream, machine);
                            core.admin.keep_buffer(spare);
                            if commands <= COMMANDS_MIN {
                                continue;
                            }
                        }
                        None => return End::GoesOn { is_called: true },
                    }
                }
                Stop::Wait(Wanted::More) => self.feed.next(machine),
                Stop::Wait(Wanted::Permission) => run::permit(core, machine),
            }
            if core.slice.is_over(core.meter.now_ns()) {
                return End::GoesOn { is_called: false };
            }
        }
    }

    /// Commits a script that has ended. Returns its reply, except a short one: see
    /// [`AtOnce::reply`].
    pub(super) fn finish(
        &mut self,
        entry: &Entry,
        args: resp::Args<'_>,
        begun: BegunCall,
        whose: For<'_>,
    ) -> Option<Part> {
        let core = self.work.core;
        self.work.commit();
        let machine = self.lent.machine();
        for (level, line) in machine.take_log() {
            crate::log::of_script(level, &line); // In a slice, a script can log only few lines.
        }
        if machine.short_reply().is_some() {
            core.settle(entry, begun, None, args, whose.caller);
            return None;
        }
        let pieces = run::take_reply(core, entry.index, machine);
        let refusal = pieces.as_ref().err();
        core.settle(entry, begun, refusal, args, whose.caller);
        Some(match pieces {
            Ok(pieces) => {
                let mut replies = Replies::default();
                for piece in pieces {
                    replies.out.adopt(piece);
                    replies.settle();
                }
                replies.into_part()
            }
            Err(refusal) => (error(&refusal.text(), whose.resp3), None),
        })
    }

    /// The reply of a script that has ended, if the reply is short.
    pub(super) fn reply(&mut self) -> &[u8] {
        self.lent.machine().short_reply().expect("there is no other reply")
    }

    /// Continues the script as a task that holds the locks of all keys used so far. `answer` makes
    /// the task.
    pub(super) fn go_on<F: Future<Output = ()> + 'static>(
        self,
        call: ServerCall,
        evaluation: Evaluation,
        is_called: bool,
        answer: impl FnOnce(ServerFuture) -> F,
    ) -> TaskId {
        let Self { work, lent, random, feed } = self;
        let Work { core, gate, touched, open, .. } = work;
        let running = Running::new(&call, &evaluation, true);
        running.note_written(gate.has_written.get());
        core.tx.go_on_open(open, touched, |transaction| {
            let begun = Some(Begun { running, gate, feed, is_called });
            let first = Try { transaction, lent, random, begun };
            answer(Box::pin(async move { evaluate_rest(&call, &evaluation, first).await }))
        })
    }

    /// Undoes the run. The script will run again from the beginning.
    fn undo(mut self) {
        let core = self.work.core;
        if let Some(open) = self.work.open.take() {
            core.tx.undo_at_once(open);
        }
        let machine = self.lent.machine();
        if machine.abandon(core.tx.preempt()) {
            // If the machine cannot be reset, the next run takes another one.
            *machine.random() = self.random;
        }
        core.stats.borrow_mut().scripts_restarted += 1;
    }
}

impl Work<'_> {
    /// Records that a command uses a key. Returns false if another core owns the key, if it is
    /// locked (even by a rebuild), or if there are too many keys.
    fn touch(&mut self, args: resp::Args<'_>, at: usize, access: Access) -> bool {
        let key = lock_key(self.view.db, args.hash(at));
        if let Some((_, noted)) = self.touched.iter_mut().find(|(one, _)| *one == key) {
            *noted = access.max(*noted);
            return true;
        }
        self.is_beyond_named = true;
        let tx = &self.core.tx;
        let is_here = tx.cores() == 1 || args.owner(at, tx.cores()) == tx.core();
        if !is_here || self.touched.len() >= KEYS_MAX {
            return false;
        }
        let home = tx.home();
        let is_free = home.locks.is_free() || !home.locks.blocks_point(key, true);
        if is_free {
            self.touched.push((key, access));
        }
        is_free
    }

    /// Runs a command that the script calls. Returns `None` if it cannot run at once; then nothing
    /// has changed.
    fn run(&mut self, args: resp::Args<'_>, resp3: bool) -> Option<Part> {
        let core = self.core;
        let entry = match self.gate.admit(core, args) {
            Ok(entry) => entry,
            Err((entry, refusal)) => {
                let line = refusal.text();
                core.count_refused(entry, &line);
                return Some((error(&line, false), None));
            }
        };
        self.is_beyond_named |= !entry.names_its_keys();
        entry.point().filter(|_| !entry.row.locks_all())?;
        let access = if entry.row.is_write() { Access::Exclusive } else { Access::Update };
        if !entry.row.keys.positions(args).all(|at| self.touch(args, at, access)) {
            return None;
        }
        if entry.row.is_write() && self.open.is_none() {
            self.open = Some(core.tx.open_at_once());
        }
        let begun = core.begun_alone();
        let mut out = Output::with_buffer(core.admin.take_buffer());
        let reply = &mut Reply::new(&mut out, resp3);
        let rest = core.run_at_once(entry, begun, args, self.view, reply, Caller::Script)?;
        Some((out, rest))
    }

    /// Makes the changes final, and publishes their events.
    fn commit(&mut self) {
        let core = self.core;
        if let Some(open) = self.open.take() {
            core.tx.commit_at_once(open);
        }
        let written = self.touched.iter().filter(|(_, access)| *access == Access::Exclusive);
        let has_written = self.gate.has_written.get();
        settle_changes(core, written.map(|(key, _)| *key).take_while(|_| has_written));
    }
}

/// Encodes the error reply of a refused command.
fn error(line: &[u8], resp3: bool) -> Output {
    let mut out = Output::default();
    Reply::new(&mut out, resp3).error(line);
    out
}

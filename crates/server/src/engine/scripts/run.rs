//! A run as a task: it resumes the Lua machine, and runs the commands that the script calls.
//!
//! ```text
//! ┌─► locks ─► resume ─► the slice is over: continue in the next
//! │              ▲ ├───► Wait: gates ─► its keys ─► the command, on its core ─► feed
//! │              └─┘                        │
//! │                ├───► Ended: commit      ▼
//! └────── undo ◄───┴──────────────────── refused, or killed
//! ```
//! Changes become visible to others only at the end: log records, events, messages, and lines of
//! the log file.

use super::super::core::Core;
use super::super::entry::ServerCall;
use super::super::slices::Cause;
use super::super::state::pubsub::outbox::Outbox;
use super::super::transaction::inner::Inner;
use super::super::transaction::replies::Replies;
use super::super::unit::admit::{ScriptGate, is_full};
use super::busy::Refusing;
use super::evaluation::Evaluation;
use super::feed::Feed;
use super::lend::Lent;
use super::locks::{self, Claims, LAST_TRY, Locks};
use super::machines::Current;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Answer, Refusal};
use darter_resp::{self as resp, Reply};
use darter_script::{Machine, Protocol, Random, Stop, Wanted};
use darter_tx::{Transaction, Tx};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// Runs a script or function, and replies with its result.
pub(crate) async fn evaluate(call: &ServerCall, evaluation: Evaluation) -> Result<Answer, Refusal> {
    call.core.tx.set_by_script(true);
    let result = evaluate_from_start(call, evaluation).await;
    call.core.tx.set_by_script(false); // EXEC may continue after the script.
    result
}

async fn evaluate_from_start(call: &ServerCall, evaluation: Evaluation) -> Result<Answer, Refusal> {
    let core = &call.core;
    let gate = ScriptGate::of(&evaluation, is_full(core))?;
    if let Some(tx) = &call.within {
        let mut lent = Lent::new(core, evaluation.kind())?;
        let mut run = Run::new(call, &evaluation, Locks::Outer(tx), gate);
        let end = run.drive_from_start(&mut lent).await;
        return finish(call, &evaluation, lent, end).await;
    }
    let named = (evaluation.first_key, evaluation.keys);
    let claims = locks::of_named(call, named, evaluation.access()).await;
    let first = Try::begin(core, &evaluation, claims).await?;
    run_until_it_ends(call, &evaluation, gate, first).await
}

/// Runs the rest of a script that began at once.
pub(super) async fn evaluate_rest(
    call: &ServerCall,
    evaluation: &Evaluation,
    begun: Try,
) -> Result<Answer, Refusal> {
    let gate = begun.begun.as_ref().expect("it has begun").gate.again();
    run_until_it_ends(call, evaluation, gate, begun).await
}

/// One try to run a script: its locks are held, and it has a machine.
pub(super) struct Try {
    pub(super) transaction: Transaction,
    pub(super) lent: Lent,
    /// The state of the generator for `math.random` when the try began.
    pub(super) random: Random,
    /// The run that has begun at once, if any.
    pub(super) begun: Option<Begun>,
}

/// A run that has begun at once, and continues as a task.
pub(super) struct Begun {
    pub(super) running: Running,
    pub(super) gate: ScriptGate,
    pub(super) feed: Feed,
    /// True if the script has called a command that has not run.
    pub(super) is_called: bool,
}

impl Try {
    async fn begin(
        core: &Rc<Core>,
        evaluation: &Evaluation,
        claims: Claims,
    ) -> Result<Self, Refusal> {
        let transaction = core.tx.begin_open(claims).await;
        let mut lent = Lent::new(core, evaluation.kind())?;
        let random = *lent.machine().random();
        Ok(Self { transaction, lent, random, begun: None })
    }
}

/// Runs the script. If a key is locked, runs it again with more locks.
async fn run_until_it_ends(
    call: &ServerCall,
    evaluation: &Evaluation,
    gate: ScriptGate,
    first: Try,
) -> Result<Answer, Refusal> {
    let core = &call.core;
    let (mut this, mut tries) = (first, 0);
    loop {
        let Try { transaction, mut lent, random, begun } = this;
        let mut run = Run::new(call, evaluation, Locks::Own(&transaction), gate.again());
        let end = match begun {
            Some(begun) => run.drive_rest(begun, &mut lent).await,
            None => run.drive_from_start(&mut lent).await,
        };
        let messages = run.inner.into_outbox();
        let End::Refused(more) = end else {
            if let End::Killed(_) = end {
                transaction.undo().await;
            } else {
                transaction.commit().await;
                publish(core, messages.expect("it could be undone")).await;
            }
            return finish(call, evaluation, lent, end).await;
        };
        core.stats.borrow_mut().scripts_restarted += 1;
        lent.throw_away(core).await;
        *lent.machine().random() = random;
        drop(lent);
        tries += 1;
        let claims = match tries {
            LAST_TRY => locks::of_all(&core.tx, evaluation.access()),
            _ => transaction.claims(more).await,
        };
        transaction.undo().await;
        this = Try::begin(core, evaluation, claims).await?;
    }
}

/// Publishes the messages of an outbox.
async fn publish(core: &Rc<Core>, mut messages: Outbox) {
    while let Some(block) = messages.take() {
        for message in block {
            core.publish_anywhere(message).await;
        }
    }
}

/// The state of a try.
struct Run<'a> {
    call: &'a ServerCall,
    evaluation: &'a Evaluation,
    locks: Locks<'a>,
    inner: Inner,
    gate: ScriptGate,
    /// The row of the command that calls the script.
    row: usize,
    /// The rest of a reply that is being passed to the script.
    feed: Feed,
}

/// How a try has ended.
enum End {
    /// The script has ended, and its reply is ready.
    Replied,
    /// The script was killed. The refusal is its reply.
    Killed(Refusal),
    /// A key was locked. The claims are for the next try.
    Refused(Claims),
}

impl<'a> Run<'a> {
    fn new(
        call: &'a ServerCall,
        evaluation: &'a Evaluation,
        locks: Locks<'a>,
        gate: ScriptGate,
    ) -> Self {
        let outbox = match &locks {
            Locks::Own(_) => Some(Outbox::new(call.core.machines.messages(evaluation.kind()))),
            Locks::Outer(_) => None,
        };
        let inner = Inner::of_script(&call.core, &call.session, outbox);
        let (row, feed) = (row_of(call), Feed::default());
        Self { call, evaluation, locks, inner, gate, row, feed }
    }

    fn core(&self) -> &Rc<Core> {
        &self.call.core
    }

    fn tx(&self) -> &Tx {
        self.locks.tx()
    }

    /// Begins the script, and resumes it until it ends.
    async fn drive_from_start(&mut self, lent: &mut Lent) -> End {
        let (keys, arguments) = self.words().await;
        let client = if self.call.session.resp3 { Protocol::Three } else { Protocol::Two };
        let machine = lent.machine();
        machine.set_log_level(self.core().hot.borrow().script_log_level);
        self.evaluation.begin(machine, (keys, arguments), client);
        let is_undoable = matches!(self.locks, Locks::Own(_));
        let running = Running::new(self.call, self.evaluation, is_undoable);
        self.drive(machine, &running.current).await
    }

    /// Resumes a script that began at once, until it ends.
    async fn drive_rest(&mut self, begun: Begun, lent: &mut Lent) -> End {
        let Begun { running, gate, feed, is_called } = begun;
        (self.gate, self.feed) = (gate, feed);
        let (machine, current) = (lent.machine(), &running.current);
        if is_called && let Err(claims) = self.run_command(machine, current).await {
            return End::Refused(claims);
        }
        self.drive(machine, current).await
    }

    /// The keys, and the other arguments.
    async fn words(&self) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let Evaluation { first_key, keys, .. } = *self.evaluation;
        let args = resp::Args::owned(&self.call.request);
        let mut both = (Vec::with_capacity(keys), Vec::new());
        for at in first_key..args.len() {
            let arg = args.arg(at);
            let mut word = Vec::with_capacity(arg.len());
            for piece in arg.pieces() {
                word.extend_from_slice(piece);
                if word.len() < arg.len() {
                    self.core().tx.pause().await;
                }
            }
            if at < first_key + keys {
                both.0.push(word)
            } else {
                both.1.push(word)
            }
            if at % ENTRIES_AT_ONCE == ENTRIES_AT_ONCE - 1 {
                self.core().tx.pause().await;
            }
        }
        both
    }

    /// Resumes the machine until the script has ended, or must end.
    async fn drive(&mut self, machine: &mut Machine, current: &Current) -> End {
        let mut refusing = Refusing::default();
        loop {
            refusing.look(self.core(), self.tx(), current);
            if current.is_killed.get() {
                let line = machine.killed(&self.evaluation.name);
                return End::Killed(Refusal::Line(line.into()));
            }
            match machine.resume(self.tx().preempt()) {
                Stop::Slice => self.tx().yield_now().await,
                Stop::Wait(Wanted::Reply) => {
                    if let Err(claims) = self.run_command(machine, current).await {
                        return End::Refused(claims);
                    }
                    self.tx().pause().await;
                    self.core().meter.blame(Cause::Command(self.row));
                }
                Stop::Wait(Wanted::More) => {
                    self.feed.next(machine);
                    self.tx().pause().await;
                }
                Stop::Wait(Wanted::Permission) => permit(self.core(), machine),
                Stop::Ended => return End::Replied,
            }
        }
    }

    /// Runs a command that the script has called, and begins to pass its reply to the script.
    ///
    /// # Errors
    /// Errors: a key is locked. Returns the claims for the next try.
    async fn run_command(
        &mut self,
        machine: &mut Machine,
        current: &Current,
    ) -> Result<(), Claims> {
        self.inner.set_resp3(machine.protocol() == Protocol::Three);
        let args = machine.command().args();
        let core = &self.call.core;
        let mut replies = Replies::default();
        match self.gate.admit(core, args) {
            Ok(entry) => {
                let reach = self.evaluation.reach();
                self.locks.take(entry, args, self.inner.db(), reach).await?;
                // Set before another task can read it.
                current.has_written.set(self.gate.has_written.get());
                self.inner.run(entry.index, args, self.tx(), &mut replies).await;
            }
            Err((entry, refusal)) => {
                let line = refusal.text();
                core.count_refused(entry, &line);
                Reply::new(&mut replies.out, false).error(&line);
            }
        }
        let (out, stream) = replies.into_part();
        let spare = self.feed.begin(out, stream, machine);
        self.call.core.admin.keep_buffer(spare);
        Ok(())
    }
}

/// Returns the answer of a script after its last try.
async fn finish(
    call: &ServerCall,
    evaluation: &Evaluation,
    mut lent: Lent,
    end: End,
) -> Result<Answer, Refusal> {
    let core = &call.core;
    if let End::Killed(_) = end {
        lent.throw_away(core).await;
    }
    for (level, line) in lent.machine().take_log() {
        crate::log::of_script(level, &line);
        core.tx.pause().await;
    }
    if let Some(script) = &evaluation.to_keep
        && lent.machine().has_compiled(&script.name)
    {
        core.admin.shared.scripts.add(script);
    }
    match end {
        End::Killed(refusal) => {
            core.stats.borrow_mut().scripts_killed += 1;
            Err(refusal)
        }
        _ => reply(call, lent).await,
    }
}

/// The reply of a script that has ended.
async fn reply(call: &ServerCall, mut lent: Lent) -> Result<Answer, Refusal> {
    let core = &call.core;
    let pieces = take_reply(core, row_of(call), lent.machine())?;
    drop(lent);
    let mut replies = Replies::default();
    for piece in pieces {
        replies.out.adopt(piece);
        replies.settle();
        core.tx.pause().await;
    }
    Ok(match replies.into_part() {
        (out, None) => Answer::Done(out),
        (out, Some(stream)) => Answer::Stream(out, stream),
    })
}

/// Takes the reply of a script that has ended, in pieces. Counts errors in it for the command of
/// `row`.
///
/// # Errors
/// Errors: the reply is an error.
pub(super) fn take_reply(
    core: &Core,
    row: usize,
    machine: &mut Machine,
) -> Result<Vec<Vec<u8>>, Refusal> {
    let (has_failed, uncounted) = machine.take_errors();
    uncounted.iter().for_each(|line| core.stats.borrow_mut().count_error(line));
    let pieces = machine.take_reply();
    if !has_failed {
        return Ok(pieces);
    }
    if let [line] = &pieces[..]
        && let Some(line) = line.strip_prefix(b"-").and_then(|line| line.strip_suffix(b"\r\n"))
    {
        return Err(Refusal::Counted(line.to_vec()));
    }
    core.count_failed(row, None);
    Ok(pieces)
}

/// Answers a call of `redis.acl_check_cmd`.
pub(super) fn permit(core: &Core, machine: &mut Machine) {
    let is_known = core.table.resolve(machine.command().args()).is_ok();
    machine.feed(match is_known {
        true => b":1\r\n",
        false => b"-ERR Invalid command passed to redis.acl_check_cmd()\r\n",
    });
}

/// The row of the command that calls the script.
fn row_of(call: &ServerCall) -> usize {
    let entry = call.core.table.resolve(resp::Args::owned(&call.request));
    entry.map_or(0, |entry| entry.index)
}

/// An entry in the list of current runs. Dropping it removes the run from the list.
pub(super) struct Running {
    core: Rc<Core>,
    current: Rc<Current>,
}

impl Running {
    /// Adds a new run to the list.
    pub(super) fn new(call: &ServerCall, evaluation: &Evaluation, is_undoable: bool) -> Self {
        let core = Rc::clone(&call.core);
        let current = core.machines.begin(Current {
            client: call.session.handle,
            kind: evaluation.kind(),
            name: Arc::clone(&evaluation.name),
            request: Arc::clone(&call.request),
            begun_ns: core.clock.monotonic_ns(),
            is_undoable,
            has_written: Cell::new(false),
            is_killed: Cell::new(false),
            is_busy: Cell::new(false),
        });
        Self { core, current }
    }

    /// Records whether the run has called a write command.
    pub(super) fn note_written(&self, has_written: bool) {
        self.current.has_written.set(has_written);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.core.machines.end(&self.current);
    }
}

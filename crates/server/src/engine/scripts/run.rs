//! A run: a task that resumes a machine, and does what its script calls.
//!
//! ```text
//! ┌─► locks ─► resume ─► Slice: the next one
//! │              ▲ ├───► Wait: gates ─► its keys ─► the command, on its core ─► feed
//! │              └─┘                        │
//! │                ├───► Ended: commit      ▼
//! └────── undo ◄───┴──────────────────── refused, or killed
//! ```
//! What others could learn of leaves at the end: effects, events, messages, lines of the log.

use super::super::core::Core;
use super::super::entry::{Runner, ServerCall};
use super::super::slices::Cause;
use super::super::state::pubsub::Kind as Channels;
use super::super::state::pubsub::name::{Name, Text};
use super::super::transaction::inner::Inner;
use super::super::transaction::replies::Replies;
use super::busy::Refusing;
use super::gates::Gate;
use super::lend::Lent;
use super::locks::{self, Claims, LAST_TRY, Locks};
use super::machines::{Current, Kind};
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Answer, Refusal, Stream};
use darter_resp::{self as resp, Output, Part, Reply};
use darter_script::{Flags, Machine, Protocol, Script, Stop, Wanted};
use darter_tx::{Access, Tx};
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

const WRITES: &str = "ERR Can not execute a script with write flag using *_ro command.";
const FULL: &str =
    "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'";

/// What a machine is told to begin: with the keys, and the other arguments.
type Begin = Box<dyn Fn(&mut Machine, Vec<Vec<u8>>, Vec<Vec<u8>>, Protocol)>;

/// A script or a function that is to run.
pub(crate) struct Evaluation {
    /// Which of them.
    pub(crate) kind: Kind,
    /// Its name, for errors.
    pub(crate) name: Arc<str>,
    /// What it says of itself.
    pub(crate) flags: Flags,
    /// The command allows it to read only.
    pub(crate) is_read: bool,
    /// Index of the first key in the request.
    pub(crate) first_key: usize,
    /// The number of keys; what follows is the other arguments.
    pub(crate) keys: usize,
    /// Begins it.
    pub(crate) begin: Begin,
    /// A script that is to be known once it has been compiled.
    pub(crate) to_keep: Option<Script>,
}

impl Evaluation {
    fn is_compatible(&self) -> bool {
        self.flags.has(Flags::COMPATIBLE)
    }

    /// Whether it only reads.
    fn only_reads(&self) -> bool {
        self.is_read || self.flags.has(Flags::NO_WRITES)
    }

    fn check(&self, is_full: bool) -> Result<(), Refusal> {
        if self.is_compatible() {
            return Ok(());
        }
        let writes = !self.flags.has(Flags::NO_WRITES);
        if writes && self.is_read {
            return Err(Refusal::line(WRITES));
        }
        if writes && is_full && !self.flags.has(Flags::ALLOW_OOM) {
            return Err(Refusal::line(FULL));
        }
        Ok(())
    }
}

/// Runs a script or a function, and replies with what it returns.
pub(crate) async fn evaluate(call: &ServerCall, evaluation: Evaluation) -> Result<Answer, Refusal> {
    let core = &call.core;
    let is_full = core.is_full();
    evaluation.check(is_full)?;
    if let Some(tx) = &call.within {
        let mut lent = core.lend(evaluation.kind)?;
        let mut run = Run::new(call, &evaluation, Locks::Outer(tx), is_full);
        let end = run.drive_from_start(&mut lent).await;
        return finish(call, &evaluation, lent, end).await;
    }
    let access = if evaluation.only_reads() { Access::Update } else { Access::Exclusive };
    let mut claims = locks::of_named(call, (evaluation.first_key, evaluation.keys), access).await;
    let mut tries = 0;
    loop {
        let transaction = core.tx.begin_open(claims).await;
        let mut lent = core.lend(evaluation.kind)?;
        let random = *lent.machine().random();
        let mut run = Run::new(call, &evaluation, Locks::Own(&transaction), is_full);
        let end = run.drive_from_start(&mut lent).await;
        let messages = std::mem::take(&mut run.messages);
        drop(run);
        let End::Refused(more) = end else {
            if let End::Killed(_) = end {
                transaction.undo().await;
            } else {
                transaction.commit().await;
                publish(core, messages).await;
            }
            return finish(call, &evaluation, lent, end).await;
        };
        core.stats.borrow_mut().scripts_restarted += 1;
        lent.throw_away(core).await;
        *lent.machine().random() = random;
        drop(lent);
        tries += 1;
        claims = match tries {
            LAST_TRY => locks::of_all(&core.tx, access),
            _ => transaction.claims(more).await,
        };
        transaction.undo().await;
    }
}

/// Sends what a script has published.
async fn publish(core: &Rc<Core>, messages: Vec<(Channels, Name, Text)>) {
    for (kind, channel, payload) in messages {
        core.publish_anywhere(kind, channel, payload).await;
    }
}

/// One try to run it.
struct Run<'a> {
    call: &'a ServerCall,
    evaluation: &'a Evaluation,
    locks: Locks<'a>,
    inner: Inner,
    gate: Gate,
    /// The row of the command that has called it.
    row: usize,
    /// What is left to feed of a reply: what is encoded, and the rest.
    parts: VecDeque<Part>,
    stream: Option<Box<dyn Stream>>,
    /// What it has published.
    messages: Vec<(Channels, Name, Text)>,
}

/// How a try has ended.
enum End {
    /// There is a reply.
    Replied,
    /// It was killed, with this error.
    Killed(Refusal),
    /// Others have keys that it wants, by these claims.
    Refused(Claims),
}

impl<'a> Run<'a> {
    fn new(
        call: &'a ServerCall,
        evaluation: &'a Evaluation,
        locks: Locks<'a>,
        is_full: bool,
    ) -> Self {
        let gate = Gate {
            is_read: evaluation.only_reads(),
            allows_oom: evaluation.flags.has(Flags::ALLOW_OOM),
            is_full,
            has_written: Cell::new(false),
        };
        Self {
            call,
            evaluation,
            locks,
            inner: Inner::of_script(&call.core, &call.session),
            gate,
            row: row_of(call),
            parts: VecDeque::new(),
            stream: None,
            messages: Vec::new(),
        }
    }

    fn core(&self) -> &Rc<Core> {
        &self.call.core
    }

    fn tx(&self) -> &Tx {
        self.locks.tx()
    }

    /// Begins it, and resumes it until it ends.
    async fn drive_from_start(&mut self, lent: &mut Lent) -> End {
        let (keys, arguments) = self.words().await;
        let client = if self.call.session.resp3 { Protocol::Three } else { Protocol::Two };
        lent.machine().set_log_level(log_level(self.core()));
        (self.evaluation.begin)(lent.machine(), keys, arguments, client);
        let current = self.core().machines.begin(Current {
            client: self.call.session.id,
            kind: self.evaluation.kind,
            name: Arc::clone(&self.evaluation.name),
            request: Arc::clone(&self.call.request),
            begun_ns: self.core().clock.monotonic_ns(),
            is_undoable: matches!(self.locks, Locks::Own(_)),
            has_written: Cell::new(false),
            is_killed: Cell::new(false),
            is_busy: Cell::new(false),
            used_bytes: Cell::new(lent.machine().used_bytes()),
        });
        let running = Running { core: Rc::clone(self.core()), current };
        self.drive(lent.machine(), &running.current).await
    }

    /// The keys and the other arguments.
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

    /// Resumes the machine until its script has ended, or is to end.
    async fn drive(&mut self, machine: &mut Machine, current: &Current) -> End {
        let mut refusing = Refusing::default();
        loop {
            refusing.look(self.core(), self.tx(), current);
            if current.is_killed.get() {
                let line = machine.killed(&self.evaluation.name);
                return End::Killed(Refusal::Line(line.into()));
            }
            match machine.resume(self.tx().preempt()) {
                Stop::Slice => {
                    current.used_bytes.set(machine.used_bytes());
                    self.tx().yield_now().await;
                }
                Stop::Wait(Wanted::Reply) => {
                    if let Err(claims) = self.run_command(machine, current).await {
                        return End::Refused(claims);
                    }
                    self.tx().pause().await;
                    self.core().meter.blame(Cause::Command(self.row));
                }
                Stop::Wait(Wanted::More) => {
                    self.feed(machine);
                    self.tx().pause().await;
                }
                Stop::Wait(Wanted::Permission) => {
                    let is_known = self.core().table.resolve(machine.command().args()).is_ok();
                    machine.feed(match is_known {
                        true => b":1\r\n",
                        false => b"-ERR Invalid command passed to redis.acl_check_cmd()\r\n",
                    });
                }
                Stop::Ended => return End::Replied,
            }
        }
    }

    /// Does what the script calls, and begins to feed the reply.
    ///
    /// # Errors
    /// Others have a key that it wants.
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
                self.locks.take(entry, args, self.inner.db()).await?;
                current.has_written.set(self.gate.has_written.get()); // Before anybody can ask.
                match (entry.run, &self.locks) {
                    (Runner::Publish(kind), Locks::Own(_)) => {
                        let (channel, payload) = (Name::of(args, 1), Text::of(args, 2));
                        let count = core.count_receivers(kind, channel.clone()).await;
                        self.messages.push((kind, channel, payload));
                        Reply::new(&mut replies.out, false).count(count);
                    }
                    _ => self.inner.run(entry.index, args, self.tx(), &mut replies).await,
                }
            }
            Err((entry, refusal)) => {
                let line = refusal.text();
                core.count_refused(entry, &line);
                Reply::new(&mut replies.out, false).error(&line);
            }
        }
        let (mut out, stream) = replies.into_part();
        self.stream = stream;
        match out.take_flat(Vec::new()) {
            Some(flat) if !flat.is_empty() => machine.feed(&flat),
            _ => {
                self.parts = out.take().into();
                self.feed(machine);
            }
        }
        Ok(())
    }

    /// Feeds the next part of a reply.
    fn feed(&mut self, machine: &mut Machine) {
        loop {
            match self.parts.pop_front() {
                Some(Part::Bytes(bytes)) => return machine.feed(&bytes),
                Some(Part::Shared(bytes, range)) => return machine.feed(&bytes[range]),
                None => {}
            }
            let stream = self.stream.as_mut().expect("a reply is whole");
            let mut out = Output::default();
            let resp3 = machine.protocol() == Protocol::Three;
            if !stream.pump(&mut Reply::new(&mut out, resp3)) {
                self.stream = None;
            }
            self.parts = out.take().into();
        }
    }
}

/// The answer of a run that has ended for good.
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
    log(lent.machine());
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
    let (core, machine) = (&call.core, lent.machine());
    let (has_failed, uncounted) = machine.take_errors();
    uncounted.iter().for_each(|line| core.stats.borrow_mut().count_error(line));
    let pieces = machine.take_reply();
    drop(lent);
    if let [line] = &pieces[..]
        && has_failed
        && let Some(line) = line.strip_prefix(b"-").and_then(|line| line.strip_suffix(b"\r\n"))
    {
        return Err(Refusal::Counted(line.to_vec()));
    }
    let mut replies = Replies::default();
    for piece in pieces {
        replies.out.tail().extend_from_slice(&piece);
        replies.settle();
        core.tx.pause().await;
    }
    if has_failed {
        core.count_failed(row_of(call));
    }
    Ok(match replies.into_part() {
        (out, None) => Answer::Done(out),
        (out, Some(stream)) => Answer::Stream(out, stream),
    })
}

/// The row of the command that has called a script.
fn row_of(call: &ServerCall) -> usize {
    let entry = call.core.table.resolve(resp::Args::owned(&call.request));
    entry.map_or(0, |entry| entry.index)
}

/// A run, until it ends or is thrown away.
struct Running {
    core: Rc<Core>,
    current: Rc<Current>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.core.machines.end(&self.current);
    }
}

/// Below this a script's lines are not logged: levels as `redis.log` counts them.
fn log_level(core: &Core) -> u8 {
    match core.admin.settings.borrow().text("loglevel") {
        "debug" => 0,
        "verbose" => 1,
        "notice" => 2,
        "warning" => 3,
        _ => 4,
    }
}

/// Logs what a script has.
fn log(machine: &mut Machine) {
    for (level, line) in machine.take_log() {
        crate::log::of_script(level, &line);
    }
}

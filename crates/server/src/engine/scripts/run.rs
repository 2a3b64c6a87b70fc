//! A run: a task that resumes a machine, and does what its script calls.
//!
//! ```text
//! locks ─► machine ─► resume ─► Slice: the next one
//!                        ▲ ├──► Wait: gates ─► the command, on its core ─► feed
//!                        └─┘
//!                          └──► Ended: what it has logged, its reply
//! ```

use super::super::core::Core;
use super::super::entry::ServerCall;
use super::super::slices::Cause;
use super::super::transaction::inner::Inner;
use super::super::transaction::replies::Replies;
use super::gates::Gate;
use super::lend::Lent;
use super::machines::{Current, Kind};
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Answer, Refusal, Stream};
use darter_resp::{self as resp, Output, Part, Reply};
use darter_script::{Flags, Machine, Protocol, Script, Stop, Wanted};
use darter_tx::{Access, Claim, Tx};
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
        return Run::new(call, &evaluation, tx, is_full).finish().await;
    }
    let access = if evaluation.only_reads() { Access::Update } else { Access::Exclusive };
    let claims = (0..core.tx.cores()).map(|core| (core, Claim::All(access))).collect();
    let transaction = core.tx.begin(claims).await;
    Run::new(call, &evaluation, transaction.tx(), is_full).finish().await
}

/// One try to run it.
struct Run<'a> {
    call: &'a ServerCall,
    evaluation: &'a Evaluation,
    tx: &'a Tx,
    inner: Inner,
    gate: Gate,
    /// The row of the command that has called it.
    row: usize,
    /// What is left to feed of a reply: what is encoded, and the rest.
    parts: VecDeque<Part>,
    stream: Option<Box<dyn Stream>>,
}

/// How a run has ended.
enum End {
    /// There is a reply.
    Replied,
    /// It was killed.
    Killed,
}

impl<'a> Run<'a> {
    fn new(call: &'a ServerCall, evaluation: &'a Evaluation, tx: &'a Tx, is_full: bool) -> Self {
        let gate = Gate {
            is_read: evaluation.only_reads(),
            allows_oom: evaluation.flags.has(Flags::ALLOW_OOM),
            is_full,
            has_written: Cell::new(false),
        };
        let entry = call.core.table.resolve(resp::Args::owned(&call.request));
        Self {
            call,
            evaluation,
            tx,
            inner: Inner::of_script(&call.core, &call.session),
            gate,
            row: entry.map_or(0, |entry| entry.index),
            parts: VecDeque::new(),
            stream: None,
        }
    }

    fn core(&self) -> &Rc<Core> {
        &self.call.core
    }

    async fn finish(mut self) -> Result<Answer, Refusal> {
        let mut lent = self.core().lend(self.evaluation.kind)?;
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
            is_undoable: false,
            has_written: Cell::new(false),
            is_killed: Cell::new(false),
            used_bytes: Cell::new(lent.machine().used_bytes()),
        });
        let running = Running { core: Rc::clone(self.core()), current };
        let end = self.drive(lent.machine(), &running.current).await;
        drop(running);
        let killed = match end {
            End::Replied => None,
            End::Killed => Some(self.throw_away(lent.machine()).await),
        };
        log(lent.machine());
        if let Some(script) = &self.evaluation.to_keep
            && lent.machine().has_compiled(&script.name)
        {
            self.core().admin.shared.scripts.add(script);
        }
        match killed {
            None => self.reply(lent).await,
            Some(refusal) => Err(refusal),
        }
    }

    /// Throws away a run that was killed. Returns its error.
    async fn throw_away(&self, machine: &mut Machine) -> Refusal {
        let (core, line) = (self.core(), machine.killed(&self.evaluation.name));
        core.stats.borrow_mut().scripts_killed += 1;
        while !machine.abandon(core.tx.preempt()) {
            core.tx.yield_now().await;
        }
        Refusal::Line(line.into())
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
        loop {
            if current.is_killed.get() {
                return End::Killed;
            }
            match machine.resume(self.tx.preempt()) {
                Stop::Slice => {
                    current.used_bytes.set(machine.used_bytes());
                    self.tx.yield_now().await;
                }
                Stop::Wait(Wanted::Reply) => {
                    self.run_command(machine, current).await;
                    self.tx.pause().await;
                    self.core().meter.blame(Cause::Command(self.row));
                }
                Stop::Wait(Wanted::More) => {
                    self.feed(machine);
                    self.tx.pause().await;
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
    async fn run_command(&mut self, machine: &mut Machine, current: &Current) {
        self.inner.set_resp3(machine.protocol() == Protocol::Three);
        let args = machine.command().args();
        let core = &self.call.core;
        let mut replies = Replies::default();
        match self.gate.admit(core, args) {
            Ok(entry) => {
                current.has_written.set(self.gate.has_written.get()); // Before anybody can ask.
                self.inner.run(entry.index, args, self.tx, &mut replies).await;
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

    /// The reply of a script that has ended.
    async fn reply(&self, mut lent: Lent) -> Result<Answer, Refusal> {
        let (core, machine) = (self.core(), lent.machine());
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
            core.count_failed(self.row);
        }
        Ok(match replies.into_part() {
            (out, None) => Answer::Done(out),
            (out, Some(stream)) => Answer::Stream(out, stream),
        })
    }
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

//! The Lua machines of one core, and the runs that use them.
//!
//! Each run has a machine of its own from its first step to its last. A run takes the machine that
//! was returned last: its memory is in the cache. It also keeps the options that an earlier script
//! has set in `cjson`, as in Redis, as long as no other script runs at the same time.

use super::recent::Recent;
use darter_resp::Request;
use darter_script::Machine;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// The kind of a run. Redis has a Lua state and a kill command for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// EVAL, EVALSHA and their read-only variants.
    Script,
    /// FCALL and FCALL_RO.
    Function,
}

/// The limit of a machine's memory.
const LIMIT_BYTES: usize = Machine::LIMIT_BYTES_MAX;

/// The maximal number of idle machines that are kept.
const KEPT_MAX: usize = 16;
/// The bytes of each buffer (for commands and replies) that an idle machine keeps.
const BUFFERS_MAX_BYTES: usize = 64 << 10;
/// A machine with more bytes is tidied up before it becomes idle.
const TIDY_BYTES: usize = 4 << 20;
/// Like [`TIDY_BYTES`], for a machine that runs functions and keeps their libraries.
const TIDY_LIBRARIES_BYTES: usize = 64 << 20;
/// A machine with more compiled scripts is tidied up before it becomes idle.
const COMPILED_MAX: usize = 500;

/// A run, as other tasks see it.
#[derive(Debug)]
pub(crate) struct Current {
    /// The id of the client. A client has at most one run on a core.
    pub(crate) client: u64,
    /// The kind of the run.
    pub(crate) kind: Kind,
    pub(crate) name: Arc<str>,
    pub(crate) request: Arc<Request>,
    /// The time at which the run began, by the monotonic clock.
    pub(crate) begun_ns: u64,
    /// True if the writes of the run can be undone.
    pub(crate) is_undoable: bool,
    /// True if the run has called a write command.
    pub(crate) has_written: Cell<bool>,
    /// True if the run must end.
    pub(crate) is_killed: Cell<bool>,
    /// True if commands of other clients on the run's keys get `BUSY`.
    pub(crate) is_busy: Cell<bool>,
}

/// The machines of a core, idle and lent, and the runs.
#[derive(Default)]
pub(crate) struct Machines {
    idle: RefCell<Vec<(Kind, Machine)>>,
    runs: RefCell<Vec<Rc<Current>>>,
    /// The memory account of each machine, whether it is idle or lent.
    accounts: RefCell<Vec<(Kind, Weak<Cell<usize>>)>>,
    /// The bytes of messages that running scripts have published, by kind of run.
    messages: [Rc<Cell<usize>>; 2],
    /// The scripts that were used recently.
    pub(super) recent: RefCell<Recent>,
    /// The row of the last command that a script has called. The next command is likely to have the
    /// same.
    pub(crate) last_row: Cell<usize>,
}

impl Machines {
    /// Takes an idle machine, or creates one.
    ///
    /// # Errors
    /// Errors: the system has no memory for another machine.
    pub(crate) fn take(&self, kind: Kind) -> io::Result<Machine> {
        let mut idle = self.idle.borrow_mut();
        if let Some(at) = idle.iter().rposition(|(of, _)| *of == kind) {
            return Ok(idle.remove(at).1);
        }
        let machine = match kind {
            Kind::Script => Machine::new(LIMIT_BYTES),
            Kind::Function => Machine::for_functions(LIMIT_BYTES),
        }?;
        let mut accounts = self.accounts.borrow_mut();
        accounts.retain(|(_, account)| account.strong_count() > 0);
        accounts.push((kind, machine.account()));
        Ok(machine)
    }

    /// Returns a machine whose run has ended. If the machine must be tidied up first, it is handed
    /// back to the caller. If [`KEPT_MAX`] machines are idle, it is dropped.
    pub(crate) fn put(&self, kind: Kind, mut machine: Machine) -> Option<Machine> {
        let bytes_max = match kind {
            Kind::Script => TIDY_BYTES,
            Kind::Function => TIDY_LIBRARIES_BYTES,
        };
        let is_tidy = machine.used_bytes() <= bytes_max && machine.compiled_len() <= COMPILED_MAX;
        let mut idle = self.idle.borrow_mut();
        if !is_tidy {
            return Some(machine);
        }
        if idle.len() < KEPT_MAX {
            machine.release_buffers(BUFFERS_MAX_BYTES);
            idle.push((kind, machine));
        }
        None
    }

    /// The bytes of all machines of this kind on this core, idle or lent, and of the messages that
    /// their runs have published.
    pub(crate) fn used_bytes(&self, kind: Kind) -> usize {
        let accounts = self.accounts.borrow();
        let of_kind = accounts.iter().filter(|(of, _)| *of == kind);
        let machines = of_kind.filter_map(|(_, account)| account.upgrade()).map(|used| used.get());
        machines.sum::<usize>() + self.messages(kind).get()
    }

    /// The number of machines of both kinds, idle or lent. Each has a stack.
    pub(crate) fn stacks(&self) -> usize {
        let accounts = self.accounts.borrow();
        accounts.iter().filter(|(_, account)| account.strong_count() > 0).count()
    }

    /// The account for messages published by runs of this kind.
    pub(crate) fn messages(&self, kind: Kind) -> Rc<Cell<usize>> {
        Rc::clone(&self.messages[kind as usize])
    }

    /// The number of current runs.
    pub(crate) fn running(&self) -> usize {
        self.runs.borrow().len()
    }

    /// The kind of a run that makes other commands on its keys fail with `BUSY`, if there is one.
    pub(crate) fn busy(&self) -> Option<Kind> {
        self.runs.borrow().iter().find(|run| run.is_busy.get()).map(|run| run.kind)
    }

    /// Adds a run to the list of current runs.
    pub(crate) fn begin(&self, run: Current) -> Rc<Current> {
        let run = Rc::new(run);
        self.runs.borrow_mut().push(Rc::clone(&run));
        run
    }

    /// Removes a run from the list of current runs.
    pub(crate) fn end(&self, run: &Rc<Current>) {
        self.runs.borrow_mut().retain(|other| !Rc::ptr_eq(other, run));
    }

    /// The oldest run of this kind that was not killed yet.
    pub(crate) fn oldest(&self, kind: Kind) -> Option<Rc<Current>> {
        let runs = self.runs.borrow();
        let living = runs.iter().filter(|run| run.kind == kind && !run.is_killed.get());
        living.min_by_key(|run| run.begun_ns).cloned()
    }

    /// The current run of a client, if any.
    pub(crate) fn of_client(&self, client: u64) -> Option<Rc<Current>> {
        self.runs.borrow().iter().find(|run| run.client == client).cloned()
    }
}

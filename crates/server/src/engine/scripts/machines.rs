//! The Lua machines of one core, and their runs.
//!
//! A run has its own machine, from its first step to its last. The machine that was returned last
//! is taken first: it is warm, and keeps the options of `cjson` that an earlier script has set, as
//! long as nothing else runs.

use super::recent::Recent;
use darter_resp::Request;
use darter_script::Machine;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// The kind of a callee: Redis has a Lua state and a kill command for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// EVAL, EVALSHA and their read-only forms.
    Script,
    /// FCALL and FCALL_RO.
    Function,
}

/// The memory limit of a script.
const LIMIT_BYTES: usize = Machine::LIMIT_BYTES_MAX;

/// The most idle machines that are kept.
const KEPT_MAX: usize = 16;
/// Bytes of each buffer (command, reply) that an idle machine keeps.
const BUFFERS_MAX_BYTES: usize = 64 << 10;
/// Bytes beyond which a machine is tidied up before it becomes idle.
const TIDY_BYTES: usize = 4 << 20;
/// [`TIDY_BYTES`] of a machine for functions, which keeps its libraries.
const TIDY_LIBRARIES_BYTES: usize = 64 << 20;
/// Compiled scripts beyond which a machine is tidied up.
const COMPILED_MAX: usize = 500;

/// A run, as seen by other tasks.
#[derive(Debug)]
pub(crate) struct Current {
    /// The client's id. A client has at most one run on a core.
    pub(crate) client: u64,
    /// The kind of the callee.
    pub(crate) kind: Kind,
    pub(crate) name: Arc<str>,
    pub(crate) request: Arc<Request>,
    /// The begin of the run, by the monotonic clock.
    pub(crate) begun_ns: u64,
    /// Whether its writes can be undone.
    pub(crate) is_undoable: bool,
    /// Whether it has called a write command.
    pub(crate) has_written: Cell<bool>,
    /// Whether it must end.
    pub(crate) is_killed: Cell<bool>,
    /// Whether other clients are refused its keys.
    pub(crate) is_busy: Cell<bool>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Machines {
    idle: RefCell<Vec<(Kind, Machine)>>,
    runs: RefCell<Vec<Rc<Current>>>,
    /// The memory account of each machine, idle or lent.
    accounts: RefCell<Vec<(Kind, Weak<Cell<usize>>)>>,
    /// Bytes of the runs' outboxes, by kind.
    messages: [Rc<Cell<usize>>; 2],
    /// The scripts used lately.
    pub(super) recent: RefCell<Recent>,
    /// The row of the last command of a script, which the next is likely to have, too.
    pub(crate) last_row: Cell<usize>,
}

impl Machines {
    /// Takes a machine for a run.
    ///
    /// # Errors
    /// The system has no memory for one.
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

    /// Returns a machine without a run. It comes back if it must be tidied up first; beyond
    /// [`KEPT_MAX`] it is dropped.
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

    /// Bytes of all machines of this core and kind, in any state, and of their outboxes.
    pub(crate) fn used_bytes(&self, kind: Kind) -> usize {
        let accounts = self.accounts.borrow();
        let of_kind = accounts.iter().filter(|(of, _)| *of == kind);
        let machines = of_kind.filter_map(|(_, account)| account.upgrade()).map(|used| used.get());
        machines.sum::<usize>() + self.messages(kind).get()
    }

    /// The number of machines of both kinds, in any state: each has a stack.
    pub(crate) fn stacks(&self) -> usize {
        let accounts = self.accounts.borrow();
        accounts.iter().filter(|(_, account)| account.strong_count() > 0).count()
    }

    /// The account of outboxes of this kind.
    pub(crate) fn messages(&self, kind: Kind) -> Rc<Cell<usize>> {
        Rc::clone(&self.messages[kind as usize])
    }

    /// The number of runs.
    pub(crate) fn running(&self) -> usize {
        self.runs.borrow().len()
    }

    /// The kind of a run that refuses its keys to others, if any.
    pub(crate) fn busy(&self) -> Option<Kind> {
        self.runs.borrow().iter().find(|run| run.is_busy.get()).map(|run| run.kind)
    }

    /// Adds a run.
    pub(crate) fn begin(&self, run: Current) -> Rc<Current> {
        let run = Rc::new(run);
        self.runs.borrow_mut().push(Rc::clone(&run));
        run
    }

    /// Removes a run.
    pub(crate) fn end(&self, run: &Rc<Current>) {
        self.runs.borrow_mut().retain(|other| !Rc::ptr_eq(other, run));
    }

    /// The oldest run of this kind that is not killed yet.
    pub(crate) fn oldest(&self, kind: Kind) -> Option<Rc<Current>> {
        let runs = self.runs.borrow();
        let living = runs.iter().filter(|run| run.kind == kind && !run.is_killed.get());
        living.min_by_key(|run| run.begun_ns).cloned()
    }

    /// The run of a client.
    pub(crate) fn of_client(&self, client: u64) -> Option<Rc<Current>> {
        self.runs.borrow().iter().find(|run| run.client == client).cloned()
    }
}

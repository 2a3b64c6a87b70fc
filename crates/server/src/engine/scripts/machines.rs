//! The machines of one core, and what runs in them.
//!
//! A run has a machine to itself, from its first step to its last. The one that was given back last
//! is taken first: it is warm, and a script that counts on what an earlier one has left in `cjson`
//! finds it as long as nothing else runs.

use super::recent::Recent;
use darter_resp::Request;
use darter_script::Machine;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// What runs: Redis has a state of Lua for each, and two commands to kill them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// EVAL and its kin.
    Script,
    /// FCALL and its kin.
    Function,
}

/// Memory that a script may use at once.
const LIMIT_BYTES: usize = Machine::LIMIT_BYTES_MAX;

/// Machines that wait for the next script.
const KEPT_MAX: usize = 16;
/// Bytes of a buffer that an idle machine keeps: of a command, and of a reply.
const BUFFERS_MAX_BYTES: usize = 64 << 10;
/// Bytes beyond which a machine is tidied up before it waits.
const TIDY_BYTES: usize = 4 << 20;
/// The same of one for functions, which keeps its libraries.
const TIDY_LIBRARIES_BYTES: usize = 64 << 20;
/// The same by compiled scripts.
const COMPILED_MAX: usize = 500;

/// A run, as others see it.
#[derive(Debug)]
pub(crate) struct Current {
    /// The client's id: a client has one run at most on a core.
    pub(crate) client: u64,
    /// What runs, its name, and the request that has called it.
    pub(crate) kind: Kind,
    pub(crate) name: Arc<str>,
    pub(crate) request: Arc<Request>,
    /// When it began, by the monotonic clock.
    pub(crate) begun_ns: u64,
    /// What it has written can be undone.
    pub(crate) is_undoable: bool,
    /// It has called a command that writes.
    pub(crate) has_written: Cell<bool>,
    /// It is to end.
    pub(crate) is_killed: Cell<bool>,
    /// Others are refused its keys.
    pub(crate) is_busy: Cell<bool>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Machines {
    idle: RefCell<Vec<(Kind, Machine)>>,
    runs: RefCell<Vec<Rc<Current>>>,
    /// What each machine uses, wherever it is.
    accounts: RefCell<Vec<(Kind, Weak<Cell<usize>>)>>,
    /// What is kept of what runs have published, by their kinds.
    messages: [Rc<Cell<usize>>; 2],
    /// The scripts that they were asked for lately.
    pub(super) recent: RefCell<Recent>,
    /// The row of the last command that a script has called: the next is likely the same.
    pub(crate) last_row: Cell<usize>,
}

impl Machines {
    /// A machine for a run.
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

    /// Takes back a machine without a run, unless it is to be tidied up before, or there are enough.
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

    /// Bytes of all machines of this core and kind: those that wait, run, load a library or are
    /// tidied up; and of what was published in them.
    pub(crate) fn used_bytes(&self, kind: Kind) -> usize {
        let accounts = self.accounts.borrow();
        let of_kind = accounts.iter().filter(|(of, _)| *of == kind);
        let machines = of_kind.filter_map(|(_, account)| account.upgrade()).map(|used| used.get());
        machines.sum::<usize>() + self.messages(kind).get()
    }

    /// How many machines there are, of both kinds and wherever they are: each has a stack.
    pub(crate) fn stacks(&self) -> usize {
        let accounts = self.accounts.borrow();
        accounts.iter().filter(|(_, account)| account.strong_count() > 0).count()
    }

    /// The account of what runs of this kind have published.
    pub(crate) fn messages(&self, kind: Kind) -> Rc<Cell<usize>> {
        Rc::clone(&self.messages[kind as usize])
    }

    /// How many run.
    pub(crate) fn running(&self) -> usize {
        self.runs.borrow().len()
    }

    /// The kind of a run whose keys others are refused.
    pub(crate) fn busy(&self) -> Option<Kind> {
        self.runs.borrow().iter().find(|run| run.is_busy.get()).map(|run| run.kind)
    }

    /// A run begins.
    pub(crate) fn begin(&self, run: Current) -> Rc<Current> {
        let run = Rc::new(run);
        self.runs.borrow_mut().push(Rc::clone(&run));
        run
    }

    /// A run has ended.
    pub(crate) fn end(&self, run: &Rc<Current>) {
        self.runs.borrow_mut().retain(|other| !Rc::ptr_eq(other, run));
    }

    /// The run of this kind that began first, of those that are not killed already.
    pub(crate) fn oldest(&self, kind: Kind) -> Option<Rc<Current>> {
        let runs = self.runs.borrow();
        let living = runs.iter().filter(|run| run.kind == kind && !run.is_killed.get());
        living.min_by_key(|run| run.begun_ns).cloned()
    }

    /// The run for a client.
    pub(crate) fn of_client(&self, client: u64) -> Option<Rc<Current>> {
        self.runs.borrow().iter().find(|run| run.client == client).cloned()
    }
}

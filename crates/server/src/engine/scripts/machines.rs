//! The machines of one core, and what runs in them.
//!
//! A run has a machine to itself, from its first step to its last. The one that was given back last
//! is taken first: it is warm, and a script that counts on what an earlier one has left in `cjson`
//! finds it as long as nothing else runs.

use darter_script::Machine;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

/// What runs: Redis has a state of Lua for each, and two commands to kill them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// EVAL and its kin.
    Script,
}

/// Memory that a script may use at once: the most that a machine can have.
const LIMIT_BYTES: usize = 1 << 30;

/// Machines that wait for the next script.
const KEPT_MAX: usize = 16;
/// Bytes beyond which a machine is tidied up before it waits.
const TIDY_BYTES: usize = 4 << 20;
/// The same by compiled scripts.
const COMPILED_MAX: usize = 500;

/// A run, as others see it.
#[derive(Debug)]
pub(crate) struct Current {
    /// The client's id: a client has one run at most.
    pub(crate) client: u64,
    /// What runs.
    pub(crate) kind: Kind,
    /// When it began, by the monotonic clock.
    pub(crate) begun_ns: u64,
    /// What it has written can be undone.
    pub(crate) is_undoable: bool,
    /// It has called a command that writes.
    pub(crate) has_written: Cell<bool>,
    /// It is to end.
    pub(crate) is_killed: Cell<bool>,
    /// Bytes that its machine used when it last looked.
    pub(crate) used_bytes: Cell<usize>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Machines {
    idle: RefCell<Vec<(Kind, Machine)>>,
    runs: RefCell<Vec<Rc<Current>>>,
}

impl Machines {
    /// A machine for a run.
    ///
    /// # Errors
    /// The system has no memory for one.
    pub(crate) fn take(&self, kind: Kind) -> io::Result<Machine> {
        let mut idle = self.idle.borrow_mut();
        match idle.iter().rposition(|(of, _)| *of == kind) {
            Some(at) => Ok(idle.remove(at).1),
            None => match kind {
                Kind::Script => Machine::new(LIMIT_BYTES),
            },
        }
    }

    /// Takes back a machine without a run, unless it is to be tidied up before, or there are enough.
    pub(crate) fn put(&self, kind: Kind, mut machine: Machine) -> Option<Machine> {
        let is_tidy = machine.used_bytes() <= TIDY_BYTES && machine.compiled_len() <= COMPILED_MAX;
        let mut idle = self.idle.borrow_mut();
        if !is_tidy {
            return Some(machine);
        }
        if idle.len() < KEPT_MAX {
            idle.push((kind, machine));
        }
        None
    }

    /// Bytes of all machines of this core.
    pub(crate) fn used_bytes(&self) -> usize {
        let idle: usize = self.idle.borrow().iter().map(|(_, one)| one.used_bytes()).sum();
        idle + self.runs.borrow().iter().map(|run| run.used_bytes.get()).sum::<usize>()
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

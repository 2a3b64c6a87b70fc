//! A script or a function that is to run, and what its command says of that.

use super::gates::Gate;
use super::machines::Kind;
use crate::libraries::Libraries;
use darter_command::Refusal;
use darter_resp::Args;
use darter_script::{Flags, FunctionRun, Library, Machine, Protocol, Run, Script};
use darter_tx::Access;
use std::cell::Cell;
use std::sync::Arc;

const WRITES: &str = "ERR Can not execute a script with write flag using *_ro command.";
const FULL: &str =
    "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'";

/// What runs.
pub(crate) enum Callee {
    /// A script.
    Script(Script),
    /// A function, by its name among all libraries, and where it was found.
    Function { all: Arc<Libraries>, name: Box<[u8]>, library: Arc<Library>, index: usize },
}

/// See the module.
pub(crate) struct Evaluation {
    pub(crate) callee: Callee,
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
    /// A script that is to be known once it has been compiled.
    pub(crate) to_keep: Option<Script>,
}

impl Evaluation {
    /// Which of them it is.
    pub(crate) fn kind(&self) -> Kind {
        match self.callee {
            Callee::Script(_) => Kind::Script,
            Callee::Function { .. } => Kind::Function,
        }
    }

    /// Whether it only reads.
    fn only_reads(&self) -> bool {
        self.is_read || self.flags.has(Flags::NO_WRITES)
    }

    /// The access to the keys that its command names.
    pub(crate) fn access(&self) -> Access {
        if self.only_reads() { Access::Update } else { Access::Exclusive }
    }

    /// What the commands must pass that it calls.
    ///
    /// # Errors
    /// It may not run now.
    pub(super) fn gate(&self, is_full: bool) -> Result<Gate, Refusal> {
        let allows_oom = self.flags.has(Flags::ALLOW_OOM);
        if !self.flags.has(Flags::COMPATIBLE) {
            let writes = !self.flags.has(Flags::NO_WRITES);
            if writes && self.is_read {
                return Err(Refusal::line(WRITES));
            }
            if writes && is_full && !allows_oom {
                return Err(Refusal::line(FULL));
            }
        }
        let (is_read, has_written) = (self.only_reads(), Cell::new(false));
        Ok(Gate { is_read, allows_oom, is_full, has_written })
    }

    /// Begins it, with its keys and its other arguments, which are few and short.
    pub(super) fn begin_short(&self, machine: &mut Machine, args: Args<'_>, client: Protocol) {
        let is_ready = match &self.callee {
            Callee::Script(_) => true,
            Callee::Function { library, .. } => machine.has_loaded(library),
        };
        let (first, end) = (self.first_key, self.first_key + self.keys);
        let (keys, arguments) = (first..end, end..args.len());
        let word = |at| args.get(at);
        let are_taken =
            is_ready && machine.take_words(keys.clone().map(word), arguments.clone().map(word));
        let copy = |at| args.get(at).to_vec();
        let words = match are_taken {
            true => (Vec::new(), Vec::new()),
            false => (keys.map(copy).collect(), arguments.map(copy).collect()),
        };
        self.begin(machine, words, client);
    }

    /// Begins it, with its keys and its other arguments.
    pub(super) fn begin(
        &self,
        machine: &mut Machine,
        (keys, arguments): (Vec<Vec<u8>>, Vec<Vec<u8>>),
        client: Protocol,
    ) {
        match &self.callee {
            Callee::Script(script) => {
                machine.begin(Run { script: script.clone(), keys, arguments, client });
            }
            // Its locks are held when it begins: it is the function of that instant, if there is one.
            Callee::Function { all, name, library, index } => {
                let now = all.current();
                let (library, index) = now.function(name).unwrap_or((library, *index));
                let library = Arc::clone(library);
                machine.begin_call(FunctionRun { library, index, keys, arguments, client });
            }
        }
    }
}

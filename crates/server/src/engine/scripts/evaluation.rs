//! A call of a script or function: what is called, its flags, and the keys and arguments.

use super::machines::Kind;
use crate::libraries::Libraries;
use darter_resp::Args;
use darter_script::{Flags, FunctionRun, Library, Machine, Protocol, Reach, Run, Script};
use darter_tx::Access;
use std::sync::Arc;

/// The script or function that is called.
pub(crate) enum Callee {
    /// A script.
    Script(Script),
    /// A function: its name, the libraries among which it was found, and its library.
    Function { all: Arc<Libraries>, name: Box<[u8]>, library: Arc<Library>, index: usize },
}

/// A call of a script or function.
pub(crate) struct Evaluation {
    pub(crate) callee: Callee,
    /// The name of the script or function, for errors.
    pub(crate) name: Arc<str>,
    /// The flags that the script or function declares.
    pub(crate) flags: Flags,
    /// True if the command may only read, as with EVAL_RO.
    pub(crate) is_read: bool,
    /// The index of the first key in the request.
    pub(crate) first_key: usize,
    /// The number of keys. All arguments after the keys are passed as ARGV.
    pub(crate) keys: usize,
    /// The script to cache when it was compiled.
    pub(crate) to_keep: Option<Script>,
}

impl Evaluation {
    /// The kind: script or function.
    pub(crate) fn kind(&self) -> Kind {
        match self.callee {
            Callee::Script(_) => Kind::Script,
            Callee::Function { .. } => Kind::Function,
        }
    }

    /// True if the call can only read.
    pub(crate) fn only_reads(&self) -> bool {
        self.is_read || self.flags.has(Flags::NO_WRITES)
    }

    /// The access that the keys named in the request are locked for.
    pub(crate) fn access(&self) -> Access {
        if self.only_reads() { Access::Update } else { Access::Exclusive }
    }

    /// The keys that earlier runs of the script have used; `None` for functions, for which this is
    /// not recorded.
    pub(super) fn reach(&self) -> Option<&Reach> {
        match &self.callee {
            Callee::Script(script) => Some(&script.reach),
            Callee::Function { .. } => None,
        }
    }

    /// Begins the call on a machine, if the arguments are few and short.
    pub(super) fn begin_short(&self, machine: &mut Machine, args: Args<'_>, client: Protocol) {
        let program = self.program();
        let is_ready = match &program {
            Program::Script(_) => true,
            Program::Function(library, _) => machine.has_loaded(library),
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
        program.begin(machine, words, client);
    }

    /// Begins the call on a machine, with its keys and arguments.
    pub(super) fn begin(
        &self,
        machine: &mut Machine,
        words: (Vec<Vec<u8>>, Vec<Vec<u8>>),
        client: Protocol,
    ) {
        self.program().begin(machine, words, client);
    }

    /// The program that a machine must run. A function is looked up again, because its library may
    /// have changed since the request was parsed. Without locks another core may change it at any
    /// time, so this must be called only once per run.
    fn program(&self) -> Program {
        match &self.callee {
            Callee::Script(script) => Program::Script(script.clone()),
            Callee::Function { all, name, library, index } => {
                let now = all.current();
                let (library, index) = now.function(name).unwrap_or((library, *index));
                Program::Function(Arc::clone(library), index)
            }
        }
    }
}

/// The program that a machine runs.
enum Program {
    Script(Script),
    Function(Arc<Library>, usize),
}

impl Program {
    fn begin(
        self,
        machine: &mut Machine,
        (keys, arguments): (Vec<Vec<u8>>, Vec<Vec<u8>>),
        client: Protocol,
    ) {
        match self {
            Program::Script(script) => machine.begin(Run { script, keys, arguments, client }),
            Program::Function(library, index) => {
                machine.begin_call(FunctionRun { library, index, keys, arguments, client });
            }
        }
    }
}

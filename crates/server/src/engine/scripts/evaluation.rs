//! A script or a function that is to run, and what its command says of that.

use super::machines::Kind;
use crate::libraries::Libraries;
use darter_resp::Args;
use darter_script::{Flags, FunctionRun, Library, Machine, Protocol, Reach, Run, Script};
use darter_tx::Access;
use std::sync::Arc;

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
    pub(crate) fn only_reads(&self) -> bool {
        self.is_read || self.flags.has(Flags::NO_WRITES)
    }

    /// The access to the keys that its command names.
    pub(crate) fn access(&self) -> Access {
        if self.only_reads() { Access::Update } else { Access::Exclusive }
    }

    /// The keys that earlier runs have touched, if that is recorded: not for functions.
    pub(super) fn reach(&self) -> Option<&Reach> {
        match &self.callee {
            Callee::Script(script) => Some(&script.reach),
            Callee::Function { .. } => None,
        }
    }

    /// Begins it, with its keys and its other arguments, which are few and short.
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

    /// Begins it, with its keys and its other arguments.
    pub(super) fn begin(
        &self,
        machine: &mut Machine,
        words: (Vec<Vec<u8>>, Vec<Vec<u8>>),
        client: Protocol,
    ) {
        self.program().begin(machine, words, client);
    }

    /// What is to begin now. Where there are keys their locks are held, and it is the function of
    /// this instant, if there is one; without, another core may change the library at any time, so
    /// this is asked once for a run.
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

/// What a machine begins with.
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

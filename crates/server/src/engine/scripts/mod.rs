//! Scripts: EVAL and its kin, from their words to their replies.
//!
//! `registry` knows the texts, for all cores (libraries of functions: [`crate::libraries`]); `machines` has what they run in, on each core, and
//! `lend` gives one to a task. `command` and `functions` read requests; `run` is the task: it takes locks,
//! resumes the machine in slices, and has `gates` look at what the script calls, before that runs
//! as a command of EXEC does; `busy` refuses its keys to others when it takes very long. docs/design/0028-scripts.md.
//!
//! Not here: the language and its libraries. See `darter-script`.

pub(crate) mod busy;
pub(crate) mod command;
pub(crate) mod functions;
mod gates;
pub(crate) mod kill;
mod lend;
mod locks;
pub(crate) mod machines;
pub(crate) mod registry;
pub(crate) mod run;

//! Scripts: EVAL and its kin, from their words to their replies.
//!
//! `registry` knows the texts, for all cores (libraries of functions: [`crate::libraries`]), and
//! `recent` those that this core was asked for lately; `machines` has what they run in, on each core,
//! and `lend` gives one to a run. `command` and `functions` read requests: what they find is an
//! `evaluation`. `at_once` runs it in the turn in which it comes, without locks, if that is enough;
//! `away` does so on another core, if that has its keys;
//! `run` is the task: it takes locks, resumes the machine in slices, and has the gate (`unit::admit`) check what the
//! script calls, before that runs as a command of EXEC does, and `feed` hands over the reply;
//! `busy` refuses its keys to others when it takes very long.
//! docs/design/0028-running-scripts.md, docs/design/0031-scripts-at-once.md.
//!
//! Not here: the language and its libraries. See `darter-script`.

mod at_once;
mod away;
pub(crate) mod busy;
pub(crate) mod command;
pub(crate) mod evaluation;
mod feed;
pub(crate) mod functions;
pub(crate) mod kill;
mod lend;
mod locks;
pub(crate) mod machines;
mod recent;
pub(crate) mod registry;
pub(crate) mod run;

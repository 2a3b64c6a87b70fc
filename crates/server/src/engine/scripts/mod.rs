//! Scripts and functions: EVAL, FCALL and their variants, from the request to the reply.
//!
//! `registry` has the texts, for all cores (function libraries: [`crate::libraries`]), and `recent`
//! the scripts that this core used lately. `machines` are the Lua states of a core, and `lend`
//! lends one to a run. `command` and `functions` read requests into an `evaluation`. `at_once` runs
//! it in the turn of its arrival, without locks, if that suffices; `away` does so on another core
//! that owns its keys. `run` is the task: it takes locks and resumes the machine in slices. The
//! gate (`unit::admit`) checks each command that the script calls, which then runs like a command
//! of EXEC; `feed` passes its reply to the script. `busy` refuses a slow script's keys to others.
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

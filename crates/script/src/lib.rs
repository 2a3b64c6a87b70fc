//! Scripts as Redis 7.0 runs them: the sandbox, its libraries, and the ways in and out.
//!
//! A [`Machine`] runs one script at a time, in slices. When the script calls a command it stops
//! with [`Stop::Wait`]; its embedder reads the words ([`Machine::command`]), runs them, on this
//! core or another, feeds the reply ([`Machine::feed`]) and resumes. A script that is no longer
//! wanted is abandoned, at any time.
//!
//! ```text
//!   begin ──► resume ──► Slice ──► resume …       the slice is over
//!               ▲  └───► Wait ───► feed ──► resume …
//!               └──────── Ended ──► take_reply
//! ```
//!
//! All of it is safe code over `darter-lua`. Functions that may take long are written as steps
//! of some microseconds, without recursion: the libraries `cjson`, `cmsgpack` and `struct`, the
//! reading of replies and the writing of results.
//!
//! Not here: which commands a script may call, keys, locks, EVAL and its kin. See the engine.

#![forbid(unsafe_code)]

mod bit;
mod calling;
mod cjson;
mod cmsgpack;
mod ends;
mod errors;
mod incoming;
mod library;
mod machine;
mod math;
mod output;
mod packing;
mod random;
mod reach;
mod redis;
mod register;
mod registry;
mod reply;
mod sandbox;
mod session;
mod shebang;
#[cfg(test)]
mod tests;
mod values;

pub use calling::FunctionRun;
pub use darter_lua::Outcome;
pub use library::{ENGINE, Function, Functions, Library, Source};
pub use machine::{Machine, Naming, Run, Script, Stop};
pub use output::Protocol;
pub use random::Random;
pub use reach::{PROVEN_RUNS, Reach};
pub use registry::Registry;
pub use session::{Session, Wanted, Words};
pub use shebang::Flags;

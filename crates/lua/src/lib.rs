//! Lua 5.1 on a stack of its own: a script can be suspended anywhere, and thrown away.
//!
//! The interpreter is PUC's, kept in `vendor` with the changes that `PATCHES.md` lists; this crate
//! is the thin, unsafe layer around it. docs/design/0026-scripts.md says why this interpreter, and
//! why this way.
//!
//! A script runs on a coroutine's stack ([`Vm`]). A function of the host that must wait (for
//! another core) and a loop that has used up its portion switch back to the caller's stack, in a
//! few nanoseconds; whatever of Lua and of C is between them stays where it is. So waiting and
//! interrupting work in a comparator of `table.sort`, in a metamethod, in the script's own
//! coroutines.
//!
//! - **Time.** Every 1000 instructions, and after about 20 µs of work in the loops of the C code
//!   whose length a script decides, [`Preempt`](darter_base::preempt::Preempt) is asked.
//! - **Memory** is counted to the byte, and limited.
//! - **Functions of the host** are safe Rust: see [`call`].
//! - **Throwing away** a suspended script frees all that it had, and leaves the VM as new.
//!
//! Not here: what scripts may do. See `darter-script`.

pub mod call;
mod core;
mod ffi;
pub mod number;
mod stack;
#[cfg(test)]
mod tests;
mod vm;

pub use call::{Cx, Error, Function, Outcome, Program, Progress, Start, Step, Work};
pub use stack::{Kept, Location, Lua, Position, Type};
pub use vm::{STACK_BYTES, Stop, Vm};

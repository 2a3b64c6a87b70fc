//! A unit of commands: one command, an EXEC, a script. How it is admitted, how its
//! commands run, and how it ends.

pub(super) mod admit;
pub(super) mod settle;
pub(super) mod steps;

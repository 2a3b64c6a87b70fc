//! A unit of commands: one command, an EXEC, a script. How its commands run, and how it ends.

pub(super) mod settle;
pub(super) mod steps;

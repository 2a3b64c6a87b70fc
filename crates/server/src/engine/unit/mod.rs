//! Units of commands: one command, an EXEC or a script, which is admitted, placed, run and settled.

pub(super) mod admit;
pub(super) mod call;
pub(super) mod changes;
pub(super) mod place;
pub(super) mod settle;
pub(super) mod steps;

//! Units of work: a command, an EXEC or a script. A unit is checked, placed on a core, run, and
//! settled.

pub(super) mod admit;
pub(super) mod call;
pub(super) mod changes;
pub(super) mod place;
pub(super) mod settle;
pub(super) mod steps;

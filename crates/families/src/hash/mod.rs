//! Commands.

use darter_command::Command;

/// The rows of this family.
pub const TABLE: &[Command] = &[];

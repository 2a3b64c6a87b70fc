//! Sorted sets: members with scores, in the order of both.

mod items;
mod value;

pub use value::{ZSet, ZSetChange, ZSetEdit};

use darter_command::Command;

#[rustfmt::skip] // A table: one row a command.
pub(crate) const TABLE: &[Command] = &[];

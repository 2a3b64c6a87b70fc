//! The family of sorted sets, on one core and on several: against a naive model, and large ones.

mod large;
mod model;

use crate::common::value::Value;
use crate::common::world::World;

/// When all worlds begin.
const NOW: u64 = 1_000;

/// Runs a command.
fn run(world: &mut World, words: &[&[u8]]) -> Value {
    Value::read(&world.run(words))
}

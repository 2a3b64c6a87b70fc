//! Tests of the commands of sorted sets, on one core and on several: against a naive model, and
//! with large sets.

mod large;
mod model;

use crate::common::value::Value;
use crate::common::world::World;

/// The time at which all worlds begin.
const NOW: u64 = 1_000;

/// Runs a command. Returns its reply.
fn run(world: &mut World, words: &[&[u8]]) -> Value {
    Value::read(&world.run(words))
}

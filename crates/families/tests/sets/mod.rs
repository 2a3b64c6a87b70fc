//! The family of sets, on one core and on several: against a naive model, and by tables.

mod large;
mod model;
mod replies;

use crate::common::value::Value;
use crate::common::world::World;

/// When all worlds begin.
const NOW: u64 = 1_000;

/// Cores that reply as to clients in RESP3.
fn world(cores: usize, seed: u64) -> World {
    let mut world = World::new(cores, NOW, seed);
    world.resp3 = true;
    world
}

/// Runs a command.
fn run(world: &mut World, words: &[&[u8]]) -> Value {
    Value::read(&world.run(words))
}

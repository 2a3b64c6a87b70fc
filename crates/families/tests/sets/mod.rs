//! Tests of the commands of sets, on one core and on several: against a naive model, and by tables.

mod large;
mod model;
mod replies;

use crate::common::value::Value;
use crate::common::world::World;

/// The time at which all worlds begin.
const NOW: u64 = 1_000;

/// Makes a world of cores that reply in RESP3.
fn world(cores: usize, seed: u64) -> World {
    let mut world = World::new(cores, NOW, seed);
    world.resp3 = true;
    world
}

/// Runs a command. Returns its reply.
fn run(world: &mut World, words: &[&[u8]]) -> Value {
    Value::read(&world.run(words))
}

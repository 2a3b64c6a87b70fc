//! Checks that a client which keeps cursors as doubles scans all keys, however many cores there
//! are: node-redis 4, Lua's `tonumber` and PHP on 32 bits compute with them.

use crate::value::{self, Value};
use crate::world::Sim;
use darter_server::engine::Table;
use std::collections::BTreeSet;

/// Scans `keys` keys on `cores` cores; returns the number of different keys seen.
fn scan(cores: usize, keys: usize) -> usize {
    let mut families = darter_families::TABLES.to_vec();
    families.push(darter_persist::commands::TABLE);
    let table = Table::new(&families, darter_server::admin::TABLES);
    let mut sim = Sim::new(1, cores, 1, table);
    for first in (0..keys).step_by(100) {
        let pairs: String =
            (first..keys.min(first + 100)).map(|key| format!(" key:{key} x")).collect();
        assert_eq!(ask(&mut sim, &format!("MSET{pairs}\r\n")), Value::Simple("OK".to_owned()));
    }
    let (mut seen, mut cursor) = (BTreeSet::new(), 0.0_f64);
    for _ in 0..=keys + cores {
        let reply = ask(&mut sim, &format!("SCAN {cursor:.0} COUNT 1\r\n"));
        let Value::Array(parts) = reply else { panic!("{reply:?}") };
        let [Value::Bulk(next), Value::Array(names)] = parts.as_slice() else {
            panic!("{parts:?}")
        };
        seen.extend(names.iter().map(|name| format!("{name:?}")));
        cursor = next.parse().unwrap();
        if cursor == 0.0 {
            return seen.len();
        }
    }
    panic!("the scan does not end: {} keys of {keys}", seen.len());
}

/// Sends a request and waits for its reply.
fn ask(sim: &mut Sim, line: &str) -> Value {
    const PATIENCE: usize = 100_000;
    sim.send(0, line.as_bytes());
    for _ in 0..PATIENCE {
        sim.step();
        if let Some(reply) = value::take(sim.inbox(0)) {
            return reply;
        }
    }
    panic!("no reply to {line}");
}

#[test]
fn scans_of_64_cores_end_with_all_keys() {
    // Enough keys for a table of several segments on each core: its cursors are the largest.
    assert_eq!(scan(64, 10_000), 10_000);
}

//! The probes beside a big command: clients that wait for other things than a paced stream of GETs
//! does.
//!
//! A writer's command may wait for memory that a snapshot holds, or for a lock. A hand-over needs
//! the server to serve two connections in turn. A short connection needs the listener.

use std::ops::Range;
use std::sync::Arc;

use crate::client::{self, Connection};
use crate::data::{self, SMALL_KEYS};
use crate::fault::Outcome;
use crate::options::Options;
use crate::process::Server;
use crate::stream::{self, Pace, Plan, Record};

/// A probe: its name, and how many requests of the stream of GETs there are for each of its
/// exchanges.
pub(crate) struct Probe {
    pub(crate) name: &'static str,
    rarity: u64,
    start: fn(&Server, &Options) -> Outcome<Box<Exchange>>,
}

/// One exchange with the server, by its number.
type Exchange = dyn FnMut(u64) -> Outcome<()> + Send;

#[rustfmt::skip] // A table.
pub(crate) const PROBES: [Probe; 3] = [
    Probe { name: "writer",           rarity: 4,  start: writer },
    Probe { name: "hand-over",        rarity: 10, start: hand_over },
    Probe { name: "short connection", rarity: 10, start: short_connection },
];

/// Lists that the writer appends to.
const LISTS: u64 = 100;

/// Starts all probes. Each runs until the plan ends or the server is gone.
pub(crate) fn spawn(
    server: &Server,
    options: &Options,
    plan: &Arc<Plan>,
) -> Outcome<Vec<std::thread::JoinHandle<Record>>> {
    let start = |probe: &Probe| {
        let mut exchange = (probe.start)(server, options)?;
        let (plan, rate) = (Arc::clone(plan), (options.rate / probe.rarity).max(1));
        Ok(std::thread::spawn(move || {
            let one_by_one = |numbers: Range<u64>, pace: &Pace<'_>, record: &mut Record| {
                for number in numbers {
                    exchange(number)?;
                    record.add(pace, number);
                }
                Ok(())
            };
            stream::run_paced(&plan, rate, one_by_one)
        }))
    };
    PROBES.iter().map(start).collect()
}

/// SETs a small key and RPUSHes to a small list by turns.
fn writer(server: &Server, options: &Options) -> Outcome<Box<Exchange>> {
    let mut connection = server.connect(options.limit + options.tail)?;
    Ok(Box::new(move |number| {
        let key = format!("written:{}", number % LISTS);
        let words = if number % 2 == 0 { ["SET", &key, "v"] } else { ["RPUSH", &key, "v"] };
        connection.ask(&words).map(drop)
    }))
}

/// Pushes an element to a client that waits in BLPOP. Measured from the push to the other client's
/// reply.
fn hand_over(server: &Server, options: &Options) -> Outcome<Box<Exchange>> {
    let connect = || server.connect(options.limit + options.tail);
    let (mut giver, mut taker) = (connect()?, connect()?);
    let mut wait = Vec::new();
    client::command(&mut wait, &["BLPOP", "handed", "0"]);
    taker.send(&wait)?;
    Ok(Box::new(move |_| {
        giver.ask(&["RPUSH", "handed", "v"])?;
        taker.reply()?;
        taker.send(&wait)
    }))
}

/// Connects, sends one GET, and closes.
fn short_connection(server: &Server, options: &Options) -> Outcome<Box<Exchange>> {
    let (port, limit) = (server.port, options.limit + options.tail);
    Ok(Box::new(move |number| {
        let key = data::small_key(number % SMALL_KEYS);
        Connection::open(port, limit)?.ask(&[&b"GET"[..], &key]).map(drop)
    }))
}

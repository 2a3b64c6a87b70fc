//! Plays a sequence on both servers, as one pipeline each, and compares reply by reply.

use crate::scripts;
use crate::vocabulary::{Command, KEYS};
use darter_testkit::client::encode;
use darter_testkit::compare::{self, Match};
use darter_testkit::notation::show;
use darter_testkit::{Client, Protocol, Server, Shape};
use std::time::Duration;

/// The two servers, and a connection to each in each protocol.
pub(crate) struct Pair {
    shape: Shape,
    oracle: Server,
    subject: Server,
}

impl Pair {
    pub(crate) fn start(shape: Shape) -> Result<Self, String> {
        let oracle = Server::oracle().map_err(|error| error.to_string())?;
        let subject = Server::subject(shape).map_err(|error| error.to_string())?;
        Ok(Self { shape, oracle, subject })
    }

    /// Plays a sequence; returns the first difference between the servers, if any.
    pub(crate) fn play(&mut self, commands: &[Command]) -> Result<(), String> {
        if !self.subject.process().is_alive() {
            self.subject = Server::subject(self.shape).map_err(|error| error.to_string())?;
        }
        let mut all = scripts::folded(commands);
        all.extend(epilogue());
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let expected = replies(&self.oracle, &all, protocol)
                .map_err(|why| format!("the oracle: {why}"))?;
            let actual = replies(&self.subject, &all, protocol)?;
            for ((command, expected), actual) in all.iter().zip(&expected).zip(&actual) {
                compare::check(expected, actual, &command.how)
                    .map_err(|why| format!("differs: {} ({protocol:?})\n{why}", command.show()))?;
            }
        }
        Ok(())
    }
}

/// Reads everything that is left.
fn epilogue() -> Vec<Command> {
    let mut commands = Vec::new();
    let rows = [
        ("TYPE", Match::Exact),
        ("GET", Match::Exact),
        ("HGETALL", Match::SortedPairs),
        ("HLEN", Match::Exact),
        ("SMEMBERS", Match::Sorted),
        ("SCARD", Match::Exact),
        ("TTL", Match::Near(3)),
    ];
    for key in KEYS {
        for (name, how) in &rows {
            let words = vec![name.as_bytes().to_vec(), key.as_bytes().to_vec()];
            commands.push(Command { how: how.clone(), ..Command::new(words) });
        }
    }
    commands.push(Command::new(vec![b"DBSIZE".to_vec()]));
    commands
}

fn replies(
    server: &Server,
    commands: &[Command],
    protocol: Protocol,
) -> Result<Vec<Vec<u8>>, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut client = Client::connect(server.port(), protocol).map_err(text)?;
    client.set_patience(Duration::from_secs(10)).map_err(text)?;
    let emptied = client.words("FLUSHALL").map_err(text)?;
    if emptied.is_error() {
        return Err(format!("FLUSHALL: {}", show(&emptied, 200)));
    }
    // Sent in portions, so that neither server's socket fills up while the other one waits.
    let mut all = Vec::with_capacity(commands.len());
    for portion in commands.chunks(50) {
        let bytes: Vec<u8> = portion.iter().flat_map(|command| encode(&command.words)).collect();
        client.send(&bytes).map_err(text)?;
        for command in portion {
            let raw = client.receive_raw();
            all.push(raw.map_err(|error| format!("{error} at {}", command.show()))?);
        }
    }
    Ok(all)
}

//! Replays recorded effects on redis-server 7.0, encoded as commands.
//!
//! Random writes run on one core, and redis-server receives the commands of each record. Both must
//! have the same digest, the same deadlines of keys, and the same consumer groups. Commands whose
//! effects Redis 7.0 does not know are left out, and deadlines are far away: the simulator's clock is
//! not Redis's.

use crate::replay::{Writer, encode, families};
use crate::world::Sim;
use darter_keyspace::{Commands, Wants, commands};
use darter_server::engine::Table;
use darter_testkit::{Client, Reply, reply};

/// Commands of one run.
const COMMANDS: usize = 400;
/// Commands between two comparisons.
const LOOK_EACH: usize = 10;

/// Parts of lines whose effects Redis 7.0 does not know, or that have near deadlines.
#[rustfmt::skip] // A table.
const UNKNOWN: &[&str] = &[
    "SADDEX", "FIELDEXPIRE", "HEXPIRE", "HPEXPIRE", "HSETEX K PX", "HGETEX K PX", "XNACK", "ACKED",
    // Other databases have other digests.
    " N", " DB ",
];

/// True if Redis 7.0 knows the effects of this line.
fn is_known(line: &str) -> bool {
    let is_of_module = line.split(' ').next().is_some_and(|name| name.contains('.'));
    !is_of_module && !UNKNOWN.iter().any(|part| line.contains(part))
}

/// The simulator, and the redis-server that follows it.
struct Both<'a> {
    sim: Sim,
    to: Commands,
    redis: &'a mut Client,
    /// The number of commands that redis-server has received.
    count: usize,
}

impl Both<'_> {
    /// Runs a command in the simulator. Returns its reply.
    fn run(&mut self, bytes: &[u8]) -> Result<Reply, String> {
        const PATIENCE: usize = 200_000;
        self.sim.send(0, bytes);
        for _ in 0..PATIENCE {
            self.sim.step();
            self.follow()?;
            let inbox = self.sim.inbox(0);
            if let Ok(Some(len)) = reply::frame_len(inbox) {
                let raw: Vec<u8> = inbox.drain(..len).collect();
                return reply::parse(&raw).map_err(|error| format!("{error:?}"));
            }
        }
        Err("a command hangs".to_owned())
    }

    /// Sends the commands of new records to redis-server.
    fn follow(&mut self) -> Result<(), String> {
        for record in self.sim.cores[0].tx.home().shard.take_records() {
            commands::encode(&record, &mut self.to);
            let count = self.to.count();
            let bytes = self.to.take().flatten();
            self.redis.send(&bytes).map_err(|error| error.to_string())?;
            for _ in 0..count {
                let reply = self.redis.receive().map_err(|error| error.to_string())?;
                if reply.is_error() {
                    let shown: String = format!("{record:?}").chars().take(300).collect();
                    return Err(format!("{reply:?}: {shown}"));
                }
            }
            self.count += count;
        }
        Ok(())
    }

    /// Compares the replies to a command.
    fn compare(&mut self, line: &str) -> Result<Reply, String> {
        let words: Vec<Vec<u8>> =
            line.split(' ').map(|word| word.replace('_', " ").into()).collect();
        let ours = plain(self.run(&encode(&words))?);
        let theirs = plain(self.redis.command(&words).map_err(|error| error.to_string())?);
        if ours == theirs { Ok(ours) } else { Err(format!("{line}: {ours:?} and {theirs:?}")) }
    }

    /// Compares all data.
    fn compare_all(&mut self) -> Result<(), String> {
        for key in 0..8 {
            let kind = self.compare(&format!("TYPE key_{key}"))?;
            self.compare(&format!("PEXPIRETIME key_{key}"))?;
            if kind == Reply::Simple(b"stream".to_vec()) {
                self.compare(&format!("XINFO STREAM key_{key} FULL COUNT 0"))?;
            }
        }
        self.compare("DEBUG DIGEST").map(drop)
    }
}

/// A reply without the facts that commands do not tell.
fn plain(reply: Reply) -> Reply {
    /// The next item of a reply depends on the server.
    const FACTS: &[&str] = &["radix-tree-keys", "radix-tree-nodes", "seen-time", "active-time"];
    let Reply::Array(items) = reply else { return reply };
    let (mut kept, mut items) = (Vec::new(), items.into_iter());
    while let Some(item) = items.next() {
        if item.text().is_some_and(|text| FACTS.iter().any(|fact| fact.as_bytes() == text)) {
            items.next();
        } else {
            kept.push(plain(item));
        }
    }
    Reply::Array(kept)
}

/// Runs one seed. Returns the number of commands that redis-server received.
pub(crate) fn interchange(seed: u64, redis: &mut Client) -> Result<usize, String> {
    redis.words("FLUSHALL").map_err(|error| error.to_string())?;
    let sim = Sim::new(seed, 1, 1, Table::new(&families(), darter_server::admin::TABLES));
    sim.cores[0].tx.home().shard.join(Wants::CHANGES);
    let mut both = Both { sim, to: Commands::default(), redis, count: 0 };
    let mut writer = Writer::lasting(seed, is_known);
    for at in 0..COMMANDS {
        writer.now = both.sim.cores[0].clock.unix_ms();
        let words = writer.command();
        let shown = String::from_utf8_lossy(&words[0]).into_owned();
        let reply = both.run(&encode(&words)).map_err(|fault| format!("{at}, {shown}: {fault}"))?;
        if let (b"DUMP", Reply::Bulk(payload)) = (&*words[0], reply) {
            writer.payload = payload;
        }
        if at % LOOK_EACH == 0 {
            both.compare_all().map_err(|fault| format!("{at}, {shown}: {fault}"))?;
        }
    }
    both.compare_all()?;
    Ok(both.count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_testkit::Server;

    #[test]
    fn effects_replayed_by_redis_give_the_same_data() {
        let server = Server::oracle().unwrap();
        let mut client = server.client().unwrap();
        let mut count = 0;
        for seed in 0..24 {
            match interchange(seed, &mut client) {
                Ok(commands) => count += commands,
                Err(fault) => panic!("seed {seed}: {fault}"),
            }
        }
        assert!(count > 2_000, "{count} commands");
    }
}

//! Runs one script against both servers and compares as it goes.
//!
//! After each command the servers must agree on the reply, and also on the number of counted
//! changes, which determines when they save (`save`, `rdb_changes_since_last_save`).
//!
//! Both servers are emptied before each script, and every script has connections of its own. A
//! server that dies or hangs is restarted, and the current script fails.

use crate::args::{self, Arg};
use crate::script::{Action, Case, Step};
use darter_testkit::compare::{self, Match};
use darter_testkit::notation::show;
use darter_testkit::{Client, Protocol, Reply, Server, Shape, reply};
use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

/// Commands whose changes Darter counts differently from redis-server (docs/compat.md).
const COUNTED_OTHERWISE: &[&str] = &["DEBUG"];

/// How long `@until` repeats.
const UNTIL_MAX: Duration = Duration::from_secs(10);

/// The two servers.
pub(crate) struct Bench {
    oracle: Server,
    subject: Server,
    shape: Shape,
}

/// One server's side of a script.
struct Side {
    port: u16,
    protocol: Protocol,
    connections: HashMap<char, Client>,
    variables: HashMap<String, Vec<u8>>,
    /// A client that reads the number of changes; `None` if the test would notice it.
    observer: Option<Client>,
    /// The number of changes at the previous step.
    changes: i64,
    /// The number of snapshots started by the previous step.
    saves: i64,
    /// A snapshot was being written.
    is_saving: bool,
}

impl Side {
    fn open(server: &Server, case: &Case, protocol: Protocol) -> io::Result<Self> {
        let mut admin = server.client()?;
        admin.set_patience(Duration::from_secs(5))?;
        admin.words("CLIENT KILL TYPE normal SKIPME yes")?;
        let emptied = admin.words("FLUSHALL")?;
        if emptied.is_error() {
            return Err(io::Error::other(format!("FLUSHALL: {}", show(&emptied, 200))));
        }
        let (connections, variables) = (HashMap::new(), HashMap::new());
        // Reading the number would be noticed, or would give the snapshot time to end.
        let disturbs =
            |step: &Step| ["MONITOR", "SAVE"].iter().any(|word| step.text.contains(word));
        let is_seen = case.steps.iter().any(disturbs);
        let observer = if is_seen { None } else { Some(server.client()?) };
        let port = server.port();
        let mut side = Self {
            port,
            protocol,
            connections,
            variables,
            observer,
            changes: 0,
            saves: 0,
            is_saving: false,
        };
        side.new_changes();
        Ok(side)
    }

    /// The number of changes since the previous call. `None` if a save that ended since may have
    /// reset the number, or if the observer was disconnected.
    fn new_changes(&mut self) -> Option<i64> {
        let info = self.observer.as_mut()?.words("INFO persistence").ok()?;
        let text = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
        let number = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value?.parse::<i64>().ok()
        };
        let (count, saves) = (number("rdb_changes_since_last_save")?, number("rdb_saves")?);
        let before = std::mem::replace(&mut self.changes, count);
        let saves_before = std::mem::replace(&mut self.saves, saves);
        let is_saving = number("rdb_bgsave_in_progress")? > 0;
        let was_saving = std::mem::replace(&mut self.is_saving, is_saving);
        (saves == saves_before && !was_saving).then_some(count - before)
    }

    fn connection(&mut self, name: char) -> io::Result<&mut Client> {
        if !self.connections.contains_key(&name) {
            let client = Client::connect(self.port, self.protocol)?;
            self.connections.insert(name, client);
        }
        self.connections.get_mut(&name).ok_or_else(|| io::Error::other("no connection"))
    }

    fn send(&mut self, step: &Step, args: &[Arg], cursor: &[u8]) -> Result<(), String> {
        let words = args::resolve(args, &self.variables, cursor, args::now_ms())?;
        let connection = self.connection(step.connection).map_err(|e| e.to_string())?;
        connection.send(&darter_testkit::client::encode(&words)).map_err(|e| e.to_string())
    }

    fn receive(&mut self, step: &Step) -> Result<Vec<u8>, String> {
        let connection = self.connection(step.connection).map_err(|e| e.to_string())?;
        connection.receive_raw().map_err(|error| error.to_string())
    }

    /// Sends a command, and waits until one more client is blocked.
    fn block(&mut self, step: &Step, args: &[Arg]) -> Result<(), String> {
        let before = self.blocked()?;
        self.send(step, args, b"0")?;
        let begun = Instant::now();
        while self.blocked()? <= before {
            if begun.elapsed() > UNTIL_MAX {
                return Err("it does not wait".to_owned());
            }
        }
        Ok(())
    }

    /// The number of blocked clients.
    fn blocked(&mut self) -> Result<usize, String> {
        let observer = self.observer.as_mut().ok_or("nobody may ask who is blocked")?;
        let info = observer.words("INFO clients").map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
        let count = text.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
        count.and_then(|count| count.parse().ok()).ok_or("blocked_clients is missing".to_owned())
    }

    fn ask(&mut self, step: &Step, args: &[Arg]) -> Result<Vec<u8>, String> {
        self.send(step, args, b"0")?;
        self.receive(step)
    }

    /// Follows a cursor to its end; returns all elements as one reply.
    fn scan(&mut self, step: &Step, args: &[Arg]) -> Result<Reply, String> {
        let (mut cursor, mut all) = (b"0".to_vec(), Vec::new());
        for _ in 0..100_000 {
            self.send(step, args, &cursor)?;
            let answer = reply::parse(&self.receive(step)?).map_err(|e| format!("{e:?}"))?;
            let Some([next, Reply::Array(found)]) = answer.items() else {
                return Ok(answer);
            };
            all.extend(found.iter().cloned());
            cursor = next.text().unwrap_or_default().to_vec();
            if cursor == b"0" {
                return Ok(Reply::Array(all));
            }
        }
        Err("the scan does not end".to_owned())
    }

    /// Performs a step; returns its outcome as bytes, if it has one.
    fn perform(&mut self, step: &Step) -> Result<Option<Vec<u8>>, String> {
        let text = |error: io::Error| error.to_string();
        match &step.action {
            Action::Command { args, save } => {
                let raw = self.ask(step, args)?;
                if let Some(name) = save {
                    self.keep(name, &raw)?;
                }
                return Ok(Some(raw));
            }
            Action::Until(args) => return self.until(step, args).map(Some),
            Action::Scan { args, pairs } => {
                return Ok(Some(distinct(self.scan(step, args)?, *pairs).encode()));
            }
            Action::Send(args) => self.send(step, args, b"0")?,
            Action::Blocks(args) => self.block(step, args)?,
            Action::Raw(bytes) => {
                self.connection(step.connection).and_then(|c| c.send(bytes)).map_err(text)?;
            }
            Action::Receive => return self.receive(step).map(Some),
            Action::ReadToEnd => {
                let connection = self.connection(step.connection).map_err(text)?;
                return connection.read_to_end().map(Some).map_err(text);
            }
            Action::Reconnect => {
                self.connections.remove(&step.connection);
            }
            Action::HalfClose => {
                self.connection(step.connection).and_then(|c| c.half_close()).map_err(text)?;
            }
            Action::Wait(ms) => std::thread::sleep(Duration::from_millis(*ms)),
        }
        Ok(None)
    }

    fn keep(&mut self, name: &str, raw: &[u8]) -> Result<(), String> {
        let parsed = reply::parse(raw).map_err(|error| format!("{error:?}"))?;
        let kept = match &parsed {
            Reply::Int(value) => value.to_string().into_bytes(),
            other => other.text().unwrap_or_default().to_vec(),
        };
        self.variables.insert(name.to_owned(), kept);
        Ok(())
    }

    fn until(&mut self, step: &Step, args: &[Arg]) -> Result<Vec<u8>, String> {
        let wanted = literal(step, self.protocol).ok_or("@until needs a literal")?;
        let start = Instant::now();
        loop {
            let raw = self.ask(step, args)?;
            if compare::check(&wanted, &raw, &step.how).is_ok() || start.elapsed() > UNTIL_MAX {
                return Ok(raw);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The elements, sorted and deduplicated, because a scan may return one twice.
fn distinct(reply: Reply, pairs: bool) -> Reply {
    let Reply::Array(items) = reply else { return reply };
    let width = if pairs { 2 } else { 1 };
    let mut rows: Vec<Vec<Reply>> = items.chunks(width).map(<[Reply]>::to_vec).collect();
    rows.sort();
    rows.dedup();
    Reply::Array(rows.concat())
}

fn literal(step: &Step, protocol: Protocol) -> Option<Vec<u8>> {
    let index = usize::from(protocol == Protocol::Resp3);
    step.literal[index].as_ref().map(Reply::encode)
}

impl Bench {
    pub(crate) fn start(shape: Shape) -> Result<Self, String> {
        let oracle = Server::oracle().map_err(|error| error.to_string())?;
        let subject = Server::subject(shape).map_err(|error| error.to_string())?;
        Ok(Self { oracle, subject, shape })
    }

    pub(crate) fn run(&mut self, case: &Case, protocol: Protocol) -> Result<(), String> {
        let outcome = self.run_steps(case, protocol);
        let Err(why) = outcome else { return Ok(()) };
        let died = !self.subject.process().is_alive();
        self.revive()?;
        Err(if died { format!("{why}\nand the server died") } else { why })
    }

    /// Replaces a server that is dead or stuck, so that one bad script does not fail the rest.
    fn revive(&mut self) -> Result<(), String> {
        if !answers(&self.oracle) {
            self.oracle = Server::oracle().map_err(|error| error.to_string())?;
        }
        if !answers(&self.subject) {
            self.subject = Server::subject(self.shape).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn run_steps(&mut self, case: &Case, protocol: Protocol) -> Result<(), String> {
        let open =
            |server| Side::open(server, case, protocol).map_err(|e| format!("at its start: {e}"));
        let mut subject = open(&self.subject)?;
        let mut oracle = if case.origin.is_none() { Some(open(&self.oracle)?) } else { None };
        for step in &case.steps {
            if step.only.is_some_and(|only| only != protocol) {
                continue;
            }
            run_step(step, protocol, oracle.as_mut(), &mut subject)
                .map_err(|why| format!("line {}: {}\n{why}", step.line, step.text))?;
        }
        Ok(())
    }
}

fn answers(server: &Server) -> bool {
    let pong = server.client().and_then(|mut client| {
        client.set_patience(Duration::from_secs(2))?;
        client.words("PING")
    });
    pong.is_ok_and(|reply| !reply.is_error())
}

/// Compares the changes that both servers have counted since the last step, if `is_compared`. An
/// expiry also counts as a change, and may happen slightly later in redis-server.
fn compare_changes(oracle: &mut Side, subject: &mut Side, is_compared: bool) -> Result<(), String> {
    const SETTLED_MAX: Duration = Duration::from_secs(1);
    let (mut expected, mut counted) = (0, 0);
    let began = Instant::now();
    loop {
        let Some(both) = oracle.new_changes().zip(subject.new_changes()) else { return Ok(()) };
        (expected, counted) = (expected + both.0, counted + both.1);
        if !is_compared || expected == counted {
            return Ok(());
        }
        if began.elapsed() > SETTLED_MAX {
            return Err(format!("{counted} changes are counted, {expected} by the oracle"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// False for the commands in [`COUNTED_OTHERWISE`], and for steps without a command.
fn is_counted_alike(step: &Step) -> bool {
    let Action::Command { args, .. } = &step.action else { return false };
    let Some(Arg::Fixed(name)) = args.first() else { return false };
    !COUNTED_OTHERWISE.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
}

fn run_step(
    step: &Step,
    protocol: Protocol,
    oracle: Option<&mut Side>,
    subject: &mut Side,
) -> Result<(), String> {
    let has_oracle = oracle.is_some();
    let of_oracle = |why| format!("the oracle: {why}");
    let mut oracle = oracle;
    let from_oracle = match &mut oracle {
        Some(side) => side.perform(step).map_err(of_oracle)?,
        None => None,
    };
    let Some(actual) = subject.perform(step)? else { return Ok(()) };
    let literal = literal(step, protocol);
    if let Some(oracle) = oracle {
        let is_compared = literal.is_none() && is_counted_alike(step);
        compare_changes(oracle, subject, is_compared)?;
    }
    // If the oracle runs the case, too, a literal marks a known difference.
    let stand_in = has_oracle && darter_testkit::server::subject_is_redis();
    match (literal, from_oracle) {
        (Some(expected), None) => compare::check(&expected, &actual, &step.how),
        (Some(expected), Some(_)) if !stand_in => compare::check(&expected, &actual, &step.how),
        (_, Some(expected)) => compare::check(&expected, &actual, &step.how),
        (None, None) if actual.starts_with(b"-") => {
            compare::check(b"+not an error\r\n", &actual, &Match::Exact)
        }
        (None, None) => Ok(()),
    }
}

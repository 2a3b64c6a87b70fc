//! Runs scripts in Darter's interpreter and in redis-server, in RESP2 and again in RESP3, and
//! compares the replies byte for byte.
//!
//! `cargo run -p darter-scripts -- [TEXT]`, for the cases whose line has the text; with `--time`
//! it measures instead (`time.rs`). The cases are
//! the lines of EVAL of `tests/conformance/cases/scripts-*.txt`, which are sent to the server there.
//! Here the interpreter is alone: each script runs in slices of random lengths, and its commands
//! are answered by a second database of the same redis-server.

#![forbid(unsafe_code)]

mod time;

use darter_base::Prng;
use darter_base::preempt::{Countdown, Preempt};
use darter_script::{Machine, Protocol, Run, Script, Stop, Wanted};
use darter_testkit::{Client, Server, Tally, notation};
use std::process::ExitCode;

/// The memory that a script may use, in bytes.
const LIMIT: usize = 256 << 20;

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let mut tally = Tally::default();
    if wanted == "--time" {
        tally.count("times", time::run(&std::env::args().nth(2).unwrap_or_default()));
        return tally.close();
    }
    let result = load().and_then(|cases| {
        let oracle = Server::oracle().map_err(|error| error.to_string())?;
        for protocol in [Protocol::Two, Protocol::Three] {
            let mut bench = Bench::new(&oracle, protocol)?;
            for case in cases.iter().filter(|case| case.line.contains(&*wanted)) {
                bench.check(&mut tally, case);
            }
        }
        Ok(())
    });
    if let Err(why) = result {
        tally.count("the comparison", Err(why));
    }
    tally.close()
}

/// One case: a line of a file.
struct Case {
    line: String,
    words: Vec<Vec<u8>>,
}

/// All lines of EVAL in the cases of conformance.
fn load() -> Result<Vec<Case>, String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/cases");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .map_err(|error| format!("{folder}: {error}"))?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("scripts-"))
        .map(|entry| entry.path())
        .collect();
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
        let lines = text.lines().filter(|line| line.starts_with("EVAL "));
        for line in lines {
            cases.push(Case { line: line.to_owned(), words: words(line)? });
        }
    }
    Ok(cases)
}

/// Splits a line into words and quoted strings.
fn words(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let length = if rest.starts_with('"') {
            let (bytes, length) = notation::unquote(rest.as_bytes())?;
            words.push(bytes);
            length
        } else {
            let length = rest.find(' ').unwrap_or(rest.len());
            words.push(rest.as_bytes()[..length].to_vec());
            length
        };
        rest = rest[length..].trim_start();
    }
    Ok(words)
}

/// Both interpreters, with the same protocol.
struct Bench {
    protocol: Protocol,
    /// The client that runs scripts in redis-server.
    oracle: Client,
    /// The clients that run the commands of Darter's scripts, one for each protocol.
    commands: [Client; 2],
    machine: Machine,
    prng: Prng,
}

impl Bench {
    fn new(server: &Server, protocol: Protocol) -> Result<Self, String> {
        let connect = |protocol| {
            let version = match protocol {
                Protocol::Two => darter_testkit::Protocol::Resp2,
                Protocol::Three => darter_testkit::Protocol::Resp3,
            };
            Client::connect(server.port(), version).map_err(|error| error.to_string())
        };
        let mut commands = [connect(Protocol::Two)?, connect(Protocol::Three)?];
        for client in &mut commands {
            client.words("SELECT 1").map_err(|error| error.to_string())?;
        }
        let machine = Machine::new(LIMIT).map_err(|error| error.to_string())?;
        Ok(Self {
            protocol,
            oracle: connect(protocol)?,
            commands,
            machine,
            prng: Prng::from_seed(7),
        })
    }

    fn check(&mut self, tally: &mut Tally, case: &Case) {
        let outcome = self.replies(case).and_then(|(theirs, ours)| {
            if theirs == ours {
                return Ok(());
            }
            let show = |reply: &[u8]| reply[..reply.len().min(300)].escape_ascii().to_string();
            Err(format!("redis-server: {}\n      ours: {}", show(&theirs), show(&ours)))
        });
        tally.count(&format!("{:?} {}", self.protocol, case.line), outcome);
    }

    /// The replies of redis-server and of Darter's interpreter.
    fn replies(&mut self, case: &Case) -> Result<(Vec<u8>, Vec<u8>), String> {
        let failed = |error: std::io::Error| error.to_string();
        self.oracle.words("FLUSHALL").map_err(failed)?;
        self.oracle.send(&darter_testkit::client::encode(&case.words)).map_err(failed)?;
        let theirs = self.oracle.receive_raw().map_err(failed)?;
        Ok((theirs, self.evaluate(&case.words)?))
    }

    fn evaluate(&mut self, words: &[Vec<u8>]) -> Result<Vec<u8>, String> {
        let script = match Script::new(&words[1]) {
            Ok(script) => script,
            Err(error) => return Ok([b"-", &*error, b"\r\n"].concat()),
        };
        let count = std::str::from_utf8(&words[2]).ok().and_then(|text| text.parse().ok());
        let count: usize = count.ok_or("a number of keys")?;
        let (keys, arguments) = words[3..].split_at(count);
        let (keys, arguments) = (keys.to_vec(), arguments.to_vec());
        self.machine.begin(Run { script, keys, arguments, client: self.protocol });
        loop {
            let slice = Countdown::new(usize::try_from(self.prng.below(50)).unwrap_or(0));
            match self.machine.resume(&slice as &dyn Preempt) {
                Stop::Slice => {}
                Stop::Wait(Wanted::Reply) => self.answer()?,
                Stop::Wait(Wanted::Permission) => self.machine.feed(b":1\r\n"),
                Stop::Wait(Wanted::More) => return Err("the whole reply was there".into()),
                Stop::Ended => return Ok(self.machine.take_reply().concat()),
            }
        }
    }

    /// Answers a command by redis-server, with the refusals that scripts get.
    fn answer(&mut self) -> Result<(), String> {
        let words: Vec<Vec<u8>> = self.machine.command().iter().map(<[u8]>::to_vec).collect();
        let client = match self.machine.protocol() {
            Protocol::Two => &mut self.commands[0],
            Protocol::Three => &mut self.commands[1],
        };
        client.send(&darter_testkit::client::encode(&words)).map_err(|error| error.to_string())?;
        let reply = client.receive_raw().map_err(|error| error.to_string())?;
        let reply = if reply.starts_with(b"-ERR unknown command") {
            b"-ERR Unknown Redis command called from script\r\n".to_vec()
        } else if reply.starts_with(b"-ERR wrong number of arguments") {
            b"-ERR Wrong number of args calling Redis command from script\r\n".to_vec()
        } else {
            reply
        };
        self.machine.feed(&reply);
        Ok(())
    }
}

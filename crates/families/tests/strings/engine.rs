//! Runs commands on one shard as the engine does: parsed from bytes, streams and jobs driven to
//! their end.

use darter_base::Prng;
use darter_base::preempt::Never;
use darter_command::{Args, Command, Cx, Flow, Refusal, Run, Step};
use darter_families::string::TABLE;
use darter_keyspace::{Db, Deadline, Key, ShardStats};
use darter_resp::{self as resp, Output, Parser, Reply};

/// The request as a client sends it.
pub(crate) fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The row of a command, or the error that the engine gives.
pub(crate) fn row(words: &[&[u8]]) -> Result<&'static Command, Refusal> {
    let name = String::from_utf8_lossy(words[0]).to_lowercase();
    let row = TABLE.iter().find(|row| row.name == name).expect("a command of this family");
    if row.accepts(words.len()) { Ok(row) } else { Err(Refusal::Arity(row.name.into())) }
}

/// One database, and the world around it.
pub(crate) struct Engine {
    pub(crate) db: Db,
    pub(crate) now: u64,
    pub(crate) resp3: bool,
    /// Portions that streams and jobs took, for all commands so far.
    pub(crate) portions: usize,
    stats: ShardStats,
    prng: Prng,
}

impl Engine {
    pub(crate) fn new(now: u64) -> Self {
        let mut db = Db::default();
        db.set_now(now);
        let (stats, prng) = (ShardStats::default(), Prng::from_seed(1));
        Self { db, now, resp3: false, portions: 0, stats, prng }
    }

    /// A set with one member, for refusals.
    pub(crate) fn add_set(&mut self, key: &[u8]) {
        self.db.edit_set(&Key::new(key), true, |set| set.add(b"m", Deadline::Clear)).unwrap();
    }

    /// Runs a command; gives the bytes of its reply.
    pub(crate) fn run(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut parser = Parser::new(512 * 1024 * 1024, true);
        parser.feed(&encode(words));
        let args = parser.next_request().unwrap().expect("the request is whole");
        let mut out = Output::default();
        if let Err(refusal) = self.execute(words, args, &mut out) {
            out = Output::default();
            Reply::new(&mut out, self.resp3).error(&refusal.text());
        }
        out.flatten()
    }

    fn execute(
        &mut self,
        words: &[&[u8]],
        args: resp::Args<'_>,
        out: &mut Output,
    ) -> Result<(), Refusal> {
        let row = row(words)?;
        let (Run::Point(run) | Run::Multi { here: Some(run), .. }) = row.run else {
            unreachable!("every command of the family runs on one shard");
        };
        let mut cx = Cx {
            db: &mut self.db,
            reply: Reply::new(out, self.resp3),
            now: self.now,
            prng: &mut self.prng,
            stats: &mut self.stats,
            preempt: &Never,
        };
        let mut flow = run(&mut cx, Args::new(args, 1))?;
        loop {
            flow = match flow {
                Flow::Done => return Ok(()),
                Flow::Stream(mut stream) => {
                    self.portions += 1;
                    while stream.pump(&mut cx.reply) {
                        self.portions += 1;
                    }
                    Flow::Done
                }
                Flow::Job(mut job) => {
                    self.portions += 1;
                    match job.step(&mut cx)? {
                        Step::More => Flow::Job(job),
                        Step::Done(flow) => flow,
                    }
                }
            };
        }
    }
}

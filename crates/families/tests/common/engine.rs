//! Runs commands on one shard as the engine does: parsed from bytes, streams and jobs driven to
//! their end.

use super::{encode, row};
use darter_base::preempt::Never;
use darter_base::{Preempt, Prng};
use darter_command::{Args, Cx, Flow, PointFn, Refusal, Run, Step, Stream};
use darter_families::set::Set;
use darter_keyspace::{Db, Deadline, Key, ShardStats};
use darter_resp::{self as resp, Output, Parser, Reply};

/// One database, and the world around it.
pub(crate) struct Engine {
    pub(crate) db: Db,
    pub(crate) now: u64,
    pub(crate) resp3: bool,
    /// Says when slices end: never, at first.
    pub(crate) preempt: Box<dyn Preempt>,
    /// Milliseconds that pass before each portion of a job.
    pub(crate) portion_ms: u64,
    /// Portions that streams and jobs took, for all commands so far.
    pub(crate) portions: usize,
    /// Bytes of long arguments that the last command has copied into one piece.
    pub(crate) copied: usize,
    /// Bytes of the largest portion of a stream.
    pub(crate) portion_bytes: usize,
    stats: ShardStats,
    prng: Prng,
}

impl Engine {
    pub(crate) fn new(now: u64, seed: u64) -> Self {
        let mut engine = Self {
            db: Db::default(),
            now,
            resp3: false,
            preempt: Box::new(Never),
            portion_ms: 0,
            portions: 0,
            copied: 0,
            portion_bytes: 0,
            stats: ShardStats::default(),
            prng: Prng::from_seed(seed),
        };
        engine.tick(0);
        engine
    }

    pub(crate) fn tick(&mut self, ms: u64) {
        self.now += ms;
        self.db.set_now(self.now);
    }

    /// A set with one member, for refusals.
    pub(crate) fn add_set(&mut self, key: &[u8]) {
        self.db.edit::<Set, _>(&Key::new(key), true, |set| set.add(b"m", Deadline::Clear)).unwrap();
    }

    /// Runs a command; gives the bytes of its reply.
    pub(crate) fn run(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut parser = Parser::new(512 * 1024 * 1024, true);
        parser.feed(&encode(words));
        let args = parser.next_request().unwrap().expect("the request is whole");
        let mut out = Output::default();
        let held = args.held_bytes();
        if let Err(refusal) = self.execute(words, args, &mut out) {
            assert!(out.is_empty(), "a refusal behind a reply");
            Reply::new(&mut out, self.resp3).error(&refusal.text());
        }
        self.copied = args.held_bytes().saturating_sub(held); // Chunks may be a value's by now.
        out.flatten()
    }

    /// [`Engine::run`] of words separated by blanks, as text.
    pub(crate) fn line(&mut self, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        String::from_utf8(self.run(&words)).unwrap()
    }

    /// Begins a command whose reply is long, up to its stream, as words separated by blanks.
    pub(crate) fn begin(&mut self, line: &str) -> Box<dyn Stream> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut parser = Parser::new(512 * 1024 * 1024, true);
        parser.feed(&encode(&words));
        let args = parser.next_request().unwrap().expect("the request is whole");
        let (run, first) = function(&words).unwrap();
        match run(&mut self.cx(&mut Output::default()), Args::new(args, first)) {
            Ok(Flow::Stream(stream)) => stream,
            _ => panic!("{line} is no stream"),
        }
    }

    fn cx<'a>(&'a mut self, out: &'a mut Output) -> Cx<'a> {
        Cx {
            db: &mut self.db,
            reply: Reply::new(out, self.resp3),
            now: self.now,
            prng: &mut self.prng,
            stats: &mut self.stats,
            preempt: &*self.preempt,
        }
    }

    fn execute(
        &mut self,
        words: &[&[u8]],
        args: resp::Args<'_>,
        out: &mut Output,
    ) -> Result<(), Refusal> {
        let (run, first) = function(words)?;
        let mut cx = Cx {
            db: &mut self.db,
            reply: Reply::new(out, self.resp3),
            now: self.now,
            prng: &mut self.prng,
            stats: &mut self.stats,
            preempt: &*self.preempt,
        };
        let mut flow = run(&mut cx, Args::new(args, first))?;
        loop {
            flow = match flow {
                Flow::Done => return Ok(()),
                Flow::Stream(mut stream) => {
                    loop {
                        self.portions += 1;
                        let before = cx.reply.out.len();
                        let more = stream.pump(&mut cx.reply);
                        let bytes = cx.reply.out.len() - before;
                        self.portion_bytes = self.portion_bytes.max(bytes);
                        if !more {
                            break;
                        }
                    }
                    Flow::Done
                }
                Flow::Job(mut job) => {
                    self.portions += 1;
                    assert!(cx.reply.out.is_empty(), "a job replies at its end");
                    self.now += self.portion_ms;
                    cx.now = self.now;
                    cx.db.set_now(self.now);
                    match job.step(&mut cx)? {
                        Step::More => Flow::Job(job),
                        Step::Done(flow) => flow,
                    }
                }
            };
        }
    }
}

/// The function of a command that runs on one shard, and where its arguments begin.
fn function(words: &[&[u8]]) -> Result<(PointFn, usize), Refusal> {
    let (row, first) = row(words)?;
    let (Run::Point(run) | Run::Multi { here: Some(run), .. }) = row.run else {
        unreachable!("a command that runs on one shard");
    };
    Ok((run, first))
}

//! Runs commands on one shard as the engine does: parsed from bytes, streams and jobs driven to
//! their end.

use darter_base::preempt::Never;
use darter_base::{Preempt, Prng};
use darter_command::{Args, Cx, Flow, Refusal, Run, Step};
use darter_families::hash::TABLE;
use darter_keyspace::{Db, ShardStats};
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

    /// Runs a command; gives the bytes of its reply.
    pub(crate) fn run(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut parser = Parser::new(512 * 1024 * 1024, true);
        parser.feed(&encode(words));
        let args = parser.next_request().unwrap().expect("the request is whole");
        let mut out = Output::default();
        if let Err(refusal) = self.execute(words, args, &mut out) {
            assert!(out.is_empty(), "a refusal behind a reply");
            Reply::new(&mut out, self.resp3).error(&refusal.text());
        }
        out.flatten()
    }

    /// [`Engine::run`] of words separated by blanks, as text.
    pub(crate) fn line(&mut self, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        String::from_utf8(self.run(&words)).unwrap()
    }

    fn execute(
        &mut self,
        words: &[&[u8]],
        args: resp::Args<'_>,
        out: &mut Output,
    ) -> Result<(), Refusal> {
        let name = String::from_utf8_lossy(words[0]).to_lowercase();
        let row = TABLE.iter().find(|row| row.name == name).expect("a command of this family");
        if !row.accepts(words.len()) {
            return Err(Refusal::Arity(row.name.into()));
        }
        let Run::Point(run) = row.run else { unreachable!("a hash lives on one shard") };
        let mut cx = Cx {
            db: &mut self.db,
            reply: Reply::new(out, self.resp3),
            now: self.now,
            prng: &mut self.prng,
            stats: &mut self.stats,
            preempt: &*self.preempt,
        };
        let mut flow = run(&mut cx, Args::new(args, 1))?;
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

/// A reply, read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value {
    Int(i64),
    Bulk(Vec<u8>),
    Simple(String),
    Null,
    Error(String),
    Array(Vec<Value>),
    Map(Vec<Value>),
}

impl Value {
    pub(crate) fn read(all: &[u8]) -> Self {
        let (value, rest) = Self::next(all);
        assert!(rest.is_empty(), "left over: {:?}", String::from_utf8_lossy(rest));
        value
    }

    fn next(bytes: &[u8]) -> (Self, &[u8]) {
        let end = bytes.windows(2).position(|two| two == b"\r\n").expect("a line");
        let (line, rest) = (std::str::from_utf8(&bytes[1..end]).unwrap(), &bytes[end + 2..]);
        match bytes[0] {
            b':' => (Self::Int(line.parse().unwrap()), rest),
            b'-' => (Self::Error(line.to_owned()), rest),
            b'+' => (Self::Simple(line.to_owned()), rest),
            b'_' => (Self::Null, rest),
            b'$' if line == "-1" => (Self::Null, rest),
            b'$' => {
                let len: usize = line.parse().unwrap();
                assert_eq!(&rest[len..len + 2], b"\r\n");
                (Self::Bulk(rest[..len].to_vec()), &rest[len + 2..])
            }
            kind @ (b'*' | b'%') => {
                let (mut list, mut rest) = (Vec::new(), rest);
                let len: usize = line.parse().unwrap();
                for _ in 0..if kind == b'*' { len } else { 2 * len } {
                    let (value, after) = Self::next(rest);
                    list.push(value);
                    rest = after;
                }
                (if kind == b'*' { Self::Array(list) } else { Self::Map(list) }, rest)
            }
            other => panic!("{other}"),
        }
    }

    /// The elements of an array or a map.
    pub(crate) fn list(self) -> Vec<Self> {
        match self {
            Self::Array(list) | Self::Map(list) => list,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn bulk(self) -> Vec<u8> {
        match self {
            Self::Bulk(bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }

    /// Sorted, by pairs or one by one, where the order has no meaning.
    pub(crate) fn sorted(self, pairs: bool) -> Self {
        match self {
            Self::Map(list) => Self::Map(sort(list, 2)),
            Self::Array(list) => {
                let width = if pairs && list.len() % 2 == 0 { 2 } else { 1 };
                Self::Array(sort(list, width))
            }
            other => other,
        }
    }
}

fn sort(list: Vec<Value>, width: usize) -> Vec<Value> {
    let mut groups: Vec<Vec<Value>> = list.chunks(width).map(<[Value]>::to_vec).collect();
    groups.sort();
    groups.concat()
}

//! Cores without threads: messages are carried by hand, slices end at random.

use super::row;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_base::preempt::Never;
use darter_base::{Preempt, Prng};
use darter_command::{Answer, Args, Call, Cx, Flow, PointFn, Refusal, Run, Step, Stream};
use darter_keyspace::{Db, Shard};
use darter_resp::{self as resp, Output, Reply, Request};
use darter_tx::{CoreId, Tx};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

const DATABASES: usize = 16;

/// Ends a slice in one of two cases, and counts how often it was asked.
struct Often(Cell<u64>, Rc<Cell<usize>>);

impl Preempt for Often {
    fn must_yield(&self) -> bool {
        let mut prng = Prng::from_seed(self.0.get());
        self.0.set(prng.next_u64());
        self.1.set(self.1.get() + 1);
        prng.chance(50)
    }
}

/// Where the answer of a task will be.
pub(crate) type Slot = Rc<RefCell<Option<Result<Answer, Refusal>>>>;

/// See the module.
pub(crate) struct World {
    pub(crate) cores: Vec<Tx>,
    pub(crate) prng: Prng,
    pub(crate) resp3: bool,
    pub(crate) db: usize,
    /// CLIENT NO-TOUCH.
    pub(crate) no_touch: bool,
    /// How often tasks asked whether their slice was over.
    pub(crate) questions: Rc<Cell<usize>>,
    /// Messages that were carried from core to core.
    pub(crate) letters: usize,
}

impl World {
    pub(crate) fn new(cores: usize, now: u64, seed: u64) -> Self {
        let questions = Rc::new(Cell::new(0));
        let core = |core| {
            let mut shard = Shard::new(DATABASES, seed + core as u64);
            shard.set_now(now);
            let often = Often(Cell::new(seed + core as u64), Rc::clone(&questions));
            Tx::new(core, cores, shard, Rc::new(often))
        };
        let cores = (0..cores).map(core).collect();
        Self {
            cores,
            prng: Prng::from_seed(seed),
            resp3: false,
            db: 0,
            no_touch: false,
            questions,
            letters: 0,
        }
    }

    pub(crate) fn set_now(&self, now: u64) {
        self.cores.iter().for_each(|tx| tx.home().shard.set_now(now));
    }

    /// Runs a command to its end; gives the bytes of its reply.
    pub(crate) fn run(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let any = usize::try_from(self.prng.below(self.cores.len() as u64)).unwrap();
        let (row, first) = match row(words) {
            Ok(found) => found,
            Err(refusal) => return self.bytes(Err(refusal)),
        };
        let request = Arc::new(Request::from_args(words.iter().copied()));
        let args = resp::Args::owned(&request);
        let mut owners: Vec<usize> =
            row.keys.positions(args).map(|at| self.cores[0].core_of(args.get(at))).collect();
        let few = owners.len() <= ENTRIES_AT_ONCE;
        owners.dedup();
        match row.run {
            Run::Point(run) => self.point(run, owners.first().copied().unwrap_or(any), args, first),
            // The engine takes the short way; the long one must say the same.
            Run::Multi { here: Some(run), .. }
                if owners.len() == 1 && few && self.prng.chance(50) =>
            {
                self.point(run, owners[0], args, first)
            }
            Run::Multi { .. } => self.run_task(any, words),
            Run::Server => self.bytes(Err(Refusal::Arity(row.name.into()))),
        }
    }

    /// Runs a command as a task on a core, to its end; gives the bytes of its reply.
    pub(crate) fn run_task(&mut self, core: CoreId, words: &[&[u8]]) -> Vec<u8> {
        let slot = self.start(core, words);
        self.settle();
        self.reply(&slot)
    }

    fn point(&self, run: PointFn, core: usize, args: resp::Args<'_>, first: usize) -> Vec<u8> {
        let mut home = self.cores[core].home();
        let (db, prng, stats) = home.shard.parts_for(self.db, self.no_touch);
        let mut out = Output::default();
        let (now, reply) = (db.now(), Reply::new(&mut out, self.resp3));
        let mut cx = Cx { db, reply, now, prng, stats, preempt: &Never };
        match run(&mut cx, Args::new(args, first)) {
            Err(refusal) => self.bytes(Err(refusal)),
            Ok(mut flow) => {
                while let Flow::Job(mut job) = flow {
                    flow = match job.step(&mut cx) {
                        Ok(Step::More) => Flow::Job(job),
                        Ok(Step::Done(flow)) => flow,
                        Err(refusal) => return self.bytes(Err(refusal)),
                    };
                }
                if let Flow::Stream(mut stream) = flow {
                    while stream.pump(&mut cx.reply) {}
                }
                out.flatten()
            }
        }
    }

    /// Starts a command as a task on a core.
    pub(crate) fn start(&self, core: usize, words: &[&[u8]]) -> Slot {
        let (row, first) = row(words).expect("fits");
        let Run::Multi { anywhere, .. } = row.run else { unreachable!("a task") };
        let request = Arc::new(Request::from_args(words.iter().copied()));
        let tx = self.cores[core].clone();
        let (db, no_touch, resp3) = (self.db, self.no_touch, self.resp3);
        let call = Call { tx: tx.clone(), request, db, no_touch, resp3, is_script: false, first };
        let slot: Slot = Rc::default();
        let result = Rc::clone(&slot);
        tx.spawn(async move {
            let answer = anywhere(call).await;
            *result.borrow_mut() = Some(answer);
        });
        slot
    }

    /// One task continues on a core, and the mail is carried. False when nothing moved.
    pub(crate) fn step(&mut self) -> bool {
        let mut moved = false;
        for from in 0..self.cores.len() {
            let tx = self.cores[from].clone();
            if self.prng.chance(70) {
                moved |= tx.run_one();
            }
            let mut mail = Vec::new();
            tx.drain_outbox(&mut mail);
            for (to, message) in mail {
                assert_ne!(from, to);
                self.cores[to].deliver(message);
                self.letters += 1;
                moved = true;
            }
        }
        moved || self.cores.iter().any(Tx::has_ready)
    }

    /// Continues until nothing moves.
    pub(crate) fn settle(&mut self) {
        while self.step() {}
    }

    /// The bytes of an answer, its stream pumped.
    pub(crate) fn bytes(&self, answer: Result<Answer, Refusal>) -> Vec<u8> {
        let mut out = Output::default();
        match answer {
            Ok(Answer::Done(done)) => out = done,
            Ok(Answer::Stream(head, mut stream)) => {
                out = head;
                self.pump(&mut out, &mut *stream);
            }
            Err(refusal) => Reply::new(&mut out, self.resp3).error(&refusal.text()),
        }
        out.flatten()
    }

    fn pump(&self, out: &mut Output, stream: &mut dyn Stream) {
        /// A key may pass the bound of a portion.
        const PORTION_BYTES_MAX: usize = 68 * 1024;
        let mut before = out.len();
        while stream.pump(&mut Reply::new(out, self.resp3)) {
            assert!(out.len() - before <= PORTION_BYTES_MAX, "a portion of {}", out.len() - before);
            before = out.len();
        }
    }

    /// The bytes of a finished command's reply.
    pub(crate) fn reply(&self, slot: &Slot) -> Vec<u8> {
        let answer = slot.borrow_mut().take().expect("the command is done");
        self.bytes(answer)
    }

    /// Changes a database on the core that owns `key`.
    pub(crate) fn edit<R>(&self, key: &[u8], edit: impl FnOnce(&mut Db) -> R) -> R {
        let core = self.cores[0].core_of(key);
        edit(self.cores[core].home().shard.db_mut(self.db))
    }

    /// Nothing is held or awaited any more, and the data is sound.
    pub(crate) fn check(&self) {
        for tx in &self.cores {
            assert!(tx.home().locks.is_free(), "a lock is left");
            assert_eq!(tx.tasks_len(), 0, "a task is left");
            tx.home().shard.check_invariants();
        }
    }
}

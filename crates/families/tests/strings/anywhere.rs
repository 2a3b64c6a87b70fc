//! Commands over several cores, without threads: messages are carried by hand, slices end at
//! random.

use crate::engine::{encode, row};
use crate::oracle::Oracle;
use darter_base::{Preempt, Prng};
use darter_command::{Answer, Call, Refusal, Run};
use darter_keyspace::{Key, Shard};
use darter_resp::{Output, Parser, Reply};
use darter_tx::Tx;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const NOW: u64 = 1_700_000_000_000;

/// Ends a slice in one of two cases.
struct Often(Cell<u64>);

impl Preempt for Often {
    fn must_yield(&self) -> bool {
        let mut prng = Prng::from_seed(self.0.get());
        self.0.set(prng.next_u64());
        prng.chance(50)
    }
}

struct Cores(Vec<Tx>);

type Slot = Rc<RefCell<Option<Result<Answer, Refusal>>>>;

impl Cores {
    fn new(count: usize) -> Self {
        let core = |core| {
            let mut shard = Shard::new(1, 7);
            shard.set_now(NOW);
            Tx::new(core, count, shard, Rc::new(Often(Cell::new(core as u64))))
        };
        Self((0..count).map(core).collect())
    }

    /// Starts a command on a core.
    fn start(&self, core: usize, words: &[&[u8]]) -> Slot {
        let mut parser = Parser::new(512 * 1024 * 1024, true);
        parser.feed(&encode(words));
        let request = parser.next_request().unwrap().expect("whole").to_request();
        let Run::Multi { anywhere, .. } = row(words).unwrap().run else {
            unreachable!("a command over several keys");
        };
        let tx = self.0[core].clone();
        let call = Call { tx: tx.clone(), request, db: 0, resp3: false, first: 1 };
        let slot: Slot = Rc::default();
        let result = Rc::clone(&slot);
        tx.spawn(async move {
            let answer = anywhere(call).await;
            *result.borrow_mut() = Some(answer);
        });
        slot
    }

    /// Goes on until nothing moves.
    fn settle(&self, prng: &mut Prng) {
        loop {
            let mut moved = false;
            for (from, tx) in self.0.iter().enumerate() {
                if prng.chance(70) {
                    moved |= tx.run_one();
                }
                let mut mail = Vec::new();
                tx.drain_outbox(&mut mail);
                for (to, message) in mail {
                    assert_ne!(from, to);
                    self.0[to].deliver(message);
                    moved = true;
                }
            }
            if !moved && !self.0.iter().any(Tx::has_ready) {
                return;
            }
        }
    }

    fn run(&self, prng: &mut Prng, words: &[&[u8]]) -> Vec<u8> {
        let core = usize::try_from(prng.below(self.0.len() as u64)).unwrap();
        let slot = self.start(core, words);
        self.settle(prng);
        reply_of(&slot)
    }

    fn assert_unlocked(&self) {
        for tx in &self.0 {
            assert!(tx.home().locks.is_free());
            assert_eq!(tx.tasks_len(), 0);
            tx.home().shard.db(0).check_invariants();
        }
    }
}

/// The bytes of a finished command's reply.
fn reply_of(slot: &Slot) -> Vec<u8> {
    let answer = slot.borrow_mut().take().expect("the command is done");
    let mut out = Output::default();
    match answer {
        Ok(Answer::Done(done)) => out = done,
        Ok(Answer::Stream(head, mut stream)) => {
            out = head;
            while stream.pump(&mut Reply::new(&mut out, false)) {}
        }
        Err(refusal) => Reply::new(&mut out, false).error(&refusal.text()),
    }
    out.flatten()
}

#[test] // Random keys on one to four cores: every reply is Redis's own.
fn commands_over_cores_reply_as_redis_does() {
    let mut oracle = Oracle::start("anywhere");
    for seed in 0..40 {
        let mut prng = Prng::from_seed(seed);
        let cores = Cores::new(1 + usize::try_from(seed % 4).unwrap());
        oracle.run(&[b"FLUSHALL"]);
        for _ in 0..30 {
            let name = *prng.weighted(&[(3, "MSET"), (3, "MSETNX"), (4, "MGET"), (1, "LCS")]);
            let mut words: Vec<Vec<u8>> = vec![name.into()];
            let count = if name == "LCS" { 2 } else { 1 + prng.below(6) };
            for _ in 0..count {
                words.push(format!("key:{}", prng.below(12)).into_bytes());
                if name.starts_with("MSET") {
                    let most = *prng.weighted(&[(90, 20), (10, 150_000)]);
                    words.push(prng.bytes(0..=most));
                }
            }
            if prng.chance(5) {
                words.push(b"odd".to_vec());
            }
            if name == "LCS" {
                words.push(b"LEN".to_vec());
                words[1] = b"none".to_vec(); // Two long strings would take the oracle too long.
            }
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            assert!(cores.run(&mut prng, &words) == oracle.run(&words), "seed {seed}");
        }
        cores.assert_unlocked();
    }
}

/// `MSET` or its like of `count` keys, all with the same value.
fn pairs<'a>(name: &'a [u8], keys: &'a [Vec<u8>], value: &'a [u8]) -> Vec<&'a [u8]> {
    let mut words = vec![name];
    words.extend(keys.iter().flat_map(|key| [key.as_slice(), value]));
    words
}

#[test] // Beyond what is gathered under locks: streamed from cuts, in portions, whole and in order.
fn very_many_keys() {
    let mut prng = Prng::from_seed(5);
    for (cores, count) in [(1, 20_000), (3, 40_000), (2, 3_000)] {
        let cores = Cores::new(cores);
        let keys: Vec<Vec<u8>> = (0..count).map(|at| format!("key:{at}").into_bytes()).collect();
        assert_eq!(cores.run(&mut prng, &pairs(b"MSETNX", &keys, b"one")), b":1\r\n");
        assert_eq!(cores.run(&mut prng, &pairs(b"MSET", &keys, b"three")), b"+OK\r\n");
        assert_eq!(cores.run(&mut prng, &pairs(b"MSETNX", &keys[count - 1..], b"x")), b":0\r\n");
        let mut words: Vec<&[u8]> = vec![b"MGET", b"nothing"];
        words.extend(keys.iter().map(Vec::as_slice));
        let expected =
            [format!("*{}\r\n$-1\r\n", count + 1).into_bytes(), b"$5\r\nthree\r\n".repeat(count)];
        assert!(cores.run(&mut prng, &words) == expected.concat());
        cores.assert_unlocked();
    }
}

#[test] // A cut is one instant: what is written while it streams is not in it.
fn a_stream_from_cuts_reads_one_instant() {
    let mut prng = Prng::from_seed(6);
    let cores = Cores::new(2);
    let keys: Vec<Vec<u8>> = (0..17_000).map(|at| format!("key:{at}").into_bytes()).collect();
    cores.run(&mut prng, &pairs(b"MSET", &keys, b"old"));
    let mut words: Vec<&[u8]> = vec![b"MGET"];
    words.extend(keys.iter().map(Vec::as_slice));
    let slot = cores.start(0, &words);
    cores.settle(&mut prng);
    cores.run(&mut prng, &pairs(b"MSET", &keys, b"newer"));
    let expected = [b"*17000\r\n".to_vec(), b"$3\r\nold\r\n".repeat(17_000)].concat();
    assert!(reply_of(&slot) == expected);
    cores.assert_unlocked();
}

#[test] // Writers and readers of the same keys at the same time: no reader sees a mixture.
fn readers_never_see_a_part() {
    for seed in 0..60 {
        let mut prng = Prng::from_seed(seed);
        let cores = Cores::new(3);
        let keys: Vec<Vec<u8>> = (0..600).map(|at| format!("key:{at}").into_bytes()).collect();
        let mut mget: Vec<&[u8]> = vec![b"MGET"];
        mget.extend(keys.iter().map(Vec::as_slice));
        let mut readers = Vec::new();
        for round in 0..4 {
            let value = round.to_string();
            let core = usize::try_from(prng.below(3)).unwrap();
            let writer = pairs(b"MSET", &keys, value.as_bytes());
            cores.start(core, &writer);
            readers.push(cores.start(usize::try_from(prng.below(3)).unwrap(), &mget));
            for _ in 0..prng.below(40) {
                cores.0[usize::try_from(prng.below(3)).unwrap()].run_one();
            }
        }
        cores.settle(&mut prng);
        for reader in readers {
            let reply = String::from_utf8(reply_of(&reader)).unwrap();
            let mut lines: Vec<&str> = reply.lines().skip(1).collect();
            lines.sort_unstable();
            lines.dedup();
            assert!(lines.len() <= 2, "seed {seed}: a mixture: {lines:?}");
        }
        cores.assert_unlocked();
        assert!(cores.0.iter().any(|tx| tx.home().shard.db(0).exists(&Key::new(b"key:0"))));
    }
}

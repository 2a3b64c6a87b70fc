//! Tests that every reply to the list commands of Redis 7.0 is equal, byte for byte, to that of
//! redis-server 7.0.15.

use crate::common::engine::Engine;
use crate::common::oracle::Oracle;
use darter_base::Prng;
use darter_keyspace::{Deadline, Fresh, Key};

/// Starts both servers, each with a key `text` that holds a string.
fn pair(name: &str, seed: u64) -> (Oracle, Engine) {
    let (mut oracle, mut engine) = (Oracle::start(name), Engine::new(1_000_000, seed));
    oracle.run(&[b"SET", b"text", b"x"]);
    engine.db.set_text(&Key::new(b"text"), Fresh::Bytes(b"x"), Deadline::Clear);
    (oracle, engine)
}

#[test] // Including which error comes first.
fn list_commands_and_their_errors_reply_as_in_redis() {
    let lines = include_str!("lines.txt");
    let (mut oracle, mut engine) = pair("list-lines", 1);
    for resp3 in [false, true] {
        oracle.run(&[b"HELLO", if resp3 { b"3" } else { b"2" }]);
        oracle.run(&[b"DEL", b"l", b"m"]);
        for key in [b"l", b"m"] {
            engine.db.remove(&Key::new(key));
        }
        engine.resp3 = resp3;
        for line in lines.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let words: Vec<&[u8]> = line
                .split(' ')
                .map(|word| if word == "''" { b"" } else { word.as_bytes() })
                .collect();
            let (theirs, ours) = (oracle.run(&words), engine.run(&words));
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(text(&ours), text(&theirs), "{line} (resp3: {resp3})");
        }
    }
}

struct Mix {
    prng: Prng,
}

impl Mix {
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.prng.below(bound as u64)).unwrap()
    }

    fn pick(&mut self, choices: &[&'static str]) -> Vec<u8> {
        choices[self.below(choices.len())].as_bytes().to_vec()
    }

    fn key(&mut self) -> Vec<u8> {
        self.pick(&["a", "b", "c", "text"])
    }

    fn element(&mut self) -> Vec<u8> {
        match self.below(9) {
            0 => self.pick(&["", "0", "-0", "007", "1.0", " 1", "9223372036854775808"]),
            1 => vec![b'v'; self.below(70)],
            2 => vec![b'w'; self.below(6_000)],
            3 => format!("{:08x}-9dad-11d1-80b4-00c04fd430c8", self.below(9)).into_bytes(),
            4 | 5 => self.below(10).to_string().into_bytes(),
            _ => format!("element:{}", self.below(10)).into_bytes(),
        }
    }

    fn elements(&mut self) -> Vec<Vec<u8>> {
        let most = if self.below(20) == 0 { 400 } else { 5 };
        (0..=self.below(most)).map(|_| self.element()).collect()
    }

    fn index(&mut self) -> Vec<u8> {
        let far = if self.below(3) == 0 { 700 } else { 12 };
        let index = self.below(far).to_string();
        if self.below(2) == 0 { index } else { format!("-{index}") }.into_bytes()
    }

    fn command(&mut self) -> Vec<Vec<u8>> {
        let key = self.key();
        let word = |text: &str| text.as_bytes().to_vec();
        match self.below(24) {
            16 | 17 => {
                let mut words = vec![word("LPOS"), key, self.element()];
                if self.below(2) == 0 {
                    words.extend([word("RANK"), self.pick(&["1", "2", "-1", "-3"])]);
                }
                if self.below(2) == 0 {
                    words.extend([word("COUNT"), self.pick(&["0", "1", "3"])]);
                }
                if self.below(3) == 0 {
                    words.extend([word("MAXLEN"), self.pick(&["0", "5", "300"])]);
                }
                words
            }
            18 => {
                let count = self.pick(&["0", "0", "1", "-1", "2", "-3"]);
                vec![word("LREM"), key, count, self.element()]
            }
            19 | 20 => {
                let place = self.pick(&["BEFORE", "AFTER"]);
                vec![word("LINSERT"), key, place, self.element(), self.element()]
            }
            21 => {
                let (from, to) = (self.pick(&["LEFT", "RIGHT"]), self.pick(&["LEFT", "RIGHT"]));
                vec![word("LMOVE"), key, self.key(), from, to]
            }
            22 => vec![word("RPOPLPUSH"), key, self.key()],
            23 => {
                let (end, count) = (self.pick(&["LEFT", "RIGHT"]), self.pick(&["1", "2", "500"]));
                vec![word("LMPOP"), word("2"), key, self.key(), end, word("COUNT"), count]
            }
            0..=4 => {
                let name = self.pick(&["LPUSH", "RPUSH", "RPUSH", "LPUSHX", "RPUSHX"]);
                [vec![name, key], self.elements()].concat()
            }
            5 => vec![self.pick(&["LPOP", "RPOP"]), key],
            6 | 7 => {
                let count = if self.below(4) == 0 { self.below(600) } else { self.below(6) };
                vec![self.pick(&["LPOP", "RPOP"]), key, count.to_string().into_bytes()]
            }
            8 | 9 => vec![word("LINDEX"), key, self.index()],
            10 | 11 => vec![word("LRANGE"), key, self.index(), self.index()],
            12 | 13 => vec![word("LSET"), key, self.index(), self.element()],
            14 if self.below(3) == 0 => vec![word("LTRIM"), key, self.index(), self.index()],
            14 => vec![word("LTRIM"), key, word("1"), word("-2")],
            _ => vec![word("LLEN"), key],
        }
    }
}

#[test]
fn random_list_commands_reply_as_in_redis() {
    for seed in 1..=6 {
        let (mut oracle, mut engine) = pair("list-mix", seed);
        let mut mix = Mix { prng: Prng::from_seed(seed) };
        engine.resp3 = seed % 2 == 0;
        oracle.run(&[b"HELLO", if engine.resp3 { b"3" } else { b"2" }]);
        for step in 0..3_000 {
            let words = mix.command();
            let words: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
            let (theirs, ours) = (oracle.run(&words), engine.run(&words));
            let shown: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
            assert!(ours == theirs, "seed {seed} step {step}: {shown:?}");
        }
        engine.db.check_invariants();
    }
}

//! The commands of Redis 7.0, here and on redis-server 7.0.15: every reply is equal, byte for byte,
//! except for the order of fields where it has no meaning.

use crate::common::engine::Engine;
use crate::common::oracle::Oracle;
use crate::common::value::Value;
use darter_base::Prng;
use darter_keyspace::{Deadline, Fresh, Key};

/// Both servers, and a key `text` that holds a string on both.
fn pair(name: &str, seed: u64) -> (Oracle, Engine) {
    let (mut oracle, mut engine) = (Oracle::start(name), Engine::new(1_000_000, seed));
    oracle.run(&[b"SET", b"text", b"x"]);
    engine.db.set_text(&Key::new(b"text"), Fresh::Bytes(b"x"), Deadline::Clear);
    (oracle, engine)
}

#[test] // Including which error comes first.
fn hash_commands_and_their_errors_reply_as_in_redis() {
    let lines = include_str!("lines.txt");
    let (mut oracle, mut engine) = pair("hash-lines", 1);
    for resp3 in [false, true] {
        oracle.run(&[b"HELLO", if resp3 { b"3" } else { b"2" }]);
        oracle.run(&[b"DEL", b"h", b"n", b"e"]);
        for key in [b"h", b"n", b"e"] {
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
        self.pick(&["a", "b", "c", "text", "wide"])
    }

    fn field(&mut self) -> Vec<u8> {
        let number = self.below(40);
        match number % 4 {
            0 => format!("{number}").into_bytes(),
            1 => format!("{number:08x}-9dad-11d1-80b4-00c04fd430c8").into_bytes(),
            _ => format!("field:{number}").into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        match self.below(8) {
            0 => self.pick(&["", "0", "-0", "007", "1e3", "nan", "inf", "0x10", " 1", "3.0"]),
            1 => vec![b'v'; self.below(70)],
            2 => vec![b'w'; self.below(2_000)],
            3 => self.pick(&["9223372036854775807", "-9223372036854775808", "1.5", "abc"]),
            _ => self.below(100_000).to_string().into_bytes(),
        }
    }

    fn fields(&mut self) -> Vec<Vec<u8>> {
        (0..=self.below(6)).map(|_| self.field()).collect()
    }

    /// A command, and whether its reply is sorted, by pairs.
    fn command(&mut self) -> (Vec<Vec<u8>>, Option<bool>) {
        let (key, field) = (self.key(), self.field());
        let word = |text: &str| text.as_bytes().to_vec();
        match self.below(16) {
            0..=3 => {
                let name = self.pick(&["HSET", "HSET", "HMSET"]);
                let many = if self.below(20) == 0 { 60 } else { 3 };
                let mut words = vec![name, key];
                for _ in 0..=self.below(many) {
                    words.extend([self.field(), self.value()]);
                }
                (words, None)
            }
            4 => (vec![word("HSETNX"), key, field, self.value()], None),
            5 => ([vec![word("HDEL"), key], self.fields()].concat(), None),
            6 => ([vec![word("HMGET"), key], self.fields()].concat(), None),
            7 => (vec![self.pick(&["HGET", "HEXISTS", "HSTRLEN"]), key, field], None),
            8 => (vec![word("HLEN"), key], None),
            9 => (vec![word("HGETALL"), key], Some(true)),
            10 => (vec![self.pick(&["HKEYS", "HVALS"]), key], Some(false)),
            11 => {
                let amount = self.pick(&["1", "-5", "9223372036854775807", "x", "1.5"]);
                (vec![word("HINCRBY"), key, field, amount], None)
            }
            12 => {
                let amount = self.pick(&["1", "-2.5", "1e300", "0.1", "inf", "nan", "x", "3.0e3"]);
                (vec![word("HINCRBYFLOAT"), key, field, amount], None)
            }
            13 => (vec![word("HRANDFIELD"), key, word("1000")], Some(false)),
            14 => (vec![word("HRANDFIELD"), key, word("1000"), word("WITHVALUES")], Some(true)),
            _ => (vec![word("HSCAN"), key, word("0"), word("COUNT"), word("1000")], Some(true)),
        }
    }
}

#[test]
fn random_hash_commands_reply_as_in_redis() {
    for seed in 1..=4 {
        let (mut oracle, mut engine) = pair("hash-mix", seed);
        let mut mix = Mix { prng: Prng::from_seed(seed) };
        engine.resp3 = seed % 2 == 0;
        oracle.run(&[b"HELLO", if engine.resp3 { b"3" } else { b"2" }]);
        for step in 0..3_000 {
            let (words, sorting) = mix.command();
            let words: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
            let (theirs, ours) = (oracle.run(&words), engine.run(&words));
            let shown: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
            let Some(pairs) = sorting else {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                assert_eq!(text(&ours), text(&theirs), "seed {seed} step {step}: {shown:?}");
                continue;
            };
            let read = |bytes: &[u8]| match Value::read(bytes).sorted(pairs && !engine.resp3) {
                Value::Array(list) if words[0] == b"HSCAN" => {
                    let mut list = Vec::from_iter(Value::read(bytes).list().into_iter().zip(list));
                    let fields = list.pop().unwrap().0.sorted(true);
                    Value::Array(vec![list.pop().unwrap().0, fields])
                }
                other => other,
            };
            assert_eq!(read(&ours), read(&theirs), "seed {seed} step {step}: {shown:?}");
        }
        engine.db.check_invariants();
    }
}

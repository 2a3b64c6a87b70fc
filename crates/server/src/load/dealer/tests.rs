//! Random commands on cores of random speeds, against sequential execution.

use super::super::commands::{self, Deliverer};
use super::*;
use darter_base::Prng;
use darter_runtime::net::Waker;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DATABASES: u64 = 3;
const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// The file offsets of the commands that have changed a key of a database, in order.
type History = BTreeMap<(u64, String), Vec<u64>>;

/// The words of a toy command: `W key ... [value]` writes one-letter keys, and `F` all keys.
type Words = Vec<String>;

fn encode(words: &Words) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    out
}

/// The first command in `bytes`, and its length.
fn parse(bytes: &[u8]) -> Option<(Words, usize)> {
    let mut spans = Vec::new();
    let len = plain(bytes, usize::MAX, usize::MAX, &mut spans)?;
    let args = Args::flat(bytes, &spans);
    let word = |at| String::from_utf8(args.get(at).to_vec()).unwrap();
    Some(((0..args.len()).map(word).collect(), len))
}

fn owner(key: &str, cores: usize) -> usize {
    usize::from(key.as_bytes()[0]) % cores
}

fn keys_of(words: &Words) -> impl Iterator<Item = &String> {
    words.iter().skip(1).filter(|word| word.len() == 1)
}

fn place(args: Args<'_>, cores: usize) -> CommandPlace {
    let words: Words =
        (0..args.len()).map(|at| String::from_utf8(args.get(at).to_vec()).unwrap()).collect();
    match &words[0][..] {
        "SELECT" => CommandPlace::Select,
        "MULTI" => CommandPlace::Multi,
        "EXEC" => CommandPlace::Exec,
        "DISCARD" => CommandPlace::Discard,
        _ => {
            let mut owners = keys_of(&words).map(|key| owner(key, cores));
            match owners.next() {
                Some(first) if owners.all(|other| other == first) => CommandPlace::Core(first),
                _ => CommandPlace::Anywhere,
            }
        }
    }
}

/// A connection: runs toy commands in order.
#[derive(Default)]
struct Machine {
    database: u64,
    queued: Option<Vec<(Words, u64)>>,
}

impl Machine {
    fn run(&mut self, words: Words, offset: u64, history: &mut History) {
        match (&words[0][..], &mut self.queued) {
            ("MULTI", None) => self.queued = Some(Vec::new()),
            ("DISCARD", Some(_)) => self.queued = None,
            ("EXEC", Some(_)) => {
                for (words, offset) in self.queued.take().unwrap() {
                    self.run(words, offset, history);
                }
            }
            (_, Some(queued)) => queued.push((words, offset)),
            ("SELECT", None) => self.database = words[1].parse().unwrap(),
            ("F", None) => {
                for (database, key) in (0..DATABASES).flat_map(|at| KEYS.map(|key| (at, key))) {
                    history.entry((database, key.to_owned())).or_default().push(offset);
                }
            }
            (_, None) => {
                for key in keys_of(&words) {
                    history.entry((self.database, key.clone())).or_default().push(offset);
                }
            }
        }
    }
}

/// A core: runs what is delivered, at its own pace.
fn run_core(deliverer: &Deliverer, history: &Mutex<History>, seed: u64) {
    let (mut prng, mut machine) = (Prng::from_seed(seed), Machine::default());
    let (mut bytes, mut offsets) = (Vec::new(), VecDeque::new());
    for delivery in &deliverer.deliveries {
        if prng.chance(30) {
            std::thread::sleep(Duration::from_micros(prng.below(300)));
        }
        match delivery {
            ReplayDelivery::Begin { .. } => machine = Machine::default(),
            ReplayDelivery::Commands(portion) => {
                bytes.extend_from_slice(&portion.bytes);
                offsets.extend(&portion.offsets);
                deliverer.returns.send(portion).unwrap();
                let mut at = 0;
                while let Some((words, len)) = parse(&bytes[at..]) {
                    if prng.chance(1) {
                        std::thread::sleep(Duration::from_micros(prng.below(100)));
                    }
                    let offset = offsets.pop_front().expect("each command has an offset");
                    machine.run(words, offset, &mut history.lock().unwrap());
                    at += len;
                }
                bytes.drain(..at);
            }
            ReplayDelivery::Drain | ReplayDelivery::End => {
                assert!(bytes.is_empty() && offsets.is_empty(), "the last command is incomplete");
                deliverer.ended.send(Ok(ReplayErrors::default())).unwrap();
            }
            ReplayDelivery::Finish => return,
        }
    }
}

/// Commands of all kinds. `barriers` is the share of barriers in a thousand.
fn random_commands(prng: &mut Prng, count: usize, barriers: u64) -> Vec<Words> {
    let mut all: Vec<Words> = Vec::new();
    let key = |prng: &mut Prng| KEYS[prng.below(8) as usize].to_owned();
    let mut is_in_multi = false;
    for _ in 0..count {
        let is_barrier = prng.below(1_000) < barriers;
        let words: Words = match prng.below(100) {
            _ if is_barrier && prng.chance(20) => vec!["F".into()],
            _ if is_barrier => vec!["W".into(), key(prng), key(prng), key(prng)],
            0..3 => vec!["SELECT".into(), prng.below(DATABASES).to_string()],
            3..8 if is_in_multi => {
                is_in_multi = false;
                vec![if prng.chance(80) { "EXEC".into() } else { "DISCARD".into() }]
            }
            8..10 if !is_in_multi => {
                is_in_multi = true;
                vec!["MULTI".into()]
            }
            _ => {
                // A transaction often stays on one core.
                let same = all.last().filter(|_| is_in_multi && prng.chance(90));
                let key = same.and_then(|words| keys_of(words).next().cloned());
                let key = key.unwrap_or_else(|| KEYS[prng.below(8) as usize].to_owned());
                let length = match prng.below(2_000) {
                    0 => 300_000,
                    1..20 => 20_000,
                    _ => 2 + prng.below(40) as usize,
                };
                vec!["W".into(), key, "v".repeat(length)]
            }
        };
        all.push(words);
    }
    if is_in_multi {
        all.push(vec!["EXEC".into()]);
    }
    all
}

/// The history that cores leave to which a dealer deals `bytes`, in pieces.
fn dealt(bytes: &[u8], cores: usize, prng: &mut Prng) -> History {
    let wakers = (0..cores).map(|_| Waker::new().unwrap()).collect();
    let (deliveries, deliverers) = commands::deliveries(wakers);
    let history = Arc::new(Mutex::new(History::new()));
    let threads: Vec<_> = deliverers
        .into_iter()
        .map(|deliverer| {
            let (history, seed) = (Arc::clone(&history), prng.next_u64());
            std::thread::spawn(move || run_core(&deliverer, &history, seed))
        })
        .collect();
    let place_of: PlaceOf = Box::new(move |args| place(args, cores));
    let begun = Dealer::begin(&deliveries, &place_of, DATABASES as usize, true);
    let Ok(mut dealer) = begun else { panic!("the cores run") };
    let (mut start, mut end) = (0, 0);
    while start < bytes.len() {
        end = (end + 1 + prng.below(100_000) as usize).min(bytes.len());
        let taken = dealer.take_in(&bytes[start..end], start as u64, end == bytes.len());
        let Ok(taken) = taken else { panic!("the bytes are commands") };
        start += taken;
    }
    assert_eq!(dealer.end().unwrap(), ReplayErrors::default());
    for core in 0..cores {
        deliveries.send(core, ReplayDelivery::Finish).unwrap();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    Arc::into_inner(history).unwrap().into_inner().unwrap()
}

#[test]
fn each_key_sees_its_commands_in_the_order_of_the_file() {
    for seed in 0..24 {
        let mut prng = Prng::from_seed(seed);
        let cores = 1 + (seed % 4) as usize;
        let commands = random_commands(&mut prng, 4_000, [0, 1, 5, 200][(seed / 4 % 4) as usize]);
        let (mut bytes, mut expected) = (b"#TS:1\r\n".to_vec(), History::new());
        let mut machine = Machine::default();
        for words in commands {
            let offset = bytes.len() as u64;
            bytes.extend_from_slice(&encode(&words));
            machine.run(words, offset, &mut expected);
            if prng.chance(1) {
                bytes.extend_from_slice(b"#TS:2\r\n");
            }
        }
        assert!(dealt(&bytes, cores, &mut prng) == expected, "seed {seed}, {cores} cores");
    }
}

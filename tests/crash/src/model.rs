//! A writer's operations, and the data that they make: what any prefix of them must look like.
//!
//! Each writer owns two databases, and in the shared one a counter and the elements that it pushed.
//! So the data after a death is compared with the model of a single sequence.
//!
//! Not here: which prefix a death may leave; see `ledger`.

use darter_base::Prng;
use darter_testkit::client::encode;
use std::collections::BTreeMap;

/// The database of accounts, shared lists and counters.
pub(crate) const SHARED: u8 = 15;
/// Accounts, whose sum is always zero.
pub(crate) const ACCOUNTS: u64 = 8;
/// Shared lists.
pub(crate) const LISTS: u64 = 3;
/// Keys of a group, which all have one value.
const GROUP: u64 = 5;

const SCRIPT: &str = "for i=1,#KEYS do redis.call('SET',KEYS[i],ARGV[1]) end return 1";

/// A value as the harness reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// A string, and its deadline in Unix milliseconds, or -1.
    Text(String, i64),
    List(Vec<String>),
    Hash(BTreeMap<String, String>),
}

/// Keys by database and name.
pub(crate) type Keys = BTreeMap<(u8, String), Value>;

/// How a group of keys is set at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Together {
    Exec,
    Mset,
    Script,
}

/// One operation of a writer. Numbers are unique in its sequence.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Set(u64, String, i64),
    Delete(u64),
    Push(u64, u64),
    Empty(u64),
    Append(u64, u64),
    Rename(u64, u64),
    Field(u64, u64),
    Group(Together, u64),
    Transfer(u64, u64, u64),
    SharedPush(u64, u64),
    Swap,
    Flush,
    /// A key that dies within 40 ms; it may be there or not, but not without its deadline.
    Short(u64, u64),
    /// Reads a writer's counter.
    Peek(usize),
}

#[rustfmt::skip] // A table.
const WEIGHTS: &[(u64, u8)] = &[
    (20, 0), (8, 1), (14, 2), (2, 3), (10, 4), (8, 5), (8, 6), (8, 7), (6, 8), (6, 9), (14, 10),
    (10, 11), (1, 12), (1, 13), (4, 14), (6, 15),
];

impl Op {
    /// The operation with number `n`, for one of `writers`.
    pub(crate) fn random(random: &mut Prng, n: u64, writers: usize) -> Self {
        let i = random.below(6);
        match *random.weighted(WEIGHTS) {
            0 => {
                let more = if random.chance(4) { random.below(60_000) } else { random.below(40) };
                let far = 4_000_000_000_000 + i64::try_from(n).unwrap_or_default();
                let deadline = if random.chance(30) { far } else { -1 };
                let filling = usize::try_from(more).unwrap_or_default();
                Self::Set(i, format!("{n}:{}", "x".repeat(filling)), deadline)
            }
            1 => Self::Delete(i),
            2 => Self::Push(i % 3, n),
            3 => Self::Empty(i % 3),
            4 => Self::Append(i % 2, n),
            5 => Self::Rename(i, random.below(6)),
            6 => Self::Field(n % 9, n),
            7 => Self::Group(Together::Exec, n),
            8 => Self::Group(Together::Mset, n),
            9 => Self::Group(Together::Script, n),
            10 => Self::Transfer(random.below(ACCOUNTS), random.below(ACCOUNTS), 1 + i),
            11 => Self::SharedPush(i % LISTS, n),
            12 => Self::Swap,
            13 => Self::Flush,
            14 => Self::Short(i, n),
            _ => Self::Peek(usize::try_from(random.below(writers as u64)).unwrap_or_default()),
        }
    }

    /// Whether the data may differ behind it.
    pub(crate) fn is_write(&self) -> bool {
        !matches!(self, Self::Peek(_) | Self::Short(..))
    }

    /// Appends its requests; returns their number, and the place of the reply that decides.
    pub(crate) fn encode(&self, me: usize, out: &mut Vec<u8>) -> (usize, usize) {
        let home = (2 * me).to_string();
        let shared = SHARED.to_string();
        let mut count = 0;
        let mut say = |words: &[&str]| {
            out.extend_from_slice(&encode(words));
            count += 1;
        };
        match self {
            Self::Set(i, text, -1) => say(&["SET", &format!("s{i}"), text]),
            Self::Set(i, text, at) => {
                say(&["SET", &format!("s{i}"), text, "PXAT", &at.to_string()]);
            }
            Self::Delete(i) => say(&["DEL", &format!("s{i}")]),
            Self::Push(i, n) => say(&["RPUSH", &format!("l{i}"), &n.to_string()]),
            Self::Empty(i) => say(&["DEL", &format!("l{i}")]),
            Self::Append(i, n) => say(&["APPEND", &format!("a{i}"), &format!("{n},")]),
            Self::Rename(i, j) => say(&["RENAME", &format!("s{i}"), &format!("s{j}")]),
            Self::Field(i, n) => say(&["HSET", "h0", &i.to_string(), &n.to_string()]),
            Self::Group(how, n) => return encode_group(*how, &n.to_string(), out),
            Self::Transfer(from, to, amount) => {
                let amount = amount.to_string();
                say(&["MULTI"]);
                say(&["SELECT", &shared]);
                say(&["DECRBY", &format!("b{from}"), &amount]);
                say(&["INCRBY", &format!("b{to}"), &amount]);
                say(&["INCR", &format!("n{me}")]);
                say(&["SELECT", &home]);
                say(&["EXEC"]);
                return (7, 6);
            }
            Self::SharedPush(i, n) => {
                say(&["SELECT", &shared]);
                say(&["RPUSH", &format!("L{i}"), &format!("{me}:{n}")]);
                say(&["SELECT", &home]);
                return (3, 1);
            }
            Self::Swap => say(&["SWAPDB", &home, &(2 * me + 1).to_string()]),
            Self::Flush => say(&["FLUSHDB"]),
            Self::Short(i, n) => say(&["SET", &format!("e{i}"), &n.to_string(), "PX", "40"]),
            Self::Peek(writer) => {
                say(&["SELECT", &shared]);
                say(&["GET", &format!("n{writer}")]);
                say(&["SELECT", &home]);
                return (3, 1);
            }
        }
        (count, 0)
    }

    /// Makes its change in the writer's data.
    pub(crate) fn apply(&self, me: usize, keys: &mut Keys) {
        let home = u8::try_from(2 * me).unwrap_or_default();
        match self {
            Self::Set(i, text, at) => {
                keys.insert((home, format!("s{i}")), Value::Text(text.clone(), *at));
            }
            Self::Delete(i) => drop(keys.remove(&(home, format!("s{i}")))),
            Self::Push(i, n) => push(keys, (home, format!("l{i}")), n.to_string()),
            Self::Empty(i) => drop(keys.remove(&(home, format!("l{i}")))),
            Self::Append(i, n) => {
                let empty = Value::Text(String::new(), -1);
                let value = keys.entry((home, format!("a{i}"))).or_insert(empty);
                if let Value::Text(text, _) = value {
                    text.push_str(&format!("{n},"));
                }
            }
            Self::Rename(i, j) => {
                if let Some(value) = keys.remove(&(home, format!("s{i}"))) {
                    keys.insert((home, format!("s{j}")), value);
                }
            }
            Self::Field(i, n) => {
                let empty = Value::Hash(BTreeMap::new());
                let value = keys.entry((home, "h0".to_owned())).or_insert(empty);
                if let Value::Hash(fields) = value {
                    fields.insert(i.to_string(), n.to_string());
                }
            }
            Self::Group(_, n) => {
                for i in 0..GROUP {
                    keys.insert((home, format!("g{i}")), Value::Text(n.to_string(), -1));
                }
            }
            Self::Transfer(..) => {
                let key = (SHARED, format!("n{me}"));
                let count = counter(keys.get(&key)) + 1;
                keys.insert(key, Value::Text(count.to_string(), -1));
            }
            Self::SharedPush(i, n) => push(keys, (SHARED, format!("L{i}")), format!("{me}:{n}")),
            Self::Swap => {
                let old = std::mem::take(keys);
                keys.extend(old.into_iter().map(|((db, name), value)| {
                    let db = if db == SHARED { db } else { db ^ 1 };
                    ((db, name), value)
                }));
            }
            Self::Flush => keys.retain(|(db, _), _| *db != home),
            Self::Short(..) | Self::Peek(_) => {}
        }
    }
}

/// The number in a counter; 0 when there is none.
pub(crate) fn counter(value: Option<&Value>) -> u64 {
    match value {
        Some(Value::Text(text, _)) => text.parse().unwrap_or_default(),
        _ => 0,
    }
}

fn push(keys: &mut Keys, key: (u8, String), element: String) {
    if let Value::List(items) = keys.entry(key).or_insert(Value::List(Vec::new())) {
        items.push(element);
    }
}

fn encode_group(how: Together, n: &str, out: &mut Vec<u8>) -> (usize, usize) {
    let names: Vec<String> = (0..GROUP).map(|i| format!("g{i}")).collect();
    let count = names.len();
    match how {
        Together::Exec => {
            out.extend_from_slice(&encode(&["MULTI"]));
            for name in &names {
                out.extend_from_slice(&encode(&["SET", name, n]));
            }
            out.extend_from_slice(&encode(&["EXEC"]));
            return (count + 2, count + 1);
        }
        Together::Mset => {
            let mut words = vec!["MSET"];
            words.extend(names.iter().flat_map(|name| [name.as_str(), n]));
            out.extend_from_slice(&encode(&words));
        }
        Together::Script => {
            let numbers = count.to_string();
            let mut words = vec!["EVAL", SCRIPT, &numbers];
            words.extend(names.iter().map(String::as_str));
            words.push(n);
            out.extend_from_slice(&encode(&words));
        }
    }
    (1, 0)
}

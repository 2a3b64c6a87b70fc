//! The commands that clients send, drawn at random over a few keys.

use crate::model::Algebra;
use crate::transaction::Transaction;
use crate::value::Value;
use crate::world::DATABASES_USED;
use darter_base::Prng;

/// One command.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Get(String),
    Set(String, String),
    Incr(String),
    Append(String, String),
    Del(Vec<String>),
    Exists(Vec<String>),
    Mset(Vec<(String, String)>),
    Msetnx(Vec<(String, String)>),
    Mget(Vec<String>),
    Rename(String, String),
    Copy(String, String),
    Keys,
    Dbsize,
    Flushdb,
    Flushall,
    Select(usize),
    Move(String, usize),
    /// COPY to another database.
    CopyTo(String, String, usize),
    Swapdb(usize, usize),
    /// RPUSH, or LPUSH.
    Push(Side, String, Vec<String>),
    /// RPOP, or LPOP.
    Pop(Side, String, Option<usize>),
    /// LRANGE of all.
    Lrange(String),
    Llen(String),
    Lset(String, i64, String),
    /// LTRIM that removes this number of elements at each end.
    Ltrim(String, usize),
    Lrem(String, String),
    /// LINSERT BEFORE.
    Linsert(String, String, String),
    Lpos(String, String),
    Lmove(String, String, Side, Side),
    Lmpop(Vec<String>, Side, usize),
    Hset(String, Vec<(String, String)>),
    Hdel(String, Vec<String>),
    Hget(String, String),
    Hlen(String),
    Hgetall(String),
    Sadd(String, Vec<String>),
    Srem(String, Vec<String>),
    Smembers(String),
    Smove(String, String, String),
    Algebra {
        kind: Algebra,
        store: Option<String>,
        keys: Vec<String>,
    },
    /// CLIENT PAUSE, for this many milliseconds, of all commands or of writes only.
    Pause {
        ms: u64,
        reads: bool,
    },
    Unpause,
    /// CONFIG SET.
    Config(String, String),
    /// HGETALL by a command with a seeded bug: see `broken`.
    Broken(String),
    /// INCR of two keys as one transaction, by a broken command: see `broken`.
    BrokenExec(String, String),
    /// Several commands as one.
    Transaction(Box<Transaction>),
    /// The GET of a transaction that did not run.
    Unrun(String),
}

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

impl Side {
    fn draw(prng: &mut Prng) -> Self {
        if prng.chance(50) { Self::Left } else { Self::Right }
    }

    /// The name in commands.
    fn word(self) -> &'static str {
        match self {
            Self::Left => "LEFT",
            Self::Right => "RIGHT",
        }
    }

    /// The letter that names of commands begin with.
    fn letter(self) -> char {
        match self {
            Self::Left => 'L',
            Self::Right => 'R',
        }
    }
}

/// Keys of one run: few, so that clients contend for them, and spread over cores.
const KEYS: u64 = 4;
/// Elements of a large command: more than fit a slice.
const MANY: u64 = 600;

fn key(prng: &mut Prng) -> String {
    format!("k{}", prng.below(KEYS))
}

fn keys(prng: &mut Prng) -> Vec<String> {
    (0..1 + prng.below(3)).map(|_| key(prng)).collect()
}

fn distinct_keys(prng: &mut Prng) -> Vec<String> {
    let mut keys = keys(prng);
    keys.sort();
    keys.dedup();
    keys
}

pub(crate) fn database(prng: &mut Prng) -> usize {
    DATABASES_USED[usize::try_from(prng.below(DATABASES_USED.len() as u64)).unwrap_or(0)]
}

fn text(prng: &mut Prng) -> String {
    if prng.chance(30) { prng.below(50).to_string() } else { format!("v{}", prng.below(50)) }
}

/// Number of elements: usually few, sometimes more than fit a slice.
fn amount(prng: &mut Prng) -> u64 {
    if prng.chance(12) { 250 + prng.below(MANY) } else { 1 + prng.below(4) }
}

fn elements(prng: &mut Prng) -> Vec<String> {
    let count = amount(prng);
    elements_of(prng, count)
}

fn elements_of(prng: &mut Prng, count: u64) -> Vec<String> {
    let base = prng.below(8);
    (0..count).map(|at| format!("e{}", base + at)).collect()
}

fn index(prng: &mut Prng, below: u64) -> usize {
    usize::try_from(prng.below(below)).unwrap_or(0)
}

impl Op {
    /// The usual mix, with transactions and scripts.
    pub(crate) fn draw_transactions(prng: &mut Prng) -> Self {
        if prng.chance(20) {
            let is_plain = prng.chance(50);
            let draw =
                if is_plain { Transaction::draw_plain_script } else { Transaction::draw_script };
            return Self::Transaction(Box::new(draw(prng)));
        }
        if prng.chance(40) {
            return Self::Transaction(Box::new(Transaction::draw(prng)));
        }
        Self::draw(prng)
    }

    /// [`Op::draw`] for a command of a transaction.
    pub(crate) fn draw_plain(prng: &mut Prng) -> Self {
        Self::draw(prng)
    }

    /// A key.
    pub(crate) fn key(prng: &mut Prng) -> String {
        key(prng)
    }

    /// Draws a command, usually one longer than a slice: in a pipeline, each then waits for the one
    /// before it.
    pub(crate) fn draw_long(prng: &mut Prng) -> Self {
        if prng.chance(30) {
            return Self::draw(prng);
        }
        let key = key(prng);
        let elements = elements_of(prng, 250 + MANY / 2);
        match prng.below(7) {
            4 => Self::Push(Side::draw(prng), key, elements),
            5 => Self::Ltrim(key, 100 + index(prng, MANY / 2)),
            6 => Self::Lrem(key, format!("e{}", prng.below(12))),
            0 => Self::Hset(key, elements.into_iter().map(|name| (name, text(prng))).collect()),
            1 => Self::Hdel(key, elements),
            2 => Self::Sadd(key, elements),
            _ => Self::Srem(key, elements),
        }
    }

    /// Draws a command on databases.
    pub(crate) fn draw_databases(prng: &mut Prng) -> Self {
        match prng.below(20) {
            0..8 => Self::Select(database(prng)),
            8..12 => Self::Move(key(prng), database(prng)),
            12..16 => Self::CopyTo(key(prng), key(prng), database(prng)),
            16..19 => Self::Swapdb(database(prng), database(prng)),
            _ => Self::Flushdb,
        }
    }

    /// Draws a command about lists.
    fn draw_list(prng: &mut Prng) -> Self {
        let element = format!("e{}", prng.below(12));
        match prng.below(20) {
            0..6 => Self::Push(Side::draw(prng), key(prng), elements(prng)),
            6..8 => Self::Pop(Side::draw(prng), key(prng), None),
            8..10 => {
                let count = usize::try_from(amount(prng)).unwrap_or(1);
                Self::Pop(Side::draw(prng), key(prng), Some(count))
            }
            10..13 => Self::Lrange(key(prng)),
            13 => Self::Llen(key(prng)),
            14 => {
                let index = i64::from(prng.chance(50)) - 1;
                Self::Lset(key(prng), index, element)
            }
            15 => Self::Ltrim(key(prng), index(prng, 3)),
            16 => Self::Lrem(key(prng), element),
            17 => Self::Linsert(key(prng), element, text(prng)),
            18 => Self::Lpos(key(prng), element),
            _ if prng.chance(60) => {
                Self::Lmove(key(prng), key(prng), Side::draw(prng), Side::draw(prng))
            }
            _ => Self::Lmpop(keys(prng), Side::draw(prng), 1 + index(prng, 3)),
        }
    }

    /// Draws a command.
    pub(crate) fn draw(prng: &mut Prng) -> Self {
        if prng.chance(15) {
            return Self::draw_list(prng);
        }
        match prng.below(100) {
            0..8 => Self::Get(key(prng)),
            8..14 => Self::Set(key(prng), text(prng)),
            14..18 => Self::Incr(key(prng)),
            18..20 => Self::Append(key(prng), text(prng)),
            20..27 => Self::Del(keys(prng)),
            27..30 => Self::Exists(keys(prng)),
            30..36 => {
                Self::Mset(distinct_keys(prng).into_iter().map(|key| (key, text(prng))).collect())
            }
            36..38 => {
                Self::Msetnx(distinct_keys(prng).into_iter().map(|key| (key, text(prng))).collect())
            }
            38..46 => Self::Mget(keys(prng)),
            46..52 => Self::Rename(key(prng), key(prng)),
            52..56 => Self::Copy(key(prng), key(prng)),
            56..58 => Self::Keys,
            58..60 => Self::Dbsize,
            60..61 => Self::Flushall,
            61..68 => {
                let value = text(prng);
                let pairs = elements(prng).into_iter().map(|field| (field, value.clone()));
                Self::Hset(key(prng), pairs.collect())
            }
            68..70 => Self::Hdel(key(prng), elements(prng)),
            70..72 => Self::Hget(key(prng), format!("e{}", prng.below(12))),
            72..74 => Self::Hlen(key(prng)),
            74..80 => Self::Hgetall(key(prng)),
            80..86 => Self::Sadd(key(prng), elements(prng)),
            86..88 => Self::Srem(key(prng), elements(prng)),
            88..91 => Self::Smembers(key(prng)),
            91..93 => Self::Smove(key(prng), key(prng), format!("e{}", prng.below(12))),
            _ => {
                let kinds = [Algebra::Inter, Algebra::Union, Algebra::Diff];
                let kind = kinds[usize::try_from(prng.below(3)).unwrap_or(0)];
                let store = prng.chance(60).then(|| key(prng));
                Self::Algebra { kind, store, keys: keys(prng) }
            }
        }
    }

    /// True when it may change data.
    pub(crate) fn is_write(&self) -> bool {
        if let Self::Transaction(it) = self {
            return it.ops.iter().any(Self::is_write);
        }
        !matches!(
            self,
            Self::Get(_)
                | Self::Unrun(_)
                | Self::Exists(_)
                | Self::Mget(_)
                | Self::Keys
                | Self::Dbsize
                | Self::Select(_)
                | Self::Lrange(_)
                | Self::Llen(_)
                | Self::Lpos(..)
                | Self::Hget(..)
                | Self::Hlen(_)
                | Self::Hgetall(_)
                | Self::Smembers(_)
                | Self::Algebra { store: None, .. }
        ) && !self.is_pause()
    }

    /// The keys named by the command; `None` if it concerns all keys.
    pub(crate) fn keys(&self) -> Option<Vec<&String>> {
        Some(match self {
            Self::Keys | Self::Dbsize | Self::Flushdb | Self::Flushall | Self::Swapdb(..) => {
                return None;
            }
            Self::Select(_) | Self::Pause { .. } | Self::Unpause | Self::Config(..) => Vec::new(),
            Self::Del(keys) | Self::Exists(keys) | Self::Mget(keys) | Self::Lmpop(keys, ..) => {
                keys.iter().collect()
            }
            Self::Mset(pairs) | Self::Msetnx(pairs) => pairs.iter().map(|(key, _)| key).collect(),
            Self::Algebra { store, keys, .. } => store.iter().chain(keys).collect(),
            Self::Rename(from, to)
            | Self::Copy(from, to)
            | Self::CopyTo(from, to, _)
            | Self::Lmove(from, to, ..)
            | Self::Smove(from, to, _) => vec![from, to],
            Self::Get(key)
            | Self::Set(key, _)
            | Self::Incr(key)
            | Self::Append(key, _)
            | Self::Move(key, _)
            | Self::Push(_, key, _)
            | Self::Pop(_, key, _)
            | Self::Lrange(key)
            | Self::Llen(key)
            | Self::Lset(key, ..)
            | Self::Ltrim(key, _)
            | Self::Lrem(key, _)
            | Self::Linsert(key, ..)
            | Self::Lpos(key, _)
            | Self::Hset(key, _)
            | Self::Hdel(key, _)
            | Self::Hget(key, _)
            | Self::Hlen(key)
            | Self::Hgetall(key)
            | Self::Sadd(key, _)
            | Self::Srem(key, _)
            | Self::Smembers(key)
            | Self::Unrun(key)
            | Self::Broken(key) => vec![key],
            Self::BrokenExec(one, other) => vec![one, other],
            Self::Transaction(it) => return it.keys(),
        })
    }

    /// True for CLIENT PAUSE and UNPAUSE.
    pub(crate) fn is_pause(&self) -> bool {
        matches!(self, Self::Pause { .. } | Self::Unpause)
    }

    /// The command and its arguments.
    pub(crate) fn words(&self) -> Vec<String> {
        match self {
            Self::Transaction(it) => it.requests().concat(),
            Self::BrokenExec(one, other) => vec!["BROKEN".to_owned(), one.clone(), other.clone()],
            _ => self.words_of_one(),
        }
    }

    fn words_of_one(&self) -> Vec<String> {
        let own = |text: &str| text.to_owned();
        let with = |name: &str, rest: &[&String]| {
            let mut words = vec![own(name)];
            words.extend(rest.iter().map(|word| (*word).clone()));
            words
        };
        let list = |name: &str, keys: &[String]| with(name, &keys.iter().collect::<Vec<_>>());
        let keyed = |name: &str, key: &String, rest: &[String]| {
            let mut words = with(name, &[key]);
            words.extend_from_slice(rest);
            words
        };
        let pairs = |name: &str, pairs: &[(String, String)]| {
            let mut words = vec![own(name)];
            words.extend(pairs.iter().flat_map(|(key, value)| [key.clone(), value.clone()]));
            words
        };
        match self {
            Self::Get(key) | Self::Unrun(key) => with("GET", &[key]),
            Self::Set(key, value) => with("SET", &[key, value]),
            Self::Incr(key) => with("INCR", &[key]),
            Self::Append(key, value) => with("APPEND", &[key, value]),
            Self::Del(keys) => list("DEL", keys),
            Self::Exists(keys) => list("EXISTS", keys),
            Self::Mset(list) => pairs("MSET", list),
            Self::Msetnx(list) => pairs("MSETNX", list),
            Self::Mget(keys) => list("MGET", keys),
            Self::Rename(from, to) => with("RENAME", &[from, to]),
            Self::Copy(from, to) => with("COPY", &[from, to]),
            Self::Keys => vec![own("KEYS"), own("*")],
            Self::Dbsize => vec![own("DBSIZE")],
            Self::Flushdb => vec![own("FLUSHDB")],
            Self::Flushall => vec![own("FLUSHALL")],
            Self::Select(db) => with("SELECT", &[&db.to_string()]),
            Self::Move(key, db) => with("MOVE", &[key, &db.to_string()]),
            Self::CopyTo(from, to, db) => with("COPY", &[from, to, &own("DB"), &db.to_string()]),
            Self::Swapdb(one, other) => with("SWAPDB", &[&one.to_string(), &other.to_string()]),
            Self::Hset(key, list) => {
                let mut words = pairs("HSET", list);
                words.insert(1, key.clone());
                words
            }
            Self::Hdel(key, fields) => keyed("HDEL", key, fields),
            Self::Hget(key, field) => with("HGET", &[key, field]),
            Self::Hlen(key) => with("HLEN", &[key]),
            Self::Hgetall(key) => with("HGETALL", &[key]),
            Self::Sadd(key, members) => keyed("SADD", key, members),
            Self::Srem(key, members) => keyed("SREM", key, members),
            Self::Smembers(key) => with("SMEMBERS", &[key]),
            Self::Smove(from, to, member) => with("SMOVE", &[from, to, member]),
            Self::Algebra { kind, store, keys } => {
                let name = match kind {
                    Algebra::Inter => "SINTER",
                    Algebra::Union => "SUNION",
                    Algebra::Diff => "SDIFF",
                };
                match store {
                    Some(to) => keyed(&format!("{name}STORE"), to, keys),
                    None => list(name, keys),
                }
            }
            Self::Pause { ms, reads } => {
                let mode = if *reads { "ALL" } else { "WRITE" };
                vec![own("CLIENT"), own("PAUSE"), ms.to_string(), own(mode)]
            }
            Self::Unpause => vec![own("CLIENT"), own("UNPAUSE")],
            Self::Config(name, value) => with("CONFIG", &[&own("SET"), name, value]),
            Self::Broken(key) => with("BROKEN", &[key]),
            _ => self.list_words(),
        }
    }

    /// The words, if it is about lists.
    fn list_words(&self) -> Vec<String> {
        let of = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        match self {
            Self::Push(side, key, elements) => {
                let mut words = of(&[&format!("{}PUSH", side.letter()), key]);
                words.extend_from_slice(elements);
                words
            }
            Self::Pop(side, key, count) => {
                let mut words = of(&[&format!("{}POP", side.letter()), key]);
                words.extend(count.iter().map(ToString::to_string));
                words
            }
            Self::Lrange(key) => of(&["LRANGE", key, "0", "-1"]),
            Self::Llen(key) => of(&["LLEN", key]),
            Self::Lset(key, index, element) => of(&["LSET", key, &index.to_string(), element]),
            Self::Ltrim(key, count) => {
                of(&["LTRIM", key, &count.to_string(), &format!("-{}", count + 1)])
            }
            Self::Lrem(key, element) => of(&["LREM", key, "0", element]),
            Self::Linsert(key, pivot, element) => of(&["LINSERT", key, "BEFORE", pivot, element]),
            Self::Lpos(key, element) => of(&["LPOS", key, element]),
            Self::Lmove(from, to, one, other) => of(&["LMOVE", from, to, one.word(), other.word()]),
            Self::Lmpop(keys, side, count) => {
                let mut words = of(&["LMPOP", &keys.len().to_string()]);
                words.extend(keys.iter().cloned());
                words.extend(of(&[side.word(), "COUNT", &count.to_string()]));
                words
            }
            other => unreachable!("{other:?} is not about lists"),
        }
    }

    /// The encoding in RESP.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let requests = match self {
            Self::Transaction(it) => it.requests(),
            _ => vec![self.words()],
        };
        let mut bytes = Vec::new();
        for words in requests {
            bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
            for word in words {
                bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
            }
        }
        bytes
    }

    /// The number of its replies.
    pub(crate) fn replies(&self) -> usize {
        if let Self::Transaction(it) = self { it.requests().len() } else { 1 }
    }

    /// Joins the replies into one.
    pub(crate) fn join(&self, mut replies: Vec<Value>) -> Result<Value, String> {
        match self {
            Self::Transaction(it) => it.join(replies),
            _ => Ok(replies.remove(0)),
        }
    }

    /// A reply in the model's form: sorted where the order is unspecified.
    pub(crate) fn normal(&self, reply: Value) -> Value {
        match self {
            Self::Hgetall(_) | Self::Broken(_) => reply.sorted_pairs(),
            Self::Transaction(it) => it.normal(reply),
            Self::Keys | Self::Smembers(_) | Self::Algebra { store: None, .. } => reply.sorted(),
            _ => reply,
        }
    }
}

//! The workloads of `throughput`: one row each.
//!
//! A row has the expected reply, the data that must exist before, and the request of both clients.
//! The runner (`throughput`) reads only rows, so a new workload is a new row.

use crate::client::{self, Connection, Reply};
use crate::fault::Outcome;
use crate::prng::Prng;

/// Keys, fields, members and elements that requests choose from.
pub(crate) const KEYS: u64 = 100_000;
/// The value of all keys, fields and elements.
pub(crate) const VALUE: &[u8] = b"xxx";
/// Elements of the list that LPOP takes from.
const QUEUED: u64 = 1_000_000;
/// Elements of one request that fills that list.
const QUEUED_AT_ONCE: u64 = 1_000;
/// Elements that a range is asked for.
const RANGE: u64 = 100;
/// Members that a search by place is asked for, of some forty within its radius.
const NEAREST: u64 = 10;
/// Keys of one request that names several.
const TOGETHER: usize = 10;

/// One kind of request.
pub(crate) struct Workload {
    /// The name in tables.
    pub(crate) name: &'static str,
    /// The expected answer.
    pub(crate) answer: Answer,
    /// The state before each measurement, besides [`fill`].
    pub(crate) before: Before,
    /// Appends one request of the saturating client.
    pub(crate) request: fn(&mut Prng, &mut Vec<u8>),
    /// The words for redis-benchmark.
    pub(crate) words: &'static [&'static str],
}

/// A reply as it travels; where it depends on the request, one of typical length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// One line, or a bulk string's two.
    Of(&'static str),
    /// An array with this number of copies of a reply.
    Array(u64, &'static str),
}

impl Answer {
    /// The bytes.
    pub(crate) fn text(self) -> String {
        match self {
            Answer::Of(text) => text.to_owned(),
            Answer::Array(count, each) => {
                format!("*{count}\r\n{}", each.repeat(count as usize))
            }
        }
    }

    /// The line ends.
    pub(crate) fn lines(self) -> u64 {
        self.text().matches('\n').count() as u64
    }

    /// Whether `reply` has its form: its kind, about its length, and so has each one inside.
    pub(crate) fn has_form_of(self, reply: &Reply) -> bool {
        // A score has some digits more or fewer.
        let is_near = |text: &str, bytes: &[u8]| {
            let lines = b"$..\r\n\r\n".len();
            text.len().abs_diff(bytes.len() + lines) <= 3
        };
        let is_alike = |text: &str, reply: &Reply| match reply {
            Reply::Status(_) => text.starts_with('+'),
            Reply::Integer(_) => text.starts_with(':'),
            Reply::Bulk(bytes) => text.starts_with('$') && is_near(text, bytes),
            Reply::Null | Reply::Array(_) => false,
        };
        match (self, reply) {
            (Answer::Of(text), reply) => is_alike(text, reply),
            (Answer::Array(count, each), Reply::Array(replies)) => {
                replies.len() as u64 == count && replies.iter().all(|reply| is_alike(each, reply))
            }
            (Answer::Array(..), _) => false,
        }
    }
}

/// The part of a workload's state that must be made again before each measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// No more than that: its requests leave as much as they find.
    Filled,
    /// This key is gone: it would grow from one measurement to the next.
    Without(&'static str),
    /// The list `queue` has [`QUEUED`] elements, each of which one request takes.
    Queue,
}

impl Before {
    /// The most requests for which it lasts.
    pub(crate) fn requests_max(self) -> u64 {
        if self == Before::Queue { QUEUED } else { u64::MAX }
    }

    /// Brings a server to this state.
    pub(crate) fn prepare(self, connection: &mut Connection) -> Outcome<()> {
        match self {
            Before::Filled => Ok(()),
            Before::Without(key) => connection.ask(&["DEL", key]).map(|_| ()),
            Before::Queue => fill_queue(connection),
        }
    }
}

fn fill_queue(connection: &mut Connection) -> Outcome<()> {
    let mut words = vec!["RPUSH".to_owned(), "queue".to_owned()];
    words.resize(2 + QUEUED_AT_ONCE as usize, String::from_utf8_lossy(VALUE).into_owned());
    connection.ask(&["DEL", "queue"])?;
    for _ in 0..QUEUED / QUEUED_AT_ONCE {
        connection.ask(&words)?;
    }
    // The request that is checked takes one, too.
    connection.ask(&["RPUSH", "queue", "xxx"]).map(|_| ())
}

const KEY: &str = "key:__rand_int__";
const FIELD: &str = "field:__rand_int__";
const MEMBER: &str = "member:__rand_int__";

const OK: Answer = Answer::Of("+OK\r\n");
const BULK: Answer = Answer::Of("$3\r\nxxx\r\n");
const ZERO: Answer = Answer::Of(":0\r\n");
const COUNT: Answer = Answer::Of(":50000\r\n");
const SCORE: Answer = Answer::Of("$5\r\n50000\r\n");

use Before::{Filled, Queue, Without};

/// The workloads. redis-benchmark's random numbers have twelve digits; so have the keys here.
#[rustfmt::skip] // A table: one row a workload, columns aligned.
pub(crate) const TABLE: &[Workload] = &[
    row("GET",        BULK,  Filled,  get,  &["GET", KEY]),
    row("SET",        OK,    Filled,  set,  &["SET", KEY, "xxx"]),
    row("HGET",       BULK,  Filled,  hget, &["HGET", "hash", FIELD]),
    row("HSET",       ZERO,  Filled,  hset, &["HSET", "hash", FIELD, "xxx"]),
    row("SADD",       ZERO,  Filled,  sadd, &["SADD", "set", MEMBER]),
    row("LPUSH",      COUNT, Without("pushed"), lpush, &["LPUSH", "pushed", "xxx"]),
    row("LPOP",       BULK,  Queue,   lpop, &["LPOP", "queue"]),
    row("LRANGE_100", Answer::Array(RANGE, "$3\r\nxxx\r\n"), Filled, lrange, &["LRANGE", "list", "0", "99"]),
    row("ZADD",       ZERO,  Filled, zadd, &["ZADD", "zset", "__rand_int__", MEMBER]),
    row("ZINCRBY",    SCORE, Filled, zincrby, &["ZINCRBY", "zset", "1", MEMBER]),
    row("ZRANK",      COUNT, Filled, zrank, &["ZRANK", "zset", MEMBER]),
    row("ZRANGE_100", Answer::Array(RANGE, "$19\r\nmember:000000012345\r\n"), Filled, zrange, &["ZRANGE", "zset", "500", "599"]),
    row("GEOSEARCH_10", Answer::Array(NEAREST, "$19\r\nmember:000000012345\r\n"), Filled, geosearch,
        &["GEOSEARCH", "geo", "FROMLONLAT", "5.1", "45.2", "BYRADIUS", "10", "km", "ASC", "COUNT", "10"]),
    row("XADD",       Answer::Of("$15\r\n1795410110123-0\r\n"), Without("stream"), xadd, &["XADD", "stream", "*", "field", "xxx"]),
    row("INCR",       Answer::Of(":100\r\n"), Filled,  incr, &["INCR", "counter:__rand_int__"]),
    row("GETBIT",     ZERO,  Filled,  getbit, &["GETBIT", KEY, "7"]),
    row("SETBIT",     ZERO,  Filled,  setbit, &["SETBIT", "bits:__rand_int__", "7", "1"]),
    row("BITCOUNT",   Answer::Of(":12\r\n"), Filled,  bitcount, &["BITCOUNT", KEY]),
    row("PFADD",      ZERO,  Filled,  pfadd, &["PFADD", "hll", FIELD]),
    row("MGET_10",    Answer::Array(TOGETHER as u64, "$3\r\nxxx\r\n"), Filled, mget,
        &["MGET", KEY, KEY, KEY, KEY, KEY, KEY, KEY, KEY, KEY, KEY]),
    row("MSET",       OK,    Filled,  mset,
        &["MSET", KEY, "xxx", KEY, "xxx", KEY, "xxx", KEY, "xxx", KEY, "xxx",
                  KEY, "xxx", KEY, "xxx", KEY, "xxx", KEY, "xxx", KEY, "xxx"]),
];

const fn row(
    name: &'static str,
    answer: Answer,
    before: Before,
    request: fn(&mut Prng, &mut Vec<u8>),
    words: &'static [&'static str],
) -> Workload {
    Workload { name, answer, before, request, words }
}

/// Writes all keys, fields, members and elements that the workloads read.
pub(crate) fn fill(connection: &mut Connection) -> Outcome<()> {
    const AT_ONCE: u64 = 1_000;
    const EACH: u64 = 6;
    for first in (0..KEYS).step_by(AT_ONCE as usize) {
        let mut request = Vec::new();
        for number in first..first + AT_ONCE {
            let (key, field) = (format!("key:{number:012}"), format!("field:{number:012}"));
            client::command(&mut request, &[b"SET", key.as_bytes(), VALUE]);
            client::command(&mut request, &[b"HSET", &b"hash"[..], field.as_bytes(), VALUE]);
            let (score, member) = (number * 7_919 % KEYS, format!("member:{number:012}"));
            client::command(&mut request, &["ZADD", "zset", &score.to_string(), &member]);
            client::command(&mut request, &["SADD", "set", &member]);
            let [longitude, latitude] = place(&mut Prng::from_seed(number), 100_000);
            client::command(&mut request, &["GEOADD", "geo", &longitude, &latitude, &member]);
            client::command(&mut request, &[&b"RPUSH"[..], b"list", VALUE]);
        }
        connection.send(&request)?;
        for _ in 0..AT_ONCE * EACH {
            connection.reply()?;
        }
    }
    Ok(())
}

fn key(prng: &mut Prng) -> String {
    format!("key:{:012}", prng.below(KEYS))
}

fn field(prng: &mut Prng) -> String {
    format!("field:{:012}", prng.below(KEYS))
}

fn member(prng: &mut Prng) -> String {
    format!("member:{:012}", prng.below(KEYS))
}

fn get(prng: &mut Prng, request: &mut Vec<u8>) {
    client::command(request, &["GET", &key(prng)]);
}

fn set(prng: &mut Prng, request: &mut Vec<u8>) {
    client::command(request, &["SET", &key(prng), "xxx"]);
}

fn mget(prng: &mut Prng, request: &mut Vec<u8>) {
    let keys: [String; TOGETHER] = std::array::from_fn(|_| key(prng));
    let words: Vec<&str> = ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    client::command(request, &words);
}

fn mset(prng: &mut Prng, request: &mut Vec<u8>) {
    let keys: [String; TOGETHER] = std::array::from_fn(|_| key(prng));
    let pairs = keys.iter().flat_map(|key| [key.as_str(), "xxx"]);
    let words: Vec<&str> = ["MSET"].into_iter().chain(pairs).collect();
    client::command(request, &words);
}

fn hget(prng: &mut Prng, request: &mut Vec<u8>) {
    client::command(request, &["HGET", "hash", &field(prng)]);
}

fn hset(prng: &mut Prng, request: &mut Vec<u8>) {
    client::command(request, &["HSET", "hash", &field(prng), "xxx"]);
}

fn sadd(prng: &mut Prng, request: &mut Vec<u8>) {
    client::command(request, &["SADD", "set", &member(prng)]);
}

fn lpush(_: &mut Prng, request: &mut Vec<u8>) {
    client::command(request, &["LPUSH", "pushed", "xxx"]);
}

fn lpop(_: &mut Prng, request: &mut Vec<u8>) {
    client::command(request, &["LPOP", "queue"]);
}

fn lrange(_: &mut Prng, request: &mut Vec<u8>) {
    client::command(request, &["LRANGE", "list", "0", "99"]);
}

fn zadd(prng: &mut Prng, request: &mut Vec<u8>) {
    let score = prng.below(KEYS).to_string();
    client::command(request, &["ZADD", "zset", &score, &member(prng)]);
}

fn zincrby(prng: &mut Prng, request: &mut Vec<u8>) {
    client::command(request, &["ZINCRBY", "zset", "1", &member(prng)]);
}

fn zrank(prng: &mut Prng, request: &mut Vec<u8>) {
    client::command(request, &["ZRANK", "zset", &member(prng)]);
}

fn zrange(prng: &mut Prng, request: &mut Vec<u8>) {
    let first = prng.below(KEYS - RANGE);
    let last = first + RANGE - 1;
    client::command(request, &["ZRANGE", "zset", &first.to_string(), &last.to_string()]);
}

fn geosearch(prng: &mut Prng, request: &mut Vec<u8>) {
    let [longitude, latitude] = place(prng, 90_000);
    let count = NEAREST.to_string();
    let (from, radius) = (["GEOSEARCH", "geo", "FROMLONLAT"], ["BYRADIUS", "10", "km"]);
    let words = [&from[..], &[&longitude, &latitude], &radius, &["ASC", "COUNT", &count]];
    client::command(request, &words.concat());
}

/// Longitude and latitude of a place in a square of ten degrees; with `below` under 100 000, one
/// that is not near the edge.
fn place(prng: &mut Prng, below: u64) -> [String; 2] {
    let margin = (100_000 - below) / 2;
    let mut degrees = |from: u64| {
        let tenths_of_thousandths = from * 10_000 + margin + prng.below(below);
        format!("{:.4}", tenths_of_thousandths as f64 / 1e4)
    };
    [degrees(0), degrees(40)]
}

fn xadd(_: &mut Prng, request: &mut Vec<u8>) {
    client::command(request, &["XADD", "stream", "*", "field", "xxx"]);
}

fn incr(prng: &mut Prng, request: &mut Vec<u8>) {
    client::command(request, &["INCR", &format!("counter:{:012}", prng.below(KEYS))]);
}

fn getbit(prng: &mut Prng, request: &mut Vec<u8>) {
    client::command(request, &["GETBIT", &key(prng), "7"]);
}

fn setbit(prng: &mut Prng, request: &mut Vec<u8>) {
    client::command(request, &["SETBIT", &format!("bits:{:012}", prng.below(KEYS)), "7", "1"]);
}

fn bitcount(prng: &mut Prng, request: &mut Vec<u8>) {
    client::command(request, &["BITCOUNT", &key(prng)]);
}

fn pfadd(prng: &mut Prng, request: &mut Vec<u8>) {
    client::command(request, &["PFADD", "hll", &field(prng)]);
}

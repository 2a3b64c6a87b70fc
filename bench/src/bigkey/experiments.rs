//! The experiments of `bigkey`, one row each.
//!
//! A row names the data to load, the concurrent requests on the *same* key, and the act of the big
//! client. The runner (`bigkey`) knows nothing else, so a new experiment is a new row. Each
//! experiment starts on a server that has just loaded its data, so that an experiment cannot affect
//! the next one through the keyspace or the allocator.

use std::time::{Duration, Instant};

use crate::client::{self, Connection, Reader, Streamed};
use crate::data::{
    self, ARTICLE_HASH, ARTICLE_LIST, ARTICLE_SETS, BIG, Data, FREQUENT, OTHER, SEED, SMALL_KEYS,
    Scale,
};
use crate::fault::{Fault, Outcome};
use crate::prng::{Prng, uuid};
use crate::saturate::{self, Load, Supply, Turn, Wait};

/// The rate at which the slow reader reads.
const SLOW_READER: Reader = Reader::Slow { bytes_per_s: 32 << 20 };
/// Fields or members in one command of a fill.
const FILL_BATCH: u64 = 100;
/// A UUID that no list has.
const ABSENT: &str = "00000000-0000-4000-8000-000000000000";
/// Commands of a fill that are sent together.
const FILL_PIPELINE: u64 = 32;

/// GaussDB's script, which fills a hash, a list and a set with the numbers up to its argument.
const SEED_SCRIPT: &str = "for i = 1, tonumber(ARGV[1]) do
    redis.call('HSET', KEYS[1], i, i)
    redis.call('LPUSH', KEYS[2], i)
    redis.call('SADD', KEYS[3], i)
end";

/// One experiment.
pub(crate) struct Experiment {
    /// The name in tables and file names.
    pub(crate) name: &'static str,
    /// The data to load.
    pub(crate) data: Data,
    /// The stream on the big key itself.
    pub(crate) same: Option<SameKey>,
    /// Whether its stall picture is drawn.
    pub(crate) picture: Picture,
    /// The act of the big client.
    pub(crate) act: fn(&mut Actor) -> Outcome<Streamed>,
}

/// Whether a stall picture is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Picture {
    /// A picture is drawn.
    Drawn,
    /// No picture is drawn, because the table is enough.
    Left,
}

/// Appends request number `number` of the stream on the big key.
pub(crate) type SameKey = fn(&Scale, u64, &mut Prng, &mut Vec<u8>);

/// The big client.
pub(crate) struct Actor {
    /// The connection to the server.
    pub(crate) connection: Connection,
    /// The port of its server.
    pub(crate) port: u16,
    /// The sizes of the data.
    pub(crate) scale: Scale,
    /// The longest that one command, and the whole act, may take.
    pub(crate) limit: Duration,
}

use Data::{
    Entries, Everything, Hash, Ids, Integers, Keys, Numbers, Populated, Repeats, Scores, Sketches,
    Small, Text, TwoScores, TwoSets, Uuids,
};
use Picture::{Drawn, Left};

const HASH: Option<SameKey> = Some(touch_hash);
const SET: Option<SameKey> = Some(touch_uuids);
const INTS: Option<SameKey> = Some(touch_integers);
const PAIR: Option<SameKey> = Some(touch_members);
const TEXT: Option<SameKey> = Some(touch_text);
const LIST: Option<SameKey> = Some(touch_list);
const ZSET: Option<SameKey> = Some(touch_scores);
const STREAM: Option<SameKey> = Some(touch_entries);
const HLL: Option<SameKey> = Some(touch_sketch);
const EACH: Option<SameKey> = Some(touch_one_of_all);

/// All experiments, in the order in which they run. Rows with the same data are adjacent.
#[rustfmt::skip] // A table: one row an experiment, columns aligned.
pub(crate) const TABLE: &[Experiment] = &[
    row("HSET fill by 100",    Small,     None, Left,  |a| a.fill("HSET")),
    row("SADD fill by 100",    Small,     None, Left,  |a| a.fill("SADD")),
    row("RPUSH fill by 100",   Small,     None, Left,  |a| a.fill("RPUSH")),
    row("ZADD fill by 100",    Small,     None, Left,  |a| a.fill("ZADD")),
    row("HGETALL",             Hash,      HASH, Drawn, |a| a.run(&["HGETALL", BIG])),
    row("HGETALL slow reader", Hash,      HASH, Left,  |a| a.run_slowly(&["HGETALL", BIG])),
    row("DEL hash",            Hash,      HASH, Drawn, |a| a.run(&["DEL", BIG])),
    row("UNLINK hash",         Hash,      HASH, Left,  |a| a.run(&["UNLINK", BIG])),
    row("EXPIRE hash 1 s",     Hash,      HASH, Drawn, |a| a.expire("HLEN")),
    row("RENAME hash",         Hash,      HASH, Left,  |a| a.run(&["RENAME", BIG, "renamed"])),
    row("COPY hash",           Hash,      HASH, Left,  |a| a.run(&["COPY", BIG, "copy"])),
    row("SET over hash",       Hash,      HASH, Left,  |a| a.run(&["SET", BIG, "gone"])),
    row("FLUSHALL hash",       Hash,      HASH, Left,  |a| a.run(&["FLUSHALL"])),
    row("HSCAN+HDEL drain",    Hash,      HASH, Left,  Actor::drain),
    row("SMEMBERS",            Uuids,     SET,  Left,  |a| a.run(&["SMEMBERS", BIG])),
    row("SPOP a tenth",        Uuids,     SET,  Left,  Actor::pop),
    row("DEL set",             Uuids,     SET,  Left,  |a| a.run(&["DEL", BIG])),
    row("EXPIRE set 1 s",      Uuids,     SET,  Left,  |a| a.expire("SCARD")),
    row("RENAME set",          Uuids,     SET,  Left,  |a| a.run(&["RENAME", BIG, "renamed"])),
    row("COPY set",            Uuids,     SET,  Left,  |a| a.run(&["COPY", BIG, "copy"])),
    row("DEL integer set",     Integers,  INTS, Left,  |a| a.run(&["DEL", BIG])),
    row("SINTER",              TwoSets,   PAIR, Drawn, |a| a.run(&["SINTER", BIG, OTHER])),
    row("SDIFF",               TwoSets,   PAIR, Left,  |a| a.run(&["SDIFF", BIG, OTHER])),
    row("SUNION",              TwoSets,   PAIR, Left,  |a| a.run(&["SUNION", BIG, OTHER])),
    row("SINTERSTORE",         TwoSets,   PAIR, Left,  |a| a.run(&["SINTERSTORE", "dest", BIG, OTHER])),
    row("SDIFFSTORE",          TwoSets,   PAIR, Left,  |a| a.run(&["SDIFFSTORE", "dest", BIG, OTHER])),
    row("SUNIONSTORE",         TwoSets,   PAIR, Left,  |a| a.run(&["SUNIONSTORE", "dest", BIG, OTHER])),
    row("LRANGE all",          Numbers,   LIST, Left,  |a| a.run(&["LRANGE", BIG, "0", "-1"])),
    row("LRANGE a tenth",      Numbers,   LIST, Left,  |a| a.run_on_ranks("LRANGE", 10)),
    row("LREM absent",         Numbers,   LIST, Drawn, |a| a.run(&["LREM", BIG, "0", "-1"])),
    row("LINSERT middle",      Numbers,   LIST, Left,  Actor::insert),
    row("LTRIM half",          Numbers,   LIST, Left,  |a| a.run_on_ranks("LTRIM", 2)),
    row("RPUSH of a million",  Numbers,   LIST, Left,  |a| a.add_at_once("RPUSH")),
    row("DEL list",            Numbers,   LIST, Left,  |a| a.run(&["DEL", BIG])),
    row("EXPIRE list 1 s",     Numbers,   LIST, Left,  |a| a.expire("LLEN")),
    row("RENAME list",         Numbers,   LIST, Left,  |a| a.run(&["RENAME", BIG, "renamed"])),
    row("COPY list",           Numbers,   LIST, Left,  |a| a.run(&["COPY", BIG, "copy"])),
    row("SORT",                Numbers,   LIST, Left,  |a| a.run(&["SORT", BIG])),
    row("SORT STORE",          Numbers,   LIST, Left,  |a| a.run(&["SORT", BIG, "DESC", "STORE", "dest"])),
    row("LREM frequent",       Repeats,   LIST, Left,  |a| a.run(&["LREM", BIG, "0", FREQUENT])),
    row("LRANGE all UUIDs",    Ids,       LIST, Left,  |a| a.run(&["LRANGE", BIG, "0", "-1"])),
    row("LREM absent UUID",    Ids,       LIST, Left,  |a| a.run(&["LREM", BIG, "0", ABSENT])),
    row("SORT ALPHA of UUIDs", Ids,       LIST, Left,  |a| a.run(&["SORT", BIG, "ALPHA"])),
    row("DEL list of UUIDs",   Ids,       LIST, Left,  |a| a.run(&["DEL", BIG])),
    row("ZRANGE all",          Scores,    ZSET, Drawn, |a| a.run(&["ZRANGE", BIG, "0", "-1", "WITHSCORES"])),
    row("ZRANGE a tenth",      Scores,    ZSET, Left,  |a| a.run_on_ranks("ZRANGE", 10)),
    row("ZADD of a million",   Scores,    ZSET, Left,  |a| a.add_at_once("ZADD")),
    row("ZREMRANGEBYRANK half", Scores,   ZSET, Left,  |a| a.run_on_ranks("ZREMRANGEBYRANK", 2)),
    row("DEL zset",            Scores,    ZSET, Left,  |a| a.run(&["DEL", BIG])),
    row("EXPIRE zset 1 s",     Scores,    ZSET, Left,  |a| a.expire("ZCARD")),
    row("RENAME zset",         Scores,    ZSET, Left,  |a| a.run(&["RENAME", BIG, "renamed"])),
    row("COPY zset",           Scores,    ZSET, Left,  |a| a.run(&["COPY", BIG, "copy"])),
    // Read as geohashes, all scores below 1 are in one corner of the world.
    row("GEOSEARCH all",       Scores,    ZSET, Left,  |a| a.run(&["GEOSEARCH", BIG, "FROMLONLAT", "-180", "-85.05", "BYRADIUS", "9", "km"])),
    row("ZUNIONSTORE",         TwoScores, ZSET, Drawn, |a| a.run(&["ZUNIONSTORE", "dest", "2", BIG, OTHER])),
    row("ZINTERSTORE",         TwoScores, ZSET, Left,  |a| a.run(&["ZINTERSTORE", "dest", "2", BIG, OTHER])),
    row("XRANGE all",          Entries,   STREAM, Left, |a| a.run(&["XRANGE", BIG, "-", "+"])),
    row("XTRIM half",          Entries,   STREAM, Left, Actor::trim),
    row("DEL stream",          Entries,   STREAM, Left, |a| a.run(&["DEL", BIG])),
    row("EXPIRE stream 1 s",   Entries,   STREAM, Left, |a| a.expire("XLEN")),
    row("COPY stream",         Entries,   STREAM, Left, |a| a.run(&["COPY", BIG, "copy"])),
    row("JSON of all numbers", Small,     None, Left,  Actor::document),
    row("filters and sketches", Small,    None, Left,  Actor::sketch),
    row("KEYS *",              Keys,      None, Drawn, |a| a.run(&["KEYS", "*"])),
    row("SCAN COUNT 1e9",      Keys,      None, Left,  |a| a.run(&["SCAN", "0", "COUNT", "1000000000"])),
    row("MGET all keys",       Keys,      None, Left,  |a| a.run_on_keys("MGET")),
    row("MSET all keys",       Keys,      None, Left,  |a| a.run_on_keys("MSET")),
    row("DEL all keys",        Keys,      None, Left,  |a| a.run_on_keys("DEL")),
    row("GET huge string",     Text,      TEXT, Left,  |a| a.run(&["GET", BIG])),
    row("SETRANGE in it",      Text,      TEXT, Left,  |a| a.run(&["SETRANGE", BIG, "1000000", "here"])),
    row("APPEND to it",        Text,      TEXT, Left,  |a| a.run(&["APPEND", BIG, "and more"])),
    row("BITCOUNT of it",      Text,      TEXT, Left,  |a| a.run(&["BITCOUNT", BIG])),
    row("BITOP of it",         Text,      TEXT, Left,  |a| a.run(&["BITOP", "AND", "dest", BIG, BIG])),
    row("PFMERGE of a thousand", Sketches, HLL, Left,  |a| a.run_on_sketches(&["PFMERGE", "dest"])),
    row("PFCOUNT of a thousand", Sketches, HLL, Left,  |a| a.run_on_sketches(&["PFCOUNT"])),
    row("BGSAVE everything",   Everything, EACH, Drawn, Actor::save),
    row("FLUSHALL everything", Everything, EACH, Drawn, |a| a.run(&["FLUSHALL"])),
    row("MSETs of 50 clients", Small,     None, Left,  Actor::crowd),
    row("names of 1 MB",       Small,     None, Left,  Actor::long_names),
    row("unread messages",      Small,    None, Left,  Actor::subscribe),
    row("EVAL that fills three keys", Small, None, Drawn, Actor::seed),
    row("FLUSHALL populated",  Populated, None, Left,  |a| a.run(&["FLUSHALL"])),
];

/// Experiments with commands that redis-server 7.0 does not have.
#[cfg(test)]
pub(crate) const OWN: [&str; 2] = ["JSON of all numbers", "filters and sketches"];

const fn row(
    name: &'static str,
    data: Data,
    same: Option<SameKey>,
    picture: Picture,
    act: fn(&mut Actor) -> Outcome<Streamed>,
) -> Experiment {
    Experiment { name, data, same, picture, act }
}

impl Actor {
    fn run(&mut self, words: &[&str]) -> Outcome<Streamed> {
        let mut request = Vec::new();
        client::command(&mut request, words);
        self.connection.stream(&request, Reader::Fast, self.limit)
    }

    fn run_slowly(&mut self, words: &[&str]) -> Outcome<Streamed> {
        let mut request = Vec::new();
        client::command(&mut request, words);
        self.connection.stream(&request, SLOW_READER, self.limit)
    }

    /// Runs one command that names every key of [`Data::Keys`].
    fn run_on_keys(&mut self, name: &str) -> Outcome<Streamed> {
        let keys = self.scale.keys();
        let value: &[&[u8]] = if name == "MSET" { &[b"another value..."] } else { &[] };
        let mut request = Vec::new();
        client::header(&mut request, 1 + keys * (1 + value.len() as u64));
        client::bulk(&mut request, name.as_bytes());
        for number in 0..keys {
            client::bulk(&mut request, data::own_key(number).as_bytes());
            value.iter().for_each(|value| client::bulk(&mut request, value));
        }
        self.connection.stream(&request, Reader::Fast, self.limit)
    }

    /// Runs SPOP of a tenth of the set: a million of ten million members.
    fn pop(&mut self) -> Outcome<Streamed> {
        let count = (self.scale.elements / 10).to_string();
        self.run(&["SPOP", BIG, &count])
    }

    /// Runs one command that adds a tenth of the elements once more: a million to ten million.
    fn add_at_once(&mut self, name: &str) -> Outcome<Streamed> {
        let mut request = Vec::new();
        let first = self.scale.elements;
        fill_command(&mut request, name, first..first + first / 10);
        self.connection.stream(&request, Reader::Fast, self.limit)
    }

    /// Runs a command on a `part`th of the ranks of the big value, in its middle.
    fn run_on_ranks(&mut self, name: &str, part: u64) -> Outcome<Streamed> {
        let (elements, count) = (self.scale.elements, self.scale.elements / part);
        let first = (elements - count) / 2;
        self.run(&[name, BIG, &first.to_string(), &(first + count - 1).to_string()])
    }

    /// Runs LINSERT before the element in the middle, which the server finds by its value.
    fn insert(&mut self) -> Outcome<Streamed> {
        let middle = (self.scale.elements / 2).to_string();
        self.run(&["LINSERT", BIG, "BEFORE", &middle, "here"])
    }

    /// Runs XTRIM to half of the entries.
    fn trim(&mut self) -> Outcome<Streamed> {
        let half = (self.scale.elements / 2).to_string();
        self.run(&["XTRIM", BIG, "MAXLEN", &half])
    }

    /// Runs one command that names every key of [`Data::Sketches`].
    fn run_on_sketches(&mut self, head: &[&str]) -> Outcome<Streamed> {
        let keys = (0..self.scale.sketches()).map(data::sketch_key);
        let words: Vec<String> = head.iter().map(|word| (*word).to_owned()).chain(keys).collect();
        self.run(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Runs BGSAVE and waits until the file exists. `first_byte` is the time of the reply.
    fn save(&mut self) -> Outcome<Streamed> {
        let started = Instant::now();
        let mut streamed = self.run(&["BGSAVE"])?;
        loop {
            let info = self.connection.ask(&["INFO", "persistence"])?.text();
            let is = |line: &str| info.lines().any(|other| other.trim() == line);
            streamed.whole = started.elapsed();
            match is("rdb_bgsave_in_progress:0") {
                true if is("rdb_last_bgsave_status:ok") => return Ok(streamed),
                true => return Err(Fault::Setup("BGSAVE failed".to_owned())),
                false if streamed.whole > self.limit => return Err(Fault::TimedOut),
                false => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Adds, finds and removes a key, a field and a member with a long name (at full scale as long
    /// as the row says), by one command after the other.
    fn long_names(&mut self) -> Outcome<Streamed> {
        let started = Instant::now();
        let mut streamed = Streamed::default();
        let name = "n".repeat(self.scale.name_bytes() as usize);
        #[rustfmt::skip] // A table.
        let commands: [&[&str]; 13] = [
            &["SET", &name, "value"],      &["GET", &name],             &["EXISTS", &name],
            &["RENAME", &name, "short"],   &["RENAME", "short", &name], &["DEL", &name],
            &["HSET", BIG, &name, "value"], &["HGET", BIG, &name],      &["HDEL", BIG, &name],
            &["SADD", BIG, &name],         &["SISMEMBER", BIG, &name],  &["SMOVE", BIG, OTHER, &name],
            &["SREM", OTHER, &name],
        ];
        for words in commands {
            self.connection.ask(words)?;
            streamed.whole = started.elapsed();
            if streamed.first_byte.is_zero() {
                streamed.first_byte = streamed.whole;
            }
            if streamed.whole > self.limit {
                return Err(Fault::TimedOut);
            }
        }
        Ok(streamed)
    }

    /// Subscribes and reads nothing, until the server closes the connection because too much is
    /// unread. `bytes` are those of the messages.
    fn subscribe(&mut self) -> Outcome<Streamed> {
        const MESSAGE: usize = 1_000;
        const PIPELINE: usize = 16;
        let limit = format!("pubsub {} 0 0", self.scale.unread_bytes());
        self.connection.ask(&["CONFIG", "SET", "client-output-buffer-limit", &limit])?;
        let mut subscriber = Connection::open(self.port, self.limit)?;
        subscriber.ask(&["SUBSCRIBE", "news"])?;
        let (mut request, message) = (Vec::new(), "m".repeat(MESSAGE));
        (0..PIPELINE).for_each(|_| client::command(&mut request, &["PUBLISH", "news", &message]));
        let (started, mut streamed) = (Instant::now(), Streamed::default());
        let mut receivers = 1;
        while receivers > 0 {
            self.connection.send(&request)?;
            for _ in 0..PIPELINE {
                receivers = self.connection.reply()?.number();
            }
            streamed.whole = started.elapsed();
            if streamed.bytes == 0 {
                streamed.first_byte = streamed.whole;
            }
            streamed.bytes += (PIPELINE * MESSAGE) as u64;
            if streamed.whole > self.limit {
                return Err(Fault::TimedOut);
            }
        }
        Ok(streamed)
    }

    /// Writes, reads, counts and deletes a document: an array of all numbers.
    fn document(&mut self) -> Outcome<Streamed> {
        let numbers: Vec<String> =
            (0..self.scale.elements).map(|number| number.to_string()).collect();
        let text = format!("[{}]", numbers.join(","));
        self.run_all(&[
            &["JSON.SET", BIG, "$", &text],
            &["JSON.GET", BIG, "$"],
            &["JSON.ARRINDEX", BIG, "$", "-1"],
            &["JSON.ARRINSERT", BIG, "$", "0", "7"],
            &["JSON.DEL", BIG, "$"],
        ])
    }

    /// Adds a tenth as many items as a big value has to each filter and sketch, by one command
    /// each.
    fn sketch(&mut self) -> Outcome<Streamed> {
        let items: Vec<String> =
            (0..self.scale.elements / 10).map(|number| number.to_string()).collect();
        let counted = items.iter().flat_map(|item| [item.as_str(), "1"]);
        let items = || items.iter().map(String::as_str);
        let head = |words: &[&'static str]| words.to_vec();
        let adds = [
            head(&["BF.INSERT", "bloom", "ITEMS"]).into_iter().chain(items()).collect(),
            head(&["CF.INSERT", "cuckoo", "ITEMS"]).into_iter().chain(items()).collect(),
            head(&["CMS.INITBYDIM", "counts", "100000", "10"]),
            head(&["CMS.INCRBY", "counts"]).into_iter().chain(counted).collect(),
            head(&["TOPK.RESERVE", "top", "100"]),
            head(&["TOPK.ADD", "top"]).into_iter().chain(items()).collect(),
            head(&["TDIGEST.CREATE", "digest"]),
            head(&["TDIGEST.ADD", "digest"]).into_iter().chain(items()).collect::<Vec<&str>>(),
        ];
        self.run_all(&adds.each_ref().map(Vec::as_slice))
    }

    /// Runs the commands one after the other. `first_byte` is that of the first command, `bytes`
    /// the sum.
    fn run_all(&mut self, commands: &[&[&str]]) -> Outcome<Streamed> {
        let started = Instant::now();
        let mut all = Streamed::default();
        for words in commands {
            let one = self.run(words)?;
            if all.first_byte.is_zero() {
                all.first_byte = one.first_byte;
            }
            all.bytes += one.bytes;
            all.whole = started.elapsed();
        }
        Ok(all)
    }

    /// Fifty clients send MSETs of ten keys each, for two seconds at full scale. With several cores
    /// each command makes work for all of them, and messages from other cores must run within the
    /// slice as well.
    fn crowd(&mut self) -> Outcome<Streamed> {
        let load = Load {
            clients: 50,
            pipeline: 1,
            turns: &[Turn {
                lines: 1,
                request: &|prng, request| {
                    client::header(request, 1 + 2 * 10);
                    client::bulk(request, b"MSET");
                    for _ in 0..10 {
                        client::bulk(request, &data::small_key(prng.below(SMALL_KEYS)));
                        client::bulk(request, b"another value...");
                    }
                },
            }],
            requests_max: u64::MAX,
            supply: Supply::Pool,
            seed: 1,
            wait: Wait::Sleep,
            served: None,
        };
        let pushed =
            saturate::push(self.port, &load, Duration::from_micros(self.scale.elements / 5))?;
        let bytes = pushed.replies * b"+OK\r\n".len() as u64;
        Ok(Streamed { first_byte: pushed.elapsed, whole: pushed.elapsed, bytes })
    }

    /// Runs the article's script: rounds of HSET, LPUSH and SADD in one EVAL.
    fn seed(&mut self) -> Outcome<Streamed> {
        let count = self.scale.elements.to_string();
        let keys = [ARTICLE_HASH, ARTICLE_LIST, ARTICLE_SETS[0]];
        let [hash, list, set] = keys;
        let streamed = self.run(&["EVAL", SEED_SCRIPT, "3", hash, list, set, &count])?;
        for (name, key) in ["HLEN", "LLEN", "SCARD"].into_iter().zip(keys) {
            let filled = self.connection.ask(&[name, key])?.number();
            if filled as u64 != self.scale.elements {
                return Err(Fault::Setup(format!("{name} is {filled}")));
            }
        }
        Ok(streamed)
    }

    /// Runs EXPIRE and waits until the command `count` says that the value is gone. `first_byte` is
    /// the time of the reply.
    fn expire(&mut self, count: &str) -> Outcome<Streamed> {
        let started = Instant::now();
        let mut streamed = self.run(&["EXPIRE", BIG, "1"])?;
        // Meanwhile the stream on the same key may have created a new, small value.
        while self.connection.ask(&[count, BIG])?.number() as u64 > self.scale.elements / 2 {
            if started.elapsed() > self.limit {
                return Err(Fault::TimedOut);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        streamed.whole = started.elapsed();
        Ok(streamed)
    }

    /// Runs the article's program: HSCAN by 100 and HDEL of the result, until the cursor is 0.
    fn drain(&mut self) -> Outcome<Streamed> {
        let started = Instant::now();
        let mut streamed = Streamed::default();
        let mut cursor = "0".to_owned();
        loop {
            let words = ["HSCAN", BIG, &cursor, "MATCH", "*", "COUNT", "100"];
            let (next, fields) = scan_page(self.connection.ask(&words)?)?;
            if streamed.first_byte.is_zero() {
                streamed.first_byte = started.elapsed();
            }
            streamed.bytes += fields.iter().map(|field| field.len() as u64).sum::<u64>();
            if !fields.is_empty() {
                let head = [b"HDEL".to_vec(), BIG.as_bytes().to_vec()];
                let words: Vec<Vec<u8>> = head.into_iter().chain(fields).collect();
                self.connection.ask(&words)?;
            }
            streamed.whole = started.elapsed();
            match next.as_str() {
                "0" => return Ok(streamed),
                _ if streamed.whole > self.limit => return Err(Fault::TimedOut),
                _ => cursor = next,
            }
        }
    }

    /// Fills the big key by commands of 100 elements, with two pipelines in flight.
    fn fill(&mut self, name: &str) -> Outcome<Streamed> {
        let started = Instant::now();
        let mut streamed = Streamed::default();
        let (mut next, mut owed, mut request) = (0, 0, Vec::new());
        while next < self.scale.elements || owed > 0 {
            request.clear();
            let mut sent = 0;
            while sent < FILL_PIPELINE && next < self.scale.elements {
                let last = (next + FILL_BATCH).min(self.scale.elements);
                fill_command(&mut request, name, next..last);
                (next, sent) = (last, sent + 1);
            }
            self.connection.send(&request)?;
            for _ in 0..owed {
                self.connection.reply()?;
            }
            if owed > 0 && streamed.first_byte.is_zero() {
                streamed.first_byte = started.elapsed();
            }
            owed = sent;
            if started.elapsed() > self.limit {
                return Err(Fault::TimedOut);
            }
        }
        streamed.whole = started.elapsed();
        Ok(streamed)
    }
}

/// Appends one command of a fill: HSET with UUID and reason, SADD or RPUSH of integers, or ZADD of
/// members with random scores.
fn fill_command(request: &mut Vec<u8>, name: &str, numbers: std::ops::Range<u64>) {
    let count = numbers.end - numbers.start;
    let each = 1 + u64::from(matches!(name, "HSET" | "ZADD"));
    client::header(request, 2 + count * each);
    client::bulk(request, name.as_bytes());
    client::bulk(request, BIG.as_bytes());
    for number in numbers {
        if name == "HSET" {
            client::bulk(request, &uuid(SEED, number));
            client::bulk(request, &data::reason(number));
        } else if name == "ZADD" {
            client::bulk(request, data::score(number).as_bytes());
            client::bulk(request, data::member(number).as_bytes());
        } else {
            client::bulk(request, number.to_string().as_bytes());
        }
    }
}

/// Splits the reply of HSCAN into the next cursor and the fields, without their values.
fn scan_page(reply: client::Reply) -> Outcome<(String, Vec<Vec<u8>>)> {
    let unexpected = || Fault::Setup("HSCAN answered something else".to_owned());
    let client::Reply::Array(parts) = reply else { return Err(unexpected()) };
    let Ok([cursor, client::Reply::Array(items)]) = <[_; 2]>::try_from(parts) else {
        return Err(unexpected());
    };
    let fields = items.into_iter().step_by(2).filter_map(|item| match item {
        client::Reply::Bulk(bytes) => Some(bytes),
        _ => None,
    });
    Ok((cursor.text(), fields.collect()))
}

fn touch_hash(scale: &Scale, number: u64, prng: &mut Prng, request: &mut Vec<u8>) {
    touch_fields(BIG, scale, number, prng, request);
}

fn touch_fields(key: &str, scale: &Scale, number: u64, prng: &mut Prng, request: &mut Vec<u8>) {
    let index = prng.below(scale.elements);
    let field = uuid(SEED, index);
    if number.is_multiple_of(2) {
        client::command(request, &[b"HGET", key.as_bytes(), &field]);
    } else {
        client::command(request, &[b"HSET", key.as_bytes(), &field, &data::reason(index)]);
    }
}

fn touch_uuids(scale: &Scale, number: u64, prng: &mut Prng, request: &mut Vec<u8>) {
    touch_set(number, &uuid(SEED, prng.below(scale.elements)), request);
}

fn touch_integers(scale: &Scale, number: u64, prng: &mut Prng, request: &mut Vec<u8>) {
    touch_set(number, prng.below(scale.elements).to_string().as_bytes(), request);
}

fn touch_members(scale: &Scale, number: u64, prng: &mut Prng, request: &mut Vec<u8>) {
    touch_set(number, data::member(prng.below(scale.elements)).as_bytes(), request);
}

fn touch_set(number: u64, member: &[u8], request: &mut Vec<u8>) {
    let name: &[u8] = if number.is_multiple_of(2) { b"SISMEMBER" } else { b"SADD" };
    client::command(request, &[name, BIG.as_bytes(), member]);
}

fn touch_list(scale: &Scale, number: u64, prng: &mut Prng, request: &mut Vec<u8>) {
    let index = prng.below(scale.elements).to_string();
    if number.is_multiple_of(2) {
        client::command(request, &["LINDEX", BIG, &index]);
    } else {
        client::command(request, &["RPUSH", BIG, &index]);
    }
}

fn touch_scores(scale: &Scale, number: u64, prng: &mut Prng, request: &mut Vec<u8>) {
    let index = prng.below(scale.elements);
    let member = data::member(index);
    if number.is_multiple_of(2) {
        client::command(request, &["ZSCORE", BIG, &member]);
    } else {
        client::command(request, &["ZADD", BIG, &data::score(index + 1), &member]);
    }
}

fn touch_entries(scale: &Scale, number: u64, prng: &mut Prng, request: &mut Vec<u8>) {
    let id = data::entry_ms(prng.below(scale.elements)).to_string();
    if number.is_multiple_of(2) {
        client::command(request, &["XRANGE", BIG, &id, &id]);
    } else {
        client::command(request, &["XADD", BIG, "*", "sensor", "7", "value", &id]);
    }
}

fn touch_text(scale: &Scale, number: u64, prng: &mut Prng, request: &mut Vec<u8>) {
    let offset = prng.below(scale.text_bytes()).to_string();
    if number.is_multiple_of(2) {
        client::command(request, &["GETRANGE", BIG, &offset, &offset]);
    } else {
        client::command(request, &["SETRANGE", BIG, &offset, "x"]);
    }
}

fn touch_sketch(scale: &Scale, number: u64, prng: &mut Prng, request: &mut Vec<u8>) {
    let key = data::sketch_key(prng.below(scale.sketches()));
    if number.is_multiple_of(2) {
        client::command(request, &["PFCOUNT", &key]);
    } else {
        client::command(request, &["PFADD", &key, &number.to_string()]);
    }
}

fn touch_one_of_all(scale: &Scale, number: u64, prng: &mut Prng, request: &mut Vec<u8>) {
    touch_fields(&Hash.own_name(), scale, number, prng, request);
}

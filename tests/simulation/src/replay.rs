//! Checks that replaying the recorded effects reproduces every shard.
//!
//! Random writes of all families run on some cores, in slices that end at random, while keys,
//! fields and members expire. The records of each shard are applied to an empty copy as they come.
//! The copy must equal the shard at any moment, including expired entries not yet removed,
//! deadlines and the names of encodings. After every step of the world they are compared at a
//! glance (keys, their types, deadlines and numbers of entries); after every command the content of
//! one key is compared, and periodically everything.
//!
//! Every command that writes must appear in [`LINES`], so that none can be forgotten.

use crate::ops;
use crate::replayed::Replayed;
use crate::value::{self, Value};
use crate::world::{DATABASES, DATABASES_USED, Sim};
use darter_base::Prng;
use darter_command::Command;
use darter_families::bloom::BloomFilter;
use darter_families::cms::Cms;
use darter_families::cuckoo::CuckooFilter;
use darter_families::hash::Hash;
use darter_families::json::Json;
use darter_families::list::List;
use darter_families::set::Set;
use darter_families::stream::Stream;
use darter_families::tdigest::TDigest;
use darter_families::topk::TopK;
use darter_families::zset::ZSet;
use darter_keyspace::{Db, Found, Shard, Type, Wants, apply};
use darter_rdb::{Item, Source};
use darter_server::engine::Table;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// Commands of one run.
const COMMANDS: usize = 400;

/// Commands, with placeholders for random words: `K` a key, `F` a field or member, `V` a value, `I`
/// an integer, `S` seconds, `M` milliseconds, `A` a moment in milliseconds, `B` one in seconds,
/// `FV*`, `IF*` and `F*` many of them, `KV*` pairs of keys and values, `D` the payload of the last
/// DUMP, `N` a database; `(I` an open end of a range.
const LINES: &[&str] = &[
    "SET K V",
    "SET K V PX M",
    "SET K V XX KEEPTTL",
    "SETNX K V",
    "SETEX K S V",
    "PSETEX K M V",
    "SETRANGE K I V",
    "APPEND K V",
    "SETBIT K I 1",
    "SETBIT K I 0",
    "BITFIELD K SET u8 I I INCRBY i16 #I I",
    "BITFIELD K OVERFLOW FAIL SET u2 I I",
    "BITOP XOR K K K",
    "BITOP NOT K K",
    "BITOP DIFF K K K",
    "PFADD K F F",
    "PFADD K F*",
    "PFCOUNT K",
    "PFMERGE K K K",
    "PFDEBUG TODENSE K",
    "GETSET K V",
    "GETDEL K",
    "GETEX K PX M",
    "GETEX K PERSIST",
    "INCR K",
    "INCRBY K I",
    "DECR K",
    "DECRBY K I",
    "INCRBYFLOAT K 0.5",
    "PREPEND K V",
    "CL.THROTTLE K I 100 1",
    "INCREX K EX S",
    "INCREX K BYINT I UBOUND 100 SATURATE",
    "DELEX K IFEQ V",
    "DELEX K",
    "MSET KV*",
    "MSETNX K V K V",
    "MSETEX 2 K V K V PX M",
    "HSET K F V F V",
    "HSET K FV*",
    "HMSET K F V",
    "HSETNX K F V",
    "HSETEX K PX M FIELDS 2 F V F V",
    "HSETEX K KEEPTTL FIELDS 1 F V",
    "HGETEX K PX M FIELDS 1 F",
    "HGETEX K PERSIST FIELDS 2 F F",
    "HGETDEL K FIELDS 2 F F",
    "HDEL K F F",
    "HDEL K F*",
    "HINCRBY K F I",
    "HINCRBYFLOAT K F 0.25",
    "HEXPIRE K S FIELDS 1 F",
    "HPEXPIRE K M FIELDS 2 F F",
    "HEXPIREAT K B FIELDS 1 F",
    "HPEXPIREAT K A FIELDS 1 F",
    "HPEXPIRE K 0 FIELDS 1 F",
    "HPERSIST K FIELDS 1 F",
    "RPUSH K V V V",
    "LPUSH K F I",
    "RPUSH K F*",
    "LPUSH K F*",
    "LPUSHX K V",
    "RPUSHX K F F",
    "LPOP K",
    "LPOP K I",
    "RPOP K",
    "RPOP K 500",
    "LSET K I V",
    "LTRIM K I -1",
    "LREM K 0 F",
    "LREM K -2 I",
    "LINSERT K BEFORE F V",
    "LINSERT K AFTER I F",
    "LMOVE K K LEFT RIGHT",
    "LMOVE K K RIGHT LEFT",
    "LMOVEM K K LEFT LEFT COUNT 3 OBO",
    "LMOVEM K K RIGHT LEFT COUNT 600 BULK",
    "RPOPLPUSH K K",
    "LMPOP 2 K K LEFT COUNT 3",
    "BLPOP K K 0.001",
    "BRPOP K K 0.001",
    "BLMPOP 0.001 2 K K LEFT COUNT 3",
    "BLMOVE K K LEFT RIGHT 0.001",
    "BRPOPLPUSH K K 0.001",
    "BLMOVEM K K LEFT LEFT 0.001 COUNT 3 OBO",
    "LMPOP 2 K K RIGHT COUNT 600",
    "LTRIM K 0 I",
    "SADD K F F",
    "SADD K I I I",
    "SADD K F*",
    "SADDEX K S F F",
    "SADDEX K KEEPTTL S F",
    "SADDEX K 1 F*",
    "SADDEX K PXAT A F F",
    "SADDEX K PERSIST F F",
    "FIELDEXPIRE K S F F",
    "SREM K F F",
    "SREM K F*",
    "SPOP K",
    "SPOP K I",
    "SMOVE K K F",
    "SINTERSTORE K K K",
    "SUNIONSTORE K K K",
    "SDIFFSTORE K K K",
    "ZADD K I F I F",
    "ZADD K XX GT CH I F I F",
    "ZADD K NX INCR 0.5 F",
    "ZADD K IF*",
    "ZINCRBY K -0.25 F",
    "ZREM K F F",
    "ZREM K F*",
    "ZREMRANGEBYRANK K I -2",
    "ZREMRANGEBYSCORE K (I 30",
    "ZREMRANGEBYLEX K [field (many",
    "ZPOPMIN K",
    "ZPOPMIN K I",
    "ZPOPMAX K I",
    "ZMPOP 2 K K MAX COUNT 3",
    "BZPOPMIN K K 0.001",
    "BZPOPMAX K K 0.001",
    "BZMPOP 0.001 2 K K MAX COUNT 3",
    "ZMPOP 1 K MIN COUNT 300",
    "ZRANGESTORE K K I -2",
    "ZRANGESTORE K K -inf (30 BYSCORE LIMIT 1 100",
    "ZUNIONSTORE K 3 K K K WEIGHTS 1 0.5 2",
    "ZINTERSTORE K 2 K K AGGREGATE MAX",
    "ZDIFFSTORE K 2 K K",
    "SORT K ALPHA STORE K",
    "SORT K BY *->w GET # GET * STORE K",
    "SORT K BY nosort LIMIT 1 I STORE K",
    "GEOADD K I I F I I F",
    "GEOADD K XX CH I I F",
    "GEOSEARCHSTORE K K FROMLONLAT I I BYRADIUS 2000 km",
    "GEOSEARCHSTORE K K FROMLONLAT 1 1 BYBOX 9000 900 km STOREDIST COUNT 9",
    "GEORADIUS K I I 3000 km STORE K",
    "GEORADIUSBYMEMBER K F 1000 mi STOREDIST K",
    "DEL K K",
    "RM 0 COUNT 1",
    "UNLINK K",
    "EXPIRE K S",
    "EXPIRE K 0",
    "EXPIREAT K B",
    "PEXPIRE K M",
    "PEXPIREAT K A",
    "PERSIST K",
    "RENAME K K",
    "RENAMENX K K",
    "COPY K K REPLACE",
    "COPY K K DB N REPLACE",
    "MOVE K N",
    "XADD K * F V",
    "XADD K * F V F V",
    "XADD K * FV*",
    "XADD K MAXLEN I * F V",
    "XADD K MAXLEN ~ 200 * F V",
    "XADD K I F V",
    "XADD K NOMKSTREAM I-* F V",
    "XDEL K I I",
    "XTRIM K MAXLEN I",
    "XTRIM K MINID I",
    "XTRIM K MAXLEN ~ 3 LIMIT 100",
    "XSETID K A",
    "XGROUP CREATE K g 0 MKSTREAM",
    "XGROUP CREATE K h $ MKSTREAM",
    "XGROUP SETID K g I",
    "XGROUP DESTROY K h",
    "XGROUP CREATECONSUMER K g F",
    "XGROUP DELCONSUMER K g a",
    "XREADGROUP GROUP g a STREAMS K >",
    "XREADGROUP GROUP g b COUNT 2 STREAMS K >",
    "XREADGROUP GROUP h a NOACK STREAMS K >",
    "XREADGROUP GROUP g a STREAMS K 0",
    "XREADGROUP GROUP g a STREAMS K K > >",
    "XACK K g I I",
    "XDELEX K DELREF IDS 2 I I",
    "XDELEX K ACKED IDS 2 I I",
    "XACKDEL K g ACKED IDS 2 I I",
    "XNACK K g SILENT IDS 2 I I FORCE",
    "XTRIM K MAXLEN I ACKED",
    "XADD K IDMP F I * F V",
    "XADD K IDMPAUTO F MAXLEN I ACKED * F V",
    "XCFGSET K IDMP-MAXSIZE 3",
    "XADD K DELREF MAXLEN I * F V",
    "XCLAIM K g b 0 I I FORCE",
    "XCLAIM K g a 0 I JUSTID",
    "XAUTOCLAIM K g b 0 0 COUNT 3",
    "DUMP K",
    "RESTORE K 0 D REPLACE",
    "RESTORE K M D REPLACE",
    "SELECT 0",
    "SELECT N",
    "SWAPDB N N",
    "FLUSHDB",
    "FLUSHALL",
    "JSON.SET K $ {\"a\":1,\"b\":[1,2,{\"c\":true}],\"s\":\"x\"}",
    "JSON.SET K $ [I,I,I,I]",
    "JSON.SET K $.d [I]",
    "JSON.SET K $..a {\"a\":I}",
    "JSON.MSET K $ {\"a\":I} K $ {\"b\":[I]}",
    "JSON.MERGE K $ {\"a\":null,\"e\":{\"f\":I}}",
    "JSON.NUMINCRBY K $..* I",
    "JSON.NUMMULTBY K $..a 2",
    "JSON.STRAPPEND K $.s \"yz\"",
    "JSON.ARRAPPEND K $..b I I",
    "JSON.ARRAPPEND K $ \"many\"",
    "JSON.ARRINSERT K $..b 1 I",
    "JSON.ARRPOP K $..b 0",
    "JSON.ARRTRIM K $ 1 I",
    "JSON.TOGGLE K $..c",
    "JSON.CLEAR K $.b",
    "JSON.DEL K $..b[0]",
    "JSON.DEL K",
    "JSON.FORGET K $.a",
    "BF.RESERVE K 0.01 I",
    "BF.RESERVE K 0.0001 1000000 NONSCALING",
    "BF.ADD K F",
    "BF.MADD K F F",
    "BF.MADD K F*",
    "BF.INSERT K CAPACITY 5 ITEMS F*",
    "BF.INSERT K NOCREATE ITEMS F F",
    "BF.LOADCHUNK K I V",
    "CF.RESERVE K 8 EXPANSION 2",
    "CF.RESERVE K 16 BUCKETSIZE 1 MAXITERATIONS 5000",
    "CF.ADD K F",
    "CF.ADDNX K F",
    "CF.INSERT K CAPACITY 8 ITEMS F*",
    "CF.INSERT K NOCREATE ITEMS F F",
    "CF.INSERTNX K ITEMS F*",
    "CF.DEL K F",
    "CF.LOADCHUNK K I V",
    "CMS.INITBYDIM K 40 3",
    "CMS.INITBYPROB K 0.0001 0.01",
    "CMS.INCRBY K I I I I I I",
    "CMS.MERGE K 2 K K WEIGHTS 1 2",
    "TOPK.RESERVE K 2",
    "TOPK.RESERVE K 5 40 3 0.9",
    "TOPK.ADD K I I I many",
    "TOPK.INCRBY K I I I 900",
    "TOPK.REPLAY K BUCKET I I LIST I 9",
    "TOPK.REPLAY K EXPEL LIST F I",
    "TDIGEST.CREATE K COMPRESSION 5",
    "TDIGEST.ADD K I I I 0.5",
    "TDIGEST.MERGE K 2 K K",
    "TDIGEST.MERGE K 1 K COMPRESSION 20 OVERRIDE",
    "TDIGEST.RESET K",
];

/// Refusals that indicate a mistake in a line; others depend on the data.
const MISSPELT: &[&str] = &["syntax error", "unknown", "wrong number", "numfields", "Mandatory"];

/// Draws the arguments of commands.
pub(crate) struct Writer {
    prng: Prng,
    /// The result of the last DUMP.
    pub(crate) payload: Vec<u8>,
    /// The current time.
    pub(crate) now: u64,
    /// True for the lines in use.
    fits: fn(&str) -> bool,
    /// The earliest deadline, from now on.
    life_ms: u64,
}

impl Writer {
    fn new(prng: Prng) -> Self {
        Self { prng, payload: Vec::new(), now: 0, fits: |_| true, life_ms: 0 }
    }

    /// A writer of lines that fit, with deadlines in some hundred years.
    #[cfg(test)]
    pub(crate) fn lasting(seed: u64, fits: fn(&str) -> bool) -> Self {
        const LIFE_MS: u64 = 10_000_000_000_000;
        Self { fits, life_ms: LIFE_MS, ..Self::new(Prng::from_seed(seed)) }
    }

    pub(crate) fn command(&mut self) -> Vec<Vec<u8>> {
        let line = loop {
            let at = usize::try_from(self.prng.below(LINES.len() as u64)).unwrap_or(0);
            let is_flush = LINES[at].starts_with("FLUSH");
            let lacks = LINES[at].contains(" D") && self.payload.is_empty();
            if !lacks && (self.fits)(LINES[at]) && (!is_flush || self.prng.chance(20)) {
                break LINES[at];
            }
        };
        line.split(' ').flat_map(|word| self.expand(word)).collect()
    }

    fn expand(&mut self, word: &str) -> Vec<Vec<u8>> {
        /// Entries of a large command: more than fit a slice.
        const MANY: u64 = 700;
        let number = |number: u64| vec![number.to_string().into_bytes()];
        match word {
            "K" => vec![self.key()],
            "F" => vec![self.field()],
            "V" => vec![self.value()],
            "I" => number(self.prng.below(40)),
            "(I" => vec![format!("({}", self.prng.below(40)).into_bytes()],
            "S" => number(self.life_ms / 1_000 + 1 + self.prng.below(2)),
            "M" => number(self.life_ms + 1 + self.prng.below(400)),
            "A" => number(self.life_ms + self.now + self.prng.below(400)),
            "B" => number((self.life_ms + self.now) / 1_000 + 1),
            "D" => vec![self.payload.clone()],
            "N" => number(ops::database(&mut self.prng) as u64),
            "KV*" => (0..12).flat_map(|_| [self.key(), self.value()]).collect(),
            "F*" | "FV*" => {
                let first = self.prng.below(300);
                let width = if word == "F*" { 1 } else { 2 };
                let names = (first..first + MANY).map(|at| format!("many {at}").into_bytes());
                names.flat_map(|name| std::iter::repeat_n(name, width)).collect()
            }
            "IF*" => {
                let first = self.prng.below(300);
                let pair = |at: u64| [(at * 7 % 90).to_string(), format!("many {at}")];
                (first..first + MANY).flat_map(pair).map(String::into_bytes).collect()
            }
            word => vec![word.as_bytes().to_vec()],
        }
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key {}", self.prng.below(8)).into_bytes()
    }

    fn field(&mut self) -> Vec<u8> {
        let at = self.prng.below(10);
        if self.prng.chance(50) { at.to_string() } else { format!("field {at}") }.into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        match self.prng.below(10) {
            0..5 => self.prng.below(90).to_string().into_bytes(),
            5..9 => self.prng.bytes(0..=700),
            _ => self.prng.bytes(60_000..=200_000),
        }
    }
}

pub(crate) fn encode(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The body of the complete bulk reply at the start of `bytes`.
fn bulk_body(bytes: &[u8]) -> Option<Vec<u8>> {
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    let len: usize = std::str::from_utf8(&bytes[1..end]).ok()?.parse().ok()?;
    bytes.get(end + 2..end + 2 + len).map(<[u8]>::to_vec)
}

/// An item: its name, its value if it has one, and its deadline. A string is one, without a name.
type Entry = (Vec<u8>, Vec<u8>, Option<u64>);

/// All that a key holds: the items of its value, in their order where that has a meaning.
#[derive(Debug, PartialEq)]
pub(crate) struct Content {
    kind: &'static Type,
    entries: Vec<Entry>,
}

/// Summary of a key: type, encoding, deadline, number of entries.
type Glance = (&'static Type, &'static str, Option<u64>, usize);

/// Applies `look` to each key of a database, dead or alive.
fn each<R>(db: &Db, look: fn(&Found<'_>) -> R) -> BTreeMap<Vec<u8>, R> {
    let mut all = BTreeMap::new();
    db.keys().for_each(&mut |entry| {
        let found = Found::alive(entry, NOTHING_IS_DEAD).expect("nothing is dead");
        all.insert(entry.key().to_vec(), look(&found));
    });
    all
}

/// Earlier than every deadline.
const NOTHING_IS_DEAD: u64 = 0;

fn glance(found: &Found<'_>) -> Glance {
    let entries = match found.kind().name {
        "string" => 1,
        "list" => found.value::<List>().map_or(0, |list| list.elements().len()),
        "hash" => found.value::<Hash>().map_or(0, |hash| hash.len()),
        "set" => found.value::<Set>().map_or(0, |set| set.len()),
        "stream" => found.value::<Stream>().map_or(0, |stream| stream.entries().len()),
        "zset" => found.value::<ZSet>().map_or(0, |set| set.len()),
        "ReJSON-RL" => found.value::<Json>().map_or(0, |json| usize::from(json.root().is_some())),
        "MBbloom--" => found.value::<BloomFilter>().map_or(0, |one| one.chain().len() as usize),
        "MBbloomCF" => found.value::<CuckooFilter>().map_or(0, |one| one.cuckoo().len() as usize),
        "TopK-TYPE" => found.value::<TopK>().map_or(0, |sketch| sketch.list().len()),
        "TDIS-TYPE" => found.value::<TDigest>().map_or(0, |value| value.digest().weight() as usize),
        "CMSk-TYPE" => found.value::<Cms>().map_or(0, |sketch| sketch.count() as usize),
        other => panic!("how long a {other} is must be known here"),
    };
    (found.kind(), found.encoding(), found.deadline(), entries)
}

/// [`glance`] without the encoding, which commands may change.
fn bare_glance(found: &Found<'_>) -> (&'static Type, Option<u64>, usize) {
    let (kind, _, deadline, entries) = glance(found);
    (kind, deadline, entries)
}

/// [`content`] without the times at which consumers were seen, which commands do not tell.
pub(crate) fn bare_content(found: &Found<'_>) -> Content {
    let mut content = content(found);
    for (name, _, _) in &mut content.entries {
        if name.starts_with(b"Consumer {") {
            let end = name.windows(7).position(|part| part == b"seen_ms").unwrap_or(name.len());
            name.truncate(end);
        }
    }
    content
}

/// The whole content of a key, including dead entries.
fn content(found: &Found<'_>) -> Content {
    let (kind, mut items) = (found.kind(), found.items(NOTHING_IS_DEAD));
    let mut entries: Vec<Entry> = Vec::new();
    let mut in_value = kind.rdb.is_text();
    if in_value {
        entries.push(Entry::default());
    }
    while let Some(item) = items.next() {
        let entry = |name: &[u8], value: &[u8]| (name.into(), value.into(), item.deadline_ms());
        match item {
            Item::Single { name, .. } => entries.push(entry(name, b"")),
            Item::Pair { name, value, .. } => entries.push(entry(name, value)),
            Item::Scored { name, score } => {
                entries.push(entry(name, score.to_string().as_bytes()));
            }
            Item::LongNamed { .. } | Item::LongSingle { .. } => entries.push(entry(b"", b"")),
            Item::LongValued { name, .. } => entries.push(entry(name, b"")),
            Item::LongValue(_) => {}
            Item::Piece(piece) => entries.push(entry(format!("{piece:?}").as_bytes(), b"")),
            Item::Value(bytes) | Item::Chunk(bytes) | Item::Part(bytes) => {
                let (name, value, _) = entries.last_mut().expect("it continues an entry");
                let is_value = in_value || matches!(item, Item::Value(_));
                if is_value { value } else { name }.extend_from_slice(bytes);
            }
        }
        in_value = match item {
            Item::Chunk(_) | Item::Part(_) => in_value,
            Item::LongValued { .. } | Item::LongValue(_) => true,
            _ => false,
        };
    }
    if !kind.is_ordered {
        entries.sort();
    }
    Content { kind, entries }
}

/// Copies of one core's shard: built from its records, and by the commands that these are encoded
/// as.
struct Copy {
    shard: Shard,
    replayed: Replayed,
    records: u64,
}

/// A copy for every core's shard.
struct Copies(Vec<Copy>);

impl Copies {
    fn listen(sim: &Sim) -> Self {
        sim.cores.iter().for_each(|core| _ = core.tx.home().shard.join(Wants::CHANGES));
        let copy = |_| Copy {
            shard: Shard::new(DATABASES, 0),
            replayed: Replayed::new(DATABASES, families()),
            records: 0,
        };
        Self(sim.cores.iter().map(copy).collect())
    }

    /// Applies new records. The copies' clocks run far ahead, which shows that entries are removed
    /// only when a record says so.
    fn follow(&mut self, sim: &Sim) -> Result<(), String> {
        const AHEAD_MS: u64 = 1_000_000_000;
        for (core, copy) in sim.cores.iter().zip(&mut self.0) {
            let mut home = core.tx.home();
            copy.shard.set_now(home.shard.now() + AHEAD_MS);
            for record in home.shard.take_records() {
                copy.records += 1;
                if record.number != copy.records {
                    return Err(format!("core {}: a gap before {record:?}", core.id()));
                }
                apply(&mut copy.shard, &record)
                    .map_err(|_| format!("core {}: {record:?} does not fit", core.id()))?;
                copy.replayed.follow(&record).map_err(|fault| {
                    format!("core {}: {}: {fault}", core.id(), shorten(&format!("{record:?}")))
                })?;
            }
        }
        self.compare(sim, glance, |copy| &copy.shard)?;
        self.compare(sim, bare_glance, |copy| &copy.replayed.shard)
    }

    /// Compares the results of `look` for all keys.
    fn compare<R: PartialEq + Debug>(
        &self,
        sim: &Sim,
        look: fn(&Found<'_>) -> R,
        of: fn(&Copy) -> &Shard,
    ) -> Result<(), String> {
        for (core, copy) in sim.cores.iter().zip(&self.0) {
            let home = core.tx.home();
            for at in DATABASES_USED {
                let (wanted, found) = (each(home.shard.db(at), look), each(of(copy).db(at), look));
                let mut names = wanted.keys().chain(found.keys());
                if let Some(name) = names.find(|name| wanted.get(*name) != found.get(*name)) {
                    let shown = |seen: Option<&R>| shorten(&format!("{seen:?}"));
                    return Err(format!(
                        "core {}, database {at}, {:?}: {} and its copy {}",
                        core.id(),
                        String::from_utf8_lossy(name),
                        shown(wanted.get(name)),
                        shown(found.get(name))
                    ));
                }
            }
        }
        Ok(())
    }

    /// Compares the content of one key.
    fn compare_key(&self, sim: &Sim, key: &[u8]) -> Result<(), String> {
        let name = String::from_utf8_lossy(key);
        for (core, copy) in sim.cores.iter().zip(&self.0) {
            let home = core.tx.home();
            for at in DATABASES_USED {
                let (wanted, id) = (seen(&home.shard, at, key, content), core.id());
                if wanted != seen(&copy.shard, at, key, content) {
                    return Err(format!("core {id}, database {at}: {name:?} differs"));
                }
                let wanted = seen(&home.shard, at, key, bare_content);
                if wanted != seen(&copy.replayed.shard, at, key, bare_content) {
                    return Err(format!("core {id}, database {at}: {name:?} differs in a replay"));
                }
            }
        }
        Ok(())
    }

    fn check_invariants(&self) {
        for copy in &self.0 {
            copy.shard.check_invariants();
            copy.replayed.shard.check_invariants();
        }
    }
}

/// The result of `look` for a key.
pub(crate) fn seen<R>(
    shard: &Shard,
    database: usize,
    key: &[u8],
    look: fn(&Found<'_>) -> R,
) -> Option<R> {
    let entry = shard.db(database).keys().get(darter_base::hash::of(key), key)?;
    Found::alive(entry, NOTHING_IS_DEAD).map(|found| look(&found))
}

fn shorten(text: &str) -> String {
    text.chars().take(200).collect()
}

pub(crate) fn families() -> Vec<&'static [Command]> {
    let mut families = darter_families::TABLES.to_vec();
    families.push(darter_persist::commands::TABLE);
    families
}

/// Runs one seed.
pub(crate) fn replay(seed: u64) -> Result<(), String> {
    /// Steps after which a command counts as hung.
    const PATIENCE: usize = 200_000;
    /// Commands between two comparisons of everything.
    const LOOK_EACH: usize = 20;
    let mut prng = Prng::from_seed(seed ^ 0x00ef_fec7);
    let cores = usize::try_from(1 + prng.below(3)).unwrap_or(1);
    let mut sim = Sim::new(seed, cores, 1, Table::new(&families(), darter_server::admin::TABLES));
    let mut copies = Copies::listen(&sim);
    let mut writer = Writer::new(prng);
    for at in 0..COMMANDS {
        writer.now = sim.cores[0].clock.unix_ms();
        let words = writer.command();
        sim.send(0, &encode(&words));
        let mut steps = 0;
        let (raw, reply) = loop {
            sim.step();
            copies
                .follow(&sim)
                .map_err(|fault| format!("command {at}, {:?}: {fault}", words[0]))?;
            let raw = sim.inbox(0).clone();
            if let Some(reply) = value::take(sim.inbox(0)) {
                break (raw, reply);
            }
            steps += 1;
            if steps > PATIENCE {
                return Err(format!("command {at} hangs: {:?}", words[0]));
            }
        };
        if let Value::Error(line) = &reply
            && MISSPELT.iter().any(|text| line.contains(text))
        {
            let words: Vec<_> =
                words.iter().take(6).map(|word| String::from_utf8_lossy(word)).collect();
            return Err(format!("{words:?}: {line}"));
        }
        if words[0] == b"DUMP" {
            writer.payload = bulk_body(&raw).unwrap_or_default();
        }
        copies.compare_key(&sim, &writer.key())?;
        if at % LOOK_EACH == 0 {
            copies.compare(&sim, content, |copy| &copy.shard)?;
            copies.compare(&sim, bare_content, |copy| &copy.replayed.shard)?;
        }
        if writer.prng.chance(15) {
            sim.pass_ms(writer.prng.below(300));
        }
    }
    for _ in 0..200 {
        sim.step();
        copies.follow(&sim)?;
    }
    copies.check_invariants();
    copies.compare(&sim, content, |copy| &copy.shard)?;
    copies.compare(&sim, bare_content, |copy| &copy.replayed.shard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_command::Flags;
    use std::collections::BTreeSet;

    /// Commands that write and appear in no line.
    fn forgotten() -> Vec<&'static str> {
        // A line is one of a command, or of a subcommand.
        let names = |line: &&str| {
            let words: Vec<_> = line.to_lowercase().split(' ').map(str::to_owned).collect();
            [words[0].clone(), words[..words.len().min(2)].join("|")]
        };
        let listed: BTreeSet<String> = LINES.iter().flat_map(names).collect();
        let rows = families().into_iter().flatten();
        let writes = rows.filter(|row| row.flags.has(Flags::WRITE));
        writes.map(|row| row.name).filter(|name| !listed.contains(*name)).collect()
    }

    #[test]
    fn every_write_command_is_replayed() {
        assert_eq!(forgotten(), Vec::<&str>::new());
    }

    #[test]
    fn replayed_effects_give_the_same_data() {
        for seed in 0..12 {
            assert_eq!(replay(seed), Ok(()), "seed {seed}");
        }
    }
}

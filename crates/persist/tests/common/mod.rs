//! A real redis-server to compare with, and a model of a file's contents.
#![allow(dead_code, unreachable_pub, reason = "every crate uses another part")]

use darter_base::score;
use darter_families::TYPES;
use darter_rdb::{Error, Event, Item, Kind, Limits, Reader, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub type Bytes = Vec<u8>;

/// Texts at the limits of the integer encodings, and some that only look like integers.
pub const INTEGERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "127",
    "128",
    "-128",
    "-129",
    "255",
    "4095",
    "4096",
    "-4096",
    "-4097",
    "32767",
    "32768",
    "-32768",
    "-32769",
    "8388607",
    "8388608",
    "-8388608",
    "-8388609",
    "2147483647",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "-0",
    "007",
    "+5",
    " 5",
    "1.5",
];

/// The layouts of the type of this name.
pub fn kind(name: &str) -> &'static Kind {
    TYPES.iter().find(|row| row.name == name).expect("a type").rdb
}

/// The fields of a hash, each with its value and its deadline, as they are written.
pub struct Fields(pub Vec<(Bytes, Bytes, Option<u64>)>, pub usize);

impl Source for Fields {
    fn next(&mut self) -> Option<Item<'_>> {
        let (name, value, deadline_ms) = self.0.get(self.1)?;
        self.1 += 1;
        Some(Item::Pair { name, value, deadline_ms: *deadline_ms })
    }

    fn rewind(&mut self) {
        self.1 = 0;
    }
}

/// A value as the tests compare it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    String(Bytes),
    List(Vec<Bytes>),
    Hash(BTreeMap<Bytes, (Bytes, Option<u64>)>),
    Set(BTreeSet<Bytes>),
    /// A value of another type: its items in their debug form.
    Items(Vec<String>),
}

/// A key as the tests compare it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub value: Value,
    pub expiry_ms: Option<u64>,
}

/// Everything that a file contained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    pub keys: BTreeMap<(u32, Bytes), Record>,
    pub encodings: BTreeSet<u8>,
    pub aux: BTreeMap<Bytes, Bytes>,
    pub functions: Vec<Bytes>,
    pub idle: usize,
    pub frequency: usize,
    /// Every event in its debug form, for comparisons of two runs.
    pub log: Vec<String>,
    pub done: bool,
}

/// An error, and what was read before it.
pub type Broken = Box<(Error, File)>;

/// Collects events into a [`File`].
#[derive(Default)]
pub struct Collector {
    pub file: File,
    pub keep_log: bool,
    database: u32,
    open: Option<(Bytes, Record)>,
}

impl Collector {
    pub fn take(&mut self, event: Event<'_>) {
        if self.keep_log {
            self.file.log.push(format!("{event:?}"));
        }
        match event {
            Event::Aux { key, value } => drop(self.file.aux.insert(key.into(), value.into())),
            Event::SelectDb(database) => self.database = database,
            Event::Function { code } => self.file.functions.push(code.into()),
            Event::Key { key, kind, encoding, expiry_ms, idle_s, frequency, .. } => {
                assert!(self.open.is_none(), "a key inside of a key");
                self.file.encodings.insert(encoding);
                self.file.idle += usize::from(idle_s.is_some());
                self.file.frequency += usize::from(frequency.is_some());
                let types = TYPES.iter().find(|row| row.rdb == kind);
                let value = match types.expect("a kind that was told").name {
                    "string" => Value::String(Bytes::new()),
                    "list" => Value::List(Vec::new()),
                    // A sorted set is compared as a map from members to the texts of their scores.
                    "hash" | "zset" => Value::Hash(BTreeMap::new()),
                    "set" => Value::Set(BTreeSet::new()),
                    _ => Value::Items(Vec::new()),
                };
                self.open = Some((key.into(), Record { value, expiry_ms }));
            }
            Event::EndOfKey => {
                let (key, record) = self.open.take().expect("a key before its end");
                self.file.keys.insert((self.database, key), record);
            }
            Event::Eof { .. } => self.file.done = true,
            Event::Item(item) => self.item(item),
            Event::Block(_) => panic!("nobody asked for blocks"),
            Event::Start { .. }
            | Event::Unpacked(_)
            | Event::ResizeDb { .. }
            | Event::SlotInfo { .. }
            | Event::ModuleSkipped { .. } => {}
        }
    }

    fn item(&mut self, item: Item<'_>) {
        let value = &mut self.open.as_mut().expect("items belong to a key").1.value;
        match (value, item) {
            (Value::String(text), Item::Chunk(chunk)) => text.extend_from_slice(chunk),
            (Value::List(elements), Item::Single { name, .. }) => elements.push(name.into()),
            (Value::Hash(fields), Item::Pair { name, value, deadline_ms }) => {
                fields.insert(name.into(), (value.into(), deadline_ms));
            }
            (Value::Hash(fields), Item::Scored { name, score }) => {
                fields.insert(name.into(), (score::Text::new(score).as_bytes().into(), None));
            }
            (Value::Set(members), Item::Single { name, .. } | Item::Pair { name, .. }) => {
                members.insert(name.into());
            }
            (Value::Items(items), item) => items.push(format!("{item:?}")),
            (value, item) => panic!("{item:?} in {value:?}"),
        }
    }
}

/// Reads `bytes` in chunks of `chunk` bytes.
pub fn read(bytes: &[u8], chunk: usize, keep_log: bool) -> Result<File, Broken> {
    feed(Reader::new(TYPES.kinds(), Limits::default()), bytes, chunk, keep_log)
}

/// Feeds `bytes` in chunks of `chunk` bytes to `reader`.
pub fn feed(
    mut reader: Reader,
    bytes: &[u8],
    chunk: usize,
    keep_log: bool,
) -> Result<File, Broken> {
    let mut collector = Collector { keep_log, ..Collector::default() };
    for piece in bytes.chunks(chunk.max(1)) {
        reader.push(piece);
        drain(&mut reader, &mut collector)?;
    }
    reader.finish();
    drain(&mut reader, &mut collector)?;
    assert!(reader.is_done() && collector.file.done);
    Ok(collector.file)
}

fn drain(reader: &mut Reader, collector: &mut Collector) -> Result<(), Broken> {
    loop {
        match reader.next() {
            Ok(Some(event)) => collector.take(event),
            Ok(None) => return Ok(()),
            Err(error) => return Err(Box::new((error, std::mem::take(&mut collector.file)))),
        }
    }
}

/// A reply of the real server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Status(String),
    Error(String),
    Int(i64),
    Bulk(Bytes),
    Null,
    Array(Vec<Reply>),
}

impl Reply {
    pub fn bulk(self) -> Bytes {
        match self {
            Self::Bulk(bytes) => bytes,
            other => panic!("a bulk, not {other:?}"),
        }
    }

    pub fn texts(self) -> Vec<Bytes> {
        match self {
            Self::Array(items) => items.into_iter().map(Reply::bulk).collect(),
            other => panic!("an array, not {other:?}"),
        }
    }
}

/// A redis-server of our own, on a unix socket; it ends with this value.
pub struct Oracle {
    process: Child,
    stream: BufReader<UnixStream>,
    directory: PathBuf,
}

impl Oracle {
    /// Starts one with additional `settings`, such as `["--rdbcompression", "no"]`.
    pub fn start(settings: &[&str]) -> Self {
        Self::launch(settings, None)
    }

    /// Starts one that loads `file`.
    pub fn start_with_file(file: &[u8]) -> Self {
        let mut oracle = Self::launch(&[], Some(file));
        while let Reply::Error(text) = oracle.call(&[b"PING"]) {
            assert!(text.starts_with("LOADING"), "{text}");
        }
        oracle
    }

    fn launch(settings: &[&str], file: Option<&[u8]>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("darter-persist-{}-{count}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("a directory for the oracle");
        if let Some(file) = file {
            std::fs::write(directory.join("dump.rdb"), file).expect("a file for the oracle");
        }
        let socket = directory.join("socket");
        let process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(&directory)
            .args(settings)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server 7.0 is needed: it is the oracle of these tests");
        let started = Instant::now();
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(error) if started.elapsed() > Duration::from_secs(20) => panic!("{error}"),
                Err(_) => std::thread::yield_now(),
            }
        };
        Self { process, stream: BufReader::new(stream), directory }
    }

    /// Runs one command; an error is returned as a reply.
    pub fn call(&mut self, parts: &[&[u8]]) -> Reply {
        let mut request = format!("*{}\r\n", parts.len()).into_bytes();
        for part in parts {
            request.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            request.extend_from_slice(part);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request).expect("the oracle listens");
        self.reply()
    }

    /// Runs one command, which must not fail.
    pub fn must(&mut self, parts: &[&[u8]]) -> Reply {
        match self.call(parts) {
            Reply::Error(text) => panic!("{text}: {:?}", String::from_utf8_lossy(parts[0])),
            reply => reply,
        }
    }

    fn reply(&mut self) -> Reply {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("the oracle answers");
        let rest = line[1..].trim_end();
        let number = || rest.parse::<i64>().expect("a number");
        match line.as_bytes()[0] {
            b'+' => Reply::Status(rest.to_string()),
            b'-' => Reply::Error(rest.to_string()),
            b':' => Reply::Int(number()),
            b'$' | b'*' if number() < 0 => Reply::Null,
            b'$' => {
                let mut bytes = vec![0; number() as usize + 2];
                self.stream.read_exact(&mut bytes).expect("the oracle answers");
                bytes.truncate(bytes.len() - 2);
                Reply::Bulk(bytes)
            }
            b'*' => Reply::Array((0..number()).map(|_| self.reply()).collect()),
            _ => panic!("{line}"),
        }
    }

    /// The file that `SAVE` writes.
    pub fn save(&mut self) -> Bytes {
        self.must(&[b"SAVE"]);
        std::fs::read(self.directory.join("dump.rdb")).expect("the oracle has saved")
    }

    /// Reads a value and its deadline back from the server.
    pub fn record(&mut self, key: &[u8]) -> Record {
        let value = match self.must(&[b"TYPE", key]) {
            Reply::Status(kind) if kind == "string" => {
                Value::String(self.must(&[b"GET", key]).bulk())
            }
            Reply::Status(kind) if kind == "list" => {
                Value::List(self.must(&[b"LRANGE", key, b"0", b"-1"]).texts())
            }
            Reply::Status(kind) if kind == "hash" => {
                let texts = self.must(&[b"HGETALL", key]).texts();
                let pairs = texts.chunks(2).map(|pair| (pair[0].clone(), (pair[1].clone(), None)));
                Value::Hash(pairs.collect())
            }
            Reply::Status(kind) if kind == "set" => {
                Value::Set(self.must(&[b"SMEMBERS", key]).texts().into_iter().collect())
            }
            other => panic!("{other:?}"),
        };
        let expiry_ms = match self.must(&[b"PEXPIRETIME", key]) {
            Reply::Int(-1) => None,
            Reply::Int(at) => Some(at as u64),
            other => panic!("{other:?}"),
        };
        Record { value, expiry_ms }
    }

    /// Everything that the server holds in its first `databases`.
    pub fn records(&mut self, databases: u32) -> BTreeMap<(u32, Bytes), Record> {
        let mut records = BTreeMap::new();
        for database in 0..databases {
            self.must(&[b"SELECT", database.to_string().as_bytes()]);
            for key in self.must(&[b"KEYS", b"*"]).texts() {
                let record = self.record(&key);
                records.insert((database, key), record);
            }
        }
        self.must(&[b"SELECT", b"0"]);
        records
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

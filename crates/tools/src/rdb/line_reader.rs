//! Reads JSON lines, and writes the keys to an RDB file or as commands.
//!
//! The encoding of a value depends on all of its items, so they are read twice. A value in one line
//! is kept between the passes; the lines of a longer one are read from the file again.

use super::convert::{Gathered, decimal, is_payload, payload_version, verb};
use super::lines::{FORMAT, VERSION, bytes_of, payload_of, score_of};
use super::resp;
use darter_base::UnixMillis;
use darter_families::TYPES;
use darter_rdb::crc64::Crc64;
use darter_rdb::{Item, Kind, Product, Survey, Writer, functions, types, write_key};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write};
use std::path::Path;

/// The number of bytes gathered before they are written.
const BLOCK_BYTES: usize = 64 * 1024;
/// The longest line in bytes: the longest string, in base64.
const LINE_BYTES_MAX: u64 = 1 << 30;

/// The format to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// An RDB file of this version, or of that of the first line.
    Rdb(Option<u16>),
    Commands,
}

/// A file of JSON lines that is being read.
struct Lines {
    file: BufReader<File>,
    /// The offset of the next line.
    offset: u64,
    /// The offset of the current line, for messages.
    begin: u64,
}

/// A key, and its first line.
struct KeyLines {
    database: u32,
    key: Vec<u8>,
    kind: String,
    rdb: &'static Kind,
    deadline: Option<UnixMillis>,
    first: Value,
    /// The offset after the first line.
    after: u64,
}

/// The state of the output.
struct Sink<'a> {
    target: Target,
    file: &'a mut dyn Write,
    out: Vec<u8>,
    writer: Writer,
    version: Option<u16>,
    database: Option<u32>,
    keys: u64,
}

/// Converts the file at `path`. Returns the number of keys.
///
/// Errors: a sentence with the file and the offset of the line.
pub(crate) fn convert(path: &Path, target: Target, file: &mut dyn Write) -> Result<u64, String> {
    let open = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut lines = Lines { file: BufReader::new(open), offset: 0, begin: 0 };
    let mut sink = Sink {
        target,
        file,
        out: Vec::new(),
        writer: Writer::new(),
        version: None,
        database: None,
        keys: 0,
    };
    sink.convert(&mut lines)
        .map_err(|why| format!("{}: {why} at offset {}", path.display(), lines.begin))
}

impl Lines {
    fn next(&mut self) -> Result<Option<Value>, String> {
        let mut line = Vec::new();
        self.begin = self.offset;
        let mut limited = std::io::Read::take(&mut self.file, LINE_BYTES_MAX);
        let count = limited.read_until(b'\n', &mut line).map_err(text)?;
        if count == 0 {
            return Ok(None);
        }
        self.offset += count as u64;
        serde_json::from_slice(&line).map(Some).map_err(|error| format!("not JSON: {error}"))
    }

    fn seek(&mut self, offset: u64) -> Result<(), String> {
        self.offset = offset;
        self.file.seek(SeekFrom::Start(offset)).map(drop).map_err(text)
    }

    /// Passes all items of a key. Afterwards the next line is that of the next key.
    fn items(
        &mut self,
        key: &KeyLines,
        take: &mut dyn FnMut(&Value) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut line = None;
        if is_more(&key.first) && self.offset != key.after {
            self.seek(key.after)?;
        }
        loop {
            let current = line.as_ref().unwrap_or(&key.first);
            let items = current.get("items").and_then(Value::as_array).ok_or("no items")?;
            items.iter().try_for_each(&mut *take)?;
            if !is_more(current) {
                return Ok(());
            }
            line = Some(self.next()?.ok_or("the value has no end")?);
        }
    }
}

fn is_more(line: &Value) -> bool {
    line.get("more") == Some(&Value::Bool(true))
}

impl KeyLines {
    fn of(line: Value, after: u64) -> Result<Self, String> {
        let database = line.get("db").map_or(Some(0), Value::as_u64);
        let database = database.and_then(|number| u32::try_from(number).ok()).ok_or("no db")?;
        let key = line.get("key").and_then(bytes_of).ok_or("no key")?;
        let kind = line.get("type").and_then(Value::as_str).ok_or("no type")?.to_owned();
        let row = TYPES.iter().find(|row| row.name == kind);
        let rdb = row.ok_or_else(|| format!("unknown type '{kind}'"))?.rdb;
        let deadline = match line.get("deadline_ms") {
            None => None,
            Some(at) => Some(at.as_u64().ok_or("the deadline is no number")?),
        };
        Ok(Self { database, key, kind, rdb, deadline, first: line, after })
    }

    /// The type number, the version for RESTORE and the length of a payload.
    fn payload(&self) -> Result<(u8, u16, u64), String> {
        let head = self.first.get("payload").ok_or("a value of this type needs a payload")?;
        let field = |name: &str| head.get(name).and_then(Value::as_u64);
        let number = field("number").and_then(|number| u8::try_from(number).ok());
        let number = number.ok_or("the payload has no type number")?;
        let version = field("rdb").and_then(|number| u16::try_from(number).ok());
        let is_valkey = head.get("product").and_then(Value::as_str) == Some("valkey");
        let product = if is_valkey { Product::Valkey } else { Product::Redis };
        let version = payload_version(number, product, version.unwrap_or(types::VERSION_MAX));
        Ok((number, version, field("bytes").ok_or("the payload has no length")?))
    }
}

impl Sink<'_> {
    fn convert(&mut self, lines: &mut Lines) -> Result<u64, String> {
        while let Some(line) = lines.next()? {
            if line.get("key").is_some() {
                let key = KeyLines::of(line, lines.offset)?;
                self.begin(None)?;
                self.key(lines, &key)?;
                self.keys += 1;
            } else if line.get("format").is_some() {
                self.begin(Some(&line))?;
            } else if let Some(code) = line.get("function") {
                let code = bytes_of(code).ok_or("a function without text")?;
                self.begin(None)?;
                self.function(&code);
            } else if let Some(words) = line.get("command").and_then(Value::as_array) {
                let words: Option<Vec<Vec<u8>>> = words.iter().map(bytes_of).collect();
                self.command(&words.ok_or("a command with an invalid word")?)?;
            } else {
                return Err("a line that is no key, command or function".to_owned());
            }
            self.send(BLOCK_BYTES)?;
        }
        self.begin(None)?;
        if self.target != Target::Commands {
            self.writer.eof(&mut self.out);
        }
        self.send(0)?;
        Ok(self.keys)
    }

    /// Writes the header of an RDB file, once.
    fn begin(&mut self, first: Option<&Value>) -> Result<(), String> {
        if let Some(line) = first
            && (line["format"] != FORMAT || line["version"] != VERSION)
        {
            return Err(format!("the format is not {FORMAT} of version {VERSION}"));
        }
        let Target::Rdb(wanted) = self.target else { return Ok(()) };
        if self.version.is_some() {
            return Ok(());
        }
        let of_file = first.and_then(|line| {
            let version = line["rdb"].as_u64().and_then(|version| u16::try_from(version).ok())?;
            Some(if line["product"] == "valkey" { types::VERSION_MAX } else { version })
        });
        let version = wanted.or(of_file).unwrap_or(types::VERSION_WRITTEN);
        let version = version.clamp(types::VERSION_WRITTEN, types::VERSION_MAX);
        self.version = Some(version);
        self.writer.start(version, &mut self.out);
        Ok(())
    }

    fn key(&mut self, lines: &mut Lines, key: &KeyLines) -> Result<(), String> {
        if self.database != Some(key.database) {
            self.database = Some(key.database);
            match self.target {
                Target::Rdb(_) => self.writer.select_db(key.database, &mut self.out),
                Target::Commands => self.select(key.database),
            }
        }
        match (self.target, is_payload(&key.kind)) {
            (_, true) => self.payload(lines, key),
            (Target::Rdb(_), false) => self.value(lines, key),
            (Target::Commands, false) => self.commands(lines, key),
        }
    }

    fn select(&mut self, database: u32) {
        resp::command(&mut self.out, &[b"SELECT", &decimal(database.into())]);
    }

    /// Writes a value to an RDB file.
    fn value(&mut self, lines: &mut Lines, key: &KeyLines) -> Result<(), String> {
        let mut survey = Survey::new(key.rdb);
        lines.items(key, &mut |value| with_item(&key.kind, value, |item| survey.item(item)))?;
        let plan = survey.plan();
        let version = plan.version();
        if self.version.is_some_and(|written| version > written) {
            return Err(format!(
                "a value needs RDB version {version}: use --rdb-version {version}"
            ));
        }
        let mut writer = self.writer.clone();
        writer.key(&key.key, key.deadline, plan, &mut self.out);
        lines.items(key, &mut |value| {
            with_item(&key.kind, value, |item| writer.item(item, &mut self.out))?;
            self.send(BLOCK_BYTES)
        })?;
        writer.end_of_key(&mut self.out);
        self.writer = writer;
        Ok(())
    }

    fn commands(&mut self, lines: &mut Lines, key: &KeyLines) -> Result<(), String> {
        let verb = verb(&key.kind).ok_or("a type without commands")?;
        let (mut gathered, mut has_begun) = (Gathered::new(verb, &key.key), false);
        lines.items(key, &mut |value| {
            with_item(&key.kind, value, |item| match item {
                Item::Chunk(bytes) => {
                    let verb: &[u8] = if has_begun { b"APPEND" } else { verb };
                    has_begun = true;
                    resp::command(&mut self.out, &[verb, &key.key, bytes]);
                }
                item => gathered.add(item, &mut self.out),
            })?;
            self.send(BLOCK_BYTES)
        })?;
        gathered.end(&mut self.out);
        if key.kind == "string" && !has_begun {
            resp::command(&mut self.out, &[verb, &key.key, b""]);
        }
        if let Some(at) = key.deadline {
            resp::command(&mut self.out, &[b"PEXPIREAT", &key.key, &decimal(at)]);
        }
        Ok(())
    }

    /// Writes a value that is given as the bytes of a file.
    fn payload(&mut self, lines: &mut Lines, key: &KeyLines) -> Result<(), String> {
        let (number, version, bytes) = key.payload()?;
        if self.target == Target::Commands {
            resp::begin(&mut self.out, if key.deadline.is_some() { 5 } else { 4 });
            resp::word(&mut self.out, b"RESTORE");
            resp::word(&mut self.out, &key.key);
            resp::word(&mut self.out, &decimal(key.deadline.unwrap_or(0)));
            resp::begin_word(&mut self.out, bytes + 11);
            self.out.push(number);
        } else {
            let from = self.out.len();
            write_key(&mut self.out, (key.deadline, None), number, (&key.key, key.key.len()));
            self.writer.follow(&self.out[from..]);
        }
        let (mut crc, mut written) = (Crc64::new(), 0);
        crc.update(&[number]);
        lines.items(key, &mut |value| {
            let part = payload_of(value).ok_or("a payload that is not base64")?;
            crc.update(&part);
            written += part.len() as u64;
            self.out.extend_from_slice(&part);
            if self.target != Target::Commands {
                self.writer.follow(&part);
            }
            self.send(BLOCK_BYTES)
        })?;
        if written != bytes {
            return Err(format!("the payload has {written} bytes instead of {bytes}"));
        }
        if self.target == Target::Commands {
            crc.update(&version.to_le_bytes());
            self.out.extend_from_slice(&version.to_le_bytes());
            self.out.extend_from_slice(&crc.value().to_le_bytes());
            resp::end_word(&mut self.out);
            if key.deadline.is_some() {
                resp::word(&mut self.out, b"ABSTTL");
            }
        }
        Ok(())
    }

    fn function(&mut self, code: &[u8]) {
        if self.target == Target::Commands {
            return resp::command(&mut self.out, &[b"FUNCTION", b"LOAD", b"REPLACE", code]);
        }
        let from = self.out.len();
        let rest = functions::begin_library(&mut self.out, code, None);
        self.out.extend_from_slice(rest);
        self.writer.follow(&self.out[from..]);
    }

    fn command(&mut self, words: &[Vec<u8>]) -> Result<(), String> {
        if self.target != Target::Commands {
            return Err("an RDB file has no commands".to_owned());
        }
        if self.database.take().is_some_and(|database| database != 0) {
            self.select(0);
        }
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        resp::command(&mut self.out, &words);
        Ok(())
    }

    /// Writes the buffer if it has at least `least` bytes.
    fn send(&mut self, least: usize) -> Result<(), String> {
        if self.out.len() >= least {
            self.file.write_all(&self.out).map_err(text)?;
            self.out.clear();
        }
        Ok(())
    }
}

/// Calls `take` with the item that a JSON value stands for.
fn with_item(kind: &str, value: &Value, take: impl FnOnce(Item<'_>)) -> Result<(), String> {
    let wrong = || format!("an invalid item of a {kind}");
    if !value.is_array() {
        let bytes = bytes_of(value).ok_or_else(wrong)?;
        match kind {
            "string" if bytes.is_empty() => {}
            "string" => take(Item::Chunk(&bytes)),
            "list" | "set" => take(Item::Single { name: &bytes, deadline_ms: None }),
            _ => return Err(wrong()),
        }
        return Ok(());
    }
    let name = value.get(0).and_then(bytes_of).ok_or_else(wrong)?;
    let second = value.get(1).ok_or_else(wrong)?;
    if kind == "zset" {
        let score = score_of(second).ok_or_else(wrong)?;
        take(Item::Scored { name: &name, score });
        return Ok(());
    }
    let deadline_ms = match value.get(2) {
        None => None,
        Some(at) => Some(at.as_u64().ok_or_else(wrong)?),
    };
    let second = bytes_of(second).ok_or_else(wrong)?;
    match kind {
        "hash" => take(Item::Pair { name: &name, value: &second, deadline_ms }),
        "set" => take(Item::Single { name: &name, deadline_ms }),
        _ => return Err(wrong()),
    }
    Ok(())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

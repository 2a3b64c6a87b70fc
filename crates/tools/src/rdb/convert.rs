//! `darter rdb convert`, `merge` and `split`: writes RDB files, append-only files and JSON lines.
//!
//! A key is read first, so that the filter knows its size; then its bytes are read again and
//! written. To an RDB file they are copied as they are, so every encoding stays. An append-only
//! file gets commands of at most [`COMMAND_ITEMS`] items, or RESTORE for the types without such.

use super::filter::Filter;
use super::input::{Place, Visitor};
use super::lines::LineWriter;
use super::resp;
use darter_base::number::{I64_TEXT_MAX, i64_text};
use darter_base::{UnixMillis, score};
use darter_families::TYPES;
use darter_rdb::crc64::Crc64;
use darter_rdb::{Event, Item, Product, Writer, types, write_key};
use std::collections::HashSet;
use std::io::Write;
use xxhash_rust::xxh3::xxh3_64;

/// The most items of a command, and about the most bytes.
const COMMAND_ITEMS: usize = 64;
const COMMAND_BYTES: usize = 64 * 1024;

/// The metadata that stays true in a file with other keys.
const METADATA: &[&[u8]] = &[b"redis-ver", b"redis-bits", b"valkey-ver", b"ctime", b"used-mem"];

/// The change of the deadlines of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deadlines {
    Keep,
    Drop,
    /// Adds milliseconds.
    Shift(i64),
}

/// A format that is written.
pub(crate) enum Format {
    Rdb(Box<RdbOutput>),
    Commands { database: u32, out: Vec<u8> },
    Lines(LineWriter),
}

/// The state of an RDB file that is written.
pub(crate) struct RdbOutput {
    writer: Writer,
    product: Option<(Product, u16)>,
    database: Option<u32>,
    out: Vec<u8>,
}

/// One output with its choice of keys.
pub(crate) struct Output {
    filter: Filter,
    deadlines: Deadlines,
    format: Format,
    file: Box<dyn Write>,
    database: u32,
    key: Vec<u8>,
    kind: &'static str,
    deadline: Option<UnixMillis>,
    /// The number of keys that were written.
    pub(crate) keys: u64,
    /// Hashes of the keys, if several files are merged.
    seen: Option<HashSet<u64>>,
    /// Hashes of the libraries of functions. Each is written once.
    libraries: HashSet<u64>,
    /// The number of RDB files that have begun.
    inputs: u64,
}

impl Deadlines {
    /// Parses `keep`, `drop` or `shift:SECONDS`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "keep" => Ok(Self::Keep),
            "drop" => Ok(Self::Drop),
            _ => {
                let seconds = text.strip_prefix("shift:").and_then(|text| text.parse::<i64>().ok());
                let ms = seconds.and_then(|seconds| seconds.checked_mul(1_000));
                ms.map(Self::Shift).ok_or_else(|| "expected keep, drop or shift:SECONDS".to_owned())
            }
        }
    }

    fn apply(self, deadline: Option<UnixMillis>) -> Option<UnixMillis> {
        match self {
            Self::Keep => deadline,
            Self::Drop => None,
            // A deadline of 0 would mean that the key expires at once in some versions.
            Self::Shift(ms) => deadline.map(|at| at.saturating_add_signed(ms).max(1)),
        }
    }
}

impl RdbOutput {
    pub(crate) fn new() -> Self {
        Self { writer: Writer::new(), product: None, database: None, out: Vec::new() }
    }
}

impl Output {
    pub(crate) fn new(
        filter: Filter,
        deadlines: Deadlines,
        format: Format,
        file: Box<dyn Write>,
    ) -> Self {
        Self {
            filter,
            deadlines,
            format,
            file,
            database: 0,
            key: Vec::new(),
            kind: "",
            deadline: None,
            keys: 0,
            seen: None,
            libraries: HashSet::new(),
            inputs: 0,
        }
    }

    /// Refuses keys that were written before. Memory: about 16 bytes a key.
    pub(crate) fn refusing_twins(mut self) -> Self {
        self.seen = Some(HashSet::new());
        self
    }

    /// Writes the end. The caller renames the file.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        if let Format::Rdb(rdb) = &mut self.format {
            if rdb.product.is_none() {
                rdb.writer.start(types::VERSION_WRITTEN, &mut rdb.out);
            }
            rdb.writer.eof(&mut rdb.out);
        }
        self.send()?;
        self.file.flush().map_err(text)
    }

    /// Writes what has been encoded.
    fn send(&mut self) -> Result<(), String> {
        let out = match &mut self.format {
            Format::Rdb(rdb) => &mut rdb.out,
            Format::Commands { out, .. } => out,
            Format::Lines(lines) => &mut lines.out,
        };
        self.file.write_all(out).map_err(text)?;
        out.clear();
        Ok(())
    }

    fn refuse_twin(&mut self) -> Result<(), String> {
        let Some(seen) = &mut self.seen else { return Ok(()) };
        let hash =
            xxh3_64(&self.key) ^ u64::from(self.database).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if seen.insert(hash) {
            return Ok(());
        }
        Err(format!(
            "the key \"{}\" of database {} was written before",
            self.key.escape_ascii(),
            self.database
        ))
    }

    /// Copies a key to an RDB file.
    fn copy(&mut self, place: Place<'_>, deadline: Option<UnixMillis>) -> Result<(), String> {
        let Format::Rdb(rdb) = &mut self.format else { return Ok(()) };
        if rdb.database != Some(self.database) {
            rdb.writer.select_db(self.database, &mut rdb.out);
            rdb.database = Some(self.database);
        }
        let file = &mut self.file;
        let (writer, out) = (&mut rdb.writer, &mut rdb.out);
        if deadline == self.deadline {
            return place.copy_from(place.begin, &mut |bytes| {
                writer.follow(bytes);
                push(out, bytes, file)
            });
        }
        let (number, value) = place.value()?;
        let from = out.len();
        write_key(out, (deadline, None), number, (&self.key, self.key.len()));
        writer.follow(&out[from..]);
        place.copy_from(value, &mut |bytes| {
            writer.follow(bytes);
            push(out, bytes, file)
        })
    }

    /// Writes the commands that make a key.
    fn commands(&mut self, place: Place<'_>, deadline: Option<UnixMillis>) -> Result<(), String> {
        let Format::Commands { database, out } = &mut self.format else { return Ok(()) };
        if *database != self.database {
            *database = self.database;
            resp::command(out, &[b"SELECT", &decimal(self.database.into())]);
        }
        let (number, value) = place.value()?;
        let file = &mut self.file;
        let is_plain = number < types::PRIVATE; // Not a set whose members have deadlines.
        let Some(verb) = verb(self.kind).filter(|_| is_plain) else {
            return restore(&self.key, number, value, deadline, place, out, file);
        };
        let mut gathered = Gathered::new(verb, &self.key);
        place.replay(&mut |event| {
            match *event {
                Event::Key { len_hint, .. } if verb == b"SET" => {
                    let len = len_hint.ok_or("a string without a length")?;
                    resp::begin(out, 3);
                    resp::word(out, verb);
                    resp::word(out, gathered.key);
                    resp::begin_word(out, len);
                }
                Event::Item(Item::Chunk(bytes)) => return push(out, bytes, file),
                Event::Item(item) => {
                    gathered.add(scored(verb == b"ZADD", item), out);
                    return send_full(out, file);
                }
                Event::EndOfKey if verb == b"SET" => resp::end_word(out),
                Event::EndOfKey => gathered.end(out),
                _ => {}
            }
            Ok(())
        })?;
        if let Some(at) = deadline {
            resp::command(out, &[b"PEXPIREAT", &self.key, &decimal(at)]);
        }
        Ok(())
    }

    fn lines(&mut self, place: Place<'_>, deadline: Option<UnixMillis>) -> Result<(), String> {
        let Format::Lines(lines) = &mut self.format else { return Ok(()) };
        let (number, value) = place.value()?;
        let file = &mut self.file;
        let is_sorted = self.kind == "zset";
        lines.key(self.database, &self.key, self.kind, deadline);
        if is_payload(self.kind) {
            let bytes = place.end - value;
            lines.payload(number, place.file.product, place.file.version, bytes);
            place.copy_from(value, &mut |bytes| {
                lines.bytes(bytes);
                send_full(&mut lines.out, file)
            })?;
        } else {
            place.replay(&mut |event| {
                if let Event::Item(item) = event {
                    lines.item(scored(is_sorted, *item))?;
                }
                send_full(&mut lines.out, file)
            })?;
        }
        lines.end();
        Ok(())
    }
}

impl Visitor for Output {
    fn event(&mut self, event: &Event<'_>) -> Result<(), String> {
        self.filter.event(event);
        match *event {
            Event::SelectDb(database) => self.database = database,
            Event::Key { key, kind, expiry_ms, .. } => {
                self.key.clear();
                self.key.extend_from_slice(key);
                (self.kind, self.deadline) = (TYPES.of(kind).name, expiry_ms);
            }
            Event::Start { product, version } => {
                (self.database, self.inputs) = (0, self.inputs + 1);
                match &mut self.format {
                    Format::Rdb(rdb) => begin_rdb(rdb, product, version)?,
                    Format::Lines(lines) => lines.start(product, version),
                    Format::Commands { .. } => {}
                }
            }
            Event::Aux { key, value } if self.inputs == 1 && METADATA.contains(&key) => {
                if let Format::Rdb(rdb) = &mut self.format {
                    rdb.writer.aux(key, value, &mut rdb.out);
                }
            }
            Event::Function { code } if self.libraries.insert(xxh3_64(code)) => {
                match &mut self.format {
                    Format::Rdb(rdb) => {
                        let from = rdb.out.len();
                        let rest = darter_rdb::functions::begin_library(&mut rdb.out, code, None);
                        rdb.out.extend_from_slice(rest);
                        rdb.writer.follow(&rdb.out[from..]);
                    }
                    Format::Commands { out, .. } => {
                        resp::command(out, &[b"FUNCTION", b"LOAD", b"REPLACE", code]);
                    }
                    Format::Lines(lines) => lines.function(code),
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn end_of_key(&mut self, place: Place<'_>) -> Result<(), String> {
        if !self.filter.takes(place.bytes()) {
            return Ok(());
        }
        self.refuse_twin()?;
        let deadline = self.deadlines.apply(self.deadline);
        match self.format {
            Format::Rdb(_) => self.copy(place, deadline)?,
            Format::Commands { .. } => self.commands(place, deadline)?,
            Format::Lines(_) => self.lines(place, deadline)?,
        }
        self.keys += 1;
        self.send()
    }

    fn command(&mut self, bytes: &[u8]) -> Result<(), String> {
        if !self.filter.is_open() || self.deadlines != Deadlines::Keep {
            return Err("commands after the snapshot cannot be filtered or shifted".to_owned());
        }
        match &mut self.format {
            Format::Rdb(_) => {
                return Err("the file has commands, which are not run: start darter with it, \
                     then use BGREWRITEAOF or BGSAVE"
                    .to_owned());
            }
            Format::Commands { database, out } => {
                // The commands begin in database 0, and the keys may have ended in another.
                if *database != 0 {
                    *database = 0;
                    resp::command(out, &[b"SELECT", b"0"]);
                }
                out.extend_from_slice(bytes);
            }
            Format::Lines(lines) => lines.command(bytes),
        }
        self.send()
    }
}

/// True if JSON lines have the values of this type as the bytes of the file.
pub(crate) fn is_payload(kind: &str) -> bool {
    !matches!(kind, "string" | "list" | "set" | "hash" | "zset")
}

/// Begins an RDB file, or checks that a further input has the same product.
fn begin_rdb(rdb: &mut RdbOutput, product: Product, version: u16) -> Result<(), String> {
    match rdb.product {
        Some(known) if known.0 != product || known.1 < version => {
            Err("its version is newer than that of the first file: name it first".to_owned())
        }
        Some(_) => Ok(()),
        None => {
            rdb.product = Some((product, version));
            let from = rdb.out.len();
            let magic = match product {
                Product::Redis => format!("REDIS{version:04}"),
                Product::Valkey => format!("VALKEY{version:03}"),
            };
            rdb.out.extend_from_slice(magic.as_bytes());
            rdb.writer.follow(&rdb.out[from..]);
            Ok(())
        }
    }
}

/// The verb of the commands that build a value; `None` if RESTORE builds it.
pub(crate) fn verb(kind: &str) -> Option<&'static [u8]> {
    Some(match kind {
        "string" => b"SET",
        "list" => b"RPUSH",
        "set" => b"SADD",
        "hash" => b"HSET",
        "zset" => b"ZADD",
        _ => return None,
    })
}

/// Items of one command.
pub(crate) struct Gathered<'a> {
    verb: &'a [u8],
    key: &'a [u8],
    words: Vec<u8>,
    /// The number of words and of items.
    count: usize,
    items: usize,
}

impl<'a> Gathered<'a> {
    pub(crate) fn new(verb: &'a [u8], key: &'a [u8]) -> Self {
        Self { verb, key, words: Vec::new(), count: 0, items: 0 }
    }

    /// Adds an item, and appends the command if it is full.
    pub(crate) fn add(&mut self, item: Item<'_>, out: &mut Vec<u8>) {
        let deadline = item.deadline_ms();
        match item {
            Item::Single { name, .. } => self.words(&[name]),
            Item::Pair { name, value, .. } => self.words(&[name, value]),
            Item::Scored { name, score } => {
                self.words(&[score::Text::new(score).as_bytes(), name]);
            }
            _ => {}
        }
        self.items += 1;
        if deadline.is_some() || self.items == COMMAND_ITEMS || self.words.len() >= COMMAND_BYTES {
            self.end(out);
        }
        if let Some(at) = deadline {
            let at = decimal(at);
            resp::command(out, &[b"HPEXPIREAT", self.key, &at, b"FIELDS", b"1", item.name()]);
        }
    }

    fn words(&mut self, words: &[&[u8]]) {
        words.iter().for_each(|bytes| resp::word(&mut self.words, bytes));
        self.count += words.len();
    }

    /// Appends the command.
    pub(crate) fn end(&mut self, out: &mut Vec<u8>) {
        if self.count > 0 {
            resp::begin(out, 2 + self.count);
            resp::word(out, self.verb);
            resp::word(out, self.key);
            out.append(&mut self.words);
            (self.count, self.items) = (0, 0);
        }
    }
}

/// The member of a sorted set with its score as a number; in a listpack it is a text.
fn scored(is_sorted: bool, item: Item<'_>) -> Item<'_> {
    match item {
        Item::Pair { name, value, .. } if is_sorted => {
            score::parse(value).map_or(item, |score| Item::Scored { name, score })
        }
        item => item,
    }
}

/// Writes RESTORE with the value's bytes.
fn restore(
    key: &[u8],
    number: u8,
    value: u64,
    deadline: Option<UnixMillis>,
    place: Place<'_>,
    out: &mut Vec<u8>,
    file: &mut Box<dyn Write>,
) -> Result<(), String> {
    let version = payload_version(number, place.file.product, place.file.version).to_le_bytes();
    resp::begin(out, if deadline.is_some() { 5 } else { 4 });
    resp::word(out, b"RESTORE");
    resp::word(out, key);
    resp::word(out, &decimal(deadline.unwrap_or(0)));
    resp::begin_word(out, place.end - value + 11);
    let mut crc = Crc64::new();
    crc.update(&[number]);
    out.push(number);
    place.copy_from(value, &mut |bytes| {
        crc.update(bytes);
        push(out, bytes, file)
    })?;
    crc.update(&version);
    out.extend_from_slice(&version);
    out.extend_from_slice(&crc.value().to_le_bytes());
    resp::end_word(out);
    if deadline.is_some() {
        resp::word(out, b"ABSTTL");
    }
    Ok(())
}

/// The version in the payload of RESTORE: the oldest with the type number, for old servers.
pub(crate) fn payload_version(number: u8, product: Product, version: u16) -> u16 {
    match number {
        _ if product == Product::Valkey => version,
        20 | 21 => 11,
        22..types::PRIVATE => 12,
        _ => types::VERSION_WRITTEN,
    }
}

fn push(out: &mut Vec<u8>, bytes: &[u8], file: &mut Box<dyn Write>) -> Result<(), String> {
    out.extend_from_slice(bytes);
    send_full(out, file)
}

/// Writes the buffer if it is full.
fn send_full(out: &mut Vec<u8>, file: &mut Box<dyn Write>) -> Result<(), String> {
    if out.len() >= COMMAND_BYTES {
        file.write_all(out).map_err(text)?;
        out.clear();
    }
    Ok(())
}

/// A number in decimal digits.
pub(crate) fn decimal(number: u64) -> Vec<u8> {
    let mut text = [0; I64_TEXT_MAX];
    i64_text(&mut text, i64::try_from(number).unwrap_or(i64::MAX)).to_vec()
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

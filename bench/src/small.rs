//! `small`: bytes a key of small collections, and the CPU time of commands on them.
//!
//! Most keys of most servers are small collections, so most of their memory is what a server spends
//! around the content. Each kind is measured at five sizes and in three states: as filled, after
//! each entry was overwritten with another length (a tightly packing store must move them), and
//! after half of them were removed (memory to give back). The figure is resident memory above that
//! of the empty server: what the process really takes, the allocator's rounding included. The empty
//! server has already taken a few keys through all states and removed them; the connection that
//! fills a server is closed before its memory is read.
//!
//! CPU per operation is measured between the first state and the second, in pairs, as in
//! `throughput`, with pipelines so long that most of what is left is the command itself.

use std::time::Duration;

use crate::client::{self, Connection};
use crate::data::count_text;
use crate::fault::{Fault, Outcome};
use crate::options::Options;
use crate::prng::Prng;
use crate::process::{Server, Subject};
use crate::report::{Report, Table, brief};
use crate::saturate::{self, Load, Supply, Turn, Wait};
use crate::summary::{median, ratio_text};

/// Entries of a key.
const SIZES: [u64; 5] = [1, 5, 20, 100, 200];
/// Commands in flight while a server is filled.
const BATCH: u64 = 500;
/// Connections of the saturating client, and requests in flight on each.
const CLIENTS: usize = 10;
const PIPELINE: u64 = 100;
/// Bytes of a hash's values; once overwritten, from half of that to one and a half times.
const VALUE_BYTES: u64 = 12;
/// When the first entries of streams are added, those of the saturating client, and those that
/// replace the first: by their IDs, not by the clock, so that all servers get the same.
const FILLED_MS: u64 = 1_790_000_000_000;
const BETWEEN_MS: u64 = FILLED_MS + 450_000;
const AGAIN_MS: u64 = FILLED_MS + 900_000;
/// How long a server may take to start.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Time for an allocator that returns memory with a delay.
const SETTLE: Duration = Duration::from_millis(300);

/// The kind of the keys' values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `field:N` and 12 bytes.
    Hash,
    /// `member:N`.
    Strings,
    /// Distinct numbers below 10 000; above 100 000 once replaced.
    Integers,
    /// `element:N`.
    Texts,
    /// The numbers of [`Kind::Integers`].
    Numbers,
    /// `member:N`, with an integer below a million as its score; after that was overwritten, with two
    /// digits behind the point.
    Scores,
    /// Entries of the fields `sensor` and `value`, a second apart; once replaced, a quarter of an
    /// hour later, and with a longer sensor.
    Entries,
}

/// The state of all keys of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Filled,
    Overwritten,
    Halved,
}

const STATES: [State; 3] = [State::Filled, State::Overwritten, State::Halved];

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::Hash,
        Kind::Strings,
        Kind::Integers,
        Kind::Texts,
        Kind::Numbers,
        Kind::Scores,
        Kind::Entries,
    ];

    fn name(self) -> &'static str {
        match self {
            Kind::Hash => "hash",
            Kind::Strings => "set of strings",
            Kind::Integers => "set of integers",
            Kind::Texts => "list of strings",
            Kind::Numbers => "list of integers",
            Kind::Scores => "sorted set",
            Kind::Entries => "stream",
        }
    }

    /// The operations whose CPU time is measured.
    fn operations(self) -> [&'static str; 2] {
        match self {
            Kind::Hash => ["HGET", "HSET"],
            Kind::Strings | Kind::Integers => ["SISMEMBER", "SADD, SREM"],
            Kind::Texts | Kind::Numbers => ["LINDEX", "LSET"],
            Kind::Scores => ["ZSCORE", "ZADD"],
            Kind::Entries => ["XREVRANGE", "XADD"],
        }
    }

    fn key(self, key: u64) -> String {
        match self {
            Kind::Hash => format!("hash:{key:07}"),
            Kind::Strings | Kind::Integers => format!("set:{key:07}"),
            Kind::Texts | Kind::Numbers => format!("list:{key:07}"),
            Kind::Scores => format!("zset:{key:07}"),
            Kind::Entries => format!("stream:{key:07}"),
        }
    }

    /// The field, the member, the element or the first value of the entry with this number, before
    /// its replacement or after.
    fn entry(self, key: u64, number: u64, state: State) -> String {
        let is_first = state == State::Filled;
        match self {
            Kind::Hash => format!("field:{number}"),
            Kind::Scores => format!("member:{number}"),
            Kind::Strings if is_first => format!("member:{number}"),
            Kind::Strings => format!("member:{number}:again"),
            Kind::Texts if is_first => format!("element:{number}"),
            Kind::Texts => format!("element:{number}:again"),
            Kind::Entries if is_first => format!("sensor:{}", number % 10),
            Kind::Entries => format!("sensor:{}:again", number % 10),
            // 97 and 10 000 are coprime, so a key's numbers are distinct.
            Kind::Integers | Kind::Numbers => {
                let below = (key * 7_919 + number * 97) % 10_000;
                (if is_first { below } else { below + 100_000 }).to_string()
            }
        }
    }

    /// Appends the commands that take a key from the previous state to this one. Returns their
    /// number of replies.
    fn advance(self, key: u64, len: u64, to: State, prng: &mut Prng, out: &mut Vec<u8>) -> u64 {
        let name = self.key(key);
        let numbers = 0..if to == State::Halved { len / 2 } else { len };
        if numbers.is_empty() {
            return 0;
        }
        let before = if to == State::Halved { State::Overwritten } else { State::Filled };
        let entries = |state| numbers.clone().map(move |number| self.entry(key, number, state));
        let removed: Vec<String> = entries(before).collect();
        let mut words = vec![name];
        match (self, to) {
            (Kind::Hash, State::Filled | State::Overwritten) => {
                words.insert(0, "HSET".to_owned());
                entries(to).for_each(|field| words.extend([field, value(prng, to)]));
            }
            (Kind::Hash, State::Halved) => {
                words = [vec!["HDEL".to_owned()], words, removed].concat()
            }
            (Kind::Scores, State::Filled | State::Overwritten) => {
                words.insert(0, "ZADD".to_owned());
                entries(to).for_each(|member| words.extend([score(prng, to), member]));
            }
            (Kind::Scores, State::Halved) => {
                words = [vec!["ZREM".to_owned()], words, removed].concat()
            }
            (Kind::Entries, State::Filled) => return self.add_entries(key, len, to, prng, out),
            (Kind::Entries, State::Overwritten) => {
                let added = self.add_entries(key, len, to, prng, out);
                client::command(out, &["XTRIM", &words[0], "MAXLEN", &len.to_string()]);
                return added + 1;
            }
            (Kind::Entries, State::Halved) => {
                words = vec!["XTRIM".to_owned(), words.remove(0), "MAXLEN".to_owned()];
                words.push((len - len / 2).to_string());
            }
            (Kind::Texts | Kind::Numbers, State::Filled) => {
                words.insert(0, "RPUSH".to_owned());
                words.extend(removed);
            }
            (Kind::Texts | Kind::Numbers, State::Overwritten) => {
                for (index, element) in entries(to).enumerate() {
                    client::command(out, &["LSET", &words[0], &index.to_string(), &element]);
                }
                return len;
            }
            (Kind::Texts | Kind::Numbers, State::Halved) => {
                words = vec!["LTRIM".to_owned(), words.remove(0), (len / 2).to_string()];
                words.push("-1".to_owned());
            }
            (_, State::Filled) => {
                words.insert(0, "SADD".to_owned());
                words.extend(removed);
            }
            (_, State::Overwritten) => {
                let mut add = vec!["SADD".to_owned(), words[0].clone()];
                add.extend(entries(to));
                client::command(out, &add);
                words = [vec!["SREM".to_owned()], words, removed].concat();
                client::command(out, &words);
                return 2;
            }
            (_, State::Halved) => words = [vec!["SREM".to_owned()], words, removed].concat(),
        }
        client::command(out, &words);
        1
    }

    /// Appends an XADD for each entry of a stream. Returns their number.
    fn add_entries(
        self,
        key: u64,
        len: u64,
        state: State,
        prng: &mut Prng,
        out: &mut Vec<u8>,
    ) -> u64 {
        let name = self.key(key);
        for number in 0..len {
            let id = format!("{}-0", added_ms(key, number, state));
            let sensor = self.entry(key, number, state);
            let value = prng.below(1_000).to_string();
            client::command(out, &["XADD", &name, &id, "sensor", &sensor, "value", &value]);
        }
        len
    }

    /// Appends one request of the saturating client.
    fn request(self, operation: &str, keys: u64, len: u64, prng: &mut Prng, out: &mut Vec<u8>) {
        let (key, number) = (prng.below(keys), prng.below(len));
        let (name, entry) = (self.key(key), self.entry(key, number, State::Filled));
        match operation {
            "HGET" => client::command(out, &["HGET", &name, &entry]),
            "HSET" => {
                let value = value(prng, State::Overwritten);
                client::command(out, &["HSET", &name, &entry, &value]);
            }
            "SISMEMBER" => client::command(out, &["SISMEMBER", &name, &entry]),
            "ZSCORE" => client::command(out, &["ZSCORE", &name, &entry]),
            "LINDEX" => client::command(out, &["LINDEX", &name, &number.to_string()]),
            "XREVRANGE" => client::command(out, &["XREVRANGE", &name, "+", "-", "COUNT", "1"]),
            "XADD" => {
                let (most, id) = (len.to_string(), format!("{BETWEEN_MS}-*"));
                let value = prng.below(1_000).to_string();
                let words =
                    ["XADD", &name, "MAXLEN", &most, &id, "sensor", &entry, "value", &value];
                client::command(out, &words);
            }
            "LSET" => {
                let state = if prng.below(2) == 0 { State::Filled } else { State::Overwritten };
                let element = self.entry(key, number, state);
                client::command(out, &["LSET", &name, &number.to_string(), &element]);
            }
            "ZADD" => {
                let score = score(prng, State::Filled);
                client::command(out, &["ZADD", &name, &score, &entry]);
            }
            _ => {
                let entry = self.entry(key, number, State::Overwritten);
                client::command(out, &["SADD", &name, &entry]);
                client::command(out, &["SREM", &name, &entry]);
            }
        }
    }
}

/// A value of twelve characters; once overwritten, of six to eighteen, but not twelve.
fn value(prng: &mut Prng, state: State) -> String {
    let mut len = VALUE_BYTES;
    if state != State::Filled {
        len = VALUE_BYTES / 2 + prng.below(VALUE_BYTES);
        len += u64::from(len >= VALUE_BYTES);
    }
    (0..len).map(|_| char::from(b'a' + prng.below(26) as u8)).collect()
}

/// When an entry of a stream was added, before its replacement or after.
fn added_ms(key: u64, number: u64, state: State) -> u64 {
    let first_ms = if state == State::Filled { FILLED_MS } else { AGAIN_MS };
    first_ms + number * 1_000 + key % 1_000
}

/// A score, before it was overwritten or after.
fn score(prng: &mut Prng, state: State) -> String {
    let number = prng.below(1_000_000);
    if state == State::Filled {
        return number.to_string();
    }
    format!("{}.{:02}", number / 100, number % 100)
}

/// One server's figures for one kind and size.
#[derive(Clone, Debug, Default)]
struct Figures {
    /// Bytes a key, by state.
    bytes: [f64; STATES.len()],
    /// CPU nanoseconds an operation, by operation: one figure a repeat.
    cpu_ns: [Vec<f64>; 2],
}

/// One kind and size.
struct Row {
    kind: Kind,
    len: u64,
    keys: u64,
    /// By subject.
    figures: Vec<Result<Figures, String>>,
}

/// A server being measured, and its resident memory when it was empty.
struct Filled {
    server: Server,
    connection: Connection,
    empty_bytes: u64,
}

/// Measures all rows and writes the report.
pub(crate) fn run(options: &Options) -> Outcome<()> {
    let subjects = options.single_core_subjects();
    let mut rows = Vec::new();
    for kind in Kind::ALL {
        for len in SIZES {
            if options.wants(&format!("{} of {len}", kind.name())) {
                rows.push(measure(options, &subjects, kind, len));
                eprintln!("{}", progress(&subjects, rows.last()));
            }
        }
    }
    write_report(options, &subjects, &rows)
}

/// The number of keys with `len` entries: a fifth of the elements, but not too many keys, nor so
/// few that the process's fixed memory would show.
fn keys_of(options: &Options, len: u64) -> u64 {
    /// With this many, a hundred kilobytes are ten bytes a key.
    const KEYS_MIN: u64 = 10_000;
    let elements = options.scale.elements;
    let least = KEYS_MIN.min(elements / 100).max(1);
    (elements / 5 / len).min(elements / 25).max(least)
}

fn measure(options: &Options, subjects: &[Subject], kind: Kind, len: u64) -> Row {
    let keys = keys_of(options, len);
    let text = |fault: Fault| fault.to_string();
    let mut servers: Vec<Result<Filled, String>> =
        subjects.iter().map(|subject| start(options, subject, kind, len).map_err(text)).collect();
    let mut figures = vec![Ok(Figures::default()); subjects.len()];
    for (step, state) in STATES.into_iter().enumerate() {
        for (server, figures) in servers.iter_mut().zip(&mut figures) {
            update(server, figures, |filled, figures| {
                figures.bytes[step] = advance(options, filled, kind, keys, len, state)?;
                Ok(())
            });
        }
        if state != State::Filled {
            continue;
        }
        for _ in 0..options.repeats {
            for at in 0..kind.operations().len() {
                for (server, figures) in servers.iter_mut().zip(&mut figures) {
                    update(server, figures, |filled, figures| {
                        figures.cpu_ns[at].push(push(options, filled, kind, keys, len, at)?);
                        Ok(())
                    });
                }
            }
        }
    }
    Row { kind, len, keys, figures }
}

/// Runs one step on a server that has not failed yet.
fn update(
    server: &mut Result<Filled, String>,
    figures: &mut Result<Figures, String>,
    step: impl FnOnce(&mut Filled, &mut Figures) -> Outcome<()>,
) {
    let outcome = match (server.as_mut(), figures.as_mut()) {
        (Ok(filled), Ok(figures)) => step(filled, figures).map_err(|fault| fault.to_string()),
        (Err(text), _) => Err(text.clone()),
        (_, Err(_)) => return,
    };
    if let Err(text) = outcome {
        *figures = Err(text);
    }
}

fn start(options: &Options, subject: &Subject, kind: Kind, len: u64) -> Outcome<Filled> {
    let server = Server::start(subject, &options.processors, None, START_LIMIT)?;
    let mut connection = server.connect(options.limit)?;
    // Grow the request buffers first, so that their memory does not count as data.
    let mut request = Vec::new();
    (0..BATCH * 4).for_each(|_| client::command(&mut request, &["ECHO", &"x".repeat(500)]));
    connection.send(&request)?;
    for _ in 0..BATCH * 4 {
        connection.reply()?;
    }
    warm_up(&mut connection, kind, len)?;
    let mut filled = Filled { server, connection, empty_bytes: 0 };
    filled.empty_bytes = settled_bytes(options, &mut filled)?;
    Ok(filled)
}

/// The server's resident memory, with the connection that was used replaced by a fresh one.
fn settled_bytes(options: &Options, filled: &mut Filled) -> Outcome<u64> {
    filled.connection = filled.server.connect(options.limit)?;
    // Redis's allocator keeps freed memory for ten seconds otherwise.
    filled.connection.ask(&["MEMORY", "PURGE"])?;
    std::thread::sleep(SETTLE);
    Ok(filled.server.resident_bytes())
}

/// Takes one batch of keys through all states, and removes them: memory for code that runs for the
/// first time must not count as data.
fn warm_up(connection: &mut Connection, kind: Kind, len: u64) -> Outcome<()> {
    let keys = (BATCH / len).max(1);
    for state in STATES {
        fill(connection, kind, keys, len, state)?;
        // As later: an entry of a stream cannot be added before one that has been.
        if state != State::Filled {
            continue;
        }
        for operation in kind.operations() {
            let mut request = Vec::new();
            kind.request(operation, keys, len, &mut Prng::from_seed(0), &mut request);
            connection.send(&request)?;
            for _ in 0..commands(operation) {
                connection.reply()?;
            }
        }
    }
    for key in 0..keys {
        connection.ask(&["DEL", &kind.key(key)])?;
    }
    Ok(())
}

/// Takes all keys to `state`.
fn fill(connection: &mut Connection, kind: Kind, keys: u64, len: u64, state: State) -> Outcome<()> {
    let mut prng = Prng::from_seed(state as u64);
    // A reply is read for each request, so that neither side's buffers grow.
    let batch = (BATCH / len).max(1);
    for first in (0..keys).step_by(batch as usize) {
        let (mut request, mut replies) = (Vec::new(), 0);
        for key in first..(first + batch).min(keys) {
            replies += kind.advance(key, len, state, &mut prng, &mut request);
        }
        connection.send(&request)?;
        for _ in 0..replies {
            connection.reply()?;
        }
    }
    Ok(())
}

/// Takes all keys to `state`. Returns the server's bytes a key then.
fn advance(
    options: &Options,
    filled: &mut Filled,
    kind: Kind,
    keys: u64,
    len: u64,
    state: State,
) -> Outcome<f64> {
    fill(&mut filled.connection, kind, keys, len, state)?;
    check(filled, kind, keys, len, state)?;
    let bytes = settled_bytes(options, filled)?.saturating_sub(filled.empty_bytes);
    Ok(bytes as f64 / keys as f64)
}

/// Checks that the last key has the expected length.
fn check(filled: &mut Filled, kind: Kind, keys: u64, len: u64, state: State) -> Outcome<()> {
    let command = match kind {
        Kind::Hash => "HLEN",
        Kind::Strings | Kind::Integers => "SCARD",
        Kind::Texts | Kind::Numbers => "LLEN",
        Kind::Scores => "ZCARD",
        Kind::Entries => "XLEN",
    };
    let found = filled.connection.ask(&[command, &kind.key(keys - 1)])?.number();
    let wanted = if state == State::Halved { len - len / 2 } else { len };
    if found != wanted as i64 {
        return Err(Fault::Setup(format!("{found} entries instead of {wanted}")));
    }
    Ok(())
}

/// CPU nanoseconds of the server for one command of the operation `at`.
fn push(
    options: &Options,
    filled: &Filled,
    kind: Kind,
    keys: u64,
    len: u64,
    at: usize,
) -> Outcome<f64> {
    let operation = kind.operations()[at];
    let request =
        |prng: &mut Prng, out: &mut Vec<u8>| kind.request(operation, keys, len, prng, out);
    let lines = match operation {
        // An array of one entry, which is an ID and an array of four.
        "XREVRANGE" => 1 + 1 + 2 + 1 + 4 * 2,
        "HGET" | "LINDEX" | "ZSCORE" | "SADD, SREM" | "XADD" => 2,
        _ => 1,
    };
    let load = Load {
        clients: CLIENTS,
        pipeline: PIPELINE,
        turns: &[Turn { lines, request: &request }],
        requests_max: u64::MAX,
        supply: Supply::Pool,
        seed: 1,
        wait: Wait::Poll,
        served: None,
    };
    let before_ns = filled.server.cpu_ns();
    let pushed = saturate::push(filled.server.port, &load, options.push)?;
    let cpu_ns = filled.server.cpu_ns().saturating_sub(before_ns) as f64;
    Ok(cpu_ns / (commands(operation) * pushed.replies.max(1)) as f64)
}

/// Commands of a request.
fn commands(operation: &str) -> u64 {
    if operation == "SADD, SREM" { 2 } else { 1 }
}

fn middle(row: &Row, subject: usize, at: usize) -> Option<f64> {
    median(&row.figures.get(subject)?.as_ref().ok()?.cpu_ns[at])
}

/// The median over pairs of the ratio to the first subject.
fn cpu_ratio(row: &Row, subject: usize, at: usize) -> Option<f64> {
    let of = |subject: usize| row.figures.get(subject)?.as_ref().ok();
    let (own, first) = (of(subject)?, of(0)?);
    let ratios = own.cpu_ns[at].iter().zip(&first.cpu_ns[at]).map(|(own, first)| own / first);
    median(&ratios.collect::<Vec<_>>())
}

fn byte_ratio(row: &Row, subject: usize, step: usize) -> Option<f64> {
    let of = |subject: usize| Some(row.figures.get(subject)?.as_ref().ok()?.bytes[step]);
    Some(of(subject)? / of(0)?)
}

fn progress(subjects: &[Subject], row: Option<&Row>) -> String {
    let Some(row) = row else { return String::new() };
    let mut text = format!("{} of {}:", row.kind.name(), row.len);
    for (number, subject) in subjects.iter().enumerate() {
        match &row.figures[number] {
            Ok(figures) => text.push_str(&format!(" {} {:.0?}", subject.name(), figures.bytes)),
            Err(fault) => text.push_str(&format!(" {} {}", subject.name(), brief(fault))),
        }
        for at in 0..row.kind.operations().len() {
            text.push_str(&format!(" {:.0} ns", middle(row, number, at).unwrap_or(f64::NAN)));
        }
    }
    text
}

fn write_report(options: &Options, subjects: &[Subject], rows: &[Row]) -> Outcome<()> {
    let title = "Small collections: bytes a key, CPU an operation";
    let mut report = Report::new(&options.results, "small", title, &options.processors);
    let most = count_text(keys_of(options, SIZES[0]));
    report.say(&format!(
        "Resident bytes a key above the empty server, up to {most} keys of a kind and size. Fields \
         are `field:N` with values of {VALUE_BYTES} letters, members `member:N`, elements \
         `element:N`, integers below 10 000, a stream's entries `sensor sensor:N value N`, a second \
         apart. \"Overwritten\": each value anew with another length, each member, element and \
         entry replaced by a longer one (in a stream by XADD and XTRIM); \"halved\": then the first \
         half of the entries removed. redis-server keeps the bytes of a stream's removed entries \
         until their node of a hundred is empty. A ratio is that to {}.",
        subjects.first().map_or_else(String::new, Subject::name)
    ));
    report.say(&byte_table(subjects, rows).markdown());
    report.say(&format!(
        "Server CPU, nanoseconds a command: {CLIENTS} connections with {PIPELINE} requests in \
         flight each, on random entries of random keys. HSET and LSET change a length; SADD adds a \
         member that SREM removes again; XREVRANGE reads the last entry, and XADD removes the first \
         (MAXLEN). Medians of {} pairs.",
        options.repeats
    ));
    report.say(&cpu_table(subjects, rows).markdown());
    report.finish()
}

fn byte_table(subjects: &[Subject], rows: &[Row]) -> Table {
    let head = ["keys of", "entries", "server", "filled", "ratio", "overwritten", "ratio"];
    let mut table = Table::new(&[&head[..], &["halved", "ratio"]].concat());
    for row in rows {
        for (number, subject) in subjects.iter().enumerate() {
            let mut line = vec![row.kind.name().to_owned(), row.len.to_string(), subject.name()];
            match &row.figures[number] {
                Ok(figures) => {
                    for step in 0..STATES.len() {
                        let ratio = byte_ratio(row, number, step).unwrap_or(f64::NAN);
                        line.push(format!("{:.0}", figures.bytes[step]));
                        line.push(ratio_text(ratio));
                    }
                }
                Err(text) => line.push(brief(text)),
            }
            table.row(line);
        }
    }
    table
}

fn cpu_table(subjects: &[Subject], rows: &[Row]) -> Table {
    let mut table =
        Table::new(&["keys of", "entries", "keys", "request", "server", "CPU ns", "ratio"]);
    for row in rows {
        for (at, operation) in row.kind.operations().into_iter().enumerate() {
            for (number, subject) in subjects.iter().enumerate() {
                let mut line = vec![row.kind.name().to_owned(), row.len.to_string()];
                line.extend([row.keys.to_string(), operation.to_owned(), subject.name()]);
                line.push(format!("{:.0}", middle(row, number, at).unwrap_or(f64::NAN)));
                line.push(ratio_text(cpu_ratio(row, number, at).unwrap_or(f64::NAN)));
                table.row(line);
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::TempFolder;

    #[test] // In miniature, on redis-server.
    fn the_report_shows_all_kinds_and_sizes_without_a_darter() {
        let folder = TempFolder::create().unwrap();
        let words = ["small", "--darter", "/nonexistent", "--cores", "1", "--only", "of 5,of 20"];
        run(&Options::miniature(&words, folder.path())).unwrap();
        let files = std::fs::read_dir(folder.path()).unwrap().flatten();
        let markdown = files.map(|file| file.path()).find(|path| path.extension().unwrap() == "md");
        let text = std::fs::read_to_string(markdown.unwrap()).unwrap();
        let rows: Vec<&str> =
            text.lines().filter(|line| line.contains(" redis-server |")).collect();
        // "of 20" is "of 200", too: three sizes of each kind, once in bytes, twice in CPU.
        assert_eq!(rows.len(), 3 * Kind::ALL.len() * (1 + 2), "{text}");
        assert_eq!(rows[0].matches(" 1.00 |").count(), 3, "{text}");
        assert!(
            text.contains("| darter, 1 core") && text.contains("ended while starting"),
            "{text}"
        );
    }
}

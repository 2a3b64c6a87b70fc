//! `durability`: SETs with and without an append-only file, and GETs beside a writer.
//!
//! Both servers are alive, on the same disk, and are measured one right after the other; each mode is
//! set while they run. The client is redis-benchmark. All ratios are medians over the repeats, each
//! of which has all modes.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::fault::{Fault, Outcome};
use crate::options::Options;
use crate::plot::{self, Series};
use crate::process::{Server, Subject};
use crate::report::{Report, Table, brief};
use crate::summary::{median, ratio_text};

/// Connections of redis-benchmark.
const CLIENTS: &str = "50";
/// Keys that are written and read.
const KEYS: &str = "100000";
/// How long a server may take to start, or to make a base.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A mode of the append-only file: the value of `appendfsync`, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    None,
    EverySecond,
    Always,
}

impl Mode {
    const ALL: [Mode; 3] = [Mode::None, Mode::EverySecond, Mode::Always];

    fn name(self) -> &'static str {
        match self {
            Mode::None => "no journal",
            Mode::EverySecond => "everysec",
            Mode::Always => "always",
        }
    }
}

/// A load of redis-benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    name: &'static str,
    command: &'static str,
    pipeline: u64,
    /// A second client writes meanwhile, one SET after the other.
    has_writer: bool,
}

#[rustfmt::skip] // A table.
const LOADS: &[Load] = &[
    Load { name: "SET",                    command: "set", pipeline: 1,  has_writer: false },
    Load { name: "SET, pipelines of 16",   command: "set", pipeline: 16, has_writer: false },
    Load { name: "GET beside a writer",    command: "get", pipeline: 1,  has_writer: true },
];

/// One measurement of one server.
#[derive(Clone, Copy, Debug)]
struct Rate {
    per_s: f64,
    p99_ms: f64,
    cpu_us: f64,
}

/// All pairs of one row.
struct Row {
    mode: Mode,
    load: Load,
    /// By subject; a fault ends that subject's row.
    rates: Vec<Rates>,
}

/// The rates of one subject by repeat, or the fault that ended its row.
type Rates = Result<Vec<Rate>, String>;

/// Measures all rows and writes the report.
pub(crate) fn run(options: &Options) -> Outcome<()> {
    let subjects = options.subjects();
    let servers: Vec<Server> = subjects
        .iter()
        .map(|subject| Server::start(subject, &options.processors, None, START_LIMIT))
        .collect::<Outcome<_>>()?;
    let mut rows: Vec<Row> = Mode::ALL
        .iter()
        .flat_map(|mode| {
            LOADS.iter().filter(|load| options.wants(load.name)).map(|load| Row {
                mode: *mode,
                load: *load,
                rates: vec![Ok(Vec::new()); servers.len()],
            })
        })
        .collect();
    for repeat in 0..options.repeats {
        // All modes within a repeat, so that they meet the machine in one state.
        let mut mode = None;
        for row in &mut rows {
            if mode.replace(row.mode) != Some(row.mode) {
                servers.iter().try_for_each(|server| switch(options, server, row.mode))?;
            }
            measure(options, &servers, repeat as usize, row);
            eprintln!("{}", progress(&subjects, row));
        }
    }
    write_report(options, &subjects, &rows)
}

/// Switches a server to a mode, and waits until its base is complete.
fn switch(options: &Options, server: &Server, mode: Mode) -> Outcome<()> {
    let mut connection = server.connect(options.limit)?;
    let [on, sync] = match mode {
        Mode::None => ["no", "everysec"],
        Mode::EverySecond => ["yes", "everysec"],
        Mode::Always => ["yes", "always"],
    };
    for (name, value) in
        [("auto-aof-rewrite-percentage", "0"), ("appendonly", on), ("appendfsync", sync)]
    {
        connection.ask(&["CONFIG", "SET", name, value])?;
    }
    let begun = Instant::now();
    loop {
        let info = connection.ask(&["INFO", "persistence"])?.text();
        if info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0") {
            return Ok(());
        }
        if begun.elapsed() > START_LIMIT {
            return Err(Fault::TimedOut);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn measure(options: &Options, servers: &[Server], repeat: usize, row: &mut Row) {
    // Each goes first in turn, so that drift of the machine favours neither.
    for step in 0..servers.len() {
        let subject = (step + repeat) % servers.len();
        let Ok(list) = &mut row.rates[subject] else { continue };
        match once(options, &servers[subject], row.load) {
            Ok(rate) => list.push(rate),
            Err(fault) => row.rates[subject] = Err(fault.to_string()),
        }
    }
}

/// A client that writes until it is dropped.
struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        // Both calls fail only for a process that has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn benchmark(options: &Options, port: u16, command: &str) -> Command {
    let mut timed = Command::new("timeout");
    timed.arg(options.limit.as_secs().to_string()).arg("redis-benchmark");
    timed.args(["-p", &port.to_string(), "-t", command, "-d", "64", "-r", KEYS, "--csv"]);
    timed
}

fn once(options: &Options, server: &Server, load: Load) -> Outcome<Rate> {
    let each: u64 = if load.pipeline > 1 { 1_000_000 } else { 200_000 };
    let operations = if options.quick { each / 4 } else { each };
    let writer = load.has_writer.then(|| {
        let mut command = benchmark(options, server.port, "set");
        command.args(["-c", "1", "-n", "1000000000"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Writer)
    });
    let writer = writer.transpose()?;
    let before_ns = server.cpu_ns();
    let mut command = benchmark(options, server.port, load.command);
    command.args(["-c", CLIENTS, "-P", &load.pipeline.to_string()]);
    let output = command.args(["-n", &operations.to_string()]).output()?;
    let cpu_ns = server.cpu_ns().saturating_sub(before_ns) as f64;
    drop(writer);
    let text = String::from_utf8_lossy(&output.stdout);
    // "test","rps","avg","min","p50","p95","p99","max", and below it one line with the figures.
    let line = text.lines().rev().find(|line| line.starts_with('"')).unwrap_or_default();
    let figures: Vec<f64> =
        line.split(',').filter_map(|word| word.trim_matches('"').parse().ok()).collect();
    match figures[..] {
        [per_s, _, _, _, _, p99_ms, _] => {
            Ok(Rate { per_s, p99_ms, cpu_us: cpu_ns / 1e3 / operations as f64 })
        }
        _ => Err(Fault::Setup(format!("redis-benchmark: {}", text.trim()))),
    }
}

/// The median over a subject's pairs.
fn middle(row: &Row, subject: usize, what: fn(&Rate) -> f64) -> f64 {
    let rates = row.rates[subject].as_ref().map_or(&[][..], |rates| &rates[..]);
    median(&rates.iter().map(what).collect::<Vec<_>>()).unwrap_or(f64::NAN)
}

/// The median over repeats of the ratio of two lists of rates.
fn ratio(own: &Rates, other: &Rates, what: fn(&Rate) -> f64) -> f64 {
    let (Ok(own), Ok(other)) = (own, other) else { return f64::NAN };
    let ratios: Vec<f64> =
        own.iter().zip(other).map(|(own, other)| what(own) / what(other)).collect();
    median(&ratios).unwrap_or(f64::NAN)
}

fn progress(subjects: &[Subject], row: &Row) -> String {
    let mut text = format!("{} {}:", row.mode.name(), row.load.name);
    for (number, subject) in subjects.iter().enumerate() {
        text.push_str(&format!(" {} {:.0}/s", subject.name(), middle(row, number, |it| it.per_s)));
    }
    text
}

fn write_report(options: &Options, subjects: &[Subject], rows: &[Row]) -> Outcome<()> {
    let title = "SETs and GETs with an append-only file";
    let mut report = Report::new(&options.results, "durability", title, &options.processors);
    report.say(&format!(
        "redis-benchmark with {CLIENTS} connections, {KEYS} keys, values of 64 bytes, on the disk \
         of the temporary folder; medians of {} repeats. \"To redis-server\" is the ratio within a \
         repeat; \"to no journal\" compares the server with itself. CPU is the run time of all the \
         server's threads, for each request; beside a writer it includes the writer's requests.",
        options.repeats
    ));
    report.say(&table(subjects, rows).markdown());
    let groups: Vec<String> =
        rows.iter().map(|row| format!("{}\n{}", row.load.name, row.mode.name())).collect();
    let series: Vec<Series> = subjects
        .iter()
        .enumerate()
        .map(|(number, subject)| Series {
            name: subject.name(),
            points: rows
                .iter()
                .enumerate()
                .map(|(group, row)| (group as f64, middle(row, number, |it| it.per_s) / 1e3))
                .filter(|(_, value)| value.is_finite())
                .collect(),
        })
        .collect();
    let heading = "Requests a second by mode";
    let svg = plot::bars(heading, "thousands a second; higher is better", &groups, &series);
    report.picture("rates", heading, &svg)?;
    report.finish()
}

fn table(subjects: &[Subject], rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        "request",
        "mode",
        "server",
        "requests/s",
        "to redis-server",
        "to no journal",
        "P99 ms",
        "to redis-server",
        "to no journal",
        "CPU µs",
        "to redis-server",
    ]);
    for row in rows {
        let plain = rows.iter().find(|other| other.mode == Mode::None && other.load == row.load);
        for (number, subject) in subjects.iter().enumerate() {
            let mut line =
                vec![row.load.name.to_owned(), row.mode.name().to_owned(), subject.name()];
            if let Err(text) = &row.rates[number] {
                line.push(brief(text));
                table.row(line);
                continue;
            }
            let rates = &row.rates[number];
            let own = |what| middle(row, number, what);
            let to_first = |what| ratio_text(ratio(rates, &row.rates[0], what));
            let to_plain = |what| {
                let of = |plain: &Row| ratio(rates, &plain.rates[number], what);
                ratio_text(plain.map_or(f64::NAN, of))
            };
            line.push(format!("{:.0}", own(|it| it.per_s)));
            line.push(to_first(|it| it.per_s));
            line.push(to_plain(|it| it.per_s));
            line.push(format!("{:.2}", own(|it| it.p99_ms)));
            line.push(to_first(|it| it.p99_ms));
            line.push(to_plain(|it| it.p99_ms));
            line.push(format!("{:.2}", own(|it| it.cpu_us)));
            line.push(to_first(|it| it.cpu_us));
            table.row(line);
        }
    }
    table
}

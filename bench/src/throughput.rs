//! `throughput`: operations a second, and the server's CPU time for each.
//!
//! Wall-clock rates on a shared machine say little, so the figure to trust is CPU per operation:
//! the run time of all threads of the server, from the scheduler's accounts, divided by the
//! operations. Servers are measured in pairs, one right after the other, both alive; the ratio is
//! that of a pair, and the table shows the medians of all pairs. Two clients: redis-benchmark,
//! which everyone knows, and `saturate`, which keeps the server busy.
//!
//! The *floor* runs along with the servers: an echo server on Darter's runtime, which gets the same
//! bytes and answers with as many; where replies differ in length, with one of typical length. Its
//! time is the kernel's and cannot be saved; what a server takes above it, in the same round, is
//! its own.

use std::process::Command;
use std::time::Duration;

use crate::client::Connection;
use crate::fault::{Fault, Outcome};
use crate::options::Options;
use crate::plot::{self, Series};
use crate::process::{Program, Server, Subject};
use crate::report::{Report, Table, brief};
use crate::saturate::{self, Load, Supply, Turn, Wait};
use crate::summary::{median, ratio_text};
use crate::workloads::{self, KEYS, TABLE, VALUE, Workload};

/// Connections of both clients.
const CLIENTS: usize = 50;
/// How long a server may take to start.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Which client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    RedisBenchmark,
    Saturating,
}

impl Sender {
    fn name(self) -> &'static str {
        match self {
            Sender::RedisBenchmark => "redis-benchmark",
            Sender::Saturating => "saturating client",
        }
    }

    fn pipelines(self) -> &'static [u64] {
        match self {
            Sender::RedisBenchmark => &[1, 16, 100, 1000],
            Sender::Saturating => &[1, 16, 100],
        }
    }
}

/// One measurement of one server.
#[derive(Clone, Copy, Debug)]
struct Rate {
    per_s: f64,
    cpu_us: f64,
    /// The share of the wall time that the server was running: 1 is one core, busy.
    busy: f64,
}

/// All pairs of one row.
struct Row {
    sender: Sender,
    workload: &'static str,
    pipeline: u64,
    /// By subject; a fault ends that subject's row.
    rates: Vec<Result<Vec<Rate>, String>>,
}

/// Measures all rows and writes the report.
pub(crate) fn run(options: &Options) -> Outcome<()> {
    let mut subjects = options.single_core_subjects();
    let mut servers: Vec<Result<Server, String>> = subjects
        .iter()
        .map(|subject| prepared(options, subject).map_err(|fault| fault.to_string()))
        .collect();
    // The floor comes last; it is restarted for each workload, with that reply.
    subjects.push(options.floor(String::new()));
    let mut rows = Vec::new();
    for sender in [Sender::Saturating, Sender::RedisBenchmark] {
        for workload in TABLE {
            if !options.wants(workload.name) {
                continue;
            }
            let floor = Server::start(
                &options.floor(workload.answer.text()),
                &options.processors,
                None,
                START_LIMIT,
            );
            servers.push(floor.map_err(|fault| fault.to_string()));
            for &pipeline in sender.pipelines() {
                rows.push(measure(options, &servers, sender, workload, pipeline));
                eprintln!("{}", progress(&subjects, rows.last()));
            }
            servers.pop();
        }
    }
    write_report(options, &subjects, &rows)
}

/// A server with all that the workloads read.
fn prepared(options: &Options, subject: &Subject) -> Outcome<Server> {
    let server = Server::start(subject, &options.processors, None, START_LIMIT)?;
    workloads::fill(&mut server.connect(options.limit)?)?;
    Ok(server)
}

fn measure(
    options: &Options,
    servers: &[Result<Server, String>],
    sender: Sender,
    workload: &'static Workload,
    pipeline: u64,
) -> Row {
    let mut rates: Vec<Result<Vec<Rate>, String>> = vec![Ok(Vec::new()); servers.len()];
    for repeat in 0..options.repeats {
        // Each goes first in turn, so that drift of the machine favours neither.
        for step in 0..servers.len() {
            let subject = (step + repeat as usize) % servers.len();
            let Ok(list) = &mut rates[subject] else { continue };
            let rate = match &servers[subject] {
                Ok(server) => once(options, server, sender, workload, pipeline),
                Err(text) => Err(Fault::Setup(text.clone())),
            };
            match rate {
                Ok(rate) => list.push(rate),
                Err(fault) => rates[subject] = Err(fault.to_string()),
            }
        }
    }
    Row { sender, workload: workload.name, pipeline, rates }
}

fn once(
    options: &Options,
    server: &Server,
    sender: Sender,
    workload: &Workload,
    pipeline: u64,
) -> Outcome<Rate> {
    let mut connection = server.connect(options.limit)?;
    workload.before.prepare(&mut connection)?;
    check(&mut connection, workload)?;
    let before_ns = server.cpu_ns();
    let started = std::time::Instant::now();
    let (operations, per_s) = match sender {
        Sender::Saturating => {
            let load = Load {
                clients: CLIENTS,
                pipeline,
                turns: &[Turn { lines: workload.answer.lines(), request: &workload.request }],
                requests_max: workload.before.requests_max(),
                supply: Supply::Pool,
                seed: 1,
                wait: Wait::Poll,
                served: None,
            };
            let pushed = saturate::push(server.port, &load, options.push)?;
            (pushed.replies, pushed.replies as f64 / pushed.elapsed.as_secs_f64())
        }
        Sender::RedisBenchmark => redis_benchmark(options, server.port, workload, pipeline)?,
    };
    let cpu_ns = server.cpu_ns().saturating_sub(before_ns) as f64;
    let busy = cpu_ns / started.elapsed().as_nanos() as f64;
    Ok(Rate { per_s, cpu_us: cpu_ns / 1e3 / operations.max(1) as f64, busy })
}

/// Checks that one request of the workload is answered as announced.
fn check(connection: &mut Connection, workload: &Workload) -> Outcome<()> {
    let words: Vec<String> =
        workload.words.iter().map(|word| word.replace("__rand_int__", "000000000001")).collect();
    let reply = connection.ask(&words)?;
    if workload.answer.has_form_of(&reply) {
        return Ok(());
    }
    Err(Fault::Setup(format!("{} answered {reply:?}", workload.name)))
}

/// Runs redis-benchmark; returns its operations and its rate.
fn redis_benchmark(
    options: &Options,
    port: u16,
    workload: &Workload,
    pipeline: u64,
) -> Outcome<(u64, f64)> {
    let each = match pipeline {
        1 => 200_000,
        16 => 1_000_000,
        _ => 2_000_000,
    };
    let each = each / if workload.name == "MSET" { 8 } else { 1 };
    let operations: u64 = if options.quick { each / 4 } else { each };
    let operations = operations.min(workload.before.requests_max());
    let mut command = Command::new("timeout");
    command.arg(options.limit.as_secs().to_string()).arg("redis-benchmark");
    command.args(["-p", &port.to_string(), "-c", &CLIENTS.to_string(), "--csv"]);
    command.args(["-n", &operations.to_string(), "-P", &pipeline.to_string()]);
    command.args(["-r", &KEYS.to_string()]).args(workload.words);
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // "test","rps","avg_latency_ms",… and below it one line with the figures.
    let line = text.lines().rev().find(|line| line.starts_with('"'));
    let rate = line.and_then(|line| line.split("\",\"").nth(1)?.trim_matches('"').parse().ok());
    let failed = || Fault::Setup(format!("redis-benchmark: {}", text.trim()));
    rate.map(|per_s| (operations, per_s)).ok_or_else(failed)
}

/// The median over a subject's pairs.
fn middle(row: &Row, subject: usize, what: fn(&Rate) -> f64) -> Option<f64> {
    let rates = row.rates.get(subject)?.as_ref().ok()?;
    median(&rates.iter().map(what).collect::<Vec<_>>())
}

/// The median over pairs of the ratio to the first subject.
fn ratio(row: &Row, subject: usize, what: fn(&Rate) -> f64) -> Option<f64> {
    let own = row.rates.get(subject)?.as_ref().ok()?;
    let first = row.rates.first()?.as_ref().ok()?;
    let ratios = own.iter().zip(first).map(|(own, first)| what(own) / what(first));
    median(&ratios.collect::<Vec<_>>())
}

/// The median over rounds of the CPU time above that of the floor, the last subject, in µs.
fn above_floor_us(row: &Row, subject: usize) -> Option<f64> {
    let own = row.rates.get(subject)?.as_ref().ok()?;
    let floor = row.rates.last()?.as_ref().ok()?;
    let above = own.iter().zip(floor).map(|(own, floor)| own.cpu_us - floor.cpu_us);
    median(&above.collect::<Vec<_>>())
}

fn progress(subjects: &[Subject], row: Option<&Row>) -> String {
    let Some(row) = row else { return String::new() };
    let mut text = format!("{} -P {} {}:", row.workload, row.pipeline, row.sender.name());
    for (number, subject) in subjects.iter().enumerate() {
        let cpu_us = middle(row, number, |rate| rate.cpu_us).unwrap_or(f64::NAN);
        text.push_str(&format!(" {} {cpu_us:.2} µs/op", subject.name()));
    }
    text
}

fn write_report(options: &Options, subjects: &[Subject], rows: &[Row]) -> Outcome<()> {
    let title = "Operations a second, and server CPU for each";
    let mut report = Report::new(&options.results, "throughput", title, &options.processors);
    report.say(&format!(
        "{CLIENTS} connections, {KEYS} keys and fields, values of {} bytes; each server on one \
         core, the client on another. Medians of {} pairs; a ratio is that within a pair. CPU is \
         the run time of all the server's threads. The floor is an echo server on Darter's runtime \
         that gets the same requests and answers each with a reply of the same length; \"above \
         floor\" is what a server took more than it. \"Busy\" is the share of the time that the \
         server ran: near 1 it was saturated.",
        VALUE.len(),
        options.repeats
    ));
    for sender in [Sender::Saturating, Sender::RedisBenchmark] {
        let chosen: Vec<&Row> = rows.iter().filter(|row| row.sender == sender).collect();
        if chosen.is_empty() {
            continue;
        }
        report.say(&format!("## With {}", sender.name()));
        report.say(&table(subjects, &chosen).markdown());
        let (groups, series) = bars(subjects, &chosen);
        let heading = format!("Server CPU per operation, {}", sender.name());
        let svg = plot::bars(&heading, "µs an operation; lower is better", &groups, &series);
        report.picture(&sender.name().replace(' ', "-"), &heading, &svg)?;
    }
    report.finish()
}

fn table(subjects: &[Subject], rows: &[&Row]) -> Table {
    let mut table = Table::new(&[
        "request",
        "-P",
        "server",
        "ops/s",
        "ratio",
        "CPU µs/op",
        "ratio",
        "above floor µs",
        "busy",
    ]);
    for row in rows {
        for (number, subject) in subjects.iter().enumerate() {
            let mut line = vec![row.workload.to_owned(), row.pipeline.to_string(), subject.name()];
            match &row.rates[number] {
                Ok(_) => {
                    let value = |what| middle(row, number, what).unwrap_or(f64::NAN);
                    let to_first = |what| ratio(row, number, what).unwrap_or(f64::NAN);
                    line.push(format!("{:.0}", value(|rate| rate.per_s)));
                    line.push(ratio_text(to_first(|rate| rate.per_s)));
                    line.push(format!("{:.2}", value(|rate| rate.cpu_us)));
                    line.push(ratio_text(to_first(|rate| rate.cpu_us)));
                    line.push(above_text(subject, above_floor_us(row, number)));
                    line.push(format!("{:.2}", value(|rate| rate.busy)));
                }
                Err(text) => line.push(brief(text)),
            }
            table.row(line);
        }
    }
    table
}

/// A server's time above the floor; nothing for the floor itself.
fn above_text(subject: &Subject, above_us: Option<f64>) -> String {
    match (&subject.program, above_us) {
        (Program::Floor { .. }, _) | (_, None) => "–".to_owned(),
        (_, Some(above_us)) => format!("{above_us:.2}"),
    }
}

/// The groups are workloads at their pipeline depths, as far as they fit: unpipelined would dwarf
/// the others, so each bar is CPU time at its own depth, and 1000 is left to the table.
fn bars(subjects: &[Subject], rows: &[&Row]) -> (Vec<String>, Vec<Series>) {
    let shown: Vec<&&Row> = rows.iter().filter(|row| row.pipeline <= 100).collect();
    let groups = shown.iter().map(|row| format!("{}\n-P {}", row.workload, row.pipeline)).collect();
    let series = subjects.iter().enumerate().map(|(number, subject)| Series {
        name: subject.name(),
        points: shown
            .iter()
            .enumerate()
            .filter_map(|(group, row)| {
                Some((group as f64, middle(row, number, |rate| rate.cpu_us)?))
            })
            .collect(),
    });
    (groups, series.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::TempFolder;

    #[test] // Under load, too.
    fn each_workloads_request_gets_the_announced_reply() {
        let folder = TempFolder::create().unwrap();
        let words = ["throughput", "--cores", "1", "--darter", "/nonexistent"];
        let options = Options::miniature(&words, folder.path());
        let server = prepared(&options, &options.subjects()[0]).unwrap();
        for workload in TABLE {
            for pipeline in [1, 16] {
                let rate = once(&options, &server, Sender::Saturating, workload, pipeline).unwrap();
                assert!(rate.per_s > 0.0 && rate.cpu_us > 0.0, "{}: {rate:?}", workload.name);
            }
        }
    }

    #[test] // To each workload's request, under load too.
    fn the_floor_server_sends_the_same_replies_as_redis() {
        let folder = TempFolder::create().unwrap();
        let options = Options::miniature(&["throughput", "--floor", &floor()], folder.path());
        let redis = prepared(&options, &options.subjects()[0]).unwrap();
        for workload in TABLE {
            let subject = options.floor(workload.answer.text());
            let server = Server::start(&subject, &options.processors, None, START_LIMIT).unwrap();
            for one in [&redis, &server] {
                let mut connection = one.connect(options.limit).unwrap();
                workload.before.prepare(&mut connection).unwrap();
                check(&mut connection, workload).unwrap();
            }
            let rate = once(&options, &server, Sender::Saturating, workload, 16).unwrap();
            assert!(rate.per_s > 0.0 && rate.cpu_us > 0.0, "{}: {rate:?}", workload.name);
        }
    }

    /// The echo server, built: cargo has no dependency on another package's example.
    fn floor() -> String {
        let cargo =
            [env!("CARGO"), "build", "--quiet", "-p", "darter-runtime", "--example", "echo"];
        assert!(Command::new(cargo[0]).args(&cargo[1..]).status().unwrap().success());
        // Tests run in target/<profile>/deps.
        let tests = std::env::current_exe().unwrap();
        let built = tests.ancestors().nth(2).unwrap().join("examples/echo");
        built.to_str().unwrap().to_owned()
    }

    #[test]
    fn redis_benchmark_output_is_parsed() {
        let folder = TempFolder::create().unwrap();
        let words = ["throughput", "--quick", "--cores", "1"];
        let options = Options::miniature(&words, folder.path());
        let server = prepared(&options, &options.subjects()[0]).unwrap();
        let mset = TABLE.iter().find(|workload| workload.name == "MSET").unwrap();
        let rate = once(&options, &server, Sender::RedisBenchmark, mset, 16).unwrap();
        assert!(rate.per_s > 0.0 && rate.cpu_us > 0.0, "{rate:?}");
    }
}

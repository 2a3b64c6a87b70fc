//! `scaling`: how the throughput grows with the cores.
//!
//! Keys are drawn at random, so of N cores each finds one key in N at home and asks the others for
//! the rest. Darter runs on each number of cores; redis-server on one, and with as many I/O threads
//! as `--cores` names, where that is more than one and at most [`IO_THREADS_MAX`].
//!
//! The clients are saturating ones, a thread a processor, on the processors that the server leaves,
//! or on half of all where it leaves fewer. Then both share processors, the clients sleep while
//! they wait, and the figure is that of the machine, not of the server: the table says so.

use std::time::{Duration, Instant};

use crate::fault::{Fault, Outcome};
use crate::options::Options;
use crate::plot::{self, Series};
use crate::process::{self, Program, Server, Subject};
use crate::report::{Report, Table, brief};
use crate::saturate::{self, Load, Supply, Turn, Wait};
use crate::summary::{median, ratio_text};
use crate::workloads::{self, KEYS, TABLE, VALUE, Workload};

/// Connections of each client thread.
const CLIENTS: usize = 32;
/// More I/O threads than this make redis-server no faster.
const IO_THREADS_MAX: usize = 8;
/// How long a server may take to start.
const START_LIMIT: Duration = Duration::from_secs(20);
/// The requests, by their names in `throughput`, and how many are in flight on a connection.
const ROWS: [(&str, u64); 8] = [
    ("GET", 1),
    ("GET", 16),
    ("GET", 100),
    ("SET", 16),
    ("SET", 100),
    ("INCR", 16),
    ("MGET_10", 16),
    ("MSET", 16),
];
/// The rows in the picture, which has four colours.
const SHOWN: [usize; 4] = [0, 1, 3, 6];

/// One measurement.
#[derive(Clone, Copy, Debug)]
struct Rate {
    per_s: f64,
    cpu_us: f64,
    /// How many processors the server kept busy.
    busy: f64,
}

/// One server's figures, by row; a fault is that row's.
struct Column {
    subject: Subject,
    shares: bool,
    rates: Vec<Result<Rate, String>>,
}

/// Measures each server in turn and writes the report.
pub(crate) fn run(options: &Options) -> Outcome<()> {
    let mut columns = Vec::new();
    for subject in subjects(options) {
        let server = prepared(options, &subject);
        let rates = ROWS.iter().filter(|(name, _)| options.wants(name)).map(|row| match &server {
            Ok(server) => {
                measure(options, &subject, server, *row).map_err(|fault| fault.to_string())
            }
            Err(fault) => Err(fault.to_string()),
        });
        let rates = rates.collect();
        let shares = !options.processors.has_clients_apart(subject.cores);
        eprintln!("{}: {rates:?}", subject.name());
        columns.push(Column { subject, shares, rates });
    }
    write_report(options, &columns)
}

/// A server with all that the requests read.
fn prepared(options: &Options, subject: &Subject) -> Outcome<Server> {
    let server = Server::start(subject, &options.processors, None, START_LIMIT)?;
    workloads::fill(&mut server.connect(options.limit)?)?;
    Ok(server)
}

/// All servers: redis-server on one core, with I/O threads, and Darter.
fn subjects(options: &Options) -> Vec<Subject> {
    let mut subjects = options.subjects();
    let redis = subjects.iter().position(|subject| matches!(subject.program, Program::Redis(_)));
    let Some(redis) = redis else { return subjects };
    let one = subjects.remove(redis);
    let Program::Redis(path) = &one.program else { unreachable!("it is redis-server") };
    let threaded: Vec<Subject> = subjects
        .iter()
        .filter(|subject| (2..=IO_THREADS_MAX).contains(&subject.cores))
        .map(|subject| Subject {
            program: Program::ThreadedRedis(path.clone()),
            cores: subject.cores,
        })
        .collect();
    [vec![one], threaded, subjects].concat()
}

fn measure(
    options: &Options,
    subject: &Subject,
    server: &Server,
    (name, pipeline): (&str, u64),
) -> Outcome<Rate> {
    let workload = TABLE.iter().find(|workload| workload.name == name);
    let workload = workload.ok_or_else(|| Fault::Setup(format!("no workload {name}")))?;
    let rates: Vec<Rate> = (0..options.repeats)
        .map(|_| once(options, subject, server, workload, pipeline))
        .collect::<Outcome<_>>()?;
    let middle = |what: fn(&Rate) -> f64| {
        median(&rates.iter().map(what).collect::<Vec<_>>()).unwrap_or(f64::NAN)
    };
    Ok(Rate {
        per_s: middle(|rate| rate.per_s),
        cpu_us: middle(|rate| rate.cpu_us),
        busy: middle(|rate| rate.busy),
    })
}

/// Loads the server from all client processors at once.
fn once(
    options: &Options,
    subject: &Subject,
    server: &Server,
    workload: &Workload,
    pipeline: u64,
) -> Outcome<Rate> {
    let apart = options.processors.has_clients_apart(subject.cores);
    let wait = if apart { Wait::Poll } else { Wait::Sleep };
    let (before_ns, started) = (server.cpu_ns(), Instant::now());
    let pushed = std::thread::scope(|scope| {
        let threads: Vec<_> = (0u64..)
            .zip(options.processors.clients(subject.cores))
            .map(|(seed, processor)| {
                scope.spawn(move || {
                    process::pin(&[*processor])?;
                    let load = Load {
                        clients: CLIENTS,
                        pipeline,
                        turns: &[Turn {
                            lines: workload.answer.lines(),
                            request: &workload.request,
                        }],
                        requests_max: u64::MAX,
                        supply: Supply::Pool,
                        seed,
                        wait,
                        served: None,
                    };
                    saturate::push(server.port, &load, options.push)
                })
            })
            .collect();
        let ends = threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
        ends.collect::<Outcome<Vec<_>>>()
    })?;
    let elapsed = started.elapsed();
    let cpu_ns = server.cpu_ns().saturating_sub(before_ns) as f64;
    let replies: u64 = pushed.iter().map(|pushed| pushed.replies).sum();
    let per_s =
        pushed.iter().map(|pushed| pushed.replies as f64 / pushed.elapsed.as_secs_f64()).sum();
    let cpu_us = cpu_ns / 1e3 / replies.max(1) as f64;
    Ok(Rate { per_s, cpu_us, busy: cpu_ns / elapsed.as_nanos() as f64 })
}

fn write_report(options: &Options, columns: &[Column]) -> Outcome<()> {
    let title = "Throughput by the number of cores";
    let mut report = Report::new(&options.results, "scaling", title, &options.processors);
    report.say(&format!(
        "{KEYS} keys at random, values of {} bytes; {CLIENTS} connections from each client \
         processor. \"Ratio\" is to redis-server on one core, \"growth\" to Darter on one. \"Busy\" \
         is how many processors the server kept busy. redis-server with more cores has as many \
         I/O threads. Medians of {}. \\* The clients had processors of the server: it is what the \
         machine does with both.",
        VALUE.len(),
        options.repeats
    ));
    let rows: Vec<_> = ROWS.iter().filter(|(name, _)| options.wants(name)).collect();
    let mut table =
        Table::new(&["request", "-P", "server", "ops/s", "ratio", "growth", "CPU µs/op", "busy"]);
    for (row, (name, pipeline)) in rows.iter().enumerate() {
        let is_single_darter = |column: &&Column| {
            column.subject.cores == 1 && matches!(column.subject.program, Program::Darter { .. })
        };
        let rate = |column: &Column| column.rates[row].as_ref().ok().map(|rate| rate.per_s);
        let first = columns.first().and_then(rate).unwrap_or(f64::NAN);
        let single = columns.iter().find(is_single_darter).and_then(rate).unwrap_or(f64::NAN);
        for column in columns {
            let star = if column.shares { "\\*" } else { "" };
            let server = format!("{}{star}", column.subject.name());
            let mut line = vec![(*name).to_owned(), pipeline.to_string(), server];
            match &column.rates[row] {
                Ok(rate) => line.extend([
                    format!("{:.0}", rate.per_s),
                    ratio_text(rate.per_s / first),
                    ratio_text(rate.per_s / single),
                    format!("{:.2}", rate.cpu_us),
                    format!("{:.2}", rate.busy),
                ]),
                Err(text) => line.push(brief(text)),
            }
            table.row(line);
        }
    }
    report.say(&table.markdown());
    if rows.len() == ROWS.len() {
        report.picture("operations", title, &picture(title, columns))?;
    }
    report.finish()
}

/// Operations a second of some rows, a group of bars a server.
fn picture(title: &str, columns: &[Column]) -> String {
    let groups: Vec<String> =
        columns.iter().map(|column| column.subject.name().replacen(", ", "\n", 1)).collect();
    let series: Vec<Series> = SHOWN
        .iter()
        .map(|row| Series {
            name: format!("{} -P {}", ROWS[*row].0, ROWS[*row].1),
            points: (0u32..)
                .zip(columns)
                .filter_map(|(group, column)| {
                    Some((f64::from(group), column.rates[*row].as_ref().ok()?.per_s))
                })
                .collect(),
        })
        .collect();
    plot::bars(title, "operations a second; higher is better", &groups, &series)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::TempFolder;

    #[test] // In miniature.
    fn every_row_is_measured_on_redis_and_reported() {
        let folder = TempFolder::create().unwrap();
        let words = ["scaling", "--cores", "1", "--darter", "/nonexistent"];
        let options = Options::miniature(&words, folder.path());
        let subject = options.subjects().remove(0);
        let server = prepared(&options, &subject).unwrap();
        let rates: Vec<_> = ROWS
            .iter()
            .map(|row| {
                measure(&options, &subject, &server, *row).map_err(|fault| fault.to_string())
            })
            .collect();
        for (row, rate) in ROWS.iter().zip(&rates) {
            let rate = rate.as_ref().unwrap();
            assert!(rate.per_s > 0.0 && rate.cpu_us > 0.0 && rate.busy > 0.0, "{row:?}: {rate:?}");
        }
        write_report(&options, &[Column { subject, shares: false, rates }]).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn redis_gets_as_many_io_threads_as_help_it() {
        let folder = TempFolder::create().unwrap();
        let mut options = Options::miniature(&["scaling", "--cores", "1,2,16"], folder.path());
        options.processors = process::Processors::of(16);
        let names: Vec<String> = subjects(&options).iter().map(Subject::name).collect();
        let all = [
            "redis-server",
            "redis-server, 2 cores",
            "darter, 1 core",
            "darter, 2 cores",
            "darter, 16 cores",
        ];
        assert_eq!(names, all);
        assert!(options.processors.has_clients_apart(8));
        assert_eq!(options.processors.clients(4).len(), 12);
        assert!(!options.processors.has_clients_apart(12));
        assert_eq!(options.processors.clients(16).len(), 8);
    }
}

//! `save`: BGSAVE of many small keys, and of one big hash, alone and while a client overwrites them
//! as fast as it can: how long does it take, how much memory besides, and who waits?
//!
//! Memory is the proportional share (`smaps_rollup`) of the server and its children: of pages that a
//! forked child shares with its parent each counts half. "More" is the most during BGSAVE above what
//! there was before it; what the load itself needs is in that, too.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::client::{self, Connection};
use crate::data::{self, BIG, Data, SEED, SMALL_KEYS};
use crate::fault::{Fault, Outcome};
use crate::options::Options;
use crate::plot::{self, Series};
use crate::prng::{Prng, uuid};
use crate::process::{Server, Subject, TempFolder};
use crate::report::{Report, Table, brief};
use crate::saturate::{self, Load, Supply, Turn, Wait};
use crate::stream::{self, Plan};
use crate::summary::{Summary, mib_text, nanos, ratio_text, time_text};

/// How long loading a file, or filling the server, may take.
const FILL_LIMIT: Duration = Duration::from_secs(300);
/// Connections of the load, and requests in flight on each.
const CLIENTS: usize = 20;
const PIPELINE: u64 = 16;
/// The load runs in parts of this length, until BGSAVE is over.
const PART: Duration = Duration::from_millis(500);
/// How often memory is read, and how often INFO is asked.
const SAMPLE: Duration = Duration::from_millis(100);
const ASK: Duration = Duration::from_millis(10);

/// The data to save, and whether a client overwrites it during the save.
#[rustfmt::skip] // A table.
const TABLE: &[(&str, Data, bool)] = &[
    ("small keys",              Data::Populated, false),
    ("small keys, overwritten", Data::Populated, true),
    ("hash",                    Data::Hash,      false),
    ("hash, overwritten",       Data::Hash,      true),
];

/// One BGSAVE.
struct Saved {
    took: Duration,
    before_bytes: u64,
    most_bytes: u64,
    file_bytes: u64,
    during: Summary,
    outside: Summary,
    /// Requests of the load a second, before and during.
    rates: [f64; 2],
    /// The server's own longest, in microseconds.
    slice_us: Option<f64>,
    /// Seconds since the start of BGSAVE, and memory.
    memory: Vec<(f64, f64)>,
}

struct Row {
    name: &'static str,
    runs: Vec<Result<Saved, String>>,
}

/// Measures all rows and writes the report.
pub(crate) fn run(options: &Options) -> Outcome<()> {
    // The load never sleeps, so no server could use its processor.
    let subjects = options.single_core_subjects();
    let mut rows = Vec::new();
    for &(name, data, is_loaded) in TABLE.iter().filter(|row| options.wants(row.0)) {
        let folder = TempFolder::create()?;
        let file = folder.path().join("dump.rdb");
        data.write(&options.scale, &file)?;
        let runs = subjects.iter().map(|subject| {
            let run = start(options, subject, data, &file)
                .and_then(|server| one(options, &server, data, is_loaded));
            if let Ok(run) = &run {
                eprintln!("{name}, {}: {:.2} s", subject.name(), run.took.as_secs_f64());
            }
            run.map_err(|fault| fault.to_string())
        });
        rows.push(Row { name, runs: runs.collect() });
    }
    write_report(options, &subjects, &rows)
}

fn start(options: &Options, subject: &Subject, data: Data, file: &Path) -> Outcome<Server> {
    let server = Server::start(subject, &options.processors, Some(file), FILL_LIMIT)?;
    if data == Data::Populated {
        let count = options.scale.populated().to_string();
        server.connect(FILL_LIMIT)?.ask(&["DEBUG", "POPULATE", &count])?;
    }
    Ok(server)
}

fn one(options: &Options, server: &Server, data: Data, is_loaded: bool) -> Outcome<Saved> {
    let mut admin = server.connect(options.limit)?;
    let others = server.connect(options.limit)?;
    let plan = Arc::new(Plan::start());
    let (rate, paced) = (options.rate, Arc::clone(&plan));
    let others = std::thread::spawn(move || {
        stream::run(others, &paced, rate, &|_, prng: &mut Prng, request: &mut Vec<u8>| {
            let key = data::small_key(prng.below(SMALL_KEYS));
            client::command(request, &[&b"GET"[..], &key]);
        })
    });
    let (is_over, served) = (AtomicBool::new(!is_loaded), AtomicU64::new(0));
    let saved = std::thread::scope(|scope| {
        let loading = scope.spawn(|| load(options, server, data, &is_over, &served));
        let saved = save(options, server, &mut admin, &plan, &served);
        is_over.store(true, Ordering::Relaxed);
        loading.join().expect("it does not panic")?;
        saved
    });
    plan.end();
    let samples = others.join().expect("it does not panic").samples;
    let (mut saved, begin_ns, end_ns) = saved?;
    saved.during = Summary::between(&samples, begin_ns, end_ns);
    saved.outside = Summary::between(&samples, 0, begin_ns);
    Ok(saved)
}

/// Overwrites keys or fields, drawn at random, until it is over.
fn load(
    options: &Options,
    server: &Server,
    data: Data,
    is_over: &AtomicBool,
    served: &AtomicU64,
) -> Outcome<()> {
    let scale = options.scale;
    let request = |prng: &mut Prng, request: &mut Vec<u8>| {
        if data == Data::Populated {
            let number = prng.below(scale.populated());
            let (key, value) = (format!("key:{number}"), format!("other:{number}"));
            client::command(request, &["SET", &key, &value]);
        } else {
            let index = prng.below(scale.elements);
            let field = uuid(SEED, index);
            client::command(request, &[b"HSET", BIG.as_bytes(), &field, &data::reason(index)]);
        }
    };
    let load = Load {
        clients: CLIENTS,
        pipeline: PIPELINE,
        turns: &[Turn { lines: 1, request: &request }],
        requests_max: u64::MAX,
        supply: Supply::Fresh,
        seed: 1,
        wait: Wait::Poll,
        served: Some(served),
    };
    while !is_over.load(Ordering::Relaxed) {
        saturate::push(server.port, &load, PART)?;
    }
    Ok(())
}

/// Has the server save, after a while; returns when that began and ended on the plan's clock.
fn save(
    options: &Options,
    server: &Server,
    admin: &mut Connection,
    plan: &Plan,
    served: &AtomicU64,
) -> Outcome<(Saved, u64, u64)> {
    let rate_until = |begun: Instant, before: u64| {
        (served.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64()
    };
    let led = Instant::now();
    std::thread::sleep(options.lead);
    let rate_before = rate_until(led, 0);
    // A server without these statistics returns an error, and shows no slice later.
    let _ = admin.ask(&["CONFIG", "RESETSTAT"]);
    let before_bytes = server.share_bytes();
    let (begun, begin_ns, served_before) =
        (Instant::now(), plan.now_ns(), served.load(Ordering::Relaxed));
    admin.ask(&["BGSAVE"])?;
    let (mut memory, mut sampled) = (Vec::new(), None::<Instant>);
    loop {
        if sampled.is_none_or(|at| at.elapsed() >= SAMPLE) {
            memory.push((begun.elapsed().as_secs_f64(), server.share_bytes() as f64));
            sampled = Some(Instant::now());
        }
        let info = admin.ask(&["INFO", "persistence"])?.text();
        if info.contains("rdb_bgsave_in_progress:0") {
            if !info.contains("rdb_last_bgsave_status:ok") {
                return Err(Fault::Setup("BGSAVE failed".to_owned()));
            }
            break;
        }
        if begun.elapsed() > options.limit {
            return Err(Fault::TimedOut);
        }
        std::thread::sleep(ASK);
    }
    let (took, end_ns) = (begun.elapsed(), plan.now_ns());
    let slices = admin.ask(&["INFO", "slices"]).map(|info| info.text()).unwrap_or_default();
    let slice_us = slices.lines().find_map(|line| line.strip_prefix("slice_max_us:"));
    let saved = Saved {
        took,
        before_bytes,
        most_bytes: memory.iter().map(|(_, bytes)| *bytes as u64).max().unwrap_or(0),
        file_bytes: std::fs::metadata(server.file()).map_or(0, |file| file.len()),
        during: Summary::of(std::iter::empty()),
        outside: Summary::of(std::iter::empty()),
        rates: [rate_before, rate_until(begun, served_before)],
        slice_us: slice_us.and_then(|text| text.trim().parse().ok()),
        memory,
    };
    Ok((saved, begin_ns, end_ns))
}

fn write_report(options: &Options, subjects: &[Subject], rows: &[Row]) -> Outcome<()> {
    let mut report = Report::new(&options.results, "save", "BGSAVE", &options.processors);
    report.say(&format!(
        "{} small keys of DEBUG POPULATE, or a hash of {} fields. Overwritten: {CLIENTS} connections \
         with pipelines of {PIPELINE}, closed loop, keys or fields drawn at random. Others: {} GETs a \
         second on other keys.",
        data::count_text(options.scale.populated()),
        data::count_text(options.scale.elements),
        options.rate,
    ));
    let mut table = Table::new(&[
        "what",
        "server",
        "time",
        "ratio",
        "file MiB",
        "before MiB",
        "more MiB",
        "more",
        "longest slice",
        "others' P50, before",
        "P99",
        "others' P50, during",
        "P99",
        "load/s before",
        "during",
    ]);
    for row in rows {
        let first = row.runs.first().and_then(|run| run.as_ref().ok());
        for (subject, run) in subjects.iter().zip(&row.runs) {
            let mut line = vec![row.name.to_owned(), subject.name()];
            match run {
                Ok(run) => line.extend(cells(run, first)),
                Err(text) => line.push(brief(text)),
            }
            table.row(line);
        }
    }
    report.say(&table.markdown());
    for row in rows {
        let runs = subjects.iter().zip(&row.runs);
        let series = runs.filter_map(|(subject, run)| {
            let points = run.as_ref().ok()?.memory.iter();
            let points = points.map(|(at, bytes)| (*at, bytes / f64::from(1 << 20)));
            Some(Series { name: subject.name(), points: points.collect() })
        });
        let title = format!("BGSAVE of {}", row.name);
        let picture = plot::lines(&title, "memory, MiB", &series.collect::<Vec<_>>());
        report.picture(&row.name.replace(", ", "-").replace(' ', "-"), &title, &picture)?;
    }
    report.finish()
}

fn cells(run: &Saved, first: Option<&Saved>) -> Vec<String> {
    let more = run.most_bytes.saturating_sub(run.before_bytes);
    let ratio = first.map(|first| run.took.as_secs_f64() / first.took.as_secs_f64());
    vec![
        time_text(nanos(run.took)),
        ratio.map_or("–".to_owned(), ratio_text),
        mib_text(run.file_bytes),
        mib_text(run.before_bytes),
        mib_text(more),
        format!("{:.0} %", more as f64 * 100.0 / run.before_bytes.max(1) as f64),
        run.slice_us.map_or("–".to_owned(), |us| format!("{us:.0} µs")),
        time_text(run.outside.p50_ns),
        time_text(run.outside.p99_ns),
        time_text(run.during.p50_ns),
        time_text(run.during.p99_ns),
        format!("{:.0}", run.rates[0]),
        format!("{:.0}", run.rates[1]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Two saves by redis-server, and a report with pictures.
    fn a_small_run_writes_its_report() {
        let folder = TempFolder::create().unwrap();
        let words = ["save", "--cores", "1", "--darter", "/nonexistent"];
        run(&Options::miniature(&words, folder.path())).unwrap();
        let names = std::fs::read_dir(folder.path()).unwrap().flatten();
        let names: Vec<_> = names.map(|file| file.path()).collect();
        assert_eq!(names.len(), 5, "{names:?}");
        let report = names.iter().find(|path| path.extension().unwrap() == "md").unwrap();
        let text = std::fs::read_to_string(report).unwrap();
        let rows = |server: &str| {
            let is_of = |line: &&str| line.starts_with("| ") && line.contains(server);
            text.lines().filter(is_of).count()
        };
        assert_eq!((rows(" redis-server | "), rows(" darter, 1 core | ")), (4, 4), "{text}");
        assert!(
            text.lines().any(|line| line.contains(" redis-server | ") && line.contains(" 1.00 "))
        );
    }
}

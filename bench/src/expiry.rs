//! `expiry`: the experiment of the Dashtable note. One client sends SETs of 256-byte values with a
//! TTL of 30 s, on keys drawn from a hundred million, as fast as it can. The report shows the rate
//! and the memory.
//!
//! A server that removes expired keys late holds more of them. A faster server also holds more keys
//! that are not expired, so the table shows the peak and also the bytes for each key that DBSIZE
//! counts. Afterwards nothing is sent, and the time until the server is empty again is measured.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::client;
use crate::fault::Outcome;
use crate::options::Options;
use crate::plot::{self, Series};
use crate::prng::Prng;
use crate::process::{Server, Subject};
use crate::report::{Report, Table, brief};
use crate::saturate::{self, Load, Pushed, Supply, Turn, Wait};
use crate::summary::{mib_text, nanos, ratio_text, time_text};

/// The number of connections: 2 threads of 20 in the note.
const CLIENTS: usize = 40;
/// The number of keys drawn from.
const KEYS: u64 = 100_000_000;
/// A value of 256 bytes.
const VALUE: [u8; 256] = [b'x'; 256];
/// How long memory is watched after the last key has expired.
const GIVING_BACK: Duration = Duration::from_secs(5);
/// How often memory is read.
const SAMPLE: Duration = Duration::from_millis(250);

/// Memory and keys at one instant.
#[derive(Clone, Copy, Debug)]
struct Point {
    seconds: f64,
    resident_bytes: u64,
    keys: u64,
}

/// The result of one server.
struct Expired {
    pushed: Pushed,
    points: Vec<Point>,
    empty_bytes: u64,
    peak_bytes: u64,
    cpu_us: f64,
    /// The time from the last SET until DBSIZE is 0.
    empty_after: Option<Duration>,
}

/// How long the load lasts, and how long a key lives.
#[derive(Clone, Copy, Debug)]
struct Span {
    load_s: u64,
    ttl_s: u64,
}

/// Runs each server in turn and writes the report.
pub(crate) fn run(options: &Options) -> Outcome<()> {
    let long = Span { load_s: 90, ttl_s: 30 };
    run_for(options, if options.quick { Span { load_s: 15, ttl_s: 5 } } else { long })
}

fn run_for(options: &Options, span: Span) -> Outcome<()> {
    // The client never sleeps, so no server could use its processor.
    let subjects = options.single_core_subjects();
    let results: Vec<Result<Expired, String>> = subjects
        .iter()
        .map(|subject| {
            eprintln!("{}: {} s of load, TTL {} s", subject.name(), span.load_s, span.ttl_s);
            one(options, subject, span).map_err(|fault| fault.to_string())
        })
        .collect();
    write_report(options, &subjects, &results, span)
}

fn one(options: &Options, subject: &Subject, span: Span) -> Outcome<Expired> {
    let server = Server::start(subject, &options.processors, None, Duration::from_secs(20))?;
    let empty_bytes = server.resident_bytes();
    let ttl = span.ttl_s.to_string();
    let request = |prng: &mut Prng, request: &mut Vec<u8>| {
        let key = format!("memtier-{}", prng.below(KEYS));
        client::command(request, &[b"SET", key.as_bytes(), &VALUE, b"EX", ttl.as_bytes()]);
    };
    let load = Load {
        clients: CLIENTS,
        pipeline: 1,
        turns: &[Turn { lines: 1, request: &request }],
        requests_max: u64::MAX,
        supply: Supply::Fresh,
        seed: 1,
        wait: Wait::Poll,
        served: None,
    };
    let started = Instant::now();
    let cpu_before_ns = server.cpu_ns();
    let loaded = AtomicBool::new(false);
    let (pushed, watched) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| watch(options, &server, started, span.ttl_s, &loaded));
        let pushed = saturate::push(server.port, &load, Duration::from_secs(span.load_s));
        let cpu_ns = server.cpu_ns().saturating_sub(cpu_before_ns);
        loaded.store(true, Ordering::Relaxed);
        (pushed.map(|pushed| (pushed, cpu_ns)), watching.join())
    });
    let (pushed, cpu_ns) = pushed?;
    let (points, empty_after) = watched.unwrap_or_else(|_| Ok((Vec::new(), None)))?;
    let cpu_us = cpu_ns as f64 / 1e3 / pushed.replies.max(1) as f64;
    Ok(Expired {
        pushed,
        points,
        empty_bytes,
        peak_bytes: server.peak_bytes(),
        cpu_us,
        empty_after,
    })
}

/// Samples memory and DBSIZE during the load and until the server has been empty for a while, but
/// at most until twice the TTL has passed since the load.
fn watch(
    options: &Options,
    server: &Server,
    started: Instant,
    ttl_s: u64,
    loaded: &AtomicBool,
) -> Outcome<(Vec<Point>, Option<Duration>)> {
    let mut connection = server.connect(options.limit)?;
    let (mut points, mut load_end, mut empty_after) = (Vec::new(), None, None);
    loop {
        let keys = connection.ask(&["DBSIZE"])?.number() as u64;
        let seconds = started.elapsed().as_secs_f64();
        points.push(Point { seconds, resident_bytes: server.resident_bytes(), keys });
        if loaded.load(Ordering::Relaxed) {
            let end: &Instant = load_end.get_or_insert_with(Instant::now);
            if keys == 0 && empty_after.is_none() {
                empty_after = Some(end.elapsed());
            }
            // Servers return memory after the last key is gone, so the samples continue for a
            // while.
            if empty_after.is_some_and(|after| end.elapsed() > after + GIVING_BACK) {
                return Ok((points, empty_after));
            }
            if end.elapsed() > Duration::from_secs(ttl_s * 2 + 10) {
                return Ok((points, empty_after));
            }
        }
        std::thread::sleep(SAMPLE);
    }
}

fn write_report(
    options: &Options,
    subjects: &[Subject],
    results: &[Result<Expired, String>],
    span: Span,
) -> Outcome<()> {
    let Span { load_s, ttl_s } = span;
    let title = "Expiry under load";
    let mut report = Report::new(&options.results, "expiry", title, &options.processors);
    report.say(&format!(
        "{load_s} s of `SET memtier-N <256 bytes> EX {ttl_s}` with N below 100 million, {CLIENTS} \
         connections, no pipeline, closed loop; then silence until the server is empty."
    ));
    let mut table = Table::new(&[
        "server",
        "SET/s",
        "ratio",
        "CPU µs/op",
        "peak MiB",
        "ratio",
        "most keys",
        "peak bytes per key",
        "empty after load by",
        "resident 5 s later MiB",
    ]);
    let first = results.first().and_then(|result| result.as_ref().ok());
    for (subject, result) in subjects.iter().zip(results) {
        let mut line = vec![subject.name()];
        match result {
            Ok(one) => line.extend(cells(one, first)),
            Err(text) => line.push(brief(text)),
        }
        table.row(line);
    }
    report.say(&table.markdown());
    let series = |what: fn(&Point) -> f64| -> Vec<Series> {
        let done = subjects.iter().zip(results).filter_map(|(subject, result)| {
            let points = &result.as_ref().ok()?.points;
            let points = points.iter().map(|point| (point.seconds, what(point))).collect();
            Some(Series { name: subject.name(), points })
        });
        done.collect()
    };
    let memory = series(|point| point.resident_bytes as f64 / f64::from(1 << 20));
    report.picture("memory", title, &plot::lines(title, "resident memory, MiB", &memory))?;
    let keys = series(|point| point.keys as f64 / 1e6);
    report.picture("keys", "Keys", &plot::lines(title, "keys (DBSIZE), millions", &keys))?;
    report.finish()
}

fn cells(one: &Expired, first: Option<&Expired>) -> Vec<String> {
    let per_s = |one: &Expired| one.pushed.replies as f64 / one.pushed.elapsed.as_secs_f64();
    let most = one.points.iter().map(|point| point.keys).max().unwrap_or(0);
    let above = one.peak_bytes.saturating_sub(one.empty_bytes) as f64;
    let ratio = |what: &dyn Fn(&Expired) -> f64| {
        first.map_or("–".to_owned(), |first| ratio_text(what(one) / what(first)))
    };
    vec![
        format!("{:.0}", per_s(one)),
        ratio(&per_s),
        format!("{:.2}", one.cpu_us),
        mib_text(one.peak_bytes),
        ratio(&|one| one.peak_bytes as f64),
        most.to_string(),
        format!("{:.0}", above / most.max(1) as f64),
        one.empty_after.map_or("not empty".to_owned(), |after| time_text(nanos(after))),
        mib_text(one.points.last().map_or(0, |point| point.resident_bytes)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::TempFolder;

    #[test] // One second of load with a TTL of one second; the report says so.
    fn redis_is_empty_again_after_all_keys_expire() {
        let folder = TempFolder::create().unwrap();
        let words = ["expiry", "--cores", "1", "--darter", "/nonexistent"];
        let options = Options::miniature(&words, folder.path());
        let span = Span { load_s: 1, ttl_s: 1 };
        let expired = one(&options, &options.subjects()[0], span).unwrap();
        assert!(expired.pushed.replies > 1_000, "{:?}", expired.pushed);
        assert!(expired.empty_after.is_some());
        assert!(expired.points.iter().any(|point| point.keys > 1_000));
        run_for(&options, span).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
    }
}

//! `gaussdb`: a cloud vendor's test of big keys: the latency of a mixed load beside them, over
//! time.
//!
//! A hash, a list and a set of ten million integers each are there, and two more such sets. 192
//! connections send SETs and GETs of 1 000 bytes, one after the other. At the same time another
//! client reads the three in a loop (HGET, LREM of a random value, SISMEMBER), then deletes a set,
//! then lets two sets expire. The result is a picture: operations per second over time.
//!
//! ```text
//! beat   0     2                    7     8              11                         16
//!        | calm | HGET, LREM, SISMEMBER | calm | DEL of a set | two sets expire at 12 and 13 |
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::client::{self, Connection};
use crate::data::{ARTICLE_HASH, ARTICLE_LIST, ARTICLE_SETS, Data, count_text};
use crate::fault::Outcome;
use crate::options::Options;
use crate::plot::{self, Series};
use crate::prng::Prng;
use crate::process::{Server, Subject, TempFolder};
use crate::report::{Report, Table, brief};
use crate::saturate::{self, Load, Supply, Turn, Wait};
use crate::summary::{nanos, time_text};

/// Connections of the mixed load: memtier_benchmark's 12 threads of 16.
const CLIENTS: usize = 192;
/// The value of the keys of the mixed load.
const VALUE: [u8; 1_000] = [b'v'; 1_000];
/// The loop asks for numbers below this one.
const ASKED_BELOW: u64 = 32_768;
/// How long loading the file may take.
const LOAD_LIMIT: Duration = Duration::from_secs(300);
/// The number of samples in a beat.
const SAMPLES: u32 = 20;

/// The parts of a run: the name, and the first and last beat.
const PARTS: [(&str, u32, u32); 4] =
    [("undisturbed", 1, 2), ("HGET, LREM, SISMEMBER", 2, 7), ("DEL", 8, 11), ("EXPIRE", 11, 16)];

/// The results of one server.
struct Run {
    /// The time in seconds, and the operations per second at that time.
    points: Vec<(f64, f64)>,
    /// The number of rounds of the loop, and the longest time that each of its three commands took.
    rounds: u64,
    round_max: Duration,
    /// How long DEL took.
    deleted: Duration,
}

/// Runs the scenario on each server and writes the report.
pub(crate) fn run(options: &Options) -> Outcome<()> {
    let subjects = options.subjects();
    let folder = TempFolder::create()?;
    let file = folder.path().join("dump.rdb");
    Data::Article.write(&options.scale, &file)?;
    let runs: Vec<Result<Run, String>> = subjects
        .iter()
        .map(|subject| {
            eprintln!("{}", subject.name());
            let server = Server::start(subject, &options.processors, Some(&file), LOAD_LIMIT);
            server.and_then(|server| one(options, &server)).map_err(|fault| fault.to_string())
        })
        .collect();
    write_report(options, &subjects, &runs)
}

/// The length of a beat: two seconds at full length.
fn beat(options: &Options) -> Duration {
    options.lead
}

/// The number of keys of the mixed load: 200 000 beside ten million elements.
fn keys(options: &Options) -> u64 {
    (options.scale.elements / 50).max(1)
}

fn key(number: u64) -> String {
    format!("memtier-{number}")
}

fn one(options: &Options, server: &Server) -> Outcome<Run> {
    let keys = keys(options);
    fill(&mut server.connect(options.limit)?, keys)?;
    let set = |prng: &mut Prng, request: &mut Vec<u8>| {
        client::command(request, &[b"SET", key(prng.below(keys)).as_bytes(), &VALUE]);
    };
    let get = |prng: &mut Prng, request: &mut Vec<u8>| {
        client::command(request, &["GET", &key(prng.below(keys))]);
    };
    let served = AtomicU64::new(0);
    let load = Load {
        clients: CLIENTS,
        pipeline: 1,
        turns: &[Turn { lines: 1, request: &set }, Turn { lines: 2, request: &get }],
        requests_max: u64::MAX,
        supply: Supply::Pool,
        seed: 1,
        wait: Wait::Sleep,
        served: Some(&served),
    };
    let last = PARTS[PARTS.len() - 1].2;
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let acting = scope.spawn(|| act(options, server, begun));
        let watching = scope.spawn(|| watch(beat(options), last, begun, &served));
        saturate::push(server.port, &load, beat(options) * last)?;
        let mut run = acting.join().expect("it does not panic")?;
        run.points = watching.join().expect("it does not panic");
        Ok(run)
    })
}

/// Writes the keys of the mixed load.
fn fill(connection: &mut Connection, keys: u64) -> Outcome<()> {
    const AT_ONCE: u64 = 100;
    for first in (0..keys).step_by(AT_ONCE as usize) {
        let (mut request, last) = (Vec::new(), (first + AT_ONCE).min(keys));
        (first..last)
            .for_each(|n| client::command(&mut request, &[b"SET", key(n).as_bytes(), &VALUE]));
        connection.send(&request)?;
        for _ in first..last {
            connection.reply()?;
        }
    }
    Ok(())
}

/// Sends the commands of the other client at their times.
fn act(options: &Options, server: &Server, begun: Instant) -> Outcome<Run> {
    let beat = beat(options);
    let mut connection = server.connect(options.limit)?;
    let wait = |beats: u32| {
        std::thread::sleep((begun + beat * beats).saturating_duration_since(Instant::now()));
    };
    let mut run =
        Run { points: Vec::new(), rounds: 0, round_max: Duration::ZERO, deleted: Duration::ZERO };
    let mut prng = Prng::from_seed(1);
    let [_, (_, first, last), (_, deleted, _), (_, expired, _)] = PARTS;
    wait(first);
    while begun.elapsed() < beat * last {
        let number = prng.below(ASKED_BELOW.min(options.scale.elements)).to_string();
        let started = Instant::now();
        connection.ask(&["HGET", ARTICLE_HASH, &number])?;
        connection.ask(&["LREM", ARTICLE_LIST, "0", &number])?;
        connection.ask(&["SISMEMBER", ARTICLE_SETS[0], &number])?;
        run.round_max = run.round_max.max(started.elapsed());
        run.rounds += 1;
    }
    wait(deleted);
    let started = Instant::now();
    connection.ask(&["DEL", ARTICLE_SETS[0]])?;
    run.deleted = started.elapsed();
    wait(expired);
    for (set, beats) in ARTICLE_SETS[1..].iter().zip(1..) {
        connection.ask(&["PEXPIRE", set, &(beat * beats).as_millis().to_string()])?;
    }
    Ok(run)
}

/// Samples the number of requests that the server has answered.
fn watch(beat: Duration, beats: u32, begun: Instant, served: &AtomicU64) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    let (mut before, mut before_s) = (0, begun.elapsed().as_secs_f64());
    for number in 1..=beats * SAMPLES {
        let due = begun + beat * number / SAMPLES;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let (now, now_s) = (served.load(Ordering::Relaxed), begun.elapsed().as_secs_f64());
        points.push((now_s, (now - before) as f64 / (now_s - before_s).max(1e-9)));
        (before, before_s) = (now, now_s);
    }
    points
}

fn write_report(
    options: &Options,
    subjects: &[Subject],
    runs: &[Result<Run, String>],
) -> Outcome<()> {
    let title = "A mixed load beside big keys";
    let mut report = Report::new(&options.results, "gaussdb", title, &options.processors);
    let beat_s = beat(options).as_secs_f64();
    let parts = PARTS.map(|(name, first, last)| {
        format!("{:.0} to {:.0} s {name}", f64::from(first) * beat_s, f64::from(last) * beat_s)
    });
    report.say(&format!(
        "{CLIENTS} connections, SET and GET by turns, values of {} bytes, {} keys; a hash, a list \
         and three sets of {} integers. {}. The two sets expire one and two beats of {beat_s} s \
         after their command. A cell: the mean of a part, and its lowest {:.0} ms.",
        VALUE.len(),
        count_text(keys(options)),
        count_text(options.scale.elements),
        parts.join(", "),
        beat_s * 1e3 / f64::from(SAMPLES)
    ));
    let heads = PARTS.map(|(name, ..)| format!("{name}, ops/s"));
    let mut head = vec!["server"];
    head.extend(heads.iter().map(String::as_str));
    head.extend(["rounds of the loop", "longest round", "DEL's reply"]);
    let mut table = Table::new(&head);
    let mut series = Vec::new();
    for (subject, run) in subjects.iter().zip(runs) {
        let mut line = vec![subject.name()];
        match run {
            Ok(run) => {
                line.extend(PARTS.map(|(_, first, last)| part_text(run, beat_s, first..last)));
                line.push(run.rounds.to_string());
                line.extend([run.round_max, run.deleted].map(|time| time_text(nanos(time))));
                series.push(Series { name: subject.name(), points: run.points.clone() });
            }
            Err(text) => line.push(brief(text)),
        }
        table.row(line);
    }
    report.say(&table.markdown());
    let note = format!("operations a second; {}", parts[1..].join(", "));
    report.picture("operations", title, &plot::lines(title, &note, &series))?;
    report.finish()
}

/// The mean and the lowest of the samples of a part.
fn part_text(run: &Run, beat_s: f64, beats: std::ops::Range<u32>) -> String {
    let (from_s, to_s) = (f64::from(beats.start) * beat_s, f64::from(beats.end) * beat_s);
    let is_inside = |point: &&(f64, f64)| point.0 > from_s && point.0 <= to_s;
    let values: Vec<f64> = run.points.iter().filter(is_inside).map(|point| point.1).collect();
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    format!("{mean:.0}, {lowest:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // In miniature: redis-server serves the load, and loses the sets.
    fn the_scenario_runs_on_redis_and_writes_its_report() {
        let folder = TempFolder::create().unwrap();
        let words = ["gaussdb", "--cores", "1", "--darter", "/nonexistent"];
        let options = Options::miniature(&words, folder.path());
        let file = folder.path().join("dump.rdb");
        Data::Article.write(&options.scale, &file).unwrap();
        let subject = &options.subjects()[0];
        let server = Server::start(subject, &options.processors, Some(&file), LOAD_LIMIT).unwrap();
        let run = one(&options, &server).unwrap();
        assert!(run.rounds > 0 && run.deleted > Duration::ZERO, "{} rounds", run.rounds);
        assert_eq!(run.points.len() as u32, PARTS[PARTS.len() - 1].2 * SAMPLES);
        assert!(run.points.iter().map(|point| point.1).sum::<f64>() > 0.0);
        let mut connection = server.connect(options.limit).unwrap();
        for set in ARTICLE_SETS {
            assert_eq!(connection.ask(&["EXISTS", set]).unwrap().number(), 0, "{set}");
        }
        let left = connection.ask(&["LLEN", ARTICLE_LIST]).unwrap().number();
        assert!(left > 0 && left < options.scale.elements as i64, "{left}");
        write_report(&options, &options.subjects()[..1], &[Ok(run)]).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
    }
}

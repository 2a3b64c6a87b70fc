//! `populate`: how long DEBUG POPULATE of twenty million keys takes, and the bytes for each key.

use std::time::{Duration, Instant};

use crate::data::count_text;
use crate::fault::Outcome;
use crate::options::Options;
use crate::plot::{self, Series};
use crate::process::{Server, Subject};
use crate::report::{Report, Table, brief};
use crate::summary::{median, mib_text, nanos, ratio_text, time_text};

/// The result of one run.
#[derive(Clone, Copy, Debug)]
struct Filled {
    seconds: f64,
    bytes: f64,
}

/// Fills each server in turn, `repeats` times, and writes the report.
pub(crate) fn run(options: &Options) -> Outcome<()> {
    let keys = options.scale.populated();
    let subjects = options.subjects();
    let mut filled: Vec<Result<Vec<Filled>, String>> = vec![Ok(Vec::new()); subjects.len()];
    for _ in 0..options.repeats {
        for (subject, runs) in subjects.iter().zip(&mut filled) {
            let Ok(list) = runs else { continue };
            match fill(options, subject, keys) {
                Ok(one) => list.push(one),
                Err(fault) => *runs = Err(fault.to_string()),
            }
        }
    }
    write_report(options, keys, &subjects, &filled)
}

fn fill(options: &Options, subject: &Subject, keys: u64) -> Outcome<Filled> {
    let server = Server::start(subject, &options.processors, None, Duration::from_secs(20))?;
    let empty = server.resident_bytes();
    let mut connection = server.connect(options.limit)?;
    let started = Instant::now();
    connection.ask(&["DEBUG", "POPULATE", &keys.to_string()])?;
    let seconds = started.elapsed().as_secs_f64();
    let found = connection.ask(&["DBSIZE"])?.number();
    if found != keys as i64 {
        return Err(crate::fault::Fault::Setup(format!("{found} keys instead of {keys}")));
    }
    let bytes = server.resident_bytes().saturating_sub(empty) as f64;
    eprintln!("{}: {seconds:.2} s, {:.1} bytes a key", subject.name(), bytes / keys as f64);
    Ok(Filled { seconds, bytes })
}

fn write_report(
    options: &Options,
    keys: u64,
    subjects: &[Subject],
    filled: &[Result<Vec<Filled>, String>],
) -> Outcome<()> {
    let title = format!("DEBUG POPULATE of {} keys", count_text(keys));
    let mut report = Report::new(&options.results, "populate", &title, &options.processors);
    let middle = |subject: usize, what: fn(&Filled) -> f64| {
        let runs = filled[subject].as_ref().ok()?;
        median(&runs.iter().map(what).collect::<Vec<_>>())
    };
    let mut table =
        Table::new(&["server", "time", "ratio", "above empty MiB", "ratio", "bytes per key"]);
    let (mut times, mut sizes) = (Vec::new(), Vec::new());
    for (number, subject) in subjects.iter().enumerate() {
        let mut line = vec![subject.name()];
        if let Err(text) = &filled[number] {
            line.push(brief(text));
        }
        if let (Some(seconds), Some(bytes)) =
            (middle(number, |one| one.seconds), middle(number, |one| one.bytes))
        {
            let of_first = |own: f64, what| middle(0, what).map_or(f64::NAN, |first| own / first);
            line.push(time_text(nanos(Duration::from_secs_f64(seconds))));
            line.push(ratio_text(of_first(seconds, |one| one.seconds)));
            line.push(mib_text(bytes as u64));
            line.push(ratio_text(of_first(bytes, |one| one.bytes)));
            line.push(format!("{:.1}", bytes / keys as f64));
            times.push(Series { name: subject.name(), points: vec![(0.0, seconds)] });
            let points = vec![(0.0, bytes / keys as f64)];
            sizes.push(Series { name: subject.name(), points });
        }
        table.row(line);
    }
    report.say(&format!("Medians of {} runs.", options.repeats));
    report.say(&table.markdown());
    let group = [count_text(keys) + " keys"];
    report.picture("time", &title, &plot::bars(&title, "seconds", &group, &times))?;
    report.picture("memory", &title, &plot::bars(&title, "bytes a key", &group, &sizes))?;
    report.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::TempFolder;

    #[test] // In miniature.
    fn the_report_shows_redis_figures_without_a_darter() {
        let folder = TempFolder::create().unwrap();
        let words = ["populate", "--darter", "/nonexistent", "--cores", "1"];
        run(&Options::miniature(&words, folder.path())).unwrap();
        let files = std::fs::read_dir(folder.path()).unwrap().flatten();
        let markdown = files.map(|file| file.path()).find(|path| path.extension().unwrap() == "md");
        let text = std::fs::read_to_string(markdown.unwrap()).unwrap();
        let row = text.lines().find(|line| line.starts_with("| redis-server")).unwrap();
        assert_eq!(row.matches(" 1.00 |").count(), 2, "{row}");
        assert!(
            text.contains("| darter, 1 core") && text.contains("ended while starting"),
            "{text}"
        );
    }
}

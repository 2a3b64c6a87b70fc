//! `load`: how long a server takes to load an RDB file of each type, and how much memory it then
//! uses.
//!
//! The file is written by redis-server, in its own encodings (lists as compressed nodes, where
//! `bigkey` has plain elements): redis-server loads the file that this tool writes, and saves it
//! again. Every server then starts with that file. The time from its start to its first PONG and
//! its resident memory are shown as differences from the same server with the small keys only,
//! which every file has. CPU time is that of all threads, because Darter's loader thread has ended
//! by then.
//!
//! While a server loads, the tool connects every 5 ms and sends a command: the longest wait for
//! -LOADING is shown next to the server's own longest slice.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::data::{Data, Scale};
use crate::fault::Outcome;
use crate::options::Options;
use crate::process::{Program, Server, Slices, Subject, TempFolder};
use crate::report::{Report, Table, brief};
use crate::summary::{median, mib_text, nanos, ratio_text, time_text};

/// How long loading a file may take.
const LIMIT: Duration = Duration::from_secs(300);

/// The data sets to load, each by itself, and at the end all together.
const TABLE: &[Data] = &[
    Data::Keys,
    Data::Text,
    Data::Hash,
    Data::Uuids,
    Data::Integers,
    Data::Numbers,
    Data::Ids,
    Data::Scores,
    Data::Sketches,
    Data::Everything,
];

/// One start of a server.
#[derive(Clone, Debug)]
struct Start {
    ready_ns: f64,
    cpu_ns: f64,
    bytes: f64,
    waited_ns: f64,
    slices: Option<Slices>,
}

/// All starts with one file, by subject.
struct Row {
    data: Data,
    starts: Vec<Result<Vec<Start>, String>>,
}

/// Measures all rows and writes the report.
pub(crate) fn run(options: &Options) -> Outcome<()> {
    let subjects = options.single_core_subjects();
    let folder = TempFolder::create()?;
    let small = written(options, &subjects, Data::Small, folder.path())?;
    let empty: Vec<Option<Start>> =
        subjects.iter().map(|subject| start(options, subject, &small).ok()).collect();
    let mut rows = Vec::new();
    for &data in TABLE.iter().filter(|data| options.wants(&data.name(&options.scale))) {
        let folder = TempFolder::create()?;
        let file = written(options, &subjects, data, folder.path())?;
        rows.push(measure(options, &subjects, &empty, data, &file));
        eprintln!("{}", progress(&options.scale, &subjects, rows.last()));
    }
    write_report(options, &subjects, &rows)
}

/// The file with this data as redis-server writes it. Without a redis-server, as this tool writes
/// it.
fn written(options: &Options, subjects: &[Subject], data: Data, folder: &Path) -> Outcome<PathBuf> {
    let file = folder.join("dump.rdb");
    data.write(&options.scale, &file)?;
    let is_redis = |subject: &&Subject| matches!(subject.program, Program::Redis(_));
    if let Some(redis) = subjects.iter().find(is_redis) {
        let server = Server::start(redis, &options.processors, Some(&file), LIMIT)?;
        server.connect(LIMIT)?.ask(&["SAVE"])?;
        std::fs::remove_file(&file)?;
        std::fs::copy(server.file(), &file)?;
    }
    Ok(file)
}

fn measure(
    options: &Options,
    subjects: &[Subject],
    empty: &[Option<Start>],
    data: Data,
    file: &Path,
) -> Row {
    let mut starts: Vec<Result<Vec<Start>, String>> = vec![Ok(Vec::new()); subjects.len()];
    for _ in 0..options.repeats {
        for (number, subject) in subjects.iter().enumerate() {
            let Ok(list) = &mut starts[number] else { continue };
            match (start(options, subject, file), &empty[number]) {
                (Ok(one), Some(empty)) => list.push(Start {
                    ready_ns: (one.ready_ns - empty.ready_ns).max(0.0),
                    cpu_ns: (one.cpu_ns - empty.cpu_ns).max(0.0),
                    bytes: (one.bytes - empty.bytes).max(0.0),
                    ..one
                }),
                (Ok(_), None) => starts[number] = Err("did not start with small keys".to_owned()),
                (Err(fault), _) => starts[number] = Err(fault.to_string()),
            }
        }
    }
    Row { data, starts }
}

fn start(options: &Options, subject: &Subject, file: &Path) -> Outcome<Start> {
    let server = Server::start(subject, &options.processors, Some(file), LIMIT)?;
    Ok(Start {
        ready_ns: nanos(server.ready_after) as f64,
        cpu_ns: server.cpu_ns_of_all() as f64,
        bytes: server.resident_bytes() as f64,
        waited_ns: nanos(server.waited) as f64,
        slices: Slices::ask(&mut server.connect(LIMIT)?),
    })
}

fn middle(row: &Row, subject: usize, what: fn(&Start) -> f64) -> Option<f64> {
    let starts = row.starts.get(subject)?.as_ref().ok()?;
    median(&starts.iter().map(what).collect::<Vec<_>>())
}

fn ratio(row: &Row, subject: usize, what: fn(&Start) -> f64) -> f64 {
    let of = |subject| middle(row, subject, what);
    of(subject).zip(of(0)).map_or(f64::NAN, |(own, first)| own / first)
}

fn progress(scale: &Scale, subjects: &[Subject], row: Option<&Row>) -> String {
    let Some(row) = row else { return String::new() };
    let mut text = format!("{}:", row.data.name(scale));
    for (number, subject) in subjects.iter().enumerate() {
        let ready_ns = middle(row, number, |one| one.ready_ns).unwrap_or(f64::NAN);
        text.push_str(&format!(" {} {}", subject.name(), time_text(ready_ns as u64)));
    }
    text
}

fn write_report(options: &Options, subjects: &[Subject], rows: &[Row]) -> Outcome<()> {
    let title = "Loading RDB files";
    let mut report = Report::new(&options.results, "load", title, &options.processors);
    report.say(&format!(
        "From a server's start to its first PONG, and resident memory then, less the same with a \
         file of the small keys only, which each file has; all were written by redis-server. \
         Medians of {} starts, each server on one core; a ratio is that to {}. Of all starts: the \
         longest wait of a client that connects meanwhile for -LOADING, and the longest slice.",
        options.repeats,
        subjects.first().map_or_else(String::new, Subject::name)
    ));
    let head = ["data", "server", "loaded after", "ratio", "CPU", "ratio", "MiB", "ratio"];
    let more = ["bytes an element", "waited", "longest slice µs", "slices above 512 µs"];
    let mut table = Table::new(&[&head[..], &more].concat());
    for row in rows {
        for (number, subject) in subjects.iter().enumerate() {
            let mut line = vec![row.data.name(&options.scale), subject.name()];
            match &row.starts[number] {
                Ok(starts) => {
                    line.extend(cells(row, number, &options.scale));
                    line.extend(delays(starts));
                }
                Err(text) => line.push(brief(text)),
            }
            table.row(line);
        }
    }
    report.say(&table.markdown());
    report.finish()
}

fn cells(row: &Row, subject: usize, scale: &Scale) -> Vec<String> {
    let value = |what| middle(row, subject, what).unwrap_or(f64::NAN);
    let bytes = value(|one| one.bytes);
    let elements = row.data.elements(scale);
    vec![
        time_text(value(|one| one.ready_ns) as u64),
        ratio_text(ratio(row, subject, |one| one.ready_ns)),
        time_text(value(|one| one.cpu_ns) as u64),
        ratio_text(ratio(row, subject, |one| one.cpu_ns)),
        mib_text(bytes as u64),
        ratio_text(ratio(row, subject, |one| one.bytes)),
        if elements > 1 { format!("{:.1}", bytes / elements as f64) } else { "–".to_owned() },
    ]
}

/// The longest wait for an answer, the longest slice, and the number of slices above 512 µs.
fn delays(starts: &[Start]) -> [String; 3] {
    let waited_ns = starts.iter().map(|one| one.waited_ns).fold(0.0, f64::max);
    let slices: Vec<_> = starts.iter().filter_map(|one| one.slices.as_ref()).collect();
    let longest = slices.iter().max_by_key(|slices| slices.longest_us);
    let sum = |what: fn(&Slices) -> u64| slices.iter().map(|slices| what(slices)).sum::<u64>();
    let over = format!("{} of {}", sum(|slices| slices.over_512us), sum(|slices| slices.all));
    let [longest, over] = match longest {
        Some(longest) => [format!("{} {}", longest.longest_us, longest.cause), over],
        None => ["–".to_owned(), "–".to_owned()],
    };
    [time_text(waited_ns as u64), longest, over]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // In miniature.
    fn redis_writes_and_loads_a_file_of_each_type() {
        let folder = TempFolder::create().unwrap();
        let words = ["load", "--darter", "/nonexistent", "--cores", "1"];
        run(&Options::miniature(&words, folder.path())).unwrap();
        let files = std::fs::read_dir(folder.path()).unwrap().flatten();
        let markdown = files.map(|file| file.path()).find(|path| path.extension().unwrap() == "md");
        let text = std::fs::read_to_string(markdown.unwrap()).unwrap();
        let rows = text.lines().filter(|line| line.contains(" redis-server |"));
        assert_eq!(rows.count(), TABLE.len(), "{text}"); // So little data is loaded at once.
        assert_eq!(text.matches("did not start with small").count(), 0, "{text}");
        assert_eq!(text.matches("ended while starting").count(), TABLE.len(), "{text}");
    }
}

//! `bigkey`: every big command beside other clients' small ones, on each server.
//!
//! An experiment has these clients on the client's processor: the big one that acts, a paced stream
//! of GETs on other keys, one on the same key, and the [`probes`]. The streams run for a while before
//! the act ("outside"), during it, and for a second after its reply, which belongs to the act: a
//! server that answers DEL at once and frees afterwards must not look better for it.
//!
//! Two figures do not depend on the machine: the ratio of others' waits during the act to those
//! outside it, and the server's longest slice next to the `control`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Streamed;
use crate::control::{Control, Delays};
use crate::data::{self, Data, SMALL_KEYS, Scale};
use crate::fault::Outcome;
use crate::options::Options;
use crate::plot::{self, Panel};
use crate::prng::Prng;
use crate::process::{Server, Slices, Subject, TempFolder};
use crate::report::{Report, Table, brief};
use crate::stream::{self, Plan, Record, Request};
use crate::summary::{Sample, Summary, median, mib_text, nanos, ratio_text, time_text};
use experiments::{Actor, Experiment, Picture, TABLE};
use probes::PROBES;

mod experiments;
mod probes;

/// How long loading a file may take.
const LOAD_LIMIT: Duration = Duration::from_secs(300);

/// The longest that the control is compared with a busy server.
const CONTROL_LIMIT: Duration = Duration::from_secs(20);

/// The result of one experiment on one server.
struct Measured {
    streamed: Streamed,
    begin_ns: u64,
    end_ns: u64,
    others: Vec<Sample>,
    during: Summary,
    /// The other clients' waits during the act, without the second after its reply.
    running: Summary,
    outside: Summary,
    same: Option<Summary>,
    /// The waits of each probe: during the act, and outside it.
    probes: Vec<[Summary; 2]>,
    /// The server's own slices, if it reports them.
    slices: Option<Slices>,
    /// The delays that the control saw.
    control: Delays,
    /// CPU time of the server, on all cores.
    busy: Duration,
    peak_more_bytes: u64,
    resident_bytes: u64,
    /// The latest wake-up of a stream in the client.
    late_ns: u64,
    /// How long the server was runnable while others had its processor.
    held_up_ns: u64,
    errors: u64,
}

/// One result for the comparison.
struct Entry {
    experiment: &'static Experiment,
    subject: usize,
    result: Result<Measured, String>,
}

/// How a server loaded a file.
struct Loaded {
    data: Data,
    subject: usize,
    /// The time until the server was ready, one for each start.
    ready_after_ns: Vec<f64>,
    /// Resident memory after each start.
    resident_bytes: Vec<f64>,
}

/// All results of a run.
struct Results {
    subjects: Vec<Subject>,
    /// Resident memory of each subject without data.
    empty: Vec<u64>,
    loads: Vec<Loaded>,
    entries: Vec<Entry>,
}

/// Runs all experiments and writes the report.
pub(crate) fn run(options: &Options) -> Outcome<()> {
    let results = measure_all(options)?;
    report(options, &results)?.finish()
}

/// Measures, and rewrites the report after each set of data, so that an interrupted run leaves the
/// results it has.
fn measure_all(options: &Options) -> Outcome<Results> {
    let subjects = options.subjects();
    let chosen: Vec<&'static Experiment> =
        TABLE.iter().filter(|row| options.wants(row.name)).collect();
    let empty: Vec<u64> = subjects.iter().map(|subject| empty_bytes(options, subject)).collect();
    let mut results = Results { subjects, empty, loads: Vec::new(), entries: Vec::new() };
    for group in chosen.chunk_by(|one, next| one.data == next.data) {
        let folder = TempFolder::create()?;
        let file = folder.path().join("dump.rdb");
        eprintln!("writing {}", group[0].data.name(&options.scale));
        group[0].data.write(&options.scale, &file)?;
        for subject in 0..results.subjects.len() {
            let Results { subjects, loads, entries, .. } = &mut results;
            let mut bench = Bench { options, subjects, subject, file: &file };
            bench.group(group, entries, loads);
        }
        report(options, &results)?.save()?;
    }
    Ok(results)
}

fn empty_bytes(options: &Options, subject: &Subject) -> u64 {
    // A server that does not start shows that in its rows. Here its memory counts as 0.
    Server::start(subject, &options.processors, None, Duration::from_secs(20))
        .map_or(0, |server| server.resident_bytes())
}

/// A server that is measured with one data file.
struct Bench<'a> {
    options: &'a Options,
    subjects: &'a [Subject],
    subject: usize,
    file: &'a Path,
}

impl Bench<'_> {
    /// Runs the experiments of one data set, each on a server of its own.
    fn group(
        &mut self,
        group: &[&'static Experiment],
        entries: &mut Vec<Entry>,
        loads: &mut Vec<Loaded>,
    ) {
        let (subject, data) = (self.subject, group[0].data);
        let (mut ready_after_ns, mut resident_bytes) = (Vec::new(), Vec::new());
        let mut refused: Option<String> = None;
        for &experiment in group {
            // A server that did not start for one row will not start for the next either.
            let started = match &refused {
                Some(text) => Err(text.clone()),
                None => self.start(data).map_err(|fault| fault.to_string()),
            };
            if let Err(text) = &started {
                refused = Some(text.clone());
            }
            let result = started.and_then(|mut server| {
                ready_after_ns.push(nanos(server.ready_after) as f64);
                resident_bytes.push(server.resident_bytes() as f64);
                self.measure(&mut server, experiment).map_err(|fault| fault.to_string())
            });
            eprintln!("{}", progress(&self.subjects[subject], experiment, &result));
            entries.push(Entry { experiment, subject, result });
        }
        loads.push(Loaded { data, subject, ready_after_ns, resident_bytes });
    }

    fn start(&self, data: Data) -> Outcome<Server> {
        let subject = &self.subjects[self.subject];
        let processors = &self.options.processors;
        let server = Server::start(subject, processors, Some(self.file), LOAD_LIMIT)?;
        if data == Data::Populated {
            let count = self.options.scale.populated().to_string();
            server.connect(LOAD_LIMIT)?.ask(&["DEBUG", "POPULATE", &count])?;
        }
        Ok(server)
    }

    fn measure(&self, server: &mut Server, experiment: &Experiment) -> Outcome<Measured> {
        let options = self.options;
        let mut admin = server.connect(options.limit)?;
        // A server without these statistics replies with an error. The report then shows no slice.
        let _ = admin.ask(&["CONFIG", "RESETSTAT"]);
        let connection = server.connect(options.limit)?;
        let (port, scale, limit) = (server.port, options.scale, options.limit);
        let mut actor = Actor { connection, port, scale, limit };
        server.forget_peak();
        let resident_before = server.resident_bytes();
        let cores = self.subjects[self.subject].cores;
        let control = Control::start(options.processors.server(cores), options.tail);

        let plan = Arc::new(Plan::start());
        let others = self.spawn(server, &plan, options.rate, |_, prng, request| {
            let key = data::small_key(prng.below(SMALL_KEYS));
            crate::client::command(request, &[&b"GET"[..], &key]);
        })?;
        let same = experiment.same.map(|touch| {
            self.spawn(server, &plan, options.rate / 2, move |number, prng, request| {
                touch(&scale, number, prng, request);
            })
        });
        let probes = probes::spawn(server, options, &plan)?;
        std::thread::sleep(options.lead);
        let held_up_before_ns = server.held_up_ns();
        let cpu_before_ns = server.cpu_ns();
        let begin_ns = plan.now_ns();
        let acted = (experiment.act)(&mut actor);
        let end_ns = plan.now_ns();
        if acted.is_err() {
            server.kill(); // The big client may hang, but the streams must end.
        }
        std::thread::sleep(options.tail);
        plan.end();
        let others = join(others);
        let same = same.transpose()?.map(join);
        let probes: Vec<Record> = probes.into_iter().map(join).collect();
        let streamed = acted?;
        let slices = Slices::ask(&mut admin);
        let busy = Duration::from_nanos(server.cpu_ns().saturating_sub(cpu_before_ns));
        let held_up_ns = server.held_up_ns().saturating_sub(held_up_before_ns);
        let span = control_span(options, slices.as_ref(), busy / cores.max(1) as u32);
        let last_ns = end_ns + nanos(options.tail);
        Ok(Measured {
            streamed,
            begin_ns,
            end_ns,
            during: Summary::between(&others.samples, begin_ns, last_ns),
            running: Summary::between(&others.samples, begin_ns, end_ns),
            outside: Summary::between(&others.samples, 0, begin_ns),
            same: same.as_ref().map(|same| Summary::between(&same.samples, begin_ns, last_ns)),
            probes: probes.iter().map(|probe| halves(probe, begin_ns, last_ns)).collect(),
            slices,
            control: control.end(span),
            busy,
            peak_more_bytes: server.peak_bytes().saturating_sub(resident_before),
            resident_bytes: server.resident_bytes(),
            late_ns: others.late_ns_max,
            held_up_ns,
            errors: others.errors,
            others: others.samples,
        })
    }

    fn spawn(
        &self,
        server: &Server,
        plan: &Arc<Plan>,
        rate: u64,
        request: impl Fn(u64, &mut Prng, &mut Vec<u8>) + Send + Sync + 'static,
    ) -> Outcome<std::thread::JoinHandle<Record>> {
        let connection = server.connect(self.options.limit + self.options.tail)?;
        let plan = Arc::clone(plan);
        let request: Box<Request> = Box::new(request);
        Ok(std::thread::spawn(move || stream::run(connection, &plan, rate.max(1), &*request)))
    }
}

/// Summarises the exchanges that were due during an act, and those due before it.
fn halves(record: &Record, begin_ns: u64, end_ns: u64) -> [Summary; 2] {
    [(begin_ns, end_ns), (0, begin_ns)]
        .map(|(from_ns, to_ns)| Summary::between(&record.samples, from_ns, to_ns))
}

fn join(thread: std::thread::JoinHandle<Record>) -> Record {
    thread.join().unwrap_or_default()
}

/// How long the control runs without a pause at the end: as long as a core of the server was busy,
/// so that the machine had as much time to disturb it, and at most [`CONTROL_LIMIT`].
fn control_span(options: &Options, slices: Option<&Slices>, busy: Duration) -> Duration {
    if slices.is_none() {
        return options.tail; // Without slices there is nothing to compare with.
    }
    busy.clamp(options.tail, CONTROL_LIMIT.max(options.tail))
}

fn progress(
    subject: &Subject,
    experiment: &Experiment,
    result: &Result<Measured, String>,
) -> String {
    let what = match result {
        Ok(measured) => format!(
            "{}, others' longest wait {}",
            time_text(nanos(measured.streamed.whole)),
            time_text(measured.during.max_ns)
        ),
        Err(text) => text.clone(),
    };
    format!("{} · {}: {what}", subject.name(), experiment.name)
}

fn report(options: &Options, results: &Results) -> Outcome<Report> {
    let Results { subjects, empty, loads, entries } = results;
    let title = "Big keys: what everybody else waits for";
    let mut report = Report::new(&options.results, "bigkey", title, &options.processors);
    report.say(&format!(
        "Streams: {} GET/s on {} other keys, {} requests/s on the big key, open loop (each latency \
         counts from when the request was due). \"During\" is the command and the second after \
         its reply. Scale: {} elements.",
        options.rate,
        data::count_text(SMALL_KEYS),
        options.rate / 2,
        data::count_text(options.scale.elements)
    ));
    report.say("## Side by side");
    report.say(
        "Others max: the longest wait of a GET on another key. P99.9 during / outside: that of \
         all those waits while the command runs, by that before it. Command: from its request to \
         the end of its reply.",
    );
    report.say(&side_by_side(subjects, entries).markdown());
    for row in TABLE.iter().filter(|row| row.picture == Picture::Drawn) {
        draw(&mut report, options, subjects, row, entries)?;
    }
    report.say("## Loading the same RDB file, and memory");
    report.say(&loading(&options.scale, subjects, empty, loads).markdown());
    report.say("## Others' latency: during the command, outside of it, and the ratio");
    report.say(
        "A ratio near 1 says that others did not notice the command, however noisy the machine \
         was. The longest of all is one wait among many: its ratio says little alone.",
    );
    report.say(&latencies(subjects, entries).markdown());
    report.say("## Other probes: a writer, a hand-over pair, short connections");
    report.say(
        "Writer: SET of small keys and RPUSH to small lists. Hand-over: from a push to the reply of a \
         client that waits in BLPOP. Short connection: connect, one GET, close.",
    );
    report.say(&probed(subjects, entries).markdown());
    report.say("## The big client and the server");
    report.say(
        "Control: the longest that a loop of 10 µs, which does nothing, took on the server's \
         processor, by the clock that slices are measured by. A slice above it is the server's \
         own; one that is not (\\*) may be the machine's. The last two columns tell the rest of \
         its noise: how late the client's stream itself woke at most, and how long in all the \
         server was ready to run while another process had its processor.",
    );
    report.say(&costs(subjects, entries).markdown());
    Ok(report)
}

fn find<'a>(entries: &'a [Entry], name: &str, subject: usize) -> Option<&'a Entry> {
    entries.iter().find(|entry| entry.experiment.name == name && entry.subject == subject)
}

fn draw(
    report: &mut Report,
    options: &Options,
    subjects: &[Subject],
    row: &Experiment,
    entries: &[Entry],
) -> Outcome<()> {
    let panels: Vec<Panel<'_>> = (0..subjects.len())
        .filter_map(|subject| {
            let entry = find(entries, row.name, subject)?;
            let measured = entry.result.as_ref().ok()?;
            Some(Panel {
                name: subjects[subject].name(),
                samples: &measured.others,
                begin_ns: measured.begin_ns,
                end_ns: measured.end_ns,
                max_ns: measured.during.max_ns,
            })
        })
        .collect();
    if panels.is_empty() {
        return Ok(());
    }
    let title = format!("{} on {}", row.name, row.data.name(&options.scale));
    let note = format!(
        "Each dot is a GET of another client on another key ({} a second): how long it waited. \
         Shaded: the command.",
        options.rate
    );
    let part: String = row.name.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    report.picture(part.trim_matches('-'), &title, &plot::stall(&title, &note, &panels))
}

/// The rows of one table in the experiments' order, each with all its servers' results.
fn by_experiment<'a>(
    subjects: &'a [Subject],
    entries: &'a [Entry],
) -> impl Iterator<Item = (&'static Experiment, Vec<Option<&'a Entry>>)> {
    TABLE.iter().filter_map(move |row| {
        let cells: Vec<_> =
            (0..subjects.len()).map(|subject| find(entries, row.name, subject)).collect();
        cells.iter().any(Option::is_some).then_some((row, cells))
    })
}

/// One column of the comparison: its figure and its format.
struct Measure {
    head: &'static str,
    value: fn(&Measured) -> f64,
    text: fn(f64) -> String,
}

#[rustfmt::skip] // A table: one row a measure, columns aligned.
const MEASURES: &[Measure] = &[
    Measure { head: "others max",               value: |one| one.during.max_ns as f64,          text: |ns| time_text(ns as u64) },
    Measure { head: "P99.9 during / outside",   value: |one| quotient(one, |of| of.p999_ns),    text: ratio_text },
    Measure { head: "command",                  value: |one| nanos(one.streamed.whole) as f64,  text: |ns| time_text(ns as u64) },
];

/// The verdict on others' waits: a percentile during the command over that outside it.
fn quotient(measured: &Measured, percentile: fn(&Summary) -> u64) -> f64 {
    percentile(&measured.during) as f64 / percentile(&measured.outside) as f64
}

/// The measures of all servers, with the ratio of each to the first.
fn side_by_side(subjects: &[Subject], entries: &[Entry]) -> Table {
    let mut head = vec!["experiment".to_owned()];
    for measure in MEASURES {
        for (number, subject) in subjects.iter().enumerate() {
            head.push(format!("{}: {}", measure.head, subject.name()));
            if number > 0 {
                head.push("ratio".to_owned());
            }
        }
    }
    let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());
    for (row, cells) in by_experiment(subjects, entries) {
        let mut line = vec![row.name.to_owned()];
        for measure in MEASURES {
            let measured = |cell: &Option<&Entry>| {
                let result = cell.and_then(|entry| entry.result.as_ref().ok());
                result.map(measure.value)
            };
            let values: Vec<Option<f64>> = cells.iter().map(measured).collect();
            for (number, value) in values.iter().enumerate() {
                line.push(value.map_or("failed".to_owned(), measure.text));
                if number > 0 {
                    let ratio = value.zip(values[0]).map(|(own, first)| own / first);
                    line.push(ratio.map_or("–".to_owned(), ratio_text));
                }
            }
        }
        table.row(line);
    }
    table
}

fn loading(scale: &Scale, subjects: &[Subject], empty: &[u64], loads: &[Loaded]) -> Table {
    let mut table = Table::new(&[
        "data",
        "server",
        "ready after",
        "ratio",
        "resident MiB",
        "above empty MiB",
        "ratio",
        "bytes per element",
    ]);
    let middle = |load: &Loaded| {
        let above = median(&load.resident_bytes)? - empty[load.subject] as f64;
        Some((median(&load.ready_after_ns)?, above.max(0.0)))
    };
    for load in loads {
        let mut line = vec![load.data.name(scale), subjects[load.subject].name()];
        let first = loads.iter().find(|one| one.data == load.data && one.subject == 0);
        let first = first.and_then(middle).unwrap_or((f64::NAN, f64::NAN));
        let Some((after_ns, above)) = middle(load) else {
            line.push("did not start".to_owned());
            table.row(line);
            continue;
        };
        line.push(time_text(after_ns as u64));
        line.push(ratio_text(after_ns / first.0));
        line.push(mib_text(above as u64 + empty[load.subject]));
        line.push(mib_text(above as u64));
        line.push(ratio_text(above / first.1));
        let elements = load.data.elements(scale) as f64;
        line.push(if elements > 1.0 { format!("{:.1}", above / elements) } else { "–".into() });
        table.row(line);
    }
    table
}

/// A percentile by its name.
type Percentile = (&'static str, fn(&Summary) -> u64);

/// The percentiles of the verdict.
#[rustfmt::skip] // A table.
const PERCENTILES: &[Percentile] = &[
    ("P50",   |one| one.p50_ns),
    ("P99",   |one| one.p99_ns),
    ("P99.9", |one| one.p999_ns),
    ("max",   |one| one.max_ns),
];

fn latencies(subjects: &[Subject], entries: &[Entry]) -> Table {
    let heads = ["", "outside ", "ratio "].iter().flat_map(|part| {
        PERCENTILES.iter().map(move |(percentile, _)| format!("{part}{percentile}"))
    });
    let first = ["experiment", "server"].map(str::to_owned).into_iter();
    let last = ["until its reply P50", "until its reply P99", "same key P99.9", "same key max"];
    let last = last.map(str::to_owned);
    let heads: Vec<String> = first.chain(heads).chain(last).collect();
    let table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    row_by_row(table, subjects, entries, |measured, line| {
        for summary in [&measured.during, &measured.outside] {
            line.extend(PERCENTILES.iter().map(|(_, value)| time_text(value(summary))));
        }
        let ratios = PERCENTILES.iter().map(|(_, value)| quotient(measured, *value));
        line.extend(ratios.map(ratio_text));
        let same = |value: fn(&Summary) -> u64| {
            measured.same.as_ref().map_or("–".to_owned(), |one| time_text(value(one)))
        };
        let running = [measured.running.p50_ns, measured.running.p99_ns];
        line.extend(running.map(time_text));
        line.extend([same(|one| one.p999_ns), same(|one| one.max_ns)]);
    })
}

fn probed(subjects: &[Subject], entries: &[Entry]) -> Table {
    let heads = PROBES.iter().flat_map(|probe| {
        ["P99", "ratio P99", "max"].map(|figure| format!("{} {figure}", probe.name))
    });
    let first = ["experiment", "server"].map(str::to_owned).into_iter();
    let heads: Vec<String> = first.chain(heads).collect();
    let table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    row_by_row(table, subjects, entries, |measured, line| {
        line.extend(measured.probes.iter().flat_map(|[during, outside]| {
            let ratio = ratio_text(during.p99_ns as f64 / outside.p99_ns as f64);
            [time_text(during.p99_ns), ratio, time_text(during.max_ns)]
        }));
    })
}

fn costs(subjects: &[Subject], entries: &[Entry]) -> Table {
    let table = Table::new(&[
        "experiment",
        "server",
        "first byte",
        "whole",
        "reply MB",
        "longest slice µs",
        "its cause",
        "control µs",
        "slices above 512 µs",
        "of these the host's",
        "peak above before MiB",
        "resident after MiB",
        "errors",
        "client woke late by",
        "server held up",
    ]);
    row_by_row(table, subjects, entries, |measured, line| {
        line.push(time_text(nanos(measured.streamed.first_byte)));
        line.push(time_text(nanos(measured.streamed.whole)));
        line.push(format!("{:.1}", measured.streamed.bytes as f64 / 1e6));
        line.extend(slice_texts(measured));
        line.push(mib_text(measured.peak_more_bytes));
        line.push(mib_text(measured.resident_bytes));
        line.push(measured.errors.to_string());
        line.push(time_text(measured.late_ns));
        line.push(time_text(measured.held_up_ns));
    })
}

/// Fills a table with a row for each experiment and server: both names, then the cells that `fill`
/// appends, or why there is no result.
fn row_by_row(
    mut table: Table,
    subjects: &[Subject],
    entries: &[Entry],
    fill: impl Fn(&Measured, &mut Vec<String>),
) -> Table {
    for (row, cells) in by_experiment(subjects, entries) {
        for entry in cells.into_iter().flatten() {
            let mut line = vec![row.name.to_owned(), subjects[entry.subject].name()];
            match &entry.result {
                Ok(measured) => fill(measured, &mut line),
                Err(text) => line.push(brief(text)),
            }
            table.row(line);
        }
    }
    table
}

/// The longest slice, marked if it is not above the control. Its cause. The control's longest
/// delay. How many slices were above 512 µs. How many of these the host alone would be expected to
/// cause, judged by the control.
fn slice_texts(measured: &Measured) -> [String; 5] {
    let control_us = measured.control.longest_ns / 1_000;
    let (control, none) = (control_us.to_string(), || "–".to_owned());
    let Some(slices) = &measured.slices else {
        return [none(), none(), control, none(), none()];
    };
    let mark = if slices.longest_us > control_us { "" } else { " *" };
    let longest = format!("{}{mark}", slices.longest_us);
    let over = format!("{} of {}", slices.over_512us, slices.all);
    let expected = format!("{:.1}", measured.control.expected(measured.busy));
    [longest, slices.cause.clone(), control, over, expected]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Every experiment runs against redis-server, in miniature, and the report is written.
    fn all_experiments_work_on_redis() {
        let folder = TempFolder::create().unwrap();
        let options = Options::miniature(&["bigkey", "--darter", "/nonexistent"], folder.path());
        let results = measure_all(&options).unwrap();
        for entry in &results.entries {
            let name = entry.experiment.name;
            match (&entry.result, entry.subject) {
                (Ok(measured), 0) => {
                    assert_eq!(measured.errors, 0, "{name}");
                    assert!(measured.during.max_ns > 0, "{name}");
                }
                (Ok(_), _) => panic!("{name}: a server that does not exist was measured"),
                (Err(text), 0) if experiments::OWN.contains(&name) => {
                    assert!(text.contains("unknown command"), "{name}: {text}");
                }
                (Err(text), subject) => assert!(subject > 0, "{name}: {text}"),
            }
        }
        let measured = || results.entries.iter().filter_map(|entry| entry.result.as_ref().ok());
        for (at, probe) in PROBES.iter().enumerate() {
            let is_seen = |one: &Measured| one.probes[at].iter().any(|part| part.max_ns > 0);
            assert!(measured().any(is_seen), "{}: not one exchange", probe.name);
        }
        assert_eq!(results.entries.len(), TABLE.len() * results.subjects.len());
        let names = std::fs::read_dir(folder.path()).unwrap();
        let pictures = TABLE.iter().filter(|row| row.picture == Picture::Drawn).count();
        assert_eq!(names.count(), pictures + 1);
    }
}

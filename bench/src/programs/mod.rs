//! `programs`: the server's cost of transactions, scripts, messages, queues and invalidations.
//!
//! Independent requests (a transaction, a script) are sent by the saturating client for their CPU
//! time, and by a single client, one batch after the other, for their latency. Where clients notify
//! each other (messages, hand-overs, invalidations) both come from the same rounds: see `rounds`.
//! Servers are measured in pairs as in `throughput`: the ratio is that within a pair, to
//! redis-server on as many processors, whose clients are the same and wait in the same way. Very
//! many subscriptions are measured step by step, once: see `crowds`.
//!
//! A feature that a server lacks is a cell that says so.

mod crowds;
mod rounds;

use std::time::{Duration, Instant};

use crate::client::{self, Connection};
use crate::fault::{Fault, Outcome};
use crate::options::Options;
use crate::plot::{self, Series};
use crate::prng::Prng;
use crate::process::{Program as Subjected, Server, Subject};
use crate::report::{Report, Table, brief};
use crate::saturate::{self, Load, Supply, Turn, Wait};
use crate::summary::{Summary, median, nanos, ratio_text, time_text};
use rounds::Stage;

/// Connections of the saturating client.
const CLIENTS: usize = 50;
/// The number of subscribers of a channel, waiters for a list, or readers of a prefix.
const MANY: usize = 100;
/// The number of commands in a transaction.
const TOGETHER: u64 = 10;
/// The number of groups of keys. Their tags keep the keys of a group on one core.
const GROUPS: u64 = 1_000;
/// The value of all keys, and of all messages.
const VALUE: &[u8] = b"xxx";
/// How long a server may take to start.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The script, and its name.
const SCRIPT: &str = "return redis.call('GET', KEYS[1])";
const SCRIPT_SHA1: &str = "d3c21d0c2b9ca22f82737626a27bcaf5d288f99f";

/// One kind of operation that programs send.
struct Program {
    /// The name in tables.
    name: &'static str,
    /// The name in the picture.
    short: &'static str,
    /// How many operations are sent at once.
    pipelines: &'static [u64],
    /// The CPU time that it may take, as a share of that of redis-server.
    bar: Option<f64>,
    act: Act,
}

/// The way in which its operations are sent.
enum Act {
    /// By clients that are independent of each other.
    Alone {
        /// Prepares the server's data for it, after [`fill`].
        before: fn(&mut Connection) -> Outcome<()>,
        /// The number of line ends in each reply.
        lines: u64,
        /// Appends one operation.
        request: fn(&mut Prng, &mut Vec<u8>),
    },
    /// In rounds of one batch each.
    Rounds {
        /// The number of clients.
        clients: usize,
        /// Prepares the clients for the rounds.
        begin: fn(&mut Stage) -> Outcome<()>,
        /// Does one round, given the number of the first operation and how many there are.
        round: fn(&mut Stage, u64, u64) -> Outcome<()>,
    },
}

const BOTH: &[u64] = &[1, 16];

/// All programs. A program without a bar is shown but not judged.
#[rustfmt::skip] // A table: one row a program, columns aligned.
const TABLE: &[Program] = &[
    row("MULTI/EXEC of ten, one core's keys", "EXEC one", BOTH, Some(0.6), alone(nothing, EXEC_LINES, exec_of_one_group)),
    row("MULTI/EXEC of ten, keys at random",  "EXEC all", BOTH, Some(0.6), alone(nothing, EXEC_LINES, exec_of_all)),
    row("EVALSHA of GET",                     "EVALSHA",  BOTH, Some(1.0), alone(load_script, 2, evalsha)),
    row("PUBLISH to 100 subscribers",         "PUBLISH",  BOTH, Some(0.6), rounds(1 + MANY, subscribe, publish)),
    row("BLPOP hand-over, a pair",            "BLPOP",    &[1], Some(1.0), rounds(2, wait_for_each_other, hand_over)),
    row("BLPOP hand-over, 100 waiters",       "waiters",  BOTH, Some(1.0), rounds(1 + MANY, wait_together, feed)),
    row("tracking: GET, and SET by another",  "tracking", BOTH, None,      rounds(2, track, invalidate)),
    row("tracking: SET, BCAST to 100",        "BCAST",    &[1], None,      rounds(1 + MANY, track_prefix, invalidate_for_all)),
];

const fn row(
    name: &'static str,
    short: &'static str,
    pipelines: &'static [u64],
    bar: Option<f64>,
    act: Act,
) -> Program {
    Program { name, short, pipelines, bar, act }
}

const fn alone(
    before: fn(&mut Connection) -> Outcome<()>,
    lines: u64,
    request: fn(&mut Prng, &mut Vec<u8>),
) -> Act {
    Act::Alone { before, lines, request }
}

const fn rounds(
    clients: usize,
    begin: fn(&mut Stage) -> Outcome<()>,
    round: fn(&mut Stage, u64, u64) -> Outcome<()>,
) -> Act {
    Act::Rounds { clients, begin, round }
}

/// One measurement of one server.
#[derive(Clone, Copy, Debug)]
struct Rate {
    per_s: f64,
    cpu_us: f64,
    p50_ns: f64,
    p99_ns: f64,
}

/// All pairs of one row.
struct Row {
    program: &'static Program,
    pipeline: u64,
    /// The rates by subject. A fault ends the row of that subject.
    rates: Vec<Result<Vec<Rate>, String>>,
}

/// Measures all rows and writes the report.
pub(crate) fn run(options: &Options) -> Outcome<()> {
    let subjects = subjects(options);
    let servers: Vec<Result<Server, String>> = subjects
        .iter()
        .map(|subject| prepared(options, subject).map_err(|fault| fault.to_string()))
        .collect();
    let mut rows = Vec::new();
    for program in TABLE.iter().filter(|program| options.wants(program.name)) {
        for &pipeline in program.pipelines {
            rows.push(measure(options, &subjects, &servers, program, pipeline));
            eprintln!("{}", progress(&subjects, rows.last()));
        }
    }
    drop(servers);
    let crowds = crowds::run(options, &subjects);
    write_report(options, &subjects, &rows, &crowds)
}

/// Each of Darter's numbers of cores, and before it redis-server on as many processors, so that
/// both have the same clients.
fn subjects(options: &Options) -> Vec<Subject> {
    let all = options.subjects();
    let redis = all.iter().find(|subject| matches!(subject.program, Subjected::Redis(_)));
    let Some(redis) = redis.cloned() else { return all };
    let darters = all.into_iter().filter(|subject| !matches!(subject.program, Subjected::Redis(_)));
    darters.flat_map(|darter| [Subject { cores: darter.cores, ..redis.clone() }, darter]).collect()
}

/// The rival of a subject: the one before it, if that is redis-server; otherwise the first.
fn rival(subjects: &[Subject], number: usize) -> usize {
    let is_redis = |at: &usize| matches!(subjects[*at].program, Subjected::Redis(_));
    [number, number.saturating_sub(1)].into_iter().find(is_redis).unwrap_or(0)
}

/// Starts a server and fills it with all keys.
fn prepared(options: &Options, subject: &Subject) -> Outcome<Server> {
    let server = Server::start(subject, &options.processors, None, START_LIMIT)?;
    fill(&mut server.connect(options.limit)?)?;
    Ok(server)
}

fn fill(connection: &mut Connection) -> Outcome<()> {
    for group in 0..GROUPS {
        let mut request = Vec::new();
        for number in 0..TOGETHER {
            client::command(&mut request, &[b"SET", key(group, number).as_bytes(), VALUE]);
        }
        connection.send(&request)?;
        for _ in 0..TOGETHER {
            connection.reply()?;
        }
    }
    Ok(())
}

fn measure(
    options: &Options,
    subjects: &[Subject],
    servers: &[Result<Server, String>],
    program: &'static Program,
    pipeline: u64,
) -> Row {
    let mut rates: Vec<Result<Vec<Rate>, String>> = vec![Ok(Vec::new()); servers.len()];
    for repeat in 0..options.repeats {
        // The servers take turns in going first, so that drift of the machine favours neither.
        for step in 0..servers.len() {
            let at = (step + repeat as usize) % servers.len();
            let Ok(list) = &mut rates[at] else { continue };
            let rate = match &servers[at] {
                Ok(server) => once(options, &subjects[at], server, program, pipeline),
                Err(text) => Err(Fault::Setup(text.clone())),
            };
            match rate {
                Ok(rate) => list.push(rate),
                Err(fault) => rates[at] = Err(fault.to_string()),
            }
        }
    }
    Row { program, pipeline, rates }
}

fn once(
    options: &Options,
    subject: &Subject,
    server: &Server,
    program: &Program,
    pipeline: u64,
) -> Outcome<Rate> {
    // A client that shares processors with the server must not poll.
    let apart = options.processors.has_clients_apart(subject.cores);
    let wait = if apart { Wait::Poll } else { Wait::Sleep };
    match program.act {
        Act::Alone { before, lines, request } => {
            before(&mut server.connect(options.limit)?)?;
            let mut stage = Stage::open(server.port, 1, wait)?;
            let mut prng = Prng::from_seed(2);
            let one_batch = |stage: &mut Stage, _| {
                let mut batch = Vec::new();
                (0..pipeline).for_each(|_| request(&mut prng, &mut batch));
                stage.send(0, &batch)?;
                stage.gather(lines * pipeline)
            };
            let latency = rounds_for(options.push / 2, server, &mut stage, pipeline, one_batch)?;
            let load = Load {
                clients: CLIENTS,
                pipeline,
                turns: &[Turn { lines, request: &request }],
                requests_max: u64::MAX,
                supply: Supply::Pool,
                seed: 1,
                wait,
                served: None,
            };
            let before_ns = server.cpu_ns();
            let pushed = saturate::push(server.port, &load, options.push)?;
            let cpu_ns = server.cpu_ns().saturating_sub(before_ns) as f64;
            let per_s = pushed.replies as f64 / pushed.elapsed.as_secs_f64();
            Ok(Rate { per_s, cpu_us: cpu_ns / 1e3 / pushed.replies.max(1) as f64, ..latency })
        }
        Act::Rounds { clients, begin, round } => {
            let mut stage = Stage::open(server.port, clients, wait)?;
            begin(&mut stage)?;
            let one_batch = |stage: &mut Stage, next| round(stage, next, pipeline);
            rounds_for(options.push, server, &mut stage, pipeline, one_batch)
        }
    }
}

/// Runs rounds for some time, after a few that are not counted.
fn rounds_for(
    duration: Duration,
    server: &Server,
    stage: &mut Stage,
    pipeline: u64,
    mut round: impl FnMut(&mut Stage, u64) -> Outcome<()>,
) -> Outcome<Rate> {
    const UNCOUNTED: u64 = 5;
    let mut next = 0;
    for _ in 0..UNCOUNTED {
        round(stage, next)?;
        next += pipeline;
    }
    let (before_ns, began, first) = (server.cpu_ns(), Instant::now(), next);
    let mut latencies_ns = Vec::new();
    while began.elapsed() < duration {
        let started = Instant::now();
        round(stage, next)?;
        latencies_ns.push(nanos(started.elapsed()));
        next += pipeline;
    }
    let (elapsed, operations) = (began.elapsed(), (next - first) as f64);
    let cpu_ns = server.cpu_ns().saturating_sub(before_ns) as f64;
    let latency = Summary::of(latencies_ns.into_iter());
    Ok(Rate {
        per_s: operations / elapsed.as_secs_f64(),
        cpu_us: cpu_ns / 1e3 / operations,
        p50_ns: latency.p50_ns as f64,
        p99_ns: latency.p99_ns as f64,
    })
}

/// The key `number` of a group; the tag keeps the group together.
fn key(group: u64, number: u64) -> String {
    format!("{{group:{group:06}}}:{number}")
}

fn any_key(prng: &mut Prng) -> String {
    key(prng.below(GROUPS), prng.below(TOGETHER))
}

fn nothing(_: &mut Connection) -> Outcome<()> {
    Ok(())
}

/// The lines of +OK, ten times +QUEUED, the head of the array, five times +OK, and five values of
/// two lines.
const EXEC_LINES: u64 = 1 + TOGETHER + 1 + TOGETHER / 2 + TOGETHER / 2 * 2;

fn exec_of_one_group(prng: &mut Prng, request: &mut Vec<u8>) {
    let group = prng.below(GROUPS);
    exec(request, |number| key(group, number));
}

fn exec_of_all(prng: &mut Prng, request: &mut Vec<u8>) {
    exec(request, |_| any_key(prng));
}

/// A transaction of SETs and GETs by turns, sent as client libraries send it.
fn exec(request: &mut Vec<u8>, mut key: impl FnMut(u64) -> String) {
    client::command(request, &["MULTI"]);
    for number in 0..TOGETHER {
        let key = key(number);
        if number.is_multiple_of(2) {
            client::command(request, &[b"SET", key.as_bytes(), VALUE]);
        } else {
            client::command(request, &["GET", &key]);
        }
    }
    client::command(request, &["EXEC"]);
}

fn load_script(connection: &mut Connection) -> Outcome<()> {
    let sha1 = connection.ask(&["SCRIPT", "LOAD", SCRIPT])?.text();
    if sha1 == SCRIPT_SHA1 { Ok(()) } else { Err(Fault::Setup(format!("its SHA1 is {sha1}"))) }
}

fn evalsha(prng: &mut Prng, request: &mut Vec<u8>) {
    client::command(request, &["EVALSHA", SCRIPT_SHA1, "1", &any_key(prng)]);
}

/// The connection that acts in a round. The other connections follow it.
const ACTOR: usize = 0;

/// Sends one command on each of the other connections, and waits for its reply.
fn all_others(stage: &mut Stage, words: &[&str], lines: u64) -> Outcome<()> {
    let mut request = Vec::new();
    client::command(&mut request, words);
    (1..=MANY).try_for_each(|other| stage.send(other, &request))?;
    stage.gather(lines * MANY as u64)
}

fn subscribe(stage: &mut Stage) -> Outcome<()> {
    all_others(stage, &["SUBSCRIBE", "channel"], 6)
}

fn publish(stage: &mut Stage, _: u64, count: u64) -> Outcome<()> {
    /// The lines of the head, and of three words of two lines each.
    const MESSAGE_LINES: u64 = 7;
    let mut batch = Vec::new();
    for _ in 0..count {
        client::command(&mut batch, &["PUBLISH", "channel", "a message of some thirty bytes"]);
    }
    stage.send(ACTOR, &batch)?;
    stage.gather(count * (1 + MESSAGE_LINES * MANY as u64))
}

/// The lines of the head of BLPOP's reply, of the key, and of the element.
const POPPED_LINES: u64 = 5;

/// Prepares two clients that hand an element to each other in turn. The second one begins.
fn wait_for_each_other(stage: &mut Stage) -> Outcome<()> {
    let mut request = Vec::new();
    client::command(&mut request, &["DEL", "queue:0", "queue:1"]);
    stage.send(ACTOR, &request)?;
    stage.gather(1)?;
    request.clear();
    client::command(&mut request, &["BLPOP", "queue:1", "0"]);
    stage.send(1, &request)
}

/// One client pushes an element for the other, and then waits itself.
fn hand_over(stage: &mut Stage, next: u64, _: u64) -> Outcome<()> {
    let [from, to] = [next % 2, (next + 1) % 2];
    let mut request = Vec::new();
    client::command(&mut request, &["LPUSH", &format!("queue:{to}"), "xxx"]);
    client::command(&mut request, &["BLPOP", &format!("queue:{from}"), "0"]);
    stage.send(from as usize, &request)?;
    stage.gather(1 + POPPED_LINES)
}

fn wait_together(stage: &mut Stage) -> Outcome<()> {
    let mut request = Vec::new();
    client::command(&mut request, &["DEL", "queue"]);
    stage.send(ACTOR, &request)?;
    stage.gather(1)?;
    all_others(stage, &["BLPOP", "queue", "0"], 0)
}

/// Pushes some elements. A client that gets one waits again.
fn feed(stage: &mut Stage, _: u64, count: u64) -> Outcome<()> {
    let mut batch = Vec::new();
    (0..count).for_each(|_| client::command(&mut batch, &["LPUSH", "queue", "xxx"]));
    stage.send(ACTOR, &batch)?;
    stage.gather(count * (1 + POPPED_LINES))?;
    let served: Vec<usize> = stage.heard().filter(|client| *client != ACTOR).collect();
    let mut request = Vec::new();
    client::command(&mut request, &["BLPOP", "queue", "0"]);
    served.into_iter().try_for_each(|client| stage.send(client, &request))
}

/// The lines of an invalidation: those of its header, its kind, the header of the keys, and the
/// key.
const INVALIDATION_LINES: u64 = 6;
/// HELLO's reply in RESP3: the head, and seven fields.
const HELLO_LINES: u64 = 26;

/// Turns RESP3 and tracking on for some of the clients.
fn turn_on(
    stage: &mut Stage,
    clients: std::ops::RangeInclusive<usize>,
    how: &[&str],
) -> Outcome<()> {
    let (mut request, lines) = (Vec::new(), (HELLO_LINES + 1) * clients.clone().count() as u64);
    client::command(&mut request, &["HELLO", "3"]);
    client::command(&mut request, &[&["CLIENT", "TRACKING", "ON"], how].concat());
    for client in clients {
        stage.send(client, &request)?;
    }
    stage.gather(lines)
}

fn track(stage: &mut Stage) -> Outcome<()> {
    turn_on(stage, 1..=1, &[])
}

/// A client reads keys, another one changes them, and the first gets an invalidation for each.
fn invalidate(stage: &mut Stage, next: u64, count: u64) -> Outcome<()> {
    let key = |number: u64| key(number / TOGETHER % GROUPS, number % TOGETHER);
    let (mut gets, mut sets) = (Vec::new(), Vec::new());
    for number in next..next + count {
        client::command(&mut gets, &["GET", &key(number)]);
        client::command(&mut sets, &[b"SET", key(number).as_bytes(), VALUE]);
    }
    stage.send(1, &gets)?;
    stage.gather(count * 2)?;
    stage.send(ACTOR, &sets)?;
    stage.gather(count * (1 + INVALIDATION_LINES))
}

fn track_prefix(stage: &mut Stage) -> Outcome<()> {
    turn_on(stage, 1..=MANY, &["BCAST", "PREFIX", "{group"])
}

fn invalidate_for_all(stage: &mut Stage, next: u64, _: u64) -> Outcome<()> {
    let mut request = Vec::new();
    client::command(&mut request, &[b"SET", key(next % GROUPS, 0).as_bytes(), VALUE]);
    stage.send(ACTOR, &request)?;
    stage.gather(1 + INVALIDATION_LINES * MANY as u64)
}

/// The median over a subject's pairs.
fn middle(row: &Row, subject: usize, what: fn(&Rate) -> f64) -> Option<f64> {
    let rates = row.rates.get(subject)?.as_ref().ok()?;
    median(&rates.iter().map(what).collect::<Vec<_>>())
}

/// The median over pairs of the ratio to a rival.
fn ratio(row: &Row, [subject, rival]: [usize; 2], what: fn(&Rate) -> f64) -> Option<f64> {
    let own = row.rates.get(subject)?.as_ref().ok()?;
    let rival = row.rates.get(rival)?.as_ref().ok()?;
    let ratios = own.iter().zip(rival).map(|(own, rival)| what(own) / what(rival));
    median(&ratios.collect::<Vec<_>>())
}

fn progress(subjects: &[Subject], row: Option<&Row>) -> String {
    let Some(row) = row else { return String::new() };
    let mut text = format!("{} -P {}:", row.program.name, row.pipeline);
    for (number, subject) in subjects.iter().enumerate() {
        match &row.rates[number] {
            Ok(_) => {
                let cpu_us = middle(row, number, |rate| rate.cpu_us).unwrap_or(f64::NAN);
                text.push_str(&format!(" {} {cpu_us:.2} µs/op", subject.name()));
            }
            Err(fault) => text.push_str(&format!(" {} {}", subject.name(), brief(fault))),
        }
    }
    text
}

fn write_report(
    options: &Options,
    subjects: &[Subject],
    rows: &[Row],
    crowds: &[crowds::Row],
) -> Outcome<()> {
    let title = "Transactions, scripts, messages, queues, invalidations";
    let mut report = Report::new(&options.results, "programs", title, &options.processors);
    report.say(&format!(
        "-P is how many operations are sent at once. MULTI/EXEC and EVALSHA: CPU time and \
         operations a second under {CLIENTS} saturating clients, latency from a single client, from \
         sending a batch to its last reply. The others: rounds of one batch each, from sending it \
         to the last of what it causes, wherever that arrives; so the server is not saturated, and \
         its wake-ups count. {} keys, values of {} bytes; keys at random are on all cores. Medians \
         of {}; a ratio is to redis-server on as many processors, in the same round. CPU is the run \
         time of all the server's threads.{}",
        GROUPS * TOGETHER,
        VALUE.len(),
        options.repeats,
        shared_text(options, subjects)
    ));
    report.say(&table(subjects, rows).markdown());
    if !crowds.is_empty() {
        report.say(&crowds::words());
        report.say(&crowds::table(subjects, crowds).markdown());
    }
    let (groups, series) = bars(subjects, rows);
    if !series.is_empty() {
        let heading = "Server CPU per operation, as a share of redis-server's";
        let svg = plot::bars(heading, "1 is redis-server; lower is better", &groups, &series);
        report.picture("cpu", heading, &svg)?;
    }
    report.finish()
}

/// Which servers share a processor with the clients.
fn shared_text(options: &Options, subjects: &[Subject]) -> String {
    let shares = |subject: &&Subject| !options.processors.has_clients_apart(subject.cores);
    let names: Vec<String> = subjects.iter().filter(shares).map(Subject::name).collect();
    if names.is_empty() {
        return String::new();
    }
    format!(
        " The clients shared a processor with {}, and slept while they waited.",
        names.join(", ")
    )
}

fn table(subjects: &[Subject], rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        "program",
        "-P",
        "server",
        "ops/s",
        "CPU µs/op",
        "ratio",
        "bar",
        "P50",
        "ratio",
        "P99",
        "ratio",
    ]);
    for row in rows {
        for (number, subject) in subjects.iter().enumerate() {
            let name = row.program.name.to_owned();
            let mut line = vec![name, row.pipeline.to_string(), subject.name()];
            match &row.rates[number] {
                Ok(_) => {
                    let value = |what| middle(row, number, what).unwrap_or(f64::NAN);
                    let pair = [number, rival(subjects, number)];
                    let to_rival = |what| ratio(row, pair, what).unwrap_or(f64::NAN);
                    line.push(format!("{:.0}", value(|rate| rate.per_s)));
                    line.push(format!("{:.2}", value(|rate| rate.cpu_us)));
                    line.push(ratio_text(to_rival(|rate| rate.cpu_us)));
                    line.push(bar_text(row.program, subject, to_rival(|rate| rate.cpu_us)));
                    for what in [|rate: &Rate| rate.p50_ns, |rate: &Rate| rate.p99_ns] {
                        line.push(time_text(value(what) as u64));
                        line.push(ratio_text(to_rival(what)));
                    }
                }
                Err(text) => line.push(brief(text)),
            }
            table.row(line);
        }
    }
    table
}

/// The bar, and whether it was met.
fn bar_text(program: &Program, subject: &Subject, ratio: f64) -> String {
    match (program.bar, &subject.program) {
        (Some(bar), Subjected::Darter { .. }) if ratio <= bar => format!("{bar:.2} met"),
        (Some(bar), Subjected::Darter { .. }) if ratio > bar => format!("{bar:.2} missed"),
        _ => "–".to_owned(),
    }
}

/// One group of bars for each row that another server supports, too.
fn bars(subjects: &[Subject], rows: &[Row]) -> (Vec<String>, Vec<Series>) {
    let cpu_ratio =
        |row: &Row, number| ratio(row, [number, rival(subjects, number)], |rate| rate.cpu_us);
    let is_shown = |number: &usize| rival(subjects, *number) != *number;
    let numbers: Vec<usize> = (0..subjects.len()).filter(is_shown).collect();
    let shown: Vec<&Row> = rows
        .iter()
        .filter(|row| numbers.iter().any(|number| cpu_ratio(row, *number).is_some()))
        .collect();
    let groups = shown.iter().map(|row| format!("{}\n-P {}", row.program.short, row.pipeline));
    let series = numbers.iter().map(|number| Series {
        name: subjects[*number].name(),
        points: (0u32..)
            .zip(&shown)
            .filter_map(|(group, row)| Some((f64::from(group), cpu_ratio(row, *number)?)))
            .collect(),
    });
    (groups.collect(), series.filter(|series| !series.points.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::TempFolder;

    #[test] // In miniature.
    fn all_programs_run_on_redis_and_write_a_report() {
        let folder = TempFolder::create().unwrap();
        let words = ["programs", "--cores", "1", "--darter", "/nonexistent"];
        let options = Options::miniature(&words, folder.path());
        let subjects = &options.subjects()[..1];
        let servers = [Ok(prepared(&options, &subjects[0]).unwrap())];
        let mut rows = Vec::new();
        for program in TABLE {
            for &pipeline in program.pipelines {
                rows.push(measure(&options, subjects, &servers, program, pipeline));
            }
        }
        for row in &rows {
            let name = (row.program.name, row.pipeline);
            let rate = row.rates[0].as_ref().unwrap_or_else(|text| panic!("{name:?}: {text}"))[0];
            assert!(rate.per_s > 0.0 && rate.cpu_us > 0.0, "{name:?}: {rate:?}");
            assert!(rate.p50_ns > 0.0 && rate.p99_ns >= rate.p50_ns, "{name:?}: {rate:?}");
        }
        write_report(&options, subjects, &rows, &[]).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nobody to compare with");
    }

    #[test] // The picture shows ratios to redis-server.
    fn only_darters_ratios_are_judged_against_their_bars() {
        let folder = TempFolder::create().unwrap();
        let options = Options::miniature(&["programs", "--cores", "1"], folder.path());
        let subjects = options.subjects();
        let rate = |cpu_us| Rate { per_s: 1.0, cpu_us, p50_ns: 1.0, p99_ns: 2.0 };
        let rates = vec![Ok(vec![rate(10.0); 3]), Ok([5.0, 6.1, 7.0].map(rate).to_vec())];
        let missing = vec![Ok(vec![rate(10.0)]), Err("ERR unknown command".to_owned())];
        let rows = [
            Row { program: &TABLE[0], pipeline: 1, rates },
            Row { program: &TABLE[2], pipeline: 1, rates: missing },
        ];
        let text = table(&subjects, &rows).markdown();
        assert!(text.contains("0.61 | 0.60 missed") && text.contains("unknown command"), "{text}");
        assert_eq!(bar_text(&TABLE[0], &subjects[1], 0.6), "0.60 met");
        assert_eq!(bar_text(&TABLE[0], &subjects[0], 1.0), "–");
        let (groups, series) = bars(&subjects, &rows);
        assert_eq!((groups, series.len()), (vec!["EXEC one\n-P 1".to_owned()], 1));
        assert_eq!(series[0].points, [(0.0, 0.61)]);
    }
}

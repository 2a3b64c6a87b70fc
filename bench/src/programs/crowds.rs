//! Measures very many subscriptions: ten clients with a million channels, ten clients with fifty
//! thousand patterns, and ten thousand clients with one channel. Each step is measured: time, CPU
//! time, memory, and the longest slice, beside the [control](crate::control).
//!
//! Each crowd gets a fresh server. Its clients subscribe concurrently, in commands of some names
//! each. Then one more client publishes messages, each after all subscribers have received the one
//! before. The clients unsubscribe from all names, subscribe again, and are closed all at once. The
//! last step is over when the server has no subscription left.

use std::time::{Duration, Instant};

use super::rounds::Stage;
use super::{START_LIMIT, VALUE};
use crate::client::{self, Connection};
use crate::control::Control;
use crate::fault::{Fault, Outcome};
use crate::options::Options;
use crate::prng::Prng;
use crate::process::{Server, Slices, Subject};
use crate::report::{Table, brief};
use crate::saturate::Wait;
use crate::summary::{nanos, ratio_text, time_text};

/// The number of names in one command.
const AT_ONCE: u64 = 500;
/// The number of line ends in a confirmation: those of the head, a word, a name, and a count.
const CONFIRMATION_LINES: u64 = 1 + 2 + 2 + 1;
/// How long the control runs before a crowd subscribes, and after it has gone.
const CONTROL: Duration = Duration::from_secs(1);

/// A crowd: its clients and their subscriptions.
struct Crowd {
    name: &'static str,
    /// The commands that subscribe and unsubscribe.
    words: [&'static str; 2],
    /// One subscription for this many elements of the scale.
    elements_each: u64,
    /// The number of clients; `None` for one per subscription.
    clients: Option<u64>,
    /// The name to subscribe to, and a channel whose messages it receives.
    names: fn(u64) -> [String; 2],
    /// The number of line ends in a message.
    lines: u64,
    /// Whether all clients receive each message. Otherwise only one does.
    is_for_all: bool,
    /// The number of messages.
    messages: u64,
}

#[rustfmt::skip] // A table: one row a crowd, columns aligned.
const TABLE: &[Crowd] = &[
    Crowd { name: "a million subscriptions",    words: ["SUBSCRIBE", "UNSUBSCRIBE"],   elements_each: 10,    clients: Some(10), names: channel, lines: 7, is_for_all: false, messages: 1_000 },
    Crowd { name: "fifty thousand patterns",    words: ["PSUBSCRIBE", "PUNSUBSCRIBE"], elements_each: 200,   clients: Some(10), names: pattern, lines: 9, is_for_all: false, messages: 100 },
    Crowd { name: "ten thousand subscribers",   words: ["SUBSCRIBE", "UNSUBSCRIBE"],   elements_each: 1_000, clients: None,     names: shared,  lines: 7, is_for_all: true,  messages: 20 },
];

fn channel(number: u64) -> [String; 2] {
    let name = format!("channel:{number:07}");
    [name.clone(), name]
}

fn pattern(number: u64) -> [String; 2] {
    [format!("pattern:{number:07}:*"), format!("pattern:{number:07}:x")]
}

fn shared(_: u64) -> [String; 2] {
    ["channel".to_owned(), "channel".to_owned()]
}

/// A step in the life of a crowd, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Subscribe,
    Publish,
    GiveUp,
    SubscribeAgain,
    Close,
}

const STEPS: [Step; 5] =
    [Step::Subscribe, Step::Publish, Step::GiveUp, Step::SubscribeAgain, Step::Close];

impl Step {
    fn name(self) -> &'static str {
        match self {
            Step::Subscribe => "subscribe",
            Step::Publish => "publish",
            Step::GiveUp => "unsubscribe",
            Step::SubscribeAgain => "subscribe again",
            Step::Close => "close",
        }
    }
}

/// The measurements of a step.
#[derive(Clone, Debug)]
struct Figures {
    elapsed: Duration,
    cpu: Duration,
    /// Resident memory above that before the crowd subscribed, for each subscription.
    bytes_each: f64,
    /// `None` if the server does not report slices.
    slices: Option<Slices>,
}

/// The measurements of one crowd on one server.
struct Life {
    steps: Vec<Figures>,
    control_ns: u64,
}

/// The measurements of one crowd on all servers.
pub(super) struct Row {
    crowd: &'static Crowd,
    count: u64,
    lives: Vec<Result<Life, String>>,
}

/// Measures all crowds that the options ask for.
pub(super) fn run(options: &Options, subjects: &[Subject]) -> Vec<Row> {
    let mut rows = Vec::new();
    for crowd in TABLE.iter().filter(|crowd| options.wants(crowd.name)) {
        let count = (options.scale.elements / crowd.elements_each).max(1);
        let live =
            |subject| live(options, subject, crowd, count).map_err(|fault| fault.to_string());
        rows.push(Row { crowd, count, lives: subjects.iter().map(live).collect() });
        eprintln!("{}, {count}", crowd.name);
    }
    rows
}

/// Measures all steps of a crowd on a fresh server.
fn live(options: &Options, subject: &Subject, crowd: &Crowd, count: u64) -> Outcome<Life> {
    let server = Server::start(subject, &options.processors, None, START_LIMIT)?;
    let control =
        Control::start(options.processors.server(subject.cores), CONTROL.min(options.lead));
    let mut admin = server.connect(options.limit)?;
    admin.ask(&["CONFIG", "SET", "maxclients", "11000"])?;
    let clients = crowd.clients.unwrap_or(count);
    let mut stage = Some(Stage::open(server.port, 1 + clients as usize, Wait::Sleep)?);
    let before = server.resident_bytes();
    let mut steps = Vec::new();
    for step in STEPS {
        admin.ask(&["CONFIG", "RESETSTAT"])?;
        let (began, cpu_ns) = (Instant::now(), server.cpu_ns());
        take(&mut admin, &mut stage, step, crowd, count)?;
        let elapsed = began.elapsed();
        let cpu = Duration::from_nanos(server.cpu_ns().saturating_sub(cpu_ns));
        let bytes = server.resident_bytes().saturating_sub(before);
        let slices = Slices::ask(&mut admin);
        steps.push(Figures { elapsed, cpu, bytes_each: bytes as f64 / count as f64, slices });
    }
    let control_ns = control.end(CONTROL.min(options.lead)).longest_ns;
    Ok(Life { steps, control_ns })
}

/// Does one step until it is complete.
fn take(
    admin: &mut Connection,
    stage: &mut Option<Stage>,
    step: Step,
    crowd: &Crowd,
    count: u64,
) -> Outcome<()> {
    let clients = crowd.clients.unwrap_or(count);
    if step == Step::Close {
        drop(stage.take());
        return all_gone(admin);
    }
    let stage = stage.as_mut().expect("it is closed by the last step");
    match step {
        Step::Subscribe | Step::SubscribeAgain => subscribe(stage, crowd, clients, count),
        Step::Publish => publish(stage, crowd, count),
        Step::GiveUp | Step::Close => {
            let mut request = Vec::new();
            client::command(&mut request, &[crowd.words[1]]);
            (1..=clients).try_for_each(|client| stage.send(client as usize, &request))?;
            stage.gather(CONFIRMATION_LINES * count)
        }
    }
}

/// Subscribes each client to its share of the names, all clients concurrently.
fn subscribe(stage: &mut Stage, crowd: &Crowd, clients: u64, count: u64) -> Outcome<()> {
    let mut names = (0..count).map(crowd.names).map(|[name, _]| name);
    let mut left = count;
    while left > 0 {
        let mut sent = 0;
        for client in 1..=clients {
            let most = AT_ONCE.min(count.div_ceil(clients));
            let mut words = vec![crowd.words[0].to_owned()];
            words.extend(names.by_ref().take(most as usize));
            if words.len() > 1 {
                sent += words.len() as u64 - 1;
                let mut request = Vec::new();
                client::command(&mut request, &words);
                stage.send(client as usize, &request)?;
            }
        }
        stage.gather(CONFIRMATION_LINES * sent)?;
        left -= sent;
    }
    Ok(())
}

fn publish(stage: &mut Stage, crowd: &Crowd, count: u64) -> Outcome<()> {
    let (mut prng, receivers) = (Prng::from_seed(3), if crowd.is_for_all { count } else { 1 });
    for _ in 0..crowd.messages {
        let [_, channel] = (crowd.names)(prng.below(count));
        let mut request = Vec::new();
        client::command(&mut request, &[b"PUBLISH", channel.as_bytes(), VALUE]);
        stage.send(super::ACTOR, &request)?;
        stage.gather(1 + crowd.lines * receivers)?;
    }
    Ok(())
}

/// Waits until the server has no subscription left.
fn all_gone(admin: &mut Connection) -> Outcome<()> {
    const LIMIT: Duration = Duration::from_secs(60);
    let began = Instant::now();
    while began.elapsed() < LIMIT {
        let stats = admin.ask(&["INFO", "stats"])?.text();
        let is_none = |name: &str| stats.lines().any(|line| line.trim() == format!("{name}:0"));
        if is_none("pubsub_channels") && is_none("pubsub_patterns") {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(Fault::TimedOut)
}

/// The explanation of the table.
pub(super) fn words() -> String {
    format!(
        "Very many subscriptions, on fresh servers: a million channels and fifty thousand patterns by \
         ten clients ({AT_ONCE} names a command), and one channel by ten thousand. Messages are \
         published one after the other, each when all have received the one before; \"close\" ends \
         when the server knows no subscription. Bytes are resident memory above that before the first \
         step. A slice is of CPU time; the control is the longest that a loop of 10 µs took on the \
         same processors."
    )
}

pub(super) fn table(subjects: &[Subject], rows: &[Row]) -> Table {
    let head = ["crowd", "subscriptions", "step", "server", "time", "ratio", "CPU", "ratio"];
    let more = ["bytes each", "longest slice", "its cause", "above 512 µs", "control"];
    let mut table = Table::new(&[&head[..], &more].concat());
    for row in rows {
        for (at, step) in STEPS.into_iter().enumerate() {
            for (number, subject) in subjects.iter().enumerate() {
                let mut line = vec![row.crowd.name.to_owned(), row.count.to_string()];
                line.extend([step.name().to_owned(), subject.name()]);
                let rival = row.lives[super::rival(subjects, number)].as_ref().ok();
                match &row.lives[number] {
                    Ok(life) => line.extend(cells(life, at, rival)),
                    Err(text) => line.push(brief(text)),
                }
                table.row(line);
            }
        }
    }
    table
}

/// The figures of a step, and their ratios to those of the first server.
fn cells(life: &Life, at: usize, first: Option<&Life>) -> Vec<String> {
    let step = &life.steps[at];
    let to_first = |what: fn(&Figures) -> Duration| {
        let first = first.map_or(f64::NAN, |first| nanos(what(&first.steps[at])) as f64);
        ratio_text(nanos(what(step)) as f64 / first)
    };
    let mut cells = vec![time_text(nanos(step.elapsed)), to_first(|step| step.elapsed)];
    cells.extend([time_text(nanos(step.cpu)), to_first(|step| step.cpu)]);
    cells.push(format!("{:.0}", step.bytes_each));
    match &step.slices {
        Some(slices) => {
            cells.extend([time_text(slices.longest_us * 1_000), slices.cause.clone()]);
            cells.extend([slices.over_512us.to_string(), time_text(life.control_ns)]);
        }
        None => cells.push("–".to_owned()),
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::TempFolder;

    #[test] // A small run on redis-server: each crowd passes its steps and gets a row.
    fn a_small_run_gives_a_row_for_each_crowd() {
        let folder = TempFolder::create().unwrap();
        let words = ["programs", "--cores", "1", "--darter", "/nonexistent"];
        let options = Options::miniature(&words, folder.path());
        let subjects = &options.subjects()[..1];
        let rows = run(&options, subjects);
        assert_eq!(rows.len(), TABLE.len());
        for row in &rows {
            let life = row.lives[0].as_ref().unwrap_or_else(|text| panic!("{text}"));
            assert_eq!(life.steps.len(), STEPS.len(), "{}", row.crowd.name);
        }
        let text = table(subjects, &rows).markdown();
        assert_eq!(text.matches(" 1.00 |").count(), 2 * TABLE.len() * STEPS.len(), "{text}");
    }
}

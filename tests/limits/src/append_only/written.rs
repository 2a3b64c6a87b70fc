//! The append-only file as it is written: what killed servers leave, rewrites, failing disks.

use super::{FOLDER, copy_folder, write_all};
use crate::saving::{SOON, digest, expect, fill, limit_files, say, wait_for};
use crate::{Asks, Check, Stage, ensure, text};
use darter_base::Prng;
use darter_testkit::{Client, Reply, Server};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("a killed server has every change that it has answered",     Asks::More, kills),
    ("redis-server loads the append-only folder",                 Asks::More, for_redis),
    ("a rewrite keeps the data, and makes the folder small",      Asks::More, rewrite),
    ("appendonly can be switched on and off",                     Asks::More, switched),
    ("a failed write refuses writes until a new base is made",    Asks::More, failed_write),
    ("with always, a client gets no reply that is not on disk",   Asks::More, failed_always),
    ("WAITAOF waits for the disk",                                Asks::More, waitaof),
];

const ON: &[&str] = &["--appendonly", "yes"];
/// Clients that write at the same time.
const WRITERS: usize = 4;

/// A folder that outlives its server.
struct Kept(PathBuf);

impl Kept {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("darter-{name}-{}", std::process::id())))
    }

    /// Keeps the append-only folder of a server that has ended.
    fn keep(&self, server: &Server) -> Result<(), String> {
        let _ = fs::remove_dir_all(&self.0); // The first time, there is none.
        copy_folder(&server.folder().join(FOLDER), &self.0).map_err(text)
    }

    fn place_in(&self, folder: &Path) -> std::io::Result<()> {
        if self.0.exists() { copy_folder(&self.0, &folder.join(FOLDER)) } else { Ok(()) }
    }

    fn start(&self, stage: &Stage, more: &[&str]) -> Result<Server, String> {
        let more = [ON, more].concat();
        Server::subject_in(stage.shape, &more, |folder| self.place_in(folder)).map_err(text)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The numbers that a writer has sent and that were answered.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) sent: AtomicU64,
    pub(crate) answered: AtomicU64,
}

/// Writes the numbers after `from`, each in one transaction over several keys, until the server is
/// gone or `is_over`.
pub(crate) fn write_numbers(
    server: &Server,
    writer: usize,
    from: u64,
    written: &Written,
    is_over: &AtomicBool,
) -> Option<()> {
    let mut client = server.client().ok()?;
    let (n, m, list) = (format!("n{writer}"), format!("m{writer}"), format!("l{writer}"));
    for number in from + 1.. {
        if is_over.load(Ordering::Relaxed) {
            return Some(());
        }
        written.sent.store(number, Ordering::SeqCst);
        let number_text = number.to_string();
        if number % 3 == 0 {
            let script = "redis.call('set',KEYS[1],ARGV[1]) redis.call('set',KEYS[2],ARGV[1]) \
                          return redis.call('rpush',KEYS[3],ARGV[1])";
            let call = ["EVAL", script, "3", &n, &m, &list, &number_text];
            client.command(&call).ok()?;
        } else {
            client.words("MULTI").ok()?;
            client.command(&["MSET", &n, &number_text, &m, &number_text]).ok()?;
            client.command(&["RPUSH", &list, &number_text]).ok()?;
            if client.words("EXEC").ok()?.text().is_some() {
                return None;
            }
        }
        written.answered.store(number, Ordering::SeqCst);
    }
    None
}

/// Checks what a writer has left. Returns its last number.
pub(crate) fn check_numbers(
    client: &mut Client,
    writer: usize,
    written: &Written,
) -> Result<u64, String> {
    let number = |told: String| told.parse::<u64>().unwrap_or(0);
    let n = number(say(client, &format!("GET n{writer}"))?);
    let m = number(say(client, &format!("GET m{writer}"))?);
    let Reply::Array(list) = client.words(&format!("LRANGE l{writer} 0 -1")).map_err(text)? else {
        return Err("LRANGE: no array".into());
    };
    let is_whole = list.iter().zip(1_u64..).all(|(item, number)| {
        item.text().is_some_and(|text| text == number.to_string().as_bytes())
    });
    let [sent, answered] = [&written.sent, &written.answered].map(|it| it.load(Ordering::SeqCst));
    let is_good = is_whole && n == m && list.len() as u64 == n && answered <= n && n <= sent;
    ensure(is_good, || {
        format!("n {n}, m {m}, {} elements, {answered} answered of {sent}", list.len())
    })?;
    Ok(n)
}

fn kills(stage: &Stage) -> Result<(), String> {
    let mut prng = Prng::from_seed(7);
    for sync in ["always", "everysec"] {
        let kept = Kept::new("journal-kills");
        let written: Vec<Written> = (0..WRITERS).map(|_| Written::default()).collect();
        let mut last = [0; WRITERS];
        for _ in 0..3 + stage.soak.as_secs() * 3 {
            let server = kept.start(stage, &["--appendfsync", sync])?;
            let mut client = server.client().map_err(text)?;
            for (writer, written) in written.iter().enumerate() {
                last[writer] = check_numbers(&mut client, writer, written)?;
            }
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for (writer, written) in written.iter().enumerate() {
                    let (server, from) = (&server, last[writer]);
                    let is_over = &is_over;
                    scope.spawn(move || write_numbers(server, writer, from, written, is_over));
                }
                std::thread::sleep(Duration::from_millis(100 + prng.below(100)));
                if prng.chance(70) {
                    say(&mut client, "BGREWRITEAOF")?;
                }
                std::thread::sleep(Duration::from_millis(prng.below(100)));
                server.signal(Signal::KILL).map_err(text)
            })?;
            kept.keep(&server)?;
        }
        let all: u64 = last.iter().sum();
        ensure(all > 100, || format!("{sync}: only {all} were written"))?;
    }
    Ok(())
}

/// Ends a server by SHUTDOWN.
fn shut_down(server: &mut Server) -> Result<(), String> {
    server.signal(Signal::TERM).map_err(text)?;
    let status = server.wait_for_exit(SOON).map_err(text)?.ok_or("it runs on")?;
    ensure(status.success(), || format!("{status}: {}", server.log()))
}

fn for_redis(stage: &Stage) -> Result<(), String> {
    let kept = Kept::new("journal-for-redis");
    let mut here = kept.start(stage, &["--aof-timestamp-enabled", "yes"])?;
    let mut client = here.client().map_err(text)?;
    for step in 0..3 {
        expect(&mut client, &format!("DEBUG POPULATE 500 step{step} 100"), "OK")?;
        for line in ["DEL list moved zset n hll", "SET elsewhere 2", "FUNCTION FLUSH"] {
            say(&mut client, line)?;
        }
        write_all(&mut client)?;
        if step == 1 {
            expect(&mut client, "BGREWRITEAOF", "Background")?;
            wait_for(&mut client, "aof_rewrite_in_progress:0")?;
        }
    }
    // Values that are encoded by the journal's thread, and move between cores.
    expect(&mut client, "DEBUG POPULATE 1 big 100 TYPE hash ELEMENTS 3000", "OK")?;
    for at in 0..4 {
        let (from, to) = (format!("renamed{at}"), format!("renamed{}", at + 1));
        let from = if at == 0 { "big:0" } else { &from };
        expect(&mut client, &format!("RENAME {from} {to}"), "OK")?;
        expect(&mut client, &format!("COPY {to} copy{at}"), "Int(1)")?;
    }
    let sum = digest(&mut client)?;
    shut_down(&mut here)?;
    kept.keep(&here)?;
    let there = Server::oracle_in(ON, |folder| kept.place_in(folder)).map_err(text)?;
    let theirs = digest(&mut there.client().map_err(text)?)?;
    ensure(theirs == sum, || format!("{sum} here, {theirs} in redis-server"))?;
    let again = kept.start(stage, &[])?;
    let mut client = again.client().map_err(text)?;
    let ours = digest(&mut client)?;
    ensure(ours == sum, || format!("{sum} before the end, {ours} after it"))?;
    expect(&mut client, "FCALL f 0", "Int(1)")
}

fn folder_bytes(server: &Server) -> Result<u64, String> {
    let files = fs::read_dir(server.folder().join(FOLDER)).map_err(text)?;
    files.map(|file| Ok(file.map_err(text)?.metadata().map_err(text)?.len())).sum()
}

fn rewrite(stage: &Stage) -> Result<(), String> {
    let kept = Kept::new("journal-rewrite");
    let mut server = kept.start(
        stage,
        &["--auto-aof-rewrite-min-size", "1mb", "--auto-aof-rewrite-percentage", "100"],
    )?;
    let mut client = server.client().map_err(text)?;
    fill(&mut client, &mut Prng::from_seed(3))?;
    let sum = digest(&mut client)?;
    expect(&mut client, "SET big x", "OK")?;
    let value = "x".repeat(1 << 20);
    for _ in 0..20 {
        client.command(&["SET", "big", &value]).map_err(text)?;
    }
    expect(&mut client, "DEL big", "Int(1)")?;
    wait_for(&mut client, "aof_rewrite_in_progress:0")?;
    let rewrites = say(&mut client, "INFO persistence")?;
    ensure(!rewrites.contains("aof_rewrites:0\r\n"), || rewrites.clone())?;
    say(&mut client, "BGREWRITEAOF")?;
    wait_for(&mut client, "aof_rewrite_in_progress:0")?;
    let now = digest(&mut client)?;
    ensure(now == sum, || format!("{sum} became {now}"))?;
    shut_down(&mut server)?;
    let bytes = folder_bytes(&server)?;
    ensure(bytes < 12 << 20, || format!("the folder has {bytes} bytes"))?;
    kept.keep(&server)?;
    let again = kept.start(stage, &[])?;
    let loaded = digest(&mut again.client().map_err(text)?)?;
    ensure(loaded == sum, || format!("{sum} before the end, {loaded} after it"))
}

fn switched(stage: &Stage) -> Result<(), String> {
    let kept = Kept::new("journal-switched");
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    expect(&mut client, "SET before 1", "OK")?;
    for _ in 0..2 {
        expect(&mut client, "CONFIG SET appendonly yes", "OK")?;
        wait_for(&mut client, "aof_rewrite_in_progress:0")?;
        expect(&mut client, "SET during 1", "OK")?;
        expect(&mut client, "CONFIG SET appendonly no", "OK")?;
        expect(&mut client, "SET after 1", "OK")?;
    }
    kept.keep(&server)?;
    let again = kept.start(stage, &[])?;
    let mut client = again.client().map_err(text)?;
    expect(&mut client, "GET before", "1")?;
    expect(&mut client, "GET during", "1")?;
    expect(&mut client, "GET after", "1") // It was there when the second base was made.
}

/// Writes until a write is refused. Returns the reply.
fn write_until_refused(client: &mut Client) -> Result<String, String> {
    let value = "x".repeat(100_000);
    for _ in 0..1_000 {
        let reply = client.command(&["SET", "k", &value]).map_err(text)?;
        if reply.text() != Some(b"OK") {
            return Ok(String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned());
        }
    }
    Err("nothing was refused".into())
}

fn failed_write(stage: &Stage) -> Result<(), String> {
    let kept = Kept::new("journal-failed");
    let mut server = kept.start(stage, &["--appendfsync", "everysec"])?;
    let mut client = server.client().map_err(text)?;
    expect(&mut client, "SET good 1", "OK")?;
    limit_files(&server, "2000000:unlimited")?;
    let told = write_until_refused(&mut client)?;
    ensure(told.contains("MISCONF Errors writing to the AOF file: File too large"), || {
        told.clone()
    })?;
    let mut other = server.client().map_err(text)?;
    expect(&mut other, "GET good", "1")?;
    expect(&mut other, "PING", "MISCONF")?;
    wait_for(&mut other, "aof_last_write_status:err")?;
    limit_files(&server, "unlimited:unlimited")?;
    wait_for(&mut other, "aof_last_write_status:ok")?;
    expect(&mut other, "SET healed 1", "OK")?;
    let sum = digest(&mut other)?;
    shut_down(&mut server)?;
    kept.keep(&server)?;
    let again = kept.start(stage, &[])?;
    let loaded = digest(&mut again.client().map_err(text)?)?;
    ensure(loaded == sum, || format!("{sum} before the end, {loaded} after it"))
}

fn failed_always(stage: &Stage) -> Result<(), String> {
    let kept = Kept::new("journal-always");
    let server = kept.start(stage, &["--appendfsync", "always"])?;
    let mut client = server.client().map_err(text)?;
    expect(&mut client, "SET good 1", "OK")?;
    limit_files(&server, "2000000:unlimited")?;
    // The write that fails is not answered: its connection is closed.
    let ended = write_until_refused(&mut client);
    ensure(ended.is_err(), || format!("a reply came: {ended:?}"))?;
    let mut other = server.client().map_err(text)?;
    expect(&mut other, "GET good", "1")?;
    let unsafe_read = other.words("STRLEN k");
    ensure(unsafe_read.is_err(), || format!("an unsafe change was shown: {unsafe_read:?}"))?;
    limit_files(&server, "unlimited:unlimited")?;
    let mut third = server.client().map_err(text)?;
    wait_for(&mut third, "aof_last_write_status:ok")?;
    expect(&mut third, "STRLEN k", "Int(100000)")
}

fn waitaof(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    let wait = |client: &mut Client, words: &str| client.words(words).map_err(text);
    let is =
        |reply: &Reply, local: i64| *reply == Reply::Array(vec![Reply::Int(local), Reply::Int(0)]);
    expect(&mut client, "WAITAOF 1 0 0", "ERR WAITAOF cannot be used")?;
    expect(&mut client, "CONFIG SET appendonly yes", "OK")?;
    // Nothing is written after the cuts of the first base and of the second.
    let first_base = wait(&mut client, "WAITAOF 1 0 5000")?;
    ensure(is(&first_base, 1), || format!("a first base: {first_base:?}"))?;
    expect(&mut client, "INCR n", "Int(")?;
    expect(&mut client, "BGREWRITEAOF", "Background append only file rewriting started")?;
    wait_for(&mut client, "aof_rewrite_in_progress:0")?;
    let second_base = wait(&mut client, "WAITAOF 1 0 5000")?;
    ensure(is(&second_base, 1), || format!("a second base: {second_base:?}"))?;
    let mut many: Vec<Client> =
        (0..50).map(|_| server.client()).collect::<Result<_, _>>().map_err(text)?;
    expect(&mut client, "INCR n", "Int(")?;
    many.iter_mut().try_for_each(|one| one.send(b"WAITAOF 1 0 5000\r\n")).map_err(text)?;
    for one in &mut many {
        let there = one.receive().map_err(text)?;
        ensure(is(&there, 1), || format!("one of many: {there:?}"))?;
    }
    for sync in ["always", "everysec"] {
        expect(&mut client, &format!("CONFIG SET appendfsync {sync}"), "OK")?;
        expect(&mut client, "INCR n", "Int(")?;
        let there = wait(&mut client, "WAITAOF 1 0 5000")?;
        ensure(is(&there, 1), || format!("{sync}: {there:?}"))?;
        let no_replica = wait(&mut client, "WAITAOF 1 1 20")?;
        ensure(is(&no_replica, 0), || format!("{sync}: {no_replica:?}"))?;
    }
    expect(&mut client, "CONFIG SET appendfsync no", "OK")?;
    expect(&mut client, "INCR n", "Int(")?;
    let never = wait(&mut client, "WAITAOF 1 0 100")?;
    ensure(is(&never, 0), || format!("no: {never:?}"))?;
    // One that waits is answered when there is no append-only file any more.
    client.send(b"WAITAOF 1 0 0\r\n").map_err(text)?;
    let mut other = server.client().map_err(text)?;
    expect(&mut other, "CONFIG SET appendonly no", "OK")?;
    let ended = client.receive().map_err(text)?;
    let is_refused = ended.text().is_some_and(|line| line.ends_with(b"appendonly is disabled."));
    ensure(is_refused, || format!("{ended:?}"))
}

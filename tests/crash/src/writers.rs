//! Writers that fill the server until it dies, and an operator who switches its modes meanwhile.

use crate::found::{say, text_of};
use crate::ledger::Ledger;
use crate::life::Life;
use crate::model::Op;
use darter_base::Prng;
use darter_testkit::{Client, Reply};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The promises that hold at this moment.
#[derive(Debug, Default)]
pub(crate) struct Promise {
    pub(crate) is_logged: AtomicBool,
    pub(crate) is_always: AtomicBool,
    /// The operator changed a mode in this life.
    pub(crate) was_switched: AtomicBool,
    /// Writers may send pipelines, and the operator may switch the journal off: both lose the order
    /// of changes over several cores.
    pub(crate) is_deep: AtomicBool,
    /// The operator's commands with their ends, in ms of the life, for a failure's report.
    pub(crate) acts: Mutex<Vec<String>>,
    /// Counts changes of the fields above.
    changes: AtomicU64,
    /// Writers shall stop.
    pub(crate) is_over: AtomicBool,
}

impl Promise {
    /// Whether a journal is on, whether it is on with `always`, and the number of changes so far.
    fn now(&self) -> (bool, bool, u64) {
        let changes = self.changes.load(Ordering::SeqCst);
        let logged = self.is_logged.load(Ordering::SeqCst);
        (logged, logged && self.is_always.load(Ordering::SeqCst), changes)
    }

    fn set(&self, which: &AtomicBool, value: bool) {
        self.was_switched.store(true, Ordering::SeqCst);
        self.changes.fetch_add(1, Ordering::SeqCst);
        which.store(value, Ordering::SeqCst);
        self.changes.fetch_add(1, Ordering::SeqCst);
    }
}

/// Sends random operations in pipelines until the server dies or the promise is over.
pub(crate) fn write(
    life: &Life,
    me: usize,
    writers: usize,
    ledger: &mut Ledger,
    random: &mut Prng,
    promise: &Promise,
) {
    let Ok(mut client) = life.client() else { return };
    if client.words(&format!("SELECT {}", 2 * me)).is_err() {
        return;
    }
    while !promise.is_over.load(Ordering::SeqCst) {
        let is_deep = promise.is_deep.load(Ordering::SeqCst) && random.chance(50);
        let depth = if !is_deep { 1 } else { 1 + random.below(16) };
        if send_some(&mut client, (me, writers), ledger, random, promise, depth).is_err() {
            return;
        }
        if random.chance(30) {
            std::thread::sleep(Duration::from_micros(random.below(4_000)));
        }
    }
}

fn send_some(
    client: &mut Client,
    (me, writers): (usize, usize),
    ledger: &mut Ledger,
    random: &mut Prng,
    promise: &Promise,
    depth: u64,
) -> std::io::Result<()> {
    let (mut bytes, mut places) = (Vec::new(), Vec::new());
    let before = promise.now();
    for _ in 0..depth {
        let op = Op::random(random, ledger.next, writers);
        places.push((ledger.len(), op.encode(me, &mut bytes)));
        ledger.sends(op);
    }
    client.send(&bytes)?;
    for (at, (replies, deciding)) in places {
        let (mut refused, mut value) = (false, 0);
        for i in 0..replies {
            let reply = client.receive()?;
            if i == deciding {
                refused = reply.is_error() || reply == Reply::NullArray;
                value = text_of(&reply).parse().unwrap_or_default();
            }
        }
        // Under a change of modes nothing is counted as promised.
        let is_same = before == promise.now();
        ledger.is_answered(at, refused, value, (is_same && before.0, is_same && before.1));
    }
    Ok(())
}

/// Switches modes, saves and rewrites until `end`. Errors mean that the server is dying.
pub(crate) fn operate(life: &Life, random: &mut Prng, promise: &Promise, end: Instant) {
    let Ok(mut client) = life.client() else { return };
    let start = Instant::now();
    while Instant::now() < end {
        let left = end.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min(Duration::from_millis(5 + random.below(60))));
        // BGSAVE beside a rewrite is refused; other faults show at the verification.
        let from = start.elapsed().as_millis();
        let (name, outcome) = match random.below(10) {
            0 => ("BGSAVE".to_owned(), say(&mut client, "BGSAVE").map(drop)),
            1 | 2 => ("BGREWRITEAOF".to_owned(), say(&mut client, "BGREWRITEAOF").map(drop)),
            3 | 4 => {
                let mode = *random.weighted(&[(1, "always"), (1, "everysec"), (1, "no")]);
                (mode.to_owned(), switch_mode(&mut client, mode, promise))
            }
            5 if promise.is_deep.load(Ordering::SeqCst) => {
                ("no, yes".to_owned(), switch_journal(&mut client, random, promise, end))
            }
            _ => continue,
        };
        let to = start.elapsed().as_millis();
        if let Ok(mut acts) = promise.acts.lock() {
            acts.push(format!("{name} {from}-{to} ms: {outcome:?}"));
        }
    }
}

fn switch_mode(client: &mut Client, mode: &str, promise: &Promise) -> Result<(), String> {
    promise.set(&promise.is_always, false);
    say(client, &format!("CONFIG SET appendfsync {mode}"))?;
    promise.set(&promise.is_always, mode == "always");
    Ok(())
}

/// Switches the journal off and on. Until its new base is complete nothing is promised of what came
/// in between.
fn switch_journal(
    client: &mut Client,
    random: &mut Prng,
    promise: &Promise,
    end: Instant,
) -> Result<(), String> {
    promise.set(&promise.is_logged, false);
    say(client, "CONFIG SET appendonly no")?;
    std::thread::sleep(Duration::from_millis(random.below(30)));
    say(client, "CONFIG SET appendonly yes")?;
    let whole = [
        "aof_enabled:1",
        "aof_rewrite_in_progress:0",
        "aof_rewrite_scheduled:0",
        "aof_last_bgrewrite_status:ok",
    ];
    while Instant::now() < end {
        let info = text_of(&say(client, "INFO persistence")?);
        if whole.iter().all(|line| info.contains(line)) {
            promise.set(&promise.is_logged, true);
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

//! Checks that a snapshot is of one instant, on all cores.
//!
//! While snapshots are made, some clients set groups of keys on different cores to one number, by
//! MSET, and others write increasing numbers to one key after another, and wait for each reply. A
//! file must hold one number for each group; and if it holds a number of the second kind, then for
//! every other key of that client the last number written there before it, or a later one. It must
//! equal what the records make up to the last one in the cut of each core; so a file and the later
//! records join exactly. The file has little room for chunks, so parts of the cut are read long
//! after it was taken; and its portions are small, so that writers wait for the snapshot, or for
//! room in the file.

use crate::CounterTest;
use crate::value::{self, Value};
use crate::world::Sim;
use darter_base::Prng;
use darter_command::{Answer, Call, Command, Flags, Group, Refusal, Run as Shape, specs};
use darter_families::TYPES;
use darter_keyspace::{Act, Effect, Wants};
use darter_persist::snapshot::{Chunk, Part, Portions, Snapshot, Step, Style};
use darter_rdb::{Event, Item, Limits, Reader, Writer};
use darter_server::engine::Table;
use darter_server::saving::{Outcome, Outlet, Room, Saves, SnapshotOrder, Store};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Snapshots of one run.
const SNAPSHOTS: usize = 5;
/// Writers of each kind.
const WRITERS: usize = 3;
/// Chunks of a core for which there is room.
const ROOM: usize = 2;
/// Few keys are much.
const PORTIONS: Portions = Portions { chunk_bytes: 4 << 10, step_bytes: 1 << 10, held_min_kib: 0 };

/// The file under way.
#[derive(Default)]
struct File {
    saves: Option<Arc<Saves>>,
    /// By core: chunks that have not been written, and whether there are more to come.
    waiting: Vec<(Vec<Chunk>, bool)>,
    chunks: Vec<Chunk>,
    /// Cores that may still send.
    senders: usize,
    /// By core: the number of the last record in the cut.
    last_records: Vec<u64>,
}

/// Where the simulated server saves to.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<File>>);

/// The file of one core.
struct Lane(Memory, usize);

impl Store for Memory {
    fn begin(
        &self,
        order: SnapshotOrder,
        saves: &Arc<Saves>,
    ) -> Result<Vec<Box<dyn Outlet>>, String> {
        let mut file = self.0.lock().map_err(|error| error.to_string())?;
        let cores = file.waiting.len();
        assert!(!order.name.is_empty() && file.saves.is_none(), "one file at a time");
        file.saves = Some(Arc::clone(saves));
        file.waiting = (0..cores).map(|_| (Vec::new(), true)).collect();
        file.senders = cores;
        file.last_records = order.last_records;
        let outlet = |core| Box::new(Lane(self.clone(), core)) as Box<dyn Outlet>;
        Ok((0..cores).map(outlet).collect())
    }

    fn portions(&self) -> Portions {
        PORTIONS
    }
}

impl Outlet for Lane {
    fn room(&self) -> Room {
        let file = self.0.0.lock().expect("no holder panics");
        if file.waiting[self.1].0.len() < ROOM { Room::Some } else { Room::Later }
    }

    fn send(&mut self, chunk: Chunk) {
        self.0.0.lock().expect("no holder panics").waiting[self.1].0.push(chunk);
    }

    fn end(self: Box<Self>) {
        self.0.0.lock().expect("no holder panics").waiting[self.1].1 = false;
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let Ok(mut file) = self.0.0.lock() {
            file.senders -= 1;
        }
    }
}

/// A snapshot whose cores are cut one after the other, without a lock: it replies with the file.
const BROKEN: &[Command] = &[Command::new(
    "broken",
    "0.0.0",
    2,
    Flags::READONLY,
    specs::ONE_RO_ACCESS,
    Group::Generic,
    Shape::Multi { here: None, anywhere: |call| Box::pin(save_unlocked(call)) },
)];

async fn save_unlocked(call: Call) -> Result<Answer, Refusal> {
    let mut chunks = Vec::new();
    for core in 0..call.tx.cores() {
        let parts = call.tx.on(core, |home| {
            let db = home.shard.db(0);
            let (keys, bytes) = (db.keys().reader(), db.memory_bytes());
            vec![Part { database: 0, keys, now: home.shard.now(), bytes }]
        });
        let mut snapshot = Snapshot::new(parts.await, Style::default());
        loop {
            match snapshot.step() {
                Step::More => {}
                Step::Chunk(chunk) => chunks.push(chunk),
                Step::Done => break,
            }
        }
        call.tx.yield_now().await;
    }
    let numbers = numbers(&chunks);
    Ok(call.answer(|reply| {
        reply.array(numbers.len() * 2);
        for (key, number) in &numbers {
            reply.bulk(key.as_bytes());
            reply.bulk(number.to_string().as_bytes());
        }
    }))
}

/// The number in a value.
fn number(text: &[u8]) -> usize {
    String::from_utf8_lossy(text).trim_end_matches('x').parse().expect("keys hold numbers")
}

/// The content of a file of these chunks: keys, and their numbers.
fn numbers(chunks: &[Chunk]) -> BTreeMap<String, usize> {
    let (mut writer, mut bytes) = (Writer::new(), Vec::new());
    writer.start(10, &mut bytes);
    for chunk in chunks {
        writer.follow(&chunk.bytes);
        bytes.extend_from_slice(&chunk.bytes);
    }
    writer.eof(&mut bytes);
    let mut reader = Reader::new(TYPES.kinds(), Limits::default());
    reader.push(&bytes);
    reader.finish();
    let (mut numbers, mut key) = (BTreeMap::new(), String::new());
    while let Some(event) = reader.next().expect("the file is sound") {
        match event {
            Event::Key { key: name, .. } => key = String::from_utf8_lossy(name).into_owned(),
            Event::Item(Item::Chunk(text)) => {
                // The first piece has it.
                numbers.entry(key.clone()).or_insert_with(|| number(text));
            }
            _ => {}
        }
    }
    numbers
}

/// A client that writes, and waits for each reply.
struct Client {
    keys: Vec<String>,
    /// All its keys at once.
    is_group: bool,
    /// The keys of each number, from 1 on.
    written: Vec<usize>,
    waits: bool,
}

/// A record: its number, and the number that it sets a key to.
struct Set {
    record: u64,
    key: String,
    number: usize,
}

/// A seeded bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SaveBug {
    None,
    /// The cores are cut at different instants.
    NoLock,
    /// The number of the last record in the cut is wrong by this.
    LastRecord(i64),
}

struct Run {
    sim: Sim,
    prng: Prng,
    memory: Memory,
    clients: Vec<Client>,
    bug: SaveBug,
    /// By core.
    sets: Vec<Vec<Set>>,
    /// The saver has asked, and not been answered.
    waits: bool,
    made: usize,
}

/// Runs one seed on this many cores.
pub(crate) fn save(seed: u64, cores: usize, bug: SaveBug) -> Result<(), String> {
    /// Steps after which a run counts as hung.
    const PATIENCE: usize = 400_000;
    let mut run = Run::new(seed, cores, bug);
    for _ in 0..PATIENCE {
        run.step()?;
        if run.made >= SNAPSHOTS {
            return Ok(());
        }
    }
    Err("snapshots do not end".to_owned())
}

impl Run {
    fn new(seed: u64, cores: usize, bug: SaveBug) -> Self {
        let mut families = darter_families::TABLES.to_vec();
        families.push(BROKEN);
        let table = Table::new(&families, darter_server::admin::TABLES);
        let memory = Memory::default();
        let waiting = (0..cores).map(|_| (Vec::new(), false)).collect();
        memory.0.lock().expect("no holder panics").waiting = waiting;
        let store = Box::new(memory.clone());
        let sim = Sim::with_store(seed, cores, 2 * WRITERS + 1, table, store);
        let client = |at: usize| {
            let names = (0..2 * cores).map(|key| format!("{at}:{key}"));
            Client {
                keys: names.collect(),
                is_group: at < WRITERS,
                written: Vec::new(),
                waits: false,
            }
        };
        let clients = (0..2 * WRITERS).map(client).collect();
        let prng = Prng::from_seed(seed ^ 0x5a5e);
        sim.cores.iter().for_each(|core| _ = core.tx.home().shard.join(Wants::CHANGES));
        let sets = (0..cores).map(|_| Vec::new()).collect();
        Self { sim, prng, memory, clients, bug, sets, waits: false, made: 0 }
    }

    fn step(&mut self) -> Result<(), String> {
        for at in 0..self.clients.len() {
            self.write(at)?;
        }
        self.ask();
        self.drain()?;
        self.sim.step();
        self.follow();
        self.take_answer()
    }

    /// Reads the records that were made.
    fn follow(&mut self) {
        for (core, sets) in self.sim.cores.iter().zip(&mut self.sets) {
            for record in core.tx.home().shard.take_records() {
                if let Act::Key(key, Effect::Text { value, .. }) = &record.act {
                    let key = String::from_utf8_lossy(key).into_owned();
                    let number = number(value.fresh().to_blob().as_slice().expect("one piece"));
                    sets.push(Set { record: record.number, key, number });
                }
            }
        }
    }

    /// Compares a file with the records of its cut.
    fn compare(&self, file: &BTreeMap<String, usize>, ends: &[u64]) -> Result<(), String> {
        let wrong_by = if let SaveBug::LastRecord(by) = self.bug { by } else { 0 };
        let mut made = BTreeMap::new();
        for (sets, end) in self.sets.iter().zip(ends) {
            let end = end.saturating_add_signed(wrong_by);
            made.extend(
                sets.iter()
                    .take_while(|set| set.record <= end)
                    .map(|set| (set.key.clone(), set.number)),
            );
        }
        if made == *file {
            Ok(())
        } else {
            Err(format!("a file has {file:?}, its records {made:?}"))
        }
    }

    fn write(&mut self, at: usize) -> Result<(), String> {
        let client = &mut self.clients[at];
        if let Some(reply) = value::take(self.sim.inbox(at)) {
            client.waits = false;
            if reply != Value::Simple("OK".to_owned()) {
                return Err(format!("client {at}: {reply:?}"));
            }
        }
        if client.waits || !self.prng.chance(40) {
            return Ok(());
        }
        let key = usize::try_from(self.prng.below(client.keys.len() as u64)).unwrap_or(0);
        client.written.push(key);
        // Long enough that a core's part of the file takes several steps.
        let number = format!("{}{}", client.written.len(), "x".repeat(5_000));
        let pairs = client.keys.iter().map(|key| format!(" {key} {number}"));
        let line = if client.is_group {
            format!("MSET{}\r\n", pairs.collect::<String>())
        } else {
            format!("SET {} {number}\r\n", client.keys[key])
        };
        client.waits = true;
        self.sim.send(at, line.as_bytes());
        Ok(())
    }

    /// The saver asks for the next snapshot.
    fn ask(&mut self) {
        if self.waits || self.memory.is_open() || !self.prng.chance(2) {
            return;
        }
        self.waits = true;
        let line: &[u8] =
            if self.bug == SaveBug::NoLock { b"BROKEN key\r\n" } else { b"BGSAVE\r\n" };
        self.sim.send(2 * WRITERS, line);
    }

    /// Some chunks are written; after the last the file is checked.
    fn drain(&mut self) -> Result<(), String> {
        if !self.memory.is_open() || !self.prng.chance(20) {
            return Ok(());
        }
        let mut file = self.memory.0.lock().expect("no holder panics");
        let at = usize::try_from(self.prng.below(file.waiting.len() as u64)).unwrap_or(0);
        let some = std::mem::take(&mut file.waiting[at].0);
        file.chunks.extend(some);
        self.sim.wake(at);
        if file.waiting.iter().any(|(chunks, more)| *more || !chunks.is_empty()) {
            return Ok(());
        }
        let chunks = std::mem::take(&mut file.chunks);
        let saves = file.saves.take().expect("a file is under way");
        let ends = std::mem::take(&mut file.last_records);
        drop(file);
        saves.end(Outcome::Saved { bytes: 1 });
        self.sim.wake(0);
        let numbers = numbers(&chunks);
        self.compare(&numbers, &ends)?;
        self.check(&numbers)
    }

    fn take_answer(&mut self) -> Result<(), String> {
        let Some(reply) = value::take(self.sim.inbox(2 * WRITERS)) else { return Ok(()) };
        self.waits = false;
        match reply {
            Value::Simple(text) if text == "Background saving started" => Ok(()),
            // The file is written, but core 0 does not know yet.
            Value::Error(text) if text.contains("already in progress") => Ok(()),
            Value::Array(items) if self.bug == SaveBug::NoLock => {
                let text = |item: &Value| match item {
                    Value::Bulk(text) => text.clone(),
                    other => format!("{other:?}"),
                };
                let pairs = items.chunks_exact(2);
                let pairs = pairs.map(|pair| (text(&pair[0]), text(&pair[1]).parse().unwrap_or(0)));
                self.check(&pairs.collect())
            }
            other => Err(format!("the saver is told {other:?}")),
        }
    }

    fn check(&mut self, file: &BTreeMap<String, usize>) -> Result<(), String> {
        self.made += 1;
        for client in &self.clients {
            let number = |key: &String| file.get(key).copied().unwrap_or(0);
            let last = client.keys.iter().map(number).max().unwrap_or(0);
            for (at, key) in client.keys.iter().enumerate() {
                let before = || client.written[..last].iter().rposition(|to| *to == at);
                let due = if client.is_group { last } else { before().map_or(0, |at| at + 1) };
                if number(key) != due {
                    let found = number(key);
                    return Err(format!("{key} is {found}, not {due}, in a file with {last}"));
                }
            }
        }
        Ok(())
    }
}

impl Memory {
    fn is_open(&self) -> bool {
        self.0.lock().expect("no holder panics").saves.is_some()
    }
}

/// The world with its seeded bug.
pub(crate) fn counter_tests() -> impl Iterator<Item = CounterTest> {
    const BUGS: [(&str, SaveBug); 3] = [
        ("cores that are cut at different instants", SaveBug::NoLock),
        ("a cut that says it ends a record early", SaveBug::LastRecord(-1)),
        ("a cut that says it ends a record late", SaveBug::LastRecord(1)),
    ];
    let test = |(name, bug)| CounterTest::new(name, 100, move |seed| save(seed, 3, bug));
    BUGS.into_iter().map(test)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_shows_one_instant() {
        for cores in [1, 2, 3, 5] {
            for seed in 0..5 {
                assert_eq!(save(seed, cores, SaveBug::None), Ok(()), "seed {seed}, {cores} cores");
            }
        }
    }

    #[test]
    fn snapshots_throttle_writers() {
        for cores in [1, 3] {
            let mut run = Run::new(2, cores, SaveBug::None);
            while run.made < SNAPSHOTS {
                assert_eq!(run.step(), Ok(()));
            }
            run.sim.send(2 * WRITERS, b"INFO persistence\r\n");
            let info = (0..100_000).find_map(|_| {
                run.sim.step();
                value::take(run.sim.inbox(2 * WRITERS))
            });
            let Some(Value::Bulk(info)) = info else { panic!("{info:?}") };
            let held = info.lines().find_map(|line| line.strip_prefix("rdb_writes_held:"));
            let held: u64 = held.unwrap().trim().parse().unwrap();
            assert!(held > 3, "{cores} cores: {held}");
        }
    }

    #[test] // The disk is full.
    fn a_snapshot_aborted_while_all_cores_sleep_releases_its_file() {
        const SAVER: usize = 2 * WRITERS;
        for seed in 0..10 {
            let mut run = Run::new(seed, 2, SaveBug::None);
            let mut say = |line: &str, wanted: &str| {
                run.sim.send(SAVER, line.as_bytes());
                let told = (0..100_000).find_map(|_| {
                    run.sim.step();
                    value::take(run.sim.inbox(SAVER))
                });
                assert_eq!(told, Some(Value::Simple(wanted.to_owned())), "seed {seed}");
                (0..2_000).for_each(|_| run.sim.step()); // Lets the run finish.
                run.memory.0.lock().expect("no holder panics").senders
            };
            for key in 0..60 {
                say(&format!("SET {key} {}\r\n", "x".repeat(20_000)), "OK");
            }
            assert_eq!(say("BGSAVE\r\n", "Background saving started"), 2);
            assert_eq!(say("BGSAVE CANCEL\r\n", "Background saving cancelled"), 0, "{seed}");
        }
    }
}

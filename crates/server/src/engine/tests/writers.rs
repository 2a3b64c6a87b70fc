//! Writes that wait for a snapshot; its file is in memory.

use super::super::state::writers::HOLD_MS;
use super::*;
use crate::saving::{Outcome, Outlet, Room, Saves, SnapshotOrder, Store};
use darter_keyspace::{Deadline, Fresh, Key};
use darter_persist::snapshot::Chunk;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The number of keys on core 0: about 35 segments of 50 KiB.
const KEYS: usize = 40_000;
/// The number of requests that the writing client sends.
const WRITES: usize = 100;

/// A store that takes every chunk, unless it hangs.
#[derive(Clone, Default)]
struct Disk {
    hangs: Arc<AtomicBool>,
    begun: Arc<AtomicUsize>,
    /// The number of cores whose part of the snapshot has not ended.
    left: Arc<AtomicUsize>,
    saves: Arc<Mutex<Option<Arc<Saves>>>>,
}

/// The outlet of one core.
struct Lane(Disk);

impl Disk {
    fn end(&self, outcome: Outcome) {
        let saves = self.saves.lock().unwrap().take();
        saves.unwrap().end(outcome);
    }
}

impl Store for Disk {
    fn begin(
        &self,
        order: SnapshotOrder,
        saves: &Arc<Saves>,
    ) -> Result<Vec<Box<dyn Outlet>>, String> {
        assert!(!order.name.is_empty());
        let cores = self.left.load(Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        *self.saves.lock().unwrap() = Some(Arc::clone(saves));
        Ok((0..cores).map(|_| Box::new(Lane(self.clone())) as Box<dyn Outlet>).collect())
    }
}

impl Outlet for Lane {
    fn room(&self) -> Room {
        if self.0.hangs.load(Ordering::Relaxed) { Room::Later } else { Room::Some }
    }

    fn send(&mut self, _: Chunk) {}

    fn end(self: Box<Self>) {
        if self.0.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.end(Outcome::Saved { bytes: 1 });
        }
    }
}

/// Creates cores whose background work runs one portion a turn, and fills core 0 with keys whose
/// values are outside the entries. Returns the keys.
fn filled(cores: usize) -> (Bench, Disk, Vec<String>) {
    filled_with(cores, KEYS)
}

fn filled_with(cores: usize, keys: usize) -> (Bench, Disk, Vec<String>) {
    let disk = Disk::default();
    disk.left.store(cores, Ordering::Relaxed);
    let bench = Bench::with_store(cores, Box::new(disk.clone()));
    bench.short.set(true);
    let core = &bench.cores[0];
    let names = (0..).map(|at| format!("key:{at}"));
    let names: Vec<_> =
        names.filter(|name| core.tx.core_of(name.as_bytes()) == 0).take(keys).collect();
    for name in &names {
        let mut home = core.tx.home();
        let text = Fresh::Bytes(b"a value of some length");
        home.shard.db_mut(0).set_text(&Key::new(name.as_bytes()), text, Deadline::Clear);
    }
    (bench, disk, names)
}

impl Bench {
    /// Begins a snapshot, and runs turns until some keys are in the file.
    fn begin_to_save(&self, disk: &Disk, client: usize) {
        self.send(client, "BGSAVE");
        while disk.begun.load(Ordering::Relaxed) == 0 {
            self.round();
        }
        self.settle();
    }

    /// Runs a turn of each core that has a reason for one. Returns false if none has.
    fn round_of_the_awake(&self) -> bool {
        let is_awake = |at: usize| {
            let has_mail = !self.mail.borrow()[at].is_empty();
            let hears = |client: &Client| client.core == at && client.unread.get();
            has_mail || self.cores[at].at_hand().is_some() || self.clients.iter().any(hears)
        };
        let awake: Vec<_> = (0..self.cores.len()).filter(|at| is_awake(*at)).collect();
        for at in &awake {
            let _ = self.turn(*at);
        }
        !awake.is_empty()
    }
}

#[test] // A client writes at full speed, on this core or on another one.
fn writers_wait_for_a_snapshot_and_readers_do_not() {
    for cores in [1, 2] {
        let (mut bench, disk, names) = filled(cores);
        let (writer, reader) = (cores - 1, bench.connect(0));
        bench.begin_to_save(&disk, reader);
        bench.got(reader);
        let mut written = 0;
        let lines: Vec<_> = names[..WRITES].iter().map(|name| format!("SET {name} w")).collect();
        for part in lines.chunks(20) {
            bench.send(writer, &part.join("\r\n"));
            bench.round();
            bench.round();
            written += bench.got(writer).matches("+OK").count();
        }
        assert!(written < WRITES * 2 / 3, "{cores} cores: {written} are not held");
        bench.send(reader, &format!("GET {}", names[WRITES]));
        bench.turn(0);
        assert!(bench.got(reader).ends_with("a value of some length\r\n"), "{cores} cores");
        while bench.round_of_the_awake() {
            written += bench.got(writer).matches("+OK").count();
        }
        assert_eq!(written, WRITES, "{cores} cores");
        assert_eq!(disk.left.load(Ordering::Relaxed), 0, "{cores} cores: it has been saved");
    }
}

#[test] // A write that copies no segment does not wait at all.
fn throttled_writes_run_after_10_ms_even_if_the_disk_hangs() {
    let (mut bench, disk, names) = filled(1);
    let [saver, writer, other] = [(); 3].map(|()| bench.connect(0));
    bench.begin_to_save(&disk, saver);
    disk.hangs.store(true, Ordering::Relaxed);
    bench.settle();
    let lines: Vec<_> = names[..WRITES].iter().map(|name| format!("SET {name} w")).collect();
    bench.send(writer, &lines.join("\r\n"));
    bench.settle();
    let mut written = bench.got(writer).matches("+OK").count();
    assert!((1..WRITES / 2).contains(&written), "{written} are not held");
    let again = format!("SET {} other", names[0]);
    assert_eq!(bench.ask(other, &again), "+OK\r\n", "it copies nothing");
    while written < WRITES {
        let Wait::Millis(ms) = bench.turn(0) else { panic!("the core does not sleep") };
        assert!((1..=HOLD_MS).contains(&ms), "{ms}");
        assert_eq!(bench.got(writer), "", "no time has passed");
        bench.pass_ms(HOLD_MS);
        bench.turn(0);
        let more = bench.got(writer).matches("+OK").count();
        assert!(more > 0, "{written} after their time");
        written += more;
    }
    let info = bench.ask(other, "INFO persistence");
    assert!(!info.contains("rdb_held_bytes:0\r"), "{info}");
    disk.hangs.store(false, Ordering::Relaxed);
    while bench.round_of_the_awake() {}
    assert_eq!(disk.left.load(Ordering::Relaxed), 0, "it has been saved");
    let info = bench.ask(other, "INFO persistence");
    assert!(info.contains("rdb_held_bytes:0\r"), "{info}");
    assert!(!info.contains("rdb_held_peak_bytes:0\r"), "{info}");
}

#[test]
fn a_throttled_client_that_half_closes_is_closed_at_once() {
    let (mut bench, disk, names) = filled(1);
    let [saver, writer] = [(); 2].map(|()| bench.connect(0));
    let gone: Vec<_> = (0..20).map(|_| bench.connect(0)).collect();
    bench.begin_to_save(&disk, saver);
    disk.hangs.store(true, Ordering::Relaxed);
    let lines: Vec<_> = names[..WRITES].iter().map(|name| format!("SET {name} w")).collect();
    bench.send(writer, &lines.join("\r\n"));
    bench.settle();
    for (at, client) in gone.iter().enumerate() {
        let token = bench.clients[*client].token;
        bench.send(*client, &format!("BLPOP {}-queue 0", names[WRITES + at]));
        bench.turn(0);
        bench.cores[0].ended(token);
        bench.settle();
        assert!(bench.is_closed(*client), "{at}");
    }
    assert!(bench.cores[0].writers.are_held());
}

#[test] // The snapshot encodes huge sets after the lists of the same segment.
fn writers_of_small_values_do_not_wait_for_the_snapshot_of_large_ones() {
    let (mut bench, disk, _) = filled_with(1, 100);
    let [saver, writer, waiter] = [(); 3].map(|()| bench.connect(0));
    bench.short.set(false);
    for (verb, keys) in [("SADD", 2), ("RPUSH", 8)] {
        for (key, part) in (0..keys).flat_map(|key| (0..40).map(move |part| (key, part))) {
            let items: String = (0..2_000).map(|at| format!(" item:{part}:{at}")).collect();
            let reply = bench.ask(writer, &format!("{verb} {verb}:{key}{items}"));
            assert!(reply.starts_with(':'), "{reply}");
        }
    }
    bench.short.set(true);
    bench.begin_to_save(&disk, saver);
    bench.got(saver);
    let mut turns = 0;
    while disk.left.load(Ordering::Relaxed) > 0 {
        bench.send(waiter, "BLPOP queue 0");
        bench.send(writer, &format!("RPUSH queue x\r\nLPUSH small:{} y", turns % 10));
        (0..4).for_each(|_| bench.round());
        assert!(bench.got(writer).ends_with('\n'), "turn {turns}");
        assert_eq!(bench.got(waiter), "*2\r\n$5\r\nqueue\r\n$1\r\nx\r\n", "turn {turns}");
        turns += 1;
    }
    assert!(turns > 100, "{turns}");
    let info = bench.ask(saver, "INFO persistence");
    assert!(info.contains("rdb_writes_held:0\r"), "{info}");
}

#[test]
fn a_throttled_client_may_close() {
    let (mut bench, disk, names) = filled(1);
    let [reader, writer, gone] = [(); 3].map(|()| bench.connect(0));
    bench.begin_to_save(&disk, reader);
    for client in [gone, writer] {
        let part = &names[client * 30..][..30];
        let lines: Vec<_> = part.iter().map(|name| format!("SET {name} w")).collect();
        bench.send(client, &lines.join("\r\n"));
    }
    bench.round();
    assert!(bench.cores[0].writers.are_held());
    bench.cores[0].closed(bench.clients[gone].token);
    while bench.round_of_the_awake() {}
    assert_eq!(bench.got(writer).matches("+OK").count(), 30);
    assert!(!bench.cores[0].writers.are_held());
}

#[test]
fn shutdown_abort_works_while_shutdown_waits_for_another_snapshot() {
    let (mut bench, disk, _) = filled(1);
    let [saver, ender, aborter] = [(); 3].map(|()| bench.connect(0));
    bench.begin_to_save(&disk, saver);
    bench.send(ender, "SHUTDOWN SAVE");
    bench.round();
    assert_eq!(bench.ask(aborter, "SHUTDOWN ABORT"), "+OK\r\n");
    disk.end(Outcome::Cancelled);
    bench.settle();
    assert_eq!(bench.got(ender), "-ERR Errors trying to SHUTDOWN. Check logs.\r\n");
    assert_eq!(disk.begun.load(Ordering::Relaxed), 1, "there is no other snapshot");
    assert_eq!(bench.ask(saver, "SET k v").matches("+OK").count(), 1);
    assert!(bench.ask(aborter, "SHUTDOWN ABORT").starts_with("-ERR No shutdown in progress."));
}

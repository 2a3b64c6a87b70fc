//! Tests of cores without sockets or threads. The tests move the clock, so effects that take
//! seconds, or depend on the order of two messages, are exact.

mod census;
mod corked;
mod events;
mod journal;
mod knocks;
mod lanes;
mod log;
mod moving;
mod order;
mod portions;
mod pubsub;
mod requests;
mod scripts;
mod settle;
mod slices;
mod transactions;
mod waiting;
mod writers;

use super::{Action, Clock, Core, Local, Mail, Peer, SliceClock, Token, Wait, World};
use crate::saving::Store;
use crate::settings::Settings;
use crate::shared::Shared;
use darter_base::Preempt;
use darter_command::Stream;
use darter_resp::{Output, Part, Reply};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

const EPOCH_MS: u64 = 1_700_000_000_000;
const HOUR_MS: u64 = 3_600_000;

struct TestClock {
    passed_ms: Cell<u64>,
    set_back_ms: Cell<u64>,
    /// The time by which each reading advances the clock, so that work takes as long as it reads
    /// the clock.
    reading_ns: Cell<u64>,
    read_ns: Cell<u64>,
    /// The time in which other processes used the processor.
    stolen_ns: Cell<u64>,
}

impl Clock for TestClock {
    fn monotonic_ns(&self) -> u64 {
        self.read_ns.set(self.read_ns.get() + self.reading_ns.get());
        self.passed_ms.get() * 1_000_000 + self.read_ns.get()
    }

    fn unix_ms(&self) -> u64 {
        EPOCH_MS + self.passed_ms.get() - self.set_back_ms.get()
    }

    fn cpu_ns(&self) -> u64 {
        self.monotonic_ns() - self.stolen_ns.get()
    }
}

/// Slices of one portion each, or without a limit.
#[derive(Clone)]
struct TestSlice {
    short: Rc<Cell<bool>>,
    /// True to end each slice after one command or message.
    tiny: Rc<Cell<bool>>,
}

impl Preempt for TestSlice {
    fn must_yield(&self) -> bool {
        self.short.get()
    }
}

impl SliceClock for TestSlice {
    fn begin(&self, _now_ns: u64) {}

    fn extend(&self, _until_ns: u64) {}

    fn is_over(&self, _now_ns: u64) -> bool {
        self.tiny.get()
    }
}

/// A client, as its core sees it.
struct Client {
    core: usize,
    token: Token,
    /// Whether the client reads its replies.
    reads: Cell<bool>,
    unread: Cell<bool>,
    closed: Cell<bool>,
    /// Whether receiving from the client is paused.
    paused: Cell<bool>,
    got: RefCell<Vec<u8>>,
}

/// Some cores, their clients, and the messages in flight.
struct Bench {
    cores: Vec<Rc<Core>>,
    clock: Rc<TestClock>,
    short: Rc<Cell<bool>>,
    tiny: Rc<Cell<bool>>,
    mail: RefCell<Vec<VecDeque<(usize, Mail)>>>,
    clients: Vec<Client>,
    /// The cores that have asked for changed listeners, with the tickets that wait for the result.
    listening: RefCell<Vec<(usize, u64)>>,
    /// Connections to detach, and their cores.
    leaving: RefCell<Vec<(usize, Token)>>,
}

impl Bench {
    /// Creates this number of cores, with one client on each.
    fn new(cores: usize) -> Self {
        Self::on(Shared::nowhere(cores, EPOCH_MS))
    }

    /// Like [`Bench::new`]; snapshots are written to `store`.
    fn with_store(cores: usize, store: Box<dyn Store>) -> Self {
        Self::on(Shared::with_store(cores, EPOCH_MS, store))
    }

    fn on(shared: Arc<Shared>) -> Self {
        let short = Rc::new(Cell::new(false));
        let tiny = Rc::new(Cell::new(false));
        let slice = TestSlice { short: Rc::clone(&short), tiny: Rc::clone(&tiny) };
        Self { short, tiny, ..Self::of(shared, |_| Rc::new(slice.clone())) }
    }

    /// Like [`Bench::new`]; the caller decides when slices end.
    fn with_slices(cores: usize, slice: impl Fn(&Rc<TestClock>) -> Rc<dyn SliceClock>) -> Self {
        Self::of(Shared::nowhere(cores, EPOCH_MS), slice)
    }

    /// Creates a core for each report in `shared`.
    fn of(shared: Arc<Shared>, slice: impl Fn(&Rc<TestClock>) -> Rc<dyn SliceClock>) -> Self {
        let cores = shared.reports.len();
        let clock = Rc::new(TestClock {
            passed_ms: Cell::new(1),
            set_back_ms: Cell::new(0),
            reading_ns: Cell::new(0),
            read_ns: Cell::new(0),
            stolen_ns: Cell::new(0),
        });
        let (table, settings) = (Arc::new(crate::boot::table()), Arc::new(Settings::default()));
        let core = |id| {
            let slice = slice(&clock);
            let world = World { clock: Rc::clone(&clock) as Rc<dyn Clock>, slice, seed: 1 };
            let local = Local::new(Arc::clone(&shared), Arc::clone(&settings));
            Core::new(id, cores, 16, Arc::clone(&table), world, local)
        };
        let made = (0..cores).map(core).collect();
        let mail = RefCell::new((0..cores).map(|_| VecDeque::new()).collect());
        let mut bench = Self {
            cores: made,
            clock,
            short: Rc::default(),
            tiny: Rc::default(),
            mail,
            clients: Vec::new(),
            listening: RefCell::default(),
            leaving: RefCell::default(),
        };
        for core in 0..cores {
            bench.connect(core);
        }
        bench
    }

    /// Connects a client. Returns its number.
    fn connect(&mut self, core: usize) -> usize {
        self.connect_from(core, Peer { is_local: true, ..Peer::default() })
    }

    fn connect_from(&mut self, core: usize, peer: Peer) -> usize {
        let index = u32::try_from(self.clients.len()).unwrap();
        let token = Token { index, generation: 0 };
        self.cores[core].begin_turn();
        self.cores[core].accepted(token, peer);
        self.clients.push(Client {
            core,
            token,
            reads: Cell::new(true),
            unread: Cell::new(false),
            closed: Cell::new(false),
            paused: Cell::new(false),
            got: RefCell::default(),
        });
        self.clients.len() - 1
    }

    fn send(&self, client: usize, line: &str) {
        let Client { core, token, .. } = self.clients[client];
        self.cores[core].begin_turn();
        self.cores[core].received(token, format!("{line}\r\n").as_bytes());
    }

    /// Runs a turn of one core, at the current time.
    fn turn(&self, at: usize) -> Wait {
        let core = &self.cores[at];
        core.begin_turn();
        for (from, mail) in std::mem::take(&mut self.mail.borrow_mut()[at]) {
            core.deliver(from, mail);
        }
        self.take(at);
        core.turn();
        let (mut outbox, mut actions) = (Vec::new(), Vec::new());
        core.drain_outbox(&mut outbox);
        for (to, mail) in outbox {
            self.mail.borrow_mut()[to].push_back((at, mail));
        }
        core.drain_actions(&mut actions);
        actions.into_iter().for_each(|action| self.act(at, action));
        core.wait()
    }

    fn act(&self, at: usize, action: Action) {
        let of = |token| {
            let is_it = |client: &&Client| client.core == at && client.token == token;
            self.clients.iter().find(is_it).unwrap()
        };
        let arrive = |token, bytes: &[u8]| {
            of(token).unread.set(true);
            of(token).got.borrow_mut().extend_from_slice(bytes);
        };
        match action {
            Action::SendFlat(token, bytes) => arrive(token, &bytes),
            Action::Send(token, parts) => parts.into_iter().for_each(|part| match part {
                Part::Bytes(bytes) => arrive(token, &bytes),
                Part::Shared(piece, range) => arrive(token, &piece[range]),
            }),
            Action::Close(token) => {
                of(token).closed.set(true);
                self.cores[at].closed(token);
            }
            Action::Release(token) => self.leaving.borrow_mut().push((at, token)),
            Action::Pause(token) => of(token).paused.set(true),
            Action::Resume(token) => of(token).paused.set(false),
            Action::Listen(_, ticket) => self.listening.borrow_mut().push((at, ticket)),
        }
    }

    /// Runs the periodic checks of a turn in which other work fills the slice.
    fn tick(&self, core: usize) {
        self.cores[core].begin_turn();
        self.take(core);
        self.cores[core].end_pause();
        self.cores[core].tick();
    }

    /// The clients of a core read their replies, if they read at all.
    fn take(&self, core: usize) {
        for client in self.clients.iter().filter(|client| client.core == core) {
            if client.reads.get() && client.unread.take() {
                self.cores[core].sent(client.token, None);
            }
        }
    }

    /// Runs 50 turns of all cores, enough to finish all work that does not wait.
    fn settle(&self) {
        (0..50).for_each(|_| self.round());
    }

    fn round(&self) {
        for core in 0..self.cores.len() {
            self.turn(core);
        }
    }

    fn pass_ms(&self, ms: u64) {
        self.clock.passed_ms.set(self.clock.passed_ms.get() + ms);
    }

    /// Takes the bytes that the client has received.
    fn got(&self, client: usize) -> String {
        String::from_utf8(self.clients[client].got.take()).unwrap()
    }

    fn ask(&self, client: usize, line: &str) -> String {
        self.send(client, line);
        self.settle();
        self.got(client)
    }

    fn is_closed(&self, client: usize) -> bool {
        self.clients[client].closed.get()
    }

    fn set_timeout_ms(&self, ms: u64) {
        self.cores.iter().for_each(|core| core.hot.borrow_mut().timeout_ms = ms);
    }

    /// A key that core `core` owns.
    fn key(&self, core: usize) -> String {
        let mut names = (0..).map(|at| format!("key:{at}"));
        names.find(|name| self.cores[0].tx.core_of(name.as_bytes()) == core).unwrap()
    }

    fn len(&self) -> usize {
        self.cores[0].tx.home().shard.iter().map(|(_, db)| db.len()).sum()
    }

    fn expired(&self) -> u64 {
        self.cores[0].tx.home().shard.expired_count()
    }

    /// Runs turns of core 0, each when it is due, until `is_over` is true. Returns the time that
    /// passed.
    fn until(&self, is_over: impl Fn(&Self) -> bool) -> u64 {
        let begun = self.clock.passed_ms.get();
        for _ in 0..1_000 {
            let wait = self.turn(0);
            if is_over(self) {
                return self.clock.passed_ms.get() - begun;
            }
            match wait {
                Wait::Nothing => {}
                Wait::Millis(ms) => self.pass_ms(ms),
                Wait::Forever => panic!("it sleeps for good"),
            }
        }
        panic!("it never ends");
    }

    /// Like [`Bench::until`]: until core 0 sleeps without a deadline.
    fn until_asleep(&self) -> u64 {
        let is_asleep = Cell::new(false);
        self.until(|bench| {
            is_asleep.set(bench.cores[0].wait() == Wait::Forever);
            is_asleep.get()
        })
    }
}

/// A stream that yields one byte in its middle, and one at its end.
struct Slow {
    pumps: usize,
}

impl Stream for Slow {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        self.pumps -= 1;
        if self.pumps == 5 || self.pumps == 0 {
            reply.out.tail().push(b'!');
        }
        self.pumps > 0
    }
}

/// Cores that close clients after an idle second, with slices of one portion.
fn impatient(cores: usize) -> Bench {
    let bench = Bench::new(cores);
    bench.set_timeout_ms(1_000);
    bench.short.set(true);
    bench
}

#[test] // The task takes longer than the idle timeout, and the reply is still sent.
fn clients_that_wait_for_a_task_are_not_idle() {
    const MEMBERS: usize = 1_000;
    let bench = impatient(1);
    let members: Vec<String> = (0..MEMBERS).map(|at| format!("m{at}")).collect();
    bench.send(0, &format!("SADD {} {}", bench.key(0), members.join(" ")));
    let mut turns = 0;
    while bench.clients[0].got.borrow().is_empty() && !bench.is_closed(0) && turns < 50_000 {
        bench.turn(0);
        bench.pass_ms(2_000);
        turns += 1;
    }
    assert!(turns > 3, "no task was needed: {turns}");
    assert_eq!(bench.got(0), format!(":{MEMBERS}\r\n"), "{turns} turns");
}

#[test]
fn clients_that_wait_for_another_core_are_not_idle() {
    let bench = impatient(2);
    bench.send(0, &format!("GET {}", bench.key(1)));
    bench.turn(0);
    bench.turn(1);
    bench.pass_ms(10_000);
    bench.turn(0);
    assert_eq!(bench.got(0), "$-1\r\n");
}

#[test]
fn clients_that_wait_for_a_stream_without_output_are_not_idle() {
    let bench = impatient(1);
    for is_idle_seen_first in [false, true] {
        let stream: Box<dyn Stream> = Box::new(Slow { pumps: 10 });
        bench.cores[0].with_conn(bench.clients[0].token, |conn| {
            bench.cores[0].push(&mut conn.lane, Output::default(), Some(stream));
        });
        for _ in 0..10 {
            bench.pass_ms(2_000);
            if is_idle_seen_first {
                bench.tick(0);
            }
            bench.turn(0);
        }
        assert_eq!(bench.got(0), "!!", "looked at before: {is_idle_seen_first}");
    }
}

#[test] // The turn in which the pause ends has no time left for the client.
fn clients_held_by_client_pause_are_not_idle() {
    let bench = impatient(1);
    bench.cores[0].hot.borrow_mut().pause = Some((bench.cores[0].now_ms() + 5_000, false));
    bench.send(0, &format!("SET {} v", bench.key(0)));
    bench.turn(0);
    bench.pass_ms(5_000);
    bench.tick(0);
    bench.turn(0);
    bench.turn(0);
    assert_eq!(bench.got(0), "+OK\r\n");
}

#[test] // The rest of their pipeline waits on another core, and must still run.
fn clients_that_do_not_read_their_replies_are_idle() {
    let mut bench = Bench::new(2);
    let key = bench.key(1);
    bench.ask(1, &format!("SET {key} {}", "v".repeat(10_000)));
    bench.clients[0].reads.set(false);
    bench.send(0, &[format!("GET {key}\r\n").repeat(30), format!("SET {key} end")].concat());
    bench.settle();
    let rests = |core: &Core| !core.batches.borrow().is_empty() && core.tx.tasks_len() == 0;
    assert!(rests(&bench.cores[1]), "no batch rests");
    bench.set_timeout_ms(1_000);
    bench.pass_ms(3_000);
    bench.settle();
    assert!(bench.is_closed(0), "kept for ever");
    assert!(bench.cores[1].batches.borrow().is_empty(), "the rest goes on");
    let other = bench.connect(1);
    assert_eq!(bench.ask(other, &format!("GET {key}")), "$3\r\nend\r\n");
}

#[test] // The server does not stop before such a batch has run.
fn a_core_with_a_batch_from_another_core_is_not_quiet() {
    let bench = Bench::new(2);
    assert!(bench.cores.iter().all(|core| core.is_quiet()));
    bench.send(0, &format!("GET {}", bench.key(1)));
    bench.turn(0);
    let (from, mail) = bench.mail.borrow_mut()[1].pop_front().unwrap();
    bench.cores[1].begin_turn();
    bench.cores[1].deliver(from, mail);
    assert!(!bench.cores[0].is_quiet(), "it owes a reply");
    assert!(!bench.cores[1].is_quiet(), "a batch is to be run");
    bench.settle();
    assert!(bench.cores.iter().all(|core| core.is_quiet()));
}

#[test] // The clock is set back during the test.
fn idle_clients_are_closed_a_few_per_turn() {
    const CLIENTS: usize = 300;
    let mut bench = Bench::new(1);
    bench.set_timeout_ms(1_000);
    bench.settle();
    bench.clock.set_back_ms.set(1_800);
    bench.pass_ms(10);
    bench.turn(0);
    let clients: Vec<usize> = (0..CLIENTS).map(|_| bench.connect(0)).collect();
    let busy = bench.connect(0);
    let closed = || clients.iter().filter(|client| bench.is_closed(**client)).count();
    bench.pass_ms(600);
    bench.settle();
    assert_eq!(closed(), 0);
    bench.pass_ms(600);
    bench.send(busy, "PING");
    bench.turn(0);
    bench.turn(0); // Closes the first clients that were found.
    assert!((1..=64).contains(&closed()), "{} in one turn", closed());
    bench.settle();
    assert_eq!(closed(), CLIENTS);
    assert!(!bench.is_closed(busy));
}

#[test] // A part of a pipeline waits on another core when the pause begins.
fn client_pause_holds_a_batch_that_rests_on_another_core() {
    let bench = Bench::new(2);
    let (key, pause) = (bench.key(1), "CLIENT PAUSE 60000 WRITE");
    let reply = format!("$100000\r\n{}\r\n", "v".repeat(100_000));
    bench.ask(1, &format!("SET {key} {}", "v".repeat(100_000)));
    bench.clients[0].reads.set(false);
    bench.send(0, &[format!("GET {key}\r\n").repeat(20), format!("SET {key} new")].concat());
    bench.settle();
    assert_eq!(bench.ask(1, pause), "+OK\r\n");
    bench.clients[0].reads.set(true);
    bench.settle();
    assert_eq!(bench.got(0), reply.repeat(20), "reads go on");
    assert_eq!(bench.ask(1, &format!("STRLEN {key}")), ":100000\r\n", "written amid the pause");
    assert_eq!(bench.ask(1, "CLIENT UNPAUSE"), "+OK\r\n");
    assert_eq!(bench.got(0), "+OK\r\n");
    assert_eq!(bench.ask(1, &format!("STRLEN {key}")), ":3\r\n");

    assert_eq!(bench.ask(1, pause), "+OK\r\n");
    assert_eq!(bench.ask(0, &format!("SET {key} longer")), "");
    bench.pass_ms(59_999);
    bench.settle();
    assert_eq!(bench.got(0), "", "before its end");
    bench.pass_ms(1);
    bench.settle();
    assert_eq!(bench.got(0), "+OK\r\n", "a pause ends by itself");

    let members: Vec<String> = (0..1_000).map(|at| format!("m{at}")).collect();
    bench.short.set(true);
    bench.send(0, &format!("SADD {{{key}}} {}", members.join(" ")));
    (0..10).for_each(|_| bench.round());
    assert_eq!(bench.got(0), "", "too short to last");
    bench.short.set(false);
    assert_eq!(bench.ask(1, pause), "+OK\r\n");
    assert_eq!(bench.got(0), ":1000\r\n", "what has begun is brought to its end");
}

#[test]
fn expired_keys_are_removed_within_10_ms_and_fields_at_once() {
    for set_back_ms in [0, HOUR_MS] {
        let bench = Bench::new(1);
        bench.pass_ms(HOUR_MS + 5);
        bench.ask(0, "PING"); // Schedules the next removal by the clock before it is set back.
        bench.clock.set_back_ms.set(set_back_ms);
        assert_eq!(bench.ask(0, "SET key v PX 500"), "+OK\r\n");
        let took = bench.until(|bench| bench.expired() == 1);
        assert!((500..=510).contains(&took), "a key, set back {set_back_ms}: {took} ms");

        assert_eq!(bench.ask(0, "HSET hash f v"), ":1\r\n");
        assert_eq!(bench.ask(0, "HPEXPIRE hash 500 FIELDS 1 f"), "*1\r\n:1\r\n");
        bench.pass_ms(495);
        bench.turn(0); // Nothing has expired yet; otherwise expired keys would gather from now on.
        assert_eq!(bench.until(|bench| bench.len() == 0), 5, "a field");
    }
}

#[test] // Expired keys gather while the core sleeps.
fn keys_that_expire_within_10_ms_are_removed_together() {
    let bench = Bench::new(1);
    let keys = (1..=30).map(|at| bench.ask(0, &format!("SET key:{at} v PX {}", 100 + at)));
    assert!(keys.into_iter().all(|reply| reply == "+OK\r\n"));
    let begun = bench.clock.passed_ms.get();
    let times = RefCell::new(Vec::new());
    let seen = Cell::new(0);
    bench.until(|bench| {
        if bench.expired() > seen.replace(bench.expired()) {
            times.borrow_mut().push(bench.clock.passed_ms.get() - begun);
        }
        bench.expired() == 30
    });
    let times = times.into_inner();
    assert!((3..=5).contains(&times.len()), "30 deaths in 30 ms, removed at {times:?}");
    assert!(times.last().is_some_and(|last| *last <= 140), "{times:?}");
}

#[test] // A pipeline of long requests is sent as fast as the other core runs it.
fn the_bytes_of_requests_on_other_cores_are_bounded() {
    const LEN: usize = 100_000;
    let bench = Bench::new(2);
    let set = format!("SET {} {}", bench.key(1), "v".repeat(LEN));
    let set = format!("{set}\r\n").repeat(100);
    let Client { core, token, .. } = bench.clients[0];
    bench.cores[core].begin_turn();
    bench.cores[core].received(token, set.as_bytes());
    for _ in 0..20 {
        bench.turn(0);
    }
    let away = |bench: &Bench| {
        let bytes = |conn: &mut super::Conn| (conn.lane.away.bytes, conn.sizes().total);
        bench.cores[core].with_conn(token, bytes).unwrap()
    };
    let (bytes, memory) = away(&bench);
    assert!((1 << 20..(1 << 20) + 2 * LEN).contains(&bytes), "{bytes} bytes are away");
    assert!(memory > bytes, "{memory} bytes are told of");
    (0..3).for_each(|_| bench.settle());
    assert_eq!(bench.got(0), "+OK\r\n".repeat(100));
    assert_eq!(away(&bench).0, 0);
}

#[test] // Clients that have ended MONITOR get no more lines.
fn monitor_sends_lines_to_watchers_on_other_cores() {
    let mut bench = Bench::new(2);
    let (client, leaving) = (bench.connect(0), bench.connect(1));
    let bytes = |bench: &Bench| {
        let bytes = |conn: &mut super::Conn| (conn.lane.waiting_bytes(), conn.sizes().total);
        bench.cores[1].with_conn(bench.clients[1].token, bytes).unwrap()
    };
    for watcher in [1, leaving] {
        assert_eq!(bench.ask(watcher, "MONITOR"), "+OK\r\n");
        assert!(bench.cores[0].watchers.borrow().are_any());
    }
    assert_eq!(bench.ask(leaving, "RESET"), "+RESET\r\n");
    bench.got(1);
    bench.ask(client, "ECHO hello");
    assert!(bench.got(1).ends_with(" \"ECHO\" \"hello\"\r\n"));
    assert_eq!(bench.got(leaving), "");

    bench.clients[1].reads.set(false);
    for _ in 0..20 {
        bench.ask(client, &format!("ECHO {}", "v".repeat(50_000)));
    }
    let (waiting, memory) = bytes(&bench);
    assert!(waiting > 19 * 50_000, "{waiting} bytes wait");
    assert!(memory > waiting, "{memory}");
    bench.clients[1].reads.set(true);
    bench.settle();
    assert_eq!(bench.got(1).lines().count(), 20);
    assert_eq!(bytes(&bench).0, 0, "all is taken");

    assert_eq!(bench.ask(1, "RESET"), "+RESET\r\n");
    for core in &bench.cores {
        assert!(!core.watchers.borrow().are_any(), "core {} feeds nobody", core.id());
    }
}

#[test] // The cores sleep while a change waits.
fn concurrent_config_sets_are_applied_one_by_one() {
    let mut bench = Bench::new(2);
    let (first, second) = (bench.connect(1), bench.connect(0));
    for (client, line) in [(first, "port 7"), (second, "port 8 timeout 5"), (1, "timeout 6")] {
        bench.send(client, &format!("CONFIG SET {line}"));
        bench.settle();
    }
    assert_eq!(bench.listening.borrow().len(), 1, "one change at a time");
    for core in 0..2 {
        assert_ne!(bench.turn(core), Wait::Nothing, "core {core} has nothing to do");
    }
    for (is_open, client, told) in [(true, first, "+OK"), (false, second, "-ERR CONFIG SET failed")]
    {
        let (core, ticket) = bench.listening.borrow_mut().pop().unwrap();
        bench.cores[core].begin_turn();
        bench.cores[core].tx.complete(ticket, Box::new(is_open));
        bench.settle();
        assert!(bench.got(client).starts_with(told));
    }
    assert_eq!(bench.got(1), "+OK\r\n");
    for (name, value) in [("port", "7"), ("timeout", "6")] {
        let told = bench.ask(1, &format!("CONFIG GET {name}"));
        assert!(told.ends_with(&format!("\r\n{value}\r\n")), "{told}");
    }
}

#[test] // The core sleeps forever after it has released the buffers of silent connections.
fn a_core_without_work_sets_no_timer() {
    let mut bench = Bench::new(1);
    bench.until_asleep();
    (0..100).for_each(|_| _ = bench.connect(0));
    assert!(bench.until_asleep() < 100, "who has sent nothing holds nothing");
    assert_eq!(bench.ask(7, "PING"), "+PONG\r\n");
    assert_eq!(bench.ask(90, "PING"), "+PONG\r\n");
    let held = |bench: &Bench, client: usize| {
        let token = bench.clients[client].token;
        bench.cores[0].with_conn(token, |conn| conn.parser.memory_bytes()).unwrap()
    };
    assert!(held(&bench, 7) > 0 && held(&bench, 90) > 0);
    bench.pass_ms(1_500);
    assert_eq!(bench.ask(90, "PING"), "+PONG\r\n", "while a look is due");
    let took = bench.until(|bench| held(bench, 7) == 0);
    assert!((500..600).contains(&took), "{took}");
    assert!(held(&bench, 90) > 0);
    let took = bench.until(|bench| held(bench, 90) == 0);
    assert!((1_400..1_700).contains(&took), "{took}");
    assert!(bench.until_asleep() < 100);
}

#[test] // The scan had visited the connection before the buffer was filled.
fn a_buffer_filled_during_the_release_scan_is_released() {
    let mut bench = Bench::new(1);
    (0..100).for_each(|_| _ = bench.connect(0));
    bench.ask(50, "PING");
    bench.until(|bench| bench.cores[0].release.is_amid());
    bench.ask(1, "PING");
    bench.until_asleep();
    let token = bench.clients[1].token;
    let held = bench.cores[0].with_conn(token, |conn| conn.parser.memory_bytes());
    assert_eq!(held, Some(0));
}

#[test] // The held requests run without another received byte.
fn buffers_of_requests_held_by_a_pause_are_released_afterwards() {
    let bench = Bench::new(1);
    bench.cores[0].hot.borrow_mut().pause = Some((bench.cores[0].now_ms() + 5_000, false));
    bench.send(0, &format!("SET {} v", bench.key(0)));
    bench.send(0, "PING");
    bench.until_asleep();
    assert_eq!(bench.got(0), "+OK\r\n+PONG\r\n");
    let token = bench.clients[0].token;
    let held = bench.cores[0].with_conn(token, |conn| conn.parser.memory_bytes());
    assert_eq!(held, Some(0));
}

#[test] // No check runs before the first client can reach the timeout.
fn idle_clients_are_closed_at_the_timeout() {
    let bench = Bench::new(1);
    bench.set_timeout_ms(60_000);
    assert_eq!(bench.ask(0, "PING"), "+PONG\r\n");
    let turns = Cell::new(0);
    let took = bench.until(|bench| {
        turns.set(turns.get() + 1);
        bench.is_closed(0)
    });
    assert!((60_000..60_600).contains(&took), "{took} ms");
    assert!(turns.get() < 20, "{} turns", turns.get());
    assert!(bench.until_asleep() < 100, "nobody is left to be looked at");
}

#[test]
fn a_held_client_continues_when_the_pause_is_cancelled() {
    let bench = Bench::new(1);
    bench.cores[0].hot.borrow_mut().pause = Some((bench.cores[0].now_ms() + 5_000, false));
    bench.send(0, &format!("SET {} v", bench.key(0)));
    assert_eq!(bench.turn(0), Wait::Millis(2_000), "when its memory is taken back");
    bench.cores[0].hot.borrow_mut().pause = None; // As a task would do it, in the middle of a turn.
    assert_eq!(bench.cores[0].wait(), Wait::Nothing);
    bench.turn(0);
    assert_eq!(bench.got(0), "+OK\r\n");
}

#[test] // The core sleeps before and after the compaction.
fn a_shrunk_table_is_compacted_once_after_a_delay() {
    const KEYS: usize = 40_000;
    let bench = Bench::new(1);
    let shrunk = || bench.cores[0].tx.home().shard.db(0).keys().shrunk_bytes();
    let each = |from: usize, act: &dyn Fn(&mut darter_keyspace::Db, &darter_keyspace::Key<'_>)| {
        let mut home = bench.cores[0].tx.home();
        for number in (from..KEYS).step_by(2) {
            let name = format!("key:{number}");
            act(home.shard.db_mut(0), &darter_keyspace::Key::new(name.as_bytes()));
        }
    };
    let value = darter_keyspace::Fresh::Bytes(b"of twenty characters");
    let clear = darter_keyspace::Deadline::Clear;
    [0, 1].iter().for_each(|from| each(*from, &|db, key| db.set_text(key, value, clear)));
    bench.until_asleep();
    assert_eq!(bench.cores[0].tx.home().shard.next_compaction(), None, "it only grew");
    each(0, &|db, key| _ = db.remove(key));
    assert!(shrunk() > 256 * 1024, "{} bytes", shrunk());

    let Wait::Millis(ms) = bench.turn(0) else { panic!("it does not wait for the moment") };
    bench.pass_ms(ms / 2);
    each(1, &|db, key| _ = (key.hash % 2 == 0).then(|| db.remove(key)));
    assert_eq!(bench.turn(0), Wait::Millis(1_000), "it goes on shrinking");
    let took = bench.until_asleep();
    assert!((1_000..1_200).contains(&took) && shrunk() == 0, "{took} ms, {} bytes", shrunk());
    bench.cores[0].tx.home().shard.check_invariants();
}

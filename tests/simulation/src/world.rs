//! The world in one thread: cores, the messages between them, connections, time.
//!
//! Messages between two cores keep their order, and are delivered when the dice say so, several at
//! once or none. Bytes to and from clients are cut at random. Slices end at random, mostly early.
//!
//! A core that has nothing to do sleeps, as its thread would: until something comes to it, or until
//! the time that it told. When all sleep and nothing is on its way, time goes on to the first of
//! those moments. A client that is owed a reply then has been forgotten: [`Sim::is_asleep`].

use darter_base::{Preempt, Prng};
use darter_server::admin::{Local, Shared};
use darter_server::engine::{
    Action, Clock, Core, Mail, Peer, SliceClock, Table, Token, Wait, World,
};
use darter_server::settings::Settings;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// Time that passes by steps.
pub(crate) struct SimClock {
    now_ns: Cell<u64>,
}

/// When the simulation begins, in Unix milliseconds.
const EPOCH_MS: u64 = 1_700_000_000_000;

impl SimClock {
    fn advance(&self, ns: u64) {
        self.now_ns.set(self.now_ns.get() + ns);
    }
}

impl Clock for SimClock {
    fn monotonic_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn unix_ms(&self) -> u64 {
        EPOCH_MS + self.now_ns.get() / 1_000_000
    }

    fn cpu_ns(&self) -> u64 {
        self.now_ns.get()
    }
}

/// Ends slices at random.
struct SimSlice {
    prng: RefCell<Prng>,
    percent: u64,
}

impl Preempt for SimSlice {
    fn must_yield(&self) -> bool {
        self.prng.borrow_mut().chance(self.percent)
    }
}

impl SliceClock for SimSlice {
    fn begin(&self, _now_ns: u64) {}

    fn extend(&self, _until_ns: u64) {}
}

/// One end of a connection: what is on its way to the core, and what came from it.
struct Wire {
    core: usize,
    token: Token,
    to_core: Vec<u8>,
    from_core: Vec<u8>,
    unacknowledged: bool,
}

/// Until when a core sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleep {
    /// It does not.
    Awake,
    /// Until this moment, by the monotonic clock.
    Until(u64),
    /// Until something comes.
    Forever,
}

/// See the module.
pub(crate) struct Sim {
    pub(crate) prng: Prng,
    pub(crate) cores: Vec<Rc<Core>>,
    clock: Rc<SimClock>,
    /// `mail[from][to]`.
    mail: Vec<Vec<VecDeque<Mail>>>,
    wires: Vec<Wire>,
    sleep: Vec<Sleep>,
    /// A seeded bug: cores go to sleep while a task can go on.
    pub(crate) oversleeps: bool,
}

impl Sim {
    pub(crate) fn new(seed: u64, cores: usize, clients: usize, table: Table) -> Self {
        let mut prng = Prng::from_seed(seed);
        let clock = Rc::new(SimClock { now_ns: Cell::new(1_000) });
        let table = Arc::new(table);
        let settings = Arc::new(Settings::default());
        let shared = Shared::nowhere(cores, EPOCH_MS);
        let percent = 20 + prng.below(75);
        let made = (0..cores).map(|id| {
            let slice = SimSlice { prng: RefCell::new(Prng::from_seed(prng.next_u64())), percent };
            let world = World {
                clock: Rc::clone(&clock) as Rc<dyn Clock>,
                slice: Rc::new(slice),
                seed: prng.next_u64(),
            };
            let local = Local::new(Arc::clone(&shared), Arc::clone(&settings));
            Core::new(id, cores, 2, Arc::clone(&table), world, local)
        });
        let cores_made: Vec<Rc<Core>> = made.collect();
        let mail = (0..cores).map(|_| (0..cores).map(|_| VecDeque::new()).collect()).collect();
        let sleep = vec![Sleep::Awake; cores];
        let (wires, oversleeps) = (Vec::new(), false);
        let mut sim = Self { prng, cores: cores_made, clock, mail, wires, sleep, oversleeps };
        for client in 0..clients {
            let core = client % cores;
            let index = u32::try_from(client).unwrap_or(0);
            let token = Token { index, generation: 0 };
            let peer =
                Peer { remote: format!("127.0.0.1:{client}"), is_local: true, ..Peer::default() };
            sim.cores[core].begin_turn();
            sim.cores[core].accepted(token, peer);
            sim.wires.push(Wire {
                core,
                token,
                to_core: Vec::new(),
                from_core: Vec::new(),
                unacknowledged: false,
            });
        }
        sim
    }

    /// Puts bytes on the wire of a client.
    pub(crate) fn send(&mut self, client: usize, bytes: &[u8]) {
        self.wires[client].to_core.extend_from_slice(bytes);
    }

    /// What has come to a client; the reader takes off what it has parsed.
    pub(crate) fn inbox(&mut self, client: usize) -> &mut Vec<u8> {
        &mut self.wires[client].from_core
    }

    /// Lets time pass in which nobody does anything.
    pub(crate) fn pass_ms(&self, ms: u64) {
        self.clock.advance(ms * 1_000_000);
    }

    /// One step of one core, drawn at random: nothing, if it sleeps.
    pub(crate) fn step(&mut self) {
        let core = usize::try_from(self.prng.below(self.cores.len() as u64)).unwrap_or(0);
        self.clock.advance(1 + self.prng.below(40_000));
        if self.is_asleep() {
            self.pass_until_due();
        }
        self.cores[core].begin_turn();
        let is_woken = self.deliver_mail(core) | self.deliver_bytes(core);
        if is_woken || self.is_due(core) {
            self.sleep[core] = self.turn(core);
        }
    }

    /// True when every core sleeps, and nothing is on its way to any, or to a client.
    pub(crate) fn is_asleep(&self) -> bool {
        self.sleep.iter().all(|sleep| *sleep != Sleep::Awake)
            && self.mail.iter().flatten().all(VecDeque::is_empty)
            && self.wires.iter().all(|wire| {
                wire.to_core.is_empty() && wire.from_core.is_empty() && !wire.unacknowledged
            })
    }

    /// Time passes until the first core has told that it wants to wake, if one has.
    fn pass_until_due(&self) {
        let told = self.sleep.iter().filter_map(|sleep| match sleep {
            Sleep::Until(due) => Some(*due),
            Sleep::Awake | Sleep::Forever => None,
        });
        if let Some(due) = told.min() {
            self.clock.advance(due.saturating_sub(self.clock.monotonic_ns()));
        }
    }

    fn is_due(&self, core: usize) -> bool {
        match self.sleep[core] {
            Sleep::Awake => true,
            Sleep::Until(due) => due <= self.clock.monotonic_ns(),
            Sleep::Forever => false,
        }
    }

    /// A turn, and how long the core sleeps after it.
    fn turn(&mut self, core: usize) -> Sleep {
        self.cores[core].turn();
        self.collect(core);
        match self.cores[core].wait() {
            Wait::Nothing if self.oversleeps && self.cores[core].tx.has_ready() => Sleep::Forever,
            Wait::Nothing => Sleep::Awake,
            Wait::Millis(ms) => Sleep::Until(self.clock.monotonic_ns() + ms * 1_000_000),
            Wait::Forever => Sleep::Forever,
        }
    }

    /// True when something came.
    fn deliver_mail(&mut self, core: usize) -> bool {
        let mut came = false;
        for from in 0..self.cores.len() {
            while !self.mail[from][core].is_empty() && self.prng.chance(70) {
                if let Some(mail) = self.mail[from][core].pop_front() {
                    self.cores[core].deliver(from, mail);
                    came = true;
                }
            }
        }
        came
    }

    /// True when something came.
    fn deliver_bytes(&mut self, core: usize) -> bool {
        let mut came = false;
        for wire in self.wires.iter_mut().filter(|wire| wire.core == core) {
            if wire.unacknowledged && self.prng.chance(70) {
                wire.unacknowledged = false;
                self.cores[core].sent(wire.token, None);
                came = true;
            }
            if !wire.to_core.is_empty() && self.prng.chance(80) {
                let whole = wire.to_core.len() as u64;
                let cut = if self.prng.chance(60) { whole } else { 1 + self.prng.below(whole) };
                let bytes: Vec<u8> =
                    wire.to_core.drain(..usize::try_from(cut).unwrap_or(1)).collect();
                self.cores[core].received(wire.token, &bytes);
                came = true;
            }
        }
        came
    }

    fn collect(&mut self, core: usize) {
        let mut outbox = Vec::new();
        self.cores[core].drain_outbox(&mut outbox);
        for (to, mail) in outbox {
            self.mail[core][to].push_back(mail);
        }
        let mut actions = Vec::new();
        self.cores[core].drain_actions(&mut actions);
        for action in actions {
            match action {
                Action::SendFlat(token, bytes) => self.arrive(core, token, &bytes),
                Action::Send(token, parts) => {
                    let mut all = Vec::new();
                    for part in parts {
                        match part {
                            darter_resp::Part::Bytes(bytes) => all.extend_from_slice(&bytes),
                            darter_resp::Part::Shared(piece, range) => {
                                all.extend_from_slice(&piece[range]);
                            }
                        }
                    }
                    self.arrive(core, token, &all);
                }
                Action::Pause(_) | Action::Resume(_) => {} // The wires here are short.
                Action::Close(_) => panic!("no client was to be closed"),
                Action::Listen(..) => panic!("no client was to change the port"),
            }
        }
    }

    fn arrive(&mut self, core: usize, token: Token, bytes: &[u8]) {
        let wire = self.wires.iter_mut().find(|wire| wire.core == core && wire.token == token);
        let wire = wire.expect("a known client");
        assert!(!wire.unacknowledged, "two sends in flight");
        wire.from_core.extend_from_slice(bytes);
        wire.unacknowledged = true;
    }

    /// Asserts the invariants of all data.
    pub(crate) fn check_invariants(&self) {
        for core in &self.cores {
            let home = core.tx.home();
            home.shard.iter().for_each(|(_, db)| db.check_invariants());
        }
    }

    /// Asserts that nothing is left behind when all clients are answered.
    pub(crate) fn check_rest(&mut self) {
        const STEPS: usize = 2_000;
        for _ in 0..STEPS {
            self.step();
        }
        for core in &self.cores {
            assert_eq!(core.tx.tasks_len(), 0, "a task is left on core {}", core.id());
            assert!(core.tx.home().locks.is_free(), "a lock is left on core {}", core.id());
        }
        assert!(self.mail.iter().flatten().all(VecDeque::is_empty), "mail is left");
    }
}

//! The world in one thread: cores, the messages between them, connections, time.
//!
//! Messages between two cores keep their order, and are delivered when the dice say so, several at
//! once or none. Bytes to and from clients are cut at random. Slices end at random, mostly early.
//!
//! A core that has nothing to do sleeps, as its thread would: until something comes to it, or until
//! the time that it told. When all sleep and nothing is on its way, time goes on to the first of
//! those moments. A client that is owed a reply then has been forgotten: [`Sim::is_asleep`].
//!
//! Connections end in three ways: the client sends no more and reads on, it is gone, or its core
//! closes it. Its place is used again by the next connection.

use darter_base::preempt::Never;
use darter_base::{Preempt, Prng};
use darter_keyspace::lazyfree;
use darter_server::admin::Local;
use darter_server::engine::{
    Action, Clock, Core, Mail, Peer, SliceClock, Table, Token, Wait, World,
};
use darter_server::settings::Settings;
use darter_server::shared::Shared;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// Time that passes by steps.
pub(crate) struct SimClock {
    now_ns: Cell<u64>,
}

/// As many databases as Redis allows, but for a few.
pub(crate) const DATABASES: usize = 2_000_000_000;
/// Those that are used: two that lie side by side, the first that is far, and the last.
pub(crate) const DATABASES_USED: [usize; 4] = [0, 1, 64, DATABASES - 1];

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

/// Ends slices at random, and lets somebody knock at random.
struct SimSlice {
    prng: RefCell<Prng>,
    percent: u64,
    knock_percent: u64,
    is_listening: Cell<bool>,
    is_knocked: Cell<bool>,
}

impl SimSlice {
    fn new(seed: u64, percent: u64) -> Self {
        let mut prng = Prng::from_seed(seed);
        let knock_percent = prng.below(30);
        let (is_listening, is_knocked) = Default::default();
        Self { prng: RefCell::new(prng), percent, knock_percent, is_listening, is_knocked }
    }
}

impl Preempt for SimSlice {
    fn must_yield(&self) -> bool {
        let mut prng = self.prng.borrow_mut();
        if self.is_listening.get() && prng.chance(self.knock_percent) {
            self.is_knocked.set(true); // Until the next turn, where slices else go on as they like.
        }
        self.is_knocked.get() || prng.chance(self.percent)
    }
}

impl SliceClock for SimSlice {
    fn begin(&self, _now_ns: u64) {
        self.is_listening.set(false);
        self.is_knocked.set(false);
    }

    fn extend(&self, _until_ns: u64) {}

    fn begin_background(&self, _now_ns: u64, _least_ns: u64) {
        self.is_listening.set(true);
    }

    fn is_knocked(&self) -> bool {
        self.is_knocked.get()
    }
}

/// One end of a connection: what is on its way to the core, and what came from it.
struct Wire {
    core: usize,
    token: Token,
    to_core: Vec<u8>,
    from_core: Vec<u8>,
    unacknowledged: bool,
    /// The client takes what is sent to it.
    reads: bool,
    phase: Phase,
}

/// How far the end of a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Both sides send.
    Open,
    /// The client sends no more: its core is to hear that behind the last byte.
    Ending,
    /// It has heard.
    Ended,
    /// The client is gone, or its core closes it: that one is to hear that it is done.
    Closing,
    /// It has heard.
    Closed,
}

/// What is wrong with a world, to see that it would be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Nothing.
    None,
    /// Cores go to sleep while a task can go on.
    Oversleeps,
    /// Cores that sleep until a moment sleep on.
    ForgetsDeadlines,
    /// A client that sends no more is cut off.
    CutsOffTheEnded,
    /// The last core never hears of a pause.
    MissesPauses,
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
    /// A seeded bug.
    pub(crate) flaw: Flaw,
}

impl Sim {
    pub(crate) fn new(seed: u64, cores: usize, clients: usize, table: Table) -> Self {
        while lazyfree::run(&Never) {} // Of another world.
        let mut prng = Prng::from_seed(seed);
        let clock = Rc::new(SimClock { now_ns: Cell::new(1_000) });
        let table = Arc::new(table);
        let settings = Arc::new(Settings::default());
        let shared = Shared::nowhere(cores, EPOCH_MS);
        let percent = 20 + prng.below(75);
        let made = (0..cores).map(|id| {
            let slice = SimSlice::new(prng.next_u64(), percent);
            let world = World {
                clock: Rc::clone(&clock) as Rc<dyn Clock>,
                slice: Rc::new(slice),
                seed: prng.next_u64(),
            };
            let local = Local::new(Arc::clone(&shared), Arc::clone(&settings));
            Core::new(id, cores, DATABASES, Arc::clone(&table), world, local)
        });
        let cores_made: Vec<Rc<Core>> = made.collect();
        let mail = (0..cores).map(|_| (0..cores).map(|_| VecDeque::new()).collect()).collect();
        let sleep = vec![Sleep::Awake; cores];
        let (wires, flaw) = (Vec::new(), Flaw::None);
        let mut sim = Self { prng, cores: cores_made, clock, mail, wires, sleep, flaw };
        for client in 0..clients {
            let index = u32::try_from(client).unwrap_or(0);
            sim.wires.push(Wire::new(client % cores, Token { index, generation: 0 }));
            sim.accept(client);
        }
        sim
    }

    /// A client whose connection is closed makes a new one, in the same place.
    pub(crate) fn reconnect(&mut self, client: usize) {
        let Wire { core, token, .. } = self.wires[client];
        self.wires[client] = Wire::new(core, Token { generation: token.generation + 1, ..token });
        self.accept(client);
    }

    fn accept(&mut self, client: usize) {
        let Wire { core, token, .. } = self.wires[client];
        let remote = format!("127.0.0.1:{client}");
        self.cores[core].begin_turn();
        self.cores[core].accepted(token, Peer { remote, is_local: true, ..Peer::default() });
        self.sleep[core] = Sleep::Awake;
    }

    /// Puts bytes on the wire of a client.
    pub(crate) fn send(&mut self, client: usize, bytes: &[u8]) {
        self.wires[client].to_core.extend_from_slice(bytes);
    }

    /// A client sends no more, and reads on.
    pub(crate) fn end(&mut self, client: usize) {
        let phase = &mut self.wires[client].phase;
        if *phase == Phase::Open {
            *phase = Phase::Ending; // Its core may have been first, and closes it.
        }
    }

    /// A client is gone, with all that was on its way to its core.
    pub(crate) fn reset(&mut self, client: usize) {
        self.wires[client].phase = Phase::Closing;
        self.wires[client].to_core.clear();
    }

    /// A client begins to take what is sent to it, or ceases to.
    pub(crate) fn set_reads(&mut self, client: usize, reads: bool) {
        self.wires[client].reads = reads;
    }

    /// True when a connection is no more.
    pub(crate) fn is_closed(&self, client: usize) -> bool {
        self.wires[client].phase == Phase::Closed
    }

    /// Bytes that a client has sent and that have not come to its core.
    pub(crate) fn on_their_way(&self, client: usize) -> usize {
        self.wires[client].to_core.len()
    }

    /// Bytes of output that a client has not taken, as CLIENT LIST would tell (`omem`).
    pub(crate) fn output_bytes(&self, client: usize) -> usize {
        let Wire { core, token, .. } = self.wires[client];
        let mut bytes = 0;
        self.cores[core].some_conns(0, usize::MAX, |conn| {
            if conn.lane.token == token {
                bytes = conn.sizes().output;
            }
        });
        bytes
    }

    /// Unix milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.unix_ms()
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
        if is_woken || self.is_over(self.sleep[core]) {
            self.sleep[core] = self.turn(core);
        }
    }

    /// True when every core sleeps, and nothing is on its way to any, or to a client that reads.
    pub(crate) fn is_asleep(&self) -> bool {
        !self.sleep.iter().any(|sleep| self.is_over(*sleep))
            && self.mail.iter().flatten().all(VecDeque::is_empty)
            && self.wires.iter().all(Wire::is_quiet)
    }

    /// When the first core wants to wake by itself, in Unix milliseconds, if one does.
    pub(crate) fn wakes_ms(&self) -> Option<u64> {
        self.first_due_ns().map(|due| EPOCH_MS + due / 1_000_000)
    }

    fn first_due_ns(&self) -> Option<u64> {
        let told = self.sleep.iter().filter_map(|sleep| match sleep {
            Sleep::Until(due) => Some(*due),
            Sleep::Awake | Sleep::Forever => None,
        });
        told.min()
    }

    /// Time passes until the first core has told that it wants to wake, if one has.
    fn pass_until_due(&self) {
        if let Some(due) = self.first_due_ns() {
            self.clock.advance(due.saturating_sub(self.clock.monotonic_ns()));
        }
    }

    fn is_over(&self, sleep: Sleep) -> bool {
        match sleep {
            Sleep::Awake => true,
            Sleep::Until(due) => due <= self.clock.monotonic_ns(),
            Sleep::Forever => false,
        }
    }

    /// A turn, and how long the core sleeps after it.
    fn turn(&mut self, core: usize) -> Sleep {
        if self.flaw == Flaw::MissesPauses && core + 1 == self.cores.len() {
            self.cores[core].hot.borrow_mut().pause = None;
        }
        self.cores[core].turn();
        self.collect(core);
        let oversleeps = self.flaw == Flaw::Oversleeps;
        match self.cores[core].wait() {
            Wait::Nothing if oversleeps && self.cores[core].tx.has_ready() => Sleep::Forever,
            Wait::Nothing => Sleep::Awake,
            Wait::Millis(_) if self.flaw == Flaw::ForgetsDeadlines => Sleep::Forever,
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
        let (mut came, cuts_off) = (false, self.flaw == Flaw::CutsOffTheEnded);
        for wire in self.wires.iter_mut().filter(|wire| wire.core == core) {
            if wire.unacknowledged && wire.reads && self.prng.chance(70) {
                wire.unacknowledged = false;
                self.cores[core].sent(wire.token, None);
                came = true;
            }
            if !wire.to_core.is_empty() && wire.phase != Phase::Closing && self.prng.chance(80) {
                let whole = wire.to_core.len() as u64;
                let cut = if self.prng.chance(60) { whole } else { 1 + self.prng.below(whole) };
                let bytes: Vec<u8> =
                    wire.to_core.drain(..usize::try_from(cut).unwrap_or(1)).collect();
                self.cores[core].received(wire.token, &bytes);
                came = true;
            }
            if wire.has_news() && self.prng.chance(50) {
                wire.tell_end(&self.cores[core], cuts_off);
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
                Action::Close(token) => self.wire(core, token).phase = Phase::Closing,
                Action::Listen(..) => panic!("no client was to change the port"),
            }
        }
    }

    fn arrive(&mut self, core: usize, token: Token, bytes: &[u8]) {
        let wire = self.wire(core, token);
        assert!(!wire.unacknowledged, "two sends in flight");
        wire.from_core.extend_from_slice(bytes);
        wire.unacknowledged = true;
    }

    fn wire(&mut self, core: usize, token: Token) -> &mut Wire {
        let wire = self.wires.iter_mut().find(|wire| wire.core == core && wire.token == token);
        wire.expect("a known client")
    }

    /// Asserts the invariants of all data.
    pub(crate) fn check_invariants(&self) {
        for core in &self.cores {
            core.tx.home().shard.check_invariants();
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
            let open = |wire: &&Wire| wire.core == core.id() && wire.phase != Phase::Closed;
            let wires = self.wires.iter().filter(open).count();
            assert_eq!(core.conns_len(), wires, "connections of core {}", core.id());
        }
        let has_ended = |wire: &Wire| !matches!(wire.phase, Phase::Open | Phase::Closed);
        assert!(!self.wires.iter().any(has_ended), "a connection that ended is not closed");
        assert!(self.mail.iter().flatten().all(VecDeque::is_empty), "mail is left");
        assert!(lazyfree::is_empty(), "what was let go of is not freed");
    }
}

impl Wire {
    fn new(core: usize, token: Token) -> Self {
        let (to_core, from_core) = (Vec::new(), Vec::new());
        let (unacknowledged, reads, phase) = (false, true, Phase::Open);
        Self { core, token, to_core, from_core, unacknowledged, reads, phase }
    }

    /// Nothing is on its way, unless it is the client that does not take it.
    fn is_quiet(&self) -> bool {
        let is_taken = self.to_core.is_empty() || self.phase == Phase::Closed;
        is_taken && !(self.unacknowledged && self.reads) && !self.has_news()
    }

    /// The core is to hear of its end.
    fn has_news(&self) -> bool {
        self.phase == Phase::Closing || (self.phase == Phase::Ending && self.to_core.is_empty())
    }

    /// It hears, of the client's end or of that of the connection.
    fn tell_end(&mut self, core: &Core, cuts_off: bool) {
        if self.phase == Phase::Ending && !cuts_off {
            self.phase = Phase::Ended;
            core.ended(self.token);
        } else {
            self.phase = Phase::Closed;
            self.unacknowledged = false;
            core.closed(self.token);
        }
    }
}

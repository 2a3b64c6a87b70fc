//! The whole system in one thread: cores, the messages between them, connections, time.
//!
//! Messages travel as in the runtime's mailbox: a flush puts them into the rings core by core, then
//! publishes all of them with its stamp; a look reads the clock, then one core's stamp after
//! another, and takes the messages that these and the clock allow. A turn has a second flush when
//! replies should not wait for its background work. Other cores may take steps between any two of
//! these. Bytes to and from clients are cut at random. Slices end at random, usually early.
//!
//! A core with nothing to do sleeps, as its thread would: until something arrives, or until the
//! time that it asked for. When all sleep and nothing is in transit, time jumps to the first of
//! those moments. A client that is still owed a reply then has been forgotten: [`Sim::is_asleep`].
//!
//! A connection may move to another core. The core that it leaves still receives what is on the wire,
//! or a part of that; then the connection travels with the next flush, and the rest is received by
//! the core to which it comes.
//!
//! A connection ends in one of three ways: the client half-closes it and reads on, the client
//! resets it, or its core closes it. The client's next connection takes its place.

use darter_base::preempt::Never;
use darter_base::{Preempt, Prng};
use darter_keyspace::lazyfree;
use darter_server::admin::Local;
use darter_server::engine::{
    Action, Clock, Core, Mail, Moving, Peer, Policy, SliceClock, Table, Token, Wait, World,
};
use darter_server::saving::Store;
use darter_server::settings::Settings;
use darter_server::shared::Shared;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// Simulated time: it advances with the steps.
pub(crate) struct SimClock {
    now_ns: Cell<u64>,
}

/// Nearly the greatest number of databases that Redis allows.
pub(crate) const DATABASES: usize = 2_000_000_000;
/// The databases in use: two neighbours, the first distant one, and the last.
pub(crate) const DATABASES_USED: [usize; 4] = [0, 1, 64, DATABASES - 1];

/// Where the simulation's time begins, in Unix milliseconds.
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
        self.now_ns.get() / 2 // So that a core that never sleeps differs from one that does.
    }
}

/// Ends slices at random, and simulates knocks at random.
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
            self.is_knocked.set(true); // Until the next turn begins.
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

/// A client's connection: the bytes in transit to the core, and those that came from it.
struct Wire {
    core: usize,
    token: Token,
    to_core: Vec<u8>,
    from_core: Vec<u8>,
    unacknowledged: bool,
    /// Whether the client reads.
    reads: bool,
    phase: Phase,
    place: Place,
}

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The connection belongs to its core.
    Core,
    /// The connection still belongs to its core, which is about to give it away.
    Leaving,
    /// The connection is on the way to another core.
    Between,
}

/// How far a connection's end has progressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Both sides may send.
    Open,
    /// The client has half-closed it; its core is notified after the last byte.
    HalfClosing,
    /// The core was notified of the half-close.
    HalfClosed,
    /// The client has reset it, or its core closes it; the core must still be notified.
    Closing,
    /// The core was notified.
    Closed,
}

/// A seeded bug in the world, to check that it would be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// None.
    None,
    /// Cores sleep while a task is ready to run.
    Oversleeps,
    /// Cores with a deadline sleep past it.
    ForgetsDeadlines,
    /// A half-closed connection is closed at once.
    ClosesHalfClosed,
    /// The last core is not notified of pauses.
    MissesPauses,
    /// Messages are taken before their flush is published.
    TakesUnpublished,
    /// A look takes flushes stamped after it began.
    TakesLater,
    /// A look serves its sockets before its messages.
    SocketsFirst,
    /// Some messages wait for the next look, while later ones do not.
    Reorders,
    /// Replies leave before the messages of their flush.
    RepliesFirst,
    /// A connection that moves overtakes the messages of its core.
    MovesFirst,
    /// The end of a connection that moves is not noticed.
    ForgetsEnds,
    /// Bytes that a connection receives while it leaves are lost.
    ForgetsBytes,
}

/// How long a core sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleep {
    /// The core is awake.
    Awake,
    /// Until this monotonic time, in nanoseconds.
    Until(u64),
    /// Until something arrives.
    Forever,
}

/// A letter between two cores.
enum Letter {
    Mail(Mail),
    /// The connection of this client.
    Move(usize, Box<Moving>),
}

/// A flush's messages to one core, with its stamp.
type Bundle = (u64, Vec<Letter>);

/// The state of a core that is reading its mailbox.
struct Look {
    began_ns: u64,
    /// The last stamp of each core, as far as they have been read.
    published: Vec<u64>,
}

/// A flush that is not complete yet.
struct Flush {
    stamp: u64,
    /// The messages by target core; the last entry goes into its ring next.
    bundles: Vec<(usize, Vec<Letter>)>,
    /// Carried out once the flush is published.
    actions: Vec<Action>,
}

/// Where a core is in its turn.
enum Stage {
    /// Asleep, or about to look.
    Idle,
    /// Reads the other cores' stamps.
    Looking(Look),
    /// Flushes replies ahead of its background work.
    FlushingEarly(Flush),
    /// About to do its background work.
    Working,
    /// Flushes the rest of the turn's messages.
    Flushing(Flush),
}

/// The simulated world.
pub(crate) struct Sim {
    pub(crate) prng: Prng,
    pub(crate) cores: Vec<Rc<Core>>,
    clock: Rc<SimClock>,
    stages: Vec<Stage>,
    /// The core that is slow for a while: others see it halfway through its steps.
    slow: usize,
    /// Ring contents: `mail[from][to]`.
    mail: Vec<Vec<VecDeque<Bundle>>>,
    /// The stamp of each core's last flush.
    published: Vec<u64>,
    /// Messages that a flaw holds back, by target core: the sender and the message.
    late: Vec<Vec<(usize, Letter)>>,
    /// Connections that leave each core with its next flush, with their target cores.
    departing: Vec<Vec<(usize, Letter)>>,
    wires: Vec<Wire>,
    sleep: Vec<Sleep>,
    /// The seeded bug.
    pub(crate) flaw: Flaw,
}

impl Sim {
    pub(crate) fn new(seed: u64, cores: usize, clients: usize, table: Table) -> Self {
        Self::with(seed, clients, table, &Shared::nowhere(cores, EPOCH_MS))
    }

    /// A world whose snapshots go to `store`.
    pub(crate) fn with_store(
        seed: u64,
        cores: usize,
        clients: usize,
        table: Table,
        store: Box<dyn Store>,
    ) -> Self {
        Self::with(seed, clients, table, &Shared::with_store(cores, EPOCH_MS, store))
    }

    fn with(seed: u64, clients: usize, table: Table, shared: &Arc<Shared>) -> Self {
        let cores = shared.reports.len();
        while lazyfree::run(&Never) {} // Left over from an earlier world.
        let mut prng = Prng::from_seed(seed);
        let clock = Rc::new(SimClock { now_ns: Cell::new(1_000) });
        let table = Arc::new(table);
        let settings = Arc::new(Settings::default());
        // Slices usually end early; in some worlds several commands fit.
        let percent = if prng.chance(40) { 2 + prng.below(15) } else { 20 + prng.below(75) };
        let made = (0..cores).map(|id| {
            let slice = SimSlice::new(prng.next_u64(), percent);
            let world = World {
                clock: Rc::clone(&clock) as Rc<dyn Clock>,
                slice: Rc::new(slice),
                seed: prng.next_u64(),
            };
            let local = Local::new(Arc::clone(shared), Arc::clone(&settings));
            Core::new(id, cores, DATABASES, Arc::clone(&table), world, local)
        });
        let cores_made: Vec<Rc<Core>> = made.collect();
        let mail = (0..cores).map(|_| (0..cores).map(|_| VecDeque::new()).collect()).collect();
        let mut sim = Self {
            prng,
            cores: cores_made,
            clock,
            stages: (0..cores).map(|_| Stage::Idle).collect(),
            slow: 0,
            mail,
            published: vec![0; cores],
            late: (0..cores).map(|_| Vec::new()).collect(),
            departing: (0..cores).map(|_| Vec::new()).collect(),
            wires: Vec::new(),
            sleep: vec![Sleep::Awake; cores],
            flaw: Flaw::None,
        };
        if let Some(policy) = eager(seed) {
            sim.cores.iter().for_each(|core| core.set_move_policy(policy));
        }
        for client in 0..clients {
            let index = u32::try_from(client).unwrap_or(0);
            sim.wires.push(Wire::new(client % cores, Token { index, generation: 0 }));
            sim.accept(client);
        }
        sim
    }

    /// Opens a new connection for a client whose last one was closed, in the same place.
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

    /// Something that a core waits for has happened outside.
    pub(crate) fn wake(&mut self, core: usize) {
        self.sleep[core] = Sleep::Awake;
    }

    /// Puts bytes on a client's wire.
    pub(crate) fn send(&mut self, client: usize, bytes: &[u8]) {
        self.wires[client].to_core.extend_from_slice(bytes);
    }

    /// A client half-closes its connection: it sends no more, and reads on.
    pub(crate) fn end(&mut self, client: usize) {
        let phase = &mut self.wires[client].phase;
        if *phase == Phase::Open {
            *phase = Phase::HalfClosing; // Otherwise its core has already closed it.
        }
    }

    /// A client resets its connection; its bytes in transit are lost.
    pub(crate) fn reset(&mut self, client: usize) {
        self.wires[client].phase = Phase::Closing;
        self.wires[client].to_core.clear();
    }

    /// A client starts or stops reading.
    pub(crate) fn set_reads(&mut self, client: usize, reads: bool) {
        self.wires[client].reads = reads;
    }

    /// True when a connection is closed on both sides.
    pub(crate) fn is_closed(&self, client: usize) -> bool {
        self.wires[client].phase == Phase::Closed
    }

    /// Bytes that a client has sent and its core has not received.
    pub(crate) fn on_their_way(&self, client: usize) -> usize {
        self.wires[client].to_core.len()
    }

    /// Bytes of output that a client has not taken, as CLIENT LIST reports them (`omem`).
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

    /// The simulated time, in Unix milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.unix_ms()
    }

    /// Bytes that a client has received; the reader drains what it has parsed.
    pub(crate) fn inbox(&mut self, client: usize) -> &mut Vec<u8> {
        &mut self.wires[client].from_core
    }

    /// Advances time without actions.
    pub(crate) fn pass_ms(&self, ms: u64) {
        self.clock.advance(ms * 1_000_000);
    }

    /// One or more steps of one core, drawn at random. A sleeping core does nothing.
    pub(crate) fn step(&mut self) {
        let core = usize::try_from(self.prng.below(self.cores.len() as u64)).unwrap_or(0);
        self.clock.advance(1 + self.prng.below(40_000));
        if self.is_asleep() {
            self.skip_to_wake();
        }
        /// Percent: a core takes another step before others may; a slow one takes none.
        const GOES_ON: u64 = 60;
        const IDLES: u64 = 85;
        if self.prng.chance(2) {
            self.slow = at_most(&mut self.prng, self.cores.len() - 1);
        }
        let is_slow = core == self.slow;
        if is_slow && self.prng.chance(IDLES) {
            return;
        }
        while self.advance(core) && !is_slow && self.prng.chance(GOES_ON) {}
    }

    /// A step of a core. False at the end of its turn, or if it sleeps.
    fn advance(&mut self, core: usize) -> bool {
        match std::mem::replace(&mut self.stages[core], Stage::Idle) {
            Stage::Idle => {
                self.cores[core].begin_turn();
                let is_woken = self.deliver_bytes(core) | self.has_mail(core);
                let looks = is_woken || self.is_over(self.sleep[core]);
                if looks {
                    let look = Look { began_ns: self.clock.monotonic_ns(), published: Vec::new() };
                    self.stages[core] = Stage::Looking(look);
                    self.sleep[core] = Sleep::Awake;
                } else {
                    self.cores[core].rests(self.clock.monotonic_ns());
                }
                return looks;
            }
            Stage::Looking(mut look) if look.published.len() < self.cores.len() => {
                let (read, left) = self.published.split_at(look.published.len());
                let most = if core == self.slow { 0 } else { left.len() - 1 };
                let more = 1 + at_most(&mut self.prng, most);
                look.published.extend_from_slice(&self.published[read.len()..read.len() + more]);
                self.stages[core] = Stage::Looking(look);
            }
            Stage::Looking(look) => self.stages[core] = self.serve(core, &look),
            Stage::FlushingEarly(flush) => {
                let left = self.send_on(core, flush);
                self.stages[core] = left.map_or(Stage::Working, Stage::FlushingEarly);
            }
            Stage::Working => self.stages[core] = self.work_on(core),
            Stage::Flushing(flush) => match self.send_on(core, flush) {
                Some(left) => self.stages[core] = Stage::Flushing(left),
                None => {
                    self.sleep[core] = self.wait(core);
                    return false;
                }
            },
        }
        true
    }

    /// Puts the flush's next bundle into its ring; when none is left, publishes the flush and
    /// carries out its actions. Returns what is left of the flush.
    fn send_on(&mut self, core: usize, mut flush: Flush) -> Option<Flush> {
        if self.flaw == Flaw::RepliesFirst {
            self.act(core, std::mem::take(&mut flush.actions));
        }
        if let Some((to, messages)) = flush.bundles.pop() {
            self.mail[core][to].push_back((flush.stamp, messages));
            return Some(flush);
        }
        self.published[core] = flush.stamp;
        self.act(core, flush.actions);
        None
    }

    /// True when a ring holds messages for the core.
    fn has_mail(&self, core: usize) -> bool {
        let came = |from: &Vec<VecDeque<Bundle>>| !from[core].is_empty();
        self.mail.iter().any(came) || !self.late[core].is_empty()
    }

    /// True when every core sleeps, and nothing is in transit to any core or reading client.
    pub(crate) fn is_asleep(&self) -> bool {
        !self.sleep.iter().any(|sleep| self.is_over(*sleep))
            && self.stages.iter().all(|stage| matches!(stage, Stage::Idle))
            && self.late.iter().all(Vec::is_empty)
            && self.mail.iter().flatten().all(VecDeque::is_empty)
            && self.wires.iter().all(Wire::is_quiet)
    }

    /// When the first sleeping core is due to wake, in Unix milliseconds, if any has a deadline.
    pub(crate) fn wakes_ms(&self) -> Option<u64> {
        self.first_wake_ns().map(|due| EPOCH_MS + due / 1_000_000)
    }

    fn first_wake_ns(&self) -> Option<u64> {
        let deadlines = self.sleep.iter().filter_map(|sleep| match sleep {
            Sleep::Until(due) => Some(*due),
            Sleep::Awake | Sleep::Forever => None,
        });
        deadlines.min()
    }

    /// Advances time to the first core's deadline, if any has one.
    fn skip_to_wake(&self) {
        if let Some(due) = self.first_wake_ns() {
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

    /// Delivers the messages that a look took, and serves the core.
    fn serve(&mut self, core: usize, look: &Look) -> Stage {
        if self.flaw == Flaw::MissesPauses && core + 1 == self.cores.len() {
            self.cores[core].hot.borrow_mut().pause = None;
        }
        let held = self.flaw == Flaw::SocketsFirst || self.flaw == Flaw::Reorders;
        for (from, letter) in std::mem::take(&mut self.late[core]) {
            self.open(core, from, letter);
        }
        for (from, letter) in self.take_mail(core, look) {
            let is_late = held && (self.flaw == Flaw::SocketsFirst || self.prng.chance(30));
            if is_late {
                self.late[core].push((from, letter));
            } else {
                self.open(core, from, letter);
            }
        }
        if self.cores[core].serve_all() {
            return Stage::FlushingEarly(self.collect(core));
        }
        self.work_on(core)
    }

    fn open(&mut self, core: usize, from: usize, letter: Letter) {
        match letter {
            Letter::Mail(mail) => self.cores[core].deliver(from, mail),
            Letter::Move(client, moving) => self.arrive_at(core, client, moving),
        }
    }

    /// A connection that moves has come to a core.
    fn arrive_at(&mut self, core: usize, client: usize, moving: Box<Moving>) {
        let wire = &mut self.wires[client];
        wire.core = core;
        wire.token.generation += 1;
        wire.place = Place::Core;
        self.cores[core].arrived(wire.token, moving);
    }

    /// A core gives away connections, if it has noticed that it is to. True if there were any.
    fn let_go(&mut self, core: usize) -> bool {
        let mut came = false;
        for client in 0..self.wires.len() {
            let wire = &mut self.wires[client];
            if wire.core != core || wire.place != Place::Leaving || !self.prng.chance(40) {
                continue;
            }
            came = true;
            match self.flaw {
                Flaw::ForgetsEnds if wire.phase == Phase::HalfClosing => {
                    wire.phase = Phase::HalfClosed;
                }
                Flaw::ForgetsBytes => wire.to_core.clear(),
                _ => {}
            }
            match self.cores[core].released(wire.token) {
                None => (wire.phase, wire.place) = (Phase::Closed, Place::Core),
                Some((to, moving)) if to == core => self.arrive_at(core, client, moving),
                Some((to, moving)) => {
                    wire.place = Place::Between;
                    let letter = Letter::Move(client, moving);
                    if self.flaw == Flaw::MovesFirst {
                        self.mail[core][to].push_front((0, vec![letter]));
                    } else {
                        self.departing[core].push((to, letter));
                    }
                }
            }
        }
        came
    }

    fn work_on(&mut self, core: usize) -> Stage {
        self.cores[core].work_on();
        Stage::Flushing(self.collect(core))
    }

    /// The messages that a look takes, in their order.
    fn take_mail(&mut self, core: usize, look: &Look) -> Vec<(usize, Letter)> {
        let mut taken: Vec<(u64, usize, Vec<Letter>)> = Vec::new();
        for from in 0..self.cores.len() {
            let until = match self.flaw {
                Flaw::TakesUnpublished => u64::MAX,
                Flaw::TakesLater => look.published[from],
                _ => look.published[from].min(look.began_ns - 1),
            };
            let mail = &mut self.mail[from][core];
            let count = mail.iter().take_while(|(stamp, _)| *stamp <= until).count();
            taken.extend(mail.drain(..count).map(|(stamp, messages)| (stamp, from, messages)));
        }
        taken.sort_by_key(|(stamp, from, _)| (*stamp, *from));
        let each = |(_, from, messages): (u64, usize, Vec<Letter>)| {
            messages.into_iter().map(move |letter| (from, letter))
        };
        taken.into_iter().flat_map(each).collect()
    }

    /// How long a core sleeps at the end of its turn.
    fn wait(&self, core: usize) -> Sleep {
        let oversleeps = self.flaw == Flaw::Oversleeps;
        match self.cores[core].wait() {
            Wait::Nothing if oversleeps && self.cores[core].tx.has_ready() => Sleep::Forever,
            Wait::Nothing => Sleep::Awake,
            Wait::Millis(_) if self.flaw == Flaw::ForgetsDeadlines => Sleep::Forever,
            Wait::Millis(ms) => Sleep::Until(self.clock.monotonic_ns() + ms * 1_000_000),
            Wait::Forever => Sleep::Forever,
        }
    }

    /// Delivers bytes and closes to a core's connections. True when there were any.
    fn deliver_bytes(&mut self, core: usize) -> bool {
        let (mut came, cuts_off) = (false, self.flaw == Flaw::ClosesHalfClosed);
        let is_here = |wire: &&mut Wire| wire.core == core && wire.place != Place::Between;
        for wire in self.wires.iter_mut().filter(is_here) {
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
            if wire.has_end_to_deliver() && self.prng.chance(50) {
                wire.deliver_end(&self.cores[core], cuts_off);
                came = true;
            }
        }
        came | self.let_go(core)
    }

    /// Collects the output and actions of a core.
    fn collect(&mut self, core: usize) -> Flush {
        let (mut outbox, mut actions) = (Vec::new(), Vec::new());
        self.cores[core].drain_outbox(&mut outbox);
        self.cores[core].drain_actions(&mut actions);
        let mut sent: Vec<Vec<Letter>> = (0..self.cores.len()).map(|_| Vec::new()).collect();
        // As in the thread, connections are posted when they are detached, before the turn.
        let departing = std::mem::take(&mut self.departing[core]).into_iter();
        departing.for_each(|(to, letter)| sent[to].push(letter));
        outbox.into_iter().for_each(|(to, mail)| sent[to].push(Letter::Mail(mail)));
        let mut bundles: Vec<_> =
            sent.into_iter().enumerate().filter(|(_, messages)| !messages.is_empty()).collect();
        if self.prng.chance(50) {
            bundles.reverse();
        }
        self.clock.advance(1); // Stamps are unique.
        Flush { stamp: self.clock.monotonic_ns(), bundles, actions }
    }

    fn act(&mut self, core: usize, actions: Vec<Action>) {
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
                Action::Release(token) => self.wire(core, token).place = Place::Leaving,
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

    /// Asserts that nothing is left over once all clients have been answered.
    pub(crate) fn check_rest(&mut self) {
        const STEPS: usize = 10_000;
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
        let is_settled = |wire: &Wire| wire.place == Place::Core;
        assert!(self.wires.iter().all(is_settled), "a connection has not arrived");
        let has_ended = |wire: &Wire| !matches!(wire.phase, Phase::Open | Phase::Closed);
        assert!(!self.wires.iter().any(has_ended), "a connection that ended is not closed");
        assert!(self.mail.iter().flatten().all(VecDeque::is_empty), "mail is left");
        assert!(lazyfree::is_empty(), "what was let go of is not freed");
    }
}

/// In most worlds connections move soon, and again.
fn eager(seed: u64) -> Option<Policy> {
    let mut prng = Prng::from_seed(seed ^ 0x000e_a6e4);
    let requests = 1 + u32::try_from(prng.below(4)).unwrap_or(0);
    let (streak_ms, stay_ms) = (prng.below(2), prng.below(3));
    let policy = Policy { requests, streak_ms, stay_ms, span_ms: 1 };
    prng.chance(70).then_some(policy)
}

/// A random number, at most this.
fn at_most(prng: &mut Prng, most: usize) -> usize {
    usize::try_from(prng.below(most as u64 + 1)).unwrap_or(0)
}

impl Wire {
    fn new(core: usize, token: Token) -> Self {
        let (to_core, from_core) = (Vec::new(), Vec::new());
        let (unacknowledged, reads, phase, place) = (false, true, Phase::Open, Place::Core);
        Self { core, token, to_core, from_core, unacknowledged, reads, phase, place }
    }

    /// True when nothing is in transit, except what its client refuses to read.
    fn is_quiet(&self) -> bool {
        let is_taken = self.to_core.is_empty() || self.phase == Phase::Closed;
        is_taken
            && !(self.unacknowledged && self.reads)
            && !self.has_end_to_deliver()
            && self.place == Place::Core
    }

    /// True when the core must be notified that the connection has ended.
    fn has_end_to_deliver(&self) -> bool {
        let half_closes = self.phase == Phase::HalfClosing && self.to_core.is_empty();
        self.phase == Phase::Closing || (half_closes && self.place != Place::Leaving)
    }

    /// Notifies the core that the client half-closed the connection, or that it is closed.
    fn deliver_end(&mut self, core: &Rc<Core>, cuts_off: bool) {
        if self.phase == Phase::HalfClosing && !cuts_off {
            self.phase = Phase::HalfClosed;
            core.ended(self.token);
        } else {
            (self.phase, self.place) = (Phase::Closed, Place::Core);
            self.unacknowledged = false;
            core.closed(self.token);
        }
    }
}

//! The world in one thread: cores, the messages between them, connections, time.
//!
//! Messages travel as they do in the runtime's mailbox: a flush puts them into the rings core by
//! core, and then publishes all by its stamp; a look reads the clock, then one core's stamp after
//! another, and takes the messages that these and the clock allow. A turn has a second flush when
//! replies are not to wait for its background work. Between any two of these steps others may take
//! theirs. Bytes to and from clients are cut at random. Slices end at random, usually early.
//!
//! A core that has nothing to do sleeps, as its thread would: until something comes to it, or until
//! the time that it told. When all sleep and nothing is on its way, time continues to the first of
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

/// As many databases as Redis allows, except for a few.
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

/// Ends slices at random, and lets someone knock at random.
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
    /// The client sends no more: its core is to hear that after the last byte.
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
    /// Messages are taken before their flush is published.
    TakesUnpublished,
    /// What was stamped after a look began is taken by that look.
    TakesLater,
    /// The sockets of a look are run before its messages.
    SocketsFirst,
    /// Some messages wait for the next look, and those that came later do not.
    LeavesSome,
    /// Replies leave before the messages of their flush.
    RepliesFirst,
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

/// What a flush sent to one core, with its stamp.
type Bundle = (u64, Vec<Mail>);

/// A look under way.
struct Look {
    began_ns: u64,
    /// By core, as far as they have been read: the stamp that it published last.
    published: Vec<u64>,
}

/// A flush under way.
struct Flush {
    stamp: u64,
    /// What it sends, by core: the last goes into its ring next.
    bundles: Vec<(usize, Vec<Mail>)>,
    /// To be done after it.
    actions: Vec<Action>,
}

/// How far a core is with its round.
enum Stage {
    /// It sleeps, or is about to look.
    Rests,
    /// It looks at what has come.
    Looks(Look),
    /// It sends what clients were served, and has background work to do.
    SendsEarly(Flush),
    /// It is to do its background work.
    WorksOn,
    /// It sends what the turn has left.
    Sends(Flush),
}

/// See the module.
pub(crate) struct Sim {
    pub(crate) prng: Prng,
    pub(crate) cores: Vec<Rc<Core>>,
    clock: Rc<SimClock>,
    stages: Vec<Stage>,
    /// The core that is slow for a while: others see it in the midst of things.
    slow: usize,
    /// `mail[from][to]`.
    mail: Vec<Vec<VecDeque<Bundle>>>,
    /// By core: the stamp of its last flush.
    published: Vec<u64>,
    /// Messages that a flaw holds back: for which core, and from which.
    late: Vec<Vec<(usize, Mail)>>,
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
        // Usually early; in some worlds there is room for several commands.
        let percent = if prng.chance(40) { 2 + prng.below(15) } else { 20 + prng.below(75) };
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
        let mut sim = Self {
            prng,
            cores: cores_made,
            clock,
            stages: (0..cores).map(|_| Stage::Rests).collect(),
            slow: 0,
            mail,
            published: vec![0; cores],
            late: (0..cores).map(|_| Vec::new()).collect(),
            wires: Vec::new(),
            sleep: vec![Sleep::Awake; cores],
            flaw: Flaw::None,
        };
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

    /// Lets time pass in which no one does anything.
    pub(crate) fn pass_ms(&self, ms: u64) {
        self.clock.advance(ms * 1_000_000);
    }

    /// A step or some of one core, drawn at random: nothing, if it sleeps.
    pub(crate) fn step(&mut self) {
        let core = usize::try_from(self.prng.below(self.cores.len() as u64)).unwrap_or(0);
        self.clock.advance(1 + self.prng.below(40_000));
        if self.is_asleep() {
            self.pass_until_due();
        }
        /// How likely a core continues before others take a step, and how likely a slow one takes
        /// none.
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

    /// A step of a core. False when it has done a round, or sleeps.
    fn advance(&mut self, core: usize) -> bool {
        match std::mem::replace(&mut self.stages[core], Stage::Rests) {
            Stage::Rests => {
                self.cores[core].begin_turn();
                let is_woken = self.deliver_bytes(core) | self.has_mail(core);
                let looks = is_woken || self.is_over(self.sleep[core]);
                if looks {
                    let look = Look { began_ns: self.clock.monotonic_ns(), published: Vec::new() };
                    self.stages[core] = Stage::Looks(look);
                    self.sleep[core] = Sleep::Awake;
                }
                return looks;
            }
            Stage::Looks(mut look) if look.published.len() < self.cores.len() => {
                let (read, left) = self.published.split_at(look.published.len());
                let most = if core == self.slow { 0 } else { left.len() - 1 };
                let more = 1 + at_most(&mut self.prng, most);
                look.published.extend_from_slice(&self.published[read.len()..read.len() + more]);
                self.stages[core] = Stage::Looks(look);
            }
            Stage::Looks(look) => self.stages[core] = self.serve(core, &look),
            Stage::SendsEarly(flush) => {
                let left = self.send_on(core, flush);
                self.stages[core] = left.map_or(Stage::WorksOn, Stage::SendsEarly);
            }
            Stage::WorksOn => self.stages[core] = self.work_on(core),
            Stage::Sends(flush) => match self.send_on(core, flush) {
                Some(left) => self.stages[core] = Stage::Sends(left),
                None => {
                    self.sleep[core] = self.wait(core);
                    return false;
                }
            },
        }
        true
    }

    /// Puts the next messages of a flush into their ring; when that is done, publishes them and
    /// does what the core wants. Returns what is left of the flush.
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

    /// A ring holds something for the core.
    fn has_mail(&self, core: usize) -> bool {
        let came = |from: &Vec<VecDeque<Bundle>>| !from[core].is_empty();
        self.mail.iter().any(came) || !self.late[core].is_empty()
    }

    /// True when every core sleeps, and nothing is on its way to any, or to a client that reads.
    pub(crate) fn is_asleep(&self) -> bool {
        !self.sleep.iter().any(|sleep| self.is_over(*sleep))
            && self.stages.iter().all(|stage| matches!(stage, Stage::Rests))
            && self.late.iter().all(Vec::is_empty)
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

    /// Time passes until the first core has reported that it wants to wake, if one has.
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

    /// Takes what came with a look, and serves it.
    fn serve(&mut self, core: usize, look: &Look) -> Stage {
        if self.flaw == Flaw::MissesPauses && core + 1 == self.cores.len() {
            self.cores[core].hot.borrow_mut().pause = None;
        }
        let held = self.flaw == Flaw::SocketsFirst || self.flaw == Flaw::LeavesSome;
        for (from, mail) in std::mem::take(&mut self.late[core]) {
            self.cores[core].deliver(from, mail);
        }
        for (from, mail) in self.take_mail(core, look) {
            if held && (self.flaw == Flaw::SocketsFirst || self.prng.chance(30)) {
                self.late[core].push((from, mail));
            } else {
                self.cores[core].deliver(from, mail);
            }
        }
        if self.cores[core].serve_all() {
            return Stage::SendsEarly(self.collect(core));
        }
        self.work_on(core)
    }

    fn work_on(&mut self, core: usize) -> Stage {
        self.cores[core].work_on();
        Stage::Sends(self.collect(core))
    }

    /// What a look takes, in its order.
    fn take_mail(&mut self, core: usize, look: &Look) -> Vec<(usize, Mail)> {
        let mut taken: Vec<(u64, usize, Vec<Mail>)> = Vec::new();
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
        let each = |(_, from, messages): (u64, usize, Vec<Mail>)| {
            messages.into_iter().map(move |mail| (from, mail))
        };
        taken.into_iter().flat_map(each).collect()
    }

    /// How long a core sleeps, when all that its turn wanted is done.
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

    /// What a core wants sent and done by now.
    fn collect(&mut self, core: usize) -> Flush {
        let (mut outbox, mut actions) = (Vec::new(), Vec::new());
        self.cores[core].drain_outbox(&mut outbox);
        self.cores[core].drain_actions(&mut actions);
        let mut sent: Vec<Vec<Mail>> = (0..self.cores.len()).map(|_| Vec::new()).collect();
        outbox.into_iter().for_each(|(to, mail)| sent[to].push(mail));
        let mut bundles: Vec<_> =
            sent.into_iter().enumerate().filter(|(_, messages)| !messages.is_empty()).collect();
        if self.prng.chance(50) {
            bundles.reverse();
        }
        self.clock.advance(1); // No two flushes have one stamp.
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
        let has_ended = |wire: &Wire| !matches!(wire.phase, Phase::Open | Phase::Closed);
        assert!(!self.wires.iter().any(has_ended), "a connection that ended is not closed");
        assert!(self.mail.iter().flatten().all(VecDeque::is_empty), "mail is left");
        assert!(lazyfree::is_empty(), "what was let go of is not freed");
    }
}

/// A number up to this one, at random.
fn at_most(prng: &mut Prng, most: usize) -> usize {
    usize::try_from(prng.below(most as u64 + 1)).unwrap_or(0)
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

//! The saturating client: one thread, many connections, and as little work a reply as possible.
//!
//! redis-benchmark parses each reply and so cannot keep a fast server busy from one core. Here
//! requests are built before the run, and replies are counted by their line ends: the workloads are
//! chosen so that each reply has a fixed number of them. The contents of replies are checked once
//! before the run.
//!
//! The client never sleeps while the server has its requests, and answers in batches: it waits
//! until half of its connections have a reply (or for [`GATHER`]), reads them all, and then sends
//! on them all. A client that answers each reply at once lets the server fall asleep between any
//! two requests, which would measure wake-ups.
//!
//! Where the latency of other clients is measured, and not the rate, it sleeps while it waits
//! ([`Wait::Sleep`]): a server with a core on the client's processor would otherwise wait for that
//! processor, several milliseconds at a time, and so would all requests of other clients.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::epoll;

use crate::fault::{Fault, Outcome};
use crate::prng::Prng;

/// Approximate number of requests in a prebuilt pool.
const POOL_REQUESTS: u64 = 8_192;
/// How long replies are gathered before the client continues with fewer.
const GATHER: Duration = Duration::from_micros(100);
/// How long after its end a run waits for requests in flight.
const GRACE: Duration = Duration::from_secs(30);

/// The requests of a saturating client.
pub(crate) struct Load<'a> {
    /// Connections.
    pub(crate) clients: usize,
    /// Requests in flight on each.
    pub(crate) pipeline: u64,
    /// The kinds of requests, which a connection sends by turns.
    pub(crate) turns: &'a [Turn<'a>],
    /// The approximate number of requests: those in flight at the end are still answered.
    pub(crate) requests_max: u64,
    /// Whether requests repeat.
    pub(crate) supply: Supply,
    /// The seed of the requests: clients side by side take different ones.
    pub(crate) seed: u64,
    /// The client's wait for replies.
    pub(crate) wait: Wait,
    /// Counts the replies while they come.
    pub(crate) served: Option<&'a AtomicU64>,
}

/// One kind of request.
#[derive(Clone, Copy)]
pub(crate) struct Turn<'a> {
    /// Line ends in each reply.
    pub(crate) lines: u64,
    /// Appends one request.
    pub(crate) request: &'a dyn Fn(&mut Prng, &mut Vec<u8>),
}

/// How a client waits for replies: see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The client polls for half of the replies.
    Poll,
    /// The client sleeps until there is a reply.
    Sleep,
}

/// Where requests come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Supply {
    /// A pool of some thousand, built before the run: costs nothing.
    Pool,
    /// Each is built when it is sent, so that all differ.
    Fresh,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pushed {
    /// Replies received.
    pub(crate) replies: u64,
    /// How long it took.
    pub(crate) elapsed: Duration,
}

struct Client {
    stream: TcpStream,
    /// Line ends that the batch in flight still owes.
    owed: u64,
    /// The last read ended with a line.
    is_between: bool,
    /// The kind of its next batch.
    turn: usize,
}

/// Sends `load` for `duration`, and then waits for requests in flight.
pub(crate) fn push(port: u16, load: &Load<'_>, duration: Duration) -> Outcome<Pushed> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(std::io::Error::from)?;
    let mut clients = Vec::with_capacity(load.clients);
    for number in 0..load.clients {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&poll, &stream, data, epoll::EventFlags::IN).map_err(std::io::Error::from)?;
        // Neighbours begin with different kinds, so that all kinds are sent at any time.
        clients.push(Client { stream, owed: 0, is_between: true, turn: number });
    }
    let mut source = Source::new(load);
    let started = Instant::now();
    let deadline = started + duration;
    let mut pushed = Pushed::default();
    for client in &mut clients {
        source.send(client, deadline)?;
    }
    let (mut in_flight, mut sent) = (clients.len(), load.clients as u64 * load.pipeline);
    let (mut events, mut buffer) = (Vec::with_capacity(load.clients), vec![0; 64 * 1024]);
    let mut answered = Vec::with_capacity(load.clients);
    while in_flight > 0 {
        match load.wait {
            Wait::Poll => gather(&poll, &mut events, in_flight.div_ceil(2))?,
            Wait::Sleep => sleep(&poll, &mut events)?,
        }
        let now = Instant::now();
        if now > deadline + GRACE {
            return Err(Fault::TimedOut);
        }
        for event in &events {
            let number = event.data.u64() as usize;
            if receive(&mut clients[number], &mut buffer)? {
                answered.push(number);
            }
        }
        let next = answered.len() as u64 * load.pipeline;
        pushed.replies += next;
        if let Some(served) = load.served {
            served.fetch_add(next, Ordering::Relaxed);
        }
        if now >= deadline || sent + next > load.requests_max {
            in_flight -= answered.len();
            answered.clear();
        }
        sent += answered.len() as u64 * load.pipeline;
        for number in answered.drain(..) {
            source.send(&mut clients[number], deadline)?;
        }
    }
    pushed.elapsed = started.elapsed();
    Ok(pushed)
}

/// Sleeps until a connection is readable, or for a while.
fn sleep(poll: &OwnedFd, events: &mut Vec<epoll::Event>) -> Outcome<()> {
    let a_while = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    events.clear();
    epoll::wait(poll, rustix::buffer::spare_capacity(events), Some(&a_while))
        .map_err(std::io::Error::from)?;
    Ok(())
}

/// Polls until `wanted` connections are readable, or for [`GATHER`].
fn gather(poll: &OwnedFd, events: &mut Vec<epoll::Event>, wanted: usize) -> Outcome<()> {
    let began = Instant::now();
    let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        events.clear();
        epoll::wait(poll, rustix::buffer::spare_capacity(events), Some(&at_once))
            .map_err(std::io::Error::from)?;
        if events.len() >= wanted || began.elapsed() > GATHER {
            return Ok(());
        }
    }
}

/// Reads the received bytes. Returns whether the whole batch is answered.
fn receive(client: &mut Client, buffer: &mut [u8]) -> Outcome<bool> {
    match client.stream.read(buffer) {
        Ok(0) => Err(Fault::Gone),
        Ok(read) => {
            let lines = buffer[..read].iter().filter(|byte| **byte == b'\n').count() as u64;
            if (client.is_between && buffer[0] == b'-') || lines > client.owed {
                let text = String::from_utf8_lossy(&buffer[..read.min(80)]).into_owned();
                return Err(Fault::Refused(text.lines().next().unwrap_or_default().to_owned()));
            }
            client.owed -= lines;
            client.is_between = buffer[read - 1] == b'\n';
            Ok(client.owed == 0)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Sends all of a batch, waiting for a full socket, which is rare: the server reads.
fn send(stream: &mut TcpStream, mut batch: &[u8], deadline: Instant) -> Outcome<()> {
    while !batch.is_empty() {
        match stream.write(batch) {
            Ok(written) => batch = &batch[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if Instant::now() > deadline + Duration::from_secs(10) {
                    return Err(Fault::TimedOut);
                }
                std::thread::sleep(Duration::from_micros(50));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Batches of requests, prebuilt or fresh.
struct Source<'a> {
    load: &'a Load<'a>,
    prng: Prng,
    /// By kind.
    pools: Vec<Vec<Vec<u8>>>,
    next: usize,
    fresh: Vec<u8>,
}

impl<'a> Source<'a> {
    fn new(load: &'a Load<'a>) -> Source<'a> {
        let (prng, fresh) = (Prng::from_seed(load.seed), Vec::new());
        let mut source = Source { load, prng, pools: Vec::new(), next: 0, fresh };
        if load.supply == Supply::Pool {
            let batches = (POOL_REQUESTS / load.pipeline).max(16);
            for turn in load.turns {
                let pool = (0..batches).map(|_| source.build(turn)).collect();
                source.pools.push(pool);
            }
        }
        source
    }

    fn build(&mut self, turn: &Turn<'_>) -> Vec<u8> {
        let mut batch = std::mem::take(&mut self.fresh);
        batch.clear();
        (0..self.load.pipeline).for_each(|_| (turn.request)(&mut self.prng, &mut batch));
        batch
    }

    /// Sends a client its next batch.
    fn send(&mut self, client: &mut Client, deadline: Instant) -> Outcome<()> {
        let kind = client.turn % self.load.turns.len();
        let turn = self.load.turns[kind];
        client.owed = self.load.pipeline * turn.lines;
        client.turn += 1;
        if let Some(pool) = self.pools.get(kind) {
            self.next += 1;
            return send(&mut client.stream, &pool[self.next % pool.len()], deadline);
        }
        self.fresh = self.build(&turn);
        send(&mut client.stream, &self.fresh, deadline)
    }
}

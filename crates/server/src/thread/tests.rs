//! Drives a thread by hand, one poll and one turn at a time. The other core is only a mailbox, so
//! the effect of a core that takes no messages can be tested exactly.

use super::*;
use crate::clock::MachineClock;
use crate::engine::{Local, Mail, Policy, World};
use crate::knock::{Knocker, SliceTimer};
use crate::load::Loaded;
use crate::shared::Shared;
use darter_runtime::mailbox;
use darter_runtime::net::{BackendChoice, Waker};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;

/// Core 0 of two, with two clients, and the other end of its ring, which has room for one batch of
/// messages.
struct Bench {
    thread: Thread,
    other: Mailbox<Post>,
    clients: Vec<UnixStream>,
}

impl Bench {
    /// Creates the bench; `None` where the system lacks the backend.
    fn new(choice: BackendChoice) -> Option<Self> {
        let wakers = [Waker::new().unwrap(), Waker::new().unwrap()];
        let (net, path) = listening(choice, &wakers[0])?;
        let mut mailboxes = mailbox::mesh::<Post>(wakers.to_vec(), 1);
        let other = mailboxes.pop().unwrap();
        let thread = thread(0, net, mailboxes.pop().unwrap(), &wakers);
        let mut bench = Self { thread, other, clients: Vec::new() };
        for conns in 1..=2 {
            // Connected one by one: if one poll found two connections, the other core would get the
            // second.
            bench.clients.push(UnixStream::connect(&path).unwrap());
            bench.clients[conns - 1].set_nonblocking(true).unwrap();
            bench.turn_until(|bench| bench.thread.core.conns_len() == conns);
        }
        Some(bench)
    }

    fn turn(&mut self) {
        self.thread.look(Wait::Nothing, &mut 0).unwrap();
        assert!(!self.thread.turn().unwrap(), "nothing is to be loaded");
    }

    fn turn_until(&mut self, is_done: impl Fn(&Self) -> bool) {
        const MOST: usize = 1_000_000;
        let done = (0..MOST).any(|_| {
            self.turn();
            is_done(self)
        });
        assert!(done, "it does not happen");
    }

    /// Runs enough turns to show that no further progress is made. Sends complete at once.
    fn settle(&mut self) {
        for _ in 0..100 {
            self.turn();
            self.thread.net.borrow_mut().flush_submissions().unwrap();
        }
    }

    fn send(&mut self, client: usize, request: &str) {
        // In one piece: otherwise the core may answer the first request before it has the rest.
        self.clients[client].write_all(format!("{request}\r\n").as_bytes()).unwrap();
    }

    /// The bytes that a client has received.
    fn got(&mut self, client: usize) -> String {
        let mut bytes = [0; 256];
        match self.clients[client].read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => String::new(),
            read => String::from_utf8_lossy(&bytes[..read.unwrap()]).into_owned(),
        }
    }

    /// The number of commands that this core has run.
    fn commands(&self) -> u64 {
        self.thread.core.stats.borrow().commands
    }

    /// The number of messages that the ring had no room for.
    fn backlog(&self) -> usize {
        self.thread.mailbox.borrow().backlog()
    }

    /// A request for a key that the other core owns.
    fn remote(&self) -> String {
        remote(&self.thread)
    }
}

/// A request for a key that core 1 owns.
fn remote(thread: &Thread) -> String {
    let mut keys = (0..).map(|at| format!("key:{at}"));
    format!("GET {}", keys.find(|key| thread.core.tx.core_of(key.as_bytes()) == 1).unwrap())
}

/// Opens the runtime's network; `None` where the system lacks the backend.
fn open(choice: BackendChoice, waker: &Waker) -> Option<Net> {
    match Net::open(choice, waker) {
        Err(error) if choice == BackendChoice::Uring => {
            eprintln!("no io_uring here: {error}");
            None
        }
        opened => Some(opened.unwrap().0),
    }
}

/// Like [`open`]. Also returns the path of the unix socket on which it listens.
fn listening(choice: BackendChoice, waker: &Waker) -> Option<(Net, PathBuf)> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("darter-thread-{}-{number}", std::process::id());
    let (mut net, path) = (open(choice, waker)?, std::env::temp_dir().join(name));
    net.listen_unix(&path, 2, None).unwrap();
    Some((net, path))
}

fn thread(id: usize, net: Net, mailbox: Mailbox<Post>, wakers: &[Waker]) -> Thread {
    let (net, mailbox) = (Rc::new(RefCell::new(net)), Rc::new(RefCell::new(mailbox)));
    let arrivals = Rc::new(Arrivals::new(&net, &mailbox));
    let clock = Rc::new(MachineClock);
    let knocker = Rc::clone(&arrivals) as Rc<dyn Knocker>;
    let slice = Rc::new(SliceTimer::new(Rc::clone(&clock), knocker));
    let local = Local::new(Shared::nowhere(wakers.len(), 0), Arc::default());
    let table = Arc::new(crate::boot::table());
    let core = Core::new(id, wakers.len(), 16, table, World { clock, slice, seed: 1 }, local);
    Thread {
        core,
        net,
        doors: Doors::default(),
        mailbox,
        arrivals,
        stop: Arc::default(),
        inbox: None,
        replay: None,
        loaded: Loaded::new(0, wakers.to_vec()),
        loading: false,
        quiet: wakers.iter().map(|_| AtomicBool::default()).collect(),
        poll_time: None,
        had_requests: false,
        waiting_since: None,
    }
}

#[test] // Messages are still taken. When the ring has room, everything continues.
fn a_full_ring_to_another_core_holds_requests_and_replies() {
    for choice in [BackendChoice::Uring, BackendChoice::Epoll] {
        let Some(mut bench) = Bench::new(choice) else { continue };
        let remote = bench.remote();
        bench.send(0, &remote);
        bench.turn_until(|bench| bench.other.has_mail());
        bench.send(1, &format!("PING\r\n{remote}"));
        bench.turn_until(|bench| bench.backlog() == 1);
        bench.send(1, "PING");
        let ran = bench.commands();
        bench.settle();
        assert_eq!((bench.backlog(), bench.got(1)), (1, String::new()), "{choice:?}: a reply left");
        assert_eq!(bench.commands(), ran, "{choice:?}: a request was read");

        let received = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&received);
        let ask = Mail::Ask(Box::new(move |_| _ = count.fetch_add(1, Ordering::Relaxed)));
        bench.other.post(0, Post::Mail(ask));
        assert!(bench.other.flush());
        bench.settle();
        assert_eq!(received.load(Ordering::Relaxed), 1, "{choice:?}: a message was not taken");

        assert_eq!(bench.other.drain(|_, _| ()), 1, "{choice:?}");
        bench.turn_until(|bench| bench.commands() == ran + 1);
        assert_eq!((bench.backlog(), bench.got(1).as_str()), (0, "+PONG\r\n"), "{choice:?}");
        assert_eq!(bench.other.drain(|_, _| ()), 1, "{choice:?}");
    }
}

#[test]
fn a_connection_that_arrives_while_another_leaves_is_not_confused_with_it() {
    for choice in [BackendChoice::Uring, BackendChoice::Epoll] {
        let wakers = [Waker::new().unwrap(), Waker::new().unwrap()];
        let Some((net, path)) = listening(choice, &wakers[0]) else { continue };
        let nets = [net, open(choice, &wakers[1]).unwrap()];
        let mailboxes = mailbox::mesh::<Post>(wakers.to_vec(), 16);
        let mut threads: Vec<Thread> = nets
            .into_iter()
            .zip(mailboxes)
            .enumerate()
            .map(|(id, (net, mailbox))| thread(id, net, mailbox, &wakers))
            .collect();
        let eager = Policy { requests: 1, streak_ms: 0, stay_ms: 0, span_ms: 1 };
        threads.iter().for_each(|thread| thread.core.set_move_policy(eager));
        let turn = |threads: &mut [Thread]| {
            for thread in threads {
                thread.look(Wait::Nothing, &mut 0).unwrap();
                thread.turn().unwrap();
                thread.net.borrow_mut().flush_submissions().unwrap();
            }
        };
        let remote = remote(&threads[0]);
        let mut clients = Vec::new();
        for _ in 0..200 {
            let mut client = UnixStream::connect(&path).unwrap();
            client.set_nonblocking(true).unwrap();
            write!(client, "{remote}\r\n{remote}\r\n").unwrap();
            clients.push(client);
            turn(&mut threads);
        }
        let moves = |thread: &Thread| thread.core.stats.borrow().moves;
        assert!(threads.iter().map(moves).sum::<u64>() > 0, "{choice:?}: nobody has moved");
        for client in &mut clients {
            let (mut got, mut bytes) = (Vec::new(), [0; 64]);
            for _ in 0..100_000 {
                turn(&mut threads);
                match client.read(&mut bytes) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    read => got.extend_from_slice(&bytes[..read.unwrap()]),
                }
                if got.len() == 10 {
                    break;
                }
            }
            assert_eq!(got, b"$-1\r\n$-1\r\n", "{choice:?}");
        }
        let conns: usize = threads.iter().map(|thread| thread.core.conns_len()).sum();
        assert_eq!(conns, clients.len(), "{choice:?}");
    }
}

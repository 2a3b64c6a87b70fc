//! An echo server on a [`Net`], driven by commands, that counts its events.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use darter_runtime::net::{
    Address, BackendChoice, Event, Net, Parcel, Part, SendBuffer, Token, Wait, Waker,
};

/// Both backends; io_uring only where the system has it.
pub(crate) fn backends() -> Vec<BackendChoice> {
    let waker = Waker::new().unwrap();
    match Net::open(BackendChoice::Uring, &waker) {
        Ok(_) => vec![BackendChoice::Epoll, BackendChoice::Uring],
        Err(error) => {
            eprintln!("no io_uring here: {error}");
            vec![BackendChoice::Epoll]
        }
    }
}

/// Requests to the server; each is answered when it is done.
pub(crate) enum Command {
    Pause,
    Resume,
    Close,
    ShutdownSend,
    StopListening,
    SendEach(Vec<u8>),
    Block(Receiver<()>),
    Adopt(Vec<Parcel>),
    /// Give away every connection that has nothing to send.
    Release(Remote),
    TakeOver(OwnedFd, Client),
    Stop,
}

#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) accepted: AtomicUsize,
    pub(crate) received_bytes: AtomicUsize,
    pub(crate) eofs: AtomicUsize,
    pub(crate) sends: AtomicUsize,
    pub(crate) sends_failed: AtomicUsize,
    pub(crate) closed: AtomicUsize,
    pub(crate) released: AtomicUsize,
    pub(crate) close_errors: Mutex<Vec<std::io::ErrorKind>>,
    pub(crate) peers: Mutex<Vec<String>>,
    pub(crate) waiting_bytes_max: AtomicUsize,
}

#[derive(Clone, Default)]
pub(crate) struct Options {
    /// Send in many pieces.
    pub(crate) in_parts: bool,
    /// Only count received bytes.
    pub(crate) silent: bool,
    pub(crate) unix: Option<PathBuf>,
    /// Hand every second connection over.
    pub(crate) hand_over_to: Option<Remote>,
}

/// Reaches a server from another thread.
#[derive(Clone)]
pub(crate) struct Remote {
    pub(crate) commands: Sender<(Command, Sender<()>)>,
    pub(crate) waker: Waker,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) remote: Remote,
    pub(crate) tally: Arc<Tally>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(choice: BackendChoice, options: Options) -> Self {
        let waker = Waker::new().unwrap();
        let (commands, inbox) = channel();
        let (sender, receiver) = channel();
        let tally = Arc::new(Tally::default());
        let remote = Remote { commands, waker: waker.clone() };
        let their_tally = Arc::clone(&tally);
        let thread = std::thread::spawn(move || {
            let (mut net, _) = Net::open(choice, &waker).unwrap();
            let id = net.listen_tcp("127.0.0.1:0".parse().unwrap(), 4096, 300).unwrap();
            if let Some(path) = &options.unix {
                net.listen_unix(path, 511, Some(0o700)).unwrap();
            }
            let Some(Address::Tcp(address)) = net.listener_address(id) else { panic!("not TCP") };
            sender.send(address).unwrap();
            let (conns, heir) = (HashMap::new(), None);
            Echo { net, options, tally: their_tally, conns, heir }.run(&inbox);
        });
        Self { address: receiver.recv().unwrap(), remote, tally, thread: Some(thread) }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Sends a command, and waits until it is done.
    pub(crate) fn ask(&self, command: Command) {
        self.ask_later(command).recv().unwrap();
    }

    pub(crate) fn ask_later(&self, command: Command) -> Receiver<()> {
        let (done, answer) = channel();
        self.remote.commands.send((command, done)).unwrap();
        self.remote.waker.wake();
        answer
    }

    pub(crate) fn wait_for(&self, what: &str, is_so: impl Fn(&Tally) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !is_so(&self.tally) {
            assert!(Instant::now() < deadline, "waited in vain for {what}");
            std::thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.remote.commands.send((Command::Stop, channel().0));
        self.remote.waker.wake();
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking(), "the server panicked");
    }
}

#[derive(Default)]
pub(crate) struct Client {
    out: Vec<u8>,
    sending: bool,
    eof: bool,
    paused: bool,
    shut: bool,
    /// The connection is being released.
    leaves: bool,
}

struct Echo {
    net: Net,
    options: Options,
    tally: Arc<Tally>,
    conns: HashMap<Token, Client>,
    /// The core that takes over released connections.
    heir: Option<Remote>,
}

const WAITING_MAX: usize = 256 * 1024;

impl Echo {
    fn run(&mut self, inbox: &Receiver<(Command, Sender<()>)>) {
        loop {
            let (mut notes, mut released) = (Vec::new(), Vec::new());
            let (conns, tally, options) = (&mut self.conns, &self.tally, &self.options);
            let note = &mut |event: Event<'_>| match event {
                Event::Released { conn, socket } => {
                    let client = conns.remove(&conn).unwrap();
                    assert!(client.leaves && !client.eof, "{conn:?} was to stay");
                    released.push((socket, client));
                }
                event => observe(event, conns, tally, options, &mut notes),
            };
            self.net.poll(Wait::Forever, note).unwrap();
            self.bequeath(released);
            self.act(notes);
            loop {
                match inbox.try_recv() {
                    Ok((Command::Stop, _)) | Err(TryRecvError::Disconnected) => return,
                    Ok((command, done)) => {
                        self.obey(command);
                        let _ = done.send(()); // A missing receiver is fine.
                    }
                    Err(TryRecvError::Empty) => break,
                }
            }
        }
    }

    fn bequeath(&self, released: Vec<(OwnedFd, Client)>) {
        for (socket, client) in released {
            self.tally.released.fetch_add(1, SeqCst);
            let heir = self.heir.as_ref().unwrap();
            let client = Client { out: client.out, ..Client::default() };
            heir.commands.send((Command::TakeOver(socket, client), channel().0)).unwrap();
            heir.waker.wake();
        }
    }

    fn act(&mut self, touched: Vec<Token>) {
        for (nth, token) in touched.into_iter().enumerate() {
            let Some(client) = self.conns.get_mut(&token) else { continue };
            if client.leaves {
                continue; // The next core answers bytes that arrive meanwhile.
            }
            if let (Some(other), true) = (&self.options.hand_over_to, token.index % 2 == 1)
                && let Some(parcel) = self.net.hand_over(token)
            {
                self.conns.remove(&token);
                let command = Command::Adopt(vec![parcel]);
                other.commands.send((command, channel().0)).unwrap();
                other.waker.wake();
                continue;
            }
            self.tally.waiting_bytes_max.fetch_max(client.out.len(), SeqCst);
            if !client.sending && !client.out.is_empty() {
                let bytes = std::mem::take(&mut client.out);
                let buffer = if self.options.in_parts { cut(bytes, nth) } else { bytes.into() };
                client.sending = self.net.send(token, buffer).is_ok();
            }
            let full = client.out.len() > WAITING_MAX;
            if full && !client.paused {
                self.net.pause_receive(token);
            } else if !full && client.paused {
                self.net.resume_receive(token);
            }
            client.paused = full;
            if client.eof && !client.sending && !client.shut {
                client.shut = true;
                self.net.shutdown_send(token);
            }
        }
    }

    fn obey(&mut self, command: Command) {
        let tokens: Vec<Token> = self.conns.keys().copied().collect();
        match command {
            Command::Pause => tokens.iter().for_each(|&token| self.net.pause_receive(token)),
            Command::Resume => tokens.iter().for_each(|&token| self.net.resume_receive(token)),
            Command::Close => tokens.iter().for_each(|&token| self.net.close(token)),
            Command::ShutdownSend => tokens.iter().for_each(|&token| {
                self.conns.get_mut(&token).unwrap().shut = true;
                self.net.shutdown_send(token);
            }),
            Command::StopListening => self.net.stop_listening(),
            Command::SendEach(bytes) => {
                for token in tokens {
                    self.net.send(token, SendBuffer::Flat(bytes.clone())).unwrap();
                    self.conns.get_mut(&token).unwrap().sending = true;
                }
            }
            Command::Block(until) => until.recv().unwrap(),
            Command::Adopt(parcels) => {
                for parcel in parcels {
                    self.conns.insert(self.net.adopt(parcel), Client::default());
                    self.tally.accepted.fetch_add(1, SeqCst);
                }
                return;
            }
            Command::Release(heir) => {
                self.heir = Some(heir);
                for token in tokens {
                    let client = self.conns.get_mut(&token).unwrap();
                    let is_idle = !client.sending && client.out.is_empty();
                    if is_idle && !client.eof && !client.leaves {
                        client.leaves = true;
                        self.net.release(token);
                    }
                }
            }
            Command::TakeOver(socket, client) => {
                let token = self.net.take_over(socket);
                self.conns.insert(token, client);
                self.act(vec![token]);
            }
            Command::Stop => unreachable!("run stops"),
        }
        self.net.flush_submissions().unwrap();
    }
}

fn observe(
    event: Event<'_>,
    conns: &mut HashMap<Token, Client>,
    tally: &Tally,
    options: &Options,
    notes: &mut Vec<Token>,
) {
    match event {
        Event::Accepted { conn, peer, .. } => {
            assert!(conns.insert(conn, Client::default()).is_none(), "{conn:?} lives already");
            tally.accepted.fetch_add(1, SeqCst);
            tally.peers.lock().unwrap().push(peer.remote.to_string());
            notes.push(conn);
        }
        Event::Received { conn, bytes } => {
            let client = conns.get_mut(&conn).unwrap();
            assert!(!client.eof && !bytes.is_empty());
            if !options.silent {
                client.out.extend_from_slice(bytes);
            }
            tally.received_bytes.fetch_add(bytes.len(), SeqCst);
            notes.push(conn);
        }
        Event::Eof { conn } => {
            let client = conns.get_mut(&conn).unwrap();
            assert!(!std::mem::replace(&mut client.eof, true), "a second end of {conn:?}");
            tally.eofs.fetch_add(1, SeqCst);
            notes.push(conn);
        }
        Event::Sent { conn, result, .. } => {
            let client = conns.get_mut(&conn).unwrap();
            assert!(std::mem::replace(&mut client.sending, false), "nothing sent by {conn:?}");
            tally.sends.fetch_add(1, SeqCst);
            tally.sends_failed.fetch_add(usize::from(result.is_err()), SeqCst);
            notes.push(conn);
        }
        Event::Closed { conn, error } => {
            let client = conns.remove(&conn).unwrap();
            assert!(!client.sending, "closed before its send came back: {conn:?}");
            if let Some(error) = error {
                tally.close_errors.lock().unwrap().push(error.kind());
            }
            tally.closed.fetch_add(1, SeqCst);
        }
        Event::Woken | Event::Released { .. } => {}
    }
}

/// The bytes in pieces of several lengths, own and shared, with empty ones among them.
fn cut(bytes: Vec<u8>, salt: usize) -> SendBuffer {
    let whole: Arc<[u8]> = bytes.into();
    let (mut parts, mut start) = (vec![Part::Bytes(Vec::new())], 0);
    while start < whole.len() {
        let end = (start + 1 + (start * 31 + salt * 977) % 5000).min(whole.len());
        parts.push(if parts.len() % 2 == 0 {
            Part::Shared(Arc::clone(&whole), start..end)
        } else {
            Part::Bytes(whole[start..end].to_vec())
        });
        start = end;
    }
    SendBuffer::Parts(parts)
}

/// Sends `bytes`, and reads the same number back.
pub(crate) fn exchange(stream: &mut (impl Read + Write), bytes: &[u8]) -> Vec<u8> {
    stream.write_all(bytes).unwrap();
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).unwrap();
    back
}

//! Clients that notify each other: one thread sends for all of them, and waits for all effects of
//! each request.
//!
//! A message to a hundred subscribers, or an element that one client pushes and another waits for,
//! is no request and reply. So a round sends, and then gathers: it waits until as many line ends as
//! it is due have come, on whichever connections. Rounds follow one another, so the time of one is
//! a latency, and the operations of all are the server's work.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll;

use crate::fault::{Fault, Outcome};
use crate::saturate::Wait;

/// The longest that a round may take.
const ROUND_LIMIT: Duration = Duration::from_secs(10);

/// One of the clients.
struct Client {
    stream: TcpStream,
    /// Line ends received in this round.
    heard: u64,
}

/// Connections to one server.
pub(crate) struct Stage {
    poll: OwnedFd,
    clients: Vec<Client>,
    wait: Wait,
    /// The last byte received was a line's end.
    is_between: bool,
    events: Vec<epoll::Event>,
    buffer: Vec<u8>,
}

impl Stage {
    /// Connects `count` clients to `port`.
    pub(crate) fn open(port: u16, count: usize, wait: Wait) -> Outcome<Stage> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(std::io::Error::from)?;
        let mut clients = Vec::with_capacity(count);
        for number in 0..count {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&poll, &stream, data, epoll::EventFlags::IN)
                .map_err(std::io::Error::from)?;
            clients.push(Client { stream, heard: 0 });
        }
        let (events, buffer) = (Vec::with_capacity(count), vec![0; 256 * 1024]);
        Ok(Stage { poll, clients, wait, is_between: true, events, buffer })
    }

    /// Sends `request` on connection `from`.
    pub(crate) fn send(&mut self, from: usize, mut request: &[u8]) -> Outcome<()> {
        let started = Instant::now();
        while !request.is_empty() {
            match self.clients[from].stream.write(request) {
                Ok(written) => request = &request[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if started.elapsed() > ROUND_LIMIT {
                        return Err(Fault::TimedOut);
                    }
                    std::thread::sleep(Duration::from_micros(50));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits for `lines` line ends, of all connections together; more are a fault, and so is an
    /// error line.
    pub(crate) fn gather(&mut self, mut lines: u64) -> Outcome<()> {
        let started = Instant::now();
        self.clients.iter_mut().for_each(|client| client.heard = 0);
        while lines > 0 {
            let a_while = match self.wait {
                Wait::Poll => rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 },
                Wait::Sleep => rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 },
            };
            self.events.clear();
            let events = rustix::buffer::spare_capacity(&mut self.events);
            epoll::wait(&self.poll, events, Some(&a_while)).map_err(std::io::Error::from)?;
            if self.events.is_empty() && started.elapsed() > ROUND_LIMIT {
                return Err(Fault::TimedOut);
            }
            for at in 0..self.events.len() {
                let heard = self.receive(self.events[at].data.u64() as usize)?;
                lines = lines
                    .checked_sub(heard)
                    .ok_or_else(|| Fault::Setup(format!("{heard} lines where {lines} were due")))?;
            }
        }
        Ok(())
    }

    /// The connections on which the last [`Stage::gather`] received anything.
    pub(crate) fn heard(&self) -> impl Iterator<Item = usize> {
        self.clients.iter().enumerate().filter(|(_, client)| client.heard > 0).map(|(at, _)| at)
    }

    /// Reads the received bytes, and counts their line ends.
    fn receive(&mut self, from: usize) -> Outcome<u64> {
        let client = &mut self.clients[from];
        let read = match client.stream.read(&mut self.buffer) {
            Ok(0) => return Err(Fault::Gone),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        let bytes = &self.buffer[..read];
        let mut begins = std::mem::replace(&mut self.is_between, bytes.ends_with(b"\n"));
        let mut heard = 0;
        for (at, byte) in bytes.iter().enumerate() {
            if begins && *byte == b'-' {
                let text = String::from_utf8_lossy(&bytes[at + 1..]);
                return Err(Fault::Refused(text.lines().next().unwrap_or_default().to_owned()));
            }
            begins = *byte == b'\n';
            heard += u64::from(begins);
        }
        client.heard += heard;
        Ok(heard)
    }
}

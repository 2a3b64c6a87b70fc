//! One socket to a server: commands out, replies in, as raw bytes and as values.
//!
//! Blocking, with a deadline on every read, so that a hanging server is a failed step and not a
//! hung run.

use crate::reply::{self, Framer, Reply};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// The longest wait for a reply; then the step fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The protocol that connections start in.
    Resp2,
    /// Requested with `HELLO 3`.
    Resp3,
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    socket: TcpStream,
    input: Vec<u8>,
}

impl Client {
    /// Connects, and switches the protocol if needed.
    ///
    /// # Errors
    /// When the server does not accept or refuses `HELLO 3`.
    pub fn connect(port: u16, protocol: Protocol) -> io::Result<Self> {
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let mut client = Self { socket, input: Vec::new() };
        if protocol == Protocol::Resp3 {
            let hello = client.command(&["HELLO", "3"])?;
            if hello.is_error() {
                return Err(io::Error::other(format!("HELLO 3: {hello:?}")));
            }
        }
        Ok(client)
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    /// When the socket fails, closes, stays silent, or carries no reply.
    pub fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        self.send(&encode(args))?;
        self.receive()
    }

    /// Sends a command written as words between spaces.
    ///
    /// # Errors
    /// The errors of [`Client::command`].
    pub fn words(&mut self, line: &str) -> io::Result<Reply> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        self.command(&words)
    }

    /// Sends raw bytes.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// Waits for one reply, as its value.
    ///
    /// # Errors
    /// The errors of [`Client::command`].
    pub fn receive(&mut self) -> io::Result<Reply> {
        let raw = self.receive_raw()?;
        reply::parse(&raw).map_err(|error| io::Error::other(format!("{error:?}")))
    }

    /// Waits for one reply, as its bytes.
    ///
    /// # Errors
    /// The errors of [`Client::command`].
    pub fn receive_raw(&mut self) -> io::Result<Vec<u8>> {
        let mut framer = Framer::default();
        loop {
            match framer.advance(&self.input) {
                Ok(Some(len)) => return Ok(self.input.drain(..len).collect()),
                Ok(None) => {}
                Err(error) => return Err(self.not_a_reply(error)),
            }
            let mut chunk = [0; 64 * 1024];
            let got = self.socket.read(&mut chunk)?;
            if got == 0 {
                let text = format!("closed after {:?}", String::from_utf8_lossy(&self.input));
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            }
            self.input.extend_from_slice(&chunk[..got]);
        }
    }

    fn not_a_reply(&self, error: reply::Malformed) -> io::Error {
        let head = &self.input[..self.input.len().min(120)];
        io::Error::other(format!("{error:?} in {:?}", String::from_utf8_lossy(head)))
    }

    /// Reads until the server closes; returns all bytes.
    ///
    /// # Errors
    /// When the server does not close in time.
    pub fn read_to_end(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = std::mem::take(&mut self.input);
        match self.socket.read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(bytes),
            Err(error) => Err(error),
        }
    }

    /// Closes the sending half.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn half_close(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }

    /// The socket, for tests that read and write at their own pace.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Limits how long a read waits.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(patience))
    }
}

/// A command as an array of bulks.
#[must_use]
pub fn encode<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.as_ref();
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}

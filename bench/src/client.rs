//! A blocking RESP client: small replies are parsed, large ones only counted while they are read.
//!
//! Reading a reply of ten million elements must cost the client no more than the reads, or the
//! client would be measured instead of the server. [`Counter`] therefore only finds where replies
//! end: it skips bulk strings by their length and keeps one number, the elements that the reply
//! still lacks. It works on any split of the byte stream and remembers errors.
//!
//! Not here: the client that saturates a server (`saturate`), which does even less.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use crate::fault::{Fault, Outcome};

/// The most bytes that one read takes.
const READ_BYTES: usize = 256 * 1024;
/// The longest header or status line.
const LINE_BYTES_MAX: usize = 4096;

/// A parsed reply. Nested aggregates keep only their first level's count and flat elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// `+` line.
    Status(String),
    /// `:` number.
    Integer(i64),
    /// `$` bytes.
    Bulk(Vec<u8>),
    /// `$-1` or `*-1`.
    Null,
    /// `*` elements.
    Array(Vec<Reply>),
}

impl Reply {
    /// The text of a status or bulk reply. Empty for other replies.
    pub(crate) fn text(&self) -> String {
        match self {
            Reply::Status(line) => line.clone(),
            Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        }
    }

    /// The number of an integer reply. 0 for other replies.
    pub(crate) fn number(&self) -> i64 {
        match self {
            Reply::Integer(number) => *number,
            _ => 0,
        }
    }
}

/// Finds the ends of replies in a stream of bytes.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    /// The bytes of a bulk string (with its CRLF) still to skip.
    skip: u64,
    /// The number of elements that the reply still lacks. 0 between replies.
    owed: u64,
    /// The header line read so far, without CRLF.
    line: Vec<u8>,
    /// The number of error lines so far.
    pub(crate) errors: u64,
    /// The first error line.
    pub(crate) first_error: Option<String>,
}

impl Counter {
    /// Processes the next bytes. Returns how many replies ended in them.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> u64 {
        let mut ended = 0;
        while !bytes.is_empty() {
            if self.skip > 0 {
                let step = self.skip.min(bytes.len() as u64);
                self.skip -= step;
                bytes = &bytes[step as usize..];
                ended += u64::from(self.skip == 0 && self.element_ended());
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                self.line.extend_from_slice(bytes);
                break;
            };
            self.line.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            ended += u64::from(self.header());
            self.line.clear();
        }
        ended
    }

    /// Handles a complete header line. Returns whether a reply ended with it.
    fn header(&mut self) -> bool {
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        let Some((kind, rest)) = line.split_first() else { return false };
        let length = || std::str::from_utf8(rest).ok().and_then(|text| text.parse::<i64>().ok());
        match kind {
            b'$' | b'=' | b'!' => match length() {
                Some(length) if length >= 0 => self.skip = length as u64 + 2,
                _ => return self.element_ended(),
            },
            b'*' | b'~' | b'>' | b'%' => {
                let each = 1 + u64::from(*kind == b'%');
                let elements = length().unwrap_or(0).max(0) as u64 * each;
                self.owed = self.owed.max(1) + elements;
                return self.element_ended();
            }
            b'-' => {
                self.errors += 1;
                if self.first_error.is_none() {
                    self.first_error = Some(String::from_utf8_lossy(rest).into_owned());
                }
                return self.element_ended();
            }
            _ => return self.element_ended(),
        }
        false
    }

    /// Counts an element that has ended. Returns whether the reply has ended with it.
    fn element_ended(&mut self) -> bool {
        self.owed = self.owed.max(1) - 1;
        self.owed == 0
    }
}

/// How fast a streamed reply is taken from the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// As fast as it comes.
    Fast,
    /// At most this many bytes a second, in small steps.
    Slow { bytes_per_s: u64 },
}

/// The facts about a reply that was only counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Streamed {
    /// The time from sending the request to the first byte of the reply.
    pub(crate) first_byte: Duration,
    /// The time from sending the request to the end of the reply.
    pub(crate) whole: Duration,
    /// The reply's size on the wire.
    pub(crate) bytes: u64,
}

/// A blocking connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    /// The bytes read but not yet consumed: `input[start..]`.
    input: Vec<u8>,
    start: usize,
}

impl Connection {
    /// Connects to `port` on this machine. Each later read waits for at most `limit`.
    pub(crate) fn open(port: u16, limit: Duration) -> Outcome<Connection> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        Ok(Connection { stream, input: Vec::new(), start: 0 })
    }

    /// Sends bytes that are already RESP.
    pub(crate) fn send(&mut self, request: &[u8]) -> Outcome<()> {
        Ok(self.stream.write_all(request)?)
    }

    /// Reads available bytes into `buffer`. A read of 0 bytes is a [`Fault::Gone`].
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> Outcome<usize> {
        match self.stream.read(buffer)? {
            0 => Err(Fault::Gone),
            read => Ok(read),
        }
    }

    /// Sends one command and parses its reply. An error reply is a [`Fault::Refused`].
    pub(crate) fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Outcome<Reply> {
        let mut request = Vec::new();
        command(&mut request, words);
        self.send(&request)?;
        self.reply()
    }

    /// Parses the next reply.
    pub(crate) fn reply(&mut self) -> Outcome<Reply> {
        let line = self.line()?;
        let text = line.get(1..).unwrap_or_default();
        let length = text.parse::<i64>().unwrap_or(-1);
        match line.as_bytes().first() {
            Some(b'-') => Err(Fault::Refused(text.to_owned())),
            Some(b':') => Ok(Reply::Integer(length)),
            Some(b'$' | b'*') if length < 0 => Ok(Reply::Null),
            Some(b'$') => Ok(Reply::Bulk(self.bulk(length as usize)?)),
            Some(b'*') => {
                (0..length).map(|_| self.reply()).collect::<Outcome<_>>().map(Reply::Array)
            }
            _ => Ok(Reply::Status(text.to_owned())),
        }
    }

    fn bulk(&mut self, length: usize) -> Outcome<Vec<u8>> {
        while self.input.len() - self.start < length + 2 {
            self.fill()?;
        }
        let bytes = self.input[self.start..self.start + length].to_vec();
        self.start += length + 2;
        Ok(bytes)
    }

    fn line(&mut self) -> Outcome<String> {
        loop {
            let rest = &self.input[self.start..];
            if let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8_lossy(&rest[..end]).into_owned();
                self.start += end + 2;
                return Ok(line);
            }
            if rest.len() > LINE_BYTES_MAX {
                return Err(Fault::Setup("a reply line without end".to_owned()));
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Outcome<()> {
        self.input.drain(..self.start);
        self.start = 0;
        let mut chunk = [0; 16 * 1024];
        let read = self.receive(&mut chunk)?;
        self.input.extend_from_slice(&chunk[..read]);
        Ok(())
    }

    /// Sends `request` and reads its reply without keeping it.
    ///
    /// The limit holds for the whole exchange, not for each read.
    pub(crate) fn stream(
        &mut self,
        request: &[u8],
        reader: Reader,
        limit: Duration,
    ) -> Outcome<Streamed> {
        let started = Instant::now();
        self.send(request)?;
        let mut counter = Counter::default();
        let mut buffer = vec![0; READ_BYTES];
        let mut streamed = Streamed::default();
        loop {
            let read = self.receive(&mut buffer)?;
            if streamed.bytes == 0 {
                streamed.first_byte = started.elapsed();
            }
            streamed.bytes += read as u64;
            if counter.feed(&buffer[..read]) > 0 {
                streamed.whole = started.elapsed();
                return counter.first_error.map_or(Ok(streamed), |line| Err(Fault::Refused(line)));
            }
            if started.elapsed() > limit {
                return Err(Fault::TimedOut);
            }
            if let Reader::Slow { bytes_per_s } = reader {
                std::thread::sleep(Duration::from_secs_f64(read as f64 / bytes_per_s as f64));
            }
        }
    }
}

/// Appends one command in RESP.
pub(crate) fn command<W: AsRef<[u8]>>(request: &mut Vec<u8>, words: &[W]) {
    header(request, words.len() as u64);
    for word in words {
        bulk(request, word.as_ref());
    }
}

/// Appends the header of a command of `words` words.
pub(crate) fn header(request: &mut Vec<u8>, words: u64) {
    request.push(b'*');
    request.extend_from_slice(words.to_string().as_bytes());
    request.extend_from_slice(b"\r\n");
}

/// Appends one word of a command.
pub(crate) fn bulk(request: &mut Vec<u8>, word: &[u8]) {
    request.push(b'$');
    request.extend_from_slice(word.len().to_string().as_bytes());
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(word);
    request.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_count_does_not_depend_on_how_the_stream_is_split() {
        let stream =
            b"+OK\r\n*3\r\n$1\r\na\r\n*2\r\n:1\r\n$-1\r\n-no\r\n%1\r\n+k\r\n+v\r\n*0\r\n$0\r\n\r\n";
        for step in 1..stream.len() {
            let mut counter = Counter::default();
            let ended: u64 = stream.chunks(step).map(|part| counter.feed(part)).sum();
            assert_eq!(ended, 5, "step={step}");
            assert_eq!((counter.errors, counter.owed, counter.skip), (1, 0, 0), "step={step}");
            assert_eq!(counter.first_error.as_deref(), Some("no"), "step={step}");
        }
    }

    #[test]
    fn commands_are_encoded_as_arrays_of_bulks() {
        let mut request = Vec::new();
        command(&mut request, &["GET", "k"]);
        assert_eq!(request, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
    }
}

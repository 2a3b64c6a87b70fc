//! Parses requests out of received bytes.
//!
//! ```text
//! buffer:  | used | *3 CRLF $3 CRLF SET CRLF $1 CRLF k CRLF $5 CRLF he      (more to come)
//!                 ^ base   (spans count from here)            ^ cursor
//! ```
//! A request that is complete in the buffer is borrowed from it; plain ones are parsed several at a
//! time, ahead of their turn ([`Parser::parse_ahead`], `lookahead`). An incomplete request longer
//! than a chunk is moved into blocks as it arrives. So the buffer stays small, no byte is parsed
//! twice, and no copy is longer than a chunk. Announced numbers allocate nothing. Bytes beyond
//! [`BUFFER_MAX_BYTES`] stay in blocks (`backlog`) until the parser comes to them.
//!
//! Invariants:
//! - I1: `base <= cursor <= buffer.len()`; spans are in `base..cursor`.
//! - I2: requests parsed ahead follow one another from `base` on; while there are any, `state` is
//!   `Start` and nothing is spilled.
//! - I3: after an error nothing more is parsed: the connection must be closed.
//!
//! Source of limits and texts: Redis's protocol handling, byte for byte (conformance: protocol).

use crate::args::{Args, Request, Span, span};
use crate::backlog::Backlog;
use crate::inline;
use crate::lookahead::{self, Cut};
use darter_base::limits::CHUNK_BYTES;
use darter_base::number;
use std::sync::Arc;

/// Longest line: an inline request, or a header.
const LINE_MAX_BYTES: usize = 64 * 1024;
/// The most arguments of a request before the client has authenticated.
const UNAUTHENTICATED_ARGS: i64 = 10;
const UNAUTHENTICATED_BULK: i64 = 16_384;
/// With more pending bytes than this, the buffer takes no more: the rest goes to the backlog. So it
/// also bounds the bytes moved in one step. Any part of a request that must be whole in the buffer
/// is shorter, because finished arguments leave it after a chunk.
const BUFFER_MAX_BYTES: usize = 256 * 1024;
/// A chunk counts as this many arguments of a portion, because it is copied into new memory.
const CHUNK_COST: usize = 512;

/// The reason why the bytes are not a request: the text after `-ERR Protocol error: `.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// One of the fixed texts.
    Text(&'static str),
    /// Another byte where a bulk header was expected.
    ExpectedDollar(u8),
}

impl ProtocolError {
    /// The error line, without `-` and CRLF.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => [b"ERR Protocol error: ", text.as_bytes()].concat(),
            Self::ExpectedDollar(byte) => {
                [&b"ERR Protocol error: expected '$', got '"[..], &[*byte], b"'"].concat()
            }
        }
    }
}

/// The limits of a connection.
#[derive(Clone, Copy, Debug)]
struct Limits {
    bulk_max: i64,
    authenticated: bool,
}

/// The parser's position within a request.
#[derive(Debug)]
enum State {
    /// Before a request.
    Start,
    /// `left` arguments of a RESP array have not arrived.
    Array { left: usize },
    /// Within the `len` bytes of an argument, which is included in `left`.
    Bulk { left: usize, len: usize },
    /// Within an argument longer than a chunk, of which `missing` bytes have not arrived.
    Big { left: usize, missing: usize, chunks: Vec<Arc<[u8]>> },
}

/// The parser of one connection.
#[derive(Debug)]
pub struct Parser {
    buffer: Vec<u8>,
    base: usize,
    cursor: usize,
    /// The bytes after those in the buffer.
    backlog: Backlog,
    spans: Vec<Span>,
    /// Requests parsed ahead; those before `next_cut` have been returned.
    cuts: Vec<Cut>,
    next_cut: usize,
    state: State,
    /// The part of a large request that has been moved out of the buffer.
    spilled: Request,
    /// The finished large or inline request that the last [`Args`] borrow, until it is released.
    owned: Option<Arc<Request>>,
    limits: Limits,
}

/// The result of a portion of parsing.
#[derive(Debug)]
pub enum Parsed<'a> {
    /// A complete request.
    Request(Args<'a>),
    /// A request without a word: `*0`, or an empty line. It is skipped.
    Empty,
    /// The portion is used up, and bytes are left: call again.
    Portion,
    /// All bytes are consumed; more are needed.
    Wanting,
}

/// The result of a step within a long argument.
enum Big {
    /// Bytes were consumed.
    Taken,
    /// More bytes must arrive first.
    Short,
}

/// The result of a step.
enum Found {
    Nothing,
    Empty,
    /// The portion is used up.
    Portion,
    InBuffer,
    Owned,
}

impl Parser {
    /// A parser that allows arguments of `bulk_max` bytes (`proto-max-bulk-len`).
    #[must_use]
    pub fn new(bulk_max: usize, authenticated: bool) -> Self {
        let bulk_max = i64::try_from(bulk_max).unwrap_or(i64::MAX);
        Self {
            buffer: Vec::new(),
            base: 0,
            cursor: 0,
            backlog: Backlog::default(),
            spans: Vec::new(),
            cuts: Vec::new(),
            next_cut: 0,
            state: State::Start,
            spilled: Request::default(),
            owned: None,
            limits: Limits { bulk_max, authenticated },
        }
    }

    /// Lifts or restores the limits for unauthenticated clients. Requests parsed ahead are then
    /// checked again.
    #[inline]
    pub fn set_authenticated(&mut self, authenticated: bool) {
        if !authenticated {
            self.cuts.truncate(self.next_cut);
        }
        self.limits.authenticated = authenticated;
    }

    /// Changes the longest argument.
    pub fn set_bulk_max(&mut self, bulk_max: usize) {
        self.limits.bulk_max = i64::try_from(bulk_max).unwrap_or(i64::MAX);
    }

    /// Received bytes that do not yet belong to a returned request.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.buffered_bytes() + self.backlog.bytes()
    }

    fn buffered_bytes(&self) -> usize {
        self.buffer.len() - self.base
    }

    /// True if more bytes are pending than the buffer takes, so they are not a single incomplete
    /// request.
    #[must_use]
    pub fn has_backlog(&self) -> bool {
        self.backlog.bytes() > 0
    }

    /// The pending bytes and the received part of an incomplete long argument: Redis's query
    /// buffer, which is checked against `client-query-buffer-limit`.
    #[must_use]
    pub fn query_bytes(&self) -> usize {
        self.pending_bytes() + self.arriving_bytes()
    }

    /// The beginning of the query buffer.
    #[must_use]
    pub fn query_head(&self) -> &[u8] {
        match &self.state {
            State::Big { chunks, .. } if !chunks.is_empty() => &chunks[0],
            _ => &self.buffer[self.base..],
        }
    }

    fn arriving_bytes(&self) -> usize {
        match &self.state {
            State::Big { chunks, .. } => chunks.len() * CHUNK_BYTES, // Only the last may be shorter.
            _ => 0,
        }
    }

    /// Capacity of the buffer.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        self.buffer.capacity() - self.buffer.len()
    }

    /// Bytes of complete arguments and their spans: of the request that is arriving, and of one
    /// that was returned and not released. Cost: O(its blocks).
    #[must_use]
    pub fn argument_bytes(&self) -> usize {
        self.spilled.bytes() + self.owned.as_ref().map_or(0, |request| request.bytes())
    }

    /// Bytes of memory held. Cost: that of [`Parser::argument_bytes`].
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let lists =
            self.spans.capacity() * size_of::<Span>() + self.cuts.capacity() * size_of::<Cut>();
        let backlog = self.backlog.memory_bytes();
        self.buffer.capacity() + backlog + lists + self.arriving_bytes() + self.argument_bytes()
    }

    /// Releases the last returned request, if it owns its bytes. Parts shared with a value or a
    /// task stay alive there.
    #[inline]
    pub fn release_request(&mut self) {
        self.owned = None;
    }

    /// True if the next request has started to arrive, and is incomplete.
    #[must_use]
    pub fn is_amid_request(&self) -> bool {
        self.pending_bytes() > 0 || !matches!(self.state, State::Start)
    }

    /// Adds received bytes. Cost: O(bytes), plus at most 256 KiB that are moved.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.has_backlog() || self.buffered_bytes() >= BUFFER_MAX_BYTES {
            self.backlog.push(bytes);
        } else {
            self.buffer(bytes);
        }
    }

    /// Moves a block of the backlog into the buffer. Returns false if there is none.
    fn refill(&mut self) -> bool {
        let Some(block) = self.backlog.pop() else { return false };
        self.buffer(&block);
        true
    }

    /// Appends bytes to the buffer.
    fn buffer(&mut self, bytes: &[u8]) {
        if self.base > 0 && matches!(self.state, State::Start) && self.base == self.buffer.len() {
            self.buffer.clear();
            (self.base, self.cursor) = (0, 0);
        } else if self.base >= CHUNK_BYTES {
            self.compact();
        }
        let is_large = self.buffer.len() >= BUFFER_MAX_BYTES / 2;
        if is_large && self.buffer.capacity() - self.buffer.len() < bytes.len() {
            // In one step: doubling would move it several times.
            self.buffer.reserve_exact(BUFFER_MAX_BYTES.max(bytes.len()));
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// True when there is a buffer, whether it is in use or not.
    #[must_use]
    pub fn has_buffer(&self) -> bool {
        self.buffer.capacity() > 0
    }

    /// True when [`Parser::release`] would free memory.
    #[must_use]
    pub fn may_release(&self) -> bool {
        !self.is_amid_request() && self.has_buffer()
    }

    /// Frees memory if nothing is pending, for idle connections. Returns true if there was any.
    pub fn release(&mut self) -> bool {
        if !self.may_release() {
            return false;
        }
        self.buffer = Vec::new();
        (self.base, self.cursor) = (0, 0);
        self.release_request();
        self.spans = Vec::new();
        self.cuts = Vec::new();
        self.next_cut = 0;
        true
    }

    /// Parses plain requests in the received bytes, unless some are already waiting. Returns their
    /// number; `next_portion` returns them.
    ///
    /// Cost: at most 16 requests and about 64 arguments; or one request of up to 1 024.
    #[inline]
    pub fn parse_ahead(&mut self) -> usize {
        let idle = self.next_cut == self.cuts.len() && matches!(self.state, State::Start);
        // Before a client has authenticated, each request may change the limits.
        if !idle || !self.limits.authenticated {
            return 0;
        }
        self.cut_ahead()
    }

    /// A separate function, so that the check for work is inlined.
    #[inline(never)]
    fn cut_ahead(&mut self) -> usize {
        self.spans.clear();
        self.cuts.clear();
        self.next_cut = 0;
        let bulk_max = usize::try_from(self.limits.bulk_max).unwrap_or(0);
        lookahead::cut(&self.buffer, self.base, bulk_max, &mut self.spans, &mut self.cuts);
        self.cuts.len()
    }

    /// The requests parsed ahead that are waiting.
    pub fn lookahead(&self) -> impl Iterator<Item = Args<'_>> {
        self.cuts[self.next_cut..].iter().map(|cut| self.args_of(cut))
    }

    fn args_of<'a>(&'a self, cut: &'a Cut) -> Args<'a> {
        let (bytes, spans) = (&self.buffer[cut.start..cut.end], &self.spans[cut.first..cut.last]);
        Args::with_note(bytes, spans, &cut.note)
    }

    /// The next request, once it is complete. It stays readable until the next call.
    ///
    /// Cost: O(its new bytes). Errors: the connection must be closed (I3).
    pub fn next_request(&mut self) -> Result<Option<Args<'_>>, ProtocolError> {
        if let Some(at) = self.take_cut() {
            return Ok(Some(self.args_of(&self.cuts[at])));
        }
        let found = loop {
            match self.advance(usize::MAX)? {
                Found::Empty | Found::Portion => {}
                found => break found,
            }
        };
        Ok(match self.hand_out(found) {
            Parsed::Request(args) => Some(args),
            Parsed::Empty | Parsed::Portion | Parsed::Wanting => None,
        })
    }

    /// [`Parser::next_request`], parsing at most `most` arguments: a request of a million may have
    /// arrived at once.
    pub fn next_portion(&mut self, most: usize) -> Result<Parsed<'_>, ProtocolError> {
        if let Some(at) = self.take_cut() {
            return Ok(Parsed::Request(self.args_of(&self.cuts[at])));
        }
        let found = self.advance(most)?;
        Ok(self.hand_out(found))
    }

    /// Takes the index of the next request that was parsed ahead.
    fn take_cut(&mut self) -> Option<usize> {
        let (at, end) = (self.next_cut, self.cuts.get(self.next_cut)?.end);
        self.next_cut += 1;
        self.base = end;
        self.cursor = end;
        Some(at)
    }

    fn hand_out(&mut self, found: Found) -> Parsed<'_> {
        match found {
            Found::Nothing => Parsed::Wanting,
            Found::Empty => Parsed::Empty,
            Found::Portion => Parsed::Portion,
            Found::Owned => {
                let request = self.owned.as_ref().expect("a finished request is kept");
                Parsed::Request(Args::owned(request))
            }
            Found::InBuffer => {
                let (from, to) = (self.base, self.cursor);
                self.base = self.cursor;
                Parsed::Request(Args::flat(&self.buffer[from..to], &self.spans))
            }
        }
    }

    /// Parses at most `most` arguments, or as many as one block of the backlog completes.
    fn advance(&mut self, most: usize) -> Result<Found, ProtocolError> {
        match self.advance_buffered(most)? {
            Found::Nothing if self.refill() => Ok(Found::Portion),
            found => Ok(found),
        }
    }

    fn advance_buffered(&mut self, most: usize) -> Result<Found, ProtocolError> {
        let mut portion = most;
        loop {
            match &mut self.state {
                State::Start => {
                    self.spans.clear();
                    self.cursor = self.base;
                    match self.buffer.get(self.cursor) {
                        None => return Ok(Found::Nothing),
                        Some(b'*') => match self.array_header()? {
                            None => return Ok(Found::Nothing),
                            Some(true) => {}
                            Some(false) => return Ok(Found::Empty),
                        },
                        Some(_) => match self.inline()? {
                            None => return Ok(Found::Nothing),
                            Some(true) => return Ok(Found::Owned),
                            Some(false) => return Ok(Found::Empty),
                        },
                    }
                }
                State::Array { left: 0 } => return Ok(self.finish()),
                State::Array { .. } if portion == 0 => {
                    self.spill_if_long();
                    return Ok(Found::Portion);
                }
                State::Array { left } => {
                    let left = *left;
                    portion -= 1;
                    if !self.bulk_header(left)? {
                        self.spill_if_long();
                        return Ok(Found::Nothing);
                    }
                }
                State::Bulk { left, len } => {
                    let (left, len) = (*left, *len);
                    let start = self.cursor;
                    if self.buffer.len() - start < len + 2 {
                        self.spill_if_long();
                        return Ok(Found::Nothing);
                    }
                    self.spans.push(span(start - self.base, start + len - self.base));
                    self.cursor = start + len + 2;
                    self.state = State::Array { left: left - 1 };
                }
                State::Big { missing: 1.., .. } if portion == 0 => return Ok(Found::Portion),
                State::Big { .. } => {
                    portion = portion.saturating_sub(CHUNK_COST);
                    match self.big() {
                        Big::Short => return Ok(Found::Nothing),
                        Big::Taken => {}
                    }
                }
            }
        }
    }

    /// Ends the current request, which is complete.
    fn finish(&mut self) -> Found {
        self.state = State::Start;
        if self.spilled.is_empty() {
            return Found::InBuffer;
        }
        self.spill();
        self.owned = Some(Arc::new(std::mem::take(&mut self.spilled)));
        Found::Owned
    }

    /// The line at the cursor without its CRLF; moves the cursor past it. `None` if the line is
    /// incomplete.
    fn line(&mut self, too_long: &'static str) -> Result<Option<(usize, usize)>, ProtocolError> {
        let rest = &self.buffer[self.cursor..];
        let Some(at) = line_end(b'\r', rest).filter(|at| at + 1 < rest.len()) else {
            if rest.len() > LINE_MAX_BYTES {
                return Err(ProtocolError::Text(too_long));
            }
            return Ok(None);
        };
        let start = self.cursor;
        self.cursor += at + 2;
        Ok(Some((start, start + at)))
    }

    /// Parses `*count`. `None` if more bytes are needed; `Some(false)` for an empty request.
    fn array_header(&mut self) -> Result<Option<bool>, ProtocolError> {
        let Some((start, end)) = self.line("too big mbulk count string")? else { return Ok(None) };
        let count = number::parse_i64(&self.buffer[start + 1..end])
            .filter(|&count| count <= i64::from(i32::MAX))
            .ok_or(ProtocolError::Text("invalid multibulk length"))?;
        if count > UNAUTHENTICATED_ARGS && !self.limits.authenticated {
            return Err(ProtocolError::Text("unauthenticated multibulk length"));
        }
        if count <= 0 {
            self.base = self.cursor;
            return Ok(Some(false));
        }
        self.state = State::Array { left: usize::try_from(count).unwrap_or(0) };
        Ok(Some(true))
    }

    /// Parses `$len`. Returns false if more bytes are needed.
    fn bulk_header(&mut self, left: usize) -> Result<bool, ProtocolError> {
        let Some((start, end)) = self.line("too big bulk count string")? else { return Ok(false) };
        let (&kind, digits) =
            self.buffer[start..end].split_first().ok_or(ProtocolError::ExpectedDollar(b'\r'))?;
        if kind != b'$' {
            return Err(ProtocolError::ExpectedDollar(kind));
        }
        let len = number::parse_i64(digits)
            .filter(|len| (0..=self.limits.bulk_max).contains(len))
            .ok_or(ProtocolError::Text("invalid bulk length"))?;
        if len > UNAUTHENTICATED_BULK && !self.limits.authenticated {
            return Err(ProtocolError::Text("unauthenticated bulk length"));
        }
        let len = usize::try_from(len).unwrap_or(0);
        if len > CHUNK_BYTES {
            self.spill();
            self.state = State::Big { left, missing: len, chunks: Vec::new() };
        } else {
            self.state = State::Bulk { left, len };
        }
        Ok(true)
    }

    /// Moves a chunk of a long argument out of the buffer, or ends the argument.
    fn big(&mut self) -> Big {
        let State::Big { left, missing, chunks } = &mut self.state else { return Big::Taken };
        let have = &self.buffer[self.cursor..];
        if *missing > 0 {
            let want = (*missing).min(CHUNK_BYTES);
            if have.len() < want {
                self.compact();
                return Big::Short;
            }
            chunks.push(Arc::from(&have[..want]));
            *missing -= want;
            self.cursor += want;
            self.base = self.cursor;
            return Big::Taken;
        }
        if have.len() < 2 {
            self.compact();
            return Big::Short;
        }
        self.cursor += 2;
        self.base = self.cursor;
        let left = *left - 1;
        let chunks = std::mem::take(chunks);
        self.spilled.push_big(chunks);
        self.state = State::Array { left };
        Big::Taken
    }

    /// Parses an inline request. `None` if more bytes are needed; `Some(false)` for an empty line.
    fn inline(&mut self) -> Result<Option<bool>, ProtocolError> {
        let rest = &self.buffer[self.cursor..];
        let Some(at) = line_end(b'\n', rest) else {
            if rest.len() > LINE_MAX_BYTES {
                return Err(ProtocolError::Text("too big inline request"));
            }
            return Ok(None);
        };
        let line = rest[..at].strip_suffix(b"\r").unwrap_or(&rest[..at]);
        let words =
            inline::split_words(line).ok_or(ProtocolError::Text("unbalanced quotes in request"))?;
        self.cursor += at + 1;
        self.base = self.cursor;
        if words.is_empty() {
            return Ok(Some(false));
        }
        self.owned = Some(Arc::new(Request::from_args(words.iter().map(Vec::as_slice))));
        Ok(Some(true))
    }

    fn spill_if_long(&mut self) {
        if self.cursor - self.base >= CHUNK_BYTES {
            self.spill();
        }
    }

    /// Moves the finished arguments of the current request out of the buffer.
    fn spill(&mut self) {
        if !self.spans.is_empty() {
            let bytes = self.buffer[self.base..self.cursor].to_vec();
            self.spilled.push_small(bytes, self.spans.to_vec()); // Without spare capacity.
            self.spans.clear();
        }
        self.base = self.cursor;
        self.compact();
    }

    /// Moves pending bytes to the front of the buffer, if they are few and no more than the bytes
    /// before them: so no byte is moved more than once on average.
    fn compact(&mut self) {
        if self.buffered_bytes() > self.base.min(BUFFER_MAX_BYTES) {
            return;
        }
        self.buffer.drain(..self.base);
        self.cursor -= self.base;
        for cut in &mut self.cuts[self.next_cut..] {
            (cut.start, cut.end) = (cut.start - self.base, cut.end - self.base);
        }
        self.base = 0;
    }
}

impl Drop for Parser {
    /// Frees the received part of a long argument like its request: in slices.
    fn drop(&mut self) {
        if let State::Big { chunks, .. } = &mut self.state {
            self.spilled.push_big(std::mem::take(chunks));
        }
    }
}

/// The end of the first line of `bytes`. As in Redis, no end is found after a NUL: a client that
/// sends one waits until the line is too long.
fn line_end(end: u8, bytes: &[u8]) -> Option<usize> {
    memchr::memchr2(end, 0, bytes).filter(|at| bytes[*at] == end)
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;

//! The reader: bytes in, events out.
//!
//! A pull parser over a buffer that its caller fills. It parses one *element* at a time (a head, an
//! opcode with its operands, a key with the head of its value, one field with its value, 64 KiB of
//! a string); an incomplete element is parsed again from its start once the bytes that it needs
//! have arrived. So there is no state within an element, and the sizes of chunks cannot change the
//! result. Items are borrowed from the buffer. Only packed ones (LZF, integers) are unpacked into
//! three reusable vectors; long ones in portions, each an event.
//!
//! ```text
//!           hashed   at                  end          hashed goes beyond at within a long element
//! buffer: | ....... | consumed | arrived | room |      base: file offset of buffer[0]
//! state:  Header -> Top <-> Body(..)  -> Done          payload: Value -> Body -> Trailer -> Done
//!                   Top <-> Module
//! ```
//! Memory: the buffer holds one element and the bytes pushed after it. An element is at most one
//! field and value, or one packed collection; its bytes are awaited, never allocated in advance.
//!
//! Invariants:
//! - I1: `hashed <= end`, `at <= end <= buffer.len()`.
//! - I2: every byte enters the checksum once, after it is known to belong to an element and before
//!   it leaves the buffer; the stored checksum itself does not.
//! - I3: after an error, the same error is returned again; after `Done`, nothing is returned.

mod entries;
mod items;
mod memory;
mod top;

use crate::blob::Form;
use crate::block::{self, BLOCK_BYTES_MAX, BlockHead};
use crate::crc64::Crc64;
use crate::error::{Error, Reason};
use crate::event::{Crc, Event, Product};
use crate::items::{Item, Piece};
use crate::kind::{Kind, Layout, Origin};
use crate::lzf;
use crate::types;
use crate::wire::{Cursor, Head, Stop, Text, size};
use darter_base::limits::CHUNK_BYTES;
use darter_base::number::{I64_TEXT_MAX, i64_text};
use darter_base::{StreamId, UnixMillis};
use entries::{EntriesStage, Log};
use items::block_fault;
use memory::{UNPACKED_AT_ONCE, Unpacking};
use std::ops::Range;

/// The limits of a reader.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest string (key, field, member, value), as Redis's `proto-max-bulk-len`.
    pub string_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { string_bytes_max: 512 * 1024 * 1024 }
    }
}

/// Reads a file, or a payload of `DUMP`, from chunks of any size.
///
/// Fill it with [`push`](Self::push), or without a copy with [`space`](Self::space) and
/// [`filled`](Self::filled); then take events with [`next`](Self::next) until it returns `None`.
/// Call [`finish`](Self::finish) after the last byte.
pub struct Reader {
    buffer: Vec<u8>,
    hashed: usize,
    at: usize,
    end: usize,
    base: u64,
    /// The number of bytes without which parsing cannot continue.
    need: usize,
    finished: bool,
    crc: Crc64,
    /// The checksum at the end is ignored.
    trusts: bool,
    state: State,
    product: Product,
    version: u16,
    limits: Limits,
    kinds: &'static [&'static Kind],
    /// The opcodes before the next key.
    pending: Pending,
    /// The length of a payload of `DUMP`, which has no key, and a trailer with the version.
    payload: Option<u64>,
    /// The size of the file or the payload, if known: it bounds the number of items.
    size: u64,
    /// The stream being read.
    log: Option<Box<Log>>,
    /// Packed collections are reported as a whole.
    gives_blocks: bool,
    /// Long values and elements are reported in parts.
    gives_parts: bool,
    /// The state to return to after the long value being read.
    rest: Option<Body>,
    /// Unpacked texts: of a field (or key), of a value, of a whole collection (or string).
    texts: [Vec<u8>; 3],
    /// The progress of unpacking the long texts among those.
    unpacking: [Unpacking; 3],
}

#[derive(Clone, Debug)]
enum State {
    Header,
    Top,
    Value,
    Body(Body),
    /// In module data: bytes of a string left to skip, then opcodes.
    Module {
        module: [u8; 9],
        skip: u64,
    },
    Trailer,
    Done,
    Failed(Error),
}

/// The part of a value left to read.
#[derive(Clone, Copy, Debug)]
enum Body {
    /// Bytes of a string, or of a long value, unpacked in the file.
    Raw { left: u64 },
    /// A string stored as an integer, already converted to text.
    Int,
    /// A packed string. `texts[2]` has `sent` reported bytes, to which copies may refer, then new
    /// ones.
    Packed { packed: u64, left: u64, sent: usize },
    /// Items as strings.
    Items { shape: Shape, left: u64 },
    /// Items in a packed collection.
    Block(Block),
    /// Items in several packed collections.
    Nodes(Nodes),
    /// The rest of a long element of a list, and the block it is in.
    Element { block: Block, start: usize, end: usize },
    /// A stream; the other state is in `Reader::log`.
    Entries(EntriesStage),
    /// Nothing: only the end is left to report.
    End,
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    Singles,
    Pairs,
    /// A name and a 64-bit number.
    Scores,
    /// A name and a number as text.
    ScoreTexts,
    /// A deadline, a name and a value. A deadline other than 0 is in ms after `origin - 1`, or
    /// absolute without an origin.
    DeadlineFirst {
        origin: Option<u64>,
    },
    /// A name, a value, and a deadline as `i64`; -1 for none.
    DeadlineLast,
}

/// The packed collections that are left to read.
#[derive(Clone, Copy, Debug)]
struct Nodes {
    form: Form,
    /// Each is preceded by a number that says whether it is a single item.
    numbered: bool,
    left: u64,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    form: Form,
    /// Entries per item: 1 for a single, 2 for name and value, 3 with a deadline.
    arity: u8,
    /// The place of the block: in the buffer from `Reader::at` on, or in `texts[2]`.
    packed: bool,
    len: usize,
    /// The offset of the next entry in the block.
    at: usize,
    /// The number of entries read, and the number announced by the header.
    taken: u64,
    announced: Option<u64>,
    /// The nodes after it.
    rest: Option<Nodes>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    expiry_ms: Option<UnixMillis>,
    idle_s: Option<u64>,
    frequency: Option<u8>,
}

/// The header of a value: its kind, and the number of bytes it used from `Reader::at` on.
struct Opened {
    len_hint: Option<u64>,
    body: Body,
    used: usize,
}

/// The place of an item's bytes.
#[derive(Clone, Debug)]
enum Span {
    Buffer(Range<usize>),
    Text(usize, Range<usize>),
}

/// An event with located, but not yet borrowed, bytes.
#[derive(Clone)]
enum Step {
    Start,
    Aux(Span, Span),
    SelectDb(u32),
    ResizeDb(u64, u64),
    SlotInfo(u64, u64, u64),
    Function(Span),
    ModuleSkipped([u8; 9]),
    Key { key: Span, kind: &'static Kind, encoding: u8, pending: Pending, len_hint: Option<u64> },
    Chunk(Span),
    Pair(Span, Span, Option<UnixMillis>),
    Scored(Span, f64),
    Single(Span),
    Piece(Piece<'static>),
    Part(Span),
    LongValued(Span, u64, Option<UnixMillis>),
    LongSingle(u64),
    ValuePart(Span),
    Group { name: Span, last: StreamId, read: Option<u64>, pending: u64 },
    Consumer { name: Span, seen_ms: u64, active_ms: Option<u64>, pending: u64 },
    Block(BlockHead, Span),
    EndOfKey,
    Eof(Crc),
}

/// The result of one attempt: an event, or `None` if only the state advanced.
type Attempt = Result<Option<Step>, Stop>;

/// The version and the checksum after a payload's value.
const PAYLOAD_TRAILER_BYTES: u64 = 10;

const FIRST: usize = 0;
const SECOND: usize = 1;
const WHOLE: usize = 2;

impl Reader {
    /// A reader for a file with values of these kinds.
    #[must_use]
    pub fn new(kinds: &'static [&'static Kind], limits: Limits) -> Self {
        Self {
            buffer: Vec::new(),
            hashed: 0,
            at: 0,
            end: 0,
            base: 0,
            need: 1,
            finished: false,
            crc: Crc64::new(),
            trusts: false,
            state: State::Header,
            product: Product::Redis,
            version: types::VERSION_MAX,
            limits,
            kinds,
            pending: Pending::default(),
            payload: None,
            size: u64::MAX,
            log: None,
            gives_blocks: false,
            gives_parts: false,
            rest: None,
            texts: [Vec::new(), Vec::new(), Vec::new()],
            unpacking: [Unpacking::default(); 3],
        }
    }

    /// Sets the size of the file.
    #[must_use]
    pub fn with_size(mut self, bytes: u64) -> Self {
        self.size = bytes;
        self
    }

    /// Sets whether the checksum is verified.
    #[must_use]
    pub fn verifying(mut self, verifies: bool) -> Self {
        self.trusts = !verifies;
        self
    }

    /// Makes the reader report packed collections as [`Event::Block`]s, unless they are large or
    /// their items have deadlines.
    #[must_use]
    pub fn with_blocks(mut self) -> Self {
        self.gives_blocks = true;
        self
    }

    /// Makes the reader report long values of pairs and long list elements in [`Item::Part`]s as
    /// they arrive, except for values followed by deadlines.
    #[must_use]
    pub fn with_parts(mut self) -> Self {
        self.gives_parts = true;
        self
    }

    /// A reader for a payload of `DUMP` of `len` bytes with this `version` in its trailer
    /// ([`dump::version`](crate::dump::version)). The version distinguishes Redis from Valkey, for
    /// which type numbers from 22 on have different meanings.
    #[must_use]
    pub fn of_payload(
        kinds: &'static [&'static Kind],
        len: u64,
        version: u16,
        limits: Limits,
    ) -> Self {
        let product =
            if version >= types::VALKEY_VERSION_MIN { Product::Valkey } else { Product::Redis };
        let mut reader = Self::new(kinds, limits);
        (reader.state, reader.payload, reader.size) = (State::Value, Some(len), len);
        (reader.product, reader.version) = (product, version);
        reader
    }

    /// Copies `bytes`, the next ones of the file, into the buffer.
    pub fn push(&mut self, bytes: &[u8]) {
        self.space(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.filled(bytes.len());
    }

    /// Reports that `len` bytes were written to the [`space`](Self::space).
    ///
    /// Panics when `len` exceeds that space.
    pub fn filled(&mut self, len: usize) {
        assert!(len <= self.buffer.len() - self.end, "len={len}");
        self.end += len;
    }

    /// Reports that no more bytes will arrive; missing bytes are an error from now on.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Bytes consumed: the offset in the file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// The number of further bytes, at least 1, without which reading cannot continue.
    #[must_use]
    pub fn bytes_wanted(&self) -> usize {
        self.need.saturating_sub(self.end - self.at).max(1)
    }

    /// Bytes of memory held: the buffer and the unpacked texts.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.buffer.capacity() + self.texts.iter().map(Vec::capacity).sum::<usize>()
    }

    /// True after [`Event::Eof`]. Bytes after the end are ignored.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// The next event; `None` when more bytes are needed or the end was reported.
    ///
    /// Cost: O(bytes of the event).
    ///
    /// # Errors
    /// The fault and its place; an error is permanent.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator cannot lend its items from its own buffer"
    )]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Event<'_>>, Error> {
        loop {
            if self.end - self.at < self.need {
                return self.starve();
            }
            match self.attempt() {
                Ok(Some(step)) => {
                    return Ok(Some(self.event(step)));
                }
                Ok(None) => {}
                Err(Stop::Short(need)) => self.need = need.max(self.end - self.at + 1),
                Err(Stop::Paused(bytes)) => return Ok(Some(Event::Unpacked(bytes))),
                Err(Stop::Bad(behind, reason)) => return Err(self.fail(behind, reason)),
            }
        }
    }

    fn attempt(&mut self) -> Attempt {
        self.need = 0;
        match self.state {
            State::Body(Body::Items { shape, left }) => self.items(shape, left),
            State::Body(body) => self.body(body),
            State::Top => self.top(),
            State::Header => self.header(),
            State::Value => self.value(),
            State::Module { module, skip } => self.module(module, skip),
            State::Trailer => self.trailer(),
            State::Done | State::Failed(_) => Err(Stop::Short(usize::MAX)),
        }
    }

    /// Handles missing bytes: allowed as long as more may arrive.
    fn starve(&mut self) -> Result<Option<Event<'_>>, Error> {
        match &self.state {
            State::Done => Ok(None),
            State::Failed(error) => Err(error.clone()),
            _ if !self.finished => Ok(None),
            _ => {
                let waiting = self.end - self.at;
                let missing = (self.need - waiting) as u64;
                Err(self.fail(waiting, Reason::Truncated { missing }))
            }
        }
    }

    fn fail(&mut self, behind: usize, reason: Reason) -> Error {
        let error = Error { offset: self.offset() + behind as u64, reason };
        self.state = State::Failed(error.clone());
        self.need = usize::MAX;
        error
    }

    #[inline]
    fn cursor(&self) -> Cursor<'_> {
        Cursor::new(&self.buffer[self.at..self.end], self.limits.string_bytes_max)
    }

    fn consume(&mut self, len: usize) {
        self.at += len;
        debug_assert!(self.at <= self.end, "I1: at={}", self.at);
    }

    /// Locates the bytes of `text`; packed ones are unpacked into `texts[slot]`.
    #[inline]
    fn place(&mut self, text: Text, slot: usize) -> Result<Span, Stop> {
        match text {
            Text::Raw { start, len } => Ok(Span::Buffer(self.at + start..self.at + start + len)),
            Text::Int(value) => {
                write_int(&mut self.texts[slot], value);
                Ok(Span::Text(slot, 0..self.texts[slot].len()))
            }
            Text::Lzf { start, packed, len } if len > UNPACKED_AT_ONCE => {
                self.unpack_long((start, packed), len, slot)?;
                Ok(Span::Text(slot, 0..len))
            }
            Text::Lzf { start, packed, len } => {
                let bytes = &self.buffer[self.at + start..self.at + start + packed];
                lzf::unpack_all(bytes, len, &mut self.texts[slot])
                    .map_err(|corrupt| Stop::Bad(start, Reason::Lzf(corrupt)))?;
                Ok(Span::Text(slot, 0..len))
            }
        }
    }

    #[inline]
    fn bytes(&self, span: Span) -> &[u8] {
        match span {
            Span::Buffer(range) => &self.buffer[range],
            Span::Text(slot, range) => &self.texts[slot][range],
        }
    }

    #[inline]
    fn event(&self, step: Step) -> Event<'_> {
        match step {
            Step::Pair(name, value, deadline_ms) => Event::Item(Item::Pair {
                name: self.bytes(name),
                value: self.bytes(value),
                deadline_ms,
            }),
            Step::Scored(name, score) => {
                Event::Item(Item::Scored { name: self.bytes(name), score })
            }
            Step::Single(name) => {
                Event::Item(Item::Single { name: self.bytes(name), deadline_ms: None })
            }
            Step::Piece(piece) => Event::Item(Item::Piece(piece)),
            Step::Part(part) => Event::Item(Item::Piece(Piece::Part(self.bytes(part)))),
            Step::LongValued(name, value_len, deadline_ms) => {
                let name = self.bytes(name);
                Event::Item(Item::LongValued { name, value_len, deadline_ms })
            }
            Step::LongSingle(len) => Event::Item(Item::LongSingle { len, deadline_ms: None }),
            Step::ValuePart(part) => Event::Item(Item::Part(self.bytes(part))),
            Step::Group { name, last, read, pending } => {
                let (name, consumers) = (self.bytes(name), 0);
                Event::Item(Item::Piece(Piece::Group { name, last, read, pending, consumers }))
            }
            Step::Consumer { name, seen_ms, active_ms, pending } => {
                let name = self.bytes(name);
                Event::Item(Item::Piece(Piece::Consumer { name, seen_ms, active_ms, pending }))
            }
            Step::Block(head, span) => Event::Block(block::Block { head, bytes: self.bytes(span) }),
            Step::Chunk(chunk) => Event::Item(Item::Chunk(self.bytes(chunk))),
            Step::EndOfKey => Event::EndOfKey,
            Step::Key { key, kind, encoding, pending, len_hint } => Event::Key {
                key: self.bytes(key),
                kind,
                encoding,
                expiry_ms: pending.expiry_ms,
                idle_s: pending.idle_s,
                frequency: pending.frequency,
                len_hint,
            },
            Step::Start => Event::Start { product: self.product, version: self.version },
            Step::Aux(key, value) => Event::Aux { key: self.bytes(key), value: self.bytes(value) },
            Step::SelectDb(database) => Event::SelectDb(database),
            Step::ResizeDb(keys, expires) => Event::ResizeDb { keys, expires },
            Step::SlotInfo(slot, keys, expires) => Event::SlotInfo { slot, keys, expires },
            Step::Function(code) => Event::Function { code: self.bytes(code) },
            Step::ModuleSkipped(module) => Event::ModuleSkipped { module },
            Step::Eof(crc) => Event::Eof { crc },
        }
    }
}

fn write_int(out: &mut Vec<u8>, value: i64) {
    let mut text = [0; I64_TEXT_MAX];
    out.clear();
    out.extend_from_slice(i64_text(&mut text, value));
}

/// A deadline as a signed number: -1 means "none"; other negative numbers are long past.
fn deadline_of(signed: i64) -> Option<UnixMillis> {
    (signed != -1).then(|| u64::try_from(signed).unwrap_or(0))
}

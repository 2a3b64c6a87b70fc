//! One request as its arguments.
//!
//! A small request is borrowed from the parser's buffer, with a list of spans. A large one (a
//! million fields, a value of 400 MB) is collected in [`Block`]s while it arrives, so that it is
//! never copied as a whole; it is shared by reference count.

use crate::lookahead::ARGS_MAX;
use crate::whole::Whole;
use darter_base::hash;
use darter_base::lazyfree::{self, Dismantle};
use darter_base::limits::CHUNK_BYTES;
use darter_base::slot;
use std::cell::OnceCell;
use std::sync::Arc;

/// The place of an argument: `start..end` in the accompanying bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// A portion of a large request: some arguments and their bytes, or one argument in chunks.
#[derive(Debug)]
pub enum Block {
    /// Arguments in `bytes`.
    Small {
        /// Index of the block's first argument.
        first: usize,
        /// The bytes of all its arguments.
        bytes: Vec<u8>,
        /// The span of each argument.
        spans: Vec<Span>,
    },
    /// A single argument that is longer than a chunk.
    Big {
        /// The argument's index.
        first: usize,
        /// The bytes; all chunks but the last are `CHUNK_BYTES` long.
        chunks: Vec<Arc<[u8]>>,
        /// The bytes in one piece, made on demand.
        whole: Whole,
    },
}

impl Block {
    fn first(&self) -> usize {
        match self {
            Self::Small { first, .. } | Self::Big { first, .. } => *first,
        }
    }

    /// Total length of the block's arguments.
    fn len(&self) -> usize {
        match self {
            Self::Small { bytes, .. } => bytes.len(),
            Self::Big { chunks, .. } => chunks.iter().map(|chunk| chunk.len()).sum(),
        }
    }

    /// The index and the length of each of the block's arguments.
    fn lens(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let spans = match self {
            Self::Small { spans, .. } => &spans[..],
            Self::Big { .. } => &[],
        };
        let big = spans.is_empty().then(|| (self.first(), self.len()));
        lens(self.first(), spans).chain(big)
    }

    /// Bytes of memory; a short argument's span may take more than its bytes. Chunks taken over by
    /// a table (and whole arguments always) are counted there instead.
    fn memory_bytes(&self) -> usize {
        match self {
            Self::Small { bytes, spans, .. } => bytes.len() + size_of_val(&spans[..]),
            Self::Big { chunks, whole, .. } => {
                let is_own = chunks.first().is_some_and(is_own);
                let last = chunks.last().map_or(0, |chunk| chunk.len());
                let own = chunks.len().saturating_sub(1) * CHUNK_BYTES + last;
                whole.memory_bytes() + if is_own { own } else { 0 }
            }
        }
    }
}

/// The index and the length of arguments, of which the first has index `first`.
fn lens(first: usize, spans: &[Span]) -> impl Iterator<Item = (usize, usize)> + '_ {
    spans.iter().enumerate().map(move |(at, span)| (first + at, (span.end - span.start) as usize))
}

/// True if the chunk is not shared.
fn is_own(chunk: &Arc<[u8]>) -> bool {
    Arc::strong_count(chunk) == 1
}

/// A request that owns its bytes.
///
/// Invariant: `marks` has the block of every argument whose index is a multiple of
/// [`Request::MARK_EVERY`].
#[derive(Debug, Default)]
pub struct Request {
    blocks: Vec<Block>,
    marks: Vec<u32>,
    len: usize,
}

impl Request {
    /// About a third of the short arguments in a block. Two marks are usually at most two blocks
    /// apart, so an argument among a million is found without a long search.
    const MARK_EVERY: usize = 1_024;

    /// A request with these arguments.
    pub fn from_args<'a>(args: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        for arg in args {
            let start = bytes.len();
            bytes.extend_from_slice(arg);
            spans.push(span(start, bytes.len()));
        }
        let mut request = Self::default();
        request.push_small(bytes, spans);
        request
    }

    /// Number of arguments, the command's name included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there is no argument, not even a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory of all blocks, including the lists of their arguments, without shared parts.
    /// Cost: O(blocks).
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(Block::memory_bytes).sum()
    }

    pub(crate) fn push_small(&mut self, bytes: Vec<u8>, spans: Vec<Span>) {
        let (first, count) = (self.len, spans.len());
        self.push(Block::Small { first, bytes, spans }, count);
    }

    pub(crate) fn push_big(&mut self, chunks: Vec<Arc<[u8]>>) {
        let first = self.len;
        self.push(Block::Big { first, chunks, whole: Whole::default() }, 1);
    }

    fn push(&mut self, block: Block, args: usize) {
        let at = u32::try_from(self.blocks.len()).expect("fewer blocks than arguments");
        self.blocks.push(block);
        self.len += args;
        self.marks.resize(self.len.div_ceil(Self::MARK_EVERY), at);
    }

    fn arg(&self, index: usize) -> Arg<'_> {
        assert!(index < self.len, "index={index} len={}", self.len);
        match self.block_of(index) {
            Block::Small { first, bytes, spans } => Arg::Bytes(slice(bytes, spans[index - first])),
            Block::Big { chunks, whole, .. } => Arg::Chunks { chunks, whole },
        }
    }

    /// The block of an argument: one of the few between its mark and the next.
    #[inline]
    fn block_of(&self, index: usize) -> &Block {
        let mark = index / Self::MARK_EVERY;
        let from = self.marks[mark] as usize;
        let to = self.marks.get(mark + 1).map_or(self.blocks.len(), |&at| at as usize + 1);
        let near = &self.blocks[from..to];
        &near[near.partition_point(|block| block.first() <= index) - 1]
    }
}

/// Requests with at most this many blocks are freed at once.
const DROP_AT_ONCE: usize = 4;

impl Drop for Request {
    /// Frees a large request in slices.
    fn drop(&mut self) {
        let large = |block: &Block| matches!(block, Block::Big { .. });
        if self.blocks.len() > DROP_AT_ONCE || self.blocks.iter().any(large) {
            lazyfree::defer(Box::new(FreedRequest::of(std::mem::take(&mut self.blocks))));
        }
    }
}

/// The blocks of a dropped request.
///
/// When a chunk is freed, it may have lost other owners that existed when it was counted. So the
/// counted bytes of each large block are stored: subtracting more would hide the bytes of others.
struct FreedRequest {
    blocks: Vec<Block>,
    bytes: usize,
    /// The counted bytes left of each large block, in order.
    large: Vec<usize>,
}

impl FreedRequest {
    fn of(blocks: Vec<Block>) -> Self {
        let (mut bytes, mut large) = (0, Vec::new());
        for block in &blocks {
            let own = block.memory_bytes();
            bytes += own;
            if let Block::Big { .. } = block {
                large.push(own);
            }
        }
        Self { blocks, bytes, large }
    }

    /// Records that `freed` bytes of the last block, a large one, were freed.
    fn took_large(&mut self, freed: usize) {
        let left = self.large.last_mut().expect("each large block is counted");
        let freed = freed.min(*left);
        *left -= freed;
        self.take_off(freed);
    }

    fn take_off(&mut self, freed: usize) {
        assert!(freed <= self.bytes, "{freed} of {} bytes were freed", self.bytes);
        self.bytes -= freed;
    }
}

impl Dismantle for FreedRequest {
    fn dismantle(&mut self) -> bool {
        /// Chunks in a portion.
        const CHUNKS: usize = 16;
        match self.blocks.last_mut() {
            Some(Block::Big { chunks, whole, .. }) if !chunks.is_empty() => {
                let whole = std::mem::take(whole); // A long argument is deferred on its own.
                let gone = chunks.drain(chunks.len().saturating_sub(CHUNKS)..);
                let bytes: usize = gone.filter(is_own).map(|chunk| chunk.len()).sum();
                self.took_large(whole.memory_bytes() + bytes);
            }
            _ => match self.blocks.pop() {
                Some(Block::Big { .. }) => {
                    self.took_large(usize::MAX);
                    self.large.pop();
                }
                Some(small) => self.take_off(small.memory_bytes()),
                None => {}
            },
        }
        assert!(!self.blocks.is_empty() || self.bytes == 0, "{} bytes of nothing", self.bytes);
        !self.blocks.is_empty()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Makes a span. Blocks are far smaller than 4 GiB.
pub(crate) fn span(start: usize, end: usize) -> Span {
    let narrow = |at: usize| u32::try_from(at).expect("a block stays below 4 GiB");
    Span { start: narrow(start), end: narrow(end) }
}

#[inline]
fn slice(bytes: &[u8], span: Span) -> &[u8] {
    &bytes[span.start as usize..span.end as usize]
}

/// One argument.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// In one piece.
    Bytes(&'a [u8]),
    /// In chunks of `CHUNK_BYTES` (the last may be shorter).
    Chunks {
        /// The chunks, in order; they may be shared instead of copied.
        chunks: &'a [Arc<[u8]>],
        /// Caches the bytes in one piece, once requested.
        whole: &'a Whole,
    },
}

impl<'a> Arg<'a> {
    /// The bytes in one piece. Cost: O(1), or a copy of a large argument, once.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Arg::Bytes(bytes) => bytes,
            Arg::Chunks { chunks, whole } => whole.bytes(chunks),
        }
    }

    /// The bytes in order, in their existing pieces: nothing is copied.
    pub fn pieces(self) -> impl Iterator<Item = &'a [u8]> {
        (0..).map_while(move |index| match self {
            Arg::Bytes(bytes) => (index == 0).then_some(bytes),
            Arg::Chunks { chunks, .. } => chunks.get(index).map(|chunk| &chunk[..]),
        })
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(self) -> usize {
        match self {
            Arg::Bytes(bytes) => bytes.len(),
            Arg::Chunks { chunks, .. } => chunks.iter().map(|chunk| chunk.len()).sum(),
        }
    }

    /// True when there are no bytes.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// Hashes in a note: those of a key and of an element.
const NOTED: usize = 2;

/// Facts about a request that were determined when it was parsed ahead.
#[derive(Clone, Debug)]
pub struct Note {
    /// The command, as a number chosen by the caller.
    pub command: usize,
    /// Indexes of arguments with known hashes; 0 (the name) for none.
    at: [u16; NOTED],
    hashes: [u64; NOTED],
}

const _: () = assert!(ARGS_MAX <= u16::MAX as usize, "indexes are narrow");

impl Note {
    /// A note of a command, without hashes.
    #[inline]
    #[must_use]
    pub fn of(command: usize) -> Self {
        Self { command, at: [0; NOTED], hashes: [0; NOTED] }
    }

    /// Adds the hash of the argument at `index`, if there is room. The name has none.
    #[inline]
    pub fn add(&mut self, index: usize, hash: u64) {
        debug_assert!(index > 0, "0 says that a place is free");
        if let Some(place) = self.at.iter().position(|at| *at == 0) {
            (self.at[place], self.hashes[place]) = (index as u16, hash);
        }
    }

    /// The hash of the argument at `index`, if it is in the note.
    #[inline]
    fn hash(&self, index: usize) -> Option<u64> {
        debug_assert!(index > 0, "0 says that a place is free");
        let place = self.at.iter().position(|at| usize::from(*at) == index)?;
        Some(self.hashes[place])
    }
}

/// The place for a note.
pub(crate) type NotePlace = OnceCell<Note>;

/// The arguments of one request, name first. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    source: Source<'a>,
    /// Present for a request that was parsed ahead.
    note: Option<&'a NotePlace>,
}

#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    Flat { bytes: &'a [u8], spans: &'a [Span] },
    Owned(&'a Arc<Request>),
}

impl<'a> Args<'a> {
    /// Arguments in `bytes`.
    #[must_use]
    pub fn flat(bytes: &'a [u8], spans: &'a [Span]) -> Self {
        Self { source: Source::Flat { bytes, spans }, note: None }
    }

    /// Arguments in `bytes`, with a place for a note.
    #[inline]
    pub(crate) fn with_note(bytes: &'a [u8], spans: &'a [Span], note: &'a NotePlace) -> Self {
        Self { source: Source::Flat { bytes, spans }, note: Some(note) }
    }

    /// The arguments of an owned request.
    #[must_use]
    pub fn owned(request: &'a Arc<Request>) -> Self {
        Self { source: Source::Owned(request), note: None }
    }

    /// Stores a note for when the request runs, if there is a place for one. The first note stays.
    #[inline]
    pub fn keep(self, note: Note) {
        if let Some(place) = self.note {
            _ = place.set(note);
        }
    }

    /// The note.
    #[inline]
    #[must_use]
    pub fn noted(self) -> Option<&'a Note> {
        self.note.and_then(OnceCell::get)
    }

    /// The hash of the argument at `index`: from the note, or computed now. Panics if there is no
    /// such argument.
    #[inline]
    #[must_use]
    pub fn hash(self, index: usize) -> u64 {
        let noted = self.noted().and_then(|note| note.hash(index));
        noted.unwrap_or_else(|| self.hash_now(index))
    }

    /// A separate function, so that the check of the note is inlined.
    #[inline(never)]
    fn hash_now(self, index: usize) -> u64 {
        match self.arg(index) {
            Arg::Bytes(bytes) => hash::of(bytes),
            Arg::Chunks { chunks, whole } => whole.hash(chunks),
        }
    }

    /// The core, `0..cores`, that owns the key at `index`. With one core the key is not read; for a
    /// large key, the slot is cached. Panics if there is no such argument.
    #[inline]
    #[must_use]
    pub fn owner(self, index: usize, cores: usize) -> usize {
        match self.arg(index) {
            _ if cores == 1 => 0,
            Arg::Bytes(key) => slot::owner_of(key, cores),
            Arg::Chunks { chunks, whole } => slot::core_of(whole.slot(chunks), cores),
        }
    }

    /// The indexes and lengths of the arguments longer than `bytes`, which must be at least a
    /// chunk. Cost: O(blocks), and O(arguments) in blocks that are longer than `bytes`.
    #[inline]
    pub fn longer_than(self, bytes: usize) -> impl Iterator<Item = (usize, usize)> + 'a {
        debug_assert!(bytes >= CHUNK_BYTES);
        let (spans, blocks): (&[Span], &[Block]) = match self.source {
            Source::Flat { bytes: all, spans } if all.len() > bytes => (spans, &[]),
            Source::Flat { .. } => (&[], &[]),
            Source::Owned(request) => (&[], &request.blocks),
        };
        let of_blocks =
            blocks.iter().filter(move |block| block.len() > bytes).flat_map(Block::lens);
        lens(0, spans).chain(of_blocks).filter(move |(_, len)| *len > bytes)
    }

    /// True if the arguments own their bytes: a large request, or one that has waited.
    #[must_use]
    pub fn is_owned(self) -> bool {
        matches!(self.source, Source::Owned(_))
    }

    /// Number of arguments, the name included.
    #[inline]
    #[must_use]
    pub fn len(self) -> usize {
        match self.source {
            Source::Flat { spans, .. } => spans.len(),
            Source::Owned(request) => request.len(),
        }
    }

    /// True when there is no argument, not even a name.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The argument at `index`, in one piece. Panics if there is none: check `len` first.
    #[inline]
    #[must_use]
    pub fn get(self, index: usize) -> &'a [u8] {
        match self.source {
            Source::Flat { bytes, spans } => slice(bytes, spans[index]),
            Source::Owned(request) => request.arg(index).bytes(),
        }
    }

    /// The first piece of the argument at `index`: all of a short one, the first chunk of a large
    /// one. Enough to compare it with a word or to quote it; O(1), without copying. Panics if there
    /// is none: check `len` first.
    #[inline]
    #[must_use]
    pub fn head(self, index: usize) -> &'a [u8] {
        match self.arg(index) {
            Arg::Bytes(bytes) => bytes,
            Arg::Chunks { chunks, .. } => chunks.first().map_or(&[], |chunk| &chunk[..]),
        }
    }

    /// The argument at `index`, in chunks when it is large. Panics when there is none.
    #[inline]
    #[must_use]
    pub fn arg(self, index: usize) -> Arg<'a> {
        match self.source {
            Source::Flat { bytes, spans } => Arg::Bytes(slice(bytes, spans[index])),
            Source::Owned(request) => request.arg(index),
        }
    }

    /// All arguments, in order, each in one piece.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.len()).map(move |index| self.get(index))
    }

    /// A request that outlives the parser's buffer: shared if it owns its bytes, otherwise a copy.
    #[must_use]
    pub fn to_request(self) -> Arc<Request> {
        match self.source {
            Source::Owned(request) => Arc::clone(request),
            Source::Flat { .. } => Arc::new(Request::from_args(self.iter())),
        }
    }

    /// Total length of all arguments.
    #[must_use]
    pub fn total_bytes(self) -> usize {
        (0..self.len()).map(|index| self.arg(index).len()).sum()
    }

    /// Bytes of the request: arguments and the bytes between them, or the blocks of a large one.
    /// Cost: O(1), or O(blocks) for a large one.
    #[must_use]
    pub fn held_bytes(self) -> usize {
        match self.source {
            Source::Flat { spans, .. } => match (spans.first(), spans.last()) {
                (Some(first), Some(last)) => (last.end - first.start) as usize,
                _ => 0,
            },
            Source::Owned(request) => request.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::long::Long;
    use darter_base::preempt::Countdown;

    /// A request of blocks: `Some(bytes)` is one big argument, `None` two small ones.
    fn request(blocks: &[Option<usize>]) -> Request {
        let mut request = Request::default();
        for (number, block) in blocks.iter().enumerate() {
            let byte = u8::try_from(number).unwrap();
            match block {
                Some(len) => {
                    let bytes = vec![byte; *len];
                    request.push_big(bytes.chunks(CHUNK_BYTES).map(Arc::from).collect());
                }
                None => request.push_small(vec![byte; 5], vec![span(0, 3), span(3, 5)]),
            }
        }
        request
    }

    #[test] // Whatever other holders do in between.
    fn bytes_pending_to_be_freed_stay_counted() {
        let held = |request: &Request, block: usize| match &request.blocks[block] {
            Block::Big { chunks, .. } => chunks.clone(),
            Block::Small { .. } => panic!("a large one"),
        };
        let big = 40 * CHUNK_BYTES;
        let request = request(&[Some(big), None, Some(big)]);
        let value = held(&request, 2);
        let small = request.blocks[1].memory_bytes();
        let mut remains = FreedRequest::of(vec![]);
        assert!(!remains.dismantle() && remains.bytes() == 0, "nothing");
        drop(request);
        assert_eq!(lazyfree::waiting().1, big + small, "a value holds the last block");
        drop(value);
        assert!(lazyfree::run(&Countdown::new(0)));
        assert_eq!(lazyfree::waiting().1, big + small, "what was not counted is not taken off");
        for _ in 0..3 {
            assert!(lazyfree::run(&Countdown::new(0)));
        }
        assert_eq!(lazyfree::waiting().1, big + small, "the last block is gone");
        while lazyfree::run(&Countdown::new(0)) {}
        assert_eq!(lazyfree::waiting(), (0, 0));
    }

    #[test] // In their existing pieces.
    fn arguments_in_any_block_are_found() {
        let big = 2 * CHUNK_BYTES + 9;
        let request = Arc::new(request(&[None, Some(big), None, Some(CHUNK_BYTES), None]));
        let args = Args::owned(&request);
        assert_eq!(args.longer_than(CHUNK_BYTES).collect::<Vec<_>>(), [(2, big)]);
        let from_script = Arc::new(Request::from_args([&b"SET"[..], &[1; CHUNK_BYTES + 1]]));
        let long = Args::owned(&from_script).longer_than(CHUNK_BYTES);
        assert_eq!(long.collect::<Vec<_>>(), [(1, CHUNK_BYTES + 1)]);
        let lens = [3, 2, big, 3, 2, CHUNK_BYTES, 3, 2];
        assert_eq!(args.iter().map(<[u8]>::len).collect::<Vec<_>>(), lens);
        let firsts: Vec<u8> = args.iter().map(|arg| arg[0]).collect();
        assert_eq!(firsts, [0, 0, 1, 2, 2, 3, 4, 4]);
        let pieces: Vec<usize> = args.arg(2).pieces().map(<[u8]>::len).collect();
        assert_eq!(pieces, [CHUNK_BYTES, CHUNK_BYTES, 9]);
        assert_eq!((args.head(0), args.head(3)), (&[0; 3][..], &[2; 3][..]));
        assert_eq!(args.head(2), [1; CHUNK_BYTES]);
        assert_eq!(args.arg(3).pieces().collect::<Vec<_>>(), [[2; 3]]);
        assert_eq!((args.len(), args.is_empty(), args.is_owned()), (8, false, true));
        assert_eq!(args.total_bytes(), lens.iter().sum::<usize>());
        let spans = 6 * size_of::<Span>();
        let held = lens.iter().sum::<usize>() + spans;
        let whole = Long::bytes_for(big) + Long::bytes_for(CHUNK_BYTES); // Requested in one piece.
        assert_eq!(args.held_bytes(), held + whole);
        assert!(Arc::ptr_eq(&args.to_request(), &request));
    }

    #[test]
    fn copied_arguments_outlive_the_buffer() {
        let spans = [span(4, 7), span(9, 9), span(11, 12)];
        let args = Args::flat(b"....GET..  k", &spans);
        let copy = args.to_request();
        for args in [args, Args::owned(&copy)] {
            assert_eq!(args.iter().collect::<Vec<_>>(), [&b"GET"[..], b"", b"k"]);
            assert_eq!((args.total_bytes(), args.len(), args.is_empty()), (4, 3, false));
            let lens: Vec<(usize, bool)> =
                (0..3).map(|at| (args.arg(at).len(), args.arg(at).is_empty())).collect();
            assert_eq!(lens, [(3, false), (0, true), (1, false)]);
        }
        assert!(!args.is_owned());
        // In the buffer, the count includes the bytes between the arguments; in a copy, their
        // spans.
        let on_its_own = 4 + 3 * size_of::<Span>();
        assert_eq!((args.held_bytes(), Args::owned(&copy).held_bytes()), (8, on_its_own));
        let none = Args::flat(b"", &[]);
        assert_eq!((none.is_empty(), none.held_bytes(), none.total_bytes()), (true, 0, 0));
        assert!(none.to_request().is_empty() && !copy.is_empty());
    }

    #[test] // Also while the rest is being freed.
    fn bytes_taken_over_by_a_table_are_not_counted_twice() {
        let (big, small) = (20 * CHUNK_BYTES, 5 + 2 * size_of::<Span>());
        let request = Arc::new(request(&[None, Some(big), Some(big)]));
        let args = Args::owned(&request);
        assert_eq!(args.held_bytes(), small + 2 * big);
        let Arg::Chunks { chunks, .. } = args.arg(2) else { unreachable!("it is big") };
        let value = chunks.to_vec();
        assert_eq!(args.held_bytes(), small + big);

        drop(request);
        let mut told = vec![lazyfree::waiting().1];
        while lazyfree::run(&Countdown::new(0)) {
            told.push(lazyfree::waiting().1);
        }
        let with_big = |chunks: usize| small + chunks * CHUNK_BYTES;
        assert_eq!(told, [with_big(20), with_big(4), small, small, small, small, small]);
        assert!(value.iter().all(is_own));
        while lazyfree::run(&Countdown::new(0)) {}
    }

    #[test] // Small ones are freed at once.
    fn large_requests_are_freed_in_portions() {
        let chunks = |count: usize| Some(count * CHUNK_BYTES);
        let cases: &[(&[Option<usize>], usize)] = &[
            // (blocks, portions)
            (&[], 0),
            (&[None; 4], 0),
            (&[None; 5], 5),
            (&[chunks(1)], 2),
            (&[chunks(16)], 2),
            (&[chunks(17)], 3),
            (&[None, chunks(40)], 5),
        ];
        for (blocks, expected) in cases {
            drop(request(blocks));
            let mut portions = 0;
            while !lazyfree::is_empty() {
                lazyfree::run(&Countdown::new(0));
                portions += 1;
            }
            assert_eq!(portions, *expected, "{} blocks", blocks.len());
        }
    }
}

//! Memory that outlives the process: changes that were handed over and are not in a file yet.
//!
//! With `appendfsync everysec` and `no` a reply need not wait for the journal's thread, because its
//! changes lie in the ring, a mapped file, before it leaves. If the process is killed, the next
//! start completes the journal from the ring ([`recover`]).
//!
//! ```text
//! head:  magic, boot, cores, words of a lane
//! slots: two points of the journal; the one with the higher number counts
//! lanes: by core: position up to which it is written | records, from position 0 on, in a circle
//!
//! record: bytes and count of its commands | stamp | databases | commands, filled up to a word
//! ```
//! The thread notes a [`Point`] before each batch: the place of the batch, and by core the positions
//! in the ring before and after it. Whether the batch is complete in the file tells a start which of
//! them counts.
//!
//! Invariants:
//! - R1: a record is written before its lane's position passes it.
//! - R2: a record is overwritten only after the batch with its commands is in the file.
//! - R3: the ring has only changes that depend on nothing outside the ring and the file. A turn
//!   that is not in the ring keeps all cores from it until it is in the file.
//!
//! A loss of power may keep any part of the file, so it counts only during the boot in which it was
//! written.

use super::merge::{Merger, Ordered};
use super::writer::{Increment, Stream};
use super::{Block, Body, Encoded, Piece};
use darter_persist::aof::annotation::{Annotation, Checksum, FIELD_MAX, LINE_MAX_BYTES};
use darter_persist::aof::manifest::{self, Manifest};
use darter_resp::Part;
use darter_runtime::fs::{self, File, FileSystem, Mapped, Mode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC: u64 = u64::from_be_bytes(*b"DARTRNG1");
/// The words of the head.
const HEAD: usize = 8;
/// The words of a slot, without its positions.
const SLOT: usize = 9;
/// The words of a lane before its records: the position has a cache line of its own.
const LANE_HEAD: usize = 8;
/// The words of a lane's records: 1 MiB.
const LANE: usize = if cfg!(test) { 64 } else { 128 * 1024 };
/// A turn with more words than this is not put into the ring.
const TURN_MAX: usize = LANE / 4;
/// The words of a record before its commands.
const RECORD_HEAD: usize = 3;
/// In the place of the databases: none.
const NO_DATABASES: u64 = u64::MAX;

/// The place in the journal at which the next batch begins, and the state of the stream there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) stream: Stream,
    /// The sequence number of the increment, and the offset in it.
    pub(super) file: i64,
    pub(super) at: u64,
}

impl Point {
    fn to_words(self) -> [u64; SLOT - 1] {
        let Self { stream: Stream { run, batch, offset, synced, previous, unix_ms }, file, at } =
            self;
        [run, batch, offset, synced, u64::from(previous), unix_ms, file.cast_unsigned(), at]
    }

    /// None if no line of a batch can have such numbers.
    fn of_words(words: [u64; SLOT - 1]) -> Option<Self> {
        let [run, batch, offset, synced, previous, unix_ms, file, at] = words;
        let is_possible = batch < FIELD_MAX
            && unix_ms <= FIELD_MAX
            && offset.checked_sub(synced)? <= FIELD_MAX
            && offset.max(at) <= i64::MAX.cast_unsigned();
        let previous = u32::try_from(previous).ok()?;
        let stream = Stream { run, batch, offset, synced, previous, unix_ms };
        is_possible.then_some(Self { stream, file: file.cast_signed(), at })
    }
}

/// The places in the file, in words.
#[derive(Clone, Copy, Debug)]
struct Layout {
    cores: usize,
}

impl Layout {
    /// A slot: its number, a point, and by core the positions before and after the batch.
    fn slot(self, number: u64) -> usize {
        HEAD + (number % 2) as usize * (SLOT + 2 * self.cores)
    }

    fn lane(self, core: usize) -> usize {
        let lanes = (HEAD + 2 * (SLOT + 2 * self.cores)).next_multiple_of(LANE_HEAD);
        lanes + core * (LANE_HEAD + LANE)
    }

    fn words(self) -> usize {
        self.lane(self.cores)
    }
}

/// The ring of a running server.
pub(super) struct Ring {
    memory: Arc<dyn Mapped>,
    layout: Layout,
    /// By core: the position up to which records are in the file.
    taken: Vec<Taken>,
}

/// A position on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Taken(AtomicU64);

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("cores", &self.layout.cores).finish_non_exhaustive()
    }
}

impl Ring {
    /// Makes the file, without a point. `boot` identifies the boot of the system.
    pub(super) fn create(
        fs: &dyn FileSystem,
        folder: &Path,
        file: &str,
        cores: usize,
        boot: u64,
    ) -> io::Result<Self> {
        let layout = Layout { cores };
        let memory = fs.map(&folder.join(manifest::ring_name(file)), layout.words())?;
        let head = [MAGIC, boot, cores as u64, LANE as u64];
        for (at, word) in head.into_iter().enumerate() {
            memory.words()[at].store(word, Ordering::Release);
        }
        let taken = (0..cores).map(|_| Taken::default()).collect();
        Ok(Self { memory, layout, taken })
    }

    // ---- the cores' side ----

    /// Copies the blocks of a turn. Returns false if they have something else than commands in
    /// memory, or if there is no space for them. Cost: O(bytes).
    pub(super) fn put(&self, core: usize, blocks: &mut [Block]) -> bool {
        let Some(words) = blocks.iter().map(words_of).sum::<Option<usize>>() else { return false };
        let written = &self.words()[self.layout.lane(core)];
        let mut at = written.load(Ordering::Relaxed); // Only this core changes it.
        let used = at - self.taken[core].0.load(Ordering::Acquire);
        if words > TURN_MAX || used as usize + words > LANE {
            return false;
        }
        for block in blocks {
            at = self.put_block(core, at, block);
            block.ring_end = at;
        }
        written.store(at, Ordering::Release);
        true
    }

    /// True if a lane is so full that it should be emptied soon.
    pub(super) fn is_filling(&self, core: usize) -> bool {
        let written = self.words()[self.layout.lane(core)].load(Ordering::Relaxed);
        written - self.taken[core].0.load(Ordering::Relaxed) > LANE as u64 / 2
    }

    /// Returns the position after the record.
    fn put_block(&self, core: usize, mut at: u64, block: &Block) -> u64 {
        let Body::Alone(commands) = &block.body else { unreachable!("`words_of` lets none pass") };
        let databases = commands
            .databases
            .map_or(NO_DATABASES, |(first, last)| join(first as u64, last as u64));
        let head = join(commands.bytes as u64, commands.count as u64);
        for word in [head, block.stamp, databases] {
            self.put_word(core, &mut at, word);
        }
        // Pieces do not end at words.
        let (mut word, mut filled) = (0, 0);
        for piece in commands.pieces.iter().filter_map(Piece::plain) {
            let mut rest = piece;
            while filled > 0
                && let Some((byte, later)) = rest.split_first()
            {
                word |= u64::from(*byte) << (8 * filled);
                filled = (filled + 1) % size_of::<u64>();
                rest = later;
                if filled == 0 {
                    self.put_word(core, &mut at, std::mem::take(&mut word));
                }
            }
            let (whole, last) = rest.as_chunks();
            for bytes in whole {
                self.put_word(core, &mut at, u64::from_le_bytes(*bytes));
            }
            for byte in last {
                word |= u64::from(*byte) << (8 * filled);
                filled += 1;
            }
        }
        if filled > 0 {
            self.put_word(core, &mut at, word);
        }
        at
    }

    #[inline]
    fn put_word(&self, core: usize, at: &mut u64, word: u64) {
        let place = self.layout.lane(core) + LANE_HEAD + (*at % LANE as u64) as usize;
        self.words()[place].store(word, Ordering::Relaxed);
        *at += 1;
    }

    fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    // ---- the thread's side ----

    /// Notes the place of the next batch, and the positions after it.
    pub(super) fn intend(&self, point: Point, after: &[u64]) {
        let before = self.taken.iter().map(|taken| taken.0.load(Ordering::Relaxed));
        let before: Vec<u64> = before.collect();
        let number = self.last_slot().map_or(0, |last| last + 1).max(1);
        let at = self.layout.slot(number);
        let words = self.words();
        words[at].store(0, Ordering::Release);
        let contents = point.to_words().into_iter().chain(before).chain(after.iter().copied());
        for (place, word) in (at + 1..).zip(contents) {
            words[place].store(word, Ordering::Release);
        }
        words[at].store(number, Ordering::Release);
    }

    /// The batch of the last point is in the file.
    pub(super) fn free(&self, after: &[u64]) {
        for (taken, position) in self.taken.iter().zip(after) {
            taken.0.store(*position, Ordering::Release);
        }
    }

    /// The positions up to which the lanes are written.
    pub(super) fn written(&self) -> Vec<u64> {
        let lanes = (0..self.layout.cores).map(|core| self.layout.lane(core));
        lanes.map(|at| self.words()[at].load(Ordering::Acquire)).collect()
    }

    /// Removes all points: a start finds nothing in the ring.
    pub(super) fn forget(&self) {
        for number in 0..2 {
            self.words()[self.layout.slot(number)].store(0, Ordering::Release);
        }
    }

    fn last_slot(&self) -> Option<u64> {
        let numbers = [0, 1].map(|number| &self.words()[self.layout.slot(number)]);
        numbers.map(|word| word.load(Ordering::Acquire)).into_iter().max().filter(|last| *last > 0)
    }
}

/// The words that a block takes, if it can be put into the ring.
fn words_of(block: &Block) -> Option<usize> {
    let Body::Alone(commands) = &block.body else { return None };
    let is_plain = commands.pieces.iter().all(|piece| matches!(piece, Piece::Plain(_)));
    let fits = commands.bytes < TURN_MAX * size_of::<u64>();
    (is_plain && fits).then(|| RECORD_HEAD + commands.bytes.div_ceil(size_of::<u64>()))
}

/// Two numbers below 2^32 as a word.
fn join(low: u64, high: u64) -> u64 {
    low | high << 32
}

fn split(word: u64) -> (usize, usize) {
    (word as u32 as usize, (word >> 32) as usize)
}

// ---- the next start ----

/// Completes the last increment from the ring of a process that was killed. Returns the bytes that
/// were appended, 0 if nothing was missing.
///
/// Errors: a file cannot be read, or the commands cannot be appended.
pub(crate) fn recover(
    fs: &dyn FileSystem,
    folder: &Path,
    file: &str,
    boot: u64,
) -> io::Result<u64> {
    let path = folder.join(manifest::ring_name(file));
    let Some(bytes) = read_if_there(fs, &path)? else { return Ok(0) };
    let Some(manifest) = read_if_there(fs, &folder.join(manifest::name(file)))? else {
        return Ok(0);
    };
    let Ok(manifest) = Manifest::parse(&manifest) else { return Ok(0) }; // The loader refuses it.
    let Some(left) = Left::read(&bytes, boot) else { return Ok(0) };
    let is_of_slot = |listed: &&manifest::Listed| listed.sequence == left.point.file;
    let Some(listed) = manifest.increments.iter().find(is_of_slot) else {
        return Ok(0); // A newer base has the changes.
    };
    left.append(fs, &path, listed.path_in(folder))
}

fn read_if_there(fs: &dyn FileSystem, path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(fs, path) {
        Err(error) if is_missing(&error) => Ok(None),
        read => read.map(Some),
    }
}

/// There is no such file, or no such folder. The loader reports a folder that is a file.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The ring of a process that was killed.
struct Left {
    words: Vec<u64>,
    layout: Layout,
    /// The number of the last slot.
    slot: u64,
    point: Point,
    before: Vec<u64>,
    after: Vec<u64>,
}

impl Left {
    /// Reads the file, if it was written during this boot, and has a point.
    fn read(bytes: &[u8], boot: u64) -> Option<Self> {
        let words: Vec<u64> =
            bytes.as_chunks().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect();
        let [magic, written_in, cores, lane] = *words.first_chunk()?;
        let layout = Layout { cores: usize::try_from(cores).ok()? };
        let is_ours = (magic, written_in, lane) == (MAGIC, boot, LANE as u64);
        if !is_ours || layout.cores > words.len() || words.len() != layout.words() {
            return None;
        }
        let slot = [0, 1].map(|number| words[layout.slot(number)]).into_iter().max()?;
        let at = layout.slot(slot) + 1;
        let point = Point::of_words(words.get(at..at + SLOT - 1)?.try_into().ok()?)?;
        let positions = &words[at + SLOT - 1..][..2 * layout.cores];
        let (before, after) = positions.split_at(layout.cores);
        let (before, after) = (before.to_vec(), after.to_vec());
        (slot > 0).then_some(Self { words, layout, slot, point, before, after })
    }

    /// Appends what is missing to the increment.
    fn append(mut self, fs: &dyn FileSystem, ring: &Path, path: PathBuf) -> io::Result<u64> {
        let increment = fs.open(&path, Mode::Write)?;
        if let Some(batch) = read_batch(&*increment, &self.point)? {
            let Point { stream, at, .. } = &mut self.point;
            *at += line_bytes(&batch) + batch.head.bytes;
            *stream = stream.after(&batch);
            self.before.clone_from(&self.after);
        }
        drop(increment);
        let mut merger = Merger::new(self.layout.cores);
        for core in 0..self.layout.cores {
            let blocks = self.blocks(core).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "the ring has a damaged record")
            })?;
            merger.take_in(core, blocks);
        }
        let mut batch = Ordered::default();
        merger.advance(u64::MAX, &mut batch);
        if batch.pieces.is_empty() {
            return Ok(0);
        }
        // A start that is killed here must not append the same again.
        self.write_point(fs, ring)?;
        let mut file = Increment::reopen(fs, &path, self.point.file, self.point.at)?;
        let mut stream = self.point.stream;
        stream.append(&mut file, &batch, stream.unix_ms)?;
        let appended = file.bytes() - self.point.at;
        file.close()?;
        Ok(appended)
    }

    /// The records of a lane that are in no file. None if one is damaged.
    fn blocks(&self, core: usize) -> Option<Vec<Block>> {
        let lane = self.layout.lane(core);
        let (mut at, end) = (self.before[core], self.words[lane]);
        let mut next = |count: usize| {
            let positions = at..at.checked_add(count as u64).filter(|to| *to <= end)?;
            at = positions.end;
            let place = |at: u64| lane + LANE_HEAD + (at % LANE as u64) as usize;
            Some(positions.map(|at| self.words[place(at)]).collect::<Vec<u64>>())
        };
        let mut blocks = Vec::new();
        if end.checked_sub(self.before[core])? > LANE as u64 {
            return None;
        }
        while let Some(head) = next(RECORD_HEAD) {
            let (bytes, count) = split(head[0]);
            let databases = (head[2] != NO_DATABASES).then(|| split(head[2]));
            let words = next(bytes.div_ceil(size_of::<u64>()))?;
            let mut commands: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
            commands.truncate(bytes);
            let pieces = vec![Piece::Plain(Part::Bytes(commands))];
            let body = Body::Alone(Encoded { databases, count, bytes, pieces });
            blocks.push(Block::new(head[1], body));
        }
        Some(blocks)
    }

    /// Notes that everything in the ring is in the next batch.
    fn write_point(&self, fs: &dyn FileSystem, ring: &Path) -> io::Result<()> {
        let number = self.slot + 1;
        let at = self.layout.slot(number) * size_of::<u64>();
        let after = (0..self.layout.cores).map(|core| self.words[self.layout.lane(core)]);
        let contents = self.point.to_words().into_iter().chain(self.before.clone()).chain(after);
        let bytes: Vec<u8> =
            std::iter::once(0).chain(contents).flat_map(u64::to_ne_bytes).collect();
        let file = fs.open(ring, Mode::Write)?;
        fs::write_all_at(&*file, &bytes, at as u64)?;
        fs::write_all_at(&*file, &number.to_ne_bytes(), at as u64)
    }
}

/// Reads the batch of this point, if it is complete.
fn read_batch(file: &dyn File, point: &Point) -> io::Result<Option<Annotation>> {
    let Point { stream, at, .. } = *point;
    let mut line = vec![0; LINE_MAX_BYTES];
    let read = fs::read_up_to(file, &mut line, at)?;
    let Some(end) = line[..read].iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let Ok(batch) = Annotation::parse(&line[..=end]) else { return Ok(None) };
    let head = batch.head;
    if (head.run, head.batch, head.offset) != (stream.run, stream.batch + 1, stream.offset) {
        return Ok(None);
    }
    let mut sum = Checksum::new(&head);
    let (mut at, mut left) = (at + end as u64 + 1, head.bytes);
    let mut space = vec![0; 1 << 20];
    while left > 0 {
        let most = usize::try_from(left).map_or(space.len(), |left| left.min(space.len()));
        let count = fs::read_up_to(file, &mut space[..most], at)?;
        if count == 0 {
            return Ok(None);
        }
        sum.update(&space[..count]);
        (at, left) = (at + count as u64, left - count as u64);
    }
    Ok((sum.value() == batch.sum).then_some(batch))
}

fn line_bytes(batch: &Annotation) -> u64 {
    let mut line = Vec::with_capacity(LINE_MAX_BYTES);
    batch.write(&mut line);
    line.len() as u64
}

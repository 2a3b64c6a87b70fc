//! Verifies a file of an append-only folder, and says where it may be cut.
//!
//! ```text
//! #DJ1 … | batch | #DJ1 … | batch | …damaged… | #DJ1 … | batch | zeros
//!                                 ▲                 └── its "stable" says how far the file was durable
//!                                 good
//! ```
//! - **Darter's files** are chains of batches, each with a checksum. A bad batch is the torn end of
//!   the file, unless a later good batch says that the stream was durable beyond the begin of the bad
//!   one: then it is damage. [`Checker`] finds the bad batch, and [`Search`] the later good one, in
//!   the rest of this file and in all later ones.
//! - **Redis's files** have commands only. A command that is incomplete at the end, or a transaction
//!   without EXEC, is a torn end. Other bytes are damage. Zeros to the end are a torn end, too: file
//!   systems extend files with zeros (Redis refuses them).
//! - Redis may have appended commands to one of Darter's files. They are checked as Redis's.

use super::annotation::{ANY_TAG, Annotation, Checksum, LINE_MAX_BYTES, TAG};
use super::reader::{Item, Malformed, Reader};
use memchr::{memchr, memmem};
use std::fmt;

/// The first bytes of the lines that Redis writes.
const REDIS_TAG: &[u8] = b"#TS:";
/// The longest line of Redis.
const REDIS_LINE_MAX_BYTES: usize = 1_024;
/// The most lines in values that are followed at a time as if they began batches.
const CANDIDATES_MAX: usize = 64;

/// The reason why the bytes after [`Checked::good`] cannot be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The file ends within a command.
    Short,
    /// The file ends within a transaction: after MULTI, before EXEC.
    OpenMulti,
    /// The bytes are not commands.
    Malformed(Malformed),
    /// A newer version of Darter wrote the batch.
    NewerVersion,
    /// A batch comes after commands that have no checksum.
    Misplaced,
    /// The line that begins a batch is damaged, or incomplete at the end of the file.
    BadLine,
    /// The checksum of a batch is wrong, or the batch is incomplete at the end of the file.
    BadSum,
    /// The batch is not the one after the previous batch.
    NotNext,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => why.fmt(f),
            Self::Short => f.write_str("the file ends within a command"),
            Self::OpenMulti => f.write_str("the file ends within a transaction"),
            Self::NewerVersion => f.write_str("a newer version of Darter wrote this batch"),
            Self::Misplaced => f.write_str("a batch comes after commands without a checksum"),
            Self::BadLine => f.write_str("the line that begins a batch is damaged"),
            Self::BadSum => f.write_str("the checksum of a batch is wrong"),
            Self::NotNext => f.write_str("a batch is not the one after the previous batch"),
        }
    }
}

/// The meaning of a fault.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// The end of the file is torn, and may be cut.
    Torn,
    /// The file is damaged.
    Damaged,
    /// Depends on the bytes from [`Checked::good`] on, to the end of the last file.
    Depends(Search),
}

/// The result of checking a file.
#[derive(Debug)]
pub struct Checked {
    /// The number of bytes that may be loaded.
    pub good: u64,
    /// The last good batch: of this file, or else of the one before.
    pub last: Option<Annotation>,
    /// True if the file is Darter's, so its batches have checksums.
    pub has_batches: bool,
    /// The number of commands outside of batches.
    pub commands: u64,
    /// The fault after the good bytes, its offset, and its meaning. `None` if the file is whole:
    /// then only zeros may follow the good bytes.
    pub fault: Option<(Fault, u64, Verdict)>,
}

/// A batch that is being read.
#[derive(Debug)]
struct OpenBatch {
    annotation: Annotation,
    sum: Checksum,
    missing: u64,
}

impl OpenBatch {
    fn new(annotation: Annotation) -> Self {
        let sum = Checksum::new(&annotation.head);
        Self { annotation, sum, missing: annotation.head.bytes }
    }

    /// Takes in bytes of the batch. Returns the number of bytes that belong to it.
    fn feed(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(usize::try_from(self.missing).unwrap_or(usize::MAX));
        self.sum.update(&bytes[..taken]);
        self.missing -= taken as u64;
        taken
    }

    /// Whether the checksum is right. `None` while bytes are missing.
    fn is_good(&self) -> Option<bool> {
        (self.missing == 0).then(|| self.sum.value() == self.annotation.sum)
    }
}

/// The position within the file.
#[derive(Debug)]
enum Position {
    /// Before a batch, at the offset `good`.
    Boundary,
    /// In a line that begins with `#`, before a batch: its bytes so far.
    Line(Vec<u8>),
    Batch(OpenBatch),
    /// After a batch, in bytes that are all zeros.
    Zeros,
    /// In commands without a checksum.
    Commands(Reader),
    /// After a fault.
    Ended,
}

/// The state of checking a file.
#[derive(Debug)]
pub struct Checker {
    position: Position,
    /// The file offset of the next byte.
    offset: u64,
    good: u64,
    last: Option<Annotation>,
    has_batches: bool,
    commands: u64,
    fault: Option<(Fault, u64)>,
    /// The offset after the last byte that is not zero.
    content: u64,
}

impl Checker {
    /// A checker of the bytes from the file offset `offset` on. `before` is the last batch of the
    /// file before.
    #[must_use]
    pub fn new(offset: u64, before: Option<Annotation>) -> Self {
        Self {
            position: Position::Boundary,
            offset,
            good: offset,
            last: before,
            has_batches: false,
            commands: 0,
            fault: None,
            content: offset,
        }
    }

    /// The file offset up to which everything so far may be loaded: it is outside of a batch and of
    /// a transaction. It never decreases.
    #[must_use]
    pub fn good(&self) -> u64 {
        self.good
    }

    /// True if the file is Darter's, as far as it was read. It does not change after the first byte
    /// of [`Checker::good`].
    #[must_use]
    pub fn has_batches(&self) -> bool {
        self.has_batches
    }

    /// True if more bytes cannot change the result.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.has_batches && self.fault.is_some()
    }

    /// Takes in the next bytes of the file. Cost: O(bytes).
    pub fn feed(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
            self.content = self.offset + last as u64 + 1;
        }
        let mut left = bytes;
        while !left.is_empty() {
            let taken = match &mut self.position {
                Position::Boundary => self.boundary(left[0]),
                Position::Line(line) => {
                    let taken = take_line(line, left);
                    self.end_of_line();
                    taken
                }
                Position::Batch(batch) => {
                    let taken = batch.feed(left);
                    self.end_of_batch();
                    taken
                }
                Position::Commands(_) => self.command(left),
                Position::Zeros => {
                    if left.iter().any(|byte| *byte != 0) {
                        self.fail(Fault::BadLine, self.good);
                    }
                    left.len()
                }
                Position::Ended => left.len(),
            };
            self.offset += taken as u64;
            left = &left[taken..];
        }
    }

    fn fail(&mut self, fault: Fault, offset: u64) {
        self.fault = Some((fault, offset));
        self.position = Position::Ended;
    }

    /// Chooses what follows by its first byte. No byte is taken.
    fn boundary(&mut self, byte: u8) -> usize {
        match byte {
            b'#' => self.position = Position::Line(Vec::new()),
            0 if self.has_batches => self.position = Position::Zeros,
            b'*' => self.position = Position::Commands(Reader::new(self.good)),
            _ if self.has_batches => self.fail(Fault::BadLine, self.good),
            _ => self.fail(Fault::Malformed(Malformed::Begin(byte)), self.good),
        }
        0
    }

    /// Judges the line before a batch, if it is complete or too long.
    fn end_of_line(&mut self) {
        let Position::Line(line) = &self.position else { unreachable!("in a line") };
        let is_complete = line.ends_with(b"\n");
        if line.starts_with(TAG) || self.has_batches && !line.starts_with(REDIS_TAG) {
            match Annotation::parse(line) {
                Ok(annotation) => self.position = Position::Batch(OpenBatch::new(annotation)),
                Err(_) if is_complete || line.len() >= LINE_MAX_BYTES => {
                    self.fail(Fault::BadLine, self.good);
                }
                Err(_) => {}
            }
            // A batch may have no bytes.
            if matches!(self.position, Position::Batch(_)) {
                self.end_of_batch();
            }
        } else if is_complete {
            if line.starts_with(ANY_TAG) {
                return self.fail(Fault::NewerVersion, self.good);
            }
            if !line.ends_with(b"\r\n") {
                return self.fail(Fault::Malformed(Malformed::LineEnd), self.good);
            }
            self.good += line.len() as u64;
            self.position = Position::Commands(Reader::new(self.good));
        } else if line.len() >= REDIS_LINE_MAX_BYTES {
            self.fail(Fault::Malformed(Malformed::LineEnd), self.good);
        }
    }

    /// Judges the batch, if it is complete.
    fn end_of_batch(&mut self) {
        let Position::Batch(batch) = &self.position else { unreachable!("in a batch") };
        let annotation = batch.annotation;
        match batch.is_good() {
            None => {}
            Some(false) => self.fail(Fault::BadSum, self.good),
            Some(true) => {
                let is_first_of_run = !self.has_batches
                    && self.last.is_none_or(|last| last.head.run != annotation.head.run);
                if is_first_of_run || self.last.is_some_and(|last| last.precedes(&annotation)) {
                    let mut line = Vec::with_capacity(LINE_MAX_BYTES);
                    annotation.write(&mut line);
                    self.good += line.len() as u64 + annotation.head.bytes;
                    self.last = Some(annotation);
                    self.position = Position::Boundary;
                } else {
                    self.fail(Fault::NotNext, self.good);
                }
                self.has_batches = true;
            }
        }
    }

    /// Reads commands that have no checksum. Returns the number of bytes.
    fn command(&mut self, bytes: &[u8]) -> usize {
        let Position::Commands(reader) = &mut self.position else { unreachable!("in commands") };
        match reader.next(bytes) {
            Ok((taken, item)) => {
                let is_batch = item == Some(Item::Line) && reader.line().starts_with(ANY_TAG);
                let start = reader.good();
                if is_batch {
                    self.fail(Fault::Misplaced, start);
                } else {
                    self.commands += u64::from(item == Some(Item::Command));
                    self.good = start;
                }
                taken
            }
            Err(error) => {
                let offset = reader.offset();
                self.fail(Fault::Malformed(error), offset);
                bytes.len()
            }
        }
    }

    /// Ends the file. Cost: O(1).
    #[must_use]
    pub fn finish(mut self) -> Checked {
        match &self.position {
            Position::Boundary | Position::Zeros | Position::Ended => {}
            Position::Batch(_) => self.fail(Fault::BadSum, self.good),
            Position::Line(line) => {
                let is_batch = self.has_batches || line.starts_with(TAG);
                self.fail(if is_batch { Fault::BadLine } else { Fault::Short }, self.good);
            }
            Position::Commands(reader) => match (reader.is_between(), reader.multi()) {
                (true, None) => {}
                (true, Some(multi)) => self.fail(Fault::OpenMulti, multi),
                (false, _) => self.fail(Fault::Short, reader.start()),
            },
        }
        let Self { good, last, has_batches, commands, content, .. } = self;
        let fault = self.fault.map(|(fault, offset)| {
            let verdict = match fault {
                Fault::Short | Fault::OpenMulti => Verdict::Torn,
                Fault::Malformed(_) if content <= offset => Verdict::Torn,
                Fault::Malformed(_) if !has_batches || commands > 0 => Verdict::Damaged,
                Fault::Misplaced | Fault::NewerVersion => Verdict::Damaged,
                _ => Verdict::Depends(Search::new(good, last, has_batches)),
            };
            (fault, offset, verdict)
        });
        Checked { good, last, has_batches, commands, fault }
    }
}

/// Adds bytes to a line, up to its end. Returns their number.
fn take_line(line: &mut Vec<u8>, bytes: &[u8]) -> usize {
    let space = REDIS_LINE_MAX_BYTES - line.len();
    let end = bytes.iter().take(space).position(|byte| *byte == b'\n');
    let taken = end.map_or(bytes.len().min(space), |end| end + 1);
    line.extend_from_slice(&bytes[..taken]);
    taken
}

/// Searches the bytes after a fault for a good batch that proves damage.
///
/// Bytes of a value may look like a batch; so several candidates are followed at a time.
#[derive(Clone, Debug)]
pub struct Search {
    /// The last batch before the fault.
    last: Option<Annotation>,
    /// True if that batch is in the file of the fault, so all batches of the file have its run.
    is_same_run: bool,
    /// The file offset of `window`.
    offset: u64,
    /// The last bytes, in which a line may have begun.
    window: Vec<u8>,
    /// Lines that begin before this file offset were seen.
    seen: u64,
    candidates: Vec<Candidate>,
    /// True in a file after that of the fault.
    is_later_file: bool,
    is_damage: bool,
}

/// A line that may begin a batch.
#[derive(Clone, Debug)]
struct Candidate {
    annotation: Annotation,
    sum: Checksum,
    /// The file offset of the next byte, and of the byte after the batch.
    next: u64,
    end: u64,
    /// True at the begin of a file.
    is_first: bool,
}

impl Search {
    /// A search from the file offset `offset` on.
    fn new(offset: u64, last: Option<Annotation>, is_same_run: bool) -> Self {
        Self {
            last,
            is_same_run,
            offset,
            window: Vec::new(),
            seen: offset,
            candidates: Vec::new(),
            is_later_file: false,
            is_damage: false,
        }
    }

    /// True if a batch was found that proves damage.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        self.is_damage
    }

    /// Begins with the next file.
    pub fn next_file(&mut self) {
        let is_damage = self.is_damage;
        *self = Self { is_later_file: true, ..Self::new(0, self.last, self.is_same_run) };
        self.is_damage = is_damage;
    }

    /// Takes in the next bytes of the file. Cost: O(bytes); more if many values look like batches,
    /// at most 64 times.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.is_later_file && self.offset == 0 && self.window.is_empty() {
            // Only Darter appends a file to one that is torn, and it begins with a batch.
            self.is_damage |= !matches!(bytes.first(), None | Some(0 | b'#'));
        }
        self.window.extend_from_slice(bytes);
        self.find();
        self.follow();
        let kept = self.window.len().min(LINE_MAX_BYTES);
        let dropped = self.window.len() - kept;
        self.window.drain(..dropped);
        self.offset += dropped as u64;
    }

    /// Finds the lines that begin in the window.
    fn find(&mut self) {
        let mut at = usize::try_from(self.seen.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        while let Some(found) = self.window.get(at..).and_then(|rest| memmem::find(rest, TAG)) {
            at += found;
            let rest = &self.window[at..];
            let most = rest.len().min(LINE_MAX_BYTES);
            let Some(end) = memchr(b'\n', &rest[..most]) else {
                if most < LINE_MAX_BYTES {
                    break; // The line may go on.
                }
                at += TAG.len();
                continue;
            };
            let begin = self.offset + at as u64;
            if let Ok(annotation) = Annotation::parse(&rest[..=end])
                && self.candidates.len() < CANDIDATES_MAX
            {
                let next = begin + end as u64 + 1;
                self.candidates.push(Candidate {
                    annotation,
                    sum: Checksum::new(&annotation.head),
                    next,
                    end: next + annotation.head.bytes,
                    is_first: begin == 0,
                });
            }
            at += TAG.len();
        }
        // A tag may be cut by the end of the window.
        let end = self.window.len().saturating_sub(TAG.len() - 1);
        let is_open = self.window.get(at..).is_some_and(|rest| rest.starts_with(TAG));
        self.seen = self.offset + if is_open { at } else { at.max(end) } as u64;
    }

    /// Gives the bytes of the window to the candidates.
    fn follow(&mut self) {
        let window_end = self.offset + self.window.len() as u64;
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.retain_mut(|candidate| {
            let end = window_end.min(candidate.end);
            if candidate.next < end {
                let index = |offset: u64| (offset - self.offset) as usize;
                candidate.sum.update(&self.window[index(candidate.next)..index(end)]);
                candidate.next = end;
            }
            if candidate.next < candidate.end {
                return true;
            }
            let is_good = candidate.sum.value() == candidate.annotation.sum;
            self.is_damage |= is_good && self.proves_damage(candidate);
            false
        });
        self.candidates = candidates;
    }

    /// Whether a good batch says that bytes after the fault were durable.
    fn proves_damage(&self, candidate: &Candidate) -> bool {
        let head = &candidate.annotation.head;
        match &self.last {
            Some(last) if last.head.run == head.run => {
                head.batch > last.head.batch && head.stable > last.end()
            }
            // A run begins a file only after it has cut the one before.
            Some(_) => !self.is_same_run || candidate.is_first && self.is_later_file,
            // The first batch of a run is durable before any other is written.
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::annotation::Head;
    use super::*;

    /// A batch: its place in the file, the stream's offset before it, and its field `stable`.
    struct Placed {
        begin: usize,
        offset: u64,
        stable: u64,
    }

    /// A file of one run, and the batches in it.
    struct Journal {
        bytes: Vec<u8>,
        batches: Vec<Placed>,
        last: Option<Annotation>,
    }

    impl Journal {
        fn new(last: Option<Annotation>) -> Self {
            Self { bytes: Vec::new(), batches: Vec::new(), last }
        }

        /// Appends a batch. The stream is durable up to the end of the batch `back` batches before.
        fn push(&mut self, run: u64, body: &[u8], stable: u64) {
            let last = self.last.filter(|last| last.head.run == run);
            let head = Head {
                run,
                batch: last.map_or(1, |last| last.head.batch + 1),
                offset: last.map_or(500, |last| last.end()),
                bytes: body.len() as u64,
                stable,
                unix_ms: 1_795_310_400_000,
                previous: last.map_or(0, |last| last.link()),
            };
            let annotation = head.seal([body]);
            let begin = self.bytes.len();
            self.batches.push(Placed { begin, offset: head.offset, stable });
            annotation.write(&mut self.bytes);
            self.bytes.extend_from_slice(body);
            self.last = Some(annotation);
        }

        fn len(&self) -> usize {
            self.bytes.len()
        }

        /// The batch that has the byte at `at`.
        fn batch_at(&self, at: usize) -> usize {
            self.batches.partition_point(|batch| batch.begin <= at) - 1
        }

        /// Whether damage in the batch `index` is proven by a later one.
        fn is_proven(&self, index: usize) -> bool {
            let offset = self.batches[index].offset;
            self.batches[index + 1..].iter().any(|batch| batch.stable > offset)
        }
    }

    const SET: &[u8] = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nvv\r\n";

    /// A file whose first four batches are durable, and the last three are not.
    fn journal() -> Journal {
        let (mut journal, bytes) = (Journal::new(None), SET.len() as u64);
        journal.push(7, b"", 500);
        journal.push(7, SET, 500);
        journal.push(7, &SET.repeat(3), 500 + bytes);
        journal.push(7, SET, 500 + bytes);
        journal.push(7, &SET.repeat(2), 500 + 5 * bytes);
        journal.push(7, SET, 500 + 5 * bytes);
        journal
    }

    fn check(bytes: &[u8], piece: usize, before: Option<Annotation>) -> Checked {
        let mut checker = Checker::new(0, before);
        bytes.chunks(piece).for_each(|part| checker.feed(part));
        checker.finish()
    }

    /// The number of good bytes, or none if the file is damaged; and the fault.
    fn judge(bytes: &[u8], piece: usize) -> (Option<usize>, Option<Fault>) {
        let checked = check(bytes, piece, None);
        let Some((fault, _, verdict)) = checked.fault else {
            assert!(bytes[checked.good as usize..].iter().all(|byte| *byte == 0));
            return (Some(checked.good as usize), None);
        };
        let is_damage = match verdict {
            Verdict::Torn => false,
            Verdict::Damaged => true,
            Verdict::Depends(mut search) => {
                bytes[checked.good as usize..].chunks(piece).for_each(|part| search.feed(part));
                search.is_damage()
            }
        };
        ((!is_damage).then_some(checked.good as usize), Some(fault))
    }

    #[test]
    fn a_whole_file_is_good_with_and_without_zeros() {
        let journal = journal();
        let zeros = [&journal.bytes[..], &[0; 300]].concat();
        for piece in [1, 2, 3, 7, 64, 1_000] {
            assert_eq!(judge(&journal.bytes, piece), (Some(journal.len()), None));
            assert_eq!(judge(&zeros, piece), (Some(journal.len()), None));
        }
        let checked = check(&journal.bytes, 100, None);
        assert_eq!((checked.last, checked.has_batches), (journal.last, true));
        assert_eq!(judge(b"", 1), (Some(0), None));
    }

    #[test]
    fn a_file_cut_anywhere_is_cut_at_the_last_batch() {
        let journal = journal();
        for len in 1..journal.len() {
            let (good, _) = judge(&journal.bytes[..len], 13);
            let batch = journal.batches[journal.batch_at(len)].begin;
            assert_eq!(good, Some(batch), "cut at {len}");
            let zeros = [&journal.bytes[..len], &[0; 200]].concat();
            assert_eq!(judge(&zeros, 13).0, Some(batch), "zeros from {len}");
        }
    }

    #[test]
    fn damage_at_any_offset_is_refused_below_the_stable_mark_and_cut_above() {
        let journal = journal();
        let (mut refused, mut cut) = (0, 0);
        let mut look = |wrong: &[u8], at: usize, how: &str| {
            let index = journal.batch_at(at);
            // A file whose first tag is damaged is not known as Darter's. It is refused.
            let is_proven = journal.is_proven(index) || at < TAG.len();
            let begin = journal.batches[index].begin;
            for piece in [5, 10_000] {
                let (good, fault) = judge(wrong, piece);
                let expected = (!is_proven).then_some(begin);
                assert_eq!(good, expected, "{how} at {at} in batch {index}: {fault:?}");
            }
            if is_proven { refused += 1 } else { cut += 1 }
        };
        for at in 0..journal.len() {
            for mask in [1, 2, 4, 8, 16, 32, 64, 128, 0xff] {
                let mut wrong = journal.bytes.clone();
                wrong[at] ^= mask;
                look(&wrong, at, "a flipped bit");
            }
            let mut wrong = journal.bytes.clone();
            wrong[at] = 0;
            look(&wrong, at, "a zero");
            wrong.clone_from(&journal.bytes);
            wrong.remove(at);
            if wrong[..] != journal.bytes[..wrong.len()] {
                // The byte removed from a row of equal bytes may be the last of them.
                let differs = (0..wrong.len()).find(|at| wrong[*at] != journal.bytes[*at]);
                look(&wrong, differs.unwrap(), "a missing byte");
            }
            wrong.clone_from(&journal.bytes);
            wrong.insert(at, b'#');
            if wrong[at + 1] != b'#' {
                look(&wrong, at, "a new byte");
            }
        }
        assert!(refused > 1_000 && cut > 1_000, "{refused} refused, {cut} cut");
    }

    #[test]
    fn batches_repeated_exchanged_or_of_an_old_run_are_not_loaded() {
        let journal = journal();
        let begins: Vec<_> = journal.batches.iter().map(|batch| batch.begin).collect();
        let part = |index: usize| {
            let end = begins.get(index + 1).copied().unwrap_or(journal.len());
            &journal.bytes[begins[index]..end]
        };
        let repeated = [&journal.bytes[..], part(4)].concat();
        assert_eq!(judge(&repeated, 9), (Some(journal.len()), Some(Fault::NotNext)));
        let exchanged = [&journal.bytes[..begins[4]], part(5), part(4)].concat();
        assert_eq!(judge(&exchanged, 9), (Some(begins[4]), Some(Fault::NotNext)));
        let exchanged = [part(0), part(2), part(1), &journal.bytes[begins[3]..]].concat();
        assert_eq!(judge(&exchanged, 9), (None, Some(Fault::NotNext)));
        let missing = [&journal.bytes[..begins[2]], part(3)].concat();
        assert_eq!(judge(&missing, 9), (Some(begins[2]), Some(Fault::NotNext)));
        let mut old = Journal::new(None);
        old.push(6, SET, 500);
        let behind = [&journal.bytes[..], &old.bytes].concat();
        assert_eq!(judge(&behind, 9), (Some(journal.len()), Some(Fault::NotNext)));
    }

    #[test]
    fn values_that_look_like_batches_prove_nothing() {
        let mut other = Journal::new(None);
        other.push(9, SET, 500);
        let mut journal = journal();
        let stable = journal.batches[5].stable;
        let copy = journal.bytes.clone();
        let begin = journal.len();
        journal.push(7, &[&b"#DJ1 #DJ1 "[..], &copy, &other.bytes].concat(), stable);
        assert_eq!(judge(&journal.bytes, 50), (Some(journal.len()), None));
        journal.bytes[begin + 10] ^= 1;
        assert_eq!(judge(&journal.bytes, 50), (Some(begin), Some(Fault::BadSum)));
    }

    #[test]
    fn commands_that_redis_appended_are_checked_as_redis_does() {
        let journal = journal();
        let whole = [&journal.bytes[..], b"#TS:1795310400\r\n", SET].concat();
        assert_eq!(judge(&whole, 11), (Some(whole.len()), None));
        let whole = [&journal.bytes[..], SET, SET].concat();
        assert_eq!(judge(&whole, 11), (Some(whole.len()), None));
        let torn = &whole[..whole.len() - 3];
        assert_eq!(judge(torn, 11), (Some(journal.len() + SET.len()), Some(Fault::Short)));
        let junk = [&whole[..], b"junk"].concat();
        let fault = Fault::Malformed(Malformed::Begin(b'j'));
        assert_eq!(judge(&junk, 11), (None, Some(fault)));
        let again = [&whole[..], &journal.bytes].concat();
        assert_eq!(judge(&again, 11), (None, Some(Fault::Misplaced)));
    }

    #[test]
    fn files_of_redis_are_cut_after_the_last_whole_command() {
        let multi = b"*1\r\n$5\r\nMULTI\r\n";
        for (bytes, good, fault) in [
            (SET.repeat(2), Some(2 * SET.len()), None),
            ([b"#TS:1\r\n", SET].concat(), Some(7 + SET.len()), None),
            ([SET, &SET[..9]].concat(), Some(SET.len()), Some(Fault::Short)),
            ([SET, b"#TS"].concat(), Some(SET.len()), Some(Fault::Short)),
            (b"#TS".to_vec(), Some(0), Some(Fault::Short)),
            ([SET, multi, SET].concat(), Some(SET.len()), Some(Fault::OpenMulti)),
            ([SET, multi, &SET[..9]].concat(), Some(SET.len()), Some(Fault::Short)),
            (
                [SET, &[0; 99]].concat(),
                Some(SET.len()),
                Some(Fault::Malformed(Malformed::Begin(0))),
            ),
            (
                [SET, &SET[..SET.len() - 3], &[0; 99]].concat(),
                Some(SET.len()),
                Some(Fault::Malformed(Malformed::ArgumentEnd)),
            ),
            ([SET, b"junk"].concat(), None, Some(Fault::Malformed(Malformed::Begin(b'j')))),
            ([SET, &[0; 9], b"x"].concat(), None, Some(Fault::Malformed(Malformed::Begin(0)))),
            (b"#DJ2 x\r\n".to_vec(), None, Some(Fault::NewerVersion)),
        ] {
            for piece in [1, 6, 500] {
                assert_eq!(judge(&bytes, piece), (good, fault), "{}", bytes.escape_ascii());
            }
        }
    }

    #[test]
    fn a_missing_end_is_damage_if_a_later_file_was_written_after_it_was_durable() {
        let first = journal();
        let torn = &first.bytes[..first.batches[5].begin];
        let checked = check(torn, 100, None);
        assert!(checked.fault.is_none(), "the file ends with a batch");
        for (stable, is_damage) in
            [(first.batches[5].offset, false), (first.last.unwrap().end(), true)]
        {
            let mut second = Journal::new(first.last);
            second.push(7, b"", stable);
            second.push(7, SET, stable);
            let later = check(&second.bytes, 100, checked.last);
            let (fault, _, Verdict::Depends(mut search)) = later.fault.unwrap() else {
                panic!("a gap depends on later batches")
            };
            assert_eq!((fault, later.good), (Fault::NotNext, 0));
            search.feed(&second.bytes);
            assert_eq!(search.is_damage(), is_damage);
            // A fault in the first file has the same verdict.
            let checked = check(&first.bytes[..first.len() - 1], 100, None);
            let (_, _, Verdict::Depends(mut search)) = checked.fault.unwrap() else {
                panic!("a bad batch depends on later batches")
            };
            search.feed(&first.bytes[checked.good as usize..first.len() - 1]);
            assert!(!search.is_damage());
            search.next_file();
            second.bytes.chunks(10).for_each(|part| search.feed(part));
            assert_eq!(search.is_damage(), is_damage);
            assert!(check(&second.bytes, 100, first.last).fault.is_none());
        }
    }

    #[test]
    fn a_torn_file_before_a_file_of_a_later_run_is_damaged() {
        let journal = journal();
        let mut later = Journal::new(None);
        later.push(8, b"", 500);
        let torn = &journal.bytes[..journal.len() - 1];
        for (bytes, is_damage) in
            [(&later.bytes[..], true), (SET, true), (b"\0\0\0", false), (b"", false)]
        {
            let (_, _, Verdict::Depends(mut search)) = check(torn, 100, None).fault.unwrap() else {
                panic!("a bad batch depends on later batches")
            };
            search.next_file();
            search.feed(bytes);
            assert_eq!(search.is_damage(), is_damage, "{}", bytes.escape_ascii());
        }
    }
}

//! Effects as Redis commands: the writer of requests, and the encoder of a record.
//!
//! Files and replicas receive a record as the commands that make its change. There is no decoder:
//! a reader runs the commands. A change within a value is encoded by its type, next to the code that
//! applies it ([`Change::encode`](crate::Change::encode)); whole keys are encoded here.
//!
//! A command has at most [`ITEMS_MAX`] items, so that each is short for its reader. Long texts are
//! shared with the output, not copied.
//!
//! A reader runs the commands as [`apply`](crate::apply) applies records: nothing is dead. So an
//! expired entry is removed by the command that removes it here, and a deadline in the past is only
//! a deadline.
//!
//! Not here: the database (SELECT), transactions (MULTI, EXEC), acts of the server.

use super::rebuild::{self, Rebuild};
use super::{Act, Effect, Record};
use crate::text::{Str, StrPieces};
use darter_base::number::{self, I64_TEXT_MAX, U64_TEXT_MAX};
use darter_base::score;
use darter_resp::{Output, Reply};
use darter_structs::blob::Blob;

/// The most items (fields, members, elements) in one command.
pub const ITEMS_MAX: usize = 64;

/// A writer of requests: arrays of bulk strings.
#[derive(Debug, Default)]
pub struct Commands {
    out: Output,
    count: usize,
    /// The words that the open command lacks.
    words_left: usize,
    /// The bytes that the open word lacks.
    bytes_left: usize,
}

impl Commands {
    /// A writer into `out`.
    #[must_use]
    pub fn new(out: Output) -> Self {
        Self { out, ..Self::default() }
    }

    /// The number of commands written since the last [`Commands::take`].
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The bytes written since the last [`Commands::take`].
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.out.len()
    }

    /// Writes `bytes`, which are whole commands, before the command that begins at `at`. They do not
    /// count.
    pub fn insert(&mut self, at: usize, bytes: &[u8]) {
        assert!(at <= self.out.len(), "{at} is behind the {} bytes written", self.out.len());
        self.out.insert(at, bytes);
    }

    /// Takes the output. The last command, and even its last word, may be incomplete while a value
    /// is encoded in portions.
    #[must_use]
    pub fn take(&mut self) -> Output {
        self.count = 0;
        std::mem::take(&mut self.out)
    }

    /// Begins a command of `words` words, its name included.
    #[inline]
    pub fn begin(&mut self, words: usize) {
        debug_assert!(words > 0, "a command has a name");
        debug_assert_eq!((self.words_left, self.bytes_left), (0, 0), "a command is incomplete");
        self.count += 1;
        self.words_left = words;
        self.reply().array(words);
    }

    /// Writes a command whose words are short.
    #[inline]
    pub fn command(&mut self, words: &[&[u8]]) {
        self.begin(words.len());
        words.iter().for_each(|word| self.word(word));
    }

    /// Writes a word.
    #[inline]
    pub fn word(&mut self, word: &[u8]) {
        self.count_word();
        self.reply().bulk(word);
    }

    /// Writes a number as a word.
    pub fn number(&mut self, number: i64) {
        self.word(number::i64_text(&mut [0; I64_TEXT_MAX], number));
    }

    /// Writes a number without a sign as a word: a count, an index, a time.
    pub fn natural(&mut self, number: u64) {
        self.word(number::u64_text(&mut [0; U64_TEXT_MAX], number));
    }

    /// Writes a length or an index as a word.
    pub fn size(&mut self, size: usize) {
        self.natural(size as u64);
    }

    /// Writes a score as a word, with all its digits.
    pub fn score(&mut self, score: f64) {
        self.word(score::Text::new(score).as_bytes());
    }

    /// Writes a text as a word. A long text is shared.
    #[inline]
    pub fn pieces(&mut self, text: &StrPieces) {
        match text {
            StrPieces::Bytes(bytes) => self.word(bytes),
            StrPieces::Blob(blob) => self.blob(blob),
        }
    }

    /// Writes a text as a word. A long text is shared.
    pub fn text(&mut self, text: &Str<'_>) {
        match text {
            Str::Inline(_) => self.word(&text.to_vec()),
            Str::Blob(blob) => self.blob(blob),
        }
    }

    /// Writes a blob as a word. A long blob is shared.
    pub fn blob(&mut self, blob: &Blob) {
        self.count_word();
        self.reply().bulk_header(blob.len());
        for index in 0..blob.pieces() {
            let (piece, range) = blob.piece(index);
            self.out.share(piece, range);
        }
        self.reply().crlf();
    }

    /// Begins a word of `bytes` bytes, which [`Commands::part`] and [`Commands::fill`] write.
    pub fn open(&mut self, bytes: u64) {
        self.count_word();
        let bytes = usize::try_from(bytes).expect("a word fits memory");
        self.reply().bulk_header(bytes);
        self.bytes_left = bytes;
        self.close();
    }

    /// Writes the next bytes of the open word.
    pub fn part(&mut self, bytes: &[u8]) {
        self.out.add(bytes);
        self.count_bytes(bytes.len());
    }

    /// Lets `fill` append the next bytes of the open word.
    pub fn fill<R>(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let tail = self.out.tail();
        let before = tail.len();
        let result = fill(tail);
        assert!(tail.len() >= before, "bytes are only appended");
        let written = tail.len() - before;
        self.out.part_tail();
        self.count_bytes(written);
        result
    }

    fn count_bytes(&mut self, bytes: usize) {
        if bytes > 0 {
            self.bytes_left =
                self.bytes_left.checked_sub(bytes).expect("a word is as long as it was announced");
            self.close();
        }
    }

    /// Ends the open word if it is complete.
    fn close(&mut self) {
        if self.bytes_left == 0 {
            self.reply().crlf();
        }
    }

    #[inline]
    fn count_word(&mut self) {
        debug_assert!(self.words_left > 0 && self.bytes_left == 0, "a word was not announced");
        self.words_left = self.words_left.wrapping_sub(1);
    }

    #[inline]
    fn reply(&mut self) -> Reply<'_> {
        Reply::new(&mut self.out, false)
    }
}

/// Calls `write` with runs of like changes, in order, each of at most [`ITEMS_MAX`].
pub fn runs<C>(changes: &[C], are_like: impl Fn(&C, &C) -> bool, mut write: impl FnMut(&[C])) {
    for run in changes.chunk_by(are_like) {
        debug_assert!(!run.is_empty(), "a run has a change");
        run.chunks(ITEMS_MAX).for_each(&mut write);
    }
}

/// Writes the commands of a record. Cost: O(changes), and for an installed value O(bytes): see
/// [`Encoder`] for portions.
pub fn encode(record: &Record, to: &mut Commands) {
    let mut encoder = Encoder::default();
    while encoder.step(record, to) {}
}

/// Writes the commands of records, the long ones in portions.
#[derive(Default)]
pub struct Encoder {
    /// The number of lists of changes that are written.
    lists: usize,
    /// The installed value that is being written.
    rebuild: Option<Rebuild>,
}

impl Encoder {
    /// Writes the commands of `record`, or their next portion: about 64 KiB, and more only if they
    /// are shared. Returns true while more is left: the next call must have the same record and writer,
    /// because a command may be incomplete.
    ///
    /// The commands of one record belong together: none may be seen without the others.
    #[inline]
    pub fn step(&mut self, record: &Record, to: &mut Commands) -> bool {
        match &record.act {
            Act::Key(key, effect) => return self.step_key(key, effect, to),
            Act::Flush => to.command(&[b"FLUSHDB"]),
            Act::FlushAll => to.command(&[b"FLUSHALL"]),
            Act::Swap(other) => {
                to.begin(3);
                to.word(b"SWAPDB");
                to.size(record.database);
                to.size(*other);
            }
            Act::Touched(_) | Act::Miss(_) | Act::Read(..) | Act::EndOfPart | Act::Server(_) => {}
        }
        false
    }

    /// [`Encoder::step`] for the effect on a key.
    #[inline]
    pub fn step_key(&mut self, key: &[u8], effect: &Effect, to: &mut Commands) -> bool {
        match effect {
            Effect::Text { value, deadline, .. } => set(key, value, *deadline, to),
            Effect::Deadline(deadline) => expire(key, *deadline, to),
            Effect::Delete | Effect::Take(_) => to.command(&[b"UNLINK", key]),
            Effect::Changes(changes) => {
                debug_assert!(self.lists < changes.lists(), "the same record is continued");
                changes.encode(self.lists, key, to);
                self.lists += 1;
                if self.lists < changes.lists() {
                    return true;
                }
                self.lists = 0;
            }
            Effect::Install { object, deadline, .. } => {
                let rebuild = self.rebuild.get_or_insert_with(|| rebuild::start(object, *deadline));
                if rebuild.step(key, to) {
                    return true;
                }
                self.rebuild = None;
            }
        }
        false
    }
}

/// Writes the command that sets a string.
#[inline]
pub(crate) fn set(key: &[u8], value: &StrPieces, deadline: Option<u64>, to: &mut Commands) {
    to.begin(if deadline.is_some() { 5 } else { 3 });
    to.word(b"SET");
    to.word(key);
    to.pieces(value);
    if let Some(at) = deadline {
        to.word(b"PXAT");
        to.natural(at);
    }
}

/// Writes the command that sets or removes the deadline of a key.
pub(crate) fn expire(key: &[u8], deadline: Option<u64>, to: &mut Commands) {
    let Some(at) = deadline else { return to.command(&[b"PERSIST", key]) };
    to.begin(3);
    to.word(b"PEXPIREAT");
    to.word(key);
    to.natural(at);
}

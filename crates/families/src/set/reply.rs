//! Long replies of members: exact count first, then the members, in portions.
//!
//! A count that is not known when the reply begins (because of dead members, or for the result of
//! SINTER) is computed first, in portions that encode nothing; no lock is held meanwhile, as
//! everything is read from cuts.

use crate::living::{Living, is_alive};
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Flow, Stream};
use darter_resp::Reply;
use darter_structs::table::{Entry, Never, Reader, Scratch, Table};
use std::collections::VecDeque;

/// Entries read at once: 8 KiB with the longest members that fit a page.
const ENTRIES: usize = 32;
/// Entries and bytes of one portion: at most about 20 us.
const PORTION_ENTRIES: usize = 512;
const PORTION_BYTES: usize = 32 * 1024;

/// Encodes the key of an entry. Returns its length.
pub(super) fn bulk(reply: &mut Reply<'_>, entry: &Entry<'_, Never>) -> usize {
    let (key, mut scratch) = (entry.key(), Scratch::new());
    let bytes = key.bytes(&mut scratch);
    reply.bulk(bytes);
    bytes.len()
}

/// Does all of a stream at once: for small ones.
pub(super) fn at_once(reply: &mut Reply<'_>, mut stream: impl Stream) -> Flow {
    while stream.pump(reply) {}
    Flow::Done
}

/// A stream, done at once when it is small.
pub(super) fn flow(reply: &mut Reply<'_>, small: bool, stream: impl Stream + 'static) -> Flow {
    if small { at_once(reply, stream) } else { Flow::Stream(Box::new(stream)) }
}

/// Whether the reply says that its members are distinct: RESP3 distinguishes sets from arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// An array.
    Array,
    /// A set, in RESP3.
    Set,
}

impl Form {
    /// The header of a reply of `count` members.
    pub(super) fn header(self, reply: &mut Reply<'_>, count: usize) {
        match self {
            Self::Array => reply.array(count),
            Self::Set => reply.set(count),
        }
    }
}

/// All living members of a cut: SMEMBERS.
pub(super) struct Members {
    /// Until the header is written.
    living: Option<Living<Never>>,
    reader: Reader<Never>,
    form: Form,
    now: u64,
    /// Members of the cut, and bytes that were made for this reply.
    len: usize,
    own_bytes: usize,
}

impl Members {
    /// The members of `cut` that live at `now`.
    pub(super) fn new(cut: Table<Never>, form: Form, now: u64) -> Self {
        Self::made(cut, 0, form, now)
    }

    /// The same for a cut that was made for this reply: at most `own_bytes` of it.
    pub(super) fn made(cut: Table<Never>, own_bytes: usize, form: Form, now: u64) -> Self {
        let (len, reader) = (cut.len(), Reader::new(Table::new()));
        Self { living: Some(Living::new(cut, now)), reader, form, now, len, own_bytes }
    }
}

impl Stream for Members {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        if let Some(living) = &mut self.living {
            let Some((count, cut)) = living.portion() else { return true };
            self.living = None;
            self.form.header(reply, count);
            self.reader = Reader::new(cut);
        }
        let now = self.now;
        portion(&mut self.reader, &mut |entry| {
            if is_alive(entry.deadline(), now) { bulk(reply, entry) } else { 0 }
        })
    }

    fn pinned_bytes(&self) -> usize {
        if let Some(living) = &self.living {
            return living.pinned_bytes().max(self.own_bytes);
        }
        let own = self.own_bytes.saturating_mul(self.reader.left()) / self.len.max(1);
        self.reader.pinned_bytes().max(own)
    }
}

/// Reads a portion; `encode` returns how many bytes it wrote. True while more is left.
pub(super) fn portion(
    reader: &mut Reader<Never>,
    encode: &mut dyn FnMut(&Entry<'_, Never>) -> usize,
) -> bool {
    let (mut entries, mut bytes) = (0, 0);
    while entries < PORTION_ENTRIES && bytes < PORTION_BYTES {
        entries += ENTRIES;
        if !reader.next_slice(ENTRIES, &mut |entry| bytes += encode(&entry)) {
            return false;
        }
    }
    true
}

/// One bit for each living member of some cuts, in the order in which these are read.
#[derive(Default)]
pub(super) struct Bits {
    words: Vec<u64>,
    len: usize,
}

impl Bits {
    /// Room for `bits`, so that pushing never copies. It is not touched before it is used.
    pub(super) fn with_capacity(bits: usize) -> Self {
        Self { words: Vec::with_capacity(bits.div_ceil(64)), len: 0 }
    }

    /// Appends a bit.
    pub(super) fn push(&mut self, bit: bool) {
        if self.len.is_multiple_of(64) {
            self.words.push(0);
        }
        if let Some(last) = self.words.last_mut() {
            *last |= u64::from(bit) << (self.len % 64);
        }
        self.len += 1;
    }

    /// Bytes of memory in use.
    pub(super) fn memory_bytes(&self) -> usize {
        self.words.len() * size_of::<u64>()
    }

    fn get(&self, index: usize) -> bool {
        self.words[index / 64] >> (index % 64) & 1 == 1
    }
}

/// The members of cuts whose bit is set. The header is already written.
pub(super) struct Chosen {
    cuts: VecDeque<Table<Never>>,
    reader: Reader<Never>,
    bits: Bits,
    at: usize,
    /// Members still to come: nothing is read beyond the last.
    left: usize,
    now: u64,
}

impl Chosen {
    /// `count` bits are set, one bit for each member that lives at `now`.
    pub(super) fn new(cuts: VecDeque<Table<Never>>, bits: Bits, count: usize, now: u64) -> Self {
        Self { cuts, reader: Reader::new(Table::new()), bits, at: 0, left: count, now }
    }
}

impl Stream for Chosen {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        if self.left == 0 {
            return false;
        }
        if self.reader.left() == 0 {
            let Some(next) = self.cuts.pop_front() else { return false };
            self.reader = Reader::new(next);
        }
        let Self { reader, bits, at, left, now, .. } = self;
        portion(reader, &mut |entry| {
            if !is_alive(entry.deadline(), *now) {
                return 0;
            }
            let chosen = bits.get(*at);
            *at += 1;
            *left -= usize::from(chosen);
            if chosen { bulk(reply, entry) } else { 0 }
        });
        self.left > 0
    }

    fn pinned_bytes(&self) -> usize {
        let waiting = self.cuts.iter().filter(|cut| cut.is_pinned()); // No more than are asked at a time.
        let waiting: usize = waiting.map(Table::memory_bytes).sum();
        self.reader.pinned_bytes() + waiting + self.bits.memory_bytes()
    }
}

/// True when walking a set of `members` fits the running slice.
pub(super) fn is_small(members: usize) -> bool {
    members <= ENTRIES_AT_ONCE
}

//! Long replies of members: first the exact count, then the members in portions.
//!
//! A count that is not known at the start (because members have expired, or for the result of
//! SINTER) is computed first, in portions that encode nothing. No lock is held meanwhile, because
//! everything is read from cuts.

use crate::live_entries::{LiveEntries, is_alive};
use crate::pending_values::CutWalk;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Cx, Flow, Stream};
use darter_resp::Reply;
use darter_structs::table::{Never, Reader, Table};
use std::collections::VecDeque;

/// Replies by a stream. If it is small and its members are short, it is sent within the running
/// slice.
pub(super) fn flow(cx: &mut Cx<'_>, small: bool, mut stream: impl Stream + 'static) -> Flow {
    let mut goes_on = small;
    while goes_on {
        if !stream.pump(&mut cx.reply) {
            return Flow::Done;
        }
        goes_on = !cx.preempt.must_yield();
    }
    Flow::Stream(Box::new(stream))
}

/// The RESP3 type of the reply: a set or an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// An array.
    Array,
    /// A set (in RESP3).
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

/// A reply of all live members of a cut: SMEMBERS.
pub(super) struct Members {
    /// Counts the live members; `None` once the header is written.
    living: Option<LiveEntries<Never>>,
    walk: CutWalk<Never>,
    form: Form,
    now: u64,
    /// The number of members of the cut.
    len: usize,
    own_bytes: usize,
}

impl Members {
    /// The members of `cut` that are live at `now`.
    pub(super) fn new(cut: Table<Never>, form: Form, now: u64) -> Self {
        Self::made(cut, 0, form, now)
    }

    /// [`Members::new`] for a cut that was made for this reply; `own_bytes` of it, at most, belong
    /// to nothing else.
    pub(super) fn made(cut: Table<Never>, own_bytes: usize, form: Form, now: u64) -> Self {
        let (len, walk) = (cut.len(), CutWalk::new(Reader::new(Table::new())));
        Self { living: Some(LiveEntries::new(cut, now)), walk, form, now, len, own_bytes }
    }
}

impl Stream for Members {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        if let Some(living) = &mut self.living {
            let Some((count, cut)) = living.portion() else { return true };
            self.living = None;
            self.form.header(reply, count);
            self.walk = CutWalk::new(Reader::new(cut));
        }
        let now = self.now;
        self.walk.portion(reply, &mut |reply, unsent, entry| {
            if is_alive(entry.deadline(), now) { unsent.key(reply, entry) } else { 0 }
        })
    }

    fn pinned_bytes(&self) -> usize {
        if let Some(living) = &self.living {
            return living.pinned_bytes().max(self.own_bytes);
        }
        let own = self.own_bytes.saturating_mul(self.walk.left()) / self.len.max(1);
        self.walk.pinned_bytes().max(own)
    }
}

/// One bit for each live member of some cuts, in reading order.
#[derive(Default)]
pub(super) struct Bits {
    words: Vec<u64>,
    len: usize,
}

impl Bits {
    /// Reserves room for `bits`, so that pushing never copies. Unused memory is not touched.
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

/// A reply of the members whose bit is set. The header has been written.
pub(super) struct Chosen {
    cuts: VecDeque<Table<Never>>,
    walk: CutWalk<Never>,
    bits: Bits,
    at: usize,
    /// Members still to send; after the last, nothing more is read.
    left: usize,
    now: u64,
}

impl Chosen {
    /// Replies with `count` members: one bit for each member that is live at `now`, of which
    /// `count` are set.
    pub(super) fn new(cuts: VecDeque<Table<Never>>, bits: Bits, count: usize, now: u64) -> Self {
        let walk = CutWalk::new(Reader::new(Table::new()));
        Self { cuts, walk, bits, at: 0, left: count, now }
    }
}

impl Stream for Chosen {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let Self { cuts, walk, bits, at, left, now } = self;
        let more = walk.portion(reply, &mut |reply, unsent, entry| {
            if *left == 0 || !is_alive(entry.deadline(), *now) {
                return 0;
            }
            let chosen = bits.get(*at);
            *at += 1;
            *left -= usize::from(chosen);
            if chosen { unsent.key(reply, entry) } else { 0 }
        });
        if *left == 0 {
            return walk.finish();
        }
        if !more {
            let Some(next) = cuts.pop_front() else { return false };
            *walk = CutWalk::new(Reader::new(next));
        }
        true
    }

    fn pinned_bytes(&self) -> usize {
        // At most as many as one check looks at.
        let waiting = self.cuts.iter().filter(|cut| cut.is_pinned());
        let waiting: usize = waiting.map(Table::memory_bytes).sum();
        self.walk.pinned_bytes() + waiting + self.bits.memory_bytes()
    }
}

/// True if walking a set of `members` fits the running slice.
pub(super) fn is_small(members: usize) -> bool {
    members <= ENTRIES_AT_ONCE
}

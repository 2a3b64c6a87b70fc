//! Replies of entries: members, alone or with their scores, streamed from a cut when there are many.

use darter_base::limits::ENTRIES_AT_ONCE;
use darter_base::score;
use darter_command::{Flow, Stream};
use darter_resp::Reply;
use darter_structs::sorted::{End, Entry, Reader, Sorted};
use darter_structs::table::Scratch;
use std::ops::Range;

/// Entries read at once: 8 KiB with the longest members that are stored in place.
const ENTRIES: usize = 32;
/// Entries and bytes of one portion: at most about 20 us. To write a score takes 0.15 us.
const PORTION_ENTRIES: usize = 512;
const PORTION_SCORES: usize = 128;
const PORTION_BYTES: usize = 32 * 1024;

/// What is shown of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The member.
    Member,
    /// The member, then its score: flat in RESP2, a pair in RESP3.
    WithScore,
    /// The same, flat in RESP3 too.
    Flat,
    /// The same as a pair, in RESP2 too.
    Pairs,
    /// The member, then its score, among other elements of an array whose header is sent.
    Bare,
}

impl Form {
    /// By an option `WITHSCORES`.
    pub(super) fn of(with_scores: bool) -> Self {
        if with_scores { Self::WithScore } else { Self::Member }
    }

    /// The header of a reply of `count` entries.
    pub(super) fn header(self, reply: &mut Reply<'_>, count: usize) {
        let is_flat = match self {
            Self::Member | Self::Pairs => false,
            Self::WithScore => !reply.is_resp3(),
            Self::Flat => true,
            Self::Bare => return,
        };
        reply.array(if is_flat { count.saturating_mul(2) } else { count });
    }

    /// Encodes an entry. Returns the length of its member.
    pub(super) fn encode(self, reply: &mut Reply<'_>, entry: &Entry<'_>) -> usize {
        if self == Self::Pairs || self == Self::WithScore && reply.is_resp3() {
            reply.array(2);
        }
        let len = member(reply, entry);
        if self != Self::Member {
            double(reply, entry.score());
        }
        len
    }

    /// Entries in one portion.
    fn portion(self) -> usize {
        if self == Self::Member { PORTION_ENTRIES } else { PORTION_SCORES }
    }

    /// True when a reply of `count` entries fits the running slice.
    pub(super) fn is_small(self, count: usize) -> bool {
        count <= if self == Self::Member { ENTRIES_AT_ONCE } else { PORTION_SCORES }
    }
}

/// Encodes the member of an entry. Returns its length.
pub(super) fn member(reply: &mut Reply<'_>, entry: &Entry<'_>) -> usize {
    let (member, mut scratch) = (entry.member(), Scratch::new());
    let bytes = member.bytes(&mut scratch);
    reply.bulk(bytes);
    bytes.len()
}

/// Encodes a score: a double, or in RESP2 its text.
pub(super) fn double(reply: &mut Reply<'_>, score: f64) {
    reply.double_text(score::Text::new(score).as_str());
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

/// Replies with the entries of these ranks: from the front ascending, from the back descending.
pub(super) fn entries(
    reply: &mut Reply<'_>,
    set: &Sorted,
    ranks: Range<usize>,
    (from, form): (End, Form),
) -> Flow {
    form.header(reply, ranks.len());
    if !form.is_small(ranks.len()) {
        return Flow::Stream(Box::new(Entries::new(set.reader(), ranks, (from, form))));
    }
    let mut encode = |entry: Entry<'_>| _ = form.encode(reply, &entry);
    match from {
        End::Front => set.range(ranks).for_each(&mut encode),
        End::Back => set.range_back(ranks).for_each(&mut encode),
    }
    Flow::Done
}

/// The entries of a cut with some ranks; the header is written.
pub(super) struct Entries {
    reader: Reader,
    form: Form,
}

impl Entries {
    pub(super) fn new(cut: Sorted, ranks: Range<usize>, (from, form): (End, Form)) -> Self {
        Self { reader: Reader::new(cut, ranks, from), form }
    }
}

impl Stream for Entries {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let (form, mut entries, mut bytes) = (self.form, 0, 0);
        while entries < form.portion() && bytes < PORTION_BYTES {
            entries += ENTRIES;
            let more = self.reader.next_slice(ENTRIES, &mut |entry| {
                bytes += form.encode(reply, &entry);
            });
            if !more {
                return false;
            }
        }
        true
    }

    fn pinned_bytes(&self) -> usize {
        self.reader.pinned_bytes()
    }
}

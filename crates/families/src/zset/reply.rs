//! Replies of entries: members, alone or with their scores, streamed from a cut when there are many.

use crate::pending_values::{PORTION_BYTES, PendingValues};
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_base::score;
use darter_command::{Cx, Flow, Stream};
use darter_resp::Reply;
use darter_structs::sorted::{End, Sorted, SortedEntry, SortedReader};
use std::ops::Range;

/// Entries read at once: 8 KiB with the longest members that are stored in place.
const ENTRIES: usize = 32;
/// Entries and bytes of one portion. Scores take longest to write.
const PORTION_ENTRIES: usize = 512;
const PORTION_SCORES: usize = 128;

/// The parts of an entry that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The member.
    Member,
    /// The member, then its score: flat in RESP2, a pair in RESP3.
    WithScore,
    /// The same, flat in RESP3 too.
    Flat,
    /// As above, as a pair, in RESP2 too.
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

    /// Encodes an entry. Returns the bytes to charge to this portion.
    pub(super) fn encode(
        self,
        reply: &mut Reply<'_>,
        unsent: &mut PendingValues,
        entry: &SortedEntry<'_>,
    ) -> usize {
        if self == Self::Pairs || self == Self::WithScore && reply.is_resp3() {
            unsent.array(reply, 2);
        }
        let bytes = member(reply, unsent, entry);
        if self != Self::Member {
            unsent.encoded(reply, |reply| double(reply, entry.score()));
        }
        bytes
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

/// Encodes the member of an entry. Returns the bytes to charge to this portion.
pub(super) fn member(
    reply: &mut Reply<'_>,
    unsent: &mut PendingValues,
    entry: &SortedEntry<'_>,
) -> usize {
    unsent.held_or_text(reply, &entry.member(), || entry.hold_member())
}

/// Encodes a score: a double, or in RESP2 its text.
pub(super) fn double(reply: &mut Reply<'_>, score: f64) {
    reply.double_text(score::Text::new(score).as_str());
}

/// A stream of which a small one is sent within the running slice, unless its members are long.
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
    at_once(reply, set, ranks, (from, form)).into_flow()
}

/// Encodes a few entries. Returns the stream of long members.
pub(super) fn at_once(
    reply: &mut Reply<'_>,
    set: &Sorted,
    ranks: Range<usize>,
    (from, form): (End, Form),
) -> PendingValues {
    let mut unsent = PendingValues::default();
    let mut encode = |entry: SortedEntry<'_>| _ = form.encode(reply, &mut unsent, &entry);
    match from {
        End::Front => set.range(ranks).for_each(&mut encode),
        End::Back => set.range_back(ranks).for_each(&mut encode),
    }
    unsent
}

/// The entries of a cut with some ranks; the header is written.
pub(super) struct Entries {
    reader: SortedReader,
    form: Form,
    unsent: PendingValues,
}

impl Entries {
    pub(super) fn new(cut: Sorted, ranks: Range<usize>, (from, form): (End, Form)) -> Self {
        Self { reader: SortedReader::new(cut, ranks, from), form, unsent: PendingValues::default() }
    }
}

impl Stream for Entries {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let Self { reader, form, unsent } = self;
        if !unsent.is_empty() {
            return unsent.pump(reply) || reader.left() > 0;
        }
        let (mut entries, mut bytes) = (0, 0);
        while entries < form.portion() && bytes < PORTION_BYTES && unsent.is_empty() {
            entries += ENTRIES;
            let more = reader.next_slice(ENTRIES, &mut |entry| {
                bytes += form.encode(reply, unsent, &entry);
            });
            if !more {
                break;
            }
        }
        !unsent.is_empty() || reader.left() > 0
    }

    fn pinned_bytes(&self) -> usize {
        self.reader.pinned_bytes() + self.unsent.pinned_bytes()
    }
}

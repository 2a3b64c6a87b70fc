//! Counts and iterates over the live entries of a table, of which some may have expired.

use darter_base::UnixMillis;
use darter_command::{Flow, Stream};
use darter_resp::Reply;
use darter_structs::table::{LiveCount, OutOfLine, Table};

/// Segments counted in one portion.
pub(crate) const SEGMENTS_AT_ONCE: usize = 4;

/// True if an entry with this deadline is live at `now`.
pub(crate) fn is_alive(deadline: Option<UnixMillis>, now: UnixMillis) -> bool {
    deadline.is_none_or(|deadline| deadline > now)
}

/// Replies with the number of entries of `table` that are live at `now`: at once, or in portions
/// from a cut if many have just expired.
pub(crate) fn reply_count<X: OutOfLine>(
    reply: &mut Reply<'_>,
    table: &Table<X>,
    now: UnixMillis,
) -> Flow {
    match table.live_len(now, SEGMENTS_AT_ONCE) {
        Some(count) => {
            reply.count(count);
            Flow::Done
        }
        None => Flow::Stream(Box::new(Count(LiveCount::new(table.clone(), now)))),
    }
}

/// A count in progress, whose result is the reply.
struct Count<X: OutOfLine>(LiveCount<X>);

impl<X: OutOfLine> Stream for Count<X> {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let more = self.0.next_slice(SEGMENTS_AT_ONCE);
        if !more {
            reply.count(self.0.count());
        }
        more
    }
}

/// A cut whose live entries are being counted, because a reply's header needs their number. Nothing
/// is counted if none has expired.
pub(crate) struct LiveEntries<X: OutOfLine> {
    cut: Table<X>,
    count: Option<LiveCount<X>>,
}

impl<X: OutOfLine> LiveEntries<X> {
    /// The live entries of `cut` at `now`.
    pub(crate) fn new(cut: Table<X>, now: UnixMillis) -> Self {
        let has_dead = !is_alive(cut.earliest_deadline(), now);
        let count = has_dead.then(|| LiveCount::new(cut.clone(), now));
        Self { cut, count }
    }

    /// Bytes that only readers keep alive, without the bytes of out-of-line values.
    pub(crate) fn pinned_bytes(&self) -> usize {
        if self.cut.is_pinned() { self.cut.memory_bytes() } else { 0 }
    }

    /// Counts a portion. When all are counted, returns their number and the cut; do not call it
    /// again then.
    pub(crate) fn portion(&mut self) -> Option<(usize, Table<X>)> {
        let living = match &mut self.count {
            None => self.cut.len(),
            Some(count) => {
                if count.next_slice(SEGMENTS_AT_ONCE) {
                    return None;
                }
                count.count()
            }
        };
        self.count = None;
        Some((living, std::mem::take(&mut self.cut)))
    }
}

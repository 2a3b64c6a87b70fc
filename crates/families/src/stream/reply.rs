//! Replies of entries: each is an array of its ID and an array of names and values. Streamed from a
//! cut if entries are many or long.

use super::id;
use super::value::sent;
use crate::pending_values::{PORTION_BYTES, PendingValues};
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Flow, Stream};
use darter_resp::Reply;
use darter_structs::list;
use darter_structs::stream::{Element, End, Entries, List, StreamEntry, StreamReader};
use darter_structs::table::Scratch;
use std::collections::VecDeque;
use std::ops::Range;

/// Names and values in one portion.
const PORTION_FIELDS: usize = 512;
/// Names and values of a long entry read at once.
const FIELDS: usize = 16;

/// The parts of an entry's array: its ID, and its names and values.
const PARTS: usize = 2;

/// Encodes a short entry as the first of `parts` parts of an array. Returns the number of its names
/// and values, and their bytes.
fn entry(reply: &mut Reply<'_>, entry: &StreamEntry<'_>, parts: usize) -> (usize, usize) {
    let (fields, mut bytes) = (2 * entry.pairs(), 0);
    reply.array(parts);
    id::encode(reply, entry.id());
    reply.array(fields);
    let mut scratch = Scratch::new();
    for field in entry.fields() {
        let Element::Text(text) = field else { unreachable!("it is not long") };
        let text = text.bytes(&mut scratch);
        reply.bulk(text);
        bytes += text.len();
    }
    (fields, bytes)
}

/// Replies with an array of the entries at these ranks: ascending from the front, descending from
/// the back.
pub(super) fn entries(
    reply: &mut Reply<'_>,
    entries: &Entries,
    ranks: Range<usize>,
    from: End,
) -> Flow {
    reply.array(ranks.len());
    match some(reply, entries, ranks, from) {
        None => Flow::Done,
        Some(rest) => {
            let mut showing = Showing::default();
            showing.push(ShownEntries::begun(entries, rest, from));
            Flow::Stream(Box::new(showing))
        }
    }
}

/// Encodes entries until the portion is full, or the next one is long. Returns the remaining ranks.
pub(super) fn some(
    reply: &mut Reply<'_>,
    entries: &Entries,
    ranks: Range<usize>,
    from: End,
) -> Option<Range<usize>> {
    let (mut shown, mut fields, mut bytes) = (0, 0, 0);
    let mut show = |one: StreamEntry<'_>| {
        if one.long().is_some() || fields > 2 * ENTRIES_AT_ONCE || bytes > PORTION_BYTES {
            return false;
        }
        let more = entry(reply, &one, PARTS);
        (shown, fields, bytes) = (shown + 1, fields + more.0, bytes + more.1);
        true
    };
    let all = match from {
        End::Front => entries.range(ranks.clone()).all(&mut show),
        End::Back => entries.range_back(ranks.clone()).all(&mut show),
    };
    let Range { start, end } = ranks;
    match from {
        _ if all => None,
        End::Front => Some(start + shown..end),
        End::Back => Some(start..end - shown),
    }
}

/// The part of a reply before its entries.
pub(super) enum Head {
    /// Nothing: their array has been started.
    Begun,
    /// The name of their key, and the header of their array.
    Key(Vec<u8>),
    /// The name of a field whose value is a single entry.
    Field(&'static str),
}

/// Entries of a cut that are to be shown.
pub(super) struct ShownEntries {
    pub(super) head: Head,
    pub(super) entries: Entries,
    pub(super) ranks: Range<usize>,
    pub(super) from: End,
}

impl ShownEntries {
    /// Entries whose array header has been written.
    pub(super) fn begun(entries: &Entries, ranks: Range<usize>, from: End) -> Self {
        Self { head: Head::Begun, entries: entries.reader(), ranks, from }
    }
}

/// Starts the reply for one of several keys: a pair of its name and its entries.
pub(super) fn name(reply: &mut Reply<'_>, key: &[u8], entries: usize) {
    if !reply.is_resp3() {
        reply.array(2);
    }
    reply.bulk(key);
    reply.array(entries);
}

/// Entries of several cuts, being sent. The outer header has been written.
#[derive(Default)]
pub(super) struct Showing {
    parts: VecDeque<ShownEntries>,
    reader: Option<StreamReader>,
    /// Names and values of a long entry that are still to come.
    long: Option<list::ListReader>,
    unsent: PendingValues,
    /// The number of further parts of each entry, which the caller writes.
    more_parts: usize,
}

impl Showing {
    /// An entry whose array has `more_parts` further parts, which follow it.
    pub(super) fn followed_by(more_parts: usize, part: ShownEntries) -> Self {
        Self { parts: [part].into(), more_parts, ..Self::default() }
    }

    /// Appends entries.
    pub(super) fn push(&mut self, part: ShownEntries) {
        self.parts.push_back(part);
    }

    /// Starts the next part.
    fn begin(&mut self, reply: &mut Reply<'_>) {
        let Some(ShownEntries { head, entries, ranks, from }) = self.parts.pop_front() else {
            return;
        };
        match head {
            Head::Begun => {}
            Head::Key(key) => name(reply, &key, ranks.len()),
            Head::Field(name) => reply.bulk(name.as_bytes()),
        }
        self.reader = Some(StreamReader::new(entries, ranks, from));
    }

    /// Encodes the next entry; for a long entry, the part before its fields.
    fn entry(&mut self, reply: &mut Reply<'_>) -> (usize, usize) {
        let (Some(reader), mut size) = (&mut self.reader, (0, 0)) else { return (0, 0) };
        let parts = PARTS + self.more_parts;
        let more = reader.next_slice(1, &mut |one| match one.long() {
            None => size = entry(reply, &one, parts),
            Some(fields) => {
                reply.array(parts);
                id::encode(reply, one.id());
                reply.array(fields.len());
                self.long = Some(list::ListReader::new(List::reader(fields), 0..fields.len()));
            }
        });
        if !more {
            self.reader = None;
        }
        size
    }

    /// Encodes the next names and values of a long entry.
    fn fields(&mut self, reply: &mut Reply<'_>) -> (usize, usize) {
        let (Some(fields), mut bytes) = (&mut self.long, 0) else { return (0, 0) };
        let unsent = &mut self.unsent;
        if !fields.next_slice(FIELDS, &mut |field| bytes += unsent.value(reply, &sent(&field))) {
            self.long = None;
        }
        (FIELDS, bytes)
    }

    /// True when everything has been sent.
    pub(super) fn is_over(&self) -> bool {
        self.unsent.is_empty()
            && self.long.is_none()
            && self.reader.is_none()
            && self.parts.is_empty()
    }
}

impl Stream for Showing {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        if !self.unsent.is_empty() {
            self.unsent.pump(reply);
            return !self.is_over();
        }
        let (mut fields, mut bytes) = (0, 0);
        while fields < PORTION_FIELDS && bytes < PORTION_BYTES && self.unsent.is_empty() {
            let more = match (&self.long, &self.reader) {
                (Some(_), _) => self.fields(reply),
                (None, Some(_)) => self.entry(reply),
                (None, None) if self.parts.is_empty() => return false,
                (None, None) => {
                    self.begin(reply);
                    (FIELDS, 0)
                }
            };
            (fields, bytes) = (fields + more.0.max(1), bytes + more.1);
        }
        !self.is_over()
    }

    fn pinned_bytes(&self) -> usize {
        let reader = self.reader.as_ref().map_or(0, StreamReader::pinned_bytes);
        let long = self.long.as_ref().map_or(0, list::ListReader::pinned_bytes);
        // Only the first few keys count, because a request may name very many.
        let parts = self.parts.iter().take(ENTRIES_AT_ONCE);
        let parts = parts.filter(|part| part.entries.is_pinned());
        let parts = parts.map(|part| part.entries.memory_bytes()).sum::<usize>();
        reader + long + parts + self.unsent.pinned_bytes()
    }
}

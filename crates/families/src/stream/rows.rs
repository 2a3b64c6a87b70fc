//! Replies of entries given by their IDs, of which some may be deleted; in slices if they are many.

use super::id;
use super::reply::{Showing, ShownEntries};
use crate::chunks::Chunks;
use darter_command::Stream;
use darter_resp::Reply;
use darter_structs::stream::{End, Entries, StreamId};
use std::collections::VecDeque;
use std::ops::Range;

/// Rows that are started in one portion.
const ROWS_AT_ONCE: usize = 64;
/// Rows in a chunk: some 20 KiB.
const CHUNK_ROWS: usize = 1_024;

/// A row of the reply.
#[derive(Clone, Debug)]
enum Row {
    /// The entries at these ranks.
    Run(Range<usize>),
    /// A deleted entry: only its ID is shown.
    Gone(StreamId),
}

/// The earlier deliveries of an entry: its idle time in milliseconds, and their number. For an
/// entry without a consumer the idle time is -1, as in XPENDING.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before {
    pub(super) idle_ms: i64,
    pub(super) times: u64,
}

/// Entries in the order of addition, found by their IDs.
#[derive(Default)]
pub(super) struct Rows {
    rows: Chunks<Row, CHUNK_ROWS>,
    /// The earlier deliveries of each row; empty if they are not shown.
    before: Chunks<Before, CHUNK_ROWS>,
    len: usize,
}

/// IDs in the order of addition.
#[derive(Default)]
pub(super) struct IdRows {
    ids: Chunks<StreamId, CHUNK_ROWS>,
    len: usize,
}

impl IdRows {
    /// The number of IDs.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds an ID.
    pub(super) fn add(&mut self, id: StreamId) {
        self.ids.tail(1).push(id);
        self.len += 1;
    }
}

impl From<IdRows> for Taken<StreamId> {
    fn from(rows: IdRows) -> Self {
        Self::new(rows.ids)
    }
}

impl Rows {
    /// The number of rows.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds the entries at these ranks.
    pub(super) fn add(&mut self, ranks: Range<usize>) {
        self.len += ranks.len();
        let rows = self.rows.tail(1);
        match rows.last_mut() {
            Some(Row::Run(last)) if last.end == ranks.start => last.end = ranks.end,
            _ => rows.push(Row::Run(ranks)),
        }
    }

    /// Adds the entry at this rank, or a deleted one, with its earlier deliveries. Then all rows
    /// must have them.
    pub(super) fn add_with(&mut self, entry: Result<usize, StreamId>, before: Before) {
        self.len += 1;
        self.rows.tail(1).push(match entry {
            Ok(rank) => Row::Run(rank..rank + 1),
            Err(id) => Row::Gone(id),
        });
        self.before.tail(1).push(before);
    }

    /// Adds a deleted entry.
    pub(super) fn add_gone(&mut self, id: StreamId) {
        self.len += 1;
        self.rows.tail(1).push(Row::Gone(id));
    }
}

/// A part of a reply.
pub(super) enum Shown {
    /// The name of a key, and the entries read there.
    Key(Vec<u8>, Rows, Entries),
    /// An array of entries.
    Rows(Rows, Entries),
    /// An array of IDs.
    Ids(IdRows),
}

/// Takes items out of chunks, one by one.
pub(super) struct Taken<T: 'static> {
    chunk: std::vec::IntoIter<T>,
    rest: Chunks<T, CHUNK_ROWS>,
}

impl<T> Default for Taken<T> {
    fn default() -> Self {
        Self::new(Chunks::default())
    }
}

impl<T> Taken<T> {
    fn new(rest: Chunks<T, CHUNK_ROWS>) -> Self {
        Self { chunk: Vec::new().into_iter(), rest }
    }

    pub(super) fn next(&mut self) -> Option<T> {
        if self.chunk.len() == 0 {
            self.chunk = self.rest.pop_front()?.into_iter();
        }
        self.chunk.next()
    }
}

/// Parts of a reply, being sent. The outer header has been written.
#[derive(Default)]
pub(super) struct ShowingRows {
    parts: VecDeque<Shown>,
    rows: Taken<Row>,
    before: Taken<Before>,
    entries: Option<Entries>,
    ids: Taken<StreamId>,
    showing: Option<Showing>,
    /// The earlier deliveries to write after the current entry.
    then: Option<Before>,
}

impl ShowingRows {
    /// Appends a part.
    pub(super) fn push(&mut self, part: Shown) {
        self.parts.push_back(part);
    }

    /// Starts the next part. Returns false if there is none.
    fn begin(&mut self, reply: &mut Reply<'_>) -> bool {
        match self.parts.pop_front() {
            None => return false,
            Some(Shown::Key(key, rows, entries)) => {
                if !reply.is_resp3() {
                    reply.array(2);
                }
                reply.bulk(&key);
                self.begin_rows(reply, rows, entries);
            }
            Some(Shown::Rows(rows, entries)) => self.begin_rows(reply, rows, entries),
            Some(Shown::Ids(ids)) => {
                reply.array(ids.len);
                self.ids = ids.into();
            }
        }
        true
    }

    fn begin_rows(&mut self, reply: &mut Reply<'_>, rows: Rows, entries: Entries) {
        reply.array(rows.len());
        (self.rows, self.entries) = (Taken::new(rows.rows), Some(entries));
        self.before = Taken::new(rows.before);
    }

    /// Writes the next row or ID. Returns false if there is none.
    fn row(&mut self, reply: &mut Reply<'_>) -> bool {
        if let Some(id) = self.ids.next() {
            id::encode(reply, id);
            return true;
        }
        let Some(row) = self.rows.next() else { return false };
        self.then = self.before.next();
        let more = if self.then.is_some() { 2 } else { 0 };
        match (row, &self.entries) {
            (Row::Gone(id), _) => {
                reply.array(2 + more);
                id::encode(reply, id);
                reply.null_array();
                self.end_row(reply);
            }
            (Row::Run(ranks), Some(entries)) => {
                let part = ShownEntries::begun(entries, ranks, End::Front);
                self.showing = Some(Showing::followed_by(more, part));
            }
            (Row::Run(_), None) => unreachable!("rows have entries"),
        }
        true
    }

    /// Writes the part after an entry.
    fn end_row(&mut self, reply: &mut Reply<'_>) {
        if let Some(Before { idle_ms, times }) = self.then.take() {
            reply.int(idle_ms);
            reply.int(times.cast_signed());
        }
    }
}

impl Stream for ShowingRows {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        for _ in 0..ROWS_AT_ONCE {
            if let Some(showing) = &mut self.showing {
                if showing.pump(reply) {
                    return true;
                }
                self.showing = None;
                self.end_row(reply);
            }
            if !self.row(reply) && !self.begin(reply) {
                return false;
            }
        }
        true
    }

    fn pinned_bytes(&self) -> usize {
        self.showing.as_ref().map_or(0, Showing::pinned_bytes)
    }
}

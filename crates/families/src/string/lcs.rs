//! LCS: the longest common subsequence of two strings.
//!
//! The table of lengths has a cell for every pair of bytes: up to 134 million, as Redis allows.
//! Redis stores 4 bytes a cell and blocks all clients. Here one row of lengths is enough. To trace
//! back, one bit a cell suffices: it says which string drops its last byte if the last bytes
//! differ. The work continues in portions, from cuts of both strings, with no lock held; the reply
//! comes at the end.
//!
//! ```text
//!            0  m  y  n  e  w  ..     columns: the shorter string; row[j]: the length so far
//!        0   0  0  0  0  0  0
//!   o    1   0  0  0  0  0  0         rows: the longer string
//!   h    2   0  0  0 ...              back: a bit for each cell, row after row
//! ```

use crate::lookup::find;
use crate::option_names;
use crate::text::to_blob;
use darter_base::limits::CHUNK_BYTES;
use darter_base::number;
use darter_command::{Answer, Args, Call, Cx, Flow, Refusal, Stream};
use darter_keyspace::{Found, Key};
use darter_resp::{Output, Reply};
use darter_structs::blob::Blob;
use darter_tx::Access;

/// The limit of the size of Redis's table: the default of `proto-max-bulk-len`.
const TABLE_MAX_BYTES: u64 = 512 * 1024 * 1024;
/// Cells filled in one portion.
const CELLS_AT_ONCE: usize = 8 * 1024;
/// Steps traced back in one portion: each may be a cache miss.
const STEPS_AT_ONCE: usize = 1024;
/// Matches encoded in one portion.
const MATCHES_AT_ONCE: usize = 256;

/// `LCS key1 key2 [LEN] [IDX] [MINMATCHLEN len] [WITHMATCHLEN]`: the longest common subsequence.
///
/// Reply: the subsequence as a bulk; with LEN its length; with IDX a map of the matching ranges
/// (the last first) and the length. An absent key counts as empty. Refusals: values that are not
/// strings, then `Syntax`, then strings whose table would be too large. Cost: O(len1 x len2), in
/// slices.
/// Source: <https://redis.io/commands/lcs> (7.0.0).
pub(super) fn lcs(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (one, other) = (args.key()?, args.key()?);
    let one = blob_of(find(cx.db, cx.stats, &one).as_ref());
    let other = blob_of(find(cx.db, cx.stats, &other).as_ref());
    let mut search = Search::new(one?, other?, Wanted::parse(args)?)?;
    // A short search ends here; a long one continues as a stream that sends nothing until its end.
    if search.pump(&mut cx.reply) { Ok(Flow::Stream(Box::new(search))) } else { Ok(Flow::Done) }
}

/// LCS of keys on two cores: takes cuts of both strings at one instant.
pub(super) async fn anywhere(call: Call) -> Result<Answer, Refusal> {
    let (one, other) = (call.first, call.first + 1);
    let locked = call.lock_keys([one, other].map(|at| (at, Access::Shared))).await;
    let mut blobs = Vec::new();
    for at in [one, other] {
        let (request, db) = (std::sync::Arc::clone(&call.request), call.db);
        let no_touch = call.no_touch;
        let read = move |home: &mut darter_tx::Home| {
            let key = Key::new(darter_resp::Args::owned(&request).get(at));
            let (db, _, stats) = home.shard.parts_for(db, no_touch);
            blob_of(find(db, stats, &key).as_ref())
        };
        blobs.push(call.tx.on(call.owner(at), read).await);
    }
    drop(locked);
    let mut args = call.args();
    args.seek(other + 1);
    let other = blobs.pop().unwrap_or_else(|| Ok(Blob::default()));
    let one = blobs.pop().unwrap_or_else(|| Ok(Blob::default()));
    let mut search = Search::new(one?, other?, Wanted::parse(args)?)?;
    let mut out = Output::default();
    let more = search.pump(&mut Reply::new(&mut out, call.resp3));
    Ok(if more { Answer::Stream(out, Box::new(search)) } else { Answer::Done(out) })
}

fn blob_of(found: Option<&Found<'_>>) -> Result<Blob, Refusal> {
    let Some(found) = found else { return Ok(Blob::default()) };
    let text = found.text();
    let text =
        text.map_err(|_| Refusal::line("ERR The specified keys must contain string values"))?;
    Ok(to_blob(&text))
}

/// The request.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    len: bool,
    matches: bool,
    match_len: bool,
    match_len_min: i64,
}

impl Wanted {
    fn parse(mut args: Args<'_>) -> Result<Self, Refusal> {
        let mut wanted = Self::default();
        while let Some(option) = option_names::take(&mut args) {
            let is = |name| option_names::is(option, name);
            if is("IDX") {
                wanted.matches = true;
            } else if is("LEN") {
                wanted.len = true;
            } else if is("WITHMATCHLEN") {
                wanted.match_len = true;
            } else if is("MINMATCHLEN") && args.left() > 0 {
                let least = option_names::take(&mut args).and_then(number::parse_i64);
                wanted.match_len_min = least.ok_or(Refusal::NotAnInteger)?.max(0);
            } else {
                return Err(Refusal::Syntax);
            }
        }
        if wanted.len && wanted.matches {
            return Err(Refusal::line(
                "ERR If you want both the length and indexes, please just use IDX.",
            ));
        }
        Ok(wanted)
    }
}

/// Equal ranges of both strings: the last byte in each, and the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Match {
    one_end: usize,
    other_end: usize,
    len: usize,
}

/// The stage of the search.
#[derive(Clone, Copy, Debug)]
enum LcsStage {
    /// Filling the table, from this cell on.
    Fill { row: usize, column: usize },
    /// Tracing back: `i` and `j` bytes of the strings are left.
    Back { i: usize, j: usize, open: Option<Match> },
    /// Freeing the bits.
    Free,
    /// Encoding the reply: this many matches have been sent.
    Encode { next: usize },
    /// Finished.
    Over,
}

/// The bits of the table, in cell order. They are stored in chunks, so that growing copies nothing,
/// and freeing runs in portions.
#[derive(Default)]
struct Bits {
    chunks: Vec<Vec<u64>>,
    /// The bits of the last, incomplete word.
    word: u64,
    len: usize,
}

impl Bits {
    const CHUNK_WORDS: usize = 8 * 1024;
    const CHUNK_BITS: usize = Self::CHUNK_WORDS * 64;

    #[inline]
    fn push(&mut self, bit: bool) {
        self.word |= u64::from(bit) << (self.len % 64);
        self.len += 1;
        if self.len.is_multiple_of(64) {
            self.push_word();
        }
    }

    fn push_word(&mut self) {
        if (self.len - 64).is_multiple_of(Self::CHUNK_BITS) {
            self.chunks.push(Vec::with_capacity(Self::CHUNK_WORDS));
        }
        if let Some(last) = self.chunks.last_mut() {
            last.push(std::mem::take(&mut self.word));
        }
    }

    fn get(&self, index: usize) -> bool {
        let (chunk, word) = (index / Self::CHUNK_BITS, index / 64 % Self::CHUNK_WORDS);
        let word = self.chunks.get(chunk).and_then(|chunk| chunk.get(word));
        word.unwrap_or(&self.word) >> (index % 64) & 1 == 1
    }

    /// Frees some of the chunks. Returns true while some are left.
    fn dismantle(&mut self) -> bool {
        const CHUNKS_FREED_AT_ONCE: usize = 4;
        self.chunks.truncate(self.chunks.len().saturating_sub(CHUNKS_FREED_AT_ONCE));
        !self.chunks.is_empty()
    }
}

/// The table of lengths: one row, and the bits for tracing back.
struct Table {
    row: Vec<u32>,
    /// The length at the previous column in the row above, which has been overwritten in the row.
    corner: u32,
    /// True if rows belong to the second string: rows are the longer string, so that the row is
    /// short.
    turned: bool,
    /// `None` if only the length is wanted.
    back: Option<Bits>,
}

impl Table {
    /// Fills the cells of `slice`, starting at column `from`, in the row of `byte`.
    fn fill(&mut self, byte: u8, slice: &[u8], from: usize) {
        let row = &mut self.row[from..=from + slice.len()];
        let (mut corner, mut left) = (self.corner, row[0]);
        for (cell, other) in row[1..].iter_mut().zip(slice) {
            let above = *cell;
            *cell = if *other == byte { corner + 1 } else { above.max(left) };
            if let Some(back) = &mut self.back {
                back.push(if self.turned { left > above } else { above > left });
            }
            (corner, left) = (above, *cell);
        }
        self.corner = corner;
    }

    /// True if, with `i` and `j` bytes left whose last ones differ, the first string drops its last
    /// byte.
    fn drops_one(&self, i: usize, j: usize) -> bool {
        let (row, column) = if self.turned { (j, i) } else { (i, j) };
        let columns = self.row.len() - 1;
        self.back.as_ref().is_some_and(|back| back.get((row - 1) * columns + column - 1))
    }
}

/// A search, and its reply.
struct Search {
    one: Blob,
    other: Blob,
    wanted: Wanted,
    table: Table,
    stage: LcsStage,
    matches: Vec<Match>,
    /// The subsequence found so far, its last byte first.
    found: Vec<u8>,
}

impl Search {
    fn new(one: Blob, other: Blob, wanted: Wanted) -> Result<Self, Refusal> {
        let cells = (one.len() as u64 + 1) * (other.len() as u64 + 1);
        if cells.saturating_mul(4) > TABLE_MAX_BYTES {
            return Err(Refusal::line(
                "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
            ));
        }
        let row = vec![0; one.len().min(other.len()) + 1];
        let back = (!wanted.len).then(Bits::default);
        let table = Table { row, corner: 0, turned: one.len() < other.len(), back };
        let (matches, found) = (Vec::new(), Vec::new());
        let stage = LcsStage::Fill { row: 0, column: 0 };
        Ok(Self { one, other, wanted, table, stage, matches, found })
    }

    /// The length of the subsequence, once the table is full.
    fn len(&self) -> usize {
        self.table.row.last().map_or(0, |len| *len as usize)
    }

    /// Fills cells of a row from a column on. Returns where to continue.
    fn fill(&mut self, row: usize, mut column: usize) -> LcsStage {
        let turned = self.table.turned;
        let (long, short) =
            if turned { (&self.other, &self.one) } else { (&self.one, &self.other) };
        if row == long.len() || short.is_empty() {
            let (i, j) = (self.one.len(), self.other.len());
            let over = self.wanted.len || i == 0 || j == 0;
            return if over {
                LcsStage::Encode { next: 0 }
            } else {
                LcsStage::Back { i, j, open: None }
            };
        }
        let byte = byte_at(long, row);
        let end = short.len().min(column + CELLS_AT_ONCE);
        for slice in short.slices(column..end) {
            self.table.fill(byte, slice, column);
            column += slice.len();
        }
        if column < short.len() {
            return LcsStage::Fill { row, column };
        }
        self.table.corner = 0;
        LcsStage::Fill { row: row + 1, column: 0 }
    }

    /// Traces back at most a portion. Returns the next stage.
    fn walk(&mut self, mut i: usize, mut j: usize, mut open: Option<Match>) -> LcsStage {
        for _ in 0..STEPS_AT_ONCE {
            if i == 0 || j == 0 {
                self.close(open);
                return LcsStage::Free;
            }
            let byte = byte_at(&self.one, i - 1);
            if byte == byte_at(&self.other, j - 1) {
                self.found.push(byte);
                let run = open.get_or_insert(Match { one_end: i - 1, other_end: j - 1, len: 0 });
                run.len += 1;
                (i, j) = (i - 1, j - 1);
                continue;
            }
            self.close(open.take());
            if self.table.drops_one(i, j) { i -= 1 } else { j -= 1 }
        }
        LcsStage::Back { i, j, open }
    }

    /// Keeps a completed match if it is long enough.
    fn close(&mut self, run: Option<Match>) {
        let least = usize::try_from(self.wanted.match_len_min).unwrap_or(usize::MAX);
        self.matches.extend(run.filter(|run| self.wanted.matches && run.len >= least));
    }

    /// Frees a portion of the bits. Returns the next stage.
    fn free(&mut self) -> LcsStage {
        match self.table.back.as_mut().is_some_and(Bits::dismantle) {
            true => LcsStage::Free,
            false => LcsStage::Encode { next: 0 },
        }
    }

    /// Encodes the reply, or a portion of it. Returns the next stage.
    fn encode(&mut self, reply: &mut Reply<'_>, next: usize) -> LcsStage {
        if self.wanted.len {
            reply.count(self.len());
            return LcsStage::Over;
        }
        if !self.wanted.matches {
            self.found.reverse();
            reply.bulk(&self.found);
            return LcsStage::Over;
        }
        if next == 0 {
            reply.map(2);
            reply.bulk(b"matches");
            reply.array(self.matches.len());
        }
        let end = self.matches.len().min(next + MATCHES_AT_ONCE);
        for run in &self.matches[next..end] {
            encode_match(reply, run, self.wanted.match_len);
        }
        if end < self.matches.len() {
            return LcsStage::Encode { next: end };
        }
        reply.bulk(b"len");
        reply.count(self.len());
        LcsStage::Over
    }
}

impl Stream for Search {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        // Rows may be short, so a portion may have several.
        let mut budget = CELLS_AT_ONCE;
        loop {
            let (stage, cost) = match self.stage {
                LcsStage::Fill { row, column } => {
                    (self.fill(row, column), (self.table.row.len() - column).max(16))
                }
                LcsStage::Back { i, j, open } => (self.walk(i, j, open), CELLS_AT_ONCE),
                LcsStage::Free => (self.free(), CELLS_AT_ONCE),
                LcsStage::Encode { next } => (self.encode(reply, next), CELLS_AT_ONCE / 4),
                LcsStage::Over => return false,
            };
            self.stage = stage;
            budget = budget.saturating_sub(cost);
            if budget == 0 {
                return !matches!(self.stage, LcsStage::Over);
            }
        }
    }
}

/// The byte at `at`. Cost: O(1).
fn byte_at(blob: &Blob, at: usize) -> u8 {
    blob.piece(at / CHUNK_BYTES).0[at % CHUNK_BYTES]
}

fn encode_match(reply: &mut Reply<'_>, run: &Match, with_len: bool) {
    reply.array(if with_len { 3 } else { 2 });
    for end in [run.one_end, run.other_end] {
        reply.array(2);
        reply.count(end + 1 - run.len);
        reply.count(end);
    }
    if with_len {
        reply.count(run.len);
    }
}

//! Random entries: the common part of HRANDFIELD, SRANDMEMBER and ZRANDMEMBER.
//!
//! One entry takes a few random draws of places in the table. A few distinct entries are drawn and
//! checked against the earlier draws. Many are chosen in one pass over the table, each with the
//! remaining probability, which needs no memory. Both methods are uniform over all subsets.
//!
//! Entries are drawn from a cut without expired entries. If some have just expired, the live ones
//! are copied first, in slices.
//!
//! Not here: the encoding of an entry.

use crate::live_entries::is_alive;
use crate::pending_values::{PORTION_BYTES, PendingValues};
use crate::reservoir::Reservoir;
use darter_base::{Prng, UnixMillis, number};
use darter_command::{Flow, Refusal, Stream};
use darter_resp::Reply;
use darter_structs::table::{Entry, OutOfLine, Reader, Table};
use darter_tx::KeySet;

/// Draws in one portion.
pub(crate) const DRAWS: usize = 48;
/// Entries are drawn one by one if they are at most one in this many entries of the table.
pub(crate) const DRAWN_PART: usize = 16;
/// Entries copied in one portion.
const COPIES: usize = 96;

/// The requested number of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// One entry, or null.
    One,
    /// `count` entries, with repetitions.
    Repeated(usize),
    /// At most `count` entries, all distinct.
    Distinct(usize),
}

impl Wish {
    /// Parses a count: a positive count for distinct entries, a negative one for entries that may
    /// repeat.
    pub(crate) fn of_count(text: &[u8]) -> Result<Self, Refusal> {
        let count = number::parse_i64(text).ok_or(Refusal::NotAnInteger)?;
        if count == i64::MIN {
            return Err(Refusal::line(
                "ERR value is out of range, value must between -9223372036854775807 and \
                 9223372036854775807",
            ));
        }
        let size = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        Ok(if count < 0 { Self::Repeated(size) } else { Self::Distinct(size) })
    }

    /// Chooses the method for a table of `entries` live entries.
    pub(crate) fn way(self, entries: usize, prng: &mut Prng) -> Way {
        match self {
            Self::One => Way::One,
            Self::Repeated(count) => Way::Draw(if entries == 0 { 0 } else { count }, None),
            Self::Distinct(count) if count >= entries => Way::All,
            Self::Distinct(count) if count.saturating_mul(DRAWN_PART) <= entries => {
                Way::Draw(count, Some(KeySet::with_capacity(count)))
            }
            Self::Distinct(count) => {
                Way::Choose(count, Reservoir::new(count, entries, prng.next_u64()))
            }
        }
    }
}

/// The method of choosing entries.
pub(crate) enum Way {
    /// Draw one entry, if there is any.
    One,
    /// Draw this many, one by one; if they must be distinct, with the hashes of the earlier draws.
    Draw(usize, Option<KeySet>),
    /// Take all entries.
    All,
    /// Choose this many in one pass.
    Choose(usize, Reservoir),
}

/// A hash or a set that is filled with live entries, to draw from.
pub(crate) trait Urn: Send + 'static {
    /// The type of its out-of-line values.
    type Out: OutOfLine;

    /// Bytes of memory held.
    fn bytes(&self) -> usize;

    /// Adds a copy of an entry, without its deadline.
    fn put(&mut self, entry: &Entry<'_, Self::Out>, now: UnixMillis);

    /// Replies with entries drawn from it.
    fn draw(&mut self, reply: &mut Reply<'_>, prng: &mut Prng) -> Flow;
}

/// Copies the live entries, then draws from the copy.
pub(crate) struct Purge<U: Urn> {
    reader: Reader<U::Out>,
    urn: U,
    prng: Prng,
    now: UnixMillis,
    drawing: Option<Box<dyn Stream>>,
}

impl<U: Urn> Purge<U> {
    /// Draws from the entries of `cut` that are live at `now`, by way of `urn`. `bytes` is the
    /// memory of the value.
    pub(crate) fn new(
        (cut, bytes): (Table<U::Out>, usize),
        urn: U,
        prng: &mut Prng,
        now: UnixMillis,
    ) -> Self {
        let (reader, prng) = (Reader::of_value(cut, bytes), fork(prng));
        Self { reader, urn, prng, now, drawing: None }
    }
}

impl<U: Urn> Stream for Purge<U> {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        if let Some(drawing) = &mut self.drawing {
            return drawing.pump(reply);
        }
        let (urn, now) = (&mut self.urn, self.now);
        let more = self.reader.next_slice(COPIES, &mut |entry| {
            if is_alive(entry.deadline(), now) {
                urn.put(&entry, now);
            }
        });
        if more {
            return true;
        }
        match urn.draw(reply, &mut self.prng) {
            Flow::Stream(drawing) => {
                self.drawing = Some(drawing);
                true
            }
            Flow::Done | Flow::Job(_) => false,
        }
    }

    /// The draw may be from a copy made for this reply.
    fn pinned_bytes(&self) -> usize {
        self.reader.pinned_bytes() + self.urn.bytes()
    }
}

/// A cut that entries are drawn from.
pub(crate) trait Drawable: Send + 'static {
    /// Draws an entry, and encodes it if `is_new` of a hash of it is true. Returns the bytes of an
    /// encoded one; `None` if there are no entries.
    fn draw(
        &self,
        out: (&mut Reply<'_>, &mut PendingValues),
        prng: &mut Prng,
        is_new: &mut dyn FnMut(u64) -> bool,
    ) -> Option<usize>;

    /// Bytes that only this cut keeps.
    fn pinned_bytes(&self) -> usize;
}

/// Entries drawn one by one.
pub(crate) struct Draws<D> {
    cut: D,
    left: usize,
    /// Hashes of those drawn before, if entries must be distinct.
    seen: Option<KeySet>,
    prng: Prng,
    unsent: PendingValues,
}

impl<D: Drawable> Draws<D> {
    /// Draws `left` entries.
    pub(crate) fn new(cut: D, left: usize, seen: Option<KeySet>, prng: &mut Prng) -> Self {
        Self { cut, left, seen, prng: fork(prng), unsent: PendingValues::default() }
    }
}

impl<D: Drawable> Stream for Draws<D> {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let Self { cut, left, seen, prng, unsent } = self;
        if !unsent.is_empty() {
            return unsent.pump(reply) || *left > 0;
        }
        let mut bytes = 0;
        for _ in 0..DRAWS {
            if *left == 0 || bytes >= PORTION_BYTES || !unsent.is_empty() {
                break;
            }
            let drawn = cut.draw((&mut *reply, &mut *unsent), prng, &mut |hash| {
                let is_new = seen.as_mut().is_none_or(|seen| seen.insert(hash));
                *left -= usize::from(is_new);
                is_new
            });
            let Some(encoded) = drawn else { return false };
            bytes += encoded;
        }
        *left > 0 || !unsent.is_empty()
    }

    fn pinned_bytes(&self) -> usize {
        self.cut.pinned_bytes() + self.unsent.pinned_bytes()
    }
}

/// A generator with an independent state, for work that is interleaved with other work.
pub(crate) fn fork(prng: &mut Prng) -> Prng {
    Prng::from_seed(prng.next_u64())
}

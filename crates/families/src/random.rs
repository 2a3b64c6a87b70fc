//! Random entries: the common part of HRANDFIELD and SRANDMEMBER.
//!
//! One entry costs a few draws of places in the table. Distinct entries are drawn and checked
//! against those drawn before, while they are few; many are chosen in one walk, each with the
//! remaining chance, which needs no memory at all. Both are uniform over all subsets.
//!
//! Everything is drawn from a cut without dead entries. If some have just died, the living are
//! copied first, in slices.
//!
//! Not here: how an entry is shown.

use crate::live_entries::is_alive;
use crate::reservoir::Reservoir;
use darter_base::{Prng, UnixMillis, number};
use darter_command::{Flow, Refusal, Stream};
use darter_resp::Reply;
use darter_structs::table::{Entry, OutOfLine, Reader, Table};
use darter_tx::KeySet;

/// Draws in one portion.
pub(crate) const DRAWS: usize = 48;
/// Entries are drawn one by one while they are at most this small a part of the table.
pub(crate) const DRAWN_PART: usize = 16;
/// Entries copied in one portion.
const COPIES: usize = 96;

/// The requested number of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// One entry, or null.
    One,
    /// This many, with repetitions.
    Repeated(usize),
    /// At most this many, all distinct.
    Distinct(usize),
}

impl Wish {
    /// Reads a count: this many distinct ones, or if it is negative, this many that may repeat.
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

    /// How to fulfil it from a table of `entries`, all alive.
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

/// How to fulfil a wish.
pub(crate) enum Way {
    /// Draw one entry, if there is any.
    One,
    /// Draw this many, one by one; if they must be distinct, these are the hashes of those drawn
    /// before.
    Draw(usize, Option<KeySet>),
    /// Take them all.
    All,
    /// Choose this many in one walk.
    Choose(usize, Reservoir),
}

/// A hash or a set that is filled with living entries, to draw from.
pub(crate) trait Urn: Send + 'static {
    /// The out-of-line values of its entries.
    type Out: OutOfLine;

    /// Bytes of memory that it takes.
    fn bytes(&self) -> usize;

    /// Adds a copy of an entry, without its deadline.
    fn put(&mut self, entry: &Entry<'_, Self::Out>, now: UnixMillis);

    /// Replies from the added entries.
    fn draw(&mut self, reply: &mut Reply<'_>, prng: &mut Prng) -> Flow;
}

/// Copies the living, then draws from the copy.
pub(crate) struct Purge<U: Urn> {
    reader: Reader<U::Out>,
    urn: U,
    prng: Prng,
    now: UnixMillis,
    drawing: Option<Box<dyn Stream>>,
}

impl<U: Urn> Purge<U> {
    /// Draws from the living entries in `cut` at `now`, by way of `urn`; the value takes `bytes`.
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

    /// The draw may be from a copy made for it.
    fn pinned_bytes(&self) -> usize {
        self.reader.pinned_bytes() + self.urn.bytes()
    }
}

/// An independent generator, for work that is interleaved with other work.
pub(crate) fn fork(prng: &mut Prng) -> Prng {
    Prng::from_seed(prng.next_u64())
}

//! The items of a value, whatever its type.
//!
//! A value iterates over its items to be written ([`Source`]), digested or counted, and is built
//! from them when it is read. Long items come in parts, so that no step exceeds a slice.

use darter_base::{StreamId, UnixMillis};

/// A piece of a value. Readers return the short variants `Chunk`, `Single`, `Pair`, `Scored` and
/// `Piece`; if asked for parts, also `LongValued`, `LongSingle` and `Part`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Item<'a> {
    /// The next bytes of a string, at least one.
    Chunk(&'a [u8]),
    /// A name alone.
    Single {
        /// The bytes.
        name: &'a [u8],
        /// The deadline, below 2^48 - 1.
        deadline_ms: Option<UnixMillis>,
    },
    /// A name and its value.
    Pair {
        /// The name.
        name: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// The deadline, below 2^48 - 1.
        deadline_ms: Option<UnixMillis>,
    },
    /// A name and its score, which is never NaN.
    Scored {
        /// The name.
        name: &'a [u8],
        /// The score.
        score: f64,
    },
    /// A pair whose value is too long to be packed; it follows in [`Item::Part`]s.
    LongValued {
        /// The name.
        name: &'a [u8],
        /// Bytes of its value.
        value_len: u64,
        /// The deadline, below 2^48 - 1.
        deadline_ms: Option<UnixMillis>,
    },
    /// A pair whose name is too long to be packed; it follows in [`Item::Part`]s, then its
    /// [`Item::Value`] or [`Item::LongValue`].
    LongNamed {
        /// Bytes of its name.
        name_len: u64,
        /// The deadline, below 2^48 - 1.
        deadline_ms: Option<UnixMillis>,
    },
    /// The value of a [`Item::LongNamed`] pair.
    Value(&'a [u8]),
    /// The length of the value, if that is long too; it follows in [`Item::Part`]s.
    LongValue(u64),
    /// A single that is too long to be packed or an integer; it follows in [`Item::Part`]s.
    LongSingle {
        /// The length in bytes.
        len: u64,
        /// The deadline, below 2^48 - 1.
        deadline_ms: Option<UnixMillis>,
    },
    /// The next bytes of a long name, value or single.
    Part(&'a [u8]),
    /// A piece of a stream.
    Piece(Piece<'a>),
}

/// The pieces of a stream besides the texts of its entries. They come in this order: entries, each
/// with its texts; the state; groups. A group has its pending entries, then its consumers, each
/// with the IDs of its own pending entries. A reader reports the names that entries share once,
/// before these entries, and long texts in [`Piece::Part`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what the variant says, by their usual names")]
pub enum Piece<'a> {
    /// An entry. `fields` texts follow, names and values in turn: [`Item::Single`] or
    /// [`Item::LongSingle`].
    Entry { id: StreamId, fields: u64 },
    /// From readers: the shared names of later entries follow.
    Names { names: u64 },
    /// From readers: an entry with the shared names. One value for each name follows.
    Same { id: StreamId },
    /// From readers: a text of `len` bytes follows, in [`Piece::Part`]s, instead of an
    /// [`Item::Single`].
    Long { len: u64 },
    /// From readers: the next bytes of such a text.
    Part(&'a [u8]),
    /// From readers: no item, because a deleted entry or a part of one was skipped.
    Gone,
    /// The counters of a stream, and the number of groups that follow.
    State { last: StreamId, max_deleted: StreamId, added: u64, groups: u64 },
    /// A consumer group, and the number of its pending entries and consumers, which follow. A
    /// reader does not know `consumers` yet, and says 0. `read` is the group's read count, if
    /// known.
    Group { name: &'a [u8], last: StreamId, read: Option<u64>, pending: u64, consumers: u64 },
    /// An entry that was delivered but not acknowledged: the time of the last delivery, and their
    /// number.
    Pending { id: StreamId, delivered_ms: u64, times: u64 },
    /// A consumer, and the number of IDs that follow. `active_ms` is `None` if it never received an
    /// entry.
    Consumer { name: &'a [u8], seen_ms: u64, active_ms: Option<u64>, pending: u64 },
    /// The ID of an entry that is pending for the consumer.
    Owned(StreamId),
}

impl<'a> Item<'a> {
    /// True if the piece continues the previous item.
    #[must_use]
    pub fn is_continued(&self) -> bool {
        matches!(self, Item::Part(_) | Item::Value(_) | Item::LongValue(_))
    }

    /// The total length of its texts.
    #[inline]
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        match self {
            Self::Pair { name, value, .. } => name.len() + value.len(),
            Self::Single { name, .. }
            | Self::Scored { name, .. }
            | Self::LongValued { name, .. }
            | Self::Piece(Piece::Group { name, .. } | Piece::Consumer { name, .. }) => name.len(),
            Self::Chunk(bytes)
            | Self::Value(bytes)
            | Self::Part(bytes)
            | Self::Piece(Piece::Part(bytes)) => bytes.len(),
            Self::LongNamed { .. }
            | Self::LongValue(_)
            | Self::LongSingle { .. }
            | Self::Piece(_) => 0,
        }
    }

    /// The name; empty if the item has none, or if the name follows in parts.
    #[inline]
    #[must_use]
    pub fn name(&self) -> &'a [u8] {
        match *self {
            Self::Pair { name, .. }
            | Self::Single { name, .. }
            | Self::Scored { name, .. }
            | Self::LongValued { name, .. } => name,
            _ => &[],
        }
    }

    /// The deadline.
    #[inline]
    #[must_use]
    pub fn deadline_ms(&self) -> Option<UnixMillis> {
        match self {
            Self::Single { deadline_ms, .. }
            | Self::Pair { deadline_ms, .. }
            | Self::LongValued { deadline_ms, .. }
            | Self::LongNamed { deadline_ms, .. }
            | Self::LongSingle { deadline_ms, .. } => *deadline_ms,
            _ => None,
        }
    }
}

/// Iterates over the items of a value, twice with the same result: a cut.
pub trait Source {
    /// The number of items, if it is known at once and no item has a deadline.
    fn plain_count(&self) -> Option<u64> {
        None
    }

    /// Prepares for one pass instead of two, before the first item. The pass releases the items
    /// that it has returned, and may return them in another order.
    fn read_once(&mut self) {
        self.rewind();
    }

    /// KiB that writers have copied of the value and only the reader holds; 0 if unknown.
    fn held_kib(&self) -> u32 {
        0
    }

    /// KiB that writers have copied of the value being read, since its reading began.
    fn copied_kib(&self) -> u32 {
        0
    }

    /// Searches the next item, and subtracts the skipped ones from `looks`. False if `looks` is
    /// used up before an item or the end: [`next`](Self::next) would then continue the search at
    /// once.
    fn find(&mut self, looks: &mut usize) -> bool {
        let _ = looks;
        true
    }

    /// The next item, or `None` after the last.
    fn next(&mut self) -> Option<Item<'_>>;

    /// Restarts at the first item, at most once. The second pass releases the items that it has
    /// returned.
    fn rewind(&mut self);
}

/// The items of any value.
pub type Items = Box<dyn Source + Send>;

impl Source for Items {
    fn plain_count(&self) -> Option<u64> {
        (**self).plain_count()
    }

    fn read_once(&mut self) {
        (**self).read_once();
    }

    fn held_kib(&self) -> u32 {
        (**self).held_kib()
    }

    fn copied_kib(&self) -> u32 {
        (**self).copied_kib()
    }

    fn find(&mut self, looks: &mut usize) -> bool {
        (**self).find(looks)
    }

    fn next(&mut self) -> Option<Item<'_>> {
        (**self).next()
    }

    fn rewind(&mut self) {
        (**self).rewind();
    }
}

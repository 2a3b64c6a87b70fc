//! The items of a value, whatever its type.
//!
//! A value iterates over its items to be written ([`Source`]), digested or counted, and is built
//! from them when it is read. Long ones come in parts, so that no step is longer than a slice.

use darter_base::{StreamId, UnixMillis};

/// A piece of a value. Readers return the short ones: `Chunk`, `Single`, `Pair`, `Scored`,
/// `Piece`; and `LongValued`, `LongSingle` and `Part` if they were asked for parts.
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
    /// A name and its score, which is a number.
    Scored {
        /// The name.
        name: &'a [u8],
        /// The score.
        score: f64,
    },
    /// A pair whose value is too long to be packed, and follows in [`Item::Part`]s.
    LongValued {
        /// The name.
        name: &'a [u8],
        /// Bytes of its value.
        value_len: u64,
        /// The deadline, below 2^48 - 1.
        deadline_ms: Option<UnixMillis>,
    },
    /// A pair whose name is too long to be packed, and follows in [`Item::Part`]s; then comes its
    /// [`Item::Value`] or [`Item::LongValue`].
    LongNamed {
        /// Bytes of its name.
        name_len: u64,
        /// The deadline, below 2^48 - 1.
        deadline_ms: Option<UnixMillis>,
    },
    /// The value of such a pair.
    Value(&'a [u8]),
    /// The length, when it is long too, and follows in [`Item::Part`]s.
    LongValue(u64),
    /// A single too long to be packed or an integer, which follows in [`Item::Part`]s.
    LongSingle {
        /// The bytes.
        len: u64,
        /// The deadline, below 2^48 - 1.
        deadline_ms: Option<UnixMillis>,
    },
    /// The next bytes of something long.
    Part(&'a [u8]),
    /// A piece of a stream.
    Piece(Piece<'a>),
}

/// The pieces of a stream besides the texts of its entries. They come in this order: entries, each
/// with its texts; the state; groups, each with its pending entries, then its consumers, each with
/// the IDs of those that are pending with it.
///
/// A reader reports the names that entries have in common once, before them, and long texts in parts of
/// its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what the variant says, by their usual names")]
pub enum Piece<'a> {
    /// An entry. As many names and values follow it in turn: [`Item::Single`] or [`Item::LongSingle`].
    Entry { id: StreamId, fields: u64 },
    /// From readers: names that follow, for entries to come.
    Names { names: u64 },
    /// From readers: an entry with the names before it. One value for each follows.
    Same { id: StreamId },
    /// From readers: a text of `len` bytes follows, in [`Piece::Part`]s, instead of an
    /// [`Item::Single`].
    Long { len: u64 },
    /// From readers: the next bytes of such a text.
    Part(&'a [u8]),
    /// From readers: nothing. A deleted entry was passed over, or a part of one.
    Gone,
    /// The counters of a stream, and the number of groups that follow.
    State { last: StreamId, max_deleted: StreamId, added: u64, groups: u64 },
    /// A consumer group, and how many pending entries and consumers follow; a reader does not know the
    /// number of consumers, and says 0. It has read as many entries, if that is known.
    Group { name: &'a [u8], last: StreamId, read: Option<u64>, pending: u64, consumers: u64 },
    /// An entry that was delivered, and not acknowledged: when last, and how often.
    Pending { id: StreamId, delivered_ms: u64, times: u64 },
    /// A consumer, and how many IDs follow. It was active at no time if it never got anything.
    Consumer { name: &'a [u8], seen_ms: u64, active_ms: Option<u64>, pending: u64 },
    /// A pending entry that was delivered to the consumer.
    Owned(StreamId),
}

impl<'a> Item<'a> {
    /// True when it continues the item before it.
    #[must_use]
    pub fn is_continued(&self) -> bool {
        matches!(self, Item::Part(_) | Item::Value(_) | Item::LongValue(_))
    }

    /// Bytes of its texts.
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

    /// The name; empty where it has none, or one that follows.
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
    /// How many items there are, where that is known at once and none of them has a deadline.
    fn plain_count(&self) -> Option<u64> {
        None
    }

    /// Instead of two passes there is one: it releases the items it has returned, and may have
    /// another order. Before the first item.
    fn read_once(&mut self) {
        self.rewind();
    }

    /// KiB that writers have copied of it and only the reader holds; 0 if unknown.
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

    /// Restarts at the first item. Once: the second pass releases the items it has returned.
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

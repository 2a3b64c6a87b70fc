//! The items of a value: what it is made of, whatever its type.
//!
//! A value walks through its items to be written ([`Source`]), digested or counted, and is built from
//! them when it is read. What is long comes in parts, so that no step is longer than a slice.

use darter_base::UnixMillis;

/// A piece of a value. Readers give the short ones: `Chunk`, `Single`, `Pair`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// The next bytes of a string, at least one.
    Chunk(&'a [u8]),
    /// A name alone.
    Single {
        /// Its bytes.
        name: &'a [u8],
        /// Its deadline, below 2^48 - 1.
        deadline_ms: Option<UnixMillis>,
    },
    /// A name and its value.
    Pair {
        /// Its name.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// Its deadline, below 2^48 - 1.
        deadline_ms: Option<UnixMillis>,
    },
    /// A pair whose value is too long to be packed, and follows in [`Item::Part`]s.
    LongValued {
        /// Its name.
        name: &'a [u8],
        /// Bytes of its value.
        value_len: u64,
        /// Its deadline, below 2^48 - 1.
        deadline_ms: Option<UnixMillis>,
    },
    /// A pair whose name is too long to be packed, and follows in [`Item::Part`]s; behind them comes
    /// its [`Item::Value`] or [`Item::LongValue`].
    LongNamed {
        /// Bytes of its name.
        name_len: u64,
        /// Its deadline, below 2^48 - 1.
        deadline_ms: Option<UnixMillis>,
    },
    /// The value of such a pair.
    Value(&'a [u8]),
    /// Its bytes, when it is long too, and follows in [`Item::Part`]s.
    LongValue(u64),
    /// A single too long to be packed or an integer, that follows in [`Item::Part`]s.
    LongSingle {
        /// Its bytes.
        len: u64,
        /// Its deadline, below 2^48 - 1.
        deadline_ms: Option<UnixMillis>,
    },
    /// The next bytes of what is long.
    Part(&'a [u8]),
}

impl Item<'_> {
    /// True when it goes on with the item before it.
    #[must_use]
    pub fn is_continued(&self) -> bool {
        matches!(self, Item::Part(_) | Item::Value(_) | Item::LongValue(_))
    }

    /// Its deadline.
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

/// Where the items of a value come from, twice the same: a cut.
pub trait Source {
    /// Looks for the next item; takes what it looks at in vain off `looks`. False when those are
    /// used up before one was found, or the end: [`next`](Self::next) would look further at once.
    fn find(&mut self, looks: &mut usize) -> bool {
        let _ = looks;
        true
    }

    /// The next item, or `None` behind the last.
    fn next(&mut self) -> Option<Item<'_>>;

    /// Begins again at the first item. Once: the second pass lets go of what it has given.
    fn rewind(&mut self);
}

/// The items of any value.
pub type Items = Box<dyn Source + Send>;

impl Source for Items {
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

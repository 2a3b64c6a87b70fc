//! The file format of a type's values: the part of a type's row about RDB.
//!
//! The format knows layouts, not types. A type's row lists the layouts in which its values have
//! ever been written, with product and type number. For writing, the row chooses a layout by the
//! items that a [`Survey`] saw.

use crate::blob::Form;
use crate::value::{Plan, Survey};
use std::fmt;

/// The formats of a type; see the module's documentation. A kind is identified by the number of its
/// first encoding.
pub struct Kind {
    /// The encodings that can be read; at least one.
    pub encodings: &'static [Encoding],
    /// The size up to which a collection is packed.
    pub packed: Bounds,
    /// Chooses the encoding for writing.
    pub plan: fn(&Survey) -> Plan,
}

/// A layout and its type number.
#[derive(Clone, Copy, Debug)]
pub struct Encoding {
    /// The type number that precedes such a value.
    pub number: u8,
    /// The layout of the bytes after it.
    pub layout: Layout,
    /// The origin of files in which the number has this meaning.
    pub origin: Origin,
}

/// The origin of files in which a type number has some meaning: from 22 on, Redis and Valkey
/// differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// All files.
    Any,
    /// Files of Redis, or of Valkey before 9.
    Redis,
    /// Files of Valkey 9 or later.
    Valkey,
    /// Darter's files and payloads of `DUMP`.
    Darter,
}

impl Origin {
    /// True if a file or a payload may be of both origins.
    const fn meets(self, other: Self) -> bool {
        !matches!((self, other), (Self::Redis, Self::Valkey) | (Self::Valkey, Self::Redis))
    }
}

/// The layout of a value's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A string.
    Text,
    /// A count, then strings.
    Singles,
    /// A count, then names and values.
    Pairs,
    /// A count, then names and 64-bit numbers. Items are pairs whose values are the numbers' texts.
    Scores,
    /// A count, then names and numbers in a text form of their own.
    ScoreTexts,
    /// A count, then deadlines (absolute), names and values.
    PairsDeadlineFirst,
    /// The earliest deadline, a count, then deadlines (relative to that one), names and values.
    PairsFromEarliest,
    /// A count, then names, values and deadlines (absolute).
    PairsDeadlineLast,
    /// A packed block with this many entries per item: 1 for a single, 2 for a pair, 3 for a pair
    /// and its deadline.
    Block(Form, u8),
    /// The earliest deadline, then such a block.
    BlockFromEarliest(Form, u8),
    /// A count, then that many blocks of singles.
    Blocks(Form),
    /// A count, then that many nodes: a number that distinguishes a single element from a block of
    /// them, and the node.
    Nodes(Form),
    /// A count, then that many blocks of entries with IDs; then a state, and consumer groups.
    Entries(Generation),
}

/// The version of the stream format, which grew over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Generation {
    /// Since Redis 5: without information about deleted entries.
    First,
    /// Since 7.0: the number of entries ever added, the last deleted ID, and the read counts of
    /// groups.
    Second,
    /// Since 7.2: when a consumer last received an entry.
    Third,
}

/// The size up to which a collection is packed, by Redis's default settings.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The most items.
    pub items_max: u64,
    /// The most bytes of a name or value.
    pub item_bytes_max: usize,
}

impl Kind {
    /// The number that identifies the kind.
    #[must_use]
    pub fn number(&self) -> u8 {
        self.encodings[0].number
    }

    /// True if some file could contain the same type number with either meaning.
    #[must_use]
    pub const fn is_like(&self, other: &Self) -> bool {
        let mut at = 0;
        while at < self.encodings.len() * other.encodings.len() {
            let one = &self.encodings[at / other.encodings.len()];
            let two = &other.encodings[at % other.encodings.len()];
            if one.number == two.number && one.origin.meets(two.origin) {
                return true;
            }
            at += 1;
        }
        false
    }

    /// True for lists, which are written node by node.
    #[must_use]
    pub(crate) fn has_nodes(&self) -> bool {
        matches!(self.encodings[0].layout, Layout::Nodes(_))
    }

    /// True for streams, which are written in blocks of entries.
    #[must_use]
    pub(crate) fn has_entries(&self) -> bool {
        matches!(self.encodings[0].layout, Layout::Entries(_))
    }

    /// True for strings: one text instead of items. Only strings may be empty.
    #[inline]
    #[must_use]
    pub fn is_text(&self) -> bool {
        self.encodings[0].layout == Layout::Text
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.number() == other.number()
    }
}

impl Eq for Kind {}

impl fmt::Debug for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Kind({})", self.number())
    }
}

impl Encoding {
    /// An encoding with the same meaning in all files.
    #[must_use]
    pub const fn new(number: u8, layout: Layout) -> Self {
        Self { number, layout, origin: Origin::Any }
    }

    /// An encoding with this meaning in some files only.
    #[must_use]
    pub const fn of(origin: Origin, number: u8, layout: Layout) -> Self {
        Self { number, layout, origin }
    }
}

impl Bounds {
    /// 512 items of 64 bytes.
    pub const DEFAULT: Self = Self { items_max: 512, item_bytes_max: 64 };
}

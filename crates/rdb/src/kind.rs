//! How the values of a type are laid out in a file: the part of a type's row that is about the
//! format.
//!
//! The format knows layouts, not types. A type's row lists the layouts in which it has been
//! written, with product and number; and the row chooses the layout for writing a value now, by the
//! items that a [`Survey`] saw.

use crate::blob::Form;
use crate::value::{Plan, Survey};
use std::fmt;

/// See the module. A kind is identified by the number of its first encoding.
pub struct Kind {
    /// The encodings that can be read; at least one.
    pub encodings: &'static [Encoding],
    /// Up to which size a collection is packed.
    pub packed: Bounds,
    /// Chooses the encoding for writing.
    pub plan: fn(&Survey) -> Plan,
}

/// A layout and its number.
#[derive(Clone, Copy, Debug)]
pub struct Encoding {
    /// The number that precedes such a value.
    pub number: u8,
    /// The bytes after it.
    pub layout: Layout,
    /// The origin of the files in which the number means that.
    pub origin: Origin,
}

/// The origin of files in which a number has a meaning: from 22 on, Redis and Valkey differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In all.
    Any,
    /// Redis, or a Valkey before 9.
    Redis,
    /// Valkey 9 or later.
    Valkey,
    /// Darter's own, in payloads of `DUMP` and in files that it has written.
    Darter,
}

impl Origin {
    /// True when a file, or a payload, may be of both.
    const fn meets(self, other: Self) -> bool {
        !matches!((self, other), (Self::Redis, Self::Valkey) | (Self::Valkey, Self::Redis))
    }
}

/// How the bytes of a value are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A string.
    Text,
    /// A count, then strings.
    Singles,
    /// A count, then names and values.
    Pairs,
    /// A count, then names and numbers of 64 bits. Items are pairs; their values are the numbers' texts.
    Scores,
    /// A count, then names and numbers as texts of their own kind.
    ScoreTexts,
    /// A count, then deadlines (absolute), names and values.
    PairsDeadlineFirst,
    /// The earliest deadline, a count, then deadlines (relative to that one), names and values.
    PairsFromEarliest,
    /// A count, then names, values and deadlines (absolute).
    PairsDeadlineLast,
    /// A block with this many entries an item: 1 a single, 2 a pair, 3 a pair and its deadline.
    Block(Form, u8),
    /// The earliest deadline, then such a block.
    BlockFromEarliest(Form, u8),
    /// A count, then that many blocks of singles.
    Blocks(Form),
    /// A count, then that many nodes: a number that distinguishes a single from a block of singles,
    /// and the node.
    Nodes(Form),
    /// A count, then that many blocks of entries with IDs; then a state, and consumer groups.
    Entries(Generation),
}

/// The parts of a layout of entries, which grew over versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Generation {
    /// Since Redis 5: nothing about entries that are gone.
    First,
    /// Since 7.0: how many were added, which was deleted last, how many a group has read.
    Second,
    /// Since 7.2: the time at which a consumer last got an entry.
    Third,
}

/// Up to which size a collection is packed, by Redis's default settings.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Items.
    pub items_max: u64,
    /// Bytes of a name or value.
    pub item_bytes_max: usize,
}

impl Kind {
    /// The number that identifies it.
    #[must_use]
    pub fn number(&self) -> u8 {
        self.encodings[0].number
    }

    /// True when some file has a number that would be read as either kind.
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

    /// True for lists, of which Redis writes one node after the other.
    #[must_use]
    pub(crate) fn has_nodes(&self) -> bool {
        matches!(self.encodings[0].layout, Layout::Nodes(_))
    }

    /// True for streams, of which Redis writes a block of entries after the other.
    #[must_use]
    pub(crate) fn has_entries(&self) -> bool {
        matches!(self.encodings[0].layout, Layout::Entries(_))
    }

    /// True for strings: one text, not items. They are the only values that may be empty.
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
    /// An encoding that means the same in all files.
    #[must_use]
    pub const fn new(number: u8, layout: Layout) -> Self {
        Self { number, layout, origin: Origin::Any }
    }

    /// A kind with this meaning in some files only.
    #[must_use]
    pub const fn of(origin: Origin, number: u8, layout: Layout) -> Self {
        Self { number, layout, origin }
    }
}

impl Bounds {
    /// 512 items of 64 bytes.
    pub const DEFAULT: Self = Self { items_max: 512, item_bytes_max: 64 };
}

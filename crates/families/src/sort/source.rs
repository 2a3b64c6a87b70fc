//! The input of SORT: the elements of a list, the members of a set or of a sorted set.

use crate::list::List;
use crate::live_entries::is_alive;
use crate::multi_input::{Hold, Input};
use crate::set::Set as Members;
use crate::zset::ZSet as Scored;
use darter_keyspace::{Found, Str, WrongType};
use darter_structs::list::{self, Element};
use darter_structs::sorted::{self, End};
use darter_structs::table::{self, HeldKey, Never};
use std::ops::Range;

/// The elements to sort.
pub(super) enum Source {
    List(List),
    Members(Members),
    Scored(Scored),
}

impl Input for Source {
    fn cut(found: &Found<'_>, hold: Hold) -> Result<Self, WrongType> {
        if let Ok(list) = found.value::<List>() {
            return Ok(Self::List(list.into_cut()));
        }
        match Scored::cut(found, hold) {
            Ok(set) => Ok(Self::Scored(set)),
            Err(WrongType) => Members::cut(found, hold).map(Self::Members),
        }
    }
}

impl Default for Source {
    fn default() -> Self {
        Self::List(List::new())
    }
}

impl Source {
    /// True for a set, whose members have no order.
    pub(super) fn is_set(&self) -> bool {
        matches!(self, Self::Members(_))
    }

    /// The number of elements, including expired members of a set.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::List(list) => list.elements().len(),
            Self::Members(set) => set.len(),
            Self::Scored(set) => set.len(),
        }
    }
}

/// Reads a source in portions.
pub(super) enum Reader {
    List(list::ListReader),
    Members(table::Reader<Never>, u64),
    Scored(sorted::SortedReader),
}

impl Reader {
    /// Reads the elements at `places`, or all members of a set that are live at `now`.
    pub(super) fn new(source: &Source, places: Range<usize>, now: u64) -> Self {
        match source {
            Source::List(list) => Self::List(list.reader(places)),
            Source::Members(set) => Self::Members(table::Reader::new(set.members().clone()), now),
            Source::Scored(set) => {
                Self::Scored(sorted::SortedReader::new(set.entries().clone(), places, End::Front))
            }
        }
    }

    /// Calls `f` with at most `most` of the next elements. A long name is passed with a function
    /// that returns a reference to it. Returns true while elements are left.
    pub(super) fn next_slice(
        &mut self,
        most: usize,
        f: &mut dyn FnMut(&Str<'_>, Share<'_>),
    ) -> bool {
        match self {
            Self::List(reader) => reader.next_slice(most, &mut |element| match element {
                Element::Text(text) => f(&Str::Inline(text), &|| None),
                Element::Blob(blob) => f(&Str::Blob(blob), &|| None),
            }),
            Self::Members(reader, now) => reader.next_slice(most, &mut |entry| {
                if is_alive(entry.deadline(), *now) {
                    f(&Str::Inline(entry.key()), &|| entry.hold_key());
                }
            }),
            Self::Scored(reader) => reader.next_slice(most, &mut |entry| {
                f(&Str::Inline(entry.member()), &|| entry.hold_member());
            }),
        }
    }
}

/// Returns a reference to the block of a long name.
pub(super) type Share<'a> = &'a dyn Fn() -> Option<HeldKey>;

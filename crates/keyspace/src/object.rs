//! An out-of-line value, and the interface of every type of value.
//!
//! A type is a row ([`Type`]) and an implementation of [`Value`]. Code that knows the type gets it
//! by [`Object::get`](darter_structs::shared::Shared::get), a comparison of pointers. All other
//! code calls the methods of all values, and those of some ([`Named`]). Nothing here lists the
//! types.

use crate::build::Build;
use crate::clocks::Clock;
use crate::encoding::Bound;
use crate::items::NewItem;
use crate::log::Recorder;
use crate::rebuild::Parts;
use crate::{Touch, WrongType};
use darter_base::Preempt;
use darter_base::number::{I64_TEXT_MAX, i64_text};
use darter_rdb::{Items, Kind};
use darter_structs::blob::Blob;
use darter_structs::shared::{Family, Holds, Shared};
use darter_structs::table::{OutOfLine, PackedValue, Table};

/// A reference-counted value. Cloning it is a cut. Its mark is the time under which the database's
/// deadline queue lists it.
pub type Object = Shared<Values>;

/// The family of all out-of-line values.
pub struct Values;

impl Family for Values {
    type Face = dyn Value;
    type Row = Type;
    type Mark = Clock;
    /// The keyspace stores access times.
    const STAMPED: bool = true;
}

impl<V: Typed> Holds<V> for Values {
    const ROW: &'static Type = V::TYPE;

    fn face(value: &V) -> &(dyn Value + 'static) {
        value
    }

    fn face_mut(value: &mut V) -> &mut (dyn Value + 'static) {
        value
    }
}

/// The row of a type: facts that do not depend on a value.
#[derive(Debug)]
pub struct Type {
    /// The name that TYPE replies with.
    pub name: &'static str,
    /// Redis's number of the type, used in DEBUG DIGEST among others; below [`Type::NUMBERS`].
    pub number: usize,
    /// The file format of its values, also for payloads.
    pub rdb: &'static Kind,
    /// Creates an empty value, to be filled with [`Value::take_in`].
    pub empty: fn() -> Object,
    /// The settings that determine the names of its encodings.
    pub bounds: &'static [&'static Bound],
    /// True if the order of the items is significant: DEBUG DIGEST.
    pub is_ordered: bool,
}

impl Type {
    /// The limit of type numbers. Redis has seven types: string, list, set, sorted set, hash,
    /// module, stream. The others are Darter's, and belong to modules in Redis.
    pub const NUMBERS: usize = 12;
}

impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

/// The types of a server: made by [`types!`](crate::types).
#[derive(Clone, Copy, Debug)]
pub struct Types {
    rows: &'static [&'static Type],
    kinds: &'static [&'static Kind],
}

/// Makes a list of types from their rows.
#[macro_export]
macro_rules! types {
    ($($row:expr),+ $(,)?) => {{
        static ROWS: &[&$crate::Type] = &[$($row),+];
        static KINDS: &[&$crate::Kind] = &[$($row.rdb),+];
        $crate::Types::new(ROWS, KINDS)
    }};
}

impl Types {
    /// For [`types!`](crate::types): the rows, and their kinds in the same order.
    #[must_use]
    pub const fn new(rows: &'static [&'static Type], kinds: &'static [&'static Kind]) -> Self {
        assert!(rows.len() == kinds.len(), "a kind a row");
        let mut at = 0;
        while at < rows.len() {
            assert!(rows[at].number < Type::NUMBERS, "a number that accounts have no place for");
            let mut other = 0;
            while other < at {
                assert!(rows[at].number != rows[other].number, "two types of one number");
                assert!(!kinds[at].is_like(kinds[other]), "two types read one number of a file");
                other += 1;
            }
            at += 1;
        }
        Self { rows, kinds }
    }

    /// The rows of the types.
    pub fn iter(&self) -> impl Iterator<Item = &'static Type> + use<> {
        self.rows.iter().copied()
    }

    /// The file formats of the types, for a reader of files and payloads.
    #[must_use]
    pub fn kinds(&self) -> &'static [&'static Kind] {
        self.kinds
    }

    /// The type for a format that a reader has found.
    ///
    /// # Panics
    /// When the kind is not one of [`Types::kinds`].
    #[must_use]
    pub fn of(&self, kind: &Kind) -> &'static Type {
        self.iter().find(|row| row.rdb == kind).expect("the reader was told these kinds")
    }
}

/// The operations of values of all types.
pub trait Value: Send + Sync + 'static {
    /// Bytes of memory that the value owns, without its own header. Cost: O(1).
    fn content_bytes(&self) -> usize;

    /// The reply of OBJECT ENCODING: Redis 7.0's name.
    fn encoding(&self) -> &'static str;

    /// The items, as of `now`: from a cut. O(1).
    fn items(&self, now: u64) -> Items;

    /// Adds the next item to a value being built. Returns false if the item is a duplicate, or is
    /// not of this type; the value is then useless.
    fn take_in(&mut self, item: NewItem<'_>) -> bool {
        let _ = item;
        false
    }

    /// Adds all items to an empty value being built, as [`Value::take_in`] for each. They must be
    /// few enough for a slice.
    fn take_all(&mut self, items: &[NewItem<'_>]) -> bool {
        items.iter().all(|item| self.take_in(*item))
    }

    /// Adds names alone to a value being built: the decimal texts of these numbers. Otherwise as
    /// [`Value::take_in`] for each.
    fn take_numbers(&mut self, numbers: &[i64]) -> bool {
        let mut text = [0; I64_TEXT_MAX];
        numbers.iter().all(|number| {
            self.take_in(NewItem::Single { name: i64_text(&mut text, *number), deadline: None })
        })
    }

    /// [`Value::take_in`] for each of these names.
    fn take_names(&mut self, names: &[&[u8]]) -> bool {
        names.iter().all(|name| self.take_in(NewItem::Single { name, deadline: None }))
    }

    /// A builder that collects the items of a value being built, if there are very many (about
    /// `items`). Called on an empty value.
    fn builder(&self, items: u64) -> Option<Box<dyn Build>> {
        let _ = items;
        None
    }

    /// The commands that build the value, for a large one; `None` if only RESTORE builds it.
    fn rebuild(&self) -> Option<Box<dyn Parts>> {
        None
    }

    /// False if a value being built needs more items to be valid.
    fn is_complete(&self) -> bool {
        true
    }

    /// True for an empty collection; then its key is removed.
    fn is_empty(&self) -> bool {
        false
    }

    /// The bytes, if the value is entirely a pack of its type, so that it may be stored in its
    /// key's entry.
    fn packed(&self) -> Option<PackedValue<'_>> {
        None
    }

    /// Becomes the value with these bytes. Returns false, without a change, if they are of another
    /// type.
    fn take_packed(&mut self, packed: PackedValue<'_>) -> bool {
        let _ = packed;
        false
    }

    /// Panics if an invariant of the structure is violated. Cost: O(entries); called for small
    /// values only.
    fn check_invariants(&self) {}

    /// The earliest deadline of an entry, or a lower bound; 0 while [`Value::reap`] has other
    /// background work for the value.
    fn earliest_deadline(&self) -> Option<u64> {
        None
    }

    /// Removes at most `most` entries that have expired at `now`, and records each removal; or does
    /// as much other background work without a visible effect. Returns true while more is left.
    fn reap(&mut self, now: u64, most: usize, recorder: &mut Recorder<'_>) -> bool {
        let _ = (now, most, recorder);
        false
    }

    /// True if an entry is live at `now`, judging by `segments` segments; others count as live.
    fn has_living(&self, now: u64, segments: usize) -> bool {
        let _ = (now, segments);
        true
    }

    /// The entries, if prefetching them is worthwhile.
    fn ahead(&self) -> Option<&dyn Ahead> {
        self.named().map(|named| named as &dyn Ahead)
    }

    /// The entries, if they are found by the hash of their names, and may have deadlines.
    fn named(&self) -> Option<&dyn Named> {
        None
    }

    /// [`Value::named`] for changes.
    fn named_mut(&mut self) -> Option<&mut dyn Named> {
        None
    }
}

/// Entries that can be prefetched by the hashes of their names.
pub trait Ahead {
    /// The number of entries, including expired ones.
    fn entries(&self) -> usize;

    /// Prefetches the index line of the entry with this hash.
    fn prefetch(&self, hash: u64);

    /// Prefetches the entries with these hashes, whose index lines have been prefetched.
    fn prefetch_entries(&self, hashes: &[u64]);
}

/// Entries that are found by the hashes of their names, and may have deadlines: fields, members.
pub trait Named: Ahead {
    /// The deadline of the entry, if it exists and is live at `now`.
    fn deadline_of(&self, name: &[u8], now: u64) -> Option<Option<u64>>;

    /// Copies the places of entries that a cut shares: see `Db::unshare`.
    fn unshare(&mut self, names: &[&[u8]], touch: Touch, preempt: &dyn Preempt) -> Option<usize>;
}

/// A type of value.
pub trait Typed: Value + Clone + Default {
    /// The row.
    const TYPE: &'static Type;
}

/// A type whose values are tables. The pack of a small value is a table's pack, whose entries are
/// found without a copy.
pub trait Tabular: Typed {
    /// The out-of-line part of its entries.
    type Out: OutOfLine;

    /// The entries, including expired ones that have not been removed.
    fn table(&self) -> &Table<Self::Out>;
}

/// A type whose values start empty, and are changed entry by entry.
pub trait Collection: Typed {
    /// Changes a value, and records the changes.
    type Edit<'a>;

    /// Starts a change at `now`.
    fn edit<'a>(&'a mut self, now: u64, recorder: Recorder<'a>) -> Self::Edit<'a>;

    /// Starts an edit outside a database, for values being built in slices.
    fn edit_aside(&mut self, now: u64) -> Self::Edit<'_> {
        self.edit(now, Recorder::none())
    }
}

/// Bytes of memory of a value, including its header. Cost: O(1).
#[must_use]
pub fn memory_bytes(object: &Object) -> usize {
    object.content_bytes() + object.cell_bytes()
}

/// True if a collection has entries, and all of them have expired at `now`. Only a few segments are
/// searched: if nothing is live in these, the rest counts as live. So a huge collection whose
/// entries all expire at once exists until it is reaped (docs/compat.md).
pub(crate) fn is_hollow(object: &Object, now: u64) -> bool {
    const SEGMENTS: usize = 4;
    !object.has_living(now, SEGMENTS)
}

/// The type of a value; without an object it is a short string.
pub(crate) fn kind(object: Option<&Object>) -> &'static Type {
    object.map_or(Blob::TYPE, Object::row)
}

/// `object` as a `V`.
pub(crate) fn as_type<V: Typed>(object: Option<&Object>) -> Result<&V, WrongType> {
    object.and_then(Object::get).ok_or(WrongType)
}

//! An out-of-line value, and the interface of every type of value.
//!
//! A type is a row ([`Type`]) and an implementation of [`Value`]. Code that knows the type asks for
//! it ([`Object::get`](darter_structs::shared::Shared::get): a comparison of pointers); all other
//! code calls what all values can do, and what some can ([`Named`]). Nothing here lists the types.

use crate::build::Build;
use crate::clocks::Clock;
use crate::encoding::Bound;
use crate::items::NewItem;
use crate::log::Recorder;
use crate::{Touch, WrongType};
use darter_base::Preempt;
use darter_base::number::{I64_TEXT_MAX, i64_text};
use darter_rdb::{Items, Kind};
use darter_structs::blob::Blob;
use darter_structs::shared::{Family, Holds, Shared};
use darter_structs::table::{OutOfLine, PackedValue, Table};

/// A reference-counted value. Cloning one is a cut. Its mark is the moment under which the database
/// keeps it in order.
pub type Object = Shared<Values>;

/// All out-of-line values.
pub struct Values;

impl Family for Values {
    type Face = dyn Value;
    type Row = Type;
    type Mark = Clock;
    /// The keyspace keeps times of access.
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

/// The row of a type: the facts that need no value.
#[derive(Debug)]
pub struct Type {
    /// The name that TYPE replies with.
    pub name: &'static str,
    /// Redis's number of it, in DEBUG DIGEST among others: below [`Type::NUMBERS`].
    pub number: usize,
    /// How its values are laid out in files and payloads.
    pub rdb: &'static Kind,
    /// Creates an empty value, to be filled by [`Value::take_in`].
    pub empty: fn() -> Object,
    /// The settings that decide its encodings' names.
    pub bounds: &'static [&'static Bound],
    /// Whether the order of the items is part of a value: DEBUG DIGEST.
    pub is_ordered: bool,
}

impl Type {
    /// Redis has seven: string, list, set, sorted set, hash, module, stream. The others are Darter's
    /// own, of types that are modules' in Redis.
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

/// A list of types, of their rows.
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

    /// Their rows.
    pub fn iter(&self) -> impl Iterator<Item = &'static Type> + use<> {
        self.rows.iter().copied()
    }

    /// Their kinds, for a reader of files and payloads.
    #[must_use]
    pub fn kinds(&self) -> &'static [&'static Kind] {
        self.kinds
    }

    /// The type of a value that such a reader has found.
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
    /// Bytes of memory that it owns, itself not included. Cost: O(1).
    fn content_bytes(&self) -> usize;

    /// The name that OBJECT ENCODING replies: Redis 7.0's.
    fn encoding(&self) -> &'static str;

    /// The items, as of `now`: from a cut. O(1).
    fn items(&self, now: u64) -> Items;

    /// Adds the next item to a value that is built aside. False when it is already there, or not an
    /// item of this type: then the value is of no use.
    fn take_in(&mut self, item: NewItem<'_>) -> bool {
        let _ = item;
        false
    }

    /// Adds all items of a value that is built aside and has none yet: as [`Value::take_in`] of each.
    /// They are few enough for a slice.
    fn take_all(&mut self, items: &[NewItem<'_>]) -> bool {
        items.iter().all(|item| self.take_in(*item))
    }

    /// Adds the next items to a value that is built aside, names alone: the decimal texts of these
    /// numbers. Otherwise as [`Value::take_in`] of each.
    fn take_numbers(&mut self, numbers: &[i64]) -> bool {
        let mut text = [0; I64_TEXT_MAX];
        numbers.iter().all(|number| {
            self.take_in(NewItem::Single { name: i64_text(&mut text, *number), deadline: None })
        })
    }

    /// As [`Value::take_in`] of each of these names.
    fn take_names(&mut self, names: &[&[u8]]) -> bool {
        names.iter().all(|name| self.take_in(NewItem::Single { name, deadline: None }))
    }

    /// A builder that gathers the items of a value that is built aside, if there are very many:
    /// about `items`. Asked of one that has none.
    fn builder(&self, items: u64) -> Option<Box<dyn Build>> {
        let _ = items;
        None
    }

    /// False for a value that is built aside and needs more items to be one.
    fn is_complete(&self) -> bool {
        true
    }

    /// True when nothing is left of a collection: then the key goes.
    fn is_empty(&self) -> bool {
        false
    }

    /// The bytes, if it is nothing but a pack of its type: then it may be stored in its key's
    /// entry.
    fn packed(&self) -> Option<PackedValue<'_>> {
        None
    }

    /// Becomes the value that had these bytes. False, without a change, if it was of another type.
    fn take_packed(&mut self, packed: PackedValue<'_>) -> bool {
        let _ = packed;
        false
    }

    /// Panics when an invariant of its structure does not hold. Cost: O(entries): asked of small
    /// values only.
    fn check_invariants(&self) {}

    /// The earliest deadline of an entry, or a bound below it; 0 while the value has other work that
    /// [`Value::reap`] does in the background.
    fn earliest_deadline(&self) -> Option<u64> {
        None
    }

    /// Removes entries that are dead at `now`, at most `most`, and records each; or does as much other
    /// work that has no visible effect. True while more is left.
    fn reap(&mut self, now: u64, most: usize, recorder: &mut Recorder<'_>) -> bool {
        let _ = (now, most, recorder);
        false
    }

    /// True when some entry is alive at `now`, as far as `segments` segments show; the rest counts
    /// as alive.
    fn has_living(&self, now: u64, segments: usize) -> bool {
        let _ = (now, segments);
        true
    }

    /// The entries, if it is worth prefetching some.
    fn ahead(&self) -> Option<&dyn Ahead> {
        self.named().map(|named| named as &dyn Ahead)
    }

    /// The entries, if they are found by the hash of their names, and may have deadlines.
    fn named(&self) -> Option<&dyn Named> {
        None
    }

    /// [`Value::named`], for changing.
    fn named_mut(&mut self) -> Option<&mut dyn Named> {
        None
    }
}

/// Entries that can be prefetched by the hashes of their names.
pub trait Ahead {
    /// How many there are, dead ones included.
    fn entries(&self) -> usize;

    /// Prefetches the index line of the entry with this hash.
    fn prefetch(&self, hash: u64);

    /// Prefetches the entries with these hashes, whose index lines were prefetched before.
    fn prefetch_entries(&self, hashes: &[u64]);
}

/// Entries that are found by the hash of their names, and may have deadlines: fields, members.
pub trait Named: Ahead {
    /// The deadline of the entry, if it is there, alive at `now`.
    fn deadline_of(&self, name: &[u8], now: u64) -> Option<Option<u64>>;

    /// Makes the places of entries the value's own: see `Db::unshare`.
    fn unshare(&mut self, names: &[&[u8]], touch: Touch, preempt: &dyn Preempt) -> Option<usize>;
}

/// A type of value.
pub trait Typed: Value + Clone + Default {
    /// The row.
    const TYPE: &'static Type;
}

/// A type whose values are tables: the pack of a small one is a table's, and its entries are found
/// there without a copy.
pub trait Tabular: Typed {
    /// The out-of-line part of its entries.
    type Out: OutOfLine;

    /// The entries, the dead that are not yet reaped included.
    fn table(&self) -> &Table<Self::Out>;
}

/// A type whose values start empty, and are changed entry by entry.
pub trait Collection: Typed {
    /// Changes a value, and records the changes.
    type Edit<'a>;

    /// Starts a change at `now`.
    fn edit<'a>(&'a mut self, now: u64, recorder: Recorder<'a>) -> Self::Edit<'a>;

    /// Edits outside a database: for values that are built aside, in slices.
    fn edit_aside(&mut self, now: u64) -> Self::Edit<'_> {
        self.edit(now, Recorder::none())
    }
}

/// Bytes of memory of a value, including its header. Cost: O(1).
#[must_use]
pub fn memory_bytes(object: &Object) -> usize {
    object.content_bytes() + object.cell_bytes()
}

/// True when a collection has entries, and all of them are dead at `now`. Looks at a few segments
/// only: if nothing is alive in these, the rest counts as alive. So a huge one whose entries all
/// die at once exists until it is reaped (docs/compat.md).
pub(crate) fn is_hollow(object: &Object, now: u64) -> bool {
    const SEGMENTS: usize = 4;
    !object.has_living(now, SEGMENTS)
}

/// The type of a value: short strings are not out of line.
pub(crate) fn kind(object: Option<&Object>) -> &'static Type {
    object.map_or(Blob::TYPE, Object::row)
}

/// `object` as a `V`.
pub(crate) fn as_type<V: Typed>(object: Option<&Object>) -> Result<&V, WrongType> {
    object.and_then(Object::get).ok_or(WrongType)
}

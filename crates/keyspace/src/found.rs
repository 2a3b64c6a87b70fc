//! An existing key: reads its value in any representation.

use crate::Key;
use crate::access;
use crate::db::{BIT_RAW, COPIED_INT, WrongType, is_dead};
use crate::held::{Held, HeldValue};
use crate::items;
use crate::object::{self, Object, Tabular, Type, Typed, is_hollow, kind};
use crate::packed::{self, Lent};
use crate::text::{Str, StrPieces};
use darter_rdb::Items;
use darter_structs::table::{Entry, PackRef, PackedValue, ValueRef};

/// The entry of a live key.
#[derive(Clone, Copy)]
pub struct Found<'a>(pub(crate) Entry<'a, Object>);

const _: () = assert!(size_of::<Found<'_>>() == size_of::<usize>());

impl<'a> Found<'a> {
    /// Wraps an entry that was read from a cut of the keyspace; `None` if it has expired at `now`.
    #[inline]
    #[must_use]
    pub fn alive(entry: Entry<'a, Object>, now: u64) -> Option<Self> {
        let found = Self(entry);
        (!is_dead(entry.deadline(), now) && !found.is_hollow(now)).then_some(found)
    }

    /// True for a collection whose entries have all expired: it counts as absent, though it is not
    /// removed yet.
    #[inline]
    pub(crate) fn is_hollow(&self, now: u64) -> bool {
        self.object()
            .is_some_and(|object| is_dead(object.mark().at(), now) && is_hollow(object, now))
    }

    /// The entry itself.
    #[must_use]
    pub fn entry(&self) -> Entry<'a, Object> {
        self.0
    }

    /// The type.
    #[must_use]
    pub fn kind(&self) -> &'static Type {
        self.packed().map_or_else(|| kind(self.object()), |packed| packed::kind(packed.note))
    }

    /// The value, if it is a small collection in the entry.
    #[inline]
    fn packed(&self) -> Option<PackedValue<'a>> {
        packed::in_entry(&self.0)
    }

    /// The value, unless it is a string in the entry; a small collection is copied.
    #[must_use]
    pub fn to_object(&self) -> Option<Object> {
        self.packed().map(packed::object).or_else(|| self.object().cloned())
    }

    /// The value, if it is out of line.
    #[must_use]
    pub fn object(&self) -> Option<&'a Object> {
        self.0.out()
    }

    /// The string.
    #[inline]
    pub fn text(&self) -> Result<Str<'a>, WrongType> {
        match self.0.value() {
            ValueRef::Text(text) => Ok(Str::Inline(text)),
            ValueRef::Packed(_) => Err(WrongType),
            ValueRef::Out(object) => object.get().map(Str::Blob).ok_or(WrongType),
        }
    }

    /// The value, which must be a `V`.
    #[inline]
    pub fn value<V: Typed>(&self) -> Result<Lent<'a, V>, WrongType> {
        match self.packed() {
            Some(packed) => packed::value(packed).map(Lent::Copied).ok_or(WrongType),
            None => object::as_type(self.object()).map(Lent::There),
        }
    }

    /// The value, if it is out of line; it must be a `V`.
    #[inline]
    pub fn out_of_line<V: Typed>(&self) -> Result<&'a V, WrongType> {
        object::as_type(self.object())
    }

    /// The bytes of the value, if it is a pack of a `V` in the entry. Reading these in place is
    /// cheaper than copying.
    #[inline]
    #[must_use]
    pub fn pack_of<V: Typed>(&self) -> Option<&'a [u8]> {
        V::TYPE.unpack(self.packed()?).map(|(bytes, _)| bytes)
    }

    /// The entry of `name` (expired or not) in the value, which must be a `V`. Nothing is copied.
    #[inline]
    pub fn look<V: Tabular>(&self, name: &Key<'_>) -> Result<Option<Entry<'a, V::Out>>, WrongType> {
        match self.packed() {
            Some(packed) => {
                let (bytes, _) = V::TYPE.unpack(packed).ok_or(WrongType)?;
                Ok(PackRef::new(bytes).get(name.hash, name.bytes))
            }
            None => {
                let value: &V = object::as_type(self.object())?;
                Ok(value.table().get(name.hash, name.bytes))
            }
        }
    }

    /// The deadline of the entry with this name in the value, if it exists; for collections whose
    /// entries are found by name.
    pub fn deadline_of(&self, name: &[u8], now: u64) -> Result<Option<Option<u64>>, WrongType> {
        let copy = self.packed().map(packed::object);
        let object = copy.as_ref().or_else(|| self.object());
        let named = object.and_then(|object| object.named()).ok_or(WrongType)?;
        Ok(named.deadline_of(name, now))
    }

    /// The items of the value as of `now`, from a cut.
    #[must_use]
    pub fn items(&self, now: u64) -> Items {
        match self.to_object() {
            Some(object) => object.items(now),
            None => {
                let text = self.text().map_or_else(|_| Vec::new(), |text| text.to_vec());
                items::of_text(StrPieces::Bytes(text))
            }
        }
    }

    /// Seconds since its last access, rounded down.
    #[must_use]
    pub fn idle_seconds(&self, now: u64) -> u64 {
        access::idle_seconds(self.0.stamp(), now)
    }

    /// The deadline, in Unix milliseconds.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.0.deadline()
    }

    /// True if the string has been edited in place.
    #[must_use]
    pub fn is_raw(&self) -> bool {
        self.0.bits() == BIT_RAW
    }

    /// True if Redis would store the string as an integer.
    #[must_use]
    pub fn is_int(&self) -> bool {
        matches!(self.0.bits(), 0 | COPIED_INT)
            && self.text().is_ok_and(|text| text.as_int().is_some())
    }

    /// True if the string is an integer made by COPY.
    #[must_use]
    pub fn is_copied_int(&self) -> bool {
        self.0.bits() == COPIED_INT
    }

    /// The reply of OBJECT ENCODING: Redis 7.0's name.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        /// Redis stores strings up to this length in the object itself.
        const EMBEDDED_MAX: usize = 44;
        match (self.object(), self.text()) {
            (Some(object), _) => object.encoding(),
            (None, Err(_)) => self.to_object().map_or("", |object| object.encoding()),
            (None, Ok(_)) if self.is_int() => "int",
            (None, Ok(text)) if !self.is_raw() && text.len() <= EMBEDDED_MAX => "embstr",
            _ => "raw",
        }
    }

    /// The value with its deadline, for a second key. A long value is shared, not copied.
    #[must_use]
    pub fn hold_copy(&self) -> Held {
        let mut held = self.hold();
        if self.is_int() {
            held.bits = COPIED_INT;
        }
        held
    }

    /// The value with its deadline, for storing at another key. A long value is shared, not copied.
    #[must_use]
    pub fn hold(&self) -> Held {
        let value = match self.to_object() {
            Some(object) => HeldValue::Object(object),
            None => HeldValue::Text(self.text().map(|text| text.to_vec()).unwrap_or_default()),
        };
        Held { value, deadline: self.deadline(), bits: self.0.bits(), stamp: None, source: None }
    }
}

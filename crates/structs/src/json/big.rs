//! Large containers: trees of chunks.
//!
//! An object's members are in a tree by their place, as they were added; the last one takes the
//! place of one that is removed, as in RedisJSON. Above [`INDEX_MIN`] members an index leads from a
//! name's hash to its place: that of sorted sets, with places for scores.

use super::item::{self, Code, Elements, Long, Members};
use super::value::{JsonText, Value};
use crate::chunk::{Chunk, Coding, own};
use crate::owner::Owner;
use crate::sorted::index::{Hash, Index};
use crate::tree::{self, Subtree, TreeSpot, defer};
use std::fmt;
use std::ops::Range;

/// Objects with fewer members have no index: their members are compared.
pub(super) const INDEX_MIN: usize = 64;

/// A large array.
#[derive(Clone, Default)]
pub(super) struct Array {
    pub(super) tree: Option<Subtree<Elements>>,
}

/// A large object.
#[derive(Clone, Default)]
pub(super) struct Object {
    pub(super) tree: Option<Subtree<Members>>,
    index: Index,
}

impl Drop for Array {
    fn drop(&mut self) {
        defer(self.tree.take(), Owner::default());
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        defer(self.tree.take(), Owner::default());
        defer(self.index.0.take(), Owner::default());
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "an array of {}", self.len())
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "an object of {}", self.len())
    }
}

/// Puts an item in the place of another.
fn set<C: Coding<Long = Long, First = ()>>(
    tree: &mut Option<Subtree<C>>,
    index: usize,
    code: &C::Code<'_>,
) {
    let all = tree.as_mut().expect("the item is there");
    debug_assert!(index < all.len, "index={index} len={}", all.len);
    if !all.edit(index, &mut |chunk, at| own(chunk).set(at, code)) {
        tree::insert(tree, index, code);
        tree::remove(tree, index + 1);
    }
}

fn bytes_of<C: Coding>(tree: Option<&Subtree<C>>) -> usize {
    tree.map_or(0, |tree| tree.bytes)
}

impl Array {
    pub(super) fn len(&self) -> usize {
        self.tree.as_ref().map_or(0, |tree| tree.len)
    }

    pub(super) fn tree_bytes(&self) -> usize {
        bytes_of(self.tree.as_ref())
    }

    pub(super) fn insert(&mut self, index: usize, value: Code<'_>) {
        debug_assert!(index <= self.len(), "index={index} len={}", self.len());
        debug_assert_eq!(value.long.is_some(), item::outside(value.bytes).is_some());
        tree::insert(&mut self.tree, index, &value);
    }

    pub(super) fn set(&mut self, index: usize, value: Code<'_>) {
        set(&mut self.tree, index, &value);
    }

    pub(super) fn remove_range(&mut self, range: Range<usize>) {
        debug_assert!(range.end <= self.len(), "{range:?} of {}", self.len());
        defer(tree::remove_range(&mut self.tree, range), Owner::default());
    }

    /// Takes a value out to be changed; null is in its place until then, so that there is no other
    /// reference.
    pub(super) fn take(&mut self, index: usize) -> Value {
        debug_assert!(index < self.len(), "index={index} len={}", self.len());
        let (chunk, first) = self.tree.as_ref().expect("it is there").find(index);
        let bytes = &chunk.items()[chunk.offset(index - first)..];
        let long = item::outside(bytes).map(|number| chunk.long(number).clone());
        let value = Value { bytes: bytes[..item::len(bytes)].to_vec(), long };
        if value.long.is_some() {
            self.set(index, Code { bytes: &[item::NULL], long: None });
        }
        value
    }
}

/// A member in its stored form, made of its parts.
struct NewMember {
    bytes: Vec<u8>,
    long: Option<Long>,
}

impl NewMember {
    fn of(name: JsonText<'_>, value: Code<'_>) -> Self {
        if name.len() > item::NAME_MAX {
            let member = item::Member {
                name: name.to_blob(),
                bytes: value.bytes.to_vec(),
                long: value.long.cloned(),
            };
            let long = Some(Long::Member(std::sync::Arc::new(member)));
            return Self { bytes: vec![item::MEMBER_OUT, 0, 0], long };
        }
        debug_assert_eq!(value.long.is_some(), item::outside(value.bytes).is_some());
        let mut bytes = Vec::with_capacity(name.len() + 3 + value.bytes.len());
        name.with_bytes(|name| item::push_text(&mut bytes, name));
        bytes.extend_from_slice(value.bytes);
        Self { bytes, long: value.long.cloned() }
    }

    fn code(&self) -> Code<'_> {
        Code { bytes: &self.bytes, long: self.long.as_ref() }
    }
}

/// The name and the value of the member at the front of `bytes`.
pub(super) fn member<'a>(
    bytes: &'a [u8],
    long: Option<&'a Long>,
) -> (JsonText<'a>, &'a [u8], Option<&'a Long>) {
    debug_assert_eq!(long.is_some(), Members::outside(bytes).is_some());
    if let (item::MEMBER_OUT, Some(Long::Member(member))) = (bytes[0], long) {
        return (JsonText::Blob(&member.name), &member.bytes, member.long.as_ref());
    }
    let at = item::name_len(bytes);
    let end = at + item::len(&bytes[at..]);
    (JsonText::Bytes(item::text(bytes)), &bytes[at..end], long)
}

/// The member at this offset of a chunk.
fn member_at(chunk: &Chunk<Members>, offset: usize) -> (JsonText<'_>, &[u8], Option<&Long>) {
    let bytes = &chunk.items()[offset..];
    member(bytes, Members::outside(bytes).map(|number| chunk.long(number)))
}

impl Object {
    pub(super) fn len(&self) -> usize {
        self.tree.as_ref().map_or(0, |tree| tree.len)
    }

    pub(super) fn tree_bytes(&self) -> usize {
        bytes_of(self.tree.as_ref()) + self.index.memory_bytes()
    }

    /// The name, and the value in its stored form, of the member at this place.
    pub(super) fn get(&self, index: usize) -> (JsonText<'_>, &[u8], Option<&Long>) {
        debug_assert!(index < self.len(), "index={index} len={}", self.len());
        let (chunk, first) = self.tree.as_ref().expect("it is there").find(index);
        member_at(chunk, chunk.offset(index - first))
    }

    fn is_named(&self, index: usize, name: JsonText<'_>) -> bool {
        self.get(index).0 == name
    }

    /// The place of the member with this name.
    pub(super) fn find(&self, name: JsonText<'_>) -> Option<usize> {
        if self.index.len() > 0 {
            let is_it = |place: f64| self.is_named(place as usize, name).then_some(place as usize);
            return self.index.find(hash(name), is_it).ok().map(|(_, place)| place);
        }
        let tree = self.tree.as_ref()?;
        let mut place = 0;
        while place < tree.len {
            let (chunk, _) = tree.find(place);
            let mut offset = 0;
            while offset < chunk.items().len() {
                if member_at(chunk, offset).0 == name {
                    return Some(place);
                }
                offset += item::member_len(&chunk.items()[offset..]);
                place += 1;
            }
        }
        None
    }

    /// Adds a member whose name is new.
    pub(super) fn push(&mut self, name: JsonText<'_>, value: Code<'_>) {
        let place = self.len();
        debug_assert!(self.find(name).is_none(), "a name is there once");
        tree::insert(&mut self.tree, place, &NewMember::of(name, value).code());
        if self.index.len() > 0 {
            self.index.add(hash(name), place as f64);
        } else if place >= INDEX_MIN {
            let hashes: Vec<_> = (0..=place).map(|place| hash(self.get(place).0)).collect();
            for (place, hash) in hashes.into_iter().enumerate() {
                self.index.add(hash, place as f64);
            }
        }
    }

    pub(super) fn set(&mut self, index: usize, value: Code<'_>) {
        let (name, ..) = self.get(index);
        debug_assert!(name.len() <= item::NAME_MAX || self.len() > 0);
        let new = NewMember::of(name, value);
        set(&mut self.tree, index, &new.code());
    }

    /// Removes the member at this place; the last one takes it.
    pub(super) fn remove(&mut self, index: usize) {
        let last = self.len() - 1;
        debug_assert!(index <= last, "index={index} last={last}");
        self.forget(index);
        if index != last {
            let (name, bytes, long) = self.get(last);
            let new = NewMember::of(name, Code { bytes, long });
            if let Some(spot) = self.spot(last) {
                self.index.set(&spot, hash(self.get(last).0), index as f64);
            }
            set(&mut self.tree, index, &new.code());
        }
        tree::remove(&mut self.tree, last);
        debug_assert_eq!(self.len(), last);
        debug_assert!(self.index.len() == 0 || self.index.len() == last, "J3");
    }

    /// The place of an index in the tree.
    fn spot(&self, place: usize) -> Option<TreeSpot> {
        let is_it = |other: f64| (other as usize == place).then_some(());
        let find = || self.index.find(hash(self.get(place).0), is_it);
        (self.index.len() > 0).then(|| find().expect("all are in it").0)
    }

    fn forget(&mut self, place: usize) {
        if let Some(spot) = self.spot(place) {
            self.index.remove(&spot);
        }
    }

    /// As [`Array::take`].
    pub(super) fn take(&mut self, index: usize) -> Value {
        let (_, bytes, long) = self.get(index);
        let value = Value { bytes: bytes.to_vec(), long: long.cloned() };
        if value.long.is_some() {
            self.set(index, Code { bytes: &[item::NULL], long: None });
        }
        value
    }

    /// Panics when an invariant does not hold.
    pub(super) fn check(&self) {
        let Some(tree) = &self.tree else { return };
        tree.check(true);
        self.index.check();
        assert!(self.index.len() == 0 || self.index.len() == self.len(), "J3");
        assert!(self.index.len() > 0 || self.len() <= INDEX_MIN, "J3");
        (0..self.len()).for_each(|place| assert_eq!(self.find(self.get(place).0), Some(place)));
    }
}

fn hash(name: JsonText<'_>) -> Hash {
    match name {
        JsonText::Bytes(bytes) => Hash::of(darter_base::hash::of(bytes)),
        JsonText::Blob(blob) => {
            let mut hasher = darter_base::hash::HashPortions::new();
            blob.slices(0..blob.len()).for_each(|piece| hasher.update(piece));
            Hash::of(hasher.finish())
        }
    }
}

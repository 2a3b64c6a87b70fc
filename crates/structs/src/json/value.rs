//! A value in its stored form, and how it is read and changed.

use super::big::{self, Array, Object};
use super::item::{self, Code, Elements, Long, Members, PACK_HEAD, PACK_MAX};
use crate::blob::Blob;
use crate::chunk::{Chunk, Coding, Held};
use crate::tree;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of UTF-8, or of whatever a client has sent as a name.
#[derive(Clone, Copy, Debug)]
pub enum JsonText<'a> {
    /// In one piece.
    Bytes(&'a [u8]),
    /// Long: in pieces.
    Blob(&'a Blob),
}

impl<'a> JsonText<'a> {
    /// Bytes.
    #[must_use]
    pub fn len(self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Blob(blob) => blob.len(),
        }
    }

    /// True for the empty text.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The pieces, in order.
    pub fn pieces(self) -> impl Iterator<Item = &'a [u8]> {
        let (bytes, blob) = match self {
            Self::Bytes(bytes) => (Some(bytes), None),
            Self::Blob(blob) => (None, Some(blob)),
        };
        bytes.into_iter().chain(blob.into_iter().flat_map(|blob| blob.slices(0..blob.len())))
    }

    /// A copy of the bytes in a range, as far as there are so many: for short ranges.
    #[must_use]
    pub fn part(self, range: Range<usize>) -> Vec<u8> {
        let range = range.start.min(self.len())..range.end.min(self.len());
        match self {
            Self::Bytes(bytes) => bytes[range].to_vec(),
            Self::Blob(blob) => blob.slices(range).collect::<Vec<_>>().concat(),
        }
    }

    /// A copy in one piece: for short ones.
    #[must_use]
    pub fn to_vec(self) -> Vec<u8> {
        self.pieces().collect::<Vec<_>>().concat()
    }

    pub(super) fn to_blob(self) -> Blob {
        match self {
            Self::Bytes(bytes) => Blob::from(bytes),
            Self::Blob(blob) => blob.clone(),
        }
    }

    /// Calls `f` with the bytes, in one piece.
    pub(super) fn with_bytes<R>(self, f: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Self::Bytes(bytes) => f(bytes),
            Self::Blob(blob) => f(&blob.to_vec()),
        }
    }
}

impl PartialEq for JsonText<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bytes(one), Self::Bytes(two)) => one == two,
            _ => {
                self.len() == other.len() && {
                    /// Bytes compared at once.
                    const PART: usize = 4 * 1024;
                    let mut parts = (0..self.len()).step_by(PART).map(|from| from..from + PART);
                    parts.all(|part| self.part(part.clone()) == other.part(part))
                }
            }
        }
    }
}

/// A value, to be read in place.
#[derive(Clone, Copy, Debug)]
pub enum View<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// One above the largest that is signed.
    Uint(u64),
    /// A number with a fraction or an exponent, finite.
    Float(f64),
    /// A string.
    Text(JsonText<'a>),
    /// An array or an object.
    Node(Node<'a>),
}

/// An array or an object.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    source: Source<'a>,
    is_object: bool,
}

#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    /// The items of a small one, and their count.
    Pack(&'a [u8], usize),
    Array(&'a Array),
    Object(&'a Object),
}

impl<'a> View<'a> {
    /// The value at the end of a path of places. `None` if there is none.
    #[must_use]
    pub fn at(self, path: &[usize]) -> Option<Self> {
        let mut view = self;
        for place in path {
            let View::Node(node) = view else { return None };
            view = node.get(*place)?.value;
        }
        Some(view)
    }
}

/// A value in an array or an object.
#[derive(Clone, Copy, Debug)]
pub struct Child<'a> {
    /// The name, in an object.
    pub name: Option<JsonText<'a>>,
    /// The value.
    pub value: View<'a>,
}

/// The value in these bytes, and in their outside part.
fn view<'a>(bytes: &'a [u8], long: Option<&'a Long>) -> View<'a> {
    let node = |source, is_object| View::Node(Node { source, is_object });
    match (bytes[0], long) {
        (item::NULL, _) => View::Null,
        (tag @ (item::FALSE | item::TRUE), _) => View::Bool(tag == item::TRUE),
        (item::INT..item::FLOAT, _) => View::Int(item::int(bytes)),
        (item::FLOAT, _) => View::Float(f64::from_le_bytes(item::eight(bytes))),
        (item::UINT, _) => View::Uint(u64::from_le_bytes(item::eight(bytes))),
        (tag @ (item::ARRAY | item::OBJECT), _) => {
            let items = &bytes[PACK_HEAD..item::len(bytes)];
            node(Source::Pack(items, item::count(bytes)), tag == item::OBJECT)
        }
        (item::TEXT_OUT, Some(Long::Text(blob))) => View::Text(JsonText::Blob(blob)),
        (item::ARRAY_OUT, Some(Long::Array(array))) => node(Source::Array(array), false),
        (item::OBJECT_OUT, Some(Long::Object(object))) => node(Source::Object(object), true),
        (tag, Some(_)) => unreachable!("tag {tag} is nothing outside"),
        (_, None) => View::Text(JsonText::Bytes(item::text(bytes))),
    }
}

impl<'a> Node<'a> {
    /// Bytes of memory, shared parts included. Cost: O(1).
    #[must_use]
    pub fn memory_bytes(self) -> usize {
        match self.source {
            Source::Pack(items, _) => items.len(),
            Source::Array(array) => array.tree_bytes(),
            Source::Object(object) => object.tree_bytes(),
        }
    }

    /// True for an object, false for an array.
    #[must_use]
    pub fn is_object(self) -> bool {
        self.is_object
    }

    /// Values in it.
    #[must_use]
    pub fn len(self) -> usize {
        match self.source {
            Source::Pack(_, count) => count,
            Source::Array(array) => array.len(),
            Source::Object(object) => object.len(),
        }
    }

    /// True when it holds nothing.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The value at this place. Cost: O(log n).
    #[must_use]
    pub fn get(self, index: usize) -> Option<Child<'a>> {
        self.iter(index).next()
    }

    /// The place of a member. Cost: O(log n). `None` in an array.
    #[must_use]
    pub fn find(self, name: JsonText<'_>) -> Option<usize> {
        match self.source {
            Source::Object(object) => object.find(name),
            _ if !self.is_object => None,
            _ => self.iter(0).position(|child| child.name == Some(name)),
        }
    }

    /// The values from a place on. Cost: O(log n), and some nanoseconds for each.
    #[must_use]
    pub fn iter(self, from: usize) -> Iter<'a> {
        let mut iter =
            Iter { node: self, run: Run::Pack, items: &[], offset: 0, next: from, run_end: 0 };
        if let Source::Pack(items, count) = self.source {
            (iter.items, iter.run_end) = (items, count);
            for _ in 0..from.min(count) {
                iter.offset += self.item_len(&items[iter.offset..]);
            }
        }
        iter
    }

    fn item_len(self, bytes: &[u8]) -> usize {
        if self.is_object { item::member_len(bytes) } else { item::len(bytes) }
    }
}

/// The values of an array or an object: see [`Node::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    node: Node<'a>,
    run: Run<'a>,
    items: &'a [u8],
    offset: usize,
    /// The place of the next value, and the one after its run.
    next: usize,
    run_end: usize,
}

#[derive(Clone, Copy)]
enum Run<'a> {
    Pack,
    Elements(&'a Chunk<Elements>),
    Members(&'a Chunk<Members>),
}

impl std::fmt::Debug for Run<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "a run")
    }
}

impl<'a> Iter<'a> {
    /// The place of the next value.
    #[must_use]
    pub fn place(&self) -> usize {
        self.next
    }

    /// Moves to the chunk of the next value.
    #[cold]
    fn advance(&mut self) {
        match self.node.source {
            Source::Array(Array { tree: Some(tree) }) => {
                let (chunk, first) = tree.find(self.next);
                self.enter(Run::Elements(chunk), chunk, first);
            }
            Source::Object(Object { tree: Some(tree), .. }) => {
                let (chunk, first) = tree.find(self.next);
                self.enter(Run::Members(chunk), chunk, first);
            }
            _ => unreachable!("there is a next value"),
        }
    }

    fn enter<C: Coding>(&mut self, run: Run<'a>, chunk: &'a Chunk<C>, first: usize) {
        (self.run, self.items) = (run, chunk.items());
        self.offset = chunk.offset(self.next - first);
        self.run_end = first + chunk.len();
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Child<'a>;

    #[inline]
    fn next(&mut self) -> Option<Child<'a>> {
        if self.next >= self.run_end {
            if self.next >= self.node.len() {
                return None;
            }
            self.advance();
        }
        debug_assert!(self.offset < self.items.len(), "{} of {}", self.next, self.run_end);
        let bytes = &self.items[self.offset..];
        let long = match self.run {
            Run::Pack => None,
            Run::Elements(chunk) => Elements::outside(bytes).map(|number| chunk.long(number)),
            Run::Members(chunk) => Members::outside(bytes).map(|number| chunk.long(number)),
        };
        self.offset += self.node.item_len(bytes);
        self.next += 1;
        if !self.node.is_object {
            return Some(Child { name: None, value: view(bytes, long) });
        }
        let (name, bytes, long) = big::member(bytes, long);
        Some(Child { name: Some(name), value: view(bytes, long) })
    }
}

/// A value in its stored form: its bytes, and their outside part.
#[derive(Clone, Debug)]
pub struct Value {
    pub(super) bytes: Vec<u8>,
    pub(super) long: Option<Long>,
}

/// The items of a tree that is a single chunk.
fn only<C: Coding>(tree: &tree::Subtree<C>) -> Option<&[u8]> {
    (!tree.is_node()).then(|| tree.find(0).0).filter(|chunk| chunk.longs() == 0).map(Chunk::items)
}

impl Value {
    fn small(bytes: Vec<u8>) -> Self {
        Self { bytes, long: None }
    }

    /// `null`.
    #[must_use]
    pub fn null() -> Self {
        Self::small(vec![item::NULL])
    }

    /// An array of nothing, or an object.
    #[must_use]
    pub fn empty(is_object: bool) -> Self {
        let tag = if is_object { item::OBJECT } else { item::ARRAY };
        Self::small(vec![tag, 0, 0, 0, 0])
    }

    /// A string.
    #[must_use]
    pub fn text(text: JsonText<'_>) -> Self {
        if text.len() > item::TEXT_MAX {
            let long = Some(Long::Text(text.to_blob()));
            return Self { bytes: vec![item::TEXT_OUT, 0, 0], long };
        }
        let mut bytes = Vec::with_capacity(text.len() + 3);
        text.with_bytes(|text| item::push_text(&mut bytes, text));
        Self::small(bytes)
    }

    /// A value that is no container.
    #[must_use]
    pub fn scalar(view: View<'_>) -> Self {
        let mut bytes = Vec::new();
        match view {
            View::Null => return Self::null(),
            View::Bool(is_true) => bytes.push(if is_true { item::TRUE } else { item::FALSE }),
            View::Int(value) => item::push_int(&mut bytes, value),
            View::Uint(value) => {
                bytes.push(item::UINT);
                bytes.extend(value.to_le_bytes());
            }
            View::Float(value) => {
                bytes.push(item::FLOAT);
                bytes.extend(value.to_le_bytes());
            }
            View::Text(text) => return Self::text(text),
            View::Node(_) => unreachable!("a container is copied by cloning its value"),
        }
        Self::small(bytes)
    }

    /// The value, to be read.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        view(&self.bytes, self.long.as_ref())
    }

    /// The array or object that it is.
    #[must_use]
    pub fn node(&self) -> Option<Node<'_>> {
        if let View::Node(node) = self.view() { Some(node) } else { None }
    }

    /// Bytes of memory besides itself, shared parts included. Cost: O(1).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.long.as_ref().map_or(0, Long::memory_bytes)
    }

    /// The bytes, if they are all of it: to be stored anywhere.
    #[must_use]
    pub fn packed(&self) -> Option<&[u8]> {
        self.long.is_none().then_some(&self.bytes)
    }

    /// The value that had these bytes.
    #[must_use]
    pub fn of_packed(bytes: &[u8]) -> Self {
        Self::small(bytes.to_vec())
    }

    fn code(&self) -> Code<'_> {
        Code { bytes: &self.bytes, long: self.long.as_ref() }
    }

    /// The value at the end of a path of places. `None` if there is none.
    #[must_use]
    pub fn at(&self, path: &[usize]) -> Option<View<'_>> {
        self.view().at(path)
    }

    /// A copy of the value at the end of a path, which shares unchanged parts. Cost: O(log n) a
    /// step.
    #[must_use]
    pub fn copy_at(&self, path: &[usize]) -> Option<Self> {
        let mut value = self.clone();
        for place in path {
            value = value.child(*place)?;
        }
        Some(value)
    }

    fn child(&self, place: usize) -> Option<Self> {
        let node = self.node().filter(|node| place < node.len())?;
        Some(match node.source {
            Source::Pack(..) => Self::small(self.bytes[self.range(place)].to_vec()),
            Source::Array(array) => {
                let (chunk, first) = array.tree.as_ref()?.find(place);
                let bytes = &chunk.items()[chunk.offset(place - first)..];
                let long = item::outside(bytes).map(|number| chunk.long(number).clone());
                Self { bytes: bytes[..item::len(bytes)].to_vec(), long }
            }
            Source::Object(object) => {
                let (_, bytes, long) = object.get(place);
                Self { bytes: bytes.to_vec(), long: long.cloned() }
            }
        })
    }

    /// Changes the value at the end of a path, which must exist. Shared parts of the path are
    /// copied: a chunk and some nodes for each large container. Cost: O(log n) a step.
    pub fn edit<R>(&mut self, path: &[usize], f: impl FnOnce(&mut Self) -> R) -> R {
        let (mut f, mut result) = (Some(f), None);
        self.edit_dyn(path, &mut |value| {
            result = f.take().map(|f| f(value));
        });
        result.expect("it was called")
    }

    fn edit_dyn(&mut self, path: &[usize], f: &mut dyn FnMut(&mut Self)) {
        let Some((place, rest)) = path.split_first() else { return f(self) };
        let len = self.node().map(Node::len);
        assert!(len.is_some_and(|len| *place < len), "place={place} of {len:?}");
        let mut child = match &mut self.long {
            Some(Long::Array(array)) => Arc::make_mut(array).take(*place),
            Some(Long::Object(object)) => Arc::make_mut(object).take(*place),
            _ => Self::small(self.bytes[self.range(*place)].to_vec()),
        };
        debug_assert_eq!(child.long.is_some(), item::outside(&child.bytes).is_some());
        child.edit_dyn(rest, f);
        self.set(*place, &child);
    }

    /// The bytes of the value at this place in a small container.
    fn range(&self, place: usize) -> Range<usize> {
        let item = self.item_range(place);
        let name = if self.bytes[0] == item::OBJECT {
            item::name_len(&self.bytes[item.start..])
        } else {
            0
        };
        item.start + name..item.end
    }

    /// The bytes of the item at this place, its name included; the end, for the place after the
    /// last.
    fn item_range(&self, place: usize) -> Range<usize> {
        let node = self.node().expect("a container");
        let mut at = PACK_HEAD;
        for _ in 0..place {
            at += node.item_len(&self.bytes[at..]);
        }
        let len = if place < node.len() { node.item_len(&self.bytes[at..]) } else { 0 };
        at..at + len
    }

    /// Puts a value in the place of another.
    pub fn set(&mut self, place: usize, value: &Self) {
        debug_assert!(self.node().is_some_and(|node| place < node.len()), "place={place}");
        debug_assert_eq!(value.long.is_some(), item::outside(&value.bytes).is_some());
        if self.long.is_none() {
            let range = self.range(place);
            let bytes = self.bytes.len() - PACK_HEAD - range.len() + value.bytes.len();
            if value.long.is_none() && bytes <= PACK_MAX {
                let count = item::count(&self.bytes);
                self.bytes.splice(range, value.bytes.iter().copied());
                return item::write_head(&mut self.bytes, count);
            }
            self.unpack();
        }
        match self.long.as_mut() {
            Some(Long::Array(array)) => Arc::make_mut(array).set(place, value.code()),
            Some(Long::Object(object)) => Arc::make_mut(object).set(place, value.code()),
            _ => unreachable!("a container"),
        }
    }

    /// Adds a value to an array, before the one at this place or at the end.
    pub fn insert(&mut self, place: usize, value: &Self) {
        let len = self.node().filter(|node| !node.is_object).map(Node::len);
        assert!(len.is_some_and(|len| place <= len), "place={place} of {len:?} in an array");
        if self.long.is_none() {
            let at = self.item_range(place).start;
            if value.long.is_none() && self.bytes.len() - PACK_HEAD + value.bytes.len() <= PACK_MAX
            {
                let count = item::count(&self.bytes);
                self.bytes.splice(at..at, value.bytes.iter().copied());
                return item::write_head(&mut self.bytes, count + 1);
            }
            self.unpack();
        }
        let Some(Long::Array(array)) = &mut self.long else { unreachable!("an array") };
        Arc::make_mut(array).insert(place, value.code());
    }

    /// Adds a value at the end of an array. Cost: as [`Value::insert`], without a walk.
    pub fn push(&mut self, value: &Self) {
        debug_assert!(self.node().is_some_and(|node| !node.is_object), "an array");
        if self.long.is_none() {
            let bytes = self.bytes.len() - PACK_HEAD + value.bytes.len();
            if value.long.is_none() && bytes <= PACK_MAX {
                let count = item::count(&self.bytes);
                self.bytes.extend_from_slice(&value.bytes);
                return item::write_head(&mut self.bytes, count + 1);
            }
            self.unpack();
        }
        let Some(Long::Array(array)) = &mut self.long else { unreachable!("an array") };
        let array = Arc::make_mut(array);
        array.insert(array.len(), value.code());
    }

    /// Gives a member of an object this value; a new one is the last.
    pub fn put(&mut self, name: JsonText<'_>, value: &Self) {
        let node = self.node().expect("an object");
        assert!(node.is_object, "an array has no members");
        if let Some(place) = node.find(name) {
            return self.set(place, value);
        }
        if self.long.is_none() {
            let bytes = self.bytes.len() - PACK_HEAD + 3 + name.len() + value.bytes.len();
            if value.long.is_none() && bytes <= PACK_MAX && name.len() <= item::NAME_MAX {
                let count = item::count(&self.bytes);
                name.with_bytes(|name| item::push_text(&mut self.bytes, name));
                self.bytes.extend_from_slice(&value.bytes);
                return item::write_head(&mut self.bytes, count + 1);
            }
            self.unpack();
        }
        let Some(Long::Object(object)) = &mut self.long else { unreachable!("an object") };
        Arc::make_mut(object).push(name, value.code());
    }

    /// Removes the values at these places of an array. Cost: O(log n); large parts are freed later.
    pub fn remove_range(&mut self, places: Range<usize>) {
        let len = self.node().filter(|node| !node.is_object).map(Node::len);
        assert!(len.is_some_and(|len| places.end <= len), "{places:?} of {len:?} in an array");
        assert!(places.start <= places.end, "{places:?}");
        match &mut self.long {
            Some(Long::Array(array)) => Arc::make_mut(array).remove_range(places),
            None => {
                let count = item::count(&self.bytes) - places.len();
                let (start, end) = (self.item_range(places.start), self.item_range(places.end));
                self.bytes.drain(start.start..end.start);
                item::write_head(&mut self.bytes, count);
            }
            Some(_) => unreachable!("an array"),
        }
        self.pack();
    }

    /// Removes the value at this place. In an object, the last member moves there. Cost: O(log n).
    pub fn remove(&mut self, place: usize) {
        let node = self.node().expect("a container");
        if !node.is_object {
            return self.remove_range(place..place + 1);
        }
        assert!(place < node.len(), "place={place} of {}", node.len());
        let count = node.len() - 1;
        if let Some(Long::Object(object)) = &mut self.long {
            Arc::make_mut(object).remove(place);
            return self.pack();
        }
        let (gone, last) = (self.item_range(place), self.item_range(count));
        let moved = self.bytes.split_off(last.start);
        if place < count {
            self.bytes.splice(gone, moved);
        }
        item::write_head(&mut self.bytes, count);
    }

    /// Turns a small container into a large one.
    fn unpack(&mut self) {
        debug_assert!(self.long.is_none(), "it is large");
        debug_assert!(self.node().is_some(), "a container");
        let is_object = self.bytes[0] == item::OBJECT;
        let (mut array, mut object) = (Array::default(), Object::default());
        let mut at = PACK_HEAD;
        for place in 0..item::count(&self.bytes) {
            let (name, start) = if is_object {
                let name = item::text(&self.bytes[at..]);
                (Some(JsonText::Bytes(name)), at + item::len(&self.bytes[at..]))
            } else {
                (None, at)
            };
            at = start + item::len(&self.bytes[start..]);
            let code = Code { bytes: &self.bytes[start..at], long: None };
            match name {
                Some(name) => object.push(name, code),
                None => array.insert(place, code),
            }
        }
        let (tag, long) = if is_object {
            (item::OBJECT_OUT, Long::Object(Arc::new(object)))
        } else {
            (item::ARRAY_OUT, Long::Array(Arc::new(array)))
        };
        *self = Self { bytes: vec![tag, 0, 0], long: Some(long) };
    }

    /// Turns a large container with little in it into a small one.
    fn pack(&mut self) {
        let (items, count, tag) = match &self.long {
            Some(Long::Array(array)) => match &array.tree {
                None => (Some(&[][..]), 0, item::ARRAY),
                Some(tree) => (only(tree), tree.len, item::ARRAY),
            },
            Some(Long::Object(object)) => match &object.tree {
                None => (Some(&[][..]), 0, item::OBJECT),
                Some(tree) => (only(tree), tree.len, item::OBJECT),
            },
            _ => return,
        };
        let Some(items) = items.filter(|items| items.len() <= PACK_MAX / 2) else { return };
        let mut bytes = Vec::with_capacity(PACK_HEAD + items.len());
        bytes.extend([tag, 0, 0, 0, 0]);
        bytes.extend_from_slice(items);
        item::write_head(&mut bytes, count);
        debug_assert_eq!(item::len(&bytes), bytes.len(), "J1");
        *self = Self::small(bytes);
    }

    /// Panics when an invariant does not hold. Cost: O(n): for tests.
    pub fn check_invariants(&self) {
        match &self.long {
            Some(Long::Array(array)) => {
                array.tree.as_ref().expect("J2").check(true);
            }
            Some(Long::Object(object)) => object.check(),
            Some(Long::Text(text)) => assert!(text.len() > item::TEXT_MAX, "J1"),
            Some(Long::Member(_)) => unreachable!("no value"),
            None => assert_eq!(item::len(&self.bytes), self.bytes.len(), "J1"),
        }
        let Some(node) = self.node() else { return };
        for place in 0..node.len() {
            self.child(place).expect("it is there").check_invariants();
        }
    }
}

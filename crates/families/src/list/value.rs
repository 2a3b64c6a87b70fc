//! The list type: its row, its values, its editor.

use darter_base::limits::CHUNK_BYTES;
use darter_keyspace::commands::{Commands, ITEMS_MAX};
use darter_keyspace::rebuild::{self, NOTHING_IS_DEAD, Parts};
use darter_keyspace::{
    Change, Collection, Db, Event, Fresh, Key, NewItem, Object, Recorder, Str, StrPieces, Type,
    Typed, Value, WrongType, is_long,
};
use darter_rdb::{Bounds, Encoding, Form, Item, Items, Kind, Layout, Plan, Source, Survey};
use darter_structs::blob::Blob;
use darter_structs::list::{
    self, Element, End, INLINE_MAX, ListReader, NewElement, Progress, Removal,
};
use darter_structs::table::PackedValue;
use std::ops::Range;
use std::sync::Arc;

static TYPE: &Type = &Type {
    name: "list",
    number: 1,
    rdb: &Kind { encodings: ENCODINGS, packed: Bounds::DEFAULT, plan },
    empty: || Object::new(List::new()),
    bounds: &[],
    is_ordered: true,
};

/// The file format of a list.
const NODES: u8 = 18;

#[rustfmt::skip] // A table.
const ENCODINGS: &[Encoding] = &[
    Encoding::new(NODES, Layout::Nodes(Form::Listpack)),
    // Before 7.0, before 3.2: small lists, and large lists.
    Encoding::new(14, Layout::Blocks(Form::Ziplist)),
    Encoding::new(10, Layout::Block(Form::Ziplist, 1)),
    Encoding::new(1,  Layout::Singles),
];

/// The format that Redis 7.0 would write.
fn plan(survey: &Survey) -> Plan {
    survey.nodes(NODES)
}

const LPUSH: &Event = &Event::new("lpush", b'l');
const RPUSH: &Event = &Event::new("rpush", b'l');
const LPOP: &Event = &Event::new("lpop", b'l');
const RPOP: &Event = &Event::new("rpop", b'l');
const LSET: &Event = &Event::new("lset", b'l');
const LINSERT: &Event = &Event::new("linsert", b'l');
const LREM: &Event = &Event::new("lrem", b'l');
const LTRIM: &Event = &Event::new("ltrim", b'l');

/// A list. Cloning it is a cut.
#[derive(Clone, Default)]
pub struct List(list::List);

/// An element, as a string for a reply.
#[inline]
pub(super) fn sent<'a>(element: &Element<'a>) -> Str<'a> {
    match *element {
        Element::Text(text) => Str::Inline(text),
        Element::Blob(blob) => Str::Blob(blob),
    }
}

/// Converts an element for the list.
pub(super) fn new(element: Fresh<'_>) -> NewElement<'_> {
    match element {
        Fresh::Bytes(bytes) if bytes.len() <= INLINE_MAX => NewElement::Bytes(bytes),
        _ => NewElement::Blob(element.to_blob()),
    }
}

impl List {
    /// An empty list. Allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The elements.
    #[must_use]
    pub fn elements(&self) -> &list::List {
        &self.0
    }

    /// A reader for the elements at these indexes in a cut; it does not count as a version of the
    /// list.
    #[must_use]
    pub fn reader(&self, indexes: Range<usize>) -> ListReader {
        ListReader::new(self.0.reader(), indexes)
    }
}

impl Value for List {
    fn content_bytes(&self) -> usize {
        self.0.memory_bytes()
    }

    fn encoding(&self) -> &'static str {
        "quicklist"
    }

    fn items(&self, _: u64) -> Items {
        Box::new(Elements::new(self.0.clone()))
    }

    fn take_in(&mut self, item: NewItem<'_>) -> bool {
        match item {
            NewItem::Element(blob) => self.0.push(End::Back, NewElement::Shared(blob.clone())),
            item => self.0.push(End::Back, item.name()),
        }
        true
    }

    fn rebuild(&self) -> Option<Box<dyn Parts>> {
        Some(rebuild::of_items(self.items(NOTHING_IS_DEAD), FORM))
    }

    fn take_numbers(&mut self, numbers: &[i64]) -> bool {
        self.0.push_numbers(numbers);
        true
    }

    fn take_names(&mut self, names: &[&[u8]]) -> bool {
        self.0.push_texts(names);
        true
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn packed(&self) -> Option<PackedValue<'_>> {
        self.0.packed().map(|bytes| TYPE.pack(false, bytes))
    }

    fn take_packed(&mut self, packed: PackedValue<'_>) -> bool {
        let Some((bytes, _)) = TYPE.unpack(packed) else { return false };
        self.0 = list::List::of_packed(bytes);
        true
    }

    fn check_invariants(&self) {
        self.0.check_invariants();
    }
}

impl Typed for List {
    const TYPE: &'static Type = TYPE;
}

impl Collection for List {
    type Edit<'a> = ListEdit<'a>;

    fn edit<'a>(&'a mut self, _: u64, recorder: Recorder<'a>) -> ListEdit<'a> {
        ListEdit { list: &mut self.0, recorder }
    }
}

/// The elements of a cut, one by one; the long ones in parts.
struct Elements {
    /// The cut, for the second pass, which frees the elements it has read.
    cut: Option<list::List>,
    reader: ListReader,
    element: Vec<u8>,
    /// A long element being returned, and the number of its bytes already returned.
    long: Option<(Blob, usize)>,
}

/// Bytes in one part of a long element; a part is hashed in one step.
const PART_BYTES: usize = CHUNK_BYTES / 4;

impl Elements {
    fn new(cut: list::List) -> Self {
        let reader = ListReader::new(cut.clone(), 0..cut.len());
        Self { cut: Some(cut), reader, element: Vec::new(), long: None }
    }

    /// Reads the next element.
    fn read(&mut self) {
        let Self { reader, element: bytes, long, .. } = self;
        bytes.clear();
        reader.next_slice(1, &mut |element| match element {
            Element::Text(text) => text.write_to(bytes),
            Element::Blob(blob) if is_long(blob.len()) => *long = Some((blob.clone(), 0)),
            Element::Blob(blob) => Str::Blob(blob).write_to(bytes),
        });
    }

    /// The next part of a long element.
    fn part(&mut self) -> Option<Item<'_>> {
        let (blob, given) = self.long.as_mut()?;
        let part = blob.slices(*given..blob.len().min(*given + PART_BYTES)).next()?;
        *given += part.len();
        Some(Item::Part(part))
    }
}

impl Source for Elements {
    fn next(&mut self) -> Option<Item<'_>> {
        self.long.take_if(|(blob, given)| *given == blob.len());
        if self.long.is_some() {
            return self.part();
        }
        if self.reader.left() == 0 {
            return None;
        }
        self.read();
        Some(match &self.long {
            Some((blob, _)) => Item::LongSingle { len: blob.len() as u64, deadline_ms: None },
            None => Item::Single { name: &self.element, deadline_ms: None },
        })
    }

    fn rewind(&mut self) {
        let cut = self.cut.take().expect("the second pass is the last");
        let len = cut.len();
        assert!(self.long.is_none(), "the first pass is not over");
        self.reader = ListReader::new(cut, 0..len);
    }
}

/// A change of a list, as recorded in the log. Indexes count from the front.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields are what the variant says, by their usual names")]
pub enum ListChange {
    /// Adds the element at an end.
    Push { end: End, element: StrPieces },
    /// Removes the element at an end.
    Pop { end: End },
    /// Adds the elements at an end, in this order.
    Attach { end: End, elements: list::List },
    /// Keeps only the elements at these indexes.
    Keep { indexes: Range<usize> },
    /// Replaces the element at this index.
    Replace { index: usize, element: StrPieces },
    /// Inserts the element at this index: before or after the first element equal to the pivot.
    Insert { index: usize, element: StrPieces, pivot: StrPieces, is_before: bool },
    /// Removes the element at this index, one of the equal elements that are removed from an end.
    Remove { index: usize, equal: Equal },
}

/// Elements of a list that equal this one, counted from an end.
#[derive(Clone, Debug)]
pub struct Equal {
    element: Arc<StrPieces>,
    from: End,
}

impl Equal {
    /// Elements equal to `element`.
    pub(super) fn new(element: Fresh<'_>, from: End) -> Self {
        Self { element: Arc::new(element.to_pieces()), from }
    }
}

impl Change for ListChange {
    const TYPE: &'static Type = TYPE;

    fn held_bytes(&self) -> usize {
        match self {
            Self::Push { element, .. } | Self::Replace { element, .. } => element.fresh().len(),
            Self::Insert { element, pivot, .. } => element.fresh().len() + pivot.fresh().len(),
            Self::Attach { elements, .. } => elements.memory_bytes(),
            Self::Pop { .. } | Self::Keep { .. } | Self::Remove { .. } => 0,
        }
    }

    fn apply(changes: &[Self], db: &mut Db, key: &Key<'_>) -> Result<(), WrongType> {
        db.edit::<List, _>(key, true, |edit| changes.iter().for_each(|change| edit.apply(change)))?;
        Ok(())
    }

    fn encode(changes: &[Self], key: &[u8], to: &mut Commands) {
        let mut runs = changes.chunk_by(Self::are_like);
        while let Some(run) = runs.next() {
            if let [Self::Keep { indexes }] = run
                && indexes.is_empty()
                && let Some(run) = runs.next()
            {
                // The key must not vanish, with its deadline, before the next elements come.
                Self::encode_run(run, key, to);
                keep_last(run, key, to);
            } else {
                Self::encode_run(run, key, to);
            }
        }
    }
}

impl ListChange {
    /// True if one command makes both changes.
    fn are_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Push { end, .. }, Self::Push { end: other, .. })
            | (Self::Pop { end }, Self::Pop { end: other }) => end == other,
            (Self::Remove { equal, .. }, Self::Remove { equal: other, .. }) => {
                Arc::ptr_eq(&equal.element, &other.element)
            }
            _ => false,
        }
    }

    fn encode_run(run: &[Self], key: &[u8], to: &mut Commands) {
        match &run[0] {
            Self::Push { end, .. } => {
                for part in run.chunks(ITEMS_MAX) {
                    push(key, *end, part.len(), to);
                    for change in part {
                        let Self::Push { element, .. } = change else { continue };
                        to.pieces(element);
                    }
                }
            }
            Self::Pop { end } => {
                let name: &[u8] = if *end == End::Front { b"LPOP" } else { b"RPOP" };
                to.begin(3);
                to.word(name);
                to.word(key);
                to.size(run.len());
            }
            Self::Attach { end, elements } => attach(key, *end, elements, to),
            Self::Keep { indexes } if indexes.is_empty() => to.command(&[b"UNLINK", key]),
            Self::Keep { indexes } => {
                trim(key, (indexes.start as i64, indexes.end as i64 - 1), to);
            }
            Self::Replace { index, element } => {
                to.begin(4);
                to.word(b"LSET");
                to.word(key);
                to.size(*index);
                to.pieces(element);
            }
            Self::Insert { element, pivot, is_before, .. } => {
                to.begin(5);
                to.word(b"LINSERT");
                to.word(key);
                to.word(if *is_before { b"BEFORE" } else { b"AFTER" });
                to.pieces(pivot);
                to.pieces(element);
            }
            Self::Remove { equal, .. } => {
                let count = run.len() as i64;
                to.begin(4);
                to.word(b"LREM");
                to.word(key);
                to.number(if equal.from == End::Front { count } else { -count });
                to.pieces(&equal.element);
            }
        }
    }
}

/// Begins a command that adds this many elements at an end.
fn push(key: &[u8], end: End, elements: usize, to: &mut Commands) {
    let name: &[u8] = if end == End::Front { b"LPUSH" } else { b"RPUSH" };
    to.begin(2 + elements);
    to.word(name);
    to.word(key);
}

/// Writes the commands that attach a list at an end.
fn attach(key: &[u8], end: End, elements: &list::List, to: &mut Commands) {
    let len = elements.len();
    for start in (0..len).step_by(ITEMS_MAX) {
        let indexes = start..len.min(start + ITEMS_MAX);
        push(key, end, indexes.len(), to);
        let mut write = |index: usize| {
            let element = elements.get(index).expect("the index is below the length");
            to.text(&sent(&element));
        };
        match end {
            End::Back => indexes.for_each(write),
            End::Front => indexes.for_each(|index| write(len - 1 - index)),
        }
    }
}

/// Writes the command that keeps only the elements that this run has added.
fn keep_last(run: &[ListChange], key: &[u8], to: &mut Commands) {
    let (end, added) = match &run[0] {
        ListChange::Attach { end, elements } => (*end, elements.len()),
        ListChange::Push { end, .. } => (*end, run.len()),
        other => unreachable!("{other:?} of an empty list"),
    };
    let added = added as i64;
    trim(key, if end == End::Front { (0, added - 1) } else { (-added, -1) }, to);
}

fn trim(key: &[u8], (first, last): (i64, i64), to: &mut Commands) {
    to.begin(4);
    to.word(b"LTRIM");
    to.word(key);
    to.number(first);
    to.number(last);
}

/// The commands that add elements at the end.
const FORM: rebuild::Form =
    rebuild::Form { head: |key, elements, _, to| push(key, End::Back, elements, to), until: None };

/// Changes a list, and records the effects.
pub struct ListEdit<'a> {
    list: &'a mut list::List,
    recorder: Recorder<'a>,
}

impl ListEdit<'_> {
    /// The current elements.
    #[must_use]
    pub fn elements(&self) -> &list::List {
        self.list
    }

    /// Adds an element at one end.
    pub fn push(&mut self, end: End, element: Fresh<'_>) {
        self.list.push(end, new(element));
        let change = || ListChange::Push { end, element: element.to_pieces() };
        self.recorder.record(&[pushed(end)], change);
    }

    /// Removes the element at one end after calling `f` with it.
    pub fn pop<R>(&mut self, end: End, f: impl FnOnce(Element<'_>) -> R) -> Option<R> {
        let result = self.list.pop(end, f)?;
        self.recorder.record(&[popped(end)], || ListChange::Pop { end });
        Some(result)
    }

    /// Removes and returns `count` elements at one end, in the list's order; all, if there are no
    /// more. Cost: O(log n).
    pub fn detach(&mut self, end: End, count: usize) -> list::List {
        let len = self.list.len();
        let count = count.min(len);
        let (gone, kept) = match end {
            End::Front => {
                let kept = self.list.split_off(count);
                (std::mem::replace(self.list, kept), count..len)
            }
            End::Back => (self.list.split_off(len - count), 0..len - count),
        };
        if count > 0 {
            self.recorder.count_more(count - 1);
            self.recorder.record(&[popped(end)], || ListChange::Keep { indexes: kept });
        }
        gone
    }

    /// Appends all elements of another list at one end, in order. Cost: O(log n).
    pub fn attach(&mut self, end: End, elements: list::List) {
        let Some(more) = elements.len().checked_sub(1) else { return };
        self.recorder.count_more(more);
        self.recorder
            .record(&[pushed(end)], || ListChange::Attach { end, elements: elements.clone() });
        match end {
            End::Back => self.list.append(elements),
            End::Front => {
                let rest = std::mem::replace(self.list, elements);
                self.list.append(rest);
            }
        }
    }

    /// Keeps only the elements at these indexes. Cost: O(log n).
    pub fn keep(&mut self, indexes: Range<usize>) {
        let len = self.list.len();
        let indexes = indexes.start.min(len)..indexes.end.min(len);
        let gone = len - indexes.len();
        self.list.cut(End::Back, len - indexes.end);
        self.list.cut(End::Front, indexes.start.min(self.list.len()));
        // Redis publishes its event even if nothing is removed, and counts the removed elements.
        self.recorder.count_more(gone);
        self.recorder.record_death(&[LTRIM], || ListChange::Keep { indexes });
    }

    /// Replaces the element at this index. Returns false if there is none.
    pub fn set(&mut self, index: usize, element: Fresh<'_>) -> bool {
        if index >= self.list.len() {
            return false;
        }
        self.list.set(index, new(element));
        self.recorder
            .record(&[LSET], || ListChange::Replace { index, element: element.to_pieces() });
        true
    }

    /// Inserts an element before or after the pivot, the first element that is equal to `pivot`, so
    /// that it has this index.
    pub fn insert(&mut self, index: usize, element: Fresh<'_>, pivot: Fresh<'_>, is_before: bool) {
        self.list.insert(index, new(element));
        self.recorder.record(&[LINSERT], || {
            let (element, pivot) = (element.to_pieces(), pivot.to_pieces());
            ListChange::Insert { index, element, pivot, is_before }
        });
    }

    /// Removes the element at this index. Panics if there is none.
    fn remove(&mut self, index: usize, equal: &Equal) {
        self.list.remove(index);
        self.recorder.record(&[LREM], || ListChange::Remove { index, equal: equal.clone() });
    }

    /// Continues removing elements by value: see [`Removal::next_slice`].
    pub fn remove_some(
        &mut self,
        removal: &mut Removal,
        equal: &Equal,
        max_runs: usize,
    ) -> Progress {
        let recorder = &mut self.recorder;
        removal.next_slice(self.list, max_runs, &mut |index| {
            recorder.record(&[LREM], || ListChange::Remove { index, equal: equal.clone() });
        })
    }

    fn apply(&mut self, change: &ListChange) {
        match change {
            ListChange::Push { end, element } => self.push(*end, element.fresh()),
            ListChange::Pop { end } => _ = self.pop(*end, |_| {}),
            ListChange::Attach { end, elements } => self.attach(*end, elements.clone()),
            ListChange::Keep { indexes } => self.keep(indexes.clone()),
            ListChange::Replace { index, element } => _ = self.set(*index, element.fresh()),
            ListChange::Insert { index, element, pivot, is_before } => {
                self.insert(*index, element.fresh(), pivot.fresh(), *is_before);
            }
            ListChange::Remove { index, equal } => self.remove(*index, equal),
        }
    }
}

fn pushed(end: End) -> &'static Event {
    if end == End::Front { LPUSH } else { RPUSH }
}

fn popped(end: End) -> &'static Event {
    if end == End::Front { LPOP } else { RPOP }
}

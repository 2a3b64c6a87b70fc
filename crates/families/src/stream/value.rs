//! The stream type: its row, its values, its editor.

mod commands;

use super::group_edit::GroupChange;
use super::idempotent::{Limits, Memory, Message};
use super::items::Entries as Source;
use darter_keyspace::rebuild::Parts;
use darter_keyspace::{
    Bound, Change, Collection, Commands, Db, Event, Fresh, Key, Name, NewItem, Object, Recorder,
    Str, Type, Typed, Value, WrongType,
};
use darter_rdb::{Bounds, Encoding, Generation, Items, Kind, Layout, Piece, Plan, Survey};
use darter_structs::blob::Blob;
use darter_structs::groups::Groups;
use darter_structs::list::INLINE_MAX;
use darter_structs::stream::{Element, End, Entries, Gathered, List, NewElement, StreamId};

static TYPE: &Type = &Type {
    name: "stream",
    number: 6,
    rdb: &Kind { encodings: ENCODINGS, packed: Bounds::DEFAULT, plan },
    empty: || Object::new(Stream::new()),
    bounds: &[&NODE_ENTRIES],
    is_ordered: true,
};

/// Approximate trimming removes a multiple of this number of entries: the size of a node in Redis.
pub(super) static NODE_ENTRIES: Bound = Bound::new("stream-node-max-entries", "100")
    .deciding("Approximate trimming of streams removes multiples of this.");

/// The file format of a stream.
const SECOND: u8 = 19;

#[rustfmt::skip] // A table.
const ENCODINGS: &[Encoding] = &[
    Encoding::new(SECOND, Layout::Entries(Generation::Second)),
    Encoding::new(21,     Layout::Entries(Generation::Third)),
    Encoding::new(15,     Layout::Entries(Generation::First)),
];

/// The format that Redis 7.0 would write.
fn plan(survey: &Survey) -> Plan {
    survey.entries(SECOND)
}

const XADD: &Event = &Event::new("xadd", b't');
const XDEL: &Event = &Event::new("xdel", b't');
const XTRIM: &Event = &Event::new("xtrim", b't');
const XSETID: &Event = &Event::new("xsetid", b't');

/// A stream. Cloning it is a cut.
#[derive(Clone, Default)]
pub struct Stream {
    entries: Entries,
    state: State,
    pub(super) groups: Groups,
    /// The remembered messages of idempotent producers.
    memory: Option<Box<Memory>>,
    /// The state of [`Value::take_in`] between items.
    open: Option<Box<Open>>,
}

/// The counters of a stream besides its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The ID of the last entry ever added, or a later one that was set explicitly.
    pub last: StreamId,
    /// The largest ID of a deleted entry; trimming does not count.
    pub max_deleted: StreamId,
    /// The number of entries ever added.
    pub added: u64,
}

/// The state of reading entries from a file.
#[derive(Clone, Default)]
struct Open {
    /// Field names shared by several entries, and the number of names still to come.
    names: List,
    names_left: u64,
    /// Collects the values of entries with these names, if the names can be a shape.
    gathered: Option<Gathered>,
    entry: Option<OpenEntry>,
    /// A text that arrives in parts, and its length.
    long: Option<(Blob, u64)>,
}

/// An entry whose names and values are still arriving.
#[derive(Clone)]
struct OpenEntry {
    id: StreamId,
    fields: List,
    /// The number of its names and values.
    len: u64,
    /// Only values arrive; the names are shared.
    has_common_names: bool,
    /// The values are collected for a shape, as long as they are short.
    is_gathered: bool,
}

/// Names of at least this length are shared by several entries, unless they are stored as a shape.
const SHARED_BYTES: usize = 64;

/// A name or a value, as a string for a reply.
pub(super) fn sent<'a>(element: &Element<'a>) -> Str<'a> {
    match *element {
        Element::Text(text) => Str::Inline(text),
        Element::Blob(blob) => Str::Blob(blob),
    }
}

/// Converts a name or a value for the stream.
pub(super) fn new(field: Fresh<'_>) -> NewElement<'_> {
    match field {
        Fresh::Bytes(bytes) if bytes.len() <= INLINE_MAX => NewElement::Bytes(bytes),
        _ => NewElement::Blob(field.to_blob()),
    }
}

impl Stream {
    /// An empty stream. Allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The entries.
    #[must_use]
    pub fn entries(&self) -> &Entries {
        &self.entries
    }

    /// The counters.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// The entry made from a producer's message, if it is remembered.
    pub(super) fn known(&self, message: Message, now: u64) -> Option<StreamId> {
        self.memory.as_ref()?.find(message, now)
    }

    /// The limits of remembered messages.
    #[must_use]
    pub fn idempotency(&self) -> Limits {
        self.memory.as_ref().map_or_else(Limits::default, |memory| memory.limits())
    }

    /// The consumer groups.
    #[must_use]
    pub fn groups(&self) -> &Groups {
        &self.groups
    }
}

impl Value for Stream {
    fn rebuild(&self) -> Option<Box<dyn Parts>> {
        Some(commands::rebuild(self.clone()))
    }

    fn content_bytes(&self) -> usize {
        let memory = self.memory.as_ref().map_or(0, |memory| memory.memory_bytes());
        self.entries.memory_bytes() + self.groups.memory_bytes() + memory
    }

    fn encoding(&self) -> &'static str {
        "stream"
    }

    fn items(&self, _: u64) -> Items {
        Box::new(Source::new(self.entries.clone(), self.state, self.groups.clone()))
    }

    fn take_in(&mut self, item: NewItem<'_>) -> bool {
        match item {
            NewItem::Single { name, .. } => self.take_text(NewElement::Bytes(name)),
            NewItem::Piece(piece) => self.take_piece(piece),
            // DEBUG POPULATE passes pairs to every type.
            NewItem::Pair { name, value, .. } => {
                let Some(id) = self.state.last.next() else { return false };
                self.entries.append(id, [NewElement::Bytes(name), new(value)].into_iter());
                let added = self.state.added.wrapping_add(1);
                self.state = State { last: id, added, ..self.state };
                true
            }
            NewItem::Scored { .. } | NewItem::Element(_) => false,
        }
    }

    fn check_invariants(&self) {
        self.entries.check_invariants();
        assert!(self.entries.last() <= Some(self.state.last), "T1: an entry behind the last ID");
        assert!(self.open.is_none(), "T2: an entry is not whole");
        if let Some(memory) = &self.memory {
            memory.check_invariants();
        }
    }
}

impl Stream {
    fn take_piece(&mut self, piece: Piece<'_>) -> bool {
        match piece {
            Piece::Entry { id, fields } => self.open_entry(id, fields, false),
            Piece::Same { id } => {
                let names = self.open.as_ref().map_or(0, |open| open.names.len());
                self.open_entry(id, 2 * names as u64, true)
            }
            Piece::Names { names } => {
                let open = self.open.get_or_insert_default();
                (open.names, open.names_left, open.gathered) = (List::new(), names, None);
                open.entry.is_none()
            }
            Piece::Long { len } => {
                self.open.get_or_insert_default().long = Some((Blob::default(), len));
                true
            }
            Piece::Part(bytes) => self.take_part(bytes),
            Piece::Gone => true,
            Piece::State { last, max_deleted, added, .. } => {
                // The last ID in a file may be smaller than an entry's ID.
                let last = last.max(self.state.last);
                self.state = State { last, max_deleted, added };
                self.open.take().is_none_or(|open| open.entry.is_none() && open.long.is_none())
            }
            piece => super::group_items::take_in(&mut self.groups, piece),
        }
    }

    /// Starts an entry. Returns false if its ID is not above the last one, or if it has no fields.
    fn open_entry(&mut self, id: StreamId, len: u64, has_common_names: bool) -> bool {
        let is_behind = self.state.last < id;
        self.state.last = id;
        let open = self.open.get_or_insert_default();
        let is_gathered = has_common_names && open.gathered.is_some();
        let entry = OpenEntry { id, fields: List::new(), len, has_common_names, is_gathered };
        open.entry.replace(entry).is_none() && open.names_left == 0 && is_behind && len > 0
    }

    /// Adds a part to a long text. The last part completes the text.
    fn take_part(&mut self, bytes: &[u8]) -> bool {
        let Some(open) = &mut self.open else { return false };
        let Some((blob, len)) = &mut open.long else { return false };
        blob.append(bytes);
        if (blob.len() as u64) < *len {
            return true;
        }
        let whole = open.long.take();
        whole.is_some_and(|(blob, _)| self.take_text(NewElement::Blob(blob)))
    }

    /// Adds a text to the shared names, or to the open entry. The last text completes the entry.
    fn take_text(&mut self, text: NewElement<'_>) -> bool {
        let Some(open) = &mut self.open else { return false };
        if let Some(left) = open.names_left.checked_sub(1) {
            open.names_left = left;
            open.names.push(End::Back, shared(text));
            if left == 0 {
                open.gathered = Gathered::of(&open.names);
            }
            return true;
        }
        let Some(entry) = &mut open.entry else { return false };
        if entry.is_gathered
            && let Some(gathered) = &mut open.gathered
        {
            if let NewElement::Bytes(value) = text
                && gathered.push(value)
            {
                if !gathered.is_whole() {
                    return true;
                }
                let is_added = self.entries.append_gathered(entry.id, gathered);
                if !is_added {
                    entry.spill(&open.names, gathered);
                    self.entries.append_list(entry.id, std::mem::take(&mut entry.fields));
                }
                gathered.clear();
                open.entry = None;
                return true;
            }
            entry.spill(&open.names, gathered);
            gathered.clear();
        }
        if entry.has_common_names {
            entry.push_name(&open.names);
        }
        entry.fields.push(End::Back, text);
        if entry.fields.len() as u64 == entry.len
            && let Some(entry) = open.entry.take()
        {
            self.entries.append_list(entry.id, entry.fields);
        }
        true
    }
}

impl OpenEntry {
    /// Adds the name of the next value.
    fn push_name(&mut self, names: &List) {
        let name = names.get(self.fields.len() / 2);
        match name.expect("there are as many names as values") {
            Element::Text(name) => self.fields.push(End::Back, &*name.to_vec()),
            Element::Blob(name) => self.fields.push(End::Back, NewElement::Shared(name.clone())),
        }
    }

    /// Continues with a list, starting with the values collected for a shape.
    fn spill(&mut self, names: &List, gathered: &Gathered) {
        self.is_gathered = false;
        for value in gathered.values() {
            self.push_name(names);
            self.fields.push(End::Back, &*value.to_vec());
        }
    }
}

/// A name shared by several entries: stored once, unless it is short.
fn shared(name: NewElement<'_>) -> NewElement<'_> {
    match name {
        NewElement::Bytes(bytes) if bytes.len() >= SHARED_BYTES => {
            NewElement::Shared(Blob::from(bytes))
        }
        NewElement::Blob(blob) => NewElement::Shared(blob),
        name => name,
    }
}

impl Typed for Stream {
    const TYPE: &'static Type = TYPE;
}

impl Collection for Stream {
    type Edit<'a> = StreamEdit<'a>;

    fn edit<'a>(&'a mut self, _: u64, recorder: Recorder<'a>) -> StreamEdit<'a> {
        StreamEdit { stream: self, recorder }
    }
}

/// A change of a stream, as recorded in the log.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields are what the variant says, by their usual names")]
pub enum StreamChange {
    /// Adds the entry.
    Append { id: StreamId, fields: List },
    /// Deletes the entry.
    Remove { id: StreamId },
    /// Removes this many entries at the front, so that `left` are left.
    Trim { count: usize, left: usize },
    /// Trims a single entry, although earlier ones stay. The counters do not change.
    TrimOne { id: StreamId, state: State },
    /// Sets the counters.
    State { state: State },
    /// Remembers, at this time, the entry made from a producer's message.
    Remember { message: Message, id: StreamId, now: u64 },
    /// Forgets the messages of producers, and sets new limits.
    Configure { limits: Limits },
    /// Changes a consumer group.
    Group { group: Name, change: GroupChange },
}

impl Change for StreamChange {
    const TYPE: &'static Type = TYPE;

    fn held_bytes(&self) -> usize {
        match self {
            Self::Append { fields, .. } => fields.memory_bytes(),
            Self::Group { group, .. } => group.len(),
            _ => 0,
        }
    }

    fn apply(changes: &[Self], db: &mut Db, key: &Key<'_>) -> Result<(), WrongType> {
        db.edit::<Stream, _>(key, true, |edit| {
            changes.iter().for_each(|change| edit.apply(change));
        })?;
        Ok(())
    }

    fn encode(changes: &[Self], key: &[u8], to: &mut Commands) {
        commands::encode(changes, key, to);
    }
}

/// Changes a stream, and records the effects.
pub struct StreamEdit<'a> {
    pub(super) stream: &'a mut Stream,
    pub(super) recorder: Recorder<'a>,
}

impl StreamEdit<'_> {
    /// The current state of the stream.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        self.stream
    }

    /// Adds an entry: alternating names and values. Its ID must be above the last one.
    pub fn append<'a>(&mut self, id: StreamId, fields: impl Iterator<Item = Fresh<'a>> + Clone) {
        self.advance(id);
        self.stream.entries.append(id, fields.clone().map(new));
        self.recorder.record(&[XADD], || {
            let mut list = List::new();
            fields.for_each(|field| list.push(End::Back, new(field)));
            StreamChange::Append { id, fields: list }
        });
    }

    /// [`StreamEdit::append`] with names and values in a list.
    pub fn append_list(&mut self, id: StreamId, fields: List) {
        self.advance(id);
        self.stream.entries.append_list(id, fields.clone());
        self.recorder.record(&[XADD], || StreamChange::Append { id, fields });
    }

    fn advance(&mut self, id: StreamId) {
        let state = &mut self.stream.state;
        assert!(state.last < id, "T1: {id} is not behind {}", state.last);
        // The number wraps, as in Redis.
        *state = State { last: id, added: state.added.wrapping_add(1), ..*state };
    }

    /// Deletes an entry. Returns false if there is none with this ID.
    pub fn remove(&mut self, id: StreamId) -> bool {
        let is_removed = self.stream.entries.remove(id);
        if is_removed {
            self.stream.state.max_deleted = self.stream.state.max_deleted.max(id);
            self.recorder.record(&[XDEL], || StreamChange::Remove { id });
        }
        is_removed
    }

    /// Removes `count` entries at the front. Each counts as a change.
    pub fn trim(&mut self, count: usize) {
        if count > 0 {
            self.recorder.count_more(count);
            self.trim_beside(count);
        }
    }

    /// [`StreamEdit::trim`] as part of a change that is counted elsewhere.
    pub fn trim_beside(&mut self, count: usize) {
        if count > 0 {
            self.stream.entries.remove_range(0..count);
            let left = self.stream.entries.len();
            self.recorder.record_death(&[XTRIM], || StreamChange::Trim { count, left });
        }
    }

    /// Trims an entry at any position, as part of a change that is counted elsewhere.
    pub(super) fn trim_one(&mut self, id: StreamId) {
        if self.stream.entries.first() == Some(id) {
            self.trim_beside(1);
        } else if self.stream.entries.remove(id) {
            let state = self.stream.state;
            self.recorder.record_death(&[XTRIM], || StreamChange::TrimOne { id, state });
        }
    }

    /// Remembers the entry made from a producer's message.
    pub(super) fn remember(&mut self, message: Message, id: StreamId, now: u64) {
        let memory = &mut self.stream.memory;
        memory.get_or_insert_with(|| Memory::new(Limits::default()).into()).add(message, id, now);
        self.recorder.record_death(&[], || StreamChange::Remember { message, id, now });
    }

    /// Forgets the messages of producers, and sets new limits.
    pub(super) fn configure(&mut self, limits: Limits) {
        self.stream.memory = Some(Memory::new(limits).into());
        self.recorder.record(&[], || StreamChange::Configure { limits });
    }

    /// Counts further changes.
    pub(super) fn count(&mut self, changes: usize) {
        self.recorder.count_more(changes);
    }

    /// Sets the state of the stream besides its entries.
    pub fn set(&mut self, state: State) {
        self.stream.state = state;
        self.recorder.record(&[XSETID], || StreamChange::State { state });
    }

    /// Copies in advance the parts that a change of the entry with this ID would have to copy
    /// because a cut shares them. Returns true if something was copied.
    pub fn unshare(&mut self, id: StreamId) -> bool {
        let rank = self.stream.entries.rank_of(id);
        rank < self.stream.entries.len() && self.stream.entries.unshare(rank)
    }

    fn apply(&mut self, change: &StreamChange) {
        match change {
            StreamChange::Append { id, fields } => self.append_list(*id, fields.clone()),
            StreamChange::Remove { id } => _ = self.remove(*id),
            StreamChange::Trim { count, .. } => self.trim(*count),
            StreamChange::TrimOne { id, .. } => self.trim_one(*id),
            StreamChange::State { state } => self.set(*state),
            StreamChange::Remember { message, id, now } => self.remember(*message, *id, *now),
            StreamChange::Configure { limits } => self.configure(*limits),
            StreamChange::Group { group, change } => self.apply_to_group(group, change),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::progress::read_with;
    use super::*;

    #[test]
    fn the_largest_counters_in_a_payload_do_not_overflow() {
        let mut stream = Stream::new();
        let (last, max_deleted) = (StreamId::new(7, 7), StreamId::MIN);
        let state = Piece::State { last, max_deleted, added: u64::MAX, groups: 0 };
        assert!(stream.take_in(NewItem::Piece(state)));
        let mut copy = stream.clone();
        copy.edit_aside(0).append(StreamId::new(8, 0), [Fresh::Bytes(b"f"); 2].into_iter());
        let value = Fresh::Bytes(b"v");
        assert!(stream.take_in(NewItem::Pair { name: b"f", value, deadline: None }));
        assert_eq!((stream.state().added, copy.state().added), (0, 0));
        let id = StreamId::new(8, 0);
        let read =
            [u64::MAX - 2, u64::MAX - 1, u64::MAX].map(|read| read_with(&copy, Some(read), id));
        assert_eq!(read, [Some(u64::MAX - 1), None, None]);
    }
}

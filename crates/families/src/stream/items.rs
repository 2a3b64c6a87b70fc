//! A stream as items, for files, payloads and digests: its entries, each followed by its names and
//! values; its state; its groups.

use super::group_items::GroupItems;
use super::value::{State, sent};
use darter_base::limits::CHUNK_BYTES;
use darter_keyspace::is_long;
use darter_rdb::{Item, Piece, Source};
use darter_structs::blob::Blob;
use darter_structs::groups::Groups;
use darter_structs::stream::{self, Element, End, StreamReader};
use darter_structs::{list, stream::StreamId};

/// Bytes in one part of a long name or value; a part is hashed in one step.
const PART_BYTES: usize = CHUNK_BYTES / 4;

/// The items of a cut, one by one.
pub(super) struct Entries {
    /// The cut, for the second pass, which frees what it has read.
    cut: Option<stream::Entries>,
    reader: StreamReader,
    state: State,
    /// The remaining names and values of the current entry, if it is a long one.
    fields: Option<list::ListReader>,
    /// The names and values of a short entry.
    texts: Texts,
    /// The current name or value of a long entry.
    field: Vec<u8>,
    /// A long text, and the number of its bytes already returned.
    long: Option<(Blob, usize)>,
    /// The state has been returned.
    is_told: bool,
    groups: GroupItems,
    groups_len: u64,
}

/// Texts side by side, taken from the front.
#[derive(Default)]
struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    taken: usize,
}

impl Texts {
    fn fill<'a>(&mut self, fields: impl Iterator<Item = Element<'a>>) {
        self.bytes.clear();
        self.ends.clear();
        self.taken = 0;
        for field in fields {
            sent(&field).write_to(&mut self.bytes);
            self.ends.push(self.bytes.len());
        }
    }

    fn next(&mut self) -> Option<&[u8]> {
        let end = *self.ends.get(self.taken)?;
        let start = self.taken.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.taken += 1;
        Some(&self.bytes[start..end])
    }
}

impl Entries {
    pub(super) fn new(cut: stream::Entries, state: State, groups: Groups) -> Self {
        let reader = StreamReader::new(cut.clone(), 0..cut.len(), End::Front);
        let (groups_len, groups) = (groups.len() as u64, GroupItems::new(groups));
        Self {
            cut: Some(cut),
            reader,
            state,
            fields: None,
            texts: Texts::default(),
            field: Vec::new(),
            long: None,
            is_told: false,
            groups,
            groups_len,
        }
    }

    /// The next entry; its fields follow.
    fn entry(&mut self) -> Item<'_> {
        let Self { reader, fields, texts, .. } = self;
        let mut head = (StreamId::MIN, 0);
        reader.next_slice(1, &mut |entry| {
            let len = match entry.long() {
                Some(list) => {
                    *fields = Some(list::ListReader::new(list.reader(), 0..usize::MAX));
                    list.len()
                }
                None => {
                    texts.fill(entry.fields());
                    texts.ends.len()
                }
            };
            head = (entry.id(), len as u64);
        });
        Item::Piece(Piece::Entry { id: head.0, fields: head.1 })
    }

    /// The next name or value of the current entry.
    fn field(&mut self) -> Option<Item<'_>> {
        let Self { fields, field: bytes, long, .. } = self;
        bytes.clear();
        let more = fields.as_mut()?.next_slice(1, &mut |element| match element {
            Element::Blob(blob) if is_long(blob.len()) => *long = Some((blob.clone(), 0)),
            element => sent(&element).write_to(bytes),
        });
        if !more {
            *fields = None;
        }
        Some(match long {
            Some((blob, _)) => Item::LongSingle { len: blob.len() as u64, deadline_ms: None },
            None => Item::Single { name: bytes, deadline_ms: None },
        })
    }

    /// The next part of a long name or value.
    fn part(&mut self) -> Option<Item<'_>> {
        let (blob, given) = self.long.as_mut()?;
        let part = blob.slices(*given..blob.len().min(*given + PART_BYTES)).next()?;
        *given += part.len();
        Some(Item::Part(part))
    }
}

impl Source for Entries {
    fn find(&mut self, looks: &mut usize) -> bool {
        !self.is_told || self.groups.find(looks)
    }

    fn next(&mut self) -> Option<Item<'_>> {
        self.long.take_if(|(blob, given)| *given == blob.len());
        if self.long.is_some() {
            return self.part();
        }
        if self.fields.is_some() {
            return self.field();
        }
        if self.texts.taken < self.texts.ends.len() {
            let name = self.texts.next()?;
            return Some(Item::Single { name, deadline_ms: None });
        }
        if self.reader.left() > 0 {
            return Some(self.entry());
        }
        if !std::mem::replace(&mut self.is_told, true) {
            let State { last, max_deleted, added } = self.state;
            let groups = self.groups_len;
            return Some(Item::Piece(Piece::State { last, max_deleted, added, groups }));
        }
        self.groups.next()
    }

    fn rewind(&mut self) {
        let cut = self.cut.take().expect("the second pass is the last");
        assert!(self.long.is_none() && self.fields.is_none(), "the first pass is not over");
        let ranks = 0..cut.len();
        self.reader = StreamReader::new(cut, ranks, End::Front);
        self.is_told = false;
        self.groups.rewind();
    }
}

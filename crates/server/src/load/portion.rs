//! Records on the way from the loading thread to a core, packed into one vector.
//!
//! A message per key, let alone per field, would cost more than inserting it. So records are
//! appended to a vector. The vector is sent, read in place, and returned for reuse. Only strings
//! longer than a chunk are sent beside it, in their final form. A packed collection is a single
//! record, which the core unpacks.
//!
//! ```text
//! Text    1 | head | len u32 | key | bytes          head: database u32, deadline u64, idle u32,
//! Long    2 | head | key                                  offset u64, length of the key u32
//! Begin   3 | head | key | number of its kind u8 | announced number of items u64
//! Pair    4 | length of name u32, of value u32 | name | value          5 | deadline u64 | as 4
//! Wide    6 | deadline u64 | length of name u32 | name         its value is the next Long
//! Single  7 | length u32 | name                                 8 | deadline u64 | as 7
//! End     9
//! Piece  10 | number of its kind u8 | its numbers, u64 each | length u32 | name
//! Block   11 | length u32 | bytes                       its head is sent beside
//! Scored  12 | score f64 | length u32 | name
//! ```
//! Numbers are little-endian. `u64::MAX` stands for no deadline or no number, and `u32::MAX` for no
//! idle time. The reader does not validate, because the writer is in this file, too.

use darter_base::StreamId;
use darter_keyspace::{Fresh, NewItem};
use darter_rdb::{Block, BlockHead, Piece};
use darter_structs::blob::Blob;

/// Stands for no deadline.
const NONE: u64 = u64::MAX;

/// A portion: packed records, and the strings and beginnings of blocks that are sent beside them.
#[derive(Default)]
pub(crate) struct LoadPortion {
    bytes: Vec<u8>,
    blobs: Vec<Blob>,
    blocks: Vec<BlockHead>,
    /// True for the last portion of a core. Then the file was valid.
    pub(crate) is_last: bool,
}

/// A key and its attributes, as in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head<'a> {
    pub(crate) database: u32,
    pub(crate) deadline: Option<u64>,
    /// Seconds since the last access to the key.
    pub(crate) idle: Option<u32>,
    /// The offset of the key in the file.
    pub(crate) offset: u64,
    pub(crate) key: &'a [u8],
}

/// A record, read in place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Record<'a> {
    Text(Head<'a>, &'a [u8]),
    Long(Head<'a>, &'a Blob),
    /// The beginning of a collection: its key, the number of its kind, and the number of items that
    /// the file announces.
    Begin(Head<'a>, u8, u64),
    Item(NewItem<'a>),
    /// A packed block of items.
    Block(Block<'a>),
    End,
}

/// The position of a reader in a portion.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    at: usize,
    blob: usize,
    block: usize,
}

impl LoadPortion {
    /// Bytes of the packed records.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of memory of the portion, including what is sent beside the records.
    pub(crate) fn weight(&self) -> usize {
        self.bytes.len() + self.blobs.iter().map(Blob::len).sum::<usize>()
    }

    /// Clears the portion for reuse.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.blobs.clear();
        self.blocks.clear();
        self.is_last = false;
    }

    /// Appends `record`.
    pub(crate) fn push(&mut self, record: Record<'_>) {
        match record {
            Record::Text(head, text) => {
                self.head(1, head);
                self.length(text);
                self.pieces(head.key, text);
            }
            Record::Long(head, blob) => {
                self.head(2, head);
                self.pieces(head.key, &[]);
                self.blobs.push(blob.clone());
            }
            Record::Begin(head, kind, items) => {
                self.head(3, head);
                self.pieces(head.key, &[kind]);
                self.number(items);
            }
            Record::Item(item) => self.item(item),
            Record::Block(block) => {
                self.bytes.push(11);
                self.length(block.bytes);
                self.pieces(block.bytes, &[]);
                self.blocks.push(block.head);
            }
            Record::End => self.bytes.push(9),
        }
    }

    #[inline]
    fn item(&mut self, item: NewItem<'_>) {
        match item {
            NewItem::Pair { name, value: Fresh::Bytes(value), deadline } => {
                self.bytes.push(if deadline.is_some() { 5 } else { 4 });
                deadline.iter().for_each(|at| self.number(*at));
                self.length(name);
                self.length(value);
                self.pieces(name, value);
            }
            NewItem::Pair { name, value, deadline } => {
                self.bytes.push(6);
                self.number(deadline.unwrap_or(NONE));
                self.length(name);
                self.pieces(name, &[]);
                self.blobs.push(value.to_blob());
            }
            NewItem::Single { name, deadline } => {
                self.bytes.push(if deadline.is_some() { 8 } else { 7 });
                deadline.iter().for_each(|at| self.number(*at));
                self.length(name);
                self.pieces(name, &[]);
            }
            NewItem::Scored { name, score } => {
                self.bytes.push(12);
                self.number(score.to_bits());
                self.length(name);
                self.pieces(name, &[]);
            }
            NewItem::Piece(piece) => self.piece(piece),
            NewItem::Element(_) => unreachable!("parts are not asked for"),
        }
    }

    fn piece(&mut self, piece: Piece<'_>) {
        let (kind, numbers, name): (u8, &[u64], &[u8]) = match piece {
            Piece::Entry { id, fields } => (0, &[id.ms, id.seq, fields], &[]),
            Piece::State { last, max_deleted: gone, added, groups } => {
                (1, &[last.ms, last.seq, gone.ms, gone.seq, added, groups], &[])
            }
            Piece::Group { name, last, read, pending, consumers } => {
                let read = read.unwrap_or(NONE);
                (2, &[last.ms, last.seq, read, pending, consumers], name)
            }
            Piece::Pending { id, delivered_ms, times } => {
                (3, &[id.ms, id.seq, delivered_ms, times], &[])
            }
            Piece::Consumer { name, seen_ms, active_ms, pending } => {
                (4, &[seen_ms, active_ms.unwrap_or(NONE), pending], name)
            }
            Piece::Owned(id) => (5, &[id.ms, id.seq], &[]),
            Piece::Names { names } => (6, &[names], &[]),
            Piece::Same { id } => (7, &[id.ms, id.seq], &[]),
            Piece::Long { len } => (8, &[len], &[]),
            Piece::Part(bytes) => (9, &[], bytes),
            Piece::Gone => (10, &[], &[]),
        };
        self.bytes.extend_from_slice(&[10, kind]);
        numbers.iter().for_each(|number| self.number(*number));
        self.length(name);
        self.pieces(name, &[]);
    }

    fn head(&mut self, tag: u8, head: Head<'_>) {
        self.bytes.push(tag);
        self.bytes.extend_from_slice(&head.database.to_le_bytes());
        self.number(head.deadline.unwrap_or(NONE));
        self.bytes.extend_from_slice(&head.idle.unwrap_or(u32::MAX).to_le_bytes());
        self.number(head.offset);
        self.length(head.key);
    }

    fn number(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    fn length(&mut self, bytes: &[u8]) {
        let len = u32::try_from(bytes.len()).expect("the reader admits 512 MiB");
        self.bytes.extend_from_slice(&len.to_le_bytes());
    }

    fn pieces(&mut self, one: &[u8], other: &[u8]) {
        self.bytes.extend_from_slice(one);
        self.bytes.extend_from_slice(other);
    }

    /// The record at `place`, which then advances; `None` at the end.
    #[inline]
    pub(crate) fn next(&self, place: &mut Place) -> Option<Record<'_>> {
        let mut cursor = Cursor(self.bytes.get(place.at..)?);
        let tag = *cursor.0.first()?;
        cursor.take(1);
        let record = match tag {
            1 => {
                let (head, key_len) = cursor.head();
                let len = cursor.length();
                let head = Head { key: cursor.take(key_len), ..head };
                Record::Text(head, cursor.take(len))
            }
            2 | 3 => {
                let (head, key_len) = cursor.head();
                let head = Head { key: cursor.take(key_len), ..head };
                match tag {
                    2 => Record::Long(head, self.blob(place)),
                    _ => Record::Begin(head, cursor.array::<1>()[0], cursor.number()),
                }
            }
            4 | 5 => {
                let deadline = (tag == 5).then(|| cursor.number());
                let (name, value) = (cursor.length(), cursor.length());
                let (name, value) = (cursor.take(name), Fresh::Bytes(cursor.take(value)));
                Record::Item(NewItem::Pair { name, value, deadline })
            }
            6 => {
                let deadline = some(cursor.number());
                let len = cursor.length();
                let (name, value) = (cursor.take(len), Fresh::Blob(self.blob(place)));
                Record::Item(NewItem::Pair { name, value, deadline })
            }
            7 | 8 => {
                let deadline = (tag == 8).then(|| cursor.number());
                let len = cursor.length();
                Record::Item(NewItem::Single { name: cursor.take(len), deadline })
            }
            9 => Record::End,
            10 => Record::Item(NewItem::Piece(cursor.piece())),
            12 => {
                let (score, name) = (f64::from_bits(cursor.number()), cursor.name());
                Record::Item(NewItem::Scored { name, score })
            }
            _ => {
                let len = cursor.length();
                place.block += 1;
                Record::Block(Block { head: self.blocks[place.block - 1], bytes: cursor.take(len) })
            }
        };
        place.at = self.bytes.len() - cursor.0.len();
        Some(record)
    }

    fn blob(&self, place: &mut Place) -> &Blob {
        place.blob += 1;
        &self.blobs[place.blob - 1]
    }
}

fn some(deadline: u64) -> Option<u64> {
    (deadline != NONE).then_some(deadline)
}

/// The unread bytes.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    #[inline]
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.0.split_first_chunk().expect("records are written whole");
        self.0 = rest;
        *taken
    }

    #[inline]
    fn length(&mut self) -> usize {
        u32::from_le_bytes(self.array()) as usize
    }

    fn number(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    fn id(&mut self) -> StreamId {
        StreamId { ms: self.number(), seq: self.number() }
    }

    fn name(&mut self) -> &'a [u8] {
        let len = self.length();
        self.take(len)
    }

    fn piece(&mut self) -> Piece<'a> {
        let [kind] = self.array();
        let mut piece = match kind {
            0 => Piece::Entry { id: self.id(), fields: self.number() },
            1 => Piece::State {
                last: self.id(),
                max_deleted: self.id(),
                added: self.number(),
                groups: self.number(),
            },
            2 => Piece::Group {
                name: &[],
                last: self.id(),
                read: some(self.number()),
                pending: self.number(),
                consumers: self.number(),
            },
            3 => {
                Piece::Pending { id: self.id(), delivered_ms: self.number(), times: self.number() }
            }
            4 => Piece::Consumer {
                name: &[],
                seen_ms: self.number(),
                active_ms: some(self.number()),
                pending: self.number(),
            },
            5 => Piece::Owned(self.id()),
            6 => Piece::Names { names: self.number() },
            7 => Piece::Same { id: self.id() },
            8 => Piece::Long { len: self.number() },
            9 => Piece::Part(&[]),
            _ => Piece::Gone,
        };
        let end = self.name();
        if let Piece::Group { name, .. } | Piece::Consumer { name, .. } | Piece::Part(name) =
            &mut piece
        {
            *name = end;
        }
        piece
    }

    /// Reads the head of a key, and the length of the key, which follows.
    fn head(&mut self) -> (Head<'a>, usize) {
        let database = u32::from_le_bytes(self.array());
        let deadline = some(self.number());
        let idle = Some(u32::from_le_bytes(self.array())).filter(|idle| *idle != u32::MAX);
        let offset = self.number();
        (Head { database, deadline, idle, offset, key: &[] }, self.length())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_stream_are_read_as_they_were_written() {
        let (id, name) = (StreamId::new(7, u64::MAX), &b"a name"[..]);
        let pieces = [
            Piece::Entry { id, fields: 4 },
            Piece::State { last: id, max_deleted: StreamId::new(1, 2), added: 3, groups: 4 },
            Piece::Group { name, last: id, read: Some(5), pending: 6, consumers: 7 },
            Piece::Group { name: b"", last: id, read: None, pending: 0, consumers: 0 },
            Piece::Pending { id, delivered_ms: 8, times: 9 },
            Piece::Consumer { name, seen_ms: 10, active_ms: None, pending: 11 },
            Piece::Consumer { name, seen_ms: 10, active_ms: Some(12), pending: 11 },
            Piece::Owned(id),
            Piece::Names { names: 13 },
            Piece::Same { id },
            Piece::Long { len: 14 },
            Piece::Part(name),
            Piece::Gone,
        ];
        let (mut portion, mut place) = (LoadPortion::default(), Place::default());
        for piece in pieces {
            portion.push(Record::Item(NewItem::Piece(piece)));
        }
        for piece in pieces {
            let Some(Record::Item(NewItem::Piece(read))) = portion.next(&mut place) else {
                panic!("{piece:?}");
            };
            assert_eq!(read, piece);
        }
        assert!(portion.next(&mut place).is_none());
    }
}

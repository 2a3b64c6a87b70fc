//! Records on their way from the loader to a core, packed into one vector.
//!
//! A message per key, let alone per field, would cost more than the insertion. So records are
//! appended to a vector, which travels, is read in place, and comes back to be filled again. Only
//! strings longer than a chunk travel beside it, in the form in which they will be kept.
//!
//! ```text
//! Text    1 | head | len u32 | key | bytes          head: database u32, deadline u64, idle u32,
//! Long    2 | head | key                                  offset u64, length of the key u32
//! Hash    3 | head | key          Set  4 | head | key
//! Field   5 | length of field u32, of value u32 | field | value
//! Mortal  6 | deadline u64 | as 5
//! Wide    7 | deadline u64 | length of field u32 | field         its value is the next long one
//! Member  8 | length u32 | member                  End  9
//! ```
//! Numbers are little-endian; the deadline `u64::MAX` is none, and so is `u32::MAX` seconds of
//! idleness. Nothing is checked on the way out:
//! both ends are here.

use darter_structs::blob::Blob;

/// No deadline.
const NONE: u64 = u64::MAX;

/// A portion of records; in a batch of its own, so that two lists end together.
#[derive(Default)]
pub(crate) struct Portion {
    bytes: Vec<u8>,
    blobs: Vec<Blob>,
    /// Nothing follows, and all that was sent is good.
    pub(crate) is_last: bool,
}

/// A key, and what the file says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head<'a> {
    pub(crate) database: u32,
    pub(crate) deadline: Option<u64>,
    /// Seconds since its last access.
    pub(crate) idle: Option<u32>,
    /// Where it stands in the file.
    pub(crate) offset: u64,
    pub(crate) key: &'a [u8],
}

/// A record, read in place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Record<'a> {
    Text(Head<'a>, &'a [u8]),
    Long(Head<'a>, &'a Blob),
    Hash(Head<'a>),
    Set(Head<'a>),
    Field { field: &'a [u8], value: &'a [u8], deadline: Option<u64> },
    Wide { field: &'a [u8], value: &'a Blob, deadline: Option<u64> },
    Member(&'a [u8]),
    End,
}

/// Where a reader of a portion stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    at: usize,
    blob: usize,
}

impl Portion {
    /// Bytes of the records.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of memory that travel with it.
    pub(crate) fn weight(&self) -> usize {
        self.bytes.len() + self.blobs.iter().map(Blob::len).sum::<usize>()
    }

    /// Empties it, to be filled again.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.blobs.clear();
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
            Record::Hash(head) => {
                self.head(3, head);
                self.pieces(head.key, &[]);
            }
            Record::Set(head) => {
                self.head(4, head);
                self.pieces(head.key, &[]);
            }
            Record::Field { field, value, deadline } => {
                self.bytes.push(if deadline.is_some() { 6 } else { 5 });
                deadline.iter().for_each(|at| self.number(*at));
                self.length(field);
                self.length(value);
                self.pieces(field, value);
            }
            Record::Wide { field, value, deadline } => {
                self.bytes.push(7);
                self.number(deadline.unwrap_or(NONE));
                self.length(field);
                self.pieces(field, &[]);
                self.blobs.push(value.clone());
            }
            Record::Member(member) => {
                self.bytes.push(8);
                self.length(member);
                self.pieces(member, &[]);
            }
            Record::End => self.bytes.push(9),
        }
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

    /// The record at `place`, which moves on; `None` at the end.
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
            2..=4 => {
                let (head, key_len) = cursor.head();
                let head = Head { key: cursor.take(key_len), ..head };
                match tag {
                    2 => Record::Long(head, self.blob(place)),
                    3 => Record::Hash(head),
                    _ => Record::Set(head),
                }
            }
            5 | 6 => {
                let deadline = (tag == 6).then(|| cursor.number());
                let (field, value) = (cursor.length(), cursor.length());
                let (field, value) = (cursor.take(field), cursor.take(value));
                Record::Field { field, value, deadline }
            }
            7 => {
                let deadline = some(cursor.number());
                let len = cursor.length();
                Record::Wide { field: cursor.take(len), value: self.blob(place), deadline }
            }
            8 => {
                let len = cursor.length();
                Record::Member(cursor.take(len))
            }
            _ => Record::End,
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

/// What is left of the bytes.
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

    /// A head whose key is still to be taken.
    fn head(&mut self) -> (Head<'a>, usize) {
        let database = u32::from_le_bytes(self.array());
        let deadline = some(self.number());
        let idle = Some(u32::from_le_bytes(self.array())).filter(|idle| *idle != u32::MAX);
        let offset = self.number();
        (Head { database, deadline, idle, offset, key: &[] }, self.length())
    }
}

//! Streams, as Redis 7.0 writes them: entries in listpacks of up to 100 or 4 KiB, then the state and the
//! consumer groups.
//!
//! ```text
//! node:   string of 16 bytes: ID of its first entry | string: listpack
//! listpack: alive, deleted | n, name * n, 0 | entry | entry | ...       the names of its first entry
//! entry:  2, ms, seq behind the node's ID, value * n, entries before this           of the same names
//!         0, ms, seq, k, (name, value) * k, entries before this
//! ```
//! A node is gathered before it is written, because its size precedes it. An entry of more than
//! [`GATHERED_MAX`] bytes is not gathered: its node has no shared names, so its names and values
//! are written as they come, with the size from the first pass. Redis reads that like any other
//! node.
//!
//! Not here: reading. See `reader::entries`.

use crate::encode::{self, LISTPACK_FRAME_BYTES};
use crate::items::{Item, Piece};
use crate::lzf::Packer;
use darter_base::StreamId;
use std::collections::VecDeque;

/// Redis's default of `stream-node-max-entries`.
const NODE_ENTRIES_MAX: u64 = 100;
/// Redis's default of `stream-node-max-bytes`: a node stays below this size.
const NODE_BYTES_MAX: u64 = 4096;
/// The most bytes of names and values for which an entry is gathered.
const GATHERED_MAX: usize = 16 * 1024;
/// The flags of an entry.
pub(crate) const DELETED: i64 = 1;
pub(crate) const SAME_NAMES: i64 = 2;
/// Stands for an unknown number of entries.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// The results of the first pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct EntrySizes {
    nodes: u64,
    /// Bytes of everything but the number of nodes.
    bytes: u64,
    /// The sizes of the listpacks of single long entries, in order.
    long: VecDeque<u64>,
}

impl EntrySizes {
    /// The size of the whole value.
    pub(crate) fn total(&self) -> u64 {
        encode::length_size(self.nodes) + self.bytes
    }
}

/// The first pass: writes like the second, but only counts the bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surveyor {
    sizes: EntrySizes,
    encoder: EntryEncoder,
    scratch: Vec<u8>,
}

impl Surveyor {
    pub(crate) fn item(&mut self, item: Item<'_>) {
        self.encoder.item(item, &mut self.scratch, &mut None);
        self.sizes.bytes += self.scratch.len() as u64 + std::mem::take(&mut self.encoder.unwritten);
        self.scratch.clear();
    }

    pub(crate) fn sizes(&self) -> EntrySizes {
        EntrySizes { nodes: self.encoder.nodes, long: self.encoder.long.clone(), ..self.sizes }
    }
}

/// The second pass, and also the first, with `writes` false.
#[derive(Clone, Debug, Default)]
pub(crate) struct EntryEncoder {
    /// False in the first pass: long entries are measured, and their sizes collected in `long`.
    writes: bool,
    nodes: u64,
    long: VecDeque<u64>,
    /// Bytes of a long entry that the first pass has only measured.
    unwritten: u64,
    node: Node,
    entry: Entry,
    /// Entries so far, and the ID of the first.
    count: u64,
    first: StreamId,
    /// Pending entries of the group that are still to come. The next field is its number of
    /// consumers.
    pending: u64,
    consumers: u64,
}

/// The node that entries are gathered in.
#[derive(Clone, Debug, Default)]
struct Node {
    master: StreamId,
    /// The names of its first entry, encoded.
    names: Vec<u8>,
    /// The encoded bytes after the two counts.
    body: Vec<u8>,
    /// Elements of the body.
    elements: u64,
    alive: u64,
}

/// The entry whose names and values are coming.
#[derive(Clone, Debug, Default)]
struct Entry {
    id: StreamId,
    /// Names and values, and how many are still to come.
    fields: u64,
    left: u64,
    /// The texts so far, and the end of each.
    texts: Vec<u8>,
    ends: Vec<usize>,
    /// Whether the texts are too long to be gathered: they are written, or measured, as they come.
    is_long: bool,
    /// The size of its listpack so far, if it is measured.
    measured: u64,
    /// The bytes left of a text that comes in parts, and the size of its element.
    part: Option<(u64, usize)>,
}

impl EntryEncoder {
    /// For the second pass.
    pub(crate) fn new(sizes: &EntrySizes) -> Self {
        Self { writes: true, long: sizes.long.clone(), ..Self::default() }
    }

    /// Appends the number of nodes.
    pub(crate) fn head(sizes: &EntrySizes, out: &mut Vec<u8>) {
        encode::length(out, sizes.nodes);
    }

    /// Appends an item, or gathers it.
    pub(crate) fn item(&mut self, item: Item<'_>, out: &mut Vec<u8>, packer: &mut Option<Packer>) {
        match item {
            Item::Single { name, .. } => self.text(name, out, packer),
            Item::LongSingle { len, .. } => self.begin_text(len, out, packer),
            Item::Part(bytes) => self.part(bytes, out, packer),
            Item::Piece(piece) => self.piece(piece, out, packer),
            item => unreachable!("{item:?} in a stream"),
        }
    }

    fn piece(&mut self, piece: Piece<'_>, out: &mut Vec<u8>, packer: &mut Option<Packer>) {
        match piece {
            Piece::Entry { id, fields } => self.begin_entry(id, fields),
            Piece::State { last, max_deleted, added, groups } => {
                self.end_node(out, packer);
                encode::length(out, self.count);
                let first = if self.count == 0 { StreamId::MIN } else { self.first };
                [last, first, max_deleted].iter().for_each(|id| write_id(out, *id));
                encode::length(out, added);
                encode::length(out, groups);
            }
            Piece::Group { name, last, read, pending, consumers } => {
                encode::text(out, name);
                write_id(out, last);
                encode::length(out, read.unwrap_or(UNKNOWN));
                encode::length(out, pending);
                (self.pending, self.consumers) = (pending, consumers);
                self.end_pending(out);
            }
            Piece::Pending { id, delivered_ms, times } => {
                out.extend_from_slice(&id.to_be_bytes());
                out.extend_from_slice(&delivered_ms.to_le_bytes());
                encode::length(out, times);
                self.pending -= 1;
                self.end_pending(out);
            }
            Piece::Consumer { name, seen_ms, pending, .. } => {
                encode::text(out, name);
                out.extend_from_slice(&seen_ms.to_le_bytes());
                encode::length(out, pending);
            }
            Piece::Owned(id) => out.extend_from_slice(&id.to_be_bytes()),
            piece => unreachable!("{piece:?} is a reader's"),
        }
    }

    /// Writes the number of consumers after the last pending entry.
    fn end_pending(&mut self, out: &mut Vec<u8>) {
        if self.pending == 0 {
            encode::length(out, self.consumers);
        }
    }

    fn begin_entry(&mut self, id: StreamId, fields: u64) {
        debug_assert!(fields.is_multiple_of(2) && fields > 0, "{fields} names and values");
        if self.count == 0 {
            self.first = id;
        }
        self.count += 1;
        let entry = &mut self.entry;
        (entry.id, entry.fields, entry.left) = (id, fields, fields);
        (entry.is_long, entry.measured) = (false, 0);
        entry.texts.clear();
        entry.ends.clear();
    }

    /// Adds a name or a value.
    fn text(&mut self, text: &[u8], out: &mut Vec<u8>, packer: &mut Option<Packer>) {
        if !self.entry.is_long && self.entry.texts.len() + text.len() > GATHERED_MAX {
            self.begin_long(out, packer);
        }
        self.entry.left -= 1;
        if self.entry.is_long {
            self.put(text, out);
        } else {
            self.entry.texts.extend_from_slice(text);
            self.entry.ends.push(self.entry.texts.len());
        }
        self.end_text(out, packer);
    }

    /// Begins a name or a value that comes in parts; it is too long for an integer.
    fn begin_text(&mut self, len: u64, out: &mut Vec<u8>, packer: &mut Option<Packer>) {
        if !self.entry.is_long {
            self.begin_long(out, packer);
        }
        self.entry.left -= 1;
        let bytes = usize::try_from(len).unwrap_or(usize::MAX);
        let mut head = Vec::new();
        encode::listpack_head(&mut head, bytes);
        if self.writes {
            out.extend_from_slice(&head);
        } else {
            self.entry.measured += encode::listpack_bytes_size(bytes);
        }
        self.entry.part = Some((len, head.len() + bytes));
    }

    fn part(&mut self, bytes: &[u8], out: &mut Vec<u8>, packer: &mut Option<Packer>) {
        let (left, whole) = self.entry.part.take().expect("a text precedes its parts");
        let left = left - bytes.len() as u64;
        if self.writes {
            out.extend_from_slice(bytes);
        }
        if left > 0 {
            self.entry.part = Some((left, whole));
            return;
        }
        if self.writes {
            encode::listpack_tail(out, whole);
        }
        self.end_text(out, packer);
    }

    /// Writes or measures a text of a long entry.
    fn put(&mut self, text: &[u8], out: &mut Vec<u8>) {
        if self.writes {
            encode::listpack_text(out, text);
        } else {
            self.entry.measured += encode::listpack_text_size(text);
        }
    }

    /// Ends a text. After the last one the entry is complete.
    fn end_text(&mut self, out: &mut Vec<u8>, packer: &mut Option<Packer>) {
        if self.entry.left > 0 {
            return;
        }
        if self.entry.is_long {
            self.end_long(out);
        } else {
            self.place(out, packer);
        }
    }

    /// Adds a gathered entry to the node, or begins one with it.
    fn place(&mut self, out: &mut Vec<u8>, packer: &mut Option<Packer>) {
        let node = LISTPACK_FRAME_BYTES + self.node.bytes();
        let is_full = node + self.entry.texts.len() as u64 >= NODE_BYTES_MAX
            || self.node.alive >= NODE_ENTRIES_MAX;
        if self.node.alive > 0 && is_full {
            self.end_node(out, packer);
        }
        self.node.add(&self.entry);
    }

    /// Writes the node, if there is one.
    fn end_node(&mut self, out: &mut Vec<u8>, packer: &mut Option<Packer>) {
        if self.node.alive == 0 {
            return;
        }
        self.nodes += 1;
        write_key(out, self.node.master);
        let blob = self.node.listpack();
        match packer {
            Some(packer) => encode::packed_blob(out, &blob, packer),
            None => {
                encode::length(out, blob.len() as u64);
                out.extend_from_slice(&blob);
            }
        }
        self.node.clear();
    }

    /// Writes the start of a long entry, and the texts gathered so far.
    fn begin_long(&mut self, out: &mut Vec<u8>, packer: &mut Option<Packer>) {
        self.end_node(out, packer);
        self.nodes += 1;
        self.entry.is_long = true;
        let pairs = self.entry.fields / 2;
        // Alive, deleted, no names, 0; no marks, behind the node's ID by nothing, pairs.
        let numbers = [1, 0, 0, 0, 0, 0, 0, pairs.cast_signed()];
        if self.writes {
            let bytes = self.long.pop_front().expect("the first pass has measured it");
            write_key(out, self.entry.id);
            encode::length(out, bytes);
            let size = u32::try_from(bytes).expect("larger entries are not taken");
            out.extend_from_slice(&size.to_le_bytes());
            let elements = numbers.len() as u64 + self.entry.fields + 1;
            out.extend_from_slice(&announced(elements).to_le_bytes());
            numbers.iter().for_each(|number| encode::listpack_integer(out, *number));
        } else {
            let head: u64 = numbers.iter().map(|one| encode::listpack_integer_size(*one)).sum();
            self.entry.measured = LISTPACK_FRAME_BYTES + head;
        }
        let (texts, ends) =
            (std::mem::take(&mut self.entry.texts), std::mem::take(&mut self.entry.ends));
        let mut start = 0;
        for end in ends {
            self.put(&texts[start..end], out);
            start = end;
        }
    }

    /// Writes the rest of the entry.
    fn end_long(&mut self, out: &mut Vec<u8>) {
        let behind = (4 + self.entry.fields).cast_signed();
        if self.writes {
            encode::listpack_integer(out, behind);
            out.push(0xff);
            return;
        }
        let bytes = self.entry.measured + encode::listpack_integer_size(behind);
        self.long.push_back(bytes);
        write_key(out, self.entry.id);
        self.unwritten = encode::length_size(bytes) + bytes;
    }
}

impl Node {
    /// Bytes of the listpack, without its frame.
    fn bytes(&self) -> u64 {
        let alive = encode::listpack_integer_size(self.alive.cast_signed());
        alive + encode::listpack_integer_size(0) + self.body.len() as u64
    }

    fn clear(&mut self) {
        (self.elements, self.alive) = (0, 0);
        self.names.clear();
        self.body.clear();
    }

    /// Adds an entry. The names of the first entry become the node's.
    fn add(&mut self, entry: &Entry) {
        let pairs = entry.fields / 2;
        let texts = || {
            let starts = std::iter::once(0).chain(entry.ends.iter().copied());
            starts.zip(&entry.ends).map(|(start, end)| &entry.texts[start..*end])
        };
        let mut names = Vec::with_capacity(self.names.len());
        encode::listpack_integer(&mut names, pairs.cast_signed());
        texts().step_by(2).for_each(|name| encode::listpack_text(&mut names, name));
        if self.alive == 0 {
            self.master = entry.id;
            self.body.extend_from_slice(&names);
            encode::listpack_integer(&mut self.body, 0);
            self.elements = 1 + pairs + 1;
            self.names.clone_from(&names);
        }
        let is_same = names == self.names;
        let out = &mut self.body;
        encode::listpack_integer(out, if is_same { SAME_NAMES } else { 0 });
        encode::listpack_integer(out, entry.id.ms.wrapping_sub(self.master.ms).cast_signed());
        encode::listpack_integer(out, entry.id.seq.wrapping_sub(self.master.seq).cast_signed());
        let elements = if is_same {
            texts().skip(1).step_by(2).for_each(|value| encode::listpack_text(out, value));
            3 + pairs
        } else {
            encode::listpack_integer(out, pairs.cast_signed());
            texts().for_each(|text| encode::listpack_text(out, text));
            4 + entry.fields
        };
        encode::listpack_integer(out, elements.cast_signed());
        self.elements += elements + 1;
        self.alive += 1;
    }

    fn listpack(&self) -> Vec<u8> {
        let bytes = LISTPACK_FRAME_BYTES + self.bytes();
        let mut blob = Vec::with_capacity(bytes as usize);
        blob.extend_from_slice(&(bytes as u32).to_le_bytes());
        blob.extend_from_slice(&announced(2 + self.elements).to_le_bytes());
        encode::listpack_integer(&mut blob, self.alive.cast_signed());
        encode::listpack_integer(&mut blob, 0);
        blob.extend_from_slice(&self.body);
        blob.push(0xff);
        debug_assert_eq!(blob.len() as u64, bytes);
        blob
    }
}

/// The number of elements in a listpack's header: beyond 16 bits it is the mark for "unknown".
fn announced(elements: u64) -> u16 {
    u16::try_from(elements).unwrap_or(u16::MAX)
}

/// Appends the key of a node.
fn write_key(out: &mut Vec<u8>, id: StreamId) {
    encode::length(out, 16);
    out.extend_from_slice(&id.to_be_bytes());
}

/// Appends an ID as two lengths.
fn write_id(out: &mut Vec<u8>, id: StreamId) {
    encode::length(out, id.ms);
    encode::length(out, id.seq);
}

//! Nodes of a list as in Redis 7.0: each is a listpack of elements, up to 8 KiB.
//!
//! ```text
//! node:  2 | string: listpack of elements       or, of an element of 1 GiB or more,  1 | string
//! ```
//! An element joins the last node if that stays below the limit by Redis's estimate; so a list that
//! was filled from the front is written byte for byte as by Redis. The size of all nodes is needed
//! before the first byte, so elements are visited twice: [`NodeSizes`] sums, [`NodeEncoder`]
//! writes.

use crate::encode::{self, LISTPACK_FRAME_BYTES};
use crate::items::Item;
use crate::types::{NODE_PACKED, NODE_PLAIN};

/// Redis's default of `list-max-listpack-size`, -2: bytes of a node.
const NODE_BYTES_MAX: u64 = 8 * 1024;
/// Bytes that Redis adds to an element's length when it checks whether a node has room.
const ESTIMATE_BYTES: u64 = 8;
/// Elements of at least this length get their own nodes, without a listpack.
const PLAIN_MIN: u64 = 1 << 30;

/// Where an element goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Into the last node.
    Last,
    /// Into a new node.
    New,
    /// Into a node of its own, without a listpack.
    Plain,
}

/// The place of an element of `len` bytes after a node of `node` bytes that can take more.
fn place(node: Option<u64>, len: u64) -> Place {
    match node {
        _ if len >= PLAIN_MIN => Place::Plain,
        Some(node) if node + len + ESTIMATE_BYTES <= NODE_BYTES_MAX => Place::Last,
        _ => Place::New,
    }
}

/// The first pass over the elements.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeSizes {
    nodes: u64,
    /// Bytes of all nodes but the last.
    bytes: u64,
    /// The size of the last node's listpack.
    last: Option<u64>,
}

impl NodeSizes {
    /// Adds an element of `len` bytes, which takes `entry` in a listpack.
    pub(crate) fn add(&mut self, len: usize, entry: u64) {
        match place(self.last, len as u64) {
            Place::Last => self.last = self.last.map(|last| last + entry),
            Place::New => {
                self.close();
                self.nodes += 1;
                self.last = Some(LISTPACK_FRAME_BYTES + entry);
            }
            Place::Plain => {
                self.close();
                self.nodes += 1;
                self.bytes += encode::length_size(NODE_PLAIN) + string_size(len as u64);
            }
        }
    }

    /// Adds an element that is too long for an integer.
    pub(crate) fn add_long(&mut self, len: u64) {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.add(len, encode::listpack_bytes_size(len));
    }

    fn close(&mut self) {
        let last = self.last.take();
        self.bytes += last.map_or(0, |last| encode::length_size(NODE_PACKED) + string_size(last));
    }

    /// The number of nodes, and their bytes.
    pub(crate) fn total(mut self) -> (u64, u64) {
        self.close();
        (self.nodes, self.bytes)
    }
}

fn string_size(len: u64) -> u64 {
    encode::length_size(len) + len
}

/// The second pass. A node is collected before it is written, because its size precedes it; except
/// for an element that fills a node alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeEncoder {
    /// The entries of the last node.
    entries: Vec<u8>,
    count: u16,
    long: Option<Long>,
}

/// An element that arrives in parts.
#[derive(Clone, Copy, Debug)]
struct Long {
    /// Bytes still to come.
    left: u64,
    /// Bytes of its entry, without the trailing length.
    entry: usize,
    how: How,
}

/// The way in which the element is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// Collected with the other elements of its node.
    Gathered,
    /// Into a listpack of its own, whose start has been written.
    Alone,
    /// As a plain node.
    Plain,
}

impl NodeEncoder {
    /// Writes or collects an element, or a part of one.
    pub(crate) fn item(&mut self, item: Item<'_>, out: &mut Vec<u8>) {
        match item {
            Item::Single { name, .. } => {
                self.begin(name.len() as u64, out);
                encode::listpack_text(&mut self.entries, name);
            }
            Item::LongSingle { len, .. } => self.begin_long(len, out),
            Item::Part(bytes) => self.part(bytes, out),
            item => unreachable!("{item:?} in a list"),
        }
    }

    /// Prepares for an element of `len` bytes.
    fn begin(&mut self, len: u64, out: &mut Vec<u8>) -> Place {
        let node = LISTPACK_FRAME_BYTES + self.entries.len() as u64;
        let place = place((self.count > 0).then_some(node), len);
        if place != Place::Last {
            self.end(out);
        }
        self.count += u16::from(place != Place::Plain);
        place
    }

    fn begin_long(&mut self, len: u64, out: &mut Vec<u8>) {
        let place = self.begin(len, out);
        let bytes = usize::try_from(len).unwrap_or(usize::MAX);
        let whole = LISTPACK_FRAME_BYTES + encode::listpack_bytes_size(bytes);
        let mut head = Vec::new();
        encode::listpack_head(&mut head, bytes);
        let how = match place {
            Place::Plain => How::Plain,
            Place::New if whole > NODE_BYTES_MAX => How::Alone,
            _ => How::Gathered,
        };
        match how {
            How::Gathered => self.entries.extend_from_slice(&head),
            How::Alone => {
                self.count = 0;
                begin_listpack(out, whole, 1);
                out.extend_from_slice(&head);
            }
            How::Plain => {
                encode::length(out, NODE_PLAIN);
                encode::length(out, len);
            }
        }
        self.long = Some(Long { left: len, entry: head.len() + bytes, how });
    }

    fn part(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let long = self.long.as_mut().expect("an element precedes its parts");
        long.left -= bytes.len() as u64;
        let Long { left, entry, how } = *long;
        let to = if how == How::Gathered { &mut self.entries } else { &mut *out };
        to.extend_from_slice(bytes);
        if left > 0 {
            return;
        }
        self.long = None;
        match how {
            How::Plain => {}
            How::Gathered => encode::listpack_tail(&mut self.entries, entry),
            How::Alone => {
                encode::listpack_tail(out, entry);
                out.push(0xff);
            }
        }
    }

    /// Appends the last node.
    pub(crate) fn end(&mut self, out: &mut Vec<u8>) {
        if self.count == 0 {
            return;
        }
        begin_listpack(out, LISTPACK_FRAME_BYTES + self.entries.len() as u64, self.count);
        out.append(&mut self.entries);
        out.push(0xff);
        self.count = 0;
    }
}

/// Appends the header of a listpack of `bytes` bytes.
fn begin_listpack(out: &mut Vec<u8>, bytes: u64, count: u16) {
    encode::length(out, NODE_PACKED);
    encode::length(out, bytes);
    let size = u32::try_from(bytes).expect("larger ones are no listpacks");
    out.extend_from_slice(&size.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
}

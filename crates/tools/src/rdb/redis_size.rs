//! The memory that Redis 7.0 needs for a key, from its items.
//!
//! The rules are those of `MEMORY USAGE key SAMPLES 0` with default settings and jemalloc: the
//! encoding that Redis chooses while loading, the sizes of its structures, and the size classes of
//! the allocator. Exceptions: the number of levels of a sorted set's node is random, so its mean is
//! used; blocks of streams are estimated. The sizes were compared with redis-server 7.0.15.

use darter_base::number::parse_i64;
use darter_base::score;
use darter_rdb::{Item, Piece};

const OBJECT_BYTES: u64 = 16;
const DICT_BYTES: u64 = 56;
const DICT_ENTRY_BYTES: u64 = 24;
const POINTER_BYTES: u64 = 8;
const QUICKLIST_BYTES: u64 = 48;
const QUICKLIST_NODE_BYTES: u64 = 32;
/// The largest node of a list, by the default `list-max-listpack-size -2`.
const NODE_BYTES_MAX: u64 = 8_192;
const LISTPACK_FRAME_BYTES: u64 = 7;
/// The header of a skip list with 32 levels.
const SKIPLIST_BYTES: u64 = 16 + 32 + 640;
/// The mean of a skip list's nodes: 3/4 have one level, 3/16 have two, and so on.
const SKIPLIST_NODE_BYTES: f64 = 53.3;
/// The longest string in one allocation with its object.
const EMBEDDED_MAX: u64 = 44;
const STREAM_BYTES: u64 = 96;
const RADIX_NODE_BYTES: u64 = 4 + 8 * 30;
const STREAM_ID_BYTES: u64 = 16;
/// A group or a consumer, with the first nodes of its tree of pending entries.
const GROUP_BYTES: u64 = 40 + 2 * RADIX_NODE_BYTES;
/// A pending entry, with its nodes in the trees of its group and of its consumer.
const PENDING_BYTES: u64 = 24 + 4 * RADIX_NODE_BYTES;

/// The types of Redis's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Text,
    List,
    Set,
    Hash,
    SortedSet,
    Stream,
    /// A type of a module: its memory is unknown.
    Module,
}

/// The sums over the items of a value.
#[derive(Debug)]
pub(crate) struct RedisSize {
    shape: Shape,
    /// The number of elements.
    pub(crate) elements: u64,
    /// The longest element, in bytes.
    pub(crate) longest: u64,
    /// The bytes of a string.
    text_bytes: u64,
    head: Vec<u8>,
    /// The bytes of the listpack entries, and of the strings with their allocations.
    packed_bytes: u64,
    string_bytes: u64,
    /// The smallest and the largest integer, if all elements are integers.
    integers: Option<(i64, i64)>,
    /// The size of the current node of a list, or block of a stream.
    node_bytes: u64,
    nodes: u64,
    nodes_bytes: u64,
    has_deadlines: bool,
}

impl Shape {
    /// The shape of a type by its name.
    pub(crate) fn of(name: &str) -> Self {
        match name {
            "string" => Self::Text,
            "list" => Self::List,
            "set" => Self::Set,
            "hash" => Self::Hash,
            "zset" => Self::SortedSet,
            "stream" => Self::Stream,
            _ => Self::Module,
        }
    }
}

impl RedisSize {
    pub(crate) fn new(shape: Shape) -> Self {
        Self {
            shape,
            elements: 0,
            longest: 0,
            text_bytes: 0,
            head: Vec::new(),
            packed_bytes: 0,
            string_bytes: 0,
            integers: Some((0, 0)),
            node_bytes: 0,
            nodes: 0,
            nodes_bytes: 0,
            has_deadlines: false,
        }
    }

    /// Adds an item.
    pub(crate) fn add(&mut self, item: &Item<'_>) {
        self.has_deadlines |= item.deadline_ms().is_some();
        match *item {
            Item::Chunk(bytes) => {
                if self.text_bytes <= 20 {
                    self.head.extend_from_slice(&bytes[..bytes.len().min(21)]);
                }
                self.text_bytes += bytes.len() as u64;
                (self.elements, self.longest) = (1, self.text_bytes);
            }
            Item::Single { name, .. } if self.shape == Shape::Stream => self.stream_text(name),
            Item::Single { name, .. } => self.single(name),
            Item::Pair { name, value, .. } => {
                self.elements += 1;
                self.text(name);
                self.text(value);
            }
            Item::Scored { name, score } => {
                self.elements += 1;
                self.text(name);
                self.packed_bytes += entry_bytes(score::Text::new(score).as_bytes());
            }
            Item::Piece(piece) => self.piece(piece),
            _ => {}
        }
    }

    fn single(&mut self, name: &[u8]) {
        self.elements += 1;
        self.integers = self
            .integers
            .and_then(|(low, high)| parse_i64(name).map(|value| (low.min(value), high.max(value))));
        if self.shape == Shape::List {
            self.element(name);
        }
        self.text(name);
    }

    fn text(&mut self, bytes: &[u8]) {
        self.longest = self.longest.max(bytes.len() as u64);
        self.packed_bytes += entry_bytes(bytes);
        self.string_bytes += sds_bytes(bytes.len() as u64);
    }

    /// Adds an element of a list to the current node.
    fn element(&mut self, bytes: &[u8]) {
        let entry = entry_bytes(bytes);
        // Redis's rule adds an overhead of 8 bytes to the text; a very long element has its own node.
        let is_full = self.node_bytes + bytes.len() as u64 + 8 > NODE_BYTES_MAX;
        if self.node_bytes > 0 && is_full {
            self.end_node();
        }
        if bytes.len() as u64 > NODE_BYTES_MAX {
            (self.nodes, self.nodes_bytes) =
                (self.nodes + 1, self.nodes_bytes + class(LISTPACK_FRAME_BYTES + entry));
            return;
        }
        self.node_bytes = self.node_bytes.max(LISTPACK_FRAME_BYTES) + entry;
    }

    fn end_node(&mut self) {
        if self.node_bytes > 0 {
            self.nodes += 1;
            self.nodes_bytes += class(self.node_bytes);
            self.node_bytes = 0;
        }
    }

    fn piece(&mut self, piece: Piece<'_>) {
        match piece {
            Piece::Names { .. } => {
                self.end_node();
                self.node_bytes = LISTPACK_FRAME_BYTES + 10;
            }
            // Flags, two differences of IDs, and the number of texts.
            Piece::Entry { .. } | Piece::Same { .. } => {
                self.elements += 1;
                self.node_bytes += 2 + 4 + 2 + 2;
            }
            Piece::Group { .. } | Piece::Consumer { .. } => self.string_bytes += GROUP_BYTES,
            Piece::Pending { .. } => self.string_bytes += PENDING_BYTES,
            Piece::Part(bytes) => self.node_bytes += bytes.len() as u64,
            _ => {}
        }
    }

    fn stream_text(&mut self, bytes: &[u8]) {
        self.longest = self.longest.max(bytes.len() as u64);
        self.node_bytes += entry_bytes(bytes);
    }

    /// The encoding of Redis 7.0, and the bytes of a key of `key_bytes` bytes with this value;
    /// `None` for a value that Redis 7.0 does not have.
    pub(crate) fn finish(&mut self, key_bytes: u64) -> (&'static str, Option<u64>) {
        let (encoding, value) = self.value();
        let key = sds_bytes(key_bytes) + DICT_ENTRY_BYTES;
        (encoding, value.map(|value| value + key))
    }

    fn value(&mut self) -> (&'static str, Option<u64>) {
        let few = |items| self.elements <= items && self.longest <= 64;
        let listpack = OBJECT_BYTES + class(LISTPACK_FRAME_BYTES + self.packed_bytes);
        let dict = DICT_BYTES + self.elements.next_power_of_two().max(4) * POINTER_BYTES;
        let entries = self.elements * DICT_ENTRY_BYTES + self.string_bytes;
        let (encoding, bytes) = match self.shape {
            Shape::Text => self.string(),
            Shape::Hash if self.has_deadlines => ("hashtable", OBJECT_BYTES + dict + entries),
            Shape::Hash if few(512) => ("listpack", listpack),
            Shape::Set => match self.integers.filter(|_| self.elements <= 512) {
                Some(range) => ("intset", OBJECT_BYTES + class(8 + width(range) * self.elements)),
                None => ("hashtable", OBJECT_BYTES + dict + entries),
            },
            Shape::Hash => ("hashtable", OBJECT_BYTES + dict + entries),
            Shape::SortedSet if few(128) => ("listpack", listpack),
            Shape::SortedSet => {
                let nodes = (self.elements as f64 * SKIPLIST_NODE_BYTES) as u64;
                ("skiplist", OBJECT_BYTES + SKIPLIST_BYTES + dict + entries + nodes)
            }
            Shape::List => {
                self.end_node();
                let nodes = self.nodes * QUICKLIST_NODE_BYTES + self.nodes_bytes;
                ("quicklist", OBJECT_BYTES + QUICKLIST_BYTES + nodes)
            }
            Shape::Stream => {
                self.end_node();
                // A block has a path of its own in the tree: about 2.5 nodes.
                let radix_nodes = (self.nodes * 5 / 2).max(1);
                let tree = self.nodes * STREAM_ID_BYTES + radix_nodes * RADIX_NODE_BYTES;
                let blocks = self.nodes_bytes + self.string_bytes;
                ("stream", OBJECT_BYTES + STREAM_BYTES + tree + blocks)
            }
            Shape::Module => return ("module", None),
        };
        (encoding, Some(bytes))
    }

    fn string(&self) -> (&'static str, u64) {
        if self.text_bytes <= 20 && parse_i64(&self.head).is_some() {
            return ("int", OBJECT_BYTES);
        }
        if self.text_bytes <= EMBEDDED_MAX {
            return ("embstr", class(OBJECT_BYTES + 3 + self.text_bytes + 1));
        }
        let header = if self.text_bytes < 256 { 3 } else { sds_header(self.text_bytes) };
        ("raw", OBJECT_BYTES + class(header + self.text_bytes + 1))
    }
}

/// The bytes of an integer of an intset with these extremes.
fn width((low, high): (i64, i64)) -> u64 {
    match (i32::try_from(low), i32::try_from(high)) {
        (Ok(-32_768..), Ok(..=32_767)) => 2,
        (Ok(_), Ok(_)) => 4,
        _ => 8,
    }
}

/// The size of jemalloc's allocation of `bytes` bytes: four classes for each doubling.
fn class(bytes: u64) -> u64 {
    match bytes {
        0..=8 => 8,
        9..=128 => bytes.next_multiple_of(16),
        _ => bytes.next_multiple_of(bytes.next_power_of_two() / 8),
    }
}

fn sds_header(bytes: u64) -> u64 {
    match bytes {
        0..=31 => 1,
        32..=255 => 3,
        256..=0xffff => 5,
        0x1_0000..=0xffff_ffff => 9,
        _ => 17,
    }
}

/// The allocation of a string of its own.
fn sds_bytes(bytes: u64) -> u64 {
    class(sds_header(bytes) + bytes + 1)
}

/// The bytes of a listpack entry.
fn entry_bytes(bytes: &[u8]) -> u64 {
    let data = match parse_i64(bytes) {
        Some(0..=127) => 1,
        Some(-4_096..=4_095) => 2,
        Some(-32_768..=32_767) => 3,
        Some(-8_388_608..=8_388_607) => 4,
        Some(-2_147_483_648..=2_147_483_647) => 5,
        Some(_) => 9,
        None => {
            let len = bytes.len() as u64;
            len + match len {
                0..=63 => 1,
                64..=4_095 => 2,
                _ => 5,
            }
        }
    };
    data + match data {
        0..=127 => 1,
        128..=16_383 => 2,
        16_384..=2_097_151 => 3,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_jemalloc() {
        for (bytes, expected) in [
            (1, 8),
            (9, 16),
            (40, 48),
            (128, 128),
            (129, 160),
            (161, 192),
            (257, 320),
            (536, 640),
            (8_193, 10_240),
            (1_048_577, 1_310_720),
        ] {
            assert_eq!(class(bytes), expected, "{bytes}");
        }
    }
}

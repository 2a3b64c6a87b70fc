//! Streams: blocks of entries, then the state, then consumer groups. The bytes are drawn in
//! docs/formats/rdb.md.
//!
//! A block is read once all of it has arrived, like any packed collection: entry by entry, text by
//! text. Shared names are reported once, not with each entry; otherwise a few bytes of payload
//! would become as many copies of a name as there are entries. A long text is reported in parts.
//! Input that Redis refuses only with deep sanitization is always refused here; IDs must also
//! ascend.

use super::*;
use crate::blob::Entry;
use crate::entries::{DELETED, SAME_NAMES, UNKNOWN};
use crate::kind::Generation;

/// Bytes in one part of a long text.
const PART_BYTES: usize = CHUNK_BYTES / 4;
/// Elements of deleted entries that are skipped in one step.
const PASSED_AT_ONCE: u64 = 256;

/// The next item to read.
#[derive(Clone, Copy, Debug)]
pub(super) enum EntriesStage {
    Nodes,
    /// Names of the node.
    Names,
    /// Values of the entry, and its names unless they are shared.
    Entries,
    /// Values of the entry, and its names unless they are the node's.
    Texts,
    /// Elements of a deleted entry.
    Gone,
    /// Parts of a text.
    Parts,
    Groups,
    Pending,
    Consumers,
    /// IDs of a consumer.
    Owned,
}

/// The state of the stream being read.
#[derive(Debug)]
pub(super) struct Log {
    generation: Generation,
    /// Pending entries may have no consumer.
    may_disown: bool,
    /// Blocks, groups, and so on that are left to read.
    nodes: u64,
    groups: u64,
    pending: u64,
    consumers: u64,
    owned: u64,
    /// Pending entries of the group whose consumer has not been read yet.
    unowned: u64,
    /// The number of blocks and of live entries read so far.
    nodes_read: u64,
    count: u64,
    /// The ID of the first live entry, of the last live entry, and of the last of all entries.
    first: StreamId,
    last: StreamId,
    before: StreamId,
    node: Option<Node>,
}

/// A block of entries.
#[derive(Clone, Debug)]
struct Node {
    block: Block,
    master: StreamId,
    names: u64,
    alive: u64,
    deleted: u64,
    /// Texts left to read: of the shared names, or of the current entry.
    left: u64,
    /// The number of elements of the entry before its last.
    elements: u64,
    /// The rest of a long text.
    long: Range<usize>,
    /// The stage to return to.
    after: EntriesStage,
}

fn fault(fault: &'static str) -> Stop {
    Stop::Bad(0, Reason::Blob { form: "stream", fault })
}

impl Log {
    pub(super) fn new(generation: Generation, may_disown: bool, nodes: u64) -> Self {
        Self {
            generation,
            may_disown,
            nodes,
            groups: 0,
            pending: 0,
            consumers: 0,
            owned: 0,
            unowned: 0,
            nodes_read: 0,
            count: 0,
            first: StreamId::MIN,
            last: StreamId::MIN,
            before: StreamId::MIN,
            node: None,
        }
    }

    /// The read count of a group positioned at `id`, in a stream without known deletions.
    fn read(&self, id: StreamId) -> Option<u64> {
        match id {
            _ if self.count == 0 => Some(0),
            id if id == self.last => Some(self.count),
            id if id > self.last => None,
            id if id < self.first => Some(0),
            id if id == self.first => Some(1),
            _ => None,
        }
    }
}

impl Node {
    /// The last element of an entry must give the number of elements before it.
    fn is_end(&self, entry: Entry) -> bool {
        matches!(entry, Entry::Int(count) if u64::try_from(count) == Ok(self.elements))
    }
}

impl Reader {
    pub(super) fn entries(&mut self, stage: EntriesStage) -> Attempt {
        match stage {
            EntriesStage::Nodes => self.entry_node(),
            EntriesStage::Names => self.node_name(),
            EntriesStage::Entries => self.entry(),
            EntriesStage::Texts => self.entry_text(),
            EntriesStage::Gone => self.pass_entry(),
            EntriesStage::Parts => self.part(),
            EntriesStage::Groups => self.group(),
            EntriesStage::Pending => self.pending_entry(),
            EntriesStage::Consumers => self.consumer(),
            EntriesStage::Owned => self.owned(),
        }
    }

    fn log(&mut self) -> &mut Log {
        self.log.as_mut().expect("a stream is being read")
    }

    fn go_on(&mut self, used: usize, stage: EntriesStage) {
        self.consume(used);
        self.state = State::Body(Body::Entries(stage));
    }

    fn piece(&mut self, used: usize, stage: EntriesStage, piece: Piece<'static>) -> Attempt {
        self.go_on(used, stage);
        Ok(Some(Step::Piece(piece)))
    }

    /// Reads the next block: its key and its counts.
    fn entry_node(&mut self) -> Attempt {
        if self.log().nodes == 0 {
            return self.stream_state();
        }
        let mut cursor = self.cursor();
        let (key, skip) = (cursor.text()?, cursor.at);
        let key = self.place(key, FIRST)?;
        let master: [u8; 16] =
            self.bytes(key).try_into().map_err(|_| fault("a key that is no ID"))?;
        let Opened { body, used, .. } = self.open_block(Form::Listpack, 1, skip)?;
        let Body::Block(block) = body else { unreachable!("a block was opened") };
        self.consume(used);
        let mut node = Node {
            block,
            master: StreamId::from_be_bytes(master),
            names: 0,
            alive: 0,
            deleted: 0,
            left: 0,
            elements: 0,
            long: 0..0,
            after: EntriesStage::Names,
        };
        node.alive = self.element_count(&mut node)?;
        node.deleted = self.element_count(&mut node)?;
        let names = self.element_count(&mut node)?;
        (node.names, node.left) = (names, names);
        let log = self.log();
        (log.node, log.nodes, log.nodes_read) = (Some(node), log.nodes - 1, log.nodes_read + 1);
        self.piece(0, EntriesStage::Names, Piece::Names { names })
    }

    /// Reads the next shared name of the block; a 0 follows the last one.
    fn node_name(&mut self) -> Attempt {
        let mut node = self.log().node.take().expect("a block is being read");
        if node.left > 0 {
            return self.text(node, EntriesStage::Names);
        }
        if self.element_count(&mut node)? != 0 {
            return Err(block_fault(&node.block, "names that do not end in 0"));
        }
        self.log().node = Some(node);
        self.go_on(0, EntriesStage::Entries);
        Ok(None)
    }

    /// Reads the next element of a block; it must exist.
    fn element(&self, node: &mut Node) -> Result<Entry, Stop> {
        let element = self.block_entry(&mut node.block)?;
        element.ok_or_else(|| block_fault(&node.block, "it ends within an entry"))
    }

    fn element_integer(&self, node: &mut Node) -> Result<i64, Stop> {
        match self.element(node)? {
            Entry::Int(value) => Ok(value),
            Entry::Text { .. } => Err(block_fault(&node.block, "no integer where one must be")),
        }
    }

    fn element_count(&self, node: &mut Node) -> Result<u64, Stop> {
        let value = self.element_integer(node)?;
        u64::try_from(value).map_err(|_| block_fault(&node.block, "a count below 0"))
    }

    /// Reads the flags and the ID of the block's next entry; and its rest, if it was deleted.
    fn entry(&mut self) -> Attempt {
        let mut node = self.log().node.take().expect("a block is being read");
        if node.alive + node.deleted == 0 {
            return self.end_of_node(&node);
        }
        let marks = self.element_integer(&mut node)?;
        let ms = self.element_integer(&mut node)?.cast_unsigned();
        let seq = self.element_integer(&mut node)?.cast_unsigned();
        let master = node.master;
        let id = StreamId::new(master.ms.wrapping_add(ms), master.seq.wrapping_add(seq));
        let is_same = marks & SAME_NAMES != 0;
        let pairs = if is_same { node.names } else { self.element_count(&mut node)? };
        if pairs == 0 || pairs > u64::from(u32::MAX) {
            return Err(block_fault(&node.block, "an entry without names, or with too many"));
        }
        (node.left, node.elements) =
            if is_same { (pairs, 3 + pairs) } else { (2 * pairs, 4 + 2 * pairs) };
        if id <= self.log().before {
            return Err(block_fault(&node.block, "IDs that do not ascend"));
        }
        self.log().before = id;
        if marks & DELETED != 0 {
            let left = node.deleted.checked_sub(1);
            let fault = "more deleted entries than it says";
            node.deleted = left.ok_or_else(|| block_fault(&node.block, fault))?;
            self.log().node = Some(node);
            return self.piece(0, EntriesStage::Gone, Piece::Gone);
        }
        let left = node.alive.checked_sub(1);
        node.alive = left.ok_or_else(|| block_fault(&node.block, "more entries than it says"))?;
        let log = self.log();
        if log.count == 0 {
            log.first = id;
        }
        (log.last, log.count, log.node) = (id, log.count + 1, Some(node));
        let fields = 2 * pairs;
        let piece = if is_same { Piece::Same { id } } else { Piece::Entry { id, fields } };
        self.piece(0, EntriesStage::Texts, piece)
    }

    /// Skips some elements of a deleted entry.
    fn pass_entry(&mut self) -> Attempt {
        let mut node = self.log().node.take().expect("a block is being read");
        let passed = node.left.min(PASSED_AT_ONCE);
        for _ in 0..passed {
            self.element(&mut node)?;
        }
        node.left -= passed;
        if node.left == 0 {
            return self.end_of_entry(node);
        }
        self.log().node = Some(node);
        self.piece(0, EntriesStage::Gone, Piece::Gone)
    }

    fn end_of_entry(&mut self, mut node: Node) -> Attempt {
        let last = self.element(&mut node)?;
        if !node.is_end(last) {
            return Err(block_fault(&node.block, "an entry whose length behind it is wrong"));
        }
        self.log().node = Some(node);
        self.go_on(0, EntriesStage::Entries);
        Ok(None)
    }

    /// Reads the next name or value of the entry.
    fn entry_text(&mut self) -> Attempt {
        let node = self.log().node.take().expect("a block is being read");
        if node.left == 0 { self.end_of_entry(node) } else { self.text(node, EntriesStage::Texts) }
    }

    /// Reads the next text of a block: whole, or only its length if it is reported in parts.
    fn text(&mut self, mut node: Node, stage: EntriesStage) -> Attempt {
        let text = self.element(&mut node)?;
        node.left -= 1;
        if let Entry::Text { start, len } = text
            && len > PART_BYTES
        {
            (node.long, node.after) = (start..start + len, stage);
            self.log().node = Some(node);
            return self.piece(0, EntriesStage::Parts, Piece::Long { len: len as u64 });
        }
        let text = self.place_entry(text, &node.block, FIRST);
        self.log().node = Some(node);
        Ok(Some(Step::Single(text)))
    }

    /// Reads the next part of a long text.
    fn part(&mut self) -> Attempt {
        let mut node = self.log().node.take().expect("a block is being read");
        let (start, len) = (node.long.start, node.long.len().min(PART_BYTES));
        node.long.start += len;
        let part = self.place_entry(Entry::Text { start, len }, &node.block, FIRST);
        if node.long.is_empty() {
            self.go_on(0, node.after);
        }
        self.log().node = Some(node);
        Ok(Some(Step::Part(part)))
    }

    fn end_of_node(&mut self, node: &Node) -> Attempt {
        let mut block = node.block;
        if self.block_entry(&mut block)?.is_some() {
            return Err(block_fault(&block, "more entries than it says"));
        }
        if block.announced.is_some_and(|announced| announced != block.taken) {
            return Err(block_fault(&block, "its count differs from its entries"));
        }
        self.go_on(if block.packed { 0 } else { block.len }, EntriesStage::Nodes);
        Ok(None)
    }

    /// Reads the counters of the stream.
    fn stream_state(&mut self) -> Attempt {
        let generation = self.log().generation;
        let mut cursor = self.cursor();
        let announced = cursor.count()?;
        let last = id(&mut cursor)?;
        let mut max_deleted = StreamId::MIN;
        let mut added = None;
        if generation >= Generation::Second {
            id(&mut cursor)?; // The ID of the first entry, which is already known.
            max_deleted = id(&mut cursor)?;
            added = Some(cursor.count()?);
        }
        let (groups, used) = (cursor.count()?, cursor.at);
        let log = self.log();
        if announced > 0 && log.nodes_read == 0 {
            return Err(fault("entries, and no blocks of them"));
        }
        log.groups = groups;
        log.last = last.max(log.last);
        let (last, added) = (log.last, added.unwrap_or(log.count));
        self.piece(used, EntriesStage::Groups, Piece::State { last, max_deleted, added, groups })
    }

    /// Reads the next group: its name and its position.
    fn group(&mut self) -> Attempt {
        if self.log().groups == 0 {
            self.log = None;
            return self.end_of_key();
        }
        let generation = self.log().generation;
        let mut cursor = self.cursor();
        let name = cursor.text()?;
        let last = id(&mut cursor)?;
        let known = match generation {
            Generation::First => None,
            _ => Some(Some(cursor.count()?).filter(|read| *read != UNKNOWN)),
        };
        let (pending, used) = (cursor.count()?, cursor.at);
        let name = self.place(name, FIRST)?;
        let log = self.log();
        let read = known.unwrap_or_else(|| log.read(last));
        (log.groups, log.pending, log.unowned) = (log.groups - 1, pending, pending);
        self.go_on(used, EntriesStage::Pending);
        Ok(Some(Step::Group { name, last, read, pending }))
    }

    fn pending_entry(&mut self) -> Attempt {
        let is_last = self.log().pending == 0;
        let mut cursor = self.cursor();
        if is_last {
            let (consumers, used) = (cursor.count()?, cursor.at);
            self.log().consumers = consumers;
            self.go_on(used, EntriesStage::Consumers);
            return Ok(None);
        }
        let id = raw_id(&mut cursor)?;
        let delivered_ms = time(cursor.i64_le()?);
        let (times, used) = (cursor.count()?, cursor.at);
        self.log().pending -= 1;
        self.piece(used, EntriesStage::Pending, Piece::Pending { id, delivered_ms, times })
    }

    fn consumer(&mut self) -> Attempt {
        if self.log().consumers == 0 {
            if self.log().unowned > 0 && !self.log().may_disown {
                return Err(fault("pending entries without a consumer"));
            }
            self.go_on(0, EntriesStage::Groups);
            return Ok(None);
        }
        let generation = self.log().generation;
        let mut cursor = self.cursor();
        let name = cursor.text()?;
        let seen = cursor.i64_le()?;
        let active = if generation >= Generation::Third { cursor.i64_le()? } else { seen };
        let (pending, used) = (cursor.count()?, cursor.at);
        let name = self.place(name, FIRST)?;
        let log = self.log();
        (log.consumers, log.owned) = (log.consumers - 1, pending);
        let active_ms = (active != -1).then_some(time(active));
        self.go_on(used, EntriesStage::Owned);
        Ok(Some(Step::Consumer { name, seen_ms: time(seen), active_ms, pending }))
    }

    fn owned(&mut self) -> Attempt {
        if self.log().owned == 0 {
            self.go_on(0, EntriesStage::Consumers);
            return Ok(None);
        }
        let mut cursor = self.cursor();
        let (id, used) = (raw_id(&mut cursor)?, cursor.at);
        let log = self.log();
        let left = log.unowned.checked_sub(1);
        log.unowned = left.ok_or_else(|| fault("more IDs of consumers than pending entries"))?;
        log.owned -= 1;
        self.piece(used, EntriesStage::Owned, Piece::Owned(id))
    }
}

/// Reads an ID stored as two lengths.
fn id(cursor: &mut Cursor<'_>) -> Result<StreamId, Stop> {
    Ok(StreamId { ms: cursor.count()?, seq: cursor.count()? })
}

/// Reads an ID stored as bytes.
fn raw_id(cursor: &mut Cursor<'_>) -> Result<StreamId, Stop> {
    let bytes = cursor.take(16)?.try_into().expect("sixteen bytes");
    Ok(StreamId::from_be_bytes(bytes))
}

/// A time from a signed number; negative times are long past.
fn time(signed: i64) -> u64 {
    u64::try_from(signed).unwrap_or(0)
}

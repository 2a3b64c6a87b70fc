//! Sorts the events of a file into portions, by the core that owns the key.

use super::portion::{Head, LoadPortion, Record};
use super::{Cause, Summary};
use darter_base::lazyfree;
use darter_base::limits::CHUNK_BYTES;
use darter_base::preempt::Never;
use darter_base::{UnixMillis, slot};
use darter_keyspace::{Fresh, NewItem};
use darter_rdb::{Block, BlockPlace, Event, IntTexts, Item, Kind, Product};
use darter_structs::blob::Blob;
use std::sync::Arc;

/// The size at which a portion is sent. Inserting it takes 100 us to 10 ms.
const PORTION_BYTES: usize = 128 * 1024;

/// Receives the events of the file, and sends the records of each core in portions.
pub(crate) struct Sorter {
    open: Vec<LoadPortion>,
    databases: usize,
    /// The time at which loading began. Keys that had expired by then are skipped.
    now: UnixMillis,
    database: u32,
    current: Current,
    summary: Summary,
}

/// The key whose value is being read.
struct Current {
    key: Vec<u8>,
    /// The kind of the value; `None` for a string.
    kind: Option<&'static Kind>,
    deadline: Option<UnixMillis>,
    idle: Option<u32>,
    offset: u64,
    core: usize,
    is_skipped: bool,
    /// The number of items so far that have not expired.
    entries: u64,
    text: Vec<u8>,
    chunks: Vec<Arc<[u8]>>,
}

/// The function that sends a portion to a core, and returns an empty one.
pub(crate) type Send<'a> = dyn FnMut(usize, LoadPortion) -> Result<LoadPortion, Cause> + 'a;

/// The longest idle time in a portion: `u32::MAX` has another meaning, and the keyspace stores far
/// less anyway.
const IDLE_MAX: u32 = u32::MAX - 1;

impl Sorter {
    pub(crate) fn new(cores: usize, databases: usize, now: UnixMillis) -> Self {
        let current = Current {
            key: Vec::new(),
            kind: None,
            deadline: None,
            idle: None,
            offset: 0,
            core: 0,
            is_skipped: false,
            entries: 0,
            text: Vec::new(),
            chunks: Vec::new(),
        };
        let open = (0..cores).map(|_| LoadPortion::default()).collect();
        Self { open, databases, now, database: 0, current, summary: Summary::default() }
    }

    /// The figures of the events so far.
    pub(crate) fn summary(&self) -> Summary {
        self.summary.clone()
    }

    /// Handles an event of the file, which began at `offset`.
    pub(crate) fn take_in(
        &mut self,
        event: Event<'_>,
        offset: u64,
        send: &mut Send<'_>,
    ) -> Result<(), Cause> {
        match event {
            Event::Item(item) => self.item(item, send),
            Event::Block(block) => self.block(block, send),
            Event::Key { key, kind, expiry_ms, idle_s, len_hint, .. } => {
                self.key(key, kind, expiry_ms, offset);
                self.current.idle = idle_s
                    .map(|idle| u32::try_from(idle).map_or(IDLE_MAX, |idle| idle.min(IDLE_MAX)));
                self.begin_key(len_hint.unwrap_or(0));
                Ok(())
            }
            Event::EndOfKey => self.end_of_key(send),
            Event::SelectDb(database) if database as usize >= self.databases => {
                Err(Cause::Database { database, databases: self.databases, offset })
            }
            Event::SelectDb(database) => {
                self.database = database;
                Ok(())
            }
            other => {
                remark(other);
                Ok(())
            }
        }
    }

    /// Sends the last portion to each core, marked as the last.
    pub(crate) fn finish(&mut self, send: &mut Send<'_>) -> Result<(), Cause> {
        for (core, open) in self.open.iter_mut().enumerate() {
            let mut portion = std::mem::take(open);
            portion.is_last = true;
            send(core, portion)?;
        }
        free_deferred();
        Ok(())
    }

    fn key(&mut self, key: &[u8], kind: &'static Kind, deadline: Option<UnixMillis>, offset: u64) {
        let current = &mut self.current;
        current.key.clear();
        current.key.extend_from_slice(key);
        current.core = slot::core_of(slot::of(key), self.open.len());
        current.is_skipped = deadline.is_some_and(|at| at < self.now);
        current.kind = (!kind.is_text()).then_some(kind);
        (current.deadline, current.offset) = (deadline, offset);
        (current.entries, current.text, current.chunks) =
            (0, std::mem::take(&mut current.text), Vec::new());
        current.text.clear();
        self.summary.expired += u64::from(current.is_skipped);
    }

    /// Appends the head of a collection, and the number of items that the file announces.
    fn begin_key(&mut self, items: u64) {
        let current = &self.current;
        if let Some(kind) = current.kind.filter(|_| !current.is_skipped) {
            let head = current.head(self.database);
            self.open[current.core].push(Record::Begin(head, kind.number(), items));
        }
    }

    #[inline]
    fn item(&mut self, item: Item<'_>, send: &mut Send<'_>) -> Result<(), Cause> {
        if self.current.is_skipped || item.deadline_ms().is_some_and(|at| at <= self.now) {
            return Ok(());
        }
        let portion = &mut self.open[self.current.core];
        match item {
            Item::Chunk(chunk) => {
                self.current.chunk(chunk);
                return Ok(());
            }
            Item::Pair { name, value, deadline_ms: deadline } if value.len() > CHUNK_BYTES => {
                // Copied here, so that the core need not copy it.
                let value = Fresh::Blob(&Blob::from(value));
                portion.push(Record::Item(NewItem::Pair { name, value, deadline }));
            }
            item => {
                let item = NewItem::of(item).expect("a reader gives items whole");
                portion.push(Record::Item(item));
            }
        }
        self.current.entries += 1;
        self.summary.entries += 1;
        self.send_full(send)
    }

    fn block(&mut self, block: Block<'_>, send: &mut Send<'_>) -> Result<(), Cause> {
        if self.current.is_skipped {
            let (mut place, mut texts) = (BlockPlace::default(), IntTexts::default());
            while block.next(&mut place, &mut texts).map_err(Cause::Format)?.is_some() {}
            return Ok(());
        }
        self.open[self.current.core].push(Record::Block(block));
        self.current.entries += block.head.items();
        self.summary.entries += block.head.items();
        self.send_full(send)
    }

    fn end_of_key(&mut self, send: &mut Send<'_>) -> Result<(), Cause> {
        let current = &mut self.current;
        if current.is_skipped {
            return Ok(());
        }
        let portion = &mut self.open[current.core];
        if current.kind.is_some() {
            portion.push(Record::End);
            self.summary.keys += u64::from(current.entries > 0);
            self.summary.empty += u64::from(current.entries == 0);
            return self.send_full(send);
        }
        let head = current.head(self.database);
        if current.chunks.is_empty() {
            portion.push(Record::Text(head, &current.text));
        } else {
            portion.push(Record::Long(head, &Blob::from_chunks(&current.chunks)));
            current.chunks = Vec::new();
        }
        self.summary.keys += 1;
        self.summary.entries += 1;
        self.send_full(send)
    }

    #[inline]
    fn send_full(&mut self, send: &mut Send<'_>) -> Result<(), Cause> {
        let portion = &mut self.open[self.current.core];
        if portion.len() < PORTION_BYTES && portion.weight() < PORTION_BYTES {
            return Ok(());
        }
        let full = std::mem::take(portion);
        *portion = send(self.current.core, full)?;
        free_deferred();
        Ok(())
    }
}

/// Frees the values whose freeing was deferred in this thread. No slice does that here, and long
/// strings would be kept until the thread ends.
fn free_deferred() {
    while lazyfree::run(&Never) {}
}

impl Current {
    fn head(&self, database: u32) -> Head<'_> {
        let Self { deadline, idle, offset, .. } = *self;
        Head { database, deadline, idle, offset, key: &self.key }
    }

    /// Adds a chunk of a string. All chunks but the last are full.
    fn chunk(&mut self, chunk: &[u8]) {
        if self.chunks.is_empty() && chunk.len() < CHUNK_BYTES {
            self.text.extend_from_slice(chunk);
        } else {
            self.chunks.push(Arc::from(chunk));
        }
    }
}

/// Logs an event that carries no data.
fn remark(event: Event<'_>) {
    match event {
        Event::Start { product, version } => {
            let name = if product == Product::Valkey { "Valkey" } else { "Redis" };
            tracing::info!("loading: RDB version {version} of {name}");
        }
        Event::Aux { key, value } => {
            tracing::debug!("loading: {} is {}", key.escape_ascii(), value.escape_ascii());
        }
        Event::ModuleSkipped { module } => {
            tracing::warn!("loading: skipped data of module {}", module.escape_ascii());
        }
        _ => {}
    }
}

//! `DUMP`.
//!
//! The payload's length stands before its first byte, so the value is read twice, both times from
//! one cut: sized, then written. Each pass goes in slices when the value is large.

use darter_base::UnixMillis;
use darter_base::limits::{CHUNK_BYTES, ENTRIES_AT_ONCE};
use darter_command::{Args, Cx, Flow, Job, Refusal, Step, Stream};
use darter_keyspace::{Found, Hash, Set, Str, StrPieces, WrongType};
use darter_rdb::Kind;
use darter_rdb::dump::{Dumper, Item, Packing, Source};
use darter_resp::Reply;
use darter_structs::blob::Blob;
use darter_structs::table::{Entry, HeldKey, Never, OutOfLine, Reader, Scratch, Table, ValueRef};
use std::sync::Arc;

/// Payloads up to here are encoded at once.
const AT_ONCE_BYTES: u64 = 16 * 1024;
/// Bytes encoded in one portion: some 10 us for their checksum, and 20 for up to 1 000 entries. Of a
/// long value half a piece, so that one part is a portion.
const PORTION_BYTES: usize = CHUNK_BYTES / 2;
/// Entries copied out of the table at a time, and about how many bytes.
const BATCH: usize = 32;
const BATCH_BYTES: usize = 32 * 1024;
/// Fields, members and values of so many bytes are not copied.
const LONG_BYTES: usize = 4 * 1024;

/// `DUMP key`: replies with the value at `key` as a payload for `RESTORE`.
///
/// Reply: bulk, or null when the key is absent. Cost: O(bytes), in slices beyond
/// `ENTRIES_AT_ONCE` entries. Source: <https://redis.io/commands/dump> (2.6.0).
pub(super) fn dump(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    args.end()?;

    let now = cx.now;
    let Some(found) = cx.find(&key) else {
        cx.reply.null();
        return Ok(Flow::Done);
    };
    if let Ok(text) = found.text() {
        let source = Pieces { text: text.to_pieces(), next: 0 };
        return Ok(start(Dumper::new(source, Kind::String, Packing::default()), &mut cx.reply));
    }
    if let Ok(hash) = found.value::<Hash>() {
        let source = Items::new(hash.fields().clone(), now, field);
        return Ok(start(Dumper::new(source, Kind::Hash, Packing::default()), &mut cx.reply));
    }
    let cut = found.value::<Set>()?.members().clone();
    Ok(set(cut, now, &mut cx.reply))
}

/// Surveys as many entries as it is told, and tells the payload's bytes once all are seen.
pub type Sizer = Box<dyn FnMut(usize) -> Option<u64> + Send>;

/// What a value's payload would take, counted from a cut of it: for `DEBUG OBJECT`.
pub fn sizer(found: &Found<'_>, now: UnixMillis) -> Result<Sizer, WrongType> {
    fn of<S: Source + Send + 'static>(source: S, kind: Kind) -> Sizer {
        let mut dumper = Dumper::new(source, kind, Packing::default());
        Box::new(move |items_max| dumper.survey(items_max))
    }
    if let Ok(text) = found.text() {
        return Ok(of(Pieces { text: text.to_pieces(), next: 0 }, Kind::String));
    }
    if let Ok(hash) = found.value::<Hash>() {
        return Ok(of(Items::new(hash.fields().clone(), now, field), Kind::Hash));
    }
    Ok(of(Members::new(found.value::<Set>()?.members().clone(), now), Kind::Set))
}

fn set(cut: Table<Never>, now: UnixMillis, reply: &mut Reply<'_>) -> Flow {
    if cut.earliest_deadline().is_some() {
        let source = Items::new(cut, now, no_value);
        return start(Dumper::of_mortal_set(source, Packing::default()), reply);
    }
    let source = Members::new(cut, now);
    start(Dumper::new(source, Kind::Set, Packing::default()), reply)
}

/// Sizes the first entries, and replies when those were all.
fn start<S: Counted + Send + 'static>(mut dumper: Dumper<S>, reply: &mut Reply<'_>) -> Flow {
    match dumper.survey(ENTRIES_AT_ONCE) {
        Some(len) => answer(dumper, len, reply, AT_ONCE_BYTES),
        None => Flow::Job(Box::new(Sizing(Some(dumper)))),
    }
}

/// The reply of a dumper whose length is known; up to `at_once_bytes` it is encoded here.
fn answer<S: Counted + Send + 'static>(
    mut dumper: Dumper<S>,
    len: u64,
    reply: &mut Reply<'_>,
    at_once_bytes: u64,
) -> Flow {
    if dumper.source().is_hollow() {
        // All entries were dead, and the sweeper has yet to come.
        reply.null();
        return Flow::Done;
    }
    reply.bulk_header(usize::try_from(len).unwrap_or(usize::MAX));
    if len > at_once_bytes {
        return Flow::Stream(Box::new(Writing(dumper)));
    }
    let done = dumper.fill(reply.out.tail(), usize::MAX);
    debug_assert!(done, "nothing limits the bytes");
    reply.crlf();
    Flow::Done
}

/// The first pass over a large value.
struct Sizing<S>(Option<Dumper<S>>);

impl<S: Counted + Send + 'static> Job for Sizing<S> {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let dumper = self.0.as_mut().expect("the engine drops a job that is done");
        let Some(len) = dumper.survey(ENTRIES_AT_ONCE) else { return Ok(Step::More) };
        let dumper = self.0.take().expect("it was there a line above");
        // However few bytes: there is much to be looked through, twice.
        Ok(Step::Done(answer(dumper, len, &mut cx.reply, 0)))
    }
}

/// The second pass.
struct Writing<S>(Dumper<S>);

impl<S: Counted + Send> Stream for Writing<S> {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let done = self.0.fill(reply.out.tail(), PORTION_BYTES);
        if done {
            reply.crlf();
        }
        !done
    }
}

/// A source that knows whether it gave anything.
trait Counted: Source {
    /// True when the value has no living entry.
    fn is_hollow(&self) -> bool;
}

/// A string, piece by piece.
struct Pieces {
    text: StrPieces,
    next: usize,
}

impl Source for Pieces {
    fn next(&mut self) -> Option<Item<'_>> {
        let piece = match &self.text {
            StrPieces::Bytes(bytes) => (self.next == 0 && !bytes.is_empty()).then_some(&bytes[..]),
            StrPieces::Blob(blob) => {
                let from = self.next * CHUNK_BYTES;
                blob.slices(from..from + CHUNK_BYTES).next()
            }
        }?;
        self.next += 1;
        Some(Item::Chunk(piece))
    }

    fn rewind(&mut self) {
        self.next = 0;
    }
}

impl Counted for Pieces {
    fn is_hollow(&self) -> bool {
        false
    }
}

/// Appends the value of an entry, or gives it when it is long.
type WriteValue<X> = fn(&Entry<'_, X>, &mut Vec<u8>) -> Option<Arc<Blob>>;

fn field(entry: &Entry<'_, Arc<Blob>>, out: &mut Vec<u8>) -> Option<Arc<Blob>> {
    match entry.value() {
        ValueRef::Text(text) => {
            out.extend_from_slice(text.bytes(&mut Scratch::default()));
            None
        }
        ValueRef::Out(blob) if blob.len() < LONG_BYTES => {
            Str::Blob(blob).write_to(out);
            None
        }
        ValueRef::Out(blob) => Some(Arc::clone(blob)),
    }
}

fn no_value(_: &Entry<'_, Never>, _: &mut Vec<u8>) -> Option<Arc<Blob>> {
    None
}

/// A living entry that was copied out of the table.
struct Copied {
    /// Where its key and its value end in the bytes.
    key_end: usize,
    end: usize,
    deadline_ms: Option<UnixMillis>,
    /// Its key, when that is long: then none was copied.
    long_key: Option<HeldKey>,
    /// Its value, when that is long.
    long: Option<Arc<Blob>>,
}

/// What is given in parts.
enum Long {
    /// A key; its value comes next, if there are values.
    Key(HeldKey),
    Value(Arc<Blob>),
}

impl Long {
    fn len(&self) -> usize {
        match self {
            Self::Key(key) => key.bytes().len(),
            Self::Value(blob) => blob.len(),
        }
    }

    /// The bytes from `from` on, some of them.
    fn part(&self, from: usize) -> &[u8] {
        let to = self.len().min(from + PORTION_BYTES);
        match self {
            Self::Key(key) => &key.bytes()[from..to],
            Self::Value(blob) => blob.slices(from..to).next().unwrap_or_default(),
        }
    }
}

/// The living entries of a cut, as fields: copied out of the table in small batches, but for long
/// keys and values, which are given in parts.
struct Items<X: OutOfLine> {
    /// For the second pass, which lets go of what it has read.
    cut: Option<Table<X>>,
    reader: Reader<X>,
    now: UnixMillis,
    value: WriteValue<X>,
    bytes: Vec<u8>,
    /// Read up to `next`.
    copied: Vec<Copied>,
    next: usize,
    /// The long key or value that is being given, and how much of it was.
    long: Option<(Long, usize)>,
    /// They are members: there are no values.
    is_set: bool,
    any: bool,
}

impl<X: OutOfLine> Items<X> {
    fn new(cut: Table<X>, now: UnixMillis, value: WriteValue<X>) -> Self {
        let reader = Reader::new(cut.clone());
        let (bytes, copied) = (Vec::new(), Vec::new());
        let (next, long) = (0, None);
        Self {
            cut: Some(cut),
            reader,
            now,
            value,
            bytes,
            copied,
            next,
            long,
            is_set: false,
            any: false,
        }
    }

    /// Copies the next living entries, unless there are none.
    fn refill(&mut self, looks: &mut usize) {
        let Self { reader, now, value, bytes, copied, .. } = self;
        bytes.clear();
        copied.clear();
        while reader.left() > 0 && *looks > 0 && copied.len() < BATCH && bytes.len() < BATCH_BYTES {
            reader.next_slice(1, &mut |entry| {
                if entry.deadline().is_some_and(|at| at <= *now) {
                    *looks -= 1;
                    return;
                }
                let long_key =
                    (entry.key().len() >= LONG_BYTES).then(|| entry.hold_key()).flatten();
                if long_key.is_none() {
                    bytes.extend_from_slice(entry.key().bytes(&mut Scratch::default()));
                }
                let key_end = bytes.len();
                let long = value(&entry, bytes);
                let (end, deadline_ms) = (bytes.len(), entry.deadline());
                copied.push(Copied { key_end, end, deadline_ms, long_key, long });
            });
        }
        self.next = 0;
    }

    /// The next part of what is long.
    fn part(&mut self) -> Option<Item<'_>> {
        let (long, given) = self.long.as_mut()?;
        let part = long.part(*given);
        *given += part.len();
        Some(Item::Part(part))
    }

    /// What comes behind a long key, all of which was given.
    fn value_of_long_key(&mut self) -> Option<Item<'_>> {
        let &mut Copied { key_end, end, ref mut long, .. } = &mut self.copied[self.next - 1];
        let blob = long.take();
        let len = blob.as_ref().map(|blob| blob.len() as u64);
        self.long = blob.map(|blob| (Long::Value(blob), 0));
        Some(len.map_or(Item::Value(&self.bytes[key_end..end]), Item::LongValue))
    }

    /// The next entry: whole, or what comes before its parts.
    fn entry(&mut self) -> Option<Item<'_>> {
        let start = self.next.checked_sub(1).map_or(0, |before| self.copied[before].end);
        let &mut Copied { key_end, end, deadline_ms, ref mut long_key, ref mut long } =
            self.copied.get_mut(self.next)?;
        self.next += 1;
        self.any = true;
        if let Some(key) = long_key.take() {
            let field_len = key.bytes().len() as u64;
            self.long = Some((Long::Key(key), 0));
            return Some(Item::LongField { field_len, deadline_ms });
        }
        let field = &self.bytes[start..key_end];
        if let Some(blob) = long.take() {
            let value_len = blob.len() as u64;
            self.long = Some((Long::Value(blob), 0));
            return Some(Item::Long { field, value_len, deadline_ms });
        }
        Some(Item::Field { field, value: &self.bytes[key_end..end], deadline_ms })
    }
}

impl<X: OutOfLine> Source for Items<X> {
    fn find(&mut self, looks: &mut usize) -> bool {
        let is_set = self.is_set;
        self.long.take_if(|(long, given)| {
            *given == long.len() && (is_set || matches!(long, Long::Value(_)))
        });
        if self.long.is_none() && self.next == self.copied.len() {
            self.refill(looks);
        }
        self.long.is_some() || self.next < self.copied.len() || self.reader.left() == 0
    }

    fn next(&mut self) -> Option<Item<'_>> {
        self.find(&mut { usize::MAX });
        match &self.long {
            Some((long, given)) if *given < long.len() => self.part(),
            Some(_) => self.value_of_long_key(),
            None => self.entry(),
        }
    }

    fn rewind(&mut self) {
        let cut = self.cut.take().expect("a payload is written once");
        self.reader = Reader::new(cut);
        self.copied.clear();
        self.next = 0;
    }
}

impl<X: OutOfLine> Counted for Items<X> {
    fn is_hollow(&self) -> bool {
        !self.any
    }
}

/// The same as members.
struct Members(Items<Never>);

impl Members {
    fn new(cut: Table<Never>, now: UnixMillis) -> Self {
        Self(Items { is_set: true, ..Items::new(cut, now, no_value) })
    }
}

impl Source for Members {
    fn find(&mut self, looks: &mut usize) -> bool {
        self.0.find(looks)
    }

    fn next(&mut self) -> Option<Item<'_>> {
        match self.0.next()? {
            Item::Field { field, .. } => Some(Item::Member(field)),
            Item::LongField { field_len, .. } => Some(Item::LongMember(field_len)),
            other => Some(other),
        }
    }

    fn rewind(&mut self) {
        self.0.rewind();
    }
}

impl Counted for Members {
    fn is_hollow(&self) -> bool {
        self.0.is_hollow()
    }
}

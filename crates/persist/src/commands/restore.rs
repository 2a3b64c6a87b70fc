//! `RESTORE`.
//!
//! The payload is read twice: first for its checksum, because a wrong one has an error of its own,
//! and then for its value, which is built on the side and installed by the last step.

use darter_base::limits::CHUNK_BYTES;
use darter_base::{UnixMillis, number};
use darter_command::{Args, Cx, Flow, Job, Refusal, Step};
use darter_families::TYPES;
use darter_keyspace::{Building, Deadline, Fresh, Key, NewItem, Tells, Twice, Types, event};
use darter_rdb::crc64::Crc64;
use darter_rdb::dump::{self, TRAILER_BYTES};
use darter_rdb::{Event, Item, Limits, Reader};
use darter_resp as resp;
use darter_structs::blob::Blob;
use std::sync::Arc;

/// Bytes checksummed in one step.
const SUMMED_AT_ONCE: usize = 64 * 1024;
/// Bytes given to the reader at a time.
const PUSHED_AT_ONCE: usize = 16 * 1024;
/// Items added in one step.
const ITEMS_AT_ONCE: usize = 64;
/// An item counts once more for each of this many bytes.
const ITEM_BYTES: usize = 512;
/// The index of the payload among the arguments. The command's name has index 0.
const PAYLOAD: usize = 3;

/// `RESTORE key ttl payload [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]`: makes `key`
/// hold the value of a payload from `DUMP`.
///
/// `ttl` is in milliseconds, 0 for none; with `ABSTTL` a Unix time. One that has passed replies OK
/// and leaves no key. `IDLETIME` sets how long the key has been idle; `FREQ` is checked and
/// ignored: nothing here evicts by it.
/// Reply: OK. Refusals: `Syntax`, `NotAnInteger`, BUSYKEY, an invalid ttl, a payload whose trailer
/// or value is wrong, in this order; then nothing changes.
/// Cost: O(bytes), in slices. Source: <https://redis.io/commands/restore> (2.6.0).
pub(super) fn restore(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    restore_as(TYPES, cx, args)
}

/// `RESTORE` of a value that may be of any of `types`.
pub fn restore_as(types: Types, cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let ttl = args.bytes()?;
    let payload = Payload::of(args.all());
    args.seek(PAYLOAD + 1);
    let options = Options::parse(&mut args)?;
    if !options.replace && cx.db.read(&key).is_some() {
        return Err(Refusal::line("BUSYKEY Target key name already exists."));
    }
    let deadline = deadline(ttl, options.absolute, cx.now)?;

    let mut work = Restoring::new(types, payload, deadline, options.idle)?;
    if work.step(payload, cx.now)? {
        work.install(cx, &key);
        return Ok(Flow::Done);
    }
    Ok(Flow::Job(Box::new(LongRestore { request: args.all().to_request(), work })))
}

#[derive(Default)]
struct Options {
    replace: bool,
    absolute: bool,
    /// The idle time in seconds.
    idle: Option<u64>,
}

impl Options {
    fn parse(args: &mut Args<'_>) -> Result<Self, Refusal> {
        let mut options = Self::default();
        let mut frequency = false;
        while args.left() > 0 {
            if args.option("REPLACE") {
                options.replace = true;
            } else if args.option("ABSTTL") {
                options.absolute = true;
            } else if args.left() > 1 && !frequency && args.option("IDLETIME") {
                let refused = Refusal::line("ERR Invalid IDLETIME value, must be >= 0");
                options.idle = Some(u64::try_from(args.int()?).map_err(|_| refused)?);
            } else if args.left() > 1 && options.idle.is_none() && args.option("FREQ") {
                frequency = true;
                if !(0..=255).contains(&args.int()?) {
                    let line = "ERR Invalid FREQ value, must be >= 0 and <= 255";
                    return Err(Refusal::line(line));
                }
            } else {
                return Err(Refusal::Syntax);
            }
        }
        Ok(options)
    }
}

/// The deadline of the key. A sum that overflows wraps into the past, as in Redis.
fn deadline(ttl: &[u8], absolute: bool, now: UnixMillis) -> Result<Option<UnixMillis>, Refusal> {
    let ttl = number::parse_i64(ttl).ok_or(Refusal::NotAnInteger)?;
    match u64::try_from(ttl) {
        Err(_) => Err(Refusal::line("ERR Invalid TTL value, must be >= 0")),
        Ok(0) => Ok(None),
        Ok(at) if absolute => Ok(Some(at)),
        Ok(ttl) => {
            Ok(Some(now.checked_add(ttl).filter(|at| i64::try_from(*at).is_ok()).unwrap_or(0)))
        }
    }
}

fn wrong_trailer() -> Refusal {
    Refusal::line("ERR DUMP payload version or checksum are wrong")
}

fn bad_format() -> Refusal {
    Refusal::line("ERR Bad data format")
}

/// The payload, in one piece or in chunks.
#[derive(Clone, Copy)]
struct Payload<'a>(resp::Arg<'a>);

impl<'a> Payload<'a> {
    fn of(args: resp::Args<'a>) -> Self {
        Self(args.arg(PAYLOAD))
    }

    /// The bytes from `at` on, at most `most` and only those before `end`. Empty at the end.
    fn piece(self, at: usize, end: usize, most: usize) -> &'a [u8] {
        let end = end.min(at + most);
        if at >= end {
            return &[];
        }
        match self.0 {
            resp::Arg::Bytes(bytes) => &bytes[at..end],
            resp::Arg::Chunks { chunks, .. } => {
                let (chunk, from) = (&chunks[at / CHUNK_BYTES], at % CHUNK_BYTES);
                &chunk[from..chunk.len().min(from + end - at)]
            }
        }
    }

    fn trailer(self) -> Option<[u8; TRAILER_BYTES]> {
        let len = self.0.len();
        let start = len.checked_sub(TRAILER_BYTES)?;
        Some(std::array::from_fn(|index| self.piece(start + index, len, 1)[0]))
    }
}

/// The restore of a large payload, in steps.
struct LongRestore {
    request: Arc<resp::Request>,
    work: Restoring,
}

impl Job for LongRestore {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let args = resp::Args::owned(&self.request);
        if !self.work.step(Payload::of(args), cx.now)? {
            return Ok(Step::More);
        }
        self.work.install(cx, &Key::new(args.get(1)));
        Ok(Step::Done(Flow::Done))
    }
}

/// The value being built, and its progress.
struct Restoring {
    types: Types,
    deadline: Option<UnixMillis>,
    idle: Option<u64>,
    /// The number of bytes that the current stage has processed.
    at: usize,
    stage: RestoreStage,
    value: Value,
    /// The item that is being read in parts.
    long: Option<Long>,
    /// Whether there were items, even if all of them had expired.
    any: bool,
}

enum RestoreStage {
    Summing(Crc64),
    Reading(Box<Reader>),
    /// All items have been added. A large value is being sorted.
    Building,
}

/// An item that comes in parts, because it or its value is long.
struct Long {
    /// The name. `None` for an element of a list.
    name: Option<Vec<u8>>,
    deadline: Option<UnixMillis>,
    text: Blob,
    len: u64,
}

impl Long {
    /// Begins with an item, if it comes in parts.
    fn of(item: &Item<'_>) -> Option<Self> {
        let text = Blob::default();
        match *item {
            Item::LongValued { name, value_len: len, deadline_ms: deadline } => {
                Some(Self { name: Some(name.to_vec()), deadline, text, len })
            }
            Item::LongSingle { len, deadline_ms: deadline } => {
                Some(Self { name: None, deadline, text, len })
            }
            _ => None,
        }
    }

    fn is_whole(&self) -> bool {
        self.text.len() as u64 == self.len
    }

    fn item(&self) -> NewItem<'_> {
        match &self.name {
            None => NewItem::Element(&self.text),
            Some(name) => {
                let (value, deadline) = (Fresh::Blob(&self.text), self.deadline);
                NewItem::Pair { name, value, deadline }
            }
        }
    }
}

enum Value {
    None,
    Text(Blob),
    Object(Building),
}

impl Restoring {
    fn new(
        types: Types,
        payload: Payload<'_>,
        deadline: Option<UnixMillis>,
        idle: Option<u64>,
    ) -> Result<Self, Refusal> {
        let trailer = payload.trailer().ok_or_else(wrong_trailer)?;
        dump::version(&trailer).map_err(|_| wrong_trailer())?;
        let stage = RestoreStage::Summing(Crc64::new());
        let value = Value::None;
        Ok(Self { types, deadline, idle, at: 0, stage, value, long: None, any: false })
    }

    /// Does the next portion. Returns true when the value is complete.
    fn step(&mut self, payload: Payload<'_>, now: UnixMillis) -> Result<bool, Refusal> {
        match &mut self.stage {
            RestoreStage::Summing(crc) => {
                let end = payload.0.len() - 8;
                let piece = payload.piece(self.at, end, SUMMED_AT_ONCE);
                crc.update(piece);
                self.at += piece.len();
                if self.at < end {
                    return Ok(false);
                }
                let reader = reader(self.types, payload, crc.value())?;
                self.stage = RestoreStage::Reading(Box::new(reader));
                self.at = 0;
                // A small payload continues in the same step.
                if end > PUSHED_AT_ONCE { Ok(false) } else { self.step(payload, now) }
            }
            RestoreStage::Reading(_) => self.read(payload, now),
            RestoreStage::Building => self.build(),
        }
    }

    fn read(&mut self, payload: Payload<'_>, now: UnixMillis) -> Result<bool, Refusal> {
        let Self { types, at, stage: RestoreStage::Reading(reader), value, long, any, .. } = self
        else {
            unreachable!("called while reading");
        };
        let (mut items, mut pushed) = (0, 0);
        while items < ITEMS_AT_ONCE {
            match reader.next().map_err(|_| bad_format())? {
                Some(Event::Eof { .. }) => {
                    let is_unusable = match value {
                        Value::Text(_) => false,
                        Value::Object(_) => !*any,
                        Value::None => true,
                    };
                    if is_unusable {
                        return Err(bad_format());
                    }
                    self.stage = RestoreStage::Building;
                    return self.build();
                }
                Some(event) => {
                    let bytes = match &event {
                        Event::Item(item) => item.text_bytes(),
                        Event::Unpacked(bytes) => *bytes,
                        _ => 0,
                    };
                    *any |= value.take_in(event, long, *types, now)?;
                    items += 1 + bytes / ITEM_BYTES;
                }
                None if pushed >= SUMMED_AT_ONCE => return Ok(false),
                None => pushed += push(reader, payload, at),
            }
        }
        Ok(false)
    }

    /// Does a portion of the work that is left after all items have been added. Returns true when
    /// the value is complete.
    fn build(&mut self) -> Result<bool, Refusal> {
        let Value::Object(building) = &mut self.value else { return Ok(true) };
        match building.step() {
            Ok(true) => Ok(false),
            Ok(false) if building.is_complete() => Ok(true),
            Ok(false) | Err(Twice) => Err(bad_format()),
        }
    }

    /// Installs the value at `key`, and replies.
    fn install(&mut self, cx: &mut Cx<'_>, key: &Key<'_>) {
        /// The restored key counts as new, because an existing key is deleted first.
        const RESTORED: Tells<'_> = &[event::NEW, &event::Event::new("restore", b'g')];
        let (deadline, told) = (Deadline::from(self.deadline), RESTORED);
        match std::mem::replace(&mut self.value, Value::None) {
            _ if self.deadline.is_some_and(|at| at <= cx.now) => {
                cx.db.remove(key);
            }
            Value::None => unreachable!("a payload begins with its type"),
            Value::Text(blob) => cx.db.set_text_as(key, Fresh::Blob(&blob), deadline, told),
            Value::Object(object) => cx.db.install(key, object.finish(), deadline, told),
        }
        if let Some(seconds) = self.idle {
            cx.db.set_idle(key, seconds);
        }
        cx.reply.ok();
    }
}

/// A reader of the payload. `computed` is the checksum of the bytes without the last eight.
fn reader(types: Types, payload: Payload<'_>, computed: u64) -> Result<Reader, Refusal> {
    let trailer = payload.trailer().ok_or_else(wrong_trailer)?;
    let version = dump::version(&trailer).map_err(|_| wrong_trailer())?;
    if !trailer.ends_with(&computed.to_le_bytes()) {
        return Err(wrong_trailer());
    }
    let len = payload.0.len() as u64;
    Ok(Reader::of_payload(types.kinds(), len, version, Limits::default()).with_parts())
}

/// Passes the next bytes to the reader. Returns how many.
fn push(reader: &mut Reader, payload: Payload<'_>, at: &mut usize) -> usize {
    let len = payload.0.len();
    let piece = payload.piece(*at, len, PUSHED_AT_ONCE);
    reader.push(piece);
    *at += piece.len();
    if *at == len {
        reader.finish();
    }
    piece.len()
}

impl Value {
    /// Adds a piece to the value, or to `long` if it is one of several pieces. Returns true if it
    /// was an item of a collection.
    fn take_in(
        &mut self,
        event: Event<'_>,
        long: &mut Option<Long>,
        types: Types,
        now: UnixMillis,
    ) -> Result<bool, Refusal> {
        let item = match event {
            Event::Key { kind, len_hint, .. } => {
                *self = if kind.is_text() {
                    Self::Text(Blob::default())
                } else {
                    Self::Object(Building::new(types.of(kind), len_hint.unwrap_or(0)))
                };
                return Ok(false);
            }
            Event::Item(item) => item,
            _ => return Ok(false),
        };
        let fresh = match (self, item) {
            (Self::Text(blob), Item::Chunk(bytes)) => {
                blob.append(bytes);
                return Ok(false);
            }
            (Self::Object(object), Item::Part(bytes)) => {
                let Some(open) = long else { return Err(bad_format()) };
                open.text.append(bytes);
                if !open.is_whole() {
                    return Ok(false);
                }
                let whole = long.take().expect("it is open");
                whole.deadline.is_some_and(|at| at <= now) || object.take_in(whole.item())
            }
            (Self::Object(_), Item::LongValued { .. } | Item::LongSingle { .. }) => {
                *long = Long::of(&item);
                return Ok(false);
            }
            (Self::Object(object), item) => {
                item.deadline_ms().is_some_and(|at| at <= now)
                    || NewItem::of(item).is_some_and(|item| object.take_in(item))
            }
            _ => false,
        };
        // A repeated item contradicts the count in the payload.
        if fresh { Ok(true) } else { Err(bad_format()) }
    }
}

//! `RESTORE`.
//!
//! The payload is read twice: for its checksum, because a wrong one has an error of its own, then
//! for its value, which is built aside and installed by the last step.

use darter_base::limits::CHUNK_BYTES;
use darter_base::{UnixMillis, number};
use darter_command::{Args, Cx, Flow, Job, Refusal, Step};
use darter_keyspace::{Collection, Deadline, Fresh, Hash, Key, Object, Set};
use darter_rdb::crc64::Crc64;
use darter_rdb::dump::{self, TRAILER_BYTES, private};
use darter_rdb::{Event, Kind, Limits, Reader};
use darter_resp as resp;
use darter_structs::blob::Blob;
use std::sync::Arc;

/// Bytes summed in one step: about 25 us.
const SUMMED_AT_ONCE: usize = 64 * 1024;
/// Bytes given to the reader at a time.
const PUSHED_AT_ONCE: usize = 16 * 1024;
/// Items taken in by one step: 20 us, and more where segments split.
const ITEMS_AT_ONCE: usize = 64;
/// The payload's place among the arguments, the name at 0.
const PAYLOAD: usize = 3;

/// `RESTORE key ttl payload [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]`: makes `key`
/// hold the value of a payload from `DUMP`.
///
/// `ttl` is in milliseconds, 0 for none; with `ABSTTL` a Unix time. One that has passed replies OK
/// and leaves no key. `IDLETIME` makes it a key that was not used for so long; `FREQ` is checked and
/// forgotten: nothing here evicts by it.
/// Reply: OK. Refusals: `Syntax`, `NotAnInteger`, BUSYKEY, an invalid ttl, a payload whose trailer
/// or value is wrong, in this order; then nothing changes.
/// Cost: O(bytes), in slices. Source: <https://redis.io/commands/restore> (2.6.0).
pub(super) fn restore(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let ttl = args.bytes()?;
    let payload = Payload::of(args.all());
    args.seek(PAYLOAD + 1);
    let options = Options::parse(&mut args)?;
    if !options.replace && cx.db.read(&key).is_some() {
        return Err(Refusal::line("BUSYKEY Target key name already exists."));
    }
    let deadline = deadline(ttl, options.absolute, cx.now)?;

    let mut work = Restoring::new(payload, deadline, options.idle)?;
    if work.step(payload, cx.now)? {
        work.install(cx, &key);
        return Ok(Flow::Done);
    }
    Ok(Flow::Job(Box::new(Rest { request: args.all().to_request(), work })))
}

#[derive(Default)]
struct Options {
    replace: bool,
    absolute: bool,
    /// Seconds.
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

/// When the key will die. A sum that does not fit wraps into the past, as Redis's does.
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

    /// Some bytes from `at` on, at most `most`, before `end`; none at the end.
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

/// A large payload on its way.
struct Rest {
    request: Arc<resp::Request>,
    work: Restoring,
}

impl Job for Rest {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let args = resp::Args::owned(&self.request);
        if !self.work.step(Payload::of(args), cx.now)? {
            return Ok(Step::More);
        }
        self.work.install(cx, &Key::new(args.get(1)));
        Ok(Step::Done(Flow::Done))
    }
}

/// What is built, and how far.
struct Restoring {
    deadline: Option<UnixMillis>,
    idle: Option<u64>,
    /// Bytes that the stage has seen.
    at: usize,
    stage: Stage,
    value: Value,
    /// Items came, though they may all have been dead.
    any: bool,
}

enum Stage {
    Summing(Crc64),
    Reading(Box<Reading>),
}

/// The reader, and what it is told instead of a private type's number and checksum.
struct Reading {
    reader: Reader,
    hash_number: Option<u8>,
    crc: Crc64,
}

enum Value {
    None,
    Text(Blob),
    Hash(Hash),
    Set(Set),
}

impl Restoring {
    fn new(
        payload: Payload<'_>,
        deadline: Option<UnixMillis>,
        idle: Option<u64>,
    ) -> Result<Self, Refusal> {
        let trailer = payload.trailer().ok_or_else(wrong_trailer)?;
        dump::version(&trailer).map_err(|_| wrong_trailer())?;
        let stage = Stage::Summing(Crc64::new());
        Ok(Self { deadline, idle, at: 0, stage, value: Value::None, any: false })
    }

    /// Does the next portion; true when the value is whole.
    fn step(&mut self, payload: Payload<'_>, now: UnixMillis) -> Result<bool, Refusal> {
        match &mut self.stage {
            Stage::Summing(crc) => {
                let end = payload.0.len() - 8;
                let piece = payload.piece(self.at, end, SUMMED_AT_ONCE);
                crc.update(piece);
                self.at += piece.len();
                if self.at < end {
                    return Ok(false);
                }
                self.stage = Stage::Reading(Box::new(Reading::new(payload, crc.value())?));
                self.at = 0;
                // A small payload goes on in the same step.
                if end > PUSHED_AT_ONCE { Ok(false) } else { self.step(payload, now) }
            }
            Stage::Reading(_) => self.read(payload, now),
        }
    }

    fn read(&mut self, payload: Payload<'_>, now: UnixMillis) -> Result<bool, Refusal> {
        let Self { at, stage: Stage::Reading(reading), value, any, .. } = self else {
            unreachable!("called while reading");
        };
        let (mut items, mut pushed) = (0, 0);
        while items < ITEMS_AT_ONCE {
            match reading.reader.next().map_err(|_| bad_format())? {
                Some(Event::Eof { .. }) => {
                    let empty = !*any && !matches!(value, Value::Text(_));
                    return if empty { Err(bad_format()) } else { Ok(true) };
                }
                Some(event) => {
                    let mortal_set = reading.hash_number.is_some();
                    *any |= value.take_in(event, mortal_set, now)?;
                    items += 1;
                }
                None if pushed >= SUMMED_AT_ONCE => return Ok(false),
                None => pushed += reading.push(payload, at),
            }
        }
        Ok(false)
    }

    /// Puts the value at `key`, and replies.
    fn install(&mut self, cx: &mut Cx<'_>, key: &Key<'_>) {
        let deadline = Deadline::from(self.deadline);
        match std::mem::replace(&mut self.value, Value::None) {
            _ if self.deadline.is_some_and(|at| at <= cx.now) => {
                cx.db.remove(key);
            }
            Value::None => unreachable!("a payload begins with its type"),
            Value::Text(blob) => cx.db.set_text(key, Fresh::Blob(&blob), deadline),
            Value::Hash(hash) => cx.db.install(key, Object::new(hash), deadline),
            Value::Set(set) => cx.db.install(key, Object::new(set), deadline),
        }
        if let Some(seconds) = self.idle {
            cx.db.set_idle(key, seconds);
        }
        cx.reply.ok();
    }
}

impl Reading {
    fn new(payload: Payload<'_>, computed: u64) -> Result<Self, Refusal> {
        let trailer = payload.trailer().ok_or_else(wrong_trailer)?;
        let version = dump::version(&trailer).map_err(|_| wrong_trailer())?;
        if !trailer.ends_with(&computed.to_le_bytes()) {
            return Err(wrong_trailer());
        }
        let len = payload.0.len();
        let hash_number = payload.piece(0, len - TRAILER_BYTES, 1).first();
        let hash_number = hash_number.and_then(|number| private::hash_of(*number));
        let reader = Reader::of_payload(len as u64, version, Limits::default());
        Ok(Self { reader, hash_number, crc: Crc64::new() })
    }

    /// Gives the reader the next bytes; returns how many of the payload they are.
    fn push(&mut self, payload: Payload<'_>, at: &mut usize) -> usize {
        let len = payload.0.len();
        let Some(number) = self.hash_number else {
            let piece = payload.piece(*at, len, PUSHED_AT_ONCE);
            self.reader.push(piece);
            *at += piece.len();
            if *at == len {
                self.reader.finish();
            }
            return piece.len();
        };
        let end = len - 8;
        let number = [number];
        let piece = if *at == 0 { &number } else { payload.piece(*at, end, PUSHED_AT_ONCE) };
        self.reader.push(piece);
        self.crc.update(piece);
        *at += piece.len();
        if *at == end {
            self.reader.push(&self.crc.value().to_le_bytes());
            self.reader.finish();
        }
        piece.len()
    }
}

impl Value {
    /// Takes in a piece. True when it was an item of a collection.
    fn take_in(
        &mut self,
        event: Event<'_>,
        mortal_set: bool,
        now: UnixMillis,
    ) -> Result<bool, Refusal> {
        let is_dead = |at: Option<UnixMillis>| at.is_some_and(|at| at <= now);
        let fresh = match (&mut *self, event) {
            (Self::None, Event::Key { kind, .. }) => {
                *self = Self::of(kind, mortal_set);
                return Ok(false);
            }
            (Self::Text(blob), Event::StringChunk(bytes)) => {
                blob.append(bytes);
                return Ok(false);
            }
            (_, Event::EndOfKey) => return Ok(false),
            (_, Event::HashField { deadline_ms, .. }) if is_dead(deadline_ms) => true,
            (Self::Hash(hash), Event::HashField { field, value, deadline_ms }) => {
                let mut edit = hash.edit_aside(0);
                edit.set(field, Fresh::Bytes(value), Deadline::from(deadline_ms))
            }
            (Self::Set(set), Event::HashField { field, deadline_ms, .. }) => {
                set.edit_aside(0).add(field, Deadline::from(deadline_ms))
            }
            (Self::Set(set), Event::SetMember { member }) => {
                set.edit_aside(0).add(member, Deadline::Clear)
            }
            _ => false,
        };
        // What comes twice damages the count that the payload announced.
        if fresh { Ok(true) } else { Err(bad_format()) }
    }

    fn of(kind: Kind, mortal_set: bool) -> Self {
        match kind {
            Kind::String => Self::Text(Blob::default()),
            Kind::Hash if !mortal_set => Self::Hash(Hash::new()),
            Kind::Hash | Kind::Set => Self::Set(Set::new()),
        }
    }
}

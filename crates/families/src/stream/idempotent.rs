//! Detection of entries that a producer sends twice: IDMP and IDMPAUTO of XADD, and XCFGSET.
//!
//! For each producer, a stream remembers a limited number of messages for a limited time, by
//! digests of their names or contents. This memory is not saved to files, because Redis 7.0 could
//! not load it.

use super::id;
use super::value::{Stream, StreamEdit};
use crate::option_names;
use darter_base::hash::Wide;
use darter_command::{Args, Cx, Flow, Refusal};
use darter_resp as resp;
use darter_structs::groups::Producers;
use darter_structs::stream::{Element, List, StreamId};

/// Redis's default and maximum durations.
const DURATION_S: u32 = 100;
const DURATION_S_MAX: u32 = 86_400;
const MESSAGES: u32 = 100;
const MESSAGES_MAX: u32 = 10_000;
/// Bytes that are digested in one step.
const DIGESTED_AT_ONCE: usize = 16 * 1024;
/// Longest name of a producer or a message: it is digested in one step.
const NAME_BYTES_MAX: usize = 64 * 1024;
/// An empty field counts as this many bytes: finding the next one takes time.
const FIELD_BYTES: usize = 64;

/// A stream's memory of its producers.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    producers: Producers,
    limits: Limits,
}

/// How long messages are remembered, and how many for each producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what their names say")]
pub struct Limits {
    pub duration_s: u32,
    pub messages: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { duration_s: DURATION_S, messages: MESSAGES }
    }
}

/// A message, identified by digests of its producer's name and of itself; equal in every process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what their names say")]
pub struct Message {
    pub producer: u128,
    pub message: u128,
}

impl Memory {
    pub(super) fn new(limits: Limits) -> Self {
        Self { producers: Producers::default(), limits }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.producers.memory_bytes()
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// Messages older than this are forgotten.
    fn since_ms(&self, now: u64) -> u64 {
        now.saturating_sub(u64::from(self.limits.duration_s) * 1_000)
    }

    /// The ID of the message's entry, if it is remembered.
    pub(super) fn find(&self, of: Message, now: u64) -> Option<StreamId> {
        self.producers.find(of.producer, of.message, self.since_ms(now))
    }

    /// Remembers the ID of the message.
    pub(super) fn add(&mut self, of: Message, id: StreamId, now: u64) {
        let (max, since_ms) = (self.limits.messages as usize, self.since_ms(now));
        self.producers.add((of.producer, of.message), (id, now), (max, since_ms));
        // Each message checks two producers, so that silent producers are removed eventually.
        (0..2).for_each(|_| self.producers.tend(since_ms));
    }

    pub(super) fn check_invariants(&self) {
        self.producers.check_invariants();
    }
}

/// The request of XADD: indexes of the arguments.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdempotentRequest {
    producer: usize,
    /// `None`: the fields are the message.
    message: Option<usize>,
}

impl IdempotentRequest {
    /// Takes the option, if it comes next; `asked` is an option taken before.
    pub(super) fn take(args: &mut Args<'_>, asked: &mut Option<Self>) -> Result<bool, Refusal> {
        let name = if args.left() > 2 && args.option("IDMP") {
            "IDMP"
        } else if args.left() > 1 && args.option("IDMPAUTO") {
            "IDMPAUTO"
        } else {
            return Ok(false);
        };
        if asked.is_some() {
            return Err(Refusal::line("ERR IDMP/IDMPAUTO specified multiple times"));
        }
        let mut named = |what| {
            let at = args.position();
            args.seek(at + 1); // Skipped unread, so that a huge argument is not gathered.
            match args.all().arg(at).len() {
                0 => Err(Refusal::line(format!("ERR {name} requires a non-empty {what} ID"))),
                1..=NAME_BYTES_MAX => Ok(at),
                _ => Err(id::too_large()),
            }
        };
        let producer = named("producer")?;
        let message = (name == "IDMP").then(|| named("idempotent")).transpose()?;
        *asked = Some(Self { producer, message });
        Ok(true)
    }

    /// The refusal of an ID chosen by the client.
    pub(super) fn not_auto() -> Refusal {
        Refusal::line("ERR IDMP/IDMPAUTO can be used only with auto-generated IDs")
    }

    /// Computes the digest of a named message; for a message without a name, returns the digest to
    /// be continued over its fields.
    pub(super) fn begin(
        self,
        all: resp::Args<'_>,
        message: &mut Option<Message>,
    ) -> Option<Fields> {
        let producer = digest(all.get(self.producer));
        let Some(at) = self.message else { return Some(Fields { producer, ..Fields::default() }) };
        // As long as a digest of fields, but never equal to one.
        *message = Some(Message { producer, message: mixed(digest(all.get(at)), 1) });
        None
    }
}

/// The digest of a text and its length.
fn digest(text: &[u8]) -> u128 {
    let mut digest = Wide::default();
    digest.update(&(text.len() as u64).to_le_bytes());
    digest.update(text);
    digest.finish()
}

/// The digest of a digest and its kind, so that different messages have different sums.
fn mixed(digest: u128, kind: u8) -> u128 {
    let mut bytes = [kind; 17];
    bytes[1..].copy_from_slice(&digest.to_le_bytes());
    Wide::of(&bytes)
}

/// The fields of a message, digested independently of the order of pairs.
#[derive(Default)]
pub(super) struct Fields {
    producer: u128,
    /// The current field, the number of its bytes digested, and the digest of its pair.
    next: usize,
    at: usize,
    pair: Option<Wide>,
    sum: u128,
}

impl Fields {
    /// Digests some fields: names and values alternate. Returns the message once all are digested.
    pub(super) fn step(&mut self, fields: &List) -> Option<Message> {
        let mut bytes = 0;
        while bytes < DIGESTED_AT_ONCE {
            let Some(field) = fields.get(self.next) else {
                return Some(Message { producer: self.producer, message: self.sum });
            };
            let (end, len) = (self.at + DIGESTED_AT_ONCE, field.len());
            let pair = self.pair.get_or_insert_with(Wide::default);
            if self.at == 0 {
                pair.update(&(len as u64).to_le_bytes());
            }
            match field {
                Element::Text(text) => pair.update(&text.to_vec()),
                Element::Blob(blob) => {
                    blob.slices(self.at..end).for_each(|slice| pair.update(slice));
                }
            }
            bytes += FIELD_BYTES + len.min(end) - self.at;
            self.at = end;
            if end >= len {
                self.end_of_field();
            }
        }
        None
    }

    fn end_of_field(&mut self) {
        (self.next, self.at) = (self.next + 1, 0);
        if self.next.is_multiple_of(2)
            && let Some(pair) = self.pair.take()
        {
            self.sum = self.sum.wrapping_add(mixed(pair.finish(), 0));
        }
    }
}

/// `XCFGSET key [IDMP-DURATION seconds] [IDMP-MAXSIZE count]`: sets how long the stream remembers
/// messages, and how many for each producer. All remembered messages are forgotten.
///
/// Reply: OK. Refusals: `Syntax`, invalid numbers and numbers out of range, `NoSuchKey`,
/// `WrongType`. Cost: O(1); memory is freed later. Source: <https://redis.io/commands/xcfgset>
/// (8.6.0).
pub(super) fn xcfgset(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let (mut duration, mut messages) = (None, None);
    let mut said = option_names::Count::default();
    while args.left() > 1 {
        said.add()?;
        let (to, most, what) = if args.option("IDMP-DURATION") {
            (&mut duration, DURATION_S_MAX, "duration")
        } else if args.option("IDMP-MAXSIZE") {
            (&mut messages, MESSAGES_MAX, "maxsize")
        } else {
            return Err(Refusal::Syntax);
        };
        let number = u32::try_from(args.int()?).ok().filter(|one| (1..=most).contains(one));
        *to = Some(number.ok_or_else(|| Refusal::line(format!("ERR invalid {what}")))?);
    }
    if args.left() > 0 || duration.is_none() && messages.is_none() {
        return Err(Refusal::Syntax);
    }
    let Some(stream) = cx.db.read_value::<Stream>(&key)? else { return Err(Refusal::NoSuchKey) };
    let Limits { duration_s, messages: before } = stream.idempotency();
    let duration_s = duration.unwrap_or(duration_s);
    let limits = Limits { duration_s, messages: messages.unwrap_or(before) };
    cx.db.edit::<Stream, _>(&key, false, |edit: &mut StreamEdit<'_>| edit.configure(limits))?;
    cx.reply.ok();
    Ok(Flow::Done)
}

//! IDs as arguments, and in replies; names of groups and of consumers as arguments.

use darter_command::{Args, Refusal, until_nul};
use darter_resp::Reply;
use darter_structs::stream::StreamId;

/// Longest name of a group or a consumer: it is compared in one step for each entry, and copied
/// into log records.
pub(super) const NAME_BYTES_MAX: usize = 16 * 1024;
/// The longest text that Redis accepts as an ID.
const TEXT_MAX: usize = 127;

/// The refusal of an invalid ID.
fn invalid() -> Refusal {
    Refusal::line("ERR Invalid stream ID specified as stream command argument")
}

/// Parses an ID; without a sequence number it gets `seq`.
pub(super) fn parse(text: &[u8], seq: u64) -> Result<StreamId, Refusal> {
    let id = (text.len() <= TEXT_MAX).then(|| StreamId::parse(until_nul(text), seq)).flatten();
    id.ok_or_else(invalid)
}

/// Takes the name of a group or of a consumer.
pub(super) fn name<'a>(args: &mut Args<'a>) -> Result<&'a [u8], Refusal> {
    if args.left() > 0 && args.all().arg(args.position()).len() > NAME_BYTES_MAX {
        return Err(Refusal::line("ERR Names of groups and consumers have at most 16384 bytes"));
    }
    args.bytes()
}

/// The ID that XADD asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// `*`: from the current time.
    Auto,
    /// `ms-*`: the next ID of this millisecond.
    AutoSeq(u64),
    /// Exactly this ID.
    Exact(StreamId),
}

impl Wanted {
    /// Reads an ID of XADD.
    pub(super) fn parse(text: &[u8]) -> Result<Self, Refusal> {
        if text == b"*" {
            return Ok(Self::Auto);
        }
        match until_nul(text).strip_suffix(b"-*").filter(|ms| !ms.contains(&b'-')) {
            Some(ms) => Ok(Self::AutoSeq(parse(ms, 0)?.ms)),
            None => Ok(Self::Exact(parse(text, 0)?)),
        }
    }

    /// The ID for an entry added at `now` (milliseconds) after the ID `last`.
    pub(super) fn behind(self, last: StreamId, now: u64) -> Result<StreamId, Refusal> {
        if last == StreamId::MAX {
            return Err(Refusal::line(
                "ERR The stream has exhausted the last possible ID, unable to add more items",
            ));
        }
        let id = match self {
            Self::Auto if now > last.ms => Some(StreamId::new(now, 0)),
            Self::Auto => last.next(),
            // Redis has no error text for this case.
            Self::AutoSeq(ms) if last == StreamId::new(ms, u64::MAX) => return Err(too_large()),
            Self::AutoSeq(ms) if ms == last.ms => last.next(),
            Self::AutoSeq(ms) => Some(StreamId::new(ms, 0)),
            Self::Exact(id) => Some(id),
        };
        id.filter(|id| *id > last).ok_or_else(|| {
            Refusal::line(
                "ERR The ID specified in XADD is equal or smaller than the target stream top item",
            )
        })
    }
}

/// The refusal of fields that are too long.
pub(super) fn too_large() -> Refusal {
    Refusal::line("ERR Elements are too large to be stored")
}

/// One end of a range of IDs.
fn bound(text: &[u8], seq: u64) -> Result<(StreamId, bool), Refusal> {
    match text {
        b"-" => Ok((StreamId::MIN, false)),
        b"+" => Ok((StreamId::MAX, false)),
        [b'(', id @ ..] if !id.is_empty() => Ok((parse(id, seq)?, true)),
        id => Ok((parse(id, seq)?, false)),
    }
}

/// Takes the first ID of a range: `-`, `+`, an ID, or `(` and the ID before it.
pub(super) fn first(args: &mut Args<'_>) -> Result<StreamId, Refusal> {
    let (id, is_open) = bound(args.word()?, 0)?;
    let id = if is_open { id.next() } else { Some(id) };
    id.ok_or(Refusal::line("ERR invalid start ID for the interval"))
}

/// Takes the last ID of a range: `-`, `+`, an ID, or `(` and the ID after it.
pub(super) fn last(args: &mut Args<'_>) -> Result<StreamId, Refusal> {
    let (id, is_open) = bound(args.word()?, u64::MAX)?;
    let id = if is_open { id.previous() } else { Some(id) };
    id.ok_or(Refusal::line("ERR invalid end ID for the interval"))
}

/// Encodes an ID.
pub(super) fn encode(reply: &mut Reply<'_>, id: StreamId) {
    reply.bulk(id.text(&mut [0; StreamId::TEXT_MAX]));
}

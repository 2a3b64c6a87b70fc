//! Reading lists: LLEN, LINDEX, LRANGE.

use super::value::{List, sent};
use crate::lookup::{find, find_value};
use crate::pending_values::{PORTION_BYTES, PendingValues, flow};
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Args, Cx, Flow, Refusal, Stream, reply_str};
use darter_keyspace::{Db, Key, ShardStats, WrongType};
use darter_resp::Reply;
use darter_structs::list::{self, Element, End, ListPackRef, ListReader};
use std::ops::Range;

/// Elements that are read at once, or in one portion.
const ELEMENTS: usize = 32;
const PORTION_ELEMENTS: usize = 512;

/// `LLEN key`: the number of elements.
///
/// Reply: integer. Refusals: `WrongType`. Cost: O(1).
/// Source: <https://redis.io/commands/llen> (1.0.0).
pub(super) fn llen(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let list = Listed::find(cx.db, cx.stats, &key)?;
    cx.reply.count(list.map_or(0, Listed::len));
    Ok(Flow::Done)
}

/// `LINDEX key index`: the element at `index`; a negative index counts from the end.
///
/// Reply: bulk, or null; streamed when long. Refusals: `WrongType`, `NotAnInteger`, both only if
/// the list exists. Cost: O(log n). Source: <https://redis.io/commands/lindex> (1.0.0).
pub(super) fn lindex(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let Some(list) = Listed::find(cx.db, cx.stats, &key)? else {
        cx.reply.null();
        return Ok(Flow::Done);
    };
    match index(args.int()?, list.len()).and_then(|index| list.get(index)) {
        Some(element) => Ok(reply_str(&mut cx.reply, &sent(&element))),
        None => {
            cx.reply.null();
            Ok(Flow::Done)
        }
    }
}

/// `LRANGE key start stop`: the elements from `start` to `stop`; negative indexes count from the
/// end.
///
/// Reply: array. Refusals: `NotAnInteger`, `WrongType`. Cost: O(log n + elements); beyond 256 the
/// reply is streamed from a cut. Source: <https://redis.io/commands/lrange> (1.0.0).
pub(super) fn lrange(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, start, stop) = (args.key()?, args.int()?, args.int()?);
    let Some(list) = find_value::<List>(cx.db, cx.stats, &key)? else {
        cx.reply.array(0);
        return Ok(Flow::Done);
    };
    let range = range(start, stop, list.elements().len());
    cx.reply.array(range.len());
    if range.len() > ENTRIES_AT_ONCE {
        let reader = list.reader(range);
        return Ok(flow(&mut cx.reply, Ranging::new(reader)));
    }
    let mut unsent = PendingValues::default();
    list.elements().range(range).for_each(|element| {
        unsent.value(&mut cx.reply, &sent(&element));
    });
    Ok(unsent.into_flow())
}

/// A list to read in place. A small list is stored in its key's entry, and copying it would cost
/// more than reading it.
#[derive(Clone, Copy)]
enum Listed<'d> {
    Pack(ListPackRef<'d>),
    Chunks(&'d list::List),
}

impl<'d> Listed<'d> {
    /// The list at `key`.
    fn find(
        db: &'d mut Db,
        stats: &mut ShardStats,
        key: &Key<'_>,
    ) -> Result<Option<Self>, WrongType> {
        let Some(found) = find(db, stats, key) else { return Ok(None) };
        if let Some(bytes) = found.pack_of::<List>() {
            return Ok(Some(Self::Pack(ListPackRef::new(bytes))));
        }
        let list: &List = found.out_of_line()?;
        Ok(Some(Self::Chunks(list.elements())))
    }

    fn len(self) -> usize {
        match self {
            Self::Pack(pack) => pack.len(),
            Self::Chunks(list) => list.len(),
        }
    }

    fn get(self, index: usize) -> Option<Element<'d>> {
        match self {
            Self::Pack(pack) => pack.get(index),
            Self::Chunks(list) => list.get(index),
        }
    }
}

/// Elements of a cut, on their way out.
pub(super) struct Ranging {
    reader: ListReader,
    unsent: PendingValues,
}

impl Ranging {
    /// Starts the reply; its header has been sent.
    pub(super) fn new(reader: ListReader) -> Self {
        Self { reader, unsent: PendingValues::default() }
    }
}

impl Stream for Ranging {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let Self { reader, unsent } = self;
        if !unsent.is_empty() {
            return unsent.pump(reply) || reader.left() > 0;
        }
        let (mut elements, mut bytes) = (0, 0);
        while elements < PORTION_ELEMENTS && bytes < PORTION_BYTES && unsent.is_empty() {
            elements += ELEMENTS;
            let more = reader.next_slice(ELEMENTS, &mut |element| {
                bytes += unsent.value(reply, &sent(&element));
            });
            if !more {
                break;
            }
        }
        !unsent.is_empty() || reader.left() > 0
    }

    fn pinned_bytes(&self) -> usize {
        self.reader.pinned_bytes() + self.unsent.pinned_bytes()
    }
}

/// A reply of removed elements, from one end to the other.
pub(super) struct Popped {
    list: list::List,
    end: End,
    unsent: PendingValues,
}

impl Popped {
    /// Starts the reply; its header has been sent.
    pub(super) fn new(list: list::List, end: End) -> Self {
        Self { list, end, unsent: PendingValues::default() }
    }
}

impl Stream for Popped {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let Self { list, end, unsent } = self;
        if !unsent.is_empty() {
            return unsent.pump(reply) || !list.is_empty();
        }
        let (mut elements, mut bytes) = (0, 0);
        while elements < PORTION_ELEMENTS && bytes < PORTION_BYTES && unsent.is_empty() {
            let Some(more) = list.pop(*end, |element| unsent.value(reply, &sent(&element))) else {
                break;
            };
            (elements, bytes) = (elements + 1, bytes + more);
        }
        !unsent.is_empty() || !list.is_empty()
    }

    /// Only this reply holds the elements.
    fn pinned_bytes(&self) -> usize {
        self.list.memory_bytes() + self.unsent.pinned_bytes()
    }
}

/// The indexes in a list of `len` elements for `start` and `stop` as given by a command.
pub(super) fn range(start: i64, stop: i64, len: usize) -> Range<usize> {
    let len_signed = i64::try_from(len).unwrap_or(i64::MAX);
    let from_front = |index: i64| if index < 0 { index.saturating_add(len_signed) } else { index };
    let start = from_front(start).clamp(0, len_signed);
    let end = from_front(stop).saturating_add(1).clamp(start, len_signed);
    usize::try_from(start).unwrap_or(len)..usize::try_from(end).unwrap_or(len)
}

/// The index in a list of `len` elements for an index as given by a command; `None` if out of
/// range.
pub(super) fn index(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add(i64::try_from(len).ok()?)? } else { index };
    usize::try_from(index).ok().filter(|index| *index < len)
}

//! CF.EXISTS, CF.MEXISTS, CF.COUNT, CF.DEL, CF.INFO: queries and removals.

use super::add::{LOOKS_AT_ONCE, looks};
use super::value::CuckooFilter;
use crate::bulk_edit::is_long;
use crate::filter_hashes::ItemHashes;
use crate::lookup::find_value;
use crate::text::BYTES_AT_ONCE;
use darter_command::{Args, Cx, Flow, Job, Refusal, Step, Stream};
use darter_keyspace::{Event, Fresh, Key};
use darter_resp::Reply;
use darter_structs::filter::{Cuckoo, Probe};

/// The keyspace event of a removal.
const DEL: &Event = &Event::new("cf.del", b'd');

/// Items that are looked up in one step.
const ITEMS_AT_ONCE: usize = 64;

/// Writes the reply for an item.
type Tell = fn(&mut Reply<'_>, Option<&Cuckoo>, Probe);

fn tell_whether(reply: &mut Reply<'_>, cuckoo: Option<&Cuckoo>, probe: Probe) {
    reply.boolean(cuckoo.is_some_and(|cuckoo| cuckoo.contains(probe)));
}

fn tell_count(reply: &mut Reply<'_>, cuckoo: Option<&Cuckoo>, probe: Probe) {
    reply.int(whole(cuckoo.map_or(0, |cuckoo| cuckoo.count(probe))));
}

/// `CF.EXISTS key item`: tests whether the item seems to be in the filter at `key`.
///
/// Reply: boolean. Refusals: `WrongType`. Cost: O(layers * bytes of a bucket + bytes of the item),
/// in portions if the item is long. Source: <https://redis.io/commands/cf.exists> (RedisBloom
/// 1.0.0).
pub(super) fn exists(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    look(cx, args, tell_whether, false)
}

/// `CF.MEXISTS key item [item ...]`: CF.EXISTS for several items, with a reply each.
/// Source: <https://redis.io/commands/cf.mexists> (RedisBloom 1.0.0).
pub(super) fn mexists(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    look(cx, args, tell_whether, true)
}

/// `CF.COUNT key item`: estimates how often the item is in the filter at `key`. Reply: integer.
/// Otherwise as CF.EXISTS.
pub(super) fn count(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    look(cx, args, tell_count, false)
}

/// The number of items that are looked up in one step.
fn at_once(cuckoo: Option<&Cuckoo>) -> usize {
    ITEMS_AT_ONCE.min(LOOKS_AT_ONCE / cuckoo.map_or(1, looks).max(1)).max(1)
}

/// Replies for the remaining items: from a cut, unless they are few.
fn look(cx: &mut Cx<'_>, mut args: Args<'_>, tell: Tell, is_array: bool) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let filter = find_value::<CuckooFilter>(cx.db, cx.stats, &key)?;
    let (cuckoo, reply) = (filter.as_deref().map(CuckooFilter::cuckoo), &mut cx.reply);
    if is_array {
        reply.array(args.left());
    }
    if !is_long(args, at_once(cuckoo), BYTES_AT_ONCE) {
        while let Some(item) = args.next() {
            tell(reply, cuckoo, Probe::of(item));
        }
        return Ok(Flow::Done);
    }
    let mut looking = Looking { probes: ItemHashes::of(args), cuckoo: cuckoo.cloned(), tell };
    let more = looking.pump(reply);
    Ok(if more { Flow::Stream(Box::new(looking)) } else { Flow::Done })
}

/// A lookup of many items, from a cut.
struct Looking {
    probes: ItemHashes,
    cuckoo: Option<Cuckoo>,
    tell: Tell,
}

impl Stream for Looking {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        for _ in 0..at_once(self.cuckoo.as_ref()) {
            if self.probes.left() == 0 {
                break;
            }
            // A whole piece was hashed: enough for this portion.
            let Some(probe) = self.probes.step() else { break };
            (self.tell)(reply, self.cuckoo.as_ref(), probe);
        }
        self.probes.left() > 0
    }
}

/// `CF.DEL key item`: removes one occurrence of an item from the filter at `key`. Removing an item
/// that was never added may remove another item.
///
/// Reply: boolean, whether it was there. Refusals: an absent key, `WrongType`. Cost: as CF.EXISTS.
/// Source: <https://redis.io/commands/cf.del> (RedisBloom 1.0.0).
pub(super) fn del(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let at = args.position();
    let key = args.key()?;
    if is_long(args, 1, BYTES_AT_ONCE) {
        return Ok(Flow::Job(Box::new(Deleting { probes: ItemHashes::of(args), key: at })));
    }
    let item = args.bytes()?;
    delete(cx, &key, (Probe::of(item), Fresh::Bytes(item)))
}

fn delete(cx: &mut Cx<'_>, key: &Key<'_>, item: (Probe, Fresh<'_>)) -> Result<Flow, Refusal> {
    let is_removed = cx.db.edit::<CuckooFilter, _>(key, false, |edit| edit.remove(DEL, item))?;
    cx.reply.boolean(is_removed.ok_or(Refusal::line("Not found"))?);
    Ok(Flow::Done)
}

/// A removal of a long item.
struct Deleting {
    probes: ItemHashes,
    /// The index of the key in the request.
    key: usize,
}

impl Job for Deleting {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let Some(probe) = self.probes.step() else { return Ok(Step::More) };
        let key = Key::new(self.probes.args().get(self.key));
        delete(cx, &key, (probe, self.probes.last())).map(Step::Done)
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A field of CF.INFO: its name, and its value.
type Fact = (&'static str, fn(&Cuckoo) -> u64);

#[rustfmt::skip] // A table.
const FACTS: &[Fact] = &[
    ("Size",                     |cuckoo| cuckoo.bytes() + overhead(cuckoo)),
    ("Number of buckets",        Cuckoo::buckets),
    ("Number of filters",        |cuckoo| cuckoo.layers().len() as u64),
    ("Number of items inserted", Cuckoo::len),
    ("Number of items deleted",  Cuckoo::deleted),
    ("Bucket size",              |cuckoo| u64::from(cuckoo.plan().width)),
    ("Expansion rate",           |cuckoo| u64::from(cuckoo.plan().growth)),
    ("Max iterations",           |cuckoo| u64::from(cuckoo.plan().kicks)),
];

/// Bytes of a filter besides its buckets.
fn overhead(cuckoo: &Cuckoo) -> u64 {
    (size_of::<CuckooFilter>() + std::mem::size_of_val(cuckoo.layers())) as u64
}

/// `CF.INFO key`: facts about the filter at `key`. The size counts all places, though pages without
/// a used place take no memory.
///
/// Reply: map. Refusals: an absent key, `WrongType`. Cost: O(1).
/// Source: <https://redis.io/commands/cf.info> (RedisBloom 1.0.0).
pub(super) fn info(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let filter = find_value::<CuckooFilter>(cx.db, cx.stats, &key)?;
    let filter = filter.ok_or(Refusal::line("ERR not found"))?;
    cx.reply.map(FACTS.len());
    for (name, fact) in FACTS {
        cx.reply.simple(name);
        cx.reply.int(whole(fact(filter.cuckoo())));
    }
    Ok(Flow::Done)
}

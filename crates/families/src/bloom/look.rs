//! BF.EXISTS, BF.MEXISTS, BF.CARD, BF.INFO: queries of a filter.

use super::add::LOOKS_AT_ONCE;
use super::value::BloomFilter;
use crate::bulk_edit::is_long;
use crate::filter_hashes::ItemHashes;
use crate::lookup::find_value;
use crate::text::BYTES_AT_ONCE;
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_resp::Reply;
use darter_structs::filter::{Bloom, Probe};

/// Items that are looked up in one step.
const ITEMS_AT_ONCE: usize = 64;

/// `BF.EXISTS key item`: tests whether the item seems to be in the filter at `key`.
///
/// Reply: boolean. Refusals: `WrongType`. Cost: O(layers * bits of an item + bytes of the item), in
/// portions if the item is long. Source: <https://redis.io/commands/bf.exists> (RedisBloom 1.0.0).
pub(super) fn exists(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let chain = find_value::<BloomFilter>(cx.db, cx.stats, &key)?;
    look(&mut cx.reply, chain.as_deref().map(BloomFilter::chain), args)
}

/// `BF.MEXISTS key item [item ...]`: BF.EXISTS for several items, with a reply each.
/// Source: <https://redis.io/commands/bf.mexists> (RedisBloom 1.0.0).
pub(super) fn mexists(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let chain = find_value::<BloomFilter>(cx.db, cx.stats, &key)?;
    cx.reply.array(args.left());
    look(&mut cx.reply, chain.as_deref().map(BloomFilter::chain), args)
}

/// The number of items that are looked up in one step.
fn at_once(chain: Option<&Bloom>) -> usize {
    let bits = chain.map_or(1, Bloom::hashes).max(1);
    ITEMS_AT_ONCE.min(LOOKS_AT_ONCE / bits).max(1)
}

/// Replies for the remaining items: from a cut, unless they are few.
fn look(reply: &mut Reply<'_>, chain: Option<&Bloom>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    if !is_long(args, at_once(chain), BYTES_AT_ONCE) {
        while let Some(item) = args.next() {
            reply.boolean(chain.is_some_and(|chain| chain.contains(Probe::of(item))));
        }
        return Ok(Flow::Done);
    }
    let mut looking = Looking { probes: ItemHashes::of(args), chain: chain.cloned() };
    let more = looking.pump(reply);
    Ok(if more { Flow::Stream(Box::new(looking)) } else { Flow::Done })
}

/// A lookup of many items, from a cut.
struct Looking {
    probes: ItemHashes,
    chain: Option<Bloom>,
}

impl Stream for Looking {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        for _ in 0..at_once(self.chain.as_ref()) {
            if self.probes.left() == 0 {
                break;
            }
            // A whole piece was hashed: enough for this portion.
            let Some(probe) = self.probes.step() else { break };
            reply.boolean(self.chain.as_ref().is_some_and(|chain| chain.contains(probe)));
        }
        self.probes.left() > 0
    }
}

/// `BF.CARD key`: the number of items added to the filter at `key`, 0 if it is absent.
///
/// Reply: integer. Refusals: `WrongType`. Cost: O(1).
/// Source: <https://redis.io/commands/bf.card> (RedisBloom 2.4.4).
pub(super) fn card(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let filter = find_value::<BloomFilter>(cx.db, cx.stats, &key)?;
    cx.reply.int(whole(filter.map_or(0, |filter| filter.chain().len())));
    Ok(Flow::Done)
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A field of BF.INFO: its word, its name, its value; `None` is null.
type Fact = (&'static str, &'static str, fn(&Bloom) -> Option<u64>);

#[rustfmt::skip] // A table.
const FACTS: &[Fact] = &[
    ("CAPACITY",  "Capacity",                 |chain| Some(chain.capacity())),
    ("SIZE",      "Size",                     |chain| Some(chain.bytes() + overhead(chain))),
    ("FILTERS",   "Number of filters",        |chain| Some(chain.layers().len() as u64)),
    ("ITEMS",     "Number of items inserted", |chain| Some(chain.len())),
    ("EXPANSION", "Expansion rate",           |chain| chain.growth().map(u64::from)),
];

/// Bytes of a filter besides its bits.
fn overhead(chain: &Bloom) -> u64 {
    (size_of::<BloomFilter>() + std::mem::size_of_val(chain.layers())) as u64
}

/// `BF.INFO key [CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION]`: facts about the filter at `key`.
/// The size counts all bits, though pages without a set bit take no memory.
///
/// Reply: map, in RESP2 an array. For a single fact in RESP2: an array with its value. Refusals: an
/// absent key, an unknown word, `WrongType`. Cost: O(layers).
/// Source: <https://redis.io/commands/bf.info> (RedisBloom 1.0.0).
pub(super) fn info(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let filter = find_value::<BloomFilter>(cx.db, cx.stats, &key)?;
    let filter = filter.ok_or(Refusal::line("ERR not found"))?;
    let facts = match args.left() {
        0 => FACTS,
        1 => {
            let place = FACTS.iter().position(|fact| args.option(fact.0));
            let place = place.ok_or(Refusal::line("Invalid information value"))?;
            &FACTS[place..=place]
        }
        _ => return Err(Refusal::Arity("bf.info".into())),
    };
    let is_bare = facts.len() == 1 && !cx.reply.is_resp3();
    let reply = &mut cx.reply;
    match is_bare {
        true => reply.array(1),
        false => reply.map(facts.len()),
    }
    for (_, name, fact) in facts {
        if !is_bare {
            reply.simple(name);
        }
        match fact(filter.chain()) {
            Some(number) => reply.int(whole(number)),
            None => reply.null(),
        }
    }
    Ok(Flow::Done)
}

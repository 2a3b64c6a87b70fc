//! BF.ADD, BF.MADD, BF.INSERT: adding items.
//!
//! A few items are added at once, in place. More or longer items are a [`Long`] job, which works on
//! a cut.

use super::make::{RESERVE, not_created, options};
use super::value::{BloomEdit, BloomFilter, DEFAULT};
use crate::bulk_edit::is_long;
use crate::code_replies::reply_as;
use crate::filter_hashes::ItemHashes;
use crate::text::BYTES_AT_ONCE;
use darter_command::{Args, Cx, Flow, Job, Refusal, Step};
use darter_keyspace::{Draft, Event, Fresh, Key};
use darter_resp::Reply;
use darter_structs::filter::{Added, Bloom, Plan, Probe};

/// The keyspace event of every addition.
pub(super) const ADD: &Event = &Event::new("bf.add", b'd');

/// Items that are added in one step. Each copies a page and the nodes above it, if a cut shares
/// them.
const ITEMS_AT_ONCE: usize = 32;
/// Bits that are tested in one step; the bits of one layer are mostly in one page.
pub(super) const LOOKS_AT_ONCE: usize = 1_024;

const FULL: &[u8] = b"ERR non scaling filter is full";
const STUCK: &[u8] = b"ERR problem inserting into filter";

/// `BF.ADD key item`: adds an item to the filter at `key`; an absent one is created.
///
/// Reply: boolean, true if the item seems to be new. Refusals: `WrongType`, a filter that is full.
/// Cost: O(layers * bits of an item + bytes of the item), in slices if the item is long.
/// Source: <https://redis.io/commands/bf.add> (RedisBloom 1.0.0).
pub(super) fn add(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    insert(cx, args, |_| Ok(Some(DEFAULT)), reply_one)
}

/// `BF.MADD key item [item ...]`: BF.ADD for several items, with a reply each. The replies end with
/// the first item for which there is no room.
pub(super) fn madd(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    insert(cx, args, |_| Ok(Some(DEFAULT)), reply_each)
}

/// `BF.INSERT key [CAPACITY capacity] [ERROR error] [EXPANSION expansion] [NOCREATE] [NONSCALING]
/// ITEMS item [item ...]`: as BF.MADD, with options for a new filter. Source:
/// <https://redis.io/commands/bf.insert> (RedisBloom 1.0.0).
pub(super) fn bf_insert(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    insert(cx, args, options, reply_each)
}

/// Writes the results of the items.
type ReplyFn = fn(&mut Reply<'_>, Vec<i8>) -> Flow;

fn insert(
    cx: &mut Cx<'_>,
    mut args: Args<'_>,
    options: fn(&mut Args<'_>) -> Result<Option<Plan>, Refusal>,
    reply: ReplyFn,
) -> Result<Flow, Refusal> {
    let at = args.position();
    let key = args.key()?;
    let plan = options(&mut args)?;
    let is_long = is_long(args, ITEMS_AT_ONCE, BYTES_AT_ONCE);
    let codes = match is_long {
        true => None,
        false => cx.db.edit::<BloomFilter, _>(&key, plan.is_some(), |edit| {
            let may = edit.chain().hashes() * args.left() <= LOOKS_AT_ONCE || args.left() == 1;
            may.then(|| ensure(edit, plan).map(|()| add_all(edit, args)))
        })?,
    };
    match codes {
        Some(Some(codes)) => Ok(reply(&mut cx.reply, codes?)),
        None if !is_long => Err(Refusal::line("ERR not found")),
        _ => {
            let long =
                Long { probes: ItemHashes::of(args), key: at, plan, reply, codes: Vec::new() };
            Ok(Flow::Job(Box::new(LongAddition { long, draft: None })))
        }
    }
}

/// Creates the filter if it is absent.
fn ensure(edit: &mut BloomEdit<'_>, plan: Option<Plan>) -> Result<(), Refusal> {
    if edit.chain().is_empty() {
        let plan = plan.ok_or(Refusal::line("ERR not found"))?;
        edit.assign(RESERVE, Bloom::new(plan).ok_or_else(not_created)?);
    }
    Ok(())
}

fn add_all(edit: &mut BloomEdit<'_>, mut args: Args<'_>) -> Vec<i8> {
    let mut codes = Vec::with_capacity(args.left());
    while let Some(item) = args.next() {
        codes.push(code(edit.add(ADD, Probe::of(item), Fresh::Bytes(item))));
        if codes.last().is_some_and(|code| *code < 0) {
            break;
        }
    }
    codes
}

fn code(added: Added) -> i8 {
    match added {
        Added::There => 0,
        Added::New => 1,
        Added::Full => -1,
        Added::Stuck => -2,
    }
}

fn write(reply: &mut Reply<'_>, code: i8) {
    match code {
        -1 => reply.error(FULL),
        -2 => reply.error(STUCK),
        code => reply.boolean(code == 1),
    }
}

fn reply_one(reply: &mut Reply<'_>, codes: Vec<i8>) -> Flow {
    codes.into_iter().for_each(|code| write(reply, code));
    Flow::Done
}

fn reply_each(reply: &mut Reply<'_>, codes: Vec<i8>) -> Flow {
    reply_as(reply, codes, write)
}

/// Very many items, or very long ones.
struct LongAddition {
    long: Long,
    /// The new version of the filter.
    draft: Option<Draft<BloomFilter>>,
}

struct Long {
    probes: ItemHashes,
    /// The index of the key in the request.
    key: usize,
    plan: Option<Plan>,
    reply: ReplyFn,
    codes: Vec<i8>,
}

impl LongAddition {
    /// Takes a cut of the filter, or makes a new one.
    fn begin(&self, cx: &mut Cx<'_>) -> Result<Draft<BloomFilter>, Refusal> {
        let key = Key::new(self.long.probes.args().get(self.long.key));
        let mut draft = cx.db.draft::<BloomFilter>(&key)?;
        ensure(&mut draft.edit(cx.now), self.long.plan)?;
        Ok(draft)
    }
}

impl Job for LongAddition {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let mut draft = match self.draft.take() {
            Some(draft) => draft,
            None => self.begin(cx)?,
        };
        let Long { probes, codes, key, .. } = &mut self.long;
        while probes.left() > 0 {
            if let Some(probe) = probes.step() {
                codes.push(code(draft.edit(cx.now).add(ADD, probe, probes.last())));
                if codes.last().is_some_and(|code| *code < 0) {
                    break;
                }
            }
            if cx.preempt.must_yield() && probes.left() > 0 {
                self.draft = Some(draft);
                return Ok(Step::More);
            }
        }
        if draft.is_new() || codes.contains(&1) {
            cx.db.install_draft(&Key::new(probes.args().get(*key)), draft);
        }
        let codes = std::mem::take(&mut self.long.codes);
        Ok(Step::Done((self.long.reply)(&mut cx.reply, codes)))
    }
}

//! CF.ADD, CF.ADDNX, CF.INSERT, CF.INSERTNX: adding items.
//!
//! A few items are added at once, in place, while there is room or few others have to move.
//! Otherwise a job works on a cut, and moves items in portions.

use super::make::{RESERVE, not_created, options};
use super::value::{CuckooEdit, CuckooFilter, DEFAULT};
use crate::bulk_edit::is_long;
use crate::code_replies::reply_as;
use crate::filter_hashes::ItemHashes;
use crate::text::BYTES_AT_ONCE;
use darter_command::{Args, Cx, Flow, Job, Refusal, Step};
use darter_keyspace::{Draft, Event, Fresh, Key};
use darter_resp::Reply;
use darter_structs::filter::{Cuckoo, CuckooPlan, Moving, Probe, Put};

/// The keyspace event of every addition.
const ADD: &Event = &Event::new("cf.add", b'd');

/// Items that are added in one step.
const ITEMS_AT_ONCE: usize = 32;
/// Moves in one step, over all items. Each copies a page and the nodes above it, if a cut shares
/// them.
const MOVES_AT_ONCE: usize = 32;
/// Bytes of buckets that are searched in one step.
pub(super) const LOOKS_AT_ONCE: usize = 8 * 1024;

const FULL: &[u8] = b"Filter is full";
const STUCK: &[u8] = b"Maximum expansions reached";

/// A command's parsed request.
#[derive(Clone, Copy)]
struct Order {
    /// Skip items that seem to be in the filter.
    only_new: bool,
    reply: fn(&mut Reply<'_>, Vec<i8>) -> Flow,
}

/// `CF.ADD key item`: adds an item to the filter at `key`, even if it is there already. An absent
/// filter is created.
///
/// Reply: boolean, true. Refusals: `WrongType`, a filter that is full. Cost: O(layers + moves +
/// bytes of the item), in slices if they are many.
/// Source: <https://redis.io/commands/cf.add> (RedisBloom 1.0.0).
pub(super) fn add(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    insert(cx, args, |_| Ok(Some(DEFAULT)), Order { only_new: false, reply: reply_one })
}

/// `CF.ADDNX key item`: CF.ADD, unless the item seems to be there; then the reply is false.
/// Source: <https://redis.io/commands/cf.addnx> (RedisBloom 1.0.0).
pub(super) fn addnx(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    insert(cx, args, |_| Ok(Some(DEFAULT)), Order { only_new: true, reply: reply_one })
}

/// `CF.INSERT key [CAPACITY capacity] [NOCREATE] ITEMS item [item ...]`: CF.ADD for several items,
/// with a reply each. An item for which there is no room gets -1, in RESP3 false.
/// Source: <https://redis.io/commands/cf.insert> (RedisBloom 1.0.0).
pub(super) fn cf_insert(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    insert(
        cx,
        args,
        |args| options(args, "cf.insert"),
        Order { only_new: false, reply: reply_each },
    )
}

/// `CF.INSERTNX key [CAPACITY capacity] [NOCREATE] ITEMS item [item ...]`: as CF.INSERT, but an
/// item that seems to be there gets 0. All replies are integers.
/// Source: <https://redis.io/commands/cf.insertnx> (RedisBloom 1.0.0).
pub(super) fn insertnx(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    insert(
        cx,
        args,
        |args| options(args, "cf.insertnx"),
        Order { only_new: true, reply: reply_codes },
    )
}

fn insert(
    cx: &mut Cx<'_>,
    mut args: Args<'_>,
    options: fn(&mut Args<'_>) -> Result<Option<CuckooPlan>, Refusal>,
    order: Order,
) -> Result<Flow, Refusal> {
    let at = args.position();
    let key = args.key()?;
    let plan = options(&mut args)?;
    let is_long = is_long(args, ITEMS_AT_ONCE, BYTES_AT_ONCE);
    let codes = match is_long {
        true => None,
        false => cx.db.edit::<CuckooFilter, _>(&key, plan.is_some(), |edit| {
            let may = is_quick(edit.cuckoo(), args);
            may.then(|| ensure(edit, plan).map(|()| add_all(edit, args, order)))
        })?,
    };
    match codes {
        Some(Some(codes)) => Ok((order.reply)(&mut cx.reply, codes?)),
        None if !is_long => Err(Refusal::line("ERR not found")),
        _ => {
            let (probes, codes) = (ItemHashes::of(args), Vec::new());
            let long =
                Long { probes, key: at, plan, order, codes, draft: None, moving: None, refused: 0 };
            Ok(Flow::Job(Box::new(long)))
        }
    }
}

/// True if the items can be added at once: there are free places, or few moves are needed.
fn is_quick(cuckoo: &Cuckoo, mut args: Args<'_>) -> bool {
    let items = args.left();
    let kicks = cuckoo.plan().moves();
    if looks(cuckoo) * items > LOOKS_AT_ONCE && items > 1 {
        return false;
    }
    if kicks * items <= MOVES_AT_ONCE {
        return true;
    }
    cuckoo.have_room(std::iter::from_fn(|| args.next()).map(Probe::of))
}

/// Bytes of buckets that a lookup of one item searches.
pub(super) fn looks(cuckoo: &Cuckoo) -> usize {
    2 * cuckoo.layers().len() * usize::from(cuckoo.plan().width)
}

/// Creates the filter if it is absent.
fn ensure(edit: &mut CuckooEdit<'_>, plan: Option<CuckooPlan>) -> Result<(), Refusal> {
    if edit.cuckoo().is_empty() {
        let plan = plan.ok_or(Refusal::line("ERR not found"))?;
        edit.assign(RESERVE, Cuckoo::new(plan).ok_or_else(not_created)?);
    }
    Ok(())
}

fn add_all(edit: &mut CuckooEdit<'_>, mut args: Args<'_>, order: Order) -> Vec<i8> {
    let mut codes = Vec::with_capacity(args.left());
    while let Some(item) = args.next() {
        let item = (Probe::of(item), Fresh::Bytes(item));
        codes.push(match begin(edit, item, order) {
            Ok(code) => code,
            Err(mut moving) => loop {
                if let Some(put) = edit.go_on(ADD, item, &mut moving, MOVES_AT_ONCE) {
                    break code(&put);
                }
            },
        });
    }
    codes
}

/// Adds an item, unless others would have to move.
fn begin(edit: &mut CuckooEdit<'_>, item: (Probe, Fresh<'_>), order: Order) -> Result<i8, Moving> {
    if order.only_new && edit.cuckoo().contains(item.0) {
        return Ok(0);
    }
    match edit.add(ADD, item) {
        Put::Moving(moving) => Err(moving),
        put => Ok(code(&put)),
    }
}

fn code(put: &Put) -> i8 {
    match put {
        Put::Done => 1,
        Put::Full => -1,
        Put::Stuck | Put::Moving(_) => -2,
    }
}

fn reply_one(reply: &mut Reply<'_>, codes: Vec<i8>) -> Flow {
    match codes.first() {
        Some(-1) => reply.error(FULL),
        Some(-2) => reply.error(STUCK),
        code => reply.boolean(code == Some(&1)),
    }
    Flow::Done
}

fn reply_each(reply: &mut Reply<'_>, codes: Vec<i8>) -> Flow {
    reply_as(reply, codes, |reply, code| match code {
        1 => reply.boolean(true),
        _ if reply.is_resp3() => reply.boolean(false),
        _ => reply.int(-1),
    })
}

fn reply_codes(reply: &mut Reply<'_>, codes: Vec<i8>) -> Flow {
    reply_as(reply, codes, |reply, code| reply.int(i64::from(code.max(-1))))
}

/// An addition of very many items, of very long items, or with moves of others.
struct Long {
    probes: ItemHashes,
    /// The index of the key in the request.
    key: usize,
    plan: Option<CuckooPlan>,
    order: Order,
    codes: Vec<i8>,
    /// The new version of the filter.
    draft: Option<Draft<CuckooFilter>>,
    /// The item being added while others move.
    moving: Option<(Probe, Moving)>,
    /// Items that found no place despite all moves, because the filter does not grow.
    refused: usize,
}

impl Long {
    /// Takes a cut of the filter, or makes a new one.
    fn begin(&self, cx: &mut Cx<'_>) -> Result<Draft<CuckooFilter>, Refusal> {
        let key = Key::new(self.probes.args().get(self.key));
        let mut draft = cx.db.draft::<CuckooFilter>(&key)?;
        ensure(&mut draft.edit(cx.now), self.plan)?;
        Ok(draft)
    }

    /// Does the next portion: some moves, a piece of an item, or a whole item.
    fn advance(&mut self, edit: &mut CuckooEdit<'_>) {
        /// Moves in one portion.
        const MOVES: usize = 8;
        /// After this many refused items, further items are added only to free places. The moves
        /// until then take 0.3 s.
        const REFUSED_MAX: usize = 256;
        if let Some((probe, mut moving)) = self.moving.take() {
            match edit.go_on(ADD, (probe, self.probes.last()), &mut moving, MOVES) {
                Some(put) => {
                    self.refused += usize::from(matches!(put, Put::Full));
                    self.codes.push(code(&put));
                }
                None => self.moving = Some((probe, moving)),
            }
        } else if let Some(probe) = self.probes.step() {
            match begin(edit, (probe, self.probes.last()), self.order) {
                Ok(code) => self.codes.push(code),
                Err(_) if self.refused >= REFUSED_MAX => self.codes.push(code(&Put::Full)),
                Err(moving) => self.moving = Some((probe, moving)),
            }
        }
    }
}

impl Job for Long {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let mut draft = match self.draft.take() {
            Some(draft) => draft,
            None => self.begin(cx)?,
        };
        while self.probes.left() > 0 || self.moving.is_some() {
            self.advance(&mut draft.edit(cx.now));
            if cx.preempt.must_yield() {
                self.draft = Some(draft);
                return Ok(Step::More);
            }
        }
        if draft.is_new() || self.codes.contains(&1) {
            cx.db.install_draft(&Key::new(self.probes.args().get(self.key)), draft);
        }
        let codes = std::mem::take(&mut self.codes);
        Ok(Step::Done((self.order.reply)(&mut cx.reply, codes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_resp::Request;
    use darter_structs::pages::PAGE_BYTES;
    use std::sync::Arc;

    #[test] // A second item with the same buckets may have to move others.
    fn items_that_may_have_to_move_others_become_a_job() {
        let mut cuckoo = Cuckoo::new(CuckooPlan { buckets: 1 << 16, ..DEFAULT }).unwrap();
        let request = Arc::new(Request::from_args([&b"x"[..]; 8]));
        let quick = |cuckoo: &Cuckoo, items: usize| {
            is_quick(cuckoo, Args::new(darter_resp::Args::owned(&request), 8 - items))
        };
        assert!(quick(&cuckoo, 4) && !quick(&cuckoo, 5), "two buckets of two");
        for left in (0..4).rev() {
            assert!(matches!(cuckoo.add(Probe::of(b"x")), Put::Done));
            assert!(left == 0 || quick(&cuckoo, left), "{left}");
            assert!(!quick(&cuckoo, left + 2), "{left}");
        }
    }

    #[test] // A full filter is detected by its slots, not by the item count in its file.
    fn many_items_are_added_at_once_while_there_is_room() {
        let plan = CuckooPlan { buckets: 1 << 16, ..DEFAULT };
        let words: Vec<String> = (0..32).map(|item| item.to_string()).collect();
        let request = Arc::new(Request::from_args(words.iter().map(String::as_bytes)));
        let args = || Args::new(darter_resp::Args::owned(&request), 0);
        let mut cuckoo = Cuckoo::bare(plan, 1, (0, 0)).unwrap();
        assert!(is_quick(&cuckoo, args()));
        for page in 0..cuckoo.layers()[0].pages() {
            let left = cuckoo.layers()[0].len() - page * PAGE_BYTES;
            assert!(cuckoo.load_page(0, page, &vec![1; left.min(PAGE_BYTES)]));
        }
        assert!(!is_quick(&cuckoo, args()));
    }
}

//! Finding elements by value: LPOS, LREM, LINSERT.
//!
//! The search compares bytes, at some gigabytes a second. A short search is made at once. A long
//! search that only reads (LPOS) continues in a cut. A long change (LREM, LINSERT) edits a copy in
//! portions: other writers of the key wait, and readers see the previous list.

use super::value::{Equal, List, new};
use crate::counted_reply::CountedReply;
use crate::lookup::find_value;
use crate::pending_values::flow;
use crate::unshare::KEY;
use darter_base::number;
use darter_command::{Args, Cx, Flow, Job, Refusal, Step, Stream};
use darter_keyspace::{Draft, Fresh, Key};
use darter_resp::{self as resp, Reply, Request};
use darter_structs::list::{self, End, Needle, Progress, Removal, Search};
use std::sync::Arc;

/// Runs that are searched at once, or in one portion of a reply.
const RUNS: usize = 32;
/// Runs that a removal searches between two checks of the slice, because many elements may match.
const REMOVAL_RUNS: usize = 2;
/// Searches of [`REMOVAL_RUNS`] in one step.
const LOOKS: usize = 64;
/// Lists up to this many bytes are searched at once: they have at most five runs.
const SHORT_BYTES: usize = 16 * 1024;
/// Matches in one portion; each takes a few ns.
const FINDS: usize = 1_024;

/// `LPOS key element [RANK rank] [COUNT count] [MAXLEN len]`: the index of an element.
///
/// Reply: integer or null; with COUNT an array. Refusals: options, `WrongType`. Cost: O(bytes
/// searched), in slices, from a cut. Source: <https://redis.io/commands/lpos> (6.0.6).
pub(super) fn lpos(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, element) = (args.key()?, args.value()?);
    let wanted = Wanted::parse(args)?;
    let Some(list) = find_value::<List>(cx.db, cx.stats, &key)? else {
        wanted.nothing(&mut cx.reply);
        return Ok(Flow::Done);
    };
    let elements = list.elements();
    let mut looking = Looking::new(wanted, elements.len(), element);
    let is_done = looking.look(elements);
    let list = if is_done { list::List::new() } else { elements.reader() };
    Ok(flow(&mut cx.reply, Finding { list, looking, is_done, is_begun: false }))
}

/// An LPOS whose reply starts when the search is complete.
struct Finding {
    list: list::List,
    looking: Looking,
    is_done: bool,
    /// The header has been sent.
    is_begun: bool,
}

impl Stream for Finding {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        if self.is_begun {
            return self.looking.found.pump(reply);
        }
        self.is_done = self.is_done || self.looking.look(&self.list);
        if !self.is_done {
            return true;
        }
        self.list = list::List::new();
        self.is_begun = true;
        let Looking { wanted, first, found, .. } = &mut self.looking;
        match (wanted.count, first) {
            (Some(_), _) => {
                reply.array(found.count());
                return found.pump(reply);
            }
            (None, Some(index)) => reply.count(*index),
            (None, None) => reply.null(),
        }
        false
    }

    fn pinned_bytes(&self) -> usize {
        let list = if self.list.is_pinned() { self.list.memory_bytes() } else { 0 };
        list + self.looking.found.pinned_bytes()
    }
}

/// A search and its matches so far.
struct Looking {
    wanted: Wanted,
    search: Search,
    /// Matches that were skipped because of RANK.
    skipped: usize,
    first: Option<usize>,
    /// The indexes of the matches, encoded.
    found: CountedReply,
}

impl Looking {
    fn new(wanted: Wanted, len: usize, element: Fresh<'_>) -> Self {
        let search = Search::new(Needle::new(new(element)), wanted.range(len), wanted.from);
        Self { wanted, search, skipped: 0, first: None, found: CountedReply::default() }
    }

    /// Searches the next runs. Returns true when the search is complete.
    fn look(&mut self, list: &list::List) -> bool {
        let mut runs = RUNS;
        for _ in 0..FINDS {
            let Some(index) = self.search.next(list, &mut runs) else { return runs > 0 };
            if self.skipped < self.wanted.rank - 1 {
                self.skipped += 1;
                continue;
            }
            let Some(count) = self.wanted.count else {
                self.first = Some(index);
                return true;
            };
            let mut line = vec![b':'];
            number::write_i64(&mut line, i64::try_from(index).unwrap_or(i64::MAX));
            line.extend_from_slice(b"\r\n");
            self.found.append(&line, 1);
            if self.found.count() >= count {
                return true;
            }
        }
        false
    }
}

/// A parsed LPOS.
struct Wanted {
    from: End,
    /// The number of the first match that is reported: 1 for the first.
    rank: usize,
    /// How many matches to report; `None` for one that is not in an array.
    count: Option<usize>,
    /// The most elements to search.
    len_max: usize,
}

impl Wanted {
    fn parse(mut args: Args<'_>) -> Result<Self, Refusal> {
        let mut wanted = Self { from: End::Front, rank: 1, count: None, len_max: usize::MAX };
        while args.left() > 0 {
            let has_more = args.left() > 1;
            if has_more && args.option("RANK") {
                (wanted.from, wanted.rank) = rank(args.int()?)?;
            } else if has_more && args.option("COUNT") {
                let count = natural(&mut args, "ERR COUNT can't be negative")?;
                wanted.count = Some(if count == 0 { usize::MAX } else { count });
            } else if has_more && args.option("MAXLEN") {
                let len = natural(&mut args, "ERR MAXLEN can't be negative")?;
                wanted.len_max = if len == 0 { usize::MAX } else { len };
            } else {
                return Err(Refusal::Syntax);
            }
        }
        Ok(wanted)
    }

    /// The indexes to search, in a list of `len` elements.
    fn range(&self, len: usize) -> std::ops::Range<usize> {
        match self.from {
            End::Front => 0..len.min(self.len_max),
            End::Back => len - len.min(self.len_max)..len,
        }
    }

    /// Replies that no element matches.
    fn nothing(&self, reply: &mut Reply<'_>) {
        match self.count {
            Some(_) => reply.array(0),
            None => reply.null(),
        }
    }
}

fn rank(rank: i64) -> Result<(End, usize), Refusal> {
    if rank == 0 {
        return Err(Refusal::line(
            "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or \
             use negative to start from the end of the list",
        ));
    }
    if rank == i64::MIN {
        return Ok((End::Back, 1)); // The smallest number has no opposite, in Redis either.
    }
    let end = if rank > 0 { End::Front } else { End::Back };
    Ok((end, usize::try_from(rank.unsigned_abs()).unwrap_or(usize::MAX)))
}

/// Reads a number that is not negative.
fn natural(args: &mut Args<'_>, text: &'static str) -> Result<usize, Refusal> {
    let number = number::parse_i64(args.word()?);
    number.and_then(|number| usize::try_from(number).ok()).ok_or(Refusal::line(text))
}

/// `LREM key count element`: removes elements equal to `element`: all if `count` is 0, else the
/// first `count` from the front, or from the back if `count` is negative.
///
/// Reply: integer, the number of removed elements. Refusals: `NotAnInteger`, `WrongType`. Cost:
/// O(bytes), in slices.
/// Source: <https://redis.io/commands/lrem> (1.0.0).
pub(super) fn lrem(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, count, element) = (args.key()?, args.int()?, args.value()?);
    let Some(list) = cx.db.read_value::<List>(&key)? else {
        cx.reply.int(0);
        return Ok(Flow::Done);
    };
    let from = if count < 0 { End::Back } else { End::Front };
    let most = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let most = if most == 0 { usize::MAX } else { most };
    let (needle, equal) = (Needle::new(new(element)), Equal::new(element, from));
    let mut removal = Removal::new(list.elements(), needle, most, from);
    if list.elements().memory_bytes() > SHORT_BYTES {
        let draft = cx.db.draft::<List>(&key)?;
        let key = key.bytes.to_vec();
        return Ok(Flow::Job(Box::new(Removing { key, draft, removal, equal })));
    }
    drop(list);
    cx.db.edit::<List, _>(&key, false, |edit| {
        while edit.remove_some(&mut removal, &equal, RUNS) == Progress::More {}
    })?;
    cx.reply.count(removal.removed());
    Ok(Flow::Done)
}

/// An LREM of a long list in progress.
struct Removing {
    key: Vec<u8>,
    /// The new list.
    draft: Draft<List>,
    removal: Removal,
    equal: Equal,
}

impl Job for Removing {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let mut looks = LOOKS;
        let Self { draft, removal, equal, .. } = self;
        while draft.edit(cx.now).remove_some(removal, equal, REMOVAL_RUNS) == Progress::More {
            looks -= 1;
            if looks == 0 || cx.preempt.must_yield() {
                return Ok(Step::More);
            }
        }
        if self.removal.removed() > 0 {
            cx.db.install_draft(&Key::new(&self.key), std::mem::take(&mut self.draft));
        }
        cx.reply.count(self.removal.removed());
        Ok(Step::Done(Flow::Done))
    }
}

/// `LINSERT key BEFORE | AFTER pivot element`: inserts an element before or after the first element
/// equal to the pivot.
///
/// Reply: integer, the new length; -1 without a pivot, 0 without a list. Refusals: an unknown word,
/// `WrongType`. Cost: O(bytes before the pivot), in slices.
/// Source: <https://redis.io/commands/linsert> (2.2.0).
pub(super) fn linsert(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let is_before = args.option("BEFORE");
    if !is_before && !args.option("AFTER") {
        return Err(Refusal::Syntax);
    }
    let (pivot, place) = (args.value()?, args.position());
    let Some(list) = cx.db.read_value::<List>(&key)? else {
        cx.reply.int(0);
        return Ok(Flow::Done);
    };
    let len = list.elements().len();
    let mut search = Search::new(Needle::new(new(pivot)), 0..len, End::Front);
    let mut runs = RUNS;
    let found = search.next(list.elements(), &mut runs);
    if found.is_none() && runs == 0 {
        let (request, draft) = (args.all().to_request(), cx.db.draft::<List>(&key)?);
        return Ok(Flow::Job(Box::new(Inserting { request, place, is_before, draft, search })));
    }
    drop(list);
    let Some(index) = found else {
        cx.reply.int(-1);
        return Ok(Flow::Done);
    };
    let element = args.value()?;
    cx.db.edit::<List, _>(&key, false, |edit| {
        edit.insert(index + usize::from(!is_before), element, pivot, is_before);
    })?;
    cx.reply.count(len + 1);
    Ok(Flow::Done)
}

/// A LINSERT in progress, whose pivot is far from the front.
struct Inserting {
    request: Arc<Request>,
    /// The argument index of the new element; the pivot is before it.
    place: usize,
    is_before: bool,
    draft: Draft<List>,
    search: Search,
}

impl Job for Inserting {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let mut runs = RUNS;
        let list = self.draft.value().elements();
        let Some(index) = self.search.next(list, &mut runs) else {
            if runs == 0 {
                return Ok(Step::More);
            }
            cx.reply.int(-1);
            return Ok(Step::Done(Flow::Done));
        };
        let all = resp::Args::owned(&self.request);
        let mut args = Args::new(all, self.place - 1);
        let (pivot, element) = (args.value()?, args.value()?);
        cx.reply.count(list.len() + 1);
        let index = index + usize::from(!self.is_before);
        self.draft.edit(cx.now).insert(index, element, pivot, self.is_before);
        cx.db.install_draft(&Key::new(all.get(KEY)), std::mem::take(&mut self.draft));
        Ok(Step::Done(Flow::Done))
    }
}

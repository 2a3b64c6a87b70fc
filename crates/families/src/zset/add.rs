//! Adding members and changing their scores: ZADD, ZINCRBY.
//!
//! A few are changed at once, after copying what they share with cuts (`unshare`). More than a
//! slice can change are changed aside; before that all the scores are checked, in portions too.

use super::options::OPTIONS_MAX;
use super::reply::double;
use super::value::{ZSet, ZSetEdit};
use crate::bulk_edit::is_long;
use crate::unshare::{self, KEY};
use arrayvec::ArrayVec;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_base::score;
use darter_command::{Args, Cx, Flow, Job, Refusal, Step};
use darter_keyspace::{Draft, Event, Key, Touch, Type, Typed, Value};
use darter_resp::{self as resp, Request};
use std::cmp::Ordering;
use std::ops::AddAssign;
use std::sync::Arc;

/// Members whose places are searched between two checks of the clock, where nothing is copied.
pub(super) const SEARCHES: usize = 8;

const ZINCR: &Event = &Event::new("zincr", b'z');

/// A member's score and its name.
pub(crate) type Pair<'a> = (f64, &'a [u8]);

/// How a request writes a member and its score.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notation {
    /// Arguments that both take.
    pub(crate) width: usize,
    /// Takes both, the member last.
    pub(crate) pair: for<'a> fn(&mut Args<'a>) -> Result<Pair<'a>, Refusal>,
}

/// As ZADD does.
const SCORES: Notation = Notation { width: 2, pair };
/// More bytes of members than this are processed aside: hashing and copying take time.
const BYTES_AT_ONCE: usize = 64 * 1024;
/// Scores checked in one portion, and changes in one.
const CHECKS: usize = 512;
const CHANGES: usize = 12;
/// Bytes of scores that are checked in one portion.
const CHECKED_BYTES: usize = 8 * 1024;

/// `ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]`: adds members, or
/// gives them other scores.
///
/// - `NX`: only new ones. `XX`: only those that are there. `GT`, `LT`: one that is there only gets
///   a higher or a lower score.
/// - `CH`: those with another score count too. `INCR`: as ZINCRBY.
///
/// Reply: integer, members that are new; with `INCR` the score, or null when it may not be changed.
/// Refusals: `Syntax`, options that exclude each other, `NotAFloat`, `WrongType`, a sum that is no
/// number; in this order. Cost: O(members * log(members there)), in slices when they are many.
/// Source: <https://redis.io/commands/zadd> (1.2.0; options 3.0.2, 6.2.0).
pub(super) fn zadd(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let options = Options::parse(&mut args)?;
    let rule = options.rule(args)?;
    if options.incr {
        return increment(cx, &key, args, rule);
    }
    add(cx, &key, args, rule)
}

/// Adds the members that are left among the arguments, or gives them other scores.
pub(crate) fn add(
    cx: &mut Cx<'_>,
    key: &Key<'_>,
    args: Args<'_>,
    rule: Rule,
) -> Result<Flow, Refusal> {
    if is_long(args, ENTRIES_AT_ONCE, BYTES_AT_ONCE) {
        return Ok(Flow::Job(Box::new(Adding::new(args, rule))));
    }
    if args.left() == rule.notation.width {
        return add_one(cx, key, args, rule);
    }
    let mut pairs = args;
    while pairs.left() > 0 {
        rule.pair(&mut pairs)?;
    }
    unshare::run(cx, key, args, rule)
}

/// [`add`] of a single member, whose score is read once.
fn add_one(
    cx: &mut Cx<'_>,
    key: &Key<'_>,
    mut args: Args<'_>,
    rule: Rule,
) -> Result<Flow, Refusal> {
    let put = rule.put(&mut args)?;
    let tally = cx.db.edit::<ZSet, _>(key, rule.creates(), |edit| rule.apply(edit, put))?;
    cx.reply.count(tally.unwrap_or_default().counted);
    Ok(Flow::Done)
}

/// `ZINCRBY key increment member`: adds to the score of a member; one that is missing has 0.
///
/// Reply: double (bulk in RESP2), the new score. Refusals: `NotAFloat`, `WrongType`, a sum that is
/// no number. Cost: O(log(members)). Source: <https://redis.io/commands/zincrby> (1.2.0).
pub(super) fn zincrby(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    // Redis has one function for both commands, so an option is taken for one here too.
    let options = Options::parse(&mut args)?;
    let rule = options.rule(args)?;
    increment(cx, &key, args, rule)
}

/// Takes a score and a member.
fn pair<'a>(args: &mut Args<'a>) -> Result<Pair<'a>, Refusal> {
    let score = score::parse(args.word()?).ok_or(Refusal::NotAFloat)?;
    Ok((score, args.bytes()?))
}

/// The options, as they come.
#[derive(Clone, Copy, Default)]
struct Options {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
    ch: bool,
    incr: bool,
}

impl Options {
    /// Reads the options; `args` stays at the first score.
    fn parse(args: &mut Args<'_>) -> Result<Self, Refusal> {
        let mut options = Self::default();
        for _ in 0..=OPTIONS_MAX {
            let Some(option) = options.next(args) else {
                let is_whole = args.left() > 0 && args.left().is_multiple_of(SCORES.width);
                return if is_whole { Ok(options) } else { Err(Refusal::Syntax) };
            };
            *option = true;
        }
        Err(Refusal::Syntax)
    }

    /// Takes the next option, if one comes next.
    fn next(&mut self, args: &mut Args<'_>) -> Option<&mut bool> {
        if !args.may_be_option() {
            return None;
        }
        Some(match () {
            () if args.option("NX") => &mut self.nx,
            () if args.option("XX") => &mut self.xx,
            () if args.option("GT") => &mut self.gt,
            () if args.option("LT") => &mut self.lt,
            () if args.option("CH") => &mut self.ch,
            () if args.option("INCR") => &mut self.incr,
            () => return None,
        })
    }

    /// Combines the options for the members in `args`.
    fn rule(self, args: Args<'_>) -> Result<Rule, Refusal> {
        let Self { nx, xx, gt, lt, ch, incr } = self;
        if nx && xx {
            return Err(Refusal::line("ERR XX and NX options at the same time are not compatible"));
        }
        if nx && (gt || lt) || gt && lt {
            return Err(Refusal::line(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if incr && args.left() > SCORES.width {
            return Err(Refusal::line("ERR INCR option supports a single increment-element pair"));
        }
        let only = match (nx, xx) {
            (true, _) => Some(Only::New),
            (_, true) => Some(Only::There),
            _ => None,
        };
        let order = match (gt, lt) {
            (true, _) => Some(Ordering::Greater),
            (_, true) => Some(Ordering::Less),
            _ => None,
        };
        Ok(Rule { only, order, counts_changed: ch, notation: SCORES })
    }
}

/// Which members may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Only {
    New,
    There,
}

/// How many members have changed, and how many of them count.
#[derive(Clone, Copy, Debug, Default)]
struct PinnedValues {
    changed: usize,
    counted: usize,
}

impl AddAssign for PinnedValues {
    fn add_assign(&mut self, other: Self) {
        self.changed += other.changed;
        self.counted += other.counted;
    }
}

/// Which members are changed, and which of them count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) only: Option<Only>,
    /// How the score of one that is there may change.
    pub(crate) order: Option<Ordering>,
    pub(crate) counts_changed: bool,
    pub(crate) notation: Notation,
}

/// A member that gets a score.
#[derive(Clone, Copy)]
struct Put<'a> {
    score: f64,
    member: &'a [u8],
    hash: u64,
}

/// Members that are changed one after the other.
type Batch<'a> = ArrayVec<Put<'a>, CHANGES>;

/// Prefetches what some changes of a large set touch: where the members are, and where they will be.
fn prefetch(batch: &Batch<'_>, set: &ZSet) {
    if batch.len() > 1 && set.ahead().is_some() {
        let wanted = batch.iter().map(|put| (put.score, put.hash));
        set.entries().prefetch_all(&wanted.collect::<ArrayVec<_, CHANGES>>());
    }
}

impl Rule {
    /// Takes a member and its score.
    fn pair<'a>(self, args: &mut Args<'a>) -> Result<Pair<'a>, Refusal> {
        (self.notation.pair)(args)
    }

    /// [`Rule::pair`], with the member's hash.
    fn put<'a>(self, args: &mut Args<'a>) -> Result<Put<'a>, Refusal> {
        let (score, member) = self.pair(args)?;
        Ok(Put { score, member, hash: args.last_hash() })
    }

    /// Takes the next few members and their scores, which are checked.
    fn take<'a>(self, args: &mut Args<'a>) -> Batch<'a> {
        let mut batch = Batch::new();
        while !batch.is_full()
            && let Ok(put) = self.put(args)
        {
            batch.push(put);
        }
        batch
    }

    /// The score that a member gets whose score is `old`, where it would be `new`. `None`: it stays
    /// as it is.
    fn decide(self, old: Option<f64>, new: f64) -> Option<f64> {
        let may = match old {
            None => self.only != Some(Only::There),
            Some(old) => {
                let order = new.partial_cmp(&old);
                self.only != Some(Only::New) && self.order.is_none_or(|by| order == Some(by))
            }
        };
        may.then_some(new)
    }

    /// [`Rule::decide`] for a score that grows by `by`.
    fn sum(self, old: Option<f64>, by: f64) -> Result<Option<f64>, Refusal> {
        let sum = old.map_or(by, |old| old + by);
        if sum.is_nan() && self.only != Some(Only::New) {
            return Err(Refusal::line("ERR resulting score is not a number (NaN)"));
        }
        Ok(self.decide(old, sum))
    }

    /// Changes one member.
    fn apply(self, edit: &mut ZSetEdit<'_>, put: Put<'_>) -> PinnedValues {
        let mut tally = PinnedValues::default();
        edit.update_hashed(put.hash, put.member, |old| {
            let new = self.decide(old, put.score);
            let changed = new.is_some() && new != old;
            let counts = changed && (old.is_none() || self.counts_changed);
            tally = PinnedValues { changed: usize::from(changed), counted: usize::from(counts) };
            new
        });
        tally
    }

    /// Changes all members that are left, whose scores are checked.
    fn apply_to(self, edit: &mut ZSetEdit<'_>, mut args: Args<'_>) -> PinnedValues {
        let mut tally = PinnedValues::default();
        loop {
            let batch = self.take(&mut args);
            if batch.is_empty() {
                return tally;
            }
            prefetch(&batch, edit.zset());
            for put in batch {
                tally += self.apply(edit, put);
            }
        }
    }

    /// True when a missing key is filled.
    fn creates(self) -> bool {
        self.only != Some(Only::There)
    }
}

impl unshare::EntryEdit for Rule {
    fn width(self) -> usize {
        self.notation.width
    }

    fn touches(self) -> (&'static Type, Touch) {
        (ZSet::TYPE, Touch::All)
    }

    fn copy(
        self,
        cx: &mut Cx<'_>,
        key: &Key<'_>,
        mut args: Args<'_>,
        entries: usize,
    ) -> Option<usize> {
        let preempt = cx.preempt;
        let copy = |edit: &mut ZSetEdit<'_>| {
            (1..=entries).find(|done| {
                let pair = self.pair(&mut args);
                let copied = pair.is_ok_and(|(score, member)| edit.unshare(member, Some(score)));
                (copied || done.is_multiple_of(SEARCHES)) && preempt.must_yield()
            })
        };
        cx.db.edit::<ZSet, _>(key, false, copy).ok()??
    }

    fn run(self, cx: &mut Cx<'_>, key: &Key<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
        let apply = |edit: &mut ZSetEdit<'_>| self.apply_to(edit, args);
        let tally = cx.db.edit::<ZSet, _>(key, self.creates(), apply)?.unwrap_or_default();
        cx.reply.count(tally.counted);
        Ok(Flow::Done)
    }
}

/// Adds to the score of one member.
fn increment(
    cx: &mut Cx<'_>,
    key: &Key<'_>,
    mut args: Args<'_>,
    rule: Rule,
) -> Result<Flow, Refusal> {
    let Put { score: by, member, hash } = rule.put(&mut args)?;
    let sum = cx.db.edit::<ZSet, _>(key, rule.creates(), |edit| {
        let mut sum = Ok(None);
        edit.tell_as(ZINCR);
        edit.update_hashed(hash, member, |old| {
            sum = rule.sum(old, by);
            sum.clone().ok().flatten()
        });
        sum
    })?;
    match sum.unwrap_or(Ok(None))? {
        Some(sum) => double(&mut cx.reply, sum),
        None => cx.reply.null(),
    }
    Ok(Flow::Done)
}

/// A change of many members, which begins with a check of their scores.
struct Adding {
    request: Arc<Request>,
    /// Indexes of the first score and of the next one.
    first: usize,
    next: usize,
    rule: Rule,
    /// The new value, once all scores are checked.
    draft: Option<Draft<ZSet>>,
    tally: PinnedValues,
}

impl Adding {
    fn new(args: Args<'_>, rule: Rule) -> Self {
        let (request, first) = (args.all().to_request(), args.position());
        Self { request, first, next: first, rule, draft: None, tally: PinnedValues::default() }
    }

    /// Checks some scores. True once all are.
    fn check(&mut self) -> Result<bool, Refusal> {
        let mut args = Args::new(resp::Args::owned(&self.request), self.next);
        let mut bytes = 0;
        for _ in 0..CHECKS.min(args.left() / self.rule.notation.width) {
            bytes += args.peek_word().map_or(0, <[u8]>::len);
            self.rule.pair(&mut args)?;
            if bytes > CHECKED_BYTES {
                break;
            }
        }
        self.next = args.position();
        Ok(args.left() == 0)
    }
}

impl Job for Adding {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let request = Arc::clone(&self.request);
        let all = resp::Args::owned(&request);
        let key = Key::new(all.get(KEY));
        let Some(draft) = &mut self.draft else {
            if self.check()? {
                self.draft = Some(cx.db.draft::<ZSet>(&key)?);
                self.next = self.first;
            }
            return Ok(Step::More);
        };
        let is_refused = draft.is_new() && !self.rule.creates();
        if is_refused {
            self.next = all.len();
        }
        let batch = self.rule.take(&mut Args::new(all, self.next));
        prefetch(&batch, draft.value());
        for put in batch {
            self.tally += self.rule.apply(&mut draft.edit(cx.now), put);
            self.next += self.rule.notation.width;
            // Each may have copied a part of the tree.
            if cx.preempt.must_yield() {
                break;
            }
        }
        if self.next < all.len() {
            return Ok(Step::More);
        }
        if let Some(draft) = self.draft.take_if(|_| self.tally.changed > 0) {
            cx.db.install_draft(&key, draft);
        }
        cx.reply.count(self.tally.counted);
        Ok(Step::Done(Flow::Done))
    }
}

//! SPOP: removes random members.
//!
//! - The whole set is removed by detaching it; the reply is streamed from the detached set.
//! - A few members are drawn and removed at once. So are some dozens of members without deadlines,
//!   after copying the parts that a cut shares (see `unshare`).
//! - More take the shape *Edit*: they are chosen and removed in a copy, in portions, and the copy
//!   is installed in one step. The reply is streamed afterwards: from the collected members if they
//!   are a small part of the set, otherwise from the cut, with one bit a member for the removed
//!   ones (1.25 MB for ten million). If most of the set is removed, the rest is built as a new set
//!   instead.

use super::reply::{Bits, Chosen, Form, Members, flow, is_small};
use super::value::Set;
use crate::counted_reply::CountedReply;
use crate::live_entries::{SEGMENTS_AT_ONCE, is_alive};
use crate::pending_values::PendingValues;
use crate::random::DRAWN_PART;
use crate::reservoir::Reservoir;
use crate::unshare;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_base::{Preempt, Prng, UnixMillis, number};
use darter_command::{Args, Cx, Flow, Job, Refusal, Step, Stream};
use darter_keyspace::event::DEL;
use darter_keyspace::{Deadline, Draft, Event, Key, Touch, Type, Typed};
use darter_resp::{self as resp, Reply, Request};
use darter_structs::table::{Entry, HeldKey, LiveCount, Never, Reader, Scratch, Table};
use darter_tx::KeySet;
use std::collections::VecDeque;
use std::sync::Arc;

const SPOP: &Event = &Event::new("spop", b's');

/// Up to this many members are drawn and removed directly, though each removal may copy a segment.
const FEW: usize = 4;
/// Members that are drawn and removed at once.
const AT_ONCE: usize = 64;
/// The index of the first member in a request that names members.
const FIRST: usize = 2;
/// Members drawn and removed in one portion of a job, or fewer if the slice ends: each removal may
/// copy a segment.
const DRAWS: usize = 64;
/// Members visited between two checks of the slice.
const WALKED: usize = 512;
const WALKED_AT_ONCE: usize = 8;

/// `SPOP key [count]`: removes a random member; or `count` members (all, if the set has fewer).
///
/// Reply: bulk or null; with a count set (array in RESP2). Refusals: `OutOfRangePositive`,
/// `WrongType`, `Syntax`. Cost: O(count), or O(members) for a large part of the set; in slices.
/// Source: <https://redis.io/commands/spop> (1.0.0).
pub(super) fn spop(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let wish = match args.next() {
        None => Wish::One,
        Some(count) => {
            args.end()?;
            let count = number::parse_i64(count).and_then(|count| usize::try_from(count).ok());
            Wish::Many(count.ok_or(Refusal::OutOfRangePositive)?)
        }
    };
    let now = cx.now;
    let Some(set) = cx.db.read_value::<Set>(&key)? else {
        wish.nothing(&mut cx.reply);
        return Ok(Flow::Done);
    };
    if wish == Wish::Many(0) {
        cx.reply.set(0);
        return Ok(Flow::Done);
    }
    if set.members().earliest_deadline().is_some_and(|earliest| earliest <= now) {
        // Usually only a few members have expired since the last removal of expired ones.
        cx.db.edit::<Set, _>(&key, false, |edit| edit.reap(ENTRIES_AT_ONCE))?;
    }
    let Some(set) = cx.db.read_value::<Set>(&key)? else {
        wish.nothing(&mut cx.reply);
        return Ok(Flow::Done);
    };
    let is_clean = set.members().earliest_deadline().is_none_or(|earliest| earliest > now);
    match wish {
        Wish::Many(count) if count >= set.len() => Ok(take_all(cx, &key)),
        Wish::Many(count) if is_clean && count <= FEW => {
            cx.reply.set(count);
            draw(cx, &key, count)
        }
        Wish::One if is_clean => draw(cx, &key, 1),
        _ => {
            let can_draw = wish.count() <= AT_ONCE && set.members().earliest_deadline().is_none();
            if can_draw && let Some(drawn) = drawn(&key, &set, wish.count(), cx.prng) {
                return unshare::run(cx, &key, Args::new(resp::Args::owned(&drawn), FIRST), Drawn);
            }
            let draft = cx.db.draft::<Set>(&key)?;
            let seed = cx.prng.next_u64();
            Ok(Flow::Job(Box::new(Pop::new(key.bytes, draft, wish, seed, now))))
        }
    }
}

/// The requested number of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    One,
    Many(usize),
}

impl Wish {
    /// Replies that the set is absent.
    fn nothing(self, reply: &mut Reply<'_>) {
        match self {
            Self::One => reply.null(),
            Self::Many(_) => reply.set(0),
        }
    }

    fn count(self) -> usize {
        match self {
            Self::One => 1,
            Self::Many(count) => count,
        }
    }

    /// The header of a reply with `count` members.
    fn header(self, reply: &mut Reply<'_>, count: usize) {
        match self {
            Self::One => {} // A bulk has no header.
            Self::Many(_) => reply.set(count),
        }
    }
}

/// Removes the key, and replies with all live members.
fn take_all(cx: &mut Cx<'_>, key: &Key<'_>) -> Flow {
    let cut = cx.db.take(key, &[SPOP, DEL]);
    let cut = cut.as_ref().and_then(|held| held.get::<Set>()).map(|set| set.members().clone());
    let cut = cut.unwrap_or_default();
    cx.db.count_more(cut.len().saturating_sub(1)); // Redis counts each member as a change.
    let (small, members) = (is_small(cut.len()), Members::new(cut, Form::Set, cx.now));
    flow(cx, small, members)
}

/// A request that names `count` random distinct members of a larger set without deadlines. `None`
/// if they are too long to be handled at once, or hard to find.
fn drawn(key: &Key<'_>, set: &Set, count: usize, prng: &mut Prng) -> Option<Arc<Request>> {
    /// The most bytes of all of them together.
    const BYTES_MAX: usize = 4 * 1024;
    /// The most draws that find no new member. In a set with one more member, a member takes 5
    /// draws on average.
    const MISSES_MAX: usize = 32 * AT_ONCE;
    let (mut seen, mut scratch) = (KeySet::with_capacity(count), Scratch::new());
    let mut members: Vec<Vec<u8>> = Vec::with_capacity(count);
    let (mut bytes, mut misses) = (0, 0);
    while members.len() < count {
        let entry = set.members().random(&mut || prng.next_u64())?;
        if !seen.insert(entry.key().hash()) {
            misses += 1;
            if misses > MISSES_MAX {
                return None;
            }
            continue;
        }
        let name = entry.key();
        let member = name.bytes(&mut scratch);
        bytes += member.len();
        if bytes > BYTES_MAX {
            return None;
        }
        members.push(member.to_vec());
    }
    let names = members.iter().map(Vec::as_slice);
    Some(Arc::new(Request::from_args([&b"SPOP"[..], key.bytes].into_iter().chain(names))))
}

/// Removes members that were drawn.
#[derive(Clone, Copy)]
struct Drawn;

impl unshare::EntryEdit for Drawn {
    fn touches(self) -> (&'static Type, Touch) {
        (Set::TYPE, Touch::Present)
    }

    fn run(self, cx: &mut Cx<'_>, key: &Key<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
        let members = || (args.position()..args.all().len()).map(|at| args.all().get(at));
        cx.reply.set(args.left());
        members().for_each(|member| cx.reply.bulk(member));
        // If the key has expired since, nothing is left to remove: the pop happened before.
        cx.db.edit::<Set, _>(key, false, |edit| {
            edit.tell_as(SPOP);
            members().for_each(|member| _ = edit.remove(member))
        })?;
        Ok(Flow::Done)
    }
}

/// Draws and removes `count` members of a set that has at least that many, and replies with them.
fn draw(cx: &mut Cx<'_>, key: &Key<'_>, count: usize) -> Result<Flow, Refusal> {
    let (reply, prng) = (&mut cx.reply, &mut *cx.prng);
    let mut unsent = PendingValues::default();
    cx.db.edit::<Set, _>(key, false, |edit| {
        edit.tell_as(SPOP);
        for _ in 0..count {
            let members = edit.set().members();
            let Some(entry) = members.random(&mut || prng.next_u64()) else { return };
            unsent.key(reply, &entry);
            let member = Member::of(&entry);
            edit.remove(member.bytes());
        }
    })?;
    Ok(unsent.into_flow())
}

/// A copy of a member, or a reference, that outlives its entry.
enum Member {
    Held(HeldKey),
    Copied(Vec<u8>),
}

impl Member {
    fn of(entry: &Entry<'_, Never>) -> Self {
        entry.hold_key().map_or_else(|| Self::Copied(entry.key().to_vec()), Self::Held)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Held(held) => held.bytes(),
            Self::Copied(bytes) => bytes,
        }
    }
}

/// A pop of many members, or of some members of a set in which many have expired.
struct Pop {
    key: Vec<u8>,
    wish: Wish,
    seed: u64,
    /// The previous set.
    cut: Table<Never>,
    /// The new set.
    left: Draft<Set>,
    now: UnixMillis,
    way: Way,
}

/// The method of finding the members.
enum Way {
    /// First counts the live members.
    Counting(LiveCount<Never>),
    /// Draws members one by one.
    Drawing(CountedReply, usize),
    /// Chooses members in one pass.
    Choosing(Box<Choosing>),
}

struct Choosing {
    reader: Reader<Never>,
    choice: Reservoir,
    bits: Bits,
    /// The new set starts empty, and the members that are not popped are added.
    anew: bool,
    count: usize,
}

impl Pop {
    fn new(key: &[u8], left: Draft<Set>, wish: Wish, seed: u64, now: UnixMillis) -> Self {
        let cut = left.value().members().clone();
        let way = Way::Counting(LiveCount::new(cut.clone(), now));
        Self { key: key.to_vec(), wish, seed, cut, left, now, way }
    }

    /// Chooses the method, once the number of live members is known.
    fn choose(&mut self, living: usize) {
        let count = self.wish.count().min(living);
        let is_clean = living == self.cut.len();
        if is_clean && count.saturating_mul(DRAWN_PART) <= living {
            self.way = Way::Drawing(CountedReply::default(), count);
            return;
        }
        let anew = count > living / 2;
        if anew {
            self.left.clear();
        }
        self.way = Way::Choosing(Box::new(Choosing {
            reader: Reader::new(self.cut.clone()),
            choice: Reservoir::new(count, living, self.seed),
            bits: Bits::with_capacity(living),
            anew,
            count,
        }));
    }

    /// Does the next portion. Returns true while more is left.
    fn portion(&mut self, cx: &mut Cx<'_>) -> bool {
        match &mut self.way {
            Way::Counting(count) => {
                let is_clean =
                    self.cut.earliest_deadline().is_none_or(|earliest| earliest > self.now);
                if is_clean || !count.next_slice(SEGMENTS_AT_ONCE) {
                    let living = if is_clean { self.cut.len() } else { count.count() };
                    self.choose(living);
                }
                true
            }
            Way::Drawing(gathered, count) => {
                for _ in 0..DRAWS.min(*count) {
                    let members = self.left.value().members();
                    let Some(entry) = members.random(&mut || cx.prng.next_u64()) else { break };
                    gathered.push_key(&entry);
                    let member = Member::of(&entry);
                    let mut edit = self.left.edit(self.now);
                    edit.tell_as(SPOP);
                    edit.remove(member.bytes());
                    *count -= 1;
                    if cx.preempt.must_yield() {
                        break;
                    }
                }
                *count > 0
            }
            Way::Choosing(choosing) => choosing.portion(&mut self.left, self.now, cx.preempt),
        }
    }

    /// Installs the new set, and replies.
    fn finish(&mut self, cx: &mut Cx<'_>) -> Flow {
        let key = Key::new(&self.key);
        let mut left = std::mem::take(&mut self.left);
        let way = std::mem::replace(&mut self.way, Way::Drawing(CountedReply::default(), 0));
        let before = self.cut.len();
        let (count, stream): (usize, Box<dyn Stream>) = match way {
            Way::Drawing(gathered, _) => (before - left.value().len(), Box::new(gathered)),
            Way::Choosing(choosing) => {
                let Choosing { bits, count, .. } = *choosing;
                let cuts = VecDeque::from([std::mem::take(&mut self.cut)]);
                (count, Box::new(Chosen::new(cuts, bits, count, self.now)))
            }
            Way::Counting(_) => unreachable!("the way is decided on first"),
        };
        left.count_as(count);
        cx.db.install_draft(&key, left);
        if count == 0 {
            self.wish.nothing(&mut cx.reply);
            return Flow::Done;
        }
        self.wish.header(&mut cx.reply, count);
        Flow::Stream(stream)
    }
}

impl Choosing {
    /// Processes a portion of the pass. Returns true while more is left.
    fn portion(&mut self, left: &mut Draft<Set>, now: UnixMillis, preempt: &dyn Preempt) -> bool {
        let Self { reader, choice, bits, anew, .. } = self;
        let mut walked = 0;
        let mut edit = left.edit(now);
        edit.tell_as(SPOP);
        while walked == 0 || (walked < WALKED && !preempt.must_yield()) {
            walked += WALKED_AT_ONCE;
            let more = reader.next_slice(WALKED_AT_ONCE, &mut |entry| {
                if !is_alive(entry.deadline(), now) {
                    return;
                }
                let chosen = choice.next();
                bits.push(chosen);
                if chosen == *anew {
                    return;
                }
                let (key, mut scratch) = (entry.key(), Scratch::new());
                let member = key.bytes(&mut scratch);
                if *anew {
                    edit.add(member, Deadline::from(entry.deadline()));
                } else {
                    edit.remove(member);
                }
            });
            if !more {
                return false;
            }
        }
        true
    }
}

impl Job for Pop {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        if self.portion(cx) {
            return Ok(Step::More);
        }
        Ok(Step::Done(self.finish(cx)))
    }
}

//! The type: its row, its values, how they are changed.

use super::build::Bulk;
use super::items::Entries;
use darter_base::{hash, score};
use darter_keyspace::commands::{self, Commands, ITEMS_MAX};
use darter_keyspace::rebuild::{PORTION_BYTES, Parts};
use darter_keyspace::{
    Ahead, Bound, Build, Change, Collection, Db, Event, Key, Name, NewItem, Object, Recorder,
    Twice, Type, Typed, Value, WrongType,
};
use darter_rdb::{Bounds, Encoding, Form, Items, Kind, Layout, Plan, Survey};
use darter_structs::sorted::{End, Sorted, SortedEntry};
use darter_structs::table::{PackedValue, Scratch};
use std::cell::Cell;
use std::ops::Range;

static TYPE: &Type = &Type {
    name: "zset",
    number: 3,
    rdb: &Kind {
        encodings: ENCODINGS,
        packed: Bounds { items_max: PACKED_MAX, item_bytes_max: 64 },
        plan,
    },
    empty: || Object::new(ZSet::new()),
    bounds: &[&MEMBERS_MAX, &MEMBER_BYTES_MAX],
    is_ordered: false,
};

static MEMBERS_MAX: Bound =
    Bound::new("zset-max-listpack-entries", "128").formerly("zset-max-ziplist-entries");
static MEMBER_BYTES_MAX: Bound =
    Bound::new("zset-max-listpack-value", "64").of_bytes().formerly("zset-max-ziplist-value");

// How a sorted set is laid out in a file.
const PLAIN: u8 = 5;
const LISTPACK: u8 = 17;
/// Most members of a listpack there, by Redis's default.
const PACKED_MAX: u64 = 128;

#[rustfmt::skip] // A table.
const ENCODINGS: &[Encoding] = &[
    Encoding::new(PLAIN,    Layout::Scores),
    Encoding::new(LISTPACK, Layout::Block(Form::Listpack, 2)),
    // The encodings of Redis before 7.0, and before 4.0.
    Encoding::new(12, Layout::Block(Form::Ziplist, 2)),
    Encoding::new(3,  Layout::ScoreTexts),
];

/// As Redis 7.0 would write it.
fn plan(survey: &Survey) -> Plan {
    survey.listpack(LISTPACK).unwrap_or_else(|| survey.scores(PLAIN))
}

/// Fewer members are in the processor's nearest caches anyway.
const AHEAD_MIN: usize = 4_096;

const ZADD: &Event = &Event::new("zadd", b'z');
const ZREM: &Event = &Event::new("zrem", b'z');

/// A sorted set. Cloning it is a cut.
#[derive(Clone, Default)]
pub struct ZSet {
    entries: Sorted,
    grown: bool,
}

impl ZSet {
    /// An empty sorted set. Allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A sorted set of these entries, the longest member of which has `longest` bytes.
    #[must_use]
    pub fn of_sorted(entries: Sorted, longest: usize) -> Self {
        let grown = longest > MEMBER_BYTES_MAX.get() || entries.len() > MEMBERS_MAX.get();
        let built = Self { entries, grown };
        if grown {
            return built;
        }
        let mut small = Self::new();
        let mut edit = small.edit_aside(0); // The set has facts that a listpack has not.
        built.entries.range(0..built.len()).for_each(|entry| {
            edit.insert(entry.member().bytes(&mut Scratch::new()), entry.score());
        });
        small
    }

    /// The entries: ranks, ranges and cuts are read there.
    #[must_use]
    pub fn entries(&self) -> &Sorted {
        &self.entries
    }

    /// Members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when there are no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The score of `member`.
    #[must_use]
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        self.entries.score(hash::of(member), member)
    }

    /// The rank of `member`, from 0, ascending, and its score.
    #[must_use]
    pub fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        self.entries.rank(hash::of(member), member)
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.entries.memory_bytes()
    }

    /// A cut for a long-lived reader, which does not count as an owner of the value.
    #[must_use]
    pub fn reader(&self) -> Self {
        Self { entries: self.entries.reader(), ..*self }
    }

    /// Updates the encoding for an added member.
    fn grow(&mut self, member: &[u8]) {
        self.grown = self.grown
            || member.len() > MEMBER_BYTES_MAX.get()
            || self.entries.len() > MEMBERS_MAX.get();
    }

    /// Bytes of a deleted sorted set that a [`ZSet::reader`] holds: see [`Sorted::is_pinned`].
    #[must_use]
    pub fn pinned_bytes(&self) -> usize {
        if self.entries.is_pinned() { self.memory_bytes() } else { 0 }
    }
}

impl Value for ZSet {
    fn content_bytes(&self) -> usize {
        self.memory_bytes()
    }

    /// By Redis's default limits.
    fn encoding(&self) -> &'static str {
        if self.grown { "skiplist" } else { "listpack" }
    }

    /// The items in the order in which Redis writes them: ascending for a listpack, which must be
    /// in order; otherwise descending, so that each is added at the front.
    fn items(&self, _now: u64) -> Items {
        let from = if self.len() as u64 > PACKED_MAX { End::Back } else { End::Front };
        Box::new(Entries::new(self.entries.clone(), from))
    }

    fn take_in(&mut self, item: NewItem<'_>) -> bool {
        let Some((score, name)) = scored(item) else { return false };
        // A -0 stays: whether this will be a listpack is not known yet.
        let old = self.entries.insert(hash::of(name), name, score);
        self.grow(name);
        old.is_none()
    }

    fn take_all(&mut self, items: &[NewItem<'_>]) -> bool {
        let entries: Option<Vec<_>> = items.iter().copied().map(scored).collect();
        let made = entries.and_then(|mut entries| Some((Sorted::of_all(&mut entries)?, entries)));
        let Some((set, entries)) = made else {
            return items.iter().all(|item| self.take_in(*item));
        };
        let is_long = |member: &[u8]| member.len() > MEMBER_BYTES_MAX.get();
        self.grown = set.len() > MEMBERS_MAX.get() || entries.iter().any(|(_, m)| is_long(m));
        self.entries = set;
        true
    }

    fn builder(&self, items: u64) -> Option<Box<dyn Build>> {
        Some(Box::new(Loading(Bulk::of_different(usize::try_from(items).ok()?)?)))
    }

    fn rebuild(&self) -> Option<Box<dyn Parts>> {
        Some(Box::new(Additions { cut: self.entries.reader(), next: 0, written: 0 }))
    }

    fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn packed(&self) -> Option<PackedValue<'_>> {
        self.entries.packed().map(|bytes| TYPE.pack(self.grown, bytes))
    }

    fn take_packed(&mut self, packed: PackedValue<'_>) -> bool {
        let Some((bytes, grown)) = TYPE.unpack(packed) else { return false };
        *self = Self { entries: Sorted::of_packed(bytes), grown };
        true
    }

    fn check_invariants(&self) {
        self.entries.check_invariants();
    }

    fn ahead(&self) -> Option<&dyn Ahead> {
        (self.len() >= AHEAD_MIN).then_some(self)
    }

    /// The remaining work of a removed range is overdue, as if members had died.
    fn earliest_deadline(&self) -> Option<u64> {
        self.entries.is_unsettled().then_some(0)
    }

    fn reap(&mut self, _now: u64, most: usize, _: &mut Recorder<'_>) -> bool {
        self.entries.settle(most)
    }
}

impl Ahead for ZSet {
    fn entries(&self) -> usize {
        self.len()
    }

    fn prefetch(&self, hash: u64) {
        self.entries.prefetch(hash);
    }

    fn prefetch_entries(&self, hashes: &[u64]) {
        self.entries.prefetch_entries(hashes);
    }
}

impl Typed for ZSet {
    const TYPE: &'static Type = TYPE;
}

impl Collection for ZSet {
    type Edit<'a> = ZSetEdit<'a>;

    fn edit<'a>(&'a mut self, _now: u64, recorder: Recorder<'a>) -> ZSetEdit<'a> {
        ZSetEdit { zset: self, recorder }
    }
}

/// The score that an item is, and its member.
fn scored(item: NewItem<'_>) -> Option<(f64, &[u8])> {
    match item {
        NewItem::Scored { name, score } => Some((score, name)),
        NewItem::Pair { name, value, .. } => Some((score::parse(value.inline()?)?, name)),
        _ => None,
    }
}

/// A sorted set that is built of very many members.
struct Loading(Bulk);

impl Build for Loading {
    fn take_in(&mut self, item: NewItem<'_>) -> bool {
        let is_scored = scored(item).map(|(score, member)| self.0.push(member, score)).is_some();
        is_scored && !self.0.is_overfull()
    }

    fn step(&mut self) -> Result<bool, Twice> {
        let is_twice = Cell::new(false);
        let more = self.0.sort(&|score, _| {
            is_twice.set(true);
            score
        });
        if is_twice.get() || self.0.is_overfull() { Err(Twice) } else { Ok(more) }
    }

    fn finish(self: Box<Self>) -> Object {
        Object::new(self.0.finish())
    }
}

/// A change of a sorted set, as recorded.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields are what the variant says, by their usual names")]
pub enum ZSetChange {
    /// The member has this score now.
    Put { member: Name, score: f64 },
    /// The member is gone.
    Remove { member: Name },
    /// The members with these ranks are gone.
    RemoveRange { ranks: Range<usize> },
}

impl Change for ZSetChange {
    const TYPE: &'static Type = TYPE;

    fn held_bytes(&self) -> usize {
        match self {
            Self::Put { member, .. } | Self::Remove { member } => member.len(),
            Self::RemoveRange { .. } => 0,
        }
    }

    fn apply(changes: &[Self], db: &mut Db, key: &Key<'_>) -> Result<(), WrongType> {
        db.edit::<ZSet, _>(key, true, |edit| changes.iter().for_each(|change| edit.apply(change)))?;
        Ok(())
    }

    fn encode(changes: &[Self], key: &[u8], to: &mut Commands) {
        commands::runs(changes, Self::are_like, |run| match &run[0] {
            Self::Put { .. } => {
                add(key, run.len(), to);
                for change in run {
                    let Self::Put { member, score } = change else { continue };
                    to.score(*score);
                    to.word(member);
                }
            }
            Self::Remove { .. } => {
                to.begin(2 + run.len());
                to.word(b"ZREM");
                to.word(key);
                for change in run {
                    let Self::Remove { member } = change else { continue };
                    to.word(member);
                }
            }
            Self::RemoveRange { ranks } => {
                to.begin(4);
                to.word(b"ZREMRANGEBYRANK");
                to.word(key);
                to.size(ranks.start);
                to.size(ranks.end - 1);
            }
        });
    }
}

impl ZSetChange {
    /// True if one command makes both changes.
    fn are_like(&self, other: &Self) -> bool {
        !matches!(self, Self::RemoveRange { .. })
            && std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// Begins a command that adds this many members.
fn add(key: &[u8], members: usize, to: &mut Commands) {
    to.begin(2 + 2 * members);
    to.word(b"ZADD");
    to.word(key);
}

/// The commands that add all members of a cut.
struct Additions {
    cut: Sorted,
    /// The rank of the next member, and the bytes of it that are written, if it is long.
    next: usize,
    written: usize,
}

impl Additions {
    /// Writes the next portion of the next member, which is long.
    fn add_long(&mut self, key: &[u8], to: &mut Commands) {
        let entry = self.cut.get(self.next).expect("the rank is below the length");
        let (member, mut scratch) = (entry.member(), Scratch::new());
        let bytes = member.bytes(&mut scratch);
        if self.written == 0 {
            add(key, 1, to);
            to.score(entry.score());
            to.open(bytes.len() as u64);
        }
        let end = bytes.len().min(self.written + PORTION_BYTES);
        to.part(&bytes[self.written..end]);
        let is_last = end == bytes.len();
        (self.next, self.written) = if is_last { (self.next + 1, 0) } else { (self.next, end) };
    }
}

impl Parts for Additions {
    fn step(&mut self, key: &[u8], to: &mut Commands) -> bool {
        let before = to.bytes();
        while let Some(first) = self.cut.get(self.next)
            && to.bytes() < before + PORTION_BYTES
        {
            if first.member().len() >= PORTION_BYTES {
                self.add_long(key, to);
                continue;
            }
            let some = || self.cut.range(self.next..self.cut.len().min(self.next + ITEMS_MAX));
            let mut bytes = 0;
            let fits = |entry: &SortedEntry<'_>| {
                let is_first = bytes == 0;
                bytes += 1 + entry.member().len();
                is_first || bytes < PORTION_BYTES
            };
            let count = some().take_while(fits).count();
            add(key, count, to);
            for entry in some().take(count) {
                to.score(entry.score());
                to.word(entry.member().bytes(&mut Scratch::new()));
            }
            self.next += count;
        }
        self.next < self.cut.len()
    }
}

/// Changes a sorted set, and records the effects.
pub struct ZSetEdit<'a> {
    zset: &'a mut ZSet,
    recorder: Recorder<'a>,
}

impl ZSetEdit<'_> {
    /// Records what follows as `event`: by themselves, additions are `zadd`, removals `zrem`.
    pub fn tell_as(&mut self, event: &'static Event) {
        self.recorder.tell_as(event);
    }

    /// The sorted set as it is now.
    #[must_use]
    pub fn zset(&self) -> &ZSet {
        self.zset
    }

    /// Adds `member`, or gives it another score: see [`Sorted::update`]. Returns the score that it
    /// had. A score that stays the same is no change.
    pub fn update(
        &mut self,
        member: &[u8],
        f: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Option<f64> {
        self.update_hashed(hash::of(member), member, f)
    }

    /// [`ZSetEdit::update`] of a member whose hash is known.
    pub(super) fn update_hashed(
        &mut self,
        hash: u64,
        member: &[u8],
        f: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Option<f64> {
        let Self { zset, recorder } = self;
        let (mut put, grown) = (None, zset.grown || member.len() > MEMBER_BYTES_MAX.get());
        let is_full = zset.entries.len() >= MEMBERS_MAX.get();
        let old = zset.entries.update(hash, member, |old| {
            // A listpack has no -0; a member that it does not take makes a skiplist first.
            let grown = grown || is_full && old.is_none();
            let new = f(old).map(|new| if grown { new } else { new + 0.0 });
            put = new.filter(|new| old != Some(*new));
            new
        });
        if let Some(score) = put {
            zset.grow(member);
            recorder.record(&[ZADD], || ZSetChange::Put { member: Name::from(member), score });
        }
        old
    }

    /// Adds `member`, or gives it another score. Returns the score that it had.
    pub fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        self.update(member, |_| Some(score))
    }

    /// Removes `member`. Returns the score that it had.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let old = self.zset.entries.remove(hash::of(member), member)?;
        self.recorder.record(&[ZREM], || ZSetChange::Remove { member: Name::from(member) });
        Some(old)
    }

    /// Removes the member with the lowest or the highest rank after calling `f` with it. `None` when
    /// there is none.
    pub fn pop<R>(&mut self, end: End, f: impl FnOnce(SortedEntry<'_>) -> R) -> Option<R> {
        let rank = match end {
            End::Front => 0,
            End::Back => self.zset.len().checked_sub(1)?,
        };
        let result = self.zset.entries.pop(end, f)?;
        self.recorder.record(&[ZREM], || ZSetChange::RemoveRange { ranks: rank..rank + 1 });
        Some(result)
    }

    /// Removes the members with these ranks. Returns how many there were. After a removal of many,
    /// some of the work is left: [`ZSetEdit::settle`].
    pub fn remove_range(&mut self, ranks: Range<usize>) -> usize {
        let ranks = ranks.start..ranks.end.min(self.zset.len());
        if ranks.is_empty() {
            return 0;
        }
        self.zset.entries.remove_range(ranks.clone());
        let count = ranks.len();
        self.recorder.count_more(count - 1);
        self.recorder.record(&[ZREM], || ZSetChange::RemoveRange { ranks });
        count
    }

    /// Does work that was left, for at most `most` members: see [`Sorted::settle`]. True while some
    /// is left.
    pub fn settle(&mut self, most: usize) -> bool {
        self.zset.entries.settle(most)
    }

    /// Copies ahead what a change would have to copy: see [`Sorted::unshare`].
    pub fn unshare(&mut self, member: &[u8], score: Option<f64>) -> bool {
        self.zset.entries.unshare(hash::of(member), member, score)
    }

    fn apply(&mut self, change: &ZSetChange) {
        match change {
            ZSetChange::Put { member, score } => {
                self.insert(member, *score);
            }
            ZSetChange::Remove { member } => {
                self.remove(member);
            }
            ZSetChange::RemoveRange { ranks } => {
                self.remove_range(ranks.clone());
            }
        }
    }
}

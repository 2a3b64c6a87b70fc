//! WATCH: watched keys, their clients, and touches of them.
//!
//! A *touch* is anything that publishes an event on a key, with few exceptions, even if the value
//! is the same afterwards. So watches see events in the same place as the log, and a log needed
//! only by watches stores nothing. Absent keys and deadlines follow Redis's rules:
//!
//! - A key that was absent or expired when it was watched stays clean when it is removed, flushed,
//!   or swapped for another absent one.
//! - A key that existed is dirty once it has expired, even before its removal. Its deadline cannot
//!   change without a touch, so the earliest deadline of a client's keys is sufficient.
//!
//! No step grows with the keys of a client, or with the clients of a key: a touched key leaves the
//! table with all its watches, and their clients are marked in portions. The keys of a client that
//! stops watching are also removed in portions. Only SWAPDB visits all watched keys.
//!
//! Keys are found by their hashes alone. If two share a hash, both count as touched; the only
//! consequence is a transaction that must be retried.
//!
//! A *build* (SUNIONSTORE) watches its sources in the same way, from its cuts of them until it is
//! installed: while none has changed, a cut of all keys may come before it.
//!
//! Invariants (`check_invariants`):
//! - W1: every key in the table has a watch, of a client that watches now or is being forgotten.
//! - W2: the watches of a clean client are in the table, once for each of its keys.

use crate::event::{EXPIRED, NEW};
use crate::{Event, Key, Name, is_dead};
use darter_base::hash::{self, IdentityMap};
use darter_base::hashtree::HashTree;
use darter_base::runs::Runs;
use std::collections::BTreeMap;
use std::collections::btree_map::{Entry, IntoIter};

/// Watches that are marked or removed at once.
const AT_ONCE: usize = 64;
/// The number of keys that are removed at once when a client stops watching. Most clients watch
/// fewer, and very many clients may stop in one step.
const FEW: usize = 8;

/// Flag of a build's number, which is not a client.
const BUILD: u64 = 1 << 63;

/// One watch of one key.
#[derive(Clone, Copy, Debug)]
struct Watch {
    client: u64,
    /// The key existed when the watch started.
    was_there: bool,
}

/// The watches of a key by time. Each time belongs to one client, which may have stopped watching
/// since. A tree never moves all of them.
type ByTime = BTreeMap<u64, Watch>;

/// The watches of a key.
#[derive(Debug)]
enum Watching {
    One(u64, Watch),
    Many(ByTime),
}

impl Watching {
    /// Adds a watch, unless the client has one. Returns true if it is new.
    fn add(&mut self, time: u64, watch: Watch) -> bool {
        match self {
            Self::One(other, _) if *other == time => false,
            Self::One(other, before) => {
                *self = Self::Many([(*other, *before), (time, watch)].into());
                true
            }
            Self::Many(all) => match all.entry(time) {
                Entry::Occupied(_) => false,
                Entry::Vacant(place) => {
                    place.insert(watch);
                    true
                }
            },
        }
    }

    /// Removes a watch. Returns true if none is left.
    fn remove(&mut self, time: u64) -> bool {
        match self {
            Self::One(own, _) => *own == time,
            Self::Many(all) => {
                all.remove(&time);
                all.is_empty()
            }
        }
    }

    fn has(&self, time: u64) -> bool {
        match self {
            Self::One(own, _) => *own == time,
            Self::Many(all) => all.contains_key(&time),
        }
    }

    fn is_of_there(&self) -> bool {
        match self {
            Self::One(_, watch) => watch.was_there,
            Self::Many(all) => all.values().all(|watch| watch.was_there),
        }
    }

    /// Takes out the watches of clients for which the key existed. Cost: O(watches).
    fn split_there(&mut self) -> ByTime {
        match self {
            Self::One(..) => ByTime::new(),
            Self::Many(all) => split(all, |watch| watch.was_there),
        }
    }
}

/// Takes out the watches that pass `test`. Cost: O(watches).
fn split(all: &mut ByTime, test: impl Fn(&Watch) -> bool) -> ByTime {
    let (those, others) = std::mem::take(all).into_iter().partition(|(_, watch)| test(watch));
    *all = others;
    those
}

/// A key that is watched.
#[derive(Debug)]
struct Watched {
    db: usize,
    name: Name,
    watching: Watching,
}

/// The watches of a client.
#[derive(Debug)]
struct Watcher {
    time: u64,
    /// The names of its keys in the table.
    keys: Runs<u64>,
    /// The databases of the keys that existed.
    databases: Vec<usize>,
    /// The earliest deadline of those keys.
    dies_at: Option<u64>,
    is_dirty: bool,
}

/// The state of a client's watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// No watched key was touched or has expired.
    Clean,
    /// A watched key was touched, or has expired.
    Touched,
    /// Some touches have not been processed yet: ask again.
    Unknown,
}

/// The watches of one shard.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// The watched keys, by [`place`].
    keys: HashTree<Watched>,
    /// By client.
    watchers: IdentityMap<Watcher>,
    /// The last time that was assigned.
    times: u64,
    /// Watches of touched keys, whose clients must be marked.
    touched: Vec<IntoIter<u64, Watch>>,
    /// Ended times, with keys to remove.
    over: Vec<(u64, Runs<u64>)>,
    /// Clients that have become dirty since the last call.
    news: Vec<u64>,
    /// The builds among the watchers.
    builds: Vec<u64>,
}

/// The name of a key in the table of watches.
pub(crate) fn place(db: usize, hash: u64) -> u64 {
    hash ^ (db as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Watches {
    /// True if nothing is watched, and no work is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.watchers.is_empty() && self.touched.is_empty() && self.over.is_empty()
    }

    /// True if [`Watches::settle`] or [`Watches::take_news`] has work to do.
    pub(crate) fn has_work(&self) -> bool {
        !(self.touched.is_empty() && self.over.is_empty() && self.news.is_empty())
    }

    /// Adds a watch of a key, with its deadline if the key exists. Watching it again has no effect,
    /// and a dirty client need not watch any more.
    pub(crate) fn add(
        &mut self,
        client: u64,
        (db, key): (usize, &Key<'_>),
        there: Option<Option<u64>>,
    ) {
        let times = &mut self.times;
        let watcher = self.watchers.entry(client).or_insert_with(|| {
            *times += 1;
            Watcher {
                time: *times,
                keys: Runs::default(),
                databases: Vec::new(),
                dies_at: None,
                is_dirty: false,
            }
        });
        if watcher.is_dirty {
            return;
        }
        let place = place(db, key.hash);
        let (time, watch) = (watcher.time, Watch { client, was_there: there.is_some() });
        let is_new = match self.keys.get_mut(place) {
            Some(watched) => watched.watching.add(time, watch),
            None => {
                let (name, watching) = (Name::from(key.bytes), Watching::One(time, watch));
                self.keys.insert(place, Watched { db, name, watching });
                true
            }
        };
        if is_new {
            watcher.keep(place, db, there);
        }
        assert!(watcher.time <= *times, "a time to come");
    }

    /// Adds a watch of a build's source.
    pub(crate) fn add_source(
        &mut self,
        build: u64,
        key: (usize, &Key<'_>),
        there: Option<Option<u64>>,
    ) {
        debug_assert_eq!(build & BUILD, 0, "the number of a build is too large");
        let build = build | BUILD;
        if !self.builds.contains(&build) {
            self.builds.push(build);
        }
        self.add(build, key, there);
    }

    /// Ends a build.
    pub(crate) fn end_build(&mut self, build: u64) {
        let build = build | BUILD;
        if let Some(at) = self.builds.iter().position(|one| *one == build) {
            self.builds.swap_remove(at);
            self.remove(build);
        }
    }

    /// True while a build has sources.
    pub(crate) fn have_builds(&self) -> bool {
        !self.builds.is_empty()
    }

    /// True if a source of a build may have changed. Sources with a deadline count as changed,
    /// because time passes while locks are held. Cost: a portion for each build.
    pub(crate) fn has_changed_sources(&mut self, now: u64) -> bool {
        (0..self.builds.len()).any(|at| {
            let build = self.builds[at];
            let dies = self.watchers.get(&build).is_some_and(|build| build.dies_at.is_some());
            dies || self.ask(build, now) != Seen::Clean
        })
    }

    /// Ends all watches of a client. Returns true while [`Watches::settle`] has work to do.
    pub(crate) fn remove(&mut self, client: u64) -> bool {
        if let Some(Watcher { time, keys, .. }) = self.watchers.remove(&client) {
            if keys.len() <= FEW {
                keys.iter().for_each(|place| self.forget(time, *place));
            } else {
                self.over.push((time, keys));
            }
        }
        !(self.touched.is_empty() && self.over.is_empty())
    }

    /// Marks the clients of touched keys, and removes keys of clients that have stopped watching:
    /// one portion. Returns true while more is left.
    pub(crate) fn settle(&mut self) -> bool {
        let mut left = AT_ONCE;
        while let Some(mut watches) = self.touched.pop() {
            for (time, watch) in watches.by_ref().take(left) {
                self.mark(time, watch);
                left -= 1;
            }
            if watches.len() > 0 {
                self.touched.push(watches);
                return true;
            }
        }
        while left > 0
            && let Some((time, keys)) = self.over.last_mut()
        {
            let (time, next) = (*time, keys.pop());
            match next {
                Some(place) => self.forget(time, place),
                None => drop(self.over.pop()),
            }
            left -= 1;
        }
        !self.over.is_empty()
    }

    fn forget(&mut self, time: u64, place: u64) {
        assert!(time <= self.times, "a time to come");
        if let Some(watched) = self.keys.get_mut(place)
            && watched.watching.remove(time)
        {
            self.keys.remove(place);
        }
    }

    /// Marks the client of a watch as dirty, if the watch's time is still the client's.
    fn mark(&mut self, time: u64, Watch { client, .. }: Watch) {
        let watcher = self.watchers.get_mut(&client);
        if let Some(watcher) = watcher.filter(|watcher| watcher.time == time)
            && !std::mem::replace(&mut watcher.is_dirty, true)
            && client & BUILD == 0
        {
            self.news.push(client);
        }
    }

    /// True if a watcher would observe this event.
    #[inline]
    pub(crate) fn wants(&self, event: &'static Event) -> bool {
        !self.watchers.is_empty() && is_touch(event)
    }

    /// Handles an event on a key.
    #[inline]
    pub(crate) fn hear(&mut self, db: usize, key: &[u8], event: &'static Event) {
        if self.wants(event) {
            self.hear_touch(place(db, hash::of(key)), event);
        }
    }

    /// [`Watches::hear`] with the key's name in the table.
    pub(crate) fn hear_touch(&mut self, place: u64, event: &'static Event) {
        debug_assert!(is_touch(event), "{event:?}");
        let Some(watched) = self.keys.get_mut(place) else { return };
        if event == EXPIRED && !watched.watching.is_of_there() {
            let there = watched.watching.split_there();
            if !there.is_empty() {
                self.touched.push(there.into_iter());
            }
            return;
        }
        match self.keys.remove(place).map(|watched| watched.watching) {
            Some(Watching::One(time, watch)) => self.mark(time, watch),
            Some(Watching::Many(all)) => self.touched.push(all.into_iter()),
            None => {}
        }
    }

    /// Handles the removal of all keys of a database, or of all databases: existing keys are
    /// touched. Cost: O(watching clients).
    pub(crate) fn hear_flush(&mut self, db: Option<usize>) {
        for (client, watcher) in &mut self.watchers {
            let had = watcher.databases.iter().any(|of| db.is_none_or(|db| db == *of));
            if had && !std::mem::replace(&mut watcher.is_dirty, true) && client & BUILD == 0 {
                self.news.push(*client);
            }
        }
    }

    /// Handles a swap of two databases: keys that exist in either are touched. Cost: O(watched
    /// keys).
    pub(crate) fn hear_swap(&mut self, both: [usize; 2], is_there: impl Fn(usize, &[u8]) -> bool) {
        for place in self.touched_by_swap(both, is_there) {
            self.hear_touch(place, NEW);
        }
    }

    /// The names of the keys that a swap of two databases touches.
    pub(crate) fn touched_by_swap(
        &self,
        both: [usize; 2],
        is_there: impl Fn(usize, &[u8]) -> bool,
    ) -> Vec<u64> {
        debug_assert_ne!(both[0], both[1], "a database is swapped for itself");
        let is_touched = |watched: &Watched| {
            both.contains(&watched.db) && both.iter().any(|db| is_there(*db, &watched.name))
        };
        let all = self.keys.iter();
        all.filter(|(_, watched)| is_touched(watched)).map(|(place, _)| place).collect()
    }

    /// Handles an undone change of a key, which exists again with this deadline, or is absent. A
    /// client that started to watch it in between may have seen another value, and must retry.
    pub(crate) fn hear_undone(&mut self, db: usize, key: &[u8], there: Option<Option<u64>>) {
        if self.watchers.is_empty() {
            return;
        }
        let place = place(db, hash::of(key));
        let Some(watched) = self.keys.get_mut(place) else { return };
        let is_other = |watch: &Watch| watch.was_there != there.is_some();
        let (mut others, mut clients) = (ByTime::new(), Vec::new());
        match &mut watched.watching {
            Watching::One(time, watch) if is_other(watch) => _ = others.insert(*time, *watch),
            Watching::One(_, watch) => clients.push(watch.client),
            Watching::Many(all) => {
                others = split(all, is_other);
                clients.extend(all.values().map(|watch| watch.client));
            }
        }
        if clients.is_empty() {
            self.keys.remove(place);
        }
        if !others.is_empty() {
            self.touched.push(others.into_iter());
        }
        let Some(Some(deadline)) = there else { return };
        for client in clients {
            if let Some(watcher) = self.watchers.get_mut(&client) {
                watcher.dies_at = Some(watcher.dies_at.map_or(deadline, |at| at.min(deadline)));
            }
        }
    }

    /// The state of the client's watches at `now`. Cost: a portion.
    pub(crate) fn ask(&mut self, client: u64, now: u64) -> Seen {
        if !self.touched.is_empty() {
            self.settle();
        }
        match self.watchers.get(&client) {
            Some(watcher) if watcher.is_dirty || is_dead(watcher.dies_at, now) => Seen::Touched,
            _ if !self.touched.is_empty() => Seen::Unknown,
            _ => Seen::Clean,
        }
    }

    /// Takes the clients that have become dirty.
    pub(crate) fn take_news(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.news)
    }

    /// Asserts the invariants. Cost: O(watches): for tests.
    pub(crate) fn check_invariants(&self) {
        let is_over = |time| self.over.iter().any(|(over, _)| *over == time);
        for (_, watched) in self.keys.iter() {
            let all = match &watched.watching {
                Watching::One(time, watch) => vec![(*time, *watch)],
                Watching::Many(all) => all.iter().map(|(time, watch)| (*time, *watch)).collect(),
            };
            assert!(!all.is_empty(), "W1: {:?} is watched by nobody", watched.name);
            for (time, Watch { client, .. }) in all {
                let watcher = self.watchers.get(&client).filter(|watcher| watcher.time == time);
                assert!(watcher.is_some() || is_over(time), "W1: {client} is unknown");
            }
        }
        if !self.touched.is_empty() {
            return; // Their clients are not yet marked as dirty.
        }
        for (client, watcher) in self.watchers.iter().filter(|(_, watcher)| !watcher.is_dirty) {
            for key in watcher.keys.iter() {
                let watched = self.keys.get(*key);
                assert!(
                    watched.is_some_and(|watched| watched.watching.has(watcher.time)),
                    "W2: {client} misses touches"
                );
            }
        }
    }
}

impl Watcher {
    /// Adds a key to the client's watches.
    fn keep(&mut self, place: u64, db: usize, there: Option<Option<u64>>) {
        self.keys.push(place);
        debug_assert!(!self.is_dirty, "a dirty client watches nothing more");
        let Some(deadline) = there else { return };
        if !self.databases.contains(&db) {
            self.databases.push(db);
        }
        self.dies_at = self.dies_at.into_iter().chain(deadline).min();
    }
}

const _: () = assert!(FEW < AT_ONCE);

/// Changes of groups and of a stream's last ID do not touch the key, unless the stream is new.
pub(crate) fn is_touch(event: &'static Event) -> bool {
    event == NEW || !(event.name.starts_with("xgroup-") || event.name == "xsetid")
}

#[cfg(test)]
mod tests {
    use super::{AT_ONCE, FEW, Seen, Watches};
    use crate::{Deadline, Fresh, Key, Shard};
    use darter_base::preempt::{Countdown, Never};
    use darter_base::{Prng, lazyfree, runs::RUN};
    use std::collections::{BTreeMap, BTreeSet};

    const CLIENT: u64 = 7;

    fn set(shard: &mut Shard, db: usize, key: &[u8], deadline: Deadline) {
        shard.db_mut(db).set_text(&Key::new(key), Fresh::Bytes(b"v"), deadline);
    }

    #[test] // Also if they may expire.
    fn build_sources_count_as_changed_after_a_touch() {
        let mut shard = Shard::new(2, 1);
        for key in [b"a", b"b"] {
            set(&mut shard, 0, key, Deadline::Clear);
        }
        for (build, key) in [(1, b"a"), (2, b"a"), (2, b"b"), (2, b"c")] {
            shard.watch_source(build, 0, &Key::new(key));
        }
        set(&mut shard, 1, b"a", Deadline::Clear);
        set(&mut shard, 0, b"d", Deadline::Clear);
        assert!(!shard.has_changed_sources(), "others have changed");
        set(&mut shard, 0, b"c", Deadline::Clear);
        assert!(shard.has_changed_sources(), "an absent source is there now");
        assert!(shard.take_watch_news().is_empty(), "a build is no client");
        shard.forget(2);
        assert!(!shard.has_changed_sources() && shard.is_watched());
        shard.db_mut(0).flush();
        assert!(shard.has_changed_sources(), "a source is gone");
        shard.forget(1);
        assert!(!shard.has_changed_sources() && !shard.is_watched());

        set(&mut shard, 0, b"e", Deadline::At(1_000));
        shard.watch_source(3, 0, &Key::new(b"e"));
        assert!(shard.has_changed_sources(), "it may die while locks are held");
        shard.forget(3);
        assert!(!shard.is_watched());
    }

    #[test] // Also when its last key is removed.
    fn a_large_watch_table_is_freed_in_portions() {
        let (mut shard, before) = (Shard::new(2, 1), lazyfree::waiting());
        for at in 0..20_000 {
            shard.watch(CLIENT, 0, &Key::new(format!("key:{at}").as_bytes()));
        }
        shard.unwatch(CLIENT);
        while shard.settle_watches() {}
        assert!(!shard.is_watched());
        let after = lazyfree::waiting();
        assert_eq!(after.0, before.0 + 1);
        assert!(after.1 > before.1 + 1_000_000, "{after:?}");
        assert!(lazyfree::run(&Countdown::new(1)), "all parts were freed at once");
        assert!(!lazyfree::run(&Never));

        shard.watch(CLIENT, 0, &Key::new(b"key"));
        shard.unwatch(CLIENT);
        assert_eq!(lazyfree::waiting(), before, "a small one is freed at once");
    }

    #[test] // Existing, absent and expired keys.
    fn watched_keys_are_touched_as_in_redis() {
        type Act = fn(&mut Shard);
        #[rustfmt::skip] // A table.
        let cases: &[(&str, &[u8], Act, bool)] = &[
            ("nothing",                 b"there", |_| {}, false),
            ("the same value",          b"there", |it| set(it, 0, b"there", Deadline::Clear), true),
            ("another key",             b"there", |it| set(it, 0, b"other", Deadline::Clear), false),
            ("another database",        b"there", |it| set(it, 1, b"there", Deadline::Clear), false),
            ("a new key",               b"none",  |it| set(it, 0, b"none", Deadline::Clear), true),
            ("made and removed",        b"none",  |it| {
                set(it, 0, b"none", Deadline::Clear);
                it.db_mut(0).remove(&Key::new(b"none"));
            }, true),
            ("removed",                 b"there", |it| { it.db_mut(0).remove(&Key::new(b"there")); }, true),
            ("it dies unnoticed",       b"mortal", |it| it.set_now(200), true),
            ("it is reaped",            b"mortal", |it| { it.set_now(200); it.reap(9); }, true),
            ("it was dead, and reaped", b"dead",  |it| { it.reap(9); }, false),
            ("it was dead, and made",   b"dead",  |it| set(it, 0, b"dead", Deadline::Clear), true),
            ("flush",                   b"there", |it| it.db_mut(0).flush(), true),
            ("flush of nothing",        b"none",  |it| it.db_mut(0).flush(), false),
            ("flush of another",        b"there", |it| it.db_mut(1).flush(), false),
            ("flush of all",            b"there", Shard::flush, true),
            ("flush of all of nothing", b"none",  Shard::flush, false),
            ("flush of what was dead",  b"dead",  Shard::flush, false),
            ("swap",                    b"there", |it| it.swap(0, 1), true),
            ("swap, it is in neither",  b"none",  |it| it.swap(0, 1), false),
            ("swap brings it",          b"away",  |it| it.swap(1, 0), true),
            ("swap of others",          b"there", |it| it.swap(1, 2), false),
        ];
        for (name, key, act, expected) in cases {
            let mut shard = Shard::new(3, 1);
            shard.set_now(100);
            set(&mut shard, 0, b"there", Deadline::Clear);
            set(&mut shard, 0, b"mortal", Deadline::At(150));
            set(&mut shard, 0, b"dead", Deadline::At(50));
            set(&mut shard, 1, b"away", Deadline::Clear);
            shard.watch(CLIENT, 0, &Key::new(key));
            act(&mut shard);
            shard.check_watches();
            let expected = if *expected { Seen::Touched } else { Seen::Clean };
            assert_eq!(shard.ask_watches(CLIENT), expected, "{name}");
            assert_eq!(shard.ask_watches(CLIENT + 1), Seen::Clean, "{name}: another client's");
            assert!(!shard.unwatch(CLIENT), "{name}");
            assert_eq!(shard.ask_watches(CLIENT), Seen::Clean, "{name}");
            assert!(!shard.is_watched() && shard.take_records().is_empty(), "{name}");
        }
    }

    #[test] // Many clients and keys, in portions.
    fn random_watches_agree_with_a_model() {
        for seed in 0..40 {
            let mut prng = Prng::from_seed(seed);
            let mut shard = Shard::new(2, 1);
            let mut watched: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
            let mut dirty = BTreeSet::new();
            let crowd = 1 + prng.below(300);
            for step in 0..2_000 {
                let (client, key) = (prng.below(crowd), prng.below(30));
                let name = key.to_string();
                match prng.below(20) {
                    0..14 => {
                        shard.watch(client, 0, &Key::new(name.as_bytes()));
                        if !dirty.contains(&client) {
                            watched.entry(client).or_default().insert(key);
                        }
                    }
                    14 => {
                        set(&mut shard, 0, name.as_bytes(), Deadline::Clear);
                        let told = watched.iter().filter(|(_, keys)| keys.contains(&key));
                        dirty.extend(told.map(|(client, _)| *client));
                    }
                    15..19 => {
                        watched.remove(&client);
                        dirty.remove(&client);
                        shard.unwatch(client);
                    }
                    _ => {
                        let mut seen = shard.ask_watches(client);
                        while seen == Seen::Unknown {
                            seen = shard.ask_watches(client);
                        }
                        let expected = dirty.contains(&client);
                        assert_eq!(seen == Seen::Touched, expected, "seed {seed} step {step}");
                    }
                }
                shard.check_watches();
            }
            (0..crowd).for_each(|client| _ = shard.unwatch(client));
            while shard.settle_watches() {}
            assert!(!shard.is_watched(), "seed {seed}");
        }
    }

    #[test] // A thousand clients may disconnect in one step, which must not remove all their keys.
    fn unwatch_cost_is_bounded() {
        let keys_of = |watches: &Watches| watches.keys.len();
        for each in [FEW, FEW + 1, AT_ONCE, RUN + 1] {
            let mut watches = Watches::default();
            for (client, key) in (0..20).flat_map(|client| (0..each).map(move |key| (client, key)))
            {
                let name = format!("{client}:{key}");
                watches.add(client, (0, &Key::new(name.as_bytes())), None);
            }
            for client in 0..20 {
                let before = keys_of(&watches);
                assert_eq!(watches.remove(client), each > FEW);
                assert!(before - keys_of(&watches) <= FEW, "{each} keys each");
            }
            watches.check_invariants();
            assert_eq!(watches.is_empty(), each <= FEW, "{each} keys each");
            while watches.settle() {}
            assert_eq!((watches.is_empty(), keys_of(&watches)), (true, 0), "{each} keys each");
        }
    }

    #[test] // A hundred thousand of one key, and of one client.
    fn very_many_watches_are_touched_and_removed_in_portions() {
        const MANY: u64 = 100_000;
        let mut shard = Shard::new(1, 1);
        (0..MANY).for_each(|client| shard.watch(client, 0, &Key::new(b"k")));
        set(&mut shard, 0, b"k", Deadline::Clear);
        assert_eq!(shard.take_watch_news(), [], "it is told in portions");
        assert_eq!(shard.ask_watches(MANY - 1), Seen::Unknown);
        let mut portions = 0;
        while shard.settle_watches() {
            portions += 1;
        }
        assert!(portions > 1_000, "{portions}");
        assert_eq!(shard.take_watch_news().len() as u64, MANY);
        assert_eq!(shard.ask_watches(MANY - 1), Seen::Touched);
        (0..MANY).for_each(|client| _ = shard.unwatch(client));
        (0..MANY).for_each(|key| shard.watch(7, 0, &Key::new(&key.to_le_bytes())));
        assert!(shard.unwatch(7), "some are left");
        while shard.settle_watches() {}
        assert!(!shard.is_watched());
    }
}

//! The hits of a search, in the order of the reply.
//!
//! Hits are collected in runs, whose members are stored contiguously. To sort them, each full run
//! is sorted, and the reply merges all runs: so no step is long. If only a few of the nearest are
//! requested, there is one run, which is truncated from time to time.

use crate::multi_input::Queue;
use darter_structs::sorted::SortedEntry;
use darter_structs::table::{HeldKey, Scratch};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Hits in a run, and bytes of their members. A run is sorted in one step.
const RUN_HITS: usize = 1_024;
const RUN_BYTES: usize = 64 * 1024;
/// Runs freed in one step.
const RUNS_FREED: usize = 2;
/// The largest COUNT for which all hits are kept in one run.
const BEST_MAX: usize = RUN_HITS / 2;
/// Initial capacity of a run: enough for a search nearby.
const FIRST_HITS: usize = 32;
const FIRST_BYTES: usize = 512;

/// The order of hits by distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Nearest,
    Farthest,
}

/// The requested number of hits, and their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) order: Option<Order>,
    pub(super) most: usize,
    /// Any hits will do: the first ones found (COUNT with ANY).
    pub(super) is_any: bool,
}

/// A hit as passed to the reply.
pub(super) struct Shown<'a> {
    pub(super) member: &'a [u8],
    /// The member, if it is a long one.
    pub(super) long: Option<&'a HeldKey>,
    pub(super) score: f64,
    /// The distance in metres.
    pub(super) distance: f64,
}

/// A hit within its run.
#[derive(Clone, Copy, Debug)]
struct Hit {
    distance: f64,
    score: f64,
    /// The start of its member among the bytes; for a long member, its index.
    start: u32,
    /// The member's length, or [`LONG`].
    len: u32,
}

const LONG: u32 = u32::MAX;

#[derive(Default)]
struct Run {
    hits: Vec<Hit>,
    bytes: Vec<u8>,
    longs: Vec<HeldKey>,
}

impl Run {
    fn push(&mut self, entry: &SortedEntry<'_>, distance: f64) {
        if self.hits.is_empty() {
            self.hits.reserve(FIRST_HITS);
            self.bytes.reserve(FIRST_BYTES);
        }
        let (score, held) = (entry.score(), entry.hold_member());
        let (start, len) = match held {
            Some(long) => {
                self.longs.push(long);
                (self.longs.len() - 1, LONG)
            }
            None => {
                let (mut scratch, start) = (Scratch::new(), self.bytes.len());
                self.bytes.extend_from_slice(entry.member().bytes(&mut scratch));
                (start, (self.bytes.len() - start) as u32)
            }
        };
        self.hits.push(Hit { distance, score, start: start as u32, len });
    }

    fn long(&self, hit: &Hit) -> Option<&HeldKey> {
        (hit.len == LONG).then(|| &self.longs[hit.start as usize])
    }

    fn member(&self, hit: &Hit) -> &[u8] {
        let start = hit.start as usize;
        match self.long(hit) {
            Some(long) => long.bytes(),
            None => &self.bytes[start..start + hit.len as usize],
        }
    }

    /// Sorts the hits; equally distant hits keep their order.
    fn sort(&mut self, order: Order) {
        self.hits.sort_by(|one, other| order.compare(one.distance, other.distance));
    }

    /// Drops all but the first `count` hits.
    fn keep(&mut self, count: usize) {
        self.hits.truncate(count);
        let (mut kept, mut kept_longs) = (Vec::with_capacity(self.bytes.len()), Vec::new());
        let mut longs: Vec<_> = std::mem::take(&mut self.longs).into_iter().map(Some).collect();
        for hit in &mut self.hits {
            let start = hit.start as usize;
            if hit.len == LONG {
                hit.start = kept_longs.len() as u32;
                kept_longs.extend(longs[start].take());
            } else {
                hit.start = kept.len() as u32;
                kept.extend_from_slice(&self.bytes[start..start + hit.len as usize]);
            }
        }
        (self.bytes, self.longs) = (kept, kept_longs);
    }

    fn memory_bytes(&self) -> usize {
        self.hits.capacity() * size_of::<Hit>() + self.bytes.capacity()
    }
}

impl Order {
    fn compare(self, one: f64, other: f64) -> Ordering {
        match self {
            Self::Nearest => one.total_cmp(&other),
            Self::Farthest => other.total_cmp(&one),
        }
    }
}

/// The next hit of a run, for the merge.
#[derive(Clone, Copy, Debug)]
struct Head {
    order: Order,
    distance: f64,
    run: usize,
    index: usize,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = self.order.compare(self.distance, other.distance);
        order.then(self.run.cmp(&other.run))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}

/// The hits of a search; see the module's documentation.
pub(super) struct Hits {
    limit: Limit,
    open: Run,
    closed: Queue<Run, RUNS_FREED>,
    /// The heads of the closed runs, if the hits are sorted.
    heads: BinaryHeap<Reverse<Head>>,
    /// The next hit of the first closed run, if the hits are not sorted.
    index: usize,
    /// The number of hits found; once closed, the number still to show.
    len: usize,
    bytes: usize,
}

impl Hits {
    pub(super) fn new(limit: Limit) -> Self {
        let (closed, heads) = (Queue::default(), BinaryHeap::new());
        Self { limit, open: Run::default(), closed, heads, index: 0, len: 0, bytes: 0 }
    }

    /// The number of hits left to show, at most the COUNT.
    pub(super) fn len(&self) -> usize {
        self.len.min(self.limit.most)
    }

    /// True when no more hits are needed.
    pub(super) fn is_full(&self) -> bool {
        self.limit.is_any && self.len >= self.limit.most
    }

    /// Bytes of memory. Cost: O(1).
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes + self.open.memory_bytes()
    }

    /// Adds a hit. The distance matters only if hits are sorted, or distances shown.
    pub(super) fn push(&mut self, entry: &SortedEntry<'_>, distance: f64) {
        if self.is_full() {
            return;
        }
        self.open.push(entry, distance);
        self.len += 1;
        let is_full = self.open.hits.len() >= RUN_HITS;
        match self.limit {
            Limit { order: Some(order), most: most @ ..=BEST_MAX, .. } if is_full => {
                self.open.sort(order);
                self.open.keep(most);
            }
            Limit { order: Some(_), most: ..=BEST_MAX, .. } => {}
            _ if is_full || self.open.bytes.len() >= RUN_BYTES => self.close(),
            _ => {}
        }
    }

    /// Ends the collection: no more hits are added, and they can be shown.
    pub(super) fn close(&mut self) {
        let mut run = std::mem::take(&mut self.open);
        let Some(order) = self.limit.order else {
            self.take_in(run);
            return;
        };
        run.sort(order);
        if let Some(first) = run.hits.first() {
            let (distance, run) = (first.distance, self.closed.len());
            self.heads.push(Reverse(Head { order, distance, run, index: 0 }));
        }
        self.take_in(run);
    }

    fn take_in(&mut self, run: Run) {
        self.bytes += run.memory_bytes();
        self.closed.push_back(run);
    }

    /// Calls `f` with at most `most` of the next hits. Returns true while some are left.
    pub(super) fn next_slice(&mut self, most: usize, f: &mut dyn FnMut(&Shown<'_>)) -> bool {
        let most = most.min(self.len());
        for _ in 0..most {
            if self.limit.order.is_some() { self.merge(f) } else { self.follow(f) }
        }
        self.limit.most -= most;
        self.len -= most;
        self.len() > 0
    }

    /// Shows the next hit by distance.
    fn merge(&mut self, f: &mut dyn FnMut(&Shown<'_>)) {
        let Some(Reverse(head)) = self.heads.pop() else { return };
        let run = &mut self.closed[head.run];
        show(run, head.index, f);
        let index = head.index + 1;
        match run.hits.get(index) {
            Some(next) => {
                self.heads.push(Reverse(Head { distance: next.distance, index, ..head }));
            }
            None => *run = Run::default(),
        }
    }

    /// Shows the next hit in the order of discovery.
    fn follow(&mut self, f: &mut dyn FnMut(&Shown<'_>)) {
        while let Some(run) = self.closed.front()
            && self.index >= run.hits.len()
        {
            self.closed.pop_front();
            self.index = 0;
        }
        if let Some(run) = self.closed.front() {
            show(run, self.index, f);
            self.index += 1;
        }
    }
}

fn show(run: &Run, index: usize, f: &mut dyn FnMut(&Shown<'_>)) {
    let hit = &run.hits[index];
    let (member, long) = (run.member(hit), run.long(hit));
    f(&Shown { member, long, score: hit.score, distance: hit.distance });
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::hash;
    use darter_base::preempt::{Countdown, Never};
    use darter_structs::lazyfree;
    use darter_structs::sorted::Sorted;

    fn long_members() -> Sorted {
        let mut set = Sorted::new();
        for number in 0..3_000 {
            let member = format!("{number:02000}").into_bytes();
            set.insert(hash::of(&member), &member, f64::from(number));
        }
        set
    }

    #[test]
    fn hits_beyond_the_count_are_dropped() {
        let (set, order) = (long_members(), Some(Order::Nearest));
        let mut hits = Hits::new(Limit { order, most: 10, is_any: false });
        for entry in set.range(0..set.len()) {
            hits.push(&entry, 3_000.0 - entry.score());
            assert!(hits.open.longs.len() <= RUN_HITS, "{} are held", hits.open.longs.len());
        }
        hits.close();
        let mut shown = Vec::new();
        while hits.next_slice(4, &mut |hit| shown.push((hit.distance, hit.member.to_vec()))) {}
        let nearest = (2_990..3_000).rev();
        let nearest =
            nearest.map(|at| (3_000.0 - f64::from(at), format!("{at:02000}").into_bytes()));
        assert!(shown.into_iter().eq(nearest));
    }

    #[test] // For any COUNT, and any number of times that the hits beyond it are dropped.
    fn equally_distant_hits_keep_their_order() {
        let (set, order) = (long_members(), Some(Order::Nearest));
        for most in [1, 7, BEST_MAX, 2_500] {
            let mut hits = Hits::new(Limit { order, most, is_any: false });
            for entry in set.range(0..set.len()) {
                hits.push(&entry, 1.0);
            }
            hits.close();
            let mut shown = Vec::new();
            while hits.next_slice(100, &mut |hit| shown.push(hit.score)) {}
            assert!(shown.into_iter().eq((0..most).map(|at| at as f64)), "{most}");
        }
    }

    #[test] // Two runs a portion: each has many kilobytes.
    fn runs_of_hits_are_freed_in_portions() {
        let mut hits = Hits::new(Limit { order: None, most: usize::MAX, is_any: false });
        let mut set = Sorted::new();
        set.insert(hash::of(b"member"), b"member", 1.0);
        let entry = set.get(0).expect("it was added");
        (0..20 * RUN_HITS).for_each(|_| hits.push(&entry, 1.0));
        drop(hits);
        let mut slices = 1;
        while lazyfree::run(&Countdown::new(0)) {
            slices += 1;
        }
        assert!(slices >= 20 / RUNS_FREED, "{slices}");
        while lazyfree::run(&Never) {}
    }
}

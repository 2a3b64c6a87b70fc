//! Entries that expire continuously: counted exactly, removed when reaped, found without searches.

use crate::table::rebuild::tests::segments;
use crate::table::{LiveCount, Never, New, Table};
use darter_base::{Prng, hash};
use std::collections::BTreeMap;

const EPOCH: u64 = 1_000_000;

/// A table, a map from key to deadline, and the time.
struct Run {
    table: Table<Never>,
    model: BTreeMap<Vec<u8>, Option<u64>>,
    prng: Prng,
    now: u64,
}

/// The order in which entries expire: that of insertion, random, or the last one first.
#[derive(Clone, Copy)]
enum Ttl {
    Same,
    Random,
    Falling,
}

impl Run {
    fn new(seed: u64) -> Self {
        let prng = Prng::from_seed(seed);
        Self { table: Table::new(), model: BTreeMap::new(), prng, now: EPOCH }
    }

    fn put(&mut self, key: &[u8], deadline: Option<u64>) {
        // Usually of two lengths, so that gaps sometimes fit and sometimes do not.
        let value = vec![b'v'; [30, 31, 200][self.prng.below(9).min(2) as usize]];
        self.table.insert(hash::of(key), key, New::Bytes(&value), deadline, 0);
        self.model.insert(key.to_vec(), deadline);
    }

    /// Makes one random change that affects deadlines.
    fn change(&mut self, ttl: Ttl, step: u64) {
        let key = format!("key:{}", self.prng.below(30_000)).into_bytes();
        let deadline = self.now
            + match ttl {
                Ttl::Same => 300,
                Ttl::Random => 1 + self.prng.below(600),
                Ttl::Falling => 1 + 600_u64.saturating_sub(step),
            };
        match self.prng.below(20) {
            0 => {
                assert_eq!(
                    self.table.remove(hash::of(&key), &key).is_some(),
                    self.model.remove(&key).is_some()
                );
            }
            1 => {
                let deadline = self.prng.chance(50).then_some(deadline);
                if let Some(mut entry) = self.table.get_mut(hash::of(&key), &key) {
                    entry.set_deadline(deadline);
                    self.model.insert(key, deadline);
                }
            }
            2 => self.put(&key, None),
            _ => self.put(&key, Some(deadline)),
        }
    }

    fn living(&self) -> usize {
        let is_alive = |at: &&Option<u64>| at.is_none_or(|at| at > self.now);
        self.model.values().filter(is_alive).count()
    }

    fn check_counts(&self) {
        assert_eq!(self.table.live_len(self.now, usize::MAX), Some(self.living()));
        let mut count = LiveCount::new(self.table.clone(), self.now);
        while count.next_slice(1) {}
        assert_eq!(count.count(), self.living());
    }

    /// Reaps everything. Checks that no live entry is reported, and no expired one stays.
    fn reap(&mut self) {
        let (model, now) = (&mut self.model, self.now);
        while self
            .table
            .reap(now, 64, &mut |key, _| {
                let deadline = model.remove(&key.to_vec());
                assert!(deadline.is_some_and(|at| at.is_some_and(|at| at <= now)), "alive");
            })
            .more
        {}
        assert_eq!(self.table.len(), self.model.len());
        assert_eq!(self.living(), self.model.len(), "a dead one stays");
        assert!(self.table.earliest_deadline().is_none_or(|earliest| earliest > now));
    }
}

#[test] // After any sets, removals, extensions and cuts.
fn expired_entries_are_counted_and_removed() {
    for (seed, ttl) in [(1, Ttl::Same), (2, Ttl::Random), (3, Ttl::Falling)] {
        let mut run = Run::new(seed);
        let steps = if cfg!(miri) { 20 } else { 1_000 };
        let mut cut = None;
        for step in 0..steps {
            run.now += 1;
            (0..40).for_each(|_| run.change(ttl, step));
            if run.prng.chance(20) {
                run.check_counts();
            }
            if run.prng.chance(10) {
                cut = Some((run.table.clone(), run.living(), run.now));
            }
            if run.prng.chance(30) {
                run.reap();
            }
            if run.prng.chance(2) {
                run.table.check_invariants();
            }
            if let Some((table, living, now)) = &cut {
                assert_eq!(table.live_len(*now, usize::MAX), Some(*living), "the cut");
            }
        }
        run.now += 1_000;
        run.reap();
        run.table.check_invariants();
        assert!(run.model.values().all(Option::is_none));
    }
}

#[test]
#[cfg_attr(miri, ignore = "slow")]
fn scattered_expired_entries_are_counted_without_searching_segments() {
    let mut run = Run::new(7);
    for number in 0..60_000_u64 {
        run.put(format!("key:{number}").as_bytes(), Some(EPOCH + 1_000 + number));
    }
    let segments = run.table.fill_report().segments;
    assert!(segments > 40, "{segments}");
    run.now = EPOCH + 1_000 + segments as u64 * 4;
    let living = run.living();
    assert!(living < 60_000);
    // A search counts as eight of these.
    assert_eq!(run.table.live_len(run.now, segments / 8 + 1), Some(living));
    assert_eq!(run.table.live_len(run.now, 1), None, "the bound holds");
    // After they were reaped, the next ones are listed, most of them.
    run.reap();
    run.now += segments as u64;
    assert_eq!(run.table.live_len(run.now, segments / 3), Some(run.living()));
}

#[test]
#[cfg_attr(miri, ignore = "slow")]
fn a_live_entry_is_found_or_ruled_out_within_the_bound() {
    for many in [1, 5, 90, 900, 20_000] {
        let mut run = Run::new(many);
        for number in 0..many {
            run.put(format!("key:{number}").as_bytes(), Some(EPOCH + 1 + number % 2));
        }
        let segments = run.table.fill_report().segments;
        assert!(run.table.has_living(EPOCH, 0));
        run.now = EPOCH + 2;
        assert!(!run.table.has_living(run.now, segments), "all of {many} are dead");
        assert_eq!(run.table.has_living(run.now, 4), segments > 4, "{segments} segments");
        for lasting in [b"one", b"two", b"six"] {
            run.put(lasting, (lasting == b"two").then_some(EPOCH + 3));
            assert!(run.table.has_living(run.now, segments));
            run.table.remove(hash::of(lasting), lasting);
        }
        assert!(!run.table.has_living(run.now, segments));
    }
}

#[test]
fn the_largest_possible_deadlines_work() {
    let mut run = Run::new(9);
    for number in 0..3_000_u64 {
        run.put(format!("key:{number}").as_bytes(), Some(u64::MAX - 1 - number % 3));
    }
    run.put(b"soon", Some(EPOCH + 1));
    run.now = EPOCH + 1;
    run.check_counts();
    run.reap();
    assert_eq!(run.table.len(), 3_000);
    run.table.check_invariants();
    run.now = u64::MAX - 2;
    run.reap();
    assert_eq!(run.table.len(), 1_000);
}

#[test] // Gaps are reused.
#[cfg_attr(miri, ignore = "slow")]
fn memory_stays_constant_while_entries_expire_as_fast_as_they_arrive() {
    let mut table = Table::<Never>::new();
    let key = |number: u64| format!("key:{number:09}").into_bytes();
    let put = |table: &mut Table<Never>, number: u64| {
        let key = key(number);
        table.insert(hash::of(&key), &key, New::Bytes(&[b'v'; 250]), Some(EPOCH + number), 0);
    };
    (0..20_000).for_each(|number| put(&mut table, number));
    let full = table.memory_bytes();
    for number in 20_000..80_000 {
        put(&mut table, number);
        if number % 100 == 0 {
            while table.reap(EPOCH + number - 20_000, 64, &mut |_, _| {}).more {}
            assert!(table.memory_bytes() < full + full / 4, "{number}: {}", table.memory_bytes());
        }
    }
    table.check_invariants();
    assert_eq!(table.live_len(EPOCH + 59_999, usize::MAX), Some(20_000));
}

#[test] // Repacking takes longer than all removals of a portion.
fn a_sweep_portion_repacks_at_most_one_segment() {
    let (mut table, mut prng) = (Table::<Never>::new(), Prng::from_seed(1));
    for number in 0..40_000_u32 {
        let (key, at) = (number.to_le_bytes(), EPOCH + prng.below(1_000));
        table.insert(hash::of(&key), &key, New::Bytes(&[b'v'; 256]), Some(at), 0);
    }
    let mut rewritten = 0;
    for now in (EPOCH..EPOCH + 400).step_by(100) {
        loop {
            let before = segments(&table);
            let more = table.reap(now, 64, &mut |_, _| ()).more;
            let after = segments(&table);
            assert_eq!(before.len(), after.len(), "most live: nothing is merged");
            let written = before.iter().zip(&after).filter(|(before, after)| after.1 < before.1);
            let written = written.count();
            assert!(written <= 1, "{written} segments in one portion");
            rewritten += written;
            if !more {
                break;
            }
        }
    }
    assert!(rewritten > 50, "{rewritten}");
    table.check_invariants();
}

//! The operations that a writer sent, and their answers: they decide which data a death may leave.
//!
//! **Invariant:** the data behind a death is that of a prefix of the writer's operations, which
//! contains all that the mode promised to keep.
//!
//! Not here: how the data is read; see `found`.

use crate::model::{Keys, Op, SHARED, Value, counter};
use std::time::{Duration, Instant};

/// One operation that was sent.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) op: Op,
    pub(crate) answered: Option<Instant>,
    /// The server refused it: it has no effect.
    pub(crate) refused: bool,
    /// A journal was on from before its sending until after its answer.
    pub(crate) logged: bool,
    /// As `logged`, with `always`.
    pub(crate) synced: bool,
}

/// A counter of another writer that was read.
#[derive(Debug)]
struct Seen {
    /// The number of own operations before the read.
    after: usize,
    writer: usize,
    count: u64,
    at: Instant,
    logged: bool,
    synced: bool,
}

/// The kind of a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    Kill,
    Power,
}

/// The history of one writer since its data was last verified.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    base: Keys,
    entries: Vec<Entry>,
    seen: Vec<Seen>,
    /// The number of the next operation.
    pub(crate) next: u64,
}

impl Ledger {
    pub(crate) fn sends(&mut self, op: Op) {
        self.next += 1;
        self.entries.push(Entry {
            op,
            answered: None,
            refused: false,
            logged: false,
            synced: false,
        });
    }

    /// The number of operations since the last verification.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Notes the answer of operation `at`. `value` is the integer that it carried.
    pub(crate) fn is_answered(&mut self, at: usize, refused: bool, value: u64, safe: (bool, bool)) {
        let (logged, synced) = safe;
        let entry = &mut self.entries[at];
        entry.answered = Some(Instant::now());
        (entry.refused, entry.logged, entry.synced) = (refused, logged, synced);
        if let (Op::Peek(writer), false) = (&entry.op, refused) {
            let now = Instant::now();
            self.seen.push(Seen {
                after: at,
                writer: *writer,
                count: value,
                at: now,
                logged,
                synced,
            });
        }
    }

    /// Answered and unanswered operations.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let answered = self.entries.iter().filter(|entry| entry.answered.is_some()).count();
        (answered as u64, (self.entries.len() - answered) as u64)
    }

    /// Finds the longest prefix that gives `found`; returns its length. Answers behind `at`, the
    /// begin of a loss of power, count as unknown: while ext4 shuts down it may call a sync good
    /// whose data is lost, and a machine without power sends no answers.
    ///
    /// # Errors
    /// When there is none, or when it lacks what had to be kept.
    pub(crate) fn prefix(
        &self,
        me: usize,
        found: &Keys,
        death: Death,
        at: Option<Instant>,
    ) -> Result<usize, String> {
        let is_before =
            |entry: &Entry| entry.answered.is_some_and(|it| at.is_none_or(|at| it < at));
        let must = |entry: &Entry| match death {
            Death::Kill => entry.logged,
            Death::Power => entry.synced && is_before(entry),
        };
        let least = self.entries.iter().rposition(must).map_or(0, |at| at + 1);
        let mut keys = self.base.clone();
        let mut best = None;
        for at in 0..=self.entries.len() {
            if keys == *found {
                best = Some(at);
            }
            if let Some(entry) = self.entries.get(at).filter(|entry| !entry.refused) {
                entry.op.apply(me, &mut keys);
            }
        }
        match best {
            Some(best) if best >= least => Ok(best),
            Some(best) => Err(format!(
                "writer {me}: of {least} operations that had to be kept only {best} are there; the \
                 first lost one is {:?}, \
                 answered {:?} before the death",
                self.entries[best].op,
                self.entries[best]
                    .answered
                    .zip(at)
                    .map(|(it, at)| at.saturating_duration_since(it))
            )),
            None => Err(self.nearest(me, found, least)),
        }
    }

    /// Describes data that no prefix gives.
    fn nearest(&self, me: usize, found: &Keys, least: usize) -> String {
        let (mut keys, mut nearest) = (self.base.clone(), (usize::MAX, 0, String::new()));
        for at in 0..=self.entries.len() {
            let count = differences(&keys, found).len();
            if count < nearest.0 {
                nearest = (count, at, differences(&keys, found).join("; "));
            }
            if let Some(entry) = self.entries.get(at).filter(|entry| !entry.refused) {
                entry.op.apply(me, &mut keys);
            }
        }
        let (count, at, list) = nearest;
        let sent = self.entries.len();
        let beside: Vec<String> = self.entries[at.saturating_sub(4)..(at + 6).min(sent)]
            .iter()
            .map(|entry| {
                let answered = if entry.answered.is_some() { "answered" } else { "unknown" };
                format!("{:.100} {answered}, refused: {}", format!("{:?}", entry.op), entry.refused)
            })
            .collect();
        format!(
            "writer {me}: the data is that of no prefix of {sent}, of which {least} had to be kept; \
             the nearest is {at} with {count} differences: {list:.1500}\n{}",
            beside.join("\n")
        )
    }

    /// Checks what this writer had read of others, given their counters now and its own prefix.
    ///
    /// # Errors
    /// When a value that was read, or that a kept operation follows, is gone.
    pub(crate) fn check_seen(
        &self,
        prefix: usize,
        counters: &[u64],
        death: Death,
        at: Option<Instant>,
    ) -> Result<(), String> {
        for seen in &self.seen {
            let now = counters[seen.writer];
            let is_before = at.is_none_or(|at| seen.at < at);
            let is_firm = if death == Death::Kill { seen.logged } else { seen.synced && is_before };
            let later = self.entries.get(seen.after..prefix).unwrap_or_default();
            let is_followed = later.iter().any(|entry| entry.op.is_write() && !entry.refused);
            if now < seen.count && (is_firm || is_followed) {
                return Err(format!(
                    "the counter of writer {} was read as {}, and is {now} now; followed by kept \
                     operations: {is_followed}",
                    seen.writer, seen.count
                ));
            }
        }
        Ok(())
    }

    /// How long before `death` the first lost operation had been answered.
    pub(crate) fn lost(&self, prefix: usize, death: Instant) -> Option<Duration> {
        let lost = self.entries[prefix..].iter().filter(|entry| entry.op.is_write());
        let first =
            lost.filter(|entry| !entry.refused).filter_map(|entry| entry.answered).next()?;
        death.checked_duration_since(first)
    }

    /// Starts again from the data that was found.
    pub(crate) fn settle(&mut self, found: Keys) {
        self.base = found;
        self.entries.clear();
        self.seen.clear();
    }
}

fn differences(a: &Keys, b: &Keys) -> Vec<String> {
    let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
    let different = keys.filter(|key| a.get(*key) != b.get(*key));
    let cut = |value: Option<&Value>| {
        let text = format!("{value:?}");
        let from = text.len().saturating_sub(160);
        let ends = if from == 0 { "" } else { "…" };
        format!("{ends}{}", text.get(from..).unwrap_or_default())
    };
    different.map(|key| format!("{key:?} {} / {}", cut(a.get(key)), cut(b.get(key)))).collect()
}

/// The transfers in a writer's data.
pub(crate) fn transfers(found: &Keys, me: usize) -> u64 {
    counter(found.get(&(SHARED, format!("n{me}"))))
}

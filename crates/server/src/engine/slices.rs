//! The server's own measurement of stalls: how long slices are, and what the longest ones did.
//!
//! A slice is the work of a core between two polls of its sockets. It is measured in CPU time, so
//! that the time of other processes on the same processor does not count. Reading the CPU clock is
//! a system call. So short slices, as measured by the monotonic clock, count with their wall time,
//! which is an upper bound.

use darter_command::{Refusal, Stream};
use darter_resp::Reply;
use std::collections::VecDeque;

/// The main cause of a slice's time: a command, or the engine's own work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No work has begun.
    Idle,
    /// Receiving bytes and parsing requests.
    Receive,
    /// A command, with its index in the table.
    Command(usize),
    /// A task that has not named its command yet.
    Task,
    /// Sending a long reply as a stream. The index is that of the command, if known.
    Stream(Option<usize>),
    /// Publishing messages and delivering them to subscribers.
    Deliver,
    /// Removing expired entries.
    Expiry,
    /// Freeing memory whose freeing was deferred.
    Free,
    /// Compacting tables that have shrunk.
    Compaction,
    /// Handling messages from other cores.
    Mail,
    /// Loading the file.
    Load,
    /// Encoding a snapshot.
    Save,
}

impl Cause {
    /// The command's index in the table, if the cause is a command.
    #[must_use]
    pub fn row(self) -> Option<usize> {
        match self {
            Self::Command(row) => Some(row),
            Self::Stream(row) => row,
            _ => None,
        }
    }

    /// The name of the cause in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Receive => "receive",
            Self::Command(_) => "command",
            Self::Task => "task",
            Self::Stream(_) => "stream",
            Self::Deliver => "deliver",
            Self::Expiry => "expiry",
            Self::Free => "free",
            Self::Compaction => "compaction",
            Self::Mail => "mail",
            Self::Load => "load",
            Self::Save => "save",
        }
    }
}

/// The work that a slice is doing now, and the work that has taken longest so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blame {
    now: Cause,
    longest: (Cause, u64),
}

impl Default for Blame {
    fn default() -> Self {
        Self { now: Cause::Idle, longest: (Cause::Idle, 0) }
    }
}

impl Blame {
    /// Sets the current cause.
    #[must_use]
    pub(super) fn on(self, cause: Cause) -> Self {
        let longest = if self.longest.1 == 0 { (cause, 0) } else { self.longest };
        Self { now: cause, longest }
    }

    /// Adds `ns` nanoseconds to the current cause. If a task has named its command meanwhile, the
    /// time counts for the command.
    #[must_use]
    pub(super) fn took(self, ns: u64) -> Self {
        let longest = if ns > self.longest.1 { (self.now, ns) } else { self.longest };
        Self { longest, ..self }
    }

    /// The cause that has taken the most time.
    #[must_use]
    pub(super) fn cause(self) -> Cause {
        self.longest.0
    }
}

/// A stream that carries the index of its command, so that its slices are attributed to the
/// command.
struct Named {
    row: usize,
    stream: Box<dyn Stream>,
}

/// Attaches the index of its command to a stream.
pub(super) fn named(row: usize, stream: Box<dyn Stream>) -> Box<dyn Stream> {
    Box::new(Named { row, stream })
}

impl Stream for Named {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        self.stream.pump(reply)
    }

    fn held_bytes(&self) -> usize {
        self.stream.held_bytes()
    }

    fn pinned_bytes(&self) -> usize {
        self.stream.pinned_bytes()
    }

    fn refusal(&self) -> Option<&Refusal> {
        self.stream.refusal()
    }

    fn row(&self) -> Option<usize> {
        Some(self.row)
    }
}

/// One of the longest slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The core on which the slice ran.
    pub core: usize,
    /// The end of the slice, in Unix milliseconds.
    pub unix_ms: u64,
    /// The length of the slice, in nanoseconds of CPU time.
    pub ns: u64,
    /// The cause that took most of the time.
    pub cause: Cause,
}

/// The number of buckets: `0..1` us, `1..2`, `2..4` and so on. The last one has no upper bound.
pub(crate) const BUCKETS: usize = 24;
/// The number of longest slices that are remembered.
const LONGEST_KEPT: usize = 16;

/// The histogram of one core's slices, and the longest of them.
#[derive(Clone, Debug, Default)]
pub struct Slices {
    /// The number of slices in each bucket of lengths.
    pub buckets: [u64; BUCKETS],
    /// The number of all slices.
    pub count: u64,
    /// The number of slices that a knock has ended.
    pub knocked: u64,
    /// Total time of all slices, in nanoseconds.
    pub total_ns: u64,
    /// The length of the longest slice, in nanoseconds.
    pub max_ns: u64,
    /// The longest slices, longest first.
    pub longest: VecDeque<Slice>,
}

impl Slices {
    /// Adds a slice to the histogram.
    pub fn record(&mut self, slice: Slice) {
        let ns = slice.ns;
        let us = ns / 1_000;
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)] += 1;
        self.count += 1;
        self.total_ns += ns;
        self.max_ns = self.max_ns.max(ns);
        let shortest = self.longest.back().map_or(0, |long| long.ns);
        if self.longest.len() < LONGEST_KEPT || ns > shortest {
            let at = self.longest.partition_point(|long| long.ns >= ns);
            self.longest.insert(at, slice);
            self.longest.truncate(LONGEST_KEPT);
        }
    }

    /// Adds the histogram of another core.
    pub fn merge(&mut self, other: &Self) {
        for (sum, count) in self.buckets.iter_mut().zip(other.buckets) {
            *sum += count;
        }
        self.count += other.count;
        self.knocked += other.knocked;
        self.total_ns += other.total_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.longest.extend(other.longest.iter().copied());
        self.longest.make_contiguous().sort_by_key(|long| std::cmp::Reverse(long.ns));
        self.longest.truncate(LONGEST_KEPT);
    }

    /// The quantile `part` of the lengths of slices, as an upper bound in microseconds.
    #[must_use]
    pub fn quantile_us(&self, part: f64) -> u64 {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a quantile of a count"
        )]
        let wanted = (self.count as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return (1_u64 << bucket).min(self.max_ns.div_ceil(1_000));
            }
        }
        self.max_ns.div_ceil(1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(ns: u64, unix_ms: u64) -> Slice {
        Slice { core: 0, unix_ms, ns, cause: Cause::Command(3) }
    }

    #[test]
    fn the_longest_work_of_a_slice_is_its_cause() {
        let blame = Blame::default().on(Cause::Receive);
        assert_eq!(blame.cause(), Cause::Receive, "nothing was measured");
        let blame = blame.on(Cause::Command(7)).took(400_000).on(Cause::Free).took(20_000);
        assert_eq!(blame.cause(), Cause::Command(7));
        assert_eq!(
            blame.on(Cause::Task).on(Cause::Command(8)).took(500_000).cause(),
            Cause::Command(8)
        );
    }

    #[test]
    fn all_slices_are_counted_and_the_longest_are_kept() {
        let mut slices = Slices::default();
        for us in 1..=1_000 {
            slices.record(slice(us * 1_000, us));
        }
        assert_eq!((slices.count, slices.max_ns), (1_000, 1_000_000));
        assert_eq!(slices.longest.len(), LONGEST_KEPT);
        assert_eq!(slices.longest[0].ns, 1_000_000);
        assert!(slices.longest.iter().is_sorted_by(|one, other| one.ns >= other.ns));
        assert_eq!(slices.quantile_us(0.5), 512);
        assert_eq!(slices.quantile_us(1.0), 1_000);
    }

    #[test] // Each slice is in the bucket of its length.
    fn merged_histograms_equal_one_of_all_slices() {
        #[rustfmt::skip] // A table.
        let cases = [
            (0, 0), (999, 0), (1_000, 1), (1_999, 1), (2_000, 2), (3_999, 2), (4_000, 3),
            (511_999, 9), (512_000, 10), ((1 << 22) * 1_000, 23), (u64::MAX / 2, 23),
        ];
        let mut all = Slices::default();
        for (ns, bucket) in cases {
            let mut slices = Slices::default();
            slices.record(slice(ns, 7));
            let expected: Vec<u64> = (0..BUCKETS).map(|at| u64::from(at == bucket)).collect();
            assert_eq!(slices.buckets[..], expected, "{ns}");
            all.merge(&slices);
        }
        assert_eq!((all.count, all.max_ns, all.longest.len()), (11, u64::MAX / 2, 11));
        assert_eq!(all.total_ns, cases.iter().map(|(ns, _)| ns).sum::<u64>());
        assert_eq!((all.buckets[0], all.buckets[1], all.buckets[23]), (2, 2, 2));

        let (mut one, mut other, mut both) =
            (Slices::default(), Slices::default(), Slices::default());
        for us in 1..=100 {
            let half = if us % 3 == 0 { &mut one } else { &mut other };
            half.record(slice(us * 1_000, us));
            both.record(slice(us * 1_000, us));
        }
        one.merge(&other);
        let lengths =
            |slices: &Slices| slices.longest.iter().map(|long| long.ns).collect::<Vec<_>>();
        assert_eq!(lengths(&one), lengths(&both));
        assert_eq!(lengths(&both), (85..=100).rev().map(|us| us * 1_000).collect::<Vec<_>>());
        assert_eq!((one.buckets, one.total_ns), (both.buckets, both.total_ns));
        assert_eq!(both.longest[3].unix_ms, 97);
        for (part, us) in [(0.0, 1), (0.01, 2), (0.03, 4), (0.06, 8), (0.62, 64), (0.64, 100)] {
            assert_eq!(both.quantile_us(part), us, "{part}");
        }
        assert_eq!(Slices::default().quantile_us(0.5), 0);
    }

    #[test]
    fn every_cause_of_a_slice_has_a_name() {
        let all = [
            Cause::Idle,
            Cause::Receive,
            Cause::Command(3),
            Cause::Task,
            Cause::Stream(None),
            Cause::Deliver,
            Cause::Expiry,
            Cause::Free,
            Cause::Compaction,
            Cause::Mail,
            Cause::Load,
            Cause::Save,
        ];
        let names =
            "idle receive command task stream deliver expiry free compaction mail load save";
        assert_eq!(all.map(Cause::name).join(" "), names);
        let rows = [Cause::Command(3), Cause::Stream(Some(4)), Cause::Stream(None), Cause::Free];
        assert_eq!(rows.map(Cause::row), [Some(3), Some(4), None, None]);
    }
}

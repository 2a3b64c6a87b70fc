//! The LATENCY events of one core, and the limit of how often slow slices are logged.

use std::collections::{BTreeMap, VecDeque};

/// The number of samples kept per event, as in Redis.
const SAMPLES_MAX: usize = 160;

/// The slow samples of one event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Event {
    /// The samples, oldest first: pairs of Unix seconds and a duration in milliseconds.
    pub(crate) samples: VecDeque<(u64, u64)>,
    /// The longest duration, including samples that are no longer kept.
    pub(crate) worst_ms: u64,
}

/// The events of one core, or of all cores, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events(BTreeMap<String, Event>);

impl Events {
    /// Adds a sample of `ms` milliseconds to the event `name`.
    pub(crate) fn add(&mut self, name: &str, unix_s: u64, ms: u64) {
        let event = self.0.entry(name.to_owned()).or_default();
        event.samples.push_back((unix_s, ms));
        if event.samples.len() > SAMPLES_MAX {
            event.samples.pop_front();
        }
        event.worst_ms = ms.max(event.worst_ms);
    }

    /// Adds the events of another core.
    pub(crate) fn merge(&mut self, others: Self) {
        for (name, other) in others.0 {
            let event = self.0.entry(name).or_default();
            event.samples.extend(other.samples);
            event.samples.make_contiguous().sort_unstable();
            event.worst_ms = other.worst_ms.max(event.worst_ms);
        }
    }

    /// Removes the events for whose names `keep` is false.
    pub(crate) fn retain(&mut self, keep: impl Fn(&String) -> bool) {
        self.0.retain(|name, _| keep(name));
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Event> {
        self.0.get(name)
    }

    /// All events, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Event)> {
        self.0.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Limits how often slow slices are logged.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    /// No line is logged before this time of the monotonic clock.
    silent_until_ns: u64,
    left_out: u64,
}

impl Complaints {
    /// The minimal time between two lines of a core. It is long in debug builds, where most slices
    /// are too long.
    const EVERY_NS: u64 = if cfg!(debug_assertions) { 60_000_000_000 } else { 1_000_000_000 };

    /// If a line may be logged now, returns the number of slow slices that were not logged since
    /// the last line.
    pub(crate) fn admit(&mut self, now_ns: u64) -> Option<u64> {
        if now_ns < self.silent_until_ns {
            self.left_out += 1;
            return None;
        }
        self.silent_until_ns = now_ns + Self::EVERY_NS;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Merged samples are ordered by time.
    fn latency_events_keep_the_newest_and_the_worst_samples() {
        let (mut one, mut other) = (Events::default(), Events::default());
        one.add("free", 1, 900);
        (0..SAMPLES_MAX as u64).for_each(|at| one.add("free", 10 + at, 3));
        other.add("free", 5, 4);
        other.add("expiry", 7, 8);
        assert_eq!(
            one.get("free").map(|event| (event.samples.len(), event.worst_ms)),
            Some((SAMPLES_MAX, 900))
        );
        one.merge(other);
        let free = one.get("free").expect("it was added");
        assert_eq!((free.samples[0], free.samples.len()), ((5, 4), SAMPLES_MAX + 1));
        one.retain(|name| name == "expiry");
        assert_eq!(one.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["expiry"]);
        assert_eq!(one.len(), 1);
    }

    #[test] // A log line has the number of slow slices that were not logged.
    fn the_log_of_slow_slices_is_rate_limited() {
        let mut complaints = Complaints::default();
        assert_eq!(complaints.admit(5), Some(0));
        assert_eq!(complaints.admit(6), None);
        assert_eq!(complaints.admit(4 + Complaints::EVERY_NS), None);
        assert_eq!(complaints.admit(5 + Complaints::EVERY_NS), Some(2));
        assert_eq!(complaints.admit(6 + Complaints::EVERY_NS), None);
        assert_eq!(complaints.admit(9 + 3 * Complaints::EVERY_NS), Some(1));
    }
}

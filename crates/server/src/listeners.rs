//! State of keyspace events that all cores share: whether they have subscribers, and how many are
//! in flight.
//!
//! An event without subscribers causes no message. All channels of events have the same home core.
//! Before that core confirms a subscription to such a channel, or to a pattern that may match one,
//! it counts the subscription here. So a subscriber misses no event after the confirmation. The
//! events in flight are counted here, too, so that writers wait while there are too many.

use darter_base::glob;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The prefixes of the two kinds of event channels: one channel per key, and one per event.
pub(crate) const PREFIXES: [&[u8]; 2] = [b"__keyspace@", b"__keyevent@"];

/// The limit of the weight (see [`weight`]) of events in flight: a few megabytes, and a few
/// milliseconds of work.
const IN_FLIGHT_MAX: usize = 4_096;
/// Waiting writers are woken when the weight in flight has fallen to this.
const WAKE_AT: usize = IN_FLIGHT_MAX / 2;

/// The weight of an event whose key, or name, has `bytes` bytes.
pub(crate) fn weight(bytes: usize) -> usize {
    const KIB: usize = 1_024;
    1 + bytes / KIB
}

/// The counts of subscriptions to events, and of events in flight.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    /// For each kind of channel (see [`PREFIXES`]): the number of subscriptions that may receive
    /// its events.
    subscriptions: [AtomicUsize; 2],
    in_flight: AtomicUsize,
}

impl Listeners {
    /// Counts a subscription that begins (`joins`) or ends, for the kinds of channels that it
    /// receives.
    pub(crate) fn count(&self, receives: [bool; 2], joins: bool) {
        for (subscriptions, _) in self.subscriptions.iter().zip(receives).filter(|(_, by)| *by) {
            match joins {
                true => subscriptions.fetch_add(1, Ordering::Relaxed),
                false => subscriptions.fetch_sub(1, Ordering::Relaxed),
            };
        }
    }

    /// Whether each kind of channel has subscriptions. A subscription that was confirmed before the
    /// caller's command began is always seen, because messages between cores are ordered.
    pub(crate) fn listen(&self) -> [bool; 2] {
        [0, 1].map(|kind| self.subscriptions[kind].load(Ordering::Relaxed) > 0)
    }

    /// Adds a sent event to those in flight.
    pub(crate) fn sent(&self, weight: usize) {
        self.in_flight.fetch_add(weight, Ordering::Relaxed);
    }

    /// Removes a published event from those in flight. Returns true if waiting writers must be
    /// woken.
    pub(crate) fn published(&self, weight: usize) -> bool {
        // Sequentially consistent, together with `CoreReport::set_has_waiting`: either the core
        // that begins to wait sees this change, or this core sees that it waits.
        let before = self.in_flight.fetch_sub(weight, Ordering::SeqCst);
        assert!(before >= weight, "{weight} of {before}");
        before > WAKE_AT && before - weight <= WAKE_AT
    }

    /// True if writers must wait because too many events are in flight.
    #[inline]
    pub(crate) fn are_behind(&self) -> bool {
        self.in_flight.load(Ordering::SeqCst) > IN_FLIGHT_MAX
    }
}

/// The kinds of event channels to which a channel of this name belongs.
pub(crate) fn are_events_of(name: &[u8]) -> [bool; 2] {
    PREFIXES.map(|prefix| name.starts_with(prefix))
}

/// The kinds of event channels that a pattern may match. Cost: O(length of the prefix).
pub(crate) fn may_match_events(pattern: &[u8]) -> [bool; 2] {
    PREFIXES.map(|prefix| glob::may_begin_with(pattern, prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // A pattern counts if it may match an event channel.
    fn subscriptions_that_may_receive_events_are_counted() {
        let listeners = Listeners::default();
        assert_eq!(listeners.listen(), [false; 2]);
        listeners.count(are_events_of(b"__keyevent@0__:set"), true);
        assert_eq!(listeners.listen(), [false, true]);
        listeners.count(may_match_events(b"__key*"), true);
        listeners.count(are_events_of(b"__keyevent@0__:set"), false);
        assert_eq!(listeners.listen(), [true; 2]);
        listeners.count(may_match_events(b"__key*"), false);
        assert_eq!(listeners.listen(), [false; 2]);
        assert_eq!(may_match_events(b"news.*"), [false; 2]);
    }

    #[test]
    fn waiting_writers_are_woken_once_when_half_of_the_events_are_published() {
        let listeners = Listeners::default();
        listeners.sent(IN_FLIGHT_MAX);
        assert!(!listeners.are_behind());
        listeners.sent(weight(3_000));
        assert!(listeners.are_behind());
        let woken = (0..IN_FLIGHT_MAX + 3).filter(|_| listeners.published(1)).count();
        assert_eq!((woken, listeners.are_behind()), (1, false));
    }
}

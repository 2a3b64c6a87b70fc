//! What all cores know of keyspace events: whether anybody listens, and how many are on their way.
//!
//! An event that nobody can receive costs no message. The core that is home to all channels of events
//! counts their subscriptions here, and the patterns that may match such a channel, before they are
//! confirmed: so whatever a subscriber does next is told. And it counts what is published, so that
//! those who write wait while too much is on its way to it.

use darter_base::glob;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How channels of events begin: those of keys, and those of what happened.
pub(crate) const PREFIXES: [&[u8]; 2] = [b"__keyspace@", b"__keyevent@"];

/// What may be under way, by [`weight`]: some megabytes, and a few milliseconds of work.
const UNDER_WAY_MAX: usize = 4_096;
/// Those who wait are woken when so much is left.
const WAKE_AT: usize = UNDER_WAY_MAX / 2;

/// What an event of a name, or of a key, of so many bytes weighs.
pub(crate) fn weight(bytes: usize) -> usize {
    const KIB: usize = 1_024;
    1 + bytes / KIB
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    /// Subscriptions that may receive events: by the channels of keys, and of what happened.
    subscriptions: [AtomicUsize; 2],
    under_way: AtomicUsize,
}

impl Listeners {
    /// One that receives by these channels more, or fewer.
    pub(crate) fn count(&self, receives: [bool; 2], joins: bool) {
        for (subscriptions, _) in self.subscriptions.iter().zip(receives).filter(|(_, by)| *by) {
            match joins {
                true => subscriptions.fetch_add(1, Ordering::Relaxed),
                false => subscriptions.fetch_sub(1, Ordering::Relaxed),
            };
        }
    }

    /// Whether anybody listens, by each kind of channel. Who was confirmed before the caller began
    /// is seen: what it did since has come here by messages.
    pub(crate) fn listen(&self) -> [bool; 2] {
        [0, 1].map(|kind| self.subscriptions[kind].load(Ordering::Relaxed) > 0)
    }

    /// An event is on its way.
    pub(crate) fn sent(&self, weight: usize) {
        self.under_way.fetch_add(weight, Ordering::Relaxed);
    }

    /// It is published: true if those who wait are to be woken.
    pub(crate) fn published(&self, weight: usize) -> bool {
        // With `Told::expect_news`: either the waiting core sees this, or it is seen to wait.
        let before = self.under_way.fetch_sub(weight, Ordering::SeqCst);
        assert!(before >= weight, "{weight} of {before}");
        before > WAKE_AT && before - weight <= WAKE_AT
    }

    /// Whether so much is under way that those who cause more are to wait.
    #[inline]
    pub(crate) fn are_behind(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) > UNDER_WAY_MAX
    }
}

/// Whether a channel of this name is of events: of keys, of what happened.
pub(crate) fn are_events_of(name: &[u8]) -> [bool; 2] {
    PREFIXES.map(|prefix| name.starts_with(prefix))
}

/// Whether a pattern may match such a channel. Cost: O(prefix).
pub(crate) fn may_match_events(pattern: &[u8]) -> [bool; 2] {
    PREFIXES.map(|prefix| glob::may_begin_with(pattern, prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Each kind of channel for itself; a pattern counts if it may match.
    fn who_listens_is_counted() {
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

    #[test] // Who waits is woken once, when half of it is published.
    fn what_is_under_way_is_bounded() {
        let listeners = Listeners::default();
        listeners.sent(UNDER_WAY_MAX);
        assert!(!listeners.are_behind());
        listeners.sent(weight(3_000));
        assert!(listeners.are_behind());
        let woken = (0..UNDER_WAY_MAX + 3).filter(|_| listeners.published(1)).count();
        assert_eq!((woken, listeners.are_behind()), (1, false));
    }
}

//! The clients with MONITOR: those of this core, and their number on each other core, with the
//! lines that are to be sent there.
//!
//! Lines for another core leave together, after all earlier ones were shown. Single lines could
//! arrive faster than that core can show them. Messages run in order, so its clients would wait
//! without bound.

use darter_command::Stream;
use darter_tx::CoreId;
use std::sync::Arc;

/// Makes the stream of the rest of a long line, for one watcher.
pub(crate) type LineTail = Arc<dyn Fn() -> Box<dyn Stream> + Send + Sync>;

/// Lines, and the rest of the last one.
pub(crate) type Lines = (Vec<u8>, Option<LineTail>);

/// Lines to show on another core.
#[derive(Default)]
struct Gathered {
    lines: Vec<Lines>,
    /// Messages with lines that are not shown yet.
    away: usize,
}

/// The watching clients.
#[derive(Default)]
pub(crate) struct Watchers {
    /// Clients of this core.
    here: Vec<u64>,
    /// The number on each core. A core that never had any may be missing.
    counts: Vec<usize>,
    all: usize,
    /// For each core, as `counts`.
    gathered: Vec<Gathered>,
}

impl Watchers {
    pub(crate) fn are_any(&self) -> bool {
        self.all > 0
    }

    pub(crate) fn are_on(&self, core: CoreId) -> bool {
        self.counts.get(core).is_some_and(|count| *count > 0)
    }

    /// Changes core `at`'s number of watchers by `by`.
    pub(crate) fn change(&mut self, at: CoreId, by: isize) {
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
            self.gathered.resize_with(at + 1, Gathered::default);
        }
        self.counts[at] = self.counts[at].saturating_add_signed(by);
        self.all = self.counts.iter().sum();
    }

    /// Adds a client of this core.
    pub(crate) fn add(&mut self, client: u64) {
        self.here.push(client);
    }

    /// Removes a client of this core.
    pub(crate) fn remove(&mut self, client: u64) {
        self.here.retain(|here| *here != client);
    }

    /// Adds a line for core `to`, which has watchers.
    pub(crate) fn gather(&mut self, to: CoreId, line: &[u8], rest: Option<&LineTail>) {
        /// Bytes that are shown together: a few microseconds.
        const AT_ONCE: usize = 16 * 1024;
        let lines = &mut self.gathered[to].lines;
        match lines.last_mut() {
            Some((last, none @ None)) if last.len() < AT_ONCE => {
                last.extend_from_slice(line);
                *none = rest.cloned();
            }
            _ => lines.push((line.to_vec(), rest.cloned())),
        }
    }

    /// Takes the lines to send to core `to` now, one message for each.
    pub(crate) fn take(&mut self, to: CoreId) -> Vec<Lines> {
        let gathered = &mut self.gathered[to];
        if gathered.away > 0 {
            return Vec::new();
        }
        gathered.away = gathered.lines.len();
        std::mem::take(&mut gathered.lines)
    }

    /// Records that core `at` has shown a message.
    pub(crate) fn shown(&mut self, at: CoreId) {
        self.gathered[at].away -= 1;
    }

    /// The watching clients of this core.
    pub(crate) fn here(&self) -> &[u64] {
        &self.here
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Watchers are counted by core; those of this core are listed by id.
    fn watchers_are_counted_by_core() {
        let mut watchers = Watchers::default();
        assert!(!watchers.are_any());
        watchers.change(2, 1);
        watchers.change(2, 1);
        watchers.change(2, -1);
        assert_eq!([0, 2, 7].map(|core| watchers.are_on(core)), [false, true, false]);
        watchers.change(2, -1);
        assert!(!watchers.are_any());
        [4, 5, 4].iter().for_each(|client| watchers.add(*client));
        watchers.remove(4);
        assert_eq!(watchers.here(), [5]);
    }
}

//! Who watches all commands with MONITOR: this core's clients, and how many on each other core, with the
//! lines that are to be shown there.
//!
//! Lines for another core leave together, once all that left before were shown. Sent one by one, they
//! could come faster than that core runs them; since messages run in their order, its clients would
//! wait without bound.

use darter_command::Stream;
use darter_tx::CoreId;
use std::sync::Arc;

/// Makes the rest of a long line, for one watcher.
pub(crate) type Rest = Arc<dyn Fn() -> Box<dyn Stream> + Send + Sync>;

/// Lines, and the rest of the last of them.
pub(crate) type Lines = (Vec<u8>, Option<Rest>);

/// What is to be shown on another core.
#[derive(Default)]
struct Gathered {
    lines: Vec<Lines>,
    /// Messages with lines that are not shown yet.
    away: usize,
}

/// Who watches.
#[derive(Default)]
pub(crate) struct Watchers {
    /// Clients of this core.
    here: Vec<u64>,
    /// How many on each core; a core that never had any may be missing.
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

    /// Core `at`'s number of watchers changes by `by`.
    pub(crate) fn change(&mut self, at: CoreId, by: isize) {
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
            self.gathered.resize_with(at + 1, Gathered::default);
        }
        self.counts[at] = self.counts[at].saturating_add_signed(by);
        self.all = self.counts.iter().sum();
    }

    /// A client of this core watches.
    pub(crate) fn add(&mut self, client: u64) {
        self.here.push(client);
    }

    /// A client of this core stops watching.
    pub(crate) fn remove(&mut self, client: u64) {
        self.here.retain(|here| *here != client);
    }

    /// A line for core `to`, which has watchers.
    pub(crate) fn gather(&mut self, to: CoreId, line: &[u8], rest: Option<&Rest>) {
        /// Bytes that are shown at once: a few microseconds.
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

    /// What is to be sent to core `to` now, in as many messages.
    pub(crate) fn take(&mut self, to: CoreId) -> Vec<Lines> {
        let gathered = &mut self.gathered[to];
        if gathered.away > 0 {
            return Vec::new();
        }
        gathered.away = gathered.lines.len();
        std::mem::take(&mut gathered.lines)
    }

    /// Core `at` has shown a message.
    pub(crate) fn shown(&mut self, at: CoreId) {
        self.gathered[at].away -= 1;
    }

    /// The clients of this core that watch.
    pub(crate) fn here(&self) -> &[u64] {
        &self.here
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Counted by core; the clients of this one by their ids.
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

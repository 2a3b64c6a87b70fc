//! The watchers (clients of MONITOR): those on this core, and how many there are on each other
//! core, with the lines that are to be sent there.
//!
//! Lines for another core are gathered, and sent together when that core has handled the previous
//! message. If each line were sent at once, lines could arrive faster than the core can handle
//! them. Messages run in order, so its own clients would have to wait without limit.

use darter_command::Stream;
use darter_tx::CoreId;
use std::sync::Arc;

/// Makes a stream of the rest of a long line, for one watcher.
pub(crate) type LineTail = Arc<dyn Fn() -> Box<dyn Stream> + Send + Sync>;

/// Complete lines, and the rest of the last line if it is long.
pub(crate) type Lines = (Vec<u8>, Option<LineTail>);

/// Lines that are to be sent to another core.
#[derive(Default)]
struct Gathered {
    lines: Vec<Lines>,
    /// The number of messages that the other core has not handled yet.
    away: usize,
}

/// The watchers on this core, and their numbers on all cores.
#[derive(Default)]
pub(crate) struct Watchers {
    /// The watchers on this core, by handle.
    here: Vec<u64>,
    /// The number of watchers on each core. Cores at the end of the list that never had any may be
    /// missing.
    counts: Vec<usize>,
    all: usize,
    /// The gathered lines for each core, by the same index as `counts`.
    gathered: Vec<Gathered>,
}

impl Watchers {
    pub(crate) fn are_any(&self) -> bool {
        self.all > 0
    }

    pub(crate) fn are_on(&self, core: CoreId) -> bool {
        self.counts.get(core).is_some_and(|count| *count > 0)
    }

    /// Changes the number of watchers on core `at` by `by`.
    pub(crate) fn change(&mut self, at: CoreId, by: isize) {
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
            self.gathered.resize_with(at + 1, Gathered::default);
        }
        self.counts[at] = self.counts[at].saturating_add_signed(by);
        self.all = self.counts.iter().sum();
    }

    /// Adds a watcher on this core.
    pub(crate) fn add(&mut self, client: u64) {
        self.here.push(client);
    }

    /// Removes a watcher on this core.
    pub(crate) fn remove(&mut self, client: u64) {
        self.here.retain(|here| *here != client);
    }

    /// Adds a line for core `to`, which has watchers.
    pub(crate) fn gather(&mut self, to: CoreId, line: &[u8], rest: Option<&LineTail>) {
        /// Bytes of lines that are sent in one message: a few microseconds of work.
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

    /// Takes the lines to send to core `to` now, split into messages.
    pub(crate) fn take(&mut self, to: CoreId) -> Vec<Lines> {
        let gathered = &mut self.gathered[to];
        if gathered.away > 0 {
            return Vec::new();
        }
        gathered.away = gathered.lines.len();
        std::mem::take(&mut gathered.lines)
    }

    /// Records that core `at` has handled a message with lines.
    pub(crate) fn shown(&mut self, at: CoreId) {
        self.gathered[at].away -= 1;
    }

    /// The watchers on this core.
    pub(crate) fn here(&self) -> &[u64] {
        &self.here
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Only the watchers on this core are listed by handle.
    fn watchers_of_monitor_are_counted_by_core() {
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

//! Who watches all commands with MONITOR: this core's clients, and how many on each other core.

use darter_tx::CoreId;

/// Who watches.
#[derive(Default)]
pub(crate) struct Watchers {
    /// Clients of this core.
    here: Vec<u64>,
    /// How many on each core; a core that never had any may be missing.
    counts: Vec<usize>,
    all: usize,
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

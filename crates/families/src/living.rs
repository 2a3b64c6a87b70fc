//! A cut and the exact number of its living entries, which a reply's header needs before the first.

use darter_structs::table::{LiveCount, OutOfLine, Table};

/// Segments that are counted in one portion: at most about 20 us.
const SEGMENTS_AT_ONCE: usize = 4;

/// A cut whose living are being counted: nothing is to be done where nobody is dead.
pub(crate) struct Living<X: OutOfLine> {
    cut: Table<X>,
    count: Option<LiveCount<X>>,
}

impl<X: OutOfLine> Living<X> {
    /// Those of `cut` that live at `now`.
    pub(crate) fn new(cut: Table<X>, now: u64) -> Self {
        let has_dead = cut.earliest_deadline().is_some_and(|due| due <= now);
        let count = has_dead.then(|| LiveCount::new(cut.clone(), now));
        Self { cut, count }
    }

    /// Counts a portion. The number, and the cut itself, once all are counted; not called again.
    pub(crate) fn portion(&mut self) -> Option<(usize, Table<X>)> {
        let living = match &mut self.count {
            None => self.cut.len(),
            Some(count) => {
                if count.next_slice(SEGMENTS_AT_ONCE) {
                    return None;
                }
                count.count()
            }
        };
        self.count = None;
        Some((living, std::mem::take(&mut self.cut)))
    }
}

//! How full a table is, and whether it is sound.

use super::directory::NEVER;
use super::entry::OutOfLine;
use super::segment::PagePos;
use super::{Big, Root, Table};

/// How full a table is: for DEBUG.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    /// Segments; 0 for a small table.
    pub segments: usize,
    /// Pages of all segments.
    pub pages: usize,
    /// Entries.
    pub entries: usize,
    /// Slots of all indexes: `entries / slots` is the fill.
    pub slots: usize,
    /// Entries of the fullest segment.
    pub entries_max: usize,
    /// Bytes of memory, as [`Table::memory_bytes`] counts them.
    pub bytes: usize,
}

impl<X: OutOfLine> Table<X> {
    /// How full the table is. Cost: O(segments): not for the hot path.
    #[must_use]
    pub fn fill_report(&self) -> Fill {
        let mut fill = Fill { entries: self.len(), bytes: self.memory_bytes(), ..Fill::default() };
        if let Root::Big(big) = &self.0 {
            for path in big.directory.paths() {
                let segment = big.directory.segment_at(path);
                fill.segments += 1;
                fill.pages += segment.page_count();
                fill.slots += segment.slots();
                fill.entries_max = fill.entries_max.max(segment.len());
            }
        }
        fill
    }

    /// Panics when an invariant does not hold. Cost: O(entries): for tests.
    pub fn check_invariants(&self) {
        match &self.0 {
            Root::Empty | Root::Ruin(_) => {}
            Root::Small(small) => {
                assert!(small.len() > 0, "T3: empty, but small");
                small.check();
            }
            Root::Big(big) => {
                assert!(big.len > 0, "T3: empty, but big");
                big.check();
            }
        }
    }
}

impl<X: OutOfLine> Big<X> {
    fn check(&self) {
        self.directory.check();
        let (mut len, mut bytes, mut outside, mut due) = (0, 0, 0, NEVER);
        for path in self.directory.paths() {
            let segment = self.directory.segment_at(path);
            outside += segment.check();
            len += segment.len();
            bytes += segment.bytes();
            assert!(segment.class() <= self.class_max);
            let (prefix, depth) = self.directory.prefix(path);
            let mut at = PagePos::default();
            while let Some(raw) = segment.next_entry(&mut at) {
                let differ = raw.hash() ^ prefix;
                assert!(depth == 0 || differ >> (64 - depth) == 0, "T1: in the wrong segment");
                let deadline = raw.deadline().unwrap_or(NEVER);
                assert!(self.directory.due(path) <= deadline, "D2: due of a segment");
                due = due.min(deadline);
            }
        }
        assert!(self.due <= due, "due of the table");
        let counted = (self.len, self.segment_bytes, self.outside_bytes);
        assert_eq!((len, bytes, outside), counted, "T2: counts");
    }
}

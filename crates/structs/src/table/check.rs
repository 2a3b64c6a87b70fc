//! The fill of a table, and checks of its invariants.

use super::directory::{NEVER, Path};
use super::entry::{Entry, Raw};
use super::segment::{PagePos, Seg};
use super::stream::Reader;
use super::value::OutOfLine;
use super::{Big, Root, Table};
use darter_base::UnixMillis;

/// The fill of a table, for DEBUG.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    /// The number of segments; 0 for a small table.
    pub segments: usize,
    /// The number of pages of all segments.
    pub pages: usize,
    /// The number of entries.
    pub entries: usize,
    /// The number of slots of all indexes: `entries / slots` is the fill.
    pub slots: usize,
    /// The number of entries in the fullest segment.
    pub entries_max: usize,
    /// Bytes of memory, as [`Table::memory_bytes`] counts them.
    pub bytes: usize,
}

impl Fill {
    /// The sums of a table, without its segments.
    fn of<X: OutOfLine>(table: &Table<X>) -> Self {
        Self { entries: table.len(), bytes: table.memory_bytes(), ..Self::default() }
    }

    fn add<X: OutOfLine>(&mut self, segment: &Seg<X>) {
        self.segments += 1;
        self.pages += segment.page_count();
        self.slots += segment.slots();
        self.entries_max = self.entries_max.max(segment.len());
    }
}

impl<X: OutOfLine> Table<X> {
    /// The fill of the table. Cost: O(segments): for tests; see [`Filling`].
    #[must_use]
    pub fn fill_report(&self) -> Fill {
        let mut fill = Fill::of(self);
        if let Root::Big(big) = &self.0 {
            let paths = big.directory.paths();
            paths.for_each(|path| fill.add(big.directory.segment_at(path)));
        }
        fill
    }

    /// Panics if an invariant is violated. Cost: O(entries): for tests; see [`Checker`].
    pub fn check_invariants(&self) {
        let mut checker = Checker::new(self.clone());
        while checker.next_slice(&mut |_| {}) {}
    }
}

/// A cut that is held until the check ends.
struct Cut<X: OutOfLine>(Table<X>);

impl<X: OutOfLine> Drop for Cut<X> {
    fn drop(&mut self) {
        // A reader frees unshared memory in slices.
        drop(Reader::new(std::mem::take(&mut self.0)));
    }
}

/// The first segment of a table.
const FIRST: Path = Path { top: 0, leaf: 0 };

/// Computes the fill of a cut in slices.
pub struct Filling<X: OutOfLine> {
    cut: Cut<X>,
    /// The next segment.
    next: Option<Path>,
    /// The fill of the segments visited so far.
    fill: Fill,
}

impl<X: OutOfLine> Filling<X> {
    /// Takes over a cut.
    #[must_use]
    pub fn new(cut: Table<X>) -> Self {
        let fill = Fill::of(&cut);
        Self { cut: Cut(cut), next: Some(FIRST), fill }
    }

    /// Visits some segments. Returns true while some are left. Cost: a portion.
    pub fn next_slice(&mut self) -> bool {
        /// Each is likely a cache miss.
        const SEGMENTS: usize = 32;
        let Root::Big(big) = &self.cut.0.0 else { return false };
        for _ in 0..SEGMENTS {
            let Some(path) = self.next else { break };
            self.fill.add(big.directory.segment_at(path));
            self.next = big.directory.path_after(path);
        }
        self.next.is_some()
    }

    /// Returns the fill.
    #[must_use]
    pub fn fill(&self) -> Fill {
        self.fill
    }
}

/// Checks the invariants of a cut in slices.
///
/// It holds the whole cut until it ends, because only the directory shows where an entry belongs.
pub struct Checker<X: OutOfLine> {
    cut: Cut<X>,
    /// The next segment.
    next: Path,
    sums: Sums,
}

impl<X: OutOfLine> Checker<X> {
    /// Takes over a cut.
    #[must_use]
    pub fn new(cut: Table<X>) -> Self {
        Self { cut: Cut(cut), next: FIRST, sums: Sums::default() }
    }

    /// Checks the next segment, and calls `f` for each of its entries. Returns true while some are
    /// left. Panics if an invariant is violated; those of the whole table are checked last.
    ///
    /// Cost: a portion, besides `f`; the last call, O(leaves of the directory).
    pub fn next_slice(&mut self, f: &mut dyn FnMut(Entry<'_, X>)) -> bool {
        // SAFETY: entries of the cut, which is held during the call.
        let mut tell = |raw: Raw<X>| f(unsafe { Entry::new(raw) });
        match &self.cut.0.0 {
            Root::Empty | Root::Ruin(_) => false,
            Root::Pack(pack) => {
                pack.view().check();
                pack.for_each(f);
                false
            }
            Root::Small(small) => {
                assert!(small.len() > 0, "T3: empty, but small");
                small.check();
                let mut at = 0;
                std::iter::from_fn(|| small.next(&mut at)).for_each(|(_, raw)| tell(raw));
                false
            }
            Root::Big(big) => match big.check_segment(self.next, &mut self.sums, &mut tell) {
                Some(next) => {
                    self.next = next;
                    true
                }
                None => {
                    big.check_sums(&self.sums);
                    false
                }
            },
        }
    }
}

/// The sums of the segments seen so far.
struct Sums {
    len: usize,
    bytes: usize,
    outside_bytes: usize,
    leaf_bytes: usize,
    earliest: UnixMillis,
}

impl Default for Sums {
    fn default() -> Self {
        Self { len: 0, bytes: 0, outside_bytes: 0, leaf_bytes: 0, earliest: NEVER }
    }
}

impl<X: OutOfLine> Big<X> {
    /// Checks the segment at `path`, with its leaf when it is the first of it. Returns the next.
    fn check_segment(
        &self,
        path: Path,
        sums: &mut Sums,
        tell: &mut dyn FnMut(Raw<X>),
    ) -> Option<Path> {
        if path.leaf == 0 {
            sums.leaf_bytes += self.directory.check_leaf(path.top);
        }
        let segment = self.directory.segment_at(path);
        sums.outside_bytes += segment.check();
        sums.len += segment.len();
        sums.bytes += segment.bytes();
        assert!(segment.class() <= self.class_max);
        let (prefix, depth) = self.directory.prefix(path);
        let mut at = PagePos::default();
        while let Some(raw) = segment.next_entry(&mut at) {
            let differ = raw.hash() ^ prefix;
            assert!(depth == 0 || differ >> (64 - depth) == 0, "T1: in the wrong segment");
            let deadline = raw.deadline().unwrap_or(NEVER);
            assert!(self.directory.earliest(path) <= deadline, "D2: earliest of a segment");
            sums.earliest = sums.earliest.min(deadline);
            tell(raw);
        }
        self.directory.path_after(path)
    }

    fn check_sums(&self, sums: &Sums) {
        assert!(self.len > 0, "T3: empty, but big");
        self.directory.check_top(sums.leaf_bytes);
        assert!(self.earliest <= sums.earliest, "earliest of the table");
        let counted = (self.len, self.segment_bytes, self.outside_bytes);
        assert_eq!((sums.len, sums.bytes, sums.outside_bytes), counted, "T2: counts");
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Never, New};
    use super::*;
    use darter_base::hash;

    #[test] // Changes during the computation do not affect it.
    fn fill_of_a_cut_is_computed_in_slices() {
        let mut table = Table::<Never>::new();
        let fill = |table: &mut Table<Never>, keys: std::ops::Range<usize>| {
            for number in keys {
                let key = number.to_string();
                table.insert(hash::of(key.as_bytes()), key.as_bytes(), New::Bytes(b"v"), None, 0);
            }
        };
        let (few, many) = if cfg!(miri) { (100, 2_000) } else { (1_000, 60_000) };
        for keys in [0..0, 0..1, 1..few, few..many] {
            fill(&mut table, keys);
            let (before, mut filling, mut slices) =
                (table.fill_report(), Filling::new(table.clone()), 1);
            while filling.next_slice() {
                slices += 1;
                fill(&mut table, many * slices..many * slices + 100);
            }
            assert_eq!(filling.fill(), before);
            assert!(slices >= before.segments.div_ceil(32), "{slices} of {before:?}");
        }
    }
}

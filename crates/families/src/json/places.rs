//! Lists of places in a document, and their sorting.

use crate::chunks::Chunks;
use std::collections::VecDeque;

/// Numbers in one chunk.
const CHUNK: usize = 4 * 1024;
/// Paths that are sorted at once, and merged in one portion.
const SORTED: usize = 64;

const _: () = assert!(darter_structs::json::LEVELS_MAX + 2 <= CHUNK, "every path fits");

/// The places of values, in the order of discovery. A place is a path of indexes.
pub(super) struct Places {
    /// For each place: its length, its indexes, its length again.
    chunks: Chunks<usize, CHUNK>,
    /// The numbers already removed from the first chunk.
    gone: usize,
    len: usize,
    last: Vec<usize>,
    /// Places are in order, and none is within another.
    is_apart: bool,
}

impl Default for Places {
    fn default() -> Self {
        let (chunks, last) = (Chunks::default(), Vec::new());
        Self { chunks, gone: 0, len: 0, last, is_apart: true }
    }
}

impl Places {
    /// The list with only the root.
    pub(super) fn root() -> Self {
        let mut root = Self::default();
        root.push(&[]);
        root
    }

    /// The number of places.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// True if places are in order and none is within another. Then they can be removed from last
    /// to first.
    pub(super) fn is_apart(&self) -> bool {
        self.is_apart
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.chunks.memory_bytes()
    }

    pub(super) fn push(&mut self, path: &[usize]) {
        let is_after = self.len == 0 || (self.last[..] < *path && !path.starts_with(&self.last));
        self.is_apart &= is_after;
        self.last.clear();
        self.last.extend_from_slice(path);
        let chunk = self.chunks.tail(path.len() + 2);
        chunk.push(path.len());
        chunk.extend_from_slice(path);
        chunk.push(path.len());
        self.len += 1;
    }

    /// [`Places::push`], unless the place is within the last one.
    pub(super) fn push_apart(&mut self, path: &[usize]) {
        if self.len == 0 || !path.starts_with(&self.last) {
            self.push(path);
        }
    }

    /// The place at `cursor`, which then moves to the next.
    pub(super) fn next(&self, cursor: &mut (usize, usize)) -> Option<&[usize]> {
        let chunks = self.chunks.chunks();
        let mut chunk = chunks.get(cursor.0)?;
        if cursor.1 == chunk.len() {
            *cursor = (cursor.0 + 1, 0);
            chunk = chunks.get(cursor.0)?;
        }
        let len = chunk[cursor.1];
        let path = &chunk[cursor.1 + 1..cursor.1 + 1 + len];
        cursor.1 += len + 2;
        Some(path)
    }

    /// The first place.
    fn first(&self) -> Option<&[usize]> {
        self.next(&mut (0, self.gone))
    }

    /// Removes the first place, and frees its memory.
    fn skip(&mut self) {
        let Some(first) = self.first() else { return };
        self.gone += first.len() + 2;
        self.len -= 1;
        if self.chunks.chunks().front().is_some_and(|chunk| chunk.len() == self.gone) {
            self.chunks.pop_front();
            self.gone = 0;
        }
    }

    /// Removes and returns the last place.
    pub(super) fn pop(&mut self) -> Option<Vec<usize>> {
        debug_assert_eq!(self.gone, 0, "from the front or from the back");
        let len = self.chunks.pop()?;
        let mut path: Vec<_> = (0..len).map_while(|_| self.chunks.pop()).collect();
        path.reverse();
        self.chunks.pop();
        self.len -= 1;
        Some(path)
    }
}

/// Sorts places in portions, and drops duplicates and places within others.
///
/// A few places at a time are sorted, then runs are merged, the shortest first. Places that have
/// been read are freed.
pub(super) struct Sorting {
    fresh: Places,
    runs: VecDeque<Places>,
    /// Bytes of the runs.
    runs_bytes: usize,
    /// Two runs, and their merged run.
    merge: Option<[Places; 3]>,
}

impl Sorting {
    pub(super) fn new(fresh: Places) -> Self {
        Self { fresh, runs: VecDeque::new(), runs_bytes: 0, merge: None }
    }

    /// Continues sorting. Returns the places once they are in order.
    pub(super) fn step(&mut self) -> Option<Places> {
        if self.fresh.len() > 0 {
            let run = self.sorted();
            self.keep(run);
            return None;
        }
        let Some([one, two, into]) = &mut self.merge else {
            let one = self.take().unwrap_or_default();
            let Some(two) = self.take() else { return Some(one) };
            self.merge = Some([one, two, Places::default()]);
            return None;
        };
        for _ in 0..SORTED {
            let from = match (one.first(), two.first()) {
                (Some(first), Some(second)) if second < first => &mut *two,
                (Some(_), _) => &mut *one,
                (None, Some(_)) => &mut *two,
                (None, None) => {
                    let merged = std::mem::take(into);
                    self.merge = None;
                    self.keep(merged);
                    return None;
                }
            };
            from.first().into_iter().for_each(|path| into.push_apart(path));
            from.skip();
        }
        None
    }

    fn keep(&mut self, run: Places) {
        self.runs_bytes += run.memory_bytes();
        self.runs.push_back(run);
    }

    fn take(&mut self) -> Option<Places> {
        let run = self.runs.pop_front()?;
        self.runs_bytes -= run.memory_bytes();
        Some(run)
    }

    /// Takes and sorts the next few places.
    fn sorted(&mut self) -> Places {
        let mut few = Vec::with_capacity(SORTED);
        while few.len() < SORTED
            && let Some(path) = self.fresh.first()
        {
            few.push(path.to_vec());
            self.fresh.skip();
        }
        few.sort_unstable();
        let mut run = Places::default();
        few.iter().for_each(|path| run.push_apart(path));
        run
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let merged = self.merge.iter().flatten().map(Places::memory_bytes);
        self.fresh.memory_bytes() + self.runs_bytes + merged.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;

    #[test] // Places within others are dropped.
    fn sorting_places_in_portions_equals_one_sort() {
        for seed in 0..50 {
            let mut prng = Prng::from_seed(seed);
            let mut path = || -> Vec<usize> {
                let len = prng.below(4);
                (0..len).map(|_| usize::try_from(prng.below(12)).unwrap()).collect()
            };
            let mut all: Vec<_> = (0..seed * 17).map(|_| path()).collect();
            let mut places = Places::default();
            all.iter().for_each(|path| places.push(path));
            all.sort_unstable();
            let mut expected: Vec<Vec<usize>> = Vec::new();
            for path in all {
                if expected.last().is_none_or(|last| !path.starts_with(last)) {
                    expected.push(path);
                }
            }
            let mut sorting = Sorting::new(places);
            let mut sorted = loop {
                if let Some(sorted) = sorting.step() {
                    break sorted;
                }
            };
            assert!(sorted.is_apart(), "seed {seed}");
            assert_eq!(sorted.len(), expected.len());
            while let Some(path) = sorted.pop() {
                assert_eq!(Some(path), expected.pop(), "seed {seed}");
            }
            assert!(expected.is_empty());
        }
    }

    #[test]
    fn sorting_counts_the_memory_of_unmerged_places() {
        let mut places = Places::default();
        (0..20_000).rev().for_each(|at| places.push(&[at, 1]));
        let mut sorting = Sorting::new(places);
        let sorted = loop {
            let bytes = 20_000 * 4 * size_of::<usize>();
            // A part of a run, or of a chunk, may already have been read.
            let slack = 4 * CHUNK * size_of::<usize>();
            assert!(
                sorting.memory_bytes() + slack >= bytes,
                "{} of {bytes}",
                sorting.memory_bytes()
            );
            if let Some(sorted) = sorting.step() {
                break sorted;
            }
        };
        assert_eq!((sorted.len(), sorting.memory_bytes()), (20_000, 0));
    }
}

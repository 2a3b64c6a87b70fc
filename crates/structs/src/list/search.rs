//! Searching a cut for a value, in slices, from either end.
//!
//! Equal elements are equal bytes, so a run of elements is searched as plain memory (`memmem`), at
//! some gigabytes a second: a chunk of a thousand integers takes half a microsecond. Only matches
//! are examined as elements (`item::find`). Blobs are found by their length and compared by their
//! bytes, also in slices.

use super::item::{self, Code, NewElement, OUTSIDE};
use super::run::ListRun;
use super::{Chunk, End, List};
use crate::blob::Blob;
use crate::runs::{Run as _, Runs as _};
use crate::table::pack::item::{Tagged, raw_len};
use memchr::memmem::Finder;
use std::ops::Range;

/// Bytes of blobs that are compared in one step; takes about as long as a chunk.
const COMPARED_AT_ONCE: usize = 16 * 1024;

/// A value to search for.
pub struct Needle {
    /// Searches for the element's bytes, or for the tag of a blob.
    finder: Finder<'static>,
    blob: Option<Blob>,
}

impl Needle {
    /// A needle for elements equal to `value`.
    #[must_use]
    pub fn new(value: NewElement<'_>) -> Self {
        value.coded(|code| match code {
            Code::Text(text) => Self::of_text(text),
            Code::Blob(blob) => {
                Self { finder: Finder::new(&[OUTSIDE]).into_owned(), blob: Some(blob.clone()) }
            }
        })
    }

    /// A needle for these bytes of an element.
    pub(super) fn of_text(text: &Tagged<'_>) -> Self {
        let mut bytes = vec![0; text.len()];
        text.write_to(&mut bytes);
        Self { finder: Finder::new(&bytes).into_owned(), blob: None }
    }

    /// The text of the needle, if a pack would store it with its prefix.
    pub(super) fn short(&self) -> Option<&[u8]> {
        let (tag, text) = self.finder.needle().split_first()?;
        raw_len(*tag).map(|_| text)
    }

    /// The offset of the first match in `bytes`.
    #[inline]
    pub(super) fn find_in(&self, bytes: &[u8]) -> Option<usize> {
        self.finder.find(bytes)
    }

    /// The value, if it is long enough to be stored out of line.
    pub(super) fn blob(&self) -> Option<&Blob> {
        self.blob.as_ref()
    }

    /// Compares a portion of the needle with a blob of the same length, from `at` on, and advances
    /// `at`. `None` while everything was equal and bytes are left.
    fn compare(&self, blob: &Blob, at: &mut usize) -> Option<bool> {
        let own = self.blob.as_ref().expect("only blobs are compared");
        debug_assert_eq!(own.len(), blob.len());
        let end = own.len().min(*at + COMPARED_AT_ONCE);
        // Blobs of equal length are split at the same places.
        let is_same = own.slices(*at..end).eq(blob.slices(*at..end));
        *at = end;
        (!is_same || end == own.len()).then_some(is_same)
    }
}

/// Whether there is more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Call again in a later slice.
    More,
    /// The whole range was searched, or enough matches were found.
    Done,
}

/// A search in slices.
pub struct Search {
    needle: Needle,
    from: End,
    /// The indexes not searched yet.
    rest: Range<usize>,
    /// Unexamined matches of the current run, as indexes in the list, the next one last.
    candidates: Vec<usize>,
    /// Bytes of the next candidate that have been compared.
    compared: usize,
    scratch: Vec<u16>,
}

impl Search {
    /// A search for this value among the indexes in `range`, from one end.
    #[must_use]
    pub fn new(needle: Needle, range: Range<usize>, from: End) -> Self {
        debug_assert!(range.start <= range.end, "{range:?}");
        let (candidates, scratch) = (Vec::new(), Vec::new());
        Self { needle, from, rest: range, candidates, compared: 0, scratch }
    }

    /// The next index with the value. `max_runs` is a budget that is counted down: by one for a
    /// chunk, or for as many bytes of blobs. It reaches 0 if there is no result yet.
    ///
    /// `list` must be the same in each call. `None` with budget left means that there are no more
    /// matches.
    pub fn next(&mut self, list: &List, max_runs: &mut usize) -> Option<usize> {
        while *max_runs > 0 {
            let Some(&index) = self.candidates.last() else {
                if self.rest.is_empty() {
                    return None;
                }
                *max_runs -= 1;
                self.look(list);
                continue;
            };
            if self.needle.blob.is_some() {
                *max_runs -= 1;
                match self.compare(list, index) {
                    None => continue,
                    Some(false) => {
                        self.candidates.pop();
                        continue;
                    }
                    Some(true) => {}
                }
            }
            self.candidates.pop();
            return Some(index);
        }
        None
    }

    /// [`Needle::compare`] with the element at this index.
    fn compare(&mut self, list: &List, index: usize) -> Option<bool> {
        let (run, first) = list.run_at(index);
        let super::Element::Blob(blob) = run.read(run.items(), run.offset(index - first)) else {
            unreachable!("it has been found")
        };
        let result = self.needle.compare(blob, &mut self.compared);
        if result.is_some() {
            self.compared = 0;
        }
        result
    }

    /// Finds the candidates of the next run.
    fn look(&mut self, list: &List) {
        let (run, first) = match self.from {
            End::Front => list.run_at(self.rest.start),
            End::Back => list.run_at(self.rest.end - 1),
        };
        debug_assert!(self.candidates.is_empty(), "those of the run before are used up");
        self.scratch.clear();
        run.find(&self.needle, &mut self.scratch);
        let rest = self.rest.clone();
        let found = self.scratch.iter().map(|&hit| first + usize::from(hit));
        self.candidates.extend(found.filter(|index| rest.contains(index)));
        match self.from {
            End::Front => {
                self.candidates.reverse();
                self.rest.start = (first + run.len()).min(self.rest.end);
            }
            End::Back => self.rest.end = first.max(self.rest.start),
        }
    }
}

/// Removes all elements with a value, or the first ones from either end, in slices.
///
/// The list must not change in between: it is a copy that is changed and then installed.
pub struct Removal {
    search: Search,
    /// The most elements that may still be removed.
    left: usize,
    removed: usize,
}

impl Removal {
    /// A removal of at most `max` elements of `list`, starting at one end.
    #[must_use]
    pub fn new(list: &List, needle: Needle, max: usize, from: End) -> Self {
        Self { search: Search::new(needle, 0..list.len(), from), left: max, removed: 0 }
    }

    /// Continues, and calls `gone` with the index of each element at its removal. A run with many
    /// matches costs far more than one without.
    pub fn next_slice(
        &mut self,
        list: &mut List,
        max_runs: usize,
        gone: &mut dyn FnMut(usize),
    ) -> Progress {
        let mut runs = max_runs;
        while runs > 0 && self.left > 0 {
            let Some(index) = self.search.next(list, &mut runs) else {
                return if runs > 0 { Progress::Done } else { Progress::More };
            };
            let mut hits = vec![index];
            self.gather(list, &mut hits);
            runs = runs.saturating_sub(1);
            debug_assert!(hits.len() <= self.left, "{} hits, {} left", hits.len(), self.left);
            self.left -= hits.len();
            self.removed += hits.len();
            hits.sort_unstable();
            // From back to front, so that no match moves before its removal.
            hits.iter().rev().for_each(|hit| gone(*hit));
            self.search.shift(hits.len());
            list.remove_hits(&hits);
        }
        if self.left > 0 { Progress::More } else { Progress::Done }
    }

    /// Adds the other matches of the same run that need no examination.
    fn gather(&mut self, list: &List, hits: &mut Vec<usize>) {
        if self.search.needle.blob.is_some() {
            return;
        }
        let (run, first) = list.run_at(hits[0]);
        let run = first..first + run.len();
        while hits.len() < self.left
            && let Some(index) = self.search.candidates.pop_if(|index| run.contains(index))
        {
            hits.push(index);
        }
    }

    /// The number of elements removed so far.
    #[must_use]
    pub fn removed(&self) -> usize {
        self.removed
    }
}

impl Search {
    /// Adjusts for `gone` elements removed from the list: a search from the front continues at an
    /// index lower by that many.
    fn shift(&mut self, gone: usize) {
        if self.from == End::Front {
            self.rest = self.rest.start - gone..self.rest.end - gone;
            self.candidates.iter_mut().for_each(|index| *index -= gone);
        }
    }
}

impl ListRun<'_> {
    /// See [`Chunk::find`].
    fn find(&self, needle: &Needle, hits: &mut Vec<u16>) {
        match self {
            Self::Pack(pack) => pack.find(needle, hits),
            Self::Chunk(chunk) => chunk.find(needle, hits),
        }
    }
}

impl Chunk {
    /// Appends the indexes of the elements that may equal the needle. Every blob of the needle's
    /// length is included, whatever its content.
    pub(crate) fn find(&self, needle: &Needle, hits: &mut Vec<u16>) {
        let before = hits.len();
        let jump = |offset: usize| self.last_mark(|mark| mark <= offset);
        item::find(self.items(), needle, jump, hits);
        if let Some(blob) = needle.blob() {
            let mut at = before;
            while at < hits.len() {
                let element = self.element(self.offset(usize::from(hits[at])));
                if element.len() == blob.len() {
                    at += 1;
                } else {
                    hits.remove(at);
                }
            }
        }
    }
}

//! Pages of an array as items of a file: each with its index in front, in order. Pages of zeros are
//! omitted.

use darter_structs::pages::Pages;

/// Iterates over the pages of an array that are not all zeros.
#[derive(Clone, Copy, Default)]
pub(crate) struct Pieces {
    next: usize,
}

impl Pieces {
    /// Finds the next page, and subtracts skipped pages from `looks`. Returns false if the end is
    /// reached or `looks` is used up.
    pub(crate) fn find(&mut self, pages: &Pages, looks: &mut usize) -> bool {
        while *looks > 0 {
            let Some(at) = pages.next_held(self.next) else { return true };
            self.next = at;
            if !pages.page(at).is_some_and(is_zeros) {
                return true;
            }
            (self.next, *looks) = (at + 1, *looks - 1);
        }
        false
    }

    /// Writes the next page into `item`, after its index. Returns false if there is none.
    pub(crate) fn next(&mut self, pages: &Pages, item: &mut Vec<u8>) -> bool {
        self.find(pages, &mut { usize::MAX });
        let Some(bytes) = pages.next_held(self.next).and_then(|at| pages.page(at)) else {
            return false;
        };
        item.extend_from_slice(&(self.next as u64).to_le_bytes());
        item.extend_from_slice(bytes);
        self.next += 1;
        true
    }

    /// The index and the bytes of an item; `None` if it does not follow the previous items.
    pub(crate) fn take<'a>(&mut self, item: &'a [u8]) -> Option<(usize, &'a [u8])> {
        let (place, bytes) = item.split_first_chunk()?;
        let at = usize::try_from(u64::from_le_bytes(*place)).ok()?;
        self.next = (at >= self.next).then(|| at.checked_add(1)).flatten()?;
        Some((at, bytes))
    }
}

fn is_zeros(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_structs::pages::PAGE_BYTES;

    #[test]
    fn an_array_is_restored_from_its_nonzero_pages() {
        let len = 100 * PAGE_BYTES + 33;
        let mut pages = Pages::zeros(len);
        for (page, byte) in [(0, 1), (1, 0), (50, 0), (51, 7), (100, 3)] {
            pages.page_mut(page)[30] = byte;
        }
        let (mut copy, mut pieces, mut taken) =
            (Pages::zeros(len), Pieces::default(), Pieces::default());
        let (mut item, mut count) = (Vec::new(), 0);
        while pieces.next(&pages, &mut item) {
            let (at, bytes) = taken.take(&item).expect("they are in order");
            assert!(copy.load(at, bytes), "{at}");
            assert!(taken.clone().take(&item).is_none(), "it came before");
            item.clear();
            count += 1;
        }
        assert_eq!(count, 3);
        for page in 0..pages.pages() {
            let zeros = vec![0; PAGE_BYTES];
            let bytes = |pages: &Pages| pages.page(page).unwrap_or(&zeros)[..33].to_vec();
            assert_eq!(bytes(&pages), bytes(&copy), "{page}");
        }
        let mut looks = 1;
        assert!(!Pieces { next: 1 }.find(&pages, &mut looks) && looks == 0, "a page of zeros");
    }
}

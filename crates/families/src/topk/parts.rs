//! A sketch as items, for files, payloads and digests: its head, its buckets, its list.
//!
//! ```text
//! h + k, width, depth: 4 each, decay: 8   b + place: 8, bytes   i + count: 4, item
//!                                                               l + count: 4; then a long item, alone
//! ```

use super::long::LongItem;
use super::value::TopK;
use crate::page_items::Pieces;
use darter_rdb::{Item, Source};
use darter_structs::sorted::{End, SortedReader};
use darter_structs::table::Scratch;

/// See the module.
pub(super) struct Parts {
    sketch: TopK,
    has_head: bool,
    pieces: Pieces,
    list: SortedReader,
    item: Vec<u8>,
    /// A long item of the list whose count was written, and whether its length was.
    long: Option<(LongItem, bool)>,
}

impl Parts {
    pub(super) fn new(sketch: TopK) -> Self {
        let list = reader(&sketch);
        let (pieces, item) = (Pieces::default(), Vec::new());
        Self { sketch, has_head: false, pieces, list, item, long: None }
    }

    /// The next entry of the list. False when there is none.
    fn listed(&mut self) -> bool {
        let Self { list, item, long, .. } = self;
        if list.left() == 0 {
            return false;
        }
        list.next_slice(1, &mut |entry| {
            *long = LongItem::of(&entry).map(|long| (long, false));
            item.push(if long.is_some() { b'l' } else { b'i' });
            item.extend_from_slice(&(entry.score() as u32).to_le_bytes());
            if long.is_none() {
                item.extend_from_slice(entry.member().bytes(&mut Scratch::new()));
            }
        });
        true
    }
}

/// The list of a sketch, the least first.
fn reader(sketch: &TopK) -> SortedReader {
    let list = sketch.list();
    SortedReader::new(list.reader(), 0..list.len(), End::Front)
}

impl Source for Parts {
    fn find(&mut self, looks: &mut usize) -> bool {
        let is_begun = self.long.is_some() || !self.has_head;
        is_begun || self.pieces.find(self.sketch.buckets(), looks)
    }

    fn next(&mut self) -> Option<Item<'_>> {
        if let Some((long, is_told)) = &mut self.long {
            if !std::mem::replace(is_told, true) {
                let len = long.bytes().len() as u64;
                return Some(Item::LongSingle { len, deadline_ms: None });
            }
            if !long.is_done() {
                let (long, _) = self.long.as_mut()?;
                return Some(Item::Part(long.piece()));
            }
            self.long = None;
        }
        self.item.clear();
        if !std::mem::replace(&mut self.has_head, true) {
            self.item.push(b'h');
            self.item.extend_from_slice(&self.sketch.head());
        } else {
            self.item.push(b'b');
            if !self.pieces.next(self.sketch.buckets(), &mut self.item) {
                self.item.clear();
                if !self.listed() {
                    return None;
                }
            }
        }
        Some(Item::Single { name: &self.item, deadline_ms: None })
    }

    fn rewind(&mut self) {
        (self.has_head, self.pieces) = (false, Pieces::default());
        self.list = reader(&self.sketch);
        assert!(self.long.is_none(), "the first pass is not over");
    }
}

//! A sketch as items, for files, payloads and digests: its head, its buckets, its list.
//!
//! ```text
//! h + k, width, depth: 4 each, decay: 8   b + place: 8, bytes   i + count: 4, item
//! ```

use super::value::TopK;
use crate::pieces::Pieces;
use darter_base::limits::CHUNK_BYTES;
use darter_keyspace::is_long;
use darter_rdb::{Item, Source};
use darter_structs::sorted::{End, Reader};
use darter_structs::table::{HeldKey, Scratch};

/// Bytes of a part of a long item: hashing one takes some 20 us.
const PART_BYTES: usize = CHUNK_BYTES / 4;

/// See the module.
pub(super) struct Parts {
    sketch: TopK,
    has_head: bool,
    pieces: Pieces,
    list: Reader,
    item: Vec<u8>,
    /// A long item of the list, and how much of it was returned, after what precedes it.
    long: Option<(HeldKey, Option<usize>)>,
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
            item.push(b'i');
            item.extend_from_slice(&(entry.score() as u32).to_le_bytes());
            let is_long = is_long(entry.member().len());
            *long = is_long.then(|| entry.hold_member()).flatten().map(|held| (held, None));
            if long.is_none() {
                item.extend_from_slice(entry.member().bytes(&mut Scratch::new()));
            }
        });
        true
    }
}

/// The list of a sketch, the least first.
fn reader(sketch: &TopK) -> Reader {
    let list = sketch.list();
    Reader::new(list.reader(), 0..list.len(), End::Front)
}

impl Source for Parts {
    fn find(&mut self, looks: &mut usize) -> bool {
        let is_begun = self.long.is_some() || !self.has_head;
        is_begun || self.pieces.find(self.sketch.buckets(), looks)
    }

    fn next(&mut self) -> Option<Item<'_>> {
        if let Some((held, given)) = &mut self.long {
            let Some(from) = given.replace(0) else { return Some(Item::Part(&self.item)) };
            let to = held.bytes().len().min(from + PART_BYTES);
            *given = Some(to);
            if from < to {
                let (held, _) = self.long.as_ref()?;
                return Some(Item::Part(&held.bytes()[from..to]));
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
        match &self.long {
            Some((held, _)) => {
                let len = (self.item.len() + held.bytes().len()) as u64;
                Some(Item::LongSingle { len, deadline_ms: None })
            }
            None => Some(Item::Single { name: &self.item, deadline_ms: None }),
        }
    }

    fn rewind(&mut self) {
        (self.has_head, self.pieces) = (false, Pieces::default());
        self.list = reader(&self.sketch);
        assert!(self.long.is_none(), "the first pass is not over");
    }
}

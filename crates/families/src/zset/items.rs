//! The entries of a sorted set as items, for files, payloads and digests: pairs of members and the texts
//! of their scores.

use darter_base::limits::CHUNK_BYTES;
use darter_base::score;
use darter_keyspace::is_long;
use darter_rdb::{Item, Source};
use darter_structs::sorted::{End, Sorted, SortedReader};
use darter_structs::table::{HeldKey, Scratch};

/// Bytes of a part of a long member, which is hashed in one go.
const PART_BYTES: usize = CHUNK_BYTES / 4;

/// The entries of a cut, one by one.
pub(super) struct Entries {
    /// For the second pass, which releases what it has read.
    cut: Option<Sorted>,
    from: End,
    reader: SortedReader,
    /// The member of the current entry.
    member: Vec<u8>,
    score: score::Text,
    /// The member, if that is long, and how much of it was returned.
    long: Option<(HeldKey, usize)>,
}

impl Entries {
    /// The entries of `cut`, ascending from the front or descending from the back.
    pub(super) fn new(cut: Sorted, from: End) -> Self {
        let reader = SortedReader::new(cut.clone(), 0..cut.len(), from);
        let (member, score) = (Vec::new(), score::Text::new(0.0));
        Self { cut: Some(cut), from, reader, member, score, long: None }
    }
}

impl Source for Entries {
    fn next(&mut self) -> Option<Item<'_>> {
        if let Some((long, given)) = &mut self.long {
            let from = *given;
            *given = long.bytes().len().min(from + PART_BYTES);
            if from < *given {
                let (long, given) = self.long.as_ref()?;
                return Some(Item::Part(&long.bytes()[from..*given]));
            }
            self.long = None;
            return Some(Item::Value(self.score.as_bytes()));
        }
        if self.reader.left() == 0 {
            return None;
        }
        let Self { reader, member, score, long, .. } = self;
        reader.next_slice(1, &mut |entry| {
            *score = score::Text::new(entry.score());
            let is_long = is_long(entry.member().len());
            *long = is_long.then(|| entry.hold_member()).flatten().map(|held| (held, 0));
            member.clear();
            if long.is_none() {
                member.extend_from_slice(entry.member().bytes(&mut Scratch::new()));
            }
        });
        if let Some((long, _)) = &self.long {
            return Some(Item::LongNamed {
                name_len: long.bytes().len() as u64,
                deadline_ms: None,
            });
        }
        let value = self.score.as_bytes();
        Some(Item::Pair { name: &self.member, value, deadline_ms: None })
    }

    fn rewind(&mut self) {
        let cut = self.cut.take().expect("the second pass is the last");
        assert!(self.long.is_none(), "the first pass is not over");
        let ranks = 0..cut.len();
        self.reader = SortedReader::new(cut, ranks, self.from);
    }
}

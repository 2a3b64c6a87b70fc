//! The parts of a filter in files and at the beginning of a dump.
//!
//! ```text
//! h | buckets: 8 | width: 1 | kicks: 2 | growth: 4 | layers: 4 | items: 8 | removed: 8
//! p | layer: 4 | page: 8 | its bytes             in order; others are zeros
//! ```

use crate::page_items::Pieces;
use darter_rdb::{Item, Source};
use darter_structs::filter::{CUCKOO_LAYERS_MAX, Cuckoo, CuckooPlan};

const HEAD_BYTES: usize = 36;
/// The first bytes of a dump made by Darter.
const MAGIC: &[u8] = b"darter-cf1";

fn head(cuckoo: &Cuckoo) -> Vec<u8> {
    let CuckooPlan { buckets, width, kicks, growth } = *cuckoo.plan();
    let layers = u32::try_from(cuckoo.layers().len()).unwrap_or(u32::MAX);
    [
        &b"h"[..],
        &buckets.to_le_bytes(),
        &[width],
        &kicks.to_le_bytes(),
        &growth.to_le_bytes(),
        &layers.to_le_bytes(),
        &cuckoo.len().to_le_bytes(),
        &cuckoo.deleted().to_le_bytes(),
    ]
    .concat()
}

/// Takes a field off the front of a part.
fn take<const N: usize>(part: &mut &[u8]) -> Option<[u8; N]> {
    let (field, rest) = part.split_first_chunk()?;
    *part = rest;
    Some(*field)
}

/// The filter that a head describes, without bytes.
fn of_head(mut part: &[u8]) -> Option<Cuckoo> {
    let (b'h', HEAD_BYTES) = (take::<1>(&mut part)?[0], part.len() + 1) else { return None };
    let plan = CuckooPlan {
        buckets: u64::from_le_bytes(take(&mut part)?),
        width: take::<1>(&mut part)?[0],
        kicks: u16::from_le_bytes(take(&mut part)?),
        growth: u32::from_le_bytes(take(&mut part)?),
    };
    let layers = u32::from_le_bytes(take(&mut part)?) as usize;
    let len = u64::from_le_bytes(take(&mut part)?);
    let deleted = u64::from_le_bytes(take(&mut part)?);
    let may = (1..=CUCKOO_LAYERS_MAX).contains(&layers);
    may.then(|| Cuckoo::bare(plan, layers, (len, deleted))).flatten()
}

/// The state of reading a filter: the current layer, and the pages that may follow.
#[derive(Clone, Default)]
pub(super) struct Building(usize, Pieces);

impl Building {
    /// Adds a part. Returns false if it cannot be the next part.
    pub(super) fn take(&mut self, cuckoo: &mut Cuckoo, part: &[u8]) -> bool {
        if cuckoo.is_empty() {
            return of_head(part).map(|made| *cuckoo = made).is_some();
        }
        self.take_page(cuckoo, part).is_some()
    }

    fn take_page(&mut self, cuckoo: &mut Cuckoo, mut part: &[u8]) -> Option<()> {
        let [b'p'] = take(&mut part)? else { return None };
        let layer = u32::from_le_bytes(take(&mut part)?) as usize;
        if layer > self.0 {
            *self = Self(layer, Pieces::default());
        }
        let (page, bytes) = self.1.take(part).filter(|_| layer == self.0)?;
        cuckoo.load_page(layer, page, bytes).then_some(())
    }
}

/// Encodes the parts of a cut.
pub(super) struct Parts {
    cuckoo: Cuckoo,
    /// The layer and the pages to encode next; `None` before the head.
    next: Option<(usize, Pieces)>,
    part: Vec<u8>,
}

impl Parts {
    pub(super) fn of(cuckoo: Cuckoo) -> Self {
        Self { cuckoo, next: None, part: Vec::new() }
    }
}

impl Source for Parts {
    fn find(&mut self, looks: &mut usize) -> bool {
        let Some((layer, pieces)) = &mut self.next else { return true };
        self.cuckoo.layers().get(*layer).is_none_or(|bits| pieces.find(bits, looks))
    }

    fn next(&mut self) -> Option<Item<'_>> {
        let Some((layer, pieces)) = &mut self.next else {
            self.part = (!self.cuckoo.is_empty()).then(|| head(&self.cuckoo))?;
            self.next = Some(Default::default());
            return Some(Item::Single { name: &self.part, deadline_ms: None });
        };
        loop {
            let bits = self.cuckoo.layers().get(*layer)?;
            self.part.clear();
            self.part.push(b'p');
            self.part.extend_from_slice(&(*layer as u32).to_le_bytes());
            if pieces.next(bits, &mut self.part) {
                return Some(Item::Single { name: &self.part, deadline_ms: None });
            }
            (*layer, *pieces) = (*layer + 1, Pieces::default());
        }
    }

    fn rewind(&mut self) {
        self.next = None;
    }
}

/// The beginning of a dump: everything but the bytes of the buckets.
pub(super) fn outline(cuckoo: &Cuckoo) -> Vec<u8> {
    [MAGIC, &head(cuckoo)].concat()
}

/// The filter described by the first piece of a dump, with empty buckets.
pub(super) fn of_outline(bytes: &[u8]) -> Option<Cuckoo> {
    of_head(bytes.strip_prefix(MAGIC)?)
}

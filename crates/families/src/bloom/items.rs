//! The parts of a filter: in files, and in the first piece of a dump.
//!
//! ```text
//! h | growth: 4 | layers: 4                                       the chain; growth 0: one layer only
//! l | capacity: 8 | items: 8 | error: 8 | hashes: 4 | blocks: 8 | bytes of a block: 8      a layer
//! p | page: 8 | its bytes                                         of the preceding layer; others are zeros
//! ```

use crate::page_items::Pieces;
use darter_rdb::{Item, Source};
use darter_structs::filter::{Bloom, LAYERS_MAX, Layer, Shape};

const HEAD_BYTES: usize = 9;
const LAYER_BYTES: usize = 45;
/// The first bytes of a dump made by Darter.
const MAGIC: &[u8] = b"darter-bf1";

fn head(chain: &Bloom) -> Vec<u8> {
    let growth = chain.growth().unwrap_or(0);
    let layers = u32::try_from(chain.layers().len()).unwrap_or(u32::MAX);
    [&b"h"[..], &growth.to_le_bytes(), &layers.to_le_bytes()].concat()
}

fn of_layer(layer: &Layer) -> Vec<u8> {
    let Shape { hashes, blocks, block_bytes } = layer.shape();
    [
        &b"l"[..],
        &layer.capacity().to_le_bytes(),
        &layer.len().to_le_bytes(),
        &layer.error().to_le_bytes(),
        &hashes.to_le_bytes(),
        &blocks.to_le_bytes(),
        &block_bytes.to_le_bytes(),
    ]
    .concat()
}

/// Takes fields off the front of a part.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

/// The state of reading a filter from its parts.
#[derive(Clone, Default)]
pub(super) struct Building {
    /// Layers that have not been read yet.
    missing: u32,
    /// The pages of the last layer that may follow.
    taken: Pieces,
}

impl Building {
    pub(super) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Adds a part. Returns false if it cannot be the next part.
    pub(super) fn take(&mut self, chain: &mut Bloom, part: &[u8]) -> bool {
        let Some((tag, fields)) = part.split_first() else { return false };
        let mut fields = Fields(fields);
        let taken = match tag {
            b'h' if part.len() == HEAD_BYTES => self.take_head(chain, &mut fields),
            b'l' if part.len() == LAYER_BYTES => self.take_layer(chain, &mut fields),
            b'p' => self.take_page(chain, fields.0),
            _ => None,
        };
        taken.is_some()
    }

    fn take_head(&mut self, chain: &mut Bloom, fields: &mut Fields<'_>) -> Option<()> {
        let (growth, layers) = (fields.u32()?, fields.u32()?);
        let is_first = chain.is_empty() && self.missing == 0;
        let may = is_first && (1..=LAYERS_MAX as u32).contains(&layers);
        *chain = may.then(|| Bloom::bare(Some(growth).filter(|growth| *growth > 0)))?;
        self.missing = layers;
        Some(())
    }

    fn take_layer(&mut self, chain: &mut Bloom, fields: &mut Fields<'_>) -> Option<()> {
        self.missing = self.missing.checked_sub(1)?;
        let (capacity, len) = (fields.u64()?, fields.u64()?);
        let error = f64::from_le_bytes(fields.take()?);
        let shape =
            Shape { hashes: fields.u32()?, blocks: fields.u64()?, block_bytes: fields.u64()? };
        // Only the last layer of a chain has room.
        let is_in_order = self.missing == 0 || len == capacity;
        let layer = Layer::new(shape, (capacity, len), error).filter(|_| is_in_order)?;
        self.taken = Pieces::default();
        chain.push(layer).then_some(())
    }

    fn take_page(&mut self, chain: &mut Bloom, piece: &[u8]) -> Option<()> {
        let (page, bytes) = self.taken.take(piece)?;
        let last = chain.layers().len().checked_sub(1)?;
        chain.load_page(last, page, bytes).then_some(())
    }
}

/// Encodes the parts of a cut.
pub(super) struct Parts {
    chain: Bloom,
    next: Next,
    part: Vec<u8>,
}

/// The next part to encode.
enum Next {
    Head,
    Layer(usize),
    Pages(usize, Pieces),
}

impl Parts {
    pub(super) fn of(chain: Bloom) -> Self {
        Self { chain, next: Next::Head, part: Vec::new() }
    }
}

impl Source for Parts {
    fn find(&mut self, looks: &mut usize) -> bool {
        let Next::Pages(at, pieces) = &mut self.next else { return true };
        pieces.find(self.chain.layers()[*at].bits(), looks)
    }

    fn next(&mut self) -> Option<Item<'_>> {
        if let Next::Pages(at, pieces) = &mut self.next {
            self.part.clear();
            self.part.push(b'p');
            if pieces.next(self.chain.layers()[*at].bits(), &mut self.part) {
                return Some(Item::Single { name: &self.part, deadline_ms: None });
            }
            self.next = Next::Layer(*at + 1);
        }
        match self.next {
            Next::Layer(at) => {
                self.part = of_layer(self.chain.layers().get(at)?);
                self.next = Next::Pages(at, Pieces::default());
            }
            _ if self.chain.is_empty() => return None,
            _ => {
                self.part = head(&self.chain);
                self.next = Next::Layer(0);
            }
        }
        Some(Item::Single { name: &self.part, deadline_ms: None })
    }

    fn rewind(&mut self) {
        self.next = Next::Head;
    }
}

/// The first piece of a dump: everything but the bits.
pub(super) fn outline(chain: &Bloom) -> Vec<u8> {
    let layers = chain.layers().iter().flat_map(of_layer);
    [MAGIC, &head(chain)].concat().into_iter().chain(layers).collect()
}

/// The filter described by the first piece of a dump, without its bits.
pub(super) fn of_outline(bytes: &[u8]) -> Option<Bloom> {
    let (head, layers) = bytes.strip_prefix(MAGIC)?.split_at_checked(HEAD_BYTES)?;
    let (mut chain, mut building) = (Bloom::default(), Building::default());
    let parts = std::iter::once(head).chain(layers.chunks(LAYER_BYTES));
    let are_taken = parts.into_iter().all(|part| building.take(&mut chain, part));
    (are_taken && building.is_complete()).then_some(chain)
}

//! Redis's digest of values: equal for equal data, whatever the type and the encoding.
//!
//! By experiment: order matters to a *mix*, not to an *xor*. A string is mixed in; the digests of
//! the items of a collection, which have no order, are xored in. A pair's digest is that of the mix
//! of its name and its value.
//!
//! Not here: keys and databases. See `DEBUG DIGEST` in `server`.

use darter_base::score;
use darter_keyspace::Type;
use darter_rdb::{Item, Items, Piece, Source};
use sha1::{Digest, Sha1};

/// A digest, or the sum of several.
pub type Sum = [u8; 20];

/// The most items hashed in one step, and about the most bytes.
const ITEMS_AT_ONCE: usize = 16;
const BYTES_AT_ONCE: usize = 16 * 1024;

/// Adds `bytes` so that the order of calls does not matter.
pub fn xor(sum: &mut Sum, bytes: &[u8]) {
    xor_sum(sum, &of(bytes));
}

/// Adds `bytes` so that the order of calls matters.
pub fn mix(sum: &mut Sum, bytes: &[u8]) {
    mix_sum(sum, &of(bytes));
}

fn of(bytes: &[u8]) -> Sum {
    Sha1::digest(bytes).into()
}

/// Adds a sum so that the order of calls does not matter.
pub fn xor_sum(sum: &mut Sum, other: &Sum) {
    sum.iter_mut().zip(other).for_each(|(byte, other)| *byte ^= other);
}

fn mix_sum(sum: &mut Sum, other: &Sum) {
    xor_sum(sum, other);
    *sum = of(sum);
}

/// Adds a value to a sum, in portions.
pub struct Digester {
    items: Items,
    state: State,
}

/// The state of the hash.
struct State {
    kind: &'static Type,
    sum: Sum,
    /// The sum of the current pair.
    pair: Sum,
    /// The hash of a value that comes in parts, and its kind.
    parts: Sha1,
    open: Open,
}

/// The kind of item that the parts belong to.
#[derive(Clone, Copy)]
enum Open {
    /// The parts belong to no item: a string, or the end.
    Nothing,
    Single,
    Name,
    Value,
}

impl Digester {
    /// Adds the value of type `kind` that has these items to `sum`.
    #[must_use]
    pub fn new(mut sum: Sum, kind: &'static Type, items: Items) -> Self {
        mix(&mut sum, &u32::try_from(kind.number).unwrap_or(u32::MAX).to_be_bytes());
        let (pair, parts, open) = (Sum::default(), Sha1::new(), Open::Nothing);
        Self { items, state: State { kind, sum, pair, parts, open } }
    }

    /// Hashes some items. Returns the sum after the last one.
    pub fn step(&mut self) -> Option<Sum> {
        let (mut looks, mut bytes) = (ITEMS_AT_ONCE, 0);
        while looks > 0 && bytes < BYTES_AT_ONCE && self.items.find(&mut looks) {
            looks = looks.saturating_sub(1);
            let Some(item) = self.items.next() else { return Some(self.state.end()) };
            bytes += self.state.item(item);
        }
        None
    }
}

impl State {
    /// Hashes an item. Returns how many bytes were hashed.
    fn item(&mut self, item: Item<'_>) -> usize {
        if let Item::Part(bytes) | Item::Chunk(bytes) = item {
            self.parts.update(bytes);
            return bytes.len();
        }
        self.close();
        match item {
            Item::Single { name, .. } => {
                self.add(of(name));
                name.len()
            }
            Item::Pair { name, value, .. } => {
                self.begin_pair(name);
                self.end_pair(of(value));
                name.len() + value.len()
            }
            Item::Scored { name, score } => {
                self.begin_pair(name);
                self.end_pair(of(score::Text::new(score).as_bytes()));
                name.len()
            }
            Item::LongValued { name, .. } => {
                self.begin_pair(name);
                self.open = Open::Value;
                name.len()
            }
            Item::Value(value) => {
                self.end_pair(of(value));
                value.len()
            }
            Item::LongValue(_) => self.begin(Open::Value),
            Item::LongNamed { .. } => self.begin(Open::Name),
            Item::LongSingle { .. } => self.begin(Open::Single),
            Item::Piece(Piece::Entry { id, .. }) => {
                self.add(of(format!("{}.{}", id.ms, id.seq).as_bytes()));
                0
            }
            // Redis computes the digest of a stream from its entries only.
            Item::Piece(_) => 0,
            Item::Part(_) | Item::Chunk(_) => unreachable!("hashed above"),
        }
    }

    /// Begins an item whose parts follow.
    fn begin(&mut self, open: Open) -> usize {
        self.open = open;
        0
    }

    fn begin_pair(&mut self, name: &[u8]) {
        self.pair = Sum::default();
        mix(&mut self.pair, name);
    }

    fn end_pair(&mut self, value: Sum) {
        mix_sum(&mut self.pair, &value);
        self.add(of(&self.pair));
    }

    /// Ends a text that came in parts.
    fn close(&mut self) {
        let open = std::mem::replace(&mut self.open, Open::Nothing);
        if matches!(open, Open::Nothing) {
            return;
        }
        let whole: Sum = self.parts.finalize_reset().into();
        match open {
            Open::Nothing => {}
            Open::Single => self.add(whole),
            Open::Name => {
                self.pair = Sum::default();
                mix_sum(&mut self.pair, &whole);
            }
            Open::Value => self.end_pair(whole),
        }
    }

    fn add(&mut self, item: Sum) {
        if self.kind.is_ordered {
            mix_sum(&mut self.sum, &item);
        } else {
            xor_sum(&mut self.sum, &item);
        }
    }

    fn end(&mut self) -> Sum {
        self.close();
        if self.kind.rdb.is_text() {
            let whole = self.parts.finalize_reset().into();
            mix_sum(&mut self.sum, &whole);
        }
        self.sum
    }
}

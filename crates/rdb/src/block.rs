//! A packed collection handed over as a whole, to be taken apart elsewhere.
//!
//! Most values of a file are small collections, each one block of bytes. To find an item in it, to
//! send it to its core and to find it again there would cost more than to insert it. So a reader that
//! was asked to ([`Reader::with_blocks`](crate::Reader::with_blocks)) reports the block, and whoever
//! has the collection walks through it.
//!
//! Not here: the bytes of a block. See `blob`.

use crate::blob::{Entry, Form};
use crate::error::{Error, Reason};
use crate::items::Item;
use darter_base::number::{I64_TEXT_MAX, i64_text};

/// The largest block that is handed over.
pub(crate) const BLOCK_BYTES_MAX: usize = 32 * 1024;

/// What is known of a block besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHead {
    pub(crate) form: Form,
    /// Entries that make one item: 1 a single, 2 name and value.
    pub(crate) arity: u8,
    /// It was compressed: faults are reported where it began, as no byte of the file is at fault.
    pub(crate) was_packed: bool,
    /// Where the block is in the file.
    pub(crate) offset: u64,
    /// How many entries its head announces.
    pub(crate) announced: u64,
}

/// A packed collection, or a part of a list. It is untrusted: each item is checked on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// What is known of it.
    pub head: BlockHead,
    /// The bytes that came with this head.
    pub bytes: &'a [u8],
}

/// How far a block was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockPlace {
    /// The next entry, from the block's start; 0 at first.
    at: usize,
    taken: u64,
}

/// Where integers become texts.
pub struct IntTexts([[u8; I64_TEXT_MAX]; 2]);

impl IntTexts {
    /// Room for those of one item.
    #[must_use]
    pub const fn new() -> Self {
        Self([[0; I64_TEXT_MAX]; 2])
    }
}

impl Default for IntTexts {
    fn default() -> Self {
        Self::new()
    }
}

impl BlockHead {
    /// Items that the block announces. Untrusted.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.announced / u64::from(self.arity)
    }
}

/// An item of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BlockItem<'a> {
    /// A name alone, which is the decimal text of this number.
    Number(i64),
    /// Any other.
    Item(Item<'a>),
}

impl<'a> Block<'a> {
    /// The item at `place`, which advances; `None` at the end.
    ///
    /// # Errors
    /// The block contradicts itself.
    #[inline]
    pub fn next<'t>(
        &self,
        place: &mut BlockPlace,
        texts: &'t mut IntTexts,
    ) -> Result<Option<Item<'t>>, Error>
    where
        'a: 't,
    {
        Ok(self.entries(place)?.map(|entries| self.item(entries, texts)))
    }

    /// [`Block::next`], which leaves it a number where that is the whole item.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn next_number<'t>(
        &self,
        place: &mut BlockPlace,
        texts: &'t mut IntTexts,
    ) -> Result<Option<BlockItem<'t>>, Error>
    where
        'a: 't,
    {
        Ok(self.entries(place)?.map(|entries| match entries {
            (Entry::Int(number), None) => BlockItem::Number(number),
            entries => BlockItem::Item(self.item(entries, texts)),
        }))
    }

    /// The entries of the item at `place`, which advances.
    #[inline]
    fn entries(&self, place: &mut BlockPlace) -> Result<Option<(Entry, Option<Entry>)>, Error> {
        if place.at == 0 {
            place.at = self.head.form.first();
        }
        let Some(name) = self.entry(place)? else {
            return match place.taken == self.head.announced {
                true => Ok(None),
                false => Err(self.fault(*place, "its count differs from its entries")),
            };
        };
        if self.head.arity == 1 {
            return Ok(Some((name, None)));
        }
        match self.entry(place)? {
            None => Err(self.fault(*place, "a field without a value")),
            value => Ok(Some((name, value))),
        }
    }

    #[inline]
    fn item<'t>(&self, entries: (Entry, Option<Entry>), texts: &'t mut IntTexts) -> Item<'t>
    where
        'a: 't,
    {
        let ([first, second], deadline_ms) = (&mut texts.0, None);
        let name = self.text(entries.0, first);
        match entries.1 {
            None => Item::Single { name, deadline_ms },
            Some(value) => Item::Pair { name, value: self.text(value, second), deadline_ms },
        }
    }

    #[inline]
    fn entry(&self, place: &mut BlockPlace) -> Result<Option<Entry>, Error> {
        match self.head.form.entry(self.bytes, place.at, place.taken) {
            Ok(None) => Ok(None),
            Ok(Some((entry, next))) => {
                (place.at, place.taken) = (next, place.taken + 1);
                Ok(Some(entry))
            }
            Err(fault) => Err(self.fault(*place, fault)),
        }
    }

    #[inline]
    fn text<'t>(&self, entry: Entry, text: &'t mut [u8; I64_TEXT_MAX]) -> &'t [u8]
    where
        'a: 't,
    {
        match entry {
            Entry::Text { start, len } => &self.bytes[start..start + len],
            Entry::Int(value) => i64_text(text, value),
        }
    }

    #[cold]
    fn fault(&self, place: BlockPlace, fault: &'static str) -> Error {
        let behind = if self.head.was_packed { 0 } else { place.at as u64 };
        let reason = Reason::Blob { form: self.head.form.name(), fault };
        Error { offset: self.head.offset + behind, reason }
    }
}

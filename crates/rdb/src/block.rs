//! A packed collection that the reader reports whole, for its owner to unpack.
//!
//! Most values of a file are small collections, each one block of bytes. Finding each item, sending
//! it to its core and looking up its collection again would cost more than inserting it. So a
//! reader with [`Reader::with_blocks`](crate::Reader::with_blocks) reports the block, and the owner
//! of the collection walks through it.
//!
//! Not here: the bytes of a block. See `blob`.

use crate::blob::{Entry, Form};
use crate::error::{Error, Reason};
use crate::items::Item;
use darter_base::number::{I64_TEXT_MAX, i64_text};

/// The largest block that is reported whole.
pub(crate) const BLOCK_BYTES_MAX: usize = 32 * 1024;

/// The facts about a block, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHead {
    pub(crate) form: Form,
    /// Entries per item: 1 for a single, 2 for a name and value.
    pub(crate) arity: u8,
    /// Whether the block was compressed. Then errors are reported at its start, because its bytes
    /// have no place in the file.
    pub(crate) was_packed: bool,
    /// The place of the block in the file.
    pub(crate) offset: u64,
    /// The number of entries that its header announces.
    pub(crate) announced: u64,
}

/// A packed collection, or a part of a list. Untrusted: each item is checked when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// The facts about the block.
    pub head: BlockHead,
    /// The bytes of the block.
    pub bytes: &'a [u8],
}

/// A position in a block that is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockPlace {
    /// The offset of the next entry in the block; 0 at first.
    at: usize,
    taken: u64,
}

/// The buffers in which integers become texts.
pub struct IntTexts([[u8; I64_TEXT_MAX]; 2]);

impl IntTexts {
    /// Buffers for the integers of one item.
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

impl<'a> Block<'a> {
    /// The item at `place`, which advances; `None` at the end.
    ///
    /// # Errors
    /// The block is invalid.
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

    /// Reads consecutive items from `place` on that are single integers, as many as `numbers`
    /// holds. An integer stands for its decimal text. Returns their number; `place` advances. The
    /// next item, valid or not, is left to [`Block::next`].
    #[inline]
    pub fn next_numbers(&self, place: &mut BlockPlace, numbers: &mut [i64]) -> usize {
        self.next_in_row(place, numbers, |form, at| form.number(self.bytes, at))
    }

    /// As [`Block::next_numbers`], for consecutive items that are single texts.
    #[inline]
    pub fn next_texts(&self, place: &mut BlockPlace, texts: &mut [&'a [u8]]) -> usize {
        self.next_in_row(place, texts, |form, at| form.text(self.bytes, at))
    }

    /// Reads consecutive single items with `read`, which returns an item and the offset of the
    /// next, or `None` for an item of another kind.
    #[inline]
    fn next_in_row<T>(
        &self,
        place: &mut BlockPlace,
        items: &mut [T],
        read: impl Fn(&Form, usize) -> Option<(T, usize)>,
    ) -> usize {
        if self.head.arity != 1 {
            return 0;
        }
        let form = &self.head.form;
        let mut at = if place.at == 0 { form.first() } else { place.at };
        let mut count = 0;
        for item in items {
            let Some((found, next)) = read(form, at) else { break };
            (*item, at, count) = (found, next, count + 1);
        }
        (place.at, place.taken) = (at, place.taken + count as u64);
        count
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode;
    use darter_base::Prng;

    /// A listpack of these texts, and its head.
    fn listpack(texts: &[Vec<u8>]) -> (BlockHead, Vec<u8>) {
        let mut entries = Vec::new();
        texts.iter().for_each(|text| encode::listpack_text(&mut entries, text));
        let size = encode::LISTPACK_FRAME_BYTES as u32 + entries.len() as u32;
        let mut bytes = [&size.to_le_bytes()[..], &(texts.len() as u16).to_le_bytes()].concat();
        bytes.append(&mut entries);
        bytes.push(0xff);
        let (form, announced) = (Form::Listpack, texts.len() as u64);
        (BlockHead { form, arity: 1, was_packed: false, offset: 0, announced }, bytes)
    }

    /// The texts of a block, read at most `most` at a time; `None` if it is invalid.
    fn texts_of(block: &Block<'_>, most: usize) -> Option<Vec<Vec<u8>>> {
        let (mut place, mut texts, mut numbers) = (BlockPlace::default(), Vec::new(), [0; 16]);
        loop {
            let count = block.next_numbers(&mut place, &mut numbers[..most]);
            texts.extend(numbers[..count].iter().map(|number| number.to_string().into_bytes()));
            let mut some = [&[][..]; 16];
            let count = block.next_texts(&mut place, &mut some[..most]);
            texts.extend(some[..count].iter().map(|text| text.to_vec()));
            match block.next(&mut place, &mut IntTexts::new()) {
                Ok(Some(Item::Single { name, .. })) => texts.push(name.to_vec()),
                Ok(Some(item)) => unreachable!("{item:?} of one entry"),
                Ok(None) => return Some(texts),
                Err(_) => return None,
            }
        }
    }

    #[test] // With the same errors.
    fn reading_several_items_equals_reading_single_ones() {
        let mut prng = Prng::from_seed(7);
        for _ in 0..2_000 {
            let texts: Vec<_> = (0..prng.below(60))
                .map(|_| match prng.below(6) {
                    0..=2 => prng.bytes(0..=80),
                    _ => (prng.next_u64().cast_signed() >> prng.below(64)).to_string().into_bytes(),
                })
                .collect();
            let (head, mut bytes) = listpack(&texts);
            for most in [0, 1, 5, 16] {
                let block = Block { head, bytes: &bytes };
                assert_eq!(texts_of(&block, most).as_ref(), Some(&texts), "{most}");
            }
            let at = 6 + prng.below(bytes.len() as u64 - 6) as usize;
            bytes[at] ^= 1 << prng.below(8);
            let block = Block { head, bytes: &bytes };
            assert_eq!(texts_of(&block, 16), texts_of(&block, 0), "{at} of {bytes:?}");
        }
    }
}

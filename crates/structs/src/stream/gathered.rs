//! An entry that comes value by value, with names that it shares with those before it.
//!
//! Files and payloads name the fields of a block of entries once. If each entry were made into a list
//! of names and values first, that list would be most of what it costs to load it.

use super::item::{Code, FIELDS_MAX, Form};
use super::run::Fields;
use super::{Entries, List, NewElement, Run, StreamId, push_coded};

/// See the module.
#[derive(Clone, Default)]
pub struct Gathered {
    /// Encoded, as are the values.
    names: Run,
    pairs: usize,
    values: Run,
    len: usize,
}

impl Gathered {
    /// A gathering for entries with these names. `None` if they cannot be a shape.
    #[must_use]
    pub fn of(names: &List) -> Option<Self> {
        let mut gathered = Self { pairs: names.len(), ..Self::default() };
        if names.is_empty() || names.memory_bytes() > 4 * FIELDS_MAX {
            return None;
        }
        for name in names.range(0..names.len()) {
            if !push_coded(&mut gathered.names, NewElement::Bytes(&name.to_vec())) {
                return None;
            }
        }
        Some(gathered)
    }

    /// Adds the next value. False if it is too long to be kept among the entries with those before it.
    #[must_use]
    pub fn push(&mut self, value: &[u8]) -> bool {
        debug_assert!(self.len < self.pairs, "{} values to as many names", self.len);
        let fits = push_coded(&mut self.values, NewElement::Bytes(value));
        self.len += usize::from(fits);
        fits
    }

    /// True when there is a value to each name.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.len == self.pairs
    }

    /// The values so far.
    #[must_use]
    pub fn values(&self) -> Fields<'_> {
        Fields::of(&self.values)
    }

    /// Forgets the values.
    pub fn clear(&mut self) {
        self.values.clear();
        self.len = 0;
    }
}

impl Entries {
    /// [`Entries::append`] of an entry that is whole. False if its names can be no shape, as all
    /// numbers are taken: then nothing changes.
    #[must_use]
    pub fn append_gathered(&mut self, id: StreamId, entry: &Gathered) -> bool {
        assert!(entry.is_whole(), "{} values to {} names", entry.len, entry.pairs);
        let first = self.first().unwrap_or(id);
        let Some(shape) = self.shapes.take(&entry.names, entry.pairs, id, first) else {
            return false;
        };
        self.push(id, |id| Code::of(id, Form::Shape(shape), &entry.values));
        true
    }
}

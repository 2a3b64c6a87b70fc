//! An entry that arrives value by value, with field names shared with earlier entries.
//!
//! Files and payloads name the fields of a block of entries once. Building a list of names and
//! values for each entry first would be most of the cost of loading it.

use super::item::{Code, FIELDS_MAX, Form};
use super::run::Fields;
use super::{Entries, List, NewElement, Run, StreamId, push_coded};

/// The values collected so far; see the module's documentation.
#[derive(Clone, Default)]
pub struct Gathered {
    /// The encoded names; the values are encoded, too.
    names: Run,
    pairs: usize,
    values: Run,
    len: usize,
}

impl Gathered {
    /// Starts collecting entries with these names. `None` if they cannot be a shape.
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

    /// Adds the next value. Returns false if it is too long to be stored among the entries,
    /// together with the earlier ones.
    #[must_use]
    pub fn push(&mut self, value: &[u8]) -> bool {
        debug_assert!(self.len < self.pairs, "{} values to as many names", self.len);
        let fits = push_coded(&mut self.values, NewElement::Bytes(value));
        self.len += usize::from(fits);
        fits
    }

    /// True if there is a value for each name.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.len == self.pairs
    }

    /// The values so far.
    #[must_use]
    pub fn values(&self) -> Fields<'_> {
        Fields::of(&self.values)
    }

    /// Removes the values.
    pub fn clear(&mut self) {
        self.values.clear();
        self.len = 0;
    }
}

impl Entries {
    /// [`Entries::append`] for a complete entry. Returns false, without a change, if its names
    /// cannot be a shape because no number is free.
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

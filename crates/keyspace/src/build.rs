//! Builds a value from its items on the side, for the loader and for RESTORE.
//!
//! Most values take their items one by one. Some types gather very many items first and then sort
//! them all together ([`Value::builder`](crate::Value::builder)): each item's position is found
//! once, among the final items.

use crate::object::{Object, Type};
use crate::{Ahead, NewItem};
use darter_base::number::{I64_TEXT_MAX, i64_text};

/// Gathers very many items of a value, and then sorts them in portions.
pub trait Build: Send {
    /// Adds the next item. Returns false if it is not an item of this type: the builder must then
    /// be dropped. [`Build::step`] reports a repeated item.
    fn take_in(&mut self, item: NewItem<'_>) -> bool;

    /// Adds the next items, which are names alone: equal to [`Build::take_in`] of the decimal text
    /// of each.
    fn take_numbers(&mut self, numbers: &[i64]) -> bool {
        let mut text = [0; I64_TEXT_MAX];
        numbers.iter().all(|number| {
            self.take_in(NewItem::Single { name: i64_text(&mut text, *number), deadline: None })
        })
    }

    /// Adds the next items, which are names alone: equal to [`Build::take_in`] of each.
    fn take_names(&mut self, names: &[&[u8]]) -> bool {
        names.iter().all(|name| self.take_in(NewItem::Single { name, deadline: None }))
    }

    /// Does a portion of the work after all items have been added. Returns true while some is left.
    /// Cost: a portion.
    ///
    /// # Errors
    /// An item was added twice: the builder must then be dropped.
    fn step(&mut self) -> Result<bool, Twice>;

    /// Returns the value, once no work is left.
    fn finish(self: Box<Self>) -> Object;
}

/// The error that an item of a value was added twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twice;

/// A value that is being built: see the module.
pub struct Building {
    value: Object,
    /// The builder that stands in place of the value until the value is complete.
    builder: Option<Box<dyn Build>>,
}

impl Building {
    /// Begins a value of this type without items. About `items` items will be added.
    #[must_use]
    pub fn new(row: &Type, items: u64) -> Self {
        let value = (row.empty)();
        let builder = value.builder(items);
        Self { value, builder }
    }

    /// Adds the next item. Returns false if it is not an item of this type, or is found to be a
    /// repetition: the value must then be dropped.
    #[inline]
    pub fn take_in(&mut self, item: NewItem<'_>) -> bool {
        match &mut self.builder {
            Some(builder) => builder.take_in(item),
            None => self.value.face_mut().take_in(item),
        }
    }

    /// Adds the next items, which are numbers: equal to [`Building::take_in`] of the decimal text
    /// of each.
    pub fn take_numbers(&mut self, numbers: &[i64]) -> bool {
        match &mut self.builder {
            Some(builder) => builder.take_numbers(numbers),
            None => self.value.face_mut().take_numbers(numbers),
        }
    }

    /// Adds the next items, which are names alone: equal to [`Building::take_in`] of each.
    pub fn take_names(&mut self, names: &[&[u8]]) -> bool {
        match &mut self.builder {
            Some(builder) => builder.take_names(names),
            None => self.value.face_mut().take_names(names),
        }
    }

    /// Adds all items of a value that has no items yet:
    /// [`Value::take_all`](crate::Value::take_all).
    pub fn take_all(&mut self, items: &[NewItem<'_>]) -> bool {
        match &mut self.builder {
            Some(builder) => items.iter().all(|item| builder.take_in(*item)),
            None => self.value.face_mut().take_all(items),
        }
    }

    /// Does a portion of the work left after all items have been added. Returns true while more is.
    ///
    /// # Errors
    /// An item was added twice: the value must then be dropped.
    pub fn step(&mut self) -> Result<bool, Twice> {
        let Some(builder) = &mut self.builder else { return Ok(false) };
        if builder.step()? {
            return Ok(true);
        }
        if let Some(builder) = self.builder.take() {
            self.value = builder.finish();
        }
        Ok(false)
    }

    /// Whether the value is valid with the items it has. False if it needs more of them.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.value.is_complete()
    }

    /// Whether the value is packed or its items are still being gathered: then nothing needs
    /// prefetching, and an item costs little.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.builder.is_some() || self.value.packed().is_some()
    }

    /// The value's entries, if it is worth prefetching some.
    #[must_use]
    pub fn ahead(&self) -> Option<&dyn Ahead> {
        if self.builder.is_some() { None } else { self.value.ahead() }
    }

    /// Returns the value, once no work is left.
    #[must_use]
    pub fn finish(self) -> Object {
        debug_assert!(self.builder.is_none(), "work is left");
        self.value
    }
}

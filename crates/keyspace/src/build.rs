//! A value built from its items, aside: by the loader, and by RESTORE.
//!
//! Most values take their items one by one. Some types rather gather very many items and then put
//! them in order together ([`Value::builder`](crate::Value::builder)): the place of each is found
//! once, among the final items.

use crate::object::{Object, Type};
use crate::{Ahead, NewItem};
use darter_base::number::{I64_TEXT_MAX, i64_text};

/// Gathers very many items of a value, and puts them in order in portions.
pub trait Build: Send {
    /// Adds the next item. False when it is not an item of this type: then the builder is of no
    /// use. A repeated item is reported by [`Build::step`].
    fn take_in(&mut self, item: NewItem<'_>) -> bool;

    /// Adds the next items, names alone: as [`Build::take_in`] of the decimal text of each.
    fn take_numbers(&mut self, numbers: &[i64]) -> bool {
        let mut text = [0; I64_TEXT_MAX];
        numbers.iter().all(|number| {
            self.take_in(NewItem::Single { name: i64_text(&mut text, *number), deadline: None })
        })
    }

    /// Adds the next items, names alone: as [`Build::take_in`] of each.
    fn take_names(&mut self, names: &[&[u8]]) -> bool {
        names.iter().all(|name| self.take_in(NewItem::Single { name, deadline: None }))
    }

    /// Does a portion of the work, once all items are in. True while some is left. Cost: a portion.
    ///
    /// # Errors
    /// An item came twice: then the builder is of no use.
    fn step(&mut self) -> Result<bool, Twice>;

    /// The value, once no work is left.
    fn finish(self: Box<Self>) -> Object;
}

/// An item of a value came twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twice;

/// See the module.
pub struct Building {
    value: Object,
    /// Instead of the value, until that is complete.
    builder: Option<Box<dyn Build>>,
}

impl Building {
    /// A value of this type without items; about `items` will come.
    #[must_use]
    pub fn new(row: &Type, items: u64) -> Self {
        let value = (row.empty)();
        let builder = value.builder(items);
        Self { value, builder }
    }

    /// Adds the next item. False when it is not an item of this type, or was found to be there: then
    /// the value is of no use.
    #[inline]
    pub fn take_in(&mut self, item: NewItem<'_>) -> bool {
        match &mut self.builder {
            Some(builder) => builder.take_in(item),
            None => self.value.face_mut().take_in(item),
        }
    }

    /// Adds the next items, numbers: as [`Building::take_in`] of the decimal text of each.
    pub fn take_numbers(&mut self, numbers: &[i64]) -> bool {
        match &mut self.builder {
            Some(builder) => builder.take_numbers(numbers),
            None => self.value.face_mut().take_numbers(numbers),
        }
    }

    /// Adds the next items, names alone: as [`Building::take_in`] of each.
    pub fn take_names(&mut self, names: &[&[u8]]) -> bool {
        match &mut self.builder {
            Some(builder) => builder.take_names(names),
            None => self.value.face_mut().take_names(names),
        }
    }

    /// Adds all items of a value that has none yet: [`Value::take_all`](crate::Value::take_all).
    pub fn take_all(&mut self, items: &[NewItem<'_>]) -> bool {
        match &mut self.builder {
            Some(builder) => items.iter().all(|item| builder.take_in(*item)),
            None => self.value.face_mut().take_all(items),
        }
    }

    /// Does a portion of the work that is left once all items are in. True while more is.
    ///
    /// # Errors
    /// An item came twice: then the value is of no use.
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

    /// False for a value that needs more items to be one.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.value.is_complete()
    }

    /// True while the value is packed, or its items are gathered: nothing is far away, and an item
    /// costs little.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.builder.is_some() || self.value.packed().is_some()
    }

    /// The value's entries, if it is worth prefetching some.
    #[must_use]
    pub fn ahead(&self) -> Option<&dyn Ahead> {
        if self.builder.is_some() { None } else { self.value.ahead() }
    }

    /// The value, once no work is left.
    #[must_use]
    pub fn finish(self) -> Object {
        debug_assert!(self.builder.is_none(), "work is left");
        self.value
    }
}

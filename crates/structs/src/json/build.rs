//! Building a document from its tokens, in order: by a parser of text, or from a file.

use super::value::{JsonText, Value, View};

/// A token of a document, in the order of its text.
#[derive(Clone, Copy, Debug)]
pub enum Token<'a> {
    /// The name of a member, before its value.
    Name(JsonText<'a>),
    /// A value that is no array and no object.
    Scalar(View<'a>),
    /// An array or an object begins.
    Open {
        /// An object.
        is_object: bool,
        /// How many values it has, where that is known.
        len: usize,
    },
    /// The container ends.
    Close,
    /// A long text begins; its bytes follow.
    Long {
        /// The string is the name of a member.
        is_name: bool,
        /// Bytes.
        len: usize,
    },
    /// A part of a long text.
    Part(&'a [u8]),
    /// The string ends.
    EndLong,
}

/// A document, as far as its tokens have come.
#[derive(Clone, Debug, Default)]
pub struct JsonBuilder {
    /// Arrays and objects that are open, each with the name of the member that it is or will have.
    open: Vec<(Value, Option<Name>)>,
    done: Option<Value>,
    name: Option<Name>,
    values: usize,
}

#[derive(Clone, Debug)]
struct Name(Value);

impl Name {
    fn text(&self) -> JsonText<'_> {
        match self.0.view() {
            View::Text(text) => text,
            _ => unreachable!("a name is a text"),
        }
    }
}

impl JsonBuilder {
    /// Arrays and objects that are open.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.open.len()
    }

    /// Values so far.
    #[must_use]
    pub fn values(&self) -> usize {
        self.values
    }

    /// Bytes of memory, about.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let name = |name: &Option<Name>| name.as_ref().map_or(0, |name| name.0.memory_bytes());
        let open = self.open.iter().map(|(value, of)| value.memory_bytes() + name(of));
        let done = self.done.as_ref().map_or(0, Value::memory_bytes);
        done + name(&self.name) + open.sum::<usize>()
    }

    /// True when a value may come next, or the end of an array.
    fn wants_value(&self) -> bool {
        let is_in_object = self.is_in_object().unwrap_or(false);
        is_in_object == self.name.is_some() && self.done.is_none()
    }

    fn is_in_object(&self) -> Option<bool> {
        let (open, _) = self.open.last()?;
        open.node().map(super::Node::is_object)
    }

    /// The name of the next member. False if none may follow here.
    pub fn name(&mut self, name: JsonText<'_>) -> bool {
        let is_wanted = self.is_in_object() == Some(true) && self.name.is_none();
        if is_wanted {
            self.name = Some(Name(Value::text(name)));
        }
        is_wanted
    }

    /// The next value. False if none may follow here.
    pub fn value(&mut self, value: Value) -> bool {
        if !self.wants_value() {
            return false;
        }
        self.values += 1;
        debug_assert!(self.done.is_none(), "what is done holds all");
        let name = self.name.take();
        self.add(value, name);
        true
    }

    fn add(&mut self, value: Value, name: Option<Name>) {
        match (self.open.last_mut(), name) {
            (None, _) => self.done = Some(value),
            (Some((object, _)), Some(name)) => object.put(name.text(), &value),
            (Some((array, _)), None) => array.push(&value),
        }
    }

    /// An array or an object begins. False if none may.
    pub fn open(&mut self, is_object: bool) -> bool {
        if !self.wants_value() {
            return false;
        }
        self.values += 1;
        self.open.push((Value::empty(is_object), self.name.take()));
        true
    }

    /// Ends the container. False if that may not be.
    pub fn close(&mut self) -> bool {
        if self.name.is_some() {
            return false;
        }
        let Some((value, name)) = self.open.pop() else { return false };
        debug_assert!(value.node().is_some(), "only containers are open");
        debug_assert!(self.done.is_none(), "what is done holds all");
        self.add(value, name);
        true
    }

    /// The document, if it is complete.
    #[must_use]
    pub fn finish(self) -> Option<Value> {
        self.done
    }

    /// True when the document is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done.is_some()
    }
}

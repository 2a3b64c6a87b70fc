//! A value that was taken or copied from its key, to be stored at another.

use crate::effect::Source;
use crate::object::kind;
use crate::object::{Object, Type, Typed};
use crate::text::StrPieces;

/// A value on its way from one key to another, perhaps on another core. Holding it is a cut.
#[derive(Clone)]
pub struct Held {
    /// The value.
    pub value: HeldValue,
    /// Its deadline.
    pub deadline: Option<u64>,
    pub(crate) bits: u8,
    /// The stamp of a value that was taken: its access time moves with it. `None` for a copy.
    pub(crate) stamp: Option<u32>,
    /// The key that it comes from, if readers of the log may use that instead of the value.
    pub(crate) source: Option<Box<Source>>,
}

/// The value of a [`Held`].
#[derive(Clone)]
pub enum HeldValue {
    /// A short string.
    Text(Vec<u8>),
    /// Anything out of line.
    Object(Object),
}

impl Held {
    /// The type.
    #[must_use]
    pub fn kind(&self) -> &'static Type {
        kind(self.object())
    }

    /// The value, if it is a `V`.
    #[must_use]
    pub fn get<V: Typed>(&self) -> Option<&V> {
        self.object()?.get()
    }

    fn object(&self) -> Option<&Object> {
        if let HeldValue::Object(object) = &self.value { Some(object) } else { None }
    }

    /// The string, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<StrPieces> {
        match &self.value {
            HeldValue::Text(bytes) => Some(StrPieces::Bytes(bytes.clone())),
            HeldValue::Object(object) => object.get().cloned().map(StrPieces::Blob),
        }
    }
}

//! The events of a key, by the names that Redis uses in keyspace notifications.
//!
//! An event is recorded together with the effect, once per key and command, where the change is
//! made. So each method of the database or of a type's editor has a default event, and a command
//! with another event passes that. The events of a type are in the type's folder.
//!
//! Not here: subscribers, and channels.

use std::fmt;

/// A keyspace event; see the module's documentation.
#[derive(PartialEq, Eq)]
pub struct Event {
    /// The published name.
    pub name: &'static str,
    /// The letter of its class in `notify-keyspace-events`.
    pub class: u8,
}

impl Event {
    /// An event of a class.
    #[must_use]
    pub const fn new(name: &'static str, class: u8) -> Self {
        assert!(!name.is_empty(), "an event without a name");
        assert!(is_class(class), "no class of events");
        Self { name, class }
    }
}

/// True if the letter of `notify-keyspace-events` denotes a class.
const fn is_class(letter: u8) -> bool {
    matches!(
        letter,
        b'g' | b'$' | b'l' | b's' | b'h' | b'z' | b't' | b'x' | b'e' | b'd' | b'm' | b'n'
    )
}

impl fmt::Debug for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}

/// The previous value of a key that is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replaced {
    Nothing,
    /// A value that had expired.
    Dead,
    Living,
}

/// A list of events, in order.
pub type Tells<'a> = &'a [&'static Event];

#[rustfmt::skip] // A table.
#[expect(missing_docs, reason = "the names are Redis's own, in capitals")]
mod names {
    use super::Event;

    pub const NEW: &Event         = &Event::new("new", b'n');
    pub const KEYMISS: &Event     = &Event::new("keymiss", b'm');
    pub const DEL: &Event         = &Event::new("del", b'g');
    pub const EXPIRE: &Event      = &Event::new("expire", b'g');
    pub const PERSIST: &Event     = &Event::new("persist", b'g');
    pub const EXPIRED: &Event     = &Event::new("expired", b'x');
    pub const SET: &Event         = &Event::new("set", b'$');
    pub const APPEND: &Event      = &Event::new("append", b'$');
    pub const SETRANGE: &Event    = &Event::new("setrange", b'$');
    pub const INCRBY: &Event      = &Event::new("incrby", b'$');
    pub const INCRBYFLOAT: &Event = &Event::new("incrbyfloat", b'$');
}

pub use names::*;

/// The events of one change of one key: each once, in order.
#[derive(Clone, Copy, Default)]
pub struct Events([Option<&'static Event>; Events::MAX]);

impl Events {
    /// The most events of one change: the old value had expired, the key is new, the change itself,
    /// a deadline is set.
    const MAX: usize = 4;

    /// Adds an event at the end. Returns false if it is in the list already.
    pub(crate) fn add(&mut self, event: &'static Event) -> bool {
        if self.iter().any(|other| other == event) {
            return false;
        }
        let free = self.0.iter_mut().find(|place| place.is_none());
        *free.expect("no change tells more") = Some(event);
        true
    }

    /// These events, preceded by the events of overwriting `replaced`.
    pub(crate) fn of_put(self, replaced: Replaced) -> Self {
        let first: Tells<'_> = match replaced {
            Replaced::Living => &[],
            Replaced::Dead => &[EXPIRED, NEW],
            Replaced::Nothing => &[NEW],
        };
        let mut all = Self::default();
        first.iter().copied().chain(self.iter()).for_each(|event| _ = all.add(event));
        all
    }

    /// The events in order.
    pub fn iter(&self) -> impl Iterator<Item = &'static Event> {
        self.0.into_iter().flatten()
    }
}

impl From<Tells<'_>> for Events {
    fn from(events: Tells<'_>) -> Self {
        let mut all = Self::default();
        events.iter().for_each(|event| _ = all.add(event));
        all
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.iter()).finish()
    }
}

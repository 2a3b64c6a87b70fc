//! A whole value as commands: RESTORE of its payload, or commands of its type.
//!
//! A payload is loaded in one step, so a large value is sent in many short commands, if its type has
//! them ([`Value::rebuild`](crate::Value::rebuild)). They are written in portions from a cut.

use super::commands::{Commands, ITEMS_MAX, expire};
use crate::object::Object;
use crate::text::StrPieces;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_rdb::dump::Dumper;
use darter_rdb::{Item, Items, Source};
use darter_structs::blob::Blob;
use std::ops::Range;

/// Values of at most this many bytes are sent as a payload.
const PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes in one portion of output.
pub const PORTION_BYTES: usize = 64 * 1024;
/// A time before every deadline.
pub const NOTHING_IS_DEAD: u64 = 0;

/// Commands that add everything to a value that is absent.
pub trait Parts: Send {
    /// Writes the next commands, about [`PORTION_BYTES`] of them. Returns true while more are left.
    fn step(&mut self, key: &[u8], to: &mut Commands) -> bool;
}

/// A value that is being written.
pub(crate) struct Rebuild {
    how: How,
    deadline: Option<u64>,
}

enum How {
    /// SET.
    Text(StrPieces),
    /// RESTORE, whose payload is being measured.
    Measure(Dumper<Items>),
    /// RESTORE, whose payload is being written.
    Payload(Dumper<Items>),
    /// UNLINK, the value's own commands, PEXPIREAT.
    Unlink(Box<dyn Parts>),
    Parts(Box<dyn Parts>),
}

/// Starts writing a value with this deadline.
pub(crate) fn start(object: &Object, deadline: Option<u64>) -> Rebuild {
    let how = if let Some(blob) = object.get::<Blob>() {
        How::Text(StrPieces::Blob(blob.clone()))
    } else if object.content_bytes() > PAYLOAD_BYTES_MAX
        && let Some(parts) = object.rebuild()
    {
        How::Unlink(parts)
    } else {
        How::Measure(Dumper::new(object.items(NOTHING_IS_DEAD), object.row().rdb))
    };
    Rebuild { how, deadline }
}

impl Rebuild {
    /// Writes the next portion. Returns true while more is left.
    pub(crate) fn step(&mut self, key: &[u8], to: &mut Commands) -> bool {
        match &mut self.how {
            How::Text(text) => super::commands::set(key, text, self.deadline, to),
            How::Measure(dumper) => {
                let Some(bytes) = dumper.survey(ENTRIES_AT_ONCE) else { return true };
                assert!(bytes > 0, "a payload has a version and a checksum");
                to.begin(if self.deadline.is_some() { 6 } else { 5 });
                to.word(b"RESTORE");
                to.word(key);
                to.natural(self.deadline.unwrap_or(0));
                to.open(bytes);
                return self.advance(key, to);
            }
            How::Payload(dumper) => {
                if !to.fill(|tail| dumper.fill(tail, PORTION_BYTES)) {
                    return true;
                }
                to.word(b"REPLACE");
                if self.deadline.is_some() {
                    to.word(b"ABSTTL");
                }
            }
            How::Unlink(_) => {
                to.command(&[b"UNLINK", key]);
                return self.advance(key, to);
            }
            How::Parts(parts) => {
                if parts.step(key, to) {
                    return true;
                }
                if self.deadline.is_some() {
                    expire(key, self.deadline, to);
                }
            }
        }
        false
    }

    /// Goes on to what follows a header, and writes its first portion.
    fn advance(&mut self, key: &[u8], to: &mut Commands) -> bool {
        let nothing = How::Text(StrPieces::Bytes(Vec::new()));
        self.how = match std::mem::replace(&mut self.how, nothing) {
            How::Measure(dumper) => How::Payload(dumper),
            How::Unlink(parts) => How::Parts(parts),
            how => how,
        };
        self.step(key, to)
    }
}

/// The commands of a collection that is written item by item: fields, members or elements.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "functions")]
pub struct Form {
    /// Begins a command that adds items with this deadline to the value at the key: writes all its
    /// words before the items', of which there are the given number.
    pub head: fn(&[u8], usize, Option<u64>, &mut Commands),
    /// Sets the deadline of the items' names, if `head` does not.
    pub until: Option<Until>,
}

/// Writes the command that sets the deadline of these entries of the value at the key.
pub type Until = fn(&[u8], u64, &[&[u8]], &mut Commands);

/// The commands that add these items.
#[must_use]
pub fn of_items(items: Items, form: Form) -> Box<dyn Parts> {
    Box::new(ItemParts { items, form, batch: Batch::default(), long: None })
}

/// See [`of_items`].
struct ItemParts {
    items: Items,
    form: Form,
    batch: Batch,
    /// The item whose long text is being written.
    long: Option<LongItem>,
}

impl Parts for ItemParts {
    fn step(&mut self, key: &[u8], to: &mut Commands) -> bool {
        let before = to.bytes();
        while to.bytes() < before + PORTION_BYTES {
            if !self.take_item(key, to) {
                return false;
            }
        }
        true
    }
}

impl ItemParts {
    /// Takes the next item. Returns false at the end, when everything is written.
    fn take_item(&mut self, key: &[u8], to: &mut Commands) -> bool {
        let Self { items, form, batch, long } = self;
        let item = items.next();
        if let (Some(item), Some(long)) = (item, &mut *long)
            && item.is_continued()
        {
            long.go_on(item, to);
            return true;
        }
        if let Some(long) = long.take() {
            long.end(key, *form, to);
        }
        let Some(item) = item else {
            batch.flush(key, *form, to);
            return false;
        };
        if batch.is_full() || batch.deadline != item.deadline_ms() {
            batch.flush(key, *form, to);
        }
        batch.deadline = item.deadline_ms();
        match item {
            Item::Single { name, .. } => batch.push_name(name),
            Item::Pair { name, value, .. } => {
                batch.push_name(name);
                batch.push_word(value);
            }
            _ => {
                batch.flush(key, *form, to);
                *long = Some(LongItem::begin(item, key, *form, to));
            }
        }
        true
    }
}

/// Items for one command.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where each word ends.
    words: Vec<usize>,
    names: Vec<Range<usize>>,
    deadline: Option<u64>,
}

impl Batch {
    fn push_word(&mut self, word: &[u8]) {
        self.bytes.extend_from_slice(word);
        self.words.push(self.bytes.len());
    }

    fn push_name(&mut self, name: &[u8]) {
        self.names.push(self.bytes.len()..self.bytes.len() + name.len());
        self.push_word(name);
    }

    fn is_full(&self) -> bool {
        self.names.len() >= ITEMS_MAX || self.bytes.len() >= PORTION_BYTES
    }

    fn flush(&mut self, key: &[u8], form: Form, to: &mut Commands) {
        if self.names.is_empty() {
            return;
        }
        (form.head)(key, self.names.len(), self.deadline, to);
        assert!(self.words.len().is_multiple_of(self.names.len()), "items are alike");
        let mut start = 0;
        for end in self.words.drain(..) {
            debug_assert!(start <= end && end <= self.bytes.len(), "{start}..{end}");
            to.word(&self.bytes[start..end]);
            start = end;
        }
        if let (Some(at), Some(until)) = (self.deadline, form.until) {
            let names: Vec<&[u8]> =
                self.names.iter().map(|name| &self.bytes[name.clone()]).collect();
            until(key, at, &names, to);
        }
        self.bytes.clear();
        self.names.clear();
    }
}

/// An item with a long text, in a command of its own.
struct LongItem {
    /// The name, collected if a command needs it again.
    name: Vec<u8>,
    /// The parts are the name's.
    is_name: bool,
    deadline: Option<u64>,
}

impl LongItem {
    /// Writes the command up to the first part.
    fn begin(item: Item<'_>, key: &[u8], form: Form, to: &mut Commands) -> Self {
        let deadline = item.deadline_ms();
        (form.head)(key, 1, deadline, to);
        let is_name = match item {
            Item::LongValued { name, value_len, .. } => {
                to.word(name);
                to.open(value_len);
                false
            }
            Item::LongNamed { name_len: len, .. } | Item::LongSingle { len, .. } => {
                to.open(len);
                true
            }
            _ => unreachable!("the items of a collection"),
        };
        Self { name: item.name().to_vec(), is_name, deadline }
    }

    /// Writes the next part.
    fn go_on(&mut self, item: Item<'_>, to: &mut Commands) {
        match item {
            Item::Part(part) => {
                if self.is_name && self.deadline.is_some() {
                    self.name.extend_from_slice(part);
                }
                to.part(part);
            }
            Item::LongValue(len) => {
                self.is_name = false;
                to.open(len);
            }
            item => {
                let Item::Value(value) = item else { unreachable!("it is continued") };
                to.word(value);
            }
        }
    }

    fn end(self, key: &[u8], form: Form, to: &mut Commands) {
        if let (Some(at), Some(until)) = (self.deadline, form.until) {
            until(key, at, &[&self.name], to);
        }
    }
}

//! A value that is changed in a copy, in portions, and installed in one step; and the record of its
//! changes.
//!
//! Until the installation, readers see the stored value, and writers of the key wait. The changes
//! are recorded if they are certainly smaller than the value, and the stored value is still the one
//! that was copied (it may have been reaped). Otherwise the whole value is recorded, as a shared
//! pointer: readers of the log encode it in portions of their own.
//!
//! Not here: waiting for locks. See `tx`.

use crate::db::BIT_RAW;
use crate::event::Events;
use crate::log::{Done, Lists, Recorder};
use crate::object::{Collection, Object, Typed};
use crate::text::{Fresh, Str, TextChange, TextEdit};
use crate::{Db, Event, Key, WrongType};
use darter_structs::blob::Blob;
use darter_structs::table::Scratch;

/// Approximate size of a change in a log.
const CHANGE_BYTES: usize = 32;
/// Longer writes are recorded as a whole value: sharing their chunks would take too long.
const WRITTEN_MAX_BYTES: usize = 32 << 20;

/// A changed copy; see the module's documentation.
#[derive(Default)]
pub struct Draft<V> {
    value: V,
    /// The value as it was found. While it is held, it is not changed in place, except if it is a
    /// pack in the entry, of which this is a copy.
    base: Option<Object>,
    deadline: Option<u64>,
    /// The number of changes, as the database counts them.
    count: u64,
    /// The changes so far, if there is a subscriber.
    done: Option<Done>,
}

impl<V> Draft<V> {
    /// The current state of the value.
    #[must_use]
    pub fn value(&self) -> &V {
        &self.value
    }

    /// True if the key was absent.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.base.is_none()
    }

    /// Counts the edit as `changes` changes: adding the kept entries to a rebuilt value is not a
    /// change.
    pub fn count_as(&mut self, changes: usize) {
        self.count = changes as u64;
    }

    fn changes(&mut self) -> Option<&mut Lists> {
        self.done.as_mut()?.changes.as_mut()
    }

    /// Records the whole value instead of the changes.
    fn forget_changes(&mut self) {
        if let Some(done) = &mut self.done {
            done.changes = None;
        }
    }

    /// Drops the record of changes once they are too many to be worth recording.
    fn weigh_changes(&mut self) {
        let count = self.changes().map_or(0, |changes| changes.count());
        if !self.is_worth(count * CHANGE_BYTES) {
            self.forget_changes();
        }
    }

    /// True if recording the changes is better than recording the whole value.
    fn is_worth(&self, change_bytes: usize) -> bool {
        let bytes = self.base.as_ref().map_or(0, |base| base.content_bytes());
        2 * change_bytes <= bytes
    }
}

impl<V: Collection> Draft<V> {
    /// Changes the value, at `now`.
    pub fn edit(&mut self, now: u64) -> V::Edit<'_> {
        self.weigh_changes();
        let recorder = Recorder::aside(&mut self.count, self.done.as_mut());
        self.value.edit(now, recorder)
    }

    /// Empties the value, in order to rebuild it from the old one.
    pub fn clear(&mut self) {
        self.value = V::default();
        self.forget_changes();
    }
}

impl Draft<Blob> {
    /// Starts an edit of the string.
    pub fn edit_text(&mut self) -> TextEdit<'_> {
        self.weigh_changes();
        let recorder = Recorder::aside(&mut self.count, self.done.as_mut());
        TextEdit::new(&mut self.value, recorder)
    }

    /// Replaces the string, with `event` as the event.
    pub fn replace(&mut self, value: Blob, event: &'static Event) {
        self.value = value;
        self.count += 1;
        self.forget_changes();
        if let Some(done) = &mut self.done {
            done.told.add(event);
        }
    }

    /// Writes a piece from `offset` on. [`Draft::end_write`] reports all pieces together.
    pub fn write_piece(&mut self, offset: usize, bytes: &[u8]) {
        self.value.write_at(offset, bytes);
    }

    /// Ends a write: all pieces of `bytes` are at `offset`. Records it as `event`.
    pub fn end_write(&mut self, offset: usize, bytes: Fresh<'_>, event: &'static Event) {
        let written = offset + bytes.len();
        assert!(self.value.len() >= written, "{} of {written} bytes", self.value.len());
        if bytes.len() > WRITTEN_MAX_BYTES || !self.is_worth(bytes.len()) {
            self.forget_changes();
        }
        self.count += 1;
        if let Some(changes) = self.changes() {
            changes.push(TextChange::Write { offset, bytes: bytes.to_pieces() });
        }
        if let Some(done) = &mut self.done {
            done.told.add(event);
        }
    }
}

impl Db {
    /// Starts to change a copy of the value at `key`; an absent value starts empty. Counts as an
    /// access.
    pub fn draft<V: Collection>(&mut self, key: &Key<'_>) -> Result<Draft<V>, WrongType> {
        self.keep(key);
        let done = self.begin_done();
        let Some(found) = self.read(key) else { return Ok(Draft { done, ..Draft::default() }) };
        let value = found.value::<V>()?.into_cut();
        let (base, deadline) = (found.to_object(), found.deadline());
        Ok(Draft { value, base, deadline, count: 0, done })
    }

    /// [`Db::draft`] for a string.
    pub fn draft_text(&mut self, key: &Key<'_>) -> Result<Draft<Blob>, WrongType> {
        self.keep(key);
        let done = self.begin_done();
        let Some(found) = self.read(key) else { return Ok(Draft { done, ..Draft::default() }) };
        let value = match found.text()? {
            Str::Inline(text) => Blob::from(text.bytes(&mut Scratch::default())),
            Str::Blob(blob) => blob.clone(),
        };
        let (base, deadline) = (found.object().cloned(), found.deadline());
        Ok(Draft { value, base, deadline, count: 0, done })
    }

    /// Installs a changed value at `key`, with the deadline that the key has. An empty value
    /// removes the key. If the key has expired since, so has the installed value, because the
    /// change came before. Cost: O(1).
    pub fn install_draft<V: Typed>(&mut self, key: &Key<'_>, draft: Draft<V>) {
        let Draft { value, base, deadline, count, done } = draft;
        let is_alike = base.as_ref().is_none_or(|base| base.row() == V::TYPE);
        assert!(is_alike, "a value of another type was found");
        let is_as_found = self.is_at(key, base.as_ref(), deadline);
        let bits = if V::TYPE == Blob::TYPE { BIT_RAW } else { 0 };
        let Done { changes, told } = done.unwrap_or_default();
        let changes = changes.filter(|_| is_as_found);
        self.install_told(key, (Object::new(value), deadline, bits), (changes, count), told);
    }

    fn begin_done(&self) -> Option<Done> {
        let changes = || self.wants_effects().then(Lists::default);
        self.has_log().then(|| Done { changes: changes(), told: Events::default() })
    }
}

//! Changing parts of the string at a key, in each of its encodings.

use crate::text::to_blob;
use darter_keyspace::Db;
use darter_keyspace::{Deadline, Event, Fresh, Key, TextEdit, WrongType};
use darter_structs::blob::Blob;

/// The keyspace event of every change of bits.
pub(super) const SETBIT: &Event = &Event::new("setbit", b'$');

/// Changes the string at `key` by `edit`, which also returns the number of changed bits. A changed
/// bit publishes an event; growth alone does not. A long string is changed in place, a short one in
/// a copy; an absent string starts empty. The deadline stays.
///
/// As in Redis the encoding is `raw` from now on, even if nothing has changed.
pub(super) fn edit<R>(
    db: &mut Db,
    key: &Key<'_>,
    edit: impl FnMut(&mut TextEdit<'_>) -> (R, usize),
) -> Result<R, WrongType> {
    db.counted_as(|db| match edit_counting(db, key, edit) {
        Ok((result, changes)) => (Ok(result), changes),
        Err(wrong) => (Err(wrong), 0),
    })
}

fn edit_counting<R>(
    db: &mut Db,
    key: &Key<'_>,
    mut edit: impl FnMut(&mut TextEdit<'_>) -> (R, usize),
) -> Result<(R, usize), WrongType> {
    if let Some(done) = db.edit_text(key, &mut edit) {
        return Ok(done);
    }
    let (mut blob, was_raw) = match db.read(key) {
        Some(found) => (to_blob(&found.text()?), found.is_raw()),
        None => (Blob::default(), false),
    };
    let mut text = TextEdit::aside(&mut blob);
    let (result, changes) = edit(&mut text);
    if text.is_written() || !was_raw {
        let tells: &[&Event] = if changes > 0 { &[SETBIT] } else { &[] };
        db.set_text_raw(key, Fresh::Blob(&blob), Deadline::Keep, tells);
    }
    Ok((result, changes))
}

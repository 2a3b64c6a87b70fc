//! PFADD: adding elements.
//!
//! Dense registers are raised in place. Sparse runs are changed in a copy, which is short. More or
//! longer elements than fit a slice are a [`Long`] job, which also works on a copy.

use super::dense;
use super::format::{Encoding, HEADER_BYTES, STALE, STALE_BYTE, read};
use super::hash::{Place, Portions};
use super::sketch::Sketch;
use crate::bulk_edit::is_long;
use crate::text::{BYTES_AT_ONCE, piece};
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Args, Cx, Flow, Job, Refusal, Step};
use darter_keyspace::{Db, Deadline, Draft, Event, Fresh, Key, Str, TextEdit};
use darter_resp::{self as resp, Request};
use darter_structs::blob::Blob;
use darter_structs::table::Scratch;
use std::sync::Arc;

/// The keyspace event of every change of registers.
pub(super) const PFADD: &Event = &Event::new("pfadd", b'$');

/// Elements that are added in one portion: each may scan 3 KB of runs.
const PORTION: usize = 16;

/// `PFADD key [element ...]`: adds elements to the HyperLogLog at `key`; an absent key counts as
/// empty.
///
/// Reply: integer, 1 if a register has changed, or the key is new; otherwise 0. Refusals:
/// `WrongType`, a string that is not a HyperLogLog or is corrupt; then nothing changes. The
/// deadline stays. Cost: O(elements), in slices if they are many or long.
/// Source: <https://redis.io/commands/pfadd> (2.8.9).
pub(super) fn pfadd(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let first = args.position();
    let key = args.key()?;
    if is_long(args, ENTRIES_AT_ONCE / 4, BYTES_AT_ONCE) {
        return Ok(Flow::Job(Box::new(Long::new(args, first))));
    }
    let in_place = cx.db.edit_text(&key, |text| add_in_place(text, args)).flatten();
    let added = match in_place {
        Some(added) => added,
        None => add_aside(cx.db, &key, args)?,
    };
    cx.reply.int(i64::from(added));
    Ok(Flow::Done)
}

/// Adds all elements to a dense HyperLogLog. `None` if the value is not one.
fn add_in_place(text: &mut TextEdit<'_>, mut args: Args<'_>) -> Option<bool> {
    let is_dense = |text: &Blob| {
        let (text, scratch) = (Str::Blob(text), &mut Scratch::default());
        read(&text, scratch).is_ok_and(|(_, encoding)| encoding == Encoding::Dense)
    };
    if !is_dense(text.text()) {
        return None;
    }
    let mut added = false;
    while let Some(element) = args.next() {
        let Place { register, rank } = Place::of(element);
        let registers = &text.text().as_slice()?[HEADER_BYTES..];
        if dense::get(registers, register) < rank {
            let (at, bytes) = dense::with(registers, register, rank);
            let bytes = &bytes[..bytes.len().min(registers.len() - at)];
            text.write(HEADER_BYTES + at, Fresh::Bytes(bytes), &[PFADD]);
            added = true;
        }
    }
    let header = text.text().byte(STALE_BYTE)?;
    if added && header & STALE == 0 {
        text.write_along(STALE_BYTE, Fresh::Bytes(&[header | STALE]), &[PFADD]);
    }
    Some(added)
}

/// A copy of the HyperLogLog at `key`, and whether its encoding is `raw`.
pub(super) fn copy_of(db: &mut Db, key: &Key<'_>) -> Result<Option<(Sketch, bool)>, Refusal> {
    let Some(found) = db.read(key) else { return Ok(None) };
    let (text, mut scratch) = (found.text()?, Scratch::default());
    let (bytes, encoding) = read(&text, &mut scratch)?;
    let is_raw = found.is_raw() || matches!(text, Str::Blob(_));
    Ok(Some((Sketch::new(bytes, encoding), is_raw)))
}

/// Stores a changed HyperLogLog.
pub(super) fn put_back(db: &mut Db, key: &Key<'_>, sketch: &Sketch, tells: &[&'static Event]) {
    db.set_text_raw(key, Fresh::Bytes(sketch.bytes()), Deadline::Keep, tells);
}

fn add_aside(db: &mut Db, key: &Key<'_>, mut args: Args<'_>) -> Result<bool, Refusal> {
    let found = copy_of(db, key)?;
    // Redis counts a new key, and each element that raises a register.
    let mut changes = usize::from(found.is_none());
    let (mut sketch, is_raw) = found.unwrap_or_default();
    while let Some(element) = args.next() {
        changes += usize::from(sketch.add(Place::of(element))?);
    }
    if changes > 0 {
        sketch.invalidate();
        put_back(db, key, &sketch, &[PFADD]);
        db.count_more(changes - 1);
    } else if !is_raw {
        put_back(db, key, &sketch, &[]); // As in Redis, the encoding is `raw` from now on.
    }
    Ok(changes > 0)
}

/// Very many elements, or very long ones.
struct Long {
    request: Arc<Request>,
    /// The index of the key in the request.
    key: usize,
    /// The next element, the hash of the pieces before, and its next piece.
    next: usize,
    hash: Option<Portions>,
    piece: usize,
    changes: usize,
    work: Option<(Draft<Blob>, Sketch)>,
}

impl Long {
    fn new(args: Args<'_>, key: usize) -> Self {
        let (request, next) = (args.all().to_request(), args.position());
        Self { request, key, next, hash: None, piece: 0, changes: 0, work: None }
    }

    fn begin(&mut self, cx: &mut Cx<'_>) -> Result<(Draft<Blob>, Sketch), Refusal> {
        let key = Key::new(resp::Args::owned(&self.request).get(self.key));
        let found = copy_of(cx.db, &key)?;
        self.changes = usize::from(found.is_none());
        Ok((cx.db.draft_text(&key)?, found.unwrap_or_default().0))
    }

    /// Hashes the next piece of the next element. Returns the element's register and rank after its
    /// last piece.
    fn hash_piece(&mut self) -> Option<Place> {
        let mut args = Args::new(resp::Args::owned(&self.request), self.next);
        let value = args.value().unwrap_or(Fresh::Bytes(b""));
        let hash = self.hash.get_or_insert_with(|| Portions::new(value.len()));
        if let Some(bytes) = piece(value, self.piece) {
            hash.add(bytes);
            self.piece += 1;
            if piece(value, self.piece).is_some() {
                return None;
            }
        }
        let place = hash.finish();
        (self.next, self.hash, self.piece) = (args.position(), None, 0);
        Some(place)
    }
}

impl Job for Long {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let (mut draft, mut sketch) = match self.work.take() {
            Some(work) => work,
            None => self.begin(cx)?,
        };
        for _ in 0..PORTION {
            if self.next == self.request.len() {
                break;
            }
            match self.hash_piece() {
                Some(place) => self.changes += usize::from(sketch.add(place)?),
                None => break, // A whole piece was hashed: enough for a portion.
            }
        }
        if self.next < self.request.len() {
            self.work = Some((draft, sketch));
            return Ok(Step::More);
        }
        if self.changes > 0 {
            let key = Key::new(resp::Args::owned(&self.request).get(self.key));
            sketch.invalidate();
            draft.replace(Blob::from(sketch.bytes()), PFADD);
            draft.count_as(self.changes);
            cx.db.install_draft(&key, draft);
        }
        cx.reply.int(i64::from(self.changes > 0));
        Ok(Step::Done(Flow::Done))
    }
}

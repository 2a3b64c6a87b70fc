//! The hash type: its row, its values, its editor.

use darter_base::hash;
use darter_keyspace::commands::{self, Commands};
use darter_keyspace::rebuild::{self, NOTHING_IS_DEAD, Parts};
use darter_keyspace::{
    Bound, Build, Change, Collection, Db, Deadline, Event, Found, Fresh, Key, Name, Named, NewItem,
    Object, Recorder, Str, StrPieces, Tabular, Tells, Twice, Type, Typed, Value, WrongType,
    is_dead, is_long, of_table,
};
use darter_rdb::{Bounds, Encoding, Form, Items, Kind, Layout, Origin, Plan, Survey};
use darter_structs::blob::Blob;
use darter_structs::table::{self, Builder, Entry, New, PackedValue, Scratch, Table, ValueRef};
use std::sync::Arc;

static TYPE: &Type = &Type {
    name: "hash",
    number: 4,
    rdb: &Kind { encodings: ENCODINGS, packed: Bounds::DEFAULT, plan },
    empty: || Object::new(Hash::new()),
    bounds: &[&FIELDS_MAX, &ITEM_BYTES_MAX],
    is_ordered: false,
};

static FIELDS_MAX: Bound =
    Bound::new("hash-max-listpack-entries", "512").formerly("hash-max-ziplist-entries");
static ITEM_BYTES_MAX: Bound =
    Bound::new("hash-max-listpack-value", "64").of_bytes().formerly("hash-max-ziplist-value");

// The file formats of a hash: without deadlines, and with.
const PLAIN: u8 = 4;
const LISTPACK: u8 = 16;
const DEADLINES: u8 = 24;
const DEADLINES_LISTPACK: u8 = 25;

#[rustfmt::skip] // A table.
const ENCODINGS: &[Encoding] = &[
    Encoding::new(PLAIN,    Layout::Pairs),
    Encoding::new(LISTPACK, Layout::Block(Form::Listpack, 2)),
    // Before 7.0, and before 2.6.
    Encoding::new(13, Layout::Block(Form::Ziplist, 2)),
    Encoding::new(9,  Layout::Block(Form::Zipmap, 2)),
    // From 7.4 on.
    Encoding::of(Origin::Redis, DEADLINES,          Layout::PairsFromEarliest),
    Encoding::of(Origin::Redis, DEADLINES_LISTPACK, Layout::BlockFromEarliest(Form::Listpack, 3)),
    // Release candidates of 7.4.
    Encoding::of(Origin::Redis, 22, Layout::PairsDeadlineFirst),
    Encoding::of(Origin::Redis, 23, Layout::Block(Form::Listpack, 3)),
    // Valkey 9.
    Encoding::of(Origin::Valkey, 22, Layout::PairsDeadlineLast),
];

/// The format of Redis 7.0, or of 7.4 if fields have deadlines.
fn plan(survey: &Survey) -> Plan {
    if survey.has_deadlines() {
        return survey
            .listpack_with_deadlines(DEADLINES_LISTPACK)
            .unwrap_or_else(|| survey.with_deadlines(DEADLINES));
    }
    survey.listpack(LISTPACK).unwrap_or_else(|| survey.plain(PLAIN))
}

const HSET: &Event = &Event::new("hset", b'h');
const HDEL: &Event = &Event::new("hdel", b'h');
/// A field was incremented or decremented.
pub(super) const HINCRBY: &Event = &Event::new("hincrby", b'h');
const HEXPIRE: &Event = &Event::new("hexpire", b'h');
const HPERSIST: &Event = &Event::new("hpersist", b'h');
const HEXPIRED: &Event = &Event::new("hexpired", b'h');

/// A hash. Cloning it is a cut.
#[derive(Clone, Default)]
pub struct Hash {
    fields: Table<Arc<Blob>>,
    blob_bytes: usize,
    grown: bool,
}

/// The value of a field.
#[must_use]
pub fn value_of<'a>(entry: &Entry<'a, Arc<Blob>>) -> Str<'a> {
    match entry.value() {
        ValueRef::Text(text) => Str::Inline(text),
        ValueRef::Packed(_) => unreachable!("a field holds no collection"),
        ValueRef::Out(blob) => Str::Blob(blob),
    }
}

/// Appends the value of a field to `out`, or returns it if it is long.
fn write_value(entry: &Entry<'_, Arc<Blob>>, out: &mut Vec<u8>) -> Option<Arc<Blob>> {
    match entry.value() {
        ValueRef::Text(text) => out.extend_from_slice(text.bytes(&mut Scratch::default())),
        ValueRef::Packed(_) => unreachable!("a field holds no collection"),
        ValueRef::Out(blob) if is_long(blob.len()) => return Some(Arc::clone(blob)),
        ValueRef::Out(blob) => Str::Blob(blob).write_to(out),
    }
    None
}

fn blob_bytes(blob: &Blob) -> usize {
    blob.memory_bytes() + size_of::<Blob>() + 16
}

/// Converts a value for the table; adds the size of its out-of-line part to `blobs`.
fn fresh<'a>(value: Fresh<'a>, blobs: &mut usize) -> New<'a, Arc<Blob>> {
    if let Fresh::Bytes(bytes) = value
        && value.inline().is_some()
    {
        return New::Bytes(bytes);
    }
    let blob = Arc::new(value.to_blob());
    *blobs += blob_bytes(&blob);
    New::Out(blob)
}

impl Hash {
    /// An empty hash. Allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The table of fields, for readers of cuts, scans and samples. It may still contain expired
    /// fields.
    #[must_use]
    pub fn fields(&self) -> &Table<Arc<Blob>> {
        &self.fields
    }

    /// The number of fields, including expired ones that have not been removed. `live_len` of the
    /// table excludes them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// True when there are no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The entry of `field`, if it has not expired.
    #[must_use]
    pub fn get(&self, field: &[u8], now: u64) -> Option<Entry<'_, Arc<Blob>>> {
        self.find(&Key::new(field), now)
    }

    /// [`Hash::get`] for a field whose hash is known.
    #[must_use]
    pub fn find(&self, field: &Key<'_>, now: u64) -> Option<Entry<'_, Arc<Blob>>> {
        self.fields.get(field.hash, field.bytes).filter(|entry| !is_dead(entry.deadline(), now))
    }

    /// [`Hash::find`] in the hash at a key, in any representation, without copying.
    pub fn look<'a>(
        found: &Found<'a>,
        field: &Key<'_>,
        now: u64,
    ) -> Result<Option<Entry<'a, Arc<Blob>>>, WrongType> {
        Ok(found.look::<Self>(field)?.filter(|entry| !is_dead(entry.deadline(), now)))
    }

    /// Bytes of memory held, long values included.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.fields.memory_bytes() + self.blob_bytes
    }

    /// A cut for a long-lived reader. It does not count as an owner of the value.
    #[must_use]
    pub fn reader(&self) -> Self {
        Self { fields: self.fields.reader(), ..self.clone() }
    }

    /// Bytes of a deleted hash that only a [`Hash::reader`] keeps alive: see [`Table::is_pinned`].
    #[must_use]
    pub fn pinned_bytes(&self) -> usize {
        if self.fields.is_pinned() { self.memory_bytes() } else { 0 }
    }

    fn put(&mut self, field: &Key<'_>, value: Fresh<'_>, deadline: Option<u64>) -> bool {
        // Once grown, it stays grown, and is not recomputed: this is the hot path of large hashes.
        self.grown = self.grown
            || self.fields.len() >= FIELDS_MAX.get() && !self.contains(field)
            || field.bytes.len().max(value.len()) > ITEM_BYTES_MAX.get();
        let new = fresh(value, &mut self.blob_bytes);
        let old = self.fields.insert(field.hash, field.bytes, new, deadline, 0);
        self.forget(old.as_ref().and_then(|old| old.out.as_ref()));
        old.is_none()
    }

    fn contains(&self, field: &Key<'_>) -> bool {
        self.fields.contains(field.hash, field.bytes)
    }

    fn forget(&mut self, blob: Option<&Arc<Blob>>) {
        self.blob_bytes -= blob.map_or(0, |blob| blob_bytes(blob));
    }
}

impl Value for Hash {
    fn content_bytes(&self) -> usize {
        self.memory_bytes()
    }

    /// The encoding under Redis's default limits.
    fn encoding(&self) -> &'static str {
        if self.grown { "hashtable" } else { "listpack" }
    }

    fn items(&self, now: u64) -> Items {
        of_table(self.fields.clone(), now, Some(write_value))
    }

    fn take_in(&mut self, item: NewItem<'_>) -> bool {
        let NewItem::Pair { name, value, deadline } = item else { return false };
        // At time 0 no field is expired, so an existing name is recognized.
        self.edit_aside(0).set(name, value, Deadline::from(deadline))
    }

    fn take_all(&mut self, items: &[NewItem<'_>]) -> bool {
        let pairs: Option<Vec<_>> = items.iter().map(NewItem::plain).collect();
        let made = pairs.and_then(|pairs| Some((Table::of_all(&pairs)?, pairs)));
        let Some((fields, pairs)) = made else {
            return items.iter().all(|item| self.take_in(*item));
        };
        let is_long = |text: &[u8]| text.len() > ITEM_BYTES_MAX.get();
        self.grown = pairs.len() > FIELDS_MAX.get()
            || pairs.iter().any(|(name, value)| is_long(name) || is_long(value));
        self.fields = fields;
        true
    }

    fn builder(&self, items: u64) -> Option<Box<dyn Build>> {
        let fields = Builder::new(usize::try_from(items).ok()?)?;
        Some(Box::new(Loading { fields, blob_bytes: 0, grown: false }))
    }

    fn rebuild(&self) -> Option<Box<dyn Parts>> {
        Some(rebuild::of_items(self.items(NOTHING_IS_DEAD), FORM))
    }

    fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    fn packed(&self) -> Option<PackedValue<'_>> {
        self.fields.packed().map(|bytes| TYPE.pack(self.grown, bytes))
    }

    fn take_packed(&mut self, packed: PackedValue<'_>) -> bool {
        let Some((bytes, grown)) = TYPE.unpack(packed) else { return false };
        *self = Self { fields: Table::of_packed(bytes), blob_bytes: 0, grown };
        true
    }

    fn check_invariants(&self) {
        self.fields.check_invariants();
    }

    fn earliest_deadline(&self) -> Option<u64> {
        self.fields.earliest_deadline()
    }

    fn reap(&mut self, now: u64, most: usize, recorder: &mut Recorder<'_>) -> bool {
        let blobs = &mut self.blob_bytes;
        let reaped = self.fields.reap(now, most, &mut |field, old| {
            *blobs -= old.out.as_deref().map_or(0, blob_bytes);
            recorder.record_death(&[HEXPIRED], || {
                let field = Name::from(field.bytes(&mut Scratch::new()));
                HashChange::Remove { field }
            });
        });
        reaped.more
    }

    fn has_living(&self, now: u64, segments: usize) -> bool {
        self.fields.has_living(now, segments)
    }

    fn named(&self) -> Option<&dyn Named> {
        Some(&self.fields)
    }

    fn named_mut(&mut self) -> Option<&mut dyn Named> {
        Some(&mut self.fields)
    }
}

/// A hash being built from very many fields.
struct Loading {
    fields: Builder<Arc<Blob>>,
    blob_bytes: usize,
    grown: bool,
}

impl Build for Loading {
    fn take_in(&mut self, item: NewItem<'_>) -> bool {
        let NewItem::Pair { name, value, deadline } = item else { return false };
        self.grown |= name.len().max(value.len()) > ITEM_BYTES_MAX.get();
        let value = fresh(value, &mut self.blob_bytes);
        self.fields.push(hash::of(name), name, value, deadline)
    }

    fn step(&mut self) -> Result<bool, Twice> {
        self.fields.step().map_err(|table::Twice| Twice)
    }

    fn finish(self: Box<Self>) -> Object {
        let Self { fields, blob_bytes, grown } = *self;
        let fields = fields.finish();
        let grown = grown || fields.len() > FIELDS_MAX.get();
        Object::new(Hash { fields, blob_bytes, grown })
    }
}

impl Typed for Hash {
    const TYPE: &'static Type = TYPE;
}

impl Tabular for Hash {
    type Out = Arc<Blob>;

    fn table(&self) -> &Table<Arc<Blob>> {
        &self.fields
    }
}

impl Collection for Hash {
    type Edit<'a> = HashEdit<'a>;

    fn edit<'a>(&'a mut self, now: u64, recorder: Recorder<'a>) -> HashEdit<'a> {
        HashEdit { hash: self, now, recorder }
    }
}

/// A change of a hash, as recorded in the log. Deadlines are absolute, in Unix milliseconds.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields are what the variant says, by their usual names")]
pub enum HashChange {
    /// Sets the field to this value.
    Put { field: Name, value: StrPieces, deadline: Option<u64> },
    /// Sets the field's deadline.
    Deadline { field: Name, deadline: Option<u64> },
    /// Removes the field.
    Remove { field: Name },
}

impl Change for HashChange {
    const TYPE: &'static Type = TYPE;

    fn held_bytes(&self) -> usize {
        match self {
            Self::Put { field, value, .. } => field.len() + value.fresh().len(),
            Self::Deadline { field, .. } | Self::Remove { field } => field.len(),
        }
    }

    fn apply(changes: &[Self], db: &mut Db, key: &Key<'_>) -> Result<(), WrongType> {
        db.edit::<Hash, _>(key, true, |edit| changes.iter().for_each(|change| edit.apply(change)))?;
        Ok(())
    }

    fn encode(changes: &[Self], key: &[u8], to: &mut Commands) {
        commands::runs(changes, Self::are_like, |run| Self::encode_run(run, key, to));
    }
}

impl HashChange {
    /// True if one command makes both changes.
    fn are_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Put { deadline, .. }, Self::Put { deadline: other, .. })
            | (Self::Deadline { deadline, .. }, Self::Deadline { deadline: other, .. }) => {
                deadline == other
            }
            (Self::Remove { .. }, Self::Remove { .. }) => true,
            _ => false,
        }
    }

    fn field(&self) -> &[u8] {
        let (Self::Put { field, .. } | Self::Deadline { field, .. } | Self::Remove { field }) =
            self;
        field
    }

    fn encode_run(run: &[Self], key: &[u8], to: &mut Commands) {
        let fields = || run.iter().map(Self::field);
        match &run[0] {
            Self::Put { deadline, .. } => {
                (FORM.head)(key, run.len(), None, to);
                for change in run {
                    let Self::Put { field, value, .. } = change else { continue };
                    to.word(field);
                    to.pieces(value);
                }
                if let Some(at) = deadline {
                    expire(key, *at, &fields().collect::<Vec<_>>(), to);
                }
            }
            Self::Deadline { deadline: Some(at), .. } => {
                expire(key, *at, &fields().collect::<Vec<_>>(), to);
            }
            Self::Deadline { deadline: None, .. } => {
                to.begin(4 + run.len());
                to.word(b"HPERSIST");
                to.word(key);
                to.word(b"FIELDS");
                to.size(run.len());
                fields().for_each(|field| to.word(field));
            }
            Self::Remove { .. } => {
                to.begin(2 + run.len());
                to.word(b"HDEL");
                to.word(key);
                fields().for_each(|field| to.word(field));
            }
        }
    }
}

/// The commands that add fields.
const FORM: rebuild::Form = rebuild::Form {
    head: |key, fields, _, to| {
        to.begin(2 + 2 * fields);
        to.word(b"HSET");
        to.word(key);
    },
    until: Some(expire),
};

/// Writes the command that sets the deadline of these fields.
fn expire(key: &[u8], at: u64, fields: &[&[u8]], to: &mut Commands) {
    to.begin(5 + fields.len());
    to.word(b"HPEXPIREAT");
    to.word(key);
    to.natural(at);
    to.word(b"FIELDS");
    to.size(fields.len());
    fields.iter().for_each(|field| to.word(field));
}

/// Changes a hash, and records the effects.
pub struct HashEdit<'a> {
    hash: &'a mut Hash,
    now: u64,
    recorder: Recorder<'a>,
}

impl HashEdit<'_> {
    /// Publishes the next changes as `event`.
    pub fn tell_as(&mut self, event: &'static Event) {
        self.recorder.tell_as(event);
    }

    /// The current state of the hash.
    #[must_use]
    pub fn hash(&self) -> &Hash {
        self.hash
    }

    /// Sets `field` to `value`. Returns true if the field is new (or had expired).
    pub fn set(&mut self, field: &[u8], value: Fresh<'_>, deadline: Deadline) -> bool {
        self.put(&Key::new(field), value, deadline)
    }

    /// [`HashEdit::set`] for a field whose hash is known.
    pub fn put(&mut self, field: &Key<'_>, value: Fresh<'_>, deadline: Deadline) -> bool {
        let old = match deadline {
            Deadline::Keep => self.hash.find(field, self.now).and_then(|entry| entry.deadline()),
            _ => None,
        };
        let tells: Tells<'_> =
            if let Deadline::At(_) = deadline { &[HSET, HEXPIRE] } else { &[HSET] };
        let deadline = deadline.resolve(old);
        let was_dead = self.hash.fields.earliest_deadline().is_some_and(|at| at <= self.now)
            && self.hash.contains(field)
            && self.hash.find(field, self.now).is_none();
        let new = self.hash.put(field, value, deadline) || was_dead;
        self.recorder.record(tells, || HashChange::Put {
            field: Name::from(field.bytes),
            value: value.to_pieces(),
            deadline,
        });
        new
    }

    /// Replaces the value of `field` by an integer that `update` computes from it, and keeps its
    /// deadline. This takes one lookup for HINCRBY. `Ok(None)`: no such field, or it has expired.
    pub fn update_int<E>(
        &mut self,
        field: &[u8],
        update: impl FnOnce(Str<'_>) -> Result<i64, E>,
    ) -> Result<Option<i64>, E> {
        let Some(mut entry) = self.hash.fields.get_mut(hash::of(field), field) else {
            return Ok(None);
        };
        let deadline = entry.entry().deadline();
        if is_dead(deadline, self.now) {
            return Ok(None);
        }
        let value = update(value_of(&entry.entry()))?;
        let old = entry.set_value(New::Int(value));
        self.hash.forget(old.as_ref());
        self.recorder.record(&[HINCRBY], || HashChange::Put {
            field: Name::from(field),
            value: StrPieces::Bytes(value.to_string().into_bytes()),
            deadline,
        });
        Ok(Some(value))
    }

    /// Removes `field`. Returns true if it existed and had not expired.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let Some(old) = self.hash.fields.remove(hash::of(field), field) else { return false };
        self.hash.forget(old.out.as_ref());
        self.recorder.record(&[HDEL], || HashChange::Remove { field: Name::from(field) });
        !is_dead(old.deadline, self.now)
    }

    /// Changes the deadline of `field`. Returns false if there is no such field, or it has expired.
    pub fn set_deadline(&mut self, field: &[u8], deadline: Option<u64>) -> bool {
        let now = self.now;
        let entry = self.hash.fields.get_mut(hash::of(field), field);
        let Some(mut entry) = entry.filter(|entry| !is_dead(entry.entry().deadline(), now)) else {
            return false;
        };
        entry.set_deadline(deadline);
        let tells: Tells<'_> = if deadline.is_some() { &[HEXPIRE] } else { &[HPERSIST] };
        let field = || Name::from(field);
        self.recorder.record(tells, || HashChange::Deadline { field: field(), deadline });
        true
    }

    fn apply(&mut self, change: &HashChange) {
        match change {
            HashChange::Put { field, value, deadline } => {
                self.set(field, value.fresh(), Deadline::from(*deadline));
            }
            HashChange::Deadline { field, deadline } => {
                self.set_deadline(field, *deadline);
            }
            HashChange::Remove { field } => {
                self.remove(field);
            }
        }
    }

    /// Removes at most `most` expired fields.
    pub fn reap(&mut self, most: usize) {
        self.hash.reap(self.now, most, &mut self.recorder);
    }
}

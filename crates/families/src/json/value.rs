//! The JSON type: its row, its values, its editor.

mod commands;

use darter_keyspace::{
    Change, Collection, Commands, Db, Event, Key, NewItem, Object, Recorder, Type, Typed, Value,
    WrongType,
};
use darter_rdb::types::PRIVATE;
use darter_rdb::{Bounds, Encoding, Item, Items, Kind, Layout, Origin, Plan, Source, Survey};
use darter_structs::blob::Blob;
use darter_structs::json::{self, JsonBuilder, JsonText, Token, View, Walk};
use darter_structs::table::PackedValue;
use std::collections::VecDeque;
use std::ops::Range;

static TYPE: &Type = &Type {
    name: "ReJSON-RL",
    number: 5,
    rdb: &Kind { encodings: ENCODINGS, packed: Bounds::DEFAULT, plan },
    empty: || Object::new(Json::default()),
    bounds: &[],
    is_ordered: true,
};

/// The file format of a document: its tokens. RedisJSON's format belongs to a module, and
/// redis-server loads it only with that module.
const TOKENS: u8 = PRIVATE + 7;

/// The longest token in a file; parts of long texts are shorter.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

const ENCODINGS: &[Encoding] = &[Encoding::of(Origin::Darter, TOKENS, Layout::Singles)];

fn plan(survey: &Survey) -> Plan {
    survey.plain(TOKENS)
}

/// A document. Cloning it is a cut.
#[derive(Clone, Default)]
pub struct Json(State);

#[derive(Clone, Default)]
enum State {
    /// No document; never stored at a key.
    #[default]
    Empty,
    Whole(json::Value),
    /// A document being loaded, as far as its tokens have arrived.
    Building(Box<Building>),
}

#[derive(Clone, Default)]
struct Building {
    builder: JsonBuilder,
    long: Option<LongText>,
}

/// A long text being loaded.
#[derive(Clone, Default)]
struct LongText {
    text: Blob,
    is_name: bool,
    /// The first bytes of a character that continues in the next part.
    begun: Vec<u8>,
}

impl LongText {
    /// Adds a part. Returns false if the text is not UTF-8, or is a name that is too long.
    fn take(&mut self, part: &[u8]) -> bool {
        self.text.append(part);
        if self.is_name && self.text.len() > json::NAME_BYTES_MAX {
            return false;
        }
        let all = [&self.begun, part].concat();
        self.begun = match std::str::from_utf8(&all) {
            Ok(_) => Vec::new(),
            Err(error) if error.error_len().is_none() => all[error.valid_up_to()..].to_vec(),
            Err(_) => return false,
        };
        true
    }
}

impl Json {
    /// A document with this value as its root.
    #[must_use]
    pub fn of(value: json::Value) -> Self {
        Self(State::Whole(value))
    }

    /// The root value.
    #[must_use]
    pub fn root(&self) -> Option<&json::Value> {
        if let State::Whole(value) = &self.0 { Some(value) } else { None }
    }

    /// Adds a token of a file. Returns false if it cannot be the next one.
    fn take_token(&mut self, token: &[u8]) -> bool {
        if let State::Empty = self.0 {
            self.0 = State::Building(Box::default());
        }
        let State::Building(building) = &mut self.0 else { return false };
        if !building.take(token) {
            return false;
        }
        if building.builder.is_done()
            && let Some(value) = std::mem::take(&mut building.builder).finish()
        {
            self.0 = State::Whole(value);
        }
        true
    }
}

impl Building {
    fn memory_bytes(&self) -> usize {
        let long = self.long.as_ref().map_or(0, |long| long.text.memory_bytes());
        self.builder.memory_bytes() + long
    }

    /// Adds a token. Returns false if it cannot be the next one, or could not come from a JSON
    /// text.
    fn take(&mut self, token: &[u8]) -> bool {
        let Some((tag, rest)) = token.split_first() else { return false };
        if rest.len() > TOKEN_BYTES_MAX {
            return false;
        }
        match (tag, &mut self.long) {
            (b'p', Some(long)) => return long.take(rest),
            (b'e', Some(_)) => return self.end_long(),
            (_, Some(_)) => return false,
            (b'S' | b'K', None) => {
                let is_name = *tag == b'K';
                self.long = Some(LongText { is_name, ..LongText::default() });
                return true;
            }
            _ => {}
        }
        let builder = &mut self.builder;
        match tag {
            b'k' if rest.len() > json::NAME_BYTES_MAX => false,
            b'k' => std::str::from_utf8(rest).is_ok() && builder.name(JsonText::Bytes(rest)),
            b'[' | b'{' if builder.depth() >= json::LEVELS_MAX => false,
            b'[' | b'{' => builder.open(*tag == b'{'),
            b'c' => builder.close(),
            _ => match scalar(*tag, rest) {
                Some(view) => builder.value(json::Value::scalar(view)),
                None => false,
            },
        }
    }

    fn end_long(&mut self) -> bool {
        let Some(long) = self.long.take().filter(|long| long.begun.is_empty()) else {
            return false;
        };
        let text = JsonText::Blob(&long.text);
        match long.is_name {
            true => self.builder.name(text),
            false => self.builder.value(json::Value::scalar(View::Text(text))),
        }
    }
}

/// The value of a token other than an array, an object or a long text. `None` if it is invalid, or
/// if the value should have another tag: each value has one encoding.
fn scalar(tag: u8, rest: &[u8]) -> Option<View<'_>> {
    let eight = || <[u8; 8]>::try_from(rest).ok();
    match tag {
        b'n' if rest.is_empty() => Some(View::Null),
        b't' if rest.is_empty() => Some(View::Bool(true)),
        b'f' if rest.is_empty() => Some(View::Bool(false)),
        b's' => std::str::from_utf8(rest).ok().map(|_| View::Text(JsonText::Bytes(rest))),
        b'i' => eight().map(|eight| View::Int(i64::from_le_bytes(eight))),
        b'u' => {
            let value = u64::from_le_bytes(eight()?);
            i64::try_from(value).is_err().then_some(View::Uint(value))
        }
        b'd' => {
            let value = f64::from_le_bytes(eight()?);
            value.is_finite().then_some(View::Float(value))
        }
        _ => None,
    }
}

/// Writes a token in the file format.
///
/// ```text
/// n null   t true   f false   i, u, d + 8 bytes: an integer, one without a sign, a double
/// s + text a string   k + text a name   [ { array, object   c its end
/// S, K: a long string, a long name: parts follow, p + text, and e
/// ```
fn write(token: Token<'_>, out: &mut Vec<u8>) {
    let mut tagged = |tag: u8, rest: &[u8]| {
        out.push(tag);
        out.extend_from_slice(rest);
    };
    match token {
        Token::Name(name) => write_text(b'k', name, out),
        Token::Scalar(View::Null) => tagged(b'n', &[]),
        Token::Scalar(View::Bool(is_true)) => tagged(if is_true { b't' } else { b'f' }, &[]),
        Token::Scalar(View::Int(value)) => tagged(b'i', &value.to_le_bytes()),
        Token::Scalar(View::Uint(value)) => tagged(b'u', &value.to_le_bytes()),
        Token::Scalar(View::Float(value)) => tagged(b'd', &value.to_le_bytes()),
        Token::Scalar(View::Text(text)) => write_text(b's', text, out),
        Token::Scalar(View::Node(_)) => unreachable!("an array is opened"),
        Token::Open { is_object, .. } => tagged(if is_object { b'{' } else { b'[' }, &[]),
        Token::Close => tagged(b'c', &[]),
        Token::Long { is_name, .. } => tagged(if is_name { b'K' } else { b'S' }, &[]),
        Token::Part(part) => tagged(b'p', part),
        Token::EndLong => tagged(b'e', &[]),
    }
}

fn write_text(tag: u8, text: JsonText<'_>, out: &mut Vec<u8>) {
    out.push(tag);
    text.pieces().for_each(|piece| out.extend_from_slice(piece));
}

impl Value for Json {
    fn content_bytes(&self) -> usize {
        match &self.0 {
            State::Empty => 0,
            State::Whole(value) => value.memory_bytes(),
            State::Building(building) => building.memory_bytes(),
        }
    }

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn items(&self, _: u64) -> Items {
        let (root, walk) = (self.root().cloned(), Walk::default());
        Box::new(Tokens { root, walk, bytes: Vec::new(), ends: VecDeque::new(), at: 0 })
    }

    fn take_in(&mut self, item: NewItem<'_>) -> bool {
        let NewItem::Pair { name, value, .. } = item else { return self.take_token(item.name()) };
        if let State::Empty = self.0 {
            self.0 = State::Whole(json::Value::empty(true));
        }
        let State::Whole(root) = &mut self.0 else { return false };
        let blob = value.to_blob();
        root.put(JsonText::Bytes(name), &json::Value::text(JsonText::Blob(&blob)));
        true
    }

    fn is_complete(&self) -> bool {
        !matches!(self.0, State::Building(_))
    }

    fn is_empty(&self) -> bool {
        self.root().is_none()
    }

    fn packed(&self) -> Option<PackedValue<'_>> {
        Some(TYPE.pack(false, self.root()?.packed()?))
    }

    fn take_packed(&mut self, packed: PackedValue<'_>) -> bool {
        let Some((bytes, _)) = TYPE.unpack(packed) else { return false };
        *self = Self::of(json::Value::of_packed(bytes));
        true
    }

    fn check_invariants(&self) {
        self.root().into_iter().for_each(json::Value::check_invariants);
    }
}

impl Typed for Json {
    const TYPE: &'static Type = TYPE;
}

impl Collection for Json {
    type Edit<'a> = JsonEdit<'a>;

    fn edit<'a>(&'a mut self, _: u64, recorder: Recorder<'a>) -> JsonEdit<'a> {
        JsonEdit { json: self, recorder }
    }
}

/// The tokens of a cut, for a file.
struct Tokens {
    root: Option<json::Value>,
    walk: Walk,
    /// Encoded tokens, one after another.
    bytes: Vec<u8>,
    /// The ends of the tokens that have not been returned yet.
    ends: VecDeque<usize>,
    /// The start of the next token.
    at: usize,
}

impl Tokens {
    /// Reads more tokens if none is left. Returns the cost of that, as a number of tokens.
    fn read(&mut self) -> usize {
        /// Tokens read at a time. Returning to the current place costs as much as several tokens.
        const BATCH: usize = 64;
        /// The cost of each level of that way, in tokens: a lookup in a tree or in some hundred
        /// bytes.
        const LEVEL_LOOKS: usize = 2;
        let Self { root, walk, bytes, ends, at } = self;
        let (Some(root), mut levels) = (root.as_ref(), 0) else { return 0 };
        while ends.is_empty() {
            (*at, levels) = (0, levels + walk.depth());
            bytes.clear();
            let more = walk.run(root, BATCH, &mut |token| {
                write(token, bytes);
                ends.push_back(bytes.len());
            });
            if !more {
                break;
            }
        }
        levels * LEVEL_LOOKS
    }
}

impl Source for Tokens {
    fn find(&mut self, looks: &mut usize) -> bool {
        *looks = looks.saturating_sub(self.read());
        true
    }

    fn next(&mut self) -> Option<Item<'_>> {
        self.read();
        let (begin, end) = (self.at, self.ends.pop_front()?);
        self.at = end;
        Some(Item::Single { name: &self.bytes[begin..end], deadline_ms: None })
    }

    fn rewind(&mut self) {
        self.walk = Walk::default();
        self.ends.clear();
    }
}

/// A change of a document, as recorded in the log.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields are what the variant says, by their usual names")]
pub enum JsonChange {
    /// Sets the value at the path.
    Assign { path: Place, value: json::Value },
    /// Sets a member of the object at the path.
    Put { path: Place, name: Vec<u8>, value: json::Value },
    /// Inserts the value into the array at the path, before the element at `place`.
    Insert { path: Place, place: usize, value: json::Value },
    /// Removes the value at the path.
    Remove { path: Place },
    /// Removes these elements of the array at the path, so that `left` are left.
    RemoveRange { path: Place, places: Range<usize>, left: usize },
}

/// A place in a document: its indexes, and the path of names.
#[derive(Clone, Debug)]
pub struct Place {
    /// The index on each level.
    pub indexes: Vec<usize>,
    /// The path for commands.
    pub text: Vec<u8>,
}

impl Place {
    fn bytes(&self) -> usize {
        size_of_val(&self.indexes[..]) + self.text.len()
    }
}

const REPLAYED: &Event = &Event::new("json.set", b'd');

impl Change for JsonChange {
    const TYPE: &'static Type = TYPE;

    fn held_bytes(&self) -> usize {
        let (path, held) = match self {
            Self::Assign { path, value } | Self::Insert { path, value, .. } => {
                (path, value.memory_bytes())
            }
            Self::Put { path, name, value } => (path, name.len() + value.memory_bytes()),
            Self::Remove { path } | Self::RemoveRange { path, .. } => (path, 0),
        };
        path.bytes() + held
    }

    fn apply(changes: &[Self], db: &mut Db, key: &Key<'_>) -> Result<(), WrongType> {
        db.edit::<Json, _>(key, true, |edit| changes.iter().for_each(|change| edit.apply(change)))?;
        Ok(())
    }

    fn encode(changes: &[Self], key: &[u8], to: &mut Commands) {
        commands::encode(changes, key, to);
    }
}

/// Changes a document, and records the effects. Paths must lead to existing values.
pub struct JsonEdit<'a> {
    json: &'a mut Json,
    recorder: Recorder<'a>,
}

impl JsonEdit<'_> {
    /// The current state of the document.
    #[must_use]
    pub fn root(&self) -> Option<&json::Value> {
        self.json.root()
    }

    fn change<R>(&mut self, path: &[usize], f: impl FnOnce(&mut json::Value) -> R) -> R {
        let State::Whole(root) = &mut self.json.0 else { unreachable!("the path is there") };
        root.edit(path, f)
    }

    /// Records a change of the value at `path`, which `change` makes of its place. If the path's text
    /// is too long for a command, the whole value around it is recorded instead.
    fn record(
        &mut self,
        event: &'static Event,
        (path, more): (&[usize], usize),
        change: impl FnOnce(Place) -> JsonChange,
    ) {
        let Self { json, recorder } = self;
        recorder.record(&[event], || {
            let root = json.root();
            match root.map_or(Some(b"$".to_vec()), |root| commands::path_text(root, path, more)) {
                Some(text) => change(Place { indexes: path.to_vec(), text }),
                None => assignment_around(root.expect("it has a path"), path),
            }
        });
    }

    /// Replaces a value. At the root there need not be one.
    pub fn set(&mut self, event: &'static Event, path: &[usize], value: &json::Value) {
        if path.is_empty() {
            self.json.0 = State::Whole(value.clone());
        } else {
            self.change(path, |old| *old = value.clone());
        }
        self.record(event, (path, 0), |path| JsonChange::Assign { path, value: value.clone() });
    }

    /// Sets a member of an object.
    pub fn put(&mut self, event: &'static Event, path: &[usize], name: &[u8], value: &json::Value) {
        self.change(path, |object| object.put(JsonText::Bytes(name), value));
        /// An escaped byte takes six.
        const ESCAPED: usize = 6;
        let more = ESCAPED * name.len() + 4;
        self.record(event, (path, more), |path| JsonChange::Put {
            path,
            name: name.to_vec(),
            value: value.clone(),
        });
    }

    /// Inserts a value into an array, before the element at `place` or at the end.
    pub fn insert(
        &mut self,
        event: &'static Event,
        path: &[usize],
        place: usize,
        value: &json::Value,
    ) {
        self.change(path, |array| array.insert(place, value));
        let change = |path| JsonChange::Insert { path, place, value: value.clone() };
        self.record(event, (path, 0), change);
    }

    /// Removes a value. Removing the root removes the key.
    pub fn remove(&mut self, event: &'static Event, path: &[usize]) {
        // Afterwards, its name is gone.
        let text = match self.root() {
            Some(root) if self.recorder.wants_effects() => commands::path_text(root, path, 0),
            _ => None,
        };
        match path.split_last() {
            None => self.json.0 = State::Empty,
            Some((place, path)) => self.change(path, |parent| parent.remove(*place)),
        }
        let Self { json, recorder } = self;
        recorder.record(&[event], || match (text, json.root()) {
            (None, Some(root)) => assignment_around(root, &path[..path.len() - 1]),
            (text, _) => {
                let text = text.unwrap_or_default();
                JsonChange::Remove { path: Place { indexes: path.to_vec(), text } }
            }
        });
    }

    /// Removes these elements of an array.
    pub fn remove_range(&mut self, event: &'static Event, path: &[usize], places: Range<usize>) {
        if !places.is_empty() {
            self.change(path, |array| array.remove_range(places.clone()));
        }
        let array = self.root().and_then(|root| root.at(path));
        let left = if let Some(View::Node(array)) = array { array.len() } else { 0 };
        let change = |path| JsonChange::RemoveRange { path, places, left };
        self.record(event, (path, 0), change);
    }

    fn apply(&mut self, change: &JsonChange) {
        match change {
            JsonChange::Assign { path, value } => self.set(REPLAYED, &path.indexes, value),
            JsonChange::Put { path, name, value } => {
                self.put(REPLAYED, &path.indexes, name, value);
            }
            JsonChange::Insert { path, place, value } => {
                self.insert(REPLAYED, &path.indexes, *place, value);
            }
            JsonChange::Remove { path } => self.remove(REPLAYED, &path.indexes),
            JsonChange::RemoveRange { path, places, .. } => {
                self.remove_range(REPLAYED, &path.indexes, places.clone());
            }
        }
    }
}

/// Sets the whole value around the one at `path`: the innermost whose path is short enough.
fn assignment_around(root: &json::Value, path: &[usize]) -> JsonChange {
    let short = (0..=path.len()).rev().find_map(|len| {
        let (indexes, text) = (&path[..len], commands::path_text(root, &path[..len], 0)?);
        Some((Place { indexes: indexes.to_vec(), text }, root.copy_at(indexes)?))
    });
    let (path, value) = short.expect("the root's path is short");
    JsonChange::Assign { path, value }
}

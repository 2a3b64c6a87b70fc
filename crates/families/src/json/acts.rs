//! The changes that commands make to the value at one place of a document.

use super::found;
use super::test::double;
use super::value::JsonEdit;
use super::waiting::Waiting;
use darter_keyspace::Event;
use darter_resp::{Output, Reply};
use darter_structs::json::{self, JsonText, Value, View};

const SET: &Event = &Event::new("json.set", b'd');
const MERGE: &Event = &Event::new("json.merge", b'd');
const DEL: &Event = &Event::new("json.del", b'd');
const CLEAR: &Event = &Event::new("json.clear", b'd');
const TOGGLE: &Event = &Event::new("json.toggle", b'd');
const NUMINCRBY: &Event = &Event::new("json.numincrby", b'd');
const NUMMULTBY: &Event = &Event::new("json.nummultby", b'd');
const STRAPPEND: &Event = &Event::new("json.strappend", b'd');
const ARRAPPEND: &Event = &Event::new("json.arrappend", b'd');
const ARRINSERT: &Event = &Event::new("json.arrinsert", b'd');
const ARRPOP: &Event = &Event::new("json.arrpop", b'd');
const ARRTRIM: &Event = &Event::new("json.arrtrim", b'd');

/// A change made at each place that a path finds.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Replaces the value by this one.
    Assign(Value),
    /// Merges this value into the existing one: RFC 7396.
    Merge(Value),
    /// Deletes the value.
    Delete,
    /// Empties arrays and objects, and sets numbers to 0.
    Clear,
    /// Inverts `true` and `false`.
    Toggle,
    /// Adds a number, or multiplies by it.
    Number {
        by: Number,
        is_product: bool,
    },
    /// Appends this text to a string.
    StrAppend(Value),
    /// Appends these values to an array; they are given as an array.
    ArrAppend(Value),
    ArrInsert {
        at: i64,
        values: Value,
    },
    ArrPop {
        at: i64,
    },
    ArrTrim {
        start: i64,
        stop: i64,
    },
}

/// A number of a document.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    pub(super) fn of(view: View<'_>) -> Option<Self> {
        match view {
            View::Int(value) => Some(Self::Int(value)),
            other => double(other).map(Self::Float),
        }
    }

    fn view(self) -> View<'static> {
        match self {
            Self::Int(value) => View::Int(value),
            Self::Float(value) => View::Float(value),
        }
    }

    /// The sum or the product: an integer if both are integers and the result fits. `None` if it is
    /// not finite.
    fn with(self, by: Self, is_product: bool) -> Option<Self> {
        if let (Self::Int(one), Self::Int(two)) = (self, by) {
            let result = if is_product { one.checked_mul(two) } else { one.checked_add(two) };
            if let Some(result) = result {
                return Some(Self::Int(result));
            }
        }
        let (one, two) = (double(self.view())?, double(by.view())?);
        let result = if is_product { one * two } else { one + two };
        result.is_finite().then_some(Self::Float(result))
    }
}

/// The results so far.
#[derive(Default)]
pub(super) struct Outcomes {
    /// The number of changed places.
    pub(super) changed: usize,
    /// A number for each place, or null if the value was of another kind. Encoded one after
    /// another, with their count.
    pub(super) answers: crate::counted_reply::CountedReply,
    /// The last result that was not null.
    pub(super) last: Option<Vec<u8>>,
    /// The removed elements.
    pub(super) popped: Waiting,
    /// Bytes of `answers`.
    pub(super) bytes: usize,
    /// Values already added to the array at the current place (or bytes added to the string), while
    /// more are still to be added.
    within: usize,
    /// The progress of merging a patch at the current place.
    merging: Option<Merging>,
    /// A result was not finite.
    pub(super) is_infinite: bool,
}

/// Values added to an array, and bytes added to a string, in one step.
const ADDED_AT_ONCE: usize = 32;
const BYTES_AT_ONCE: usize = 64 * 1024;

/// The encoding of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Integers, doubles and bulks of the protocol.
    Resp { resp3: bool },
    /// JSON text, for a reply that is a single text.
    Json,
}

impl Outcomes {
    /// True while the change at the current place is unfinished.
    pub(super) fn is_amid(&self) -> bool {
        self.within > 0 || self.merging.is_some()
    }

    fn add(&mut self, answer: Option<Vec<u8>>, form: Form) {
        let null = || match form {
            Form::Resp { resp3 } => encoded(resp3, |reply| reply.null()),
            Form::Json => b"null".to_vec(),
        };
        let mut text = answer.clone().unwrap_or_else(null);
        if form == Form::Json && self.answers.count() > 0 {
            text.insert(0, b',');
        }
        self.bytes += text.len();
        self.answers.append(&text, 1);
        self.last = answer.or(self.last.take());
    }
}

fn encoded(resp3: bool, write: impl FnOnce(&mut Reply<'_>)) -> Vec<u8> {
    let mut out = Output::default();
    write(&mut Reply::new(&mut out, resp3));
    out.flatten()
}

/// A number, encoded as a result.
fn number(number: Number, form: Form) -> Vec<u8> {
    let mut text = Vec::new();
    json::scalar(number.view(), &mut text);
    match (form, number) {
        (Form::Json, _) => text,
        (Form::Resp { resp3 }, Number::Int(value)) => encoded(resp3, |reply| reply.int(value)),
        (Form::Resp { resp3 }, Number::Float(_)) => {
            encoded(resp3, |reply| reply.double_text(&String::from_utf8_lossy(&text)))
        }
    }
}

impl Act {
    /// The kind of value that the change needs, in an error's words.
    pub(super) fn expects(&self) -> &'static str {
        match self {
            Self::Toggle => "not a bool",
            Self::Number { .. } => "does not contains a number",
            Self::StrAppend(_) => "not a string",
            _ => "not an array",
        }
    }

    /// The number of values added or merged at each place, at least 1 and at most about `most`.
    pub(super) fn values(&self, most: usize) -> usize {
        match self {
            Self::Merge(patch) => values_in(patch.view(), most),
            Self::ArrAppend(values) | Self::ArrInsert { values, .. } => {
                values.node().map_or(1, json::Node::len).max(1)
            }
            _ => 1,
        }
    }

    /// Makes the change at a place, or a part of it (`Outcomes::is_amid`). A value that has
    /// disappeared counts as one of another kind. If there is no document, the assigned or merged
    /// value becomes one.
    pub(super) fn apply(
        &self,
        edit: &mut JsonEdit<'_>,
        path: &[usize],
        out: &mut Outcomes,
        form: Form,
    ) {
        let before = out.changed;
        let answer = self.answer(edit, path, out, form);
        debug_assert!(answer.is_none() || out.changed >= before);
        match self {
            Self::Assign(_) | Self::Merge(_) | Self::Delete | Self::Clear | Self::ArrPop { .. } => {
            }
            _ if out.is_amid() => {}
            _ => out.add(answer, form),
        }
    }

    fn answer(
        &self,
        edit: &mut JsonEdit<'_>,
        path: &[usize],
        out: &mut Outcomes,
        form: Form,
    ) -> Option<Vec<u8>> {
        let count = |count: usize| {
            Some(number(Number::Int(i64::try_from(count).unwrap_or(i64::MAX)), form))
        };
        let Some(root) = edit.root() else {
            self.create(edit, out);
            return None;
        };
        let Some(view) = root.at(path) else {
            if let Self::ArrPop { .. } = self {
                out.popped.push_own(None);
            }
            return None;
        };
        match (self, view) {
            (Self::Assign(value), _) => {
                edit.set(SET, path, value);
                out.changed += 1;
                None
            }
            (Self::Merge(patch), _) => {
                merge_some(edit, path, patch, out);
                None
            }
            (Self::Delete, _) => {
                edit.remove(DEL, path);
                out.changed += 1;
                None
            }
            (Self::Clear, view) => {
                edit.set(CLEAR, path, &emptied(view)?);
                out.changed += 1;
                None
            }
            (Self::Toggle, View::Bool(is_true)) => {
                edit.set(TOGGLE, path, &Value::scalar(View::Bool(!is_true)));
                out.changed += 1;
                count(usize::from(!is_true))
            }
            (Self::Number { by, is_product }, view) => {
                let Some(result) = Number::of(view)?.with(*by, *is_product) else {
                    out.is_infinite = true;
                    return None;
                };
                let event = if *is_product { NUMMULTBY } else { NUMINCRBY };
                edit.set(event, path, &Value::scalar(result.view()));
                out.changed += 1;
                Some(number(result, form))
            }
            (Self::StrAppend(more), View::Text(text)) => {
                let (joined, len) = joined(text, more, out);
                edit.set(STRAPPEND, path, &joined);
                count(len)
            }
            (_, View::Node(node)) if !node.is_object() => {
                let len = node.len();
                let len = self.array(edit, path, len, out)?;
                count(len)
            }
            (Self::ArrPop { .. }, _) => {
                out.popped.push_own(None);
                None
            }
            _ => None,
        }
    }

    /// Creates the document, if there is none.
    fn create(&self, edit: &mut JsonEdit<'_>, out: &mut Outcomes) {
        match self {
            Self::Assign(value) => {
                edit.set(SET, &[], value);
                out.changed += 1;
            }
            Self::Merge(patch) => merge_some(edit, &[], patch, out),
            _ => {}
        }
    }

    /// Changes an array. Returns its length.
    fn array(
        &self,
        edit: &mut JsonEdit<'_>,
        path: &[usize],
        len: usize,
        out: &mut Outcomes,
    ) -> Option<usize> {
        let within = out.within;
        let from_front = |index: i64| {
            // The reported length includes only the values before this one.
            let signed = i64::try_from(len - within).unwrap_or(i64::MAX);
            if index < 0 { index.saturating_add(signed) } else { index }
        };
        match self {
            Self::ArrAppend(values) => {
                let added = add_some(edit, (ARRAPPEND, path, len), values, out);
                Some(len + added)
            }
            Self::ArrInsert { at, values } => {
                let place = usize::try_from(from_front(*at)).ok().filter(|place| *place <= len)?;
                let added = add_some(edit, (ARRINSERT, path, place + within), values, out);
                Some(len + added)
            }
            Self::ArrPop { at } => {
                let last = len.checked_sub(1);
                let place = last
                    .map(|last| usize::try_from(from_front(*at).max(0)).unwrap_or(last).min(last));
                let popped = place.and_then(|place| {
                    let full = [path, &[place]].concat();
                    edit.root()?.copy_at(&full)
                });
                if let Some(place) = place {
                    edit.remove_range(ARRPOP, path, place..place + 1);
                    out.changed += 1;
                }
                out.popped.push_own(popped);
                None
            }
            Self::ArrTrim { start, stop } => {
                let start = usize::try_from(from_front(*start).max(0)).unwrap_or(len).min(len);
                let end = from_front(*stop).saturating_add(1).max(0);
                let end = usize::try_from(end).unwrap_or(len).min(len);
                let kept = start..end.max(start);
                edit.remove_range(ARRTRIM, path, kept.end..len);
                edit.remove_range(ARRTRIM, path, 0..kept.start.min(kept.end));
                out.changed += 1;
                Some(kept.len())
            }
            _ => None,
        }
    }

    /// Adds a member to the object at a place, or a part of it, if the whole path found nothing.
    pub(super) fn add(
        &self,
        edit: &mut JsonEdit<'_>,
        (path, name): (&[usize], &[u8]),
        out: &mut Outcomes,
    ) {
        let Some(View::Node(node)) = edit.root().and_then(|root| root.at(path)) else { return };
        if !node.is_object() {
            return;
        }
        match self {
            Self::Merge(patch) if patch.node().is_some_and(json::Node::is_object) => {
                let place = node.find(JsonText::Bytes(name)).unwrap_or_else(|| {
                    edit.put(MERGE, path, name, &Value::empty(true));
                    node_len(edit, path) - 1
                });
                merge_some(edit, &[path, &[place]].concat(), patch, out);
            }
            Self::Assign(value) | Self::Merge(value) => {
                let event = if let Self::Merge(_) = self { MERGE } else { SET };
                edit.put(event, path, name, value);
                out.changed += 1;
            }
            _ => unreachable!("it needs a value"),
        }
    }
}

/// The number of values in a patch, including nested objects, counted up to about `most`.
fn values_in(patch: View<'_>, most: usize) -> usize {
    let mut count = 1;
    if let View::Node(node) = patch
        && node.is_object()
    {
        for child in node.iter(0) {
            if count > most {
                break;
            }
            count += values_in(child.value, most - count.min(most));
        }
    }
    count
}

/// The number of values in the array or object at a place.
fn node_len(edit: &JsonEdit<'_>, path: &[usize]) -> usize {
    match edit.root().and_then(|root| root.at(path)) {
        Some(View::Node(node)) => node.len(),
        _ => 0,
    }
}

/// The value that JSON.CLEAR leaves; `None` if it is empty already.
fn emptied(view: View<'_>) -> Option<Value> {
    match view {
        View::Node(node) => (!node.is_empty()).then(|| Value::empty(node.is_object())),
        View::Int(0) => None,
        View::Int(_) | View::Uint(_) => Some(Value::scalar(View::Int(0))),
        View::Float(value) => (value != 0.0).then(|| Value::scalar(View::Float(0.0))),
        View::Null | View::Bool(_) | View::Text(_) => None,
    }
}

/// Adds the next values to an array, starting at an index. Returns their number.
fn add_some(
    edit: &mut JsonEdit<'_>,
    (event, path, place): (&'static Event, &[usize], usize),
    values: &Value,
    out: &mut Outcomes,
) -> usize {
    let count = values.node().map_or(0, json::Node::len);
    let more = (count - out.within).min(ADDED_AT_ONCE);
    for past in 0..more {
        if let Some(value) = values.copy_at(&[out.within + past]) {
            edit.insert(event, path, place + past, &value);
        }
    }
    out.within += more;
    if out.within == count {
        (out.within, out.changed) = (0, out.changed + 1);
    }
    more
}

/// The string extended by the next part of the appended text, and its length.
fn joined(text: JsonText<'_>, more: &Value, out: &mut Outcomes) -> (Value, usize) {
    let View::Text(more) = more.view() else { unreachable!("a text is added") };
    let part = more.part(out.within..out.within + BYTES_AT_ONCE);
    out.within += part.len();
    if out.within == more.len() {
        (out.within, out.changed) = (0, out.changed + 1);
    }
    let joined = match text {
        JsonText::Bytes(bytes) => Value::text(JsonText::Bytes(&[bytes, &part].concat())),
        JsonText::Blob(blob) => {
            let mut longer = blob.clone();
            longer.append(&part);
            Value::text(JsonText::Blob(&longer))
        }
    };
    (joined, text.len() + part.len())
}

/// Members of a patch that are merged in one step. A long name counts as one more member for each
/// such number of bytes, because it may be compared with 64 names.
const MERGED_AT_ONCE: usize = 16;
const NAME_BYTES: usize = 1024;
/// Objects within a patch that are larger than this are merged member by member.
const MERGED_BYTES_MAX: usize = 512;

/// The progress of merging a patch: the unfinished objects, each nested in the previous one.
#[derive(Debug)]
struct Merging(Vec<Level>);

#[derive(Debug)]
struct Level {
    /// The object's place in the patch, and the index of its next member.
    patch: Vec<usize>,
    next: usize,
    /// The place in the document into which the object is merged.
    target: Vec<usize>,
}

/// Merges the next members of a patch into the value at a place.
fn merge_some(edit: &mut JsonEdit<'_>, path: &[usize], patch: &Value, out: &mut Outcomes) {
    if patch.node().is_none_or(|node| !node.is_object()) {
        edit.set(MERGE, path, patch);
        out.changed += 1;
        return;
    }
    let mut merging = out.merging.take().unwrap_or_else(|| {
        if !is_object_at(edit, path) {
            edit.set(MERGE, path, &Value::empty(true));
        }
        Merging(vec![Level { patch: Vec::new(), next: 0, target: path.to_vec() }])
    });
    let mut left = MERGED_AT_ONCE;
    while left > 0 {
        let Some(name_bytes) = merging.step(edit, patch) else {
            out.changed += 1;
            return;
        };
        left = left.saturating_sub(1 + name_bytes / NAME_BYTES);
    }
    out.merging = Some(merging);
}

fn is_object_at(edit: &JsonEdit<'_>, path: &[usize]) -> bool {
    let view = edit.root().and_then(|root| root.at(path));
    matches!(view, Some(View::Node(node)) if node.is_object())
}

impl Merging {
    /// Merges the next member. Returns the bytes of its name; `None` after the last.
    fn step(&mut self, edit: &mut JsonEdit<'_>, patch: &Value) -> Option<usize> {
        let level = self.0.last_mut()?;
        let View::Node(node) = patch.at(&level.patch)? else { return None };
        let Some(child) = node.get(level.next) else {
            self.0.pop();
            return (!self.0.is_empty()).then_some(0);
        };
        let place = [&level.patch[..], &[level.next]].concat();
        level.next += 1;
        let is_large =
            |node: json::Node<'_>| node.is_object() && node.memory_bytes() > MERGED_BYTES_MAX;
        if matches!(child.value, View::Node(node) if is_large(node)) {
            let target = object_at_member(edit, &level.target, child);
            self.0.extend(target.map(|target| Level { patch: place, next: 0, target }));
        } else if let Some(value) = patch.copy_at(&place) {
            merge_member(edit, &level.target, child, &value);
        }
        Some(child.name.map_or(0, JsonText::len))
    }
}

/// The place of the member named like `child`, which is made an object if necessary.
fn object_at_member(
    edit: &mut JsonEdit<'_>,
    path: &[usize],
    child: json::Child<'_>,
) -> Option<Vec<usize>> {
    let name = child.name?;
    let View::Node(target) = edit.root()?.at(path)? else { return None };
    let place = target.find(name).unwrap_or(target.len());
    let member = [path, &[place]].concat();
    if !is_object_at(edit, &member) {
        edit.put(MERGE, path, &name.to_vec(), &Value::empty(true));
    }
    Some(member)
}

/// Merges one member into the object at a place.
fn merge_member(edit: &mut JsonEdit<'_>, path: &[usize], child: json::Child<'_>, value: &Value) {
    let (Some(root), Some(name)) = (edit.root(), child.name) else { return };
    let Some(View::Node(target)) = root.at(path) else { return };
    let old = target.find(name).map(|place| [path, &[place]].concat());
    match (old, child.value) {
        (Some(old), View::Null) => edit.remove(MERGE, &old),
        (None, View::Null) => {}
        (old, _) => {
            let old = old.and_then(|old| root.copy_at(&old)).unwrap_or_else(Value::null);
            edit.put(MERGE, path, &name.to_vec(), &merge(old, value));
        }
    }
}

/// Merges a patch into a value: members that are null in the patch are removed, objects are merged,
/// all others are replaced.
fn merge(target: Value, patch: &Value) -> Value {
    let Some(node) = patch.node().filter(|node| node.is_object()) else { return patch.clone() };
    let is_object = target.node().is_some_and(|node| node.is_object());
    let mut target = if is_object { target } else { Value::empty(true) };
    for (place, child) in node.iter(0).enumerate() {
        let (Some(name), Some(value)) = (child.name, patch.copy_at(&[place])) else { continue };
        let old = target.node().and_then(|node| node.find(name));
        match (old, child.value) {
            (Some(old), View::Null) => target.remove(old),
            (None, View::Null) => {}
            (old, _) => {
                let old = old.and_then(|old| target.copy_at(&[old])).unwrap_or_else(Value::null);
                target.put(name, &merge(old, &value));
            }
        }
    }
    target
}

/// The refusal for a legacy path that finds no value of the right kind.
pub(super) fn refusal(act: &Act, path: &super::path::Path) -> darter_command::Refusal {
    match act {
        Act::Number { .. } => darter_command::Refusal::quoting(
            "ERR Path '",
            &path.text,
            "' does not exist or does not contains a number",
        ),
        _ => found::no_path_or(path, act.expects()),
    }
}

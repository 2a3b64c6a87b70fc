//! Collects the places that a path finds, in slices, and refuses paths that find too much.

use super::path::Path;
use super::places::{Places, Sorting};
use super::select::{First, Select};
use super::value::Json;
use darter_command::{Cx, Refusal};
use darter_keyspace::Key;
use darter_structs::json::Value;

/// Values that are visited in one portion.
pub(super) const PORTION: usize = 256;

/// Bounds the values that a path may find or visit: this many per byte of the document, plus a
/// constant. A value takes at least one byte, and most paths find it once. But `$[0,0][0,0]..`
/// finds twice as many values with every step, without end.
const FOUND_A_BYTE: usize = 4;
const FOLLOWED_A_BYTE: usize = 1024;
const BYTES_MORE: usize = 1024;
/// Bounds the memory of the places: this many bytes per byte of the document, plus a constant. Each
/// place stores its whole path, so the places of small values at the deepest level take a thousand
/// times as much as the values.
const MEMORY_A_BYTE: usize = 64;
const MEMORY_MORE: usize = 16 * 1024 * 1024;

/// A path, and the places found so far.
pub(super) struct Found {
    pub(super) path: Path,
    select: Option<Select>,
    sorting: Option<Sorting>,
    pub(super) places: Places,
    /// The greatest depth of any place found.
    pub(super) levels: usize,
    /// The number of visited values.
    followed: usize,
    /// Nested places are left out, and all are in order.
    is_apart: bool,
}

impl Found {
    /// A search that has found nothing yet.
    pub(super) fn new(path: Path) -> Self {
        let select = Some(Select::new(path.steps.clone()));
        let places = Places::default();
        Self { path, select, sorting: None, places, levels: 0, followed: 0, is_apart: false }
    }

    /// A search for removals: values within others are left out, and places are in order.
    pub(super) fn apart(path: Path) -> Self {
        Self { is_apart: true, ..Self::new(path) }
    }

    /// Continues the search; stops at the first value if `one`. Returns true while there may be
    /// more.
    pub(super) fn seek(&mut self, root: &Value, one: bool) -> Result<bool, Refusal> {
        if let Some(sorting) = &mut self.sorting {
            let Some(places) = sorting.step() else { return Ok(true) };
            (self.places, self.sorting) = (places, None);
        }
        if self.select.is_none() {
            return Ok(false);
        }
        let more = if one { self.seek_first(root) } else { self.seek_some(root) };
        if more {
            self.check(root)?;
            return Ok(true);
        }
        self.select = None;
        if self.is_apart && !self.places.is_apart() {
            self.sorting = Some(Sorting::new(std::mem::take(&mut self.places)));
        }
        Ok(self.sorting.is_some())
    }

    fn seek_some(&mut self, root: &Value) -> bool {
        let Some(select) = &mut self.select else { return false };
        let (places, levels, is_apart) = (&mut self.places, &mut self.levels, self.is_apart);
        let mut budget = PORTION;
        let more = select.run(root.view(), root, &mut budget, &mut |path| {
            *levels = path.len().max(*levels);
            if is_apart { places.push_apart(path) } else { places.push(path) }
        });
        self.followed += PORTION - budget;
        more
    }

    fn seek_first(&mut self, root: &Value) -> bool {
        let Some(select) = &mut self.select else { return false };
        let mut budget = PORTION;
        let first = select.first(root.view(), root, &mut budget);
        self.followed += PORTION - budget;
        if let First::At(path) = &first {
            self.levels = path.len();
            self.places.push(path);
        }
        matches!(first, First::More)
    }

    /// Refuses a path that finds or visits too many values.
    fn check(&self, root: &Value) -> Result<(), Refusal> {
        let bytes = root.memory_bytes().saturating_add(BYTES_MORE);
        let is_much = self.places.len() > bytes.saturating_mul(FOUND_A_BYTE)
            || self.followed > bytes.saturating_mul(FOLLOWED_A_BYTE);
        if is_much { Err(too_many()) } else { check_memory(root, self.memory_bytes()) }
    }

    /// The number of visited values.
    pub(super) fn followed(&self) -> usize {
        self.followed
    }

    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.places.memory_bytes() + self.sorting.as_ref().map_or(0, Sorting::memory_bytes)
    }
}

fn too_many() -> Refusal {
    Refusal::line("ERR path finds too many values")
}

/// Refuses places that take too many bytes.
pub(super) fn check_memory(root: &Value, bytes: usize) -> Result<(), Refusal> {
    let most = root.memory_bytes().saturating_mul(MEMORY_A_BYTE).saturating_add(MEMORY_MORE);
    if bytes > most { Err(too_many()) } else { Ok(()) }
}

/// The document at a key, as a cut.
pub(super) fn cut(cx: &mut Cx<'_>, key: &Key<'_>) -> Result<Option<Value>, Refusal> {
    let Some(found) = cx.find(key) else { return Ok(None) };
    let json = found.value::<Json>().map_err(|_| wrong_type())?;
    Ok(json.root().cloned())
}

/// RedisJSON's error for a key of another type.
pub(super) fn wrong_type() -> Refusal {
    Refusal::line("Existing key has wrong Redis type")
}

/// RedisJSON's error for a missing document.
pub(super) fn no_document() -> Refusal {
    Refusal::line("ERR could not perform this operation on a key that doesn't exist")
}

/// RedisJSON's error for a legacy path that finds nothing.
pub(super) fn no_path(path: &Path) -> Refusal {
    Refusal::quoting("ERR Path '", &path.text, "' does not exist")
}

/// RedisJSON's error for a path that finds nothing or a value of the wrong kind.
pub(super) fn no_path_or(path: &Path, or: &str) -> Refusal {
    Refusal::quoting("ERR Path '", &path.text, &format!("' does not exist or {or}"))
}

/// The name of a value's type in JSON.TYPE.
pub(super) fn type_name(view: darter_structs::json::View<'_>) -> &'static str {
    use darter_structs::json::View;
    match view {
        View::Null => "null",
        View::Bool(_) => "boolean",
        View::Int(_) | View::Uint(_) => "integer",
        View::Float(_) => "number",
        View::Text(_) => "string",
        View::Node(node) if node.is_object() => "object",
        View::Node(_) => "array",
    }
}

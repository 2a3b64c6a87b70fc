//! What a path finds, sought in slices, and the errors where it finds nothing.

use super::path::Path;
use super::select::{Places, Select};
use super::value::Json;
use darter_command::{Cx, Refusal};
use darter_keyspace::Key;
use darter_structs::json::Value;

/// Values that are followed in one portion: some 20 us.
pub(super) const PORTION: usize = 256;

/// A path, and what it has found so far.
pub(super) struct Found {
    pub(super) path: Path,
    select: Option<Select<'static>>,
    pub(super) places: Places,
    /// No value is kept that is within another.
    is_apart: bool,
}

impl Found {
    /// Nothing so far.
    pub(super) fn new(path: Path) -> Self {
        let select = Some(Select::owned(path.steps.clone()));
        Self { path, select, places: Places::default(), is_apart: false }
    }

    /// For removals: values within others are left out.
    pub(super) fn apart(path: Path) -> Self {
        Self { is_apart: true, ..Self::new(path) }
    }

    /// Seeks on; the first is enough if `one`. True while there may be more.
    pub(super) fn seek(&mut self, root: &Value, one: bool) -> bool {
        let Some(select) = &mut self.select else { return false };
        let (places, is_apart) = (&mut self.places, self.is_apart);
        let more = select.run(root.view(), root, PORTION, &mut |path, _| {
            if !(one && places.len() > 0) {
                if is_apart { places.push_apart(path) } else { places.push(path) }
            }
        });
        if more && !(one && self.places.len() > 0) {
            return true;
        }
        self.select = None;
        false
    }
}

/// The document at a key, as a cut.
pub(super) fn cut(cx: &mut Cx<'_>, key: &Key<'_>) -> Result<Option<Value>, Refusal> {
    let Some(found) = cx.find(key) else { return Ok(None) };
    let json = found.value::<Json>().map_err(|_| wrong_type())?;
    Ok(json.root().cloned())
}

/// What RedisJSON says of a key with something else.
pub(super) fn wrong_type() -> Refusal {
    Refusal::line("Existing key has wrong Redis type")
}

/// What it says where a document must be there.
pub(super) fn no_document() -> Refusal {
    Refusal::line("ERR could not perform this operation on a key that doesn't exist")
}

/// What it says where a path of the older form finds nothing.
pub(super) fn no_path(path: &Path) -> Refusal {
    Refusal::quoting("ERR Path '", &path.text, "' does not exist")
}

/// What it says where that may also be of the wrong kind.
pub(super) fn no_path_or(path: &Path, or: &str) -> Refusal {
    Refusal::quoting("ERR Path '", &path.text, &format!("' does not exist or {or}"))
}

/// The name that JSON.TYPE has for a value.
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

//! All libraries, and which function belongs to which: one immutable map, which the cores share.
//!
//! A change makes a new registry from this one. Both share the unchanged parts: the maps are cut
//! into shards by the names' hashes, and only shards with changes are copied. Work on each function
//! of a library is done in portions.

use crate::library::{Function, Library, Source};
use darter_base::hash;
use darter_base::lazyfree;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Shards of each map. A power of two.
const SHARDS: usize = 256;

/// Functions linked or unlinked in a portion: each may be in a shard of its own.
const PORTION: usize = 32;

/// A map that shares unchanged shards with its copies.
#[derive(Clone, Debug)]
struct Map<V> {
    shards: Vec<Arc<BTreeMap<Box<str>, V>>>,
    len: usize,
}

impl<V: Clone> Map<V> {
    fn get(&self, name: &str) -> Option<&V> {
        if self.len == 0 {
            return None;
        }
        self.shards[shard_of(name)].get(name)
    }

    fn insert(&mut self, name: &str, value: V) {
        if self.shards.is_empty() {
            self.shards.resize_with(SHARDS, Arc::default);
        }
        let shard = Arc::make_mut(&mut self.shards[shard_of(name)]);
        self.len += usize::from(shard.insert(name.into(), value).is_none());
    }

    fn remove(&mut self, name: &str) {
        let shard = Arc::make_mut(&mut self.shards[shard_of(name)]);
        self.len -= usize::from(shard.remove(name).is_some());
    }
}

fn shard_of(name: &str) -> usize {
    let hash = hash::of(name.as_bytes());
    usize::try_from(hash % SHARDS as u64).expect("less than the number of shards")
}

/// The place of a function.
#[derive(Clone, Debug)]
struct Place {
    library: Arc<Library>,
    index: usize,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    /// The libraries by their names.
    libraries: Map<Arc<Library>>,
    /// The functions by their names in lower case.
    functions: Map<Place>,
    /// Functions of all libraries.
    functions_len: usize,
    /// The memory of libraries and functions, including their names in the maps.
    bytes: usize,
}

impl<V> Default for Map<V> {
    fn default() -> Self {
        Self { shards: Vec::new(), len: 0 }
    }
}

impl Registry {
    /// A library.
    #[must_use]
    pub fn library(&self, name: &str) -> Option<&Arc<Library>> {
        self.libraries.get(name)
    }

    /// A function by its name, ignoring case: its library, and its index there.
    #[must_use]
    pub fn function(&self, name: &[u8]) -> Option<(&Arc<Library>, usize)> {
        let name = std::str::from_utf8(name).ok()?;
        let place = if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            self.functions.get(&name.to_ascii_lowercase())
        } else {
            self.functions.get(name)
        };
        place.map(|place| (&place.library, place.index))
    }

    /// The number of libraries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.libraries.len
    }

    /// True if it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.libraries.len == 0
    }

    /// The number of functions.
    #[must_use]
    pub fn functions_len(&self) -> usize {
        self.functions_len
    }

    /// Bytes of all libraries: their texts, and the facts about their functions. The memory in
    /// machines is not included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// All libraries, in no particular order.
    pub fn libraries(&self) -> impl Iterator<Item = &Arc<Library>> {
        self.libraries.shards.iter().flat_map(|shard| shard.values())
    }

    /// Removes a portion of a library's functions, from `index` on, and at last the library.
    /// Returns the next index; `None` at the end.
    pub fn unlink(&mut self, library: &Arc<Library>, index: usize) -> Option<usize> {
        let is_its_own = |place: &Place| Arc::ptr_eq(&place.library, library);
        for function in library.functions.from(index).take(PORTION) {
            let name = function.name.to_ascii_lowercase();
            if self.functions.get(&name).is_some_and(is_its_own) {
                self.functions.remove(&name);
            }
            self.functions_len -= 1;
            self.bytes -= bytes_of_function(function);
        }
        if index + PORTION < library.functions.len() {
            return Some(index + PORTION);
        }
        self.libraries.remove(&library.source.name);
        self.bytes -= bytes_of(library);
        None
    }

    /// Adds a portion of a library's functions, from `index` on, and at last the library. Returns
    /// the next index; `None` at the end.
    ///
    /// If names of two functions of one library differ in case only, the first is found.
    ///
    /// # Errors
    /// A function that another library has.
    pub fn link(
        &mut self,
        library: &Arc<Library>,
        index: usize,
    ) -> Result<Option<usize>, Arc<str>> {
        debug_assert!(self.library(&library.source.name).is_none(), "it was unlinked");
        for (at, function) in library.functions.from(index).take(PORTION).enumerate() {
            let name = function.name.to_ascii_lowercase();
            match self.functions.get(&name) {
                Some(place) if Arc::ptr_eq(&place.library, library) => {}
                Some(_) => return Err(Arc::clone(&function.name)),
                None => {
                    let place = Place { library: Arc::clone(library), index: index + at };
                    self.functions.insert(&name, place);
                }
            }
            self.functions_len += 1;
            self.bytes += bytes_of_function(function);
        }
        if index + PORTION < library.functions.len() {
            return Ok(Some(index + PORTION));
        }
        self.libraries.insert(&library.source.name, Arc::clone(library));
        self.bytes += bytes_of(library);
        Ok(None)
    }
}

/// The memory of a library, without its functions.
fn bytes_of(library: &Library) -> usize {
    const ENTRY: usize = size_of::<(Box<str>, Arc<Library>, Library, Source)>();
    ENTRY + 2 * library.source.name.len() + library.source.text.len()
}

/// The memory of a function.
fn bytes_of_function(function: &Function) -> usize {
    const ENTRY: usize = size_of::<(Box<str>, Place, Function)>();
    ENTRY + 2 * function.name.len() + function.description.as_ref().map_or(0, |text| text.len())
}

impl Drop for Registry {
    fn drop(&mut self) {
        /// At most this many functions and libraries are freed at once.
        const FEW: usize = 256;
        if self.functions_len + self.libraries.len > FEW {
            let functions = std::mem::take(&mut self.functions.shards);
            let libraries = std::mem::take(&mut self.libraries.shards);
            // Most of it is probably shared with other versions.
            lazyfree::defer_long(functions, 1, 0);
            lazyfree::defer_long(libraries, 1, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::Functions;
    use crate::shebang::Flags;
    use darter_base::Prng;
    use std::collections::BTreeMap;

    fn library(name: &str, functions: &[String]) -> Arc<Library> {
        let text = format!("#!lua name={name}\n");
        let source = Arc::new(Source::read(text.into()).unwrap());
        let mut all = Functions::default();
        for name in functions {
            let name = name.as_str().into();
            all.push(Function { name, description: None, flags: Flags::default() });
        }
        Arc::new(Library { source, functions: all })
    }

    fn link(registry: &mut Registry, library: &Arc<Library>) -> Result<(), Arc<str>> {
        let mut next = Some(0);
        while let Some(index) = next {
            next = registry.link(library, index)?;
        }
        Ok(())
    }

    fn unlink(registry: &mut Registry, library: &Arc<Library>) {
        let mut next = Some(0);
        while let Some(index) = next {
            next = registry.unlink(library, index);
        }
    }

    #[test] // Random changes, compared with a model.
    fn changing_a_registry_does_not_affect_earlier_versions() {
        let mut prng = Prng::from_seed(3);
        let mut model: BTreeMap<String, Arc<Library>> = BTreeMap::new();
        let mut registry = Registry::default();
        for step in 0..2_000_u64 {
            let before = (registry.clone(), model.clone());
            let name = format!("l{}", prng.below(20));
            if let Some(old) = model.remove(&name) {
                unlink(&mut registry, &old);
            } else {
                let first = prng.below(3_000);
                let count = [0, 1, 31, 32, 33, 64, 100][prng.below(7) as usize];
                let names: Vec<_> = (first..first + count).map(|at| format!("F{at}")).collect();
                let new = library(&name, &names);
                let has = |other: &&Arc<Library>| {
                    other
                        .functions
                        .from(0)
                        .any(|function| names.iter().any(|name| **name == *function.name))
                };
                let other = model.values().find(has);
                match link(&mut registry, &new) {
                    Ok(()) => {
                        assert!(other.is_none(), "step {step}");
                        model.insert(name, new);
                    }
                    Err(_) => {
                        assert!(other.is_some(), "step {step}");
                        registry = before.0.clone();
                    }
                }
            }
            check(&registry, &model);
            check(&before.0, &before.1);
        }
        drop(registry);
        while lazyfree::run(&darter_base::preempt::Never) {}
    }

    fn check(registry: &Registry, model: &BTreeMap<String, Arc<Library>>) {
        assert_eq!(registry.len(), model.len());
        assert_eq!(registry.libraries().count(), model.len());
        let all: usize = model.values().map(|library| library.functions.len()).sum();
        assert_eq!(registry.functions_len(), all);
        let bytes = |library: &Arc<Library>| -> usize {
            let functions = library.functions.from(0).map(bytes_of_function);
            bytes_of(library) + functions.sum::<usize>()
        };
        assert_eq!(registry.bytes(), model.values().map(bytes).sum::<usize>());
        for (name, library) in model {
            assert!(Arc::ptr_eq(registry.library(name).unwrap(), library));
            let first = library.functions.get(0);
            if let Some(first) = first {
                let (found, index) = registry.function(first.name.as_bytes()).unwrap();
                assert!(Arc::ptr_eq(found, library) && index == 0);
                assert!(registry.function(first.name.to_lowercase().as_bytes()).is_some());
            }
        }
    }

    #[test] // As Redis counts them, and without its end.
    fn function_names_differ_by_case_as_in_redis() {
        let mut registry = Registry::default();
        let both = library("a", &["f".into(), "F".into()]);
        link(&mut registry, &both).unwrap();
        assert_eq!(registry.functions_len(), 2);
        assert_eq!(registry.function(b"F").unwrap().1, 0);
        assert_eq!(&*link(&mut registry, &library("b", &["F".into()])).unwrap_err(), "F");
        unlink(&mut registry, &both);
        assert!(registry.is_empty() && registry.function(b"f").is_none());
    }
}

//! The modules of a crate, and which of them each file names: what `use` and plain paths say,
//! without a compiler.
//!
//! A path counts if it begins with `crate`, `super` or `self`. It leads to the longest module that
//! it names; a name that a module re-exports (`pub use`) leads to its origin. Comments, strings and
//! tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A module by its names from the crate's root on; empty: the root itself.
pub(crate) type Module = Vec<String>;

/// A crate's files by their modules.
pub(crate) struct Crate {
    files: BTreeMap<Module, String>,
    /// A module's re-exports and their origins, as written.
    reexports: BTreeMap<(Module, String), Module>,
}

impl Crate {
    /// The files of the crate whose sources are in `folder`, except tests.
    pub(crate) fn new<'a>(
        folder: &Path,
        sources: impl Iterator<Item = (&'a Path, &'a str)>,
    ) -> Self {
        let mut files = BTreeMap::new();
        for (path, text) in sources {
            if let Ok(path) = path.strip_prefix(folder)
                && let Some(module) = module_of(path)
            {
                files.insert(module, code_of(text));
            }
        }
        let mut reexports = BTreeMap::new();
        for (module, code) in &files {
            for public in split(code).0.iter().filter(|used| used.is_public) {
                for path in paths(public.tree) {
                    if let Some(name) = path.last().cloned() {
                        reexports.insert((module.clone(), name), path);
                    }
                }
            }
        }
        Self { files, reexports }
    }

    /// All modules.
    pub(crate) fn modules(&self) -> impl Iterator<Item = &Module> {
        self.files.keys()
    }

    /// The code of a module.
    pub(crate) fn code(&self, module: &Module) -> &str {
        &self.files[module]
    }

    /// The other modules that a module names.
    pub(crate) fn named_by(&self, module: &Module) -> BTreeSet<Module> {
        let (uses, rest) = split(self.code(module));
        let used = uses.iter().flat_map(|used| paths(used.tree));
        let named = used.chain(plain(&rest));
        named.filter_map(|path| self.resolve(module, &path)).filter(|to| to != module).collect()
    }

    /// The module that a path leads to, as written in `from`; none outside the crate.
    fn resolve(&self, from: &Module, path: &[String]) -> Option<Module> {
        let mut at = from.clone();
        for (index, word) in path.iter().enumerate() {
            match word.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => _ = at.pop(),
                word => {
                    at.push(word.to_owned());
                    if self.files.contains_key(&at) {
                        continue;
                    }
                    at.pop();
                    if index == 0 {
                        return None; // Another crate, or a name of its own.
                    }
                    let reexports = self.reexports.get(&(at.clone(), word.to_owned()));
                    return match reexports {
                        Some(path) => self.resolve(&at, path).or(Some(at)),
                        None => Some(at),
                    };
                }
            }
        }
        Some(at)
    }
}

/// The module of a file; none for tests.
fn module_of(path: &Path) -> Option<Module> {
    let mut module: Module =
        path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module.iter().any(|part| part.ends_with("tests")) {
        return None;
    }
    if ["lib", "main", "mod"].iter().any(|root| module.last().is_some_and(|last| last == root)) {
        module.pop();
    }
    Some(module)
}

/// The code of a file without comments, strings and tests.
fn code_of(text: &str) -> String {
    let mut marks = text.match_indices("#[cfg(test)]\n").map(|(at, mark)| (at, at + mark.len()));
    let is_module =
        |from: usize| text[from..].lines().next().is_some_and(|line| line.ends_with("mod tests {"));
    let end = marks.find(|(_, next)| is_module(*next)).map_or(text.len(), |(at, _)| at);
    let mut code = String::new();
    for line in text[..end].lines() {
        let line = line.split("//").next().unwrap_or_default();
        code.extend(line.split('"').step_by(2));
        code.push('\n');
    }
    code
}

/// One `use` statement.
struct Use<'a> {
    /// The module re-exports the names.
    is_public: bool,
    tree: &'a str,
}

/// All `use` statements of a file, and the code between them.
fn split(code: &str) -> (Vec<Use<'_>>, String) {
    let (mut uses, mut rest, mut from) = (Vec::new(), String::new(), 0);
    for (at, word) in code.match_indices("use ") {
        let visible = code[..at].rsplit('\n').next().unwrap_or_default().trim();
        let is_use = at >= from && (visible.is_empty() || visible.starts_with("pub"));
        let Some(end) = code[at..].find(';').filter(|_| is_use) else { continue };
        rest.push_str(&code[from..at]);
        let tree = &code[at + word.len()..at + end];
        uses.push(Use { is_public: !visible.is_empty(), tree });
        from = at + end;
    }
    rest.push_str(&code[from..]);
    (uses, rest)
}

/// The paths of a tree: `a::{b, c::{d, e}}`.
fn paths(tree: &str) -> Vec<Module> {
    let mut paths = Vec::new();
    branch(&[], tree, &mut paths);
    paths
}

fn branch(stem: &[String], tree: &str, paths: &mut Vec<Module>) {
    let (head, rest) = tree.split_once('{').map_or((tree, None), |(head, rest)| (head, Some(rest)));
    let mut path = stem.to_vec();
    let words = head.split("::").map(|word| word.split(" as ").next().unwrap_or_default().trim());
    path.extend(words.filter(|word| !word.is_empty() && *word != "*").map(str::to_owned));
    let Some(rest) = rest else {
        if path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        return paths.push(path);
    };
    let (mut depth, mut from) = (0, 0);
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => {
                branch_of(&path, &rest[from..at], paths);
                return;
            }
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                branch_of(&path, &rest[from..at], paths);
                from = at + 1;
            }
            _ => {}
        }
    }
}

fn branch_of(stem: &[String], tree: &str, paths: &mut Vec<Module>) {
    if !tree.trim().is_empty() {
        branch(stem, tree.trim(), paths);
    }
}

/// Paths in the code itself: `crate::a::b`.
fn plain(code: &str) -> Vec<Module> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    code.split(|c| !is_part(c))
        .filter(|word| ["crate::", "super::", "self::"].iter().any(|root| word.starts_with(root)))
        .map(|word| word.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(files: &[(&str, &str)], module: &str) -> Vec<String> {
        let folder = Path::new("/w/src");
        let paths: Vec<_> = files.iter().map(|(path, _)| folder.join(path)).collect();
        let texts = files.iter().map(|(_, text)| *text);
        let server = Crate::new(folder, paths.iter().map(|path| path.as_path()).zip(texts));
        let module = module.split("::").map(str::to_owned).collect();
        server.named_by(&module).iter().map(|to| to.join("::")).collect()
    }

    #[test] // Re-exported names lead to their origin.
    fn use_paths_are_resolved_to_modules() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a/mod.rs", "mod one;\nmod two;\npub use one::{One, First as Second};"),
            ("a/one.rs", "pub struct One;"),
            ("a/two.rs", "use super::one::One;\nuse std::fmt;\nfn f() { crate::b::f() }"),
            ("b.rs", "use crate::{a::{self, One}, c};\nuse darter_base::Prng;"),
            (
                "c.rs",
                "// crate::b\nconst C: &str = \"crate::b\";\n#[cfg(test)]\nmod tests {\nuse crate::b;\n}",
            ),
            ("a/tests.rs", "use crate::c;"),
        ];
        assert_eq!(named(&files, "a::two"), ["a::one", "b"]);
        assert_eq!(named(&files, "b"), ["a", "a::one", "c"]);
        assert_eq!(named(&files, "c"), [""; 0]);
        assert_eq!(named(&files, "a"), ["a::one"]);
    }
}

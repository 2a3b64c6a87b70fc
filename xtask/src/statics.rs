//! Global state, of the process or of a thread: all of it is listed in ARCHITECTURE.md, with the reason
//! why it is not passed in.
//!
//! The list is the table below the heading [`HEADING`]: a static's name, or the name of its type, and
//! its file. A static that it lacks is a fault, and so is a row without its static. Tables that never
//! change do not count: references, and those of [`CONSTANT`].

use std::path::Path;

/// The heading of the list.
const HEADING: &str = "### Global state";
/// The types that have no state.
const CONSTANT: &[&str] = &["&", "Crc<", "Types"];

/// A static, as the code declares it.
#[derive(Debug, PartialEq, Eq)]
struct Static<'a> {
    name: &'a str,
    kind: &'a str,
}

/// Returns the statics that are only in the code or only in the list.
pub(crate) fn faults<'a>(
    root: &Path,
    sources: impl Iterator<Item = (&'a Path, &'a str)>,
    architecture: &str,
) -> Vec<String> {
    let rows: Vec<(&str, &str)> = listed(architecture);
    let (mut faults, mut found) = (Vec::new(), Vec::new());
    for (path, text) in sources {
        let path = path.strip_prefix(root).unwrap_or(path);
        for state in statics(text).filter(|_| is_counted(path)) {
            let file = path.to_string_lossy();
            let row = rows
                .iter()
                .find(|(name, at)| *name == state.kind || (*name == state.name && *at == file));
            match row {
                Some(row) => found.push(*row),
                None => faults.push(format!("{file}: {} is not listed", state.name)),
            }
        }
    }
    let lost = rows.iter().filter(|row| !found.contains(row));
    faults.extend(lost.map(|(name, path)| format!("ARCHITECTURE.md: no {name} in {path}")));
    faults
}

/// The rows of the list. Each is the first two texts in backquotes.
fn listed(architecture: &str) -> Vec<(&str, &str)> {
    let section = architecture.lines().skip_while(|line| *line != HEADING).skip(1);
    let rows =
        section.take_while(|line| !line.starts_with('#')).filter(|line| line.starts_with('|'));
    rows.filter_map(|row| {
        let mut texts = row.split('`').skip(1).step_by(2);
        Some((texts.next()?, texts.next()?))
    })
    .collect()
}

/// The program and its crates, but for tests, examples and allocators, of which each program has one.
fn is_counted(path: &Path) -> bool {
    let is_test = path.components().any(|part| {
        let part = part.as_os_str().to_string_lossy();
        ["tests", "examples"].contains(&&*part) || part.ends_with("tests.rs")
    });
    !is_test && (path.starts_with("src") || path.starts_with("crates"))
}

fn statics(text: &str) -> impl Iterator<Item = Static<'_>> {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines = text[..end].lines().map(str::trim);
    lines.filter_map(|line| {
        let (visible, rest) = line.split_once("static ")?;
        let is_item = ["", "pub ", "pub(crate) ", "pub(super) "].contains(&visible);
        let (name, kind) = rest.split_once(": ").filter(|_| is_item)?;
        let kind = kind.split([' ', '=']).next().unwrap_or_default();
        let is_constant = CONSTANT.iter().any(|constant| kind.starts_with(constant));
        (!is_constant).then_some(Static { name, kind })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "### Global state\n\n| state | where | why |\n|---|---|---|\n\
         | `SEED` | `crates/base/src/hash.rs` | x |\n| `Bound` | `crates/x/src/bound.rs` | y |\n\
         ### Next\n| `OTHER` | `crates/base/src/hash.rs` | z |\n";

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let root = Path::new("/w");
        let paths: Vec<_> = files.iter().map(|(path, _)| root.join(path)).collect();
        let texts = files.iter().map(|(_, text)| *text);
        faults(root, paths.iter().map(|path| path.as_path()).zip(texts), LIST)
    }

    #[test] // By name and file, or by type; tables and tests are exempt.
    fn statics_missing_from_the_list_are_found() {
        let hash = "static SEED: AtomicU64 = AtomicU64::new(1);\nstatic T: &[u8] = b\"\";\n\
            #[cfg(test)]\nmod tests {\n    static LOCK: Mutex<()> = Mutex::new(());\n}\n";
        let files = [
            ("crates/base/src/hash.rs", hash),
            ("crates/y/src/set.rs", "pub(crate) static MAX: Bound = Bound::new(1);"),
            ("crates/y/src/tests/a.rs", "static X: AtomicU64 = AtomicU64::new(1);"),
        ];
        assert_eq!(found(&files), [""; 0]);
        let files = [
            ("crates/y/src/set.rs", "static MAX: Bound = Bound::new(1);"),
            (
                "crates/y/src/hash.rs",
                "thread_local! {\n    static SEED: Cell<u8> = const { Cell::new(0) };\n}",
            ),
        ];
        assert_eq!(
            found(&files),
            [
                "crates/y/src/hash.rs: SEED is not listed",
                "ARCHITECTURE.md: no SEED in crates/base/src/hash.rs",
            ]
        );
    }
}

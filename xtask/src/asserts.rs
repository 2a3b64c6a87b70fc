//! Assertions: how many there are in a thousand lines of a crate's own code.
//!
//! Where data could be lost the norm is 25: structures, the keyspace, transactions. Crates whose
//! states are types need fewer. The counts are printed for all crates, and those that have a floor
//! must not fall below it.
//!
//! Counted are `assert!`, `debug_assert!` and their kin, in lines of code: not blank ones, comments
//! or tests.

use std::collections::BTreeMap;
use std::path::Path;

/// Crates with a floor, in assertions a thousand lines.
const FLOORS: &[(&str, usize)] = &[("structs", 25), ("keyspace", 25), ("tx", 25)];

/// Returns the faults, and prints a line for each crate.
pub(crate) fn faults<'a>(
    root: &Path,
    sources: impl Iterator<Item = (&'a Path, &'a str)>,
) -> Vec<String> {
    let mut crates = BTreeMap::<String, (usize, usize)>::new();
    for (path, text) in sources {
        if let Some(name) = crate_of(path.strip_prefix(root).unwrap_or(path)) {
            let (lines, assertions) = crates.entry(name).or_default();
            for line in code(text) {
                *lines += 1;
                *assertions += count(line);
            }
        }
    }
    let mut faults = Vec::new();
    for (name, (lines, assertions)) in crates {
        let density = assertions * 1_000 / lines.max(1);
        println!("      {name}: {assertions} assertions in {lines} lines, {density} a thousand");
        let floor =
            FLOORS.iter().find(|(floored, _)| *floored == name).map_or(0, |(_, least)| *least);
        if density < floor {
            faults.push(format!("{name} has {density} assertions a thousand lines, not {floor}"));
        }
    }
    faults
}

/// The crate of a file of its own code.
fn crate_of(path: &Path) -> Option<String> {
    let is_test = path.components().any(|part| part.as_os_str() == "tests")
        || path.file_stem().is_some_and(|name| name.to_string_lossy().ends_with("tests"));
    let mut parts = path.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
    let is_crate = parts.next().is_some_and(|first| first == "crates");
    let name = parts.next()?;
    let is_source = parts.next().is_some_and(|third| third == "src");
    (is_crate && is_source && !is_test).then_some(name)
}

/// The lines of code before the tests at the end of the file.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let end = text.find("\n#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines = text[..end].lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with("//"))
}

fn count(line: &str) -> usize {
    ["assert!", "assert_eq!", "assert_ne!"].iter().map(|name| line.matches(name).count()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assertions_before_the_tests_are_counted() {
        let text = "//! An assert!\n\nfn f() {\n    debug_assert_eq!(1, 1); // assert\n}\n\
                    assert!(a); assert_ne!(b, c);\n#[cfg(test)]\nmod tests {\n    assert!(d);\n}\n";
        assert_eq!(code(text).count(), 4);
        assert_eq!(code(text).map(count).sum::<usize>(), 3);
        let of = |path: &str| crate_of(Path::new(path));
        assert_eq!(of("crates/tx/src/locks.rs").as_deref(), Some("tx"));
        for path in ["crates/tx/tests/locks.rs", "crates/rdb/src/reader/tests.rs", "bench/src/a.rs"]
        {
            assert_eq!(of(path), None, "{path}");
        }
    }

    #[test]
    fn files_without_asserts_are_faults() {
        let path = Path::new("/w/crates/tx/src/x.rs");
        let faults = |text: &str| faults(Path::new("/w"), [(path, text)].into_iter());
        assert_eq!(faults("f();\n").len(), 1);
        assert_eq!(faults("assert!(true);\n").len(), 0);
    }
}

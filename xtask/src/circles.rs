//! Calls between the files of the engine: methods of `Core`, which no `use` line shows.
//!
//! Every file with an `impl Core` may call every other one through it. The files that reach each other
//! by such calls would be one circle: there is none. [`FILES_MAX`] must be lowered as files lose their
//! block, and never raised.
//!
//! A call counts if its method is one of `Core`'s and its receiver has a name that cores go by. Two
//! methods of one name count for neither.

use crate::paths::{Crate, Module};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The crate of the engine.
const CRATE: &str = "crates/server/src";
/// Files in the largest circle of calls.
const CIRCLE_MAX: usize = 0;
/// Files with an `impl Core`.
const FILES_MAX: usize = 34;
/// The names of variables that hold a core.
const RECEIVERS: &[&str] = &["self", "core", "there", "home", "back"];

/// Returns a fault if a count differs from its allowance.
pub(crate) fn faults<'a>(
    root: &Path,
    sources: impl Iterator<Item = (&'a Path, &'a str)>,
) -> Vec<String> {
    let (circle, files) = count(&Crate::new(&root.join(CRATE), sources));
    println!("      engine: {files} files with an impl Core, {circle} of them call in a circle");
    let compare = |what: &str, count: usize, most: usize| {
        let verb = if count > most { "has grown from" } else { "is less than" };
        (count != most).then(|| format!("{what}: {count} files, which {verb} {most}"))
    };
    let circle = compare("the circle of calls (CIRCLE_MAX)", circle, CIRCLE_MAX);
    circle.into_iter().chain(compare("impl Core (FILES_MAX)", files, FILES_MAX)).collect()
}

/// The files of the largest circle, and the files with an `impl Core`.
fn count(server: &Crate) -> (usize, usize) {
    let blocks: BTreeMap<&Module, String> =
        server.modules().map(|module| (module, blocks_of(server.code(module)))).collect();
    let mut owners: BTreeMap<&str, Option<&Module>> = BTreeMap::new();
    for (module, block) in &blocks {
        for name in after(block, "fn ") {
            owners.entry(name).and_modify(|owner| *owner = None).or_insert(Some(*module));
        }
    }
    let files: BTreeSet<&Module> =
        blocks.iter().filter(|(_, block)| !block.is_empty()).map(|(module, _)| *module).collect();
    let called_by = |module: &&Module| -> BTreeSet<&Module> {
        let calls = calls(server.code(module));
        let owners = calls.filter_map(|name| owners.get(name).copied().flatten());
        owners.filter(|owner| owner != module).collect()
    };
    let calls: BTreeMap<&Module, BTreeSet<&Module>> =
        files.iter().map(|module| (*module, called_by(module))).collect();
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        files.iter().map(|module| (*module, reach(&calls, module))).collect();
    let circle = |module: &&Module| {
        reached[module].iter().filter(|other| reached[*other].contains(module)).count()
    };
    (files.iter().map(circle).max().unwrap_or(0), files.len())
}

/// The text of all `impl Core` blocks: each ends at the next line that is a lone brace.
fn blocks_of(code: &str) -> String {
    let parts = code.split("\nimpl Core {\n").skip(1);
    parts.map(|part| part.split("\n}\n").next().unwrap_or(part)).collect()
}

/// The identifiers that follow a mark.
fn after<'a>(code: &'a str, mark: &str) -> Vec<&'a str> {
    let parts = code.match_indices(mark).map(|(at, _)| &code[at + mark.len()..]);
    let name = |rest: &'a str| rest.split(|of: char| !is_of_name(of)).next().unwrap_or_default();
    parts.map(name).filter(|name| !name.is_empty()).collect()
}

/// The methods that are called on cores.
fn calls(code: &str) -> impl Iterator<Item = &str> {
    let dots = code.match_indices('.').filter(|(at, _)| {
        let before = code[..*at].trim_end();
        let from = before.rfind(|of: char| !is_of_name(of)).map_or(0, |at| at + 1);
        RECEIVERS.contains(&&before[from..])
    });
    dots.filter_map(|(at, _)| {
        let rest = &code[at + 1..];
        let len = rest.find(|of: char| !is_of_name(of))?;
        rest[len..].starts_with('(').then(|| &rest[..len])
    })
}

/// All that is reached from a file by calls: itself only through others.
fn reach<'a>(
    calls: &BTreeMap<&'a Module, BTreeSet<&'a Module>>,
    from: &'a Module,
) -> BTreeSet<&'a Module> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        next.extend(calls[module].iter().filter(|to| reached.insert(**to)));
    }
    reached
}

fn is_of_name(of: char) -> bool {
    of.is_ascii_alphanumeric() || of == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_in_a_circle_are_counted() {
        let file = |own: &str, calls: &str| {
            format!("use a;\nimpl Core {{\n    fn {own}(&self) {{\n        {calls}\n    }}\n}}\n")
        };
        let files = [
            ("a.rs", file("one", "self.two(); // self.four()")),
            ("b.rs", file("two", "let x = there\n.three();")),
            ("c.rs", file("three", "other.one(); core.one();")),
            ("d.rs", file("four", "self.one();")),
            ("e.rs", "fn free(core: &Core) { core.four(); }".to_owned()),
        ];
        let root = Path::new("/w");
        let paths: Vec<_> = files.iter().map(|(path, _)| root.join(path)).collect();
        let texts = files.iter().map(|(_, text)| text.as_str());
        let server = Crate::new(root, paths.iter().map(|path| path.as_path()).zip(texts));
        assert_eq!(count(&server), (3, 4));
    }
}

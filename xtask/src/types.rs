//! A type is a folder: how many places outside it know a type by name.
//!
//! A type's structure is in `structs`, everything else of it in its folder, and its row says all
//! that other code must know of it. So no other place names a type: each one that does is one that
//! the next type would have to find. The counts are printed, and must not exceed their ceilings; a
//! change that lowers a count lowers its ceiling.
//!
//! Lines of the crates' own code that contain one of the type's words are counted; comments, tests
//! and derived traits are not.

use std::path::Path;

/// A type, its homes, and the words that name it.
struct Type {
    name: &'static str,
    /// The type's folder, then those of other families over it.
    homes: &'static [&'static str],
    words: &'static [&'static str],
    /// Places outside its homes that may name it.
    ceiling: usize,
}

#[rustfmt::skip] // A table.
const TYPES: &[Type] = &[
    // SORT takes lists, sets and sorted sets, and makes a list.
    Type {
        name: "hash", homes: &["crates/families/src/hash"], ceiling: 3,
        words: &["Hash", "HashEdit", "HashChange", "HashField", "as_hash", "edit_hash", "read_hash",
            "\"hash\"", "\"hash-max-listpack-entries\"", "\"hash-max-listpack-value\""],
    },
    Type {
        name: "list", homes: &["crates/families/src/list"], ceiling: 3,
        words: &["list::List", "ListEdit", "ListChange", "\"list\"", "\"quicklist\""],
    },
    // The algebra of sorted sets takes sets too.
    Type {
        name: "set", homes: &["crates/families/src/set"], ceiling: 4,
        words: &["Set", "SetEdit", "SetChange", "SetMember", "as_set", "edit_set", "read_set",
            "\"set\"", "\"intset\"", "\"set-max-intset-entries\""],
    },
    Type {
        name: "zset", homes: &["crates/families/src/zset", "crates/families/src/geo"], ceiling: 2,
        words: &["ZSet", "ZSetEdit", "ZSetChange", "\"zset\"", "\"skiplist\"",
            "\"zset-max-listpack-entries\"", "\"zset-max-listpack-value\""],
    },
    // The stream's name in quotes is also that of a cause of slices.
    Type {
        name: "stream", homes: &["crates/families/src/stream"], ceiling: 1,
        words: &["stream::Stream", "StreamEdit", "StreamChange",
            "\"stream-node-max-entries\""],
    },
    Type {
        name: "bloom", homes: &["crates/families/src/bloom"], ceiling: 1,
        words: &["BloomFilter", "BloomEdit", "BloomChange", "\"MBbloom--\""],
    },
    Type {
        name: "cuckoo", homes: &["crates/families/src/cuckoo"], ceiling: 1,
        words: &["CuckooFilter", "CuckooEdit", "CuckooChange", "\"MBbloomCF\""],
    },
    Type {
        name: "json", homes: &["crates/families/src/json"], ceiling: 1,
        words: &["Json", "JsonEdit", "JsonChange", "\"ReJSON-RL\""],
    },
    Type {
        name: "cms", homes: &["crates/families/src/cms"], ceiling: 1,
        words: &["Cms", "CmsEdit", "CmsChange", "\"CMSk-TYPE\""],
    },
    Type {
        name: "topk", homes: &["crates/families/src/topk"], ceiling: 1,
        words: &["TopK", "TopKEdit", "TopKChange", "\"TopK-TYPE\""],
    },
    Type {
        name: "tdigest", homes: &["crates/families/src/tdigest"], ceiling: 1,
        words: &["TDigest", "TDigestEdit", "TDigestChange", "\"TDIS-TYPE\""],
    },
];

/// Other things spelled like a type: the command SET and its event, layouts of files, derived
/// traits and std's names.
const OTHERS: &[&str] = &[
    "Face::Set",
    "SET: &Event",
    "Self::Intset =>",
    "Self::Listpack =>",
    "Change::Set",
    "Self::Set(",
    "Set(Deadline)",
    "#[derive",
    "collections::Hash",
    "std::hash::",
];

/// Folders whose words are their own: structures, commands of strings, the machine, and scripts,
/// whose sets are replies.
const APART: &[&str] =
    &["crates/structs", "crates/families/src/string", "crates/runtime", "crates/script"];

/// Returns the faults, and prints a line for each type.
pub(crate) fn faults<'a>(
    root: &Path,
    sources: impl Iterator<Item = (&'a Path, &'a str)> + Clone,
) -> Vec<String> {
    let mut faults = Vec::new();
    for known in TYPES {
        let places: Vec<String> = sources
            .clone()
            .filter(|(path, _)| is_counted(path.strip_prefix(root).unwrap_or(path), known))
            .flat_map(|(path, text)| places(known, text).map(move |line| (path, line)))
            .map(|(path, line)| format!("{}:{line}", path.display()))
            .collect();
        println!(
            "      {}: {} places outside of {} name it (ceiling {})",
            known.name,
            places.len(),
            known.homes[0],
            known.ceiling
        );
        if places.len() > known.ceiling {
            faults.push(format!("`{}` is named in\n{}", known.name, places.join("\n")));
        }
    }
    faults
}

/// True for the crates' own code outside the type's homes.
fn is_counted(path: &Path, known: &Type) -> bool {
    let is_test = path
        .components()
        .any(|part| ["tests", "examples"].iter().any(|name| part.as_os_str() == *name))
        || path.file_stem().is_some_and(|name| name.to_string_lossy().ends_with("tests"));
    path.starts_with("crates")
        && !is_test
        && !known.homes.iter().any(|home| path.starts_with(home))
        && !APART.iter().any(|folder| path.starts_with(folder))
}

/// The numbers of the lines that name the type.
fn places<'a>(known: &'a Type, text: &'a str) -> impl Iterator<Item = usize> + 'a {
    let code = text.lines().take_while(|line| *line != "#[cfg(test)]");
    code.enumerate().filter(|(_, line)| names(known, line)).map(|(index, _)| index + 1)
}

fn names(known: &Type, line: &str) -> bool {
    let line = line.split("//").next().unwrap_or_default();
    let code: String = line.split('"').step_by(2).collect(); // Literals count by themselves.
    !OTHERS.iter().any(|other| code.contains(other))
        && known.words.iter().any(|word| {
            let is_text = word.starts_with('"');
            has_word(if is_text { line } else { &code }, word)
        })
}

/// Whether `code` contains `word` as a whole; a literal is delimited by its quotes.
fn has_word(code: &str, word: &str) -> bool {
    let is_part = |c: char| !word.starts_with('"') && (c.is_alphanumeric() || c == '_');
    code.match_indices(word).any(|(at, _)| {
        let (before, behind) = (&code[..at], &code[at + word.len()..]);
        !before.ends_with(is_part) && !behind.starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Whole words of code count, and nothing else does.
    fn places_are_found() {
        let set = &TYPES[2];
        for (line, is_named) in [
            ("Object::Set(set) => set.len(),", true),
            ("db.edit_set(key, true, |edit| edit", true),
            ("    b\"set\" => Type::Other,", true),
            ("settings.size(\"set-max-intset-entries\"),", true),
            ("use std::collections::BTreeSet;", false),
            ("Face::Set => true,", false),
            ("edit.set(field, value, deadline) // A Set.", false),
            ("(\"Set the value of a key\", O1)", false),
        ] {
            assert_eq!(names(set, line), is_named, "{line}");
        }
        let text = "//! Sets.\nuse x::Set;\n#[cfg(test)]\nuse x::Set;\n";
        assert_eq!(places(set, text).collect::<Vec<_>>(), [2]);
    }

    #[test] // A type's own folder, structures and tests are free to name it.
    fn folders_are_told_apart() {
        let set = &TYPES[2];
        for (path, is_counted) in [
            ("crates/families/src/set/pop.rs", false),
            ("crates/families/src/hash/member.rs", true),
            ("crates/keyspace/src/db.rs", true),
            ("crates/families/tests/types/model.rs", false),
            ("crates/server/src/load/tests.rs", false),
            ("crates/structs/src/table/mod.rs", false),
            ("bench/src/main.rs", false),
        ] {
            assert_eq!(super::is_counted(Path::new(path), set), is_counted, "{path}");
        }
    }

    #[test] // One place more than the ceiling is a fault.
    fn ceilings_hold() {
        let text = "fn f(set: &Set) {}\n".repeat(TYPES[2].ceiling + 1);
        let path = Path::new("/w/crates/server/src/x.rs");
        let found = faults(Path::new("/w"), [(path, text.as_str())].into_iter());
        assert_eq!(found.len(), 1, "{found:?}");
    }
}

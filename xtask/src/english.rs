//! Plain English, as far as a pattern sees it (STYLE.md, "English").
//!
//! Three things are refused: a comment's sentence that begins with a clause or with a pronoun in
//! place of its noun ([`OPENINGS`]), a test's name with such a clause ([`PEOPLE`]), and a public or
//! `pub(crate)` type name that exists twice in a crate. A question may begin with "What". Other
//! habits ([`HABITS`]) are counted and printed only.
//!
//! A *place* is a crate, or a folder of tools. One with a row in [`ALLOWED`] may have that many
//! faults, since it had them when the rule came; all others have none. Counts only shrink, and a
//! place without faults has no row. `cargo x english PATH` lists the faults of a place.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

/// A source file: its path from the root, and its text.
pub(crate) type File<'a> = (&'a Path, &'a str);

#[rustfmt::skip] // A table: a place, and the faults that it may have.
const ALLOWED: &[(&str, usize)] = &[
];

/// Beginnings of a sentence whose subject is missing.
const OPENINGS: &[&str] =
    &["What ", "Who ", "Whom ", "Whose ", "The same ", "That of ", "Those of ", "Of "];

/// Words that a test's name does not contain.
const PEOPLE: &[&str] = &["who", "what", "whose", "whom"];

/// A habit that is only counted: its name, and the test of a sentence.
type Habit = (&'static str, fn(&str) -> bool);

const HABITS: &[Habit] = &[
    ("begin with It, They or Its", |text| {
        ["It ", "They ", "Its "].iter().any(|w| text.starts_with(w))
    }),
    ("nobody, somebody, whoever", |text| has_word(text, &["nobody", "somebody", "whoever"])),
    ("tell, told", |text| has_word(text, &["tell", "tells", "told"])),
    ("behind", |text| has_word(text, &["behind"])),
    ("amid, anew, meanwhile", |text| has_word(text, &["amid", "anew", "meanwhile"])),
    ("more than 30 words", |text| text.split_whitespace().count() > 30),
];

/// Checks the places, and prints the counts of the habits.
pub(crate) fn faults<'a>(files: impl Iterator<Item = File<'a>> + Clone) -> Vec<String> {
    print_habits(files.clone());
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (place, fault) in all_faults(files) {
        places.entry(place).or_default().push(fault);
    }
    let mut wrong = Vec::new();
    for (place, found) in &places {
        let allowed = allowed(place);
        if found.len() > allowed {
            wrong.push(format!(
                "{place} has {} faults of English, {allowed} are allowed:\n{}",
                found.len(),
                found.join("\n")
            ));
        }
    }
    for (place, allowed) in ALLOWED {
        match places.get(*place).map_or(0, Vec::len) {
            0 => wrong.push(format!("{place} has no faults of English: delete its row")),
            found if found < *allowed => {
                println!("      {place}: {found} of {allowed} faults left")
            }
            _ => {}
        }
    }
    wrong
}

/// Lists the faults of the files below `path`.
pub(crate) fn list<'a>(files: impl Iterator<Item = File<'a>> + Clone, path: &str) -> ExitCode {
    let found = all_faults(files).into_iter().filter(|(_, fault)| fault.starts_with(path));
    let count = found.inspect(|(_, fault)| println!("{fault}")).count();
    println!("{count} faults");
    ExitCode::SUCCESS
}

fn allowed(place: &str) -> usize {
    ALLOWED.iter().find(|(name, _)| *name == place).map_or(0, |(_, count)| *count)
}

/// Every fault with its place.
fn all_faults<'a>(files: impl Iterator<Item = File<'a>> + Clone) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut types: BTreeMap<(String, &str), Vec<String>> = BTreeMap::new();
    for (path, text) in files {
        let place = place(path);
        let at = |line: usize, what: &str| format!("{}:{line}: {what}", path.display());
        for (line, sentence) in sentences(text) {
            if is_refused(&sentence) {
                found.push((place.clone(), at(line, &sentence)));
            }
        }
        for (line, name) in tests(text) {
            found.push((place.clone(), at(line, name)));
        }
        for (line, name) in public_types(path, text) {
            types.entry((place.clone(), name)).or_default().push(at(line, name));
        }
    }
    for ((place, _), homes) in types {
        found.extend(homes.into_iter().skip(1).map(|home| (place.clone(), home)));
    }
    found
}

fn print_habits<'a>(files: impl Iterator<Item = File<'a>>) {
    let mut counts = [0; HABITS.len()];
    for (_, text) in files {
        for (_, sentence) in sentences(text) {
            for (count, (_, is_habit)) in counts.iter_mut().zip(HABITS) {
                *count += usize::from(is_habit(&sentence));
            }
        }
    }
    for (count, (name, _)) in counts.iter().zip(HABITS) {
        println!("      {count} sentences: {name}");
    }
}

/// The crate or folder of a file: `crates/tx/src/lib.rs` and `tests/limits/src/main.rs` are in
/// `crates/tx` and `tests/limits`.
fn place(path: &Path) -> String {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    let depth = if ["crates", "tests"].contains(&&*parts[0]) { 2 } else { 1 };
    parts[..depth.min(parts.len())].join("/")
}

/// True for a sentence without a noun as its subject. Questions may have none.
fn is_refused(sentence: &str) -> bool {
    !sentence.ends_with('?') && OPENINGS.iter().any(|opening| sentence.starts_with(opening))
}

fn has_word(text: &str, words: &[&str]) -> bool {
    let mut parts = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    parts.any(|part| words.iter().any(|word| part.eq_ignore_ascii_case(word)))
}

/// The sentences of all comments, each with the line on which it begins.
fn sentences(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    let mut is_drawing = false;
    for (index, line) in text.lines().enumerate() {
        let Some((comment, is_alone)) = comment(line) else {
            found.extend(open.take());
            is_drawing = false;
            continue;
        };
        let is_fence = comment.starts_with("```");
        is_drawing ^= is_fence;
        if is_drawing || is_fence || comment.is_empty() {
            found.extend(open.take());
            continue;
        }
        let item = comment.strip_prefix("- ").or_else(|| comment.strip_prefix("# "));
        if item.is_some() || !is_alone {
            found.extend(open.take());
        }
        for part in item.unwrap_or(comment).split_inclusive([' ']) {
            let ends = open.as_ref().is_some_and(|(_, text)| has_ended(text));
            if ends && part.starts_with(|c: char| !c.is_lowercase()) {
                found.extend(open.take());
            }
            let (_, sentence) = open.get_or_insert_with(|| (index + 1, String::new()));
            sentence.push_str(part);
        }
        if let Some((_, sentence)) = &mut open {
            sentence.push(' ');
        }
        if !is_alone {
            found.extend(open.take());
        }
    }
    found.extend(open.take());
    found.iter().map(|(line, text)| (*line, text.trim().to_owned())).collect()
}

/// Whether the words so far are a whole sentence. A colon ends one, too: a new one may begin.
fn has_ended(text: &str) -> bool {
    text.trim_end().ends_with(['.', '!', '?', ':'])
}

/// The comment of a line, and whether the line has no code.
fn comment(line: &str) -> Option<(&str, bool)> {
    let trimmed = line.trim_start();
    if let Some(rest) = trimmed.strip_prefix("//") {
        return Some((rest.trim_start_matches(['/', '!']).trim(), true));
    }
    let (code, rest) = line.split_once(" // ")?;
    let is_text = (code.matches('"').count() - code.matches("\\\"").count()) % 2 == 1;
    (!is_text).then(|| (rest.trim(), false))
}

/// The tests whose names contain one of [`PEOPLE`].
fn tests(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_test = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let line = line.trim_start();
        if line.starts_with("#[test]") {
            is_test = true;
        }
        let rest = line.strip_prefix("fn ").filter(|_| std::mem::take(&mut is_test))?;
        let name = rest.split('(').next().unwrap_or_default();
        let is_refused = name.split('_').any(|word| PEOPLE.contains(&word));
        is_refused.then_some((index + 1, name))
    })
}

/// The types that the whole crate can name.
fn public_types<'a>(path: &Path, text: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let is_test = path.iter().skip(2).any(|part| ["tests", "examples"].iter().any(|n| part == *n));
    let code = text.lines().take_while(|line| *line != "#[cfg(test)]");
    code.enumerate().filter(move |_| !is_test).filter_map(|(index, line)| {
        let line = line.trim_start();
        let rest = line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(crate) "))?;
        let kinds = ["struct ", "enum ", "trait ", "union ", "type "];
        let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
        Some((index + 1, rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let faults = all_faults([(Path::new(path), text)].into_iter());
        faults.into_iter().map(|(place, fault)| format!("{place} {fault}")).collect()
    }

    #[test] // Anywhere in a comment; questions and drawings are allowed.
    fn refused_openings_of_sentences_are_found() {
        for (text, count) in [
            ("/// What was sent.", 1),
            ("//! Sent bytes. Who\n//! reads them does not matter.", 1),
            ("    x(); // The same of a list.", 1),
            ("// - Of a list: its head.", 1),
            ("// What does a hit cost?", 0),
            ("// Whatever was sent.", 0),
            ("// Sent: see What.", 0),
            ("/// ```text\n/// Of a\n/// ```", 0),
            ("let x = \"a // What is that\";", 0),
        ] {
            assert_eq!(found("crates/tx/src/x.rs", text).len(), count, "{text}");
        }
    }

    #[test] // Only whole words in names of tests.
    fn clauses_in_test_names_are_found() {
        let text = "#[test]\nfn who_leaves() {}\nfn what() {}\n#[test] // x\nfn whole() {}\n";
        assert_eq!(
            found("tests/limits/src/x.rs", text),
            ["tests/limits tests/limits/src/x.rs:2: who_leaves"]
        );
    }

    #[test] // Only visible names; the first one is allowed.
    fn repeated_types_are_found() {
        let text = "pub struct A;\npub(crate) enum A {}\nstruct A;\npub(super) struct A;\n";
        assert_eq!(found("crates/tx/src/x.rs", text), ["crates/tx crates/tx/src/x.rs:2: A"]);
        assert_eq!(found("crates/tx/tests/x.rs", text).len(), 0);
    }
}

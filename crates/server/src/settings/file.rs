//! The settings file: read as redis.conf is, and rewritten in place by CONFIG REWRITE.
//!
//! A line is a name and its value, words that may be quoted; `#` begins a comment line; `include`
//! reads another file at that place. Rewriting keeps comments and order, changes the lines whose
//! value has changed, and appends what is new and not the default.

use super::{ROWS, Settings, When};
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

/// Why a file was refused.
#[derive(Debug)]
pub enum Refused {
    /// It cannot be read or written.
    Io(PathBuf, io::Error),
    /// A line is wrong: file, number from 1, the line, and why.
    Line(PathBuf, usize, String, String),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Line(path, number, line, why) => {
                write!(f, "{}, line {number}: {why}\n>>> '{line}'", path.display())
            }
        }
    }
}

/// How deep `include` may nest: a file that includes itself ends here.
const DEPTH_MAX: usize = 16;

/// Reads `path` into `settings`.
pub fn read(settings: &mut Settings, path: &Path) -> Result<(), Refused> {
    read_nested(settings, path, 0)?;
    settings.file = Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    Ok(())
}

fn read_nested(settings: &mut Settings, path: &Path, depth: usize) -> Result<(), Refused> {
    let text =
        std::fs::read_to_string(path).map_err(|error| Refused::Io(path.to_owned(), error))?;
    for (number, line) in text.lines().enumerate() {
        let refused =
            |why: String| Refused::Line(path.to_owned(), number + 1, line.to_owned(), why);
        let Some((name, value)) = directive(line).map_err(&refused)? else { continue };
        if name == "include" {
            if depth == DEPTH_MAX {
                return Err(refused("too many nested includes".into()));
            }
            read_nested(settings, Path::new(&value), depth + 1)?;
        } else {
            settings.set(&name, &value).map_err(|wrong| refused(wrong.to_string()))?;
        }
    }
    Ok(())
}

/// The name and the value of a line; `None` for a comment or an empty line.
fn directive(line: &str) -> Result<Option<(String, String)>, String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let mut words = words(line).ok_or("Unbalanced quotes in configuration line")?.into_iter();
    let name = words.next().unwrap_or_default().to_ascii_lowercase();
    let values: Vec<String> = words.collect();
    if values.is_empty() {
        return Err("wrong number of arguments".into());
    }
    Ok(Some((name, values.join(" "))))
}

/// Splits at blanks; `"` and `'` quote, `\` escapes within double quotes.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut letters = line.chars().peekable();
    while letters.peek().is_some() {
        while letters.next_if(|letter| letter.is_whitespace()).is_some() {}
        let Some(&first) = letters.peek() else { break };
        let mut word = String::new();
        if first == '"' || first == '\'' {
            letters.next();
            loop {
                match letters.next()? {
                    '\\' if first == '"' => word.push(letters.next()?),
                    letter if letter == first => break,
                    letter => word.push(letter),
                }
            }
        } else {
            while let Some(letter) = letters.next_if(|letter| !letter.is_whitespace()) {
                word.push(letter);
            }
        }
        words.push(word);
    }
    Some(words)
}

/// Writes the values back into the file they came from.
pub fn rewrite(settings: &Settings) -> Result<(), Refused> {
    let Some(path) = &settings.file else { return Ok(()) };
    let io = |error| Refused::Io(path.clone(), error);
    let old = std::fs::read_to_string(path).map_err(io)?;
    let text = rewritten(settings, &old);
    let new = path.with_extension("rewrite-tmp");
    std::fs::write(&new, text).map_err(io)?;
    std::fs::rename(&new, path).map_err(io)
}

fn rewritten(settings: &Settings, old: &str) -> String {
    let mut text = String::new();
    let mut written = HashSet::new();
    for line in old.lines() {
        let name = directive(line).ok().flatten().map(|(name, _)| name);
        match name.filter(|name| super::place(name).is_some()) {
            Some(name) => {
                if !written.insert(name.clone()) {
                    continue; // The last one counts, and stands where the first one stood.
                }
                text.push_str(&line_of(&name, settings.text(&name)));
            }
            None => text.push_str(line),
        }
        text.push('\n');
    }
    for (row, value) in settings.iter() {
        if value != row.default && row.when != When::Accepted && !written.contains(row.name) {
            text.push_str(&line_of(row.name, value));
            text.push('\n');
        }
    }
    debug_assert!(written.len() <= ROWS.len());
    text
}

fn line_of(name: &str, value: &str) -> String {
    let plain = |letter: char| letter.is_ascii_graphic() && !matches!(letter, '"' | '\'' | '\\');
    if !value.is_empty() && value.split(' ').all(|word| !word.is_empty() && word.chars().all(plain))
    {
        return format!("{name} {value}");
    }
    let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
    format!("{name} \"{quoted}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_in_redis_conf() {
        assert_eq!(directive("  # comment"), Ok(None));
        assert_eq!(directive("PORT 7000"), Ok(Some(("port".into(), "7000".into()))));
        assert_eq!(
            directive(r#"requirepass "a \"b\" c""#),
            Ok(Some(("requirepass".into(), r#"a "b" c"#.into())))
        );
        assert_eq!(directive("save ''"), Ok(Some(("save".into(), String::new()))));
        assert!(directive("requirepass \"open").is_err());
        assert!(directive("port").is_err());
    }

    #[test]
    fn rewriting_keeps_what_people_wrote() {
        let mut settings = Settings::default();
        settings.set("port", "7001").unwrap();
        settings.set("requirepass", "two words").unwrap();
        let text = rewritten(&settings, "# mine\nport 7000\n\nport 7000\n");
        assert_eq!(text, "# mine\nport 7001\n\nrequirepass two words\n");
        let mut again = Settings::default();
        for line in text.lines() {
            if let Some((name, value)) = directive(line).unwrap() {
                again.set(&name, &value).unwrap();
            }
        }
        assert_eq!(again.text("requirepass"), "two words");
    }
}

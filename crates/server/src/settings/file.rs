//! The settings file: read as redis.conf is, and rewritten in place by CONFIG REWRITE.
//!
//! A line is a name and its value, words that may be quoted; `#` begins a comment line; `include`
//! reads another file at that place. Rewriting keeps comments and order, changes the lines whose
//! value has changed, and appends what is new and not the default.

use super::{ROWS, Settings, When};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
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

/// Writes the values back into the file they came from, in portions; `mark` names the new file until
/// it takes the place of the old one, so two that do this at once must differ.
pub async fn rewrite(
    settings: &Settings,
    mark: u64,
    mut pause: impl AsyncFnMut(),
) -> Result<(), Refused> {
    let Some(path) = &settings.file else { return Ok(()) };
    let io = |error| Refused::Io(path.clone(), error);
    let new = path.with_extension(format!("rewrite-tmp-{mark}"));
    let old = BufReader::new(File::open(path).map_err(io)?);
    let file = BufWriter::new(File::create(&new).map_err(io)?);
    let mut rewriting = Rewriting { settings, old, new: file, written: HashSet::new() };
    while rewriting.lines().map_err(io)? {
        pause().await;
    }
    rewriting.end().and_then(|mut file| file.flush()).map_err(io)?;
    std::fs::rename(&new, path).map_err(io)
}

/// A file that is being rewritten.
struct Rewriting<'a, R, W> {
    settings: &'a Settings,
    old: R,
    new: W,
    /// Names that stand in the new file.
    written: HashSet<String>,
}

impl<R: BufRead, W: Write> Rewriting<'_, R, W> {
    /// Rewrites some of the lines. False behind the last.
    fn lines(&mut self) -> io::Result<bool> {
        /// About 20 us, and the system's own work.
        const BYTES: usize = 16 * 1024;
        let (mut bytes, mut line) = (0, String::new());
        while bytes < BYTES {
            line.clear();
            if self.old.read_line(&mut line)? == 0 {
                return Ok(false);
            }
            bytes += line.len();
            self.line(line.trim_end_matches(['\r', '\n']))?;
        }
        Ok(true)
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        let name = directive(line).ok().flatten().map(|(name, _)| name);
        match name.filter(|name| super::place(name).is_some()) {
            // The last one counts, and stands where the first one stood.
            Some(name) if self.written.contains(&name) => Ok(()),
            Some(name) => {
                let line = line_of(&name, self.settings.text(&name));
                self.written.insert(name);
                writeln!(self.new, "{line}")
            }
            None => writeln!(self.new, "{line}"),
        }
    }

    /// Appends what is new and not the default.
    fn end(mut self) -> io::Result<W> {
        for (row, value) in self.settings.iter() {
            let is_new = value != row.default && !self.written.contains(row.name);
            if is_new && row.when != When::Accepted {
                writeln!(self.new, "{}", line_of(row.name, value))?;
            }
        }
        debug_assert!(self.written.len() <= ROWS.len());
        Ok(self.new)
    }
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
        let comments = "# long\n".repeat(10_000);
        let old = format!("# mine\nport 7000\n\nport 7000\n{comments}");
        let (settings, old) = (&settings, old.as_bytes());
        let mut rewriting = Rewriting { settings, old, new: Vec::new(), written: HashSet::new() };
        let mut portions = 0;
        while rewriting.lines().unwrap() {
            portions += 1;
        }
        assert!(portions > 2, "{portions}");
        let text = String::from_utf8(rewriting.end().unwrap()).unwrap();
        let text = text.replace("# long\n", "");
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

//! Settings: one table of rows, from which come the command line, the file, CONFIG GET, SET and
//! REWRITE, and `--help`.
//!
//! A value is kept as its canonical text, which is what CONFIG GET shows; the typed readers parse
//! it, and cannot fail, because only [`Settings::set`] writes, and it validates by the row.
//!
//! Not here: what a setting does. Whoever reads it is told of changes by `admin::config`.

pub mod cli;
pub mod file;
mod rows;

pub use rows::ROWS;

use std::fmt;

/// What values a setting takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `yes` or `no`.
    Bool,
    /// An integer in this range.
    Int(i64, i64),
    /// Bytes in this range, with units: `100mb`, `1gb`.
    Memory(i64, i64),
    /// One of these words.
    Enum(&'static [&'static str]),
    /// Any text.
    Text,
    /// Several words, kept with one blank between them.
    Words,
    /// Pairs of seconds and changes, kept with one blank between them; empty for none.
    Save,
    /// Permission bits in octal; empty or 0: the system's default.
    Octal,
}

/// When a setting may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At any time, with CONFIG SET.
    Running,
    /// At start only.
    Start,
    /// It has lost its meaning here; it is accepted, shown, and does nothing.
    Accepted,
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name, Redis's own wherever the meaning is the same.
    pub name: &'static str,
    /// Its canonical value at first.
    pub default: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// The unit of its value, for the help; empty for none.
    pub unit: &'static str,
    /// When it may be changed.
    pub when: When,
    /// What it does.
    pub help: &'static str,
}

/// Why a value was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// No such setting.
    Unknown(String),
    /// It can be set at start only.
    Immutable(String),
    /// The value does not fit; the text says why, as Redis does.
    Value(String, String),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "Unknown option or number of arguments: '{name}'"),
            Self::Immutable(name) => write!(f, "'{name}' - can't set immutable config"),
            Self::Value(name, why) => write!(f, "'{name}' - {why}"),
        }
    }
}

/// The values of all rows.
#[derive(Clone, Debug)]
pub struct Settings {
    values: Vec<String>,
    /// The file they were read from, which CONFIG REWRITE writes.
    pub file: Option<std::path::PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { values: ROWS.iter().map(|row| row.default.to_owned()).collect(), file: None }
    }
}

/// Place of the row called `name`, in any case.
fn place(name: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.name.eq_ignore_ascii_case(name))
}

impl Settings {
    /// The value as CONFIG GET shows it. Panics for a name that is in no row: a slip of ours.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        &self.values[place(name).expect("a setting of the table")]
    }

    /// A value that is an integer or bytes.
    #[must_use]
    pub fn int(&self, name: &str) -> i64 {
        self.text(name).parse().expect("validated when it was set")
    }

    /// [`Settings::int`] of a row whose range begins at 0 or above.
    #[must_use]
    pub fn size(&self, name: &str) -> usize {
        usize::try_from(self.int(name)).expect("the row's range is not negative")
    }

    /// A value that is `yes` or `no`.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.text(name) == "yes"
    }

    /// True when there is a setting of this name, in any case.
    #[must_use]
    pub fn has(name: &str) -> bool {
        place(name).is_some()
    }

    /// All rows with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Setting, &str)> {
        ROWS.iter().zip(self.values.iter().map(String::as_str))
    }

    /// Sets one value, before the server runs.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Wrong> {
        let at = place(name).ok_or_else(|| Wrong::Unknown(name.to_owned()))?;
        let value = canonical(&ROWS[at], value)?;
        for (old, new) in rows::ALIASES {
            if ROWS[at].name == *old || ROWS[at].name == *new {
                [old, new].iter().filter_map(|name| place(name)).for_each(|both| {
                    self.values[both].clone_from(&value);
                });
            }
        }
        self.values[at] = value;
        Ok(())
    }

    /// Sets one value while the server runs.
    pub fn set_running(&mut self, name: &str, value: &str) -> Result<(), Wrong> {
        match place(name) {
            Some(at) if ROWS[at].when == When::Start => Err(Wrong::Immutable(name.to_owned())),
            _ => self.set(name, value),
        }
    }
}

/// The canonical text of `value`, if it fits the row.
fn canonical(row: &Setting, value: &str) -> Result<String, Wrong> {
    let wrong = |why: String| Wrong::Value(row.name.to_owned(), why);
    match row.kind {
        Kind::Text => Ok(value.to_owned()),
        Kind::Words => Ok(value.split_whitespace().collect::<Vec<_>>().join(" ")),
        Kind::Bool => match value.to_ascii_lowercase().as_str() {
            word @ ("yes" | "no") => Ok(word.to_owned()),
            _ => Err(wrong("argument must be 'yes' or 'no'".into())),
        },
        Kind::Enum(words) => words
            .iter()
            .find(|word| word.eq_ignore_ascii_case(value))
            .map(|word| (*word).to_owned())
            .ok_or_else(|| {
                wrong(format!("argument(s) must be one of the following: {}", words.join(", ")))
            }),
        Kind::Int(least, most) => {
            let number: i64 = value
                .parse()
                .map_err(|_| wrong("argument couldn't be parsed into an integer".into()))?;
            in_range(number, least, most, row)
        }
        Kind::Memory(least, most) => {
            let number = bytes(value)
                .filter(|bytes| *bytes >= 0)
                .ok_or_else(|| wrong("argument must be a memory value".into()))?;
            in_range(number, least, most, row)
        }
        Kind::Save => save_points(value).ok_or_else(|| wrong("Invalid save parameters".into())),
        Kind::Octal => match u32::from_str_radix(if value.is_empty() { "0" } else { value }, 8) {
            Ok(mode) if mode <= 0o777 => Ok(format!("{mode:o}")),
            _ => Err(wrong("argument couldn't be parsed into an integer".into())),
        },
    }
}

fn in_range(number: i64, least: i64, most: i64, row: &Setting) -> Result<String, Wrong> {
    if (least..=most).contains(&number) {
        return Ok(number.to_string());
    }
    let why = format!("argument must be between {least} and {most} inclusive");
    Err(Wrong::Value(row.name.to_owned(), why))
}

/// `3600 1 300 100`: seconds from 1 on, changes from 0 on, one blank between them, as in Redis.
fn save_points(value: &str) -> Option<String> {
    if value.is_empty() {
        return Some(String::new());
    }
    let numbers: Option<Vec<i64>> = value.split(' ').map(|word| word.parse().ok()).collect();
    let numbers = numbers.filter(|numbers| numbers.len() % 2 == 0)?;
    let sound = numbers.chunks_exact(2).all(|point| point[0] >= 1 && point[1] >= 0);
    sound.then(|| numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(" "))
}

/// `1gb` and its like: `k`, `m`, `g` are powers of 1000, `kb`, `mb`, `gb` of 1024, as in Redis.
#[must_use]
pub fn bytes(text: &str) -> Option<i64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: i64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<i64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_canonical_and_names_unique() {
        let mut names = std::collections::HashSet::new();
        for row in ROWS {
            assert_eq!(canonical(row, row.default).as_deref(), Ok(row.default), "{}", row.name);
            assert!(names.insert(row.name), "{} twice", row.name);
            assert!(!row.help.is_empty(), "{} without help", row.name);
        }
    }

    #[test]
    fn values_are_validated_by_their_row() {
        let mut settings = Settings::default();
        assert_eq!(settings.set("MaxMemory", "100mb"), Ok(()));
        assert_eq!(settings.size("maxmemory"), 100 << 20);
        assert!(matches!(settings.set("port", "70000"), Err(Wrong::Value(..))));
        assert!(matches!(settings.set("protected-mode", "maybe"), Err(Wrong::Value(..))));
        assert!(matches!(settings.set("no-such", "1"), Err(Wrong::Unknown(_))));
        assert!(matches!(settings.set_running("port", "7000"), Err(Wrong::Immutable(_))));
        assert_eq!(bytes("1gb"), Some(1 << 30));
        assert_eq!(bytes("1x"), None);
        assert_eq!(settings.set("save", "3600 1 300 100"), Ok(()));
        assert_eq!(settings.text("save"), "3600 1 300 100");
        for wrong in ["60", "60 1 60", "0 1", "60 -1", "60 x", " 60 1", "60  1"] {
            assert!(matches!(settings.set("save", wrong), Err(Wrong::Value(..))), "{wrong:?}");
        }
        assert_eq!(settings.set("save", ""), Ok(()));
    }
}

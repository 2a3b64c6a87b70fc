//! Settings: one table of rows, from which come the command line, the file, CONFIG GET, SET and
//! REWRITE, and `--help`.
//!
//! A value is kept as its canonical text, as CONFIG GET shows it. The typed readers parse it, and
//! cannot fail, because only [`Settings::set`] writes, and it validates by the row.
//!
//! Not here: the effects of settings. `admin::config` applies changes.

pub mod cli;
pub mod file;
pub mod read;
mod rows;
mod startable;
mod value;

pub use rows::ROWS;
pub(crate) use value::bytes;

use std::fmt;

/// The values that a setting takes.
#[derive(Clone, Copy, Debug)]
pub enum SettingKind {
    /// `yes` or `no`.
    Bool,
    /// Only `no`, with the reason why `yes` is refused.
    Off(&'static str),
    /// An integer in this range.
    Int(i64, i64),
    /// An integer in this range, which Redis keeps unsigned: -1 is the largest.
    Count(u64, u64),
    /// Bytes in this range, with units: `100mb`, `1gb`.
    Memory(i64, i64),
    /// Like `Memory`, but unsigned, like `Count`.
    Size(u64, u64),
    /// An integer that is clamped to Redis's range of `hz`.
    Hertz,
    /// Bytes, at least the minimum of a replica's backlog.
    Backlog,
    /// Redis's log levels, and `nothing` of newer versions.
    Levels,
    /// Classes of events, a letter each.
    Events,
    /// Bytes, or a percentage of another setting: `5%`.
    MemoryOrPart,
    /// `class hard soft seconds`, repeated; a class that is not named stays as it is.
    OutputLimits,
    /// One of these words.
    Enum(&'static [&'static str]),
    /// Several of these words; the first one excludes the others.
    Flags(&'static [&'static str]),
    /// Any text.
    Text,
    /// The name of a file, without a path.
    FileName,
    /// An existing folder.
    Folder,
    /// Several words, kept with one blank between them.
    Words,
    /// Pairs of seconds and changes, kept with one blank between them; empty for none.
    Save,
    /// Numbers from 0 to 100, kept with one blank between them; empty for none.
    Percentiles,
    /// Three scores of the OOM killer.
    OomScores,
    /// A host name, or nothing.
    Hostname,
    /// A text with variables in braces.
    Title,
    /// Permission bits in octal; empty or 0: the system's default.
    Octal,
    /// Not supported yet, with the reason.
    Absent(&'static str),
}

impl SettingKind {
    /// Whether all words after the name are its value; otherwise there is one.
    #[must_use]
    pub fn takes_words(self) -> bool {
        matches!(
            self,
            Self::Words
                | Self::OutputLimits
                | Self::Save
                | Self::Percentiles
                | Self::OomScores
                | Self::Flags(_)
                | Self::Absent(_)
        )
    }
}

/// When a setting may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At any time, with CONFIG SET.
    Running,
    /// Like `Running`, if `enable-protected-configs` permits the client.
    Guarded,
    /// At start only.
    Start,
    /// It has no meaning here; it is accepted, shown, and has no effect.
    Accepted,
    /// Like `Accepted`, at start only.
    Inert,
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name: Redis's if the meaning is the same.
    pub name: &'static str,
    /// Its default, in canonical form.
    pub default: &'static str,
    /// The values that it takes.
    pub kind: SettingKind,
    /// The unit of its value, for the help; empty for none.
    pub unit: &'static str,
    /// When it may be changed.
    pub when: When,
    /// Its effect, for the help.
    pub help: &'static str,
}

/// The refusal of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// No such setting.
    Unknown(String),
    /// It can be set at start only.
    Immutable(String),
    /// `enable-protected-configs` forbids it.
    Protected(String),
    /// The value is invalid, with Redis's text.
    Value(String, String),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "Unknown option or number of arguments: '{name}'"),
            Self::Immutable(name) => write!(f, "'{name}' - can't set immutable config"),
            Self::Protected(name) => write!(f, "'{name}' - can't set protected config"),
            Self::Value(name, why) => write!(f, "'{name}' - {why}"),
        }
    }
}

/// The values of all rows.
#[derive(Clone, Debug)]
pub struct Settings {
    values: Vec<String>,
    /// The file that was read, and that CONFIG REWRITE writes.
    pub file: Option<std::path::PathBuf>,
    /// Requests that are not values of rows.
    pub extras: read::Extras,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            values: ROWS.iter().map(|row| row.default.to_owned()).collect(),
            file: None,
            extras: read::Extras::default(),
        }
    }
}

/// The index of the row named `name`, in any case, and its name in the tables: the older one if
/// that was used.
fn place(name: &str) -> Option<(usize, &'static str)> {
    let is_called = |called: &str| called.eq_ignore_ascii_case(name);
    if let Some(at) = ROWS.iter().position(|row| is_called(row.name)) {
        return Some((at, ROWS[at].name));
    }
    let (old, new) = rows::older_names().find(|(old, _)| is_called(old))?;
    Some((ROWS.iter().position(|row| row.name == new)?, old))
}

impl Settings {
    /// The value as CONFIG GET shows it. Panics for a name without a row: a bug.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        let (at, _) = place(name).expect("a setting of the table");
        &self.values[at]
    }

    /// A value that is an integer or bytes.
    #[must_use]
    pub fn int(&self, name: &str) -> i64 {
        self.text(name).parse().expect("validated when it was set")
    }

    /// A value that is an integer or bytes, of a row whose range starts at 0 or above.
    #[must_use]
    pub fn size(&self, name: &str) -> usize {
        self.text(name).parse().expect("validated when it was set")
    }

    /// A value that is bytes, or a percentage of `whole`.
    #[must_use]
    pub fn part(&self, name: &str, whole: usize) -> usize {
        match self.text(name).strip_suffix('%') {
            Some(percent) => whole / 100 * percent.parse::<usize>().expect("validated when set"),
            None => self.size(name),
        }
    }

    /// `client-output-buffer-limit` of a class: hard and soft in bytes, and seconds.
    #[must_use]
    pub fn output_limits(&self, class: &str) -> [usize; 3] {
        let words: Vec<&str> = self.text("client-output-buffer-limit").split(' ').collect();
        let at = words.iter().position(|word| *word == class).expect("each class is in the value");
        [1, 2, 3].map(|next| words[at + next].parse().expect("validated when it was set"))
    }

    /// A value that is `yes` or `no`.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.text(name) == "yes"
    }

    /// All rows with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Setting, &str)> {
        ROWS.iter().zip(self.values.iter().map(String::as_str))
    }

    /// All names, older ones included, with their values, and whether patterns of CONFIG GET show
    /// them.
    pub fn names(&self) -> impl Iterator<Item = (&'static str, &str, bool)> {
        let rows = self.iter().map(|(row, value)| (row.name, value));
        let old = rows::older_names().map(|(old, new)| (old, self.text(new)));
        rows.chain(old).map(|(name, value)| (name, value, !rows::HIDDEN.contains(&name)))
    }

    /// Sets one value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Wrong> {
        let (at, name) = place(name).ok_or_else(|| Wrong::Unknown(name.to_owned()))?;
        let value = match ROWS[at].kind {
            SettingKind::OutputLimits => value::output_limits(value, &self.values[at]),
            kind => value::canonical(kind, value),
        };
        self.values[at] = value.map_err(|why| Wrong::Value(name.to_owned(), why))?;
        Ok(())
    }

    /// Makes `dir` the process's working directory, and its name absolute.
    pub fn enter_folder(&mut self) -> std::io::Result<()> {
        std::env::set_current_dir(self.text("dir"))?;
        let folder = std::env::current_dir()?.to_string_lossy().into_owned();
        let (at, _) = place("dir").expect("a setting of the table");
        self.values[at] = folder;
        Ok(())
    }

    /// Checks that a client may set it while the server runs; `is_local` says that the client is on
    /// this machine.
    pub fn may_set(&self, name: &str, is_local: bool) -> Result<(), Wrong> {
        let (at, _) = place(name).ok_or_else(|| Wrong::Unknown(name.to_owned()))?;
        let is_guarded = match self.text("enable-protected-configs") {
            "yes" => false,
            "local" => !is_local,
            _ => true,
        };
        match ROWS[at].when {
            When::Start | When::Inert => Err(Wrong::Immutable(name.to_owned())),
            When::Guarded if is_guarded => Err(Wrong::Protected(name.to_owned())),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_canonical_and_setting_names_unique() {
        let mut names = std::collections::HashSet::new();
        for row in ROWS.iter() {
            assert_eq!(
                value::canonical(row.kind, row.default).as_deref(),
                Ok(row.default),
                "{}",
                row.name
            );
            assert!(names.insert(row.name), "{} twice", row.name);
            assert!(!row.help.is_empty(), "{} without help", row.name);
        }
    }

    #[test]
    fn values_are_validated_as_their_row_says() {
        let mut settings = Settings::default();
        assert_eq!(settings.set("MaxMemory", "100mb"), Ok(()));
        assert_eq!(settings.size("maxmemory"), 100 << 20);
        assert!(matches!(settings.set("port", "70000"), Err(Wrong::Value(..))));
        assert!(matches!(settings.set("protected-mode", "maybe"), Err(Wrong::Value(..))));
        assert!(matches!(settings.set("no-such", "1"), Err(Wrong::Unknown(_))));
        assert!(matches!(settings.may_set("databases", true), Err(Wrong::Immutable(_))));
        assert_eq!(settings.set("save", "3600 1 300 100"), Ok(()));
        assert_eq!(settings.text("save"), "3600 1 300 100");
        for wrong in ["60", "60 1 60", "0 1", "60 -1", "60 x", " 60 1", "60  1"] {
            assert!(matches!(settings.set("save", wrong), Err(Wrong::Value(..))), "{wrong:?}");
        }
        assert_eq!(settings.set("save", ""), Ok(()));
    }
}

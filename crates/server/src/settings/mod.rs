//! Settings: a table of rows. The command line, the settings file, CONFIG GET, SET and REWRITE, and
//! `--help` all use it.
//!
//! A value is stored as its canonical text, as CONFIG GET shows it. Reading it as a number or a
//! flag cannot fail, because only [`Settings::set`] stores values, and it validates them as the row
//! says.
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

/// The kind of values that a setting takes.
#[derive(Clone, Copy, Debug)]
pub enum SettingKind {
    /// The words `yes` or `no`.
    Bool,
    /// Only `no`. The text is the reason why `yes` is refused.
    Off(&'static str),
    /// An integer in this range.
    Int(i64, i64),
    /// An integer in this range that Redis stores unsigned, so that -1 is the largest number.
    Count(u64, u64),
    /// A number of bytes in this range, with an optional unit: `100mb`, `1gb`.
    Memory(i64, i64),
    /// Like `Memory`, but stored unsigned, like `Count`.
    Size(u64, u64),
    /// An integer that is clamped to the range that Redis has for `hz`.
    Hertz,
    /// A number of bytes that is raised to the minimal size of a replication backlog.
    Backlog,
    /// A log level of Redis, including `nothing`, which newer versions have.
    Levels,
    /// Classes of keyspace events, one letter each.
    Events,
    /// A number of bytes, or a percentage of another setting, such as `5%`.
    MemoryOrPart,
    /// `class hard soft seconds`, repeated. The limits of a class that is not named do not change.
    OutputLimits,
    /// One of these words.
    Enum(&'static [&'static str]),
    /// Several of these words. The first one excludes the others.
    Flags(&'static [&'static str]),
    /// Any text.
    Text,
    /// The name of a file, without a folder. The texts are the errors for a path and, where the
    /// name must not be empty, for an empty name.
    FileName(&'static str, Option<&'static str>),
    /// An existing folder.
    Folder,
    /// Several words, stored with one blank between them.
    Words,
    /// Pairs of seconds and changes, stored with one blank between the numbers; empty for no save
    /// points.
    Save,
    /// Numbers from 0 to 100, stored with one blank between them; empty for none.
    Percentiles,
    /// Three scores for the kernel's OOM killer.
    OomScores,
    /// A host name, or nothing.
    Hostname,
    /// A text that may contain variables in braces.
    Title,
    /// Permission bits in octal. Empty or 0 means the system's default.
    Octal,
    /// A setting that is not supported yet. The text is the reason.
    Absent(&'static str),
}

impl SettingKind {
    /// True if all words after the name are the value; otherwise the value is one word.
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

/// When the value of a setting may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At any time, by CONFIG SET.
    Running,
    /// At any time, if `enable-protected-configs` permits it for the client.
    Guarded,
    /// Only at start.
    Start,
    /// At any time; the setting is accepted and shown, but has no effect here.
    Accepted,
    /// Only at start; the setting is accepted and shown, but has no effect here.
    Inert,
}

/// A row of the table of settings.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The name of the setting. It is Redis's name if the meaning is the same.
    pub name: &'static str,
    /// The default value, in canonical form.
    pub default: &'static str,
    /// The kind of values.
    pub kind: SettingKind,
    /// The unit of the value, for the help; empty if there is none.
    pub unit: &'static str,
    /// When the value may be changed.
    pub when: When,
    /// The effect of the setting, for the help.
    pub help: &'static str,
}

/// The reason why a value was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// There is no setting of this name.
    Unknown(String),
    /// The setting can be changed only at start.
    Immutable(String),
    /// The setting `enable-protected-configs` forbids the change.
    Protected(String),
    /// The value of the setting is invalid. The text is Redis's.
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

/// The values of all settings.
#[derive(Clone, Debug)]
pub struct Settings {
    values: Vec<String>,
    /// The settings file, which CONFIG REWRITE rewrites, if there is one.
    pub file: Option<std::path::PathBuf>,
    /// Lines of the settings file that are not values of rows.
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

/// The index of the row for `name`, in any letter case, and the name in the tables. If `name` is an
/// older name, the result is that older name.
fn place(name: &str) -> Option<(usize, &'static str)> {
    let is_called = |called: &str| called.eq_ignore_ascii_case(name);
    if let Some(at) = ROWS.iter().position(|row| is_called(row.name)) {
        return Some((at, ROWS[at].name));
    }
    let (old, new) = rows::older_names().find(|(old, _)| is_called(old))?;
    Some((ROWS.iter().position(|row| row.name == new)?, old))
}

impl Settings {
    /// The value as CONFIG GET shows it. Panics if `name` has no row, which would be a bug.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        let (at, _) = place(name).expect("a setting of the table");
        &self.values[at]
    }

    /// The value of a setting whose values are integers or bytes.
    #[must_use]
    pub fn int(&self, name: &str) -> i64 {
        self.text(name).parse().expect("validated when it was set")
    }

    /// The value of a setting whose values are integers or bytes, and never negative.
    #[must_use]
    pub fn size(&self, name: &str) -> usize {
        self.text(name).parse().expect("validated when it was set")
    }

    /// The value of a setting whose values are bytes or percentages. A percentage is taken of
    /// `whole`.
    #[must_use]
    pub fn part(&self, name: &str, whole: usize) -> usize {
        match self.text(name).strip_suffix('%') {
            Some(percent) => whole / 100 * percent.parse::<usize>().expect("validated when set"),
            None => self.size(name),
        }
    }

    /// The limits of `client-output-buffer-limit` for a class: hard and soft limit in bytes, and
    /// seconds.
    #[must_use]
    pub fn output_limits(&self, class: &str) -> [usize; 3] {
        let words: Vec<&str> = self.text("client-output-buffer-limit").split(' ').collect();
        let at = words.iter().position(|word| *word == class).expect("each class is in the value");
        [1, 2, 3].map(|next| words[at + next].parse().expect("validated when it was set"))
    }

    /// True if the value is `yes`.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.text(name) == "yes"
    }

    /// All rows with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Setting, &str)> {
        ROWS.iter().zip(self.values.iter().map(String::as_str))
    }

    /// All names, including older ones, with their values. The flag says whether patterns of CONFIG
    /// GET match the name.
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

    /// Makes the folder in `dir` the working directory of the process, and stores its absolute
    /// path.
    pub fn enter_folder(&mut self) -> std::io::Result<()> {
        std::env::set_current_dir(self.text("dir"))?;
        let folder = std::env::current_dir()?.to_string_lossy().into_owned();
        let (at, _) = place("dir").expect("a setting of the table");
        self.values[at] = folder;
        Ok(())
    }

    /// Checks that a client may change the setting while the server runs. `is_local` says whether
    /// the client is on this machine.
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
    fn values_of_settings_are_validated_as_their_row_says() {
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

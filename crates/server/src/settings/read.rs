//! Reads settings: from a file in the form of redis.conf, from standard input, and from options.
//! All faults are reported together, each with its line, so that a file can be corrected in one
//! pass.
//!
//! A line contains a name and its value, as words that may be quoted. A line that begins with `#`
//! is a comment. `include` reads other files in place of the line. An unknown name is ignored and
//! logged, because the file may be meant for a newer server. An unknown name that resembles a known
//! one is refused as a typing error.
//!
//! Some settings would protect or persist data, but have no effect here yet. They are refused where
//! it would be unsafe to continue ([`Reading::refused`]), and otherwise cause a warning
//! ([`warnings`]).

use super::{ROWS, Settings, place, rows, value};
use std::io::Read;
use std::path::{Path, PathBuf};

/// An error in the settings.
#[derive(Clone, Debug)]
struct Fault {
    /// The name of the file, or of another source.
    place: String,
    /// The number of the line, counted from 1, and its text.
    line: Option<(usize, String)>,
    why: String,
}

/// All errors that prevent the start, in the form in which Redis reports them.
#[derive(Clone, Debug)]
pub struct Faults(Vec<Fault>);

impl std::fmt::Display for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\n*** FATAL CONFIG FILE ERROR (Darter {}) ***", env!("CARGO_PKG_VERSION"))?;
        for fault in &self.0 {
            write!(f, "\nReading {}", fault.place)?;
            if let Some((number, line)) = &fault.line {
                write!(f, ", at line {number}\n>>> '{line}'")?;
            }
            write!(f, "\n{}", fault.why)?;
        }
        Ok(())
    }
}

/// Lines of the settings file that are not values of rows.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// Unknown names, in the order of the file.
    pub unknown: Vec<String>,
    /// True if active defragmentation was requested.
    defragmentation: bool,
    /// The requested port for TLS, or 0.
    tls_port: u16,
    /// The modules that should be loaded.
    modules: Vec<String>,
}

/// The deepest nesting of `include`. It stops a file that includes itself.
const DEPTH_MAX: usize = 16;

/// Settings that are being read.
#[derive(Debug, Default)]
pub struct Reading {
    settings: Settings,
    faults: Vec<Fault>,
    /// True if a `save` line was read. Later ones add save points.
    has_save: bool,
}

impl Reading {
    /// Reads a file. CONFIG REWRITE will write to the same file.
    pub fn file(&mut self, path: &Path) {
        self.include(path, 0);
        self.settings.file = Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    }

    /// Reads standard input to its end.
    pub fn input(&mut self, mut input: impl Read) {
        let (mut bytes, place) = (Vec::new(), "standard input");
        match input.read_to_end(&mut bytes) {
            Ok(_) => self.lines(place, &bytes, 0),
            Err(error) => self.fault(place, None, error.to_string()),
        }
    }

    /// Reads options in the form of lines of a file. An unknown name is an error here.
    pub fn options(&mut self, lines: &str) {
        for (number, line) in lines.lines().enumerate() {
            if let Err(why) = self.option(line) {
                self.fault("the command line", Some((number + 1, line.trim().to_owned())), why);
            }
        }
    }

    fn option(&mut self, line: &str) -> Result<(), String> {
        match directive(line)? {
            Some((name, _)) if !is_known(&name) => Err(unknown(&name)),
            _ => self.line(line.as_bytes(), 0),
        }
    }

    /// Returns the settings if there was no error, neither in a single one nor in a combination.
    pub fn end(mut self) -> Result<Settings, Faults> {
        let extras = &self.settings.extras;
        if extras.tls_port != 0 && self.settings.int("port") == 0 {
            let why = format!(
                "tls-port {} with port 0: TLS is not supported yet, so no client could connect securely",
                extras.tls_port
            );
            self.fault("the settings", None, why);
        }
        if self.faults.is_empty() { Ok(self.settings) } else { Err(Faults(self.faults)) }
    }

    fn fault(&mut self, place: &str, line: Option<(usize, String)>, why: String) {
        self.faults.push(Fault { place: place.to_owned(), line, why });
    }

    fn include(&mut self, path: &Path, depth: usize) {
        let place = format!("the configuration file {}", path.display());
        match std::fs::read(path) {
            Ok(bytes) => self.lines(&place, &bytes, depth),
            Err(error) => self.fault(&place, None, error.to_string()),
        }
    }

    fn lines(&mut self, place: &str, bytes: &[u8], depth: usize) {
        for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if let Err(why) = self.line(line, depth) {
                let line = String::from_utf8_lossy(line).trim().to_owned();
                self.fault(place, Some((number + 1, line)), why);
            }
        }
    }

    fn line(&mut self, line: &[u8], depth: usize) -> Result<(), String> {
        let line = std::str::from_utf8(line)
            .map_err(|error| format!("the byte {:#04x} is not UTF-8", line[error.valid_up_to()]))?;
        match directive(line)? {
            None => Ok(()),
            Some((name, values)) if name == "include" && values.len() == 1 => {
                self.included(&values[0], depth)
            }
            Some((name, values)) => self.directive(&name, &values),
        }
    }

    /// Reads all files that match a pattern, sorted by name. It is no error if none matches.
    fn included(&mut self, pattern: &str, depth: usize) -> Result<(), String> {
        if depth == DEPTH_MAX {
            return Err("too many nested includes".into());
        }
        for path in matching(pattern).map_err(|error| error.to_string())? {
            self.include(&path, depth + 1);
        }
        Ok(())
    }

    /// Handles the name and the words of one line.
    fn directive(&mut self, name: &str, values: &[String]) -> Result<(), String> {
        refused(name, values)?;
        let extras = &mut self.settings.extras;
        match (name, values) {
            ("user" | "aclfile" | "replicaof" | "slaveof", _) => Ok(()),
            ("activedefrag", [yes]) if yes.eq_ignore_ascii_case("yes") => {
                extras.defragmentation = true;
                Ok(())
            }
            ("tls-port", [port]) => {
                let bounds = super::SettingKind::Int(0, i64::from(u16::MAX));
                extras.tls_port = value::canonical(bounds, port)?.parse().unwrap_or(0);
                Ok(())
            }
            ("loadmodule", [module, ..]) => {
                extras.modules.push(module.clone());
                Ok(())
            }
            ("save", []) if self.has_save => Ok(()),
            ("save", words) if self.has_save && words.iter().any(|word| !word.is_empty()) => {
                let all = format!("{} {}", self.settings.text("save"), joined(words));
                self.settings.set("save", all.trim_start()).map_err(|wrong| why(&wrong))
            }
            _ => self.value(name, values),
        }
    }

    fn value(&mut self, name: &str, values: &[String]) -> Result<(), String> {
        let Some((at, _)) = place(name) else {
            // A command or a shell's line, as `CONFIG SET requirepass x`.
            let is_command = values.iter().take(2).any(|word| place(word).is_some());
            if is_command || is_spoiled(name) || suggestion(name).is_some() {
                return Err(unknown(name));
            }
            let names = &mut self.settings.extras.unknown;
            if !names.iter().any(|other| other == name) {
                names.push(name.to_owned());
            }
            return Ok(());
        };
        self.has_save |= name == "save";
        if values.len() != 1 && !ROWS[at].kind.takes_words() {
            return Err("wrong number of arguments".into());
        }
        self.settings.set(name, &joined(values)).map_err(|wrong| why(&wrong))
    }
}

/// Joins the words of a list into one text. A single word may contain the whole list. If there are
/// several words, a blank inside one of them is replaced by `_`, for which each kind of list has an
/// error.
fn joined(words: &[String]) -> String {
    match words {
        [list] => list.clone(),
        _ => words.iter().map(|word| word.replace(' ', "_")).collect::<Vec<_>>().join(" "),
    }
}

/// True if no server can have a setting of this name, so the line must be damaged:
/// `requirepass=secret`, `requirepass: secret`, `export ..`, or a name after a byte order mark. If
/// such a line were ignored, a server could start without its password.
fn is_spoiled(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    !begins || !name.bytes().all(is_plain) || name == "export" || SPECIAL.contains(&name)
}

/// The reason of the refusal without the name of the setting, which the line above shows.
fn why(wrong: &super::Wrong) -> String {
    match wrong {
        super::Wrong::Value(_, why) => why.clone(),
        other => other.to_string(),
    }
}

/// Names of lines that are not values of settings.
const SPECIAL: &[&str] =
    &["include", "user", "aclfile", "rename-command", "loadmodule", "tls-port", "sentinel"];

/// Refuses unsupported settings that protect the server, or that make it part of a cluster or a
/// replica. To continue would expose data, or serve an empty database.
fn refused(name: &str, values: &[String]) -> Result<(), String> {
    let is_no_one = || {
        let words: Vec<String> = values.iter().map(|word| word.to_ascii_lowercase()).collect();
        words.join(" ") == "no one" || words.iter().all(String::is_empty)
    };
    let why = match name {
        "user" if !gives_all(values) => {
            "ACL users are not supported yet; the only user is 'default': protect it with requirepass"
        }
        "aclfile" if values.iter().any(|word| !word.is_empty()) => {
            "ACL users are not supported yet, so commands that the file forbids would be allowed"
        }
        "rename-command" => {
            "rename-command is not supported yet, so the command would stay available to all clients"
        }
        "replicaof" | "slaveof" if !is_no_one() => {
            "replication is not supported yet: this server would be empty and accept writes"
        }
        "sentinel" => "sentinel directive while not in sentinel mode",
        _ => return Ok(()),
    };
    Err(why.into())
}

/// True for `user default on nopass ~* &* +@all`. Redis writes this line into its file, and it
/// changes nothing.
fn gives_all(words: &[String]) -> bool {
    const ALL: &[&str] = &[
        "on",
        "nopass",
        "sanitize-payload",
        "skip-sanitize-payload",
        "~*",
        "allkeys",
        "&*",
        "allchannels",
        "+@all",
        "allcommands",
    ];
    let has = |word: &str| words.iter().any(|other| other == word);
    words.first().is_some_and(|name| name == "default")
        && words[1..].iter().all(|word| ALL.contains(&word.as_str()))
        && has("on")
        && has("nopass")
}

/// Returns a warning for each setting that would protect or persist data, but has no effect here
/// yet.
#[must_use]
pub fn warnings(settings: &Settings) -> Vec<String> {
    let extras = &settings.extras;
    let mut lines = Vec::new();
    if settings.text("maxmemory-policy") != "noeviction" {
        lines.push(
            "maxmemory-policy: eviction is not supported yet; beyond maxmemory, writes fail".into(),
        );
    }
    if extras.tls_port != 0 {
        lines.push(format!(
            "tls-port: TLS is not supported yet; port {} is not opened",
            extras.tls_port
        ));
    }
    if extras.defragmentation {
        lines.push("activedefrag: there is no active defragmentation; see MEMORY PURGE".into());
    }
    for module in &extras.modules {
        lines.push(format!("loadmodule: modules are not supported; {module} is not loaded"));
    }
    if settings.int("min-replicas-to-write") > 0 {
        lines.push(
            "min-replicas-to-write: replication is not supported yet; writes are accepted".into(),
        );
    }
    if settings.flag("syslog-enabled") {
        lines.push("syslog-enabled: syslog is not supported; see logfile".into());
    }
    lines
}

/// Names of settings of newer servers that resemble known names.
const FOREIGN: &[&str] = &["set-max-listpack-entries", "set-max-listpack-value"];

fn is_known(name: &str) -> bool {
    place(name).is_some() || SPECIAL.contains(&name)
}

/// The error for an unknown name that resembles a known one.
fn unknown(name: &str) -> String {
    let near = suggestion(name).map(|near| format!(": did you mean '{near}'?"));
    format!("Bad directive or wrong number of arguments{}", near.unwrap_or_default())
}

/// The known name that `name` resembles: at most two letters differ, and fewer than half of its
/// letters.
#[must_use]
pub fn suggestion(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    if FOREIGN.contains(&name.as_str()) {
        return None;
    }
    let known = ROWS.iter().map(|row| row.name);
    let known = known.chain(rows::older_names().map(|(old, _)| old)).chain(SPECIAL.iter().copied());
    let far = |known: &&'static str| distance(name.as_bytes(), known.as_bytes());
    let near = known.min_by_key(far)?;
    let letters = far(&near);
    (letters <= 2 && letters * 2 < near.len()).then_some(near)
}

/// The edit distance with transpositions from `left` to `right`.
fn distance(left: &[u8], right: &[u8]) -> usize {
    let width = right.len() + 1;
    let mut rows: Vec<Vec<usize>> = vec![(0..width).collect()];
    for (i, letter) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, other) in right.iter().enumerate() {
            let swapped = i > 0 && j > 0 && *letter == right[j - 1] && left[i - 1] == *other;
            let swap = if swapped { rows[i - 1][j - 1] + 1 } else { usize::MAX };
            let change = rows[i][j] + usize::from(letter != other);
            row.push(change.min(rows[i][j + 1] + 1).min(row[j] + 1).min(swap));
        }
        rows.push(row);
    }
    rows[left.len()][right.len()]
}

/// The files that an `include` names. A pattern with `*`, `?` or `[` is matched folder by folder.
fn matching(pattern: &str) -> std::io::Result<Vec<PathBuf>> {
    let is_pattern = |word: &str| word.contains(['*', '?', '[']);
    if !is_pattern(pattern) {
        return Ok(vec![PathBuf::from(pattern)]);
    }
    let mut paths = vec![PathBuf::from(if pattern.starts_with('/') { "/" } else { "" })];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        if is_pattern(part) {
            paths = paths.iter().flat_map(|folder| children(folder, part)).collect();
        } else {
            paths.iter_mut().for_each(|path| path.push(part));
        }
    }
    paths.retain(|path| path.exists());
    paths.sort();
    Ok(paths)
}

/// The entries of a folder that match a pattern. Hidden entries match only if the pattern begins
/// with a dot.
fn children(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    use darter_base::glob::{Case, matches_case};
    let place = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let names = std::fs::read_dir(place).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter(|name| pattern.starts_with('.') || !name.starts_with('.'))
        .filter(|name| matches_case(pattern.as_bytes(), name.as_bytes(), Case::Sensitive))
        .map(|name| folder.join(name))
        .collect()
}

/// Splits a line into the name and the words; `None` for a comment or an empty line.
pub(super) fn directive(line: &str) -> Result<Option<(String, Vec<String>)>, String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let mut words = words(line).ok_or("Unbalanced quotes in configuration line")?.into_iter();
    let name = words.next().unwrap_or_default().to_ascii_lowercase();
    Ok(Some((name, words.collect())))
}

/// Splits a line into words at blanks. `"` and `'` quote, even inside a word. Within double quotes,
/// `\` escapes as in C.
pub(super) fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut letters = line.chars().peekable();
    while letters.peek().is_some() {
        while letters.next_if(|letter| letter.is_whitespace()).is_some() {}
        if letters.peek().is_none() {
            break;
        }
        let mut word = String::new();
        while let Some(letter) = letters.next_if(|letter| !letter.is_whitespace()) {
            if letter != '"' && letter != '\'' {
                word.push(letter);
                continue;
            }
            quoted(&mut letters, letter, &mut word)?;
            if letters.peek().is_some_and(|next| !next.is_whitespace()) {
                return None; // A closing quote must be followed by a blank.
            }
        }
        words.push(word);
    }
    Some(words)
}

/// Reads a quoted text up to the closing quote.
fn quoted(
    letters: &mut std::iter::Peekable<std::str::Chars<'_>>,
    quote: char,
    word: &mut String,
) -> Option<()> {
    loop {
        match letters.next()? {
            letter if letter == quote => return Some(()),
            '\\' if quote == '"' => word.push(escaped(letters)?),
            '\\' if letters.next_if_eq(&'\'').is_some() => word.push('\''),
            letter => word.push(letter),
        }
    }
}

/// The character that an escape after a backslash stands for. `\xHH` must be ASCII, because
/// settings are text.
fn escaped(letters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<char> {
    match letters.next()? {
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        'b' => Some('\u{8}'),
        'a' => Some('\u{7}'),
        'x' => {
            let mut ahead = letters.clone();
            let high = ahead.next().and_then(|letter| letter.to_digit(16));
            let low = ahead.next().and_then(|letter| letter.to_digit(16));
            let (Some(high), Some(low)) = (high, low) else { return Some('x') };
            *letters = ahead;
            char::from_u32(high * 16 + low)
        }
        letter => Some(letter),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, String> {
        let mut reading = Reading::default();
        reading.input(text.as_bytes());
        reading.end().map_err(|faults| faults.to_string())
    }

    #[test]
    fn lines_of_the_file_are_read_as_in_redis_conf() {
        let one = |name: &str, words: &[&str]| {
            Ok(Some((name.to_owned(), words.iter().map(|word| (*word).to_owned()).collect())))
        };
        assert_eq!(directive("  # comment"), Ok(None));
        assert_eq!(directive("PORT 7000"), one("port", &["7000"]));
        assert_eq!(directive(r#"requirepass "a \"b\" c""#), one("requirepass", &[r#"a "b" c"#]));
        assert_eq!(directive(r"a '\'b\n' c"), one("a", &[r"'b\n", "c"]));
        assert_eq!(directive(r#"a "\x41\t\xzz""#), one("a", &["A\txzz"]));
        assert_eq!(directive("save ''"), one("save", &[""]));
        assert_eq!(directive(r#"a b"c d""#), one("a", &["bc d"]));
        for wrong in ["requirepass \"open", "requirepass \"a\"b", "requirepass 'a"] {
            assert!(directive(wrong).is_err(), "{wrong}");
        }
    }

    #[test] // Each error is reported with its line.
    fn all_errors_of_a_file_are_reported_at_once() {
        let faults =
            read("port 70000\n# fine\ntimeout 5\nprot 1\nsave 1\nport 1 2\nport").unwrap_err();
        let at: Vec<&str> = faults.lines().filter(|line| line.contains("at line")).collect();
        let place = "Reading standard input, at line";
        assert_eq!(at, [1, 4, 5, 6, 7].map(|line| format!("{place} {line}")), "{faults}");
        assert!(faults.contains(">>> 'prot 1'"), "{faults}");
        assert!(faults.contains("did you mean 'port'?"), "{faults}");
        assert!(faults.contains("argument must be between 0 and 65535 inclusive"), "{faults}");
    }

    #[test]
    fn typos_of_names_are_refused_and_names_of_newer_servers_ignored() {
        for (slip, meant) in [
            ("prot", "port"),
            ("maxmemroy", "maxmemory"),
            ("require-pass", "requirepass"),
            ("slave-priorty", "slave-priority"),
            ("rename-comand", "rename-command"),
        ] {
            assert_eq!(suggestion(slip), Some(meant), "{slip}");
        }
        for other in ["set-max-listpack-entries", "tls-cert-file", "locale-collate", "h", "xy"] {
            assert_eq!(suggestion(other), None, "{other}");
        }
        let settings = read("locale-collate \"\"\ntls-cert-file a.crt\nlocale-collate C").unwrap();
        assert_eq!(settings.extras.unknown, ["locale-collate", "tls-cert-file"]);
    }

    #[test] // redis-server refuses such lines, too, like all unknown names.
    fn lines_with_an_impossible_name_are_refused() {
        for line in [
            "requirepass=secret",
            "requirepass: secret",
            "maxmemory=100mb",
            "export requirepass=x",
            "CONFIG SET requirepass x",
            "sudo requirepass x",
            "rename-command=FLUSHALL",
            "\u{feff}# comment",
            "\u{feff}requirepass secret",
            "- requirepass secret",
            "\"\" x",
            "\"port 1\"",
            "include",
            "include a b",
            "loadmodule",
            "oom-score-adj-values",
            "notify-keyspace-events",
            "save \"900 1\" \"300 10\"",
            "latency-tracking-info-percentiles \"50 99\" 100",
            "client-output-buffer-limit \"normal 0\" \"0 0\"",
        ] {
            let faults = read(&format!("timeout 1\n{line}")).unwrap_err();
            assert!(faults.contains(&format!(", at line 2\n>>> '{line}'\n")), "{faults}");
        }
    }

    #[test]
    fn a_list_may_be_quoted_as_one_word_or_left_empty() {
        let lines = "save\nlatency-tracking-info-percentiles\nclient-output-buffer-limit\nbind";
        let settings = read(lines).unwrap();
        for (name, value) in [("save", ""), ("latency-tracking-info-percentiles", ""), ("bind", "")]
        {
            assert_eq!(settings.text(name), value);
        }
        assert_eq!(settings.output_limits("pubsub"), Settings::default().output_limits("pubsub"));
        assert_eq!(read("save \"900 1 300 10\"").unwrap().text("save"), "900 1 300 10");
        assert_eq!(read("save 9 1\nsave").unwrap().text("save"), "9 1");
    }

    #[test]
    fn several_save_lines_add_their_save_points() {
        let settings = read("save 900 1\nsave 300 10 60 10000").unwrap();
        assert_eq!(settings.text("save"), "900 1 300 10 60 10000");
        assert_eq!(read("save 900 1\nsave \"\"").unwrap().text("save"), "");
    }

    #[test] // To ignore them would expose data, or serve an empty database.
    fn unsupported_settings_that_protect_data_are_refused() {
        for unsafe_line in [
            "user alice on >x ~* +get",
            "user default off",
            "user default on >x ~* &* +@all",
            "aclfile /etc/redis/users.acl",
            "rename-command FLUSHALL \"\"",
            "replicaof 10.0.0.1 6379",
            "slaveof 10.0.0.1 6379",
            "port 0\ntls-port 6379",
            "cluster-enabled yes",
        ] {
            assert!(read(unsafe_line).is_err(), "{unsafe_line}");
        }
        for safe in [
            "user default on nopass sanitize-payload ~* &* +@all",
            "aclfile \"\"",
            "replicaof no one",
            "tls-port 0\nport 0",
            "tls-port 6380",
        ] {
            assert!(read(safe).is_ok(), "{safe}");
        }
    }

    #[test]
    fn each_setting_without_effect_that_would_keep_data_causes_a_warning() {
        let text = "save 60 1\nmaxmemory-policy allkeys-lru\ntls-port 6380\n\
                    activedefrag yes\nloadmodule /x.so a b\nmin-replicas-to-write 1\nsyslog-enabled yes\n\
                    dir /proc";
        let lines = warnings(&read(text).unwrap());
        let names: Vec<&str> = lines.iter().map(|line| line.split(':').next().unwrap()).collect();
        #[rustfmt::skip] // A table.
        assert_eq!(names, [
            "maxmemory-policy", "tls-port", "activedefrag", "loadmodule",
            "min-replicas-to-write", "syslog-enabled",
        ]);
        assert!(warnings(&Settings::default()).is_empty());
    }
}

//! The command line: `darter [FILE | -] [--name value]...`, in any order; the file first, then the
//! options over it. An option is a line of the file, so there is one grammar.

use super::read::{self, Reading};
use super::{ROWS, Settings, When, place, startable};
use std::path::Path;

/// The request of a command line.
#[derive(Debug)]
pub enum Wanted {
    /// To run the server.
    Run(Box<Settings>),
    /// To print a text and exit.
    Told(String),
}

/// Parses the command line's words, without the program's name.
///
/// Errors: a text with all faults.
pub fn parse(words: &[String]) -> Result<Wanted, String> {
    let line = Line::split(words)?;
    if line.has("--help") || line.has("-h") {
        return Ok(Wanted::Told(help()));
    }
    if line.has("--version") || line.has("-v") {
        return Ok(Wanted::Told(version()));
    }
    let mut reading = Reading::default();
    match line.file {
        Some("-") => reading.input(std::io::stdin()),
        Some(path) => reading.file(Path::new(path)),
        None => {}
    }
    for (name, values) in &line.options {
        reading.option(name, values);
    }
    let settings = reading.end().map_err(|faults| faults.to_string())?;
    if line.has("--check-config") {
        let faults = startable::faults(&settings);
        return if faults.is_empty() {
            Ok(Wanted::Told(checked(&settings)))
        } else {
            Err(faults.join("\n"))
        };
    }
    Ok(Wanted::Run(Box::new(settings)))
}

/// The words, classified.
#[derive(Default)]
struct Line<'a> {
    file: Option<&'a str>,
    options: Vec<(&'a str, Vec<String>)>,
    flags: Vec<&'a str>,
}

const FLAGS: &[&str] = &["-h", "--help", "-v", "--version", "--check-config"];

impl<'a> Line<'a> {
    /// An option is followed by its words up to the next one: one, or several where the setting
    /// takes several. Anything else is the file.
    fn split(words: &'a [String]) -> Result<Self, String> {
        let mut line = Self::default();
        let mut words = words.iter().map(String::as_str).peekable();
        while let Some(word) = words.next() {
            if FLAGS.contains(&word) {
                line.flags.push(word);
            } else if let Some(name) = word.strip_prefix("--").filter(|name| !name.is_empty()) {
                let takes_words = place(name).is_none_or(|(at, _)| ROWS[at].kind.takes_words());
                let mut values = Vec::new();
                while let Some(value) = words.next_if(|next| !next.starts_with("--")) {
                    if takes_words && !values.is_empty() && value.ends_with(".conf") {
                        line.take_file(value)?;
                        break;
                    }
                    values.push(value.to_owned());
                    if !takes_words {
                        break;
                    }
                }
                line.options.push((name, values));
            } else {
                line.take_file(word)?;
            }
        }
        Ok(line)
    }

    fn take_file(&mut self, word: &'a str) -> Result<(), String> {
        match self.file.replace(word) {
            None => Ok(()),
            Some(other) => Err(format!(
                "darter: only one settings file is allowed, got '{other}' and '{word}'"
            )),
        }
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }
}

fn version() -> String {
    format!("darter {}", env!("CARGO_PKG_VERSION"))
}

/// The log lines about the settings that a start would write.
fn checked(settings: &Settings) -> String {
    let mut lines: Vec<String> =
        read::warnings(settings).iter().map(|line| format!("warning: {line}")).collect();
    if !settings.asked.unknown.is_empty() {
        lines.push(format!("ignored, unknown settings: {}", settings.asked.unknown.join(" ")));
    }
    lines.push("the settings are valid".into());
    lines.join("\n")
}

fn help() -> String {
    let mut text = version();
    text.push_str(
        "\nAn in-memory data store that speaks the Redis protocol; big keys do not delay other clients.\n\n\
         Usage: darter [FILE | -] [--name value]...\n\n\
         \x20 FILE             settings file in redis.conf format; - reads standard input\n\
         \x20 --check-config   check the settings, report all errors, and exit\n\
         \x20 -h, --help       print this text\n\
         \x20 -v, --version    print the version\n\nSettings:\n",
    );
    for row in ROWS.iter() {
        let default = if row.default.is_empty() { "\"\"" } else { row.default };
        let change = match row.when {
            When::Running | When::Guarded => "changeable at run time",
            When::Start => "fixed at start",
            When::Accepted | When::Inert => "accepted, without effect",
        };
        let unit = if row.unit.is_empty() { "value" } else { row.unit };
        let line = format!(
            "  --{} <{unit}>\n      {} [default: {default}; {change}]\n",
            row.name, row.help
        );
        text.push_str(&line);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[&str]) -> Result<Settings, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        match parse(&words)? {
            Wanted::Run(settings) => Ok(*settings),
            Wanted::Told(text) => Err(text),
        }
    }

    #[test]
    fn options_override_defaults() {
        let settings = run(&["--port", "7000", "--save", "", "--slowlog-log-slower-than", "-1"]);
        let settings = settings.unwrap();
        assert_eq!(settings.text("port"), "7000");
        assert_eq!(settings.int("slowlog-log-slower-than"), -1);
        let settings = run(&["--save", "60", "1", "300", "2", "--bind", "127.0.0.1", "-::1"]);
        let settings = settings.unwrap();
        assert_eq!(settings.text("save"), "60 1 300 2");
        assert_eq!(settings.text("bind"), "127.0.0.1 -::1");
        let limits = ["--client-output-buffer-limit", "normal", "1mb", "0", "0", "--port", "7000"];
        let settings = run(&limits).unwrap();
        assert_eq!(settings.output_limits("normal"), [1 << 20, 0, 0]);
        assert_eq!(settings.text("port"), "7000");
    }

    #[test]
    fn the_file_may_stand_anywhere() {
        let file = std::env::temp_dir().join(format!("darter-cli-{}.conf", std::process::id()));
        std::fs::write(&file, "timeout 5\nport 1\n").unwrap();
        let name = file.to_string_lossy().into_owned();
        for words in [
            [name.as_str(), "--port", "7000", "--bind", "127.0.0.1"],
            ["--port", "7000", &name, "--bind", "127.0.0.1"],
            ["--port", "7000", "--bind", "127.0.0.1", &name],
        ] {
            let settings = run(&words).unwrap();
            assert_eq!(
                (settings.text("port"), settings.text("timeout")),
                ("7000", "5"),
                "{words:?}"
            );
            assert_eq!(settings.text("bind"), "127.0.0.1");
        }
        let told = run(&[&name, "--check-config"]).unwrap_err();
        assert_eq!(told, "the settings are valid");
        std::fs::remove_file(&file).unwrap();
        assert!(run(&["a.conf", "b.conf"]).is_err());
        assert!(run(&["/no/such/file.conf"]).unwrap_err().contains("No such file"));
    }

    #[test]
    fn faults_of_options_are_told() {
        let told =
            run(&["--prot", "7000", "--timeout", "x", "--nothing-like-it", "1"]).unwrap_err();
        assert!(told.contains("did you mean 'port'?"), "{told}");
        assert!(told.contains("couldn't be parsed into an integer"), "{told}");
        assert!(told.contains("no such option"), "{told}");
        assert!(run(&["-v"]).unwrap_err().starts_with("darter "));
        assert!(run(&["--help"]).unwrap_err().contains("--maxmemory <bytes>"));
    }
}

//! The command line: `darter [FILE | -] [--name value]...`, read as Redis reads it. An option is
//! converted into a line that follows the lines of the file, so that both have one grammar.

use super::file::quoted;
use super::read::{self, Reading};
use super::{ROWS, Settings, When, startable};
use std::path::Path;

/// The action that a command line requests.
#[derive(Debug)]
pub enum CliRequest {
    /// Run the server with these settings.
    Run(Box<Settings>),
    /// Print this text and exit.
    Print(String),
}

/// Parses the words of the command line, without the program's name. `commands` is the part of the
/// help about commands that start no server.
///
/// Errors: a text that names all faults.
pub fn parse(words: &[String], commands: &str) -> Result<CliRequest, String> {
    let line = Line::split(words);
    if line.has("--help") || line.has("-h") {
        return Ok(CliRequest::Print(help(commands)));
    }
    if line.has("--version") || line.has("-v") {
        return Ok(CliRequest::Print(version()));
    }
    let mut reading = Reading::default();
    if let Some(path) = line.file {
        reading.file(Path::new(path));
    }
    if line.reads_input {
        reading.input(std::io::stdin());
    }
    reading.options(&line.options);
    let settings = reading.end().map_err(|faults| faults.to_string())?;
    if line.has("--check-config") {
        let faults = startable::faults(&settings);
        return if faults.is_empty() {
            Ok(CliRequest::Print(checked(&settings)))
        } else {
            Err(faults.join("\n"))
        };
    }
    Ok(CliRequest::Run(Box::new(settings)))
}

/// The words of the command line: file and options.
#[derive(Default)]
struct Line<'a> {
    file: Option<&'a str>,
    reads_input: bool,
    /// The options, as lines of a settings file.
    options: String,
    flags: Vec<&'a str>,
}

const FLAGS: &[&str] = &["-h", "--help", "-v", "--version", "--check-config"];

impl<'a> Line<'a> {
    /// The first word may name a file; `-` (standard input) may be the first or the last word. The
    /// word after an option's name is its value, even if it begins with `--`. `--name value` may
    /// also be one word.
    fn split(words: &'a [String]) -> Self {
        let mut line = Self::default();
        let mut needs_value = false;
        let mut words = words.iter().map(String::as_str).peekable();
        while let Some(word) = words.next() {
            let is_first = line.file.is_none() && !line.reads_input && line.options.is_empty();
            let is_last = words.peek().is_none();
            if FLAGS.contains(&word) && !needs_value {
                line.flags.push(word);
            } else if word == "-" && (is_first || is_last) {
                line.reads_input = true;
            } else if is_first && !word.starts_with('-') {
                line.file = Some(word);
            } else if let Some(option) = word.strip_prefix("--").filter(|_| !needs_value) {
                line.options.push('\n');
                line.options.push_str(option);
                let ends = words.peek().is_none_or(|next| next.starts_with("--"));
                if ends && option.eq_ignore_ascii_case("save") {
                    // An empty value: `--save ""` means no save points.
                    line.options.push_str(" \"\"");
                } else {
                    needs_value = read::words(option).is_some_and(|words| words.len() == 1);
                }
            } else {
                line.options.push(' ');
                line.options.push_str(&quoted(word));
                needs_value = false;
            }
        }
        line
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }
}

fn version() -> String {
    format!("darter {}", env!("CARGO_PKG_VERSION"))
}

/// The lines about these settings that a start would log, for `--check`.
fn checked(settings: &Settings) -> String {
    let mut lines: Vec<String> =
        read::warnings(settings).iter().map(|line| format!("warning: {line}")).collect();
    if !settings.extras.unknown.is_empty() {
        lines.push(format!("ignored, unknown settings: {}", settings.extras.unknown.join(" ")));
    }
    lines.push("the settings are valid".into());
    lines.join("\n")
}

fn help(commands: &str) -> String {
    let mut text = version();
    text.push_str(
        "\nAn in-memory data store that speaks the Redis protocol; big keys do not delay other clients.\n\n\
         Usage: darter [FILE | -] [--name value]...\n\
         \x20      darter COMMAND --help\n\n\
         \x20 FILE             settings file in redis.conf format; - reads standard input\n\
         \x20 --check-config   check the settings, report all errors, and exit\n\
         \x20 -h, --help       print this text\n\
         \x20 -v, --version    print the version\n\nCommands:\n",
    );
    text.push_str(commands);
    text.push_str("\nSettings:\n");
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
        match parse(&words, "  check\n")? {
            CliRequest::Run(settings) => Ok(*settings),
            CliRequest::Print(text) => Err(text),
        }
    }

    #[test]
    fn command_line_options_override_defaults() {
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
    fn command_line_options_override_the_file() {
        let file = std::env::temp_dir().join(format!("darter-cli-{}.conf", std::process::id()));
        std::fs::write(&file, "timeout 5\nport 1\n").unwrap();
        let name = file.to_string_lossy().into_owned();
        let settings = run(&[&name, "loglevel", "verbose", "--port", "7000"]).unwrap();
        let found = ["port", "timeout", "loglevel"].map(|name| settings.text(name));
        assert_eq!(found, ["7000", "5", "verbose"]);
        for words in [[&name, "--check-config"], ["--check-config", &name]] {
            assert_eq!(run(&words).unwrap_err(), "the settings are valid");
        }
        std::fs::remove_file(&file).unwrap();
        assert!(run(&["/no/such/file.conf"]).unwrap_err().contains("No such file"));
    }

    #[test]
    fn an_option_and_its_value_in_one_word_are_read_as_in_redis() {
        let text = |words: &[&str], name| run(words).map(|settings| settings.text(name).to_owned());
        assert_eq!(text(&["--maxmemory 1kb", "--save \"\""], "maxmemory").unwrap(), "1024");
        assert_eq!(text(&["--save 9 1"], "save").unwrap(), "9 1");
        assert_eq!(text(&["--save", "9 1"], "save").unwrap(), "9 1");
        assert_eq!(text(&["--save", "--port", "7"], "port").unwrap(), "7");
        for words in [&["--save"][..], &["--save", ""], &["--save", "--port", "7"]] {
            assert_eq!(text(words, "save").unwrap(), "", "{words:?}");
        }
        assert_eq!(text(&["--requirepass", "a \\ \"b\n"], "requirepass").unwrap(), "a \\ \"b\n");
        assert_eq!(text(&["--requirepass", "--port"], "requirepass").unwrap(), "--port");
        assert_eq!(text(&["--activedefrag", "yes"], "activedefrag").unwrap(), "no");
    }

    #[test] // The number of the line and the text are Redis's, too.
    fn errors_of_options_quote_the_line_as_redis_does() {
        for (words, line, why) in [
            (&["--port", "1x"][..], "port \"1x\"", "argument couldn't be parsed into an integer"),
            (&["--port"], "port", "wrong number of arguments"),
            (&["--port", "1", "2"], "port \"1\" \"2\"", "wrong number of arguments"),
            (&["--port", "1", "a.conf"], "port \"1\" \"a.conf\"", "wrong number of arguments"),
            (&["--port 1", "a=b"], "port 1 \"a=b\"", "wrong number of arguments"),
            (&["--save", "9 1", "3 1"], "save \"9 1\" \"3 1\"", "Invalid save parameters"),
            (&["--foo", "b"], "foo \"b\"", "Bad directive or wrong number of arguments"),
            (&["--requirepass=x"], "requirepass=x", "Bad directive or wrong number of arguments"),
            (&["--requirepass 'a"], "requirepass 'a", "Unbalanced quotes in configuration line"),
        ] {
            let faults = run(words).unwrap_err();
            assert!(faults.contains(&format!("\n>>> '{line}'\n{why}")), "{words:?}: {faults}");
        }
        let faults = run(&["--prot", "7000", "--timeout", "x"]).unwrap_err();
        assert!(faults.contains("did you mean 'port'?"), "{faults}");
        assert!(faults.contains("couldn't be parsed into an integer"), "{faults}");
        assert!(run(&["-v"]).unwrap_err().starts_with("darter "));
        for part in ["--maxmemory <bytes>", "Commands:\n  check\n\nSettings:\n"] {
            assert!(run(&["--help"]).unwrap_err().contains(part), "{part}");
        }
    }
}

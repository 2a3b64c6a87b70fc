//! The command line: `darter [FILE] [--name value]...`, one option per row.

use super::{ROWS, Settings, When, file};
use clap::{Arg, ArgAction, Command};

/// Settings from the command line's words, the program's name first: the file, then the options
/// over it. Prints help or version and ends the process where they are asked for.
///
/// Errors: what is wrong, for people.
pub fn parse(words: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Settings, String> {
    let matches = command().get_matches_from(words);
    let mut settings = Settings::default();
    if let Some(path) = matches.get_one::<String>("FILE") {
        file::read(&mut settings, path.as_ref()).map_err(|refused| refused.to_string())?;
    }
    for row in ROWS {
        if let Some(values) = matches.get_many::<String>(row.name) {
            let value = values.map(String::as_str).collect::<Vec<_>>().join(" ");
            settings.set(row.name, &value).map_err(|wrong| wrong.to_string())?;
        }
    }
    Ok(settings)
}

fn command() -> Command {
    let options = ROWS.iter().map(|row| {
        let default = if row.default.is_empty() { "\"\"" } else { row.default };
        let change = match row.when {
            When::Running | When::Guarded => "changeable at run time",
            When::Start => "fixed at start",
            When::Accepted | When::Inert => "accepted, without effect",
        };
        Arg::new(row.name)
            .long(row.name)
            .value_name(if row.unit.is_empty() { "value" } else { row.unit })
            .num_args(1..)
            .allow_hyphen_values(false)
            .allow_negative_numbers(true)
            .action(ArgAction::Append)
            .help(format!("{} [default: {default}; {change}]", row.help))
    });
    Command::new("darter")
        .version(env!("CARGO_PKG_VERSION"))
        .about(
            "An in-memory data store that speaks the Redis protocol and never stalls on big keys.",
        )
        .arg(Arg::new("FILE").help("Settings, in the form of redis.conf"))
        .args(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_override_defaults() {
        let words = ["darter", "--port", "7000", "--save", "", "--slowlog-log-slower-than", "-1"];
        let settings = parse(words.map(Into::into)).unwrap();
        assert_eq!(settings.text("port"), "7000");
        assert_eq!(settings.int("slowlog-log-slower-than"), -1);
        assert!(parse(["darter", "--port", "x"].map(Into::into)).is_err());
        command().debug_assert();
    }
}

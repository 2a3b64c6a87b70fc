//! The values of settings: how they are validated, their canonical texts, and the errors in Redis's
//! words.
//!
//! Redis reads numbers in two ways. A plain integer must be in its canonical form. A number of
//! bytes consists of digits and a unit: the digits saturate at the largest 64-bit number, and
//! multiplying by the unit silently wraps around.

use super::SettingKind;
use darter_base::number;

/// The range to which `hz` is clamped, as in Redis.
const HERTZ: (i64, i64) = (1, 500);
/// The minimal value of `repl-backlog-size`.
const BACKLOG_MIN: u64 = 16 * 1024;
const LEVELS: &[&str] = &["debug", "verbose", "notice", "warning"];
/// The letters for which `A` stands in `notify-keyspace-events`, in Redis's order.
const EVENTS_ALL: &str = "g$lshzxetd";
/// The variables that a process title may contain.
const TITLE_VARIABLES: &[&str] =
    &["title", "listen-addr", "server-mode", "port", "tls-port", "unixsocket", "config-file"];

/// Returns the canonical text of `value`, or the reason why it is invalid, in Redis's words.
pub(super) fn canonical(kind: SettingKind, value: &str) -> Result<String, String> {
    match kind {
        SettingKind::Text => Ok(value.to_owned()),
        SettingKind::Words => Ok(value.split_whitespace().collect::<Vec<_>>().join(" ")),
        SettingKind::Bool => match value.to_ascii_lowercase().as_str() {
            word @ ("yes" | "no") => Ok(word.to_owned()),
            _ => Err("argument must be 'yes' or 'no'".into()),
        },
        SettingKind::Off(why) => match canonical(SettingKind::Bool, value)?.as_str() {
            "no" => Ok("no".into()),
            _ => Err(why.to_owned()),
        },
        SettingKind::Levels if value.eq_ignore_ascii_case("nothing") => Ok("nothing".into()),
        SettingKind::Levels => word_of(LEVELS, value),
        SettingKind::Events => events(value),
        SettingKind::Backlog => {
            let bytes = in_range(memory(value)?.cast_signed(), 1, i64::MAX)?;
            Ok(bytes.parse().unwrap_or(BACKLOG_MIN).max(BACKLOG_MIN).to_string())
        }
        SettingKind::Enum(words) => word_of(words, value),
        SettingKind::Flags(words) => flags(words, value),
        SettingKind::Int(least, most) => in_range(integer(value)?, least, most),
        SettingKind::Count(least, most) => in_range(integer(value)?.cast_unsigned(), least, most),
        SettingKind::Memory(least, most) => in_range(memory(value)?.cast_signed(), least, most),
        SettingKind::Size(least, most) => in_range(memory(value)?, least, most),
        SettingKind::Hertz => {
            let number: i64 =
                in_range(integer(value)?, 0, i64::from(i32::MAX))?.parse().unwrap_or(0);
            Ok(number.clamp(HERTZ.0, HERTZ.1).to_string())
        }
        SettingKind::Octal => octal(value),
        SettingKind::FileName(path, empty) => file_name(value, path, empty),
        SettingKind::Folder => folder(value),
        SettingKind::Save => save_points(value).ok_or_else(|| "Invalid save parameters".into()),
        SettingKind::MemoryOrPart => memory_or_part(value),
        SettingKind::OutputLimits => output_limits(value, NO_OUTPUT_LIMITS),
        SettingKind::Percentiles => percentiles(value),
        SettingKind::OomScores => oom_scores(value),
        SettingKind::Hostname => hostname(value),
        SettingKind::Title => title(value),
        SettingKind::Absent(_) if value.is_empty() => Ok(String::new()),
        SettingKind::Absent(why) => Err(why.to_owned()),
    }
}

fn word_of(words: &[&str], value: &str) -> Result<String, String> {
    let found = words.iter().find(|word| word.eq_ignore_ascii_case(value));
    let found = found.map(|word| (*word).to_owned());
    found.ok_or_else(|| format!("argument(s) must be one of the following: {}", words.join(", ")))
}

/// Parses `100mb`, or `5%` of another setting, as Redis does. An empty value is 0.
fn memory_or_part(value: &str) -> Result<String, String> {
    const WRONG: &str = "argument must be a memory or percent value";
    let Some(percent) = value.strip_suffix('%') else {
        let number = if value.is_empty() { Some(0) } else { bytes(value) };
        return Ok(number.ok_or(WRONG)?.to_string());
    };
    match percent.parse::<i64>().ok().filter(|percent| *percent >= 0).ok_or(WRONG)? {
        0 => Ok("0".to_owned()),
        percent @ 1..=100 => Ok(format!("{percent}%")),
        _ => Err("percentage argument must be less or equal to 100".to_owned()),
    }
}

/// All classes of clients, without limits.
const NO_OUTPUT_LIMITS: &str = "normal 0 0 0 slave 0 0 0 pubsub 0 0 0";

/// Parses limits such as `normal 0 0 0 slave 256mb 64mb 60`. Classes that are not named keep their
/// limits in `old`.
pub(super) fn output_limits(value: &str, old: &str) -> Result<String, String> {
    let words: Vec<&str> = value.split(' ').filter(|_| !value.is_empty()).collect();
    if !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".into());
    }
    let mut all: Vec<String> = old.split(' ').map(str::to_owned).collect();
    for named in words.chunks_exact(4) {
        let class = match named[0].to_ascii_lowercase().as_str() {
            "replica" => "slave".to_owned(),
            class => class.to_owned(),
        };
        let at = all.iter().position(|word| *word == class && word.parse::<u64>().is_err());
        let at = at.ok_or("Invalid client class specified in buffer limit configuration.")?;
        let (Some(hard), Some(soft), Ok(seconds)) =
            (bytes(named[1]), bytes(named[2]), named[3].parse::<u32>())
        else {
            let why = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
            return Err(why.into());
        };
        all[at + 1] = hard.to_string();
        all[at + 2] = soft.to_string();
        all[at + 3] = seconds.to_string();
    }
    Ok(all.join(" "))
}

/// Puts words into the order of the table. The table's first word, or no word at all, stands for
/// none of the others.
fn flags(words: &[&str], value: &str) -> Result<String, String> {
    let mut wanted = Vec::new();
    for word in value.split(' ') {
        wanted.push(word_of(words, word)?);
    }
    let has = |word: &str| wanted.iter().any(|other| other == word);
    if has("save") && has("nosave") {
        return Err("shutdown options SAVE and NOSAVE can't be used simultaneously".into());
    }
    let kept: Vec<&str> = words[1..].iter().copied().filter(|word| has(word)).collect();
    Ok(if kept.is_empty() { words[0].to_owned() } else { kept.join(" ") })
}

/// Removes duplicate classes. The classes of `A` come first.
fn events(value: &str) -> Result<String, String> {
    if !value.chars().all(|letter| EVENTS_ALL.contains(letter) || "AKEmn".contains(letter)) {
        return Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".into());
    }
    let has = |letter: &char| value.contains(*letter);
    let mut kept = String::from(if has(&'n') { "An" } else { "A" });
    if !has(&'A') && !EVENTS_ALL.chars().all(|letter| has(&letter)) {
        kept = EVENTS_ALL.chars().chain(['n']).filter(has).collect();
    }
    kept.extend(['K', 'E', 'm'].iter().filter(|letter| has(letter)));
    Ok(kept)
}

fn integer(value: &str) -> Result<i64, String> {
    let number = number::parse_i64(value.as_bytes());
    number.ok_or_else(|| "argument couldn't be parsed into an integer".into())
}

fn memory(value: &str) -> Result<u64, String> {
    bytes(value).ok_or_else(|| "argument must be a memory value".into())
}

/// Parses a number of bytes such as `1gb`. As in Redis, `k`, `m` and `g` are powers of 1000, and
/// `kb`, `mb` and `gb` are powers of 1024. A unit without digits is no number.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    /// The largest number of digits that Redis reads.
    const DIGITS_MAX: usize = 127;
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, unit) = text.split_at(length);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    if length > DIGITS_MAX {
        return None;
    }
    let number = if digits.is_empty() { 0 } else { digits.parse().unwrap_or(u64::MAX) };
    Some(number.wrapping_mul(factor))
}

fn in_range<T: PartialOrd + std::fmt::Display>(
    number: T,
    least: T,
    most: T,
) -> Result<String, String> {
    if (&least..=&most).contains(&&number) {
        return Ok(number.to_string());
    }
    Err(format!("argument must be between {least} and {most} inclusive"))
}

fn octal(value: &str) -> Result<String, String> {
    let text = if value.is_empty() { "0" } else { value };
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(format!("{mode:o}")),
        Ok(_) => Err("argument must be between 0 and 777 inclusive".into()),
        Err(_) => Err("argument couldn't be parsed as an octal number".into()),
    }
}

fn file_name(value: &str, path: &str, empty: Option<&str>) -> Result<String, String> {
    match empty {
        _ if value.contains('/') => Err(path.to_owned()),
        Some(empty) if value.is_empty() => Err(empty.to_owned()),
        _ => Ok(value.to_owned()),
    }
}

/// Returns the folder as given. Entering it makes the path absolute.
fn folder(value: &str) -> Result<String, String> {
    let of_system = |error: std::io::Error| {
        let text = error.to_string();
        text.split(" (os error").next().unwrap_or_default().to_owned()
    };
    let found = std::fs::metadata(value).map_err(of_system)?;
    if found.is_dir() { Ok(value.to_owned()) } else { Err("Not a directory".into()) }
}

/// Parses pairs such as `3600 1 300 100`: seconds are at least 1, and changes at least 0, with one
/// blank between them, as in Redis.
fn save_points(value: &str) -> Option<String> {
    if value.is_empty() {
        return Some(String::new());
    }
    // If the text ends with a blank, the missing number of changes is 0.
    let number = |word: &str| if word.is_empty() { Some(0) } else { word.parse().ok() };
    let numbers: Option<Vec<i64>> = value.split(' ').map(number).collect();
    let numbers = numbers.filter(|numbers| numbers.len() % 2 == 0)?;
    let sound = numbers.chunks_exact(2).all(|point| point[0] >= 1 && point[1] >= 0);
    sound.then(|| numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(" "))
}

fn percentiles(value: &str) -> Result<String, String> {
    let mut kept = Vec::new();
    for word in value.split(' ').filter(|_| !value.is_empty()) {
        let number: f64 = match word.parse() {
            Ok(number) => number,
            Err(_) => return Err("Invalid latency-tracking-info-percentiles parameters".into()),
        };
        if !(0.0..=100.0).contains(&number) {
            let why = "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]";
            return Err(why.into());
        }
        kept.push(number.to_string());
    }
    Ok(kept.join(" "))
}

fn oom_scores(value: &str) -> Result<String, String> {
    const BOUND: i64 = 2_000;
    let words: Vec<&str> = value.split(' ').collect();
    if words.len() != 3 {
        return Err("wrong number of arguments".into());
    }
    let numbers = words.iter().map(|word| word.parse::<i64>().ok());
    let numbers = numbers.map(|number| number.filter(|number| number.abs() <= BOUND));
    match numbers.collect::<Option<Vec<i64>>>() {
        Some(numbers) => Ok(numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(" ")),
        None => Err(format!(
            "Invalid oom-score-adj-values, elements must be between -{BOUND} and {BOUND}."
        )),
    }
}

fn hostname(value: &str) -> Result<String, String> {
    const LENGTH_MAX: usize = 255;
    if value.len() > LENGTH_MAX {
        return Err(format!("Hostnames must be less than {} characters", LENGTH_MAX + 1));
    }
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.');
    if value.chars().all(is_allowed) {
        return Ok(value.to_owned());
    }
    Err("Hostnames may only contain alphanumeric characters, hyphens or dots".into())
}

/// Checks the template of a process title: it must not be empty without its variables.
fn title(value: &str) -> Result<String, String> {
    let mut parts = value.split('{');
    let mut shown = parts.next().unwrap_or_default().to_owned();
    let is_sound = parts.all(|part| {
        let Some((name, rest)) = part.split_once('}') else { return false };
        let is_empty = matches!(name, "title" | "server-mode" | "unixsocket" | "config-file");
        shown.push_str(if is_empty { "" } else { name });
        shown.push_str(rest);
        TITLE_VARIABLES.contains(&name)
    });
    if is_sound && !shown.trim().is_empty() {
        return Ok(value.to_owned());
    }
    Err("template format is invalid or contains unknown variables".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // As in redis-server 7.0.15, digits saturate, and a unit wraps around.
    fn memory_sizes_are_read_as_in_redis() {
        let max = u64::MAX;
        #[rustfmt::skip] // A table.
        let cases = [
            ("1gb", Some(1 << 30)), ("1G", Some(1_000_000_000)), ("1kB", Some(1_024)),
            ("b", Some(0)), ("kb", Some(0)), ("", Some(0)), ("007", Some(7)),
            ("99999999999999999999", Some(max)), ("99999999999999999999k", Some(max.wrapping_mul(1_000))),
            ("1x", None), ("-1", None), ("1.5", None), (" 1", None), ("1 ", None),
        ];
        for (text, wanted) in cases {
            assert_eq!(bytes(text), wanted, "{text:?}");
        }
        assert_eq!(bytes(&"1".repeat(127)), Some(max));
        assert_eq!(bytes(&"1".repeat(128)), None);
    }
}

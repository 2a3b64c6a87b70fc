//! Checks for settings that are valid, but would prevent the start. The checks have no effects: no
//! name is resolved, no port is opened, and no file is created. So they find only a part of such
//! faults.
//!
//! Not here: errors in a single line. See `read`.

use super::Settings;
use std::net::Ipv6Addr;
use std::path::Path;

/// The errors, as sentences that begin with the name of the setting.
pub(super) fn faults(settings: &Settings) -> Vec<String> {
    let mut faults = Vec::new();
    if settings.int("port") != 0 {
        let words = settings.text("bind").split(' ').filter(|word| !is_address(word));
        faults.extend(words.map(|word| format!("bind: '{word}' is not an address")));
    }
    let file = settings.text("logfile");
    if let Some(why) = unwritable(Path::new(file)) {
        faults.push(format!("logfile: '{file}' {why}"));
    }
    faults
}

/// True if a word of `bind` has the form of an address, or may be a host name.
fn is_address(word: &str) -> bool {
    let word = word.strip_prefix('-').unwrap_or(word);
    let is_numeric = word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    match word {
        "" | "*" | "::*" => true,
        _ if word.contains(':') => {
            let (address, _interface) = word.split_once('%').unwrap_or((word, ""));
            address.parse::<Ipv6Addr>().is_ok()
        }
        _ => !is_numeric || is_ipv4(word),
    }
}

/// True for one to four numbers, of which the last covers all remaining bytes, as in
/// `inet_aton(3)`. So `127.1` is an address, too.
fn is_ipv4(word: &str) -> bool {
    let numbers: Result<Vec<u64>, _> = word.split('.').map(str::parse).collect();
    let Ok([first @ .., last]) = numbers.as_deref() else { return false };
    first.len() < 4
        && first.iter().all(|byte| *byte < 256)
        && *last < 256 << (8 * (3 - first.len()))
}

/// The reason why no log can be written at `path`, if there is one. An empty path stands for
/// standard output.
fn unwritable(path: &Path) -> Option<&'static str> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if path.is_dir() {
        return Some("is a directory");
    }
    folder.is_some_and(|folder| !folder.is_dir()).then_some("is in a directory that does not exist")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_bind_addresses_are_refused() {
        for word in ["127.0.0.1", "127.1", "-::1", "*", "-::*", "fe80::1%eth0", "db-7.internal"] {
            assert!(is_address(word), "{word}");
        }
        for word in ["300.1.1.1", "1.2.3.4.5", "1.2.3.", "127.16777216", "-::1::2", "1::g"] {
            assert!(!is_address(word), "{word}");
        }
    }

    #[test]
    fn a_log_file_in_a_missing_folder_is_refused() {
        let folder = std::env::temp_dir();
        assert_eq!(unwritable(Path::new("")), None);
        assert_eq!(unwritable(Path::new("darter.log")), None);
        assert_eq!(unwritable(&folder.join("darter.log")), None);
        assert!(unwritable(&folder).is_some());
        assert!(unwritable(Path::new("/nonexistent/darter.log")).is_some());
    }

    #[test] // If TCP is off, invalid addresses do not matter.
    fn start_errors_begin_with_the_name_of_the_setting() {
        let mut settings = Settings::default();
        settings.set("bind", "127.0.0.1 300.1.1.1").unwrap();
        settings.set("logfile", "/nonexistent/log").unwrap();
        let told = faults(&settings);
        assert_eq!(told[0], "bind: '300.1.1.1' is not an address");
        assert!(told[1].starts_with("logfile: "), "{told:?}");
        settings.set("port", "0").unwrap();
        assert_eq!(faults(&settings).len(), 1);
    }
}

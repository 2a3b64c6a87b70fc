//! The choice of keys by database, name, type, deadline, size and slot.

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use darter_base::{UnixMillis, glob, slot};
use darter_families::TYPES;
use darter_rdb::Event;
use std::ops::RangeInclusive;

/// The last slot.
pub(crate) const SLOT_MAX: u16 = 16_383;

/// A filter, and the facts about the current key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    databases: Vec<u32>,
    patterns: Vec<String>,
    types: Vec<String>,
    slots: Vec<RangeInclusive<u16>>,
    /// True for keys with a deadline only, false for keys without one.
    expires: Option<bool>,
    expires_before: Option<UnixMillis>,
    expires_after: Option<UnixMillis>,
    bytes_min: u64,
    bytes_max: Option<u64>,
    database: u32,
    is_taken: bool,
}

/// Adds the arguments of a filter.
pub(crate) fn arguments(command: Command) -> Command {
    let many = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help).action(ArgAction::Append)
    };
    let number = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help).value_parser(value_parser!(u64))
    };
    command
        .next_help_heading("Choice of keys")
        .arg(many("database", "N", "Only keys of this database").value_parser(value_parser!(u32)))
        .arg(many("key", "PATTERN", "Only keys whose names match, as with KEYS"))
        .arg(many("type", "TYPE", "Only keys of this type, as TYPE shows it"))
        .arg(many("slot", "FROM-TO", "Only keys of these slots").value_parser(slots))
        .arg(
            Arg::new("expires")
                .long("expires")
                .value_name("yes|no")
                .value_parser(["yes", "no"])
                .help("Only keys with a deadline, or only those without"),
        )
        .arg(number("expires-before", "UNIX-MS", "Only keys with an earlier deadline"))
        .arg(number("expires-after", "UNIX-MS", "Only keys with a later deadline"))
        .arg(number("bytes-min", "BYTES", "Only keys with at least this many bytes in the file"))
        .arg(number("bytes-max", "BYTES", "Only keys with at most this many bytes in the file"))
}

/// Parses a range of slots.
pub(crate) fn slots(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.parse().ok().filter(|slot| *slot <= SLOT_MAX);
    match (number(from), number(to)) {
        (Some(from), Some(to)) if from <= to => Ok(from..=to),
        _ => Err(format!("expected FROM-TO with slots of at most {SLOT_MAX}")),
    }
}

impl Filter {
    /// The filter of a command line.
    pub(crate) fn of(matches: &ArgMatches) -> Result<Self, String> {
        let types = many::<String>(matches, "type");
        for name in &types {
            if !TYPES.iter().any(|row| row.name == name) {
                let known: Vec<_> = TYPES.iter().map(|row| row.name).collect();
                return Err(format!("unknown type '{name}': use one of {}", known.join(", ")));
            }
        }
        let number = |name| matches.get_one::<u64>(name).copied();
        Ok(Self {
            databases: many(matches, "database"),
            patterns: many(matches, "key"),
            types,
            slots: many(matches, "slot"),
            expires: matches.get_one::<String>("expires").map(|word| word == "yes"),
            expires_before: number("expires-before"),
            expires_after: number("expires-after"),
            bytes_min: number("bytes-min").unwrap_or(0),
            bytes_max: number("bytes-max"),
            database: 0,
            is_taken: false,
        })
    }

    /// A filter by slots.
    pub(crate) fn of_slots(range: RangeInclusive<u16>) -> Self {
        Self { slots: vec![range], ..Self::default() }
    }

    /// True if all keys are taken.
    pub(crate) fn is_open(&self) -> bool {
        let Self { databases, patterns, types, slots, .. } = self;
        let lists = databases.len() + patterns.len() + types.len() + slots.len();
        let deadlines = (self.expires, self.expires_before, self.expires_after);
        lists == 0
            && deadlines == (None, None, None)
            && (self.bytes_min, self.bytes_max) == (0, None)
    }

    /// Notes the database, or judges the key that begins.
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        match *event {
            Event::SelectDb(database) => self.database = database,
            Event::Start { .. } => self.database = 0,
            Event::Key { key, kind, expiry_ms, .. } => {
                self.is_taken = self.takes_key(key, TYPES.of(kind).name, expiry_ms);
            }
            _ => {}
        }
    }

    /// True if the key that ends, with this many bytes in the file, is taken.
    pub(crate) fn takes(&self, bytes: u64) -> bool {
        self.is_taken && bytes >= self.bytes_min && self.bytes_max.is_none_or(|most| bytes <= most)
    }

    fn takes_key(&self, key: &[u8], kind: &str, deadline: Option<UnixMillis>) -> bool {
        let any = |is_empty: bool, found: bool| is_empty || found;
        let slot = slot::of(key);
        any(self.databases.is_empty(), self.databases.contains(&self.database))
            && any(
                self.patterns.is_empty(),
                self.patterns.iter().any(|pattern| glob::matches(pattern.as_bytes(), key)),
            )
            && any(self.types.is_empty(), self.types.iter().any(|name| name == kind))
            && any(self.slots.is_empty(), self.slots.iter().any(|range| range.contains(&slot)))
            && self.expires.is_none_or(|wanted| wanted == deadline.is_some())
            && self.expires_before.is_none_or(|limit| deadline.is_some_and(|at| at < limit))
            && self.expires_after.is_none_or(|limit| deadline.is_some_and(|at| at > limit))
    }
}

fn many<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> Vec<T> {
    matches.get_many::<T>(name).into_iter().flatten().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Filter {
        let command = arguments(Command::new("x").no_binary_name(true));
        Filter::of(&command.try_get_matches_from(words).unwrap()).unwrap()
    }

    #[test]
    fn keys_are_chosen_by_each_condition() {
        let takes = |words: &[&str], key: &str, kind: &str, deadline| {
            of(words).takes_key(key.as_bytes(), kind, deadline)
        };
        assert!(of(&[]).is_open() && takes(&[], "a", "string", None));
        assert!(!of(&["--bytes-min", "1"]).is_open());
        assert!(takes(&["--key", "u*", "--key", "a?"], "ab", "string", None));
        assert!(!takes(&["--key", "u*"], "ab", "string", None));
        assert!(takes(&["--type", "hash"], "a", "hash", None));
        assert!(!takes(&["--type", "hash"], "a", "string", None));
        assert!(takes(&["--slot", "12182"], "foo", "string", None));
        assert!(!takes(&["--slot", "0-12181"], "foo", "string", None));
        assert!(takes(&["--expires", "yes"], "a", "string", Some(1)));
        assert!(!takes(&["--expires", "no"], "a", "string", Some(1)));
        assert!(takes(&["--expires-before", "5"], "a", "string", Some(4)));
        assert!(!takes(&["--expires-before", "5"], "a", "string", None));
        assert!(!takes(&["--expires-after", "5"], "a", "string", Some(5)));
        assert!(takes(&["--database", "0"], "a", "string", None));
        assert!(!takes(&["--database", "1"], "a", "string", None));
    }

    #[test]
    fn ranges_of_slots_beyond_the_last_are_refused() {
        assert_eq!(slots("0-16383"), Ok(0..=16_383));
        for text in ["0-16384", "2-1", "", "x", "-1"] {
            assert!(slots(text).is_err(), "{text}");
        }
    }
}

//! The least version of redis-server that loads a file.

use darter_families::TABLES;
use darter_rdb::types::{PRIVATE, VALKEY_VERSION_MIN};
use darter_server::admin;
use std::collections::{BTreeSet, HashMap};
use std::fmt;

/// Commands of Darter and of other servers, which no redis-server has.
const NOT_OF_REDIS: &[&str] = &["fieldexpire", "prepend", "rm", "saddex"];
/// The first version of Redis that has the commands of types such as JSON.
const REDIS_8: Release = Release::Redis(8, 0);
/// The most reasons that are shown.
const REASONS_MAX: usize = 3;

/// A version of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Release {
    /// Redis, major and minor version.
    Redis(u8, u8),
    /// No redis-server.
    NotRedis,
}

/// The first version of Redis with append-only folders.
pub(crate) const FOLDERS: Release = Release::Redis(7, 0);

/// The least version of redis-server that loads all that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    release: Release,
    /// The commands and types that need this version.
    reasons: BTreeSet<String>,
}

impl Needs {
    /// The needs of a file without content.
    pub(crate) fn new(release: Release) -> Self {
        Self { release, reasons: BTreeSet::new() }
    }

    fn add(&mut self, release: Release, reason: impl FnOnce() -> String) {
        if release > self.release {
            (self.release, self.reasons) = (release, BTreeSet::new());
        }
        if release == self.release && self.reasons.len() <= REASONS_MAX {
            self.reasons.insert(reason());
        }
    }

    /// Adds the format of an RDB file.
    pub(crate) fn add_rdb_version(&mut self, version: u16) {
        if let Some(release) = release_of(version) {
            self.add(release, || format!("RDB version {version}"));
        }
    }

    /// Adds a value of an RDB file, or of a payload of DUMP, by its type number.
    pub(crate) fn add_encoding(&mut self, encoding: u8) {
        if encoding >= PRIVATE {
            self.add(Release::NotRedis, || format!("value type {encoding}"));
        }
    }
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.release {
            Release::Redis(major, minor) => write!(f, "redis-server {major}.{minor} or later")?,
            Release::NotRedis => f.write_str("only Darter")?,
        }
        if self.reasons.is_empty() {
            return Ok(());
        }
        let shown: Vec<&str> = self.reasons.iter().take(REASONS_MAX).map(String::as_str).collect();
        let more = if self.reasons.len() > REASONS_MAX { ", …" } else { "" };
        write!(f, " (because of {}{more})", shown.join(", "))
    }
}

/// The first version of Redis that reads an RDB version, if it is later than Redis 7.0.
fn release_of(version: u16) -> Option<Release> {
    match version {
        ..11 => None,
        11 => Some(Release::Redis(7, 2)),
        12 => Some(Release::Redis(7, 4)),
        VALKEY_VERSION_MIN.. => Some(Release::NotRedis),
        _ => Some(REDIS_8),
    }
}

/// The versions of Redis that have the commands which this program knows.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    releases: HashMap<String, Release>,
}

impl Vocabulary {
    /// All commands.
    pub(crate) fn new() -> Self {
        let families = TABLES.iter().copied().flatten();
        let admin = admin::TABLES.iter().copied().flatten().map(|(row, _)| row);
        let releases =
            families.chain(admin).map(|row| (row.name.to_owned(), release(row.name, row.since)));
        Self { releases: releases.collect() }
    }

    /// Adds the needs of a command to `needs`. Returns false if no command has this name.
    pub(crate) fn add(&self, name: &str, needs: &mut Needs) -> bool {
        let Some(release) = self.releases.get(&name.to_ascii_lowercase()) else { return false };
        if *release > FOLDERS {
            needs.add(*release, || name.to_owned());
        }
        true
    }
}

/// The first version of Redis with a command. `since` is the version in the command's row, which is
/// that of a module for commands such as JSON.SET.
fn release(name: &str, since: &str) -> Release {
    if NOT_OF_REDIS.contains(&name) {
        return Release::NotRedis;
    }
    if name.contains('.') {
        return REDIS_8;
    }
    let mut parts = since.split('.').map(|part| part.parse().unwrap_or(0));
    Release::Redis(parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_command_decides_the_version() {
        let vocabulary = Vocabulary::new();
        let needs = |names: &[&str]| {
            let mut needs = Needs::new(FOLDERS);
            for name in names {
                assert!(vocabulary.add(name, &mut needs), "{name}");
            }
            needs.to_string()
        };
        assert_eq!(needs(&["SET", "SELECT", "MULTI", "FUNCTION"]), "redis-server 7.0 or later");
        assert_eq!(
            needs(&["HPEXPIREAT", "SET", "HPEXPIREAT"]),
            "redis-server 7.4 or later (because of HPEXPIREAT)"
        );
        assert_eq!(
            needs(&["HPEXPIREAT", "XDELEX", "BLMOVEM"]),
            "redis-server 8.10 or later (because of BLMOVEM)"
        );
        assert_eq!(needs(&["JSON.SET"]), "redis-server 8.0 or later (because of JSON.SET)");
        assert_eq!(needs(&["SADDEX", "JSON.SET"]), "only Darter (because of SADDEX)");
        assert!(!vocabulary.add("NOPE", &mut Needs::new(FOLDERS)));
    }

    #[test]
    fn rdb_versions_and_private_types_are_needs() {
        let mut needs = Needs::new(FOLDERS);
        needs.add_rdb_version(10);
        needs.add_encoding(25);
        assert_eq!(needs, Needs::new(FOLDERS));
        needs.add_rdb_version(12);
        assert_eq!(needs.to_string(), "redis-server 7.4 or later (because of RDB version 12)");
        needs.add_encoding(PRIVATE + 7);
        assert_eq!(needs.to_string(), "only Darter (because of value type 207)");
    }
}

//! Commands of Redis 7.0 that Darter does not support yet. The first request for each is logged,
//! with a reference to the list of missing features. The reply is Redis's for an unknown command.

use std::sync::atomic::{AtomicBool, Ordering};

/// The names of these commands.
#[rustfmt::skip] // A table.
const NAMES: &[&str] = &[
    "acl", "failover", "migrate",
    "module", "psync", "replconf",
    "replicaof", "restore-asking", "role",
    "slaveof", "sync",
];

/// For each name in [`NAMES`]: whether any core has logged it.
#[derive(Debug)]
pub(crate) struct Absent([AtomicBool; NAMES.len()]);

/// An upper bound of the length of a name in [`NAMES`].
const NAME_MAX: usize = 40;

impl Default for Absent {
    fn default() -> Self {
        Self([const { AtomicBool::new(false) }; NAMES.len()])
    }
}

impl Absent {
    /// Logs the unknown command `name` if [`NAMES`] has it and it was not logged before.
    pub(crate) fn asked_for(&self, name: &[u8]) {
        if self.is_news(name) {
            let name = String::from_utf8_lossy(name).to_ascii_uppercase();
            tracing::warn!(
                "{name} is not supported yet: see \"Not supported yet\" in docs/compat.md"
            );
        }
    }

    fn is_news(&self, name: &[u8]) -> bool {
        if name.len() > NAME_MAX {
            return false; // A longer name is in no row, and is not copied.
        }
        let Ok(name) = std::str::from_utf8(name) else { return false };
        let at = NAMES.binary_search(&name.to_ascii_lowercase().as_str());
        at.is_ok_and(|at| !self.0[at].swap(true, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // The list is sorted because `asked_for` uses binary search.
    fn unsupported_names_are_sorted_and_not_in_the_command_table() {
        let table = crate::boot::table();
        assert!(NAMES.is_sorted());
        for name in NAMES {
            assert!(name.len() <= NAME_MAX, "{name} is never logged");
            assert!(table.find(name.as_bytes()).is_none(), "{name} exists");
        }
    }

    #[test] // Letter case does not matter; names outside the list are never logged.
    fn each_unsupported_command_is_logged_once() {
        let absent = Absent::default();
        let asked = [&b"ROLE"[..], b"role", b"sync", b"get", b"\xff", &[b'a'; 100]];
        assert_eq!(
            asked.map(|name| absent.is_news(name)),
            [true, false, true, false, false, false]
        );
    }
}

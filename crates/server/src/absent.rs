//! Commands of Redis 7.0 that Darter does not have yet. The first request for one logs its name and
//! where to find the list of what is planned; the reply is Redis's for an unknown command.

use std::sync::atomic::{AtomicBool, Ordering};

/// Their names.
#[rustfmt::skip] // A table.
const NAMES: &[&str] = &[
    "acl", "asking", "bgrewriteaof",
    "cluster", "failover", "migrate", "module",
    "psync", "readonly", "readwrite", "replconf",
    "replicaof", "restore-asking", "role",
    "slaveof", "sync",
];

/// Which of them have been logged, by any core.
#[derive(Debug)]
pub(crate) struct Absent([AtomicBool; NAMES.len()]);

/// No name is longer.
const NAME_MAX: usize = 40;

impl Default for Absent {
    fn default() -> Self {
        Self([const { AtomicBool::new(false) }; NAMES.len()])
    }
}

impl Absent {
    /// An unknown command was requested: the first time it is one of these, logs `name`.
    pub(crate) fn asked_for(&self, name: &[u8]) {
        if self.is_news(name) {
            let name = String::from_utf8_lossy(name).to_ascii_uppercase();
            tracing::warn!(
                "{name} was asked for and is not there yet: see \"Not there yet\" in docs/compat.md"
            );
        }
    }

    fn is_news(&self, name: &[u8]) -> bool {
        if name.len() > NAME_MAX {
            return false; // Cheap to reject: it may be of any length.
        }
        let Ok(name) = std::str::from_utf8(name) else { return false };
        let at = NAMES.binary_search(&name.to_ascii_lowercase().as_str());
        at.is_ok_and(|at| !self.0[at].swap(true, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Sorted, as the binary search requires, and none of them exists.
    fn names_are_sorted_and_absent() {
        let table = crate::boot::table();
        assert!(NAMES.is_sorted());
        for name in NAMES {
            assert!(name.len() <= NAME_MAX, "{name} is never told of");
            assert!(table.find(name.as_bytes()).is_none(), "{name} is there");
        }
    }

    #[test] // Once, in any case; other names never.
    fn each_is_logged_once() {
        let absent = Absent::default();
        let asked = [&b"ROLE"[..], b"role", b"sync", b"get", b"\xff", &[b'a'; 100]];
        assert_eq!(
            asked.map(|name| absent.is_news(name)),
            [true, false, true, false, false, false]
        );
    }
}

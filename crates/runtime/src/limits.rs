//! The system's limits for the process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files to `wanted` or as near as the system allows, including the hard
/// limit if permitted; never lowers it. Returns the resulting limit. Call this before listening,
/// because io_uring applies the limit at the time when an accept is armed.
pub fn raise_open_files(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let allowed = limit.current.unwrap_or(u64::MAX);
    if allowed >= wanted {
        return allowed;
    }
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let raised = Rlimit { current: Some(wanted), maximum: Some(hard.max(wanted)) };
    if setrlimit(Resource::Nofile, raised).is_ok() {
        return wanted;
    }
    // Only root raises the hard limit; any process may raise the soft limit up to it.
    let within = wanted.min(hard);
    let raised = Rlimit { current: Some(within), maximum: limit.maximum };
    if setrlimit(Resource::Nofile, raised).is_ok() { within } else { allowed }
}

/// Files that the process may open.
#[must_use]
pub fn open_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raising_the_file_limit_never_lowers_it() {
        let before = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert_eq!(raise_open_files(1), before);
        let after = raise_open_files(before.saturating_add(1));
        assert!(after >= before);
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), after);
    }
}

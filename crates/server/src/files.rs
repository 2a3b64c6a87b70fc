//! How many clients fit under the limit of open files. It is raised where that is allowed;
//! otherwise fewer clients are served, as in Redis: those beyond are refused, and not left waiting
//! in a queue from which no one can accept.

use crate::shared::Machine;

/// Files that are open besides the clients' sockets: the log, listeners, a ring and a waker a core,
/// and the sockets of clients that are being refused.
fn beside_clients(cores: usize) -> u64 {
    /// Redis's reserve, so that as many clients fit.
    const LEAST: u64 = 32;
    LEAST.max(24 + 2 * cores as u64)
}

/// Makes room for `clients`, or returns how many there is room for: 0 if not even the other files
/// may be opened.
pub(crate) fn make_room(machine: &dyn Machine, clients: usize, cores: usize) -> Result<(), usize> {
    let wanted = clients as u64 + beside_clients(cores);
    let allowed = machine.raise_open_files(wanted);
    if allowed >= wanted {
        return Ok(());
    }
    let fitting = allowed.saturating_sub(beside_clients(cores));
    tracing::warn!("maxclients {clients} needs {wanted} open files, but the limit is {allowed}");
    Err(usize::try_from(fitting).unwrap_or(clients))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Nowhere;

    /// A machine that allows this many files.
    struct Allows(u64);

    impl Machine for Allows {
        fn resident_bytes(&self) -> (usize, usize) {
            Nowhere.resident_bytes()
        }

        fn cpu_us(&self) -> (u64, u64) {
            Nowhere.cpu_us()
        }

        fn total_bytes(&self) -> usize {
            Nowhere.total_bytes()
        }

        fn purge(&self) {}

        fn raise_open_files(&self, _wanted: u64) -> u64 {
            self.0
        }
    }

    #[test] // Redis's numbers with a few cores; with many, two files each.
    fn room_follows_the_limit() {
        assert_eq!(make_room(&Allows(132), 100, 1), Ok(()));
        assert_eq!(make_room(&Allows(131), 100, 1), Err(99));
        assert_eq!(make_room(&Allows(60), 10_000, 4), Err(28));
        assert_eq!(make_room(&Allows(60), 10_000, 10), Err(16));
        assert_eq!(make_room(&Allows(20), 10_000, 1), Err(0));
    }
}

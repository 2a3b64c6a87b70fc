//! The limit of open files. The server raises it as far as the system allows. If that is not enough
//! for `maxclients`, fewer clients are accepted, as in Redis. The others are refused at once, which
//! is better than a queue from which the server cannot accept.

use crate::shared::Machine;

/// Open files in addition to the clients' sockets: the log, listeners, a ring and a waker per core,
/// and the sockets of clients that are being refused.
fn beside_clients(cores: usize) -> u64 {
    /// The number of files that Redis reserves, so that the same number of clients fits.
    const LEAST: u64 = 32;
    LEAST.max(24 + 2 * cores as u64)
}

/// Raises the limit of open files for `clients` clients. On failure returns the number of clients
/// that fit, which is 0 if the limit is too low even without clients.
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

    /// A machine that allows this number of open files.
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

    #[test] // With few cores the numbers are Redis's; with many, each core needs two files.
    fn the_number_of_clients_fits_the_limit_of_open_files() {
        assert_eq!(make_room(&Allows(132), 100, 1), Ok(()));
        assert_eq!(make_room(&Allows(131), 100, 1), Err(99));
        assert_eq!(make_room(&Allows(60), 10_000, 4), Err(28));
        assert_eq!(make_room(&Allows(60), 10_000, 10), Err(16));
        assert_eq!(make_room(&Allows(20), 10_000, 1), Err(0));
    }
}

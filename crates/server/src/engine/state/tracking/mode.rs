//! The tracking mode of a connection, as set by CLIENT TRACKING and CLIENT CACHING.

use crate::engine::point::Tracker;

/// The commands whose keys are tracked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// The keys of all reading commands are tracked.
    #[default]
    All,
    /// OPTIN: only those of the command after CLIENT CACHING YES.
    OptIn,
    /// OPTOUT: those of all commands except the one after CLIENT CACHING NO.
    OptOut,
    /// BCAST: none. The client is notified of all keys with its prefixes.
    Broadcast,
}

/// The tracking mode of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mode {
    /// True if tracking is on.
    pub is_on: bool,
    /// The mode OPTIN, OPTOUT or BCAST.
    pub reads: Reads,
    /// NOLOOP: the client gets no invalidations for its own changes.
    pub is_quiet: bool,
    /// True if CLIENT CACHING was called for the next command or transaction.
    pub is_excepted: bool,
    /// REDIRECT: the id of the client that gets the invalidations, or 0.
    pub redirect: u64,
    /// The handle of the client that gets the invalidations.
    pub target: u64,
    /// True if that client had gone when the last invalidation was sent.
    pub is_broken: bool,
    /// Bytes of memory that the prefixes occupy.
    pub prefix_bytes: usize,
}

impl Mode {
    /// The tracking of a command that client `client` runs in this mode.
    #[inline]
    pub(crate) fn tracker(&self, client: u64) -> Tracker {
        if self.is_on { self.tracker_of(client) } else { Tracker::default() }
    }

    #[cold]
    fn tracker_of(&self, client: u64) -> Tracker {
        let reads = match self.reads {
            Reads::All => true,
            Reads::OptIn => self.is_excepted,
            Reads::OptOut => !self.is_excepted,
            Reads::Broadcast => false,
        };
        Tracker::new(client, reads, self.is_quiet)
    }

    /// The redirection as CLIENT GETREDIR and CLIENT LIST show it: the id of the client that gets
    /// the invalidations, 0 without redirection, -1 without tracking.
    pub(crate) fn redirection(&self) -> i64 {
        if self.is_on { i64::try_from(self.redirect).unwrap_or(i64::MAX) } else { -1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // The exception applies to a single command.
    fn client_caching_makes_an_exception_from_optin_and_optout() {
        let reader = |reads, is_excepted| {
            let mode = Mode { is_on: true, reads, is_excepted, ..Mode::default() };
            mode.tracker(7).reader()
        };
        for (reads, plain, excepted) in [
            (Reads::All, Some(7), Some(7)),
            (Reads::OptIn, None, Some(7)),
            (Reads::OptOut, Some(7), None),
            (Reads::Broadcast, None, None),
        ] {
            assert_eq!((reader(reads, false), reader(reads, true)), (plain, excepted), "{reads:?}");
        }
        assert!(Mode { is_quiet: true, ..Mode::default() }.tracker(7).is_none(), "it is off");
        let quiet = Mode { is_on: true, is_quiet: true, ..Mode::default() };
        assert_eq!((quiet.tracker(7).author(), quiet.redirection()), (7, 0));
        assert_eq!((Mode::default().redirection(), Tracker::default().author()), (-1, 0));
    }
}

//! What a connection has declared of tracking: CLIENT TRACKING and CLIENT CACHING.

use crate::engine::point::Tracker;

/// When the keys of commands are remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// Those of all.
    #[default]
    All,
    /// Those of the command after CLIENT CACHING YES.
    OptIn,
    /// All but those of the command after CLIENT CACHING NO.
    OptOut,
    /// None: what is touched is told by prefixes.
    Broadcast,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mode {
    /// It tracks.
    pub is_on: bool,
    /// OPTIN, OPTOUT, BCAST.
    pub reads: Reads,
    /// NOLOOP: it does not want to hear of its own changes.
    pub is_quiet: bool,
    /// CLIENT CACHING was called for the next command, or transaction.
    pub is_excepted: bool,
    /// REDIRECT: the id of the client that is told instead, or 0.
    pub redirect: u64,
    /// Its handle.
    pub target: u64,
    /// That was gone when it was last to be told.
    pub is_broken: bool,
    /// Bytes of its prefixes, and of what they take.
    pub prefix_bytes: usize,
}

impl Mode {
    /// What is to be done for a command of client `client`, which has this mode.
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

    /// The client that is told instead, as GETREDIR and CLIENT LIST show it: 0 for itself, -1 where
    /// nothing is tracked.
    pub(crate) fn redirection(&self) -> i64 {
        if self.is_on { i64::try_from(self.redirect).unwrap_or(i64::MAX) } else { -1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // CLIENT CACHING turns what the mode says of reads into its opposite.
    fn modes_decide_what_is_remembered() {
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

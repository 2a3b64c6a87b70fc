//! The counters of one core.

use darter_command::Refusal;
use std::collections::BTreeMap;

/// The counters of one command on one core.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommandStats {
    /// The number of calls that ran.
    pub calls: u64,
    /// The total time of the calls, in nanoseconds.
    pub ns: u64,
    /// The number of calls that were refused before they ran.
    pub rejected: u64,
    /// The number of calls that failed while they ran.
    pub failed: u64,
    /// The number of calls by duration: bucket `n` counts those below 2^n nanoseconds.
    pub histogram: [u32; 32],
}

impl CommandStats {
    /// Counts a call and its time.
    #[inline]
    pub fn record(&mut self, ns: u64, failed: bool) {
        self.count(failed);
        self.time(ns, 1);
    }

    /// Counts a call. Its time is added later, with [`CommandStats::time`].
    #[inline]
    pub fn count(&mut self, failed: bool) {
        self.calls += 1;
        self.failed += u64::from(failed);
    }

    /// Adds the total time of `calls` calls that were counted before.
    #[inline]
    pub fn time(&mut self, ns: u64, calls: u32) {
        self.ns += ns;
        let each = ns / u64::from(calls.max(1));
        let bucket = (u64::BITS - each.leading_zeros()).min(31) as usize;
        self.histogram[bucket] += calls;
    }
}

/// The maximum of a size in each of the last few seconds, as Redis keeps it for clients' buffers.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecentMax([(u64, usize); RECENT_S as usize]);

/// The number of seconds for which a maximum is remembered.
const RECENT_S: u64 = 8;

impl RecentMax {
    /// Records a size at `now_ms`, in Unix milliseconds.
    #[inline]
    pub fn note(&mut self, count: usize, now_ms: u64) {
        let second = now_ms / 1_000;
        let slot = &mut self.0[(second % RECENT_S) as usize];
        if slot.0 != second {
            *slot = (second, 0);
        }
        slot.1 = slot.1.max(count);
    }

    /// The maximum over the last [`RECENT_S`] seconds.
    #[must_use]
    pub fn most(&self, now_ms: u64) -> usize {
        let since = (now_ms / 1_000).saturating_sub(RECENT_S - 1);
        self.0
            .iter()
            .filter(|(second, _)| *second >= since)
            .map(|(_, most)| *most)
            .max()
            .unwrap_or(0)
    }
}

/// The rate of commands per second, measured between two reads of INFO.
#[derive(Default)]
pub(crate) struct Pace {
    at_ms: u64,
    commands: u64,
    per_s: u64,
}

impl Pace {
    /// The rate at `now_ms`, if `commands` commands have run since `started_ms`.
    pub(crate) fn per_s(&mut self, now_ms: u64, commands: u64, started_ms: u64) -> u64 {
        /// A read that follows another one within this time returns the same rate.
        const TICK_MS: u64 = 100;
        let elapsed = now_ms.saturating_sub(self.at_ms);
        if self.at_ms == 0 || elapsed >= TICK_MS {
            let since = if self.at_ms == 0 { started_ms } else { self.at_ms };
            let done = commands.saturating_sub(self.commands);
            self.per_s = done * 1_000 / now_ms.saturating_sub(since).max(1);
            (self.at_ms, self.commands) = (now_ms, commands);
        }
        self.per_s
    }
}

/// The number of error replies by error code.
pub(crate) type Errors = BTreeMap<String, u64>;

/// Counts an error reply by its code, which is the first word of the line. When there are too many
/// codes, new ones are not counted.
pub(crate) fn count_code(errors: &mut Errors, line: &[u8]) {
    const CODES_MAX: usize = 128;
    let code = line.split(|byte| *byte == b' ').next().unwrap_or(line);
    let code = String::from_utf8_lossy(code);
    if let Some(count) = errors.get_mut(&*code) {
        *count += 1;
    } else if errors.len() < CODES_MAX {
        errors.insert(code.into_owned(), 1);
    }
}

/// The counters of one core.
#[derive(Clone, Debug, Default)]
pub struct CoreStats {
    /// The recent maximum of a client's input, in bytes.
    pub input_recent: RecentMax,
    /// The recent maximum of a client's output, in bytes.
    pub output_recent: RecentMax,
    /// The number of clients closed because of `maxmemory-clients`.
    pub evicted_clients: u64,
    /// The number of clients closed because of `client-output-buffer-limit`.
    pub output_limited: u64,
    /// The number of accepted connections.
    pub connections: u64,
    /// The number of connections refused because of `maxclients` or protected mode.
    pub rejected_connections: u64,
    /// The number of commands that were stopped because their client had gone.
    pub stopped: u64,
    /// The number of writes that had to wait for a snapshot.
    pub writes_held: u64,
    /// The number of commands that ran.
    pub commands: u64,
    /// The number of received bytes.
    pub bytes_in: u64,
    /// The number of sent bytes.
    pub bytes_out: u64,
    /// The number of error replies, by code.
    pub errors: Errors,
    /// The number of all error replies.
    pub error_replies: u64,
    /// The number of scripts that were killed.
    pub scripts_killed: u64,
    /// The number of script runs that were undone and repeated because a key was locked.
    pub scripts_restarted: u64,
    /// The number of messages received from other cores.
    pub hops: u64,
    /// The number of connections that moved here from another core.
    pub moves: u64,
    /// The counters of each command, by its index in the table.
    pub by_command: Vec<CommandStats>,
}

impl CoreStats {
    /// Counts an error reply by its code, which is the first word of the line.
    pub fn count_error(&mut self, line: &[u8]) {
        self.error_replies += 1;
        count_code(&mut self.errors, line);
    }

    /// Counts a refusal as an error reply, unless it was counted where it arose.
    pub fn count_refusal(&mut self, refusal: &Refusal) {
        if !matches!(refusal, Refusal::Counted(_)) {
            self.count_error(&refusal.text());
        }
    }

    /// Resets the counters, for CONFIG RESETSTAT.
    pub fn reset(&mut self) {
        let by_command = vec![CommandStats::default(); self.by_command.len()];
        *self = Self { by_command, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_failures_and_durations_are_counted() {
        let mut stats = CommandStats::default();
        for (ns, calls, bucket) in
            [(0, 1, 0), (1, 1, 1), (2, 1, 2), (3, 1, 2), (4, 1, 3), (40, 10, 3), (1 << 40, 2, 31)]
        {
            let before = stats;
            stats.time(ns, calls);
            assert_eq!(stats.histogram[bucket], before.histogram[bucket] + calls, "{ns}");
            assert_eq!(stats.ns, before.ns + ns);
        }
        assert_eq!((stats.calls, stats.histogram.iter().sum::<u32>()), (0, 17));
        let mut stats = CommandStats::default();
        stats.record(100, true);
        stats.record(200, false);
        stats.count(true);
        assert_eq!((stats.calls, stats.failed, stats.ns), (3, 2, 300));
        assert_eq!((stats.histogram[7], stats.histogram[8]), (1, 1));
    }

    #[test] // The number of counted error codes is limited, because memory is.
    fn error_codes_invented_by_a_client_are_not_all_counted() {
        let mut stats =
            CoreStats { by_command: vec![CommandStats::default(); 3], ..CoreStats::default() };
        for line in [&b"ERR one"[..], b"ERR other", b"WRONGTYPE", b""] {
            stats.count_error(line);
        }
        let of = |stats: &CoreStats, code: &str| stats.errors.get(code).copied();
        assert_eq!(
            (of(&stats, "ERR"), of(&stats, "WRONGTYPE"), of(&stats, "")),
            (Some(2), Some(1), Some(1))
        );
        for code in 0..1_000 {
            stats.count_error(format!("CODE{code} text").as_bytes());
        }
        stats.count_error(b"ERR again");
        assert_eq!(
            (stats.errors.len(), stats.error_replies, of(&stats, "ERR")),
            (128, 1_005, Some(3))
        );
        stats.by_command[1].record(5, false);
        stats.reset();
        assert_eq!((stats.errors.len(), stats.error_replies), (0, 0));
        assert_eq!(stats.by_command.iter().map(|one| one.calls).collect::<Vec<_>>(), [0; 3]);
    }

    #[test] // After eight seconds, a later and smaller peak is shown.
    fn a_peak_is_shown_for_eight_seconds() {
        let mut recent = RecentMax::default();
        recent.note(100, 10_000);
        recent.note(7, 10_900);
        recent.note(40, 13_000);
        assert_eq!(
            [10_900, 17_999, 18_000, 20_999, 21_000].map(|at| recent.most(at)),
            [100, 100, 40, 40, 0]
        );
    }

    #[test] // The first read covers the time since the start of the server.
    fn commands_per_second_cover_the_time_since_the_last_read() {
        let mut pace = Pace::default();
        let looks = [(2_000, 500), (2_050, 900), (3_000, 1_500), (3_000, 9_000)];
        assert_eq!(
            looks.map(|(now, commands)| pace.per_s(now, commands, 1_000)),
            [500, 500, 1_000, 1_000]
        );
    }
}

//! Counters of one core.

/// Counters of one command on one core.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommandStats {
    /// Calls that ran.
    pub calls: u64,
    /// Their time, in nanoseconds.
    pub ns: u64,
    /// Refused before they ran.
    pub rejected: u64,
    /// Refused while they ran.
    pub failed: u64,
    /// Calls by duration: bucket `n` holds those below 2^n nanoseconds.
    pub histogram: [u32; 32],
}

impl CommandStats {
    /// Adds a call.
    #[inline]
    pub fn record(&mut self, ns: u64, failed: bool) {
        self.count(failed);
        self.time(ns, 1);
    }

    /// Adds a call whose time comes later.
    #[inline]
    pub fn count(&mut self, failed: bool) {
        self.calls += 1;
        self.failed += u64::from(failed);
    }

    /// Adds the time of `calls` calls that were counted.
    #[inline]
    pub fn time(&mut self, ns: u64, calls: u32) {
        self.ns += ns;
        let each = ns / u64::from(calls.max(1));
        let bucket = (u64::BITS - each.leading_zeros()).min(31) as usize;
        self.histogram[bucket] += calls;
    }
}

/// Counters of one core.
#[derive(Clone, Debug, Default)]
pub struct CoreStats {
    /// Connections accepted.
    pub connections: u64,
    /// Connections refused: `maxclients`, protected mode.
    pub rejected_connections: u64,
    /// Commands run.
    pub commands: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Errors replied, by code.
    pub errors: std::collections::BTreeMap<String, u64>,
    /// Error replies in all.
    pub error_replies: u64,
    /// Messages from other cores.
    pub hops: u64,
    /// By command: the same index as in the table.
    pub by_command: Vec<CommandStats>,
}

impl CoreStats {
    /// Counts an error reply by its code, the first word of the line.
    pub fn count_error(&mut self, line: &[u8]) {
        const CODES_MAX: usize = 128;
        self.error_replies += 1;
        let code = line.split(|byte| *byte == b' ').next().unwrap_or(line);
        let code = String::from_utf8_lossy(code);
        if let Some(count) = self.errors.get_mut(&*code) {
            *count += 1;
        } else if self.errors.len() < CODES_MAX {
            self.errors.insert(code.into_owned(), 1);
        }
    }

    /// Forgets: CONFIG RESETSTAT.
    pub fn reset(&mut self) {
        let commands = self.by_command.len();
        *self = Self { by_command: vec![CommandStats::default(); commands], ..Self::default() };
    }
}

//! The progress of reading: one line on a terminal, rewritten twice a second.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::{Duration, Instant};

/// The number of columns of the bar.
const COLUMNS: u64 = 24;
const REDRAWN_EVERY: Duration = Duration::from_millis(500);

/// The progress of reading files. If standard error is no terminal, nothing is printed.
pub(crate) struct Progress {
    total: u64,
    bytes: u64,
    keys: u64,
    began: Instant,
    drawn: Option<Instant>,
    is_shown: bool,
}

impl Progress {
    /// A progress before the first of `total` bytes.
    pub(crate) fn new(total: u64) -> Self {
        let began = Instant::now();
        Self { total, bytes: 0, keys: 0, began, drawn: None, is_shown: stderr().is_terminal() }
    }

    /// Counts a key or a command.
    pub(crate) fn key(&mut self) {
        self.keys += 1;
    }

    /// Counts bytes.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        if !self.is_shown {
            return;
        }
        let now = Instant::now();
        if now - self.drawn.unwrap_or(self.began) >= REDRAWN_EVERY {
            self.drawn = Some(now);
            let line = line(self.bytes, self.total, self.keys, now - self.began);
            let _ = write!(stderr(), "\r\x1b[K{line}");
        }
    }

    /// Removes the line.
    pub(crate) fn end(&self) {
        if self.drawn.is_some() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

fn line(bytes: u64, total: u64, keys: u64, spent: Duration) -> String {
    let (bytes, total) = (bytes.min(total), total.max(1));
    let filled = usize::try_from(bytes * COLUMNS / total).unwrap_or(0);
    let bar = format!("{:<width$}", "#".repeat(filled), width = COLUMNS as usize);
    let rate = bytes as f64 / spent.as_secs_f64().max(0.001);
    let left = (total - bytes) as f64 / rate.max(1.0);
    let percent = bytes * 100 / total;
    format!("[{bar}] {percent:3} %  {:.0} MB/s  {keys} keys  {left:.0} s left", rate / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_percent_rate_keys_and_time_left() {
        let half = line(500_000_000, 1_000_000_000, 7, Duration::from_secs(5));
        assert_eq!(half, "[############            ]  50 %  100 MB/s  7 keys  5 s left");
        let over = line(3, 2, 1, Duration::ZERO);
        assert!(over.contains("] 100 %") && over.ends_with("0 s left"), "{over}");
    }
}

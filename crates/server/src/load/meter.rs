//! The progress of loading: a log line every second, and a bar on a terminal.

use super::Summary;
use std::io::{IsTerminal, Write};

const LINE_EVERY_NS: u64 = 1_000_000_000;
const BAR_EVERY_NS: u64 = 100_000_000;
const BAR_WIDTH: usize = 30;

/// Measures and shows the progress of loading.
pub(crate) struct LoadMeter {
    total_bytes: u64,
    line_ns: u64,
    bar_ns: u64,
    /// The counts when the last line was logged.
    line: Counts,
    terminal: bool,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    bytes: u64,
    keys: u64,
    entries: u64,
}

impl LoadMeter {
    pub(crate) fn start(now_ns: u64, total_bytes: u64) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let line = Counts::default();
        Self { total_bytes, line_ns: now_ns, bar_ns: now_ns, line, terminal }
    }

    /// Logs and draws the progress if that is due. `bytes` bytes of the file were read so far.
    pub(crate) fn tick(&mut self, now_ns: u64, bytes: u64, summary: &Summary) {
        let counts = Counts { bytes, keys: summary.keys, entries: summary.entries };
        let since = now_ns - self.line_ns;
        if since >= LINE_EVERY_NS {
            self.end();
            tracing::info!("loading: {}", self.text(counts, since));
            (self.line_ns, self.line) = (now_ns, counts);
        }
        if self.terminal && now_ns - self.bar_ns >= BAR_EVERY_NS {
            self.bar_ns = now_ns;
            self.draw(bytes);
        }
    }

    /// Removes the bar from the terminal.
    pub(crate) fn end(&mut self) {
        if self.terminal {
            // If the terminal is lost, only the bar is lost.
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn text(&self, counts: Counts, since_ns: u64) -> String {
        let rate = |now: u64, before: u64| (now - before) as f64 * 1e9 / since_ns as f64;
        format!(
            "{:.1} %, {} keys, {:.0} keys/s, {:.0} entries/s, {:.1} MB/s",
            self.share(counts.bytes) * 100.0,
            counts.keys,
            rate(counts.keys, self.line.keys),
            rate(counts.entries, self.line.entries),
            rate(counts.bytes, self.line.bytes) / 1e6,
        )
    }

    /// The share of the file that was read, from 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn share(&self, bytes: u64) -> f64 {
        (bytes as f64 / self.total_bytes.max(1) as f64).min(1.0)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and BAR_WIDTH"
    )]
    fn draw(&self, bytes: u64) {
        let share = self.share(bytes);
        let full = (share * BAR_WIDTH as f64) as usize;
        let bar = format!("{:█<full$}{:░<rest$}", "", "", rest = BAR_WIDTH - full);
        // If the terminal is lost, only the bar is lost.
        let _ = write!(std::io::stderr(), "\r\x1b[Kloading {bar} {:.0} %", share * 100.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logged_rate_covers_the_time_since_the_previous_line() {
        let mut meter = LoadMeter::start(0, 200_000_000);
        meter.line = Counts { bytes: 50_000_000, keys: 5, entries: 500 };
        let counts = Counts { bytes: 100_000_000, keys: 10, entries: 1_500 };
        assert_eq!(
            meter.text(counts, 500_000_000),
            "50.0 %, 10 keys, 10 keys/s, 2000 entries/s, 100.0 MB/s"
        );
        assert!(meter.share(300_000_000) <= 1.0);
    }
}

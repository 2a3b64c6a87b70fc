//! Records the lengths of slices, and logs those that are too long.

use super::core::Core;
use super::slices::{Cause, Slice};
use darter_base::Preempt;
use darter_base::limits::SLICE_MAX_NS;
use darter_keyspace::Shard;

impl Core {
    /// Runs a portion of loading as a slice of its own. Returns the result of `step`.
    pub fn load_slice(&self, step: impl FnOnce(&mut Shard, &dyn Preempt) -> bool) -> bool {
        let begun = self.clock.monotonic_ns();
        self.slice.extend(begun + darter_base::limits::SLICE_AIM_NS);
        self.meter.begin(begun, || self.clock.cpu_ns());
        self.meter.blame(Cause::Load);
        let more = step(&mut self.tx.home().shard, &*self.slice);
        let (ns, cause) = self.meter.end(self.clock.monotonic_ns(), || self.clock.cpu_ns());
        self.record_slice(ns, cause);
        more
    }

    /// Counts a slice. Keeps it if it is one of the longest or exceeds LATENCY's threshold. Logs it
    /// if it is too long.
    pub(super) fn record_slice(&self, ns: u64, cause: Cause) {
        let slice = Slice { core: self.id(), unix_ms: self.now_ms(), ns, cause };
        self.slices.borrow_mut().record(slice);
        if ns > SLICE_MAX_NS {
            let left_out = self.admin.complaints.borrow_mut().admit(self.clock.monotonic_ns());
            if let Some(left_out) = left_out {
                tracing::warn!("{}", self.complaint(slice, left_out));
            }
        }
        let threshold = self.admin.settings.borrow().size("latency-monitor-threshold") as u64;
        let ms = ns / 1_000_000;
        if threshold > 0 && ms >= threshold {
            let name = self.event_of(cause);
            self.admin.latency.borrow_mut().add(name, self.now_ms() / 1_000, ms);
        }
    }

    /// The log line of a slice that was too long. `left_out` earlier ones were not logged.
    fn complaint(&self, slice: Slice, left_out: u64) -> String {
        let (us, max_us) = (slice.ns / 1_000, SLICE_MAX_NS / 1_000);
        let (cause, by) = (slice.cause.name(), slice.core);
        let command = self.command_of(slice.cause).unwrap_or("-");
        format!(
            "slice of {us} us, limit {max_us} us: cause {cause}, command {command}, \
             core {by}; {left_out} more since the last log line"
        )
    }

    /// The command to which a slice is attributed, if any.
    pub(crate) fn command_of(&self, cause: Cause) -> Option<&'static str> {
        cause.row().map(|row| self.table.entries()[row].row.name)
    }

    /// The name of the LATENCY event to which a slice belongs.
    pub(crate) fn event_of(&self, cause: Cause) -> &'static str {
        match cause {
            Cause::Command(_) => self.command_of(cause).unwrap_or_default(),
            other => other.name(),
        }
    }

    /// Commands per second since the last call.
    pub(crate) fn commands_per_s(&self) -> u64 {
        let (commands, started_ms) = (self.stats.borrow().commands, self.admin.shared.started_ms);
        self.admin.pace.borrow_mut().per_s(self.now_ms(), commands, started_ms)
    }
}
